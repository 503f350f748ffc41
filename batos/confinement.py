"""The child's side of `batos.isolation`: answers requests, behind walls. Run by path.

    python -I -S confinement.py PARENT_PID MODULE MEMORY_BYTES IDLE_S PATH ...

It imports MODULE from the PATHs, locks itself up (`batos/sandbox/jail.py`), and answers requests on its standard input. It ends with its
input, when none came for IDLE_S seconds, or when it has grown. Linux kills it when its parent dies, however that dies.

A request is a head (JSON: `request`, `bytes`, `seconds`) and that many bytes. The answer is the values that `MODULE.serve(request,
data)` yields, each as JSON, then a mark that says how it ended. Each frame is its length (four bytes, big-endian), a tag of one byte,
and its content.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import math
import os
import resource
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

PIECE, DONE, REFUSED, NO_MEMORY, FAULT = b"p", b"d", b"r", b"m", b"f"
SPENT_BYTES = 256 * 1024 * 1024  # peak memory after which the child exits: it would not return the memory to the system
_PR_SET_PDEATHSIG = 1
_NICE = 5


def main(parent: int, name: str, memory: int, idle_s: float, paths: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return  # the parent died before prctl took effect
    os.nice(_NICE)
    sys.path[:] = paths
    sys.dont_write_bytecode = True
    out = os.dup(1)
    os.dup2(2, 1)  # output that a library prints must not mix with the answer
    serve = importlib.import_module(name).serve
    _lock_up(paths, memory)
    inherited = _peak()  # Linux counts the peak memory of the parent, from before this program replaced it
    while _asked(idle_s):
        head = json.loads(_taken(struct.unpack(">I", _taken(4))[0]))
        data = _taken(head["bytes"])
        _limit(head["seconds"])
        _answer(out, serve, head["request"], data)
        data = b""
        if _peak() > max(inherited, SPENT_BYTES):
            return


def _peak() -> int:
    """Return the most bytes of memory that this process has had at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _lock_up(paths: list[str], memory: int) -> None:
    """Put up the sandbox's walls: no files but Python's own, no network, no programs, so much memory."""
    where = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox", "jail.py")
    spec = importlib.util.spec_from_file_location("jail", where)
    assert spec is not None
    assert spec.loader is not None
    jail = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(jail)
    jail.lock_up(sys.executable, tuple(paths), memory=memory)


def _limit(seconds: float) -> None:
    """Make the kernel end this process after a number of seconds of processor time from now on."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    end = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end if hard == resource.RLIM_INFINITY else min(end, hard), hard))


def _answer(out: int, serve: Callable[[Any, bytes], Iterable[Any]], request: Any, data: bytes) -> None:
    try:
        for piece in serve(request, data):
            _tell(out, PIECE, json.dumps(piece, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        _tell(out, DONE)
    except MemoryError:
        _tell(out, NO_MEMORY)
    except Exception as e:
        told = getattr(e, "to_wire", None)
        if told is not None:
            _tell(out, REFUSED, json.dumps(told()).encode())
        else:
            _tell(out, FAULT, json.dumps([f"{type(e).__name__}: {e}"[:2000], traceback.format_exc(limit=-4)]).encode())


def _asked(idle_s: float) -> bool:
    """Return True if a request comes within some seconds."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    ready = poll.poll(idle_s * 1000)
    return bool(ready) and bool(ready[0][1] & select.POLLIN) and _peek()


_HELD = b""


def _peek() -> bool:
    global _HELD
    _HELD = os.read(0, 1)
    return bool(_HELD)


def _taken(size: int) -> bytes:
    """Return a number of bytes of the standard input."""
    global _HELD
    parts, left = [_HELD], size - len(_HELD)
    _HELD = b""
    while left > 0:
        part = os.read(0, min(left, 1 << 20))
        if not part:
            sys.exit(0)
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _tell(out: int, tag: bytes, content: bytes = b"") -> None:
    frame = memoryview(struct.pack(">I", len(content) + 1) + tag + content)
    while frame:
        frame = frame[os.write(out, frame) :]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
