"""The chat as somebody has it at a terminal: a real daemon, which is killed in the middle of an answer; Ctrl-C; a chat that is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import A_CYCLE, END_S, REPLY_S, ROOT, Daemon, Peer, daemon, provisioned
from tests.support.servers import free_port

pytestmark = pytest.mark.timeout(240)

WRITES = "Write the answer to the request"
ANSWER = "Rest is part of the work, and nobody has to earn it first."
_OWN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes the terminal that of the process, so that Ctrl-C comes as a signal."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>()][0B]?")


@pytest.fixture
def server() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as scripted:
        scripted.say(ANSWER, when=WRITES)
        yield provisioned(scripted)


class Terminal:
    """`batos chat` on a terminal of its own."""

    def __init__(self, home: Path, command: Sequence[str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env=environment(home) | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
            start_new_session=True,
        )
        os.close(slave)
        self._seen = ""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while data := os.read(self._master, 65536):
                with self._more:
                    self._seen += data.decode("utf-8", "replace")
                    self._more.notify_all()

    @property
    def seen(self) -> str:
        """What was written so far, on one line, without what moves the cursor."""
        with self._more:
            return " ".join(_ESCAPE.sub("", self._seen).split())

    def until(self, words: str, times: int = 1) -> str:
        """Wait until words were seen so often; all that was."""
        with self._more:
            seen = self._more.wait_for(lambda: self.seen.count(words) >= times, REPLY_S)
        assert seen, f"{words!r} was not seen {times} times: {self.seen[-2000:]}"
        return self.seen

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def prompted(self, times: int) -> None:
        """Wait until it asks for a line, for the so-manieth time."""
        with self._more:
            assert self._more.wait_for(lambda: self._seen.count("\x1b[?2004h") >= times, REPLY_S), self.seen[-2000:]

    def left(self) -> int:
        """Press Ctrl-D; the exit code."""
        self.type("\x04")
        return self.process.wait(END_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_S)
        self._reader.join(END_S)
        os.close(self._master)


def environment(home: Path) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
    paths = os.pathsep.join(path for path in (str(ROOT), os.environ.get("PYTHONPATH", "")) if path)
    return known | {"HOME": str(home), "PYTHONPATH": paths, "NO_COLOR": "1"}


@contextlib.contextmanager
def chat(home: Path, running: Daemon, *words: str) -> Iterator[Terminal]:
    terminal = Terminal(home, [sys.executable, "-m", "batos", "chat", "--connect", running.endpoint, *words])
    try:
        yield terminal
    finally:
        terminal.close()


def accepted(peer: Peer) -> list[str]:
    """The ids of the missions, the oldest first."""
    return [one["id"] for one in reversed(peer.ask("missions")["missions"])]


def test_a_chat_goes_on_when_the_daemon_was_killed_in_the_middle_of_an_answer(tmp_path: Path, server: ScriptedOllama) -> None:
    server.fail("stall", when=WRITES)
    listen = f"tcp://127.0.0.1:{free_port()}"  # nobody else takes it between the two daemons
    with daemon(tmp_path, listen=listen, ollama_host=server.host) as killed, chat(tmp_path, killed) as terminal:
        terminal.prompted(1)
        terminal.type("I feel stuck\r")
        terminal.until("Rest is part")
        killed.kill()
        terminal.until("no daemon answers")
        with daemon(tmp_path, listen=listen, ollama_host=server.host) as running, Peer(running.endpoint) as peer:
            seen = terminal.until(ANSWER)
            assert "begins again" in seen
            assert "replayed" in terminal.until("model time")
            terminal.prompted(2)
            terminal.type("And now?\r")
            terminal.until(ANSWER, 2)
            first, second = accepted(peer)
            assert peer.ask("status", id=second)["context"] == first
            assert len(server.chats) == 2 * A_CYCLE + 1, "nothing but the call that was cut off was paid for twice"
            assert terminal.left() == 0


def test_ctrl_c_stops_the_answer_and_a_chat_that_was_killed_is_gone_on_with(tmp_path: Path, server: ScriptedOllama) -> None:
    server.fail("stall", when=WRITES)
    with daemon(tmp_path, ollama_host=server.host) as running, Peer(running.endpoint) as peer:
        with chat(tmp_path, running) as terminal:
            terminal.prompted(1)
            terminal.type("I feel stuck\r")
            terminal.until("Rest is part")
            terminal.type("\x03")
            terminal.until("(stopped)")
            server.wait_abandoned()
            (stopped,) = accepted(peer)
            assert peer.ask("status", id=stopped)["error"]["code"] == "cancelled"
            terminal.prompted(2)
            server.hold()
            count = len(server.chats)
            terminal.type("Try again, please\r")
            server.wait_for(count=count + 1)
            terminal.process.send_signal(signal.SIGKILL)
            terminal.process.wait(END_S)
        server.release()
        with chat(tmp_path, running, "--last") as terminal:
            terminal.until("> Try again, please")
            terminal.until(ANSWER)
            terminal.until("model time")
            terminal.prompted(1)
            terminal.type("And now?\r")
            terminal.until("model time", 2)
            ids = accepted(peer)
            assert [peer.ask("status", id=id).get("context") for id in ids] == [None, *ids[:-1]]
            assert terminal.left() == 0


def test_a_question_is_asked_at_the_terminal(tmp_path: Path, server: ScriptedOllama) -> None:
    with (
        daemon(tmp_path, ollama_host=server.host, depth="facets") as running,
        Peer(running.endpoint) as peer,
        chat(tmp_path, running, "--may-ask") as terminal,
    ):
        terminal.prompted(1)
        terminal.type("Find a restaurant for Friday\r")
        terminal.until("the next line answers it")
        terminal.prompted(2)
        terminal.type("At eight, by the window\r")
        terminal.until(ANSWER)
        (id,) = accepted(peer)
        assert peer.ask("status", id=id)["questions"][0]["answer"] == "At eight, by the window"
        assert terminal.left() == 0


def test_out_of_a_pipe_each_line_is_a_turn(tmp_path: Path, server: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=server.host) as running, Peer(running.endpoint) as peer:
        command = [sys.executable, "-m", "batos", "chat", "--connect", running.endpoint]
        given = "I feel stuck\nI feel tired \\\nof it\n"
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=END_S, cwd=ROOT, env=environment(tmp_path), check=False
        )
        assert (done.returncode, done.stdout) == (0, f"{ANSWER}\n{ANSWER}\n"), done.stderr
        first, second = accepted(peer)
        status = peer.ask("status", id=second)
        assert (status["brief"], status["context"]) == ("I feel tired \nof it", first)
