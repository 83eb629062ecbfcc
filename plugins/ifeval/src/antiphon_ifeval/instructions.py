"""Reading what a data row asks for: instruction ids and their arguments, in the forms data sets have.

The rows of IFEval hold ``instruction_id_list`` and ``kwargs``; others hold both in one label, as a
mapping, as JSON or as a Python literal, with ``instruction_id`` for the list. Arrow fills the
arguments of each instruction with the names of all others and null: nulls are left out.
"""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from antiphon.errors import InvalidData

LABELS = ("ground_truth", "label")
_ID_KEYS = ("instruction_id_list", "instruction_id", "instruction_ids")

# The arguments that each instruction needs: without one, what was asked for is not known.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "change_case:capital_word_frequency": ("capital_frequency", "capital_relation"),
    "change_case:english_capital": (),
    "change_case:english_lowercase": (),
    "combination:repeat_prompt": ("prompt_to_repeat",),
    "combination:two_responses": (),
    "detectable_content:number_placeholders": ("num_placeholders",),
    "detectable_content:postscript": ("postscript_marker",),
    "detectable_format:constrained_response": (),
    "detectable_format:json_format": (),
    "detectable_format:multiple_sections": ("section_spliter", "num_sections"),
    "detectable_format:number_bullet_lists": ("num_bullets",),
    "detectable_format:number_highlighted_sections": ("num_highlights",),
    "detectable_format:title": (),
    "keywords:existence": ("keywords",),
    "keywords:forbidden_words": ("forbidden_words",),
    "keywords:frequency": ("keyword", "frequency", "relation"),
    "keywords:letter_frequency": ("letter", "let_frequency", "let_relation"),
    "language:response_language": ("language",),
    "length_constraints:nth_paragraph_first_word": (
        "num_paragraphs",
        "nth_paragraph",
        "first_word",
    ),
    "length_constraints:number_paragraphs": ("num_paragraphs",),
    "length_constraints:number_sentences": ("num_sentences", "relation"),
    "length_constraints:number_words": ("num_words", "relation"),
    "punctuation:no_comma": (),
    "startend:end_checker": ("end_phrase",),
    "startend:quotation": (),
}
RELATIONS = ("less than", "at least")


@dataclass(frozen=True)
class Instruction:
    """One thing that an answer must keep to.

    Attributes:
        id: Its name, such as ``"punctuation:no_comma"``.
        arguments: What it is about, no value None.
    """

    id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def read_instructions(row: Any, *, where: str | None = None) -> tuple[Instruction, ...]:
    """Return what a row asks for.

    Args:
        row: A data row with ``instruction_id_list`` and ``kwargs``, or with a label under
            ``"ground_truth"`` or ``"label"``; or a label by itself.
        where: How errors name the row; found from its key or its prompt if None.

    Raises:
        InvalidData: It can't be read, an instruction is unknown, or an argument is missing.
    """
    if where is None:
        where = row_name(row)
    found = _mapping(row, where)
    ids = next((found[key] for key in _ID_KEYS if found.get(key) is not None), None)
    if isinstance(ids, str):
        ids = [ids]
    if not isinstance(ids, Sequence) or not ids:
        raise InvalidData(f"{where} names no instructions under 'instruction_id_list'.")
    arguments = _arguments(found.get("kwargs"), len(ids), where)
    prompt = row.get("prompt") if isinstance(row, Mapping) else None
    return tuple(
        _instruction(each, given, prompt, where) for each, given in zip(ids, arguments, strict=True)
    )


def row_name(row: Any) -> str:
    """Return how errors name a row: by its key, else by how its prompt begins."""
    if isinstance(row, Mapping):
        if row.get("key") is not None:
            key = row["key"]
            return f"Row {key.item() if hasattr(key, 'item') else key}"
        for name in ("prompt", "query"):
            if isinstance(row.get(name), str):
                return f"The row {row[name][:40]!r}"
    return f"The row {str(row)[:60]!r}"


def _mapping(row: Any, where: str) -> Mapping[str, Any]:
    """Return the mapping that holds ids and arguments, whatever form it was written in."""
    if isinstance(row, str):
        row = _parsed(row, where)
    if isinstance(row, Sequence) and not isinstance(row, str):
        if len(row) != 1:
            raise InvalidData(f"{where}: its label is a list of {len(row)}, not of one mapping.")
        row = row[0]
    if not isinstance(row, Mapping):
        raise InvalidData(f"{where}: its label is {type(row).__name__}, not a mapping.")
    if not any(row.get(key) is not None for key in _ID_KEYS):
        label = next((row[key] for key in LABELS if row.get(key) is not None), None)
        if label is not None:
            return _mapping(label, where)
    return row


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise InvalidData(
            f"{where}: its label {text[:60]!r} is neither JSON nor a Python literal."
        ) from error


def _arguments(kwargs: Any, count: int, where: str) -> list[Mapping[str, Any]]:
    if isinstance(kwargs, str):
        kwargs = _parsed(kwargs, where)
    if kwargs is None:
        return [{}] * count
    if isinstance(kwargs, Mapping):
        # One instruction's arguments, or columns with a value for each instruction.
        if count == 1:
            kwargs = [kwargs]
        else:
            kwargs = [
                {name: column[i] for name, column in kwargs.items() if len(column) == count}
                for i in range(count)
            ]
    if not isinstance(kwargs, Sequence) or len(kwargs) != count:
        has = len(kwargs) if isinstance(kwargs, Sequence) else type(kwargs).__name__
        raise InvalidData(f"{where} has {count} instructions and arguments for {has}.")
    for each in kwargs:
        if each is not None and not isinstance(each, Mapping):
            raise InvalidData(
                f"{where}: the arguments of an instruction are {type(each).__name__}, not a mapping."
            )
    return [dict(each or {}) for each in kwargs]


def _instruction(
    name: Any, given: Mapping[str, Any], prompt: str | None, where: str
) -> Instruction:
    wanted = ARGUMENTS.get(name)
    if wanted is None:
        near = difflib.get_close_matches(str(name), ARGUMENTS, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else "; there are 25, see ARGUMENTS."
        raise InvalidData(f"{where} asks for {name!r}, which is no instruction of IFEval{meant}")
    arguments = {key: _whole(given[key]) for key in wanted if given.get(key) is not None}
    if name == "combination:repeat_prompt" and prompt is not None:
        arguments.setdefault("prompt_to_repeat", prompt)
    missing = [key for key in wanted if key not in arguments]
    if missing:
        raise InvalidData(f"{where}: {name} needs the argument {missing[0]!r}.")
    problem = _problem(arguments)
    if problem is not None:
        raise InvalidData(f"{where}: {name} can't be checked: {problem}.")
    return Instruction(name, arguments)


def _whole(value: Any) -> Any:
    """Return a whole number as an int: Arrow columns with nulls hold floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _problem(arguments: Mapping[str, Any]) -> str | None:
    """Return why arguments make no sense, in words."""
    for key, value in arguments.items():
        if key.startswith(("num_", "nth_")) or key.endswith("frequency"):
            if not isinstance(value, int) or value < 0:
                return f"{key} is {value!r}, not a number from 0 up"
        elif key.endswith("relation"):
            if value not in RELATIONS:
                return f"{key} is {value!r}, neither 'less than' nor 'at least'"
        elif key in ("keywords", "forbidden_words"):
            if not _is_words(value):
                return f"{key} is {value!r}, not a list of words"
        elif not isinstance(value, str) or not value.strip():
            return f"{key} is {value!r}, not text"
    nth, paragraphs = arguments.get("nth_paragraph"), arguments.get("num_paragraphs")
    if nth is not None and paragraphs is not None and not 1 <= nth <= paragraphs:
        return f"nth_paragraph is {nth}, of {paragraphs} paragraphs"
    return None


def _is_words(value: Any) -> bool:
    words = value if isinstance(value, (list, tuple)) else ()
    return bool(words) and all(isinstance(word, str) and word.strip() for word in words)
