"""Short digests that tell whether two runs used the same template and tokenizer.

They stand beside whatever is written to disk, so that tokens are never mixed with those of another template or
vocabulary. The plugins' digest is ``get_host().fingerprint()``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

_DIGITS = 16


def digest(text: str) -> str:
    """Return 16 hexadecimal digits of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def template_fingerprint(
    tokenizer: Any = None,
    chat_template: str | None = None,
    family: str | None = None,
    tools: Sequence[Any] | None = None,
) -> str:
    """Return the digest of the template that `antiphon.render` would choose."""
    from antiphon.engine.source import choose_template

    return digest(choose_template(tokenizer, chat_template, family, tools)[1])


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return the digest of the vocabulary, the added tokens and how text is cut."""
    from antiphon.engine.tokenizers import view

    return view(tokenizer).digest
