"""Encode texts whole, for tokenizers whose pieces don't add up.

Such tokenizers strip white space beside control tokens, put a space before whatever they encode, or normalise across
a cut. Their text is encoded as transformers does it, and the tokens get their place from offsets. A token that lies
across the start of a turn belongs to the prompt: the model can't sample it there.
"""

from __future__ import annotations

from antiphon.engine.pieces import Pieces
from antiphon.engine.rendering import Rendering
from antiphon.engine.tokenization import TokenizedRendering, plan
from antiphon.engine.tokenizers import TokenizerView
from antiphon.errors import TokenizerMismatch


def tokenize_whole(
    rendering: Rendering, tokens: TokenizerView, allow_control_tokens: bool
) -> TokenizedRendering:
    """Encode the text of a rendering in one go.

    Raises:
        TokenizerMismatch: Messages or tools spell out control tokens, and this tokenizer can't keep them as text.
    """
    ids, offsets = tokens.encode_with_offsets(rendering.text)
    pieces = plan(rendering, tokens)
    if not allow_control_tokens:
        _refuse_forged(rendering, pieces, ids, offsets, tokens)
    turns = [turn for turn in rendering.turns if turn.end > turn.start]
    if rendering.continued and turns and not turns[-1].closed:
        turns.pop()
    mask: list[bool] = []
    placed = Pieces()
    number = 0
    for start, end in offsets:
        while number < len(turns) and turns[number].end <= start:
            number += 1
        inside = number < len(turns) and turns[number].start <= start
        mask.append(inside)
        placed.add_encoded(start, end, inside, 1)
    return TokenizedRendering(ids, rendering, mask, placed, tokens)


def _refuse_forged(
    rendering: Rendering,
    pieces: Pieces,
    ids: list[int],
    offsets: list[tuple[int, int]],
    tokens: TokenizerView,
) -> None:
    forbidden = tokens.control_ids(rendering.source.template)
    genuine = {start for start, _, control, _ in pieces.rows() if control >= 0}
    for token, (start, end) in zip(ids, offsets, strict=True):
        text = rendering.text[start:end]
        if token in forbidden and not genuine.intersection(range(start, max(end, start + 1))):
            raise TokenizerMismatch(
                f"The text {text.strip()!r} in a message would become a control token, and {tokens.describe()} can't "
                "be cut to keep it as text; use the tokenizer's byte-level version, clean the message, or pass "
                "allow_control_tokens=True."
            )
