"""`PythonInterpreter`: runs the Python that a model writes, in a process that can do no harm.

What the process may not do is in `antiphon.envs.sandbox_child`; this module starts it, bounds its
time and output from outside, and tells the model what came out.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import re
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from antiphon.envs.tasks import Message, message_text
from antiphon.envs.tools import ReplyTransform
from antiphon.errors import EnvError, InvalidParameter

# A fence begins a line: what stands within one, as in print("```"), ends no block.
_BLOCK = re.compile(
    r"^[ \t]*```[ \t]*(?:python3?|py)[ \t]*\r?\n(.*?)(?:^[ \t]*```|\Z)",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_CHILD = Path(__file__).with_name("sandbox_child.py")
_NEEDED = ("files", "privileges", "calls")  # what must be confined, see `sandbox_child.main`


@dataclass(frozen=True)
class PythonResult:
    """What came of running code.

    Attributes:
        output: What it printed, to both streams, cut at the limit.
        stopped: Why it was stopped, or None where it ended by itself.
        status: The exit status; negative: the signal that ended it.
    """

    output: str
    stopped: str | None
    status: int

    def told(self) -> str:
        """Return it as text for a model."""
        parts = [self.output.rstrip("\n")] if self.output.strip() else []
        if self.stopped:
            parts.append(f"[stopped: {self.stopped}]")
        elif self.status < 0:
            name = signal.Signals(-self.status).name if -self.status in _SIGNALS else -self.status
            parts.append(f"[ended by signal {name}]")
        elif self.status:
            parts.append(f"[exit status {self.status}]")
        return "\n".join(parts) or "[no output]"


_SIGNALS = frozenset(int(number) for number in signal.Signals)


class PythonSandbox:
    """Runs code in a fresh process and folder each time, with no rights and little of everything.

    Args:
        timeout: Seconds from start to end.
        memory: Bytes of address space.
        max_output: Bytes of output; the process ends with them.
        max_disk: Bytes that its folder may hold.
        packages: Whether installed packages can be imported.
        allow_weak: Run even where the kernel lacks what confines files and system calls. Only for
            code that you would run anyway.
        readable: Further folders that the code may read.

    Raises:
        EnvError: This system can't confine a process (it needs Linux), and ``allow_weak`` is False.
    """

    def __init__(
        self,
        *,
        timeout: float = 10.0,
        memory: int = 512 << 20,
        max_output: int = 20_000,
        max_disk: int = 64 << 20,
        packages: bool = False,
        allow_weak: bool = False,
        readable: Sequence[str] = (),
    ) -> None:
        if timeout <= 0 or memory < 64 << 20 or max_output < 1 or max_disk < 1:
            raise InvalidParameter(
                "PythonSandbox needs a timeout above 0, at least 64 MiB of memory, and room for output "
                "and files."
            )
        if not sys.platform.startswith("linux"):
            raise EnvError(
                f"PythonSandbox confines processes by means of Linux, and this is {sys.platform}; run "
                "it in a Linux container."
            )
        self.timeout, self.memory = timeout, memory
        self.max_output, self.max_disk = max_output, max_disk
        self.packages, self.allow_weak = packages, allow_weak
        self.readable = list(readable)

    def run(self, code: str) -> PythonResult:
        """Run ``code`` and return what came of it.

        Raises:
            EnvError: The process could not be started or confined.
        """
        try:
            folder = tempfile.mkdtemp(prefix="antiphon-python-")
            try:
                path = Path(folder, "main.py")
                path.write_text(code, encoding="utf-8", errors="replace")
                return self._run(folder)
            finally:
                _remove(folder)
        except OSError as error:
            raise EnvError(
                f"The code of a model could not be run: {error}; see whether this machine has room for "
                "files and processes."
            ) from error

    def _run(self, folder: str) -> PythonResult:
        read_end, write_end = os.pipe()
        config = {
            "folder": folder,
            "report": write_end,
            "cpu_seconds": int(self.timeout) + 2,
            "memory": self.memory,
            "file_size": self.max_disk,
            "allow_weak": self.allow_weak,
            "readable": self.readable,
        }
        flags = ["-I"] if self.packages else ["-I", "-S"]
        try:
            process = subprocess.Popen(
                [sys.executable, *flags, str(_CHILD), json.dumps(config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={"PATH": "/usr/bin:/bin", "HOME": folder, "LANG": "C.UTF-8", "TMPDIR": folder},
                pass_fds=(write_end,),
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        try:
            output, stopped = self._watch(process, folder)
        finally:
            _end(process)
            with os.fdopen(read_end) as report:
                told = report.read()
        held = json.loads(told) if told else {}
        if process.returncode == 3 and not all(held.get(name) for name in _NEEDED):
            missing = [name for name in _NEEDED if not held.get(name)]
            raise EnvError(
                f"This kernel can't confine a process ({' and '.join(missing)}: it needs Landlock and "
                "seccomp), so the code was not run; use another kernel or container, or "
                "allow_weak=True for code that you trust."
            )
        return PythonResult(output, stopped, process.returncode)

    def _watch(self, process: subprocess.Popen[bytes], folder: str) -> tuple[str, str | None]:
        """Collect the output until the process ends or has to be stopped."""
        assert process.stdout is not None
        deadline = time.monotonic() + self.timeout
        collected = bytearray()
        stopped = None
        os.set_blocking(process.stdout.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while stopped is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    stopped = f"it took more than {self.timeout:g} seconds"
                elif _size(folder, self.max_disk) > self.max_disk:
                    stopped = f"it wrote more than {self.max_disk} bytes"
                elif not selector.get_map():
                    # It has closed its output, which does not end it.
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(min(left, 0.05))
                        break
                elif selector.select(min(left, 0.05)):
                    chunk = process.stdout.read(1 << 16)
                    if chunk == b"":
                        selector.unregister(process.stdout)
                    collected += chunk or b""
                    if len(collected) > self.max_output:
                        stopped = f"it printed more than {self.max_output} bytes"
        text = bytes(collected[: self.max_output]).decode("utf-8", "replace")
        return text, stopped


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all in its session, and wait for it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _size(folder: str, enough: int) -> int:
    """Return the bytes that a folder takes, or some number above ``enough``.

    Every entry takes at least a block, so that their number is bounded too.
    """
    total = 0
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    total += max(found.st_blocks * 512, 4096)
                    if total > enough:
                        return total
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue  # gone in between
        except OSError:
            return enough + 1  # deeper than a path can say, or closed to us
    return total


def _remove(folder: str) -> None:
    """Remove a folder, however deep, and whatever rights its folders have.

    Folders in folders are lifted to the top first, so that no path gets long.
    """
    while inner := _emptied(folder):
        for name in inner:
            place = os.path.join(folder, name)
            for deeper in _emptied(place):
                os.chmod(os.path.join(place, deeper), 0o700)  # else it may not be moved
                free = os.path.join(folder, secrets.token_hex(16))
                os.rename(os.path.join(place, deeper), free)
            os.rmdir(place)
    os.rmdir(folder)


def _emptied(folder: str) -> list[str]:
    """Remove a folder's files and return the names of its folders."""
    os.chmod(folder, 0o700)
    inner = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
            else:
                os.unlink(entry.path)
    return inner


class PythonInterpreter(ReplyTransform):
    """Runs the Python blocks of answers; what they print is the next message.

    Blocks are fenced as ```` ```python ````. Those of one answer run in order in one process;
    nothing is kept from turn to turn. Rows without a block are the task's.

    Args:
        sandbox: What runs the code; a `PythonSandbox` with its defaults if None.
        role: The role of the message with the output.
        name: The tool's name in that message.
        workers: How many rows' code runs side by side.
    """

    def __init__(
        self,
        *,
        sandbox: PythonSandbox | None = None,
        role: str = "tool",
        name: str = "python",
        workers: int = 4,
    ) -> None:
        super().__init__()
        self.sandbox = PythonSandbox() if sandbox is None else sandbox
        self.role, self.name = role, name
        self.workers = workers

    def replies(self, messages: Sequence[Message]) -> list[list[Message]]:
        codes = [
            "\n".join(map(textwrap.dedent, _BLOCK.findall(message_text(message))))
            for message in messages
        ]
        found: list[list[Message]] = [[] for _ in messages]
        rows = [row for row, code in enumerate(codes) if code.strip()]
        with concurrent.futures.ThreadPoolExecutor(self.workers, "antiphon-python") as pool:
            results = pool.map(self.sandbox.run, [codes[row] for row in rows])
            for row, result in zip(rows, results, strict=True):
                reply: Message = {"role": self.role, "content": result.told()}
                if self.role == "tool":
                    reply["name"] = self.name
                found[row].append(reply)
        return found
