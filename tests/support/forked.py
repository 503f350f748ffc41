"""Python programs that a test starts without waiting for their imports: `forked.Popen` and `forked.run`, as in `subprocess`.

A template process imports what a daemon and the command line import, once for each process of the tests, and forks for each program
that is asked for: 0.05 seconds of a core instead of two. What is forked is a process as any other. It is a child of the test, has the
environment, the folder and the streams that it was given, runs its module as `__main__`, and dies by `kill -9`.

A program is started by `exec`, as by `subprocess`, where a fork would not be the same: on systems other than Linux, at a terminal, with
options of the interpreter, and with descriptors or functions passed on. `TESTS_EXEC=yes` starts all of them so.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import inspect
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import batos
from batos.mind import brief_analysis

ROOT = Path(__file__).parents[2]
_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "GLIBC_", "OPENBLAS", "OMP_")
"""Beginnings of the names of variables that are read as a process starts: one template for each of their values."""
_SYSCALLS = {"x86_64": 56, "aarch64": 220}  # the numbers of clone(2)
_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x00008000, 0x00200000, 0x01000000
_PR_GET_TID_ADDRESS = 40
_HEAD = struct.Struct(">I")


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """A `subprocess.Popen` whose program may be forked from the template."""

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        ends = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [end if end >= 0 else number for number, end in enumerate(ends)]
        words = _words(asked["args"])
        if words is None or not _forkable(asked, streams):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        folder = os.path.abspath(asked["cwd"] or os.getcwd())
        try:
            self.pid = _template(environment).fork(words, environment, folder, bool(asked["start_new_session"]), streams)
            self._child_created = True
        finally:
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(asked[name] for name in ends))  # type: ignore[attr-defined]


def run(words: Sequence[str], *, input: Any = None, timeout: float | None = None, capture_output: bool = False, check: bool = False,
        **more: Any) -> subprocess.CompletedProcess[Any]:  # fmt: skip
    """Run a program to its end, as `subprocess.run` does."""
    if input is not None:
        more["stdin"] = subprocess.PIPE
    if capture_output:
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(words, **more) as process:
        try:
            out, error = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, error)
    if check:
        done.check_returncode()
    return done


def _words(command: Any) -> list[str] | None:
    """The words after the interpreter, where these are `-m MODULE ...`, `-c CODE ...` or `FILE ...`; else None."""
    if isinstance(command, str | bytes | os.PathLike):
        return None
    words = [os.fspath(word) for word in command]
    if words[:1] != [sys.executable] or len(words) < 2:
        return None
    named = len(words) > 2 if words[1] in ("-c", "-m") else words[1].endswith(".py") and os.path.isfile(words[1])
    return words[1:] if named else None


def _forkable(asked: dict[str, Any], streams: list[int]) -> bool:
    plain = {"preexec_fn": None, "pass_fds": (), "shell": False, "umask": -1, "gid": None, "gids": None, "uid": None, "process_group": -1}
    as_usual = all(asked.get(name, usual) == usual for name, usual in plain.items()) and asked["close_fds"] and asked["restore_signals"]
    here = sys.platform == "linux" and os.uname().machine in _SYSCALLS and not os.environ.get("TESTS_EXEC")
    with_streams = not any(map(os.isatty, streams)) and asked["executable"] in (None, sys.executable)
    usual_signals = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN and not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return as_usual and here and with_streams and usual_signals


class _Template:
    """The process that forks."""

    def __init__(self, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
                env=environment | {"OPENBLAS_NUM_THREADS": "1"},  # it begins threads as it is imported
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT,
            )  # fmt: skip
        self._process.returncode = 0  # it ends with this process, when its socket is closed: nobody waits for it
        self._socket, self._alone = ours, threading.Lock()
        atexit.register(ours.close)

    def fork(self, words: list[str], environment: dict[str, str], folder: str, session: bool, streams: list[int]) -> int:
        """Start a program; the number of its process, which is a child of this one.

        :raises OSError: if its folder cannot be entered.
        """
        asked = pickle.dumps((words, environment, folder, session))
        with self._alone:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
            try:
                self._socket.sendmsg([_HEAD.pack(len(asked))], rights)
                self._socket.sendall(asked)
                pid = pickle.loads(_exactly(self._socket, _HEAD.unpack(_exactly(self._socket, _HEAD.size))[0]))
            except (ConnectionError, EOFError):
                raise AssertionError("the template has ended: `python -c 'import tests.support.forked as f; f.load()'` says why") from None
        if isinstance(pid, OSError):
            raise pid
        return int(pid)


def _template(environment: dict[str, str]) -> _Template:
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # what is ignored stays so in each process that is begun
    return _made(os.getpid(), hangs_up, tuple(sorted((n, v) for n, v in environment.items() if n.startswith(_AT_START))))


@functools.cache
def _made(pid: int, hangs_up: bool, at_start: tuple[tuple[str, str], ...]) -> _Template:
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*_AT_START, "BATOS_", "OLLAMA_"))}
    return _Template(kept | dict(at_start))


def _exactly(stream: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = stream.recv(size - len(found))
        if not part:
            raise EOFError("the other side has ended")
        found += part
    return found


def _serve(stream: socket.socket) -> tuple[list[str], dict[str, str]]:
    """Fork for each request, in the template; return, in a process that was forked, what it shall run. Ends with its user."""
    while True:
        room = 3 * array.array("i").itemsize
        head, rights, _, _ = stream.recvmsg(_HEAD.size, socket.CMSG_SPACE(room))
        if not head:
            os._exit(0)
        streams = array.array("i")
        for _, _, data in rights:
            streams.frombytes(data[: len(data) - len(data) % streams.itemsize])
        head += _exactly(stream, _HEAD.size - len(head))
        words, environment, folder, session = pickle.loads(_exactly(stream, _HEAD.unpack(head)[0]))
        try:
            there = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as e:
            _reply(stream, e)
        else:
            pid = _fork_a_sibling()
            if pid == 0:
                stream.close()
                os.fchdir(there)
                os.close(there)
                if session:
                    os.setsid()
                for number, given in enumerate(streams):
                    os.dup2(given, number)
                for given in streams:
                    os.close(given)
                return words, environment
            os.close(there)
            _reply(stream, pid)
        for given in streams:
            os.close(given)


def _reply(stream: socket.socket, answer: int | OSError) -> None:
    said = pickle.dumps(answer)
    stream.sendall(_HEAD.pack(len(said)) + said)


def _fork_a_sibling() -> int:
    """fork(2), whose child is one of this process's parent: who asked for it waits for it. Only where there is one thread."""
    assert len(os.listdir("/proc/self/task")) == 1, "an import of the template began a thread, which a fork does not have"
    python, library = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
    thread_id = ctypes.c_void_p()  # where the C library keeps the thread's number, which its own fork() renews, too
    library.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(thread_id), 0, 0, 0)
    flags = _CLONE_PARENT | (_CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID if thread_id.value else 0) | signal.SIGCHLD
    last = (thread_id, ctypes.c_void_p()) if os.uname().machine == "x86_64" else (ctypes.c_void_p(), thread_id)
    python.PyOS_BeforeFork()
    pid = library.syscall(_SYSCALLS[os.uname().machine], ctypes.c_ulong(flags), ctypes.c_void_p(), ctypes.c_void_p(), *last)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(pid)


def _run(words: list[str], environment: dict[str, str]) -> None:
    """Be a program, as if Python had been started with these words."""
    os.environ.clear()
    os.environ.update(environment)
    first, *rest = words
    if first == "-c":
        sys.path[0], sys.argv = "", ["-c", *rest[1:]]
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(module))
    elif first == "-m":
        sys.path[0], module = os.getcwd(), rest[0]
        sys.argv = ["-m", *rest[1:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(first))
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def load() -> None:
    """Import what the programs of the house import."""
    for found in pkgutil.walk_packages(batos.__path__, "batos."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # it needs an extra that is not installed
                importlib.import_module(found.name)
    brief_analysis.errand_of("")  # its expressions are compiled once


def _main() -> None:
    load()
    gc.collect()
    gc.freeze()  # the objects of the template are no garbage in any process: their pages stay shared
    with socket.socket(fileno=int(sys.argv[1])) as stream:
        words, environment = _serve(stream)
    _run(words, environment)


if __name__ == "__main__":
    _main()
