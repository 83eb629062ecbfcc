"""Code that models write: run, bounded, told, and kept from doing harm. The next call always works."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
from antiphon import ChatEnv, History
from antiphon.conversations.containers import ChatHistory
from antiphon.envs.python import PythonInterpreter, PythonResult, PythonSandbox
from antiphon.errors import EnvError, InvalidParameter
from tensordict import TensorDict


@pytest.fixture(scope="module")
def sandbox() -> PythonSandbox:
    if not sys.platform.startswith("linux"):
        pytest.skip(f"the sandbox needs Linux, and this is {sys.platform}")
    made = PythonSandbox(timeout=20)
    try:
        made.run("pass")
    except EnvError as error:
        pytest.skip(f"this kernel can't confine a process: {error}")
    return made


def works(sandbox: PythonSandbox) -> bool:
    return sandbox.run("print(6 * 7)").told() == "42"


def test_what_is_printed_comes_back(sandbox: PythonSandbox) -> None:
    assert works(sandbox)
    assert sandbox.run("import math, json, statistics\nprint(math.pi)").output.startswith("3.14")
    assert sandbox.run("x = 1").told() == "[no output]"
    told = sandbox.run("def f(): return 1 / 0\nf()").told()
    assert "ZeroDivisionError" in told
    assert told.endswith("[exit status 1]")
    assert sandbox.run("print('é🦙')").output == "é🦙\n"
    assert "SyntaxError" in sandbox.run("print(").told()


def test_files_of_its_own_may_be_written(sandbox: PythonSandbox) -> None:
    code = "open('a.txt', 'w').write('x' * 10)\nprint(len(open('a.txt').read()))"
    assert sandbox.run(code).told() == "10"
    # Nothing is left for the next one.
    assert "FileNotFoundError" in sandbox.run("open('a.txt')").told()


def test_threads_are_allowed(sandbox: PythonSandbox) -> None:
    code = "import threading\nt = threading.Thread(target=lambda: print('in a thread'))\nt.start()\nt.join()"
    assert sandbox.run(code).told() == "in a thread"


def test_an_endless_loop_is_stopped(sandbox: PythonSandbox) -> None:
    short = PythonSandbox(timeout=3)  # long enough to start and print on a busy machine
    begin = time.monotonic()
    result = short.run("print('before', flush=True)\nwhile True: pass")
    assert time.monotonic() - begin < 60  # a bound on the hang, not a measure of speed
    assert result.output == "before\n"
    assert result.stopped == "it took more than 3 seconds"
    assert works(sandbox)


def test_ignored_signals_and_catching_everything_do_not_help(sandbox: PythonSandbox) -> None:
    code = (
        "import signal\n"
        "for s in range(1, 32):\n"
        "    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except Exception: pass\n"
        "while True:\n"
        "    try:\n"
        "        while True: pass\n"
        "    except BaseException: pass\n"
    )
    assert PythonSandbox(timeout=1.0).run(code).stopped is not None
    assert works(sandbox)


def test_a_fork_bomb_does_not_go_off(sandbox: PythonSandbox) -> None:
    told = sandbox.run("import os\nwhile True: os.fork()").told()
    assert "PermissionError" in told
    code = "import subprocess\nsubprocess.run(['/bin/echo', 'hello'])"
    assert "PermissionError" in sandbox.run(code).told()
    code = "import os\nos.execv('/bin/echo', ['echo', 'hello'])"
    assert "PermissionError" in sandbox.run(code).told()
    assert works(sandbox)


def test_memory_is_bounded(sandbox: PythonSandbox) -> None:
    assert "MemoryError" in sandbox.run("x = bytearray(4 << 30)").told()
    assert "MemoryError" in sandbox.run("x = []\nwhile True: x.append(bytearray(1 << 24))").told()
    assert works(sandbox)


def test_output_is_bounded(sandbox: PythonSandbox) -> None:
    bounded = PythonSandbox(timeout=20, max_output=1000)
    result = bounded.run("while True: print('x' * 100000)")
    assert result.output == "x" * 1000
    assert result.stopped == "it printed more than 1000 bytes"
    assert works(sandbox)


def test_disk_is_bounded(sandbox: PythonSandbox) -> None:
    bounded = PythonSandbox(timeout=20, max_disk=1 << 20)
    one = bounded.run("open('big', 'wb').write(b'x' * (64 << 20))")
    assert "File too large" in one.told() or one.stopped == f"it wrote more than {1 << 20} bytes"
    code = (
        "import itertools\nfor i in itertools.count(): open(str(i), 'wb').write(b'x' * (1 << 19))"
    )
    assert bounded.run(code).stopped == f"it wrote more than {1 << 20} bytes"
    assert works(sandbox)


def test_nothing_outside_its_folder_is_written(sandbox: PythonSandbox, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    victim.chmod(0o666)
    tmp_path.chmod(0o777)
    for action in (
        f"open({str(victim)!r}, 'w').write('yours')",
        f"import os; os.truncate({str(victim)!r}, 0)",
        f"import os; os.unlink({str(victim)!r})",
        f"import os; os.rename({str(victim)!r}, 'here')",
        f"import os; os.chmod({str(victim)!r}, 0)",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        "import os; os.mkdir('/tmp/antiphon-outside')",
        f"import os; os.link({str(victim)!r}, 'here'); open('here', 'w')",
        f"import os; os.symlink({str(victim)!r}, 'here'); open('here', 'w')",
    ):
        assert "PermissionError" in (told := sandbox.run(action).told()) or "OSError" in told, (
            action
        )
    assert victim.read_text() == "mine"
    assert os.stat(victim).st_mode & 0o777 == 0o666
    assert os.listdir(tmp_path) == ["victim"]


def test_nothing_outside_is_read_either(sandbox: PythonSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    assert "PermissionError" in sandbox.run(f"print(open({str(secret)!r}).read())").told()
    told = sandbox.run("import os; print(sorted(os.environ))").told()
    assert "PATH" in told
    assert "PYTHON" not in told
    code = f"print(open('/proc/{os.getpid()}/environ').read())"
    assert "PermissionError" in sandbox.run(code).told()


def test_there_are_no_sockets(sandbox: PythonSandbox) -> None:
    for code in (
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.create_connection(('127.0.0.1', 80), 2)",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1', timeout=2)",
    ):
        told = sandbox.run(code).told()
        assert "not permitted" in told, told


def test_the_parent_gets_no_signals(sandbox: PythonSandbox) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
    try:
        for target in (os.getpid(), -os.getpgrp(), -1):
            told = sandbox.run(f"import os, signal; os.kill({target}, signal.SIGUSR1)").told()
            assert "PermissionError" in told
        told = sandbox.run("import os, signal; os.kill(os.getppid(), signal.SIGUSR1)").told()
        assert "PermissionError" in told
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got == []


@pytest.mark.parametrize(
    "attack",
    [
        # The parent's limits, its share of the processor, and signals through a pipe or a file.
        "import resource; resource.prlimit(PARENT, resource.RLIMIT_NOFILE, (0, 0))",
        "import os; os.sched_setaffinity(PARENT, {0})",
        "import os; os.setpriority(os.PRIO_PROCESS, PARENT, 19)",
        "import os; os.setpriority(os.PRIO_USER, 0, 19)",
        "import os; os.sched_setscheduler(PARENT, os.SCHED_IDLE, os.sched_param(0))",
        "import fcntl; fcntl.fcntl(1, fcntl.F_SETOWN, PARENT)",
        "import fcntl; fcntl.fcntl(1, 10, 9)",
        "import fcntl, struct; fcntl.fcntl(1, 15, struct.pack('ii', 1, PARENT))",
        "import fcntl, struct, socket; fcntl.ioctl(socket.socketpair()[0], 0x8901, struct.pack('i', PARENT))",
    ],
)
def test_other_processes_are_out_of_reach(attack: str, sandbox: PythonSandbox) -> None:
    import resource

    def state() -> tuple[object, ...]:
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        return resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0), priority

    before = state()
    told = sandbox.run(attack.replace("PARENT", str(os.getpid()))).told()
    assert "not permitted" in told or "PermissionError" in told, told
    assert state() == before


def test_root_inside_has_no_privileges(sandbox: PythonSandbox) -> None:
    code = (
        "import resource, socket, time\n"
        "for act in (\n"
        "    lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)),\n"
        "    lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999)),\n"
        "    lambda: time.clock_settime(time.CLOCK_REALTIME, 0),\n"
        "    lambda: socket.sethostname('mine'),\n"
        "):\n"
        "    try: act(); print('allowed')\n"
        "    except (OSError, ValueError) as error: print('no')\n"
    )
    assert sandbox.run(code).told() == "no\nno\nno\nno"


def test_rights_do_not_come_back_through_ctypes(sandbox: PythonSandbox) -> None:
    code = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.fork(), libc.unshare(0x10000000), libc.syscall(425, 1, 0), libc.syscall(41, 2, 1, 0))\n"
        "print(libc.prctl(22, 0, 0, 0, 0), libc.setns(3, 0), libc.vfork())\n"
    )
    assert sandbox.run(code).told() == "-1 -1 -1 -1\n-1 -1 -1"


def test_the_ends_that_programs_make_of_themselves_are_told(sandbox: PythonSandbox) -> None:
    assert sandbox.run("import sys; print(1); sys.exit(3)").told() == "1\n[exit status 3]"
    assert sandbox.run("import sys; sys.exit('why')").told() == "why\n[exit status 1]"
    assert sandbox.run("import os; os._exit(7)").told() == "[exit status 7]"
    assert "[ended by signal" in sandbox.run("import os; os.abort()").told()
    assert "[ended by signal SIGSEGV]" in sandbox.run("import ctypes; ctypes.string_at(0)").told()
    assert "KeyboardInterrupt" in sandbox.run("raise KeyboardInterrupt").told()
    assert "RecursionError" in sandbox.run("def f(): f()\nf()").told()
    deep = "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __getattr__(s, n): return n in s\n"
    deep += "    def __contains__(s, n): return getattr(s, n)\n"
    told = sandbox.run(deep + "A().x").told()
    assert "[ended by signal SIGSEGV]" in told or "Error" in told
    assert works(sandbox)


def test_output_that_is_closed_ends_nothing(sandbox: PythonSandbox) -> None:
    code = "import os, time\nprint('a', flush=True)\nos.closerange(0, 64)\ntime.sleep(0.5)\n"
    assert sandbox.run(code + "os._exit(5)").told() == "a\n[exit status 5]"
    result = PythonSandbox(timeout=1.0).run(code + "while True: pass")
    assert result.stopped == "it took more than 1 seconds"
    assert works(sandbox)


def test_threads_are_bounded_by_memory(sandbox: PythonSandbox) -> None:
    code = (
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    assert "can't start new thread" in sandbox.run(code).told()
    assert works(sandbox)


def test_asyncio_works_but_reaches_nobody(sandbox: PythonSandbox) -> None:
    code = "import asyncio\nasync def f(): await asyncio.sleep(0.01); return 5\nprint(asyncio.run(f()))"
    assert sandbox.run(code).told() == "5"
    code = "import asyncio\nasyncio.run(asyncio.open_connection('127.0.0.1', 80))"
    assert "not permitted" in sandbox.run(code).told()
    assert (
        "PermissionError"
        in sandbox.run("import asyncio\nasyncio.run(asyncio.create_subprocess_exec('ls'))").told()
    )


def test_nothing_that_has_no_file_outlives_it(sandbox: PythonSandbox) -> None:
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.shmget(0, 1, 0o1600), libc.mq_open(b'/mine', 0o102, 0o600, None), libc.semget(0, 1, 0o1600))"
    )
    assert sandbox.run(code).told() == "-1 -1 -1"


@pytest.mark.parametrize(
    "code",
    [
        # Ever deeper, as many as there may be, closed to everybody, and in the way of clearing up.
        "import os\nfor i in range(3000): os.mkdir('d'); os.chdir('d')\nprint('deep')",
        "import itertools\nfor i in itertools.count(): open(str(i), 'w').close()",
        "import os\nfor i in range(50): os.makedirs(f'{i}/a/b/c'); open(f'{i}/a/f', 'w')\nprint('deep')",
        "import os\nos.mkdir('x'); os.mkdir('x/y'); os.mkdir('x/y/z', 0); os.mkdir('w', 0)\nprint('deep')",
        "import os\nos.symlink('/', 'root'); os.mkdir('d'); os.symlink('/', 'd/root')\nprint('deep')",
    ],
)
def test_folders_of_any_form_are_cleared_away(code: str, sandbox: PythonSandbox) -> None:
    def left() -> set[str]:
        return {name for name in os.listdir(tempfile.gettempdir()) if "antiphon-python-" in name}

    before = left()
    told = PythonSandbox(timeout=20, max_disk=4 << 20).run(code).told()
    assert "deep" in told or "it wrote more than" in told
    assert left() - before == set()
    assert Path("/etc").is_dir()
    assert works(sandbox)


def test_times_of_files_outside_stay(sandbox: PythonSandbox, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    before = victim.stat().st_mtime_ns
    assert "not permitted" in sandbox.run(f"import os; os.utime({str(victim)!r}, (0, 0))").told()
    assert victim.stat().st_mtime_ns == before


def test_many_calls_leave_nothing_behind(sandbox: PythonSandbox) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        assert works(sandbox)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_results_are_told_in_words() -> None:
    assert PythonResult("a\n", None, 0).told() == "a"
    assert PythonResult("", None, -9).told() == "[ended by signal SIGKILL]"
    assert PythonResult("a", "why", -9).told() == "a\n[stopped: why]"
    with pytest.raises(InvalidParameter, match="64 MiB"):
        PythonSandbox(memory=1)


def test_blocks_of_answers_are_run_and_other_rows_are_left_alone(sandbox: PythonSandbox) -> None:
    env = ChatEnv(batch_size=3).append_transform(PythonInterpreter(sandbox=sandbox))
    root = env.reset(TensorDict({"query": ["a", "b", "c"]}, batch_size=3))
    prompt = root["history"].prompt
    texts = [
        "First:\n```python\nx = 2\n```\nthen\n```py\nprint(x + 1)\n```",
        "No code, ```js\n1\n```",
        "```python\nwhile True",
    ]
    response = History.from_chats([[{"role": "assistant", "content": text}] for text in texts])
    full = prompt.extend(response, inplace=False, dim=-1)
    root["history"] = ChatHistory(prompt=prompt, full=full, batch_size=(3,))
    step = env.step(root)
    chats = [row.to_chats() for row in step["next", "history"].prompt.unbind(0)]
    assert chats[0][-1] == {"role": "tool", "name": "python", "content": "3"}
    assert chats[1][-1]["content"] == texts[1]
    assert "SyntaxError" in chats[2][-1]["content"]


def test_the_interpreter_goes_to_other_processes() -> None:
    copy = pickle.loads(pickle.dumps(PythonInterpreter(sandbox=PythonSandbox(timeout=3))))
    assert copy.sandbox.timeout == 3


def test_a_machine_without_room_is_named(
    sandbox: PythonSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(EnvError, match=r"could not be run: .*No such file"):
        sandbox.run("pass")


def test_fences_are_found_as_models_write_them(sandbox: PythonSandbox) -> None:
    interpreter = PythonInterpreter(sandbox=sandbox)
    texts = [
        "```Python\nprint('```')\n```",
        "``` python3\r\nprint(2)\r\n```",
        "Text ```python\nprint(3)\n``` in a line",
        "1. so:\n   ```py\n   if True:\n       print(4)\n   ```\n```pyramid\nprint(5)\n```",
    ]
    found = interpreter.replies([{"role": "assistant", "content": text} for text in texts])
    assert [[reply["content"] for reply in replies] for replies in found] == [
        ["```"],
        ["2"],
        [],
        ["4"],
    ]
