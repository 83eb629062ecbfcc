"""A small environment that is right, and the same one broken on purpose, once or more for each check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from antiphon.envs import ChatEnv, Reply, Task
from antiphon.testing import EnvSubject
from tensordict import TensorDictBase

ROWS = [{"query": f"Say {word}.", "word": word} for word in ("one", "two", "three")]


class Echo(Task):
    """An answer must hold the row's word; a wrong one is asked for again."""

    def respond(self, messages: Sequence[Any], row: Mapping[str, Any], turn: int) -> Reply:
        right = str(row["word"]) in str(messages[-1].get("content"))
        if right or turn >= 2:
            return Reply(reward=float(right), terminated=right, truncated=not right)
        return Reply([{"role": "user", "content": "Again."}])


class Leaks(Echo):
    """Remembers the last answer of any row."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def respond(self, messages: Sequence[Any], row: Mapping[str, Any], turn: int) -> Reply:
        before, self.last = self.last, str(messages[-1].get("content"))
        reply = super().respond(messages, row, turn)
        again = [{"role": "user", "content": f"You said {before}."}] if reply.messages else []
        return Reply(again, reply.reward, reply.terminated, reply.truncated)


class Draws(Echo):
    """Rewards by chance."""

    def respond(self, messages: Sequence[Any], row: Mapping[str, Any], turn: int) -> Reply:
        return Reply(reward=torch.rand(()).item(), truncated=turn >= 2)


class Endless(Echo):
    """Gives rewards that are no numbers."""

    def respond(self, messages: Sequence[Any], row: Mapping[str, Any], turn: int) -> Reply:
        return Reply(reward=float("nan"), truncated=True)


class Counts(Echo):
    """Begins otherwise each time."""

    count = 0

    def start(self, row: Mapping[str, Any]) -> list[Any]:
        Counts.count += 1
        return [{"role": "user", "content": f"Try {Counts.count}."}]


class CountingEnv(ChatEnv):
    """Begins otherwise each time."""

    count = 0

    def _begin(self, start: Any) -> list[Any]:
        CountingEnv.count += 1
        return super()._begin(f"Try {CountingEnv.count}.")


class WrongSpecs(ChatEnv):
    """Gives rewards of another type than its specs say."""

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        following = super()._step(tensordict)
        reward: Any = following["reward"]
        return following.set("reward", reward.double())


class ResetsAll(ChatEnv):
    """Starts every row again, whichever is named."""

    def _partial_reset(self, tensordict: TensorDictBase, **kwargs: Any) -> TensorDictBase:
        return self.reset(tensordict.select(*self.full_state_spec.keys(), "word"))


class NeverCloses(ChatEnv):
    """Goes on after it was closed."""

    def close(self) -> None:
        pass


def subject(env: Callable[..., ChatEnv] = ChatEnv, task: Callable[[], Task] = Echo) -> EnvSubject:
    """Return a subject; the last row is answered wrongly."""

    def make(rows: Sequence[Any]) -> ChatEnv:
        return env(task=task(), data_key="query", batch_size=len(rows))

    return EnvSubject(make, ROWS, ["one", "two", "four"], "echo")


#: By check: what is wrong, who makes it, and words that the message must hold.
BROKEN: dict[str, list[tuple[str, Callable[[], EnvSubject], str]]] = {
    "specs": [("rewards of another type", lambda: subject(WrongSpecs), "specs")],
    "reset": [
        ("conversations that begin otherwise", lambda: subject(CountingEnv), "a second reset")
    ],
    "step": [
        ("rewards that are no numbers", lambda: subject(task=Endless), "finite"),
        ("rewards by chance", lambda: subject(task=Draws), "the same step again"),
    ],
    "isolation": [
        ("an environment that leaks rows", lambda: subject(task=Leaks), "a row's state is its own")
    ],
    "partial_reset": [("a reset of all rows", lambda: subject(ResetsAll), "'_reset'")],
    "seeds": [("rewards from torch's generator", lambda: subject(task=Draws), "global generator")],
    "closing": [("an environment that never closes", lambda: subject(NeverCloses), "still resets")],
}
