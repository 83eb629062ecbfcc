"""Whether calls that stand in an answer can be the template's: what it did not print is content.

A model may say something behind a call or write it in another way than the template, and somebody
may tell of one. As a call that would render to another text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from antiphon.reading.call_parts import Call
from antiphon.reading.grammar import CallForm, Grammar


def can_be_printed(
    grammar: Grammar, content: str, calls: Sequence[Call], body: str, has_tools: bool
) -> bool:
    """Whether the template prints an answer of this content and these calls so that it ends as `body`.

    White space and the markers around all calls are not looked at: with them models are free.

    Args:
        grammar: The grammar.
        content: The content, with a reasoning block that stays in it.
        calls: One call or more, as read, before a schema typed them.
        body: The answer's text, without what ends the turn; control tokens written out.
        has_tools: Whether the rendering announces tools.
    """
    forms = [call.form.form for call in calls if call.form is not None]
    form = forms[0]
    if not has_tools and any(other.announced for other in forms):
        return False
    known = {other.printed for other in forms}
    if known != {"exactly"}:
        return "never" not in known
    if any(other != form for other in forms) or (content.strip() and form.alone):
        return False
    if form.single and len(calls) > 1:
        return False
    around = grammar.content
    if around is not None:
        content = around.opener + content + around.closer
    texts = [written_call(grammar, form, call) for call in calls]
    expected = "".join([content, *(text for text in texts if text is not None)])
    if None in texts or _has_blocks(form, body, expected):
        return False
    return _solid(form, body).endswith(_solid(form, expected))


def _has_blocks(form: CallForm, body: str, said: str) -> bool:
    """Whether the calls stand in more than one block: `said` is all that is said without one."""
    opener = form.block_opener.strip()
    return bool(opener) and body.count(opener) > said.count(opener) + 1


def _solid(form: CallForm, text: str) -> str:
    """Return a text without white space and without the markers around and between calls."""
    for marker in (form.block_opener, form.block_closer, form.separator):
        if marker.strip():
            text = text.replace(marker.strip(), "")
    return "".join(text.split())


def keeps_text(grammar: Grammar, call: Call) -> bool:
    """Whether a call's arguments are given as the text that stood there: where the template takes
    text, and where it takes either and would print their value in another way.
    """
    if grammar.arguments != "either":
        return grammar.arguments == "string"
    if call.form is None or call.form.form.printed != "exactly":
        return False
    written = call.written()
    return written is not None and written != _dumped(call.arguments)


def written_call(grammar: Grammar, form: CallForm, call: Call) -> str | None:
    """Return a call, with what stands around it alone, as the template prints it; None where it prints none so."""
    inner = None
    if form.style == "json":
        arguments = _written_arguments(grammar, call)
        if arguments is not None:
            inner = (
                f'{{"{form.name_keys[0]}": "{call.name}", "{form.argument_keys[0]}": {arguments}}}'
            )
    elif form.style == "named":
        arguments = _written_arguments(grammar, call)
        if arguments is not None:
            inner = f"{call.name}{form.name_closer}{arguments}"
    elif form.style == "params":
        inner = _written_params(form, call)
    elif form.call_suffix and all(isinstance(value, str) for value in call.arguments.values()):
        shown = ", ".join(f'{key}="{value}"' for key, value in call.arguments.items())
        inner = f"{call.name}{form.call_suffix}({shown})"
    return None if inner is None else form.opener + inner + form.closer


def _written_arguments(grammar: Grammar, call: Call) -> str | None:
    """Return the text of arguments that stand there as one value, if the template prints it so."""
    written = call.written()
    if grammar.arguments == "mapping" and written != _dumped(call.arguments):
        return None
    return written


def _written_params(form: CallForm, call: Call) -> str | None:
    param = form.param
    assert param is not None  # a form of this style has one
    texts = []
    for key, value in call.arguments.items():
        flag = ""
        if param.flag_closer:
            flag = f"{'true' if isinstance(value, str) else 'false'}{param.flag_closer}"
        shown = value if isinstance(value, str) else _dumped(value)
        texts.append(f"{param.opener}{key}{param.key_closer}{flag}{shown}{param.closer}")
    return f"{call.name}{form.name_closer}{''.join(texts)}"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
