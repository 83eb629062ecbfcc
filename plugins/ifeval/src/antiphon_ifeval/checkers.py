"""Whether a text keeps to an instruction.

The checkers are if-verifiable's, which are those of the benchmark (Zhou et al., "Instruction-Following
Evaluation for Large Language Models", 2023), except where they depend on chance or on what else is
on the machine:

- Languages are detected with a fixed seed, in a detector of our own: the verdict on a text is always
  the same, and nobody else's detector is touched. What holds no letters is in no language.
- Text in capital or small letters that is too short for detection passes if its letters are ASCII.
- Sentences are counted by NLTK's Punkt model where it is installed, else by a rule of our own, which
  is said once; nothing is downloaded.
- Words and letters are looked for as they stand, whatever they would mean as regular expressions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from antiphon.errors import PluginError

from antiphon_ifeval.instructions import Instruction

_LOG = logging.getLogger(__name__)
# Below this many letters a detector of languages guesses.
_ENOUGH_LETTERS = 30

_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]*_]*(?=\s)|[。！？]+")
_NO_SENTENCE_END = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Rev|Gen|Col|Capt|Lt|No|Nos|Fig|vs|etc|approx|cf|ca"
    r"|e\.g|i\.e|a\.m|p\.m)|\b[A-Z]|(?:^|\n)[ \t]*\d+)\.\Z"
)


def follows(instruction: Instruction, text: str) -> bool:
    """Return whether ``text`` keeps to ``instruction``; empty text keeps to none.

    Raises:
        PluginError: The package with the checkers is not installed.
    """
    if not text.strip():
        return False
    own = _OWN.get(instruction.id)
    if own is not None:
        return own(text, instruction.arguments)
    checker = _registry()[instruction.id](instruction.id)
    checker.build_description(**_literal(instruction.arguments))
    try:
        return bool(checker.check_following(text))
    except RecursionError:
        # JSON that is nested too deep to be read.
        return False


def loose_forms(text: str) -> list[str]:
    """Return the forms of which one must follow for the loose score, the text itself first.

    Models put an introduction before, or a remark behind what was asked for, and mark words with
    asterisks: the first line, the last, both, and all asterisks may be left out.
    """
    lines = text.split("\n")
    parts = [lines, lines[1:], lines[:-1], lines[1:-1]]
    forms = [text, *("\n".join(part).strip() for part in parts[1:])]
    return [*forms, *(form.replace("*", "") for form in forms)]


def count_sentences(text: str) -> int:
    """Return how many sentences a text has."""
    punkt = _punkt()
    if punkt is not None:
        return len(punkt.tokenize(text))
    ends = [
        match.end()
        for match in _SENTENCE_END.finditer(text)
        if not (match[0] == "." and _NO_SENTENCE_END.search(text, 0, match.end()))
    ]
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    return sum(any(character.isalnum() for character in piece) for piece in pieces)


@lru_cache(maxsize=1)
def _punkt() -> Any:
    """Return NLTK's sentence tokenizer for English, or None where its model is not installed."""
    from nltk.tokenize.punkt import PunktTokenizer

    try:
        return PunktTokenizer("english")
    except LookupError:
        _LOG.warning(
            "NLTK's model punkt_tab is not installed, so sentences are counted by a simpler rule; "
            "for the benchmark's own count run `python -m nltk.downloader punkt_tab`."
        )
        return None


@lru_cache(maxsize=1)
def _registry() -> Mapping[str, Any]:
    try:
        from if_verifiable.ifeval.instructions_registry import INSTRUCTION_DICT
    except ImportError as error:
        raise PluginError(
            "IFEval's checkers need the package if-verifiable, which there is for Python 3.11 and "
            f"newer; run `pip install if-verifiable` ({error})."
        ) from error
    found: Mapping[str, Any] = INSTRUCTION_DICT
    return found


def _literal(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, escaped where a checker makes a regular expression of them."""
    found = dict(arguments)
    # Of these two markers a checker makes its own expressions.
    if found.get("postscript_marker") not in (None, "P.S.", "P.P.S"):
        found["postscript_marker"] = re.escape(found["postscript_marker"].strip())
    if "section_spliter" in found:
        found["section_spliter"] = re.escape(found["section_spliter"].strip())
    return found


# Our own.


@lru_cache(maxsize=1)
def _languages() -> Any:
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    return factory


@lru_cache(maxsize=256)
def _language(text: str) -> str | None:
    """Return the code of a text's language, None where it has no letters."""
    from langdetect.lang_detect_exception import LangDetectException

    detector = _languages().create()
    detector.seed = 0
    detector.append(text)
    try:
        return str(detector.detect())
    except LangDetectException:
        return None


def _is_english(text: str) -> bool:
    letters = [character for character in text if character.isalpha()]
    if len(letters) < _ENOUGH_LETTERS:
        return bool(letters) and all(letter.isascii() for letter in letters)
    return _language(text) == "en"


def _response_language(text: str, arguments: Mapping[str, Any]) -> bool:
    wanted = str(arguments["language"])
    if wanted == "en":
        return _is_english(text)
    found = _language(text)
    # The detector knows "zh-cn" and "zh-tw", rows may ask for "zh".
    return found is not None and wanted.lower() in (found, found.partition("-")[0])


def _compared(count: int, threshold: int, relation: str) -> bool:
    return count < threshold if relation == "less than" else count >= threshold


def _number_sentences(text: str, arguments: Mapping[str, Any]) -> bool:
    count = count_sentences(text)
    return _compared(count, arguments["num_sentences"], arguments["relation"])


def _capital_words(text: str, arguments: Mapping[str, Any]) -> bool:
    from nltk.tokenize import NLTKWordTokenizer

    # Without splitting sentences first, which would need a model and changes no word's case.
    count = sum(word.isupper() for word in NLTKWordTokenizer().tokenize(text))
    return _compared(count, arguments["capital_frequency"], arguments["capital_relation"])


def _has_keywords(text: str, arguments: Mapping[str, Any]) -> bool:
    return all(str(word).lower() in text.lower() for word in arguments["keywords"])


def _lacks_words(text: str, arguments: Mapping[str, Any]) -> bool:
    words = "|".join(re.escape(word) for word in arguments["forbidden_words"])
    return re.search(rf"(?<!\w)(?:{words})(?!\w)", text, re.IGNORECASE) is None


def _keyword_count(text: str, arguments: Mapping[str, Any]) -> bool:
    count = text.lower().count(str(arguments["keyword"]).strip().lower())
    return _compared(count, arguments["frequency"], arguments["relation"])


def _letters(text: str, arguments: Mapping[str, Any]) -> bool:
    count = text.lower().count(str(arguments["letter"]).lower())
    return _compared(count, arguments["let_frequency"], arguments["let_relation"])


_OWN: Mapping[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": lambda text, _: text.isupper() and _is_english(text),
    "change_case:english_lowercase": lambda text, _: text.islower() and _is_english(text),
    "keywords:existence": _has_keywords,
    "keywords:forbidden_words": _lacks_words,
    "keywords:frequency": _keyword_count,
    "keywords:letter_frequency": _letters,
    "language:response_language": _response_language,
    "length_constraints:number_sentences": _number_sentences,
}
