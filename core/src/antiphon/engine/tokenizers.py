"""What Antiphon needs of a tokenizer: ids of text, which ids are control tokens, and where text may be cut.

Anything with ``encode`` and ``decode`` will do; a tokenizer of the `tokenizers` library (on its own or inside a
transformers tokenizer) is fast. Everything here is about one tokenizer and kept as long as that lives.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any, Protocol

from antiphon.engine.caches import BoundedCache
from antiphon.errors import InvalidData, TokenizerMismatch

_CACHED_CHARACTERS = 32 * 2**20
_numbers = itertools.count()


class Tokenizer(Protocol):
    """The least that a tokenizer must do."""

    def encode(self, text: str, add_special_tokens: bool = ...) -> Any:
        """Return the ids of ``text``."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = ...) -> str:
        """Return the text of ``ids``."""


class Control(tuple[int, int, int]):
    """A control token in a text: start, end, id."""


# Texts on both sides of a cut, to see whether a tokenizer's pieces add up.
_PROBES = (
    "user\nHow are you?",
    " \n\nHello  world",
    "naïve 数学 🙂\n",
    "\n",
    "  x",
    "1234",
    "Don't!",
    "\tdef f():\n  ",
)


class TokenizerView:
    """One tokenizer, as the encoder sees it.

    Attributes:
        backend: The Rust tokenizer, or None.
        added: The added tokens: id to (text, special).
        number: Tells this view from every other one of the process.
        inner_mark: A text to encode before a piece that stands inside a text, and then to take away, for tokenizers
            that put a space before whatever they encode; "" where none is needed, None where it does not help.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer: Callable[[], Any] = (
            weakref.ref(tokenizer) if _weak(tokenizer) else (lambda: tokenizer)
        )
        self.backend = _backend(tokenizer)
        self.number = next(_numbers)
        self._own_backend: Any = None
        self.added: dict[int, tuple[str, bool]] = _added_tokens(tokenizer, self.backend)
        self._added_ids = frozenset(self.added)
        self._ids: BoundedCache[str, tuple[tuple[int, ...], bool]] = BoundedCache(
            _CACHED_CHARACTERS, lambda key, value: len(key) + 64
        )
        self._offsets: BoundedCache[str, list[tuple[int, int]]] = BoundedCache(4096)
        self._controls: BoundedCache[str, BoundedCache[str, list[Control]]] = BoundedCache(64)
        self._control_ids: BoundedCache[str, frozenset[int]] = BoundedCache(256)

    def __reduce__(self) -> tuple[Any, ...]:
        return view, (self._tokenizer(),)  # another process has a view of its own

    # Ids

    def encode(self, pieces: Sequence[str]) -> list[list[int]]:
        """Return the ids of each piece, as if it stood alone at the start of a text; repeated pieces cost nothing."""
        return [list(ids) for ids, _ in self.entries(pieces)]

    def entries(self, pieces: Sequence[str]) -> list[tuple[tuple[int, ...], bool]]:
        """Return the ids of each piece, and whether an added token is among them."""
        result = self._ids.get_all(pieces)
        if None in result:
            missing = list(
                dict.fromkeys(p for p, entry in zip(pieces, result, strict=True) if entry is None)
            )
            is_plain = self._added_ids.isdisjoint
            fresh = {}
            for piece, ids in zip(missing, self._encode_batch(missing), strict=True):
                # Tuples of numbers are no work for the garbage collector, as lists would be.
                fresh[piece] = entry = (tuple(ids), not is_plain(ids))
                self._ids.put(piece, entry)
            result = [
                fresh[p] if entry is None else entry
                for p, entry in zip(pieces, result, strict=True)
            ]
        return result  # type: ignore[return-value]

    def missing(self, pieces: Sequence[str]) -> list[str]:
        """Return the pieces that are not in the cache."""
        known = self._ids.get_all(pieces)
        return [p for p, entry in zip(pieces, known, strict=True) if entry is None]

    def forget(self) -> None:
        """Forget the ids of all pieces; for work that goes through many texts once."""
        self._ids.clear()

    def encode_inner(self, pieces: Sequence[str]) -> list[list[int]]:
        """Return the ids of each piece as it is inside a text, right behind other text."""
        mark = self.inner_mark
        if not mark:
            return self.encode(pieces)
        (lead,) = self.encode([mark])
        return [
            ids[len(lead) :] if ids[: len(lead)] == lead else self.encode([piece])[0]
            for piece, ids in zip(
                pieces, self.encode([mark + piece for piece in pieces]), strict=True
            )
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, control tokens and white space included."""
        return _decode(self._tokenizer(), ids)

    def offsets(self, piece: str) -> list[tuple[int, int]] | None:
        """Return the characters of each token of a piece, or None where the tokenizer can't tell."""
        found = self._offsets.get(piece)
        if found is None:
            if self.backend is None:
                return None
            found = list(self._usable().encode(piece, add_special_tokens=False).offsets)
            self._offsets.put(piece, found)
        return found

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of ``text`` and the characters of each.

        Raises:
            TokenizerMismatch: The tokenizer has no Rust backend and so no offsets.
        """
        if self.backend is None:
            raise TokenizerMismatch(
                f"{self.describe()} neither encodes piece by piece nor tells offsets; use its fast version."
            )
        encoding = self._encode_one(text)
        return list(encoding.ids), list(encoding.offsets)

    def _encode_one(self, text: str) -> Any:
        try:
            return self._usable().encode(text, add_special_tokens=False)
        except TypeError as error:  # half a surrogate pair is no text to it
            raise TokenizerMismatch(
                f"{self.describe()} can't encode this text: {error}."
            ) from error

    def _encode_batch(self, texts: list[str]) -> list[list[int]]:
        if self.backend is None:
            tokenizer = self._tokenizer()
            return [_plain_ids(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
        try:
            encodings = self._usable().encode_batch_fast(texts, add_special_tokens=False)
        except RuntimeError as error:
            # Another thread is changing the padding of this very tokenizer ("Already borrowed"): use a copy.
            if "borrowed" not in str(error):
                raise
            encodings = self._copy().encode_batch_fast(texts, add_special_tokens=False)
        except TypeError as error:
            raise TokenizerMismatch(
                f"{self.describe()} can't encode this text: {error}."
            ) from error
        return [encoding.ids for encoding in encodings]

    def _usable(self) -> Any:
        """The Rust tokenizer, or a copy where its owner has switched on padding or truncation."""
        if self.backend.padding is None and self.backend.truncation is None:
            return self.backend
        return self._copy()

    def _copy(self) -> Any:
        if self._own_backend is None:
            copy = type(self.backend).from_str(self.backend.to_str())
            copy.no_padding()
            copy.no_truncation()
            self._own_backend = copy
        return self._own_backend

    # Control tokens

    def control_ids(self, template: str) -> frozenset[int]:
        """Return the ids that text from outside must never become.

        Special tokens are; of the other added tokens those that the template spells out, and those that look like
        control tokens (``<|…|>``, ``<tool_call>``, ``<think>``, ``[INST]``). White space, plain words and the tags of
        HTML that were added to the vocabulary are text.
        """
        found = self._control_ids.get(template)
        if found is None:
            found = frozenset(
                token
                for token, (text, special) in self.added.items()
                if text.strip() and (special or text in template or _looks_structural(text))
            )
            self._control_ids.put(template, found)
        return found

    def controls(self, text: str, template: str) -> list[Control]:
        """Return the control tokens that ``text``, which the template wrote, spells out."""
        known = self.controls_known(template)
        found = known.get(text)
        if found is None:
            found = self._find_controls(text, self.control_ids(template))
            known.put(text, found)
        return found

    def controls_known(self, template: str) -> BoundedCache[str, list[Control]]:
        """Return the cache of `controls` for one template."""
        known = self._controls.get(template)
        if known is None:
            known = BoundedCache(4096)
            self._controls.put(template, known)
        return known

    def find(self, text: str, ids: frozenset[int]) -> list[Control]:
        """Return where tokens of ``ids`` stand in ``text``."""
        return self._find_controls(text, ids)

    def _find_controls(self, text: str, ids: frozenset[int]) -> list[Control]:
        if self.backend is not None:
            encoding = self._encode_one(text)
            return [
                Control((start, end, token))
                for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
                if token in ids
            ]
        names = {self.added[token][0]: token for token in ids}
        if not names:
            return []
        pattern = re.compile(
            "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        )
        return [Control((*match.span(), names[match.group()])) for match in pattern.finditer(text)]

    # How this tokenizer takes being cut

    @functools.cached_property
    def inner_mark(self) -> str | None:
        """See the class."""
        for mark in ("", "\n"):
            if all(self._adds_up(left, right, mark) for left in _PROBES for right in _PROBES):
                return mark
        return None

    @functools.cached_property
    def cuts_at_controls(self) -> bool:
        """Whether ids of text on both sides of a control token are those of the two texts alone."""
        special = [
            (token, text)
            for token, (text, is_special) in self.added.items()
            if is_special and text.strip()
        ]
        if not special:
            return True
        probes = special[:: max(1, len(special) // 8)]
        for left in _PROBES:
            for right in _PROBES:
                parts = self.encode([left, right])
                whole = self.encode([left + text + right for _, text in probes])
                if any(
                    ids != [*parts[0], token, *parts[1]]
                    for (token, _), ids in zip(probes, whole, strict=True)
                ):
                    return False
        return True

    def _adds_up(self, left: str, right: str, mark: str) -> bool:
        """Whether two texts encoded apart decode to what the one text of both does."""
        first = self.encode([left])[0]
        second = self.encode([mark + right])[0]
        if mark:
            lead = self.encode([mark])[0]
            if second[: len(lead)] != lead:
                return True  # the texts merge there: a cut behind this mark can't be judged
            second = second[len(lead) :]
        return self.decode([*first, *second]) == self.decode(self.encode([left + right])[0])

    def unknown(self, ids: Iterable[int]) -> int | None:
        """Return an id that is not in the vocabulary; None where all are, or where that can't be told."""
        entry = getattr(self.backend, "id_to_token", lambda token: "")
        return next((token for token in set(ids) if entry(token) is None), None)

    def describe(self) -> str:
        """Name the tokenizer for messages to people."""
        return f"The tokenizer {self._name()}"

    def _name(self) -> str:
        tokenizer = self._tokenizer()
        return str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)

    @functools.cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of the vocabulary, the added tokens and how text is cut."""
        # Padding and truncation are settings of its last call and stand in the same text.
        text = (
            self._usable().to_str()
            if self.backend is not None
            else repr(sorted(self._tokenizer().get_vocab().items()))
            if hasattr(self._tokenizer(), "get_vocab")
            else repr(sorted(self.added.items()))
        )
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @functools.cached_property
    def fingerprint(self) -> str:
        """What tokens carry to say whose they are: ``name#digits``.

        The digits are of the size, the added tokens, some hundreds of entries and of how probes are cut: enough to tell
        tokenizers apart that somebody might mix up, in a millisecond (`digest` reads all of the vocabulary).
        """
        name = self._name()
        short = PurePath(name).name if PurePath(name).is_absolute() else name
        size = _size(self._tokenizer())
        entry = getattr(self.backend, "id_to_token", lambda token: None)
        entries = [entry(token) for token in range(0, size, max(1, size // 512))]
        known = [size, sorted(self.added.items()), entries, self.encode(_PROBES)]
        digits = hashlib.sha256(repr(known).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{'-'.join(short.split())}#{digits}"

    def is_of(self, fingerprint: str) -> bool:
        """Whether a fingerprint is that of this tokenizer, whatever it was called."""
        return fingerprint.rpartition("#")[2] == self.fingerprint.rpartition("#")[2]


def view(tokenizer: Any) -> TokenizerView:
    """Return the view of a tokenizer; it is made again when tokens were added since.

    Raises:
        TokenizerMismatch: This is no tokenizer.
    """
    if not hasattr(tokenizer, "encode") and hasattr(tokenizer, "tokenizer"):
        tokenizer = tokenizer.tokenizer  # a processor, which puts media around its tokenizer
    if not hasattr(tokenizer, "encode") or not hasattr(tokenizer, "decode"):
        raise TokenizerMismatch(
            f"{type(tokenizer).__name__} is no tokenizer (it has no encode and decode); pass a tokenizer."
        )
    size = _size(tokenizer)
    if not _weak(tokenizer):
        key = id(tokenizer)
        kept = _strong.get(key)
        if kept is None or kept[0] is not tokenizer or kept[1] != size:
            kept = (tokenizer, size, TokenizerView(tokenizer))
            _strong.put(key, kept)
        return kept[2]
    held = _views.get(tokenizer)
    if held is None or held[0] != size:
        held = (size, TokenizerView(tokenizer))
        _views[tokenizer] = held
    return held[1]


_views: weakref.WeakKeyDictionary[Any, tuple[int, TokenizerView]] = weakref.WeakKeyDictionary()
_strong: BoundedCache[int, tuple[Any, int, TokenizerView]] = BoundedCache(16)


def _weak(tokenizer: Any) -> bool:
    try:
        hash(tokenizer)
        weakref.ref(tokenizer)
    except TypeError:
        return False
    return True


def _size(tokenizer: Any) -> int:
    if hasattr(tokenizer, "get_vocab_size"):
        return int(tokenizer.get_vocab_size())
    return len(tokenizer) if hasattr(tokenizer, "__len__") else 0


def _backend(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    return (
        backend
        if hasattr(backend, "encode_batch_fast") and hasattr(backend, "get_added_tokens_decoder")
        else None
    )


def _added_tokens(tokenizer: Any, backend: Any) -> dict[int, tuple[str, bool]]:
    tokens = (
        backend.get_added_tokens_decoder()
        if backend is not None
        else getattr(tokenizer, "added_tokens_decoder", {})
    )
    added = {int(token): (str(item.content), bool(item.special)) for token, item in tokens.items()}
    for token, text in zip(
        getattr(tokenizer, "all_special_ids", ()),
        getattr(tokenizer, "all_special_tokens", ()),
        strict=False,
    ):
        added.setdefault(int(token), (str(text), True))
    return added


def _plain_ids(ids: Any) -> list[int]:
    return list(getattr(ids, "ids", ids))


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    options = (
        {"clean_up_tokenization_spaces": False}
        if hasattr(tokenizer, "clean_up_tokenization_spaces")
        else {}
    )
    try:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, **options))
    except OverflowError as error:
        odd = next((index for index in ids if not 0 <= index < 2**32), error)
        raise InvalidData(
            f"{odd} is no token id: labels and fillers such as -100 must be taken out first."
        ) from error


# The elements of HTML, those of its past included: such tags are text, also where a vocabulary has them (Gemma's).
_ELEMENTS = """
    a abbr acronym address applet area article aside audio b base basefont bdi bdo bgsound big blink blockquote body br
    button canvas caption center cite code col colgroup command content data datalist dd del details dfn dialog dir div
    dl dt element em embed fieldset figcaption figure font footer form frame frameset h1 h2 h3 h4 h5 h6 head header
    hgroup hr html i iframe image img input ins isindex kbd keygen label legend li link listing main map mark marquee
    math menu menuitem meta meter multicol nav nobr noembed noframes noscript object ol optgroup option output p param
    picture plaintext pre progress q rb rbc rp rt rtc ruby s samp script search section select shadow slot small source
    spacer span strike strong style sub summary sup svg table tbody td template textarea tfoot th thead time title tr
    track tt u ul var video wbr xmp
"""
_HTML = frozenset(_ELEMENTS.split())
_TAG = re.compile(r"</?([A-Za-z][\w.-]*)>")


def _looks_structural(text: str) -> bool:
    """Whether an added token is more than text by its looks: ``<|…|>``, ``<tool_call>``, ``<think>``, ``[INST]``."""
    if text[0] == "<" and text[-1] == ">":
        tag = _TAG.fullmatch(text)
        return any(mark in text for mark in "|｜_▁") or (
            tag is not None and tag.group(1).lower() not in _HTML
        )
    return text[0] == "[" and text[-1] == "]" and text[1:-1].strip("/").isupper()
