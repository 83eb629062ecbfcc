"""Faults that people met elsewhere, each with what is right for DeepSeek's dialects."""

from __future__ import annotations

import deepseek_oracle as oracle
import pytest
from antiphon import render
from antiphon.detection import detect_family
from antiphon.reading import parse, parse_response
from antiphon_deepseek.families import FAMILIES

BY_NAME = {family.name: family for family in FAMILIES}
TOKENS = {"bos_token": oracle.BOS, "eos_token": oracle.EOS}


def text_of(name, messages, **options):
    template = BY_NAME[name].load_template()
    return render(messages, chat_template=template, **TOKENS, **options).text


def grammar(name):
    return BY_NAME[name].load_grammar()


def call(arguments):
    return {"type": "function", "function": {"name": "f", "arguments": arguments}}


def test_the_official_text_of_a_finished_answer_does_not_extend_its_prompt():
    for name in ("deepseek-r1", "deepseek-r1-distill"):
        user = [{"role": "user", "content": "a"}]
        answer = [{"role": "assistant", "content": "<think>\nr\n</think>\n\nb"}]
        prompt = text_of(name, user, add_generation_prompt=True)
        assert prompt == "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜><think>\n"
        whole = text_of(name, user + answer)
        assert (
            whole == "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜>\n\nb<｜end▁of▁sentence｜>"
        )


def test_a_completion_begins_inside_the_reasoning_that_its_prompt_opened():
    prompt = "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜><think>\n"
    message = parse_response(
        "r\n</think>\n\nb<｜end▁of▁sentence｜>",
        prompt=prompt,
        family=grammar("deepseek-r1-distill"),
    )
    assert (message["reasoning_content"], message["content"]) == ("r", "b")
    assert message["is_complete"]


def test_reasoning_that_is_cut_off_is_no_answer():
    prompt = "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜><think>\n"
    message = parse_response("still thinking", prompt=prompt, family=grammar("deepseek-r1"))
    assert (message["reasoning_content"], message["content"]) == ("still thinking", None)
    assert not message["is_complete"]


def test_the_prompt_of_v3_1_opens_or_closes_the_reasoning():
    messages = [{"role": "user", "content": "hi"}]
    head = "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜>"
    for variables, tail in (
        ({}, "</think>"),
        ({"thinking": False}, "</think>"),
        ({"thinking": True}, "<think>"),
    ):
        prompt = text_of("deepseek-v3.1", messages, add_generation_prompt=True, **variables)
        assert prompt == head + tail
        message = parse_response(
            f"r</think>b{oracle.EOS}" if tail == "<think>" else f"b{oracle.EOS}",
            prompt=prompt,
            family=grammar("deepseek-v3.1"),
        )
        assert message["content"] == "b"
        assert message["reasoning_content"] == ("r" if tail == "<think>" else None)


def test_pretty_printed_arguments_are_read_and_render_to_the_same_bytes():
    text = (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{\n"
        '  "query": "hello",\n  "limit": 5\n}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
    )
    for name in ("deepseek-v2.5", "deepseek-v3", "deepseek-r1", "deepseek-r1-0528"):
        (made,) = parse_response(text, family=grammar(name))["tool_calls"]
        assert made["function"] == {"name": "search", "arguments": {"query": "hello", "limit": 5}}
    whole = f"{oracle.BOS}<｜User｜>a<｜Assistant｜>{text}"
    assert (
        oracle.render(
            BY_NAME["deepseek-r1"].load_template(), parse(whole, family=grammar("deepseek-r1"))
        )
        == whole
    )


def test_after_a_tool_result_v3_2_reasons_and_then_answers():
    message = parse_response(
        "r2</think>done<｜end▁of▁sentence｜>",
        prompt="</function_results>\n\n<think>",
        family=grammar("deepseek-v3.2"),
    )
    assert (message["reasoning_content"], message["content"]) == ("r2", "done")


def test_arguments_as_a_mapping_are_refused_where_the_template_joins_strings():
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call('{"x": 1}')]},
    ]
    expected = (
        "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function"
        '<｜tool▁sep｜>f\n```json\n{"x": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
    )
    assert text_of("deepseek-r1", messages) == expected
    assert BY_NAME["deepseek-r1"].arguments == "string"
    mapped = oracle.with_mapping_arguments(messages)
    assert oracle.render(BY_NAME["deepseek-r1"].load_template(), mapped) is None


def test_a_history_renders_on_every_dialect_whatever_form_its_arguments_have():
    from antiphon import History

    expected = None
    for arguments in ('{"x": 1}', {"x": 1}):
        messages = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": None, "tool_calls": [call(arguments)]},
        ]
        history = History.from_chats([messages])[0]
        text = text_of("deepseek-r1", history)
        expected = expected or text
        assert text == expected
        assert '\n{"x": 1}\n' in text


def test_a_prefix_that_is_continued_keeps_its_reasoning():
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nr\n</think>"},
    ]
    text = text_of("deepseek-r1-distill", messages, continue_final_message=True)
    assert text == "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜><think>\nr\n</think>"


def test_white_space_at_the_edges_stays():
    messages = [
        {"role": "user", "content": "  indented question\n"},
        {"role": "assistant", "content": "    return x\n"},
    ]
    text = text_of("deepseek-v3", messages)
    assert text == (
        "<｜begin▁of▁sentence｜><｜User｜>  indented question\n<｜Assistant｜>    return x\n<｜end▁of▁sentence｜>"
    )
    read = parse(text, family=grammar("deepseek-v3"))
    assert [message["content"] for message in read] == ["  indented question\n", "    return x\n"]


def test_the_template_brings_bos_once(tokenizers):
    tokenizer = tokenizers("v3")
    ids = render([{"role": "user", "content": "test"}], tokenizer).tokenize(tokenizer).input_ids
    assert ids[0] == 0
    assert ids.count(0) == 1


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1-distill"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "deepseek-r1-distill"),
        ("unsloth/DeepSeek-R1-Distill-Llama-8B", "deepseek-r1-distill"),
        ("/models/qwen/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill"),
        ("unsloth/DeepSeek-R1-Distill-Qwen-14B-GGUF", "deepseek-r1-distill"),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "deepseek-r1-0528-distill"),
        ("/models/llama/DeepSeek-R1-0528", "deepseek-r1-0528"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
        ("someone/DeepSeek-R1-AWQ", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("cognitivecomputations/DeepSeek-V3-AWQ", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-v3.1"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.1"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("unsloth/DeepSeek-V4-Flash", "deepseek-v4"),
        ("deepseek-ai/DeepSeek-V2.5-1210", "deepseek-v2.5"),
        ("deepseek-ai/DeepSeek-V2-Chat-0628", "deepseek-v2-0628"),
        ("deepseek-ai/DeepSeek-Coder-V2-Instruct-0724", "deepseek-coder-v2-0724"),
        ("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "deepseek-v2"),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "deepseek-v2"),
        ("deepseek-ai/deepseek-llm-7b-chat", "deepseek-v2"),
        ("TheBloke/deepseek-coder-6.7B-instruct-AWQ", "deepseek-coder"),
        ("deepseek-ai/DeepSeek-Prover-V1.5-RL", "deepseek-prover"),
    ],
)
def test_names_tell_the_dialect_whatever_the_folder_is_called(name, family):
    assert detect_family(name).family == family


@pytest.mark.parametrize(
    "name",
    [
        "StephYang/gpt-oss-20b-terminal_lego_deepseek_v3_2_8k",
        "OpenBuddy/openbuddy-deepseek-67b-v24.1-65k",
        "/home/deepseek/models/gemma-2-9b-it",
        "/home/deepseek-r1/checkpoints/step-500",
        "deepseek-ai/DeepSeek-Prover-V2-7B",
        "deepseek-ai/DeepSeek-Math-V2",
        "NousResearch/Hermes-3-Llama-3.1-8B",
    ],
)
def test_look_alikes_are_none_of_these_dialects(name):
    assert detect_family(name).family not in BY_NAME


def test_absent_keys_and_none_are_two_things_for_r1():
    plain = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    template = BY_NAME["deepseek-r1"].load_template()
    with_none = [plain[0], {**plain[1], "tool_calls": None}]
    with_empty = [plain[0], {**plain[1], "tool_calls": []}]
    assert oracle.render(template, plain) == f"{oracle.BOS}<｜User｜>a<｜Assistant｜>b{oracle.EOS}"
    assert oracle.render(template, with_none) is None
    emptied = oracle.render(template, with_empty)
    assert emptied == f"{oracle.BOS}<｜User｜>a<｜tool▁calls▁end｜>{oracle.EOS}"


def test_a_history_drops_the_keys_that_a_data_set_pads_with_none():
    from antiphon import History

    rows = [
        {"role": "user", "content": "a", "tool_calls": None, "name": None},
        {"role": "assistant", "content": "b", "tool_calls": None},
    ]
    text = text_of("deepseek-r1", History.from_chats([rows])[0])
    assert text == f"{oracle.BOS}<｜User｜>a<｜Assistant｜>b{oracle.EOS}"
