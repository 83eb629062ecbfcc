"""Walks every public path that renders, samples or ends a conversation.

Prints for each path what it handed out: texts, sampled ids, and how many conversations ended.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import antiphon
import kit_families
import torch
from antiphon import (
    ChatEnv,
    ChatHistory,
    DatasetChatEnv,
    History,
    LLMEnv,
    LLMHashingEnv,
    LLMWrapper,
)
from antiphon.cli import run
from antiphon.data import make_samples
from antiphon.envs import EnvBase, LLMCollector, Prompter, SimulatedUser, WordProblems
from antiphon.rollouts.async_loop import roll_out_async
from antiphon.rollouts.sampling_loop import RolloutSettings, roll_out
from event_run import MESSAGES, PARAMS, TOKENIZER, Toy
from tensordict import TensorDict

ROWS = [{"question": "How many?", "answer": "4"}, {"question": "Again?", "answer": "5"}]
CHATS = [[{"role": "user", "content": text}] for text in ("a", "b")]
# It drops earlier answers, so two answers are two samples.
FORGETS = kit_families.TEMPLATE.replace(
    "{{- message.content -}}", "{{- message.content if loop.last else '...' -}}"
)
LONG = [*MESSAGES, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]
PLAIN = [{key: message[key] for key in ("role", "content")} for message in LONG]


class Handed(NamedTuple):
    """What a path handed out; None where it is not looked at."""

    texts: list[str] | None = None
    answers: list[list[int]] | None = None
    ended: int = 0


def of_render() -> Handed:
    return Handed([antiphon.render(MESSAGES, TOKENIZER).text])


def of_render_batch() -> Handed:
    return Handed([each.rendering.text for each in antiphon.render_batch(CHATS, TOKENIZER)])


def of_extend() -> Handed:
    first = antiphon.extend(None, CHATS[0], tokenizer=TOKENIZER, add_generation_prompt=True)
    second = antiphon.extend(first, [MESSAGES[1]])
    return Handed([first.rendering.text, second.rendering.text])


def of_training_samples() -> Handed:
    one = antiphon.training_samples(PLAIN, TOKENIZER)
    two = antiphon.training_samples(PLAIN, TOKENIZER, chat_template=FORGETS)
    assert (len(one), len(two)) == (1, 2)
    return Handed([sample.rendering.text for sample in (*one, *two)])


def of_make_samples() -> Handed:
    made = make_samples([(0, {"messages": PLAIN})], TOKENIZER)
    return Handed([TOKENIZER.decode(sample.input_ids) for sample in made.samples])


def of_history_text() -> Handed:
    return Handed(History.from_chats(CHATS).apply_chat_template(tokenizer=TOKENIZER))


def of_history_ids() -> Handed:
    made = History.from_chats(CHATS).apply_chat_template(tokenizer=TOKENIZER, tokenize=True)
    return Handed([TOKENIZER.decode(row.tolist()) for row in made])


def of_chat_history() -> Handed:
    prompt = History.from_chats(CHATS)
    made = ChatHistory(prompt=prompt, batch_size=2).to_tokens(TOKENIZER)
    return Handed([TOKENIZER.decode(row.tolist()) for row in made.get("prompt", as_list=True)])


def of_render_command() -> Handed:
    folder = Path(os.environ["HEARD"]).parent
    file, template = folder / "chat.json", folder / "template.jinja"
    file.write_text(json.dumps(PLAIN), encoding="utf-8")
    template.write_text(kit_families.TEMPLATE, encoding="utf-8")
    # What it prints is looked at by its own tests.
    text = antiphon.render(PLAIN, chat_template=kit_families.TEMPLATE).text
    out = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        assert run(["render", str(file), "--template", str(template)]) == 0
    os.dup2(out, 1)
    return Handed([text, text])


def wrapper(mode: str = "history", **options: Any) -> LLMWrapper:
    return LLMWrapper(
        Toy(), tokenizer=TOKENIZER, input_mode=mode, generate_kwargs=PARAMS, **options
    )


def answers_of(made: Any) -> list[list[int]]:
    rows = made["tokens"].get("response", as_list=True)
    # Several samples of a prompt stand together.
    flat = [row for part in rows for row in (part if isinstance(part, list) else [part])]
    return [row.tolist() for row in flat]


def of_wrapper(mode: str, **options: Any) -> Handed:
    texts = [antiphon.render(chat, TOKENIZER, add_generation_prompt=True).text for chat in CHATS]
    if mode == "history":
        entry: Any = ChatHistory(prompt=History.from_chats(CHATS), batch_size=2)
        data = TensorDict({"history": entry}, 2)
    elif mode == "text":
        data = TensorDict({"text": antiphon.Text(prompt=texts, batch_size=2)}, 2)
    else:
        ids = torch.tensor([TOKENIZER.encode(text) for text in texts])
        data = TensorDict({"tokens": antiphon.Tokens(prompt=ids, batch_size=2)}, 2)
    with_options = wrapper(mode, **options)
    made = with_options(data)
    if options.get("batching"):
        with_options.cleanup_batching()
    return Handed(None, answers_of(made))


SETTINGS = RolloutSettings(samples=2, batch_size=3, seed=1, params=PARAMS)


def of_roll_out() -> Handed:
    found = roll_out(WordProblems(max_turns=2), ROWS, Toy(), SETTINGS, prompter=Prompter(TOKENIZER))
    return of_trajectories([each for finished in found for each in finished])


def of_roll_out_async() -> Handed:
    async def collect() -> list[Any]:
        found = roll_out_async(
            WordProblems(max_turns=2), ROWS, Toy(), SETTINGS, prompter=Prompter(TOKENIZER)
        )
        return [each async for finished in found for each in finished]

    return of_trajectories(asyncio.run(collect()))


def of_trajectories(found: list[Any]) -> Handed:
    answers = [
        list(each.segments[turn.segment].ids[turn.start : turn.end])
        for each in found
        for turn in each.turns
    ]
    return Handed(None, answers, len(found))


def environment(mode: str) -> EnvBase:
    return DatasetChatEnv(
        dataset=ROWS,
        task=WordProblems(max_turns=2),
        num_envs=2,
        shuffle=False,
        tokenizer=TOKENIZER,
        input_mode=mode,
    )


def of_steps(steps: Any) -> Handed:
    """Count what a rollout's steps ``[rows, steps]`` show; rows that wait are no answers."""
    answers: list[list[int]] = []
    ended = 0
    for row in steps.unbind(0):
        for step in row.unbind(0):
            if step["done"].any():
                continue
            answers.append(step["tokens"].get("response").tolist())
            ended += bool(step["next", "done"].any())
    return Handed(None, answers, ended)


def of_env_rollout(mode: str, steps: int, **options: Any) -> Handed:
    return of_steps(environment(mode).rollout(steps, wrapper(mode), **options))


def of_simulated_user() -> Handed:
    side = ChatEnv(batch_size=(2,), tokenizer=TOKENIZER, input_mode="history")
    env = environment("history").append_transform(SimulatedUser(wrapper(), side, opens=True))
    made = env.rollout(1, wrapper())
    said = [
        answer
        for row in made.get(("next", "user_side")).tolist()
        for each in row
        if each.step is not None
        for answer in [each.step["tokens"].get("response").tolist()]
    ]
    assert len(said) == 2
    agent = of_steps(made)
    return agent._replace(answers=[*(agent.answers or []), *said])


def of_collector(**options: Any) -> Handed:
    collector = LLMCollector(
        environment("history"),
        wrapper(),
        yield_completed_trajectories=True,
        total_dialog_turns=4,
        max_in_flight=1,
        **options,
    )
    found = [of_steps(steps[None]) for steps in collector]
    return Handed(None, [ids for each in found for ids in each.answers or []], len(found))


def of_llm_env() -> Handed:
    env = LLMEnv(batch_size=(2,), from_text=False, eos_token_id=3, vocab_size=9)
    start = TensorDict({"tokens": torch.tensor([[1, 2], [1, 4]])}, 2)

    def ends(data: Any) -> Any:
        return data.set("tokens_response", torch.tensor([[3], [5]]))

    env.rollout(2, ends, tensordict=start)
    return Handed(None, [], 1)


def of_hashing_env() -> Handed:
    env = LLMHashingEnv(vocab_size=9, text_output=False)
    start = TensorDict({"tokens": torch.tensor([1, 2])})
    env.rollout(2, tensordict=start)
    return Handed(None, [], 0)


PATHS: dict[str, Callable[[], Handed]] = {
    "render": of_render,
    "render_batch": of_render_batch,
    "extend": of_extend,
    "training_samples": of_training_samples,
    "make_samples": of_make_samples,
    "History, text": of_history_text,
    "History, ids": of_history_ids,
    "ChatHistory": of_chat_history,
    "antiphon render": of_render_command,
    "wrapper, history": lambda: of_wrapper("history"),
    "wrapper, text": lambda: of_wrapper("text"),
    "wrapper, tokens": lambda: of_wrapper("tokens"),
    "wrapper, samples": lambda: of_wrapper("history", num_samples=2),
    "wrapper, batching": lambda: of_wrapper("history", batching=True),
    "roll_out": of_roll_out,
    "roll_out_async": of_roll_out_async,
    "env, history": lambda: of_env_rollout("history", 2),
    "env, text": lambda: of_env_rollout("text", 2),
    "env, tokens": lambda: of_env_rollout("tokens", 2),
    "env, cut off": lambda: of_env_rollout("history", 1),
    "env, started again": lambda: of_env_rollout("history", 4, break_when_any_done=False),
    "env, all done": lambda: of_env_rollout("history", 4, break_when_all_done=True),
    "simulated user": of_simulated_user,
    "collector": of_collector,
    "collector, threads": lambda: of_collector(async_envs=True),
    "LLMEnv": of_llm_env,
    "LLMHashingEnv": of_hashing_env,
}


def heard() -> list[Any]:
    file = Path(os.environ["HEARD"])
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def walked() -> Iterator[dict[str, Any]]:
    for name, path in PATHS.items():
        before = len(heard())
        yield {"path": name, **path()._asdict(), "heard": heard()[before:]}


if __name__ == "__main__":
    print(json.dumps(list(walked())))
