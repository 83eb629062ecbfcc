"""Rolling out: conversations of a task with a model, token-exact, in any order, resumable.

The loop keeps a batch of unfinished conversations, whatever turn each is in, and fills it up as soon
as one ends. What is sampled for a conversation depends on the seed, its problem, its sample number
and its turn alone, so neither the batch nor an interruption changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from antiphon.envs.conversation import Conversation, Prompter
from antiphon.envs.tasks import Message, Task
from antiphon.errors import AntiphonError, InvalidData
from antiphon.generation.backends import Backend, TokenBatch
from antiphon.generation.sampling import SamplingParams


@dataclass(frozen=True)
class RolloutSettings:
    """How a task is rolled out.

    Attributes:
        samples: Conversations per problem.
        batch_size: How many conversations are sampled together.
        seed: Together with problem, sample and turn it settles what is sampled.
        params: How to sample; one answer at a time.
    """

    samples: int = 4
    batch_size: int = 32
    seed: int = 0
    params: SamplingParams = field(default_factory=lambda: SamplingParams(max_new_tokens=96))


@dataclass
class SampledTurn:
    """One assistant message: where its ids stand in its segment, and what it is worth."""

    segment: int
    start: int
    end: int
    finish: str
    reward: float = 0.0
    info: Mapping[str, float | bool] = field(default_factory=dict)


@dataclass
class Segment:
    """One token sequence; a conversation has one for as long as the template rewrites nothing.

    Attributes:
        ids: All ids.
        sampled: Whether the model sampled the id in this very context.
        log_probs: The sampler's log-probs, None where nothing was sampled.
    """

    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    log_probs: list[float | None] = field(default_factory=list)

    def extend(self, ids: Sequence[int], log_probs: Sequence[float] | None = None) -> None:
        """Append ids; sampled ones come with their log-probs."""
        self.ids += ids
        self.sampled += [log_probs is not None] * len(ids)
        self.log_probs += [None] * len(ids) if log_probs is None else log_probs


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

    def take_turn(self, ids: list[int], log_probs: list[float], finish: str) -> None:
        """Put down what the model sampled after the prompt."""
        segment = self.segments[-1]
        start = len(segment.ids)
        segment.extend(ids, log_probs)
        self.turns.append(SampledTurn(len(self.segments) - 1, start, len(segment.ids), finish))

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
        messages = [
            {key: value for key, value in message.items() if key not in ("token_ids", "log_probs")}
            for message in self.conversation.messages
        ]
        import json

        turns = [{**vars(turn), "info": json.dumps(turn.info)} for turn in self.turns]
        return [
            {
                "conversation": self.name,
                "problem": self.problem,
                "sample": self.sample,
                "segment": number,
                "input_ids": segment.ids,
                "assistant_mask": segment.sampled,
                "log_probs": segment.log_probs,
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
) -> Iterator[list[Trajectory]]:
    """Sample conversations; yields the finished ones after each step.

    Args:
        task: What the conversations are about.
        rows: The problems.
        backend: What samples and scores.
        settings: How many, how, from which seed.
        prompter: Turns messages into prompts.
        done: Names of conversations that are not to be sampled again.
        on_tokens: Called with the number of tokens sampled in each step.

    Raises:
        InvalidData: The template refuses a problem, or it does not fit into the context; the row is
            named. All problems are looked at before anything is sampled.
    """
    waiting = _start(task, rows, backend, settings, prompter, set(done))
    active: list[Trajectory] = []
    while True:
        active += [
            t for _, t in zip(range(settings.batch_size - len(active)), waiting, strict=False)
        ]
        if not active:
            return
        sampled = _sample(active, backend, settings, prompter)
        if on_tokens is not None:
            on_tokens(sampled)
        for trajectory in active:
            _respond(trajectory, task, rows[trajectory.problem], backend, settings, prompter)
        finished = [trajectory for trajectory in active if trajectory.done]
        active = [trajectory for trajectory in active if not trajectory.done]
        if finished:
            _score(finished, backend, settings)
            yield finished


def _start(
    task: Task,
    rows: Sequence[Mapping[str, Any]],
    backend: Backend,
    settings: RolloutSettings,
    prompter: Prompter,
    done: set[str],
) -> Iterator[Trajectory]:
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


def _sample(
    active: Sequence[Trajectory], backend: Backend, settings: RolloutSettings, prompter: Prompter
) -> int:
    batch = TokenBatch(
        rows=[list(t.conversation.prompt.input_ids) for t in active],
        seeds=[_seed(settings.seed, t.problem, t.sample, len(t.turns)) for t in active],
        groups=[t.problem for t in active],
    )
    generation = backend.generate(batch, settings.params)
    for trajectory, ids, log_probs, finish in zip(
        active, generation.ids, generation.log_probs, generation.finish, strict=True
    ):
        trajectory.take_turn(list(ids), log_probs.tolist(), finish)
        trajectory.conversation = prompter.answered(
            trajectory.conversation, list(ids), log_probs.tolist()
        )
    return sum(map(len, generation.ids))


def _respond(
    trajectory: Trajectory,
    task: Task,
    row: Mapping[str, Any],
    backend: Backend,
    settings: RolloutSettings,
    prompter: Prompter,
) -> None:
    messages: Sequence[Message] = trajectory.conversation.messages
    reply = task.respond(messages, row, len(trajectory.turns))
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


def _score(finished: Sequence[Trajectory], backend: Backend, settings: RolloutSettings) -> None:
    """Score the sampled ids again, and note how far that is from what the sampler said."""
    segments = [(t, segment) for t in finished for segment in t.segments if any(segment.sampled)]
    starts = [segment.sampled.index(True) for _, segment in segments]
    scores = backend.score(
        TokenBatch([segment.ids for _, segment in segments]),
        starts=starts,
        temperature=settings.params.log_prob_temperature,
    )
    for (trajectory, segment), start, scored in zip(
        segments, starts, scores.log_probs, strict=True
    ):
        for sampled, again in zip(segment.log_probs[start:], scored.tolist(), strict=True):
            if sampled is not None:
                trajectory.difference = max(trajectory.difference, abs(sampled - again))


def _seed(*numbers: int) -> int:
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _break(found: Any) -> dict[str, Any]:
    return {
        "message": int(getattr(found, "message", -1)),
        "position": int(getattr(found, "position", -1)),
        "why": str(found),
    }
