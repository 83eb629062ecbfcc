"""Reading one tool call, in each of the four styles, in text that may still grow.

A reader stands at the first character after the call's opener and says one of four things: what
the call is and where it ends; that more text is needed; that no such call stands there and why.
Which of them depends on the text alone, never on how it was cut.
"""

from __future__ import annotations

from antiphon.reading.call_objects import read_json, read_named
from antiphon.reading.call_params import read_params
from antiphon.reading.call_parts import (
    Call,
    Found,
    Progress,
    arguments_text,
    name_of,
    step,
)
from antiphon.reading.call_python import read_fixed, read_pythonic
from antiphon.reading.compiled import CompiledCall

__all__ = ["Call", "Found", "Progress", "arguments_text", "name_of", "read_call", "step"]


def read_call(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    """Read the call whose opener ends at `pos`.

    Args:
        call: The form.
        text: The text.
        pos: Where the call's opener ends.
        final: No more text will come.
        progress: What earlier looks at the same call left.

    Returns:
        The calls (more than one where a list stands) and their end, closer included; None where
        more text is needed, or, if `final`, where the text was cut off.

    Raises:
        Invalid: No such call stands there.
    """
    form = call.form
    if form.fixed_name:
        return read_fixed(call, text, pos, final)
    if form.style == "json":
        return read_json(call, text, pos, final, progress)
    if form.style == "named":
        return read_named(call, text, pos, final, progress)
    if form.style == "params":
        return read_params(call, text, pos, final, progress)
    return read_pythonic(call, text, pos, final, progress)
