"""Architectures that differ in what a batch, a padding, a length or a bundle of settings does to them."""

from __future__ import annotations

import pytest
import torch
import transformers
from antiphon.errors import InvalidParameter
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers.backend import TransformersBackend
from tiny_models import SIZES, VOCABULARY, randomised

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [42], [100, 101, 102] * 5, [5, 6, 7, 8, 9, 10, 11]]
GREEDY = SamplingParams(max_new_tokens=10, temperature=0.0, ignore_eos=True)
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
MAMBA = {"mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}
BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
#: Class of the model, class of its configuration, settings beyond the sizes.
KINDS = {
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {"num_hidden_layers": 6, "head_dim": 8, "sliding_window": 8},
    ),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 8, "head_dim": 8}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {"sliding_window": 8}),
    "phi3, long positions": (
        "Phi3ForCausalLM",
        "Phi3Config",
        {
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 4,
                "long_factor": [3.0] * 4,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "gpt-oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {"head_dim": 8, "sliding_window": 8, **EXPERTS},
    ),
    "mixtral that reports its routing": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {"output_router_logits": True, **EXPERTS},
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        "Lfm2Config",
        {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]},
    ),
    "falcon-h1": (
        "FalconH1ForCausalLM",
        "FalconH1Config",
        {"mamba_d_ssm": 32, "mamba_n_heads": 4, "head_dim": 8, **MAMBA},
    ),
    "roberta, which counts positions from behind its padding id": (
        "RobertaForCausalLM",
        "RobertaConfig",
        {"is_decoder": True, "pad_token_id": 1},
    ),
    "roformer, which can't be told positions": (
        "RoFormerForCausalLM",
        "RoFormerConfig",
        {"is_decoder": True, "pad_token_id": 0},
    ),
    "bart, which takes columns for positions": (
        "BartForCausalLM",
        "BartConfig",
        {
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 64,
            "forced_eos_token_id": None,
        },
    ),
    "recurrent gemma, which keeps states in itself": (
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8, "head_dim": 8},
    ),
    "mllama, whose cache has layers without states": (
        "MllamaForCausalLM",
        "MllamaTextConfig",
        {"cross_attention_layers": [1], "rope_scaling": {"rope_type": "default"}},
    ),
    "git, which does not say that it is causal": (
        "GitForCausalLM",
        "GitConfig",
        {"vision_config": {"num_attention_heads": 4, "hidden_size": 32, "num_hidden_layers": 1}},
    ),
    "dory, whose cache fails behind its window": (
        "DoryForCausalLM",
        "DoryConfig",
        {"sliding_window": 8, "head_dim": 8, "num_hidden_layers": 4},
    ),
    "qwen3.5": (
        "Qwen3_5ForCausalLM",
        "Qwen3_5TextConfig",
        {"num_hidden_layers": 4, "head_dim": 8, **LINEAR},
    ),
}


#: What transformers' own generate gets wrong, so that it is no oracle.
WRONG_THERE = {
    "roberta, which counts positions from behind its padding id": "counts from 0",
    "recurrent gemma, which keeps states in itself": "goes on from them after a prompt of one token",
    "dory, whose cache fails behind its window": "uses that cache",
}


def make(name, seed=0):
    model, config, settings = KINDS[name]
    if not hasattr(transformers, model):
        pytest.skip(f"transformers {transformers.__version__} has no {model}")
    if name.startswith("recurrent gemma") and transformers.__version__ < "5":
        pytest.skip(
            "before transformers 5 its forward pass without a cache goes on from old states"
        )
    torch.manual_seed(seed)
    kind = getattr(transformers, config, None) or getattr(transformers, model).config_class
    made = kind(**{**SIZES, **settings})
    return randomised(getattr(transformers, model)(made))


def reference(model, row):
    """Log-probs of one row, straight from the model's own logits."""
    log_probs = model(torch.tensor([row]), use_cache=False).logits[0, :-1].float().log_softmax(-1)
    return log_probs.gather(1, torch.tensor(row[1:])[:, None])[:, 0]


def without_any_state(model, prompt, tokens):
    """Greedy ids, each from a forward pass over all that came before."""
    row = list(prompt)
    for _ in range(tokens):
        with torch.no_grad():
            row.append(int(model(torch.tensor([row]), use_cache=False).logits[0, -1].argmax()))
    return row[len(prompt) :]


@pytest.mark.parametrize("name", KINDS)
def test_a_row_of_a_batch_is_what_it_is_alone_and_what_transformers_says(name):
    model = make(name)
    backend = TransformersBackend(model)
    made = backend.generate(TokenBatch(PROMPTS), GREEDY)
    full = [prompt + ids for prompt, ids in zip(PROMPTS, made.ids, strict=True)]
    scores = backend.score(TokenBatch(full))
    model.config.output_router_logits = False  # transformers 4.57's own generate fails with it
    for prompt, ids, log_probs, row, scored in zip(
        PROMPTS, made.ids, made.log_probs, full, scores.log_probs, strict=True
    ):
        alone = TransformersBackend(model).generate(TokenBatch([prompt]), GREEDY)
        assert alone.ids == [ids]
        torch.testing.assert_close(alone.log_probs[0], log_probs, atol=1e-4, rtol=0)
        torch.testing.assert_close(scored[len(prompt) :], log_probs, atol=1e-4, rtol=0)
        with torch.no_grad():
            torch.testing.assert_close(scored[1:], reference(model, row), atol=1e-4, rtol=0)
        assert without_any_state(model, prompt, 10) == ids
        if name in WRONG_THERE:
            continue
        theirs = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            use_cache=len(prompt) > 1,  # transformers 4.57 takes such a prompt for a step (LFM2)
            max_new_tokens=10,
            do_sample=False,
            eos_token_id=VOCABULARY,
            pad_token_id=0,
        )
        assert theirs[0, len(prompt) :].tolist() == ids


@pytest.mark.parametrize("name", KINDS)
def test_its_gradients_and_logits_are_those_of_each_row_alone(name):
    model = make(name)
    backend = TransformersBackend(model)
    rows = [*PROMPTS, list(range(20, 60))]
    for row, logits in zip(rows, backend.logits(TokenBatch(rows)), strict=True):
        with torch.no_grad():
            right = model(torch.tensor([row]), use_cache=False).logits[0]
        torch.testing.assert_close(logits, right, atol=1e-3, rtol=1e-4)
    scores = backend.score(TokenBatch(rows), requires_grad=True)
    sum(row[1:].sum() for row in scores.log_probs).backward()
    ours = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    sum(reference(model, row).sum() for row in rows if len(row) > 1).backward()
    for mine, parameter in zip(ours, model.parameters(), strict=True):
        theirs = parameter.grad
        if theirs is None or mine is None:
            assert all(each is None or not each.any() for each in (mine, theirs))
            continue
        scale = float(theirs.abs().max()) + 1e-6
        assert float((mine - theirs).abs().max()) <= 1e-3 * scale + 1e-4


def test_rows_that_a_model_mixes_up_are_answered_one_by_one():
    """RWKV's states of several rows run into each other in transformers' own generate."""
    config = transformers.RwkvConfig(
        vocab_size=VOCABULARY, context_length=256, hidden_size=32, num_hidden_layers=2
    )
    model = randomised(transformers.RwkvForCausalLM(config))
    backend = TransformersBackend(model)
    made = backend.generate(TokenBatch(PROMPTS), GREEDY)
    for prompt, ids in zip(PROMPTS, made.ids, strict=True):
        assert without_any_state(model, prompt, 10) == ids
    assert not backend.forward.batches
    scores = backend.score(TokenBatch(PROMPTS), requires_grad=True).log_probs
    sum(row[1:].sum() for row in scores).backward()  # a state that is kept was changed in place
    for prompt, log_probs in zip(PROMPTS, scores, strict=True):
        if len(prompt) > 1:
            right = reference(model, prompt).detach()
            torch.testing.assert_close(log_probs[1:].detach(), right, atol=1e-4, rtol=0)
    with pytest.raises(InvalidParameter, match="mixes up"):
        backend.generate(
            TokenBatch(PROMPTS), SamplingParams(num_beams=2, do_sample=False, max_new_tokens=2)
        )


@pytest.mark.parametrize("name", ["gemma3", "mistral", "phi3", "gpt-oss"])
def test_turns_of_models_with_a_window_are_what_they_are_afresh(name):
    model = make(name)
    keeping, forgetting = TransformersBackend(model), TransformersBackend(model, reuse_bytes=0)
    prompts = PROMPTS
    for _ in range(3):
        one = keeping.generate(TokenBatch(prompts), GREEDY)
        assert one.ids == forgetting.generate(TokenBatch(prompts), GREEDY).ids
        prompts = [p + ids + [60] for p, ids in zip(prompts, one.ids, strict=True)]


def test_positions_that_turn_at_a_length_keep_their_states_on_either_side_of_it():
    model = make("phi3, long positions")  # they turn above 16 tokens
    keeping, forgetting = TransformersBackend(model), TransformersBackend(model, reuse_bytes=0)
    few = SamplingParams(max_new_tokens=3, temperature=0.0, ignore_eos=True)
    prompts = [[5, 6, 7], [42], [100, 101, 102] * 6, list(range(20, 35)), [9, 8, 7, 6] * 6]
    saved = []
    for _ in range(4):  # the second row stays before the turn, the first and the fourth come across
        one = keeping.generate(TokenBatch(prompts), few)
        assert one.ids == forgetting.generate(TokenBatch(prompts), few).ids
        for prompt, ids, log_probs in zip(prompts, one.ids, one.log_probs, strict=True):
            assert without_any_state(model, prompt, 3) == ids
            with torch.no_grad():
                right = reference(model, prompt + ids)[-3:]
            if (
                not len(prompt) <= 16 < len(prompt) + 3
            ):  # what was sampled there had two ways to count
                torch.testing.assert_close(log_probs, right, atol=1e-4, rtol=0)
        saved.append(keeping.reuse.tokens)
        prompts = [p + ids + [60] for p, ids in zip(prompts, one.ids, strict=True)]
    assert 0 == saved[0] < saved[1] < saved[2] < saved[3]


def test_rows_on_both_sides_of_the_turn_are_refused_where_other_processes_would_wait():
    forward = TransformersBackend(make("phi3, long positions")).forward
    forward.sharded = True  # what it does with real parts is in test_sharded_models.py
    short, long = [5] * 4, [5] * 20
    assert forward.apart([short, short]) == [[0, 1]]
    assert forward.counted_alike([long, long], [4, 4]) == [([0, 1], True)]
    with pytest.raises(InvalidParameter, match="give rows of one kind in each call"):
        forward.apart([short, long])
    with pytest.raises(InvalidParameter, match="its weights are sharded"):
        forward.counted_alike([short, long], [4, 4])


def test_models_whose_logits_depend_on_how_much_comes_after_are_refused():
    """ProphetNet's distances are counted within the whole row."""
    config = transformers.ProphetNetConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_decoder_attention_heads=4,
        decoder_ffn_dim=64,
        is_encoder_decoder=False,
    )
    model = randomised(transformers.ProphetNetForCausalLM(config))
    with pytest.raises(InvalidParameter, match="after a token"):
        TransformersBackend(model).score(TokenBatch(PROMPTS))


PARTS = {
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "hidden_size": 32,
    "intermediate_size": 32,
}


def test_a_model_of_images_and_text_answers_text_and_says_when_an_image_is_missing():
    config = transformers.LlavaConfig(
        text_config={"model_type": "llama", **SIZES},
        vision_config={
            "model_type": "clip_vision_model",
            "image_size": 28,
            "patch_size": 14,
            **PARTS,
        },
        image_token_index=310,
    )
    model = randomised(transformers.LlavaForConditionalGeneration(config))
    backend = TransformersBackend(model)
    made = backend.generate(TokenBatch(PROMPTS), GREEDY)
    scored = backend.score(TokenBatch([p + i for p, i in zip(PROMPTS, made.ids, strict=True)]))
    for prompt, ids, log_probs, row in zip(
        PROMPTS, made.ids, made.log_probs, scored.log_probs, strict=True
    ):
        assert without_any_state(model, prompt, 10) == ids
        torch.testing.assert_close(row[len(prompt) :], log_probs, atol=1e-4, rtol=0)
    with pytest.warns(UserWarning, match="Row 1 has the id 310, which stands for an image"):
        backend.generate(TokenBatch([[1, 2], [3, 310, 4]]), GREEDY)


@pytest.mark.parametrize(
    ("model", "lack"),
    [
        ("LlamaModel", "gives no logits for token ids alone"),
        ("LlamaForSequenceClassification", r"gives logits \(1, 2\) for 4 ids"),
        ("ViTModel", "has no embeddings of ids"),
        ("CLIPModel", "has no embeddings of ids"),
    ],
)
def test_what_gives_no_logits_for_ids_is_no_language_model(model, lack):
    sizes = {"ViTModel": PARTS, "CLIPModel": {"text_config": PARTS, "vision_config": PARTS}}
    kind = getattr(transformers, model)
    made = kind(kind.config_class(**sizes.get(model, {**SIZES, **PARTS})))
    with pytest.raises(InvalidParameter, match=f"{model} {lack}.*AutoModelForCausalLM"):
        TransformersBackend(made).score(TokenBatch(PROMPTS))


def test_a_model_with_an_encoder_is_refused():
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4
    )
    model = transformers.T5ForConditionalGeneration(config)
    with pytest.raises(InvalidParameter, match=r"T5ForConditionalGeneration .* encoder"):
        TransformersBackend(model)


def test_a_model_that_looks_ahead_is_refused_and_the_same_as_a_decoder_is_not():
    model = randomised(transformers.BertLMHeadModel(transformers.BertConfig(**BERT)))
    with pytest.raises(InvalidParameter, match=r"BertLMHeadModel .* after a token.*is_decoder"):
        TransformersBackend(model).score(TokenBatch(PROMPTS[:1]))
    config = transformers.BertConfig(**BERT, is_decoder=True)
    decoder = randomised(transformers.BertLMHeadModel(config))
    scores = TransformersBackend(decoder).score(TokenBatch(PROMPTS[:1]))
    with torch.no_grad():
        right = reference(decoder, PROMPTS[0])
    torch.testing.assert_close(scores.log_probs[0][1:], right, atol=1e-4, rtol=0)


def test_a_model_that_looks_ahead_without_saying_so_is_found_out():
    config = transformers.XLNetConfig(
        vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4, d_inner=64
    )
    backend = TransformersBackend(randomised(transformers.XLNetLMHeadModel(config)))
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="after a token"):
            backend.score(TokenBatch(PROMPTS))
        with pytest.raises(InvalidParameter, match="after a token"):
            backend.generate(TokenBatch(PROMPTS[:1]), GREEDY)
        with pytest.raises(InvalidParameter, match="after a token"):
            backend.logits(TokenBatch(PROMPTS))
