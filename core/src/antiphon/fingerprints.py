"""Short digests that tell whether two runs used the same template and tokenizer.

They stand beside whatever is written to disk, so that tokens are never mixed with those of another template or
vocabulary. The plugins' digest is ``get_host().fingerprint()``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.errors import TokenizerMismatch

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
    """Return the digest of the template that `antiphon.render` would choose.

    Args:
        tokenizer: As for `antiphon.render`.
        chat_template: As there.
        family: As there.
        tools: As there: some tokenizers have a template of their own for tools.

    Returns:
        16 hexadecimal digits.
    """
    from antiphon.engine.source import choose_template

    return digest(choose_template(tokenizer, chat_template, family, tools).source)


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return the digest of the vocabulary, the added tokens and how text is cut.

    Args:
        tokenizer: Any that `antiphon.render` takes.

    Returns:
        16 hexadecimal digits.
    """
    from antiphon.engine.tokenizers import view

    return view(tokenizer).digest


def token_fingerprints(tokenizer: Any, template: str | None = None) -> dict[str, str]:
    """Return what a container of tokens carries: whose they are, and what made them.

    Args:
        tokenizer: The tokenizer of the tokens.
        template: The Jinja source that was rendered, where one was.

    Returns:
        "tokenizer" (name and digits, see `TokenizerView.fingerprint`), "template" and "plugins" (digests).
    """
    from antiphon.engine.tokenizers import view
    from antiphon.plugins.host import get_host

    found = {"tokenizer": view(tokenizer).fingerprint}
    if template is not None:
        found |= {"template": digest(template), "plugins": get_host().fingerprint()}
    return found


def check_tokens(known: Iterable[dict[str, str]], tokenizer: Any, what: str) -> None:
    """Make sure that tokens are of this tokenizer, where they say whose they are.

    Args:
        known: What `token_fingerprints` said of each row, or of all.
        tokenizer: The tokenizer that they are to be read with.
        what: What holds them, for the message.

    Raises:
        TokenizerMismatch: Names the row and both tokenizers.
    """
    from antiphon.engine.tokenizers import view

    checked = None
    for row, found in enumerate(known):
        mark = found.get("tokenizer", "")
        if mark == checked or not mark:
            continue
        if not view(tokenizer).is_of(mark):
            raise TokenizerMismatch(
                f"{what}, row {row}: these tokens are of another tokenizer ({mark}) than this one "
                f"({view(tokenizer).fingerprint}); use that one."
            )
        checked = mark
