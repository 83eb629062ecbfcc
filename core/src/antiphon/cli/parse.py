"""``antiphon parse``: text or ids back into messages."""

from __future__ import annotations

import json
from typing import Any

import click

from antiphon.cli import inputs
from antiphon.errors import InvalidData


@click.command()
@click.argument("file")
@click.option("--family", help="A dialect or a line, for example qwen3 or llama.")
@click.option("--tokenizer", help="A hub name or a folder; its template says how to read.")
@click.option("--tools", help="A JSON file with tools: they type and judge the calls.")
@click.option("--response", is_flag=True, help="FILE is one completion, not a conversation.")
@click.option("--prompt", help="A file with the completion's prompt (implies --response).")
@click.option("--ids", is_flag=True, help="FILE (and the prompt) are JSON lists of token ids.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--explain", is_flag=True, help="Say first which dialect is read by, and why.")
def parse(
    file: str,
    family: str | None,
    tokenizer: str | None,
    tools: str | None,
    response: bool,
    prompt: str | None,
    ids: bool,
    as_json: bool,
    explain: bool,
) -> None:
    """Read the text in FILE (- for standard input) back into messages."""
    from antiphon.reading import parse as parse_conversation
    from antiphon.reading import parse_response

    loaded = inputs.load_tokenizer(tokenizer)
    known = inputs.read_tools(tools)
    if explain:
        click.echo(_why(family, loaded), err=as_json)
    text = _text_or_ids(file, ids)
    one = response or prompt is not None
    if one:
        message = parse_response(
            text,
            prompt=None if prompt is None else _text_or_ids(prompt, ids),
            tokenizer=loaded,
            family=family,
            tools=known,
        )
        messages = [message]
    else:
        messages = parse_conversation(text, tokenizer=loaded, family=family, tools=known)
    if as_json:
        inputs.print_json(messages[0] if one else messages)
        return
    for message in messages:
        click.echo(_told(message))


def _why(family: str | None, tokenizer: Any) -> str:
    from antiphon.detection import detect_family
    from antiphon.registry import registered_by, resolve_template_name

    if family is not None:
        name = resolve_template_name(family, tokenizer).name
        return f"Read as {name} (from {registered_by(name)}), because you said so."
    if tokenizer is None:
        return "Nothing says which dialect it is: give --family or --tokenizer."
    return detect_family(tokenizer).explain()


def _text_or_ids(path: str, ids: bool) -> Any:
    if not ids:
        return inputs.read_text(path)
    value = inputs.read_json(path, "list of token ids")
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        raise InvalidData(f"{path} holds no JSON list of token ids, such as [1, 2, 3].")
    return value


def _told(message: dict[str, Any]) -> str:
    """Return a message for people to read: who, what, each call with its verdict."""
    state = "" if message.get("is_complete", True) else " (cut off)"
    lines = [f"[{message.get('role', '?')}]{state}"]
    if message.get("reasoning_content"):
        lines.append(f"  (reasoning) {message['reasoning_content']}")
    content = message.get("content")
    if content:
        lines.append(content if isinstance(content, str) else json.dumps(content))
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        verdict = call.get("status", "ok")
        problem = f": {call['problem']}" if call.get("problem") else ""
        arguments = function.get("arguments")
        told = arguments if isinstance(arguments, str) else json.dumps(arguments)
        lines.append(f"  -> {function.get('name')}({told}) {verdict}{problem}")
    return "\n".join(lines)
