"""Models as people train them: wrapped in DDP, compiled, offloaded, quantised, adapted, under autocast."""

from __future__ import annotations

import pytest
import torch
from antiphon.errors import InvalidParameter
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers.backend import TransformersBackend
from antiphon_transformers.forward import wrappers
from antiphon_transformers.loading import load_model
from tiny_models import build
from torch import distributed
from torch.nn.parallel import DataParallel, DistributedDataParallel

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [42], [100, 101, 102] * 5]
PARAMS = SamplingParams(max_new_tokens=6, seed=4)
ROWS = [[5, 6, 7, 8, 9], [42, 43, 44], [100, 101, 102, 103, 104, 105, 106], [9, 8]]


def scores_of(backend, rows=ROWS, **options):
    return [row[1:] for row in backend.score(TokenBatch(rows), **options).log_probs]


def assert_same(ours, right, tolerance=1e-4):
    for one, other in zip(ours, right, strict=True):
        torch.testing.assert_close(one.float(), other.float(), atol=tolerance, rtol=0)


@pytest.fixture
def plain(models_by_name):
    return TransformersBackend(models_by_name("llama"))


@pytest.fixture
def one_process():
    """A process group of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


# Wrapped


@pytest.mark.parametrize("wrap", [DataParallel, torch.nn.Sequential])
def test_only_what_wraps_a_model_is_taken_off(wrap):
    model = build("llama")
    wrapped = wrap(model)
    assert wrappers(wrapped)[1] is (model if wrap is DataParallel else wrapped)
    assert wrappers(model) == ([], model)


def test_a_model_in_data_parallel_is_the_model(models_by_name, plain):
    backend = TransformersBackend(DataParallel(models_by_name("llama")))
    assert backend.end_ids == plain.end_ids
    assert backend.max_context == plain.max_context
    assert (
        backend.generate(TokenBatch(PROMPTS), PARAMS).ids
        == plain.generate(TokenBatch(PROMPTS), PARAMS).ids
    )
    assert_same(scores_of(backend), scores_of(plain))
    beams = SamplingParams(max_new_tokens=4, num_beams=2, do_sample=False)
    assert (
        backend.generate(TokenBatch(PROMPTS), beams).ids
        == plain.generate(TokenBatch(PROMPTS), beams).ids
    )


def test_weights_are_loaded_into_a_wrapped_model_by_the_models_own_names(plain):
    source, target = build("llama", seed=1), build("llama", seed=2)
    backend = TransformersBackend(DataParallel(target))
    backend.load_weights(source.state_dict())
    assert_same(scores_of(backend), scores_of(TransformersBackend(source)))


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("kind", ["whole", "shared prompts", "not to be split"])
def test_scores_with_gradients_are_exchanged_between_the_processes_of_ddp(kind, monkeypatch):
    model = build("llama")
    wrapped = DistributedDataParallel(model)
    exchanged = []

    def hook(_, bucket):
        exchanged.append(bucket.buffer().abs().sum() > 0)
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    wrapped.register_comm_hook(None, hook)
    backend = TransformersBackend(wrapped)
    if kind == "not to be split":
        monkeypatch.setattr(backend.forward, "_splits", False)
    rows = [[*range(5, 25), last, 3] for last in range(6)] if kind == "shared prompts" else ROWS
    options = {"starts": [20] * 6} if kind == "shared prompts" else {}
    for _ in range(2):
        exchanged.clear()
        wrapped.zero_grad()
        scored = scores_of(backend, rows, requires_grad=True, **options)
        sum(row.sum() for row in scored).backward()
        assert exchanged
        assert all(exchanged)
    given = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    alone = TransformersBackend(model)
    sum(row.sum() for row in scores_of(alone, rows, requires_grad=True, **options)).backward()
    assert_same(given, [p.grad for p in model.parameters()], 1e-3)
    assert "forward" not in model.__dict__  # left as it was


@pytest.mark.usefixtures("one_process")
def test_an_error_within_ddp_leaves_the_model_as_it_was():
    model = build("llama")
    backend = TransformersBackend(DistributedDataParallel(model))

    def failing():
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        backend.forward.exchanging(failing)
    assert "forward" not in model.__dict__
    assert "_compiled_call_impl" not in model.__dict__
    assert_same(scores_of(backend), scores_of(TransformersBackend(model)))


# Compiled


@pytest.mark.parametrize("how", ["torch.compile", "in place"])
def test_a_compiled_model_says_what_the_model_says(how, models_by_name, plain):
    model = build("llama")
    model.load_state_dict(models_by_name("llama").state_dict())
    if how == "in place":
        model.compile(backend="eager")
        compiled = model
    else:
        compiled = torch.compile(model, backend="eager")
    backend = TransformersBackend(compiled)
    assert backend.forward.splits
    assert backend.forward.incremental
    assert_same(scores_of(backend), scores_of(plain))
    assert (
        backend.generate(TokenBatch(PROMPTS), PARAMS).ids
        == plain.generate(TokenBatch(PROMPTS), PARAMS).ids
    )


# Packing


def test_rows_are_packed_one_batch_at_a_time_where_attention_asks_for_that(models_by_name, plain):
    """Flash attention tells packed rows apart in a batch of one only."""
    model = build("llama")
    model.load_state_dict(models_by_name("llama").state_dict())
    batches = []

    def like_flash_attention(_, args, kwargs):
        ids = kwargs["input_ids"]
        batches.append(tuple(ids.shape))
        if len(ids) > 1:
            kwargs["position_ids"] = None
        return args, kwargs

    model.model.register_forward_pre_hook(like_flash_attention, with_kwargs=True)
    backend = TransformersBackend(model)
    backend.forward.try_out()
    assert backend.forward.packs
    assert not backend.forward.packs_together
    batches.clear()
    assert_same(scores_of(backend), scores_of(plain))
    assert batches == [(1, sum(map(len, ROWS)))]
    batches.clear()
    narrow = TransformersBackend(model, tokens_per_forward=8)
    narrow.forward.try_out()
    assert not narrow.forward.packs_together
    batches.clear()
    assert_same(scores_of(narrow), scores_of(plain))
    assert max(rows * length for rows, length in batches) <= max(8, *map(len, ROWS))


# Loaded in other ways


def test_a_model_with_a_device_map_stays_where_it_is_and_is_used_when_offloaded(
    tmp_path, models_by_name, plain
):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    models_by_name("llama").save_pretrained(tmp_path / "model")
    spread = {
        "model.embed_tokens": "disk",
        "model.layers.0": "cpu",
        "model.layers.1": "disk",
        "model.norm": "cpu",
        "model.rotary_emb": "cpu",
        "lm_head": "cpu",
    }
    model, _ = load_model(
        tmp_path / "model", tokenizer=object(), device_map=spread, offload_folder=tmp_path / "off"
    )
    assert any(p.is_meta for p in model.parameters())
    backend = TransformersBackend(model)
    assert backend.forward.device == torch.device("cpu")
    assert_same(scores_of(backend), scores_of(plain))
    assert (
        backend.generate(TokenBatch(PROMPTS), PARAMS).ids
        == plain.generate(TokenBatch(PROMPTS), PARAMS).ids
    )


def test_a_device_beside_a_device_map_is_refused(tmp_path):
    with pytest.raises(InvalidParameter, match="device_map says where"):
        load_model(tmp_path, device_map="auto", device="cpu")


def test_a_quantised_model_is_not_moved(tmp_path, models_by_name, monkeypatch):
    models_by_name("llama").save_pretrained(tmp_path)
    kind = type(models_by_name("llama"))
    monkeypatch.setattr(kind, "is_quantized", True, raising=False)

    def to(self, *args, **kwargs):
        raise ValueError("`.to` is not supported for `8-bit` models")

    monkeypatch.setattr(kind, "to", to)
    load_model(tmp_path, tokenizer=object())


# Precision and modes


def test_states_kept_under_autocast_are_not_used_without_it(models_by_name):
    backend = TransformersBackend(models_by_name("llama"))
    fresh = TransformersBackend(models_by_name("llama"), reuse_bytes=0)
    prompt = list(range(5, 45))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = backend.generate(TokenBatch([prompt]), PARAMS)
        scored = backend.score(TokenBatch([prompt + first.ids[0]]), starts=[len(prompt)])
    torch.testing.assert_close(first.log_probs[0], scored.log_probs[0], atol=0.3, rtol=0)
    grown = [prompt + first.ids[0] + [70, 71]]
    assert (
        backend.generate(TokenBatch(grown), PARAMS).ids
        == fresh.generate(TokenBatch(grown), PARAMS).ids
    )
    assert backend.weight_version == 0


def test_scores_under_autocast_train(models_by_name):
    model = build("llama")
    backend = TransformersBackend(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scored = scores_of(backend, requires_grad=True)
    assert all(row.dtype == torch.float32 for row in scored)
    sum(row.sum() for row in scored).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_what_is_kept_in_inference_mode_is_used_outside_of_it(models_by_name):
    with torch.inference_mode():
        model = build("llama")
        backend = TransformersBackend(model)
        prompt = list(range(5, 45))
        first = backend.generate(TokenBatch([prompt]), PARAMS)
    grown = [prompt + first.ids[0] + [70, 71]]
    again = backend.generate(TokenBatch(grown), PARAMS)
    assert backend.reuse.tokens > 0
    fresh = TransformersBackend(models_by_name("llama"), reuse_bytes=0)
    assert again.ids == fresh.generate(TokenBatch(grown), PARAMS).ids


def test_dropout_in_a_part_that_was_left_in_training_never_touches_sampling():
    model = build("gpt2")
    model.eval()
    quiet = TransformersBackend(model)
    right = scores_of(quiet)
    model.transformer.h[0].train()
    assert_same(scores_of(TransformersBackend(model)), right)
    assert model.transformer.h[0].training
    assert not model.training


def test_gradients_are_the_same_with_checkpointing(models_by_name):
    grads = []
    for checkpointing in (False, True):
        model = build("llama").train()
        if checkpointing:
            # transformers 5.24 has a new name for it
            old = model.gradient_checkpointing_enable
            getattr(model, "activation_checkpointing_enable", old)()
        backend = TransformersBackend(model)
        prompt = list(range(5, 25))
        rows = [[*prompt, i, i + 1] for i in range(30, 36)]
        scored = backend.score(TokenBatch(rows), starts=[20] * 6, requires_grad=True).log_probs
        sum(row.sum() for row in scored).backward()
        grads.append([p.grad for p in model.parameters()])
    assert_same(grads[1], grads[0], 1e-3)


# Adapters


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft's own
def test_an_adapter_that_puts_tokens_before_the_prompt_is_refused():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model = peft.get_peft_model(build("llama"), config)
    with pytest.raises(InvalidParameter, match="PROMPT_TUNING puts tokens of its own"):
        TransformersBackend(model)


@pytest.mark.usefixtures("one_process")
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft's own
def test_an_adapter_within_ddp_is_sampled_from_and_trained():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(build("llama"), config)
    backend = TransformersBackend(DistributedDataParallel(adapted))
    alone = TransformersBackend(adapted)
    assert (
        backend.generate(TokenBatch(PROMPTS), PARAMS).ids
        == alone.generate(TokenBatch(PROMPTS), PARAMS).ids
    )
    sum(row.sum() for row in scores_of(backend, requires_grad=True)).backward()
    trained = [p for name, p in adapted.named_parameters() if "lora" in name]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in trained)
