"""Token ids as text in which each control token is one character of its own.

Control tokens that a grammar knows become lone surrogates, which no tokenizer decodes to; what
stands between them is decoded as it is, nothing dropped. So the reader can tell a marker from the
same characters in somebody's text.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from antiphon.engine.caches import BoundedCache
from antiphon.errors import InvalidData
from antiphon.reading.compiled import Compiled, alternation
from antiphon.reading.grammar import Grammar, Source

_FIRST_SYMBOL = 0xD800
_SYMBOLS = 2048
_REPLACEMENT = "\ufffd"
_BYTES = 4
"""Bytes of a character at most."""
_SHORT = 3  # ids of pieces whose text is remembered


def literals_of(value: object) -> Iterator[str]:
    """Yield every string in a grammar but those of the template that it was inferred from."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from literals_of(item)
    elif is_dataclass(value) and not isinstance(value, Source):
        for item in fields(value):
            yield from literals_of(getattr(value, item.name))


def _is_marker(token: str) -> bool:
    """Whether an added token can be a marker: white space, words and single signs are text."""
    bare = token.strip()
    return len(bare) >= 3 and not bare.isalnum()


class _Pieces(dict[int, str]):
    """The text of each id that is whole characters, a control token's being its symbol.

    For decoders that write one token's bytes behind the other's: there the text of ids is that of
    each of them. It holds no more than the vocabulary, and looking the same id up twice does no
    harm between threads.
    """

    def __init__(self, symbols: dict[int, str], single: Callable[[int], str]) -> None:
        super().__init__(symbols)
        self._single = single
        self._parts: set[int] = set()

    def __missing__(self, index: int) -> str:
        if index not in self._parts:
            text = self._single(index)
            if _REPLACEMENT not in text:
                self[index] = text
                return text
            self._parts.add(index)
        raise KeyError(index)


class TokenTable:
    """A grammar's control tokens in one tokenizer.

    Attributes:
        compiled: The grammar compiled for this tokenizer's ids.
    """

    def __init__(self, grammar: Grammar, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        texts = "\0".join(set(literals_of(grammar)))
        added = {
            token: index
            for token, index in _added_tokens(tokenizer).items()
            if _is_marker(token) and token in texts
        }
        self._symbol: dict[int, str] = {}
        self._text_of = {index: token for token, index in added.items()}
        symbols: dict[str, str] = {}
        self._by_text: dict[str, str] = {}
        for number, (token, index) in enumerate(sorted(added.items())[:_SYMBOLS]):
            symbol = chr(_FIRST_SYMBOL + number)
            self._symbol[index] = symbol
            symbols[symbol] = token
            self._by_text[token] = symbol
        self._spelled = re.compile(f"({alternation(self._by_text)})") if self._by_text else None
        spelled, by_text = self._spelled, self._by_text

        def convert(text: str) -> str:
            if spelled is None or not text:
                return text
            return spelled.sub(lambda match: by_text[match.group()], text)

        self.compiled = Compiled(grammar, convert, symbols)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._decode = backend.decode if backend is not None else tokenizer.decode
        self._short: BoundedCache[tuple[int, ...], str] = BoundedCache(1024)
        self._anchor: tuple[list[int], int] | None = None
        self._anchor = self._find_anchor()
        self._is_whole = self._anchor is None and self._decodes_whole()
        is_bytes = type(getattr(backend, "decoder", None)).__name__ == "ByteLevel"
        self._pieces = _Pieces(self._symbol, self._single) if is_bytes else None

    def text(self, ids: Iterable[int]) -> str:
        """Return ids as text with control characters.

        Raises:
            InvalidData: They are no whole numbers.
        """
        try:
            return self._text(ids)
        except TypeError as error:  # looked for here, so that ids need not be looked at one by one
            raise InvalidData(f"Token ids are whole numbers, not {_odd(ids)}.") from error

    def _text(self, ids: Iterable[int]) -> str:
        symbol = self._symbol
        given = ids if isinstance(ids, list) else list(ids)
        if self._pieces is not None:
            # An id that is a part of a character is rare: then all are decoded together.
            with contextlib.suppress(KeyError):
                return "".join(map(self._pieces.__getitem__, given))
        controls = list(filter(symbol.__contains__, given))
        if not controls:
            return self.decode(given) if given else ""
        if self._is_whole:
            text = self._plain(given)
            assert self._spelled is not None  # there are control tokens
            pieces = self._spelled.split(text)
            if pieces[1::2] == [self._text_of[index] for index in controls]:
                # Every marker in the text is a control token: nobody has typed one.
                pieces[1::2] = [symbol[index] for index in controls]
                return "".join(pieces)
        parts: list[str] = []
        start = 0
        for place in [place for place, index in enumerate(given) if index in symbol]:
            if place > start:
                parts.append(self.decode(given[start:place]))
            parts.append(symbol[given[place]])
            start = place + 1
        if start < len(given):
            parts.append(self.decode(given[start:]))
        return "".join(parts)

    def symbol(self, index: int) -> str | None:
        """Return a control token's character; None for other tokens."""
        return self._symbol.get(index)

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids that stand in the middle of a text."""
        if len(ids) > _SHORT:
            return self._behind_anchor(ids)
        # What stands between two markers is mostly a line break or a role.
        key = tuple(ids)
        text = self._short.get(key)
        if text is None:
            text = self._behind_anchor(ids)
            self._short.put(key, text)
        return text

    def _behind_anchor(self, ids: list[int]) -> str:
        if self._anchor is None:
            return self._plain(ids)
        before, size = self._anchor
        return self._plain([*before, *ids])[size:]

    def _plain(self, ids: list[int]) -> str:
        try:
            text: str = self._decode(ids, skip_special_tokens=False)
        except (OverflowError, TypeError, ValueError, IndexError, KeyError):
            # Ids that no vocabulary has; a model can't emit them, a test can.
            text = "".join(map(self._single, ids))
        # A decoder never yields surrogates; one that did would forge markers.
        return text

    def _single(self, index: int) -> str:
        try:
            text: str = self._decode([index], skip_special_tokens=False)
        except (OverflowError, ValueError, IndexError, KeyError):
            return _REPLACEMENT
        return text

    def _decodes_whole(self) -> bool:
        """Whether control tokens stand in the text of all ids as what they are: nothing is put
        between or taken away beside them, and none can begin inside another.
        """
        texts = list(self._by_text)
        for one in texts:
            for two in texts:
                if any(one.endswith(two[:size]) for size in range(1, min(len(one), len(two)))):
                    return False
        try:
            encoded = self._tokenizer.encode(" a b", add_special_tokens=False)
        except (TypeError, ValueError, AttributeError):
            return False
        ids = list(getattr(encoded, "ids", encoded))
        words = self._plain(ids)
        return all(
            self._plain([*ids, index, *ids, index]) == f"{words}{token}" * 2
            for index, token in self._text_of.items()
        )

    def _find_anchor(self) -> tuple[list[int], int] | None:
        """Find out whether a piece of ids loses its first space when decoded alone.

        SentencePiece decoders drop it at the start of a text; there every piece is decoded behind
        a token whose text is then cut off.
        """
        try:
            encoded = self._tokenizer.encode("a b c", add_special_tokens=False)
        except (TypeError, ValueError, AttributeError):
            return None
        ids = list(getattr(encoded, "ids", encoded))
        if len(ids) < 2:
            return None
        whole = self._plain(ids)
        if all(
            self._plain(ids[:cut]) + self._plain(ids[cut:]) == whole for cut in range(1, len(ids))
        ):
            return None
        return ids[:1], len(self._plain(ids[:1]))


def _added_tokens(tokenizer: Any) -> dict[str, int]:
    getter = getattr(tokenizer, "get_added_vocab", None)
    if getter is not None:
        return dict(getter())
    getter = getattr(tokenizer, "get_added_tokens_decoder", None)
    if getter is not None:
        return {token.content: index for index, token in getter().items()}
    return {}


_TABLES: weakref.WeakKeyDictionary[Any, dict[int, tuple[Grammar, TokenTable]]] = (
    weakref.WeakKeyDictionary()
)


def token_table(grammar: Grammar, tokenizer: Any) -> TokenTable:
    """Return the table of a grammar in a tokenizer, made on first use and kept with the
    tokenizer.
    """
    try:
        tables = _TABLES.setdefault(tokenizer, {})
    except TypeError:
        return TokenTable(grammar, tokenizer)
    kept = tables.get(id(grammar))
    if kept is None or kept[0] is not grammar:
        if len(tables) >= 16:
            tables.clear()
        kept = tables[id(grammar)] = (grammar, TokenTable(grammar, tokenizer))
    return kept[1]


class IdStream:
    """Decodes ids that come bit by bit; characters whose bytes are not all there are held back."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._held: list[int] = []

    def feed(self, ids: Sequence[int]) -> str:
        """Return the text that is certain now.

        Raises:
            InvalidData: They are no whole numbers; nothing of them is taken.
        """
        if not all(isinstance(index, int) for index in ids):
            raise InvalidData(f"Token ids are whole numbers, not {_odd(ids)}.")
        parts: list[str] = []
        for index in ids:
            symbol = self._table.symbol(index)
            if symbol is None:
                self._held.append(index)
                continue
            parts.append(self.flush())
            parts.append(symbol)
        if self._held:
            parts.append(self._whole())
        return "".join(parts)

    def _whole(self) -> str:
        """Return the text of what is held without the bytes of half a character, which stay."""
        held = self._held
        text = self._table.decode(held)
        size = len(held)
        # Those bytes may be spread over as many tokens, of which one at least is still to come.
        while text.endswith(_REPLACEMENT) and size > max(0, len(held) - _BYTES + 1):
            size -= 1
            text = self._table.decode(held[:size]) if size else ""
        if text.endswith(_REPLACEMENT):
            return ""
        self._held = held[size:]
        return text

    def flush(self) -> str:
        """Return what was held back."""
        if not self._held:
            return ""
        text = self._table.decode(self._held)
        self._held = []
        return text


def as_ids(value: Any) -> list[int]:
    """Return ids as a plain list: from a list, a tuple, an array or a tensor.

    Raises:
        InvalidData: It is none of these.
    """
    if type(value) is list and value and type(value[0]) is int:
        return value  # as nearly all are
    lister = getattr(value, "tolist", None)
    if lister is None and (not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping))):
        raise InvalidData(f"What is read is a text or token ids, not {type(value).__name__}.")
    ids = lister() if lister is not None else list(value)
    if isinstance(ids, int):  # a tensor of no dimensions
        return [ids]
    if ids and all(isinstance(row, list) for row in ids):
        ids = [index for row in ids for index in row]
    return ids


def _odd(ids: Iterable[Any]) -> str:
    """Return the first that is no id, for a message."""
    return repr(next((index for index in ids if not isinstance(index, int)), ids))[:60]
