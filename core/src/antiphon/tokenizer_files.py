"""Tokenizers as their files say, read by transformers."""

from __future__ import annotations

from typing import Any


def read_tokenizer(name: str, **options: Any) -> Any:
    """Return the tokenizer of a hub name or a folder.

    Releases of transformers below 5.21 (the last for Python 3.10 among them) build the tokenizers of some models anew
    from their vocabulary, by the class that a config names: DeepSeek V3's then loses all white space. The file itself
    says how text is cut, so where white space is lost and the file keeps it, the file is taken as it is.

    Args:
        name: A hub name or a folder.
        options: For ``from_pretrained``.

    Raises:
        ImportError: transformers is not installed.
        OSError: There is no such tokenizer; likewise ``ValueError``.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    found = AutoTokenizer.from_pretrained(name, **options)
    if _keeps_space(found):
        return found
    try:
        plain = PreTrainedTokenizerFast.from_pretrained(name, **options)
    except (OSError, ValueError):  # it has no such file
        return found
    return plain if _keeps_space(plain) else found


def _keeps_space(tokenizer: Any) -> bool:
    return " " in tokenizer.decode(tokenizer.encode("a b", add_special_tokens=False))
