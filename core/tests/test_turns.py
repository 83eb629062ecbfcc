"""Turns are what the model generates: between its prompt and its end token, on every template."""

from __future__ import annotations

from typing import Any

import antiphon
import pytest
from antiphon.errors import MaskUnavailable, RenderError
from rendering_helpers import SPECIAL, corpus, hub_templates, tokenizer


def prefix(messages: list[Any], prompt: bool, **options: Any) -> str | None:
    """Render the beginning of a conversation, or return None where the template refuses."""
    try:
        return antiphon.render(messages, add_generation_prompt=prompt, **options).text
    except RenderError:
        return None


def test_turns_are_what_the_prompt_lacks_on_every_hub_template() -> None:
    agreed = 0
    for name, template in hub_templates().items():
        for conversation in corpus():
            messages, kwargs = conversation["messages"], dict(conversation["kwargs"])
            prompted = kwargs.pop("add_generation_prompt")
            options = {
                "chat_template": template,
                "tools": conversation.get("tools"),
                **SPECIAL,
                **kwargs,
            }
            try:
                rendering = antiphon.render(messages, add_generation_prompt=prompted, **options)
            except RenderError:
                continue
            turns = {turn.message: turn for turn in rendering.turns}
            for index, message in enumerate(messages):
                if message["role"] != "assistant":
                    continue
                prompt, full = (
                    prefix(messages[:index], True, **options),
                    prefix(messages[: index + 1], False, **options),
                )
                # An empty prompt is no prompt: transformers refuses an empty conversation too.
                if not prompt or full is None or full == prompt:
                    continue
                if not (full.startswith(prompt) and rendering.text.startswith(prompt)):
                    continue
                where = (name, conversation["id"], index)
                assert index in turns, where
                assert turns[index].start == len(prompt), where
                if rendering.text.startswith(full) and index not in rendering.unlocated:
                    own = [
                        s
                        for s in rendering.spans
                        if s.message == index and s.field[0] in ("content", "reasoning")
                    ]
                    assert all(s.end <= turns[index].end for s in own), where
                    # The end token may be followed by another one that only stands at the end (Phi-3), or stand
                    # only where something follows (Qwen1.5); else the turn is what the prompt lacks.
                    added = full[len(prompt) :].rstrip()
                    found = rendering.text[turns[index].start : turns[index].end]
                    assert added.startswith(found.rstrip()) or found.startswith(added), where
                agreed += 1
    assert agreed > 25_000


def test_the_default_system_turn_header_and_newline_are_not_the_model_s() -> None:  # case mask-01
    rendering = antiphon.render(
        [{"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": "Blue."}],
        chat_template=hub_templates()["Qwen-Qwen2.5-7B-Instruct"],
    )
    (turn,) = rendering.turns
    assert rendering.text[turn.start : turn.end] == "Blue.<|im_end|>"
    assert turn.closed


def test_an_empty_answer_is_a_turn_of_its_end_token() -> None:  # case mask-07
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": ""},
    ]
    for name in ("qwen3", "llama3", "gemma3"):
        own = tokenizer(name)
        item = antiphon.render(messages, own).tokenize()
        rendering = item.rendering
        shown = [rendering.text[t.start : t.end] for t in rendering.turns]
        assert len(shown) == 2
        assert shown[0] in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")
        masked = [
            token for token, flag in zip(item.input_ids, item.assistant_mask, strict=True) if flag
        ]
        assert own.decode(masked) == "".join(shown)


def test_a_block_that_the_prompt_opened_is_prompt() -> None:
    template = hub_templates()["Qwen-Qwen3-4B-Thinking-2507"]
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "r"},
    ]
    rendering = antiphon.render(messages, chat_template=template)
    (turn,) = rendering.turns
    assert rendering.text[: turn.start].endswith("<think>\n")
    assert rendering.text[turn.start : turn.end] == "r\n</think>\n\nb<|im_end|>"


def test_thinking_off_puts_the_empty_block_into_the_prompt() -> None:
    template = hub_templates()["Qwen-Qwen3-0.6B@a55ee1"]
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]
    rendering = antiphon.render(messages, chat_template=template, enable_thinking=False)
    assert [rendering.text[t.start : t.end] for t in rendering.turns] == [
        "b<|im_end|>",
        "d<|im_end|>",
    ]
    assert rendering.text[: rendering.turns[1].start].endswith("<think>\n\n</think>\n\n")


def test_a_call_s_result_is_not_the_model_s() -> None:
    for name in ("unsloth-gpt-oss-20b", "upstage-Solar-Open-100B"):
        conversation = next(c for c in corpus() if c["id"] == "tool-round")
        rendering = antiphon.render(
            conversation["messages"],
            chat_template=hub_templates()[name],
            tools=conversation["tools"],
            **SPECIAL,
        )
        first = rendering.turns[0]
        shown = rendering.text[first.start : first.end]
        assert "Oslo" in shown
        assert "basalt" not in shown
        assert shown.count("get_weather") == 1  # the result's header names the call again


def test_an_answer_that_comes_first_has_no_header_in_its_turn() -> None:
    for name in ("upstage-SOLAR-10.7B-Instruct-v1.0", "Qwen-Qwen2.5-7B-Instruct"):
        messages = [
            {"role": "assistant", "content": "Welcome."},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
        ]
        rendering = antiphon.render(messages, chat_template=hub_templates()[name], **SPECIAL)
        assert rendering.text[rendering.turns[0].start :].startswith("Welcome.")


def test_second_round_calls_without_a_header_begin_where_the_results_end() -> None:
    def call(name: str, arguments: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "arguments": arguments}}

    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call("f", '{"a": 1}')]},
        {"role": "tool", "content": "12"},
        {"role": "assistant", "content": None, "tool_calls": [call("g", '{"b": 2}')]},
    ]
    rendering = antiphon.render(
        messages, chat_template=hub_templates()["microsoft-MAI-DS-R1"], **SPECIAL
    )
    second = rendering.turns[1]
    assert rendering.text[: second.start].endswith("<｜tool▁output▁end｜>")
    assert rendering.text[second.start :].lstrip().startswith("<｜tool▁call▁begin｜>")


def test_calls_without_a_header_behind_a_question_begin_where_the_question_ends() -> None:
    """DeepSeek V3 and R1 remember that there was a call: those behind a second question have no header."""

    def call(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "arguments": "{}"}}

    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call("f")]},
        {"role": "tool", "content": "12"},
        {"role": "assistant", "content": "It is 12."},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": None, "tool_calls": [call("g"), call("h")]},
    ]
    for name in ("microsoft-MAI-DS-R1", "deepseek-ai-DeepSeek-V2.5"):
        rendering = antiphon.render(messages, chat_template=hub_templates()[name], **SPECIAL)
        turn = rendering.turns[-1]
        assert rendering.text[: turn.start].endswith("and?")
        assert turn.end == len(rendering.text)
        assert not rendering.unlocated


def test_what_may_be_a_header_of_another_kind_is_no_answer_s() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}"
        "{% elif m.tool_calls %}<|calls|>{{ m.tool_calls[0].function.name }}<|end|>"
        "{% else %}<|bot|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|bot|>{% endif %}"
    )
    call = {"type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}]
    rendering = antiphon.render(messages, chat_template=template)
    assert list(rendering.unlocated) == [1]


def test_an_end_token_printed_only_where_something_follows_is_the_turn_s() -> None:
    template = hub_templates()["SalmanHabeeb-qwen-llamafiles"]
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    rendering = antiphon.render(messages, chat_template=template)
    (turn,) = rendering.turns
    assert rendering.text[turn.start : turn.end] == "b<|im_end|>"


def test_a_call_printed_without_a_header_begins_where_the_text_before_ends() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}\n{% else %}"
        "{% if m.content %}<|bot|>{{ m.content }}{% endif %}"
        "{% for c in m.tool_calls or [] %}{{ '\n<call>' }}{{ c.function.name }}</call>{% endfor %}<|end|>\n"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}"
    )
    call = {"function": {"name": "now", "arguments": {}}}
    messages = [
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "user", "content": "Again."},
        {"role": "assistant", "content": "It is late."},
    ]
    rendering = antiphon.render(messages, chat_template=template, eos_token="<|end|>")
    shown = [rendering.text[turn.start : turn.end] for turn in rendering.turns]
    assert shown == ["\n<call>now</call><|end|>", "It is late.<|end|>"]
    assert not rendering.unlocated


def test_a_block_shown_by_its_end_alone_is_prompt() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}"
        "{% else %}<|bot|></think>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|bot|><think></think>{% endif %}"
    )
    for answer in ("Late.", ""):
        messages = [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": "Thanks."},
        ]
        rendering = antiphon.render(messages, chat_template=template, eos_token="<|end|>")
        [turn] = rendering.turns
        assert rendering.text[turn.start : turn.end] == f"{answer}<|end|>"


def test_the_end_of_a_block_that_stands_where_the_prompt_opens_one_is_the_model_s() -> None:
    """Of what a model wrote behind ``<think>`` a template may leave the end and the answer."""
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}"
        "{% else %}<|bot|></think>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|bot|><think>{% endif %}"
    )
    for answer in ("Late.", ""):
        for more in ([], [{"role": "user", "content": "Thanks."}]):
            messages = [
                {"role": "user", "content": "Time?"},
                {"role": "assistant", "content": answer},
                *more,
            ]
            rendering = antiphon.render(messages, chat_template=template, eos_token="<|end|>")
            [turn] = rendering.turns
            assert rendering.text[turn.start : turn.end] == f"</think>{answer}<|end|>"


def test_an_end_token_printed_only_where_something_follows_is_the_first_turn_s_too() -> None:
    template = hub_templates()["SalmanHabeeb-qwen-llamafiles"]
    messages = [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    rendering = antiphon.render(messages, chat_template=template)
    (turn,) = rendering.turns
    assert rendering.text[turn.start : turn.end] == "b<|im_end|>"


def test_results_inside_a_turn_are_noticed_whatever_is_left_of_them() -> None:
    """Gemma 4's kind: the results stand between the calls and the content of one message."""
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}<|end|>"
        "{% elif m.role == 'assistant' %}<|bot|>{% for c in m.tool_calls or [] %}"
        "<|call>{{ c.function.name }}<call|>{% endfor %}"
        "{% set follows = messages[loop.index0 + 1:] %}{% if m.tool_calls and follows %}"
        "<|result>{{ follows[0].name or 'unknown' }}:{{ follows[0].content }}<result|>{% endif %}"
        "{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|bot|>{% endif %}"
    )
    call = {"type": "function", "function": {"name": "now", "arguments": {}}}
    for result in (
        {"content": "12", "name": "now"},
        {"content": "", "name": "now"},
        {"content": ""},
        {"content": None},
    ):
        messages = [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", **result},
            {"role": "assistant", "content": "Late."},
        ]
        rendering = antiphon.render(messages, chat_template=template, eos_token="<|end|>")
        assert list(rendering.unlocated) == [1], result
        assert [t.message for t in rendering.turns if t.message not in rendering.unlocated] == [3]
        messages[1]["content"] = ""
        rendering = antiphon.render(messages, chat_template=template, eos_token="<|end|>")


def test_the_prompt_for_the_next_answer_is_no_earlier_answer_s_place() -> None:
    """Of two answers the template prints but one, and neither has words that say which."""
    template = hub_templates()["Apriel-1.6-15b-Thinker-fixed"]
    messages = [{"role": "assistant", "content": None}, {"role": "model", "content": "x"}]
    rendering = antiphon.render(
        messages, chat_template=template, eos_token="<|end|>", add_generation_prompt=True
    )
    found = [turn for turn in rendering.turns if turn.message not in rendering.unlocated]
    assert all(turn.end < len(rendering.text) for turn in found)


def test_an_answer_that_comes_first_needs_no_prompt_where_nothing_stands_before_it() -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"
    messages = [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Hi."}]
    for bos in ("", "<|begin|>"):
        rendering = antiphon.render(messages, chat_template=template, bos_token=bos)
        [turn] = rendering.turns
        assert rendering.text[turn.start : turn.end] == "Hello.<|end|>"


def test_a_turn_that_can_t_be_found_is_refused_with_the_reason() -> None:
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}{{ messages[1].reasoning_content }}"
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "r"},
        {"role": "user", "content": "c"},
    ]
    item = antiphon.render(messages, chat_template=template).tokenize(tokenizer("qwen3"))
    assert item.rendering.unlocated
    with pytest.raises(MaskUnavailable, match="message 1"):
        item.assistant_mask  # noqa: B018
    assert tokenizer("qwen3").decode(item.input_ids) == item.rendering.text


def test_places_are_remembered_only_where_they_hold() -> None:
    """Conversations of one shape, of which one's text begins with what the prompt opens."""
    template = hub_templates()["Aletheia-Bench-DPO-Think-14B"]
    for answers in (
        ["a", "b"],
        ["<think>\nr\n</think>\n\na", "b"],
        ["a", "<think>\nr\n</think>\n\nb"],
    ):
        messages = [
            m
            for a in answers
            for m in ({"role": "user", "content": "q"}, {"role": "assistant", "content": a})
        ]
        rendering = antiphon.render(messages, chat_template=template, **SPECIAL)
        for turn in rendering.turns:
            prompt = antiphon.render(
                messages[: turn.message],
                chat_template=template,
                add_generation_prompt=True,
                **SPECIAL,
            ).text
            if rendering.text.startswith(prompt):
                assert turn.start == len(prompt)


def turns_of(template: str, messages: list[dict[str, Any]], **options: Any) -> list[str]:
    """Return the text of each turn that was found for certain."""
    rendering = antiphon.render(messages, chat_template=template, **options)
    return [
        rendering.text[turn.start : turn.end]
        for turn in rendering.turns
        if turn.message not in rendering.unlocated
    ]


QUESTION = {"role": "user", "content": "Time?"}
ANSWER = {"role": "assistant", "content": "Late."}


def test_a_turn_never_holds_the_words_of_others() -> None:
    """Templates that turn the conversation around, or sort it by roles, have no turns to train on."""
    backwards = (
        "{% for m in messages | reverse %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    by_roles = (
        "{% for role, said in messages | groupby('role') %}<{{ role }}>{% for m in said %}{{ m.content }}|{% endfor %}"
        "</{{ role }}>{% endfor %}"
    )
    conversation = [QUESTION, ANSWER, {"role": "user", "content": "And now?"}, dict(ANSWER)]
    for template in (backwards, by_roles):
        for messages in (conversation, conversation[:2]):
            rendering = antiphon.render(messages, chat_template=template)
            for turn in rendering.turns:
                if turn.message in rendering.unlocated:
                    continue
                assert not [
                    span
                    for span in rendering.spans
                    if span.message != turn.message
                    and span.start < turn.end
                    and span.end > turn.start
                ]
            item = rendering.tokenize(tokenizer("qwen3"))
            with pytest.raises(MaskUnavailable, match=r"message [13]"):
                item.assistant_mask  # noqa: B018


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ '\n\n' if not loop.first }}### {{ m.role }}:\n{{ m.content }}"
        "{{ eos_token if m.role == 'assistant' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '\n\n' }}### assistant:\n{% endif %}",
        "{% for m in messages %}{{ '<|sep|>' if not loop.first }}{{ m.role }}: {{ m.content }}"
        "{{ eos_token if m.role == 'assistant' }}{% endfor %}"
        "{% if add_generation_prompt %}<|sep|>assistant: {% endif %}",
        "{% if messages[0].role != 'system' %}[SYS]Be kind.[/SYS]{% endif %}{% for m in messages %}"
        "{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}"
        "{% endfor %}",
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST] {% else %}"
        "{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
        "{% for m in messages %}<|{{ m.role }}|><msg>{{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    ],
)
def test_an_answer_that_comes_first_begins_as_answers_to_questions_do(template: str) -> None:
    messages = [ANSWER, QUESTION, dict(ANSWER)]
    first, second = turns_of(template, messages, eos_token="<|end|>")
    assert first == second
    assert first.endswith("Late.<|end|>")


def test_what_opens_the_prompt_is_not_the_end_of_the_answer_before() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ '<think></think>' if m.role == 'assistant' }}{{ m.content }}"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|><think>{% endif %}"
    )
    for prompt in (False, True):
        shown = turns_of(template, [QUESTION, ANSWER], add_generation_prompt=prompt)
        assert shown == ["</think>Late."]


def test_the_end_is_found_whatever_variables_print_in_front() -> None:
    template = (
        "{% if identity %}<|start|>system<|text|>{{ identity }}<|end|>{% endif %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}"
        "{% for m in messages %}<|start|>{{ m.role }}<|text|>{{ m.content }}"
        "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    )
    tool = {"type": "function", "function": {"name": "now", "parameters": {}}}
    for options in ({}, {"identity": "You are kind."}, {"tools": [tool]}):
        shown = turns_of(template, [QUESTION, ANSWER], add_generation_prompt=True, **options)
        assert shown == ["<|text|>Late.<|end|>"]


CALLS = (
    "{% for m in messages %}{% if m.role == 'tool' %}answer:{{ m.content }}<tool_answer|>{% else %}"
    "{% if m.role == 'user' or not (loop.previtem and loop.previtem.role == 'tool') %}<|turn>{{ m.role }}\n{% endif %}"
    "{% for c in m.tool_calls or [] %}<|tool_call>{{ c.function.name }}{}<tool_call|>{% endfor %}{{ m.content }}"
    "{% if m.tool_calls and not (loop.last and add_generation_prompt) %}<|tool_answer>{% elif not m.tool_calls %}"
    "<turn|>\n{% endif %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1].role != 'tool' %}<|turn>assistant\n{% endif %}"
    "{% if add_generation_prompt and thinking %}<|channel>thought\n{% endif %}"
)
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "now", "arguments": {}}}],
}


def test_the_end_of_a_block_inside_a_turn_is_not_its_end_token() -> None:
    shown = turns_of(CALLS, [QUESTION, CALL])
    assert shown == ["<|tool_call>now{}<tool_call|><|tool_answer>"]
    shown = turns_of(CALLS, [QUESTION, CALL, {"role": "tool", "content": "12"}, ANSWER])
    assert shown == ["<|tool_call>now{}<tool_call|><|tool_answer>", "Late.<turn|>"]


def test_an_answer_whose_prompt_opens_more_than_it_shows_begins_with_its_text() -> None:
    messages = [QUESTION, CALL, {"role": "tool", "content": "12"}, ANSWER]
    assert turns_of(CALLS, messages, thinking=True)[-1] == "Late.<turn|>"
    spaced = (
        "{% for m in messages %}{{ m.content }}</s>{% endfor %}{{ ' ' if add_generation_prompt }}"
    )
    assert turns_of(spaced, [QUESTION, ANSWER], eos_token="</s>") == ["Late.</s>"]


def test_a_header_that_stands_with_other_white_space_is_prompt() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %} <user> {{ m.content }} "
        "{% if loop.last %}<bot> {% endif %}{% else %}  <bot>  {{ m.content }} <eos>  {% endif %}{% endfor %}"
    )
    shown = turns_of(template, [QUESTION, ANSWER, QUESTION, dict(ANSWER, content="")])
    assert [turn.strip() for turn in shown] == ["Late. <eos>", "<eos>"]


def test_messages_that_the_template_leaves_out_have_no_turn_and_hinder_no_mask() -> None:
    last_round = (
        "{{ (messages | selectattr('role', 'equalto', 'user') | list)[-1].content }}\nA: "
        "{% if messages[-1].role == 'assistant' %}{{ messages[-1].content }}<|end|>{% endif %}"
    )
    last_message = "{{ messages[-1].content }}<|end|>"
    messages = [QUESTION, {**ANSWER, "content": "Early."}, {**QUESTION, "content": "And?"}, ANSWER]
    for template in (last_round, last_message):
        rendering = antiphon.render(messages, chat_template=template)
        assert [turn.message for turn in rendering.turns] == [3]
        assert 1 not in rendering.unlocated
    assert turns_of(last_round, messages) == ["Late.<|end|>"]


def test_a_prompt_that_repeats_the_question_is_no_part_of_the_answer() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}Again: {{ messages[-1].content }}<|assistant|>{% endif %}"
    )
    assert turns_of(template, [QUESTION, ANSWER]) == ["Late.<|end|>"]


EMPTY = [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        (
            "{{ messages | length }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}",
            ["<|end|>", "<|end|>"],
        ),
        (
            "{% for m in messages %}<|{{ m.role }}|>\n{{ '<think></think>' if loop.last and m.role == 'assistant' }}"
            "{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n<think>{% endif %}",
            ["<|end|>", "</think><|end|>"],
        ),
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ '<think>' if loop.last and m.role == 'assistant' }}"
            "{{ '</think>' if m.role == 'assistant' }}{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|><think>{% endif %}",
            ["</think><|end|>", "</think><|end|>"],
        ),
    ],
)
def test_empty_answers_to_empty_questions_have_each_their_turn(
    template: str, shown: list[str]
) -> None:
    assert turns_of(template, EMPTY * 2, eos_token="<|end|>") == shown


def test_quotes_that_look_like_markers_end_no_turn() -> None:
    template = (
        "{{ '' if messages[0].role else '' }}{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<|call>{{ c.function.name ~ '{' }}"
        '{%- for k, v in c.function.arguments.items() %}{{ k }}:<|"|>{{ v }}<|"|>{% endfor %}}<call|>'
        "{% endfor %}{{ '<|answer>' if m.tool_calls else '<turn|>\n' }}{% endfor %}"
        "{% if add_generation_prompt and not messages[-1].tool_calls %}<|turn>assistant\n{% endif %}"
    )
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}
    messages = [QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert turns_of(template, messages) == ['<|call>f{a:<|"|>b<|"|>}<call|><|answer>']
