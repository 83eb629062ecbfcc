"""Exact values of short arithmetic: what a final answer may be where it is no plain number.

It knows ``+ - * / ^``, parentheses, square roots of squares, and these in LaTeX. What it does not
know (variables, logarithms, roots that are no fraction) has no value here.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import isqrt

_MOST_DIGITS, _HIGHEST_POWER = 40, 64

_FRACTION = re.compile(
    r"\\[dtc]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))",
)
_ROOT = re.compile(r"\\sqrt\s*(?:\{([^{}]*)\}|(\d))|√\s*(?:\(([^()]*)\)|(\d+))")
_POWER = re.compile(r"\^\s*\{([^{}]*)\}")
_WORDS = str.maketrans({"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"})
_COMMANDS = {
    r"\times": "*",
    r"\cdot": "*",
    r"\div": "/",
    r"\left": "",
    r"\right": "",
    r"\$": "",
    "$": "",
    "**": "^",
    r"\,": "",
    r"\!": "",
    "{,}": "",
}
_LEADING = re.compile(r"\A[\sA-Za-z:*_`'\"]*?(?=[\d(+\-.]|sqrt\()")
_TRAILING = re.compile(r"(?:[\sA-Za-z.,;:!?%°_`'\"]|\*\*+)*\Z")
_TOKEN = re.compile(r"\s*(sqrt|\d+(?:,\d{3})*(?:\.\d+)?|\.\d+|[-+*/^()x])")


class NoValue(ArithmeticError):
    """The text is arithmetic, and has no value that is a fraction of bounded size."""


def evaluate(text: str, *, words: bool = True) -> Fraction | None:
    """Return the value of an arithmetic expression, or None where the text is none.

    A single number is no expression: how signs and units stand around one is a matter of text.

    Args:
        text: An expression, with words before it.
        words: Whether words may follow it, such as a unit.

    Raises:
        NoValue: It is one without such a value: a root that is no fraction, a division by zero.
    """
    if len(text) > 400:
        return None
    plain = _plain(text)
    plain = _LEADING.sub("", plain, count=1)
    plain = _TRAILING.sub("", plain) if words else plain.rstrip(" .*_")
    tokens = _tokens(plain)
    if tokens is None:
        return None
    reader = _Reader(tokens)
    try:
        value = reader.sum()
    except _NoExpression:
        return None
    if reader.at < len(tokens) or reader.operations == 0:
        return None
    return value


def _plain(text: str) -> str:
    """Return LaTeX arithmetic in plain signs."""
    text = text.translate(_WORDS)
    for command, sign in _COMMANDS.items():
        text = text.replace(command, sign)
    for _ in range(8):
        before = text
        text = _POWER.sub(r"^(\1)", text)
        text = _FRACTION.sub(lambda m: f"(({m[1] or m[2]})/({m[3] or m[4]}))", text)
        text = _ROOT.sub(lambda m: f"sqrt({m[1] or m[2] or m[3] or m[4]})", text)
        if text == before:
            break
    return text


def _tokens(text: str) -> list[str] | None:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        found.append(match[1])
        at = match.end()
    return found


class _NoExpression(Exception):
    """The tokens make no expression."""


class _Reader:
    """Reads tokens by the usual precedence; powers are right-associative."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.operations = tokens, 0, 0

    def sum(self) -> Fraction:
        value = self.product()
        while self._next() in ("+", "-"):
            sign = self._take()
            other = self.product()
            value = value + other if sign == "+" else value - other
        return value

    def product(self) -> Fraction:
        value = self.signed()
        while (sign := self._next()) in ("*", "x", "/", "(", "sqrt"):
            self.operations += 1
            if sign in ("*", "x", "/"):
                self.at += 1
            other = self.signed()
            if sign == "/" and other == 0:
                raise NoValue("a division by zero")
            value = value / other if sign == "/" else value * other
        return _bounded(value)

    def signed(self) -> Fraction:
        if self._next() in ("+", "-"):
            sign = self.tokens[self.at]
            self.at += 1
            value = self.signed()
            return -value if sign == "-" else value
        return self.power()

    def power(self) -> Fraction:
        base = self.operand()
        if self._next() != "^":
            return base
        self._take()
        exponent = self.signed()
        if exponent.denominator != 1 or abs(exponent) > _HIGHEST_POWER:
            raise NoValue("a power that is no small whole number")
        if base == 0 and exponent < 0:
            raise NoValue("a division by zero")
        return _bounded(base**exponent.numerator)

    def operand(self) -> Fraction:
        token = self._next()
        if token == "sqrt":
            self._take()
            return _root(self._inside())
        if token == "(":
            return self._inside()
        if token is None or not (token[0].isdigit() or token[0] == "."):
            raise _NoExpression
        self.at += 1
        if len(token) > _MOST_DIGITS:
            raise NoValue("a number of very many digits")
        return Fraction(token.replace(",", ""))

    def _inside(self) -> Fraction:
        if self._next() != "(":
            raise _NoExpression
        self.at += 1
        value = self.sum()
        if self._next() != ")":
            raise _NoExpression
        self.at += 1
        return value

    def _next(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _take(self) -> str:
        self.operations += 1
        self.at += 1
        return self.tokens[self.at - 1]


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator).bit_length() > 4 * _MOST_DIGITS:
        raise NoValue("a number of very many digits")
    return value


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise NoValue("a root of a negative number")
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    if root * root != value:
        raise NoValue("a root that is no fraction")
    return root
