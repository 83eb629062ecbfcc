"""Rows with a prompt: its completion is trained alone; of a chosen and a rejected answer ids are made of both."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import antiphon
import datasets
import pytest
from antiphon.cli import run as command_line
from antiphon.data import (
    PREFERENCE_COLUMNS,
    SampleOptions,
    TrainOn,
    make_preferences,
    make_samples,
    tokenize_dataset,
)
from antiphon.data.sources import from_dataset
from antiphon.errors import InvalidData, InvalidMessage, InvalidParameter
from antiphon.registry import get_family
from rendering_helpers import TOKENIZERS, hub_templates, tokenizer

ASK = {"role": "user", "content": "How deep is the lake?"}
GOOD = {"role": "assistant", "content": "Ninety metres."}
BAD = {"role": "assistant", "content": "Who knows."}
EARLIER = [ASK, GOOD, {"role": "user", "content": "Sure?"}]
PREFERENCE = SampleOptions(family="chatml", preference=True)
ROW = {"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]}


def text(ids: list[int], name: str = "qwen3") -> str:
    return str(tokenizer(name).decode(ids))


def made(rows: list[Any], options: SampleOptions = PREFERENCE, name: str = "qwen3") -> Any:
    return make_preferences(enumerate(rows), tokenizer(name), options)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": EARLIER, "completion": [{"role": "assistant", "content": "Yes."}]},
        {"prompt": EARLIER, "completion": "Yes."},
        {"prompt": EARLIER, "completion": {"role": "assistant", "content": "Yes."}, "messages": None},
    ],
)  # fmt: skip
def test_of_a_prompt_with_its_completion_the_completion_is_trained(row: Any) -> None:
    whole = [*EARLIER, {"role": "assistant", "content": "Yes."}]
    rows = [row, {"messages": whole}, {**row, "system": "Be brief."}]
    one, other, led = make_samples(
        enumerate(rows), tokenizer("qwen3"), SampleOptions(family="chatml")
    ).samples
    assert one.input_ids == other.input_ids
    for sample in (one, led):
        trained = [t for t, m in zip(sample.input_ids, sample.mask, strict=True) if m]
        assert text(trained) == "Yes.<|im_end|>"
    assert antiphon.History.from_chats(row).to_chats() == whole


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        {"prompt": ASK["content"], "chosen": GOOD["content"], "rejected": BAD["content"]},
        {"chosen": [ASK, GOOD], "rejected": [ASK, BAD]},
        {"prompt": ASK["content"], "chosen": [ASK, GOOD], "rejected": [ASK, BAD]},
        {"prompt": [ASK], "chosen": GOOD, "rejected": BAD, "messages": [ASK, GOOD]},
        {
            "conversations": [{"from": "human", "value": ASK["content"]}],
            "chosen": {"from": "gpt", "value": GOOD["content"]},
            "rejected": {"from": "gpt", "value": BAD["content"]},
        },
    ],
)
def test_preferences_of_every_form_give_the_same_ids(row: Any) -> None:
    (found,) = made([row]).samples
    assert (
        text(found.prompt_ids)
        == f"<|im_start|>user\n{ASK['content']}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text(found.chosen_ids) == "Ninety metres.<|im_end|>"
    assert text(found.rejected_ids) == "Who knows.<|im_end|>"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_answers_stand_behind_the_ids_of_their_prompt(name: str) -> None:
    """For each real tokenizer with its own template, and templates that rewrite what came before."""
    templates: list[str | None] = [None, *list(hub_templates().values())[5::97]]
    row = {
        "prompt": EARLIER,
        "chosen": [BAD],
        "rejected": [{**GOOD, "reasoning_content": "I know."}],
    }
    compared = 0
    for template in templates:
        if template is None and not tokenizer(name).chat_template:
            continue
        options = SampleOptions(chat_template=template, preference=True)
        for found in made([row], options, name).samples:
            prompt = antiphon.render(
                EARLIER, tokenizer(name), chat_template=template, add_generation_prompt=True
            )
            assert found.prompt_ids == prompt.tokenize().input_ids
            assert "Who knows." in text(found.chosen_ids, name)
            assert "Ninety metres." in text(found.rejected_ids, name)
            compared += 1
    assert compared > 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (5, "is no preference"),
        ({"prompt": [ASK], "chosen": [GOOD]}, "needs chosen and rejected .*prompt, chosen"),
        ({"chosen": "Human: a", "rejected": "Human: b"}, "there is no prompt: give it"),
        ({**ROW, "prompt": 5}, "expected a list of messages, got int"),
        ({**ROW, "chosen": []}, "chosen adds 0 messages"),
        ({**ROW, "rejected": [BAD, ASK, GOOD]}, "rejected adds 3 messages"),
        ({**ROW, "chosen": [ASK]}, "chosen ends with a message of the user"),
        ({**ROW, "chosen": [{"role": "assistant", "content": None}]}, "neither content nor tool calls"),
        ({"chosen": [ASK, GOOD], "rejected": [EARLIER[2], BAD]}, "chosen adds 2 messages"),
        ({**ROW, "tools": "f(x)"}, "not JSON"),
    ],
)  # fmt: skip
def test_a_row_that_is_no_preference_is_refused_with_its_reason(row: Any, reason: str) -> None:
    batch = made([ROW, row])
    assert [sample.row for sample in batch.samples] == [0]
    (note,) = batch.notes
    assert (note.row, note.what) == (1, "refused")
    with pytest.raises(InvalidData, match=f"Row 1 .*{reason}"):
        make_preferences([(1, row)], tokenizer("qwen3"), PREFERENCE, strict=True)


def test_longer_preferences_are_cut_or_refused() -> None:
    (whole,) = made([ROW]).samples
    size = len(whole.prompt_ids)

    def cut(**options: Any) -> Any:
        return made([ROW], SampleOptions(family="chatml", preference=True, **options))

    (right,) = cut(max_length=size + 2).samples
    assert right.prompt_ids == whole.prompt_ids
    assert (right.chosen_ids, right.rejected_ids) == (whole.chosen_ids[:2], whole.rejected_ids[:2])
    left = cut(max_length=size, long="cut-left")
    longest = max(len(whole.chosen_ids), len(whole.rejected_ids))
    assert left.samples == [whole._replace(prompt_ids=whole.prompt_ids[longest - size :])]
    assert [note.what for note in left.notes] == ["truncated"]
    for options, reason in (
        ({"max_length": size}, "the prompt alone fills"),
        ({"max_length": longest, "long": "cut-left"}, "the answer alone fills"),
        ({"max_length": size, "long": "refuse"}, "longer than max_length"),
    ):
        batch = cut(**options)
        assert not batch.samples
        assert reason in batch.notes[0].reason


def test_sampled_answers_keep_their_ids() -> None:
    own = tokenizer("qwen3")
    ids = [token for letter in "Ninety." for token in own.encode(letter)]
    row = {**ROW, "chosen": [{"role": "assistant", "content": "Ninety.", "token_ids": ids}]}
    (found,) = made([row]).samples
    assert found.chosen_ids == ids


def test_rows_of_another_kind_are_refused_with_what_to_do() -> None:
    for row, words in (
        (ROW, "--preference"),
        ({"chosen": [ASK, GOOD], "rejected": [ASK, BAD]}, "--preference"),
        ({"instruction": "Add.", "input": "1, 2", "output": "3"}, "put it under prompt"),
    ):
        for given in (row, [row]):
            with pytest.raises(InvalidMessage, match=words):
                antiphon.History.from_chats(given)
        (note,) = make_samples([(0, row)], tokenizer("qwen3")).notes
        assert words in note.reason
    with pytest.raises(InvalidParameter, match=r"leave train_on .*--roles"):
        SampleOptions(preference=True, train_on=TrainOn("last-turn"))


def tokenized(tmp_path: Path, rows: list[dict[str, Any]], *more: str, kind: str = "jsonl") -> Any:
    """Run the command on rows and load what it wrote."""
    path, output = tmp_path / f"rows.{kind}", tmp_path / "out"
    if kind == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(str(path))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = str(tokenizer("qwen3").name_or_path)
    line = ["tokenize", str(path), str(output), "--tokenizer", folder, "--family", "chatml", *more]
    assert command_line(line) == 0
    return datasets.load_dataset(
        "parquet",
        data_files=str(output / "*.parquet"),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_command_makes_preferences(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tokenized(tmp_path, [{**ROW, "score": 1.0}] * 3, "--preference", kind=kind)
    assert rows.column_names == ["prompt_ids", "chosen_ids", "rejected_ids", "row"]
    assert rows["row"][:] == [0, 1, 2]
    (wanted,) = made([ROW]).samples
    assert [rows[2][name] for name in rows.column_names[:3]] == list(wanted[1:])
    told = capsys.readouterr().out
    assert (
        f"3 conversations: 3 samples, {3 * wanted.tokens} tokens ({3 * wanted.trained} trained)"
        in told
    )
    # Without the option the columns of the answers are not even read; the advice is the same.
    line = ["tokenize", str(tmp_path / f"rows.{kind}"), str(tmp_path / "other")]
    assert command_line([*line, "--tokenizer", str(tokenizer("qwen3").name_or_path)]) == 1
    told = "".join(capsys.readouterr())
    assert "--preference" in told


def test_a_data_set_of_preferences_is_read_by_its_columns(tmp_path: Path) -> None:
    whole = {**ROW, "prompt": ASK["content"], "chosen": [ASK, GOOD], "rejected": [ASK, BAD]}
    given = datasets.Dataset.from_list([{**whole, "messages": [ASK, GOOD]}] * 2)
    for number, data in enumerate((given, given.to_iterable_dataset())):
        source = from_dataset(data, columns=PREFERENCE_COLUMNS)
        totals = tokenize_dataset(source, tmp_path / str(number), tokenizer("qwen3"), PREFERENCE)
        assert (totals.samples, totals.refused) == (2, 0)
    with pytest.raises(InvalidData, match="--preference"):
        from_dataset(given.remove_columns("messages"))


def arguments(kind: Any, tmp_path: Path, **more: Any) -> Any:
    return kind(
        output_dir=str(tmp_path / "model"),
        max_steps=1,
        per_device_train_batch_size=2,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **more,
    )


@pytest.mark.filterwarnings("ignore")  # trl's own, of what it deprecates in itself and in others
def test_trl_trains_on_the_completion_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trl = pytest.importorskip("trl", reason="trl is not installed")
    from tiny_llama import tiny_llama

    own = tokenizer("qwen3")
    rows = tokenized(tmp_path, [{"prompt": EARLIER, "completion": [BAD]}] * 2)
    trainer = trl.SFTTrainer(
        model=tiny_llama(own),
        args=arguments(trl.SFTConfig, tmp_path),
        train_dataset=rows,
        processing_class=own,
    )
    (batch,) = list(trainer.get_train_dataloader())[:1]
    shown = [token for token in batch["labels"][0].tolist() if token != -100]
    assert text(shown) == "Who knows.<|im_end|>"
    assert 5 < trainer.train().training_loss < 20


@pytest.mark.filterwarnings("ignore")
def test_trl_takes_preferences_as_it_makes_them_itself(tmp_path: Path) -> None:
    """Its loss is the same as on its own ids, but for the line break behind an answer, which no model writes."""
    pytest.importorskip("torch")
    trl = pytest.importorskip("trl", reason="trl is not installed")
    from tiny_llama import tiny_llama

    class OnIds(trl.DPOTrainer):  # type: ignore[misc, name-defined]
        def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
            return dataset

    own = tokenizer("qwen3")
    given = [{**ROW, "prompt": EARLIER}] * 2
    rows = tokenized(tmp_path, given, "--preference")

    model = tiny_llama(own)

    def trainer(kind: Any, data: Any, tokens: Any) -> Any:
        made = arguments(trl.DPOConfig, tmp_path, max_length=None)
        return kind(
            model=model,
            ref_model=copy.deepcopy(model),
            args=made,
            train_dataset=data,
            processing_class=tokens,
        )

    theirs_tokenizer = copy.deepcopy(own)
    theirs_tokenizer.chat_template = get_family("chatml").load_template()
    theirs = trainer(trl.DPOTrainer, datasets.Dataset.from_list(given), theirs_tokenizer)
    line_break = own.encode("\n")
    for one, other in zip(rows, theirs.train_dataset, strict=True):
        assert one["prompt_ids"] == other["prompt_ids"]
        for side in ("chosen_ids", "rejected_ids"):
            assert one[side] + line_break == other[side]
    ours = trainer(OnIds, rows, own)
    (batch,) = list(ours.get_train_dataloader())[:1]
    shown = batch["input_ids"][batch["completion_mask"].bool()].tolist()
    assert text(shown) == "Ninety metres.<|im_end|>" * 2 + "Who knows.<|im_end|>" * 2
    assert ours.train().training_loss == pytest.approx(0.6931, abs=1e-3)
