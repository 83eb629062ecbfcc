"""Streams hold back what may become a marker, whichever of the markers is the longest."""

from __future__ import annotations

import pytest
from antiphon import parse_response, stream_parser
from antiphon.reading import CallForm, Grammar, ReasoningForm, RoleForm


@pytest.mark.parametrize("size", [1, 4, 20])
@pytest.mark.parametrize("longest", ["closer", "end", "call"])
def test_stream_of_single_characters_reads_what_is_read_at_once(longest: str, size: int) -> None:
    words = {name: "x" * (size if name == longest else 2) for name in ("closer", "end", "call")}
    end, call = f"[[/{words['end']}]]", f"[[{words['call']}]]"
    grammar = Grammar(
        name="kea",
        roles=(
            RoleForm("user", "[[user]]\n", f"{end}\n"),
            RoleForm("assistant", "[[assistant]]\n", f"{end}\n"),
        ),
        reasoning=ReasoningForm("[[mull]]", f"[[-{words['closer']}]]\n"),
        calls=(CallForm("json", opener=call, closer="[[!]]"),),
        end_tokens=(end,),
    )
    text = (
        f"[[mull]]a [[ b[[-{words['closer']}]]\nAn [[answer."
        f'{call}{{"name": "f", "arguments": {{"x": 1}}}}[[!]]{end}'
    )
    at_once = parse_response(text, family=grammar)
    assert (at_once["reasoning_content"], at_once["content"]) == ("a [[ b", "An [[answer.")
    assert at_once["tool_calls"]
    parser = stream_parser(family=grammar)
    for char in text:
        parser.feed(char)
    assert parser.close() == at_once
