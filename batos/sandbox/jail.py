"""The second wall: limits on the system calls and resources of a sandbox worker. Needs only the standard library.

    python -IS jail.py [--without WALL]… [--read PATH]… BINARY [ARGUMENT]…
    python -IS jail.py --probe

The first form locks the process up and becomes BINARY. Walls that this kernel lacks are left out; the second form prints which are
available, as JSON. Sources: prctl(2), setrlimit(2), landlock(7), seccomp(2) and the kernel's tables of system calls.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable, Iterable

WALLS = ("no_new_privs", "rlimits", "landlock", "seccomp")
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo")

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_FILTER = 22, 38, 2
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same numbers on every architecture
READABLE = 1 | 4 | 8
"""Rights to run and read files, and to list folders."""
CHANGEABLE = 2 | 0x7FF0 & ~(1 << 6 | 1 << 11)
"""Rights to write, make, move and remove files, folders, links, sockets and FIFOs; no devices."""
_OF_FILES = 1 | 2 | 4 | 1 << 14
MEMORY = 1 << 30  # bytes of address space; the interpreter's own memory limit is far lower
_LIMITS = (
    (resource.RLIMIT_FSIZE, 0),
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_NOFILE, 64),
)

# System calls of the worker: memory, its own threads, its pipes, clocks, and reading the files that landlock allows.
# name: (number on x86_64, number on aarch64); 0: the architecture does not have it.
_ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "poll": (7, 0), "lseek": (8, 62), "mmap": (9, 222),
    "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66), "access": (21, 0), "sched_yield": (24, 124),
    "mremap": (25, 216), "mincore": (27, 232), "madvise": (28, 233), "dup": (32, 23), "nanosleep": (35, 101), "getpid": (39, 172),
    "exit": (60, 93), "uname": (63, 160), "fcntl": (72, 25), "getcwd": (79, 17), "readlink": (89, 0), "gettimeofday": (96, 169),
    "getrusage": (98, 165), "sysinfo": (99, 179), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177),
    "sigaltstack": (131, 132), "prctl": (157, 167), "arch_prctl": (158, 0), "gettid": (186, 178), "futex": (202, 98),
    "sched_getaffinity": (204, 123), "getdents64": (217, 61), "set_tid_address": (218, 96), "restart_syscall": (219, 128),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "exit_group": (231, 94),
    "epoll_wait": (232, 0), "epoll_ctl": (233, 21), "newfstatat": (262, 79), "readlinkat": (267, 78), "faccessat": (269, 48),
    "ppoll": (271, 73), "set_robust_list": (273, 99), "epoll_pwait": (281, 22), "eventfd2": (290, 19), "epoll_create1": (291, 20),
    "prlimit64": (302, 261), "getrandom": (318, 278), "membarrier": (324, 283), "statx": (332, 291), "rseq": (334, 293),
    "execve": (59, 221),  # this launcher's own last call; afterwards landlock allows one file to run
}  # fmt: skip
_OPENAT, _CLONE, _CLONE3, _TGKILL, _AUDIT = (257, 56), (56, 220), 435, (234, 131), (0xC000003E, 0xC00000B7)
_MACHINES = {"x86_64": 0, "aarch64": 1}
_CLONE_THREAD, _ENOSYS, _EPERM = 0x10000, 38, 1
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_X32 = 0x40000000
_CLONE_SPACES = 0x7E020000  # namespaces: mounts, cgroup, host name, IPC, user, processes, network


class Missing(Exception):
    """This kernel, or this machine, does not have the wall."""


def no_new_privs(libc: ctypes.CDLL) -> None:
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise Missing


def rlimits(memory: int = MEMORY) -> None:
    for limit, value in ((resource.RLIMIT_AS, memory), *_LIMITS):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def landlock(libc: ctypes.CDLL, binary: str, readable: tuple[str, ...]) -> None:
    """Restrict the file system to the binary and its libraries, read-only; allow no TCP and no signals to other processes."""
    restrict(libc, [(path, READABLE) for path in (binary, *LIBRARIES, *readable)])


def restrict(libc: ctypes.CDLL, allowed: Iterable[tuple[str, int]], network: bool = False) -> None:
    """Restrict the file system to some paths, each with its rights; allow no signals to other processes.

    :param allowed: paths with `READABLE`, or `CHANGEABLE` with it. Paths that are missing are left out.
    :param network: allows TCP.
    """
    abi = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if abi < 1:
        raise Missing
    files = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        files |= (1 << bit) if abi >= since else 0
    attributes = struct.pack("Q", files)
    if abi >= 4:
        attributes += struct.pack("Q", 0 if network else 3)  # bind and connect
    if abi >= 6:
        attributes += struct.pack("Q", 3)  # abstract unix sockets, signals
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        raise Missing
    for path, rights in allowed:
        try:
            fd = os.open(path, os.O_PATH)
        except OSError:
            continue
        rights &= files if os.path.isdir(path) else files & _OF_FILES
        added = libc.syscall(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights, fd), 0)
        os.close(fd)
        if added != 0:
            raise Missing
    if libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0:
        raise Missing
    os.close(ruleset)


def seccomp(libc: ctypes.CDLL) -> None:
    """Refuse every system call that is not allowed, with EPERM."""
    install(libc, program())


def install(libc: ctypes.CDLL, code: bytes) -> None:
    """Put up a filter of system calls."""
    held = ctypes.create_string_buffer(code, len(code))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(held)), 0, 0) != 0:
        raise Missing


def program() -> bytes:
    """Return the filter, for this machine (classic BPF over struct seccomp_data: number at 0, architecture at 4, arguments from 16)."""
    machine = machine_index()
    allow, refuse = step(_RETURN, 0, 0, _ALLOW), step(_RETURN, 0, 0, _ERRNO | _EPERM)
    steps = _opening(machine)
    for numbers in _ALLOWED.values():
        if numbers[machine] or numbers is _ALLOWED["read"]:
            steps += _when(numbers[machine], allow)
    # its flags lie in memory, where the filter cannot read them; libc falls back to clone
    steps += _when(_CLONE3, step(_RETURN, 0, 0, _ERRNO | _ENOSYS))
    steps += _when(_CLONE[machine], step(_LOAD, 0, 0, 16), step(_ANY_BIT, 0, 1, _CLONE_THREAD), allow, refuse)
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    steps += _when(_OPENAT[machine], step(_LOAD, 0, 0, 32), step(_ANY_BIT, 1, 0, writing), allow, refuse)
    # allow abort(), which signals the process itself
    steps += _when(_TGKILL[machine], step(_LOAD, 0, 0, 16), step(_EQUAL, 0, 1, os.getpid()), allow, refuse)
    return b"".join([*steps, refuse])


def program_without(calls: Iterable[tuple[int, int]]) -> bytes:
    """Return a filter that refuses some system calls with EPERM and allows all others of this architecture.

    :param calls: numbers on x86_64 and aarch64.
    """
    machine = machine_index()
    refuse = step(_RETURN, 0, 0, _ERRNO | _EPERM)
    steps = _opening(machine)
    if machine == 0:
        steps += [step(_AT_LEAST, 0, 1, _X32), refuse]  # the same calls by other numbers
    for numbers in calls:
        steps += _when(numbers[machine], refuse)
    # its flags lie in memory, where the filter cannot read them; libc falls back to clone
    steps += _when(_CLONE3, step(_RETURN, 0, 0, _ERRNO | _ENOSYS))
    steps += _when(_CLONE[machine], step(_LOAD, 0, 0, 16), step(_ANY_BIT, 1, 0, _CLONE_SPACES), step(_RETURN, 0, 0, _ALLOW), refuse)
    return b"".join([*steps, step(_RETURN, 0, 0, _ALLOW)])


def machine_index() -> int:
    """Return the place of this machine in pairs of system call numbers."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise Missing
    return machine


def step(code: int, yes: int, no: int, value: int) -> bytes:
    """Return one instruction of a filter."""
    return struct.pack("HBBI", code, yes, no, value)


def _opening(machine: int) -> list[bytes]:
    return [step(_LOAD, 0, 0, 4), step(_EQUAL, 1, 0, _AUDIT[machine]), step(_RETURN, 0, 0, _KILL), step(_LOAD, 0, 0, 0)]


def _when(number: int, *steps: bytes) -> list[bytes]:
    return [step(_EQUAL, 0, len(steps), number), *steps]


def lock_up(binary: str, readable: tuple[str, ...] = (), without: tuple[str, ...] = (), memory: int = MEMORY) -> dict[str, bool]:
    """Put up every wall that this machine supports, in this process, for good. Return which of them stand."""
    libc = ctypes.CDLL(None, use_errno=True)
    build: dict[str, Callable[[], None]] = {
        "no_new_privs": lambda: no_new_privs(libc),
        "rlimits": lambda: rlimits(memory),
        "landlock": lambda: landlock(libc, binary, readable),
        "seccomp": lambda: seccomp(libc),
    }
    stand = {}
    for wall in WALLS:
        try:
            if wall in without:
                raise Missing
            build[wall]()
            stand[wall] = True
        except (Missing, OSError, ValueError):
            stand[wall] = False
    return stand


def main(words: list[str]) -> None:
    if words == ["--probe"]:
        print(json.dumps(lock_up(sys.executable)))
        return
    options: dict[str, list[str]] = {"--without": [], "--read": []}
    while words and words[0] in options:
        options[words[0]].append(words[1])
        words = words[2:]
    lock_up(words[0], tuple(options["--read"]), tuple(options["--without"]))
    os.execve(words[0], words, {})  # noqa: S606  no shell, and an empty environment


if __name__ == "__main__":
    main(sys.argv[1:])
