r"""Finding the final number in what a model wrote, and comparing it with the reference.

Where an answer is marked (``#### 18``, ``\boxed{18}``, ``<answer>18</answer>``, "the answer is
18") the last marker that holds a number wins; without one the last number of the text counts, if
the caller allows that. Text inside ``<think>`` never counts. Values are exact
(`fractions.Fraction`), so ``18``, ``18.0`` and ``$18.00`` are equal. Where a marker points at
arithmetic (``2 * 9``, ``2^{10}``), its result is the answer. What breaks off ("12 +", "12,", an
open box), what leaves a choice ("12 or 13") and what is more than its first number ("12 + x",
"3:30") has no value.

What it does not do: number words ("eighteen"), sums of units ("3 dollars and 50 cents"), algebra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from antiphon.envs.answer_text import plain_text
from antiphon.envs.arithmetic import NoValue, evaluate

Marker = Literal["hash", "boxed", "tag", "phrase", "number"]

_MINUS = "–-"  # in a class of signs it stands last
_CURRENCY = r"(?:\\?[$€£¥₹₩]|(?:USD|EUR|GBP|Rs\.?)\s?)"
# 1,234 or 1'234; Indian 1,00,000 as well. A number starts and ends with a digit.
_GROUPED = r"\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d,]*\d)|\d{1,3}(?:['’]\d{3})+(?!\d)"
_PLAIN = rf"(?:{_GROUPED}|\d+)(?:\.\d+)?|(?<!\d)\.\d+"
_NUMBER = re.compile(
    rf"(?<![A-Za-z_^])(?P<before>[+{_MINUS}]\s*)?(?P<currency>{_CURRENCY}\s*)?(?P<after>[+{_MINUS}])?"
    rf"(?P<number>{_PLAIN})(?P<exponent>[eE][-+]?\d+(?![\w.]))?"
    r"(?:\s?[/⁄]\s?(?P<denominator>\d+)(?![\d./])"
    r"|\s(?:and\s)?(?P<part>\d+)/(?P<whole>\d+)(?![\d./]))?",
    re.ASCII,
)
_SIMPLE = rf"(?:[+{_MINUS}]\s*)?(?:{_CURRENCY}\s*)?(?:{_PLAIN})"
_UNIT = r"\s*(?:[A-Za-z°%.]+\s*){0,2}?"

# What follows a number that is not the whole of what is meant.
_GOES_ON = re.compile(
    rf"[:.,]\d|\^(?!\s*\{{?\s*\\circ)|\(\s*[\d(]|{_UNIT}(?:"
    r"[+×·⋅÷]|\*(?!\*)(?<!\*\*)|\\(?:times|cdot|div|pm)(?![A-Za-z])|/\s*[\d(]"
    rf"|\b(?:or|to|and|through|plus|minus|times|over|divided\s+by)\s+(?:[A-Za-z]\s*=\s*)?{_SIMPLE}"
    r"|\band\s+(?:a|one)\s+(?:half|third|quarter)\b)"
)
# Hours and minutes, feet and inches: two numbers of one quantity.
_UNITS = re.compile(
    rf"\A\D*{_SIMPLE}(?:'\s?\d\d?(?!\d)|\s?h\s?\d\d?\b"
    r"|\s*(?!(?:in|for|per|after|every|over|by|at|of|on|with|but|not)\b)[A-Za-z]+\.?,?\s*\d+\s*"
    r"(?:m|mins?|minutes?|s|secs?|seconds?|days?|months?|cents?|in|inch|inches|oz|ounces?|grams?)\b"
    r"\s*\.?\s*\Z)"
)
_TAKES_AWAY = re.compile(rf"{_UNIT}[{_MINUS}]\s*{_CURRENCY}?\s*\d")
# What stands before a number that is none by itself, and before one that is not meant.
_COMPARED = re.compile(r"(?:[<>≤≥±]|\\(?:[gl]eq?|gt|lt|pm))\s*\Z")
_DENIED = re.compile(r"(?:\bnot|n['’]t)\s+(?:be\s+)?\Z", re.IGNORECASE)
# "12, 13" and "x = 12, y = 13"; "18, 6 of them a day" is an explanation.
_LIST = re.compile(
    rf"\A[^\d,;]*{_SIMPLE}\s*(?:,\s|;)\s*(?:(?:and|or)\s)?(?:[A-Za-z]\w*\s*=\s*)?{_SIMPLE}"
    rf"(?:\s*(?:,\s|;)\s*(?:[A-Za-z]\w*\s*=\s*)?{_SIMPLE})*\s*[A-Za-z]*[\s).]*\Z"
)
# What waits for something that has not come.
_DANGLING = re.compile(
    rf"(?:[+/^=≈×·⋅÷{_MINUS}]|(?<!\*)\*|\\(?:times|cdot|div|pm)|\d\s+x|\d[eE])\s*[$€£]?\s*\Z"
    r"|\A\s*[$€£]\s*\Z"
)
_DANGLING_GROUP = re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})*,\d{0,2}\s*\Z")
_DANGLING_LINE = re.compile(
    rf"\A[ \t%°)]*(?:[A-Za-z]+[ \t]*){{0,2}}(?:[+/^=≈×·⋅÷{_MINUS}]|(?<!\*)\*|\d[ \t]+x)"
    r"[ \t]*[$€£]?\s*\Z|=\s*[$€£]?\s*\Z"
)
_CURRENCY_END = re.compile(r"\s[$€£]\s*\Z")
_NEGATIVE = re.compile(r"(?:\bnegative|(?:\A|\bis|\bof|[:=(])\s*minus)\s\Z", re.IGNORECASE)
_BRACE = re.compile(r"[{}]")
_DIGIT = re.compile(r"\d")

# What a marker points at ends where an explanation begins; of an equation it is the right-hand
# side.
_CLAUSE_END = re.compile(r";|,\s|\.\s|\bbecause\b|\bsince\b|\bwhich\s+(?!equals)")
_EXPLAINS = re.compile(r"[^()]*(?:(?<!\\)\b(?!sqrt|frac)[A-Za-z]{2,}|[=≈])")
_EQUALS = re.compile(r"[=-]>|→|⇒|\\(?:[Rr]ightarrow|implies|approx)(?![A-Za-z])|=|≈|\bequals\b")
_LATEX_MATH = re.compile(r"\\[()\[\]]")
_HTML = re.compile(r"</?[A-Za-z][^<>]*>")
_BRACKETED = re.compile(r"<([^<>]*)>")
# Blanks between groups of three digits, where a marker points at the number.
_BLANK_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d-])")
# "Step 3:" names a step, "#### 2. Add up" heads a section.
_LABEL = re.compile(r"\A[\s*_]*[A-Za-z]+\s+\d+\s*:(?=\s)")
_HEADING = re.compile(r"\A\s*\d{1,2}[.)]\s+[A-Za-z]")
# Of "after 3 days it is 18" the second number is meant.
_STATED = re.compile(
    rf"\b(?:is|are|was|were|be|becomes|has|have|had|makes?|equals|totals?(?:\s+of)?)\s+"
    rf"(?:about\s+|only\s+|now\s+|still\s+)?(?={_SIMPLE})",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|\n+")
_WORDS_FIRST = re.compile(r"\s*[A-Za-z]{2,}\s")
# Times, ratios, dates and versions, which are no numbers.
_COMPOUND = re.compile(
    r"(?<![\d.:])\d+(?::\d+)+|\b\d{4}-\d\d?-\d\d?\b|\b\d\d?/\d\d?/\d{2,4}\b"
    r"|(?<![\d.])\d+(?:\.\d+){2,}|\b\d+\^\d+"
)

# An answer is short, and stands near the end: the work on any text is bounded.
_LONGEST, _MOST_MARKS = 2000, 100

_CLOSED_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_OPEN_THOUGHT = re.compile(r"<think(?:ing)?>.*\Z", re.DOTALL)
_STRAY_CLOSE = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL)

_HASH = re.compile(r"####+[ \t]*(?:\n\s*)?((?:(?!####)[^\n])*)")
_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_PHRASE = re.compile(
    r"\banswer\b(?:\s+(?:to|for|of|in|on)\s+[^.:\n]{0,80}?)?[*_`'\" ]{0,4}"
    r"(?:is|was|equals|:|=|would be|will be)([^\n]*)",
    re.IGNORECASE,
)
_NOTHING = re.compile(r"[\s:=$€£*_`'\"+-]*\Z")
# What makes a box a formula whose first number means nothing by itself.
_FORMULA = re.compile(
    r"\\(?:log|ln|lg|exp|sqrt|binom|sum|prod|int|sin|cos|tan|pi|infty|pm|mp|overline)(?![A-Za-z])"
    r"|[\d)]\s*!"
)
_LATEX_TEXT = re.compile(r"\\(?:text|math|m)(?:bf|it|rm|sf|tt|normal|up|box)?\s*\{([^{}]*)\}")


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
        is_complete: False for what breaks off, which is no answer.
    """

    value: Fraction | None
    text: str
    marker: Marker
    position: int
    payload: str = ""
    is_complete: bool = True


class _Mark(NamedTuple):
    """A marker and what it points at; ``is_open``: more of that may have been to come."""

    position: int
    end: int
    payload: str
    marker: Marker
    is_open: bool


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
    text = plain_text(visible_text(text))
    explicit = sorted(_marks(text, markers), reverse=True)
    phrases = list(_phrases(text))[::-1] if "phrase" in markers else []
    for mark in [*explicit[:_MOST_MARKS], *phrases[:_MOST_MARKS]]:
        found = _pointed_at(mark, text)
        if found is not None:
            value, written, is_complete = found
            return Answer(value, written, mark.marker, mark.position, mark.payload, is_complete)
    if not fallback:
        return None
    # A marker that holds something else than a number, or nothing yet, takes back what stands
    # before it.
    begin = max((mark.end for mark in explicit if mark.is_open or mark.marker != "hash"), default=0)
    if phrases and phrases[0].is_open and _NOTHING.match(phrases[0].payload):
        begin = len(text)
    return _last_number(text, begin)


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


def _marks(text: str, markers: tuple[Marker, ...]) -> Iterator[_Mark]:
    """Yield what ``####``, tags and boxes point at."""
    if "hash" in markers:
        for match in _HASH.finditer(text):
            yield _Mark(*match.span(), match[1], "hash", not text[match.end() :].strip())
    if "tag" in markers:
        for match in _TAG.finditer(text):
            is_open = not match[0].lower().endswith("</answer>")
            yield _Mark(*match.span(), match[1], "tag", is_open)
    if "boxed" in markers:
        ends = _closing_braces(text)
        for match in _BOXED.finditer(text):
            end = ends.get(match.end() - 1)
            whole = len(text) if end is None else end
            payload = text[match.end() : min(whole, match.end() + _LONGEST)]
            yield _Mark(match.start(), whole + (end is not None), payload, "boxed", end is None)


def _closing_braces(text: str) -> dict[int, int]:
    """Return where each brace that is closed is closed."""
    opened: list[int] = []
    ends = {}
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            ends[opened.pop()] = match.start()
    return ends


def _phrases(text: str) -> Iterator[_Mark]:
    for match in _PHRASE.finditer(text):
        yield _Mark(*match.span(), match[1], "phrase", not text[match.end() :].strip())


def _pointed_at(mark: _Mark, text: str) -> tuple[Fraction | None, str, bool] | None:
    """Return the value a marker points at, how it is written, and whether it is complete.

    That is the first number, or the result of the equation it begins; None where there is no number.
    """
    payload = _readable(mark.payload[:_LONGEST])
    if mark.marker == "hash" and _HEADING.match(payload) and _DIGIT.search(text, mark.end):
        return None
    if mark.marker in ("hash", "phrase"):
        payload = _LABEL.sub("", payload)
    if mark.marker == "tag" and _WORDS_FIRST.match(payload):
        told = [part for part in _SENTENCE.split(payload) if _first_number(part) is not None]
        payload = told[-1] if told else payload
    if _first_number(payload) is None:
        return None
    clause = _clause(payload)
    # A box holds mathematics, where a parenthesis explains nothing.
    whole = payload if mark.marker == "boxed" else clause
    if _breaks_off(whole, mark):
        return None, whole.strip(), False
    if _LIST.match(payload) or _UNITS.match(payload):
        return None, payload.strip(), True
    result = _EQUALS.split(whole)[-1]
    try:
        # In a sentence words that follow make a dash or a plus part of it: "18 - 2 more than before".
        value = evaluate(result, words=mark.marker != "phrase")
    except NoValue:
        return None, result.strip(), True
    if value is not None or (mark.marker == "boxed" and _FORMULA.search(result)):
        return value, result.strip(), True
    unclear = None
    for part in [*reversed(_EQUALS.split(clause)), payload]:
        match = _meant_number(part)
        if match is None:
            continue
        if not _stands_alone(match, part, mark.marker):
            unclear = unclear or (None, part.strip(), True)
            continue
        return *_value(match, part), True
    return unclear


def _readable(payload: str) -> str:
    """Return a payload without LaTeX's and HTML's markup."""
    payload = _LATEX_MATH.sub(" ", _LATEX_TEXT.sub(r" \1 ", payload))
    payload = payload.replace(">=", "≥").replace("<=", "≤")
    payload = _BRACKETED.sub(r" \1 ", _HTML.sub(" ", payload))
    return _BLANK_GROUPS.sub(lambda match: match[0].replace(" ", ""), payload).rstrip()


def _clause(payload: str) -> str:
    """Return a payload up to where an explanation begins."""
    found = _CLAUSE_END.search(payload)
    end = len(payload) if found is None else found.start()
    for at in (match.start() for match in re.finditer(r"\(", payload[:end])):
        before = payload[:at].rstrip()
        is_factor = not before or before[-1] in "+-*/^=(×·⋅÷−–" or before.endswith(("left", "sqrt"))
        is_factor = is_factor or (len(before) == at and before[-1] in "0123456789)")
        if not is_factor or _EXPLAINS.match(payload, at + 1):
            return payload[:at]
    return payload[:end]


def _breaks_off(whole: str, mark: _Mark) -> bool:
    if mark.marker == "boxed" and mark.is_open:
        return True
    if whole.count("{") > whole.count("}") or whole.count("(") > whole.count(")"):
        return True
    if mark.is_open and _DANGLING_GROUP.search(whole[-60:]):
        return True
    return _DANGLING.search(whole) is not None


def _first_number(part: str) -> re.Match[str] | None:
    """Return the first number that is not denied ("not 12")."""
    return next((match for match in _NUMBER.finditer(part) if not _is_denied(match, part)), None)


def _meant_number(part: str) -> re.Match[str] | None:
    """Return the number that a sentence states, else its first one."""
    stated = _STATED.search(part) if _WORDS_FIRST.match(part) else None
    return _first_number(part) if stated is None else _NUMBER.search(part, stated.end())


def _is_denied(match: re.Match[str], text: str) -> bool:
    return _DENIED.search(text[max(0, match.start() - 12) : match.start()]) is not None


def _stands_alone(match: re.Match[str], part: str, marker: Marker) -> bool:
    """Return whether a number is the whole of what is meant, not the beginning of more."""
    if _COMPARED.search(part[: match.start()]) or _GOES_ON.match(part, match.end()):
        return False
    return marker == "phrase" or _TAKES_AWAY.match(part, match.end()) is None


def _last_number(text: str, begin: int) -> Answer | None:
    """Return the last number of a text behind ``begin``."""
    text = _COMPOUND.sub(lambda match: " " * len(match[0]), text)
    last = None
    for match in _NUMBER.finditer(text, begin):
        if not _is_denied(match, text):
            last = match
    if last is None:
        return None
    rest = text[last.end() :]
    pays = _CURRENCY_END.search(rest) and (rest.count("$") != 1 or text.count("$") % 2)
    if pays or _DANGLING_LINE.search(rest) or _DANGLING_GROUP.search(text[-60:]):
        return Answer(None, last[0].strip(), "number", last.start(), is_complete=False)
    return Answer(*_value(last, text), marker="number", position=last.start())


def _value(match: re.Match[str], text: str) -> tuple[Fraction | None, str]:
    digits = re.sub(r"[,'’]", "", match["number"])
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
    return _NEGATIVE.search(text[max(0, match.start() - 16) : match.start()]) is not None


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
