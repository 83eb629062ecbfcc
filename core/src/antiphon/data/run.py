"""Tokenise a data set into shards, in several processes, so that a run may stop anywhere and go on.

One process reads and hands out blocks of rows; each block becomes one shard, written by the process that made it. Only
a few blocks are under way at any time, so memory does not grow with the input.
"""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from antiphon.conversations.arguments import of_kind, switch, whole
from antiphon.conversations.templating import Template
from antiphon.data.preferences import make_preferences
from antiphon.data.shards import (
    FORMAT,
    MANIFEST,
    REPORT,
    check_output,
    open_output,
    read_about,
    shard_path,
    write_json,
    write_shard,
)
from antiphon.data.sources import Block, RowSource, bytes_of, rows_of
from antiphon.data.training import SampleOptions, make_samples
from antiphon.engine.environment import compile_template
from antiphon.engine.tokenizers import view
from antiphon.errors import AntiphonError, InvalidData, InvalidParameter, OutputError
from antiphon.fingerprints import digest, template_fingerprint, tokenizer_fingerprint
from antiphon.registry import resolve_template_name

# Rows, and about how many bytes of them, whose texts are encoded together; they make one row group.
_ROWS_AT_ONCE = 128
_BYTES_AT_ONCE = 2**20
_EXAMPLES = 10
_REASONS = 50
_DEFAULT = SampleOptions()


@dataclass(frozen=True)
class TokenizeJob:
    """What each process needs to know.

    Attributes:
        output: The folder of the shards.
        tokenizer: The tokenizer, or its name or folder, which each process loads by itself.
        options: How samples are made.
        strict: Whether a refused row ends the run.
        run: A digest of all fingerprints, which each shard carries.
        plugins: The plugins of the first process; the others must have the same.
    """

    output: Path
    tokenizer: Any
    options: SampleOptions
    strict: bool = False
    run: str = ""
    plugins: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Totals:
    """What became of a data set.

    Attributes:
        rows: Conversations read.
        samples: Samples written.
        tokens: Their tokens.
        trained: Those of them that are trained.
        shards: Files.
        kept: Shards that an earlier run had finished.
        split: Conversations that became several samples.
        truncated: Conversations that were cut.
        refused: Conversations that were left out.
        reasons: For (what, reason) how many, and the first rows.
    """

    rows: int = 0
    samples: int = 0
    tokens: int = 0
    trained: int = 0
    shards: int = 0
    kept: int = 0
    split: int = 0
    truncated: int = 0
    refused: int = 0
    reasons: dict[tuple[str, str], tuple[int, list[int]]] = field(default_factory=dict)

    def add(self, told: Mapping[str, Any], *, kept: bool) -> None:
        """Count a shard by what its metadata say."""
        self.shards += 1
        self.kept += kept
        for name in ("rows", "samples", "tokens", "trained"):
            setattr(self, name, getattr(self, name) + told[name])
        for row, what, reason in told["notes"]:
            setattr(self, what, getattr(self, what) + 1)
            key = (what, reason)
            if key not in self.reasons and len(self.reasons) >= _REASONS:
                key = (what, "other reasons")
            count, rows = self.reasons.get(key, (0, []))
            self.reasons[key] = (count + 1, sorted([*rows, row])[:_EXAMPLES])


def tokenize_dataset(
    source: RowSource,
    output: str | Path,
    tokenizer: Any,
    options: SampleOptions = _DEFAULT,
    *,
    workers: int = 1,
    shard_rows: int = 1024,
    resume: bool = False,
    overwrite: bool = False,
    strict: bool = False,
    progress: Callable[[int, Totals], None] | None = None,
) -> Totals:
    """Write the training samples of a data set as Parquet shards.

    Each sample has ``input_ids``, ``attention_mask``, ``labels`` (-100 where nothing is trained), ``assistant_masks``,
    ``message_index`` (-1: the template's text), ``row`` and ``sample`` (its number among those of the row). With
    ``options.preference`` it has ``prompt_ids``, ``chosen_ids``, ``rejected_ids`` and ``row``.

    Args:
        source: The rows; `antiphon.data.open_rows` opens files and data sets.
        output: A folder.
        tokenizer: The tokenizer, or its name or folder.
        options: How samples are made.
        workers: Processes. With more than one, a script must guard its start by ``if __name__ == "__main__"``.
        shard_rows: Conversations per shard.
        resume: Go on where an earlier run stopped.
        overwrite: Delete an earlier run.
        strict: Raise at the first row that is refused.
        progress: Called with the weight of each finished block, and the totals so far.

    Raises:
        TemplateInvalid: The template is not valid Jinja.
        FamilyNotFound: There is no dialect of that name.
        OutputError: The output can't be written, or is of another run; the error names the rows.
        InvalidData: The source can't be read or is empty, or with ``strict`` a row is refused.
        InvalidParameter: ``workers`` or ``shard_rows`` is less than 1, or an argument is of another type.
    """
    of_kind("source", source, RowSource, "a RowSource, as antiphon.data.open_rows gives it")
    of_kind("output", output, (str, Path), "a folder")
    of_kind("options", options, SampleOptions, "a SampleOptions")
    for name, flag in (("resume", resume), ("overwrite", overwrite), ("strict", strict)):
        switch(name, flag)
    if progress is not None:
        of_kind("progress", progress, Callable, "a function")
    for name, value, most in (("workers", workers, 4096), ("shard_rows", shard_rows, 2**31)):
        if not 1 <= whole(name, value) <= most:
            raise InvalidParameter(f"{name} must be 1 or more, and {most} at most, not {value}.")
    from antiphon.plugins import get_host

    folder = Path(output)
    # Before anything is loaded: what can't work is told at once.
    check_output(folder, resume=resume, overwrite=overwrite)
    if options.chat_template is not None and "{" in options.chat_template:
        compile_template(options.chat_template)
    elif options.family is not None:
        resolve_template_name(options.family)
    job = TokenizeJob(folder, tokenizer, options, strict, plugins=get_host().inventory())
    totals = Totals()
    pool = _Here() if workers == 1 else _Pool(workers, job)
    try:
        manifest = _manifest(source, pool.describe(job), options, shard_rows)
        job = replace(job, run=digest(repr(sorted(manifest["fingerprints"].items()))))
        open_output(folder, manifest, resume=resume, overwrite=overwrite)
        for block, told in _shards(source, job, pool, shard_rows):
            totals.add(told, kept=block is None)
            if progress is not None:
                progress(told.get("weight", 0), totals)
    except BaseException:  # an interrupt too: no worker may outlive the run, and the error goes on
        pool.close(wait=False)
        raise
    pool.close(wait=True)
    if not totals.rows:
        raise InvalidData(f"{source.name} holds no conversations.")
    write_json(folder / REPORT, _notes(folder, totals.shards))
    counts = {k: v for k, v in asdict(totals).items() if k not in ("reasons", "kept")}
    write_json(folder / MANIFEST, [{**manifest, "finished": counts}])
    return totals


def load_tokenizer(tokenizer: Any) -> Any:
    """Return the tokenizer of a name or folder; what is no string is one."""
    if not isinstance(tokenizer, (str, Path)):
        return tokenizer
    from antiphon.cli.inputs import load_tokenizer as load

    return load(str(tokenizer))


def _manifest(
    source: RowSource, described: Mapping[str, str], options: SampleOptions, shard_rows: int
) -> dict[str, Any]:
    from antiphon.plugins import get_host

    settings = {**asdict(options), "shard_rows": shard_rows}
    fingerprints = {
        "template": described["template"],
        "tokenizer": described["tokenizer"],
        "plugins": get_host().fingerprint(),
        "input": source.identity,
        "options": digest(repr(settings)),
    }
    return {
        "antiphon_tokenize": FORMAT,
        "input": source.name,
        "tokenizer": described["name"],
        "fingerprints": fingerprints,
        "settings": {key: repr(value) for key, value in settings.items() if value is not None},
    }


def _described(tokenizer: Any, options: SampleOptions) -> dict[str, str]:
    """Return the fingerprints that need the tokenizer at hand.

    Raises:
        TemplateInvalid: Its template is not valid Jinja, so that no row could be rendered.
    """
    compile_template(Template(tokenizer, options.chat_template, options.family).source)
    return {
        "name": str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__),
        "template": template_fingerprint(
            tokenizer, options.chat_template, options.family, options.tools
        ),
        "tokenizer": tokenizer_fingerprint(tokenizer),
    }


def _shards(
    source: RowSource, job: TokenizeJob, pool: _Here | _Pool, rows: int
) -> Iterator[tuple[Block | None, dict[str, Any]]]:
    """Yield what each shard holds, in order; with None for a block that was finished before."""
    under_way: deque[tuple[Block, Future[dict[str, Any]]]] = deque()

    def finished() -> tuple[Block, dict[str, Any]]:
        block, future = under_way.popleft()
        try:
            return block, {**future.result(), "weight": block.weight}
        except BrokenProcessPool as error:
            raise OutputError(
                f"A process ended without an answer while rows {_rows(block)} were being made, perhaps for want of "
                "memory; the shards finished before are valid, go on with --resume and fewer workers."
            ) from error

    for block in source.blocks(rows):
        told = read_about(shard_path(job.output, block.number))
        of_block = {"run": job.run, "first": block.first, "rows": block.size}
        if told is not None and of_block.items() <= told.items():
            while under_way:
                yield finished()
            yield None, {**told, "weight": block.weight}
            continue
        # Payloads are handed over, not kept: what is under way bounds the memory.
        under_way.append((block._replace(payload=None), pool.submit(job, block)))
        if len(under_way) > pool.ahead:
            yield finished()
    while under_way:
        yield finished()


def make_shard(job: TokenizeJob, tokenizer: Any, block: Block) -> dict[str, Any]:
    """Make the shard of a block and return what its metadata say.

    Raises:
        OutputError: It can't be written; the error names the rows.
    """
    path = shard_path(job.output, block.number)
    about = {"antiphon_tokenize": FORMAT, "run": job.run, "first": block.first, "rows": block.size}
    at = block.first
    fitting = _BYTES_AT_ONCE * block.size // max(1, bytes_of(block))
    at_once = max(1, min(_ROWS_AT_ONCE, fitting))

    preference = job.options.preference
    make = make_preferences if preference else make_samples

    def batches() -> Iterator[Any]:
        nonlocal at
        rows = rows_of(block)
        while part := [row for _, row in zip(range(at_once), rows, strict=False)]:
            at = part[0][0]
            yield make(part, tokenizer, job.options, strict=job.strict)

    try:
        return write_shard(path, batches(), about, preference=preference)
    except AntiphonError:
        raise
    except OSError as error:
        raise OutputError(
            f"Writing rows {_rows(block)} to {path} failed at row {at}: {error.strerror or error}; the shards finished "
            "before are valid, make room and go on with --resume."
        ) from error
    finally:
        # A data set seldom says a thing twice: kept, its texts would fill the cache, in every process.
        view(tokenizer).forget()


def _rows(block: Block) -> str:
    return f"{block.first} to {block.first + block.size - 1}"


def _notes(output: Path, shards: int) -> Iterator[dict[str, Any]]:
    for number in range(shards):
        for row, what, reason in (read_about(shard_path(output, number)) or {}).get("notes", ()):
            yield {"row": row, "what": what, "reason": reason}


# Processes


class _Here:
    """Makes shards in this process."""

    ahead = 0

    def submit(self, job: TokenizeJob, block: Block) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        try:
            future.set_result(make_shard(job, _loaded(job), block))
        except AntiphonError as error:
            future.set_exception(error)
        return future

    def describe(self, job: TokenizeJob) -> dict[str, str]:
        return _described(_loaded(job), job.options)

    def close(self, *, wait: bool) -> None:
        """Nothing is left to close."""


class _Pool:
    """Makes shards in several processes."""

    def __init__(self, workers: int, job: TokenizeJob) -> None:
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            # What all workers import is imported once; a module that is missing is passed over.
            context.set_forkserver_preload(
                [__name__, "transformers.models.auto.tokenization_auto", "pyarrow.parquet"]
            )
        self.ahead = workers + 1
        threads = os.environ.get("TOKENIZERS_PARALLELISM", "false" if workers > 1 else "true")
        self._pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_begin, initargs=(job, threads)
        )

    def describe(self, job: TokenizeJob) -> dict[str, str]:
        # Asked of a worker, so that this process need not load what they have loaded already.
        try:
            described, warned = self._pool.submit(_describe, job.options).result()
        except BrokenProcessPool as error:
            raise OutputError(
                "The worker processes ended before they had begun: a script must guard its start by "
                'if __name__ == "__main__", and each process needs memory for the tokenizer.'
            ) from error
        for text, category in warned:
            warnings.warn(text, category, stacklevel=4)
        return described

    def submit(self, job: TokenizeJob, block: Block) -> Future[dict[str, Any]]:
        # The tokenizer is with the workers already.
        return self._pool.submit(_make, replace(job, tokenizer=None), block)

    def close(self, *, wait: bool) -> None:
        """Let the processes go; without ``wait`` what is not begun is dropped."""
        self._pool.shutdown(wait=wait, cancel_futures=not wait)


@functools.lru_cache(maxsize=1)
def _by_name(name: str) -> Any:
    return load_tokenizer(name)


def _loaded(job: TokenizeJob) -> Any:
    return _by_name(str(job.tokenizer)) if isinstance(job.tokenizer, (str, Path)) else job.tokenizer


# The tokenizer of a worker process, which works for one run alone; set by its initializer.
_of_worker: list[Any] = []


def _begin(job: TokenizeJob, threads: str) -> None:
    from antiphon.plugins import get_host

    # Who interrupts the run means the first process; this one ends with it, also where it was killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_first, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = threads
    warnings.simplefilter(
        "ignore"
    )  # `_describe` hands them on: told by each process they'd be many
    try:
        get_host().check_same(job.plugins)
        _of_worker[:] = [load_tokenizer(job.tokenizer)]
    except AntiphonError as error:
        # An initializer that raises breaks the pool with a traceback; the first task tells it properly.
        _of_worker[:] = [error]
    # What is imported and loaded by now stays: collecting garbage need not walk it again and again.
    gc.freeze()


def _end_with_first() -> None:
    first = multiprocessing.parent_process()
    if first is not None:
        first.join()
        os._exit(1)  # as if it had been killed too: a shard that is being written is made again


def _own_tokenizer() -> Any:
    if isinstance(_of_worker[0], AntiphonError):
        raise _of_worker[0]
    return _of_worker[0]


def _make(job: TokenizeJob, block: Block) -> dict[str, Any]:
    return make_shard(job, _own_tokenizer(), block)


def _describe(options: SampleOptions) -> tuple[dict[str, str], list[tuple[str, type[Warning]]]]:
    """Return what `_described` does, and what it warns of, once, for the first process to tell."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        described = _described(_own_tokenizer(), options)
    return described, list(dict.fromkeys((str(each.message), each.category) for each in warned))
