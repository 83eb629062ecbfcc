"""The descriptors: registered, complete, and no one's mark is another's."""

from __future__ import annotations

import pickle
import re
from collections import Counter

import pytest
from antiphon.detection import detect_family
from antiphon.registry import families, get_family, resolve_template_name
from antiphon_deepseek.families import FAMILIES

NAMED_IN_THE_DESIGN = {
    "deepseek-v2",
    "deepseek-coder",
    "deepseek-v2-0628",
    "deepseek-coder-v2-0724",
    "deepseek-v2.5",
    "deepseek-v3",
    "deepseek-r1",
    "deepseek-r1-0528",
    "deepseek-r1-distill",
    "deepseek-v3.1",
    "deepseek-v3.2",
    "deepseek-v4",
}
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def test_every_dialect_is_registered():
    registered = {family.name for family in families() if family.line == "deepseek"}
    assert registered == {family.name for family in FAMILIES}
    assert registered >= NAMED_IN_THE_DESIGN


@every_family
def test_a_descriptor_travels_to_other_processes(family):
    assert pickle.loads(pickle.dumps(family)) == family


@every_family
def test_a_template_is_complete_and_marks_the_turns(family):
    source = family.load_template()
    assert re.search(r"\{%-?\s*generation\s*-?%\}", source)
    assert "{% include" not in source
    assert source.count("\n") < 120


@every_family
def test_a_grammar_is_declared_and_named_after_its_dialect(family):
    grammar = family.load_grammar()
    assert family.name in (grammar.name, f"{grammar.name}-distill")
    assert set(family.end_tokens) == set(grammar.end_tokens)
    assert family.arguments == grammar.arguments


@every_family
def test_faults_that_parity_keeps_are_named(family):
    assert family.notes
    assert all(note.endswith(".") for note in family.notes)


def test_no_digest_and_no_model_is_claimed_twice():
    for marks in ("digests", "model_ids"):
        counted = Counter(mark.lower() for family in FAMILIES for mark in getattr(family, marks))
        assert max(counted.values()) == 1, counted.most_common(3)


@every_family
def test_each_known_model_is_found_by_its_name(family):
    for model in family.model_ids:
        assert detect_family(model).family == family.name


def test_a_tokenizer_with_the_official_template_is_known_by_it(tokenizers):
    detection = detect_family(tokenizers("v3"))
    assert (detection.family, detection.tier) == ("deepseek-v3", "template digest")


class Bare:
    """A tokenizer without a template."""

    chat_template = None

    def __init__(self, *tokens, name=""):
        self.tokens, self.name_or_path = tokens, name

    def get_vocab(self):
        return {token: index for index, token in enumerate(self.tokens)}


ROLES = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>")
THINK = ("<think>", "</think>")
V3 = (*ROLES, "<｜tool▁calls▁begin｜>", "<｜place▁holder▁no▁0｜>")


def test_the_vocabulary_tells_the_generation(tokenizers):
    v4 = tokenizers("v4")
    assert detect_family(Bare(*v4.get_vocab())).family == "deepseek-v4"
    assert detect_family(Bare(*V3)).family == "deepseek-v3"
    assert detect_family(Bare(*V3, *THINK, "｜DSML｜")).family == "deepseek-v3.2"


def test_the_distills_are_known_by_role_tokens_in_another_line_s_vocabulary():
    qwen = ("<tool_call>", "</tool_call>", "<|vision_start|>", "<|fim_prefix|>")
    llama = (
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|python_tag|>",
        "<|eom_id|>",
    )
    for line in (qwen, llama):
        name = "my/DeepSeek-R1-Distill-8B"
        assert detect_family(Bare(*line, *ROLES, *THINK, name=name)).family == "deepseek-r1-distill"


def test_what_the_vocabulary_leaves_open_the_name_decides():
    for name, family in (
        ("a/DeepSeek-R1", "deepseek-r1"),
        ("a/DeepSeek-R1-0528", "deepseek-r1-0528"),
        ("a/DeepSeek-V3.1", "deepseek-v3.1"),
    ):
        assert detect_family(Bare(*V3, *THINK, name=name)).family == family


def test_the_line_s_name_means_v2_or_the_dialect_that_fits(tokenizers):
    assert resolve_template_name("deepseek") == get_family("deepseek-v2")
    assert resolve_template_name("deepseek", tokenizers("v3")) == get_family("deepseek-v3")
    assert (
        resolve_template_name("deepseek", Bare(*tokenizers("v4").get_vocab())).name == "deepseek-v4"
    )
