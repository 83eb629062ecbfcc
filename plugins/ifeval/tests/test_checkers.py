"""Each of IFEval's 25 instructions says yes and no where it should, the same each time."""

from __future__ import annotations

import logging
import random
import sys
from typing import Any

import pytest
from antiphon_ifeval import Instruction, checkers
from antiphon_ifeval.checkers import count_sentences, follows, loose_forms
from antiphon_ifeval.instructions import ARGUMENTS

if sys.version_info < (3, 11):
    pytest.skip("if-verifiable has no release for Python 3.10", allow_module_level=True)

# Instruction, its arguments, answers that keep to it, answers that don't.
TABLE: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["We LOVE the USA.", "IT IS. so"],
        ["We love the USA.", "Title Case Words"],
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 1, "capital_relation": "less than"},
        ["all small"],
        ["one BIG"],
    ),
    (
        "change_case:english_capital",
        {},
        ["ALL CAPS 3!", "HELLO", "THE ANSWER TO YOUR QUESTION IS THAT THERE ARE MANY RIVERS."],
        ["This Is Title Case", "ALMOST ALL CAPs", "3!", "ЭТО НЕ АНГЛИЙСКИЙ ТЕКСТ", "ПРИВЕТ"],
    ),
    (
        "change_case:english_lowercase",
        {},
        ["all small 3!", "the answer to your question is that there are many rivers."],
        ["Almost all small", "dies ist ein deutscher satz, der nicht englisch ist, oder doch?"],
    ),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Say hi"},
        ["Say hi\nHello!", "say hi. Hi."],
        ["Hello!", "Sure: Say hi. Hello!"],
    ),
    (
        "combination:two_responses",
        {},
        ["one******two", "one\n******\ntwo\n******"],
        ["one", "same******same", "a******b******c"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["Dear [name], at [address]."],
        ["Dear [name]."],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["Bye.\nP.S. Write soon.", "Bye. p.s. yes"],
        ["Bye."],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "N.B. ("},
        ["Bye.\nN.B. (yes)"],
        ["Bye."],
    ),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is yes."],
        ["Yes"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": 1}', '```json\n["x"]\n```'],
        ["{'a': 1}", "no", "[" * 100_000],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb"],
        ["Section 1\na"],
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n* b", "- a\n- b"],
        ["* a", "* a\n* b\n* c"],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 1},
        ["*so* be it", "**so**"],
        ["so be it", "**"],
    ),
    ("detectable_format:title", {}, ["<<Rivers>>\nThere are many."], ["Rivers", "<< >>"]),
    (
        "keywords:existence",
        {"keywords": ["river", "C++"]},
        ["A River in C++."],
        ["A river in C.", "none"],
    ),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["bad", "[x", "C++"]},
        ["A badger in C."],
        ["Too bad!", "In C++.", "An [x]"],
    ),
    (
        "keywords:frequency",
        {"keyword": "ha", "frequency": 3, "relation": "at least"},
        ["Ha ha ha"],
        ["Ha ha"],
    ),
    (
        "keywords:frequency",
        {"keyword": "ha", "frequency": 3, "relation": "less than"},
        ["Ha ha"],
        ["Ha ha ha"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "e", "let_frequency": 2, "let_relation": "at least"},
        ["Eel"],
        ["ever so odd"[2:]],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_frequency": 1, "let_relation": "less than"},
        ["none"],
        ["#1"],
    ),
    (
        "language:response_language",
        {"language": "fr"},
        ["Bonjour tout le monde, je vous remercie de votre question."],
        ["Hello everybody, thank you for your question.", "3!"],
    ),
    (
        "language:response_language",
        {"language": "zh"},
        ["今天天气很好，我们去公园散步吧。"],
        ["The weather is fine, let us walk in the park."],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        ["One.\n\nThen two."],
        ["One. Then two.", "One.\n\nNow two.", "Then\n\none.\n\nThen three."],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a\n***\nb"],
        ["a", "a\n***\nb\n***\nc"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        ["One. Two!", "Is it? It is."],
        ["Just one, Mr. Smith.", "Costs 3.50 dollars"],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "less than"},
        ["Two words."],
        ["Three whole words."],
    ),
    ("punctuation:no_comma", {}, ["No commas here."], ["Well, one."]),
    ("startend:end_checker", {"end_phrase": "The end."}, ["So. The end.", "the end."], ["End."]),
    ("startend:quotation", {}, ['"So be it."'], ["So be it.", '"']),
]


def test_every_instruction_has_a_row() -> None:
    assert {row[0] for row in TABLE} == set(ARGUMENTS)
    assert len(ARGUMENTS) == 25


@pytest.mark.parametrize(("name", "arguments", "right", "wrong"), TABLE)
def test_yes_and_no(
    name: str, arguments: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    instruction = Instruction(name, arguments)
    assert [text for text in right if not follows(instruction, text)] == []
    assert [text for text in wrong if follows(instruction, text)] == []
    assert not follows(instruction, " \n ")


def test_verdicts_draw_nothing_and_leave_global_generators_alone() -> None:
    state = random.getstate()
    for name, arguments, right, _ in TABLE:
        follows(Instruction(name, arguments), right[0])
    assert random.getstate() == state
    import langdetect

    assert langdetect.DetectorFactory.seed is None


@pytest.mark.parametrize(
    "name",
    [
        "change_case:capital_word_frequency",
        "keywords:letter_frequency",
        "keywords:existence",
        "keywords:forbidden_words",
        "keywords:frequency",
        "change_case:english_capital",
        "language:response_language",
    ],
)
def test_our_own_checkers_agree_with_the_benchmarks_on_plain_text(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nltk
    from if_verifiable.ifeval import instructions_util
    from if_verifiable.ifeval.instructions_registry import INSTRUCTION_DICT

    # The benchmark's word count wants a model that need not be there, only to split sentences.
    words = nltk.NLTKWordTokenizer().tokenize
    monkeypatch.setattr(instructions_util.nltk, "word_tokenize", words)
    texts = [
        "THE RIVERS OF EUROPE ARE LONG, AND SOME OF THEM ARE DEEP.",
        "The rivers of Europe are long, and some of them are deep.",
        "Die Flüsse Europas sind lang, und einige von ihnen sind sehr tief.",
        "NATO and the EU met in the UK. They ALL agreed on very little of it.",
    ]
    plain = {
        "keywords:existence": {"keywords": ["rivers", "they"]},
        "keywords:forbidden_words": {"forbidden_words": ["river", "uk"]},
        "keywords:frequency": {"keyword": "of", "frequency": 2, "relation": "at least"},
        "keywords:letter_frequency": {
            "letter": "r",
            "let_frequency": 4,
            "let_relation": "less than",
        },
        "language:response_language": {"language": "de"},
    }
    for arguments in (
        [plain[name]] if name in plain else [row[1] for row in TABLE if row[0] == name]
    ):
        checker = INSTRUCTION_DICT[name](name)
        checker.build_description(**arguments)
        for text in texts:
            ours = follows(Instruction(name, arguments), text)
            assert ours == bool(checker.check_following(text)), text


def test_sentences_without_a_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def absent(language: str) -> Any:
        raise LookupError(language)

    monkeypatch.setattr("nltk.tokenize.punkt.PunktTokenizer", absent)
    checkers._punkt.cache_clear()
    counts = {
        "One. Two! Three? Four": 4,
        "Mr. Smith met Dr. J. Doe at 3 p.m. today.": 1,
        "It costs 3.50 dollars, e.g. in the U.S. or there.": 1,
        'He said "Stop." Then he left...': 2,
        "1. First thing.\n2. Second thing.": 2,
        "Wait... what?! No!!!": 3,
        "今天天气很好。我们去公园。": 2,
        "": 0,
        "***": 0,
    }
    with caplog.at_level(logging.WARNING):
        assert {text: count_sentences(text) for text in counts} == counts
    assert len(caplog.records) == 1
    assert "nltk.downloader punkt_tab" in caplog.text
    checkers._punkt.cache_clear()


def test_the_loose_forms() -> None:
    forms = loose_forms("Sure!\n**a**\nBye")
    assert forms[0] == "Sure!\n**a**\nBye"
    assert set(forms) == {
        "Sure!\n**a**\nBye",
        "**a**\nBye",
        "Sure!\n**a**",
        "**a**",
        "Sure!\na\nBye",
        "a\nBye",
        "Sure!\na",
        "a",
    }
