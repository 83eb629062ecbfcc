"""`LLMWrapper`: a language model as a module on tensordicts, the same for every backend.

Modes, padding, containers, masks, batching and distributions live here once. A backend sees ragged
rows of ids.

Reads ``(mode, "prompt")`` to generate and ``(mode, "full")`` to score. Writes ``tokens``, ``masks``
and ``log_probs``, ``text`` in text and history mode, ``history`` in history mode. Tokens are the
truth: text comes from ids, and a sampled message carries its ids and log-probs, so the next turn's
prompt starts with exactly what was sampled.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase

from antiphon.conversations.arguments import device_named
from antiphon.conversations.encoding import pad_id
from antiphon.conversations.fields import nested_entry
from antiphon.conversations.templating import Template
from antiphon.errors import BackendError, InvalidParameter
from antiphon.fingerprints import token_fingerprints
from antiphon.generation.backends import Scores, TokenBatch
from antiphon.generation.dist import DistributionMethods
from antiphon.generation.results import (
    Layout,
    history_container,
    nested_rows,
    response_message,
    response_texts,
    text_container,
)
from antiphon.generation.rows import RowReader, Rows
from antiphon.generation.sampling import SamplingParams, random_seed
from antiphon.generation.settings import (
    Key,
    check_settings,
    check_shape,
    key_path,
    load_backend,
    make_batcher,
    one_of,
    sampling,
    tokenizer_options,
    weak,
    writes_inplace,
)
from antiphon.plugins.events import turns_sampled

if TYPE_CHECKING:
    from typing_extensions import Self

Mode = Literal["history", "text", "tokens"]
_MODES = ("history", "text", "tokens")


class LLMWrapperBase(DistributionMethods, TensorDictModuleBase):
    """What every wrapper of a language model has; `LLMWrapper` is the one that works on any
    backend.

    Attributes:
        generate: Whether a call generates; otherwise it scores.
        input_mode: ``"history"``, ``"text"`` or ``"tokens"``.
        pad_output: Whether results are dense.
        num_samples: Answers per prompt, in a dimension of their own, or None.
        in_keys: Where input is read.
        out_keys: Where results are written.
    """

    generate: bool
    input_mode: Mode
    pad_output: bool
    num_samples: int | None
    _collector: weakref.ref[Any] | None = None

    def register_collector(self, collector: Any) -> None:
        """Keep a weak reference to the collector that this wrapper works for."""
        self._collector = weak(collector)

    @property
    def collector(self) -> Any:
        """The collector that this wrapper works for, or None."""
        return None if self._collector is None else self._collector()

    def get_new_version(self, **kwargs: Any) -> Self:
        """Return a wrapper of the same model with some settings changed."""
        raise NotImplementedError  # LLMWrapper knows how


class LLMWrapper(LLMWrapperBase):
    """A language model on tensordicts."""

    def __init__(
        self,
        model: Any,
        *,
        backend: str = "transformers",
        tokenizer: Any = None,
        input_mode: Mode = "history",
        input_key: Key | None = None,
        attention_mask_key: Key = "attention_mask",
        generate: bool = True,
        generate_kwargs: Mapping[str, Any] | SamplingParams | None = None,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        pad_output: bool = False,
        inplace: bool | Literal["empty"] | None = None,
        device: torch.device | str | None = None,
        layout: torch.layout | None = None,
        num_samples: int | None = None,
        chat_template_name: str | None = None,
        chat_template: str | None = None,
        return_log_probs: bool | None = None,
        history_key: Key | None = "history",
        text_key: Key | None = "text",
        tokens_key: Key | None = "tokens",
        masks_key: Key | None = "masks",
        log_probs_key: Key | None = "log_probs",
        finish_reason_key: Key | None = None,
        batching: bool | None = None,
        min_batch_size: int | None = None,
        max_batch_size: int | None = None,
        batching_timeout: float = 10.0,
        prefer_tokens: bool = False,
        on_break: Literal["keep", "raise", "split"] = "keep",
    ) -> None:
        """Wrap a model.

        Args:
            model: A `Backend`, or what the backend loads: a name, a folder, a model object.
            backend: Which backend loads it.
            tokenizer: The tokenizer (or its name, where the model is loaded here); by default the
                backend's.
            input_mode: What the input is.
            input_key: Where it is; by default ``(mode, "prompt")`` to generate, ``(mode, "full")``
                to score.
            attention_mask_key: In tokens mode, where the mask of padded ids is.
            generate: Generate; False: score.
            generate_kwargs: Sampling parameters by any of their names, see `SamplingParams`.
            tokenizer_kwargs: In text mode: ``add_special_tokens``, ``truncation``, ``max_length``.
            template_kwargs: In history mode: tools and other variables of the template.
            pad_output: Dense results: prompts padded on the left, responses on the right.
            inplace: True writes into the input, ``"empty"`` and False into a new tensordict. By
                default True, unless samples add a dimension.
            device: Where results go.
            layout: ``torch.jagged`` gives nested tensors instead of lazy stacks of rows.
            num_samples: Answers per prompt, in a new last batch dimension.
            chat_template_name: A dialect in place of the tokenizer's own template.
            chat_template: A template in place of the tokenizer's own.
            return_log_probs: False leaves log-probs out.
            history_key: Where the `ChatHistory` is; None writes none. Likewise:
            text_key: of the `Text`,
            tokens_key: of the `Tokens`,
            masks_key: of the `Masks`,
            log_probs_key: of the `LogProbs`.
            finish_reason_key: Where to write why each answer ended (``"end"``, ``"stop"``,
                ``"length"``).
            batching: Join the calls of several threads; implied by a batch size.
            min_batch_size: Rows that a batch waits for; 1 by default.
            max_batch_size: Most rows of a batch.
            batching_timeout: Seconds after which a batch runs with what there is.
            prefer_tokens: In history mode, use the prompt's ids where the tensordict has them.
            on_break: What to do in history mode where the ids of a sampled turn can't be kept, because the template
                rewrites it once the conversation goes on, or because the message was edited. ``"keep"``: the turn is
                context (mask 0). ``"raise"``. ``"split"``: as keep, and ``("tokens", "starts_anew")`` is True in that
                row: a trajectory ends here and another begins. ``("tokens", "breaks")`` has for each row a list of
                what broke: ``message``, ``position``, ``was``, ``now``, ``edited``.

        Raises:
            InvalidParameter: A setting that is unknown or contradicts another.
        """
        super().__init__()
        settings = {k: v for k, v in locals().items() if k not in ("self", "__class__", "model")}
        self._settings = settings
        check_settings(settings)
        one_of("input_mode", input_mode, _MODES)
        one_of("on_break", on_break, ("keep", "raise", "split"))
        self.backend = load_backend(model, backend, tokenizer)
        own = getattr(self.backend, "model", None)
        if isinstance(own, torch.nn.Module):
            self.model = own  # so that parameters() are the model's
        given = tokenizer if tokenizer is not None and not isinstance(tokenizer, str) else None
        self.tokenizer = given if given is not None else self.backend.tokenizer
        if self.tokenizer is None and input_mode != "tokens":
            raise InvalidParameter(f"{input_mode} mode needs a tokenizer; pass tokenizer=.")
        self.input_mode, self.generate, self.pad_output = input_mode, generate, pad_output
        self.prefer_tokens = prefer_tokens
        self.params, self.num_samples = sampling(self.backend, generate_kwargs, num_samples)
        self.tokenizer_kwargs = tokenizer_options(tokenizer_kwargs)
        named = chat_template_name, dict(template_kwargs or {})
        template = Template(self.tokenizer, chat_template, *named)
        self.template = template.demand() if input_mode == "history" else template
        self.inplace = writes_inplace(inplace, self.generate and self.num_samples is not None)
        self.device = device_named(device, InvalidParameter)
        if layout not in (None, torch.strided, torch.jagged):
            raise InvalidParameter(f"layout must be torch.strided or torch.jagged, not {layout!r}.")
        self.layout = torch.strided if layout is None else layout
        self.attention_mask_key = attention_mask_key
        self.history_key, self.text_key, self.tokens_key = history_key, text_key, tokens_key
        self.masks_key, self.finish_reason_key = masks_key, finish_reason_key
        self.log_probs_key = None if return_log_probs is False else log_probs_key
        if not generate and return_log_probs is False:
            raise InvalidParameter(
                "return_log_probs must be True when generate=False: scoring gives nothing else."
            )
        self.on_break = on_break
        self.input_key = input_key if input_key is not None else self._default_input_key()
        self.reader = self._make_reader()
        self.in_keys = [self.input_key]
        self.out_keys = self._out_keys()
        self.return_text = input_mode != "tokens" and text_key is not None
        self.return_history = input_mode == "history" and history_key is not None
        self.return_tokens, self.return_masks = tokens_key is not None, masks_key is not None
        self.return_log_probs = self.log_probs_key is not None
        self.batcher = make_batcher(
            self.backend, batching, min_batch_size, max_batch_size, batching_timeout
        )
        joined = self.get_batching_state()
        self._min_batch_size = joined.get("min_batch_size")
        self._max_batch_size = joined.get("max_batch_size")

    # Settings

    def _default_input_key(self) -> Key:
        own = {"history": self.history_key, "text": self.text_key, "tokens": self.tokens_key}
        key = own[self.input_mode]
        base = (self.input_mode,) if key is None else (key,) if isinstance(key, str) else tuple(key)
        return (*base, "prompt" if self.generate else "full")

    def _make_reader(self) -> RowReader:
        masks: list[Key] = [self.attention_mask_key]
        if self.masks_key is not None:
            masks.append((*key_path(self.masks_key), "all_attention_mask"))
        known = None
        if self.prefer_tokens and self.input_mode == "history" and self.tokens_key is not None:
            known = (*key_path(self.tokens_key), "prompt")
        return RowReader(
            mode=self.input_mode,
            key=self.input_key,
            tokenizer=self.tokenizer,
            template=self.template,
            text_options=self.tokenizer_kwargs,
            mask_keys=tuple(masks),
            on_break=self.on_break,
            known_prompts=known,
            prompt_mask_keys=(self.attention_mask_key,),
        )

    def _out_keys(self) -> list[Key]:
        keys = [self.masks_key, self.tokens_key, self.log_probs_key]
        if self.input_mode != "tokens":
            keys.insert(0, self.text_key)
        if self.input_mode == "history":
            keys.append(self.history_key)
        if self.generate:
            keys.append(self.finish_reason_key)
        return [key for key in keys if key is not None]

    def get_new_version(self, **kwargs: Any) -> Self:
        """Return a wrapper of the same model (unless ``model`` is given) with some settings changed."""
        model = kwargs.pop("model", self.backend)
        unknown = sorted(set(kwargs) - set(self._settings))
        if unknown:
            raise InvalidParameter(
                f"{', '.join(unknown)}: not a setting of {type(self).__name__}; "
                f"it has {', '.join(sorted(self._settings))}."
            )
        settings = {**self._settings, **kwargs}
        if "generate" in kwargs and "input_key" not in kwargs:
            settings["input_key"] = None  # the old one names the other part
        return type(self)(model, **settings)

    @property
    def generate_kwargs(self) -> dict[str, Any]:
        """The sampling parameters by their standard names."""
        return self.params.as_kwargs()

    # Batching

    @property
    def batching(self) -> bool:
        """Whether calls of several threads are joined."""
        return self.batcher is not None

    def cleanup_batching(self, *, flush: bool = False) -> None:
        """Answer every call that waits: by running it (``flush``), or with `BatchingClosed`."""
        if self.batcher is not None:
            self.batcher.drain(flush=flush)

    def get_batching_state(self) -> dict[str, Any]:
        """Return whether calls are joined, the sizes and time-out, and what is waiting and running now."""
        if self.batcher is None:
            return {"batching_enabled": False}
        return {"batching_enabled": True, **self.batcher.state()}

    # Calls

    def forward(
        self,
        tensordict: TensorDictBase,
        *,
        tensordict_out: TensorDictBase | None = None,
        logits_only: bool = False,
        **kwargs: Any,
    ) -> TensorDictBase:
        """Generate or score.

        Args:
            tensordict: Has the input under ``in_keys``.
            tensordict_out: Where to write, in place of what ``inplace`` says.
            logits_only: Scoring: write ``logits`` (see `get_dist`) and nothing else.
            **kwargs: Sampling parameters for this call.

        Returns:
            The tensordict with the results. With ``num_samples`` its batch has one dimension more.
        """
        if logits_only:
            out = self._out(tensordict, tuple(tensordict.batch_size), tensordict_out)
            return self._write_logits(tensordict, out)
        results, shape = (
            self._generated(tensordict, kwargs)
            if self.generate
            else self._scored(tensordict, kwargs)
        )
        out = self._out(tensordict, shape, tensordict_out)
        for key, value in results:
            if key is not None and value is not None:
                out.set(key, value)
        return out

    def _out(
        self, td: TensorDictBase, shape: tuple[int, ...], given: TensorDictBase | None
    ) -> TensorDictBase:
        if given is not None:
            check_shape(given, shape)
            return given
        if self.inplace is True:
            return td
        if self.inplace == "empty" and shape == tuple(td.batch_size):
            return td.empty()
        return TensorDict({}, batch_size=shape, device=self.device)

    def _generated(
        self, td: TensorDictBase, overrides: dict[str, Any]
    ) -> tuple[list[tuple[Key | None, Any]], tuple[int, ...]]:
        params = self._params_for(overrides)
        rows = self.reader.read(td, "prompt")
        fallback = random_seed() if params.seed is None else params.seed
        batch = TokenBatch(rows.ids).seeded(params, fallback)
        if not batch.rows:
            raise InvalidParameter("There is no row to generate for; the tensordict is empty.")
        made = (self.batcher or self.backend).generate(batch, params)
        if self.num_samples is not None:
            rows = rows.repeated(self.num_samples)
        if len(made) != len(rows.ids):
            raise BackendError(
                f"{self.backend.name} returned {len(made)} answers for {len(rows.ids)} rows."
            )
        turns_sampled(self.backend.name, batch, made)
        ids = {
            "prompt": rows.ids,
            "response": made.ids,
            "full": [prompt + answer for prompt, answer in zip(rows.ids, made.ids, strict=True)],
        }
        known = rows.log_probs or [[math.nan] * len(row) for row in rows.ids]
        prompts = [torch.tensor(row, dtype=torch.float32, device="cpu") for row in known]
        if made.prompt_log_probs is not None:
            n = self.num_samples or 1
            prompts = [row for row in made.prompt_log_probs for _ in range(n)]
        answers = [row.detach().float().cpu() for row in made.log_probs]
        log_probs = {
            "prompt": prompts,
            "response": answers,
            "full": [torch.cat(pair) for pair in zip(prompts, answers, strict=True)],
        }
        # Nothing but a history says who wrote the prompt; in the other modes the mask is of this
        # answer.
        before = rows.assistant or [[False] * len(row) for row in rows.ids]
        assistant = [a + [True] * len(b) for a, b in zip(before, made.ids, strict=True)]
        results = self._containers(rows, ids, log_probs, assistant)
        if self.input_mode != "tokens":
            texts = response_texts(
                made,
                self.tokenizer,
                skip_special_tokens=params.skip_special_tokens,
                keep_stop=params.include_stop_str_in_output,
            )
            starts = self.reader.texts(rows)
            parts = {
                "prompt": starts,
                "response": texts,
                "full": [a + b for a, b in zip(starts, texts, strict=True)],
            }
            results.append((self.text_key, text_container(rows.shape, parts, self.device)))
        if self.input_mode == "history":
            assert rows.chats is not None
            messages = [
                response_message(made, i, rows.ids[i], self.template, lambda i=i: texts[i])  # type: ignore[misc]
                for i in range(len(made))
            ]
            chats = {
                "prompt": rows.chats,
                "response": [[message] for message in messages],
                "full": [[*chat, m] for chat, m in zip(rows.chats, messages, strict=True)],
            }
            results.append((self.history_key, history_container(rows.shape, chats, self.device)))
        if self.finish_reason_key is not None:
            reasons = nested_entry(
                nested_rows(made.finish, rows.shape), len(rows.shape), self.device
            )
            results.append((self.finish_reason_key, reasons))
        return results, rows.shape

    def _scored(
        self, td: TensorDictBase, options: dict[str, Any]
    ) -> tuple[list[tuple[Key | None, Any]], tuple[int, ...]]:
        if options:
            raise InvalidParameter(
                f"{', '.join(sorted(options))}: scoring takes no sampling parameters."
            )
        rows = self.reader.read(td, "full")
        scores = self._score(rows)
        ids: dict[str, list[Any]] = {"full": rows.ids}
        log_probs: dict[str, list[Any]] = {"full": scores.log_probs}
        if rows.prompts is not None:
            for source in (ids, log_probs):
                cut = list(zip(source["full"], rows.prompts, strict=True))
                source["prompt"] = [row[:end] for row, end in cut]
                source["response"] = [row[end:] for row, end in cut]
        results = self._containers(rows, ids, log_probs, rows.assistant)
        if self.input_mode != "tokens":
            parts = {"full": self.reader.texts(rows)}
            results.append((self.text_key, text_container(rows.shape, parts, self.device)))
        if rows.chats is not None and self.inplace is not True:
            chats = history_container(rows.shape, {"full": rows.chats}, self.device)
            results.append((self.history_key, chats))
        return results, rows.shape

    def _score(self, rows: Rows) -> Scores:
        return (self.batcher or self.backend).score(
            TokenBatch(rows.ids),
            temperature=self.params.log_prob_temperature,
            requires_grad=torch.is_grad_enabled() and self._trains(),
        )

    def _trains(self) -> bool:
        model = getattr(self, "model", None)
        return model is not None and any(p.requires_grad for p in model.parameters())

    def _params_for(self, overrides: dict[str, Any]) -> SamplingParams:
        if not overrides:
            return self.params
        params = SamplingParams.from_kwargs(
            overrides,
            base=self.params,
            extras=self.backend.extra_parameters,
            backend=self.backend.name,
        )
        if params.num_return_sequences != self.params.num_return_sequences:
            raise InvalidParameter(
                "The number of samples shapes the output and is set with num_samples, once for a wrapper; use "
                "get_new_version(num_samples=...)."
            )
        return params

    def _containers(
        self,
        rows: Rows,
        ids: dict[str, list[list[int]]],
        log_probs: dict[str, list[torch.Tensor]],
        assistant: list[list[bool]] | None,
    ) -> list[tuple[Key | None, Any]]:
        if self.log_probs_key is None:
            log_probs = {}
        tokens, masks, probs = self._layout().containers(
            rows.shape, ids, log_probs or None, assistant, rows.breaks
        )
        return [(self.tokens_key, tokens), (self.masks_key, masks), (self.log_probs_key, probs)]

    def _layout(self) -> Layout:
        fingerprints = None
        if self.tokenizer is not None:
            template = self.template.source if self.input_mode == "history" else None
            fingerprints = token_fingerprints(self.tokenizer, template)
        return Layout(
            pad=self.pad_output,
            pad_id=pad_id(self.tokenizer),
            jagged=self.layout == torch.jagged,
            device=self.device,
            fingerprints=fingerprints,
            splits=self.on_break == "split",
        )
