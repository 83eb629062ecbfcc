"""Whether a dialect fits a tokenizer, told as a warning.

Two things are looked at. The control tokens that the dialect's template writes must be tokens: else they are encoded
as ordinary text, and no model ends a turn with them. And where the dialect was detected, the tokenizer's own template
must write the dialect's text on the decisive probes (see `antiphon.agreement`): it is what the model was trained on.
Who names a dialect has chosen it over that template.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any, NamedTuple

from antiphon.agreement import first_difference
from antiphon.errors import FamilyWarning
from antiphon.families import ModelFamily
from antiphon.marks import marks_of


class _Misfit(NamedTuple):
    """What speaks against a dialect, one sentence each: of the tokens, of the tokenizer's own template."""

    tokens: str
    text: str


# What was found of each tokenizer: by dialect, the tokenizer's own template and size then, and the verdict.
_found: weakref.WeakKeyDictionary[Any, dict[str, tuple[object, int, _Misfit]]] = (
    weakref.WeakKeyDictionary()
)


def tell_if_unfit(
    family: ModelFamily, tokenizer: Any, *, detected: bool, stacklevel: int = 2
) -> None:
    """Warn where a dialect does not fit a tokenizer; there may be no tokenizer.

    Args:
        family: The dialect.
        tokenizer: The tokenizer that it is used with.
        detected: Whether the dialect was told from the tokenizer, and not named.
        stacklevel: As for `warnings.warn`, from the caller's place.
    """
    if tokenizer is None:
        return
    misfit = _misfit(family, tokenizer)
    told = [sentence for sentence in (misfit.text if detected else "", misfit.tokens) if sentence]
    if told:
        told.append("Name the dialect that the model speaks with family=.")
        warnings.warn(" ".join(told), FamilyWarning, stacklevel=stacklevel + 1)


def spelled_out(family: ModelFamily, tokenizer: Any) -> list[str]:
    """Return the control tokens that a dialect's template writes and a tokenizer lacks, as far as that is known."""
    vocabulary = None if tokenizer is None else marks_of(tokenizer).vocabulary()
    if vocabulary is None:
        return []
    template = family.load_template()
    controls = dict.fromkeys((*family.end_tokens[:1], *family.required_tokens))
    return [token for token in controls if token in template and token not in vocabulary]


def _misfit(family: ModelFamily, tokenizer: Any) -> _Misfit:
    own = getattr(tokenizer, "chat_template", None)
    size = len(tokenizer) if hasattr(tokenizer, "__len__") else 0
    try:
        by_name = _found.setdefault(tokenizer, {})
    except TypeError:  # it can't be referred to weakly: it is looked at each time
        by_name = {}
    kept = by_name.get(family.name)
    if kept is None or kept[0] != own or kept[1] != size:
        kept = by_name[family.name] = (own, size, _look(family, tokenizer))
    return kept[2]


def _look(family: ModelFamily, tokenizer: Any) -> _Misfit:
    marks = marks_of(tokenizer)
    lacking = spelled_out(family, tokenizer)
    tokens = (
        f"The tokenizer of {marks.subject} has no token for {' '.join(lacking)}, which the dialect {family.name!r}"
        " writes: that becomes ordinary text, and no model ends a turn with it."
    ) * bool(lacking)
    if marks.template is None:
        return _Misfit(tokens, "")
    difference = first_difference(family, marks.template, marks.special_tokens)
    text = (
        f"The dialect {family.name!r}, which nobody named, is not the own template of the tokenizer of"
        f" {marks.subject}: {difference}."
    ) * (difference is not None)
    return _Misfit(tokens, text)
