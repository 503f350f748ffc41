"""A daemon that stops or kills itself at a named step: `python kernel_child.py run --data FOLDER ...`, the rest as for `python -m batos`.

A step is one of a commit, or of a request. The file `armed` in its data folder names it: step, when and how, a line each. In the folder
above, it is for all kernels there: the first that comes to the step is struck. The step is the beginning of a name; the name of a commit is
its system function with its first argument (`begin_attempt m1`), or the note of a unit of work (`m1`). A commit has the moments `before`,
`vote` (all have voted, and nothing is committed) and `after` (it is durable, and no caller was told). `how` is `stop`, as SIGSTOP does, or
`kill`, as `kill -9` does. The file is taken away first: each arming strikes once. Nothing in batos/ knows of this.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ZODB.Connection import Connection

from batos.bridge import ollama_server
from batos.bridge.client import OllamaInference
from batos.cli import main
from batos.image import packing
from batos.image.committer import Committer
from batos.image.fence import Fence
from batos.notices.courier import Courier
from batos.tools.egress import Egress
from batos.wire.outbox import ClientHandle

ARMED = "armed"
BEFORE, VOTE, TURN, AFTER = "before", "vote", "turn", "after"
STOP, KILL = "stop", "kill"
_committing = threading.local()
_armed: tuple[Path, ...] = ()


def pass_by(names: list[str], when: str) -> None:
    """Stop or die here, if the step is armed."""
    for armed in _armed:
        try:
            step, at, how = armed.read_text().splitlines()
            if at != when or not any(name.startswith(step) for name in names):
                continue
            armed.unlink()
        except FileNotFoundError:  # it is not armed, or another kernel was struck just now
            continue
        if how == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # to this thread: it stops before it goes on, and the others with it


def names_of(group: list[Any]) -> list[str]:
    """The names of the system functions of a group, those that are fenced included."""
    found = []
    for job in group:
        fenced = getattr(job.function, "__func__", None) in (Fence.run, Fence.run_or_drop)
        function, args = (job.args[0], job.args[1:]) if fenced else (job.function, job.args)
        found.append(f"{function.__qualname__} {args[0] if args else ''}")
    return found


def watch_commits() -> None:
    """Pass by each commit: of a group of system transactions, and of a unit of work."""
    try_group, unit, vote = Committer._try_group, Committer._unit, Connection.tpc_vote

    def group_passed(self: Committer, group: list[Any]) -> None:
        _around(names_of(group), try_group, self, group)

    def unit_passed(self: Committer, commit: Any) -> None:
        _around([f"unit {commit.tm.get().user}"], unit, self, commit)

    def voted(self: Connection, transaction: Any) -> None:
        vote(self, transaction)
        pass_by(getattr(_committing, "names", []), VOTE)

    Committer._try_group = group_passed  # type: ignore[method-assign]
    Committer._unit = unit_passed  # type: ignore[method-assign]
    Connection.tpc_vote = voted


def _around(names: list[str], work: Any, *args: Any) -> None:
    pass_by(names, BEFORE)
    _committing.names = names
    try:
        work(*args)
    finally:
        _committing.names = []
    pass_by(names, AFTER)


def watch_requests() -> None:
    """Pass by each request for an inference, each request of a tool, and each reply to a client.

    `ask` has `before` (the owner was not looked at yet) and `after` (it was looked at, and no byte has left). `egress` has `before` (no
    byte has left) and `after` (the answer is there). `reply` has `before`, with the reply's type and its mission.
    """
    parts, arguments, request, send = OllamaInference._parts, OllamaInference._arguments, Egress.request, ClientHandle.send

    def parts_passed(self: OllamaInference, asked: Any, *args: Any) -> Any:
        pass_by(["ask"], BEFORE)
        return parts(self, asked, *args)

    def arguments_passed(self: OllamaInference, asked: Any) -> Any:
        pass_by(["ask"], AFTER)
        return arguments(self, asked)

    async def request_passed(self: Egress, *args: Any, **more: Any) -> Any:
        pass_by(["egress"], BEFORE)
        answer = await request(self, *args, **more)
        pass_by(["egress"], AFTER)
        return answer

    def sent(self: ClientHandle, reply: Any, **more: Any) -> Any:
        pass_by([f"reply {reply.get('type')} {reply.get('id')}"], BEFORE)
        return send(self, reply, **more)

    OllamaInference._parts = parts_passed  # type: ignore[method-assign]
    OllamaInference._arguments = arguments_passed  # type: ignore[method-assign]
    Egress.request = request_passed  # type: ignore[method-assign]
    ClientHandle.send = sent  # type: ignore[method-assign]


def watch_leader() -> None:
    """Pass by each pack (`before` it, at each `turn` of it, `after` it), and each sending of a notice (`before` it, `after` it)."""
    pack, take, deliver = packing.pack_server, packing._Turns.take, Courier._delivered

    def packed(*args: Any) -> None:
        pass_by(["pack"], BEFORE)
        pack(*args)
        pass_by(["pack"], AFTER)

    def taken(self: Any) -> None:
        pass_by(["pack"], TURN)
        take(self)

    async def delivered(self: Courier, *args: Any, **more: Any) -> Any:
        pass_by(["notice"], BEFORE)
        found = await deliver(self, *args, **more)
        pass_by(["notice"], AFTER)
        return found

    packing.pack_server = packed
    packing._Turns.take = taken  # type: ignore[method-assign]
    Courier._delivered = delivered  # type: ignore[method-assign]


def keep_to_the_given_ollama() -> None:
    """Wait for the Ollama of `inference.host` where it answers late, on a busy machine, in place of starting a real one."""
    ollama_server.find_binary = lambda settings: None


if __name__ == "__main__":
    keep_to_the_given_ollama()
    folder = Path(sys.argv[sys.argv.index("--data") + 1])
    _armed = (folder / ARMED, folder.parent / ARMED)
    watch_commits()
    watch_requests()
    watch_leader()
    sys.exit(main(sys.argv[1:]))
