"""`TransformersWrapper` on real forward passes: conversations, modes, distributions, threads."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from antiphon import ChatHistory, History, Text, Tokens
from antiphon.conversations.ragged import ragged
from antiphon.errors import InvalidParameter
from antiphon_transformers import TransformersWrapper
from tensordict import TensorDict
from tiny_models import END

CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And you?"}],
]
KWARGS = {"max_new_tokens": 6, "seed": 3}


@pytest.fixture
def wrapper(models_by_name, tokenizer):
    return TransformersWrapper(models_by_name("qwen3"), tokenizer=tokenizer, generate_kwargs=KWARGS)


def test_a_pair_of_model_and_tokenizer_is_taken_as_both(models_by_name, tokenizer):
    paired = TransformersWrapper((models_by_name("qwen3"), tokenizer), generate_kwargs=KWARGS)
    apart = TransformersWrapper(
        models_by_name("qwen3"), tokenizer=tokenizer, generate_kwargs=KWARGS
    )
    made = [wrapper(history(CHATS))["text"].response for wrapper in (paired, apart)]
    assert made[0] == made[1]


def history(chats, part="prompt"):
    size = (len(chats),)
    chat = ChatHistory(**{part: History.from_chats(chats)}, batch_size=size)
    return TensorDict(history=chat, batch_size=size)


def rows(td, *key):
    return [row.tolist() for row in td.get(key, as_list=True)]


def test_the_next_prompt_starts_with_the_previous_one_and_what_was_sampled(wrapper):
    chats = CHATS
    for turn in range(3):
        out = wrapper(history(chats))
        before = rows(out, "tokens", "full")
        chats = [
            [*chat, {"role": "user", "content": f"more {turn}"}]
            for chat in out["history"].full.to_chats()
        ]
        after = rows(wrapper(history(chats)), "tokens", "prompt")
        for row, following in zip(before, after, strict=True):
            assert following[: len(row)] == row


def test_re_scoring_a_conversation_gives_every_sampled_log_prob_again(wrapper):
    out = wrapper(history(CHATS))
    chats = [[*c, {"role": "user", "content": "x"}] for c in out["history"].full.to_chats()]
    out = wrapper(history(chats))
    scorer = wrapper.get_new_version(generate=False)
    scored = scorer(history(out["history"].full.to_chats(), "full"))
    sampled = out.get(("log_probs", "full"), as_list=True)
    again = scored.get(("log_probs", "full"), as_list=True)
    masks = scored.get(("masks", "all_assistant_mask"), as_list=True)
    for one, other, mask in zip(sampled, again, masks, strict=True):
        # Both turns carry theirs; a closing token that was not sampled has none and is no turn.
        assert torch.equal(~one.isnan(), mask)
        assert mask.sum() == 12
        torch.testing.assert_close(one[mask], other[mask].detach(), atol=1e-4, rtol=0)


def test_gradients_flow_from_scores_to_the_model(models_by_name, tokenizer):
    model = copy.deepcopy(models_by_name("llama"))
    scorer = TransformersWrapper(model, tokenizer=tokenizer, generate=False, pad_output=True)
    out = scorer(history(CHATS, "full"))
    mask = out["masks"].all_attention_mask & ~out["log_probs"].full.isnan()
    out["log_probs"].full[mask].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        assert not scorer(history(CHATS, "full"))["log_probs"].full.requires_grad


def test_samples_add_a_dimension_in_the_order_of_the_prompts(wrapper):
    several = wrapper.get_new_version(num_samples=3, pad_output=True)
    out = several(history(CHATS))
    assert out.batch_size == (2, 3)
    assert out["tokens"].full.shape[:2] == (2, 3)
    assert out["history"].full.shape[:2] == (2, 3)
    flat = out["tokens"].prompt
    assert torch.equal(flat[:, 0], flat[:, 1])
    assert len({tuple(row) for row in out["tokens"].response.reshape(6, -1).tolist()}) == 6
    one = several(history(CHATS[1:]))
    again = one["tokens"].unpad().get("response", as_list=True)
    expected = out["tokens"].unpad()[1].get("response", as_list=True)
    assert [r.tolist() for r in again[0]] == [r.tolist() for r in expected]


def test_padded_results_say_where_the_padding_is(wrapper):
    out = wrapper.get_new_version(pad_output=True)(history(CHATS))
    ragged = wrapper(history(CHATS))
    mask = out["masks"].all_attention_mask
    for index, row in enumerate(rows(ragged, "tokens", "full")):
        assert out["tokens"].full[index][mask[index]].tolist() == row
    for name in ("all_assistant_mask", "all_attention_mask"):
        assert [m.tolist() for m in out["masks"].unpad().get(name, as_list=True)] == rows(
            ragged, "masks", name
        )
    # All prompts end, and all answers begin, at one place.
    width = out["tokens"].prompt.shape[1]
    assert mask[:, width - 1].all()
    assert mask[:, width].all()


def test_text_mode_reads_and_writes_text(wrapper):
    texts = wrapper.get_new_version(input_mode="text")
    td = TensorDict(text=Text(prompt=["We", "hello there"], batch_size=(2,)), batch_size=(2,))
    out = texts(td)
    assert out is td
    made = out["text"]
    for prompt, answer, full in zip(
        list(made.get("prompt")),
        list(made.get("response")),
        list(made.get("full")),
        strict=True,
    ):
        assert full == prompt + answer
    assert texts.out_keys == ["text", "masks", "tokens", "log_probs"]


def test_tokens_mode_takes_padding_from_the_mask_and_not_from_the_ids(wrapper):
    tokens = wrapper.get_new_version(input_mode="tokens", inplace=False)
    ragged = [[END, 7, END], [5, 6, 7, 8, 9]]
    padded = torch.full((2, 5), END)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    for index, row in enumerate(ragged):
        padded[index, 5 - len(row) :] = torch.tensor(row)
        mask[index, 5 - len(row) :] = True
    td = TensorDict(
        tokens=Tokens(prompt=padded, batch_size=(2,)), attention_mask=mask, batch_size=(2,)
    )
    out = tokens(td)
    assert rows(out, "tokens", "prompt") == ragged
    for index, row in enumerate(ragged):
        alone = TensorDict(
            tokens=Tokens(prompt=torch.tensor([row]), batch_size=(1,)), batch_size=(1,)
        )
        assert (
            rows(tokens(alone), "tokens", "response")[0] == rows(out, "tokens", "response")[index]
        )
    contained = Tokens(prompt=padded, batch_size=(2,))
    contained.padded = True
    again = tokens(TensorDict(tokens=contained, attention_mask=mask, batch_size=(2,)))
    assert rows(again, "tokens", "full") == rows(out, "tokens", "full")


def test_distributions_take_their_masks_from_lengths_and_turns(wrapper):
    out = wrapper(history(CHATS))
    scorer = wrapper.get_new_version(generate=False)
    td = history(out["history"].full.to_chats(), "full")
    scored = scorer(td.clone())
    ids = scored.get(
        ("tokens", "full"), as_padded_tensor=True, padding_side="left", padding_value=END
    )
    width = ids.shape[1]
    lengths = [len(row) for row in rows(scored, "tokens", "full")]
    dist = scorer.get_dist(td)
    assert dist.logits.shape[:2] == ids.shape
    found = dist.log_prob(ids)
    for index, own in enumerate(scored.get(("log_probs", "full"), as_list=True)):
        begin = width - lengths[index]
        torch.testing.assert_close(found[index, begin + 1 :], own[1:], atol=1e-4, rtol=0)
        assert (found[index, : begin + 1] == 0).all()
    rlhf = scorer._get_rlhf_dist(td)
    assert rlhf.mask.sum(1).tolist() == [len(r) for r in rows(out, "tokens", "response")]
    assert (rlhf.log_prob(ids)[~rlhf.mask] == 0).all()
    assert (rlhf.entropy()[~rlhf.mask] == 0).all()
    with_prompt = td.clone()
    with_prompt["history"].prompt = History.from_chats(CHATS)
    sft = scorer._get_sft_dist(with_prompt)
    assert torch.equal(sft.mask, rlhf.mask)
    generic = scorer._get_generic_dist(td)
    assert generic.mask.sum(1).tolist() == [length - 1 for length in lengths]
    right = scorer._get_dist_with_custom_mask(
        td, [[i % 2 for i in range(n)] for n in lengths], padding_side="right"
    )
    assert right.mask.sum(1).tolist() == [n // 2 for n in lengths]
    assert rlhf.sample().shape == ids.shape
    assert (rlhf.mode[~rlhf.mask] == -100).all()


def test_log_prob_gives_what_scoring_gives(wrapper):
    out = wrapper(history(CHATS))
    td = history(out["history"].full.to_chats(), "full")
    found = wrapper.log_prob(td, as_list=True)
    sampled = out.get(("log_probs", "response"), as_list=True)
    for row, answer in zip(found, sampled, strict=True):
        torch.testing.assert_close(row[-len(answer) :].detach(), answer, atol=1e-4, rtol=0)
    assert td.get("log_probs", None) is None
    assert wrapper.log_prob_keys == [("log_probs", "full")]


def test_threads_that_share_a_tokenizer_and_a_batch_get_what_they_would_get_alone(wrapper):
    """Padding or truncation options on a shared tokenizer would mix them up."""
    batched = wrapper.get_new_version(batching=True, min_batch_size=4, batching_timeout=0.2)
    texts = [f"question {i} " + "word " * (i % 5) for i in range(24)]
    alone = [
        rows(wrapper(history([[{"role": "user", "content": t}]])), "tokens", "full") for t in texts
    ]

    def ask(text):
        return rows(batched(history([[{"role": "user", "content": text}]])), "tokens", "full")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, texts)) == alone
    state = batched.get_batching_state()
    assert state["batching_enabled"]
    assert state["queue_size"] == 0
    assert state["statistics"].largest > 1
    batched.cleanup_batching(flush=True)


def test_a_wrapper_is_a_module_with_its_models_parameters(wrapper, models_by_name):
    assert set(wrapper.parameters()) == set(models_by_name("qwen3").parameters())
    clone = pickle.loads(pickle.dumps(wrapper))
    expected = rows(wrapper(history(CHATS)), "tokens", "full")
    assert rows(clone(history(CHATS)), "tokens", "full") == expected
    assert rows(copy.deepcopy(wrapper)(history(CHATS)), "tokens", "full") == expected


def test_a_tokenizer_is_left_as_it_was(wrapper, tokenizer):
    side, truncation = tokenizer.padding_side, tokenizer.truncation_side
    inner = tokenizer.backend_tokenizer
    wrapper.get_new_version(pad_output=True)(history(CHATS))
    assert (tokenizer.padding_side, tokenizer.truncation_side) == (side, truncation)
    assert inner.padding is None
    assert inner.truncation is None


def test_a_model_object_without_a_tokenizer_only_takes_tokens(models_by_name):
    with pytest.raises(InvalidParameter, match="history mode needs a tokenizer"):
        TransformersWrapper(models_by_name("llama"))
    wrapper = TransformersWrapper(
        models_by_name("llama"), input_mode="tokens", generate_kwargs={"max_new_tokens": 2}
    )
    td = TensorDict(tokens=Tokens(prompt=torch.tensor([[5, 6]]), batch_size=(1,)), batch_size=(1,))
    assert len(rows(wrapper(td), "tokens", "full")[0]) == 4


def test_a_policy_s_own_ragged_output_is_scored_in_tokens_mode(wrapper):
    """Prompts of different lengths stand beside ``full``: no one tensor holds them."""
    out = wrapper(history(CHATS))
    scorer = wrapper.get_new_version(generate=False, input_mode="tokens", inplace=False)
    scored = scorer(out)["log_probs"].get("response", as_list=True)
    sampled = out["log_probs"].get("response", as_list=True)
    for again, before in zip(scored, sampled, strict=True):
        assert torch.allclose(again, before, atol=1e-4)


@pytest.mark.parametrize("asked", [{"as_nested_tensor": True}, {"layout": torch.jagged}])
def test_a_ragged_distribution_says_what_a_padded_one_does(wrapper, asked):
    out = wrapper(history(CHATS))
    scorer = wrapper.get_new_version(generate=False)
    td = history(out["history"].full.to_chats(), "full")
    scored = scorer(td.clone())
    ids = scored.get(("tokens", "full"), as_list=True)
    key = ("masks", "all_assistant_mask")
    found_dist = scorer.get_dist(td, mask_key=key, **asked)
    padded = scorer.get_dist(td, mask_key=key, padding_side="right")
    nested = torch.nested.nested_tensor(ids, layout=torch.jagged)
    dense = scored.get(
        ("tokens", "full"), as_padded_tensor=True, padding_side="right", padding_value=END
    )
    for found in (found_dist.log_prob(nested), found_dist.log_prob(ids)):
        for row, right in zip(found.unbind(), padded.log_prob(dense), strict=True):
            torch.testing.assert_close(row, right[: len(row)])
    for one, other in ((found_dist.entropy(), padded.entropy()), (found_dist.mode, padded.mode)):
        for row, right in zip(one.unbind(), other, strict=True):
            torch.testing.assert_close(row, right[: len(row)])
    drawn = found_dist.sample()
    assert [len(row) for row in drawn.unbind()] == [len(row) for row in ids]
    assert (drawn.values()[~found_dist.mask] == -100).all()
    kept = TensorDict(batch_size=td.batch_size)
    scorer.get_dist(td, kept, as_padded_tensor=False)
    assert kept["logits"].is_nested
    with pytest.raises(InvalidParameter, match="rows of"):
        found_dist.log_prob(ids[:1])
    with pytest.raises(InvalidParameter, match="contradict"):
        scorer.get_dist(td, as_padded_tensor=True, as_nested_tensor=True)
    with pytest.raises(InvalidParameter, match="flatten"):
        scorer.get_dist(td[0], as_nested_tensor=True)


def test_gradients_flow_through_a_ragged_distribution(models_by_name, tokenizer):
    model = copy.deepcopy(models_by_name("qwen3")).train()
    scorer = TransformersWrapper(model, tokenizer=tokenizer, generate=False, input_mode="tokens")
    rows_ = [torch.tensor([5, 6, 7]), torch.tensor([8, 9])]
    td = TensorDict(tokens=ragged(Tokens, (2,), {"full": rows_}), batch_size=(2,))
    dist = scorer.get_dist(td, as_nested_tensor=True)
    dist.log_prob(rows_).values().sum().backward()
    assert model.model.embed_tokens.weight.grad.abs().sum() > 0
