"""What runs inside the sandbox: takes away every right it can, then runs the code.

Started as a script in a process of its own (``python -I sandbox_child.py CONFIG``), it uses the
standard library alone. From then on: no new processes, no other program, no sockets, no way to
signal, slow down or limit another process (seccomp); no file outside the folder is written and none
but Python's own is read (Landlock); no privileges, even as root (capabilities); no network
(namespace); limits on processor time, memory, file size and open files. What the kernel lacks is
told to the parent, which refuses unless it was told not to.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable

# System calls that are refused: for each what they are, and their numbers by architecture.
_REFUSED: dict[str, dict[str, tuple[int, ...]]] = {
    # fork, vfork, execve, execveat, ptrace, process_vm_*, pidfd_open, pidfd_getfd, kcmp,
    # process_madvise, process_mrelease
    "processes": {
        "x86_64": (57, 58, 59, 322, 101, 310, 311, 434, 438, 312, 440, 448),
        "aarch64": (221, 281, 117, 270, 271, 434, 438, 272, 440, 448),
    },
    # kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal
    "signals": {
        "x86_64": (62, 200, 234, 129, 297, 424),
        "aarch64": (129, 130, 131, 138, 240, 424),
    },
    # setpriority, sched_setparam, _setscheduler, _setaffinity, _setattr, ioprio_set, migrate_pages,
    # move_pages: they reach every process of the same user
    "others' share of the machine": {
        "x86_64": (141, 142, 144, 203, 314, 251, 256, 279),
        "aarch64": (140, 118, 119, 122, 274, 30, 238, 239),
    },
    # socket, and io_uring_setup, which has sockets of its own. A socketpair reaches nobody else, and
    # asyncio needs it.
    "sockets": {"x86_64": (41, 425), "aarch64": (198, 425)},
    # mount, umount2, pivot_root, chroot, unshare, setns, open_tree ... fspick, mount_setattr, bpf,
    # perf_event_open, swapon, swapoff, reboot, kexec_*, *_module, keyctl, add_key, request_key,
    # userfaultfd, clocks, names, syslog, acct, quotactl*, personality, capset, fanotify_init, sync,
    # syncfs, and of the x86 modify_ldt, iopl, ioperm
    "the system": {
        "x86_64": (
            *(165, 166, 155, 161, 272, 308, 428, 429, 430, 431, 432, 433, 442, 321, 298, 167, 168),
            *(169, 246, 320, 175, 176, 313, 250, 248, 249, 323, 227, 164, 159, 305, 170, 171, 103),
            *(163, 179, 443, 135, 126, 300, 162, 306, 154, 172, 173),
        ),
        "aarch64": (
            *(40, 39, 41, 51, 97, 268, 428, 429, 430, 431, 432, 433, 442, 280, 241, 224, 225, 142),
            *(104, 294, 105, 106, 273, 219, 217, 218, 282, 112, 170, 171, 266, 161, 162, 116, 89),
            *(60, 443, 92, 91, 262, 81, 267),
        ),
    },
    # What Landlock does not look at: mknod*, chmod*, chown*, utime*, *setxattr, *removexattr,
    # open_by_handle_at
    "files": {
        "x86_64": (
            *(133, 259, 90, 91, 268, 452, 92, 93, 94, 260, 132, 235, 261, 280),
            *(188, 189, 190, 197, 198, 199, 304),
        ),
        "aarch64": (33, 52, 53, 452, 55, 54, 88, 5, 6, 7, 14, 15, 16, 265),
    },
    # shmget, msgget, semget, memfd_create, mq_open, mq_unlink
    "memory outside the limit": {
        "x86_64": (29, 68, 64, 319, 240, 241),
        "aarch64": (194, 186, 190, 279, 180, 181),
    },
}
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# A thread is a clone with CLONE_THREAD and is allowed; clone3 hides its flags from a filter, so libc
# is sent back to clone.
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_CLONE_THREAD = 0x10000
# Limits may be set for the process itself (0) only.
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
# A file may not name a process that gets signals for it: F_SETOWN, F_SETSIG, F_SETOWN_EX; FIOSETOWN,
# SIOCSPGRP. TIOCSTI types into a terminal.
_FCNTL = {"x86_64": 72, "aarch64": 25}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_OWNING_FCNTL, _OWNING_IOCTL = (8, 10, 15), (0x8901, 0x8902, 0x5412)
_EPERM, _ENOSYS = 1, 38

_READ = 1 << 2 | 1 << 3
_EXECUTE = 1 << 0
_ALL_FS = (1 << 13) - 1  # what the first version of Landlock knows
_SINCE = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def forbid_writes(folder: str, readable: Iterable[str]) -> bool:
    """Confine files to ``folder`` and reading to ``readable``, for good; returns whether it worked."""
    libc = _libc()
    version = libc.syscall(444, None, 0, 1)
    if version < 1:
        return False
    handled = _ALL_FS
    for since, right in _SINCE.items():
        if version >= since:
            handled |= right
    attributes = ctypes.create_string_buffer(struct.pack("<Q", handled))
    rules = libc.syscall(444, attributes, 8, 0)
    if rules < 0:
        return False
    try:
        allowed = [(folder, handled & ~_EXECUTE)]
        allowed += [(path, _READ | _EXECUTE) for path in readable]
        allowed += [("/dev/null", _READ | 1 << 1), ("/dev/urandom", _READ)]
        for path, rights in allowed:
            if not _allow(libc, rules, path, rights & handled):
                return False
        libc.prctl(38, 1, 0, 0, 0)
        return bool(libc.syscall(446, rules, 0) == 0)
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> bool:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return True  # what is not there needs no rule
    try:
        if not os.path.isdir(path):
            rights &= ~(1 << 3 | 1 << 4 | 1 << 5) & ~(0x1FC0 | 1 << 13)
        rule = ctypes.create_string_buffer(struct.pack("<Qi", rights, opened))
        return bool(libc.syscall(445, rules, 1, rule, 0) == 0)
    finally:
        os.close(opened)


def forbid_calls() -> bool:
    """Refuse processes, sockets, signals and the like, for good; returns whether it worked."""
    machine = platform.machine()
    if machine not in _ARCH:
        return False
    jump_equal, jump_set, load, give = 0x15, 0x45, 0x20, 0x06
    allow, fail, kill = 0x7FFF0000, 0x00050000, 0x80000000
    first, second = 16, 24  # where a call's arguments are

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("<HBBI", code, yes, no, value)

    def judged(number: int, argument: int, tests: list[bytes]) -> list[bytes]:
        """Let an argument of a call decide; what no test has refused is allowed."""
        tests = [step(load, argument), *tests, step(give, allow)]
        return [step(jump_equal, number, 0, len(tests)), *tests]

    refused = step(give, fail | _EPERM)
    program = [
        step(load, 4),
        step(jump_equal, _ARCH[machine], 1, 0),
        step(give, kill),
        step(load, 0),
    ]
    if machine == "x86_64":  # the x32 numbers are other names of the same calls
        program += [step(0x35, 0x40000000, 0, 1), refused]
    for numbers in _REFUSED.values():
        for number in numbers[machine]:
            program += [step(jump_equal, number, 0, 1), refused]
    program += [step(jump_equal, _CLONE3, 0, 1), step(give, fail | _ENOSYS)]
    program += judged(_CLONE[machine], first, [step(jump_set, _CLONE_THREAD, 1, 0), refused])
    program += judged(_PRLIMIT[machine], first, [step(jump_equal, 0, 1, 0), refused])
    for call, commands in ((_FCNTL, _OWNING_FCNTL), (_IOCTL, _OWNING_IOCTL)):
        tests = [part for each in commands for part in (step(jump_equal, each, 0, 1), refused)]
        program += judged(call[machine], second, tests)
    program.append(step(give, allow))
    code = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(
        struct.pack("@HxxxxxxP", len(program), ctypes.addressof(code))
    )
    libc = _libc()
    libc.prctl(38, 1, 0, 0, 0)
    return bool(libc.prctl(22, 2, header, 0, 0) == 0)


def forbid_network() -> bool:
    """Leave the network's and the user's namespace; returns whether it worked."""
    return bool(_libc().unshare(0x10000000 | 0x40000000) == 0)


def drop_privileges() -> bool:
    """Give up all capabilities, which root has; returns whether it worked."""
    header = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0))
    none = ctypes.create_string_buffer(24)
    return bool(_libc().capset(header, none) == 0)


def limit(config: dict[str, int]) -> None:
    """Set the limits on time, memory, files."""
    for name, value in (
        (resource.RLIMIT_CPU, config["cpu_seconds"]),
        (resource.RLIMIT_AS, config["memory"]),
        (resource.RLIMIT_FSIZE, config["file_size"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(name)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (value, value))


def readable_paths() -> list[str]:
    """Return where Python and the system's libraries are."""
    own = {
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        os.path.dirname(os.path.realpath(sys.executable)),
    }
    system = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
    return [os.path.realpath(path) for path in (*own, *system)]


def main() -> None:
    """Read the configuration, give up all rights, run the code."""
    config = json.loads(sys.argv[1])
    os.chdir(config["folder"])
    limit(config)
    held = {
        "network": forbid_network(),
        "files": forbid_writes(config["folder"], [*readable_paths(), *config["readable"]]),
        "privileges": drop_privileges(),
        "calls": forbid_calls(),
    }
    with os.fdopen(int(config["report"]), "w") as report:
        json.dump(held, report)
    # The network namespace comes second: without sockets there is no network.
    missing = [name for name in ("files", "privileges", "calls") if not held[name]]
    if missing and not config["allow_weak"]:
        sys.exit(3)
    with open("main.py", encoding="utf-8") as file:
        source = file.read()
    sys.argv = ["main.py"]
    names = {"__name__": "__main__", "__builtins__": __builtins__}
    with contextlib.suppress(BrokenPipeError):
        exec(compile(source, "main.py", "exec"), names)


if __name__ == "__main__":
    main()
