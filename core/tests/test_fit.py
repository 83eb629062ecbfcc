"""A dialect that does not fit a tokenizer is told of: by the tokenizer's own template, by its tokens."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from antiphon import registry, render
from antiphon.errors import FamilyWarning
from antiphon.families import ModelFamily
from antiphon.reading import resolve_grammar
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

TEMPLATE = "{% for m in messages %}<|bird|>{{ m.content }}<|end|>{% endfor %}"
OTHER = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"
ASKED = [{"role": "user", "content": "hi"}]


class Bird:
    """A tokenizer of single bytes with a name, a template and some added tokens."""

    def __init__(self, name: str, template: str | None, *added: str) -> None:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        self.backend_tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, []))
        self.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.backend_tokenizer.add_special_tokens([AddedToken(text) for text in added])
        self.name_or_path = name
        self.chat_template = template

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def get_vocab(self) -> dict[str, int]:
        return dict(self.backend_tokenizer.get_vocab())

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(self.backend_tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return str(self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))


@pytest.fixture
def parrot() -> Iterator[str]:
    family = ModelFamily(
        "parrot",
        "bird",
        "",
        source=TEMPLATE,
        end_tokens=("<|end|>",),
        required_tokens=("<|bird|>",),
        model_ids=("zoo/parrot-1",),
    )
    registry.register_family(family)
    yield "parrot"
    registry.unregister_family("parrot")


def told(action: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(each.message) for each in caught if each.category is FamilyWarning]


def test_control_tokens_that_are_no_tokens_are_told(parrot: str) -> None:
    [sentence] = told(lambda: render(ASKED, Bird("x/y", None, "<|bird|>"), family=parrot))
    assert "no token for <|end|>, which the dialect 'parrot' writes" in sentence
    assert (
        told(lambda: render(ASKED, Bird("x/y", None, "<|bird|>", "<|end|>"), family=parrot)) == []
    )


def test_they_are_told_where_the_tokenizer_comes_after_the_rendering(parrot: str) -> None:
    rendering = render(ASKED, family=parrot)
    [sentence] = told(lambda: rendering.tokenize(Bird("x/y", None)))
    assert "no token for <|end|> <|bird|>," in sentence
    assert told(lambda: rendering.tokenize(Bird("x/y", None, "<|bird|>", "<|end|>"))) == []


def test_tokens_that_are_added_later_count(parrot: str) -> None:
    bird = Bird("x/y", None)
    assert told(lambda: render(ASKED, bird, family=parrot))
    bird.backend_tokenizer.add_special_tokens([AddedToken("<|bird|>"), AddedToken("<|end|>")])
    assert told(lambda: render(ASKED, bird, family=parrot)) == []


def test_detected_dialect_that_is_not_the_own_template_is_told_with_the_first_difference(
    parrot: str,
) -> None:
    bird = Bird("zoo/parrot-1", OTHER, "<|bird|>", "<|end|>")
    [sentence] = told(lambda: resolve_grammar(bird))
    assert "'parrot', which nobody named, is not the own template of the tokenizer of" in sentence
    assert "on the plain probe it writes '<|bird|>" in sentence
    assert "not '[system]" in sentence
    same = Bird("zoo/parrot-1", TEMPLATE, "<|bird|>", "<|end|>")
    assert told(lambda: resolve_grammar(same)) == []


def test_a_line_s_name_is_held_to_the_own_template_a_dialect_s_name_is_not(parrot: str) -> None:
    bird = Bird("zoo/parrot-1", OTHER, "<|bird|>", "<|end|>")
    assert "own template" in told(lambda: render(ASKED, bird, family="bird"))[0]
    assert told(lambda: render(ASKED, bird, family="parrot")) == []


def test_without_template_and_family_the_tokens_that_chatml_lacks_are_told() -> None:
    with pytest.warns(UserWarning, match=r"ChatML is used.*no token for <\|im_end\|>") as caught:
        render(ASKED, Bird("x/y", None))
    assert [each.filename for each in caught] == [__file__]
    with pytest.warns(UserWarning, match="ChatML is used") as caught:
        render(ASKED, Bird("x/y", None, "<|im_start|>", "<|im_end|>"))
    assert "no token" not in str(caught[0].message)


def test_the_warning_names_the_caller_s_line(parrot: str) -> None:
    with pytest.warns(FamilyWarning) as caught:
        render(ASKED, Bird("x/y", None), family=parrot)
    assert caught[0].filename == __file__
    with pytest.warns(FamilyWarning) as caught:
        render(ASKED, family=parrot).tokenize(Bird("x/y", None))
    assert caught[0].filename == __file__
