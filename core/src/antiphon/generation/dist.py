"""The distributions of a wrapper: over the tokens of its input, with masks that come from lengths and turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from tensordict import TensorDictBase

from antiphon.errors import InvalidParameter, NoLogits
from antiphon.generation.backends import TokenBatch
from antiphon.generation.distributions import LLMMaskedCategorical, RaggedCategorical

if TYPE_CHECKING:
    from antiphon.generation.rows import Rows


class Places(NamedTuple):
    """How rows lie in a padded batch: how wide it is, and where each begins."""

    width: int
    begins: list[int]


class DistributionMethods:
    """What `LLMWrapperBase` says of distributions.

    Position t of a distribution is about token t of ``full`` given the tokens before it. Position
    0, which nothing precedes, and padding are masked: their log-probs and entropies are 0, and the
    mask says so.

    Where the tensordict has these tokens padded (prompts on the left, responses on the right), rows
    lie as they lie there, so that its ``("tokens", "full")`` is what `log_prob` is asked of.
    """

    def get_dist(
        self,
        tensordict: TensorDictBase,
        tensordict_out: TensorDictBase | None = None,
        logits_key: Any = "logits",
        mask_key: Any = None,
        as_padded_tensor: bool | None = None,
        as_nested_tensor: bool | None = None,
        padding_value: float | None = None,
        padding_side: str = "left",
        layout: torch.layout | None = None,
        **kwargs: Any,
    ) -> LLMMaskedCategorical:
        """Return the distribution over the tokens of ``full``, ``[batch, time, vocabulary]``.

        Args:
            tensordict: Has the input that scoring reads.
            tensordict_out: Where to write the logits too.
            logits_key: Where logits go.
            mask_key: A mask over ``full`` to use besides the real tokens.
            as_padded_tensor: Rows are padded; the default.
            as_nested_tensor: Rows are ragged: a `RaggedCategorical`, whose values are jagged nested tensors.
            padding_value: What logits are padded with; 0 by default.
            padding_side: Where rows are padded, ``"left"`` or ``"right"``, if they are not padded already.
            layout: ``torch.jagged`` is as ``as_nested_tensor``.
            **kwargs: None are known.

        Raises:
            InvalidParameter: A layout that can't be had, or a mask that is not there.
            NoLogits: The backend gives log-probs only.
        """
        if layout not in (None, torch.strided, torch.jagged):
            raise InvalidParameter(f"layout must be torch.strided or torch.jagged, not {layout!r}.")
        ragged = bool(as_nested_tensor) or as_padded_tensor is False or layout == torch.jagged
        if ragged and (as_padded_tensor or layout == torch.strided):
            raise InvalidParameter(
                "Rows are either padded or ragged: as_padded_tensor, as_nested_tensor and layout contradict each other."
            )
        _refuse(kwargs)
        mask = self._keyed(mask_key)
        if ragged:
            return self._ragged_dist(tensordict, tensordict_out, logits_key, mask)
        return self._dist(tensordict, tensordict_out, logits_key, padding_value, padding_side, mask)

    def _get_dist_with_prompt_mask(
        self,
        tensordict: TensorDictBase,
        tokens_key: Any = ("tokens", "prompt"),
        logits_key: Any = "logits",
        assistant_mask_key: Any = ("masks", "all_assistant_mask"),
        attention_mask_key: Any = ("masks", "all_attention_mask"),
        padding_side: str = "left",
        **kwargs: Any,
    ) -> LLMMaskedCategorical:
        """Return the distribution over what follows the prompt."""
        _refuse(kwargs)

        def response(td: TensorDictBase, rows: Rows) -> list[torch.Tensor]:
            from antiphon.generation.rows import found

            lengths = rows.prompts
            if lengths is None and found(td, tokens_key) is not None:
                from antiphon.generation.rows import token_rows_of

                lengths = _lengths(token_rows_of(td, tokens_key, []).ids, rows.ids, tokens_key)
            if lengths is None:
                masks: list[torch.Tensor] = self._keyed(assistant_mask_key)(td, rows)
                return masks
            return [
                torch.arange(len(ids), device="cpu") >= length
                for ids, length in zip(rows.ids, lengths, strict=True)
            ]

        return self._dist(tensordict, None, logits_key, None, padding_side, response)

    def _get_dist_with_assistant_mask(
        self,
        tensordict: TensorDictBase,
        assistant_mask_key: Any = ("masks", "all_assistant_mask"),
        logits_key: Any = "logits",
        padding_side: str = "left",
        **kwargs: Any,
    ) -> LLMMaskedCategorical:
        """Return the distribution over the tokens of the assistant's turns."""
        _refuse(kwargs)
        return self._dist(
            tensordict, None, logits_key, None, padding_side, self._keyed(assistant_mask_key)
        )

    def _get_dist_with_attention_mask(
        self,
        tensordict: TensorDictBase,
        attention_mask_key: Any = ("masks", "all_attention_mask"),
        logits_key: Any = "logits",
        padding_side: str = "left",
        **kwargs: Any,
    ) -> LLMMaskedCategorical:
        """Return the distribution over all real tokens."""
        _refuse(kwargs)
        return self._dist(tensordict, None, logits_key, None, padding_side, self._keyed(None))

    def _get_dist_with_custom_mask(
        self,
        tensordict: TensorDictBase,
        mask: Any,
        logits_key: Any = "logits",
        padding_side: str = "left",
        **kwargs: Any,
    ) -> LLMMaskedCategorical:
        """Return the distribution under a mask over ``full``: a tensor padded on ``padding_side``, or one per row."""
        _refuse(kwargs)

        def custom(td: TensorDictBase, rows: Rows) -> list[torch.Tensor]:
            return _per_row(mask, rows.ids, padding_side, self._places(td, rows))

        return self._dist(tensordict, None, logits_key, None, padding_side, custom)

    def _get_sft_dist(self, tensordict: TensorDictBase, **kwargs: Any) -> LLMMaskedCategorical:
        """Return the distribution that supervised fine-tuning trains: over what follows the prompt."""
        return self._get_dist_with_prompt_mask(tensordict, **kwargs)

    def _get_rlhf_dist(self, tensordict: TensorDictBase, **kwargs: Any) -> LLMMaskedCategorical:
        """Return the distribution that RL trains: over the assistant's turns."""
        return self._get_dist_with_assistant_mask(tensordict, **kwargs)

    def _get_generic_dist(self, tensordict: TensorDictBase, **kwargs: Any) -> LLMMaskedCategorical:
        """Return the distribution over all real tokens."""
        return self._get_dist_with_attention_mask(tensordict, **kwargs)

    def log_prob(self, data: TensorDictBase, **get_kwargs: Any) -> Any:
        """Return the log-probs of ``full``.

        A wrapper that generates scores here with the same model: it is the policy whose answers are
            asked about.

        Args:
            data: Has the input that scoring reads.
            **get_kwargs: For ``TensorDict.get``: ``as_padded_tensor``, ``as_list``,
                ``padding_side`` ...
        """
        wrapper = self._scorer()
        key = wrapper.log_probs_key if wrapper.log_probs_key is not None else "log_probs"
        if wrapper.log_probs_key is None:
            wrapper = wrapper.get_new_version(return_log_probs=True, log_probs_key=key)
        out = wrapper.get_new_version(inplace=False)(data)
        path = (key,) if isinstance(key, str) else tuple(key)
        return out.get((*path, "full"), **get_kwargs)

    @property
    def log_prob_keys(self) -> list[Any]:
        """Where the log-probs of a call are."""
        if not hasattr(self, "_log_prob_keys"):
            key = self.log_probs_key if self.log_probs_key is not None else "log_probs"  # type: ignore[attr-defined]
            path = (key,) if isinstance(key, str) else tuple(key)
            return [(*path, "full")]
        return self._log_prob_keys

    @log_prob_keys.setter
    def log_prob_keys(self, value: list[Any]) -> None:
        self._log_prob_keys = list(value)

    @property
    def dist_params_keys(self) -> list[Any]:
        """What a distribution is made of."""
        return ["logits"]

    @property
    def dist_sample_keys(self) -> list[Any]:
        """What a distribution is about."""
        key = self.tokens_key if self.tokens_key is not None else "tokens"  # type: ignore[attr-defined]
        path = (key,) if isinstance(key, str) else tuple(key)
        return [(*path, "full")]

    # Inside

    def _logit_scorer(self) -> Any:
        backend = self.backend  # type: ignore[attr-defined]
        if not hasattr(backend, "logits"):
            label = getattr(backend, "label", backend.name)
            raise NoLogits(
                f"{label} does not return logits, so there is no distribution; log_prob() gives the log-probs."
            )
        return self._scorer()

    def _scorer(self) -> Any:
        if not self.generate:  # type: ignore[attr-defined]
            return self
        return self.get_new_version(generate=False, num_samples=None)  # type: ignore[attr-defined]

    def _keyed(self, key: Any) -> Any:
        """Return a mask by key: from the tensordict, or as the input itself tells it."""

        def mask(td: TensorDictBase, rows: Rows) -> list[torch.Tensor]:
            if key is None:
                return [torch.ones(len(ids), dtype=torch.bool, device="cpu") for ids in rows.ids]
            name = key if isinstance(key, str) else key[-1]
            if name == "all_assistant_mask" and rows.assistant is not None:
                return [torch.tensor(row, dtype=torch.bool, device="cpu") for row in rows.assistant]
            if name == "all_attention_mask":
                return [torch.ones(len(ids), dtype=torch.bool, device="cpu") for ids in rows.ids]
            path = (key,) if isinstance(key, str) else tuple(key)
            from antiphon.conversations.padding import leaves, token_rows
            from antiphon.generation.rows import held_by

            try:
                parent = td if len(path) == 1 else td.get(path[:-1])
                found = None if parent is None else token_rows(held_by(parent), path[-1])
            except KeyError:
                found = None
            if found is None:
                raise InvalidParameter(
                    f"There is no mask under {key!r}, and the input does not say who wrote what; "
                    "score a history, or put a mask there."
                )
            return _per_row(leaves(found), rows.ids, None, self._places(td, rows))

        return mask

    def _places(self, td: TensorDictBase, rows: Rows) -> Places | None:
        """Return how the rows lie in the tensordict, where it has them padded."""
        from antiphon.conversations.padding import leaves, real_bounds, token_rows
        from antiphon.generation.rows import found, held_by
        from antiphon.generation.settings import key_path

        scorer = self._scorer()
        key = (
            scorer.input_key
            if scorer.input_mode == "tokens"
            else (*key_path(scorer.tokens_key or "tokens"), "full")
        )
        path = key_path(key)
        parent: Any = td if len(path) == 1 else found(td, path[:-1])
        held = None if parent is None else held_by(parent)
        padded = None if held is None else token_rows(held, path[-1])
        if padded is None:
            return None
        flat = leaves(padded)
        masks = [found(td, each) for each in scorer.reader.mask_keys]
        like = (m for m in masks if isinstance(m, torch.Tensor) and m.shape[-1:] == flat[0].shape)
        where = real_bounds(held, path[-1], next(like, None))
        if where is None or len(where) != len(rows.ids) or len({len(row) for row in flat}) != 1:
            return None
        parts = [row[begin:end].tolist() for row, (begin, end) in zip(flat, where, strict=True)]
        return Places(len(flat[0]), [begin for begin, _ in where]) if parts == rows.ids else None

    def _dist(
        self,
        td: TensorDictBase,
        out: TensorDictBase | None,
        logits_key: Any,
        padding_value: float | None,
        padding_side: str,
        mask: Any,
    ) -> LLMMaskedCategorical:
        if padding_side not in ("left", "right"):
            raise InvalidParameter(f"padding_side must be 'left' or 'right', not {padding_side!r}.")
        scorer = self._logit_scorer()
        rows = _some(scorer.reader.read(td, "full"))
        logits = scorer._row_logits(rows)
        width = max(map(len, rows.ids))
        begins = [width - len(ids) if padding_side == "left" else 0 for ids in rows.ids]
        if (places := self._places(td, rows)) is not None:
            width, begins = places.width, places.begins
        first = logits[0]
        padded = first.new_full((len(logits), width, first.shape[-1]), padding_value or 0.0)
        counts = torch.zeros(len(logits), width, dtype=torch.bool, device=first.device)
        for index, (row, counting) in enumerate(zip(logits, mask(td, rows), strict=True)):
            begin = begins[index]
            padded[index, begin : begin + len(row)] = row
            counts[index, begin : begin + len(row)] = counting.to(counts.device)
            counts[index, begin] = False  # nothing precedes the first token
        padded = padded.reshape(*rows.shape, width, -1)
        if out is not None:
            out.set(logits_key, padded)
        return LLMMaskedCategorical(padded, counts.reshape(*rows.shape, width))

    def _ragged_dist(
        self, td: TensorDictBase, out: TensorDictBase | None, logits_key: Any, mask: Any
    ) -> RaggedCategorical:
        scorer = self._logit_scorer()
        rows = _some(scorer.reader.read(td, "full"))
        if len(rows.shape) != 1:
            raise InvalidParameter(
                f"Ragged rows fill one batch dimension, and this batch has the shape {list(rows.shape)}; flatten it."
            )
        logits = scorer._row_logits(rows)
        counts = [counting.to(logits[0].device).clone() for counting in mask(td, rows)]
        for counting in counts:
            counting[:1] = False  # nothing precedes the first token
        if out is not None:
            out.set(logits_key, torch.nested.as_nested_tensor(logits, layout=torch.jagged))
        return RaggedCategorical(logits, counts)

    def _row_logits(self, rows: Rows) -> list[torch.Tensor]:
        """Return per row the logits ``[tokens, vocabulary]`` that are about its tokens; the first is all 0."""
        backend = self.backend  # type: ignore[attr-defined]
        logits: list[torch.Tensor] = backend.logits(
            TokenBatch(rows.ids),
            requires_grad=torch.is_grad_enabled() and self._trains(),  # type: ignore[attr-defined]
        )
        temperature = self.params.log_prob_temperature  # type: ignore[attr-defined]
        return [torch.cat([torch.zeros_like(row[:1]), row[:-1] / temperature]) for row in logits]

    def _write_logits(self, td: TensorDictBase, out: TensorDictBase) -> TensorDictBase:
        """Write the padded logits of scoring under ``logits``."""
        self._dist(td, out, "logits", None, "left", self._keyed(None))
        return out


def _some(rows: Rows) -> Rows:
    if not rows.ids:
        raise InvalidParameter(
            "There is no row to make a distribution of; the tensordict is empty."
        )
    return rows


def _lengths(prompts: list[list[int]], rows: list[list[int]], key: Any) -> list[int]:
    """Return how many tokens of each row are its prompt."""
    for index, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        if row[: len(prompt)] != prompt:
            raise InvalidParameter(
                f"Row {index} does not begin with its prompt under {key!r}, so nothing says where its answer begins "
                "(padding that no mask tells would count as prompt); put it there without padding, or in Tokens."
            )
    return [len(prompt) for prompt in prompts]


def _refuse(options: dict[str, Any]) -> None:
    if options:
        raise InvalidParameter(f"{', '.join(sorted(options))}: not an option of a distribution.")


def _per_row(
    mask: Any, ids: list[list[int]], side: str | None, places: Places | None
) -> list[torch.Tensor]:
    """Return a mask per row without padding.

    Padding lies as the rows do in the tensordict, if ``places`` says how and the mask is as wide; else on ``side``
    (None: where the mask is longer, on the left).
    """
    if not isinstance(mask, (torch.Tensor, list, tuple)):
        raise InvalidParameter(f"A mask is a tensor or one per row, not {type(mask).__name__}.")
    rows = list(mask.reshape(-1, mask.shape[-1])) if isinstance(mask, torch.Tensor) else list(mask)
    if len(rows) != len(ids):
        raise InvalidParameter(f"The mask has {len(rows)} rows, the tokens {len(ids)}.")
    result = []
    for index, (row, own) in enumerate(zip(rows, ids, strict=True)):
        made = (
            row.bool() if isinstance(row, torch.Tensor) else torch.tensor(row, device="cpu").bool()
        )
        if len(made) < len(own):
            raise InvalidParameter(
                f"The mask of row {index} covers {len(made)} of {len(own)} tokens."
            )
        extra = len(made) - len(own)
        if places is not None and len(made) == places.width:
            begin = places.begins[index]
            result.append(made[begin : begin + len(own)])
            continue
        result.append(made[: len(own)] if side == "right" else made[extra:])
    return result
