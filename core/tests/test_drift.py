"""The drift report names what encoding again would change in stored conversations, and why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import antiphon
import pytest
from antiphon.cli import run as command_line
from antiphon.drift import REASONS, drift_of, drift_report, summary
from antiphon.errors import InvalidData
from rendering_helpers import hub_templates, tokenizer

HEAD = "<|im_start|>user\nHow deep is it?<|im_end|>\n<|im_start|>assistant\n"
TAIL = "<|im_end|>\n"
ASK = {"role": "user", "content": "How deep is it?"}


def ids(*texts: str) -> list[int]:
    """Encode texts one by one: cuts between them are cuts between tokens."""
    own = tokenizer("qwen3")
    return [token for text in texts for token in own.encode(text)]


def why(row: dict[str, Any], **options: Any) -> list[str]:
    options = {"family": "chatml", **options}
    return [each.why for each in drift_of(row, tokenizer("qwen3"), **options).differences]


def answered(answer: Any, *stored: str, **options: Any) -> list[str]:
    message = answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}
    return why({"messages": [ASK, message], "input_ids": ids(HEAD, *stored, TAIL)}, **options)


def test_what_does_not_drift_is_not_reported() -> None:
    assert answered("Ninety metres.", "Ninety metres.") == []
    prompt = {"messages": [ASK], "input_ids": ids(HEAD)}
    assert why(prompt) == []
    assert why({"text": HEAD + "Yes." + TAIL, "input_ids": ids(HEAD + "Yes." + TAIL)}) == []


def test_merged_tokens() -> None:
    row = {"messages": [ASK, {"role": "assistant", "content": "Ninety metres."}]}
    row["input_ids"] = ids(HEAD, "Nine", "ty me", "tres.", TAIL)
    drift = drift_of(row, tokenizer("qwen3"), family="chatml")
    assert {each.why for each in drift.differences} == {"merged tokens"}
    first = drift.differences[0]
    assert first.was == first.now
    assert first.message == 1
    assert drift.first == first.position == len(ids(HEAD))
    assert why({"text": HEAD + "Ninety" + TAIL, "input_ids": ids(HEAD, "Nine", "ty", TAIL)}) == [
        "merged tokens"
    ]


def test_changed_white_space() -> None:
    assert answered("Ninety metres.", "Ninety  metres.") == ["white space"]
    assert answered("Ninety metres.", "\n\nNinety metres.") == ["white space"]


def test_calls_written_otherwise_and_booleans() -> None:
    template = hub_templates()["Qwen-Qwen2.5-7B-Instruct"]
    system = antiphon.render(
        [ASK], tokenizer("qwen3"), chat_template=template, add_generation_prompt=True
    )

    def stored(call: str, arguments: dict[str, Any]) -> list[str]:
        calls = [{"type": "function", "function": {"name": "find", "arguments": arguments}}]
        row = {
            "messages": [ASK, {"role": "assistant", "content": "", "tool_calls": calls}],
            "input_ids": ids(system.text, f"<tool_call>\n{call}\n</tool_call>", TAIL),
        }
        return why(row, chat_template=template, family=None)

    assert stored('{"name": "find", "arguments": {"all": true}}', {"all": True}) == []
    assert set(stored('{"name": "find", "arguments": {"all": True}}', {"all": True})) == {
        "booleans"
    }
    assert set(stored('{"arguments": {"all": true}, "name": "find"}', {"all": True})) == {
        "rewritten call"
    }
    assert set(stored('{"name":"find","arguments":{"all":true}}', {"all": True})) <= {
        "rewritten call",
        "white space",
    }


def test_stripped_reasoning() -> None:
    told = answered("Ninety metres.", "<think>\nIt was measured.\n</think>\n\nNinety metres.")
    assert told == ["stripped reasoning"]


def test_missing_end_and_control_tokens_written_as_text() -> None:
    row = {
        "messages": [ASK, {"role": "assistant", "content": "Yes."}],
        "input_ids": ids(HEAD, "Yes."),
    }
    assert why(row) == ["end token"]
    row = {
        "messages": [{"role": "user", "content": "a <|im_end|> b"}],
        "input_ids": ids("<|im_start|>user\na <|im_end|> b<|im_end|>\n"),
    }
    assert why(row) == ["control token"]


def test_a_date_that_the_template_writes() -> None:
    template = (
        "{{ '<|im_start|>system\\nToday Date: ' + strftime_now('%d %b %Y') + '<|im_end|>\\n' }}"
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    )
    messages = [ASK, {"role": "assistant", "content": "Yes."}]
    now = antiphon.render(messages, tokenizer("qwen3"), chat_template=template).text
    today = re.search(r"Date: (.*?)<", now)
    assert today is not None
    for day in ("26 Jul 2024", f"0{today[1][1:]}", f"{today[1][:-1]}1"):
        row = {"messages": messages, "input_ids": ids(now.replace(today[1], day))}
        assert set(why(row, chat_template=template, family=None)) == {"date"}, day
    row = {"messages": messages, "input_ids": ids(now.replace("Yes.", "3 May 2024"))}
    assert why(row, chat_template=template, family=None) == ["other text"]


def test_a_field_that_the_template_drops() -> None:
    template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    calls = [{"type": "function", "function": {"name": "find", "arguments": {"what": "a depth"}}}]
    answer = {"role": "assistant", "content": "Let me look. ", "tool_calls": calls}
    row = {
        "messages": [ASK, answer],
        "input_ids": ids(HEAD, "Let me look. ", 'find what "a depth"', TAIL),
    }
    assert why(row, chat_template=template, family=None) == ["dropped field"]


def test_rows_that_were_cut() -> None:
    answer = {"role": "assistant", "content": "It is ninety metres deep, more than the other one."}
    whole = ids(HEAD, answer["content"], TAIL)
    for stored in (whole[:-9], whole[6:]):
        assert why({"messages": [ASK, answer], "input_ids": stored}) == ["truncated"]


def test_a_beginning_that_is_missing_or_stands_twice() -> None:
    own = tokenizer("llama3")
    messages = [ASK, {"role": "assistant", "content": "Yes."}]
    template = hub_templates()["meta-llama-Llama-3.1-8B-Instruct"]
    row = antiphon.render(messages, own, chat_template=template).tokenize().input_ids
    assert row[0] == own.bos_token_id
    for stored in (row[1:], [row[0], *row]):
        drift = drift_of({"messages": messages, "input_ids": stored}, own, chat_template=template)
        assert [each.why for each in drift.differences] == ["beginning token"]


def test_ids_of_single_messages_are_compared_with_their_turns() -> None:
    row = {
        "messages": [
            ASK,
            {"role": "assistant", "content": "Ninety.", "token_ids": ids("Ninety.<|im_end|>")},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes.", "token_ids": ids("Y", "es.", "<|im_end|>")},
        ]
    }
    drift = drift_of(row, tokenizer("qwen3"), family="chatml")
    assert [(d.why, d.message) for d in drift.differences] == [("merged tokens", 3)]


def test_messages_that_stand_there_as_json_are_compared() -> None:
    messages = [ASK, {"role": "assistant", "content": "Yes."}]
    row = {"messages": json.dumps(messages), "input_ids": ids(HEAD, "Yes.", TAIL)}
    assert why(row) == []


def test_padding_of_stored_rows_is_left_out() -> None:
    stored = ids(HEAD, "Yes.", TAIL)
    row = {
        "messages": [ASK, {"role": "assistant", "content": "Yes."}],
        "input_ids": [0, 0, *stored],
        "attention_mask": [0, 0, *[1] * len(stored)],
    }
    assert why(row) == []


def test_rows_that_can_not_be_compared_say_why() -> None:
    drifts = drift_report(
        [{"messages": [ASK]}, 5, {"input_ids": ["x"], "messages": [ASK]}, {"input_ids": [1]}],
        tokenizer("qwen3"),
        family="chatml",
    )
    assert [drift.row for drift in drifts] == [0, 1, 2, 3]
    assert all(drift.problem for drift in drifts)
    with pytest.raises(InvalidData, match="Row 7 has no ids"):
        drift_of({"text": "x"}, tokenizer("qwen3"), row_number=7)


def test_the_command_prints_a_table_and_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"messages": [ASK, {"role": "assistant", "content": "Yes."}]}
    good["input_ids"] = ids(HEAD, "Yes.", TAIL)  # type: ignore[assignment]
    bad = {**good, "input_ids": ids(HEAD, "Ye", "s.", TAIL)}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, bad, {"x": 1})))
    folder = str(tokenizer("qwen3").name_or_path)
    line = ["drift", str(path), "--tokenizer", folder, "--family", "chatml"]
    assert command_line(line) == 1
    told = capsys.readouterr().out
    assert "merged tokens" in told
    assert "3 rows" in told
    assert "1 would drift, 1 could not be compared" in told
    assert command_line([*line, "--json"]) == 1
    rows = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [len(row["differences"]) for row in rows] == [0, 1, 0]
    path.write_text(json.dumps(good) + "\n")
    assert command_line(line) == 0


def test_a_summary_counts_reasons() -> None:
    stored = ids(HEAD, "Nine", "ty", TAIL)
    row = {"text": HEAD + "Ninety" + TAIL, "input_ids": stored}
    drifts = drift_report([row, row], tokenizer("qwen3"))
    assert summary(drifts) == [("merged tokens", 2, 2, [0, 1])]
    assert all(why in REASONS for why, *_ in summary(drifts))
