"""Rows reach conversations once each, in a settled order, in whole groups, and unchanged."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from antiphon import ChatEnv, DatasetChatEnv, History
from antiphon.conversations.containers import ChatHistory
from antiphon.envs import DataLoadingPrimer, RowLoader, TransformedEnv, WordProblems, check_env
from antiphon.envs.rows import load_rows
from antiphon.errors import EnvError, InvalidData, InvalidParameter, PluginError
from tensordict import TensorDict, TensorDictBase

ROWS = [{"query": f"q{i}", "answer": f"#### {i}"} for i in range(7)]


def queries(root: TensorDictBase) -> list[str]:
    return list(root["query"])


def taken(env: Any, resets: int) -> list[str]:
    return [query for _ in range(resets) for query in queries(env.reset())]


def answer(root: TensorDictBase) -> TensorDictBase:
    prompt = root["history"].prompt
    texts = [f"#### {query[1:]}" for query in root["query"]]
    response = History.from_chats([[{"role": "assistant", "content": text}] for text in texts])
    full = prompt.extend(response, inplace=False, dim=-1)
    return root.set("history", ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size))


def test_every_row_comes_once_an_epoch_in_an_order_that_the_seed_settles() -> None:
    def epochs(seed: int) -> list[str]:
        return taken(DatasetChatEnv(dataset=ROWS, seed=seed), 14)

    one = epochs(1)
    assert sorted(one[:7]) == sorted(one[7:]) == [row["query"] for row in ROWS]
    assert one[:7] != one[7:]
    assert epochs(1) == one != epochs(2)
    assert taken(DatasetChatEnv(dataset=ROWS, shuffle=False), 3) == ["q0", "q1", "q2"]


def test_repeats_come_in_succession_with_the_number_of_their_group() -> None:
    rows = [{"query": "same"}, {"query": "same"}, {"query": "other"}]
    env = DatasetChatEnv(dataset=rows, shuffle=False, repeats=2, num_envs=6)
    root = env.reset()
    assert queries(root) == ["same"] * 4 + ["other"] * 2
    # Equal rows are different groups.
    assert root["group_id"].tolist() == [0, 0, 1, 1, 2, 2]
    assert env.reset()["group_id"].tolist() == [3, 3, 4, 4, 5, 5]


def test_a_group_is_not_split_where_groups_must_be_whole() -> None:
    with pytest.raises(EnvError, match="3 rows would split a group of 2"):
        DatasetChatEnv(dataset=ROWS, repeats=2, num_envs=3, group_repeats=True).reset()
    env = DatasetChatEnv(dataset=ROWS, repeats=4, num_envs=2, shuffle=False)
    assert taken(env, 3) == ["q0"] * 4 + ["q1"] * 2


def test_rows_of_the_data_set_stay_as_they_are() -> None:
    rows = [{"text": "hello", "n": 1}]
    before = copy.deepcopy(rows)
    env = DatasetChatEnv(dataset=rows)
    root = env.reset()
    assert queries(root) == ["hello"]
    assert root["n"] == [1]
    assert root["history"].prompt.to_chats()[0][0]["content"] == "hello"
    assert rows == before


def test_ended_rows_go_on_with_new_data_while_others_stay() -> None:
    task = WordProblems(system_prompt=None, data_key="query", max_turns=2)
    env = DatasetChatEnv(dataset=ROWS, shuffle=False, num_envs=3, task=task)

    def policy(root: TensorDictBase) -> TensorDictBase:
        root = answer(root)
        wrong = History.from_chats([[{"role": "assistant", "content": "#### 99"}]])
        rows = [
            row if query != "q1" else prompt.extend(wrong[0], inplace=False)
            for query, prompt, row in zip(
                root["query"],
                root["history"].prompt.unbind(0),
                root["history"].full.unbind(0),
                strict=True,
            )
        ]
        chats = [row.to_chats() for row in rows]
        return root.set(
            "history",
            ChatHistory(
                prompt=root["history"].prompt, full=History.from_chats(chats), batch_size=(3,)
            ),
        )

    steps = env.rollout(3, policy, break_when_any_done=False)
    seen = [[row[t]["query"] for row in steps.unbind(0)] for t in range(3)]
    assert seen == [["q0", "q1", "q2"], ["q3", "q1", "q4"], ["q5", "q6", "q0"]]


def test_a_row_that_starts_again_has_nothing_of_the_row_before() -> None:
    rows = [
        {"query": "q0", "hint": "h0"},
        {"query": "q1"},
        {"query": "q2"},
        {"query": "q3", "x": 1},
    ]
    env = DatasetChatEnv(dataset=rows, shuffle=False, num_envs=2)
    root = env.reset()
    for named, query, hint, x in (
        ([True, False], ["q2", "q1"], [None, None], None),
        ([False, True], ["q2", "q3"], [None, None], [None, 1]),
        ([True, False], ["q0", "q3"], ["h0", None], [None, 1]),
    ):
        root = env.reset(root.set("_reset", torch.tensor(named)))
        assert queries(root) == query
        assert root["hint"] == hint
        assert (root["x"] if "x" in set(root.keys()) else None) == x
        env.step(answer(root.copy()))


@pytest.mark.parametrize("stop", range(1, 12))
def test_a_restored_reader_gives_what_would_have_come(stop: int) -> None:
    def made() -> DatasetChatEnv:
        return DatasetChatEnv(dataset=ROWS, seed=3, repeats=3, batch_size_dl=2)

    whole = made()
    taken(whole, stop)
    state = json.loads(json.dumps(whole.state_dict()))
    other = made()
    taken(other, 5)
    other.load_state_dict(state)
    ahead = [(env.reset()["query"][0], env.state_dict()["group"]) for env in (whole,) * 40]
    again = [(env.reset()["query"][0], env.state_dict()["group"]) for env in (other,) * 40]
    assert ahead == again


def test_a_loader_without_a_state_is_read_again_to_the_same_place() -> None:
    def made() -> DatasetChatEnv:
        return DatasetChatEnv.from_dataloader([ROWS[:4], ROWS[4:]], repeats=2)

    env = made()
    taken(env, 9)
    other = made()
    other.load_state_dict(env.state_dict())
    assert taken(env, 20) == taken(other, 20)


@pytest.mark.parametrize("loader", [RowLoader(ROWS, batch_size=3, shuffle=True, seed=1), ROWS])
@pytest.mark.parametrize("stop", [0, 1, 4, 7, 9])
def test_a_copy_in_another_process_reads_on_from_the_same_place(loader: Any, stop: int) -> None:
    env = DatasetChatEnv.from_dataloader(copy.deepcopy(loader), repeats=2)
    taken(env, stop)
    other = pickle.loads(pickle.dumps(env))
    assert taken(env, 20) == taken(other, 20)


@pytest.mark.parametrize(
    "loader",
    [
        ROWS,
        [ROWS[:3], ROWS[3:]],
        [TensorDict({"query": [r["query"] for r in ROWS]}, batch_size=7)],
        torch.utils.data.DataLoader(ROWS, batch_size=3),  # type: ignore[arg-type]
        torch.utils.data.DataLoader(ROWS, batch_size=3, collate_fn=lambda rows: rows),  # type: ignore[arg-type]
    ],
    ids=["rows", "lists", "tensordicts", "DataLoader", "DataLoader with lists"],
)
def test_any_loader_will_do(loader: Any) -> None:
    env = ChatEnv.from_dataloader(loader, batch_size=(2,), system_prompt="S")
    assert taken(env, 4) == [f"q{i % 7}" for i in range(8)]
    assert env.reset()["history"].prompt.to_chats()[0][0] == {"role": "system", "content": "S"}


def test_datasets_of_the_library(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    made = datasets.Dataset.from_list(ROWS)
    assert sorted(taken(DatasetChatEnv(dataset=made, seed=0), 7)) == [r["query"] for r in ROWS]
    stream = made.to_iterable_dataset()
    assert sorted(taken(DatasetChatEnv(dataset=stream, seed=0), 7)) == [r["query"] for r in ROWS]
    splits = datasets.DatasetDict({"train": made, "test": made.select([0])})
    assert taken(DatasetChatEnv(dataset=splits, split="test"), 2) == ["q0", "q0"]
    with pytest.raises(InvalidData, match="no split 'dev'; it has 'train', 'test'"):
        DatasetChatEnv(dataset=splits, split="dev")
    made.save_to_disk(str(tmp_path / "saved"))
    assert len(load_rows(str(tmp_path / "saved"))) == 7


def written(folder: Path, kind: str, count: int) -> Path:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    path = folder / f"rows.{kind}"
    rows = [{"query": f"q{i}"} for i in range(count)]
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
    else:
        with datasets.arrow_writer.ArrowWriter(path=str(path)) as writer:
            for row in rows:
                writer.write(row)
            writer.finalize()
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_resumed_run_sees_each_row_of_a_file_once(
    kind: str, streaming: bool, shuffle: bool, tmp_path: Path
) -> None:
    path = written(tmp_path, kind, 2500)

    def made() -> DatasetChatEnv:
        options = {"shuffle": shuffle, "seed": 4, "num_envs": 100, "batch_size_dl": 7}
        return DatasetChatEnv(dataset=path, streaming=streaming, **options)  # type: ignore[arg-type]

    first = made()
    seen = taken(first, 11)
    state = json.loads(json.dumps(first.state_dict()))
    second = made()
    second.load_state_dict(state)
    seen += taken(second, 14)
    in_order = [f"q{i}" for i in range(2500)]
    assert sorted(seen) == sorted(in_order)
    assert (seen == in_order) is not shuffle
    assert sorted(again := taken(second, 25)) == sorted(in_order)
    assert (again == seen) is not shuffle


def test_a_streamed_file_is_not_read_ahead(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"query": "a"}\n\n{"query": "b"}\n{broken\n')
    env = DatasetChatEnv(dataset=path, streaming=True, shuffle=False)
    assert taken(env, 2) == ["a", "b"]
    with pytest.raises(InvalidData, match=r"Row 4 of .* is not valid JSON"):
        env.reset()
    with pytest.raises(InvalidData, match="can't be read as Arrow"):
        DatasetChatEnv(dataset=tmp_path / "none.arrow")


def test_a_seed_of_the_environment_settles_the_order() -> None:
    env = DatasetChatEnv(dataset=ROWS)
    env.set_seed(3)
    one = taken(env, 14)
    env.set_seed(3)
    assert taken(env, 14) == one
    assert one == taken(DatasetChatEnv(dataset=ROWS, seed=3), 14)
    env.set_seed(4)
    assert taken(env, 14) != one


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    assert taken(DatasetChatEnv(dataset=path, shuffle=False), 2) == ["q0", "q1"]
    assert taken(DatasetChatEnv(dataset=str(path), shuffle=False), 1) == ["q0"]
    path.write_text('{"query": "a"}\n{"query": \n')
    with pytest.raises(InvalidData, match="Row 2 of"):
        DatasetChatEnv(dataset=path)
    with pytest.raises(InvalidData, match="can't be read"):
        DatasetChatEnv(dataset=tmp_path / "none.jsonl")
    path.write_text("\n")
    with pytest.raises(InvalidData, match="no rows"):
        DatasetChatEnv(dataset=path)


def test_missing_fields_are_named_by_item() -> None:
    env = DatasetChatEnv(dataset=[ROWS[0], {"question": "x"}], shuffle=False)
    env.reset()
    with pytest.raises(InvalidData, match="Row 2 has no field 'query'; it has 'quest"):
        env.reset()
    shuffled = DatasetChatEnv(dataset=[*ROWS, {"question": "x"}], seed=1)
    with pytest.raises(InvalidData, match="Row 8 has no field 'query'"):
        taken(shuffled, 8)
    given = DatasetChatEnv.from_dataloader([ROWS[:1], [{"question": "x"}]])
    given.reset()
    with pytest.raises(InvalidData, match="Item 2 of the data has no field 'query'"):
        given.reset()
    with pytest.raises(InvalidData, match="'tokens', which is an entry of the environment"):
        DatasetChatEnv(dataset=[{"query": "a", "tokens": 5}]).reset()
    with pytest.raises(InvalidData, match="is str, not a mapping"):
        DatasetChatEnv(dataset=["a"]).reset()
    with pytest.raises(InvalidData, match="holds no rows"):
        DatasetChatEnv.from_dataloader([]).reset()


def test_options_that_can_not_be() -> None:
    with pytest.raises(InvalidParameter, match="repeats"):
        DatasetChatEnv(dataset=ROWS, repeats=0)
    with pytest.raises(InvalidParameter, match="either dataloader or"):
        DataLoadingPrimer()
    with pytest.raises(InvalidParameter, match="rows that have a length"):
        RowLoader(iter(ROWS), shuffle=True)


def test_shared_rows_need_the_ray_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise PluginError(f"There is no transform {name!r}.")

    monkeypatch.setattr("antiphon.registry.get_transform", missing)
    with pytest.raises(PluginError, match="pip install antiphon-ray"):
        DatasetChatEnv(dataset=ROWS, ray_backend=True)


def test_a_factory_is_called_on_first_use() -> None:
    made: list[int] = []

    def factory() -> Any:
        made.append(1)
        return ROWS

    env = TransformedEnv(ChatEnv(batch_size=2), DataLoadingPrimer(dataloader_factory=factory))
    assert made == []
    assert queries(env.reset()) == ["q0", "q1"]
    assert made == [1]


def test_the_data_begins_anew_when_asked() -> None:
    env = DatasetChatEnv(dataset=ROWS, shuffle=False)
    taken(env, 3)
    env.reset_dataloader()
    assert taken(env, 2) == ["q0", "q1"]


def test_a_collate_function_makes_the_rows() -> None:
    env = DatasetChatEnv(
        dataset=ROWS,
        shuffle=False,
        batch_size_dl=3,
        collate_fn=lambda rows: [{"query": row["query"].upper()} for row in rows],
    )
    assert taken(env, 4) == ["Q0", "Q1", "Q2", "Q3"]
    state = env.state_dict()
    ahead = taken(env, 5)
    env.load_state_dict(state)
    assert taken(env, 5) == ahead


def test_the_specs_are_kept() -> None:
    env = DatasetChatEnv(dataset=ROWS, num_envs=3)
    check_env(env)
    assert "group_id" in env.full_observation_spec


def test_columns_of_tensors_become_tensors() -> None:
    rows = [{"query": "a", "x": torch.tensor([1.0])}, {"query": "b", "x": torch.tensor([2.0])}]
    root = DatasetChatEnv(dataset=rows, num_envs=2, shuffle=False).reset()
    assert root["x"].tolist() == [[1.0], [2.0]]


def handed_out(primer: DataLoadingPrimer, count: int) -> list[tuple[str, int]]:
    rows, groups = primer.next_rows(count)
    return [(row["query"], group) for row, group in zip(rows, groups, strict=True)]


def test_a_loader_that_was_begun_anew_is_read_again_from_there() -> None:
    data = [[{"query": f"q{i}"} for i in range(2)], [{"query": f"q{i}"} for i in range(2, 5)]]
    primer = DataLoadingPrimer(data, repeats=2)
    primer.next_rows(3)
    primer.reset_dataloader()
    primer.next_rows(1)
    other = DataLoadingPrimer(data, repeats=2)
    other.load_state_dict(json.loads(json.dumps(primer.state_dict())))
    assert handed_out(other, 9) == handed_out(primer, 9)


@pytest.mark.parametrize("stop", range(13))
@pytest.mark.parametrize("size", [1, 2, 7])
def test_groups_go_on_over_a_resume_wherever_it_was_stopped(size: int, stop: int) -> None:
    def made() -> DataLoadingPrimer:
        data = [{"query": f"q{i}"} for i in range(3)]
        return DataLoadingPrimer(RowLoader(data, batch_size=size, shuffle=True, seed=3), repeats=2)

    whole = handed_out(made(), 20)
    first, second, third = made(), made(), made()
    before = handed_out(first, stop) if stop else []
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    third.load_state_dict(json.loads(json.dumps(second.state_dict())))  # stopped again at once
    assert before + handed_out(second, 20 - stop) == whole
    assert before + handed_out(third, 20 - stop) == whole


def test_a_loader_that_is_used_up_is_told_from_an_empty_one() -> None:
    primer = DataLoadingPrimer({"query": str(i)} for i in range(3))
    primer.next_rows(2)
    with pytest.raises(InvalidData, match="gave 3 rows and can't be begun again"):
        primer.next_rows(2)
    with pytest.raises(InvalidData, match="holds no rows"):
        DataLoadingPrimer(iter(())).next_rows(1)


def test_a_reset_of_no_rows_is_refused() -> None:
    with pytest.raises(EnvError, match="at least one row"):
        DatasetChatEnv(dataset=[{"query": "q"}], num_envs=0).reset()
    with pytest.raises(EnvError, match="at least one row"):
        ChatEnv().reset(TensorDict({"query": []}, batch_size=0))
