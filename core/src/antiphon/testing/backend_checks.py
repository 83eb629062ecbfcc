"""Checks of a backend: the ids it was given, the ids it sampled, and log-probs that are theirs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import torch

from antiphon.errors import AntiphonError, BackendError, InvalidParameter
from antiphon.generation.backends import Backend, Generation, TokenBatch, is_backend
from antiphon.generation.sampling import LogProbConvention, SamplingParams
from antiphon.testing.results import CheckSkipped, Problems, demand, fail

_NEW = 12  # tokens per answer
_HOT = SamplingParams(max_new_tokens=_NEW, ignore_eos=True, seed=3)


@dataclass
class BackendSubject:
    """A backend under test.

    Attributes:
        make: Returns a fresh backend; a small model with random weights is enough.
        name: For reports.
        tolerance: How far log-probs of the same ids may be apart.
        samples: Whether several answers per prompt are given.
        stops: Whether stop strings end an answer.
        chosen_ends: Whether ``end_token_ids`` in the parameters take the place of the model's own.
        prompt_log_probs: Whether the prompt's log-probs are reported.
        temperature: Whether both conventions of log-probs are known.
    """

    make: Callable[[], Backend]
    name: str = "backend"
    tolerance: float = 1e-4
    samples: bool = False
    stops: bool = False
    chosen_ends: bool = False
    prompt_log_probs: bool = False
    temperature: bool = False

    @cached_property
    def backend(self) -> Backend:
        """The backend that all checks share; those that close it make their own."""
        return self.make()

    @cached_property
    def prompts(self) -> list[list[int]]:
        """Prompts of unequal length, among them one that no tokenizer would write so."""
        random = Random(0)
        backend = self.backend
        usable = [i for i in range(backend.vocab_size) if i not in backend.end_ids]
        rows = [[random.choice(usable) for _ in range(length)] for length in (7, 1, 4, 5)]
        odd = self.odd_row
        return [*rows, odd] if odd is not None else rows

    @cached_property
    def odd_row(self) -> list[int] | None:
        """Ids whose text has other ids; None where the tokenizer has no such."""
        tokenizer: Any = self.backend.tokenizer
        if tokenizer is None:
            return None
        random = Random(1)
        usable = [i for i in range(self.backend.vocab_size) if i not in self.backend.end_ids]
        for _ in range(400):
            row = [random.choice(usable) for _ in range(6)]
            if _again(tokenizer, row) != row:
                return row
        return None

    def generate(self, rows: Sequence[list[int]], params: SamplingParams) -> Generation:
        """Sample; each row has a seed of its own that does not depend on the others."""
        seeds = [1000 + sum(row) * 31 + len(row) for row in rows]
        return self.backend.generate(TokenBatch([list(row) for row in rows], seeds), params)


def check_protocol(subject: BackendSubject) -> None:
    """It is a whole backend: names, ranges, end ids."""
    backend = subject.backend
    try:
        whole = is_backend(backend)
    except InvalidParameter as error:
        fail(str(error))
    demand(
        whole,
        f"{type(backend).__name__} is no backend; see `antiphon.generation.backends.Backend`.",
    )
    demand(backend.vocab_size > 1, f"vocab_size is {backend.vocab_size}.")
    wrong = [i for i in backend.end_ids if not 0 <= i < backend.vocab_size]
    demand(not wrong, f"the end ids {wrong} are not in the vocabulary of {backend.vocab_size}.")
    demand(
        isinstance(backend.end_ids, frozenset) and isinstance(backend.extra_parameters, frozenset),
        "end_ids and extra_parameters must be frozensets, so that nobody changes them.",
    )
    made = subject.generate(subject.prompts, _HOT)
    demand(
        made.weight_version == backend.weight_version,
        f"what was sampled carries weight version {made.weight_version!r} and the backend is at"
        f" {backend.weight_version!r}.",
    )


def check_echo(subject: BackendSubject) -> None:
    """Ids are never text in between: neither the prompt's nor the sampled ones are encoded again."""
    backend = subject.backend
    odd = subject.odd_row
    if odd is None:
        raise CheckSkipped("there is no tokenizer, or all its texts have one spelling")
    scored = backend.score(TokenBatch([odd]))
    demand(
        len(scored.log_probs[0]) == len(odd),
        f"score gives {len(scored.log_probs[0])} log-probs for {len(odd)} ids: the ids went through"
        " text. Hand them to the model as they are.",
    )
    given = list(odd)
    rows = [odd] * 4
    batch = TokenBatch(rows, [11, 12, 13, 14])
    made = backend.generate(batch, replace(_HOT, max_new_tokens=24))
    demand(odd == given and batch.rows == [given] * 4, "the prompt's rows were changed in place.")
    tokenizer: Any = backend.tokenizer
    again = [_again(tokenizer, ids) == ids for ids in made.ids]
    demand(
        not all(again),
        "every sampled row is exactly what its text encodes to, which ids at random are not: the"
        " answers were encoded again. Return the ids that were drawn.",
    )


def check_log_probs(subject: BackendSubject) -> None:
    """The log-probs of an answer are those that scoring gives the same ids."""
    _compare_with_scores(subject, _HOT, 1.0)


def check_temperature(subject: BackendSubject) -> None:
    """Log-probs follow the convention that was asked for: raw, or at the temperature."""
    if not subject.temperature:
        raise CheckSkipped("the contract does not say temperature=True")
    conventions: tuple[tuple[LogProbConvention, float], ...] = (("raw", 1.0), ("temperature", 0.5))
    for convention, divisor in conventions:
        params = replace(_HOT, temperature=0.5, log_prob_convention=convention)
        _compare_with_scores(subject, params, divisor)


def _compare_with_scores(
    subject: BackendSubject, params: SamplingParams, temperature: float
) -> None:
    problems = Problems("Look at which logits the log-probs come from, and at the rows' order.")
    prompts = subject.prompts
    made = subject.generate(prompts, params)
    rows = [[*prompt, *ids] for prompt, ids in zip(prompts, made.ids, strict=True)]
    scores = subject.backend.score(
        TokenBatch(rows), starts=[len(prompt) for prompt in prompts], temperature=temperature
    )
    for index, (reported, scored) in enumerate(zip(made.log_probs, scores.log_probs, strict=True)):
        with problems.case(f"row {index}"):
            demand(
                reported.shape == scored.shape == (len(made.ids[index]),),
                f"{tuple(reported.shape)} log-probs for {len(made.ids[index])} ids, scored"
                f" {tuple(scored.shape)}",
            )
            demand(bool((reported <= 1e-6).all()), "a log-prob is above 0")
            apart = (reported - scored).abs().max().item() if len(reported) else 0.0
            demand(
                apart <= subject.tolerance,
                f"reported and scored log-probs are {apart:.3g} apart, allowed {subject.tolerance:g}",
            )
    problems.settle(at_least=1)


def check_scores(subject: BackendSubject) -> None:
    """Scoring is per row: alone or together, from any start; nothing precedes the first id."""
    problems = Problems("Look at padding, positions and the order of rows in score.")
    backend, rows = subject.backend, subject.prompts
    together = backend.score(TokenBatch(rows), entropy=True)
    starts = [len(row) // 2 for row in rows]
    parts = backend.score(TokenBatch(rows), starts=starts)
    for index, row in enumerate(rows):
        with problems.case(f"row {index}"):
            whole = together.log_probs[index]
            demand(len(whole) == len(row), f"{len(whole)} log-probs for {len(row)} ids")
            demand(
                math.isnan(whole[0].item()),
                f"the first id has log-prob {whole[0].item():.3g}; nothing precedes it, so it is NaN",
            )
            (alone,) = backend.score(TokenBatch([row])).log_probs
            demand(_near(alone[1:], whole[1:], subject.tolerance), "alone and together differ")
            demand(
                _near(
                    parts.log_probs[index].nan_to_num(),
                    whole[starts[index] :].nan_to_num(),
                    subject.tolerance,
                ),
                f"what starts={starts[index]} gives is not the end of the whole",
            )
            demand(
                together.entropies is not None and len(together.entropies[index]) == len(row),
                "entropies were asked for and there is not one per id",
            )
    problems.settle()


def check_order(subject: BackendSubject) -> None:
    """Row i answers prompt i, whatever else is in the batch; n answers stand together."""
    problems = Problems("Look at sorting by length, and at padding.")
    prompts = subject.prompts
    together = subject.generate(prompts, _HOT)
    demand(len(together) == len(prompts), f"{len(together)} answers for {len(prompts)} prompts.")
    for index, prompt in enumerate(prompts):
        with problems.case(f"row {index}"):
            alone = subject.generate([prompt], _HOT)
            demand(
                alone.ids[0] == together.ids[index],
                f"alone it is answered by {alone.ids[0]}, in the batch by {together.ids[index]}",
            )
    problems.settle()
    if subject.samples:
        made = subject.generate(prompts, replace(_HOT, num_return_sequences=2))
        demand(len(made) == 2 * len(prompts), f"{len(made)} answers for two per prompt.")
        for index, prompt in enumerate(prompts):
            with problems.case(f"prompt {index}, two answers"):
                alone = subject.generate([prompt], replace(_HOT, num_return_sequences=2))
                demand(
                    alone.ids == made.ids[2 * index : 2 * index + 2],
                    "its two answers do not stand at rows 2 * i and 2 * i + 1",
                )
                demand(alone.ids[0] != alone.ids[1], "its two answers are one and the same")
        problems.settle()


def check_seeds(subject: BackendSubject) -> None:
    """A seed settles the answer, another seed gives another one, and torch's own state is left alone."""
    backend, row = subject.backend, subject.prompts[0]
    before = torch.get_rng_state()
    once = backend.generate(TokenBatch([row], [5]), _HOT).ids
    torch.manual_seed(99)
    again = backend.generate(TokenBatch([row], [5]), _HOT).ids
    torch.set_rng_state(before)
    demand(once == again, "one seed gives two different answers; draw from the row's own seed.")
    others = backend.generate(TokenBatch([row] * 4, [6, 7, 8, 9]), _HOT).ids
    demand(
        any(ids != once[0] for ids in others),
        "four other seeds give the same answer; draw from the row's own seed.",
    )
    state = torch.get_rng_state()
    subject.generate([row], _HOT)
    demand(
        torch.equal(state, torch.get_rng_state()),
        "sampling changes torch's global generator; use a torch.Generator of your own.",
    )


def check_ends(subject: BackendSubject) -> None:
    """An answer ends with the first end id, which is kept; finish and stopped_by say so."""
    backend = subject.backend
    problems = Problems("Look at what ends an answer, and at what is cut off.")
    params = SamplingParams(max_new_tokens=64, seed=1)
    made = subject.generate(subject.prompts, params)
    _check_endings(made, backend.end_ids, 64, problems)
    if subject.chosen_ends:
        free = subject.generate(subject.prompts, _HOT)
        chosen = tuple(ids[len(ids) // 2] for ids in free.ids)
        made = subject.generate(
            subject.prompts, replace(_HOT, ignore_eos=False, end_token_ids=chosen)
        )
        demand(
            all(set(ids) & set(chosen) for ids in made.ids),
            f"the end ids {chosen} were chosen and do not end the answers.",
        )
        _check_endings(made, frozenset(chosen), _NEW, problems)
    problems.settle()


def _check_endings(
    made: Generation, ends: frozenset[int], longest: int, problems: Problems
) -> None:
    for index, ids in enumerate(made.ids):
        with problems.case(f"row {index}"):
            inside = [i for i in ids[:-1] if i in ends]
            demand(not inside, f"it goes on behind the end id {inside[:1]}")
            ended = bool(ids) and ids[-1] in ends
            finish = made.finish[index]
            demand(
                (finish == "end") == ended,
                f"it ends with id {ids[-1:]} and finish is {finish!r}",
            )
            demand(ended or len(ids) <= longest, f"{len(ids)} ids, and {longest} were allowed")
            if ended:
                demand(
                    made.stopped_by[index] == ids[-1],
                    f"stopped_by is {made.stopped_by[index]!r} and the last id {ids[-1]}",
                )


def check_stops(subject: BackendSubject) -> None:
    """A stop string ends the answer: ids are kept up to the token that completed it, cut says where."""
    if not subject.stops:
        raise CheckSkipped("the contract does not say stops=True")
    tokenizer: Any = subject.backend.tokenizer
    params = replace(_HOT, max_new_tokens=4 * _NEW)
    free = subject.generate(subject.prompts, params)
    problems = Problems("Look at where stop strings are looked for: in the text of the answer.")
    for index, ids in enumerate(free.ids):
        text = tokenizer.decode(ids)
        found_in = re.search("[!-~]{2}", text[1:])
        if found_in is None:
            continue
        stop = found_in.group()
        with problems.case(f"row {index}"):
            made = subject.generate(
                [subject.prompts[index]], replace(params, stop_sequences=(stop,))
            )
            found, where = made.ids[0], text.index(stop)
            demand(found == ids[: len(found)], "the ids are not those of the free answer")
            shorter = tokenizer.decode(found[:-1])
            demand(
                stop in tokenizer.decode(found) and stop not in shorter,
                "the ids do not end with the token that completed the stop string",
            )
            demand(made.finish[0] == "stop", f"finish is {made.finish[0]!r}")
            demand(made.stopped_by[0] == stop, f"stopped_by is {made.stopped_by[0]!r}")
            demand(made.cut[0] == where, f"cut is {made.cut[0]}, the stop string begins at {where}")
    problems.settle(at_least=1)


def check_lengths(subject: BackendSubject) -> None:
    """No answer is longer than asked for, and one that was cut off says so."""
    problems = Problems("Look at max_new_tokens.")
    for longest in (1, 5):
        made = subject.generate(subject.prompts, replace(_HOT, max_new_tokens=longest))
        for index, ids in enumerate(made.ids):
            with problems.case(f"row {index}, {longest}"):
                demand(len(ids) == longest, f"{len(ids)} ids, and the end is ignored")
                demand(made.finish[index] == "length", f"finish is {made.finish[index]!r}")
    problems.settle()


def check_context(subject: BackendSubject) -> None:
    """A row that is longer than the model's context is refused by its number."""
    most = subject.backend.max_context
    if most is None:
        raise CheckSkipped("the model's context has no bound")
    long = (subject.prompts[0] * (most // 7 + 2))[: most + 1]
    _refuses(subject, [subject.prompts[1], long], f"a row of {most + 1} tokens")


def check_errors(subject: BackendSubject) -> None:
    """Rows that no model can take are refused with an error that names the row."""
    good = subject.prompts[0]
    _refuses(subject, [good, []], "an empty row")
    _refuses(subject, [good, [subject.backend.vocab_size]], "an id beyond the vocabulary")
    _refuses(subject, [good, [-1]], "a negative id")
    fine = subject.generate([good], _HOT)
    demand(len(fine) == 1, "after an error the backend does not work any more.")


def _refuses(subject: BackendSubject, rows: list[list[int]], what: str) -> None:
    calls: list[tuple[str, Callable[[], object]]] = [
        ("generate", lambda: subject.backend.generate(TokenBatch(rows), _HOT)),
        ("score", lambda: subject.backend.score(TokenBatch(rows))),
    ]
    for name, call in calls:
        try:
            call()
        except AntiphonError as error:
            demand(
                "1" in str(error),
                f"{name} refuses {what} without saying which row: {error}",
            )
        except Exception as error:  # what a backend raises here is what is looked at
            fail(
                f"{name} answers {what} with {type(error).__name__}: {error}; raise an AntiphonError"
                " that names the row (`antiphon.generation.backends.check_rows` does)."
            )
        else:
            fail(
                f"{name} takes {what} without a word; see `antiphon.generation.backends.check_rows`."
            )


def check_empty(subject: BackendSubject) -> None:
    """No rows give no rows."""
    demand(len(subject.backend.generate(TokenBatch([]), _HOT)) == 0, "generate answers no prompt.")
    demand(subject.backend.score(TokenBatch([])).log_probs == [], "score scores no row.")


def check_prompt_log_probs(subject: BackendSubject) -> None:
    """The prompt's log-probs, where asked for, are those that scoring gives."""
    if not subject.prompt_log_probs:
        raise CheckSkipped("the contract does not say prompt_log_probs=True")
    made = subject.generate(subject.prompts, replace(_HOT, prompt_log_probs=True))
    scored = subject.backend.score(TokenBatch(subject.prompts)).log_probs
    found = made.prompt_log_probs
    demand(found is not None and len(found) == len(scored), "they are not there, one per prompt.")
    for index, (one, two) in enumerate(zip(found or [], scored, strict=True)):
        demand(
            _near(one[1:], two[1:], subject.tolerance) and math.isnan(one[0].item()),
            f"those of prompt {index} are not what score gives, the first NaN.",
        )


def check_closing(subject: BackendSubject) -> None:
    """A closed backend says that it is closed, and may be closed twice."""
    backend = subject.make()
    backend.close()
    backend.close()
    try:
        backend.generate(TokenBatch([subject.prompts[0]]), _HOT)
    except BackendError as error:
        demand("closed" in str(error), f"the error does not say that it is closed: {error}")
    except Exception as error:  # as above
        fail(f"a closed backend raises {type(error).__name__}: {error}; raise a BackendError.")
    else:
        fail("a closed backend still answers; raise a BackendError.")


def _near(one: torch.Tensor, two: torch.Tensor, tolerance: float) -> bool:
    return one.shape == two.shape and torch.allclose(one, two, rtol=0.0, atol=tolerance)


def _again(tokenizer: Any, ids: list[int]) -> list[int]:
    encoded: Any = tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False)
    return list(getattr(encoded, "ids", encoded))
