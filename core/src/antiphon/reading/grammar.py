r"""What a dialect looks like on paper: the plain data that the one reader works by.

A `Grammar` describes text, not behaviour. It is frozen, picklable, compares by value and holds no
compiled state. A family declares one (``ModelFamily.grammar = "my_family.grammars:QWEN3"``), or
`antiphon.reading.infer` reads one off a template.

Layout of a conversation::

    bos  (turn)*  [generation prompt]
    turn      = opener body closer                                  (`RoleForm`)
    grouped   = group_opener  opener body closer (separator opener body closer)*  group_closer
    assistant = [reasoning] [content] [before calls]                (`ReasoningForm`,
    `ContentForm`, `CallForm`) calls     = block_opener call (separator call)* block_closer
    call      = opener  ... one of the four styles ...  closer

White space at the outer edges of a literal belongs to the format, but a model need not write it:
the reader takes it where it stands and does without it where it does not; it never takes more than
the literal has. White space *inside* a literal and all other characters must be there.

Markers are written as text. When the reader works from token ids it looks up which parts of each
literal are control tokens of the tokenizer and then accepts them only as those ids.

A ChatML dialect in full::

    QWEN3 = Grammar(
        name="qwen3",
        roles=(
            *CHATML_ROLES,
            RoleForm("tool", "<tool_response>\n", "\n</tool_response>", separator="\n",
                     group_opener="<|im_start|>user\n", group_closer="<|im_end|>\n"),
        ),
        end_tokens=("<|im_end|>", "<|endoftext|>"),
        reasoning=ReasoningForm("<think>\n", "\n</think>\n\n"),
        calls=(
            CallForm("json", opener="<tool_call>\n", closer="\n</tool_call>", separator="\n",
                     lead="\n"),
        ),
        tools=(
            ToolsForm("# Tools\n\nYou may call ...<tools>", "...</tool_call>", separator="\n\n"),
        ),
    )
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

CallStyle = Literal["json", "named", "params", "pythonic"]
Printed = Literal["somehow", "exactly", "never"]
ValueForm = Literal["text", "json", "python", "braces", "halved"]
ArgumentsForm = Literal["mapping", "string", "either"]
Place = Literal["before", "after"]
Opened = Literal["never", "sometimes", "always"]


class Slot(NamedTuple):
    """A part of a header that a message fills in.

    Attributes:
        field: ``"name"`` (of a tool), ``"tool_call_id"``, ``"role"`` (the form's own role is ""
            then), or the name of a template argument such as ``"date_string"``. ``""`` matches and
            forgets: text that the template makes up; ``"date"`` likewise, but not over a line's
            end.
    """

    field: str


OTHER = "*"
"""Stands for a role that a grammar knows no name of; see `Grammar.others`."""

Literals = str | tuple[str | Slot, ...]
"""A literal, or literals with slots between them; a slot reaches to the first place where what
follows it stands."""


@dataclass(frozen=True)
class RoleForm:
    r"""How the messages of one role stand in a conversation. A role may have several forms.

    Attributes:
        role: The message's role.
        opener: What stands before the body, with the header. For tool results it may hold `Slot`s.
            May be empty where nothing stands there (DeepSeek V3's answer after tool results).
        closer: What stands after the body, with the end token and the white space after it. May be
            empty; the body then ends where the opener of a turn that may follow stands.
        after: Roles after which this form may stand; ``""`` is the start of the conversation; None
            is anywhere. For example Llama 2: ``system`` with opener ``"[INST] <<SYS>>\n"`` and
            closer ``"\n<</SYS>>\n\n"``, ``user`` with opener ``""`` after ``("system",)`` and
            with opener ``"[INST] "`` after the others.
        group_opener: What stands once before a run of neighbouring messages of this form
            (``<|im_start|>user\n`` around Qwen's tool results); `opener`, body and `closer` then
            repeat inside.
        group_closer: What stands once after such a run.
        separator: What stands between two neighbours of a run. (Where only forms with the same
            role and a non-empty `group_opener` or `separator` follow each other, they share the
            turn.)
        value: How the body is written: ``"text"`` as it is; ``"json"`` as a JSON value: a string,
            a list or a mapping comes back as such, anything else as its JSON text; ``"python"``
            as it is, but where it is a list of parts as Python writes one, that list comes back;
            ``"halved"`` with every second one of line breaks in a row left out (Falcon): what
            comes back is the shortest text that is printed so.
        drop_empty: An empty body means that there was no such message: the template prints the
            turn anyway.
        default: Bodies that the template itself prints where the conversation has no such message
            (Qwen2.5's default system text); reading gives no message for them.
        preambles: What the template puts before the message's own text (Llama 3.1's date lines);
            the longest that fits is taken out. Slots name template arguments.
        begins: What the body must begin with for the form to hold; it stays in the body. For turns
            that have no opener of their own (Falcon 3's answers that only call:
            ``"\n<tool_call>"``).
        trims: Which ends of the text the template strips of white space: "", "left", "right" or
            "both". An answer that begins with white space all the same stood behind a reasoning
            block in its content, and is read with one.
        cut_behind: What the template cuts an answer's content off behind, where it first stands there
            (DeepSeek V3.1's ``</think>``). A content that holds it all the same stood behind
            another one, and is read with it; unless there are calls, beside which nothing is cut.
        thoughtless: The template prints no block of reasoning at the head of such an answer: what looks
            like one, or like an empty one, is content.
        strict: A body with white space at an end that `trims` names is no message of this role
            alone (a system text stands before it, with nothing that tells where it ends); such a
            conversation is refused.
        unclosed: Before this form the turn before has no closer: the opener stands in its place.
        finals: Texts that may stand after the closer at the end of a rendering.
        other_closers: What may stand in the closer's place (Command A ends a turn of calls without
            its text's marker).
    """

    role: str
    opener: Literals
    closer: Literals = ""
    after: tuple[str, ...] | None = None
    group_opener: str = ""
    group_closer: str = ""
    separator: str = ""
    value: ValueForm = "text"
    drop_empty: bool = False
    default: tuple[str, ...] = ()
    preambles: tuple[Literals, ...] = ()
    begins: str = ""
    trims: Literal["", "left", "right", "both"] = ""
    cut_behind: str = ""
    thoughtless: bool = False
    strict: bool = False
    unclosed: bool = False
    finals: tuple[str, ...] = ()
    other_closers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReasoningForm:
    r"""The reasoning block at the head of an assistant's turn. Only a leading block is structural.

    Attributes:
        opener: For example ``"<think>\n"``.
        closer: For example ``"\n</think>\n\n"``: with the white space before and after the
            marker that belongs to the format.
        opened: Whether the generation prompt opens the block. The prompt, where the caller gives
            it, decides; this says what holds without one: ``"always"`` starts inside the
            reasoning, the others outside.
        separate: In whole conversations the block becomes ``reasoning_content``. False where the
            template does not print that field: the block then stays in the content, since only so
            it comes back when rendered.
        empty: Texts of an empty block, as templates print them with thinking off or for turns
            without reasoning (``"<think>\n\n</think>\n\n"``, DeepSeek V3.1's ``"</think>"``).
            A turn that begins so has no reasoning.
        empty_cut: Where nothing is said behind an empty block, the template may strip the white space
            that ends it.
        trimmed: What the template strips from the reasoning, as `str.strip` takes it: ``None`` is
            all white space, ``""`` nothing. In whole conversations a block with more of it than
            the format has did not come from the field and stays in the content.
        looks_inside: The template looks for a block in the content where the field is missing. So
            a content that holds the closer comes back with an empty field.
        earlier: The template prints the field of answers before the last question too. Where it
            does not, a block that stands there is read as content, with an empty field: only so it
            comes back.
        empty_last: For want of reasoning the template prints an empty block in the last answer
            alone: behind the last question one that stands elsewhere was white space.
    """

    opener: str
    closer: str
    opened: Opened = "sometimes"
    separate: bool = True
    empty: tuple[str, ...] = ()
    empty_cut: bool = False
    trimmed: str | None = ""
    looks_inside: bool = True
    earlier: bool = True
    empty_last: bool = False


@dataclass(frozen=True)
class ContentForm:
    """Markers around an assistant's content, where a format has them (gpt-oss's final channel).

    Attributes:
        opener: What stands before the content, for example ``"<|channel|>final<|message|>"``.
        closer: What stands after it, where that is not the end of the turn.
        with_calls: The template prints them only where calls follow.
    """

    opener: str
    closer: str = ""
    with_calls: bool = False


@dataclass(frozen=True)
class ParamForm:
    r"""One argument of the ``params`` style: ``opener KEY key_closer [FLAG flag_closer] VALUE
    closer``.

    XML: ``<parameter=`` KEY ``>\n`` VALUE ``\n</parameter>\n``.
    GLM: ``<arg_key>`` KEY ``</arg_key>\n<arg_value>`` VALUE ``</arg_value>\n``.
    DSML: ``<｜DSML｜parameter name="`` KEY ``" string="`` FLAG ``">`` VALUE
        ``</｜DSML｜parameter>\n``.

    Attributes:
        opener: What stands before the key.
        key_closer: What stands after the key. White space at its end belongs to the format at most
            as written here.
        closer: What stands after the value; white space at its start belongs to the format at most
            as written here, white space at its end is free.
        flag_closer: What stands after the flag; "" where there is no flag. Flag ``true`` says that
            the value is a string as it stands, anything else that it is JSON.
        values: How values other than strings are written: ``"json"`` or ``"python"`` (``True``,
            ``None``); both are read. Without a schema and without a flag a value is a string,
            unless `typed`.
        typed: Without a schema, a value that is JSON and not a string is read as such (GLM's
            templates write strings bare and all else as JSON).
        quoted: Every value is JSON or a Python literal, strings too.
        cdata: A value may stand between ``<![CDATA[`` and ``]]>``, which are not its own.
    """

    opener: str
    key_closer: str
    closer: str
    flag_closer: str = ""
    values: ValueForm = "json"
    typed: bool = False
    quoted: bool = False
    cdata: bool = False


@dataclass(frozen=True)
class CallForm:
    """How tool calls are written. A grammar may have several forms; at equal markers they are
    tried in order.

    Styles:
        ``json``: the call is one JSON object with a name and arguments
            (``opener {"name": ..., "arguments": {...}} closer``); with `listed` all calls are one
            JSON list.
        ``named``: ``opener NAME name_closer ARGUMENTS closer`` with the arguments as one value
            (`values`).
        ``params``: ``opener NAME name_closer PARAM* closer`` with each argument as a `ParamForm`.
        ``pythonic``: ``opener NAME(key=value, ...) closer`` with Python literals; with `listed`
            all calls are one Python list ``[f(a=1), g(b=2)]``. ``call_suffix=".call"`` makes it
            Llama 3.1's ``name.call(key="v")``.

    Attributes:
        style: See above.
        opener: What stands before each call.
        closer: What stands after each call.
        name_closer: Between name and arguments.
        separator: Between two calls.
        block_opener: Once before the first call.
        block_closer: Once after the last call. Reading does without it, and takes it when it
            stands twice.
        lead: White space that the format puts between content and calls; it is neither's. (White
            space at the start of `block_opener` or `opener` counts as such as well.)
        lead_always: The lead stands there without content too.
        listed: All calls stand in one list; see the styles.
        values: How the arguments of the ``named`` style are written: ``"json"``, or ``"braces"``:
            Gemma's ``{key:value}`` with strings between `quote`s. The literals of the style
            include no brace then.
        quote: The string quote of ``"braces"``.
        param: For the ``params`` style.
        name_keys: Keys of the ``json`` style under which the name stands, the one that templates
            write first.
        argument_keys: Likewise for the arguments. Arguments may be JSON text in a string there.
        wrapper_keys: Keys that may hold the object with name and arguments (``{"type": "function",
            "function": ...}``).
        id_keys: Keys under which a call's id stands.
        name_prefix: What stands before the name and is not part of it (``"functions."``); reading
            does without it.
        call_suffix: For ``pythonic``: what stands between the name and the parenthesis.
        id_opener: For ``named``: what stands between the name and the call's id, where the format
            prints ids; the id reaches to `name_closer`. Optional in the text.
        named_by_id: For ``named``: what stands in the place of the name is an id of the form
            ``[name_prefix]NAME:INDEX`` (Kimi K2), from which the name is taken.
        bare: The calls have no opening marker: a turn whose content is nothing but calls is a call
            (Llama 3's JSON, Llama 4's lists). They count only at the very start of the content and
            only if they parse.
        ends: What ends a call besides `closer`, when the format leaves the closer to an end token
            (``"<|call|>"``, ``"<|eom_id|>"``); these are end tokens as well.
        string_twice: ``json``: the template encodes string arguments a second time.
        printed: What is known of how the template prints such calls. In whole conversations what it
            can't have printed is content, since only so it comes back; white space and the markers
            around all calls aside, with which models are free. ``"exactly"``: as this form says,
            with JSON as `json.dumps` writes it and content before all calls; ``"never"``: models
            alone write so; ``"somehow"``: all that can be read is a call.
        announced: The template prints such calls only where it announces tools.
        alone: The template prints such calls only where there is no content.
        single: The template prints one such call and refuses more.
        fixed_name: For calls that have no name in the text (code behind ``<|python_tag|>``): the
            name, with `fixed_argument` the argument that takes the raw text. Style ``named``.
        fixed_argument: See `fixed_name`.
    """

    style: CallStyle
    opener: str = ""
    closer: str = ""
    name_closer: str = ""
    separator: str = ""
    block_opener: str = ""
    block_closer: str = ""
    lead: str = ""
    lead_always: bool = False
    listed: bool = False
    values: ValueForm = "json"
    quote: str = '"'
    param: ParamForm | None = None
    name_keys: tuple[str, ...] = ("name",)
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    wrapper_keys: tuple[str, ...] = ("function",)
    id_keys: tuple[str, ...] = ("id",)
    name_prefix: str = ""
    call_suffix: str = ""
    id_opener: str = ""
    named_by_id: bool = False
    bare: bool = False
    ends: tuple[str, ...] = ()
    string_twice: bool = False
    printed: Printed = "somehow"
    announced: bool = False
    alone: bool = False
    single: bool = False
    fixed_name: str = ""
    fixed_argument: str = ""


@dataclass(frozen=True)
class ToolsForm:
    """The text with which a template tells the model of its tools, inside the turn of another
    message.

    ``place="after"``: ``MESSAGE separator opener ... closer`` fills the body up to its end (Qwen).
    ``place="before"``: ``opener ... closer MESSAGE`` (Llama 3.1, in the first user turn).
    Without a message of its own the body holds ``opener ... closer`` alone.

    Attributes:
        opener: The fixed text before the first tool.
        closer: The fixed text after the last tool.
        role: The role of the turn it stands in.
        place: See above.
        separator: What stands between the message's own text and this.
        between: What stands between two tools, where tools are JSON; with ``place="before"`` the
            reader skips JSON values and these, so that `closer` in a tool's description does no
            harm.
        own_turn: The turn holds nothing but the tools and is no message at all.
    """

    opener: str
    closer: str
    role: str = "system"
    place: Place = "after"
    separator: str = ""
    between: str = "\n"
    own_turn: bool = False


@dataclass(frozen=True)
class Source:
    """The template that a grammar was inferred from: what is read by the grammar is held against it.

    Attributes:
        template: The template's source.
        variables: The template variables that were given, with their values.
        as_parts: The template takes contents only as lists of parts.
    """

    template: str
    variables: tuple[tuple[str, object], ...] = ()
    as_parts: bool = False


@dataclass(frozen=True)
class Grammar:
    """All the reader needs to know of a dialect.

    Attributes:
        name: For error messages and listings.
        roles: One or more forms per role. At one place the longest opener that fits wins.
        bos: Text at the very start (the begin-of-text token) that is no message's.
        prefix: Other fixed text between `bos` and the first turn.
        end_tokens: Tokens that end a turn, the usual one first. Any of them may stand where the
            assistant's closer has the usual one.
        pending_tokens: Those end tokens that say that a call waits for its result (Llama's
            ``<|eom_id|>``).
        reasoning: The reasoning block; None where the dialect has none.
        content: Markers around the content; None where there are none.
        calls: The ways in which calls are written.
        tools: The ways in which tools are announced.
        generation_prompts: Texts with which a rendering may end to ask for an answer, where they
            are more than the assistant's opener and the reasoning opener or an empty block.
            Reading takes them off.
        arguments: In which form the template takes call arguments. With ``"string"``, `parse`
            gives the arguments of whole conversations as the JSON text that stood there, so that
            they render to the same bytes.
        continued: Text between two parts of one assistant message (gpt-oss:
            ``"<|end|><|start|>assistant"``), after which reasoning, content or a call may follow.
        empty_content: The content that `parse` gives a message that only calls: ``""``, or None
            where the template prints calls only then (DeepSeek V2.5 and V3).
        others: Forms of messages of any other role, `OTHER` by role, with a ``Slot("role")`` for its
            name, and those of the usual roles behind them, after `OTHER`. For templates that print
            any role in one form.
        unread: Markers of calls that this grammar can't read; a rendering with one of them in an
            answer is refused.
        notes: What this grammar can't read, one sentence each.
        source: Where the grammar was inferred: the template. A whole conversation that is read by it
            must be what the template prints, or is refused; see `antiphon.reading.verifying`.
    """

    name: str
    roles: tuple[RoleForm, ...]
    bos: str = ""
    prefix: str = ""
    end_tokens: tuple[str, ...] = ()
    pending_tokens: tuple[str, ...] = ()
    reasoning: ReasoningForm | None = None
    content: ContentForm | None = None
    calls: tuple[CallForm, ...] = ()
    tools: tuple[ToolsForm, ...] = ()
    generation_prompts: tuple[str, ...] = ()
    arguments: ArgumentsForm = "either"
    continued: tuple[str, ...] = ()
    empty_content: str | None = ""
    others: tuple[RoleForm, ...] = ()
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    source: Source | None = field(default=None, repr=False)

    def forms(self, role: str) -> tuple[RoleForm, ...]:
        """Return the forms of one role."""
        return tuple(form for form in self.roles if form.role == role)


def chatml_role(role: str, **options: object) -> RoleForm:
    r"""Return the ChatML form of a role: ``<|im_start|>role\n`` body ``<|im_end|>\n``."""
    return RoleForm(role, f"<|im_start|>{role}\n", "<|im_end|>\n", **options)  # type: ignore[arg-type]


CHATML_ROLES = (chatml_role("system"), chatml_role("user"), chatml_role("assistant"))
"""System, user and assistant in ChatML."""
