r"""Finding the final number in what a model wrote, and comparing it with the reference.

Where an answer is marked (``#### 18``, ``\boxed{18}``, ``<answer>18</answer>``, "the answer is
18") the last marker that holds a number wins; without one the last number of the text counts, if
the caller allows that. Text inside ``<think>`` never counts. Values are exact
(`fractions.Fraction`), so ``18``, ``18.0`` and ``$18.00`` are equal. Where a marker points at
arithmetic (``2 * 9``, ``2^{10}``), its result is the answer.

What it does not do: number words ("eighteen"), powers of ten in words ("2 million"), algebra.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from antiphon.envs.arithmetic import NoValue, evaluate

Marker = Literal["hash", "boxed", "tag", "phrase", "number"]

_MINUS = "-−–﹣－"
_CURRENCY = r"(?:\\?[$€£¥₹₩]|(?:USD|EUR|GBP|Rs\.?)\s?)"
# 1,234 or 1 234 with a no-break or thin space, or 1'234; Indian 1,00,000 as well. A number starts
# and ends with a digit.
_GROUPED = (
    r"\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d,]*\d)"
    r"|\d{1,3}(?:[\u00a0\u2009\u202f]\d{3})+(?!\d)|\d{1,3}(?:['’]\d{3})+(?!\d)"
)
_PLAIN = rf"(?:{_GROUPED}|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?P<before>[{_MINUS}+]\s*)?(?P<currency>{_CURRENCY}\s*)?(?P<after>[{_MINUS}+])?"
    rf"(?P<number>{_PLAIN})(?P<exponent>[eE][-+]?\d+(?![\w.]))?"
    r"(?:\s?[/⁄]\s?(?P<denominator>\d+)(?![\d./])|\s(?P<part>\d+)/(?P<whole>\d+)(?![\d./]))?",
    re.ASCII,
)
# What a marker points at ends where an explanation begins; of an equation it is the right-hand
# side.
_CLAUSE_END = re.compile(r"\(|;|,\s|\.\s|\bbecause\b|\bsince\b|\bwhich\s+(?!equals)")
_EQUALS = re.compile(r"=|≈|\bequals\b")
_LATEX_MATH = re.compile(r"\\[()\[\]]")

_CLOSED_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_OPEN_THOUGHT = re.compile(r"<think(?:ing)?>.*\Z", re.DOTALL)
_STRAY_CLOSE = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL)

_HASH = re.compile(r"####+[ \t]*(?:\n\s*)?((?:(?!####)[^\n])*)")
_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_PHRASE = re.compile(
    r"\banswer\b(?:\s+to\s+[^.:\n]{0,80}?)?[*_`'\" ]{0,4}"
    r"(?:is|was|equals|:|=|would be|will be)[^\n]*",
    re.IGNORECASE,
)
_LATEX_SPACING = re.compile(r"(?<=\d)(?:\{,\}|\\[,!;:]|,\\!)(?=\d)")
_LATEX_FRACTION = re.compile(
    r"(?P<whole>(?<=\d)\s*)?\\[dtc]?frac\s*(?:\{\s*([-−]?\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)(\d))"
)
# What makes a box a formula whose first number means nothing by itself.
_FORMULA = re.compile(
    r"\\(?:log|ln|lg|exp|sqrt|binom|sum|prod|int|sin|cos|tan|pi|infty|pm|mp|overline)(?![A-Za-z])"
    r"|[\d)]\s*!"
)
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
_OTHER_SIGNS: dict[int, str] = {
    **{ord("０") + i: str(i) for i in range(10)},
    **{ord("，"): ",", ord("．"): "."},
    # 1½ is one and a half, ½ a half.
    **{
        ord(sign): " " + unicodedata.normalize("NFKC", sign).replace("⁄", "/")
        for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
    },
}


@dataclass(frozen=True)
class Answer:
    """A number found in a text.

    Attributes:
        value: The exact value; a percent sign or a currency does not change it. None for what is an
            expression or a number without one: it equals no reference.
        text: The number as it was written.
        marker: What pointed at it; ``"number"`` where nothing did.
        position: Where the marker (or the number) begins in the text that counts.
        payload: All that the marker points at.
    """

    value: Fraction | None
    text: str
    marker: Marker
    position: int
    payload: str = ""


def visible_text(text: str) -> str:
    """Return ``text`` without reasoning blocks.

    An unclosed block hides all that follows it; a closing tag without an opening one (the prompt
    had opened the block) hides all that precedes it.
    """
    text = _CLOSED_THOUGHT.sub(" ", text)
    text = _OPEN_THOUGHT.sub(" ", text)
    return _STRAY_CLOSE.sub(" ", text)


def has_thought(text: str) -> bool:
    """Return whether ``text`` holds a finished reasoning block that is not empty."""
    head, closed, _ = text.partition("</think>")
    return bool(closed) and bool(head.rpartition("<think>")[2].strip())


def extract_answer(
    text: str,
    *,
    fallback: bool = True,
    markers: tuple[Marker, ...] = ("hash", "boxed", "tag", "phrase"),
) -> Answer | None:
    """Return the final answer of ``text``, or None.

    Args:
        text: The assistant's text, with or without its reasoning.
        fallback: Whether the last number counts where no marker holds one.
        markers: The markers that count. ``####``, boxed and tags go before phrases.
    """
    text = _LATEX_SPACING.sub(
        lambda match: "," if "," in match[0] else "", visible_text(text).translate(_OTHER_SIGNS)
    )
    text = _LATEX_FRACTION.sub(_plain_fraction, text)
    explicit: list[tuple[int, str, Marker]] = []
    if "hash" in markers:
        explicit += [(m.start(), m[1], "hash") for m in _HASH.finditer(text)]
    if "tag" in markers:
        explicit += [(m.start(), m[1], "tag") for m in _TAG.finditer(text)]
    if "boxed" in markers:
        explicit += [(start, payload, "boxed") for start, payload in _boxes(text)]
    explicit.sort(key=lambda found: found[0], reverse=True)
    if "phrase" in markers:
        phrases = [(m.start(), m[0], "phrase") for m in _PHRASE.finditer(text)]
        explicit += reversed(phrases)  # type: ignore[arg-type]
    for position, payload, marker in explicit:
        number = _pointed_at(payload, marker)
        if number is not None:
            return Answer(number[0], number[1], marker, position, payload)
    if fallback:
        last = None
        for match in _NUMBER.finditer(text):
            last = match
        if last is not None:
            return Answer(*_value(last, text), marker="number", position=last.start())
    return None


def reference_answer(text: str) -> Fraction:
    """Return the value of a reference: a GSM8K solution (``... #### 18``) or a bare number.

    Raises:
        ValueError: There is no number in it.
    """
    answer = extract_answer(text, markers=("hash",)) if "####" in text else extract_answer(text)
    if answer is None or answer.value is None:
        raise ValueError(f"no number in the reference answer {text[-80:]!r}")
    return answer.value


def is_right(answer: Answer | None, reference: Fraction) -> bool:
    """Return whether the answer's value is exactly the reference."""
    return answer is not None and answer.value == reference


def _boxes(text: str) -> Iterator[tuple[int, str]]:
    for match in _BOXED.finditer(text):
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield match.start(), text[match.end() : end - (depth == 0)]


def _plain_fraction(match: re.Match[str]) -> str:
    space = "" if match["whole"] is None else " "
    return f"{space}{match[2] or match[4]}/{match[3] or match[5]}"


def _pointed_at(payload: str, marker: Marker) -> tuple[Fraction | None, str] | None:
    """Return the number a marker points at: the first, or the result of the equation it begins."""
    payload = _LATEX_MATH.sub(" ", _LATEX_TEXT.sub(r" \1 ", payload))
    clause = _CLAUSE_END.split(payload, maxsplit=1)[0]
    # A box holds mathematics, where a parenthesis explains nothing.
    result = _EQUALS.split(payload if marker == "boxed" else clause)[-1]
    try:
        # In a sentence words that follow make a dash or a plus part of it: "18 - 2 more than before".
        value = evaluate(result, words=marker != "phrase")
    except NoValue:
        return None, result.strip()
    if value is not None or (marker == "boxed" and _FORMULA.search(result)):
        return value, result.strip()
    for part in [*reversed(_EQUALS.split(clause)), payload]:
        match = _NUMBER.search(part)
        if match is not None:
            return _value(match, part)
    return None


def _value(match: re.Match[str], text: str) -> tuple[Fraction | None, str]:
    digits = re.sub(r"[,'’\u00a0\u2009\u202f]", "", match["number"])
    exponent = match["exponent"][1:] if match["exponent"] else "0"
    if max(map(len, (digits, match["denominator"] or "", match["whole"] or ""))) > 400 or (
        abs(int(exponent[:6])) > 400
    ):
        # Nothing a reference could be, and 1e999999999 must not be built.
        return None, match[0].strip()
    value = Fraction(digits) * Fraction(10) ** int(exponent)
    if match["denominator"] and int(match["denominator"]):
        value /= int(match["denominator"])
    elif match["part"] and int(match["whole"]):
        value += Fraction(int(match["part"]), int(match["whole"]))
    return (-value if _is_negative(match, text) else value), match[0].strip()


def _is_negative(match: re.Match[str], text: str) -> bool:
    if match["after"] and match["after"] in _MINUS:
        # "$-5", or the sign stands right before the digits because there is no currency.
        return bool(match["currency"]) or _sign_stands(
            match, text, match.start("after"), spaced=False
        )
    if match["before"] and match["before"][0] in _MINUS:
        spaced = match["before"][-1:].isspace()
        return _sign_stands(match, text, match.start("before"), spaced=spaced)
    return re.search(r"\bnegative\s\Z", text[: match.start()], re.IGNORECASE) is not None


def _sign_stands(match: re.Match[str], text: str, at: int, *, spaced: bool) -> bool:
    """Return whether a minus at ``at`` is a sign, not a hyphen, a subtraction or a bullet."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    before = line.rstrip()
    if not before:
        # The payload of a marker starts here, or a line does: "- 3" at the start of a line is a
        # bullet.
        return not spaced or "\n" not in text
    touching = before == line
    if touching and (before[-1].isalnum() or before[-1] in ")]}%"):
        return False
    if before[-1].isdigit() or before[-1] in ")]}%":
        return False
    return not spaced or before[-1] in "=:(*$"
