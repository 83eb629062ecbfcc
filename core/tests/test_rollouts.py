"""Rolling out: token-exact over turns, the same whatever the batch, with figures that add up."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import rollout_helpers as helpers
from antiphon.envs.conversation import Prompter
from antiphon.envs.tasks import FunctionTask, Reply, WordProblems
from antiphon.errors import InvalidData
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.rollouts.sampling_loop import RolloutSettings, Trajectory, roll_out
from antiphon.rollouts.summary import Summary

ROWS = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(6)]
# Drops the text before the last user message's answer: rewrites what was sampled, as Qwen3 does.
FORGETFUL = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and not loop.last %}(earlier)"
    "{% else %}{{ message.content }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def rolled_out(
    backend: Any,
    *,
    rows: Any = ROWS,
    max_turns: int = 3,
    batch_size: int = 5,
    samples: int = 3,
    **kwargs: Any,
) -> list[Trajectory]:
    task = kwargs.pop("task", None) or WordProblems(max_turns=max_turns)
    settings = RolloutSettings(
        samples=samples, batch_size=batch_size, seed=3, params=SamplingParams(max_new_tokens=40)
    )
    found = roll_out(task, rows, backend, settings, prompter=Prompter(backend.tokenizer), **kwargs)
    return [trajectory for finished in found for trajectory in finished]


def by_name(trajectories: list[Trajectory]) -> dict[str, Any]:
    return {t.name: t.records() for t in trajectories}


def test_each_prompt_starts_with_the_one_before_and_what_was_sampled() -> None:
    backend = helpers.FakeBackend()
    trajectories = rolled_out(backend)
    assert len(trajectories) == 18
    several = [t for t in trajectories if len(t.turns) > 1]
    assert len(several) > 5
    prompts = {tuple(prompt) for prompt in backend.prompts}
    for trajectory in trajectories:
        (segment,) = trajectory.segments
        for turn in trajectory.turns:
            # What stands before the turn is what the backend was given.
            assert tuple(segment.ids[: turn.start]) in prompts
            assert all(segment.sampled[turn.start : turn.end])
        inside = {i for turn in trajectory.turns for i in range(turn.start, turn.end)}
        assert [i for i, flag in enumerate(segment.sampled) if flag] == sorted(inside)
        assert [p is not None for p in segment.log_probs] == segment.sampled
        assert trajectory.breaks == []
        assert trajectory.difference == 0.0


def test_a_cut_off_answer_is_closed_by_a_token_that_was_not_sampled() -> None:
    trajectories = rolled_out(helpers.FakeBackend())
    cut = [(t, turn) for t in trajectories for turn in t.turns[:-1] if turn.finish == "length"]
    assert cut
    for trajectory, turn in cut:
        segment = trajectory.segments[0]
        assert segment.ids[turn.end] == helpers.END
        assert not segment.sampled[turn.end]


def test_the_batch_size_changes_nothing_that_is_sampled() -> None:
    one = by_name(rolled_out(helpers.FakeBackend(), batch_size=1))
    many = by_name(rolled_out(helpers.FakeBackend(), batch_size=64))
    assert one == many


def test_what_is_done_is_not_sampled_again_and_the_rest_stays_the_same() -> None:
    whole = by_name(rolled_out(helpers.FakeBackend()))
    done = set(list(whole)[::2])
    rest = by_name(rolled_out(helpers.FakeBackend(), done=done))
    assert rest == {name: records for name, records in whole.items() if name not in done}


def test_the_batch_is_filled_up_as_soon_as_a_conversation_ends() -> None:
    backend = helpers.FakeBackend()
    rolled_out(backend, batch_size=4)
    answers = sum(backend.batch_sizes)
    assert len(backend.prompts) == answers
    # 18 conversations of up to three turns: only the end runs out of work.
    assert sum(size < 4 for size in backend.batch_sizes) <= 3


def test_a_rewritten_turn_ends_the_segment_and_is_reported() -> None:
    backend = helpers.FakeBackend(tokenizer=helpers.byte_tokenizer(FORGETFUL))
    trajectories = rolled_out(backend)
    several = [t for t in trajectories if len(t.turns) > 1]
    assert several
    for trajectory in several:
        assert len(trajectory.segments) == len(trajectory.turns)
        assert len(trajectory.breaks) == len(trajectory.turns) - 1
        for turn in trajectory.turns:
            segment = trajectory.segments[turn.segment]
            assert segment.sampled == [turn.start <= i < turn.end for i in range(len(segment.ids))]
        assert len(trajectory.records()) == len(trajectory.segments)


def test_rewards_masks_and_limits_are_the_tasks() -> None:
    trajectories = rolled_out(helpers.FakeBackend(), max_turns=2)
    for trajectory in trajectories:
        record = trajectory.records()[0]
        assert record["terminated"] != record["truncated"]
        assert record["terminated"] == (record["reward"] == 1.0)
        assert len(record["turns"]) <= 2
        messages = json.loads(record["messages"])
        assert [m["role"] for m in messages[:2]] == ["system", "user"]
        assert not any("token_ids" in message for message in messages)
        assert sum(m["role"] == "assistant" for m in messages) == len(record["turns"])


def test_the_reward_sees_the_answer_of_its_own_row() -> None:
    seen: list[tuple[str, str]] = []

    def echo(prompt: list[int], seed: int) -> str:
        text = backend.tokenizer.decode(prompt)
        return text[text.rindex("<q>") : text.rindex("</q>")]

    def respond(messages: Any, row: Any, turn: int) -> Reply:
        seen.append((messages[-1]["content"], f"<q>{row['question']}"))
        return Reply([{"role": "user", "content": f"<q>{row['question']}</q>"}])

    backend = helpers.FakeBackend(answers=echo)
    rows = [{"question": f"q{i}", "answer": "#### 1"} for i in range(7)]
    task = FunctionTask(respond, data_key="question", max_turns=4)
    task.start = lambda row: [{"role": "user", "content": f"<q>{row['question']}</q>"}]  # type: ignore[method-assign]
    trajectories = rolled_out(backend, rows=rows, task=task, batch_size=3, samples=2)
    assert len(trajectories) == 14
    assert all(len(t.turns) == 4 for t in trajectories)
    assert all(got == wanted for got, wanted in seen)


def test_a_problem_that_the_template_refuses_is_named_before_anything_is_sampled() -> None:
    template = (
        "{% if 'bad' in messages[1].content %}{{ raise_exception('no') }}{% endif %}"
        + helpers.CHATML
    )
    backend = helpers.FakeBackend(tokenizer=helpers.byte_tokenizer(template))
    rows = [*ROWS[:2], {"question": "bad", "answer": "#### 1"}]
    with pytest.raises(InvalidData, match=r"Row 3 of the data can't be rendered: .*no"):
        rolled_out(backend, rows=rows)
    assert backend.calls == 0


def test_a_turn_that_the_template_refuses_is_named() -> None:
    template = (
        "{% if messages | length > 3 %}{{ raise_exception('too many') }}{% endif %}"
        + helpers.CHATML
    )
    backend = helpers.FakeBackend(
        tokenizer=helpers.byte_tokenizer(template), answers=lambda prompt, seed: "no idea"
    )
    with pytest.raises(
        InvalidData, match=r"0/0 \(row 1 of the data\) can't go on after turn 1: .*too"
    ):
        rolled_out(backend)


def test_a_problem_longer_than_the_context_is_named() -> None:
    backend = helpers.FakeBackend()
    backend.max_context = 300
    rows = [*ROWS[:1], {"question": "x" * 300, "answer": "#### 1"}]
    with pytest.raises(InvalidData, match=r"Row 2 of the data has \d+ tokens"):
        rolled_out(backend, rows=rows)


def test_a_conversation_that_grows_out_of_the_context_is_truncated() -> None:
    backend = helpers.FakeBackend(answers=lambda prompt, seed: "no idea")
    backend.max_context = 300
    trajectories = rolled_out(backend, rows=ROWS[:1], max_turns=50)
    for trajectory in trajectories:
        assert trajectory.truncated
        assert 1 <= len(trajectory.turns) < 50
        assert len(trajectory.segments[0].ids) <= 300


def test_the_summary_adds_up() -> None:
    trajectories = rolled_out(helpers.FakeBackend())
    summary = Summary()
    for trajectory in trajectories:
        summary.add(trajectory.records())
    assert summary.conversations == 18
    assert summary.mean_reward == pytest.approx(sum(t.turns[-1].reward for t in trajectories) / 18)
    assert summary.sampled == sum(sum(s.sampled) for t in trajectories for s in t.segments)
    assert len(summary.by_turn[0]) == 18
    assert dict(summary.lines())["breaks"] == "0"


def test_a_difference_between_sampler_and_scorer_shows() -> None:
    class Off(helpers.FakeBackend):
        def score(self, batch: TokenBatch, **kwargs: Any) -> Any:
            scores = super().score(batch, **kwargs)
            scores.log_probs[0][0] += 0.25
            return scores

    trajectories = rolled_out(Off(), batch_size=1)
    assert all(t.difference == pytest.approx(0.25) for t in trajectories)


class Trainer(helpers.FakeBackend):
    """Its log-probs are the sampler's on half of the tokens, and lower by 0.5 on the others."""

    name = "trainer"

    def _log_probs(self, ids: Any) -> Any:
        found = super()._log_probs(ids)
        found[::2] -= 0.5
        return found


def summary_of(trajectories: Any) -> Summary:
    summary = Summary()
    for trajectory in trajectories:
        summary.add(trajectory.records())
    return summary


def test_the_summary_says_how_far_the_trainer_is_from_the_sampler() -> None:
    trajectories = rolled_out(helpers.FakeBackend(), scorer=Trainer())
    gaps = [
        sampled - scored
        for t in trajectories
        for segment in t.segments
        for sampled, scored in zip(segment.log_probs, segment.scored, strict=True)
        if sampled is not None
    ]
    summary = summary_of(trajectories)
    assert summary.scored == summary.sampled == len(gaps)
    assert set(gaps) == {0.0, 0.5}
    assert summary.difference == pytest.approx(0.5)
    assert summary.mean_difference == pytest.approx(sum(gaps) / len(gaps))
    weights = [math.exp(-gap) for gap in gaps]
    effective = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    assert summary.effective_ratio == pytest.approx(effective / len(gaps))
    assert 0.9 < summary.effective_ratio < 1


def test_where_sampler_and_trainer_are_one_every_sample_counts() -> None:
    summary = summary_of(rolled_out(helpers.FakeBackend()))
    assert summary.difference == 0.0
    assert summary.effective_ratio == pytest.approx(1.0)


def test_a_ratio_beyond_all_measure_still_makes_a_figure() -> None:
    summary = Summary()
    records = rolled_out(helpers.FakeBackend())[0].records()
    records[0]["scored_log_probs"] = [
        None if p is None else p + 1000.0 * (i % 2) for i, p in enumerate(records[0]["log_probs"])
    ]
    summary.add(records)
    assert 0 < summary.effective_ratio < 1
