"""Rolling out: conversations of a task with a model, token-exact, in any order, resumable.

The loop keeps a batch of unfinished conversations, whatever turn each is in, and fills it up as soon
as one ends. What is sampled for a conversation depends on the seed, its problem, its sample number
and its turn alone, so neither the batch nor an interruption changes it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from antiphon.engine.sampled import detach
from antiphon.envs.conversation import Conversation, Prompter
from antiphon.envs.tasks import Message, Reply, Task
from antiphon.errors import AntiphonError, BackendError, InvalidData, InvalidParameter
from antiphon.generation.backends import Backend, Generation, Scores, TokenBatch, WeightVersion
from antiphon.generation.sampling import SamplingParams
from antiphon.plugins.events import trajectory_finished, turns_sampled


@dataclass(frozen=True)
class RolloutSettings:
    """How a task is rolled out.

    Attributes:
        samples: Conversations per problem.
        batch_size: How many conversations are sampled together, or are under way at once.
        seed: Together with problem, sample and turn it settles what is sampled.
        params: How to sample; one answer at a time.
        timeout: Seconds that one answer may take, None for ever; held by `roll_out_async` alone,
            where answers don't wait for each other.
    """

    samples: int = 4
    batch_size: int = 32
    seed: int = 0
    params: SamplingParams = field(default_factory=lambda: SamplingParams(max_new_tokens=96))
    timeout: float | None = None


@dataclass
class SampledTurn:
    """One assistant message: where its ids stand in its segment, and what it is worth.

    ``versions`` are the weights that sampled it, see `Generation.versions`.
    """

    segment: int
    start: int
    end: int
    finish: str
    versions: Sequence[tuple[int, WeightVersion | None]] = ()
    reward: float = 0.0
    info: Mapping[str, float | bool] = field(default_factory=dict)


@dataclass
class Segment:
    """One token sequence; a conversation has one for as long as the template rewrites nothing.

    Attributes:
        ids: All ids.
        sampled: Whether the model sampled the id in this very context.
        log_probs: The sampler's log-probs, None where nothing was sampled.
        scored: The same ids' log-probs by the backend that scores, None likewise.
    """

    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    log_probs: list[float | None] = field(default_factory=list)
    scored: list[float | None] = field(default_factory=list)

    def extend(self, ids: Sequence[int], log_probs: Sequence[float] | None = None) -> None:
        """Append ids; sampled ones come with their log-probs."""
        self.ids += ids
        self.sampled += [log_probs is not None] * len(ids)
        self.log_probs += [None] * len(ids) if log_probs is None else log_probs
        self.scored += [None] * len(ids)


class Trajectory:
    """A conversation while it is rolled out, with all that was sampled for it."""

    def __init__(self, problem: int, sample: int, conversation: Conversation) -> None:
        self.problem, self.sample = problem, sample
        self.conversation = conversation
        self.turns: list[SampledTurn] = []
        self.breaks: list[dict[str, Any]] = []
        self.segments = [Segment()]
        self.segments[0].extend(conversation.prompt.input_ids)
        self.terminated = self.truncated = False
        self.difference = 0.0

    @property
    def name(self) -> str:
        """Problem and sample, which tell a conversation from the others of its run."""
        return conversation_name(self.problem, self.sample)

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.terminated or self.truncated

    def take_turn(
        self,
        ids: list[int],
        log_probs: list[float],
        finish: str,
        versions: Sequence[tuple[int, WeightVersion | None]] = (),
    ) -> None:
        """Put down what the model sampled after the prompt."""
        segment = self.segments[-1]
        start = len(segment.ids)
        segment.extend(ids, log_probs)
        number, end = len(self.segments) - 1, len(segment.ids)
        self.turns.append(SampledTurn(number, start, end, finish, versions))

    def take_prompt(self, conversation: Conversation) -> None:
        """Go on with the next prompt; where it does not start with all before it, a segment ends."""
        segment, ids = self.segments[-1], list(conversation.prompt.input_ids)
        if ids[: len(segment.ids)] == segment.ids:
            segment.extend(ids[len(segment.ids) :])
        else:
            self.breaks += [_break(found) for found in conversation.prompt.breaks]
            if not conversation.prompt.breaks:
                raise AntiphonError(
                    f"Conversation {self.name}: the prompt of turn {len(self.turns) + 1} does not "
                    "start with what was sampled, and the rendering reports no break; this is a "
                    "fault of the program."
                )
            self.segments.append(Segment())
            self.segments[-1].extend(ids)
        self.conversation = conversation

    def records(self) -> list[dict[str, Any]]:
        """Return one record per segment, as the files of a rollout hold them."""
        messages = [detach(message) for message in self.conversation.messages]
        import json

        turns = [
            {
                **vars(turn),
                "versions": json.dumps(turn.versions),
                "info": json.dumps(turn.info),
            }
            for turn in self.turns
        ]
        return [
            {
                "conversation": self.name,
                "problem": self.problem,
                "sample": self.sample,
                "segment": number,
                "input_ids": segment.ids,
                "assistant_mask": segment.sampled,
                "log_probs": segment.log_probs,
                "scored_log_probs": segment.scored,
                "reward": self.turns[-1].reward,
                "turns": turns,
                "terminated": self.terminated,
                "truncated": self.truncated,
                "breaks": self.breaks,
                "log_prob_difference": self.difference,
                "messages": json.dumps(messages, ensure_ascii=False),
            }
            for number, segment in enumerate(self.segments)
        ]


def conversation_name(problem: int, sample: int) -> str:
    """Return the name of a conversation within its run."""
    return f"{problem}/{sample}"


def roll_out(
    task: Task,
    rows: Sequence[Mapping[str, Any]],
    backend: Backend,
    settings: RolloutSettings,
    *,
    prompter: Prompter,
    done: Iterable[str] = (),
    on_tokens: Callable[[int], None] | None = None,
    scorer: Backend | None = None,
) -> Generator[list[Trajectory], None, None]:
    """Sample conversations; yields the finished ones after each step.

    Args:
        task: What the conversations are about.
        rows: The problems.
        backend: What samples and scores.
        settings: How many, how, from which seed.
        prompter: Turns messages into prompts.
        done: Names of conversations that are not to be sampled again.
        on_tokens: Called with the number of tokens sampled in each step.
        scorer: What stands for the trainer and scores what was sampled; ``backend`` by default.

    Raises:
        InvalidData: The template refuses a problem, or it does not fit into the context; the row is
            named. All problems are looked at before anything is sampled.
    """
    waiting = begin_all(task, rows, backend, settings, prompter, set(done))
    active: list[Trajectory] = []
    while True:
        active += [
            t for _, t in zip(range(settings.batch_size - len(active)), waiting, strict=False)
        ]
        if not active:
            return
        batch = to_sample(active, settings)
        generation = backend.generate(batch, settings.params)
        take_answers(active, generation, prompter)
        turns_sampled(backend.name, batch, generation, active)
        if on_tokens is not None:
            on_tokens(sum(map(len, generation.ids)))
        for trajectory in active:
            reply = ask(trajectory, task, rows[trajectory.problem])
            if inspect.isawaitable(reply):
                raise InvalidParameter(
                    f"{type(task).__name__}.respond is asynchronous; roll it out with a backend that "
                    "is, or make it an ordinary method."
                )
            take_reply(trajectory, reply, backend, settings, prompter)
        finished = [trajectory for trajectory in active if trajectory.done]
        active = [trajectory for trajectory in active if not trajectory.done]
        if finished:
            batch, starts = to_score(finished)
            temperature = settings.params.log_prob_temperature
            scoring = scorer or backend
            take_scores(finished, scoring.score(batch, starts=starts, temperature=temperature))
            for trajectory in finished:
                trajectory_finished(trajectory)
            yield finished


def begin_all(
    task: Task,
    rows: Sequence[Mapping[str, Any]],
    backend: Backend,
    settings: RolloutSettings,
    prompter: Prompter,
    done: set[str],
) -> Iterator[Trajectory]:
    """Render all problems, and return what is to be sampled, in order.

    Raises:
        InvalidData: A problem can't be rendered or is too long; the row is named.
    """
    conversations = []
    for problem, row in enumerate(rows):
        try:
            conversation = prompter.begin(task.start(row))
        except AntiphonError as error:
            raise InvalidData(
                f"Row {problem + 1} of the data can't be rendered: {error} Leave the row out, or "
                "change what conversations start with (--system-prompt)."
            ) from error
        if not _fits(conversation, backend, settings):
            raise InvalidData(
                f"Row {problem + 1} of the data has {len(conversation.prompt.input_ids)} tokens, and "
                f"with {settings.params.max_new_tokens} new ones that is more than the "
                f"{backend.max_context} of the model's context; leave the row out, or lower "
                "--max-new-tokens."
            )
        conversations.append(conversation)

    def trajectories() -> Iterator[Trajectory]:
        for problem, conversation in enumerate(conversations):
            for sample in range(settings.samples):
                if conversation_name(problem, sample) not in done:
                    yield Trajectory(problem, sample, conversation)

    return trajectories()


def _fits(conversation: Conversation, backend: Backend, settings: RolloutSettings) -> bool:
    room = settings.params.max_new_tokens or 1
    length = len(conversation.prompt.input_ids) + room
    return backend.max_context is None or length <= backend.max_context


def to_sample(active: Sequence[Trajectory], settings: RolloutSettings) -> TokenBatch:
    """Return the prompts of the next turns; each row's seed is its own."""
    return TokenBatch(
        rows=[list(t.conversation.prompt.input_ids) for t in active],
        seeds=[_seed(settings.seed, t.problem, t.sample, len(t.turns)) for t in active],
        groups=[t.problem for t in active],
    )


def take_answers(active: Sequence[Trajectory], generation: Generation, prompter: Prompter) -> None:
    """Put down what was sampled for each."""
    if len(generation) != len(active):
        raise BackendError(
            f"The backend returned {len(generation)} answers for {len(active)} conversations."
        )
    for row, trajectory in enumerate(active):
        ids, log_probs = list(generation.ids[row]), generation.log_probs[row].tolist()
        trajectory.take_turn(ids, log_probs, generation.finish[row], generation.versions_of(row))
        trajectory.conversation = prompter.answered(trajectory.conversation, ids, log_probs)


def ask(trajectory: Trajectory, task: Task, row: Mapping[str, Any]) -> Reply | Awaitable[Reply]:
    """Return what the other side makes of the last answer."""
    messages: Sequence[Message] = trajectory.conversation.messages
    return task.respond(messages, row, len(trajectory.turns))


def take_reply(
    trajectory: Trajectory,
    reply: Reply,
    backend: Backend,
    settings: RolloutSettings,
    prompter: Prompter,
) -> None:
    """Put down what an answer was worth, and make the next prompt unless this was the last.

    Raises:
        InvalidData: The template refuses the reply; the conversation is named.
    """
    turn = trajectory.turns[-1]
    turn.reward, turn.info = float(reply.reward), dict(reply.info)
    trajectory.terminated = reply.terminated
    trajectory.truncated = reply.truncated and not reply.terminated
    if trajectory.done:
        return
    try:
        following = prompter.proceed(trajectory.conversation, reply.messages)
    except AntiphonError as error:
        raise InvalidData(
            f"Conversation {trajectory.name} (row {trajectory.problem + 1} of the data) can't go on "
            f"after turn {len(trajectory.turns)}: {error}"
        ) from error
    if not _fits(following, backend, settings):
        trajectory.truncated = True
        return
    trajectory.take_prompt(following)


def to_score(finished: Sequence[Trajectory]) -> tuple[TokenBatch, list[int]]:
    """Return the sequences that hold sampled ids, and where in each the first of them stands."""
    segments = [segment for _, segment in _sampled_segments(finished)]
    batch = TokenBatch([segment.ids for segment in segments])
    return batch, [segment.sampled.index(True) for segment in segments]


def take_scores(finished: Sequence[Trajectory], scores: Scores) -> None:
    """Note how far the scores of what `to_score` returned are from what the sampler said."""
    segments = _sampled_segments(finished)
    for (trajectory, segment), scored in zip(segments, scores.log_probs, strict=True):
        start = segment.sampled.index(True)
        for place, again in enumerate(scored.tolist(), start=start):
            sampled = segment.log_probs[place]
            if sampled is not None:
                segment.scored[place] = again
                trajectory.difference = max(trajectory.difference, abs(sampled - again))


def _sampled_segments(finished: Sequence[Trajectory]) -> list[tuple[Trajectory, Segment]]:
    return [(t, segment) for t in finished for segment in t.segments if any(segment.sampled)]


def _seed(*numbers: int) -> int:
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _break(found: Any) -> dict[str, Any]:
    return {
        "message": int(getattr(found, "message", -1)),
        "position": int(getattr(found, "position", -1)),
        "why": str(found),
    }
