"""Two policies talk to each other: each has the conversation from its side, and keeps its own ids."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from antiphon import ChatEnv, DatasetChatEnv, History, Tokens
from antiphon.conversations.containers import ChatHistory, LogProbs
from antiphon.conversations.ragged import ragged
from antiphon.envs import FunctionTask, Reply, SimulatedUser, ToolTransform
from antiphon.envs.simulated import GREETING
from antiphon.errors import EnvError, TemplateRefused
from rollout_helpers import END, HERMES, byte_tokenizer
from tensordict import TensorDict, TensorDictBase, lazy_stack

# The other side's template takes turns strictly, and has no system message.
STRICT = (
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('not in turn') }}{% endif %}"
    "<|im_start|>{{ m.role | upper }}: {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>ASSISTANT: {% endif %}"
)


def multiply(a: int, b: int) -> int:
    """Multiply."""
    return a * b


CALL = '<tool_call>\n{"name" : "multiply", "arguments": {"a": 3,"b":4}}\n</tool_call>'


class Scripted:
    """Answers prompts of ids with what a script says of the decoded prompt; remembers all."""

    def __init__(self, tokenizer: Any, script: Callable[[str, int], str]) -> None:
        self.tokenizer, self.script = tokenizer, script
        self.steps = 0
        self.prompts: list[list[list[int]]] = []
        self.sampled: list[list[list[int]]] = []

    def __call__(self, root: TensorDictBase) -> TensorDictBase:
        prompts = [row.tolist() for row in root.get("tokens").get("prompt", as_list=True)]
        self.steps += 1
        texts = [self.script(self.tokenizer.decode(prompt), self.steps) for prompt in prompts]
        answers = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        answers = [ids if len(ids) % 5 == 0 else [*ids, END] for ids in answers]  # some cut off
        self.prompts.append(prompts)
        self.sampled.append(answers)
        rows = {
            "prompt": [torch.tensor(prompt) for prompt in prompts],
            "response": [torch.tensor(answer) for answer in answers],
        }
        rows["full"] = [
            torch.cat(pair) for pair in zip(rows["prompt"], rows["response"], strict=True)
        ]
        root["tokens"] = ragged(Tokens, root.batch_size, rows)
        probs = [-torch.arange(1.0, len(answer) + 1) for answer in answers]
        root["log_probs"] = ragged(LogProbs, root.batch_size, {"response": probs})
        return root


def sides(row: Any) -> list[dict[str, Any]]:
    """The messages of a user's side, its last answer included."""
    conversation = row.step["conversation"]
    conversation = getattr(conversation, "data", conversation)
    return list(conversation.messages)


def test_both_sides_lose_no_id_over_many_turns_with_tools() -> None:
    ours, theirs = byte_tokenizer(HERMES), byte_tokenizer(STRICT)
    agent = Scripted(
        ours, lambda prompt, step: CALL if step % 3 == 1 else f"Well {step}.  \n" + "é" * (step % 4)
    )
    user = Scripted(theirs, lambda prompt, step: f"And {step}?\n\n" + " x" * step)
    env = ChatEnv(input_mode="tokens", tokenizer=ours, batch_size=2, max_turns=15)
    env = env.append_transform(ToolTransform([multiply]))
    env = env.append_transform(SimulatedUser(user, ChatEnv(input_mode="tokens", tokenizer=theirs)))
    start = TensorDict({"query": ["One", "Two"]}, batch_size=2)
    steps = env.rollout(15, agent, tensordict=start)
    assert steps.batch_size == (2, 15)
    assert steps["next", "truncated"][:, -1].all()
    assert agent.steps == 15
    assert user.steps == 9  # neither after a call nor after the last answer
    for policy in (agent, user):
        for now, sampled, after in zip(
            policy.prompts, policy.sampled, policy.prompts[1:], strict=False
        ):
            for prompt, answer, following in zip(now, sampled, after, strict=True):
                assert following[: len(prompt) + len(answer)] == [*prompt, *answer]
    # What one says is what the other hears.
    last = theirs.decode(user.prompts[-1][0])
    assert f"<|im_start|>USER: {GREETING}<|im_end|><|im_start|>ASSISTANT: One<|im_end|>" in last
    assert "<|im_start|>USER: Well 2." in last
    assert "tool_call" not in last
    assert "12" not in last.replace("Well 12", "").replace("And 12", "")
    assert "<|im_start|>user\nAnd 1?" in ours.decode(agent.prompts[-1][0])
    # Each side carries what it sampled, with its log-probs.
    side = steps["next", "user_side"][0][-1]
    own = [message for message in sides(side) if message.get("token_ids") is not None]
    assert [m["token_ids"] for m in own] == [answers[0] for answers in user.sampled][: len(own)]
    assert len(own) == 8
    assert own[3]["log_probs"] == [-float(i) for i in range(1, len(own[3]["token_ids"]) + 1)]
    assert side.step["tokens"].get("response").tolist() == user.sampled[-1][0]


def spoken(chats: Sequence[Sequence[dict[str, Any]]]) -> Any:
    return History.from_chats([list(chat) for chat in chats])


def talk(
    texts: Callable[[list[dict[str, Any]]], str],
) -> Callable[[TensorDictBase], TensorDictBase]:
    """A policy in history mode."""

    def policy(root: TensorDictBase) -> TensorDictBase:
        prompt = root["history"].prompt
        chats = [row.to_chats() for row in prompt.unbind(0)]
        answers = [[{"role": "assistant", "content": texts(chat)}] for chat in chats]
        full = prompt.extend(spoken(answers), inplace=False, dim=-1)
        return root.set(
            "history", ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size)
        )

    return policy


def test_the_user_opens_by_what_the_row_says_and_ends_when_it_has_enough() -> None:
    heard: list[list[dict[str, Any]]] = []

    def user(chat: list[dict[str, Any]]) -> str:
        heard.append(chat)
        goal = chat[0]["content"]
        count = sum(message["role"] == "assistant" for message in chat)
        return "Done, thanks. [STOP]" if count == int(goal[-1]) else f"{goal} {count}"

    seen: list[Any] = []

    def respond(messages: Any, row: Any, turn: int) -> Reply:
        seen.append((messages[0]["content"], row["query"]))
        return Reply(reward=1.0)

    data = [{"query": f"goal {number}"} for number in (1, 2, 3)]
    env = DatasetChatEnv(dataset=data, shuffle=False, num_envs=3, task=FunctionTask(respond))
    env = env.append_transform(
        SimulatedUser(
            talk(user),
            ChatEnv(),
            system_prompt=lambda row: f"You want {row['query']}",
            opens=True,
            stop="[STOP]",
        )
    )
    steps = env.rollout(9, talk(lambda chat: f"re {chat[-1]['content']}"), break_when_all_done=True)
    done = steps["next", "terminated"][..., 0]
    assert done.int().argmax(1).tolist() == [0, 1, 2]
    # A row that waits for the others keeps its side.
    assert steps["next", "user_side"][0][-1].opening[0]["content"] == "You want goal 1"
    assert steps["next", "reward"][2, :3, 0].tolist() == [1.0, 1.0, 1.0]
    chat = steps["next", "history"][2][2].prompt.to_chats()
    assert [message["content"] for message in chat] == [
        "You want goal 3 0",
        "re You want goal 3 0",
        "You want goal 3 1",
        "re You want goal 3 1",
        "You want goal 3 2",
        "re You want goal 3 2",
    ]
    assert heard[-1][:3] == [
        {"role": "system", "content": "You want goal 3"},
        {"role": "user", "content": GREETING},
        {"role": "assistant", "content": "You want goal 3 0"},
    ]
    # A reward sees the row's own data, not what the user made of them.
    assert {opening[9:15] for opening, _ in seen} == {query for _, query in seen}


def test_rows_that_end_begin_anew_with_a_side_of_their_own() -> None:
    def user(chat: list[dict[str, Any]]) -> str:
        first = chat[1]["content"]
        count = sum(message["role"] == "assistant" for message in chat)
        return "bye" if count > int(first[-1]) else first

    data = [{"query": f"q{number % 3}"} for number in range(30)]
    env = DatasetChatEnv(dataset=data, shuffle=False, num_envs=4)
    env = env.append_transform(
        SimulatedUser(talk(user), ChatEnv(), stop=lambda text: text == "bye")
    )
    steps = env.rollout(12, talk(lambda chat: chat[0]["content"]), break_when_any_done=False)
    ended = 0
    for row in steps.unbind(0):
        for step in row.unbind(0):
            chat = step["next", "history"].prompt.to_chats()
            assert len({message["content"] for message in chat}) == 1, "rows have met"
            assert step["next", "user_side"].opening[-1]["content"] == chat[0]["content"]
            if step["next", "done"].item():
                ended += 1
                assert len(chat) == 2 * (int(chat[0]["content"][-1]) + 1)
    assert ended > 12


def test_where_the_task_answers_the_user_is_silent() -> None:
    def respond(messages: Any, row: Any, turn: int) -> Reply:
        return Reply([{"role": "user", "content": "the task's"}] if turn == 1 else ())

    asked: list[Any] = []

    def user(chat: list[dict[str, Any]]) -> str:
        asked.append(chat)
        return "the user's"

    env = ChatEnv(task=FunctionTask(respond)).append_transform(SimulatedUser(talk(user), ChatEnv()))
    start = TensorDict({"query": ["q"]}, batch_size=1)
    steps = env.rollout(2, talk(lambda chat: f"a{len(chat)}"), tensordict=start)
    chat = steps["next", "history"][0][1].prompt.to_chats()
    assert [m["content"] for m in chat] == ["q", "a1", "the task's", "a3", "the user's"]
    assert len(asked) == 1
    assert asked[0][-1]["content"] == "a3"


def test_what_the_user_hears_can_be_chosen_and_leaves_reasoning_out() -> None:
    answer = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}

    def agent(root: TensorDictBase) -> TensorDictBase:
        prompt = root["history"].prompt
        full = prompt.extend(spoken([[answer]]), inplace=False, dim=-1)
        return root.set("history", ChatHistory(prompt=prompt, full=full, batch_size=(1,)))

    for heard, told in ((None, "Yes."), (lambda new: f"{len(new)} new", "1 new")):
        asked: list[Any] = []
        user = talk(lambda chat, asked=asked: asked.append(chat) or "ok")  # type: ignore[misc,func-returns-value]
        env = ChatEnv().append_transform(SimulatedUser(user, ChatEnv(), heard=heard))
        env.step(agent(env.reset(TensorDict({"query": ["q"]}, batch_size=1))))
        assert asked[0][-1] == {"role": "user", "content": told}


def test_sides_can_be_stored() -> None:
    env = ChatEnv().append_transform(SimulatedUser(talk(lambda chat: "u"), ChatEnv()))
    start = TensorDict({"query": ["q"]}, batch_size=1)
    steps = env.rollout(3, talk(lambda chat: "a"), tensordict=start)
    copy = pickle.loads(pickle.dumps(steps))
    chat = copy["next", "user_side"][0][-1].step["history"].full.to_chats()
    assert [message["content"] for message in chat] == [GREETING, "q", "a", "u", "a", "u", "a", "u"]


def test_what_can_not_be() -> None:
    user = SimulatedUser(talk(lambda chat: "u"), ChatEnv())
    env = ChatEnv().append_transform(user)
    silent = lazy_stack([TensorDict({}, batch_size=())])
    silent[0].set_non_tensor("query", [{"role": "system", "content": "s"}])
    with pytest.raises(EnvError, match="use opens=True"):
        env.reset(silent)
    inside = ChatEnv().append_transform(SimulatedUser(talk(lambda chat: "u"), ChatEnv()))
    inside = inside.append_transform(ToolTransform([multiply]))
    with pytest.raises(EnvError, match="ToolTransform stands outside of SimulatedUser"):
        inside.reset(TensorDict({"query": ["q"]}, batch_size=1))
    strict = byte_tokenizer(STRICT)
    tokens = ChatEnv(input_mode="tokens", tokenizer=strict)
    own = Scripted(strict, lambda prompt, step: "u")
    env = ChatEnv().append_transform(SimulatedUser(own, tokens, system_prompt="No."))
    root = env.reset(TensorDict({"query": ["q"]}, batch_size=1))
    with pytest.raises(TemplateRefused, match="not in turn"):
        env.step(talk(lambda chat: "a")(root))
