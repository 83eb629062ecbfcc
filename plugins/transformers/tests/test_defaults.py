"""torch's process-wide defaults change nothing: every tensor is made on a device and in a dtype by name."""

from __future__ import annotations

import pytest
import torch
from antiphon import ChatHistory, History, Text
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.wrapper import LLMWrapper
from antiphon_transformers.backend import TransformersBackend
from tensordict import TensorDict

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [42], [100, 101, 102] * 5]
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}assistant: "
)


@pytest.fixture(params=["device", "dtype"])
def set_default(request):
    """Whoever sets CUDA as the default device has tensors there that name none; meta, which holds nothing, tells."""

    def change():
        if request.param == "device":
            torch.set_default_device("meta")
        else:
            torch.set_default_dtype(torch.float64)

    yield change
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


def everything(backend):
    params = SamplingParams(
        max_new_tokens=5,
        seed=1,
        num_return_sequences=2,
        top_p=0.9,
        repetition_penalty=1.1,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        min_new_tokens=2,
    )
    extra = SamplingParams.from_kwargs(
        {"no_repeat_ngram_size": 2}, base=params, extras=backend.extra_parameters
    )
    shared = TokenBatch([PROMPTS[2] + [i, 3] for i in range(5, 9)])
    turns = TokenBatch([[*prompt, 7, 8, 9] for prompt in PROMPTS])
    torch.manual_seed(3)
    return (
        backend.generate(TokenBatch(PROMPTS), params).ids,
        backend.generate(TokenBatch(PROMPTS), extra).ids,
        backend.generate(TokenBatch(PROMPTS), SamplingParams(max_new_tokens=5)).ids,
        backend.generate(turns, params).ids,
        [row[1:].tolist() for row in backend.score(TokenBatch(PROMPTS), entropy=True).log_probs],
        [row.tolist() for row in backend.score(shared, starts=[15] * 4).log_probs],
        [tuple(row.shape) for row in backend.logits(TokenBatch(PROMPTS))],
    )


@pytest.mark.parametrize("name", ["gpt2", "llama", "mamba"])
def test_a_backend_does_the_same_under_other_defaults(models_by_name, name, set_default):
    right = everything(TransformersBackend(models_by_name(name)))
    set_default()
    assert everything(TransformersBackend(models_by_name(name))) == right


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("mode", ["history", "text", "tokens"])
def test_a_wrapper_does_the_same_under_other_defaults(
    models_by_name, tokenizer, set_default, mode, pad
):
    wrapper = LLMWrapper(
        TransformersBackend(models_by_name("llama"), tokenizer=tokenizer),
        input_mode=mode,
        pad_output=pad,
        chat_template=TEMPLATE if mode == "history" else None,
        generate_kwargs={"max_new_tokens": 4, "seed": 3},
    )
    chats = [[{"role": "user", "content": text}] for text in ("hi", "hello you")]
    given = {
        "history": lambda: ChatHistory(prompt=History.from_chats(chats), batch_size=2),
        "text": lambda: Text(prompt=["hi", "hello"], batch_size=2),
        "tokens": lambda: TensorDict({"prompt": torch.tensor([[5, 6, 7], [8, 9, 0]])}, 2),
    }[mode]
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])

    def results():
        with torch.device("cpu"):
            td = TensorDict(
                {mode: given(), **({"attention_mask": mask} if mode == "tokens" else {})}, 2
            )
        out = wrapper(td)
        scorer = wrapper.get_new_version(generate=False)
        entropy = scorer.get_dist(out).entropy()
        ragged = scorer.get_dist(out, as_nested_tensor=True).entropy()
        trained = scorer._get_sft_dist(out).entropy()
        kept = out["tokens"].unpad() if pad else out["tokens"]
        rows = [row.tolist() for row in kept.get("full", as_list=True)]
        return rows, entropy.tolist(), ragged.values().tolist(), trained.tolist()

    right = results()
    set_default()
    assert results() == right
