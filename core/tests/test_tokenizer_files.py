"""Tokenizers are read as their files say, whichever transformers reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from antiphon.tokenizer_files import read_tokenizer
from rendering_helpers import tokenizer

TEXT = "a  b\n\nc\td"


@pytest.mark.parametrize("name", ["qwen3", "llama3", "deepseek_v3", "gemma3", "gptoss"])
def test_no_tokenizer_loses_white_space(name: str) -> None:
    own = tokenizer(name)
    assert own.decode(own.encode(TEXT, add_special_tokens=False)) == TEXT


def test_where_a_class_loses_white_space_the_file_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As transformers below 5.21 reads DeepSeek V3's: by a class with another way of cutting."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    tokenizer("deepseek_v3").save_pretrained(tmp_path)
    broken = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    broken.pre_tokenizer = pre_tokenizers.Metaspace()
    broken.decoder = decoders.Fuse()
    wrong = transformers.PreTrainedTokenizerFast(tokenizer_object=broken)
    assert " " not in wrong.decode(wrong.encode("a b", add_special_tokens=False))

    def from_pretrained(name: str, **options: Any) -> Any:
        return wrong

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", from_pretrained)
    found = read_tokenizer(str(tmp_path))
    assert found.decode(found.encode(TEXT, add_special_tokens=False)) == TEXT
    (tmp_path / "tokenizer.json").unlink()
    assert read_tokenizer(str(tmp_path)) is wrong  # there is nothing better


def test_a_tokenizer_whose_own_way_it_is_is_left_alone(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = Tokenizer(models.BPE({"a": 0, "b": 1, "<end>": 2}, [], unk_token="<end>"))
    letters.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=letters).save_pretrained(tmp_path)
    found = read_tokenizer(str(tmp_path))
    assert found.encode("a b", add_special_tokens=False) == [0, 1]
    assert json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]["b"] == 1
