"""Names: what they resolve to, and what is said where they don't."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from antiphon import registry
from antiphon.errors import FamilyNotFound, PluginConflict, PluginError
from antiphon.families import ModelFamily
from antiphon.plugins import PluginHost


@pytest.fixture
def parrot() -> Iterator[ModelFamily]:
    family = ModelFamily("parrot", "bird", "", source="{{ messages[0].content }}")
    registry.register_family(family)
    yield family
    registry.unregister_family("parrot")


def test_chatml_is_there_without_any_plugin() -> None:
    assert registry.get_family("chatml").name == "chatml"
    assert "chatml" in {family.name for family in registry.families()}


def test_unknown_name_suggests_the_near_one() -> None:
    with pytest.raises(FamilyNotFound, match=r"no family named 'chatlm'; did you mean 'chatml'"):
        registry.get_family("chatlm")
    with pytest.raises(FamilyNotFound, match="did you mean 'chatml'"):
        registry.get_family("ChatML")


@pytest.mark.parametrize("get", ["get_backend", "get_env", "get_transform", "get_reward"])
def test_unknown_name_of_another_kind_is_told(get: str) -> None:
    kind = get.removeprefix("get_")
    with pytest.raises(PluginError, match=f"no {kind} named 'unheard-of'"):
        getattr(registry, get)("unheard-of")


@pytest.mark.parametrize("list_all", ["backends", "envs", "transforms", "rewards"])
def test_listings_are_sorted_by_name(list_all: str) -> None:
    names = [spec.name for spec in getattr(registry, list_all)()]
    assert names == sorted(names)


def test_family_of_the_running_program_is_found(parrot: ModelFamily) -> None:
    assert registry.get_family("parrot") is parrot
    assert parrot in registry.families()
    assert registry.registered_by("parrot") == "the running program"
    assert parrot.load_template() == "{{ messages[0].content }}"


def test_registering_the_same_again_changes_nothing(parrot: ModelFamily) -> None:
    registry.register_family(pickle.loads(pickle.dumps(parrot)))
    assert registry.get_family("parrot") == parrot


def test_registering_another_under_the_name_is_refused(parrot: ModelFamily) -> None:
    other = ModelFamily("parrot", "bird", "", source="another")
    with pytest.raises(PluginConflict, match="another family 'parrot' before"):
        registry.register_family(other)
    assert registry.get_family("parrot") is parrot


def test_plugin_names_can_not_be_taken_at_run_time() -> None:
    with pytest.raises(PluginConflict, match=r"'chatml' is antiphon's .*ANTIPHON_DISABLE_PLUGINS"):
        registry.register_family(ModelFamily("chatml", "mine", "", source="x"))


@pytest.mark.parametrize(
    ("family", "words"),
    [
        (ModelFamily("", "x", "", source="x"), "named ''"),
        (ModelFamily("two words", "x", "", source="x"), "named 'two words'"),
        (ModelFamily("x", "x", "template.jinja"), "package:path"),
        (ModelFamily("x", "x", "", source="x", digests=("ABC",)), "SHA-256"),
        (ModelFamily("x", "x", "", source="x", name_patterns=(".*",)), "every model"),
        (ModelFamily("x", "x", "", source="x", name_patterns=("",)), "every model"),
        (ModelFamily("x", "x", "", source="x", name_patterns="qwen"), "tuple of strings"),  # type: ignore[arg-type]
        (ModelFamily("x", "x", "", grammar="nowhere", source="x"), "module:attribute"),
    ],
)
def test_descriptor_that_can_not_work_is_refused(family: ModelFamily, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        registry.register_family(family)


def test_taking_back_what_was_never_registered_is_told() -> None:
    with pytest.raises(FamilyNotFound, match="registered no family 'parrot'"):
        registry.unregister_family("parrot")


def test_chatml_format_is_chatml() -> None:
    assert registry.resolve_template_name("chatml_format").name == "chatml"
    assert registry.resolve_template_name("chatml").name == "chatml"


def test_name_of_a_line_with_one_dialect_means_it(parrot: ModelFamily) -> None:
    assert registry.resolve_template_name("bird") is parrot


def test_name_of_a_line_with_several_dialects_needs_a_tokenizer(parrot: ModelFamily) -> None:
    class Tokenizer:
        chat_template = None
        name_or_path = "org/finch-2b"

    finch = ModelFamily("finch", "bird", "", source="y", name_patterns=("^finch",))
    registry.register_family(finch)
    try:
        with pytest.raises(FamilyNotFound, match=r"line of models.*finch, parrot"):
            registry.resolve_template_name("bird")
        assert registry.resolve_template_name("bird", Tokenizer()) is finch
        assert registry.resolve_template_name("parrot", Tokenizer()) is parrot
    finally:
        registry.unregister_family("finch")


def test_unknown_template_name_suggests_the_near_one() -> None:
    with pytest.raises(FamilyNotFound, match="did you mean 'chatml_format'"):
        registry.resolve_template_name("chatml_fromat")


def test_of_many_names_the_nearest_are_told() -> None:
    birds = [
        ModelFamily(f"bird{number}", "bird", "", source="{{ messages }}") for number in range(9)
    ]
    for bird in birds:
        registry.register_family(bird)
    try:
        with pytest.raises(
            FamilyNotFound, match=r"the nearest of \d+ are .*plugins show PLUGIN"
        ) as told:
            registry.resolve_template_name("unheard-of")
    finally:
        for bird in birds:
            registry.unregister_family(bird.name)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("name", ["llama", "llama3.1", "codellama", "Llama-3-8B"])
def test_a_line_whose_plugin_is_not_installed_is_told_with_the_remedy(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = PluginHost(sources=[])
    monkeypatch.setattr(registry, "get_host", lambda: host)
    with pytest.raises(
        FamilyNotFound, match=f"named '{name}'; `pip install antiphon-llama` brings"
    ):
        registry.resolve_template_name(name)


def test_a_template_name_without_its_dialect_is_no_suggestion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = PluginHost(sources=[])
    monkeypatch.setattr(registry, "get_host", lambda: host)
    with pytest.raises(FamilyNotFound, match=r"there are chatml, chatml-bos, chatml_format\."):
        registry.resolve_template_name("unheard-of")
