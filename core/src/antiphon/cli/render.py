"""``antiphon render``: the text that a model sees, and where each part of it comes from."""

from __future__ import annotations

from typing import Any

import click

from antiphon.cli import inputs


@click.command()
@click.argument("file")
@inputs.template_options
@click.option("--tokenizer", help="A hub name or a folder; its own template is used.")
@click.option("--tools", help="A JSON file with tools, in place of the rows' own.")
@click.option("--prompt/--no-prompt", default=False, help="End with what precedes an answer.")
@click.option("--continue", "go_on", is_flag=True, help="Leave the last message open.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON per conversation.")
@click.option("--explain", is_flag=True, help="Mark what comes from messages, and turns.")
def render(
    file: str,
    family: str | None,
    template: str | None,
    tokenizer: str | None,
    tools: str | None,
    prompt: bool,
    go_on: bool,
    settings: tuple[str, ...],
    as_json: bool,
    explain: bool,
) -> int:
    """Render the conversations in FILE (JSON or JSON lines; - for standard input).

    A conversation is a list of messages, or a row of a data set with "messages" (or ShareGPT's
    "conversations", or "prompt") and perhaps "tools". The text of one conversation is printed exactly,
    without a newline of our own. Where the template refuses one of many, the others are printed; the
    exit code is 1 then.
    """
    from antiphon.engine.rendering import render as render_conversation
    from antiphon.errors import RenderError

    given_tools = inputs.read_tools(tools)
    variables = inputs.template_variables(settings)
    source = None if template is None else inputs.read_template(template)
    loaded = inputs.load_tokenizer(tokenizer)
    conversations = list(inputs.read_conversations(file))
    refused = 0
    for number, conversation in enumerate(conversations):
        try:
            rendering = render_conversation(
                conversation.messages,
                loaded,
                chat_template=source,
                family=family,
                tools=given_tools if given_tools is not None else conversation.tools,
                add_generation_prompt=prompt,
                continue_final_message=go_on,
                **{**conversation.variables, **variables},
            )
        except RenderError as error:
            if len(conversations) == 1:
                raise type(error)(f"{conversation.where}: {error}") from error
            # One that a template refuses is no reason to withhold the others.
            click.echo(f"antiphon: {conversation.where}: {error}", err=True)
            refused += 1
            continue
        if as_json:
            inputs.print_json(_plain(rendering, explain))
            continue
        if len(conversations) > 1:
            click.echo(f"{'' if number == 0 else chr(10)}=== {conversation.where}")
        if explain:
            click.echo(rendering.explain(color=inputs.wants_color()))
        else:
            click.echo(rendering.text, nl=False)
    return 1 if refused else 0


def _plain(rendering: Any, explain: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "text": rendering.text,
        "turns": [
            {"message": turn.message, "start": turn.start, "end": turn.end, "closed": turn.closed}
            for turn in rendering.turns
        ],
        "spans": [
            {"start": s.start, "end": s.end, "message": s.message, "field": list(s.field)}
            for s in rendering.spans
        ],
        "dropped": [{"message": each.message, "field": each.field} for each in rendering.dropped],
    }
    if explain:
        told["parts"] = rendering.explain_data()
    return told
