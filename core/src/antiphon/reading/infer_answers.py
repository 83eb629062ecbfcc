"""Reading the inside of an answer off a template: reasoning, calls, tool results."""

from __future__ import annotations

from antiphon.reading.grammar import Grammar
from antiphon.reading.infer_turns import Turns
from antiphon.reading.probing import Prober


def add_answers(grammar: Grammar, prober: Prober, turns: Turns) -> Grammar:
    """Return the grammar with what stands inside answers."""
    return grammar
