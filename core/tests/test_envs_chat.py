"""`ChatEnv` in its three modes: what reset takes, what step gives, limits, tasks, exact ids."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import rollout_helpers
import torch
from antiphon import ChatEnv, ChatHistory, History, LLMWrapper, LogProbs, Text, Tokens
from antiphon.envs import FunctionTask, Reply, Task, WordProblems, check_env
from antiphon.errors import EnvError, InvalidParameter
from tensordict import TensorDict, TensorDictBase, lazy_stack

HERE = Path(__file__).parent
MODES = ("history", "text", "tokens")


@pytest.fixture(scope="module")
def helpers() -> Any:
    return rollout_helpers


@pytest.fixture(scope="module")
def tokenizer(helpers: Any) -> Any:
    return helpers.byte_tokenizer()


def asked(*questions: Any, **more: Any) -> TensorDict:
    return TensorDict({"query": list(questions), **more}, batch_size=len(questions))


def answer_history(root: TensorDictBase, *texts: str) -> TensorDictBase:
    prompt = root["history"].prompt
    response = History.from_chats([[{"role": "assistant", "content": text}] for text in texts])
    full = prompt.extend(response, inplace=False, dim=-1)
    return root.set("history", ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size))


def answer_tokens(root: TensorDictBase, rows: list[list[int]]) -> TensorDictBase:
    prompts = root.get("tokens").get("prompt", as_list=True)
    tokens = lazy_stack(
        [
            TensorDict(
                {"prompt": p, "response": torch.tensor(r), "full": torch.cat([p, torch.tensor(r)])}
            )
            for p, r in zip(prompts, rows, strict=True)
        ]
    )
    return root.set("tokens", Tokens.from_tensordict(tokens))


def answer_text(root: TensorDictBase, *texts: str) -> TensorDictBase:
    prompts = root["text"].prompt
    fulls = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    return root.set("text", Text(prompt=list(prompts), full=fulls, batch_size=root.batch_size))


def prompt_ids(root: TensorDictBase) -> list[list[int]]:
    return [row.tolist() for row in root.get("tokens").get("prompt", as_list=True)]


# Reset


MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (["a", "b"], [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]]),
        ("same", [[{"role": "user", "content": "same"}]] * 2),
        ([MESSAGES, MESSAGES[:1]], [MESSAGES, MESSAGES[:1]]),
        (History.from_chats([MESSAGES, MESSAGES[:1]]), [MESSAGES, MESSAGES[:1]]),
        (History.from_chats([MESSAGES[:1]] * 2), [MESSAGES[:1]] * 2),
    ],
    ids=["strings", "one string", "message lists", "ragged History", "History"],
)
def test_reset_takes_strings_message_lists_and_histories(query: Any, expected: Any) -> None:
    env = ChatEnv(batch_size=2)
    root = env.reset(TensorDict({"query": query}, batch_size=2))
    assert root["history"].prompt.to_chats() == expected
    assert not root["done"].any()
    env = ChatEnv(batch_size=2, system_prompt="S")
    root = env.reset(TensorDict({"query": query}, batch_size=2))
    system = {"role": "system", "content": "S"}
    assert root["history"].prompt.to_chats() == [[system, *chat] for chat in expected]


def test_a_system_prompt_is_not_put_before_another() -> None:
    chat = [{"role": "system", "content": "mine"}, *MESSAGES]
    root = ChatEnv(system_prompt="S").reset(TensorDict({"query": [chat]}, batch_size=1))
    assert root["history"].prompt.to_chats() == [chat]


@pytest.mark.parametrize("mode", MODES)
def test_keys_that_a_data_set_filled_with_none_are_not_there(mode: Any, helpers: Any) -> None:
    """Arrow gives every message every key; a template that looks for the key must not find it."""
    template = (
        "{% for m in messages %}{% if 'tool_calls' in m or 'name' in m %}{{ raise_exception('no') }}"
        "{% endif %}{% endfor %}" + helpers.CHATML
    )
    rows = [
        {"role": "user", "content": "a", "tool_calls": None, "name": None},
        {"role": "assistant", "content": "b", "tool_calls": [], "name": None},
        {"role": "user", "content": "c", "tool_calls": None, "name": None},
    ]
    env = ChatEnv(input_mode=mode, tokenizer=helpers.byte_tokenizer(template))
    root = env.reset(TensorDict({"query": [rows]}, batch_size=1))
    if mode == "history":
        assert root["history"].prompt.to_chats()[0][1] == {"role": "assistant", "content": "b"}
    assert rows[0]["tool_calls"] is None


def test_roles_and_data_key_are_the_callers() -> None:
    env = ChatEnv(system_prompt="S", system_role="developer", user_role="human", data_key="q")
    root = env.reset(TensorDict({"q": ["a"]}, batch_size=1))
    assert root["history"].prompt.to_chats()[0] == [
        {"role": "developer", "content": "S"},
        {"role": "human", "content": "a"},
    ]
    assert ChatEnv(data_key="q").full_state_spec.keys() == ["q"]


def test_reset_and_step_say_what_they_lack(tokenizer: Any) -> None:
    with pytest.raises(EnvError, match="entry 'query'"):
        ChatEnv().reset()
    with pytest.raises(EnvError, match="it got other"):
        ChatEnv().reset(TensorDict({"other": ["a"]}, batch_size=1))
    with pytest.raises(EnvError, match="one batch dimension"):
        ChatEnv().reset(TensorDict({"query": "a"}))
    with pytest.raises(InvalidParameter, match="needs a tokenizer"):
        ChatEnv(input_mode="tokens")
    with pytest.raises(InvalidParameter, match="input_mode"):
        ChatEnv(input_mode="morse", tokenizer=tokenizer)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="one dimension"):
        ChatEnv(batch_size=())
    for mode in MODES:
        env = ChatEnv(input_mode=mode, tokenizer=tokenizer)  # type: ignore[arg-type]
        root = env.reset(asked("a"))
        with pytest.raises(EnvError, match=f"'{mode}', 'full'"):
            env.step(root)
    env = ChatEnv()
    root = env.reset(asked("a"))
    question = History.from_chats([[{"role": "user", "content": "?"}]])
    root["history"] = ChatHistory(full=question, batch_size=(1,))
    with pytest.raises(EnvError, match="Row 0: the last message is user's"):
        env.step(root)


def test_prompts_of_unequal_length_are_one_batch_in_tokens_mode(tokenizer: Any) -> None:
    env = ChatEnv(input_mode="tokens", tokenizer=tokenizer, batch_size=2)
    root = env.reset(asked("a", "a longer question"))
    ids = prompt_ids(root)
    assert len(ids[0]) != len(ids[1])
    wanted = "<|im_start|>user\na longer question<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(ids[1]) == wanted


def test_text_mode_gives_the_rendered_prompt(tokenizer: Any) -> None:
    env = ChatEnv(input_mode="text", tokenizer=tokenizer, system_prompt="S")
    root = env.reset(asked("a"))
    assert list(root["text"].prompt) == [
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    ]


def test_template_arguments_reach_the_template() -> None:
    template = "{% for m in messages %}{{ m.content }}{{ mark }}{% endfor %}"
    env = ChatEnv(input_mode="text", template_kwargs={"chat_template": template, "mark": "!"})
    assert list(env.reset(asked("a"))["text"].prompt) == ["a!"]


# Step without a task


def test_the_next_prompt_is_the_conversation_so_far(tokenizer: Any) -> None:
    env = ChatEnv(batch_size=2)
    step = env.step(answer_history(env.reset(asked("a", "b")), "A", "B"))
    assert [c[-1]["content"] for c in step["next", "history"].prompt.to_chats()] == ["A", "B"]
    assert step["next", "reward"].tolist() == [[0.0], [0.0]]
    env = ChatEnv(input_mode="text", tokenizer=tokenizer)
    step = env.step(answer_text(env.reset(asked("a")), "A<|im_end|>"))
    assert step["next", "text"].prompt[0].endswith("assistant\nA<|im_end|>")
    env = ChatEnv(input_mode="tokens", tokenizer=tokenizer)
    root = env.reset(asked("a"))
    before = prompt_ids(root)[0]
    step = env.step(answer_tokens(root, [[5, 6, 258]]))
    assert prompt_ids(step["next"])[0] == [*before, 5, 6, 258]


def test_a_response_alone_will_do_and_a_history_alone_too() -> None:
    env = ChatEnv()
    root = env.reset(asked("a"))
    response = History.from_chats([[{"role": "assistant", "content": "A"}]])
    root["history"] = ChatHistory(prompt=root["history"].prompt, response=response, batch_size=(1,))
    chat = env.step(root)["next", "history"].prompt.to_chats()
    assert chat == [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "A"}]]
    bare = TensorDict({"history": History.from_chats(chat)}, batch_size=1)
    assert env.step(bare)["next", "history"].prompt.to_chats() == chat


def test_the_next_root_holds_no_answer_of_the_step_before() -> None:
    env = ChatEnv()
    root = env.reset(asked("a", answer=["x"]))
    root = answer_history(root, "A")
    root["log_probs"] = LogProbs(full=torch.zeros(1, 3), batch_size=(1,))
    root = env.step_mdp(env.step(root))
    assert root["history"].full is None
    assert "log_probs" not in set(root.keys())
    assert root["query"] == ["a"]
    assert root["answer"] == ["x"]


@pytest.mark.parametrize("mode", MODES)
def test_the_specs_are_kept(mode: Any, tokenizer: Any) -> None:
    env = ChatEnv(input_mode=mode, tokenizer=tokenizer, batch_size=3)
    check_env(env, asked("a", "bb", "a third one"), steps=3)


# Ends


def test_turns_end_a_conversation() -> None:
    env = ChatEnv(max_turns=2)
    steps = env.rollout(9, tensordict=asked("a"))
    assert steps.batch_size == (1, 2)
    assert steps["next", "truncated"][0, :, 0].tolist() == [False, True]
    assert not steps["next", "terminated"].any()


@pytest.mark.parametrize("mode", MODES)
def test_tokens_end_a_conversation(mode: Any, tokenizer: Any) -> None:
    env = ChatEnv(input_mode=mode, tokenizer=tokenizer, max_tokens=60, batch_size=2)
    steps = env.rollout(40, tensordict=asked("a", "b" * 60), break_when_all_done=True)
    truncated = [[s["next", "truncated"].item() for s in row.unbind(0)] for row in steps.unbind(0)]
    assert truncated[1][0]
    assert not truncated[0][0]
    assert truncated[0][-1]


def test_a_condition_ends_a_conversation() -> None:
    def enough(messages: Any, row: Any) -> bool:
        return row["stop"] in messages[-1]["content"]

    env = ChatEnv(end_condition=enough, batch_size=2)
    root = env.reset(asked("a", "b", stop=["x", "y"]))
    step = env.step(answer_history(root, "y", "y"))
    assert step["next", "terminated"].tolist() == [[False], [True]]
    assert step["next", "done"].tolist() == [[False], [True]]


# Tasks


def scripted(env: Any, *turns: Any, mode: str, tokenizer: Any) -> list[TensorDictBase]:
    """Step through answers, a tuple of texts a turn; an id sequence in tokens mode."""
    steps = []
    root = env.reset(
        TensorDict({"question": ["1 + 1?", "2 + 2?"], "answer": ["#### 2", "#### 4"]}, batch_size=2)
    )
    for texts in turns:
        if mode == "history":
            root = answer_history(root, *texts)
        elif mode == "text":
            root = answer_text(root, *(text + "<|im_end|>" for text in texts))
        else:
            root = answer_tokens(root, [[*tokenizer.encode(text), 258] for text in texts])
        steps.append(env.step(root))
        root = env.step_mdp(steps[-1])
    return steps


@pytest.mark.parametrize("mode", MODES)
def test_a_task_answers_rewards_and_ends(mode: Any, tokenizer: Any) -> None:
    env = ChatEnv(
        input_mode=mode, tokenizer=tokenizer, batch_size=2, task=WordProblems(max_turns=2)
    )
    first, second = scripted(
        env, ("#### 2", "#### 5"), ("#### 2", "so 4"), mode=mode, tokenizer=tokenizer
    )
    assert first["next", "reward"].tolist() == [[1.0], [pytest.approx(0.1)]]
    assert first["next", "terminated"].tolist() == [[True], [False]]
    assert first["next", "success"].dtype == torch.bool
    # The first row had ended; what it is asked further means nothing.
    assert second["next", "reward"][1].item() == 1.0
    assert second["next", "done"][1].item()
    if mode == "history":
        chats = second["next", "history"].prompt.to_chats()
        assert [m["role"] for m in chats[1]] == ["system", "user", "assistant", "user", "assistant"]
    env.full_reward_spec.assert_is_in(first["next"])


@pytest.mark.parametrize("ends", [True, False], ids=["complete", "cut off"])
def test_text_and_tokens_mode_say_the_same(ends: bool, tokenizer: Any) -> None:
    end = "<|im_end|>" if ends else ""
    task = FunctionTask(lambda messages, row, turn: Reply([{"role": "user", "content": "Go on."}]))
    answers = ("  odd  white\nspace ", "", "x")
    by_mode = {}
    for mode in ("text", "tokens"):
        env = ChatEnv(input_mode=mode, tokenizer=tokenizer, task=task)  # type: ignore[arg-type]
        root = env.reset(asked("a"))
        for text in answers:
            if mode == "text":
                root = answer_text(root, text + end)
            else:
                root = answer_tokens(root, [tokenizer.encode(text + end)])
            root = env.step_mdp(env.step(root))
        by_mode[mode] = root
    assert list(by_mode["text"]["text"].prompt) == [
        tokenizer.decode(prompt_ids(by_mode["tokens"])[0])
    ]
    text = by_mode["text"]["text"].prompt[0]
    assert text.count("<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n") == 3


def test_sampled_ids_stand_in_every_later_prompt(tokenizer: Any) -> None:
    """Random ids, half characters and control tokens among them, over ten turns."""
    drawn = random.Random(0)
    task = FunctionTask(
        lambda messages, row, turn: Reply([{"role": "user", "content": f"{row['query']} {turn}"}])
    )
    env = ChatEnv(input_mode="tokens", tokenizer=tokenizer, batch_size=3, task=task)
    root = env.reset(asked("a", "bb", "ccc"))
    for turn in range(10):
        before = prompt_ids(root)
        rows = [
            [drawn.randrange(256) for _ in range(drawn.randrange(1, 12))]
            + [258] * drawn.randrange(2)
            for _ in range(3)
        ]
        step = env.step(answer_tokens(root, rows))
        root = env.step_mdp(step)
        for old, sampled, new, name in zip(before, rows, prompt_ids(root), "abc", strict=True):
            assert new[: len(old) + len(sampled)] == [*old, *sampled]
            tail = tokenizer.decode(new[len(old) + len(sampled) :])
            assert tail.endswith(f"{name} {turn + 1}<|im_end|>\n<|im_start|>assistant\n")


def test_log_probs_stay_with_their_ids(tokenizer: Any) -> None:
    seen: list[Any] = []

    def respond(messages: Any, row: Any, turn: int) -> Reply:
        seen.append(messages[-1])
        return Reply([{"role": "user", "content": "?"}])

    env = ChatEnv(input_mode="tokens", tokenizer=tokenizer, task=FunctionTask(respond))
    root = answer_tokens(env.reset(asked("a")), [[7, 8, 258]])
    root["log_probs"] = LogProbs(response=torch.tensor([[-1.0, -2.0, -3.0]]), batch_size=(1,))
    env.step(root)
    assert seen[0]["token_ids"] == [7, 8, 258]
    assert seen[0]["log_probs"] == [-1.0, -2.0, -3.0]
    # A reply changes only what comes after: the policy may not rewrite its prompt.
    root = env.reset(asked("a"))
    prompt = root.get("tokens").get("prompt", as_list=True)[0]
    changed = torch.cat([prompt + 1, torch.tensor([5])])
    root["tokens"] = Tokens(full=changed[None], prompt=prompt[None], batch_size=(1,))
    with pytest.raises(EnvError, match=r"Row 0: .* does not start with the prompt"):
        env.step(root)


@pytest.mark.parametrize("mode", MODES)
def test_rows_finish_in_any_order_and_never_mix(mode: Any, tokenizer: Any) -> None:
    """Rows are stepped alone and together in random order; each sees its own conversation only."""
    drawn = random.Random(1)

    def respond(messages: Any, row: Any, turn: int) -> Reply:
        texts = [m["content"] for m in messages if m["role"] == "assistant"]
        assert texts == [f"{row['query']}-{i + 1}" for i in range(turn)]
        return Reply(
            [{"role": "user", "content": f"more {row['query']}"}],
            reward=float(row["weight"]),
            terminated=turn == row["last"],
        )

    env = ChatEnv(input_mode=mode, tokenizer=tokenizer, task=FunctionTask(respond))
    lasts = [drawn.randrange(1, 6) for _ in range(12)]
    start = env.reset(
        TensorDict(
            {
                "query": [f"row{i}" for i in range(12)],
                "last": lasts,
                "weight": torch.arange(12.0),
            },
            batch_size=12,
        )
    )
    rows = dict(enumerate(start.unbind(0)))
    turns = dict.fromkeys(rows, 0)
    while rows:
        chosen = drawn.sample(sorted(rows), k=drawn.randrange(1, len(rows) + 1))
        batch = lazy_stack([rows[i] for i in chosen])
        texts = [f"row{i}-{turns[i] + 1}" for i in chosen]
        if mode == "history":
            batch = answer_history(batch, *texts)
        elif mode == "text":
            batch = answer_text(batch, *(text + "<|im_end|>" for text in texts))
        else:
            batch = answer_tokens(batch, [[*tokenizer.encode(text), 258] for text in texts])
        step = env.step(batch)
        following = env.step_mdp(step)
        for place, i in enumerate(chosen):
            turns[i] += 1
            assert step["next", "reward"][place].item() == float(i)
            assert step["next", "done"][place].item() == (turns[i] == lasts[i])
            rows[i] = following[place]
            if turns[i] == lasts[i]:
                del rows[i]
    assert list(turns.values()) == lasts


@pytest.mark.parametrize("again", ["one", "all"])
def test_a_task_finds_the_rows_data_after_an_automatic_reset(again: str) -> None:
    class Word(Task):
        def respond(self, messages: Any, row: Any, turn: int) -> Reply:
            return Reply(reward=1.0, terminated=again == "all" or row["word"] == "a")

    env = ChatEnv(task=Word(), batch_size=2)
    rows = TensorDict({"query": ["x", "y"], "word": ["a", "b"]}, batch_size=2)
    steps = env.rollout(3, tensordict=rows, break_when_any_done=False)
    assert [row[2]["word"] for row in steps.unbind(0)] == ["a", "b"]


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_goes_on_in_another_process(mode: Any, tokenizer: Any, helpers: Any) -> None:
    env = ChatEnv(input_mode=mode, tokenizer=tokenizer, task=FunctionTask(again), batch_size=2)
    options = {"max_new_tokens": 8, "seed": 1}
    policy = LLMWrapper(helpers.FakeBackend(tokenizer), input_mode=mode, generate_kwargs=options)
    root = env.step_mdp(env.step(policy(env.reset(asked("a", "a longer one")))))
    other, sent = pickle.loads(pickle.dumps((env, root)))
    following, wanted = other.step(policy(sent))["next"], env.step(policy(root))["next"]
    assert following["turn"].tolist() == [[2], [2]]
    if mode == "history":
        assert following["history"].prompt.to_chats() == wanted["history"].prompt.to_chats()
    elif mode == "text":
        assert following["text"].prompt == wanted["text"].prompt
    else:
        prompts = [each.get("tokens").get("prompt", as_list=True) for each in (following, wanted)]
        assert [row.tolist() for row in prompts[0]] == [row.tolist() for row in prompts[1]]


def again(messages: Any, row: Any, turn: int) -> Reply:
    return Reply([{"role": "user", "content": "Again."}])
