"""The three forms in which `ChatEnv` hands a conversation to a policy: history, text, tokens.

Each form makes the first prompt, reads the answer, and makes the next prompt. A row's state, where
a form needs more than its prompt, is the entry ``"conversation"`` of that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase

from antiphon.conversations.containers import ChatHistory, Text, Tokens
from antiphon.conversations.fields import nested_entry
from antiphon.conversations.history import History
from antiphon.conversations.padding import token_rows
from antiphon.conversations.ragged import ragged as ragged_container
from antiphon.conversations.rows import map_rows, row_cells
from antiphon.envs.conversation import Conversation, Prompter
from antiphon.envs.entries import has_key
from antiphon.envs.tasks import Message
from antiphon.errors import EnvError

STATE = "conversation"
Chats = list[list[Message]]


class Mode(Protocol):
    """One form of conversation in a tensordict."""

    name: str
    container: Any

    def first(self, chats: Chats, device: torch.device | None) -> dict[str, Any]:
        """Return the entries of the first prompt."""

    def read(self, tensordict: TensorDictBase) -> Any:
        """Return the answers of all rows."""

    def check(self, answers: Any) -> None:
        """Refuse what is no answer."""

    def messages(self, answers: Any) -> Chats:
        """Return the whole conversations, the answer last."""

    def standing(self, tensordict: TensorDictBase) -> Chats:
        """Return the conversations as reset or step gave them."""

    def lengths(self, answers: Any) -> list[int]:
        """Return the number of tokens of each conversation."""

    def proceed(self, answers: Any, replies: Chats, device: torch.device | None) -> dict[str, Any]:
        """Return the entries of the next prompt; a row without replies ends with its answer."""

    def babble(self, tensordict: TensorDictBase) -> Any:
        """Return a container with an answer that means nothing, for checks."""


def row_values(tensordict: TensorDictBase, key: str) -> list[Any]:
    """Return the plain values of a non-tensor entry, one for each row."""
    value: Any = tensordict.get(key)
    plain = value.tolist() if hasattr(value, "tolist") else value
    count = tensordict.batch_size.numel()
    return list(plain) if isinstance(plain, list) and len(plain) == count else [plain] * count


class HistoryMode:
    """Conversations as `History`; sampled messages carry their ids themselves."""

    name = "history"
    container: Any = ChatHistory

    def __init__(self, prompter: Prompter | None, role: str | None) -> None:
        self.prompter = prompter
        self.role = role

    def first(self, chats: Chats, device: torch.device | None) -> dict[str, Any]:
        return {"history": _chat(History.from_chats(chats), device)}

    def read(self, tensordict: TensorDictBase) -> History:
        chat: Any = tensordict.get("history", None)
        if isinstance(chat, History):
            return chat
        full = None if chat is None else chat.full
        if full is None:
            prompt = None if chat is None else chat.prompt
            response = None if chat is None else chat.response
            if prompt is None or response is None:
                raise EnvError(
                    "ChatEnv.step needs the policy's answer under ('history', 'full') or "
                    "('history', 'response')."
                )
            full = prompt.extend(response, inplace=False, dim=-1)
        found: History = full
        return found

    def check(self, answers: Any) -> None:
        """Refuse rows in which no answer of the policy stands at the end."""
        if self.role is None:
            return
        for row, messages in enumerate(map_rows(answers._tensordict, row_cells)):
            last = messages[-1].get("role") if messages else "nobody"
            last = getattr(last, "data", last)
            if last != self.role:
                raise EnvError(
                    f"Row {row}: the last message is {last}'s; the policy must put its answer, "
                    f"with the role {self.role!r}, at the end."
                )

    def messages(self, answers: History) -> Chats:
        chats: Chats = answers._messages()
        return chats

    def standing(self, tensordict: TensorDictBase) -> Chats:
        chat: Any = tensordict.get("history")
        chats: Chats = chat.prompt._messages()
        return chats

    def lengths(self, answers: History) -> list[int]:
        if self.prompter is None:
            raise EnvError("max_tokens in history mode needs a tokenizer; give ChatEnv one.")
        from antiphon.engine.extension import extend

        options = self.prompter.options
        return [len(extend(None, chat, **options).input_ids) for chat in answers._messages()]

    def proceed(
        self, answers: History, replies: Chats, device: torch.device | None
    ) -> dict[str, Any]:
        full = answers
        if any(replies):
            full = answers.extend(History.from_chats(replies), inplace=False, dim=-1)
        return {"history": _chat(full, device)}

    def babble(self, tensordict: TensorDictBase) -> ChatHistory:
        chat: Any = tensordict.get("history")
        prompt = chat.prompt
        answer = {"role": self.role or "assistant", "content": "Well."}
        count = tensordict.batch_size.numel()
        response = History.from_chats([[answer]] * count)
        full = prompt.extend(response, inplace=False, dim=-1)
        return ChatHistory(prompt=prompt, full=full, batch_size=tensordict.batch_size)


def _chat(prompt: History, device: torch.device | None) -> ChatHistory:
    prompt = prompt if device is None else prompt.to(device)
    chat: ChatHistory = ChatHistory(prompt=prompt, batch_size=prompt.batch_size[:-1], device=device)
    return chat


class TokensMode:
    """Conversations as ids, ragged from row to row."""

    name = "tokens"
    container: Any = Tokens

    def __init__(self, prompter: Prompter) -> None:
        self.prompter = prompter

    def first(self, chats: Chats, device: torch.device | None) -> dict[str, Any]:
        return self._entries([self.prompter.begin(chat) for chat in chats], None, device)

    def _entries(
        self,
        conversations: Sequence[Conversation],
        rows: list[torch.Tensor] | None,
        device: torch.device | None,
    ) -> dict[str, Any]:
        if rows is None:
            rows = [torch.tensor(c.prompt.input_ids, dtype=torch.int64) for c in conversations]
        tokens = ragged_container(Tokens, (len(rows),), {"prompt": rows}, device)
        return {"tokens": tokens, STATE: nested_entry(list(conversations), 1, device)}

    def read(self, tensordict: TensorDictBase) -> list[Conversation]:
        tokens: Any = tensordict.get("tokens", None)
        prompts, responses, fulls = (
            None if tokens is None else token_rows(tokens._tensordict, name)
            for name in ("prompt", "response", "full")
        )
        if responses is None and (prompts is None or fulls is None):
            raise EnvError(
                "ChatEnv.step needs the policy's ids under ('tokens', 'full') or "
                "('tokens', 'response')."
            )
        if not has_key(tensordict, STATE):
            raise EnvError(
                f"ChatEnv.step in tokens mode needs the entry {STATE!r} that reset gave; keep it in "
                "the tensordict."
            )
        probs: Any = tensordict.get("log_probs", None)
        scored = None if probs is None else token_rows(probs._tensordict, "response")
        answers = []
        for row, conversation in enumerate(row_values(tensordict, STATE)):
            whole = _whole_row(row, prompts, responses, fulls, conversation)
            # A row that went on without a reply is still in the turn that it began after its
            # prompt.
            known = conversation.prompt.input_ids
            if whole[: len(known)] != known:
                raise EnvError(
                    f"Row {row}: ('tokens', 'full') does not start with the prompt's ids; the "
                    "policy must not change them."
                )
            given = None if scored is None else scored[row].tolist()
            ids = whole[len(known) :]
            log_probs = given if given is not None and len(given) == len(ids) else None
            answers.append(self.prompter.answered(conversation, ids, log_probs))
        return answers

    def check(self, answers: list[Conversation]) -> None:
        del answers  # `read` has looked at them already

    def messages(self, answers: list[Conversation]) -> Chats:
        return [list(conversation.messages) for conversation in answers]

    def standing(self, tensordict: TensorDictBase) -> Chats:
        return [list(conversation.messages) for conversation in row_values(tensordict, STATE)]

    def lengths(self, answers: list[Conversation]) -> list[int]:
        return [len(c.prompt.input_ids) + len(c.messages[-1]["token_ids"]) for c in answers]

    def proceed(
        self, answers: list[Conversation], replies: Chats, device: torch.device | None
    ) -> dict[str, Any]:
        following, rows = [], []
        for conversation, messages in zip(answers, replies, strict=True):
            if messages:
                conversation = self.prompter.proceed(conversation, messages)
                ids = conversation.prompt.input_ids
            else:
                ids = [*conversation.prompt.input_ids, *conversation.messages[-1]["token_ids"]]
            following.append(conversation)
            rows.append(torch.tensor(ids, dtype=torch.int64))
        return self._entries(following, rows, device)

    def babble(self, tensordict: TensorDictBase) -> Tokens:
        given: Any = tensordict.get("tokens")
        prompts = token_rows(given._tensordict, "prompt")
        one = torch.zeros(1, dtype=torch.int64)
        rows = {"prompt": prompts, "response": [one for _ in prompts]}
        rows["full"] = [torch.cat([row.cpu(), one]) for row in prompts]
        tokens: Tokens = ragged_container(Tokens, tensordict.batch_size, rows, None)
        return tokens


def _whole_row(
    row: int, prompts: Any, responses: Any, fulls: Any, conversation: Conversation
) -> list[int]:
    """Return prompt and answer of a row."""
    if fulls is not None:
        return list(fulls[row].tolist())
    prompt = conversation.prompt.input_ids if prompts is None else prompts[row].tolist()
    return [*prompt, *responses[row].tolist()]


class TextMode:
    """Conversations as text; what was sampled stays as the policy wrote it."""

    name = "text"
    container: Any = Text

    def __init__(self, prompter: Prompter) -> None:
        self.prompter = prompter

    def first(self, chats: Chats, device: torch.device | None) -> dict[str, Any]:
        texts = [self._render(chat).text for chat in chats]
        return self._entries(texts, [tuple(chat) for chat in chats], device)

    def _render(self, messages: Sequence[Message]) -> Any:
        from antiphon.engine.rendering import render

        return render(list(messages), add_generation_prompt=True, **self.prompter.options)

    def _entries(
        self, texts: list[str], states: Sequence[Any], device: torch.device | None
    ) -> dict[str, Any]:
        prompt = nested_entry(texts, 1, device)
        text = Text(prompt=prompt, batch_size=(len(texts),), device=device)
        return {"text": text, STATE: nested_entry(list(states), 1, device)}

    def read(self, tensordict: TensorDictBase) -> list[tuple[tuple[Message, ...], str, str]]:
        text: Any = tensordict.get("text", None)
        parts = {
            name: None if text is None else _texts(text, name, tensordict.batch_size.numel())
            for name in ("prompt", "response", "full")
        }
        prompts, fulls, responses = parts["prompt"], parts["full"], parts["response"]
        if prompts is None or (fulls is None and responses is None):
            raise EnvError(
                "ChatEnv.step needs the policy's text under ('text', 'full') or "
                "('text', 'response')."
            )
        states = row_values(tensordict, STATE) if has_key(tensordict, STATE) else None
        answers = []
        for row, prompt in enumerate(prompts):
            if fulls is not None:
                if not fulls[row].startswith(prompt):
                    raise EnvError(
                        f"Row {row}: ('text', 'full') does not start with the prompt; the policy "
                        "must not change it."
                    )
                response = fulls[row][len(prompt) :]
            else:
                response = responses[row]  # type: ignore[index]
            if states is None:
                from antiphon.reading import parse

                known = parse(
                    prompt, tokenizer=self.prompter.tokenizer, family=self.prompter.family
                )
                if known and known[-1].get("role") == self.prompter.role:
                    known = known[:-1]  # the generation prompt, read as an empty answer
                answers.append((tuple(known), prompt, response))
            else:
                answers.append((states[row], prompt, response))
        return answers

    def check(self, answers: list[tuple[tuple[Message, ...], str, str]]) -> None:
        del answers  # `read` has looked at them already

    def messages(self, answers: list[tuple[tuple[Message, ...], str, str]]) -> Chats:
        return [[*known, self._message(prompt, text)] for known, prompt, text in answers]

    def _message(self, prompt: str, response: str) -> Message:
        from antiphon.errors import FamilyNotFound, GrammarUnavailable
        from antiphon.reading import parse_response

        try:
            read = parse_response(
                response,
                prompt=prompt,
                tokenizer=self.prompter.tokenizer,
                family=self.prompter.family,
                tools=self.prompter.tools,
            )
        except (FamilyNotFound, GrammarUnavailable):
            read = {"content": response}
        message = {key: value for key, value in read.items() if value or key == "is_complete"}
        return {"content": "", **message, "role": self.prompter.role}

    def standing(self, tensordict: TensorDictBase) -> Chats:
        return [list(known) for known in row_values(tensordict, STATE)]

    def lengths(self, answers: list[tuple[tuple[Message, ...], str, str]]) -> list[int]:
        from antiphon.engine.tokenizers import view

        encoded = view(self.prompter.tokenizer).encode([p + r for _, p, r in answers])
        return [len(ids) for ids in encoded]

    def proceed(
        self,
        answers: list[tuple[tuple[Message, ...], str, str]],
        replies: Chats,
        device: torch.device | None,
    ) -> dict[str, Any]:
        texts, states = [], []
        for (known, prompt, response), messages in zip(answers, replies, strict=True):
            whole = prompt + response
            answer = self._message(prompt, response)
            state = (*known, answer)
            if messages:
                state = (*state, *messages)
                whole += self._bridge(state, len(known), bool(answer.get("is_complete")))
            texts.append(whole)
            states.append(state)
        return self._entries(texts, states, device)

    def _bridge(self, messages: Sequence[Message], answer: int, complete: bool) -> str:
        """Return what follows an answer: its end token if it lacks one, the replies, the prompt."""
        from antiphon.engine.tokenizers import view

        plain = [{k: v for k, v in m.items() if k != "is_complete"} for m in messages]
        rendering = self._render(plain)
        turn = next((turn for turn in rendering.turns if turn.message == answer), None)
        if turn is None:
            reason = rendering.unlocated.get(answer, "the template does not show it")
            raise EnvError(
                f"The conversation can't go on in text mode, where the answer (message {answer}) ends "
                f"is not known: {reason}; use tokens or history mode."
            )
        closing = ""
        own = rendering.text[turn.start : turn.end]
        if not complete:
            tokens = view(self.prompter.tokenizer)
            ends = [text for text, _ in tokens.added.values() if own.endswith(text)]
            closing = max(ends, key=len, default="")
        return closing + str(rendering.text[turn.end :])

    def babble(self, tensordict: TensorDictBase) -> Text:
        count = tensordict.batch_size.numel()
        prompts = _texts(tensordict.get("text"), "prompt", count) or []
        full = nested_entry([prompt + "Well." for prompt in prompts], 1)
        prompt = nested_entry(prompts, 1)
        return Text(prompt=prompt, full=full, batch_size=tensordict.batch_size)


def _texts(text: Any, name: str, count: int) -> list[str] | None:
    value = text._tensordict._get_str(name, None)
    if value is None:
        return None
    plain = value.tolist() if hasattr(value, "tolist") else value
    return list(plain) if isinstance(plain, list) else [plain] * count
