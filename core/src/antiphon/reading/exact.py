"""Reading calls that are, to the character, what a template prints at the end of an answer.

What models write is read from its beginning, with white space and markers taken as they come. Where
a content or an argument holds markers too, that reading may break off, or cut an argument in two.
A template prints one text: the first place from where on the rest is just that tells.
"""

from __future__ import annotations

from antiphon.reading.call_parts import Call, checked_name, spelled_out
from antiphon.reading.compiled import Compiled, CompiledCall
from antiphon.reading.grammar import CallForm, Grammar
from antiphon.reading.printed import written_call
from antiphon.reading.scan import Invalid, decode_json_at

_MAX_STARTS = 32
"""How many places are tried from where on the rest may be calls."""


def is_in_doubt(grammar: Grammar, calls: list[Call], body: str) -> bool:
    """Whether calls that were read from an answer's body may be others in truth: one is broken, or its
    arguments, spelled one after the other, do not stand there as the template prints them.
    """
    for call in calls:
        if call.status != "ok" or call.form is None:
            return True
        form = call.form.form
        if form.style == "params" and (written_call(grammar, form, call) or "") not in body:
            return True
    return False


def exact_calls(compiled: Compiled, body: str) -> tuple[str, list[Call]] | None:
    """Find the calls that the end of an answer's body is, as the template prints them.

    Args:
        compiled: The grammar.
        body: The body, without what ends the turn.

    Returns:
        What stands before the calls, white space of the format included, and the calls; None where
        there are none that are printed so.
    """
    for call in compiled.calls:
        form = call.form
        if form.printed != "exactly" or form.bare or form.listed or form.style == "pythonic":
            continue
        if form.param is not None and (form.param.quoted or form.param.cdata):
            continue
        opener = compiled.convert(form.opener)
        start = compiled.convert(form.block_opener) + opener
        at = body.find(start) if opener else -1
        for _ in range(_MAX_STARTS):
            if at < 0:
                break
            calls = _calls(compiled, call, body, at + len(start))
            if calls is not None:
                return body[:at], calls
            at = body.find(start, at + 1)
    return None


def _calls(compiled: Compiled, call: CompiledCall, body: str, pos: int) -> list[Call] | None:
    """Read calls, the first of which is open at `pos`, up to the end of the body."""
    form, convert = call.form, compiled.convert
    again = convert(form.separator) + convert(form.opener)
    end = convert(form.block_closer)
    found: list[Call] = []
    while True:
        read = _read(compiled, call, body, pos, (again, end))
        if read is None:
            return None
        found.append(read[0])
        pos = read[1]
        if body[pos:] == end:
            return found
        if not body.startswith(again, pos):
            return None
        pos += len(again)


def _read(
    compiled: Compiled, call: CompiledCall, body: str, pos: int, following: tuple[str, str]
) -> tuple[Call, int] | None:
    """Read a call behind its opener, and step over its closer; None where none is printed so."""
    form, convert = call.form, compiled.convert
    if form.style == "params":
        return _read_params(compiled, call, body, pos, following)
    begin, middle, closer = "", convert(form.name_closer), convert(form.closer)
    if form.style == "json":
        begin, middle = f'{{"{form.name_keys[0]}": "', f'", "{form.argument_keys[0]}": '
        closer = "}" + closer
    if not body.startswith(begin, pos):
        return None
    pos += len(begin)
    name_end = body.find(middle, pos)
    value = decode_json_at(body, name_end + len(middle)) if name_end >= 0 else None
    name = _name(call, body[pos:name_end])
    if name is None or value is None or not body.startswith(closer, value[1]):
        return None
    text = call.plain(body[name_end + len(middle) : value[1]])
    made = Call(name, spelled_out(call, value[0]), text=text, form=call)
    return made, value[1] + len(closer)


def _read_params(
    compiled: Compiled, call: CompiledCall, body: str, pos: int, following: tuple[str, str]
) -> tuple[Call, int] | None:
    form, convert = call.form, compiled.convert
    param = form.param
    assert param is not None  # a form of this style has one
    opener, key_closer, flag_closer, param_closer = map(
        convert, (param.opener, param.key_closer, param.flag_closer, param.closer)
    )
    middle, closer = convert(form.name_closer), convert(form.closer)

    def ends_at(at: int) -> bool:
        """Whether the call ends at a place, with what may follow it."""
        end = at + len(closer)
        again, last = following
        return body.startswith(closer, at) and (body.startswith(again, end) or body[end:] == last)

    name_end = body.find(middle, pos)
    name = _name(call, body[pos:name_end]) if name_end >= 0 else None
    if name is None:
        return None
    pos = name_end + len(middle)
    arguments: dict[str, object] = {}
    bare: set[str] = set()
    while not ends_at(pos):
        key_end = body.find(key_closer, pos + len(opener))
        if not body.startswith(opener, pos) or key_end < 0:
            return None
        key, start = call.plain(body[pos + len(opener) : key_end]), key_end + len(key_closer)
        flag = ""
        if flag_closer:
            flag_end = body.find(flag_closer, start)
            flag, start = body[start:flag_end], flag_end + len(flag_closer)
            if flag_end < 0 or flag not in ("true", "false"):
                return None
        end = body.find(param_closer, start)
        while end >= 0 and not (
            body.startswith(opener, end + len(param_closer)) or ends_at(end + len(param_closer))
        ):
            end = body.find(param_closer, end + 1)
        if end < 0 or "\n" in key or key in arguments:
            return None
        arguments[key] = call.plain(body[start:end])
        if flag == "false":
            value = decode_json_at(body, start)
            if value is None or value[1] != end:
                return None
            arguments[key] = spelled_out(call, value[0])
        elif not flag:
            bare.add(key)
        pos = end + len(param_closer)
    made = Call(name, arguments, untyped=frozenset(bare), form=call)
    return made, pos + len(closer)


def _name(call: CompiledCall, text: str) -> str | None:
    try:
        return checked_name(call, text)
    except Invalid:
        return None


def content_before(form: CallForm, text: str) -> str | None:
    """Return the content of which a text is left that stands before calls; None where the template
    would have put other white space between them.
    """
    if text and not text.endswith(form.lead):
        return None
    # White space alone is a content of which the template printed nothing else.
    return text.removesuffix(form.lead) or ("" if form.lead_always else text)
