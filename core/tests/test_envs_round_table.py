"""Several speak: each has the conversation from its side, hears the others, and keeps its own ids."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
from antiphon import ChatEnv, DatasetChatEnv
from antiphon.envs import (
    FunctionTask,
    Reply,
    RoundTable,
    Speaker,
    ToolTransform,
    check_env,
    one_by_one,
)
from antiphon.errors import EnvError, InvalidParameter
from rollout_helpers import HERMES, byte_tokenizer
from tensordict import TensorDict
from test_envs_simulated import CALL, STRICT, Scripted, multiply, talk

NAMES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}{{ ' ' ~ m.name if m.name }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def start(*questions: str) -> TensorDict:
    return TensorDict({"query": list(questions)}, batch_size=len(questions))


def contents(chats: Any) -> list[str]:
    return [message["content"] for message in chats]


def test_no_speaker_loses_an_id_over_many_rounds_with_tools() -> None:
    ours, strict, named = (byte_tokenizer(text) for text in (HERMES, STRICT, NAMES))
    agent = Scripted(
        ours, lambda prompt, step: CALL if step % 3 == 1 else f"Well {step}.  \n" + "é" * (step % 4)
    )
    bob = Scripted(strict, lambda prompt, step: f"Bob {step}?\n\n" + " x" * step)
    eve = Scripted(named, lambda prompt, step: f"Eve {step}!" + "\n" * (step % 3))
    env = ChatEnv(input_mode="tokens", tokenizer=ours, batch_size=2, max_turns=18)
    env = env.append_transform(ToolTransform([multiply]))
    env = env.append_transform(
        RoundTable(
            [
                Speaker(bob, ChatEnv(input_mode="tokens", tokenizer=strict), name="Bob"),
                Speaker(
                    eve,
                    ChatEnv(input_mode="tokens", tokenizer=named),
                    name="Eve",
                    system_prompt=lambda row: f"You doubt {row['query']}.",
                ),
            ]
        )
    )
    steps = env.rollout(18, agent, tensordict=start("One", "Two"))
    assert steps.batch_size == (2, 18)
    assert agent.steps == 18
    assert bob.steps == eve.steps == 11  # neither after a call nor after the last answer
    for policy in (agent, bob, eve):
        for now, sampled, after in zip(
            policy.prompts, policy.sampled, policy.prompts[1:], strict=False
        ):
            for prompt, answer, following in zip(now, sampled, after, strict=True):
                assert following[: len(prompt) + len(answer)] == [*prompt, *answer]
    heard = strict.decode(bob.prompts[1][1])
    assert heard.startswith("<|im_start|>USER: Two\n\nagent: Well 2.")
    assert "ASSISTANT: Bob 1?" in heard
    assert "<|im_start|>USER: Eve: Eve 1!\n\nagent: Well 3." in heard
    heard = named.decode(eve.prompts[1][0])
    assert heard.startswith("<|im_start|>system\nYou doubt One.<|im_end|>\n")
    assert "<|im_start|>user\nOne\n\nagent: Well 2." in heard
    assert "<|im_start|>user\nagent: Well 3." in heard
    assert "<|im_start|>user\nBob: Bob 1?" in ours.decode(agent.prompts[3][0])
    for policy in (bob, eve):
        assert "tool_call" not in policy.tokenizer.decode(policy.prompts[-1][0])
    # Every side carries all that it sampled, with its log-probs.
    table = steps["next", "table"][1][-1]
    for name, policy in (("Bob", bob), ("Eve", eve)):
        conversation = table.sides[name].step["conversation"]
        conversation = getattr(conversation, "data", conversation)
        own = [m for m in conversation.messages if m.get("token_ids") is not None]
        sampled = [answers[1] for answers in policy.sampled]
        assert [m["token_ids"] for m in own] == sampled[: len(own)]
        assert len(own) == 10
        assert table.sides[name].step["tokens"].get("response").tolist() == sampled[-1]
        assert own[2]["log_probs"] == [-float(i) for i in range(1, len(own[2]["token_ids"]) + 1)]


def plain(name: str, *, key: str | None = None, **options: Any) -> Speaker:
    """A speaker that says how many messages it sees."""
    return Speaker(talk(lambda chat: f"{key or name}{len(chat)}"), ChatEnv(), name=name, **options)


def test_who_speaks_next_is_settled_row_by_row() -> None:
    asked: list[Any] = []

    def next_speaker(said: Any, row: Any) -> str | None:
        asked.append(row["query"])
        order = row["query"].split()
        spoken = [message["name"] for message in said if message.get("name")]
        return order[len(spoken)] if len(spoken) < len(order) else None

    env = ChatEnv(batch_size=3).append_transform(
        RoundTable([plain("a"), plain("b")], next_speaker=next_speaker)
    )
    orders = ("agent a agent b agent", "a b agent b a agent", "b agent")
    check_env(env, start(*orders))
    asked.clear()
    steps = env.rollout(
        9, talk(lambda chat: "me"), tensordict=start(*orders), break_when_all_done=True
    )
    assert steps["next", "terminated"][..., 0].int().argmax(1).tolist() == [2, 1, 0]
    for row, order in enumerate(orders):
        said = steps["next", "table"][row][-1].said
        assert [message.get("name") for message in said] == [None, *order.split()]
    assert set(asked) == set(orders)
    first = steps["history"][1][0].prompt.to_chats()
    assert contents(first) == [f"{orders[1]}\n\na: a1\n\nb: b1"]
    second = steps["history"][0][1].prompt.to_chats()
    assert contents(second) == [orders[0], "me", "a: a1"]


def test_messages_keep_their_names_where_a_template_prints_them() -> None:
    tokenizer = byte_tokenizer(NAMES)
    agent = Scripted(tokenizer, lambda prompt, step: "me")
    bob = Scripted(tokenizer, lambda prompt, step: "hm")
    side = ChatEnv(input_mode="tokens", tokenizer=tokenizer)
    env = ChatEnv(input_mode="tokens", tokenizer=tokenizer).append_transform(
        RoundTable([Speaker(bob, side, name="Bob"), plain("Eve")], told=one_by_one, name="Al")
    )
    env.rollout(2, agent, tensordict=start("Why?"))
    last = tokenizer.decode(agent.prompts[-1][0])
    assert "<|im_start|>user Bob\nhm<|im_end|>\n<|im_start|>user Eve\nEve3<|im_end|>" in last
    heard = tokenizer.decode(bob.prompts[-1][0])
    assert heard.startswith(
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>user Al\nme<|im_end|>\n<|im_start|>assistant\n"
    )


def test_one_who_has_enough_ends_it_and_its_words_go_nowhere() -> None:
    ends = Speaker(
        talk(lambda chat: "[STOP]" if len(chat) > 2 else "go on"), ChatEnv(), name="judge"
    )
    env = ChatEnv(batch_size=1).append_transform(RoundTable([plain("a"), ends], stop="[STOP]"))
    steps = env.rollout(9, talk(lambda chat: "me"), tensordict=start("q"))
    assert steps["next", "terminated"][0, :, 0].tolist() == [False, True]
    table = steps["next", "table"][0][-1]
    assert contents(table.said) == ["q", "me", "a1", "go on", "me", "a3"]
    assert table.sides["judge"].step["history"].full.to_chats()[-1]["content"] == "[STOP]"


def test_what_the_task_answers_is_said_at_the_table() -> None:
    def respond(messages: Any, row: Any, turn: int) -> Reply:
        return Reply([{"role": "user", "content": "the task's"}] if turn == 1 else (), reward=turn)

    env = ChatEnv(task=FunctionTask(respond)).append_transform(RoundTable([plain("a")]))
    steps = env.rollout(2, talk(lambda chat: f"me{len(chat)}"), tensordict=start("q"))
    chat = steps["next", "history"][0][1].prompt.to_chats()
    assert contents(chat) == ["q", "me1", "the task's", "me3", "a: a1"]
    table = steps["next", "table"][0][1]
    assert [(m.get("name"), m["content"]) for m in table.said] == [
        (None, "q"),
        ("agent", "me1"),
        (None, "the task's"),
        ("agent", "me3"),
        ("a", "a1"),
    ]
    told = table.sides["a"].step["history"].full.to_chats()
    assert contents(told) == ["q\n\nagent: me1\n\nthe task's\n\nagent: me3", "a1"]
    assert steps["next", "reward"][0, :, 0].tolist() == [1.0, 2.0]


def test_rows_that_end_begin_with_a_table_of_their_own() -> None:
    def echo(chat: Any) -> str:
        return str(chat[0]["content"][:2])

    def next_speaker(said: Any, row: Any) -> str | None:
        count = len(said) - 1
        return None if count > 2 * int(row["query"][1]) else ("agent", "a", "b")[count % 3]

    data = [{"query": f"q{number % 3}"} for number in range(40)]
    env = DatasetChatEnv(dataset=data, shuffle=False, num_envs=4).append_transform(
        RoundTable(
            [Speaker(talk(echo), ChatEnv(), name=name) for name in "ab"], next_speaker=next_speaker
        )
    )
    steps = env.rollout(9, talk(echo), break_when_any_done=False)
    ended = 0
    for row in steps.unbind(0):
        for step in row.unbind(0):
            said = step["next", "table"].said
            assert len({message["content"] for message in said}) == 1, "rows have met"
            ended += step["next", "done"].item()
            if step["next", "done"].item():
                assert len(said) == 2 + 2 * int(said[0]["content"][1])
    assert ended > 12


def test_tables_can_be_stored() -> None:
    env = ChatEnv().append_transform(RoundTable([plain("a"), plain("b")]))
    copy = pickle.loads(pickle.dumps(env.rollout(2, talk(lambda c: "me"), tensordict=start("q"))))
    assert contents(copy["next", "table"][0][-1].said) == [
        "q",
        *["me", "a1", "b1"],
        *["me", "a3", "b3"],
    ]


def test_what_can_not_be() -> None:
    with pytest.raises(InvalidParameter, match="at least one speaker"):
        RoundTable([])
    with pytest.raises(InvalidParameter, match="'agent', 'a', 'a'"):
        RoundTable([plain("a"), plain("a")])
    for order, message in (
        (["x"], "Row 0: next_speaker names 'x'; at the table are 'agent', 'a', 'b'"),
        (["a", "a"], "'a' has nothing to answer"),
        ([None], "ended before the agent had said a word"),
        (itertools.cycle("ab"), "must come back to 'agent'"),
    ):
        turns = iter(order)
        table = RoundTable(
            [plain("a"), plain("b")],
            next_speaker=lambda said, row, turns=turns: next(turns),  # type: ignore[misc]
        )
        with pytest.raises(EnvError, match=message):
            ChatEnv().append_transform(table).reset(start("q"))
    inside = ChatEnv().append_transform(RoundTable([plain("a")]))
    inside = inside.append_transform(ToolTransform([multiply]))
    with pytest.raises(EnvError, match="ToolTransform stands outside of RoundTable"):
        inside.reset(start("q"))
