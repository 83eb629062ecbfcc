"""Images, sounds and videos: what a processor writes in the place of a placeholder.

A template prints one placeholder for each medium, and the processor puts many tokens there before it encodes:
Qwen-VL repeats the placeholder, Gemma 3 sets marks and line breaks around a run of tokens, which then merge with what
stands beside them. So the place is widened in the text, where spans and turns can follow exactly; ids and masks come
from the widened text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from antiphon.engine.tokenization import scaffold_runs
from antiphon.errors import InvalidParameter

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering


def expand_media(rendering: Rendering, placeholder: str, expansions: Sequence[str]) -> Rendering:
    """Return the rendering with the text of each placeholder replaced by what stands for its medium.

    Args:
        rendering: A rendering.
        placeholder: The text that the template prints for a medium, for example ``"<|image_pad|>"``. Only what the
            template printed counts: the same text in a message is text.
        expansions: What to put there, in order; see `media_expansions`.

    Raises:
        InvalidParameter: There are more or fewer placeholders than expansions.
    """
    if not placeholder:
        raise InvalidParameter("The placeholder is empty; name the text that stands for a medium.")
    text = rendering.text
    places = [
        place
        for start, end in scaffold_runs(rendering)
        for place in _occurrences(text, placeholder, start, end)
    ]
    if len(places) != len(expansions):
        raise InvalidParameter(
            f"The template {rendering.source.name} printed {len(places)} placeholders {placeholder!r}, but "
            f"{len(expansions)} expansions were given."
        )
    pieces: list[str] = []
    position = 0
    for place, expansion in zip(places, expansions, strict=True):
        pieces += (text[position:place], expansion)
        position = place + len(placeholder)
    pieces.append(text[position:])
    growth = [len(expansion) - len(placeholder) for expansion in expansions]

    def moved(character: int) -> int:
        return character + sum(
            size for place, size in zip(places, growth, strict=True) if place < character
        )

    turns = tuple(
        turn._replace(start=moved(turn.start), end=moved(turn.end)) for turn in rendering.turns
    )
    return replace(
        rendering,
        text="".join(pieces),
        origins=tuple((moved(a), moved(b), origin) for a, b, origin in rendering.origins),
        found={"turns": (turns, rendering.unlocated)},
    )


def media_expansions(processor: Any, placeholder: str, *, images: Sequence[Any] = ()) -> list[str]:
    """Return what a transformers processor writes for each image in the place of its placeholder.

    Args:
        processor: A processor: called with ``text`` and ``images`` it returns ``input_ids``.
        placeholder: The text that the template prints for an image.
        images: The images, in order.

    Raises:
        InvalidParameter: The processor does not show what it writes.
    """
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None or not callable(processor):
        raise InvalidParameter(
            f"A transformers processor with a tokenizer is needed, not {type(processor).__name__}."
        )
    expansions = []
    for number, image in enumerate(images):
        made = processor(text=[placeholder], images=[[image]], add_special_tokens=False)
        ids = [int(token) for token in made["input_ids"][0]]
        expansion = str(tokenizer.decode(ids, skip_special_tokens=False))
        if not expansion:
            raise InvalidParameter(
                f"{type(processor).__name__} writes nothing for image {number} in the place of {placeholder!r}; "
                "name the placeholder that its template prints."
            )
        expansions.append(expansion)
    return expansions


def _occurrences(text: str, part: str, start: int, end: int) -> list[int]:
    found = []
    place = text.find(part, start, end)
    while place >= 0:
        found.append(place)
        place = text.find(part, place + len(part), end)
    return found
