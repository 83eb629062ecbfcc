"""One way of writing for what people and models write in many: digits, blanks, signs, LaTeX, scales.

`plain_text` goes before the search for an answer, so that the search knows one minus, one kind of
digit and no emphasis.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

_MINUS_SIGNS = "−﹣‐‑‒"
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_FRACTIONS = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_FOREIGN = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+|[^\x00-\x7f]")
# No-break and thin blanks between groups of three digits are part of a number.
_BLANK_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:[\u00a0\u2009\u202f]\d{3})+(?!\d)", re.ASCII)
_BLANK = re.compile(r"[^\S\n]")

_LATEX_SPACING = re.compile(r"(?<=\d)(?:\{,\}|\\[,!;: ]|,\\!)(?=\d)")
_LATEX_BLANK = re.compile(r"\\[,;:! ]")
_LATEX_FRACTION = re.compile(
    r"(?P<whole>(?<=\d)\s*)?\\[dtc]?frac\s*(?:\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)(\d))"
)
_STRUCK = re.compile(r"~~[^~]*~~")
_EMPHASIS = [
    re.compile(rf"(?<![\w*])\*{{{stars}}}(?![\s*])([^*]+?)(?<!\s)\*{{{stars}}}(?![\w*])")
    for stars in (3, 2, 1)
]
_SCALES = {
    "hundred": 2,
    "thousand": 3,
    "k": 3,
    "million": 6,
    "m": 6,
    "mn": 6,
    "billion": 9,
    "b": 9,
    "bn": 9,
    "trillion": 12,
}
_AMOUNT = r"(\d[\d,]{0,19}(?:\.\d{1,8})?)"
_SCALED = re.compile(
    rf"(?<![\w.,/^]){_AMOUNT}(?:\s?(hundred|thousand|million|billion|trillion)|(k))\b(?!-)",
    re.IGNORECASE,
)
# "5M" may be metres; after a currency it is none.
_SCALED_MONEY = re.compile(rf"(?<=[$€£]){_AMOUNT}(mn|bn|[MB])\b")


def plain_text(text: str) -> str:
    """Return ``text`` with ASCII digits, signs and blanks, without emphasis, scales multiplied out."""
    if not text.isascii():
        text = _FOREIGN.sub(_plain_sign, text)
        text = _BLANK_GROUPS.sub(lambda match: _BLANK.sub("", match[0]), text)
        text = _BLANK.sub(" ", text)
    text = _LATEX_SPACING.sub(lambda match: "," if "," in match[0] else "", text)
    text = _LATEX_FRACTION.sub(_plain_fraction, text)
    text = _LATEX_BLANK.sub(" ", text).replace("\\pounds", "£").replace("\\euro", "€")
    text = _STRUCK.sub(" ", text)
    for emphasis in _EMPHASIS:
        text = emphasis.sub(r"\1", text)
    for _ in range(2):  # "3 hundred thousand"
        text = _SCALED.sub(_multiplied, text)
    return _SCALED_MONEY.sub(_multiplied, text)


def _plain_sign(match: re.Match[str]) -> str:
    sign = match[0]
    if sign in _MINUS_SIGNS:
        return "-"
    if sign in _FRACTIONS:  # 1½ is one and a half, ½ a half
        return " " + unicodedata.normalize("NFKC", sign).replace("⁄", "/")
    if sign[0] in "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺":
        return "^" + sign.translate(_SUPERSCRIPTS)
    kind = unicodedata.category(sign)
    if kind == "Nd":
        return str(unicodedata.decimal(sign))
    if kind == "Cf":  # joiners and marks of direction
        return ""
    if "！" <= sign <= "～":  # full width
        return unicodedata.normalize("NFKC", sign)
    return {"٫": ".", "٬": ","}.get(sign, sign)


def _plain_fraction(match: re.Match[str]) -> str:
    space = "" if match["whole"] is None else " "
    return f"{space}{match[2] or match[4]}/{match[3] or match[5]}"


def _multiplied(match: re.Match[str]) -> str:
    scale = next(part for part in match.groups()[1:] if part)
    value = Decimal(match[1].replace(",", "")).scaleb(_SCALES[scale.lower()])
    return f"{value:f}"
