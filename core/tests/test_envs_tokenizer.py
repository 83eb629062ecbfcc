"""The tokenizer transform: a policy of ids in an environment of texts."""

from __future__ import annotations

from typing import Any

import pytest
import rollout_helpers
import torch
from antiphon import LLMEnv
from antiphon.envs import Tokenizer, check_env
from antiphon.errors import EnvError, InvalidParameter
from tensordict import TensorDict, TensorDictBase, lazy_stack

TEXTS = ["<|im_start|>user\nHi<|im_end|>\n", "Grüße", ""]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return rollout_helpers.byte_tokenizer()


def asked(*texts: str) -> TensorDict:
    return TensorDict({"text": list(texts)}, batch_size=len(texts))


def env_of(tokenizer: Any, rows: int, **options: Any) -> Any:
    transform = Tokenizer(
        ["text"],
        ["tokens"],
        ["text_response"],
        ["tokens_response"],
        tokenizer=tokenizer,
        **options,
    )
    return LLMEnv(batch_size=rows).append_transform(transform)


def answered(root: TensorDictBase, *rows: list[int]) -> TensorDictBase:
    parts = [part.copy() for part in root.unbind(0)]
    for part, ids in zip(parts, rows, strict=True):
        part.set("tokens_response", torch.tensor(ids))
    return lazy_stack(parts)


def test_texts_come_out_as_ids_and_ids_go_in_as_text(tokenizer: Any) -> None:
    env = env_of(tokenizer, 3)
    root = env.reset(asked(*TEXTS))
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    assert [row["tokens"].tolist() for row in root.unbind(0)] == ids
    assert [row["attention_mask"].tolist() for row in root.unbind(0)] == [[1] * len(i) for i in ids]
    assert tokenizer.convert_tokens_to_ids("<|im_start|>") in ids[0]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    yes = tokenizer.encode("yes", add_special_tokens=False)
    step = env.step(answered(root, [*yes, end], yes, []))
    assert step["next"]["text"] == [TEXTS[0] + "yes", "Grüßeyes", ""]
    assert [row["next", "tokens"].tolist() for row in step.unbind(0)] == [
        [*ids[0], *yes],
        [*ids[1], *yes],
        [],
    ]
    kept = env_of(tokenizer, 1, skip_special_tokens=False)
    step = kept.step(answered(kept.reset(asked("a")), [*yes, end]))
    assert step["next"]["text"] == ["ayes<|im_end|>"]


def test_padding_and_length(tokenizer: Any) -> None:
    root = env_of(tokenizer, 3, padding=True, max_length=5).reset(asked("a longer text", "abc", ""))
    pad = tokenizer.pad_token_id
    last = tokenizer.encode(" text", add_special_tokens=False)
    short = tokenizer.encode("abc", add_special_tokens=False)
    assert root["tokens"].tolist() == [last, [pad, pad, *short], [pad] * 5]
    assert root["attention_mask"].tolist() == [[1] * 5, [0, 0, 1, 1, 1], [0] * 5]


def test_specs_and_nested_keys(tokenizer: Any) -> None:
    env = env_of(tokenizer, 2)
    check_env(env, asked("a", "bc"), lambda root: answered(root, [7], [7, 8]))
    assert env.full_action_spec.keys() == ["tokens_response"]
    data = TensorDict({"text": TensorDict({"prompt": ["a", "bc"]}, [2])}, [2])
    made = Tokenizer([("text", "prompt")], [("tokens", "prompt")], tokenizer=tokenizer)(data)
    assert [row["tokens", "prompt"].tolist() for row in made.unbind(0)] == [
        tokenizer.encode(text, add_special_tokens=False) for text in ("a", "bc")
    ]
    # Stored data of two batch dimensions.
    stored = lazy_stack([asked("a", "bc"), asked("d", "e")])
    made = Tokenizer(["text"], tokenizer=tokenizer)(stored)
    assert made.batch_size == (2, 2)
    assert made[1, 0]["tokens"].tolist() == tokenizer.encode("d", add_special_tokens=False)


def test_a_tokenizer_of_the_tokenizers_library_will_do(tokenizer: Any) -> None:
    backend = tokenizer.backend_tokenizer
    root = env_of(backend, 1).reset(asked(TEXTS[0]))
    assert root[0]["tokens"].tolist() == tokenizer.encode(TEXTS[0], add_special_tokens=False)


def test_what_can_not_be(tokenizer: Any) -> None:
    with pytest.raises(InvalidParameter, match="needs a tokenizer"):
        Tokenizer(["text"])
    with pytest.raises(InvalidParameter, match="in_keys, in_keys_inv"):
        Tokenizer(tokenizer=tokenizer)
    with pytest.raises(InvalidParameter, match="max_length"):
        Tokenizer(["text"], tokenizer=tokenizer, max_length=0)
    with pytest.raises(EnvError, match="int, not text, under 'text'"):
        Tokenizer(["text"], tokenizer=tokenizer)(TensorDict({"text": [1, "a"]}, [2]))
