"""`RoundTable`: more than two speak, each of them with the conversation from its own side.

The agent is one of those at the table: it answers in the environment's steps, as ever. The others
speak between its answers. What each hears are the words of all others since it last spoke.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tensordict import TensorDictBase

from antiphon.envs.chat_modes import row_values
from antiphon.envs.speakers import (
    Speaker,
    Speaking,
    Stop,
    UserSide,
    contents,
    since_user,
    terminated,
)
from antiphon.envs.tasks import Message, message_text
from antiphon.errors import EnvError, InvalidParameter

Told = Callable[[Sequence[Message]], Sequence[str | Message]]
NextSpeaker = Callable[[Sequence[Message], Mapping[str, Any]], str | None]
_MOST_WORDS = 100


@dataclass(frozen=True)
class Table:
    """A row's conversation as it stands on the table.

    Attributes:
        said: All that was said, in order: messages with ``"content"`` and the speaker's ``"name"``;
            what the environment asked has no name.
        heard: By name, how much of it each speaker has been told or has said itself.
        sides: By name, the conversation from the side of each speaker beside the agent.
    """

    said: tuple[Message, ...]
    heard: Mapping[str, int]
    sides: Mapping[str, UserSide] = field(default_factory=dict)


def in_one_message(messages: Sequence[Message]) -> list[str]:
    """Return what several have said as one text, each with its name before it.

    Templates that want turns to alternate take it.
    """
    return ["\n\n".join(_named(message) for message in messages)]


def one_by_one(messages: Sequence[Message]) -> list[Message]:
    """Return what each has said as a message of its own, with the name beside the content.

    For templates that print names, or take several messages of a user in succession.
    """
    return [dict(message) for message in messages]


class RoundTable(Speaking):
    """Lets several policies speak between the agent's answers.

    Put it outside of `ToolTransform`: results of tools go to the agent alone. Rewards and ends of
    the environment's own task stand; what a task answers is said at the table too. Each row's
    conversation is the entry ``key``, a `Table`.

    Args:
        speakers: Those beside the agent, each with a name of its own.
        name: The agent's name.
        next_speaker: ``(said, row) -> name``: whose turn it is after what was said, see `Table`.
            The agent's name hands the word to the policy, None ends the conversation (terminated).
            In turn, the agent first, if None.
        told: Makes messages for a speaker (or texts, for the user's role) of what the others said
            since it last spoke, such as `in_one_message` and `one_by_one`.
        stop: The conversation ends (terminated) when a speaker beside the agent says this, or when
            this is true of what it says; those words are not handed on.
        key: The entry with each row's table.
    """

    def __init__(
        self,
        speakers: Iterable[Speaker],
        *,
        name: str = "agent",
        next_speaker: NextSpeaker | None = None,
        told: Told = in_one_message,
        stop: Stop = None,
        key: str = "table",
    ) -> None:
        super().__init__(stop=stop, key=key)
        found = list(speakers)
        self.speakers = {speaker.name: speaker for speaker in found}
        self.name = name
        names = [name, *(speaker.name for speaker in found)]
        if len(set(names)) < len(names) or len(names) < 2:
            raise InvalidParameter(
                "RoundTable needs at least one speaker beside the agent, and a name of its own for "
                f"each; these are {', '.join(map(repr, names))}."
            )
        self.next_speaker = partial(_in_turn, names) if next_speaker is None else next_speaker
        self.told = told

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        del tensordict
        self.check_outermost()
        data = dict(enumerate(self.agent.rows(tensordict_reset)))
        chats = self.agent.mode.standing(tensordict_reset)
        tables = [self._laid(data[row], chat) for row, chat in enumerate(chats)]
        tables, ended = self._round(tables, data)
        if ended:
            raise EnvError(
                f"Row {ended[0]}: the conversation ended before the agent had said a word; let "
                "next_speaker or stop wait for it."
            )
        starts: dict[int, str | list[Message]] = {}
        for row, (table, chat) in enumerate(zip(tables, chats, strict=True)):
            news = list(self._news(table, self.name))
            if news:
                asked = chat[-1:] if chat and chat[-1].get("role") == self.agent.user_role else []
                question = [{"content": message_text(message)} for message in asked]
                heard = self._as_messages(self.told([*question, *news]), self.agent.user_role)
                starts[row] = [*chat[: len(chat) - len(asked)], *heard]
                tables[row] = _up_to_date(table, self.name)
        return self.with_values(self.opened(tensordict_reset, starts), tables)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        tables: list[Table] = list(row_values(tensordict, self.key))
        done: Any = next_tensordict.get("done")
        flags = done.reshape(-1).tolist()
        data = self.agent.rows(tensordict)
        before = self.agent.conversations(tensordict)
        after = self.agent.mode.standing(next_tensordict)
        waiting = {}
        for row, chat in enumerate(before):
            new = after[row][len(chat) :]
            asked = [message for message in new if message.get("role") == self.agent.user_role]
            if new and not asked and not flags[row]:
                continue  # results of tools, for the agent to go on with
            said = [self._said(self.name, contents(since_user(chat, self.agent.user_role)))]
            said += [{"content": message_text(message)} for message in asked]
            tables[row] = _up_to_date(_with_words(tables[row], said), self.name)
            if not new and not flags[row]:
                waiting[row] = data[row]
        tables, ended = self._round(tables, waiting)
        replies = {}
        for row in waiting:
            news = self._news(tables[row], self.name)
            if news and row not in ended:
                replies[row] = self._as_messages(self.told(news), self.agent.user_role)
                tables[row] = _up_to_date(tables[row], self.name)
        next_tensordict = self.agent.reply(
            tensordict, next_tensordict, replies, undo_done=False, zero_reward=False
        )
        return self.with_values(terminated(next_tensordict, ended), tables)

    def _laid(self, row: Mapping[str, Any], chat: Sequence[Message]) -> Table:
        """Return the table on which a row's conversation begins."""
        said: list[Message] = []
        for message in chat:
            if message.get("role") == self.agent.user_role:
                said.append({"content": message_text(message)})
            elif message.get("role") == (self.agent.policy_role or "assistant"):
                said.append(self._said(self.name, message_text(message)))
        sides = {
            name: UserSide(tuple(speaker.opening(row))) for name, speaker in self.speakers.items()
        }
        return Table(tuple(said), {self.name: len(said)}, sides)

    def _round(
        self, tables: Sequence[Table], data: Mapping[int, Mapping[str, Any]]
    ) -> tuple[list[Table], list[int]]:
        """Let others speak until it is the agent's turn in each of the rows ``data``.

        Returns:
            The tables of all rows, and the rows in which the conversation has ended.
        """
        tables, ended, pending = list(tables), [], list(data)
        for _ in range(_MOST_WORDS):
            due: dict[str, list[int]] = {}
            for row in pending:
                name = self.next_speaker(tables[row].said, data[row])
                if name is None:
                    ended.append(row)
                elif name != self.name:
                    due.setdefault(name, []).append(row)
            if not due:
                return tables, ended
            for name, rows in due.items():
                for row, table, goes_on in self._words(name, tables, rows):
                    tables[row] = table
                    if not goes_on:
                        ended.append(row)
            pending = [row for rows in due.values() for row in rows if row not in ended]
        raise EnvError(
            f"Row {pending[0]}: {_MOST_WORDS} times others have spoken, and the agent has not; "
            f"next_speaker must come back to {self.name!r}."
        )

    def _words(
        self, name: str, tables: Sequence[Table], rows: Sequence[int]
    ) -> list[tuple[int, Table, bool]]:
        """Let one speaker speak in some rows: each with its table, and whether it goes on."""
        speaker = self.speakers.get(name)
        if speaker is None:
            raise EnvError(
                f"Row {rows[0]}: next_speaker names {name!r}; at the table are "
                f"{', '.join(map(repr, [self.name, *self.speakers]))}."
            )
        news = []
        for row in rows:
            heard = self._news(tables[row], name)
            if not heard:
                raise EnvError(
                    f"Row {row}: {name!r} has nothing to answer; next_speaker must not name anybody "
                    "twice in succession, nor before something is said."
                )
            news.append(self._as_messages(self.told(heard), speaker.env.user_role))
        sides, words = speaker.speak([tables[row].sides[name] for row in rows], news)
        found = []
        for row, side, text in zip(rows, sides, words, strict=True):
            table = replace(tables[row], sides={**tables[row].sides, name: side})
            goes_on = not self.stops(text)
            if goes_on:
                table = _up_to_date(_with_words(table, [self._said(name, text)]), name)
            found.append((row, table, goes_on))
        return found

    def _news(self, table: Table, name: str) -> tuple[Message, ...]:
        """Return what a speaker has not heard yet."""
        return table.said[table.heard.get(name, 0) :]

    @staticmethod
    def _said(name: str, text: str) -> Message:
        return {"name": name, "content": text}

    @staticmethod
    def _as_messages(told: Sequence[str | Message], role: str) -> list[Message]:
        return [
            {"role": role, **({"content": each} if isinstance(each, str) else each)}
            for each in told
        ]


def _named(message: Message) -> str:
    text = message_text(message).strip()
    return f"{message['name']}: {text}" if message.get("name") else text


def _with_words(table: Table, said: Sequence[Message]) -> Table:
    return replace(table, said=(*table.said, *said))


def _up_to_date(table: Table, name: str) -> Table:
    return replace(table, heard={**table.heard, name: len(table.said)})


def _in_turn(names: Sequence[str], said: Sequence[Message], row: Mapping[str, Any]) -> str:
    """Say whose turn it is where all speak in one order, the first of ``names`` first."""
    del row
    last = next((m["name"] for m in reversed(said) if m.get("name") in names), None)
    return names[0 if last is None else (names.index(last) + 1) % len(names)]
