"""A run with everything that events tell of; prints its results, whatever plugins listen."""

from __future__ import annotations

import json
import sys
from typing import Any

import antiphon
import kit_backends
import kit_families
from antiphon import ChatHistory, DatasetChatEnv, History, LLMWrapper
from antiphon.envs import LLMCollector
from antiphon.envs.conversation import Prompter
from antiphon.envs.tasks import WordProblems
from antiphon.generation.backends import Scores, TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.plugins import faults
from antiphon.rollouts.sampling_loop import RolloutSettings, roll_out
from antiphon.testing import StandInTokenizer
from tensordict import TensorDict

TOKENIZER = StandInTokenizer(
    kit_families.SPECIAL,
    template=kit_families.TEMPLATE,
    special_tokens={"eos_token": kit_families.END},
)
MESSAGES = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello.", "token_ids": TOKENIZER.encode("Hello.<|end|>")},
]
PARAMS = SamplingParams(max_new_tokens=6, seed=4)


class Toy(kit_backends.Toy):
    """The toy with a tokenizer that has a chat template; ids beyond its table are folded."""

    tokenizer = TOKENIZER
    vocab_size = len(TOKENIZER)
    max_context = 4096

    def answer(self, row: list[int], seed: int, params: SamplingParams) -> tuple[Any, ...]:
        return super().answer(fold(row), seed, params)

    def score(self, batch: TokenBatch, **options: Any) -> Scores:
        return super().score(TokenBatch([fold(row) for row in batch.rows]), **options)

    def check(self, batch: TokenBatch, room: int = 0) -> None:
        """Take every id."""


def fold(row: list[int]) -> list[int]:
    return [i % kit_backends.SIZE for i in row]


def render() -> list[Any]:
    rendering = antiphon.render(MESSAGES[:1], TOKENIZER, add_generation_prompt=True)
    prompt = rendering.tokenize()
    longer = antiphon.extend(
        prompt, [MESSAGES[1], {"role": "user", "content": "Sure?"}], add_generation_prompt=True
    )
    batch = antiphon.render_batch([MESSAGES[:1], [{"role": "user", "content": "Ho"}]], TOKENIZER)
    return [rendering.text, prompt.input_ids, longer.input_ids, [each.input_ids for each in batch]]


def wrap() -> list[Any]:
    policy = LLMWrapper(Toy(), tokenizer=TOKENIZER, generate_kwargs=PARAMS)
    prompt = History.from_chats([[{"role": "user", "content": text}] for text in ("a", "b")])
    made = policy(TensorDict({"history": ChatHistory(prompt=prompt, batch_size=2)}, 2))
    return [row.tolist() for row in made["tokens"].get("response", as_list=True)]


def rollout() -> list[Any]:
    rows = [{"question": "How many?", "answer": "4"}, {"question": "Again?", "answer": "5"}]
    settings = RolloutSettings(samples=2, batch_size=3, seed=1, params=PARAMS)
    found = roll_out(WordProblems(max_turns=2), rows, Toy(), settings, prompter=Prompter(TOKENIZER))
    return [record for finished in found for each in finished for record in each.records()]


def collect() -> list[Any]:
    rows = [{"question": "How many?", "answer": "4"}, {"question": "Again?", "answer": "5"}]
    found = []
    for mode in ("history", "tokens"):
        options = {"tokenizer": TOKENIZER, "input_mode": mode}
        env = DatasetChatEnv(
            dataset=rows, task=WordProblems(max_turns=2), num_envs=2, shuffle=False, **options
        )
        policy = LLMWrapper(Toy(), generate_kwargs=PARAMS, **options)
        collector = LLMCollector(
            env, policy, yield_completed_trajectories=True, total_dialog_turns=4
        )
        for steps in collector:
            ids = [step["tokens"].get("response").tolist() for step in steps.unbind(0)]
            found.append([ids, float(steps[-1]["next", "reward"])])
    return found


if __name__ == "__main__":
    print(json.dumps([render(), wrap(), rollout(), collect()]))
    print(json.dumps([[f.plugin, f.hook, f.count, f.error] for f in faults()]), file=sys.stderr)
