"""A tokenizer made on the spot, for families of which no real tokenizer is at hand.

Bytes, a few merges that real vocabularies have too (two line breaks are one token), and the
family's control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from antiphon.families import ModelFamily

if TYPE_CHECKING:
    from antiphon.reading.grammar import Grammar

#: A control token as it looks.
MARKER = re.compile(r"<[^<>\s]{1,48}>|\[/?[A-Z_]{2,}\]")
_MERGES = (("Ċ", "Ċ"), ("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "Ġ"))


class StandInTokenizer:
    """What Antiphon needs of a tokenizer, with a vocabulary of bytes.

    Args:
        special: Control tokens that are flagged special.
        plain: Added tokens that are not: markers that a model writes itself.
        template: The chat template that it brings, or None.
        special_tokens: ``bos_token``, ``eos_token``, ... as templates see them.
        name: Its name.
    """

    def __init__(
        self,
        special: Sequence[str],
        plain: Sequence[str] = (),
        *,
        template: str | None = None,
        special_tokens: dict[str, str] | None = None,
        name: str = "stand-in",
    ) -> None:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        vocabulary = {
            letter: number for number, letter in enumerate(sorted(_alphabet(pre_tokenizers)))
        }
        for left, right in _MERGES:
            vocabulary[left + right] = len(vocabulary)
        backend = Tokenizer(models.BPE(vocab=vocabulary, merges=list(_MERGES)))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([AddedToken(token, special=True) for token in special])
        backend.add_tokens(
            [
                AddedToken(token, special=False, normalized=False)
                for token in plain
                if token not in special
            ]
        )
        self.backend_tokenizer = backend
        self.chat_template = template
        self.special_tokens_map = dict(special_tokens or {})
        self.name_or_path = name

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of ``text``."""
        return list(self.backend_tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of ``ids``."""
        return str(
            self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        )

    def get_vocab(self) -> dict[str, int]:
        """Return the tokens and their ids."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def get_added_vocab(self) -> dict[str, int]:
        """Return the control tokens and their ids."""
        added = self.backend_tokenizer.get_added_tokens_decoder()
        return {token.content: index for index, token in added.items()}


def _alphabet(pre_tokenizers: Any) -> list[str]:
    return list(pre_tokenizers.ByteLevel.alphabet())


def special_tokens_for(family: ModelFamily, grammar: Grammar | None = None) -> dict[str, str]:
    """Return ``bos_token``, ``eos_token`` and the rest as a family's models would have them."""
    texts = list(family.required_tokens)
    if grammar is not None:
        texts += [
            grammar.bos,
            grammar.prefix,
            *(part for form in grammar.roles for part in _markers(form.opener)),
        ]
    known = [found for text in texts for found in MARKER.findall(text)]
    bos = next((text for text in known if "begin" in text and "of" in text), "<s>")
    if grammar is not None and MARKER.fullmatch(grammar.bos.strip()):
        bos = grammar.bos.strip()
    end = family.end_tokens[0] if family.end_tokens else "</s>"
    return {
        "bos_token": bos,
        "eos_token": end,
        "pad_token": family.end_tokens[-1] if family.end_tokens else "<pad>",
    }


def stand_in_for(family: ModelFamily, grammar: Grammar | None) -> StandInTokenizer:
    """Return a tokenizer with a family's control tokens.

    Args:
        family: The family; its end tokens and required tokens become control tokens.
        grammar: Its grammar, None where it is not known: the markers of turns become control
            tokens, those of reasoning and calls added tokens that are not special.
    """
    own = special_tokens_for(family, grammar)
    special = [*own.values(), *family.end_tokens]
    plain: list[str] = []
    if grammar is not None:
        special += grammar.end_tokens
        for form in grammar.roles:
            for literal in (form.opener, form.closer, form.group_opener, form.group_closer):
                special += _markers(literal)
        blocks = [grammar.reasoning, *grammar.calls]
        for block in blocks:
            for name in ("opener", "closer", "block_opener", "block_closer"):
                text = getattr(block, name, "").strip()
                if MARKER.fullmatch(text):
                    plain.append(text)
    special = [token for token in dict.fromkeys(special) if token not in plain]
    plain += [token for token in family.required_tokens if token not in special]
    return StandInTokenizer(special, plain, special_tokens=own, name=family.name)


def _markers(literal: Any) -> list[str]:
    parts = (literal,) if isinstance(literal, str) else literal
    return [found for part in parts if isinstance(part, str) for found in MARKER.findall(part)]
