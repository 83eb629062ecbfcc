"""Detection tier by tier, on families made here; real families are looked at in tests/."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from antiphon import detect_family, registry
from antiphon.detection import template_digests
from antiphon.errors import FamilyAmbiguous, FamilyNotFound, InvalidData
from antiphon.families import ModelFamily

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
OTHER = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Tokenizer:
    """As much of a tokenizer as detection looks at."""

    def __init__(
        self, name: str = "", template: Any = None, tokens: tuple[str, ...] | None = None
    ) -> None:
        self.name_or_path = name
        self.chat_template = template
        if tokens is not None:
            self.get_vocab = lambda: {token: i for i, token in enumerate(tokens)}


@pytest.fixture
def register() -> Iterator[Any]:
    names = []

    def register(name: str, source: str = TEMPLATE, **marks: Any) -> None:
        registry.register_family(ModelFamily(name, "bird", "", source=source, **marks))
        names.append(name)

    yield register
    for name in names:
        registry.unregister_family(name)


def test_unknown_model_has_no_family() -> None:
    detection = detect_family("nobody/Unheard-Of-7B")
    assert (detection.family, detection.tier, detection.candidates) == (None, None, ())
    assert "no dialect is known" in detection.explain()
    assert "Looked at its name 'Unheard-Of-7B'" in detection.explain()


def test_a_refusal_says_what_was_looked_at() -> None:
    told = detect_family(Tokenizer("x/y", OTHER, ("a",))).explain()
    assert "its name 'y', its template (digest" in told
    assert "its vocabulary: no dialect's model is known by that" in told
    assert "nothing is known of it" in detect_family(Tokenizer("", None)).explain()


def test_callers_word_is_taken(register: Any) -> None:
    register("parrot")
    assert detect_family("nobody/Unheard-Of-7B", family="parrot").tier == "explicit"
    assert detect_family("parrot").family == "parrot"
    with pytest.raises(FamilyNotFound):
        detect_family("parrot", family="parot")


def test_exact_id_is_compared_without_case(register: Any) -> None:
    register("parrot", model_ids=("Org/Parrot-7B",))
    assert detect_family("org/parrot-7b").tier == "model id"
    assert detect_family(Tokenizer("Org/Parrot-7B")).family == "parrot"
    assert detect_family("other/Parrot-7B").family is None
    assert detect_family("/models/Org/Parrot-7B").family is None


def test_hub_cache_folder_keeps_its_models_name(register: Any) -> None:
    register("parrot", model_ids=("Org/Parrot-7B",))
    revision = "models--Org--Parrot-7B/snapshots/0123abcd"
    assert detect_family(f"/home/me/.cache/huggingface/hub/{revision}").tier == "model id"


@pytest.mark.parametrize(
    "name",
    [
        "/hub/models--zoo--parrot-1",
        "C:\\hub\\models--zoo--parrot-1\\snapshots\\0a1b",
        "zoo/parrot-1@main",
        " zoo/parrot-1\n",
    ],
)
def test_spellings_of_a_hub_name_are_that_name(register: Any, name: str) -> None:
    register("parrot", model_ids=("zoo/parrot-1",))
    assert detect_family(name).tier == "model id"


def test_digest_of_the_template_decides(register: Any) -> None:
    register("parrot", digests=(digest(OTHER),))
    detection = detect_family(Tokenizer("x/y", OTHER))
    assert (detection.family, detection.tier) == ("parrot", "template digest")
    assert detect_family(Tokenizer("x/y", {"default": OTHER, "tool_use": "x"})).family == "parrot"
    listed = [{"name": "default", "template": OTHER}, {"name": "rag", "template": "x"}]
    assert detect_family(Tokenizer("x/y", listed)).family == "parrot"


def test_a_refusal_gives_advice_that_can_be_followed(register: Any) -> None:
    told = detect_family(Tokenizer("x/y", OTHER)).explain()
    assert "Its own template is what is rendered" in told
    assert "Give its tokenizer" not in told
    assert "Give its tokenizer" in detect_family("x/y").explain()


def test_a_verdict_says_what_it_leaves_open(register: Any) -> None:
    greeting = "{% if messages[0].role != 'system' %}Hello.{% endif %}" + TEMPLATE
    register("parrot", name_patterns=("^parrot",))
    assert "No template of its own was seen" in detect_family("zoo/parrot-7b").explain()
    told = detect_family(Tokenizer("zoo/parrot-7b", greeting)).explain()
    assert "a near relative of parrot: on the no-system probe it writes" in told
    assert detect_family(Tokenizer("zoo/parrot-7b", TEMPLATE)).notes == ()


def test_a_mark_that_says_something_else_is_told(register: Any) -> None:
    register("parrot", name_patterns=("^parrot",), required_tokens=("<|beak|>",))
    register("owl", OTHER, digests=(digest(OTHER),), model_ids=("zoo/owl-1",))
    owl = Tokenizer("zoo/parrot-7b", OTHER, ("<|beak|>",))
    detection = detect_family(owl)
    assert (detection.family, detection.tier) == ("owl", "template digest")
    assert "Its name says parrot ('parrot' in 'parrot-7b')" in detection.explain()
    told = detect_family(Tokenizer("zoo/owl-1", TEMPLATE)).explain()
    assert "owl is not the tokenizer's own template" in told
    register("crow", TEMPLATE, digests=(digest(TEMPLATE),), required_tokens=("<|caw|>",))
    told = detect_family(Tokenizer("zoo/owl-1", TEMPLATE)).explain()
    assert "Its template digest says crow" in told
    assert "its model id is the surer mark" in told
    told = detect_family(Tokenizer("x/y", TEMPLATE, ("<|beak|>",))).explain()
    assert "Its vocabulary lacks <|caw|>, which crow has." in told


def test_marks_that_agree_need_no_note(register: Any) -> None:
    register("parrot", name_patterns=("^parrot",), digests=(digest(TEMPLATE),))
    assert detect_family(Tokenizer("zoo/parrot-7b", TEMPLATE)).notes == ()


def test_spellings_that_jinja_reads_alike_have_one_digest() -> None:
    text = "{% if a %}\n{{ a }}\n{% endif %}"
    for spelling in (
        text,
        text + "\n",
        text.replace("\n", "\r\n"),
        text.replace("\n", "\r") + "\r",
    ):
        assert digest(text) in template_digests(spelling)
    assert digest(text) not in template_digests(text + " ")
    assert digest(text) not in template_digests(text + "\n\n")


def test_vocabulary_needs_all_required_and_no_excluded_token(register: Any) -> None:
    register("parrot", required_tokens=("<a>", "<b>"), excluded_tokens=("<c>",))
    assert detect_family(Tokenizer("x", tokens=("<a>", "<b>", "x"))).tier == "vocabulary"
    assert detect_family(Tokenizer("x", tokens=("<a>", "x"))).family is None
    assert detect_family(Tokenizer("x", tokens=("<a>", "<b>", "<c>"))).family is None


def test_more_required_tokens_are_the_more_telling_mark(register: Any) -> None:
    register("parrot", required_tokens=("<a>", "<b>"))
    register("finch", required_tokens=("<a>",))
    assert detect_family(Tokenizer("x", tokens=("<a>", "<b>"))).family == "parrot"
    assert detect_family(Tokenizer("x", tokens=("<a>",))).family == "finch"


def test_name_breaks_a_tie_of_the_vocabulary(register: Any) -> None:
    register("parrot", required_tokens=("<a>",), name_patterns=("^parrot",))
    register("finch", required_tokens=("<a>",), name_patterns=("^finch",))
    detection = detect_family(Tokenizer("org/finch-2b", tokens=("<a>",)))
    assert (detection.family, detection.tier) == ("finch", "vocabulary")
    with pytest.raises(FamilyAmbiguous, match=r"finch or parrot by its vocabulary.*family='finch'"):
        detect_family(Tokenizer("org/crow-2b", tokens=("<a>",)))


def test_name_outside_a_tie_does_not_break_it(register: Any) -> None:
    register("parrot", required_tokens=("<a>",))
    register("finch", required_tokens=("<a>",))
    register("crow", name_patterns=("^crow",))
    with pytest.raises(FamilyAmbiguous):
        detect_family(Tokenizer("org/crow-2b", tokens=("<a>",)))


@pytest.mark.parametrize(
    "name",
    ["parrot", "org/Parrot-7B", "./parrot/", "C:\\models\\parrot-7b", "/x/finch/parrot.gguf"],
)
def test_pattern_is_looked_for_in_the_own_name(register: Any, name: str) -> None:
    register("parrot-family", name_patterns=("^parrot",))
    assert detect_family(name).tier == "name"


@pytest.mark.parametrize(
    "name", ["/home/parrot/models/gemma", "parrot/gemma-2b", "parrot/../gemma", "\\parrot\\gemma"]
)
def test_pattern_is_not_looked_for_in_parent_folders(register: Any, name: str) -> None:
    register("parrot-family", name_patterns=("parrot",))
    assert detect_family(name).family is None


def test_longer_stretch_of_the_name_is_the_more_telling_mark(register: Any) -> None:
    register("parrot-family", name_patterns=("parrot",))
    register("parrot2-family", name_patterns=("parrot-?2",))
    assert detect_family("org/parrot-2-7b").family == "parrot2-family"


def test_tie_of_names_is_an_error_that_says_how_to_choose(register: Any) -> None:
    register("one", name_patterns=("parrot",))
    register("two", name_patterns=("parrot",))
    with pytest.raises(FamilyAmbiguous, match=r"may be one or two by its name.*higher priority"):
        detect_family("org/parrot-7b")


def test_family_of_higher_priority_wins_and_is_seen_to(register: Any) -> None:
    register("theirs", name_patterns=("parrot-7b",))
    register("mine", name_patterns=("parrot",), priority=1)
    detection = detect_family("org/parrot-7b")
    assert detection.family == "mine"
    told = detection.explain()
    assert "* name: mine by 'parrot' in 'parrot-7b', priority 1" in told
    assert "- name: theirs" in told
    assert "the running program" in told


def test_family_of_higher_priority_wins_by_a_lesser_mark_too(register: Any) -> None:
    register("theirs", model_ids=("org/parrot-7b",), digests=(digest(TEMPLATE),))
    register("mine", name_patterns=("parrot",), priority=1)
    for model in ("org/parrot-7b", Tokenizer("org/parrot-7b", TEMPLATE)):
        detection = detect_family(model)
        assert (detection.family, detection.tier) == ("mine", "name")
        told = detection.explain()
        assert "- model id: theirs" in told
        assert (
            "mine has the higher priority (1): without it, theirs would be taken by model id"
            in told
        )


def test_family_of_higher_priority_that_does_not_hold_leaves_it_to_the_others(
    register: Any,
) -> None:
    register("theirs", model_ids=("org/parrot-7b",))
    register("mine", source=OTHER, name_patterns=("parrot",), priority=1)
    register("other", model_ids=("org/finch-7b",), priority=2)
    detection = detect_family(Tokenizer("org/parrot-7b", TEMPLATE))
    assert (detection.family, detection.tier) == ("theirs", "model id")
    assert any("mine is not the tokenizer's own template" in note for note in detection.notes)


def test_vocabulary_speaks_against_a_name(register: Any) -> None:
    register("parrot-family", required_tokens=("<a>",), name_patterns=("parrot",))
    assert detect_family("org/parrot-7b").family == "parrot-family"
    assert detect_family(Tokenizer("org/parrot-7b", tokens=("<z>",))).family is None


def test_template_that_writes_another_text_speaks_against_name_and_vocabulary(
    register: Any,
) -> None:
    register("parrot-family", required_tokens=("<a>",), name_patterns=("parrot",))
    borrowed = detect_family(Tokenizer("org/parrot-7b-of-mine", OTHER, tokens=("<a>",)))
    assert borrowed.family is None
    assert any("not the tokenizer's own template" in note for note in borrowed.notes)
    rewritten = TEMPLATE.replace("{{ m.content }}", "{{ m['content'] }}")
    assert detect_family(Tokenizer("org/parrot-7b", rewritten)).family == "parrot-family"


def test_template_tells_dialects_of_one_name_apart(register: Any) -> None:
    register("one", source=TEMPLATE, name_patterns=("parrot",))
    register("two", source=OTHER, name_patterns=("parrot",))
    rewritten = OTHER.replace("{{ m.content }}", "{{ m['content'] }}")
    assert detect_family(Tokenizer("org/parrot-7b", rewritten)).family == "two"


def test_of_dialects_that_write_one_text_the_first_is_taken(register: Any) -> None:
    register("one", name_patterns=("parrot",))
    register("two", name_patterns=("parrot",), variant_of="one")
    rewritten = TEMPLATE.replace("{{ m.content }}", "{{ m['content'] }}")
    assert detect_family(Tokenizer("org/parrot-7b", rewritten)).family == "one"


def write(folder: Path, **files: Any) -> Path:
    folder.mkdir()
    for name, value in files.items():
        path = folder / name.replace("__", ".")
        text = value if isinstance(value, str) else json.dumps(value)
        path.write_text(text, encoding="utf-8", newline="")
    return folder


def test_folder_with_a_template_file_is_read(register: Any, tmp_path: Path) -> None:
    register("parrot", digests=(digest(OTHER),))
    config = {"chat_template": TEMPLATE}
    folder = write(tmp_path / "any", chat_template__jinja=OTHER, tokenizer_config__json=config)
    assert detect_family(str(folder)).tier == "template digest"
    assert detect_family(folder).tier == "template digest"


def test_folder_with_a_template_in_its_config_is_read(register: Any, tmp_path: Path) -> None:
    register("parrot", digests=(digest(OTHER),))
    folder = write(tmp_path / "any", tokenizer_config__json={"chat_template": OTHER})
    assert detect_family(str(folder)).tier == "template digest"


def test_folder_with_a_vocabulary_is_read(register: Any, tmp_path: Path) -> None:
    register("parrot", required_tokens=("<a>", "<b>"))
    tokenizer = {
        "added_tokens": [{"id": 9, "content": "<a>"}],
        "model": {"vocab": {"x": 0, "<b>": 1}},
    }
    assert detect_family(write(tmp_path / "bpe", tokenizer__json=tokenizer)).tier == "vocabulary"
    unigram = {"added_tokens": [], "model": {"vocab": [["<a>", 0.0], ["<b>", -1.5]]}}
    assert detect_family(write(tmp_path / "uni", tokenizer__json=unigram)).tier == "vocabulary"
    config = {"added_tokens_decoder": {"8": {"content": "<a>"}, "9": {"content": "<b>"}}}
    found = detect_family(write(tmp_path / "slow", tokenizer_config__json=config))
    assert found.tier == "vocabulary"


def test_folder_named_after_another_family_is_not_taken_for_it(
    register: Any, tmp_path: Path
) -> None:
    register("parrot", name_patterns=("^parrot",))
    (tmp_path / "parrot").mkdir()
    folder = write(tmp_path / "parrot" / "model", tokenizer_config__json={"chat_template": OTHER})
    assert detect_family(str(folder)).family is None


def test_broken_tokenizer_file_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path / "any", tokenizer_config__json="{")
    with pytest.raises(InvalidData, match=r"tokenizer_config\.json can't be read"):
        detect_family(str(folder))


@pytest.mark.parametrize("name", ["~nobody-of-that-name/model", "x" * 5000, "a\0b"])
def test_names_that_no_path_can_have_are_names(register: Any, name: str) -> None:
    assert detect_family(name).family is None


def test_what_is_neither_name_nor_tokenizer_is_told() -> None:
    with pytest.raises(TypeError, match="int is neither a model's name nor a tokenizer"):
        detect_family(7)


def test_verdict_crosses_processes(register: Any) -> None:
    register("parrot", name_patterns=("^parrot",))
    detection = detect_family("parrot-7b")
    assert pickle.loads(pickle.dumps(detection)) == detection


def test_of_dialects_with_one_digest_the_name_tells_and_else_the_first_is_taken(
    register: Any,
) -> None:
    register("one", digests=(digest(OTHER),), name_patterns=("^finch",))
    register("two", digests=(digest(OTHER),), name_patterns=("^parrot",))
    assert detect_family(Tokenizer("org/parrot-7b", OTHER)).family == "two"
    assert detect_family(Tokenizer("org/crow-7b", OTHER)).family == "one"
