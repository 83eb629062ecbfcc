"""Each reason of drift is told on every real tokenizer and on templates of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import antiphon
import pytest
from antiphon.drift import drift_of
from antiphon.errors import AntiphonError
from rendering_helpers import TOKENIZERS, hub_templates, tokenizer

ASK = {"role": "user", "content": "How deep is the lake?"}
SAID = [ASK, {"role": "assistant", "content": "Ninety metres."}]
THOUGHT = "<think>\nIt was measured.\n</think>\n\n"

Case = tuple[str, list[Any], list[int], set[str]]


def ids_of(own: Any, text: str) -> list[int]:
    return list(own.encode(text, add_special_tokens=False))


def of_answers(own: Any, source: str) -> Iterator[Case]:
    """Yield a plain answer with ids that another stack may have stored, and the reasons to be told."""
    rendering = antiphon.render(SAID, own, chat_template=source)
    made = rendering.tokenize()
    ids, mask = made.input_ids, made.assistant_mask
    yield "same", SAID, ids, set()
    spaced = [ASK, {"role": "assistant", "content": "Ninety  metres."}]
    other = antiphon.render(spaced, own, chat_template=source).tokenize().input_ids
    if other != ids:  # some templates squeeze white space
        yield "white space", SAID, other, {"white space"}
    place = max((i for i, token in enumerate(ids) if "etres" in own.decode([token])), default=None)
    if place is not None:
        word = own.decode([ids[place]])
        cut = [*ids[:place], *ids_of(own, word[:3]), *ids_of(own, word[3:]), *ids[place + 1 :]]
        if cut != ids and own.decode(cut) == own.decode(ids):
            yield "merged tokens", SAID, cut, {"merged tokens"}
    if True not in mask:
        return
    start, last = mask.index(True), len(mask) - 1 - mask[::-1].index(True)
    if rendering.turns[-1].closed:
        yield "truncated", SAID, ids[: last - 3], {"truncated"}
        if last + 1 == len(ids):
            yield "end token", SAID, ids[:last], {"end token", "truncated"}
    if "<think>" not in rendering.text:
        thinking = [*ids[:start], *ids_of(own, THOUGHT), *ids[start:]]
        yield "stripped reasoning", SAID, thinking, {"stripped reasoning"}


def of_calls(own: Any, source: str) -> Iterator[Case]:
    """Yield calls that are stored as Python writes them, or in another order."""
    for arguments in ({"all": True, "none": None}, {"all": "x", "b": "y"}):
        function = {"name": "find", "arguments": arguments}
        call = {"id": "abcdefghi", "type": "function", "function": function}
        messages = [ASK, {"role": "assistant", "content": "", "tool_calls": [call]}]
        rendering = antiphon.render(messages, own, chat_template=source)
        made = rendering.tokenize()
        ids, mask = made.input_ids, made.assistant_mask
        if True not in mask:
            continue
        start, end = mask.index(True), len(mask) - mask[::-1].index(True)
        body = rendering.text[rendering.turns[-1].start : rendering.turns[-1].end]
        if "all" in arguments and arguments["all"] is True:
            python = body.replace("true", "True").replace("null", "None")
            json = body.replace("True", "true").replace("None", "null")
            written, kind = (json if python == body else python), "booleans"
        else:
            swapped = body.replace('"all"', '"other"').replace('"b"', '"all"')
            written, kind = swapped.replace('"other"', '"b"'), "rewritten call"
        if written != body:
            yield kind, messages, [*ids[:start], *ids_of(own, written), *ids[end:]], {kind}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_each_reason_is_told_on_every_tokenizer_and_kind_of_template(name: str) -> None:
    own = tokenizer(name)
    told: Counter[str] = Counter()
    for template, source in list(hub_templates().items())[7::37]:
        for cases in (of_answers, of_calls):
            try:
                found = list(cases(own, source))
            except (
                AntiphonError
            ):  # the template refuses calls, or conversations without a system text
                continue
            for kind, messages, ids, reasons in found:
                row = {"messages": messages, "input_ids": ids}
                drift = drift_of(row, own, chat_template=source)
                whys = {each.why for each in drift.differences}
                assert whys <= reasons, (template, kind, drift.differences[:2])
                assert bool(whys) == bool(reasons), (template, kind)
                told[kind] += 1
    for kind in ("same", "white space", "merged tokens", "truncated", "stripped reasoning"):
        assert told[kind] >= 15, told
    for kind in ("booleans", "rewritten call"):
        assert told[kind] >= 3, told
