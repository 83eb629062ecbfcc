"""Checks of an environment: it keeps its specs, and no row knows of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from antiphon.envs.base import EnvBase
from antiphon.envs.checking import check_env
from antiphon.envs.entries import DONE_KEYS
from antiphon.errors import EnvError
from antiphon.testing.results import CheckSkipped, Problems, demand, fail

Row = Mapping[str, Any]


def reset_from_rows(env: EnvBase, rows: Sequence[Row]) -> TensorDictBase:
    """Reset an environment from a tensordict of data rows."""
    keys = rows[0].keys()
    return env.reset(TensorDict({key: [row[key] for row in rows] for key in keys}, len(rows)))


def answer_history(root: TensorDictBase, answers: Sequence[str]) -> TensorDictBase:
    """Answer the prompts of `ChatEnv` in history mode."""
    from antiphon.conversations.containers import ChatHistory
    from antiphon.conversations.history import History

    prompt: Any = root["history"].prompt
    said = History.from_chats([[{"role": "assistant", "content": text}] for text in answers])
    full = prompt.extend(said, inplace=False, dim=-1)
    answered: Any = ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size)
    return root.set("history", answered)


@dataclass
class EnvSubject:
    """An environment under test.

    Attributes:
        make: Returns a fresh environment for the given rows.
        rows: Two or more different data rows.
        answers: As many answers, a good one for each row.
        name: For reports.
        start: Resets it for rows; by default from a tensordict of them.
        act: Writes answers into a root, one per row; by default in history mode.
        takes_rows: Whether reset can be told which rows; environments that bring their own data
            can't.
        aside: Entries that number rows and so differ when others are there.
    """

    make: Callable[[Sequence[Row]], EnvBase]
    rows: Sequence[Row]
    answers: Sequence[str]
    name: str = "environment"
    start: Callable[[EnvBase, Sequence[Row]], TensorDictBase] = reset_from_rows
    act: Callable[[TensorDictBase, Sequence[str]], TensorDictBase] = answer_history
    takes_rows: bool = True
    aside: tuple[str, ...] = ("group_id",)

    def step(
        self, rows: Sequence[Row], answers: Sequence[str], env: EnvBase | None = None
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Return the root and the step of fresh conversations.

        Args:
            rows: The data rows.
            answers: What is said in each.
            env: The environment; a fresh one if None.
        """
        env = self.make(rows) if env is None else env
        root = self.start(env, rows)
        first = root.copy()
        return first, env.step(self.act(root, answers))


def check_specs(subject: EnvSubject) -> None:
    """All that reset and step give fits the specs."""
    rows = subject.rows
    env = subject.make(rows[:1])
    given = None
    if subject.takes_rows:
        given = TensorDict({key: [value] for key, value in rows[0].items()}, 1)
    try:
        check_env(env, given, lambda root: subject.act(root, subject.answers[:1]), steps=2)
    except EnvError as error:
        fail(f"{error} Look at the specs that the environment declares.")


def check_reset(subject: EnvSubject) -> None:
    """Reset gives one row per data row, not ended, and the same each time."""
    rows = subject.rows
    first = subject.start(subject.make(rows), rows)
    again = subject.start(subject.make(rows), rows)
    demand(
        first.batch_size[0] == len(rows),
        f"reset gives batch size {tuple(first.batch_size)} for {len(rows)} rows.",
    )
    problems = Problems("Look at what reset makes of a data row.")
    for index in range(len(rows)):
        with problems.case(f"row {index}"):
            ended = str(list(_row(first, index, DONE_KEYS).values()))
            demand("True" not in ended, "it has ended before it began")
            _same(_row(first, index), _row(again, index), "a second reset")
    problems.settle()


def check_step(subject: EnvSubject) -> None:
    """A step gives a finite reward per row, leaves its root alone, and steps of one kind are alike."""
    first, step = subject.step(subject.rows, subject.answers)
    again = subject.step(subject.rows, subject.answers)[1]
    following: Any = step["next"]
    reward: Any = following["reward"]
    demand(
        reward.shape[0] == len(subject.rows) and bool(torch.isfinite(reward).all()),
        f"the rewards are {reward.tolist()}, not one finite number per row.",
    )
    problems = Problems("Look at what step reads, and at state that the environment keeps.")
    for index in range(len(subject.rows)):
        with problems.case(f"row {index}"):
            _same(_row(following, index), _row(again["next"], index), "the same step again")
            before, after = _row(first, index, ("turn",)), _row(step, index, ("turn",))
            _same(before, after, "the root after the step")
    problems.settle()


def check_isolation(subject: EnvSubject) -> None:
    """What happens to a row does not depend on the rows beside it, nor on conversations before."""
    rows, answers = subject.rows, subject.answers
    demand(len(rows) > 1, "two rows at least are needed.")
    problems = Problems("Look for what the environment keeps in itself: a row's state is its own.")
    together = subject.step(rows, answers)
    env = subject.make(rows)
    for index, row in enumerate(rows):
        with problems.case(f"row {index} alone"):
            root, step = subject.step([row], [answers[index]])
            pairs = [(root, together[0], "reset"), (step["next"], together[1]["next"], "stepped")]
            for one, all_rows, what in pairs:
                own, beside = _row(one, 0), _row(all_rows, index)
                for key in subject.aside:
                    own.pop(key, None), beside.pop(key, None)
                _same(own, beside, f"{what} with others")
        changed = [text if i == index else "something else" for i, text in enumerate(answers)]
        with problems.case(f"row {index}, others answer otherwise"):
            other = subject.step(rows, changed)[1]
            _same(
                _row(other["next"], index), _row(together[1]["next"], index), "with others changed"
            )
        if subject.takes_rows:
            with problems.case(f"row {index} in a used environment"):
                subject.step(rows, changed, env)
                used = subject.step(rows, answers, env)[1]
                _same(_row(used["next"], index), _row(together[1]["next"], index), "in a fresh one")
    problems.settle()


def check_partial_reset(subject: EnvSubject) -> None:
    """``"_reset"`` starts the rows again that it names, and leaves the others as they are."""
    if not subject.takes_rows:
        raise CheckSkipped("the environment brings its own data")
    env = subject.make(subject.rows)
    first, step = subject.step(subject.rows, subject.answers, env)
    root = env.step_mdp(step)
    kept = [_row(root, index) for index in range(len(subject.rows))]
    mask = torch.zeros(len(subject.rows), dtype=torch.bool)
    mask[0] = True
    again = env.reset(root.set("_reset", mask))
    problems = Problems("Look at how reset treats '_reset'.")
    with problems.case("row 0, which is named"):
        _same(_row(again, 0, _prompt_keys(first)), _row(first, 0, _prompt_keys(first)), "at first")
    for index in range(1, len(subject.rows)):
        with problems.case(f"row {index}, which is not"):
            keys = _prompt_keys(first)
            wanted = {key: value for key, value in kept[index].items() if key in keys}
            _same(_row(again, index, keys), wanted, "before the reset")
    problems.settle()


def check_seeds(subject: EnvSubject) -> None:
    """A seed settles what happens, and the global generators are left alone."""
    results = []
    for noise in (1, 2):
        env = subject.make(subject.rows)
        env.set_seed(7)
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        step = subject.step(subject.rows, subject.answers, env)[1]
        demand(
            torch.equal(state, torch.get_rng_state()),
            "reset or step draws from torch's global generator; use one of the environment's own.",
        )
        results.append([_row(step["next"], index) for index in range(len(subject.rows))])
    problems = Problems("Look at _set_seed and at what draws at random.")
    for index, (one, two) in enumerate(zip(*results, strict=True)):
        with problems.case(f"row {index}"):
            _same(one, two, "with the same seed")
    problems.settle()


def check_closing(subject: EnvSubject) -> None:
    """A closed environment says so."""
    env = subject.make(subject.rows)
    env.close()
    try:
        subject.start(env, subject.rows)
    except EnvError as error:
        demand("closed" in str(error), f"the error does not say that it is closed: {error}")
    else:
        fail("a closed environment still resets; call super().close().")


def _prompt_keys(root: TensorDictBase) -> tuple[str, ...]:
    return tuple(str(key) for key in list(root.keys()) if key != "_reset")


def _row(data: TensorDictBase, index: int, keys: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a row's entries as plain data."""
    present = list(data.keys())
    wanted = [str(key) for key in present] if keys is None else keys
    return {
        key: _plain(data.get(key))[index]
        for key in wanted
        if key in present and key not in ("next", "_reset")
    }


def _plain(value: Any) -> Any:
    if hasattr(value, "to_chats"):
        return value.to_chats()
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if getattr(value, "prompt", None) is not None:
        return _plain(value.prompt)
    return value.tolist() if hasattr(value, "tolist") else value


def _same(found: Mapping[str, Any], wanted: Mapping[str, Any], what: str) -> None:
    for key in sorted({*found, *wanted}):
        demand(
            found.get(key) == wanted.get(key),
            f"{key} is {found.get(key)!r}, and {wanted.get(key)!r} {what}",
        )
