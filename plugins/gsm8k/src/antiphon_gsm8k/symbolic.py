"""Answers that are formulas, judged with math-verify where it is installed.

Core evaluates arithmetic by itself. What is left are logarithms, binomials, sums of roots and the
like: math-verify reads their LaTeX and SymPy compares. Neither has bounds of its own in a thread, so
only short formulas of known commands and small numbers are handed to them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec

_KNOWN = re.compile(
    r"\\(?:[dtc]?frac|sqrt|cdot|times|div|left|right|log|ln|binom|pi|pm|sin|cos|tan|text|mathrm|quad"
    r"|[,!; ])"
)
# What core can't evaluate; anything else it has understood already, as words or several numbers too.
_MORE_THAN_ARITHMETIC = re.compile(r"\\(?:sqrt|log|ln|binom|sin|cos|tan|pi)(?![A-Za-z])|!")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)")
_LONGEST, _MOST_DIGITS = 120, 12


def is_formula(text: str) -> bool:
    """Return whether a text is a formula, more than arithmetic, that is safe to evaluate."""
    if not _MORE_THAN_ARITHMETIC.search(text):
        return False
    if len(text) > _LONGEST or text.count("^") > 3:
        return False
    if not all(_KNOWN.fullmatch(command) for command in _COMMAND.findall(text)):
        return False
    if any(len(digits) > _MOST_DIGITS for digits in re.findall(r"\d+", text)):
        return False
    # A tower of powers, or a power or factorial of a large number, has no bound.
    powers = re.findall(r"\^\s*\{?\s*([^\s{}]*)", text)
    if any(not re.fullmatch(r"-?\d{1,2}|\\frac|\d\d?/\d\d?", power) for power in powers):
        return False
    return all(int(number) <= 20 for number in re.findall(r"(\d+)\s*\}?!", text))


@lru_cache(maxsize=1)
def is_installed() -> bool:
    """Return whether math-verify is there."""
    return find_spec("math_verify") is not None


@lru_cache(maxsize=4096)
def equals(formula: str, value: Fraction) -> bool:
    """Return whether a LaTeX formula has exactly this value; False where that can't be found out."""
    if not is_installed() or not is_formula(formula):
        return False
    import sympy
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    read = parse(
        f"$\\boxed{{{formula}}}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        raise_on_error=False,
        parsing_timeout=None,
    )
    wanted = sympy.Rational(value.numerator, value.denominator)
    return any(
        bool(verify(wanted, [each], timeout_seconds=None, raise_on_error=False))
        for each in read
        if isinstance(each, sympy.Expr) and each.is_number
    )
