"""A toy backend that is right, and the same backend broken on purpose, once or more for each check."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from antiphon.errors import BackendError
from antiphon.generation.backends import Backend, Generation, Scores, TokenBatch, check_rows
from antiphon.generation.sampling import SamplingParams, sample_seed
from antiphon.testing import BackendSubject, StandInTokenizer

TOKENIZER = StandInTokenizer(("<|end|>",), special_tokens={"eos_token": "<|end|>"})
SIZE = len(TOKENIZER)
END = TOKENIZER.get_vocab()["<|end|>"]
_TABLE = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0)) * 2


class Toy:
    """A model whose next token depends on the last one alone."""

    name = "toy"
    tokenizer: Any = TOKENIZER
    vocab_size = SIZE
    max_context: int | None = 96
    end_ids = frozenset({END})
    extra_parameters: frozenset[str] = frozenset()
    weight_version: int | str = 0

    def __init__(self) -> None:
        self.closed = False

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        self.check(batch, room=1)
        batch = batch.seeded(params, fallback=0)
        made = []
        for row, seed in zip(batch.rows, batch.seeds or (), strict=True):
            for number in range(params.num_return_sequences):
                made.append(self.answer(row, sample_seed(seed, number), params))
        ids, log_probs, finish, cut, stopped_by = (
            (list(part) for part in zip(*made, strict=True)) if made else ([],) * 5
        )
        prompts = self.score(batch).log_probs if params.prompt_log_probs else None
        return Generation(
            ids,
            log_probs,
            finish,
            cut,
            stopped_by,
            prompt_log_probs=prompts,
            weight_version=self.weight_version,
        )

    def answer(self, row: list[int], seed: int, params: SamplingParams) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        ends = self.end_ids if params.end_token_ids is None else frozenset(params.end_token_ids)
        ends = frozenset() if params.ignore_eos else ends
        ids: list[int] = []
        log_probs: list[float] = []
        last = row[-1]
        finish, cut, by = "length", None, None
        for _ in range(params.max_new_tokens or 16):
            logits = _TABLE[last]
            chances = (logits / (params.temperature or 1.0)).softmax(0)
            last = self.draw(chances, generator)
            ids.append(last)
            log_probs.append((logits / params.log_prob_temperature).log_softmax(0)[last].item())
            text = TOKENIZER.decode(ids)
            stop = next((stop for stop in params.stop_sequences if stop in text), None)
            if last in ends:
                finish, by = "end", last
                break
            if stop is not None:
                finish, by, cut = "stop", stop, text.index(stop)
                break
        return ids, torch.tensor(log_probs), finish, cut, by

    def draw(self, chances: torch.Tensor, generator: torch.Generator) -> int:
        return int(torch.multinomial(chances, 1, generator=generator))

    def score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
        requires_grad: bool = False,
    ) -> Scores:
        self.check(batch)
        log_probs, entropies = [], []
        for row, start in zip(batch.rows, starts or [0] * len(batch), strict=True):
            values = torch.full((len(row),), math.nan)
            spread = torch.full((len(row),), math.nan)
            for place in range(1, len(row)):
                chances = (_TABLE[row[place - 1]] / temperature).log_softmax(0)
                values[place] = chances[row[place]]
                spread[place] = -(chances.exp() * chances).sum()
            log_probs.append(values[start:])
            entropies.append(spread[start:])
        return Scores(log_probs, entropies if entropy else None, self.weight_version)

    def load_weights(self, weights: Any, version: int | str | None = None) -> None:
        self.weight_version = version or 1

    def close(self) -> None:
        self.closed = True

    def check(self, batch: TokenBatch, room: int = 0) -> None:
        if self.closed:
            raise BackendError("This backend is closed.")
        check_rows(
            batch, backend=self.name, vocab_size=SIZE, max_context=self.max_context, room=room
        )


class Shuffles(Toy):
    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        made = super().generate(batch, params)
        order = list(range(1, len(made))) + [0][: len(made)]
        return Generation(
            [made.ids[i] for i in order],
            [made.log_probs[i] for i in order],
            [made.finish[i] for i in order],
            [made.cut[i] for i in order],
            [made.stopped_by[i] for i in order],
            weight_version=made.weight_version,
        )


class Encodes(Toy):
    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        made = super().generate(batch, params)
        ids = [TOKENIZER.encode(TOKENIZER.decode(row)) for row in made.ids]
        return replace(made, ids=ids, log_probs=[torch.zeros(len(row)) for row in ids])


class EncodesPrompts(Toy):
    def score(self, batch: TokenBatch, **options: Any) -> Scores:
        rows = [TOKENIZER.encode(TOKENIZER.decode(row)) for row in batch.rows]
        return super().score(TokenBatch(rows), **options)


class Off(Toy):
    def answer(self, *args: Any) -> tuple[Any, ...]:
        ids, log_probs, *rest = super().answer(*args)
        return (ids, log_probs - 0.01, *rest)


class OneConvention(Toy):
    def answer(self, row: list[int], seed: int, params: SamplingParams) -> tuple[Any, ...]:
        return super().answer(row, seed, replace(params, log_prob_convention="raw"))


class Certain(Toy):
    def score(self, batch: TokenBatch, **options: Any) -> Scores:
        made = super().score(batch, **options)
        return replace(made, log_probs=[row.nan_to_num(0.0) for row in made.log_probs])


class Sorts(Toy):
    def score(self, batch: TokenBatch, **options: Any) -> Scores:
        order = sorted(range(len(batch)), key=lambda i: len(batch.rows[i]))
        starts = options.pop("starts", None) or [0] * len(batch)
        return super().score(
            TokenBatch([batch.rows[i] for i in order]), starts=[starts[i] for i in order], **options
        )


class GlobalNoise(Toy):
    def draw(self, chances: torch.Tensor, generator: torch.Generator) -> int:
        return int(torch.multinomial(chances, 1))


class Deaf(Toy):
    def answer(self, row: list[int], seed: int, params: SamplingParams) -> tuple[Any, ...]:
        return super().answer(row, 0, params)


class Twins(Toy):
    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        n = params.num_return_sequences
        made = super().generate(batch, replace(params, num_return_sequences=1))
        rows = [i for i in range(len(made)) for _ in range(n)]
        return Generation(
            [made.ids[i] for i in rows],
            [made.log_probs[i] for i in rows],
            [made.finish[i] for i in rows],
            weight_version=made.weight_version,
        )


class DropsEnd(Toy):
    def answer(self, *args: Any) -> tuple[Any, ...]:
        ids, log_probs, finish, cut, by = super().answer(*args)
        keep = len(ids) - (finish == "end")
        return ids[:keep], log_probs[:keep], finish, cut, by


class NoChoice(Toy):
    def answer(self, row: list[int], seed: int, params: SamplingParams) -> tuple[Any, ...]:
        return super().answer(row, seed, replace(params, end_token_ids=None))


class CutsIds(Toy):
    def answer(self, *args: Any) -> tuple[Any, ...]:
        ids, log_probs, finish, cut, by = super().answer(*args)
        keep = len(ids) - (finish == "stop")
        return ids[:keep], log_probs[:keep], finish, cut, by


class Talks(Toy):
    def answer(self, row: list[int], seed: int, params: SamplingParams) -> tuple[Any, ...]:
        longer = (params.max_new_tokens or 16) + 1
        return super().answer(row, seed, replace(params, max_new_tokens=longer))


class NoPromptLogProbs(Toy):
    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        return super().generate(batch, replace(params, prompt_log_probs=False))


class Unbounded(Toy):
    def check(self, batch: TokenBatch, room: int = 0) -> None:
        check_rows(batch, backend=self.name, vocab_size=SIZE, max_context=None)


class Unchecked(Toy):
    def check(self, batch: TokenBatch, room: int = 0) -> None:
        if self.closed:
            raise BackendError("This backend is closed.")


class NeedsRows(Toy):
    def check(self, batch: TokenBatch, room: int = 0) -> None:
        if not batch.rows:
            raise IndexError("list index out of range")
        super().check(batch, room)


class NeverCloses(Toy):
    def close(self) -> None:
        pass


class Half:
    """A backend without score."""

    generate, end_ids = Toy.generate, Toy.end_ids


class Stale(Toy):
    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        return replace(super().generate(batch, params), weight_version="old")


_CAN = dict.fromkeys(("samples", "stops", "chosen_ends", "prompt_log_probs", "temperature"), True)


def subject(make: Callable[[], Any] = Toy) -> BackendSubject:
    """Return a subject that says it can do everything."""
    maker: Callable[[], Backend] = make
    return BackendSubject(maker, "toy", **_CAN)


#: By check: what is wrong, who makes it, and words that the message must hold.
BROKEN: dict[str, list[tuple[str, Callable[[], Any], str]]] = {
    "protocol": [
        ("a backend without score", Half, "is no backend"),
        ("a backend that forgets its weight version", Stale, "weight version"),
    ],
    "echo": [
        ("a backend that re-encodes answers", Encodes, "encoded again"),
        ("a backend that re-encodes prompts", EncodesPrompts, "went through text"),
    ],
    "log_probs": [
        ("a backend whose log-probs are off", Off, "apart"),
        ("a backend that shuffles rows", Shuffles, "rows' order"),
        ("a backend that re-encodes answers", Encodes, "row 0"),
    ],
    "temperature": [("a backend that knows one convention", OneConvention, "apart")],
    "scores": [
        ("a backend that finds the first id certain", Certain, "nothing precedes it"),
        ("a backend that sorts rows", Sorts, "order of rows"),
    ],
    "order": [
        ("a backend that shuffles rows", Shuffles, "alone it is answered by"),
        ("a backend that repeats an answer", Twins, "one and the same"),
    ],
    "seeds": [
        ("a backend that draws from torch's generator", GlobalNoise, "seed"),
        ("a backend that ignores seeds", Deaf, "other seeds"),
    ],
    "ends": [
        ("a backend that drops the end token", DropsEnd, "do not end"),
        ("a backend that ignores chosen end ids", NoChoice, "goes on behind"),
    ],
    "stops": [("a backend that cuts ids at a stop string", CutsIds, "completed the stop string")],
    "lengths": [("a backend that says one token more", Talks, "max_new_tokens")],
    "prompt_log_probs": [
        ("a backend without the prompt's log-probs", NoPromptLogProbs, "not there")
    ],
    "context": [("a backend without bounds", Unbounded, "a row of 97 tokens")],
    "errors": [("a backend that checks nothing", Unchecked, "check_rows")],
    "empty": [("a backend that needs a row", NeedsRows, "IndexError")],
    "closing": [("a backend that never closes", NeverCloses, "still answers")],
}
