"""Laws of History and the containers, on generated conversations."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent))  # the tests' own helpers stand beside them

from antiphon.conversations.containers import ChatHistory
from antiphon.conversations.history import History
from container_tokenizers import small_tokenizer

TEXTS = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
CALLS = st.builds(
    lambda name, arguments: {
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    },
    st.sampled_from(["add", "find"]),
    st.dictionaries(st.text(min_size=1, max_size=3), JSON, max_size=2),
)


def optional(**fields: Any) -> Any:
    return st.fixed_dictionaries({}, optional=fields)


MESSAGES = st.one_of(
    st.builds(
        lambda text, more: {"role": "user", "content": text, **more},
        TEXTS,
        optional(name=st.just("Ann")),
    ),
    st.builds(
        lambda text, more: {"role": "assistant", "content": text, **more},
        TEXTS,
        optional(
            reasoning_content=TEXTS,
            tool_calls=st.lists(CALLS, min_size=1, max_size=2),
            is_complete=st.just(False),
            token_ids=st.lists(st.integers(0, 399), max_size=4),
        ),
    ),
    st.builds(lambda text: {"role": "tool", "content": text, "tool_call_id": "c"}, TEXTS),
    st.builds(lambda text: {"role": "user", "content": [{"type": "text", "text": text}]}, TEXTS),
)
CONVERSATIONS = st.lists(MESSAGES, max_size=4)
BATCHES = st.lists(CONVERSATIONS, max_size=4)


@given(BATCHES)
def test_chats_survive_the_round_trip(chats: Any) -> None:
    history = History.from_chats(chats)
    assert history.to_chats() == chats
    assert history.numel() == sum(map(len, chats))
    assert History.from_chats(history.to_chats()).to_chats() == chats


@given(BATCHES.filter(bool))
def test_every_copy_is_equal_and_independent(chats: Any) -> None:
    history = History.from_chats(chats)
    for copy in (
        history.clone(),
        history.copy(),
        pickle.loads(pickle.dumps(history)),
        history.to("cpu"),
    ):
        assert copy.to_chats() == chats
        copy.extend(copy)
        assert history.to_chats() == chats


@given(BATCHES.filter(bool))
def test_unfolding_changes_nothing(chats: Any) -> None:
    history = History.from_chats(chats)
    for row in history._tensordict.tensordicts:
        assert len(row.tensordicts) == row.batch_size[0]
    assert history.to_chats() == chats
    folded = History.from_chats(chats)
    assert history.role == folded.role
    assert history.content == folded.content
    assert sorted(history.keys()) == sorted(folded.keys())


@given(BATCHES.filter(bool), st.data())
def test_growing_is_list_concatenation(chats: Any, data: Any) -> None:
    history = History.from_chats(chats)
    new = data.draw(st.lists(MESSAGES, min_size=len(chats), max_size=len(chats)))
    grown = history.append(History.from_chats(new), inplace=False)
    assert grown.to_chats() == [[*chat, message] for chat, message in zip(chats, new, strict=True)]
    other = data.draw(BATCHES)
    assert history.extend(History.from_chats(other), inplace=False).to_chats() == chats + other
    assert history.to_chats() == chats
    at = data.draw(st.integers(-5, 5))
    assert history.fork(at).to_chats() == [chat[:at] for chat in chats]


@given(BATCHES.filter(bool))
def test_flattening_keeps_every_message(chats: Any) -> None:
    history = History.from_chats(chats)
    assert history.reshape(-1).to_chats() == [message for chat in chats for message in chat]
    assert [row.to_chats() for row in history.unbind(0)] == chats
    assert torch.stack([history, history]).to_chats() == [chats, chats]


PLAIN = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
TALKS = st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=3).map(
    lambda turns: [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
)


@settings(deadline=None, max_examples=60)
@given(st.lists(TALKS, min_size=1, max_size=3))
def test_text_tokens_and_histories_agree(chats: Any) -> None:
    tokenizer = small_tokenizer()
    chat = ChatHistory(
        prompt=History.from_chats([c[:-1] for c in chats]),
        full=History.from_chats(chats),
        batch_size=(len(chats),),
    )
    tokens, text = chat.to_tokens(tokenizer), chat.to_text(tokenizer)
    assert tokens.to_text(tokenizer).full == text.full
    back = tokens.to_history(tokenizer)
    assert back.full.content == History.from_chats(chats).content
    again = back.to_tokens(tokenizer)
    for name in ("prompt", "response", "full"):
        rows = [row.tolist() for row in tokens.get(name, as_list=True)]
        assert [row.tolist() for row in again.get(name, as_list=True)] == rows
        assert [row.tolist() for row in tokens.pad(3).unpad().get(name, as_list=True)] == rows


@settings(deadline=None, max_examples=60)
@given(TALKS, st.lists(st.integers(4, 399), max_size=8), st.booleans())
def test_any_sampled_ids_are_kept_as_they_are(chat: Any, ids: Any, complete: bool) -> None:
    tokenizer = small_tokenizer()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    own = [*ids, end] if complete else ids
    answer = {"role": "assistant", "content": "x", "token_ids": own, "is_complete": complete}
    prompt = History.from_chats([chat[:-1]])
    first = ChatHistory(prompt=prompt, response=History.from_chats([[answer]]), batch_size=(1,))
    tokens = first.to_tokens(tokenizer)
    before = tokens[0].prompt.tolist()
    assert tokens[0].full.tolist()[: len(before)] == before
    assert tokens[0].response.tolist()[: len(own)] == own
    if not complete:
        assert tokens[0].response.tolist() == own
    following = prompt.extend(History.from_chats([[answer, chat[0]]]), inplace=False, dim=1)
    nxt = ChatHistory(prompt=following, batch_size=(1,)).to_tokens(tokenizer)[0].prompt.tolist()
    assert nxt[: len(before) + len(own)] == before + own
