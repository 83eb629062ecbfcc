"""The wrapper on a scripted backend: modes, shapes, order, stops, conversations, settings."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from antiphon import ChatHistory, History, LLMWrapper, Masks, Text, Tokens
from antiphon.errors import (
    BackendError,
    BatchingClosed,
    FamilyNotFound,
    InvalidParameter,
    NoHistory,
    NoLogits,
    TokenizerMismatch,
    TurnRewritten,
)
from antiphon.generation.backends import Generation, Scores
from antiphon.generation.sampling import SamplingParams
from tensordict import TensorDict
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END = 1
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokenizer():
    names = ["<|pad|>", "<|im_end|>", "<|im_start|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*names, *alphabet])}
    vocabulary["he"] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("h", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    return tokenizer


class ScriptedBackend:
    """Answers every prompt with the ids of ``answer``; the log-prob of an id is a function of it and its place."""

    name = "scripted"
    vocab_size = 1000
    max_context = None
    end_ids = frozenset({END})
    extra_parameters = frozenset({"flavour"})
    weight_version = 0

    def __init__(self, tokenizer, answer="ok", end=True):
        self.tokenizer = tokenizer
        self.seen = []
        self.answer = answer if isinstance(answer, list) else tokenizer.encode(answer).ids
        self.end = end
        self.cut = self.stop = None

    @staticmethod
    def log_prob(number, place):
        return -0.001 * number - 0.01 * place

    def generate(self, batch, params):
        self.seen.append((batch, params))
        made = Generation([], [], [])
        for row in batch.rows:
            for _ in range(params.num_return_sequences):
                ids = [*self.answer, *([END] if self.end else [])]
                made.ids.append(ids)
                made.log_probs.append(
                    torch.tensor([self.log_prob(n, len(row) + i) for i, n in enumerate(ids)])
                )
                made.finish.append("end" if self.end else "stop" if self.stop else "length")
                made.cut.append(self.cut)
                made.stopped_by.append(END if self.end else self.stop)
        return made

    def score(self, batch, *, starts=None, temperature=1.0, entropy=False, requires_grad=False):
        self.seen.append((batch, temperature))
        rows = [
            torch.tensor([math.nan, *(self.log_prob(n, i + 1) for i, n in enumerate(row[1:]))])
            for row in batch.rows
        ]
        return Scores(rows)

    def load_weights(self, weights, version=None):
        raise NotImplementedError

    def close(self):
        pass


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture
def make(tokenizer):
    def build(answer="ok", end=True, **settings):
        settings.setdefault("chat_template", CHATML)
        return LLMWrapper(ScriptedBackend(tokenizer, answer, end), **settings)

    return build


def history(*chats, part="prompt"):
    chat = ChatHistory(**{part: History.from_chats(list(chats))}, batch_size=(len(chats),))
    return TensorDict(history=chat, batch_size=(len(chats),))


def ask(text):
    return [{"role": "user", "content": text}]


def rows(td, *key):
    return [row.tolist() for row in td.get(key, as_list=True)]


# What a call writes


def test_history_mode_writes_everything(make, tokenizer):
    wrapper = make()
    td = history(ask("a"), ask("hello"))
    out = wrapper(td)
    assert out is td
    assert wrapper.in_keys == [("history", "prompt")]
    assert wrapper.out_keys == ["text", "masks", "tokens", "log_probs", "history"]
    prompts = [
        tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n").ids
        for text in ("a", "hello")
    ]
    answer = [*tokenizer.encode("ok").ids, END]
    assert rows(out, "tokens", "prompt") == prompts
    assert rows(out, "tokens", "response") == [answer, answer]
    assert rows(out, "tokens", "full") == [prompt + answer for prompt in prompts]
    for prompt, mask in zip(prompts, rows(out, "masks", "all_assistant_mask"), strict=True):
        assert mask == [False] * len(prompt) + [True] * 3
    assert all(map(all, rows(out, "masks", "all_attention_mask")))
    assert list(out["text"].get("response")) == ["ok<|im_end|>"] * 2
    message = out["history"].response.to_chats()[0][0]
    assert message["role"] == "assistant"
    assert message["content"] == "ok"
    assert message["token_ids"] == answer
    assert "is_complete" not in message  # it is
    assert [len(chat) for chat in out["history"].full.to_chats()] == [2, 2]


def test_a_model_without_a_template_gets_no_guess_in_history_mode(tokenizer):
    with pytest.raises(FamilyNotFound, match=r"no chat template .* pass chat_template="):
        LLMWrapper(ScriptedBackend(tokenizer), input_mode="history")
    LLMWrapper(ScriptedBackend(tokenizer), input_mode="tokens")
    LLMWrapper(ScriptedBackend(tokenizer), input_mode="history", chat_template_name="chatml_format")


def test_log_probs_that_nobody_computed_are_not_numbers_and_never_0(make):
    out = make()(history(ask("a")))
    full = out.get(("log_probs", "full"), as_list=True)[0]
    prompt = len(rows(out, "tokens", "prompt")[0])
    assert full[:prompt].isnan().all()
    assert not full[prompt:].isnan().any()
    assert full.shape == out.get(("tokens", "full"), as_list=True)[0].shape


def test_one_conversation_without_a_batch(make):
    td = TensorDict(
        history=ChatHistory(prompt=History.from_chats(ask("a")), batch_size=()), batch_size=()
    )
    out = make()(td)
    assert out["tokens"].full.ndim == 1
    assert out["history"].full.to_chats()[-1]["content"] == "ok"
    several = make(num_samples=2)(td.select("history"))
    assert several.batch_size == (2,)


def test_batches_of_two_dimensions(make):
    chats = [[ask("a"), ask("bb")], [ask("c"), ask("dd")]]
    chat = ChatHistory(prompt=History.from_chats(chats), batch_size=(2, 2))
    out = make(pad_output=True)(TensorDict(history=chat, batch_size=(2, 2)))
    assert out["tokens"].full.shape[:2] == (2, 2)
    assert out["history"].full.to_chats()[1][1][0]["content"] == "dd"
    assert list(out["text"].get("prompt"))[1][0].count("c") == 1


def test_equal_prompts_keep_their_own_rows_and_samples_stay_grouped(make):
    wrapper = make(num_samples=2, pad_output=True)
    out = wrapper(history(ask("p"), ask("p"), ask("qq")))
    batch, params = wrapper.backend.seen[0]
    assert params.num_return_sequences == 2
    assert len(batch) == 3
    assert batch.rows[0] == batch.rows[1]
    assert len(set(batch.seeds)) == 3
    assert out.batch_size == (3, 2)
    texts = [[prompt.split("\n")[1] for prompt in pair] for pair in list(out["text"].get("prompt"))]
    assert texts == [["p<|im_end|>"] * 2, ["p<|im_end|>"] * 2, ["qq<|im_end|>"] * 2]


def test_a_backend_that_loses_rows_is_refused(make):
    wrapper = make()
    real = wrapper.backend.generate
    wrapper.backend.generate = lambda batch, params: real(batch[1:], params)
    with pytest.raises(BackendError, match="1 answers for 2 rows"):
        wrapper(history(ask("a"), ask("b")))


# Tokens are the truth


def test_sampled_ids_that_no_text_encodes_to_stay_through_the_next_prompt(make, tokenizer):
    """ "h" + "e" decodes to "he", which encodes to one id."""
    sampled = [tokenizer.token_to_id("h"), tokenizer.token_to_id("e")]
    assert tokenizer.encode("he").ids != sampled
    out = make(sampled)(history(ask("a")))
    before = rows(out, "tokens", "full")[0]
    assert before[-3:] == [*sampled, END]
    chats = [[*chat, *ask("more")] for chat in out["history"].full.to_chats()]
    after = make(sampled)(history(*chats))
    assert rows(after, "tokens", "prompt")[0][: len(before)] == before
    known = after.get(("log_probs", "prompt"), as_list=True)[0]
    assert (~known.isnan()).sum() == 3
    torch.testing.assert_close(
        known[len(before) - 3 : len(before)], out.get(("log_probs", "response"), as_list=True)[0]
    )
    scorer = make(generate=False)
    scorer(history(*after["history"].full.to_chats(), part="full"))
    assert scorer.backend.seen[0][0].rows == rows(after, "tokens", "full")


def test_a_cut_off_answer_has_no_end_token_and_says_so(make, tokenizer):
    wrapper = make("never ends", end=False, finish_reason_key="finish")
    out = wrapper(history(ask("a")))
    assert END not in rows(out, "tokens", "response")[0]
    message = out["history"].full.to_chats()[0][-1]
    assert message["is_complete"] is False
    assert not out["text"].get("full")[0].endswith("<|im_end|>")
    assert out.get("finish").tolist() == ["length"]
    # Going on closes it with an end token that nobody sampled.
    before = rows(out, "tokens", "full")[0]
    after = wrapper(history([*out["history"].full.to_chats()[0], *ask("b")]))
    prompt = rows(after, "tokens", "prompt")[0]
    assert prompt[: len(before)] == before
    assert prompt[len(before)] == END
    mask = rows(after, "masks", "all_assistant_mask")[0]
    assert not mask[len(before)]
    assert sum(mask) == 2 * len(rows(out, "tokens", "response")[0])


def test_a_stopped_answer_ends_its_text_before_the_stop_string_and_keeps_its_ids(make, tokenizer):
    wrapper = make("Well...", end=False, finish_reason_key="finish")
    wrapper.backend.cut, wrapper.backend.stop = 4, ".."
    out = wrapper(history(ask("a")))
    assert list(out["text"].get("response")) == ["Well"]
    assert tokenizer.decode(rows(out, "tokens", "response")[0]) == "Well..."
    assert out["history"].response.to_chats()[0][0]["content"] == "Well"
    assert out.get("finish").tolist() == ["stop"]
    keeping = wrapper.get_new_version(generate_kwargs={"include_stop_str_in_output": True})
    assert list(keeping(history(ask("a")))["text"].get("response")) == ["Well.."]


def test_special_tokens_leave_the_text_only_where_that_is_asked_for(make):
    plain = make(generate_kwargs={"skip_special_tokens": True})
    out = plain(history(ask("a")))
    assert list(out["text"].get("response")) == ["ok"]
    assert rows(out, "tokens", "response")[0][-1] == END


# Scoring


def test_scoring_writes_full_and_parts_where_the_prompt_is_known(make):
    chats = [[*ask("a"), {"role": "assistant", "content": "b"}]]
    scorer = make(generate=False)
    assert scorer.in_keys == [("history", "full")]
    out = scorer(history(*chats, part="full"))
    full = out.get(("log_probs", "full"), as_list=True)[0]
    assert full[0].isnan()
    assert not full[1:].isnan().any()
    assert out["tokens"].prompt is None
    td = history(*chats, part="full")
    td["history"].prompt = History.from_chats([ask("a")])
    out = scorer(td)
    prompt, response = rows(out, "tokens", "prompt")[0], rows(out, "tokens", "response")[0]
    assert prompt + response == rows(out, "tokens", "full")[0]
    assert len(out.get(("log_probs", "response"), as_list=True)[0]) == len(response)


def test_the_convention_of_the_log_probs_is_handed_to_scoring(make):
    kwargs = {"temperature": 0.6, "log_prob_convention": "temperature"}
    scorer = make(generate=False, generate_kwargs=kwargs)
    scorer(history(ask("a"), part="full"))
    assert scorer.backend.seen[-1][1] == 0.6
    raw = make(generate=False, generate_kwargs={"temperature": 0.6})
    raw(history(ask("a"), part="full"))
    assert raw.backend.seen[-1][1] == 1.0


def test_text_and_tokens_are_scored_as_they_are(make, tokenizer):
    scorer = make(generate=False, input_mode="text")
    out = scorer(TensorDict(text=Text(full=["hello", "a"], batch_size=(2,)), batch_size=(2,)))
    assert rows(out, "tokens", "full") == [tokenizer.encode(t).ids for t in ("hello", "a")]
    assert out["masks"].all_assistant_mask is None
    scorer = make(generate=False, input_mode="tokens")
    ids = [5, 6, 7, 8]
    out = scorer(
        TensorDict(tokens=Tokens(full=torch.tensor([ids]), batch_size=(1,)), batch_size=(1,))
    )
    assert rows(out, "tokens", "full") == [ids]
    assert len(out.get(("log_probs", "full"), as_list=True)[0]) == 4


# Keys, places, layouts


def test_every_key_can_be_chosen_or_left_out(make):
    wrapper = make(
        input_key=("in", "chat"),
        text_key="t",
        tokens_key=("out", "ids"),
        masks_key=None,
        log_probs_key="lp",
        history_key=("out", "h"),
        inplace=False,
    )
    td = TensorDict({"in": {"chat": History.from_chats([ask("a")])}}, batch_size=(1,))
    out = wrapper(td)
    assert set(out.keys()) == {"t", "out", "lp"}
    assert wrapper.out_keys == ["t", ("out", "ids"), "lp", ("out", "h")]
    assert set(td.keys()) == {"in"}
    assert make(return_log_probs=False)(history(ask("a"))).get("log_probs", None) is None


def test_inplace_says_where_results_go(make):
    td = history(ask("a"))
    td["reward"] = torch.zeros(1)
    empty = make(inplace="empty")(td)
    assert empty.get("reward", None) is None
    assert td.get("tokens", None) is None
    given = TensorDict(batch_size=(1,))
    assert make(inplace=False)(td, tensordict_out=given) is given
    assert given["tokens"].full is not None
    assert make()(td).get("reward", None) is not None


def test_jagged_layout_gives_nested_tensors(make):
    out = make(layout=torch.jagged)(history(ask("a"), ask("hello")))
    full = out["tokens"].full
    assert full.is_nested
    assert full.layout == torch.jagged
    plain = make()(history(ask("a"), ask("hello")))
    assert [row.tolist() for row in full.unbind()] == rows(plain, "tokens", "full")
    assert out["log_probs"].response.is_nested or out["log_probs"].response.ndim == 2


def test_results_go_to_the_device(make):
    out = make(device="cpu", inplace=False)(history(ask("a")))
    assert out.device == torch.device("cpu")


def test_prompts_already_as_tokens_are_used_where_preferred(make, tokenizer):
    own = [tokenizer.token_to_id("h"), tokenizer.token_to_id("e")]
    td = history(ask("a"))
    td["tokens"] = Tokens(prompt=torch.tensor([own]), batch_size=(1,))
    assert rows(make(prefer_tokens=True)(td.copy()), "tokens", "prompt") == [own]
    # What an earlier turn left behind is no prompt of this one.
    whole = rows(make()(history(ask("a"))), "tokens", "prompt")[0]
    td["tokens"] = Tokens(prompt=torch.tensor([whole[:-3]]), batch_size=(1,))
    assert rows(make(prefer_tokens=True)(td.copy()), "tokens", "prompt") == [whole]
    assert rows(make()(td.copy()), "tokens", "prompt") != [own]


def test_ids_may_stand_under_a_key_at_the_root(make):
    wrapper = make(input_mode="tokens", input_key="ids", inplace=False)
    nested = make(input_mode="tokens", inplace=False)
    ids = torch.tensor([[40, 41], [42, 43]])
    at_root = wrapper(TensorDict({"ids": ids}, 2))
    below = nested(TensorDict({"tokens": TensorDict({"prompt": ids}, 2)}, 2))
    assert rows(at_root, "tokens", "full") == rows(below, "tokens", "full")


def test_padded_input_is_told_by_its_mask(make):
    wrapper = make(input_mode="tokens", inplace=False)
    ids = torch.tensor([[END, END, 5], [6, END, 7]])
    mask = torch.tensor([[False, False, True], [True, True, True]])
    td = TensorDict(
        tokens=Tokens(prompt=ids, batch_size=(2,)),
        masks=Masks(all_attention_mask=mask, batch_size=(2,)),
        batch_size=(2,),
    )
    assert rows(wrapper(td), "tokens", "prompt") == [[5], [6, END, 7]]


# Settings and errors


def test_unknown_parameters_and_settings_name_the_near_one(make):
    with pytest.raises(InvalidParameter, match="did you mean 'temperature'"):
        make(generate_kwargs={"temperture": 1})
    with pytest.raises(InvalidParameter, match="paddd: not a setting"):
        make().get_new_version(paddd=True)
    with pytest.raises(InvalidParameter, match="input_mode"):
        make(input_mode="chat")
    with pytest.raises(InvalidParameter, match="inplace"):
        make(inplace="maybe")
    with pytest.raises(InvalidParameter, match="inplace=True can't hold"):
        make(inplace=True, num_samples=2)
    with pytest.raises(InvalidParameter, match="give one of them"):
        make(num_samples=2, generate_kwargs={"n": 3})
    with pytest.raises(InvalidParameter, match="not a tokenizer option"):
        make(tokenizer_kwargs={"nonsense": 1})
    assert make(generate_kwargs={"flavour": 3}).params.extra == {"flavour": 3}


def test_half_a_backend_is_refused(tokenizer):
    class Half:
        end_ids = generate = score = None

    with pytest.raises(InvalidParameter, match="Half is not a whole backend: it lacks close"):
        LLMWrapper(Half(), tokenizer=tokenizer)


def test_parameters_of_another_backend_are_refused_in_an_object_too(make):
    with pytest.raises(InvalidParameter, match=r"'flavor'.*of scripted.*did you mean 'flavour'"):
        make(generate_kwargs=SamplingParams(extras={"flavor": 1}))
    known = make(generate_kwargs=SamplingParams(extras={"flavour": 1}, n=2))
    assert known.params.extra == {"flavour": 1}
    assert known.num_samples == 2
    with pytest.raises(InvalidParameter, match="mapping of names"):
        make(generate_kwargs=[("max_tokens", 3)])


def test_input_that_is_not_there_is_named(make):
    with pytest.raises(InvalidParameter, match=r"\('history', 'prompt'\).*its keys: 'other'"):
        make()(TensorDict(other=torch.zeros(1), batch_size=(1,)))
    two = History.from_chats([ask("a"), ask("b")])
    with pytest.raises(InvalidParameter, match=r"2 rows.*asks for 1"):
        make(input_key="h")(TensorDict(h=two, batch_size=()))


def test_parameters_of_one_call(make):
    wrapper = make(generate_kwargs={"temperature": 0.5, "max_new_tokens": 3})
    wrapper(history(ask("a")), temperature=0.9)
    assert wrapper.backend.seen[-1][1] == SamplingParams(temperature=0.9, max_new_tokens=3)
    with pytest.raises(InvalidParameter, match="num_samples"):
        wrapper(history(ask("a")), n=2)
    with pytest.raises(InvalidParameter, match="scoring takes no"):
        make(generate=False)(history(ask("a"), part="full"), temperature=1.0)


def test_a_new_version_keeps_every_setting_but_those_named(make):
    settings = {
        "pad_output": True,
        "num_samples": 2,
        "log_probs_key": "lp",
        "chat_template": CHATML + "{# mine #}",
        "generate_kwargs": {"max_new_tokens": 5},
        "batching": True,
        "max_batch_size": 7,
    }
    wrapper = make(**settings)
    scorer = wrapper.get_new_version(generate=False)
    assert scorer.backend is wrapper.backend
    assert scorer.in_keys == [("history", "full")]
    assert scorer.pad_output
    assert scorer.log_probs_key == "lp"
    assert scorer.template.chat_template == settings["chat_template"]
    assert scorer.params.max_new_tokens == 5
    assert scorer.batcher.max_batch_size == 7
    back = scorer.get_new_version(generate=True, pad_output=False)
    assert back.in_keys == [("history", "prompt")]
    assert not back.pad_output
    assert back.num_samples == 2


def test_a_collector_is_registered_weakly(make):
    class Collector:
        pass

    wrapper, collector = make(), Collector()
    assert wrapper.collector is None
    wrapper.register_collector(collector)
    assert wrapper.collector is collector
    del collector
    assert wrapper.collector is None


# Batching


def test_three_threads_are_answered_though_four_rows_are_waited_for(make):
    wrapper = make(min_batch_size=4, batching_timeout=1)
    assert wrapper.batching
    with ThreadPoolExecutor(3) as pool:
        outs = list(pool.map(lambda t: wrapper(history(ask(t))), "abc"))
    for text, out in zip("abc", outs, strict=True):
        assert f"user\n{text}<" in out["text"].get("prompt")[0]
    assert [len(batch) for batch, _ in wrapper.backend.seen] == [3]


def test_cleanup_answers_who_waits(make):
    for flush in (True, False):
        wrapper = make(min_batch_size=50, batching_timeout=60)
        found = []

        def call(wrapper=wrapper, found=found):
            try:
                found.append(wrapper(history(ask("a"))))
            except BatchingClosed as error:
                found.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        while not wrapper.get_batching_state()["queue_size"]:
            pass
        wrapper.cleanup_batching(flush=flush)
        thread.join(30)
        assert isinstance(found[0], TensorDict if flush else BatchingClosed)
    assert make().get_batching_state() == {"batching_enabled": False}
    make().cleanup_batching()
    with pytest.raises(InvalidParameter, match="batching=False"):
        make(batching=False, min_batch_size=2)


def test_a_maximum_alone_is_enough(make):
    wrapper = make(max_batch_size=2)
    wrapper(history(*[ask(t) for t in "abcde"]))
    assert [len(batch) for batch, _ in wrapper.backend.seen] == [2, 2, 1]


def test_what_is_no_history_is_refused_by_name(make):
    data = TensorDict(history=ChatHistory(prompt="text"), batch_size=(2,))
    with pytest.raises(NoHistory, match=r"Expected History object under .*'prompt'.*got str"):
        make()(data)
    with pytest.raises(TypeError):
        make()(data)


# Distributions


def test_a_backend_without_logits_has_log_probs_and_says_why_it_has_no_distribution(make):
    scorer = make(generate=False)
    for dist in (scorer.get_dist, scorer._get_sft_dist, scorer._get_rlhf_dist):
        with pytest.raises(NoLogits, match="does not return logits"):
            dist(history(ask("a"), part="full"))
    with pytest.raises(NotImplementedError):  # as in TorchRL, whatever the tensordict holds
        scorer.get_dist(TensorDict(batch_size=(2,)))
    found = make().log_prob(history(ask("a"), part="full"), as_list=True)
    assert found[0][0].isnan()


# Sampled turns that can't be kept, and tokens of others


def test_breaks_are_told_by_row_and_policies_hold(make):
    wrapper = make(generate_kwargs={"max_new_tokens": 3})
    out = wrapper(history(ask("a"), ask("hello")))
    assert list(out["tokens"].get("breaks")) == [[], []]
    chats = out["history"].full.to_chats()
    chats[1][-1]["content"] = "edited"
    td = history(*[[*chat, {"role": "user", "content": "b"}] for chat in chats])
    kept = wrapper(td.copy())
    first, second = list(kept["tokens"].get("breaks"))
    assert first == []
    (found,) = second
    assert (found["message"], found["edited"]) == (1, True)
    assert found["now"].startswith("edited")
    assert found["was"]
    assert kept["tokens"].starts_anew is None
    split = make(on_break="split", pad_output=True)(td.copy())
    assert split["tokens"].starts_anew.tolist() == [False, True]
    assert [len(b) for b in list(split["tokens"].get("breaks"))] == [0, 1]
    with pytest.raises(TurnRewritten, match="Row 1: Message 1 was edited"):
        make(on_break="raise")(td.copy())
    with pytest.raises(InvalidParameter, match="on_break"):
        make(on_break="ignore")
    samples = make(num_samples=2)(td.copy())
    assert list(samples["tokens"].get("breaks"))[1] == [second, second]
    scored = make(generate=False)(history(*td["history"].prompt.to_chats(), part="full"))
    assert [len(b) for b in list(scored["tokens"].get("breaks"))] == [0, 1]


def test_tokens_of_another_tokenizer_are_refused(make, tokenizer):
    out = make()(history(ask("a")))
    assert out["tokens"].fingerprints[0].keys() == {"tokenizer", "template", "plugins"}
    scorer = make(generate=False, input_mode="tokens")
    assert scorer(TensorDict(tokens=out["tokens"], batch_size=(1,)))["log_probs"] is not None
    other = type(tokenizer).from_str(tokenizer.to_str())
    other.add_tokens(["hello"])
    strange = make(generate=False, input_mode="tokens", tokenizer=other)
    with pytest.raises(TokenizerMismatch, match=r"row 0: .*#\w+\) than this one \(.*#\w+"):
        strange(TensorDict(tokens=out["tokens"], batch_size=(1,)))


def test_scoring_without_log_probs_is_refused(make):
    with pytest.raises(InvalidParameter, match="return_log_probs must be True"):
        make(generate=False, return_log_probs=False)
