"""One forward pass, split into the body (ids to hidden states) and the head (hidden states to
logits).

The split needs no knowledge of the architecture: the head is the model's own ``forward`` with the
body replaced by a stand-in that returns the states it is given, so biases, scales and soft caps
after the head stay as the model has them. Whether it holds for a model is found out once, on a few
ids.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from antiphon.errors import InvalidParameter
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from transformers.cache_utils import DynamicCache, DynamicLayer

from antiphon_transformers import probes
from antiphon_transformers.kinds import (
    LOOKS_AHEAD,
    NO_LANGUAGE,
    check_decoder,
    is_sharded,
    is_stateful,
    tensor_parallel_mesh,
    turning_length,
    wrappers,
)

_T = TypeVar("_T")


class GrowingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values in a buffer with room to grow, so that a step does not copy all that came before."""

    _store: tuple[torch.Tensor, torch.Tensor] | None = None
    _views: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append states ``[batch, heads, new, dim]`` and return all."""
        if torch.is_grad_enabled() and (key_states.requires_grad or value_states.requires_grad):
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:  # by hand: what initialises a layer differs between releases
            self.dtype, self.device = key_states.dtype, key_states.device
            self.is_initialized = True
        held_keys, held_values = self.keys, self.values
        old = 0 if held_keys is None else held_keys.shape[-2]
        new = old + key_states.shape[-2]
        mine = self._views is not None and self._views[0] is self.keys
        if not mine or self._store is None or new > self._store[0].shape[-2]:
            room = new if old == 0 else new + new // 4 + 64
            buffers = []
            for held, states in ((held_keys, key_states), (held_values, value_states)):
                buffer = states.new_empty((*states.shape[:-2], room, states.shape[-1]))
                if held is not None:
                    buffer[..., :old, :] = held
                buffers.append(buffer)
            self._store = (buffers[0], buffers[1])
        assert self._store is not None
        self._store[0][..., old:new, :] = key_states
        self._store[1][..., old:new, :] = value_states
        self.keys = self._store[0][..., :new, :]
        self.values = self._store[1][..., :new, :]
        self._views = (self.keys, self.values)
        return self.keys, self.values


class _States:
    """A body's output of which only the last hidden state is known."""

    def __init__(self, states: torch.Tensor | None) -> None:
        self.last_hidden_state = states

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def __getitem__(self, index: Any) -> Any:
        return (self.last_hidden_state,)[index]


class _StandIn(nn.Module):
    """Takes the body's place and returns the states that it is given as embeddings."""

    def forward(self, *args: Any, inputs_embeds: torch.Tensor | None = None, **kwargs: Any) -> Any:
        return _States(inputs_embeds)


def select_rows(cache: Any, rows: torch.Tensor) -> None:
    """Keep some of a cache's rows; the layers of a model may lie on several devices."""
    for layer in cache.layers:
        layer.batch_select_indices(rows.to(getattr(layer, "device", rows.device)))


class Forward:
    """A causal language model's forward pass.

    Attributes:
        model: The model without what was put around it; adapters of peft are part of it.
        incremental: Whether rows of any lengths grow from a cache of keys and values.
        splits: Whether the body and the head can be called apart.
        sharded: Whether each process holds a part of every weight; all of them compute in step then, each call the
            same number of forward passes.
        turning_length: The length above which all positions of a row count differently (LongRoPE), or None.
        first_position: The position that the model gives a row's first token, or None where it can't be told any.
    """

    def __init__(self, model: Any, *, pack: bool = True) -> None:
        """Look at the model's signature; nothing is computed yet.

        Args:
            model: The model.
            pack: Whether rows may be packed, where the model allows it.

        Raises:
            InvalidParameter: An adapter puts tokens of its own before each prompt, or the model is no causal one.
        """
        self.sharded = is_sharded(model)
        around, model = wrappers(model)
        self._exchange = next((w for w in around if isinstance(w, DistributedDataParallel)), None)
        adapter = getattr(model, "active_peft_config", None)
        if adapter is not None and adapter.is_prompt_learning:
            raise InvalidParameter(
                f"The adapter of kind {adapter.peft_type.value} puts tokens of its own before each prompt, which "
                "would be left out here; use one that changes weights, such as LoRA."
            )
        self.model = model
        # peft puts its layers into the model's own modules; its wrapper adds nothing to a causal
        # forward pass.
        self.inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        names = inspect.signature(type(self.inner).forward).parameters
        check_decoder(self.inner)
        self._cache_name = next((n for n in ("cache", "past_key_values") if n in names), None)
        # Without an order not to, models keep states of their own (Mamba, RWKV) that nobody asks for.
        self._keeps_states = self._cache_name is not None or "use_cache" in names
        self.first_position: int | None = 0 if "position_ids" in names else None
        self._keeps = "logits_to_keep" in names
        self._reports_routing = "output_router_logits" in names
        self.turning_length = turning_length(self.inner)
        self.incremental = self._cache_name is not None and not is_stateful(self.inner)
        self._tried = False
        pack = pack and self.incremental  # other states flow from a packed row into the next
        # Only a whole forward pass gathers sharded weights.
        self._splits: bool | None = False if self.sharded else None
        self._packs: bool | None = None if pack else False
        self._packs_together: bool | None = None
        # Keys and values have a row each.
        self._batches: bool | None = True if self.incremental else None
        self._caches: bool | None = True if self.incremental else None

    @property
    def device(self) -> torch.device:
        """Where ids go."""
        embeddings = self.inner.get_input_embeddings()
        device: torch.device = embeddings.weight.device
        if (
            device.type == "meta"
        ):  # offloaded: accelerate's hook brings the weights where they are needed
            hook = getattr(embeddings, "_hf_hook", None)
            for each in getattr(hook, "hooks", [hook]):
                found = getattr(each, "execution_device", None)
                if found is not None:
                    return torch.device(found)
        return device

    def exchanging(self, run: Callable[[], _T]) -> _T:
        """Run something with gradients as the forward pass of the DDP around the model, if there is one.

        DDP exchanges gradients after its own forward pass only; the parts of the model that are called here would
        train each process by itself, without a word.
        """
        if self._exchange is None or not torch.is_grad_enabled():
            return run()
        _ = self.splits, self.packs, self.packs_together  # tried out before, not within
        held = self._exchange.module.__dict__
        own = {name: held[name] for name in ("forward", "_compiled_call_impl") if name in held}

        def restore() -> None:
            for name in ("forward", "_compiled_call_impl"):
                held.pop(name, None)
            held.update(own)

        def forward(_: None) -> _T:
            restore()
            return run()

        held.update(forward=forward, _compiled_call_impl=None)
        try:
            result: _T = self._exchange(None)
        finally:
            restore()
        return result

    def apart(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return which rows may share a forward pass: those that the model counts positions of in one way.

        Raises:
            InvalidParameter: See `_in_step`.
        """
        if self.turning_length is None:
            return [list(range(len(rows)))]
        short = [i for i, row in enumerate(rows) if len(row) <= self.turning_length]
        long = [i for i, row in enumerate(rows) if len(row) > self.turning_length]
        return self._in_step([members for members in (short, long) if members])

    def counted_alike(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> list[tuple[list[int], bool]]:
        """Return which prompts may be answered together, and whether their answers grow from a cache.

        They don't where the model counts all positions anew in the middle of an answer.

        Args:
            prompts: Rows of ids.
            limits: Most new tokens of each.

        Raises:
            InvalidParameter: See `_in_step`.
        """
        turn = self.turning_length
        if turn is None or not self.incremental:
            return [(list(range(len(prompts))), self.incremental)]
        parts: dict[str, list[int]] = {"before": [], "behind": [], "across": []}
        for index, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
            length = len(prompt)
            where = "behind" if length > turn else "before" if length + limit <= turn else "across"
            parts[where].append(index)
        return self._in_step([(rows, where != "across") for where, rows in parts.items() if rows])

    def _in_step(self, parts: list[_T]) -> list[_T]:
        """Return parts that are computed one after the other, if nobody waits for this process meanwhile.

        Raises:
            InvalidParameter: Others hold parts of the weights, and may have other numbers of forward passes to do.
        """
        if self.sharded and len(parts) > 1:
            raise InvalidParameter(
                f"{type(self.inner).__name__} counts positions in another way above {self.turning_length} tokens, and "
                "its weights are sharded: give rows of one kind in each call, on all processes."
            )
        return parts

    def all_done(self, done: bool) -> bool:
        """Whether this process and those that hold the other parts of the weights are done."""
        if not self.sharded:
            return done
        going_on = torch.tensor(int(not done), device=self.device)
        distributed.all_reduce(going_on, distributed.ReduceOp.MAX)
        return not going_on.item()

    def shared_seeds(self, seeds: list[int]) -> list[int]:
        """Return the seeds of the first of the processes that compute one forward pass together (tensor parallel)."""
        mesh = tensor_parallel_mesh(self.model)
        if mesh is None:
            return seeds
        shared = torch.tensor(seeds, dtype=torch.int64, device=self.device)
        group = mesh.get_group()
        distributed.broadcast(shared, distributed.get_global_rank(group, 0), group)
        return [int(seed) for seed in shared.tolist()]

    def try_out(self) -> None:
        """Find out what can be asked of the model, once: its positions, and whether its answers grow from a cache.

        Raises:
            InvalidParameter: It gives no logits for ids, or its log-probs of a token depend on what comes after it.
        """
        if self._tried:
            return
        with torch.no_grad(), evaluating(self.model):
            if lack := probes.lacks_logits(self):
                raise InvalidParameter(NO_LANGUAGE.format(type(self.inner).__name__, lack))
            if probes.looks_ahead(self):
                raise InvalidParameter(LOOKS_AHEAD.format(type(self.inner).__name__))
            if self.first_position is not None:
                self.first_position = probes.first_position(self)
            if self.incremental and not probes.steps(self):
                self.incremental, self._batches, self._caches = False, None, None
        self._tried = True

    def new_cache(self) -> Any:
        """Return an empty cache."""
        cache = DynamicCache(config=self.inner.config)
        for index, layer in enumerate(cache.layers):
            if type(layer) is DynamicLayer:
                cache.layers[index] = GrowingLayer()  # type: ignore[no-untyped-call]
        return cache

    def hidden(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        cache: Any = None,
    ) -> torch.Tensor:
        """Return the states ``[batch, time, D]`` that the head takes."""
        body = getattr(self.inner, self.inner.base_model_prefix)
        states: torch.Tensor = body(
            **self._arguments(ids, mask, positions, cache)
        ).last_hidden_state
        return states

    def logits(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        cache: Any = None,
    ) -> torch.Tensor:
        """Return all logits ``[batch, time, V]``, by the model's own forward."""
        out: torch.Tensor = self.model(**self._arguments(ids, mask, positions, cache)).logits
        return out

    def last_logits(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor | None,
        cache: Any,
    ) -> torch.Tensor:
        """Return the logits ``[batch, V]`` after the last column."""
        arguments = self._arguments(ids, mask, positions, cache)
        if self._keeps:
            arguments["logits_to_keep"] = 1
        elif ids.shape[1] > 1 and self.splits:
            return self.head(self.hidden(ids, mask, positions, cache)[:, -1]).to(ids.device)
        whole = self.model if self.sharded else self.inner
        out: torch.Tensor = whole(**arguments).logits[:, -1]
        return out.to(ids.device)

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[n, V]`` of states ``[n, D]``."""
        logits: torch.Tensor = _shell(self.inner)(
            inputs_embeds=states[None], use_cache=False, return_dict=True
        ).logits[0]
        return logits

    @property
    def splits(self) -> bool:
        """Whether head(body(ids)) is what the model says."""
        if self._splits is None:
            with torch.no_grad(), evaluating(self.model):
                self._splits = probes.splits(self)
        return self._splits

    @property
    def batches(self) -> bool:
        """Whether rows of one length may be answered together: some models' states mix them up."""
        if self._batches is None:
            with torch.no_grad(), evaluating(self.model):
                self._batches = probes.keeps_rows_apart(self)
        return self._batches

    @property
    def caches(self) -> bool:
        """Whether the model's own generate may use its cache."""
        if self._caches is None:
            with torch.no_grad(), evaluating(self.model):
                self._caches = probes.caches(self)
        return self._caches

    def own_positions(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return what transformers' generate must be told where a model does not count from 0; ids ``[rows, time]``."""
        first = self.first_position
        if not first:
            return {}
        positions = torch.arange(first, first + ids.shape[1], device=ids.device)
        return {"position_ids": positions.expand(len(ids), -1)}

    @property
    def packs(self) -> bool:
        """Whether rows that lie in one row, told apart by their positions, don't see each other."""
        if self._packs is None:
            self._packs = self.first_position is not None and self.splits and self._try_pack(1)
        return self._packs

    @property
    def packs_together(self) -> bool:
        """Whether that holds for several packed rows in a batch: flash attention asks for one at a time."""
        if self._packs_together is None:
            self._packs_together = self.packs and self._try_pack(2)
        return self._packs_together

    def _try_pack(self, bins: int) -> bool:
        with torch.no_grad(), evaluating(self.model):
            return probes.packs(self, bins)

    def _arguments(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor | None,
        cache: Any,
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "return_dict": True}
        first = self.first_position
        if first and positions is None:  # left to itself, such a model counts by the padding's id
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        if positions is not None and first is not None:
            arguments["position_ids"] = positions + first
        if cache is not None:
            assert self._cache_name is not None
            arguments[self._cache_name] = cache
        if self._keeps_states:
            arguments["use_cache"] = cache is not None
        if (
            self._reports_routing
        ):  # for a loss that is not asked for here, and that takes masks of whole rows
            arguments["output_router_logits"] = False
        return arguments


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, and what was on back on."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _shell(model: Any) -> Any:
    """Return an object that is the model in all but its body; it shares every parameter."""
    shell = object.__new__(type(model))
    shell.__dict__ = dict(model.__dict__)
    # accelerate and torch.compile bind these to the original
    shell.__dict__.pop("forward", None)
    shell.__dict__.pop("_compiled_call_impl", None)
    shell.__dict__["_modules"] = {**model._modules, model.base_model_prefix: _StandIn()}
    return shell
