"""The containers of a rollout: `Text`, `Tokens`, `Masks`, `LogProbs` and `ChatHistory`.

Each has `prompt`, `response` and `full` (prompt and response together); `Masks` lies over `full`. Batches of
unequal lengths are lazy stacks of rows, so ``get(name, as_list=True)``, ``as_padded_tensor=True`` and
``as_nested_tensor=True`` work on them; `pad` makes dense tensors of them and `unpad` undoes it.
"""

# mypy: disable-error-code="type-arg,name-defined,attr-defined,override,misc,assignment,no-any-return"
# TensorClass builds these classes as they are defined (fields become properties, the methods of tensordict are added),
# and its stub knows neither its options in brackets nor that fields may be called `type` or `data`.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NonTensorData, TensorClass

from antiphon.conversations.arguments import said, short, switch
from antiphon.conversations.constructors import of_histories, of_texts, placed
from antiphon.conversations.history import History
from antiphon.conversations.padding import (
    Side,
    check_padding,
    pad_storage,
    place_storage,
    unpad_rows,
)
from antiphon.conversations.ragged import ragged, shared_values
from antiphon.conversations.specs import container_spec, tensor_leaf
from antiphon.errors import ContainerError
from antiphon.fingerprints import check_tokens

if TYPE_CHECKING:
    from typing_extensions import Self

    from antiphon.conversations.conversion import EncodedChats

__all__ = ["ChatHistory", "LogProbs", "Masks", "Text", "Tokens"]

_PARTS = ("prompt", "response", "full")
_MASKS = ("all_attention_mask", "all_assistant_mask")


def _is_padded(container: Any) -> bool:
    """Whether the rows are padded; a stack holds one flag for each row."""
    value = container.padded
    return any(_flags(value)) if isinstance(value, (list, tuple)) else bool(value)


def _flags(value: Any) -> list[bool]:
    return (
        [f for v in value for f in _flags(v)] if isinstance(value, (list, tuple)) else [bool(value)]
    )


def _pad(container: Any, names: Sequence[str], fill: float, side: Side | None, sizes: Any) -> Any:
    check_padding(fill, side, sizes)
    if _is_padded(container):
        raise ContainerError(f"this {type(container).__name__} is padded already; unpad() it first")
    sides: dict[str, Side] = {name: side or "right" for name in names}
    if side is None and "prompt" in sides:
        sides["prompt"] = "left"
    td = pad_storage(container._tensordict, fill, sides, sizes)
    known = shared_values(container._tensordict, "fingerprints")
    if known:
        td["fingerprints"] = NonTensorData(data=known[0], batch_size=td.batch_size)
    made = type(container)._from_tensordict(_with_told(td, container))
    made.padded = True
    return made


def _with_told(td: Any, container: Any) -> Any:
    """What is told of each row of tokens goes with them."""
    for name in ("breaks", "starts_anew"):
        value = container._tensordict.get(name, None)
        if value is not None:
            td.set(name, value)
    return td


def _unpad(container: Any, names: Sequence[str], masks: Any) -> Any:
    if not isinstance(masks, (Masks, torch.Tensor, type(None))):
        raise ContainerError(f"masks must be Masks or a tensor, got {said(masks)}")
    if masks is None and container.padded is not None and not _is_padded(container):
        return container  # nothing to take away
    rows = unpad_rows(container._tensordict, names, masks)
    known = shared_values(container._tensordict, "fingerprints")
    shared = {"fingerprints": known[0]} if known else None
    made = ragged(type(container), container.batch_size, rows, container.device, shared)
    _with_told(made._tensordict, container)
    return made


class Tokens(TensorClass["nocast"]):
    """Token ids, int64.

    Attributes:
        prompt: [..., prompt tokens]; padded on the left.
        response: [..., response tokens]; padded on the right.
        full: [..., tokens] of both.
        padded: whether the rows are padded to one length.
        bounds: of padded rows: start and end of what is real, [..., 2] under each name.
        fingerprints: whose tokens they are, and of which template and plugins (`token_fingerprints`); None where
            nobody said so. Conversions refuse tokens of another tokenizer.
        breaks: for each row the sampled turns whose ids could not be kept: a list of dicts with `message`,
            `position`, `was`, `now` and `edited`. None where it is not told.
        starts_anew: [...], bool, whether a trajectory begins with the row, where breaks are to split it.
    """

    prompt: torch.Tensor | None = None
    response: torch.Tensor | None = None
    full: torch.Tensor | None = None
    padded: bool | None = None
    bounds: Any | None = None
    fingerprints: dict[str, str] | None = None
    breaks: list[Any] | None = None
    starts_anew: torch.Tensor | None = None

    @classmethod
    def default_spec(cls, shape: Any = (-1,), keys: Sequence[str] | None = None) -> Any:
        """The spec of a container of batch size `shape` with `keys`."""
        return container_spec(cls, shape, keys, _PARTS, tensor_leaf(torch.int64))

    def pad(
        self, padding_value: int, *, side: Side | None = None, sizes: dict[str, int] | None = None
    ) -> Self:
        """Dense rows.

        Args:
            padding_value: the id to fill with.
            side: where; by default prompts on the left, responses on the right, and `full` so that all
                responses start at one position.
            sizes: lengths to pad to, by name; by default the longest row's.
        """
        return _pad(self, _PARTS, padding_value, side, sizes)

    def unpad(self, masks: Masks | torch.Tensor | None = None) -> Self:
        """Ragged rows without padding; `masks` is needed where they were padded elsewhere."""
        return _unpad(self, _PARTS, masks)

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Makes sure that these are tokens of `tokenizer`, where they say whose they are.

        Raises:
            TokenizerMismatch: names the row and both tokenizers.
        """
        known = shared_values(self._tensordict, "fingerprints")
        check_tokens(known, tokenizer, type(self).__name__)

    def to_text(self, tokenizer: Any, skip_special_tokens: bool = False, masks: Any = None) -> Text:
        """What the ids decode to, control tokens included unless `skip_special_tokens`.

        Raises:
            ContainerError: padded tokens of which nothing says what is real (see `unpad`).
            TokenizerMismatch: the tokens are of another tokenizer.
        """
        from antiphon.conversations.reading_back import tokens_to_text

        self.check_tokenizer(tokenizer)
        switch("skip_special_tokens", skip_special_tokens)
        return tokens_to_text(
            self.unpad(masks) if _is_padded(self) else self, tokenizer, skip_special_tokens
        )

    def to_history(
        self,
        tokenizer: Any,
        chat_template_name: str | None = None,
        skip_special_tokens: bool = False,
        *,
        chat_template: str | None = None,
        tools: Any = None,
        log_probs: LogProbs | None = None,
        masks: Any = None,
    ) -> ChatHistory:
        """The conversations that the ids hold.

        Read from the ids: a marker counts only as its control id. The response's message carries its ids
        (and log-probs, where given), so that they are never encoded again.

        Args:
            tokenizer: the tokenizer of the ids.
            chat_template_name: the dialect; else told by `chat_template` or the tokenizer.
            skip_special_tokens: accepted; the ids are read as they are, since control tokens are what messages
                are told apart by.
            chat_template: the template that rendered them.
            tools: type the arguments of calls.
            log_probs: of the response, as ragged rows.
            masks: see `unpad`.

        Raises:
            TokenizerMismatch: the tokens are of another tokenizer.
        """
        from antiphon.conversations.reading_back import tokens_to_history
        from antiphon.conversations.templating import Template

        self.check_tokenizer(tokenizer)
        template = Template(
            tokenizer, chat_template, chat_template_name, {} if tools is None else {"tools": tools}
        )
        return tokens_to_history(
            self.unpad(masks) if _is_padded(self) else self, template, log_probs
        )


class Masks(TensorClass["nocast"]):
    """Masks over `full`, bool.

    Attributes:
        all_attention_mask: [..., tokens], 1 on what is no padding.
        all_assistant_mask: [..., tokens], 1 on the assistant's turns.
        padded: whether the rows are padded to one length.
        bounds: of padded rows, as in `Tokens`.
    """

    all_attention_mask: torch.Tensor | None = None
    all_assistant_mask: torch.Tensor | None = None
    padded: bool | None = None
    bounds: Any | None = None

    @classmethod
    def default_spec(cls, shape: Any = (-1,), keys: Sequence[str] | None = None) -> Any:
        """The spec of a container of batch size `shape` with `keys`."""
        return container_spec(cls, shape, keys, _MASKS, tensor_leaf(torch.bool))

    def pad(
        self,
        *,
        like: Tokens | None = None,
        side: Side | None = None,
        sizes: dict[str, int] | None = None,
    ) -> Self:
        """Dense rows, False on the padding.

        Args:
            like: padded tokens; the masks are laid over their `full`. Without it:
            side: where to pad (right).
            sizes: lengths to pad to, by name.
        """
        if like is None:
            return _pad(self, _MASKS, False, side, sizes)
        if not isinstance(like, Tokens):
            raise ContainerError(f"masks are padded like Tokens, not like {said(like)}")
        made = type(self)._from_tensordict(
            place_storage(self._tensordict, _MASKS, False, like._tensordict)
        )
        made.padded = True
        return made

    def unpad(self, masks: Masks | torch.Tensor | None = None) -> Self:
        """Ragged rows without padding."""
        if masks is None and _is_padded(self):
            masks = self
        return _unpad(self, _MASKS, masks)


class LogProbs(TensorClass["nocast"]):
    """Log-probabilities of the tokens in `Tokens`, floating point, same shapes.

    Attributes:
        prompt: [..., prompt tokens]; padded on the left.
        response: [..., response tokens]; padded on the right.
        full: [..., tokens] of both.
        padded: whether the rows are padded to one length.
        bounds: of padded rows, as in `Tokens`.
    """

    prompt: torch.Tensor | None = None
    response: torch.Tensor | None = None
    full: torch.Tensor | None = None
    padded: bool | None = None
    bounds: Any | None = None

    @classmethod
    def default_spec(cls, shape: Any = (-1,), keys: Sequence[str] | None = None) -> Any:
        """The spec of a container of batch size `shape` with `keys`."""
        return container_spec(cls, shape, keys, _PARTS, tensor_leaf(torch.float32))

    def pad(
        self,
        padding_value: float = 0.0,
        *,
        side: Side | None = None,
        sizes: dict[str, int] | None = None,
    ) -> Self:
        """Dense rows, as `Tokens.pad`."""
        return _pad(self, _PARTS, padding_value, side, sizes)

    def unpad(self, masks: Masks | torch.Tensor | None = None) -> Self:
        """Ragged rows without padding."""
        return _unpad(self, _PARTS, masks)


class Text(TensorClass["nocast"]):
    """Rendered conversations.

    Attributes:
        prompt: what the model is given.
        response: what it answers, up to and with the end of its turn.
        full: both.
    """

    prompt: str | None = None
    response: str | None = None
    full: str | None = None

    @classmethod
    def default_spec(cls, shape: Any = (-1,), keys: Sequence[str] | None = None) -> Any:
        """The spec of a container of batch size `shape` with `keys`."""
        from antiphon.envs import NonTensor

        return container_spec(
            cls, shape, keys, _PARTS, lambda size: NonTensor(shape=size, example_data="a text")
        )

    def to_tokens(
        self,
        tokenizer: Any,
        padding: bool = False,
        truncation: bool = False,
        return_tensors: str = "pt",
        *,
        max_length: int | None = None,
        add_special_tokens: bool | None = None,
    ) -> Tokens:
        """The ids of the texts; what follows the prompt is encoded apart from it, as a model sees it.

        Args:
            tokenizer: the tokenizer; control tokens in the texts become control ids.
            padding: pad the rows (see `Tokens.pad`) with the tokenizer's padding id.
            truncation: cut rows longer than `max_length` (by default the tokenizer's `model_max_length`).
            return_tensors: only "pt" makes a container.
            max_length: see `truncation`.
            add_special_tokens: let the tokenizer put its own (BOS) before the text. By default it does so only
                for plain text: a text with control tokens in it is a rendering and complete.
        """
        from antiphon.conversations.reading_back import text_to_tokens

        if not (isinstance(return_tensors, str) and return_tensors == "pt"):
            raise ContainerError(
                f"a container holds torch tensors: return_tensors must be 'pt', got {short(return_tensors)}"
            )
        return text_to_tokens(
            self,
            tokenizer,
            padding,
            max_length if switch("truncation", truncation) else None,
            truncation,
            add_special_tokens,
        )

    def to_history(
        self,
        tokenizer: Any = None,
        chat_template_name: str | None = None,
        *,
        chat_template: str | None = None,
        tools: Any = None,
    ) -> ChatHistory:
        """The conversations that the texts hold; ids are the surer source where there are any."""
        from antiphon.conversations.reading_back import text_to_history
        from antiphon.conversations.templating import Template

        template = Template(
            tokenizer, chat_template, chat_template_name, {} if tools is None else {"tools": tools}
        )
        return text_to_history(self, template)


class ChatHistory(TensorClass["nocast"]):
    """Conversations as messages: each a `History` of one dimension more, time last.

    Attributes:
        prompt: the messages up to now.
        response: what came then.
        full: both.
    """

    prompt: History | None = None
    response: History | None = None
    full: History | None = None

    @classmethod
    def default_spec(cls, shape: Any = (-1,), keys: Sequence[str] | None = None) -> Any:
        """The spec of a container of batch size `shape` with `keys`."""
        return container_spec(
            cls, shape, keys, _PARTS, lambda size: History.default_spec(shape=(*size, -1))
        )

    def to_text(
        self,
        tokenizer: Any = None,
        chat_template_name: str | None = None,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> Text:
        """Renders prompt (with a generation prompt) and full; response is what full adds.

        Without `full` it is the prompt with the response. Sampled messages stand as what their ids decode to.

        Args:
            tokenizer: the tokenizer; not needed where the template is given and nothing was sampled.
            chat_template_name: a dialect, or one of TorchRL's template names.
            chat_template: an explicit template.
            **kwargs: tools and other variables of the template.
        """
        from antiphon.conversations.conversion import history_to_text
        from antiphon.conversations.templating import Template

        return history_to_text(self, Template(tokenizer, chat_template, chat_template_name, kwargs))

    def to_tokens(
        self,
        tokenizer: Any,
        chat_template_name: str | None = None,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> Tokens:
        """The ids of prompt, response and full; the ids of sampled messages as they were sampled.

        Raises:
            TurnRewritten: what a conversation's `full` renders does not start with its prompt.
        """
        return self.encode(tokenizer, chat_template_name, chat_template, **kwargs).tokens()

    def to_masks(
        self,
        tokenizer: Any,
        chat_template_name: str | None = None,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> Masks:
        """The masks over the ids that `to_tokens` gives for `full` (or for the one part there is)."""
        return self.encode(tokenizer, chat_template_name, chat_template, **kwargs).masks()

    def to_log_probs(
        self,
        tokenizer: Any,
        chat_template_name: str | None = None,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> LogProbs:
        """The log-probs that sampled messages carry, over the ids that `to_tokens` gives; NaN elsewhere."""
        return self.encode(tokenizer, chat_template_name, chat_template, **kwargs).log_probs()

    def encode(
        self,
        tokenizer: Any,
        chat_template_name: str | None = None,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> EncodedChats:
        """All of it from one encoding: `.tokens()`, `.masks()` and `.log_probs()` of the result."""
        from antiphon.conversations.conversion import encode_history
        from antiphon.conversations.templating import Template

        return encode_history(self, Template(tokenizer, chat_template, chat_template_name, kwargs))


for _tensors in (Tokens, Masks, LogProbs):
    _tensors.__init__ = placed(_tensors.__init__)
Text.__init__ = of_texts(Text.__init__)
ChatHistory.__init__ = of_histories(ChatHistory.__init__)
