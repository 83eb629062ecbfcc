"""One run of ``antiphon rollout``: from options to files, with a progress bar and a summary."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.envs.problems import read_rows
from antiphon.envs.tasks import Task, WordProblems
from antiphon.errors import BackendError, InvalidData, InvalidParameter, OutputError, PluginError
from antiphon.generation.sampling import SamplingParams
from antiphon.rollouts.files import (
    PartFile,
    check_output,
    part_path,
    read_about,
    read_records,
    write_output,
)
from antiphon.rollouts.summary import Summary

if TYPE_CHECKING:
    from antiphon.envs.conversation import Prompter
    from antiphon.generation.backends import Backend
    from antiphon.rollouts.sampling_loop import RolloutSettings, Trajectory

INTERRUPTED = 130
BUILT_IN = "word-problems"


@dataclass(frozen=True)
class RunOptions:
    """The options of the command; see its help."""

    model: str = "embedded"
    env_name: str = BUILT_IN
    data: Path | None = None
    backend: str = "transformers"
    scorer: str | None = None
    system_prompt: str | None = None
    samples: int = 2
    limit: int | None = None
    max_turns: int = 2
    max_new_tokens: int = 64
    temperature: float = 0.7
    log_probs: str = "temperature"
    timeout: float | None = None
    top_p: float = 1.0
    batch_size: int = 32
    seed: int = 0
    output: Path = Path("rollout.parquet")
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        for name in ("samples", "max_turns", "max_new_tokens", "batch_size", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidParameter(
                    f"--{name.replace('_', '-')} must be at least 1, not {value}."
                )
        if self.timeout is not None and self.timeout <= 0:
            raise InvalidParameter(f"--timeout must be above 0 seconds, not {self.timeout}.")
        if self.resume and self.overwrite:
            raise InvalidParameter("--resume and --overwrite exclude each other; give one.")


def run(options: RunOptions, *, echo: Callable[[str], None] = print) -> int:
    """Roll out, write the file, print the summary; returns the exit code.

    Everything that can be refused is refused before the model is loaded, as far as possible.
    """
    check_output(options.output)
    _clear(options)
    task = make_task(options)
    rows = load_rows(options, task)
    params = SamplingParams.from_kwargs(
        {
            "max_new_tokens": options.max_new_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "log_prob_convention": options.log_probs,
        }
    )
    with contextlib.ExitStack() as closing:
        backend = load_backend(options)
        closing.callback(backend.close)
        scorer = load_scorer(options, backend)
        if scorer is not backend:
            closing.callback(scorer.close)
        return _run(options, task, rows, params, backend, scorer, echo)


def _run(
    options: RunOptions,
    task: Task,
    rows: Sequence[Mapping[str, Any]],
    params: SamplingParams,
    backend: Backend,
    scorer: Backend,
    echo: Callable[[str], None],
) -> int:
    from antiphon.envs.conversation import Prompter
    from antiphon.rollouts.sampling_loop import RolloutSettings

    prompter = Prompter(backend.tokenizer)
    settings = RolloutSettings(
        options.samples, options.batch_size, options.seed, params, options.timeout
    )
    about: dict[str, dict[str, Any]] = {
        "fingerprints": fingerprints(options, backend, prompter),
        "settings": {
            "model": options.model,
            "scorer": scorer.name,
            "env": options.env_name,
            "data": _digest(json.dumps(rows, sort_keys=True, ensure_ascii=True).encode()),
            "rows": len(rows),
            "system_prompt": task.system_prompt,
            "samples": options.samples,
            "seed": options.seed,
            "max_turns": options.max_turns,
            "max_new_tokens": options.max_new_tokens,
            "temperature": options.temperature,
            "log_probs": options.log_probs,
            "top_p": options.top_p,
        },
    }
    identity = {**about["settings"], **about["fingerprints"]}
    total = len(rows) * options.samples
    if options.resume and options.output.exists() and not part_path(options.output).exists():
        return _already_complete(options, identity, echo)
    with PartFile(options.output, identity, resume=options.resume) as part:
        interrupted = _sample(task, rows, settings, backend, scorer, prompter, part, total, echo)
        write_output(options.output, part.records, about)
        summary = Summary()
        summary.add(part.records)
        for name, text in summary.lines():
            echo(f"{name:<36}{text}")
        for name, figure in task.figures(_ends(part.records, rows)).items():
            echo(f"{name:<36}{figure:.3f}")
        echo(f"{'written to':<36}{options.output}")
        if interrupted:
            echo(
                f"Interrupted: {summary.conversations} of {total} conversations are in "
                f"{options.output}; go on with --resume."
            )
            return INTERRUPTED
        part.close(remove=True)
    return 0


def _ends(
    records: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], Mapping[str, float | bool]]]:
    """Return of each conversation its data row and what was said of its last answer."""
    return [
        (rows[record["problem"]], json.loads(record["turns"][-1]["info"]))
        for record in records
        if not record["segment"]
    ]


def _sample(
    task: Task,
    rows: Sequence[Mapping[str, Any]],
    settings: RolloutSettings,
    backend: Backend,
    scorer: Backend,
    prompter: Prompter,
    part: PartFile,
    total: int,
    echo: Callable[[str], None],
) -> bool:
    """Sample what is missing into the part file; returns whether the user interrupted it."""
    done = {record["conversation"] for record in part.records}
    if done:
        echo(f"Resuming: {len(done)} of {total} conversations are there already.")
    with _stoppable(), _Progress(total, len(done)) as progress:
        rolling = _rolling(
            backend,
            (task, rows, backend, settings),
            {
                "prompter": prompter,
                "done": done,
                "on_tokens": progress.tokens,
                "scorer": scorer,
            },
        )
        try:
            with contextlib.closing(rolling):
                for finished in rolling:
                    for trajectory in finished:
                        # All segments of a conversation are one line: it is there or it is not.
                        part.append_conversation(trajectory.records())
                    progress.finished(finished)
        except KeyboardInterrupt:
            part.reload()
            return True
        except BackendError as error:
            kept = len({record["conversation"] for record in part.records})
            raise BackendError(
                f"{error} The {kept} conversations that had ended are safe in {part.path}; go on "
                "with --resume."
            ) from error
    return False


def _rolling(
    backend: Backend, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Generator[list[Trajectory], None, None]:
    """Begin in the way that suits the backend: continuously, or in rounds."""
    from antiphon.generation.backends import AsyncBackend
    from antiphon.rollouts.async_loop import iterate, roll_out_async
    from antiphon.rollouts.sampling_loop import roll_out

    if isinstance(backend, AsyncBackend):
        return iterate(roll_out_async(*arguments, **keywords))
    return roll_out(*arguments, **keywords)


def _already_complete(
    options: RunOptions, identity: Mapping[str, Any], echo: Callable[[str], None]
) -> int:
    about = read_about(options.output)
    found = {**about.get("settings", {}), **about.get("fingerprints", {})}
    differing = [key for key in identity if found.get(key) != identity[key]]
    if differing:
        raise OutputError(
            f"{options.output} is the finished output of a run with another {differing[0]}; choose "
            "another --output, or replace it with --overwrite."
        )
    summary = Summary()
    summary.add(read_records(options.output))
    echo(f"{options.output} is complete: {summary.conversations} conversations, nothing to resume.")
    return 0


def _clear(options: RunOptions) -> None:
    """Make room for the output, or say why it can't be written."""
    if options.overwrite:
        part_path(options.output).unlink(missing_ok=True)
        return
    if options.output.exists() and not options.resume:
        raise OutputError(
            f"{options.output} is there already; choose another --output, or replace it with "
            "--overwrite."
        )


def make_task(options: RunOptions) -> Task:
    """Return the task of the environment that the options name.

    Raises:
        PluginError: There is no such environment, or it has no task to roll out.
    """
    if options.env_name == BUILT_IN:
        task: Task = WordProblems(max_turns=options.max_turns)
    else:
        from antiphon.registry import get_env

        try:
            factory = get_env(options.env_name).load()
        except PluginError as error:
            raise type(error)(f"{error} Built in is {BUILT_IN!r}.") from error
        make = getattr(factory, "make_task", None)
        if make is None:
            raise PluginError(
                f"The environment {options.env_name!r} can't be rolled out from the command line: "
                "its factory has no make_task(max_turns=...)."
            )
        task = make(max_turns=options.max_turns)
    if options.system_prompt is not None:
        task.system_prompt = options.system_prompt or None
    return task


def load_rows(options: RunOptions, task: Task) -> list[dict[str, Any]]:
    """Return the problems that the options ask for."""
    from antiphon.demo import problems_path

    rows = read_rows(options.data or problems_path(), task)
    return rows if options.limit is None else rows[: options.limit]


def load_backend(options: RunOptions) -> Backend:
    """Return the backend with its model.

    Raises:
        AntiphonError: The backend is not installed, or the model is not there.
        InvalidData: The model has no tokenizer.
    """
    from antiphon.registry import get_backend

    backend: Backend = get_backend(options.backend).load()(options.model)
    if backend.tokenizer is None:
        raise InvalidData(
            f"The model {options.model} comes without a tokenizer, and conversations need one; "
            "choose a model that has it."
        )
    return backend


def load_scorer(options: RunOptions, backend: Backend) -> Backend:
    """Return what stands for the trainer; ``backend`` itself unless the options or it name another."""
    name = options.scorer or getattr(backend, "trainer", None) or options.backend
    if name == options.backend:
        return backend
    return load_backend(dataclasses.replace(options, backend=name))


def fingerprints(options: RunOptions, backend: Backend, prompter: Prompter) -> dict[str, str]:
    """Return what tells this run's template, tokenizer, plugins and model from others."""
    from antiphon.plugins import get_host

    return {
        "template_fingerprint": prompter.template_fingerprint,
        "tokenizer_fingerprint": prompter.tokenizer_fingerprint,
        "plugins_fingerprint": get_host().fingerprint(),
        "model_fingerprint": _model_fingerprint(options.model, backend),
    }


def _model_fingerprint(model: str, backend: Backend) -> str:
    given = getattr(backend, "model_fingerprint", None)
    if isinstance(given, str):
        return given
    digest = hashlib.sha256(f"{backend.name}\n{model}\n{backend.vocab_size}".encode())
    folder = Path(model)
    if folder.is_dir():
        # Names, sizes and the head of each file: a changed checkpoint shows, a big one is quick.
        for path in sorted(folder.iterdir()):
            if path.suffix in (".safetensors", ".bin", ".json"):
                with path.open("rb") as file:
                    digest.update(f"{path.name} {path.stat().st_size}\n".encode())
                    digest.update(file.read(1 << 16))
    return digest.hexdigest()[:16]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM stop the run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Progress:
    """A progress bar with tokens per second on stderr, and nothing where stderr is no terminal."""

    def __init__(self, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("conversations"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]:.0f} tokens/s"),
            TextColumn("reward {task.fields[reward]:.3f}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._total, self._done = total, done
        self._tokens = 0
        self._rewards = 0.0
        self._count = 0

    def __enter__(self) -> _Progress:
        self._began = time.monotonic()
        self._bar.start()
        self._task = self._bar.add_task(
            "", total=self._total, completed=self._done, speed=0.0, reward=0.0
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tokens(self, count: int) -> None:
        """Count sampled tokens."""
        self._tokens += count
        seconds = max(time.monotonic() - self._began, 1e-9)
        self._bar.update(self._task, speed=self._tokens / seconds)

    def finished(self, trajectories: Sequence[Trajectory]) -> None:
        """Count finished conversations."""
        self._count += len(trajectories)
        self._rewards += sum(t.turns[-1].reward for t in trajectories)
        self._bar.update(self._task, advance=len(trajectories), reward=self._rewards / self._count)


__all__ = ["RunOptions", "fingerprints", "load_backend", "load_rows", "make_task", "run"]
