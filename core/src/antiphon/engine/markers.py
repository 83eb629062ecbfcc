"""What control tokens and generation prompts look like as text, where there is no tokenizer to ask."""

from __future__ import annotations

import itertools
import re

#: A control token as it looks.
MARKER = re.compile(r"<[^<>\s]{1,48}>|\[/?[A-Z_]{2,}\]")


def closes_block(marker: str, turn: str = "") -> bool:
    """Whether a marker closes a block inside a turn: by its looks, or because ``turn`` holds what opens the block.

    By its looks: ``</tool_call>``, ``<|tool_call_end|>``. By what opens it: ``<tool_call|>`` behind ``<|tool_call>``.
    """
    if marker == "</s>":
        return False
    name = marker.lower()
    return (
        name.startswith("</")
        or ("call" in name and "end" in name)
        or name.endswith(("_end|>", "▁end｜>"))
        or (name.endswith("|>") and name[1] != "|" and f"<|{marker[1:-2]}>" in turn)
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


def find_header(gap: str, header: str, before_text: bool) -> int | None:
    """Return where in a gap between two messages a generation prompt ends of which only a part stands there.

    Args:
        gap: The text between the messages.
        header: The generation prompt.
        before_text: Whether the message that the prompt is for begins where the gap ends.
    """
    # With thinking off the prompt may end with a block of which the history shows the end alone.
    for short in without_openers(header):
        found = gap.rfind(short)
        if found >= 0:
            return found + len(short)
    spaced = list(re.finditer(_spaced(header), gap)) if header.strip() else []
    if spaced:
        return _behind_space(gap, spaced[-1].end(), header)
    # The prompt may open more than the turn shows (a reasoning block): the longest part of it that stands here.
    cuts = boundaries(header)
    for number in reversed(range(len(cuts))):
        found = gap.rfind(header[: cuts[number]]) if header[: cuts[number]].strip() else -1
        if found >= 0:
            end = found + cuts[number]
            rest = gap[end:]
            closed = before_text and rest.strip() and header.endswith(rest)
            if closed:
                return len(gap)
            return _later_parts(gap, end, header, cuts[number:]) if before_text else end
    return None


def other_role(gap: str, found: int, header: str) -> tuple[str, int] | None:
    """Return whose header it is that begins as a generation prompt does, and where it ends.

    Args:
        gap: The text between two messages.
        found: Where in it a part of the prompt ends (see `find_header`).
        header: The generation prompt.

    Returns:
        The role's name there and the end of its header; None where no other role is named.
    """
    cuts = [cut for cut in boundaries(header) if gap.endswith(header[:cut], 0, found)]
    if not cuts:
        return None
    following = next((cut for cut in boundaries(header) if cut > cuts[-1]), None)
    role = re.match(r"\w+", header[cuts[-1] : following])
    other = re.match(r"\w+", gap[found:])
    if following is None or role is None or other is None or role.group() == other.group():
        return None
    behind = header[cuts[-1] + role.end() : following]
    end = found + other.end()
    if not behind or not gap.startswith(behind, end):
        return None
    return other.group(), _behind_space(gap, end + len(behind), header)


def _later_parts(gap: str, end: int, header: str, cuts: list[int]) -> int:
    """Return ``end``, moved behind those parts of the header that stand further on, with other text between."""
    together = False
    for first, last in itertools.pairwise(cuts):
        part = header[first:last]
        found = gap.find(part, end)
        if (found == end and together) or (found >= 0 and MARKER.search(part)):
            end, together = found + len(part), True
        elif part.strip():
            together = False
    return end


def skip_header(gap: str, prompt: str) -> int | None:
    """Return where the prompt ends that ``gap`` begins with but for white space."""
    match = re.match(rf"\s*{_spaced(prompt)}", gap) if prompt.strip() else None
    return None if match is None else _behind_space(gap, match.end(), prompt)


def before_closed(gap: str, prompt: str) -> int | None:
    """Return where a gap has the end of a block that the prompt opens there: a model that reasons writes that end."""
    opener = next(reversed(list(MARKER.finditer(prompt))), None)
    if opener is None or closes_block(opener.group()) or prompt[opener.end() :].strip():
        return None
    short = f"{prompt[: opener.start()]}</{opener.group()[1:]}"
    return opener.start() if gap.startswith(short) else None


def _spaced(header: str) -> str:
    """Return a pattern for a header with other white space between its words."""
    return r"\s*".join(map(re.escape, header.split()))


def _behind_space(gap: str, end: int, header: str) -> int:
    """Return ``end``, moved behind the white space with which the header ends."""
    return end + common_length(header[len(header.rstrip()) :], gap[end:])


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
