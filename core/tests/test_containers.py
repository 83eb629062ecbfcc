"""Text, Tokens, Masks, LogProbs and ChatHistory: shapes, padding, and the conversions between them."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict, lazy_stack

sys.path.append(str(Path(__file__).parent))  # the tests' own helpers stand beside them

from antiphon.conversations.containers import ChatHistory, LogProbs, Masks, Text, Tokens
from antiphon.conversations.history import History
from antiphon.errors import ContainerError, NoHistory, TokenizerMismatch, TurnRewritten
from container_tokenizers import small_tokenizer

SIMPLE = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"}]
LONGER = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "What is 2+2?"},
    {"role": "assistant", "content": "2+2 equals 4."},
    {"role": "user", "content": "Thanks!"},
    {"role": "assistant", "content": "You're welcome!"},
]
PROMPTS = [SIMPLE[:-1], LONGER[:-1]]


def tokenizer() -> Any:
    return small_tokenizer()


def rows(container: Any, name: str) -> list[list[Any]]:
    return [row.tolist() for row in container.get(name, as_list=True)]


def both() -> Any:
    """Prompt and full of two conversations of unequal length."""
    return ChatHistory(
        prompt=History.from_chats(PROMPTS),
        full=History.from_chats([SIMPLE, LONGER]),
        batch_size=(2,),
    )


def stacked() -> Any:
    """A lazy stack of containers of no dimension, each with a batch of one conversation."""
    histories = History.from_chats([SIMPLE, LONGER])
    return lazy_stack([ChatHistory(full=histories[i : i + 1]) for i in range(2)])


# Construction


def test_a_text_takes_lists_whatever_the_switch() -> None:
    assert Text(full=["a", "b"]).full == ["a", "b"]
    assert Text(prompt=["a", "b"], batch_size=2)[1].prompt == "b"
    assert Text(full="a").full == "a"
    assert Text(full=[["a"], ["b"]], batch_size=(2, 1))[1, 0].full == "b"


def test_a_text_in_a_lazy_stack_can_be_written_through_a_view() -> None:
    text = Text._from_tensordict(TensorDict(batch_size=(2,)).to_lazystack(0))
    with text.view(-1) as flat:
        flat.full = ["a", "b"]
    assert text.full == ["a", "b"]
    assert text.to_tokens(tokenizer()).batch_size == torch.Size([2])


def test_a_chat_history_takes_message_lists() -> None:
    chat = ChatHistory(prompt=[SIMPLE, LONGER], batch_size=(2,))
    assert chat.prompt.to_chats() == [SIMPLE, LONGER]
    assert chat[1].prompt.to_chats() == LONGER


def test_a_history_without_time_is_unsqueezed_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="needs one more, for time"):
        chat = ChatHistory(prompt=History(role="user", content="a"))
    assert chat.prompt.shape == (1,)


def test_a_chat_history_of_something_else_is_an_error() -> None:
    # It is made, as TorchRL makes it; what reads it says what it holds.
    for value in ("text", 5, {"role": "user"}):
        chat = ChatHistory(prompt=value)
        for read in (chat.to_text, chat.to_tokens, chat.to_masks, lazy_stack([chat, chat]).to_text):
            with pytest.raises(NoHistory, match="Expected History object as prompt"):
                read(tokenizer())
    with pytest.raises(ContainerError, match="neither prompt, response nor full"):
        ChatHistory().to_tokens(tokenizer())
    with pytest.raises(ContainerError, match="neither prompt, response nor full"):
        Tokens().to_history(tokenizer())


def test_default_specs() -> None:
    tokens = both().to_tokens(tokenizer())
    assert Tokens.default_spec(shape=(2,)).is_in(tokens)
    assert not Tokens.default_spec(shape=(3,)).is_in(tokens)
    assert Text.default_spec(shape=(2,)).is_in(both().to_text(tokenizer()))
    assert Masks.default_spec(shape=(2,)).is_in(both().to_masks(tokenizer()))
    assert ChatHistory.default_spec(shape=(2,), keys=["prompt", "full"]).is_in(both())
    for cls, keys in (
        (Tokens, None),
        (Masks, None),
        (LogProbs, ["full"]),
        (Text, ["prompt"]),
        (ChatHistory, None),
    ):
        assert isinstance(cls.default_spec(shape=(2,), keys=keys).zero(), cls)
    with pytest.raises(ContainerError, match="has no answer"):
        Tokens.default_spec(keys=["answer"])


# ChatHistory to text and tokens


def test_text_of_a_single_history() -> None:
    text = ChatHistory(full=History.from_chats([SIMPLE])).to_text(tokenizer())
    assert isinstance(text, Text)
    assert isinstance(text.full, list)
    assert text.full == [
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there!<|im_end|>\n"
    ]
    assert text.prompt is None


def test_text_of_a_stack_keeps_its_shape() -> None:
    text = stacked().to_text(tokenizer())
    assert text.batch_size == torch.Size([2])
    assert "Hello" in text.full[0][0]
    assert "You are brief." in text.full[1][0]


def test_prompt_and_response_make_full() -> None:
    text, tokens = both().to_text(tokenizer()), both().to_tokens(tokenizer())
    for i in range(2):
        assert text.full[i] == text.prompt[i] + text.response[i]
        assert text.prompt[i].endswith("<|im_start|>assistant\n")
        assert rows(tokens, "full")[i] == rows(tokens, "prompt")[i] + rows(tokens, "response")[i]


def test_tokens_of_a_single_history_are_a_tensor() -> None:
    tokens = ChatHistory(full=History.from_chats([SIMPLE])).to_tokens(tokenizer())
    assert isinstance(tokens.full, torch.Tensor)
    assert tokens.full.shape[0] == 1
    assert tokens.full.dtype == torch.int64
    assert tokens.padded is False


def test_tokens_of_a_ragged_batch_can_be_read_every_way() -> None:
    tokens = both().to_tokens(tokenizer())
    lengths = [len(row) for row in rows(tokens, "full")]
    assert lengths[0] < lengths[1]
    assert tokens.get("full", as_nested_tensor=True).is_nested
    padded = tokens.get("full", as_padded_tensor=True, padding_value=-1)
    assert padded.shape == (2, lengths[1])
    assert (padded[0] == -1).sum() == lengths[1] - lengths[0]
    assert not any(tokens.padded)
    assert tokens[1].full.tolist() == rows(tokens, "full")[1]
    assert stacked().to_tokens(tokenizer()).get("full", as_nested_tensor=True).shape[:2] == (2, 1)


def test_response_without_full_is_put_behind_the_prompt() -> None:
    answers = History.from_chats([SIMPLE[-1:], LONGER[-1:]])
    chat = ChatHistory(prompt=History.from_chats(PROMPTS), response=answers, batch_size=(2,))
    assert rows(chat.to_tokens(tokenizer()), "full") == rows(both().to_tokens(tokenizer()), "full")
    assert chat.to_text(tokenizer()).response == both().to_text(tokenizer()).response


def test_a_response_alone_is_its_turn() -> None:
    chat = ChatHistory(response=History.from_chats([SIMPLE[-1:]]), batch_size=(1,))
    assert chat.to_text(tokenizer()).response == ["Hi there!<|im_end|>\n"]
    tokens = chat.to_tokens(tokenizer())
    assert tokenizer().decode(rows(tokens, "response")[0]) == "Hi there!<|im_end|>\n"


def test_batches_of_more_dimensions() -> None:
    inner = [stacked(), stacked()]
    chat = lazy_stack(inner)
    assert chat.batch_size == torch.Size([2, 2])
    assert chat.to_text(tokenizer()).batch_size == torch.Size([2, 2])
    assert chat.to_tokens(tokenizer()).batch_size == torch.Size([2, 2])
    grid = ChatHistory(
        full=History.from_chats([[SIMPLE, LONGER], [LONGER, SIMPLE]]), batch_size=(2, 2)
    )
    tokens = grid.to_tokens(tokenizer())
    assert tokens[0, 1].full.tolist() == tokens[1, 0].full.tolist()
    assert tokens.to_history(tokenizer()).full.to_chats() == [[SIMPLE, LONGER], [LONGER, SIMPLE]]


def test_ragged_conversations_in_a_container_without_a_batch_become_a_batch() -> None:
    tokens = ChatHistory(full=History.from_chats([SIMPLE, LONGER])).to_tokens(tokenizer())
    assert tokens.batch_size == torch.Size([2])
    assert rows(tokens, "full") == rows(both().to_tokens(tokenizer()), "full")


def test_an_empty_batch_has_no_tokens() -> None:
    chat = ChatHistory(full=History.from_chats([]), batch_size=(0,))
    assert chat.to_tokens(tokenizer()).batch_size == torch.Size([0])
    assert chat.to_text(tokenizer()).batch_size == torch.Size([0])


def test_parts_of_other_sizes_are_an_error() -> None:
    chat = ChatHistory(prompt=History.from_chats(PROMPTS), full=History.from_chats([SIMPLE]))
    with pytest.raises(ContainerError, match="a batch of another shape"):
        chat.to_tokens(tokenizer())


def test_template_names_and_templates() -> None:
    chat = ChatHistory(full=History.from_chats([SIMPLE]))
    assert chat.to_text(chat_template_name="chatml_format").full == chat.to_text(tokenizer()).full
    text = chat.to_text(
        chat_template="{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    assert text.full == ["[user]Hello[assistant]Hi there!"]
    assert (
        chat.to_tokens(tokenizer(), chat_template_name="chatml_format").full.shape
        == chat.to_tokens(tokenizer()).full.shape
    )


def test_a_cut_off_answer_gains_no_end_token() -> None:
    cut = [SIMPLE[0], {**SIMPLE[1], "is_complete": False}]
    chat = ChatHistory(full=History.from_chats([cut]), batch_size=(1,))
    assert chat.to_text(tokenizer()).full[0].endswith("Hi there!")
    mask = rows(chat.to_masks(tokenizer()), "all_assistant_mask")[0]
    ids = rows(chat.to_tokens(tokenizer()), "full")[0]
    assert tokenizer().decode([i for i, m in zip(ids, mask, strict=True) if m]) == "Hi there!"


def test_masks_lie_over_full() -> None:
    tokens, masks = both().to_tokens(tokenizer()), both().to_masks(tokenizer())
    ids, mask = rows(tokens, "full")[1], rows(masks, "all_assistant_mask")[1]
    own = tokenizer().decode([i for i, m in zip(ids, mask, strict=True) if m])
    assert own == "2+2 equals 4.<|im_end|>You're welcome!<|im_end|>"
    assert all(map(all, rows(masks, "all_attention_mask")))


# Back again


@pytest.mark.parametrize("bos", [False, True])
def test_text_and_back_never_doubles_bos(bos: bool) -> None:
    tok = small_tokenizer(bos)
    tokens = both().to_tokens(tok)
    again = tokens.to_text(tok).to_tokens(tok)
    for name in ("prompt", "response", "full"):
        assert rows(again, name) == rows(tokens, name)
    starts = {row[0] == tok.bos_token_id for row in rows(tokens, "full")}
    assert starts == {bos}


def test_plain_text_gets_what_the_tokenizer_adds() -> None:
    tok = small_tokenizer(bos=True)
    text = Text(prompt=["Hello"], response=[", how"], full=["Hello, how"], batch_size=1)
    tokens = text.to_tokens(tok)
    assert rows(tokens, "prompt")[0] == tok("Hello")["input_ids"]
    assert rows(tokens, "full")[0] == rows(tokens, "prompt")[0] + rows(tokens, "response")[0]
    bare = text.to_tokens(tok, add_special_tokens=False)
    assert rows(bare, "prompt")[0] == tok("Hello", add_special_tokens=False)["input_ids"]


def test_tokens_to_text_can_skip_special_tokens() -> None:
    text = both().to_tokens(tokenizer()).to_text(tokenizer(), skip_special_tokens=True)
    assert text.full[0] == "user\nHello\nassistant\nHi there!\n"


@pytest.mark.parametrize("through", ["text", "tokens"])
def test_histories_come_back(through: str) -> None:
    converted = both().to_text(tokenizer()) if through == "text" else both().to_tokens(tokenizer())
    back = converted.to_history(tokenizer())
    assert isinstance(back, ChatHistory)
    assert back.batch_size == torch.Size([2])
    assert back.prompt.to_chats() == PROMPTS
    assert back.full.content == [[m["content"] for m in SIMPLE], [m["content"] for m in LONGER]]
    assert back.response.content == [["Hi there!"], ["You're welcome!"]]
    one = stacked().to_text(tokenizer()).to_history(tokenizer())
    assert one.batch_size == torch.Size([2])
    assert one.full.to_chats() == [[SIMPLE], [LONGER]]


def test_a_response_alone_can_be_read() -> None:
    tokens = both().to_tokens(tokenizer()).select("response", strict=False)
    assert tokens.to_history(tokenizer()).response.content == [["Hi there!"], ["You're welcome!"]]


def test_a_response_of_several_messages_can_be_read() -> None:
    chat = ChatHistory(
        prompt=History.from_chats([LONGER[:2]]), full=History.from_chats([LONGER]), batch_size=(1,)
    )
    back = chat.to_tokens(tokenizer()).to_history(tokenizer())
    assert back.response.to_chats() == [LONGER[2:]]
    assert back.full.to_chats() == [LONGER]


# Sampled ids


def sampled_chat(ids: list[int], complete: bool = True) -> Any:
    answer = {"role": "assistant", "content": tokenizer().decode(ids, skip_special_tokens=True)}
    answer |= {"token_ids": ids, "log_probs": [-0.25] * len(ids), "is_complete": complete}
    return ChatHistory(
        prompt=History.from_chats([SIMPLE[:1]]),
        response=History.from_chats([[answer]]),
        batch_size=(1,),
    )


def odd_ids() -> list[int]:
    """Ids that no tokenizer would give for their text: one for each byte."""
    return [tokenizer().convert_tokens_to_ids(c) for c in "HowĠmanyĠmoons"]


def test_sampled_ids_stand_in_the_turn() -> None:
    end = tokenizer().convert_tokens_to_ids("<|im_end|>")
    ids = [*odd_ids(), end]
    assert tokenizer().encode("How many moons", add_special_tokens=False) != odd_ids()
    tokens = sampled_chat(ids).to_tokens(tokenizer())
    assert rows(tokens, "response")[0][: len(ids)] == ids
    assert sampled_chat(ids).to_text(tokenizer()).response == ["How many moons<|im_end|>\n"]


def test_a_cut_off_sample_ends_the_row() -> None:
    chat = sampled_chat(odd_ids(), complete=False)
    assert rows(chat.to_tokens(tokenizer()), "response") == [odd_ids()]
    assert rows(chat.to_masks(tokenizer()), "all_assistant_mask")[0][-len(odd_ids()) :] == [
        True
    ] * len(odd_ids())


def test_log_probs_ride_along() -> None:
    log_probs = sampled_chat(odd_ids(), complete=False).to_log_probs(tokenizer())
    assert rows(log_probs, "response")[0] == [-0.25] * len(odd_ids())
    assert log_probs.get("prompt", as_list=True)[0].isnan().all()


def test_sampled_ids_survive_every_conversion_and_the_next_turn() -> None:
    end = tokenizer().convert_tokens_to_ids("<|im_end|>")
    tokens = sampled_chat([*odd_ids(), end]).to_tokens(tokenizer())
    probs = LogProbs(
        response=torch.full((1, len(rows(tokens, "response")[0])), -0.5), batch_size=(1,)
    )
    back = tokens.to_history(tokenizer(), log_probs=probs)
    message = back.response[0, 0]
    assert message.token_ids == [*odd_ids(), end]
    assert message.log_probs == [-0.5] * len(message.token_ids)
    again = pickle.loads(pickle.dumps(back)).clone().to_tokens(tokenizer())
    assert rows(again, "full") == rows(tokens, "full")
    following = back.full.append(
        History(role=["user"], content=["And now?"], batch_size=1), inplace=False
    )
    prompt = ChatHistory(prompt=following, batch_size=(1,)).to_tokens(tokenizer())
    whole = rows(tokens, "full")[0]
    assert rows(prompt, "prompt")[0][: len(whole)] == whole


def test_a_rewritten_prompt_is_named_and_a_sample_still_follows_it() -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    chat = ChatHistory(
        prompt=History.from_chats([SIMPLE[:1]]), full=History.from_chats([SIMPLE]), batch_size=(1,)
    )
    with pytest.raises(TurnRewritten, match="conversation 0"):
        chat.to_tokens(tokenizer(), chat_template=template)
    with pytest.raises(TurnRewritten, match="conversation 0"):
        chat.to_text(tokenizer(), chat_template=template)
    sampled = sampled_chat(odd_ids(), complete=False)
    tokens = sampled.to_tokens(tokenizer(), chat_template=template)
    assert rows(tokens, "response") == [odd_ids()]
    assert sampled.to_text(tokenizer(), chat_template=template).response == ["How many moons"]


# Padding


def test_padding_both_sides_and_back() -> None:
    tokens = both().to_tokens(tokenizer())
    pad = tokenizer().pad_token_id
    padded = tokens.pad(pad)
    assert padded.padded is True
    prompts, responses = rows(tokens, "prompt"), rows(tokens, "response")
    width = max(map(len, prompts))
    assert padded.prompt.shape == (2, width)
    assert padded.prompt[0, width - len(prompts[0]) :].tolist() == prompts[0]
    assert padded.response[0, : len(responses[0])].tolist() == responses[0]
    assert torch.equal(padded.full, torch.cat([padded.prompt, padded.response], -1))
    for name in ("prompt", "response", "full"):
        # The padding id is the end token: told apart all the same.
        assert rows(padded.unpad(), name) == rows(tokens, name)
    assert padded.to_text(tokenizer()).full == tokens.to_text(tokenizer()).full
    assert (
        padded.to_history(tokenizer()).full.content == tokens.to_history(tokenizer()).full.content
    )
    assert rows(padded[1:].unpad(), "full") == rows(tokens, "full")[1:]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_one_side(side: Any) -> None:
    tokens = both().to_tokens(tokenizer())
    padded = tokens.pad(0, side=side, sizes={"full": 200})
    assert padded.full.shape == (2, 200)
    row = rows(tokens, "full")[0]
    kept = padded.full[0, -len(row) :] if side == "left" else padded.full[0, : len(row)]
    assert kept.tolist() == row
    assert rows(padded.unpad(), "full") == rows(tokens, "full")


def test_text_to_padded_tokens() -> None:
    text = both().to_text(tokenizer())
    padded = text.to_tokens(tokenizer(), padding=True)
    assert padded.full.ndim == 2
    assert rows(padded.unpad(), "full") == rows(text.to_tokens(tokenizer()), "full")
    short = text.to_tokens(tokenizer(), truncation=True, max_length=5)
    assert [len(row) for row in rows(short, "full")] == [5, 5]


def test_tokens_padded_elsewhere_need_a_mask() -> None:
    tokens = both().to_tokens(tokenizer())
    padded = tokens.pad(tokenizer().pad_token_id)
    foreign = Tokens(
        prompt=padded.prompt,
        response=padded.response,
        full=padded.full,
        padded=True,
        batch_size=(2,),
    )
    with pytest.raises(ValueError, match="padded tokens"):
        foreign.to_text(tokenizer())
    mask = both().to_masks(tokenizer()).pad()
    attention = torch.zeros(padded.full.shape, dtype=torch.bool)
    for row, (start, end) in zip(attention, padded.bounds["full"], strict=True):
        row[start:end] = True
    for given in (attention, Masks(all_attention_mask=attention, batch_size=(2,))):
        assert rows(foreign.unpad(given), "full") == rows(tokens, "full")
        assert rows(foreign.unpad(given), "prompt") == rows(tokens, "prompt")
        assert rows(foreign.unpad(given), "response") == rows(tokens, "response")
    assert rows(mask.unpad(), "all_assistant_mask") == rows(
        both().to_masks(tokenizer()), "all_assistant_mask"
    )


def test_masks_are_padded_like_their_tokens() -> None:
    padded = both().to_tokens(tokenizer()).pad(tokenizer().pad_token_id)
    masks = both().to_masks(tokenizer())
    laid = masks.pad(like=padded)
    assert laid.all_attention_mask.shape == padded.full.shape
    own = padded.full[1][laid.all_assistant_mask[1]]
    assert tokenizer().decode(own) == "2+2 equals 4.<|im_end|>You're welcome!<|im_end|>"
    assert laid.all_attention_mask.sum(-1).tolist() == [
        len(row) for row in rows(padded.unpad(), "full")
    ]
    assert rows(laid.unpad(), "all_assistant_mask") == rows(masks, "all_assistant_mask")
    with pytest.raises(ContainerError, match="no padded"):
        masks.pad(like=padded.unpad())
    with pytest.raises(ContainerError, match="has 1 rows"):
        masks[:1].pad(like=padded)


def test_padding_twice_and_padding_what_is_missing_are_errors() -> None:
    tokens = both().to_tokens(tokenizer())
    with pytest.raises(ContainerError, match="padded already"):
        tokens.pad(0).pad(0)
    with pytest.raises(ContainerError, match="more than the size 3"):
        tokens.pad(0, sizes={"full": 3})
    partial = lazy_stack(
        [Tokens(full=torch.arange(3)), Tokens(prompt=torch.arange(2), full=torch.arange(2))]
    )
    with pytest.raises(ContainerError, match="row 0 has no prompt"):
        partial.pad(0)
    mixed = Tokens._from_tensordict(
        lazy_stack(
            [TensorDict(full=torch.arange(2)), TensorDict(full=torch.arange(3, device="meta"))]
        )
    )
    with pytest.raises(ContainerError, match="row 1 is on meta"):
        mixed.pad(0)


# As tensordict data


def test_containers_pickle_stack_and_move() -> None:
    tokens = both().to_tokens(tokenizer())
    for made in (pickle.loads(pickle.dumps(tokens)), tokens.clone(), tokens.to("cpu")):
        assert rows(made, "full") == rows(tokens, "full")
    assert lazy_stack([tokens, tokens]).batch_size == torch.Size([2, 2])
    data = TensorDict(
        {"tokens": tokens, "history": both(), "masks": both().to_masks(tokenizer())}, batch_size=[2]
    )
    assert [row.tolist() for row in data.get(("tokens", "full"), as_list=True)] == rows(
        tokens, "full"
    )
    assert data[1]["history", "full"].to_chats() == LONGER
    assert data["history"].full.to_chats() == [SIMPLE, LONGER]


def test_tokens_say_whose_they_are_and_others_are_refused(tmp_path: Path) -> None:
    own = tokenizer()
    other = copy.deepcopy(own)
    other.add_tokens(["moons"])
    tokens = both().to_tokens(own)
    known = tokens.fingerprints
    assert known[0] is known[1]
    assert known[0].keys() == {"tokenizer", "template", "plugins"}
    tokens.pad(0).memmap(str(tmp_path))
    copies = {
        "rows": tokens,
        "one row": tokens[0],
        "padded": tokens.pad(0),
        "unpadded": tokens.pad(0).unpad(),
        "pickled": pickle.loads(pickle.dumps(tokens)),
        "stacked": torch.stack([tokens.pad(0), tokens.pad(0)]),
        "lazily": lazy_stack([tokens, tokens]),
        "cloned": tokens.clone(),
        "moved": tokens.to("cpu"),
        "joined": torch.cat([tokens.pad(0), tokens.pad(0)]),
        "of text": both().to_text(own).to_tokens(own),
        "mapped": Tokens.load_memmap(str(tmp_path)),
    }
    for name, copied in copies.items():
        with pytest.raises(TokenizerMismatch, match=r"row 0: .*#\w+\) than this one \(.*#\w+"):
            copied.to_text(other)
        with pytest.raises(TokenizerMismatch):
            copied.to_history(other)
        assert copied.to_text(own) is not None, name
    mixed = lazy_stack([tokens[0], both().to_tokens(other)[1]])
    with pytest.raises(TokenizerMismatch, match="row 1"):
        mixed.to_text(own)
    # Ids that say nothing are believed.
    plain = Tokens(full=tokens[0].full, batch_size=())
    assert plain.to_text(other) is not None


@pytest.mark.parametrize(
    ("row", "message"),
    [([5, -100], "row 1 of full holds -100"), ([5.0, 1.5], "row 1 of full holds torch.float32")],
)
def test_rows_that_hold_no_ids_are_named(row: list[Any], message: str) -> None:
    made = Tokens._from_tensordict(
        lazy_stack([TensorDict(full=torch.tensor(r)) for r in ([5, 6, 7], row)])
    )
    for convert in (made.to_text, made.to_history):
        with pytest.raises(ContainerError, match=message):
            convert(tokenizer())
