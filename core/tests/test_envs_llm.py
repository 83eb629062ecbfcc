"""`LLMEnv`: text and tokens grow by what the policy appends, ragged rows among them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from antiphon import LLMEnv, LLMHashingEnv, Transform, TransformedEnv
from antiphon.errors import EnvError, InvalidParameter
from tensordict import TensorDict, TensorDictBase, lazy_stack


def ragged(key: str, *rows: list[int]) -> TensorDictBase:
    return lazy_stack([TensorDict({key: torch.tensor(row)}) for row in rows])


def rows(td: Any, key: str) -> list[list[int]]:
    return [part[key].tolist() for part in td.unbind(0)]


def test_text_grows() -> None:
    env = LLMEnv(batch_size=2)
    root = env.reset(TensorDict({"text": ["a", "b"]}, batch_size=2))
    root["text_response"] = ["x", "y"]
    step = env.step(root)
    assert step["next", "text"] == ["ax", "by"]
    root = env.step_mdp(step)
    assert set(root.keys()) == {"text", "_start", "done", "terminated", "truncated"}


def test_ragged_tokens_grow_and_end() -> None:
    env = LLMEnv(
        from_text=False, batch_size=2, eos_token_id=9, assign_reward=True, assign_done=True
    )
    root = env.reset(ragged("tokens", [1], [2, 3, 4]))
    for part, answer in zip(root.unbind(0), ([5, 9], [6]), strict=True):
        part["tokens_response"] = torch.tensor(answer)
    step = env.step(lazy_stack(list(root.unbind(0))))
    following = step["next"]
    assert rows(following, "tokens") == [[1, 5, 9], [2, 3, 4, 6]]
    assert rows(following, "attention_mask") == [[1] * 3, [1] * 4]
    assert rows(following, "reward") == [[0.0, 0.0], [0.0]]
    assert following["terminated"].tolist() == [[True], [False]]
    assert [part["tokens_data", "done"].tolist() for part in following.unbind(0)] == [
        [False, True],
        [False],
    ]


def test_dense_tokens_keep_their_mask() -> None:
    env = LLMEnv(from_text=False, batch_size=2)
    data = TensorDict(
        {
            "tokens": torch.tensor([[0, 1], [2, 3]]),
            "attention_mask": torch.tensor([[0, 1], [1, 1]]),
        },
        batch_size=2,
    )
    root = env.reset(data)
    root["tokens_response"] = torch.tensor([[7], [8]])
    step = env.step(root)
    assert rows(step["next"], "attention_mask") == [[0, 1, 1], [1, 1, 1]]


def test_prompts_from_a_loader() -> None:
    data = [{"text": "a"}, {"text": "bc"}]
    env = LLMEnv.from_dataloader(data, repeats=2, batch_size=4)
    root = env.reset()
    assert root["text"] == ["a", "a", "bc", "bc"]
    assert root["group_id"].tolist() == [0, 0, 1, 1]

    class Letters:
        def encode(self, text: str) -> list[int]:
            return [ord(letter) for letter in text]

    env = LLMEnv.from_dataloader(data, tokenizer=Letters(), from_text=False, batch_size=2)
    assert rows(env.reset(), "tokens") == [[97], [98, 99]]


def test_what_is_missing_is_named() -> None:
    with pytest.raises(EnvError, match="entry 'text'"):
        LLMEnv().reset()
    with pytest.raises(EnvError, match="'text_response'"):
        LLMEnv().step(LLMEnv().reset(TensorDict({"text": ["a"]}, batch_size=1)))
    with pytest.raises(InvalidParameter, match="from_text=False"):
        LLMEnv(assign_reward=True)
    env = LLMEnv(eos_token_id=1)
    root = env.reset(TensorDict({"text": ["a"]}, batch_size=1))
    root["text_response"] = ["b"]
    with pytest.raises(EnvError, match="tokens_response"):
        env.step(root)


def answered(root: Any, *answers: str) -> Any:
    root["text_response"] = list(answers)
    return root


def test_a_row_that_starts_again_starts_from_what_it_started_from() -> None:
    env = LLMEnv(batch_size=2)
    root = env.reset(TensorDict({"text": ["a", "b"]}, batch_size=2))
    for _ in range(2):
        root = env.step_mdp(env.step(answered(root, "x", "y")))
    root["done"] = torch.tensor([[True], [False]])
    fresh = env.maybe_reset(root)
    assert fresh["text"] == ["a", "byy"]
    step = env.step(answered(fresh, "x", "y"))
    assert step["next", "text"] == ["ax", "byyy"]
    root = env.step_mdp(step)
    root["done"] = torch.ones(2, 1, dtype=torch.bool)
    assert env.maybe_reset(root)["text"] == ["a", "b"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_tokens_that_start_again_have_their_mask_too(wrapped: bool) -> None:
    env: Any = LLMEnv(from_text=False, batch_size=2, eos_token_id=9)
    if wrapped:
        env = TransformedEnv(env, Transform())
    data = TensorDict(
        {
            "tokens": torch.tensor([[0, 1], [2, 3]]),
            "attention_mask": torch.tensor([[0, 1], [1, 1]]),
        },
        batch_size=2,
    )
    root = env.reset(data)
    for part, answer in zip(root.unbind(0), ([9], [6]), strict=True):
        part["tokens_response"] = torch.tensor(answer)
    _, root = env.step_and_maybe_reset(lazy_stack(list(root.unbind(0))))
    assert rows(root, "tokens") == [[0, 1], [2, 3, 6]]
    assert rows(root, "attention_mask") == [[0, 1], [1, 1, 1]]


def test_a_row_of_a_loader_starts_again_with_the_next_row() -> None:
    env = LLMEnv.from_dataloader([{"text": "a"}, {"text": "bc"}, {"text": "d"}], batch_size=2)
    root = env.step_mdp(env.step(answered(env.reset(), "x", "y")))
    root["done"] = torch.tensor([[False], [True]])
    fresh = env.maybe_reset(root)
    assert fresh["text"] == ["ax", "d"]
    assert fresh["_start", "text"] == ["a", "d"]


def test_a_rollout_that_goes_on_repeats_the_same_conversations() -> None:
    env = LLMEnv(from_text=False, batch_size=2, eos_token_id=9)

    def policy(root: Any) -> Any:
        parts = list(root.unbind(0))
        for part in parts:
            long = len(part["tokens"]) > 2
            part["tokens_response"] = torch.tensor([9 if long else 5])
        return lazy_stack(parts)

    steps = env.rollout(
        5, policy, break_when_any_done=False, tensordict=ragged("tokens", [1], [2, 3, 4])
    )
    seen = [rows(step, "tokens") for step in steps.unbind(1)]
    assert seen == [
        [[1], [2, 3, 4]],
        [[1, 5], [2, 3, 4]],
        [[1, 5, 5], [2, 3, 4]],
        [[1], [2, 3, 4]],
        [[1, 5], [2, 3, 4]],
    ]


def test_a_hashed_row_starts_again_from_its_first_tokens() -> None:
    env = LLMHashingEnv(10, text_output=False)
    root = env.reset(TensorDict({"tokens": torch.tensor([[1], [2]])}, batch_size=2))
    first = root["observation"].tolist()
    for _ in range(2):
        root["action"] = torch.tensor([3, 4])
        root = env.step_mdp(env.step(root))
    root["_reset"] = torch.tensor([True, False])
    fresh = env.reset(root)
    assert rows(fresh, "tokens") == [[1], [2, 4, 4]]
    assert fresh.unbind(0)[0]["observation"].item() == first[0]
