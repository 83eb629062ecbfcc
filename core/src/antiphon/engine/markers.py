"""What control tokens and generation prompts look like as text, where there is no tokenizer to ask."""

from __future__ import annotations

import re

#: A control token as it looks.
MARKER = re.compile(r"<[^<>\s]{1,48}>|\[/?[A-Z_]{2,}\]")


def closes_block(marker: str) -> bool:
    """Whether a marker looks like the end of a block inside a turn: ``</tool_call>``, ``<|tool_call_end|>``."""
    if marker == "</s>":
        return False
    name = marker.lower()
    return (
        name.startswith("</")
        or ("call" in name and "end" in name)
        or name.endswith(("_end|>", "▁end｜>"))
    )


def common_length(one: str, other: str) -> int:
    """Return the length of the common start of two texts, not ending inside a marker."""
    size = min(len(one), len(other))
    if one[:size] != other[:size]:
        low, high = 0, size
        while low < high:
            middle = (low + high + 1) // 2
            if one[:middle] == other[:middle]:
                low = middle
            else:
                high = middle - 1
        size = low
    window = max(0, size - 64)
    for text in (one, other):
        for marker in MARKER.finditer(text, window, min(len(text), size + 64)):
            if marker.start() < size < marker.end():
                size = marker.start()
    return size


def _closed_blocks(header: str) -> list[tuple[int, int]]:
    """Return where the blocks are that a generation prompt opens and closes: start, start of the closing marker."""
    blocks = []
    for marker in MARKER.finditer(header):
        close = header.find(f"</{marker.group()[1:]}", marker.end())
        if close >= 0:
            blocks.append((marker.start(), close))
    return blocks


def without_openers(header: str) -> list[str]:
    """Return a generation prompt with a closed block cut down to its end, for each such block."""
    return [header[:start] + header[close:] for start, close in _closed_blocks(header)]


def boundaries(header: str) -> list[int]:
    """Return where a generation prompt may be cut: after markers and line breaks, but not inside a closed block.

    With thinking off a prompt ends with an empty block; a turn that has a block of its own shares no part of it.
    """
    cuts = {i + 1 for i, c in enumerate(header) if c == "\n"} | {len(header)}
    cuts |= {marker.end() for marker in MARKER.finditer(header)}
    blocks = _closed_blocks(header)
    return sorted(
        cut for cut in cuts if not any(start < cut <= close + 1 for start, close in blocks)
    )
