"""`History`: conversations as tensordict data.

A History's last batch dimension is time (messages), those before are conversations; ragged batches have -1
there. `from_chats` and `to_chats` convert from and to OpenAI-style lists.
"""

# mypy: disable-error-code="type-arg,name-defined,attr-defined,override,misc,assignment,no-any-return"
# TensorClass builds these classes as they are defined (fields become properties, the methods of tensordict are added),
# and its stub knows neither its options in brackets nor that fields may be called `type` or `data`.

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorClass, is_tensor_collection

from antiphon.conversations.arguments import device_named, shape_of, switch, whole
from antiphon.conversations.chats import map_chats, openai_messages
from antiphon.conversations.content import Content, ContentBase
from antiphon.conversations.fields import given_fields, list_shape, message_entries, plain_value
from antiphon.conversations.folded import FoldedMessages
from antiphon.conversations.rows import (
    device_of,
    equal_rows,
    fold,
    joined,
    map_rows,
    message_cell,
    message_fields,
    plain_fields,
    reshaped,
    row_cells,
    row_length,
    row_messages,
    row_of,
    rows_of,
    single_messages,
    stack_rows,
    stored_fields,
)
from antiphon.conversations.templating import add_chat_template, remove_chat_template
from antiphon.engine.sampled import detach
from antiphon.errors import ContainerError, InvalidMessage, NoHistory, reason_of

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Content", "ContentBase", "History", "add_chat_template", "remove_chat_template"]

Message = dict[str, Any]


class History(TensorClass["nocast"]):
    """Messages of one conversation, [messages], or of many, [..., conversations, messages].

    Attributes:
        role: "system", "user", "assistant", "tool", ...; "<none>" for a placeholder that is never rendered.
        content: a string, a list of parts (dicts), or a `Content`.
        is_complete: whether the message was ended by an end token.
        tool_calls: calls in OpenAI form, arguments as mappings (a string where they are no JSON object).
        tool_responses: results of calls, where several are kept in one message.
        reasoning: what was thought before the content.
        name: of the participant, or of the tool.
        tool_call_id: the call that a tool message answers.
        token_ids: the ids that a model sampled for this message (its turn), end token included.
        log_probs: one for each of `token_ids`.
        sampled_as: a mark of what the message said when `token_ids` were sampled; edited since, it loses them.
        extra: further keys that the message came with.
    """

    role: str
    content: str
    is_complete: bool = True
    tool_calls: list[dict[str, Any]] | None = None
    tool_responses: list[Any] | None = None
    reasoning: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    token_ids: list[int] | None = None
    log_probs: list[float] | None = None
    sampled_as: str | None = None
    extra: dict[str, Any] | None = None

    # Lists in and out

    @classmethod
    def from_chats(cls, chats: Any) -> Self:
        """A History from message lists.

        Args:
            chats: one conversation (a list of messages or a data-set row) gives [messages]; a list of them
                [conversations, messages], and so on with deeper lists. Messages are OpenAI-style or ShareGPT
                mappings. Conversations may differ in length (-1 in the batch size) or be empty; no
                conversations give [0, 0].

        Raises:
            InvalidMessage: names the conversation and the message.
        """
        if isinstance(chats, cls):
            return chats
        rows, depth = map_chats(chats, fold)
        return cls._from_tensordict(stack_rows(equal_rows(rows, depth), depth))

    def to_chats(self) -> Any:
        """The messages in OpenAI form: a list of dicts, or nested lists of those for a batch.

        None-valued keys are left out, `is_complete` is there only where it is False, `<none>` messages are
        dropped. The result is the caller's own: writing into it does not change this History. A single
        message (no batch dimension) gives its dict.
        """
        messages = self._messages() if self.ndim else self._messages()[0]
        try:
            return copy.deepcopy(messages)
        except Exception as error:  # of any class, and nested at will, may be what a message holds
            raise InvalidMessage(
                f"a message holds what can't be copied ({reason_of(error)}); leave it out"
            ) from error

    def _messages(self) -> Any:
        """`to_chats` without the copy, for readers that do not write."""
        if not self.ndim:
            return openai_messages([plain_fields(self._tensordict)])
        return map_rows(self._tensordict, row_messages)

    # Templates

    def apply_chat_template(
        self,
        *,
        tokenizer: Any = None,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
        chat_template_name: str | None = None,
        continue_final_message: bool = False,
        tokenize: bool | None = None,
        padding: bool | str = False,
        truncation: bool | str = False,
        max_length: int | None = None,
        return_tensors: str | None = None,
        return_dict: bool | None = None,
        return_assistant_tokens_mask: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Renders the conversations.

        Args:
            tokenizer: brings its template and its special tokens; a processor renders and encodes by itself.
            add_generation_prompt: end with what precedes the model's answer.
            chat_template: an explicit template; else
            chat_template_name: the name of a dialect, or one of TorchRL's names; else a template of
                `add_chat_template` whose keywords the tokenizer's name has, the tokenizer's own, the
                detected dialect's.
            continue_final_message: end inside the last message.
            tokenize: encode the text; by default only if a mask, tensors or a dict of them are asked for.
            padding: to the longest of the batch (True), to `max_length` ("max_length") or not.
            max_length: the length to cut or pad to.
            truncation: cut what is longer than `max_length`, on the tokenizer's `truncation_side`.
            return_tensors: "pt" (the default) or "np".
            return_dict: give `input_ids` and `attention_mask` in a tensordict, and
            return_assistant_tokens_mask: `assistant_masks`, 1 on the tokens of the assistant's turns.
            **kwargs: tools and other variables of the template.

        Returns:
            Without tokens: the text, or for a batch (nested) lists of texts. With tokens: ids of shape
            [1, tokens] for one conversation, for a batch a list of [tokens] or, padded, [batch, tokens]. As a
            tensordict: entries [tokens] for one conversation; a lazy stack of those for a batch.

        Raises:
            RenderError: the template refuses a conversation; names it.
        """
        from antiphon.conversations.template_output import apply_template
        from antiphon.conversations.templating import Template

        return apply_template(
            self,
            Template(tokenizer, chat_template, chat_template_name, kwargs),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tokenize=tokenize,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
            return_dict=return_dict,
            with_mask=return_assistant_tokens_mask,
        )

    @classmethod
    def from_text(
        cls,
        text: str | list[str],
        chat_template_name: str | None = None,
        chat_template: str | None = None,
        tokenizer: Any = None,
        tools: Any = None,
    ) -> Self:
        """Reads rendered conversations back.

        Args:
            text: one rendering, or (nested) lists of them.
            chat_template_name: the name of a dialect, or of a template of `add_chat_template`; else
            chat_template: the template that rendered it; else
            tokenizer: tells the dialect.
            tools: type the arguments of calls in formats that write bare text.

        Raises:
            FamilyNotFound: nothing says which dialect is meant.
        """
        from antiphon.conversations.templating import Template, read_chat

        variables = {} if tools is None else {"tools": tools}
        template = Template(tokenizer, chat_template, chat_template_name, variables)

        def read(item: Any) -> Any:
            if not isinstance(item, (str, list, tuple)):
                raise InvalidMessage(
                    f"from_text reads texts and lists of them, not {type(item).__name__}."
                )
            return (
                read_chat(item, template)
                if isinstance(item, str)
                else [read(part) for part in item]
            )

        found = read(text)  # of one text without messages too: one conversation, not none
        return cls.from_chats([found])[0] if isinstance(text, str) else cls.from_chats(found)

    @classmethod
    def _inv_chatml(cls, text: str) -> Self:
        """`from_text` of ChatML, by the name that code for TorchRL calls it by."""
        return cls.from_text(text, "chatml_format")

    @classmethod
    def default_spec(cls, shape: Any = (-1,)) -> Any:
        """The spec of a History of batch size `shape`, time last."""
        from antiphon.envs import Composite, NonTensor

        examples = {"role": "user", "content": "a message", "is_complete": True}
        shape = tuple(shape_of(shape))
        return Composite(
            {
                name: NonTensor(shape=shape, example_data=example, data_type=object)
                for name, example in examples.items()
            },
            shape=shape,
            data_cls=cls,
        )

    # Growing

    def append(self, history: History, *, inplace: bool = True, dim: int = -1) -> Self:
        """Adds one element along `dim`: by default one message, for a batch one to each conversation.

        Args:
            history: one dimension less than this; as many conversations as this.
            inplace: change this object (others that share its messages stay as they are) or return a new one.
            dim: the dimension to grow along.

        Raises:
            ContainerError: shapes that do not fit, or a locked History.
            NoHistory: `history` is something else.
        """
        switch("inplace", inplace)
        self._check_other(
            history, self.batch_dims - 1, "append to", "append must have one less dimension than"
        )
        dim = self._dim(dim)
        if dim < self.ndim - 1:
            return self._grown(rows_of(history.unsqueeze(dim)._tensordict), dim, inplace)
        # One message to each conversation: no need to make tensordicts of them.
        rows = single_messages(history._tensordict)
        return self._grown(rows, dim, inplace)

    def extend(self, history: History, *, inplace: bool = True, dim: int = 0) -> Self:
        """Adds the elements of `history` along `dim` (0: the first, which is time for one conversation).

        Args:
            history: as many dimensions as this.
            inplace: change this object (others that share its messages stay as they are) or return a new one.
            dim: the dimension to grow along.

        Raises:
            ContainerError: shapes that do not fit, or a locked History.
            NoHistory: `history` is something else.
        """
        switch("inplace", inplace)
        self._check_other(
            history, self.batch_dims, "extend", "extend must have as many dimensions as"
        )
        return self._grown(rows_of(history._tensordict), self._dim(dim), inplace)

    def _check_other(self, history: Any, dims: int, does: str, must: str) -> None:
        if not isinstance(history, History):
            raise NoHistory(
                f"cannot {does} a History with {type(history).__name__}: History.from_chats makes one of messages"
            )
        if not self.batch_dims:
            raise ContainerError(
                f"cannot {does} a History without a batch dimension; call unsqueeze(0) on it first"
            )
        if history.batch_dims != dims:
            raise ContainerError(
                f"The new history to {must} self; got self.ndim={self.ndim} and history.ndim={history.ndim}"
            )

    def _dim(self, dim: int) -> int:
        dim = whole("dim", dim)
        if not -self.ndim <= dim < self.ndim:
            raise ContainerError(
                f"there is no dimension {dim} in a History of {self.ndim} dimensions"
            )
        return dim % self.ndim

    def _grown(self, rows: Any, dim: int, inplace: bool) -> Self:
        if inplace and self.is_locked:
            raise ContainerError("this History is locked: unlock_() it or pass inplace=False")
        depth = self.ndim - 1
        grown = joined(rows_of(self._tensordict), rows, depth, depth - dim, self.device)
        td = stack_rows(equal_rows(grown, depth), depth, self.device)
        if not inplace:
            return self._made(td)
        self.__dict__["_tensordict"] = td
        return self

    @classmethod
    def _made(cls, td: Any) -> Self:
        history: Self = cls._from_tensordict(td)
        return history

    def fork(self, at: int, n: int | None = None) -> Self:
        """A conversation that starts as this one does and can go its own way.

        Args:
            at: how many messages to keep, as in a slice: 0 none, -1 all but the last.
            n: how many branches; None gives one, in the shape of this History. Branches get a new leading
                dimension. They share the messages (and the sampled ids in them) with this History.
        """
        if not self.ndim:
            raise ContainerError("a single message cannot be forked; call unsqueeze(0) on it first")
        at = whole("at", at)
        if n is not None and not 0 <= whole("n", n) < 2**31:
            raise ContainerError(f"a conversation cannot have {n} branches")

        def cut(row: Any) -> Any:
            cells = row_cells(row)
            return FoldedMessages.fold(cells[:at], device_of(row))

        depth = self.ndim - 1
        rows = map_rows(self._tensordict, cut)
        if n is None:
            return self._made(stack_rows(rows, depth, self.device))
        branches = [map_rows(self._tensordict, cut) for _ in range(n)]
        return self._made(stack_rows(branches, depth + 1, self.device))

    def without_sampled(self) -> Self:
        """The same conversations without what their messages carry of their sampling.

        For another tokenizer than that of the sampled ids, or to have edited messages encoded anew.
        """

        def plain(row: Any) -> Any:
            cells = [
                cell if type(cell) is dict else message_fields(cell) for cell in row_cells(row)
            ]
            return row_of([detach(cell) for cell in cells], device_of(row))

        if not self.ndim:
            return self.unsqueeze(0).without_sampled()[0]
        rows = map_rows(self._tensordict, plain)
        return self._made(stack_rows(rows, self.ndim - 1, self.device))

    # Shapes of ragged batches, where tensordict has no answer or a wrong one

    @property
    def is_ragged(self) -> bool:
        """Whether conversations differ in length."""
        return any(size < 0 for size in self.batch_size)

    def numel(self) -> int:
        """The number of messages."""
        if not self.is_ragged:
            return math.prod(self.batch_size)
        return sum(map_rows(self._tensordict, row_length, flat=True))

    def is_empty(self) -> bool:
        """Whether there is no message."""
        return self.numel() == 0

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The elements along `dim`.

        Raises:
            ContainerError: time of a ragged batch.
        """
        dim = self._dim(dim)
        if self.batch_size[dim] < 0:
            raise ContainerError(
                "a ragged History cannot be unbound along time: unbind its conversations first"
            )
        return tuple(self._made(td) for td in self._tensordict.unbind(dim))

    def reshape(self, *shape: Any) -> Self:
        """As tensors do; the messages of a ragged batch can be flattened, its leading dimensions reshaped.

        Raises:
            ContainerError: another number of messages, or conversations of unequal length asked to be equal.
        """
        size = shape_of(shape)
        if not self.ndim:
            return self.unsqueeze(0).reshape(size) if size else self
        return self._made(reshaped(self._tensordict, size, self.is_ragged, self.numel()))

    def view(self, *shape: Any) -> Self:
        """As `reshape`, which for a History copies no message either."""
        return self.reshape(*shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Joins dimensions into one, those of a ragged batch too."""
        if not self.ndim:
            return self.reshape(1)
        start, end = self._dim(start_dim), self._dim(end_dim)
        size = [*self.batch_size[:start], -1, *self.batch_size[end + 1 :]]
        return self.reshape(size)


_tensorclass_init = History.__init__


def _history_init(self: History, *args: Any, **kwargs: Any) -> None:
    """Takes strings, lists and plain values for the fields; lists are a batch where there is a batch size.

    Without `batch_size` the nesting of `role` decides it.
    """
    batch_size = kwargs.pop("batch_size", None)
    options = {name: kwargs.pop(name, None) for name in ("device", "names", "lock")}
    fields = given_fields(args, kwargs)
    fields = {name: plain_value(value) for name, value in fields.items() if value is not None}
    if batch_size is None:
        batch_size = list_shape(fields.get("role")) or ()
    size, device = shape_of(batch_size), device_named(options["device"])
    if any(map(is_tensor_collection, fields.values())):
        try:
            _tensorclass_init(
                self, **message_entries(fields, size, device), batch_size=size, device=device
            )
        except RuntimeError as error:
            raise ContainerError(
                f"fields do not fit the batch size {list(size)}: {error}"
            ) from error
    else:
        made = self._made(stored_fields(fields, size, device))
        for name, value in made.__dict__.items():
            object.__setattr__(self, name, value)
    if options["names"] is not None:
        self.names = options["names"]
    if options["lock"]:
        self.lock_()


History.__init__ = _history_init

_tensorclass_function = History.__torch_function__


def _history_function(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Stacks along a new first dimension without making tensordicts of the messages; the rest is tensordict's."""
    if func is torch.stack and args:
        stacked = _stacked(list(args[0]), *args[1:], **(kwargs or {}))
        if stacked is not None:
            return stacked
    return _tensorclass_function(func, types, args, kwargs or {})


History.__torch_function__ = staticmethod(_history_function)


def _stacked(histories: list[Any], dim: int = 0, *, out: Any = None) -> History | None:
    if (
        dim != 0
        or out is not None
        or not histories
        or not all(type(h) is History and h.device == histories[0].device for h in histories)
    ):
        return None
    first = histories[0]
    if any(h.batch_size != first.batch_size for h in histories):
        raise ContainerError(
            f"torch.stack needs histories of one batch size, got {sorted({tuple(h.batch_size) for h in histories})}; "
            "lazy_stack takes ragged ones"
        )
    if first.ndim == 0:
        return History._made(row_of([message_cell(h._tensordict) for h in histories], first.device))
    rows = [rows_of(h._tensordict) for h in histories]
    return History._made(stack_rows(equal_rows(rows, first.ndim), first.ndim, first.device))
