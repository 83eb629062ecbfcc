"""LoRA adapters: real ones, on the engine in this process and on the one that answers many calls at once."""

from __future__ import annotations

import copy
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from antiphon.errors import InvalidParameter
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers import TransformersBackend
from antiphon_vllm import AsyncVLLMBackend, VLLMBackend
from antiphon_vllm.adapters import Adapters
from tiny_models import build

peft = pytest.importorskip("peft", reason="peft makes the adapters")

ROWS = TokenBatch([[5, 6, 7], [40, 41, 42, 43]], [1, 2])
CLOSE = 1e-4
LORA = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}


def adapted(seed, rank=4, base=None):
    """A model with an adapter that changes much."""
    model = peft.get_peft_model(
        copy.deepcopy(base or build("llama")),
        peft.LoraConfig(r=rank, target_modules=["q_proj", "v_proj", "down_proj"]),
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module", params=["vllm", "vllm-async"])
def backend(request, tokenizer):
    if request.param == "vllm":
        made = VLLMBackend(
            build("llama"), tokenizer=tokenizer, kv_cache_memory_bytes=1 << 26, **LORA
        )
    else:
        made = AsyncVLLMBackend(build("llama"), tokenizer=tokenizer, **LORA)
    yield made
    made.close()


def ask(backend, folder=None, batch=ROWS):
    extra = {} if folder is None else {"lora_request": str(folder)}
    params = {"max_new_tokens": 12, "ignore_eos": True, **extra}
    return backend.generate(
        batch,
        SamplingParams.from_kwargs(params, extras=backend.extra_parameters, backend=backend.name),
    )


def apart(made, model, batch=ROWS):
    """The largest difference to what a model says of the same ids."""
    rows = [[*row, *ids] for row, ids in zip(batch.rows, made.ids, strict=True)]
    starts = [len(row) for row in batch.rows]
    wanted = TransformersBackend(model).score(TokenBatch(rows), starts=starts).log_probs
    return max(
        (one - other).abs().max().item() for one, other in zip(made.log_probs, wanted, strict=True)
    )


def merged(model):
    return copy.deepcopy(model).merge_and_unload().eval()


def test_an_adapter_answers_as_its_merged_model(backend, tmp_path):
    model = adapted(1)
    model.save_pretrained(tmp_path)
    made = ask(backend, tmp_path)
    assert apart(made, merged(model)) < CLOSE
    assert apart(made, build("llama")) > 100 * CLOSE
    plain = ask(backend)
    assert apart(plain, build("llama")) < CLOSE


def test_several_adapters_and_none_at_once_are_each_their_own(backend, tmp_path):
    models = [adapted(seed) for seed in range(3)]
    for seed, model in enumerate(models):
        model.save_pretrained(tmp_path / str(seed))
    asked = [*range(3), None] * 3
    with ThreadPoolExecutor(len(asked)) as pool:
        folders = [None if seed is None else tmp_path / str(seed) for seed in asked]
        made = list(pool.map(lambda folder: ask(backend, folder), folders))
    for seed, answers in zip(asked, made, strict=True):
        model = build("llama") if seed is None else merged(models[seed])
        assert apart(answers, model) < CLOSE


def test_an_adapter_that_was_trained_on_is_not_taken_for_the_old_one(backend, tmp_path):
    for seed in (4, 5):
        model = adapted(seed)
        model.save_pretrained(tmp_path)
        assert apart(ask(backend, tmp_path), merged(model)) < CLOSE


def test_new_weights_arrive_beneath_an_adapter(backend, tmp_path):
    base = build("llama")
    with torch.no_grad():
        for parameter in base.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.manual_seed(0))
    model = adapted(6, base=base)
    model.save_pretrained(tmp_path)
    before = ask(backend, tmp_path)
    assert apart(before, merged(model)) > 10 * CLOSE
    backend.load_weights(base.state_dict())
    assert apart(ask(backend, tmp_path), merged(model)) < CLOSE
    assert apart(ask(backend), base) < CLOSE
    backend.load_weights(build("llama").state_dict())
    assert apart(ask(backend), build("llama")) < CLOSE


@pytest.mark.parametrize("fault", ["rank", "no adapter", "another model's"])
def test_an_adapter_that_does_not_fit_is_refused_and_the_engine_goes_on(backend, tmp_path, fault):
    if fault == "rank":
        adapted(7, rank=16).save_pretrained(tmp_path)
    elif fault == "another model's":
        other = build("llama", hidden_size=128, num_hidden_layers=1)
        adapted(8, base=other).save_pretrained(tmp_path)
    with pytest.raises(InvalidParameter, match=r"can't load the adapter .*max_lora_rank"):
        ask(backend, tmp_path)
    assert apart(ask(backend), build("llama")) < CLOSE


def test_a_folder_that_is_not_there_is_named(backend, tmp_path):
    with pytest.raises(InvalidParameter, match=r"gone, which is not a folder"):
        ask(backend, tmp_path / "gone")


def test_adapters_have_numbers_of_their_own_whoever_asks(tmp_path):
    class Config:
        lora_config = object()

    folders = [tmp_path / str(number) for number in range(40)]
    for folder in folders:
        folder.mkdir()
    adapters = Adapters()
    with ThreadPoolExecutor(16) as pool:
        requests = list(pool.map(lambda f: adapters.request(str(f), Config), folders * 4))
    numbers = {request.lora_path: request.lora_int_id for request in requests}
    assert len(set(numbers.values())) == 40
    assert all(numbers[request.lora_path] == request.lora_int_id for request in requests)
    shutil.rmtree(folders[0])
    folders[0].mkdir()
    (folders[0] / "adapter_model.safetensors").write_bytes(b"new")
    again = adapters.request(str(folders[0]), Config)
    assert again.lora_int_id not in numbers.values()
    assert again.lora_name not in {request.lora_name for request in requests}
