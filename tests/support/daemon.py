"""A real daemon, `python -m batos run`, as a child of a test, and what its clients do."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import zmq

from batos.bridge.model_builder import BuiltModels, blob_digest, recipe_from_source
from batos.bridge.profiles import load_profile
from batos.config import former
from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.replies import checked

ROOT = Path(__file__).parents[2]
START_S, END_S, REPLY_S = 120, 90, 90


class Daemon:
    """One process. `started` returns when missions are let in."""

    def __init__(
        self, folder: Path, *, listen: str = "tcp://127.0.0.1:*", program: Sequence[str] = ("-m", "batos"), **settings: Any
    ) -> None:
        """
        :param program: what runs in the place of `python -m batos`, with its words.
        """
        staging = folder / "lora_staging"  # never that of the checkout: somebody may have put something there
        staging.mkdir(parents=True, exist_ok=True)
        assignments = {
            "autotelic": "off",
            "lora_staging": staging,
            "folders": folder.parent,  # what its clients may name: over TCP without keys they are strangers
            "retry_backoff_s": 0.05,
            "shutdown_s": 3,
            "linger_s": 0.5,
            "log_format": "json",
            "doors.enabled": "off",  # their address is one for the whole machine
            **settings,
        }
        command = [sys.executable, *program, "run", "--data", str(folder), "--listen", listen]
        for name, value in assignments.items():
            command += ["--set", f"{former.RENAMED.get(name, name)}={value}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
        environment["PYTHONPATH"] = str(ROOT)
        folder.mkdir(parents=True, exist_ok=True)
        note_built(str(settings.get("ollama_host", "")), folder / "ollama")
        self.process: subprocess.Popen[str] = forked.Popen(
            command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        self.endpoint = ""
        self.log: list[dict[str, Any]] = []  # what it logged, so far
        self.noise: list[str] = []  # lines of standard error that are no log: tracebacks, warnings
        self.report = ""  # what it printed
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read_log, args=(self.process.stderr,)),
            threading.Thread(target=self._read_report, args=(self.process.stdout,)),
        ]
        for reader in self._readers:
            reader.start()

    def _read_log(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                try:
                    entry = json.loads(line)
                except ValueError:
                    self.noise.append(line)
                    continue
                self.log.append(entry)
                self._lines.put(entry)
        self._lines.put(None)

    def _read_report(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.report += line

    def started(self, timeout_s: float = START_S) -> Daemon:
        """Wait until missions are let in."""
        self.endpoint = self.logged("started", timeout_s)["endpoints"][0]
        return self

    def logged(self, event: str | tuple[str, ...], timeout_s: float = REPLY_S, **fields: Any) -> dict[str, Any]:
        """The next line of the log of that name, or of one of these, with these fields."""
        events = (event,) if isinstance(event, str) else event
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                entry = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event!r} in the log within {timeout_s} s; it says {self.log[-30:]} {self.noise}") from None
            assert entry is not None, f"the daemon ended without {event!r}: {self.process.poll()} {self.log[-5:]} {self.noise}"
            if entry.get("event") in events and all(entry.get(name) == value for name, value in fields.items()):
                return entry

    def ended(self, timeout_s: float = END_S) -> int:
        """Wait for its end; the exit code."""
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.process.kill()
        self.ended()


@contextmanager
def daemon(folder: Path, **settings: Any) -> Iterator[Daemon]:
    """A daemon that has started; ended with the block at the latest."""
    process = Daemon(folder, **settings)
    try:
        yield process.started()
    finally:
        if process.process.poll() is None:
            process.kill()
        else:
            process.ended()


def provisioned(server: ScriptedOllama) -> ScriptedOllama:
    """A scripted Ollama that has the base models as a former start left them, and their files: no upload of weights before each test."""
    for source in load_profile("embedded").models:
        digests = [_digest(path) for path in source.paths().values()]
        server.blobs.update(dict.fromkeys(digests, b""))
        made = {"template": source.template} if source.template else {}
        server.models[source.name] = dataclasses.replace(
            server.models[source.name], weights=digests[0].removeprefix("sha256:"), parameters=source.parameters, **made
        )
    _PROVISIONED[server.host] = server
    return server


_PROVISIONED: dict[str, ScriptedOllama] = {}


def built(server: ScriptedOllama, path: Path | None = None) -> BuiltModels:
    """What a start before notes of the base models of a server that is `provisioned`: weights that are written anew for Ollama are so no
    second time, which takes two seconds and 150 MB."""
    noted = BuiltModels(path)
    for source in load_profile("embedded").models:
        recipe = recipe_from_source(source)
        digests = {file: _digest(file) for file in recipe.paths}
        noted.note(source.name, server.models[source.name].digest, recipe.fingerprint(digests, ""))
    return noted


def note_built(host: str, folder: Path) -> None:
    """The same for a daemon that has a data folder of its own, whose folder `ollama` this is."""
    server = _PROVISIONED.get(host)
    if server is not None and server.running and not folder.exists():
        for name in ("built.json", f"built-{re.sub(r'[^a-zA-Z0-9]+', '-', host)}.json"):
            built(server, folder / name)


@functools.cache
def _digest(path: Path) -> str:
    return blob_digest(path)


class Peer:
    """A client of nothing but pyzmq and JSON. Each reply is held against the reference of replies."""

    def __init__(self, endpoint: str, kind: int = zmq.DEALER) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, REPLY_S * 1000)
        self.socket.connect(endpoint)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    def send(self, op: str, **fields: Any) -> None:
        self.socket.send_json({"op": op, **fields})

    def reply(self, op: str = "") -> dict[str, Any]:
        """The next reply.

        :param op: the operation that it answers, if that is known.
        """
        return checked(json.loads(self.socket.recv()), op)

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self.send(op, **fields)
        return self.reply(op)

    def result(self, id: str) -> dict[str, Any]:
        """The result of a mission, waited for."""
        deadline = time.monotonic() + REPLY_S
        while (answer := self.ask("result", id=id, wait_s=30))["type"] != "result":
            assert answer["type"] == "status", answer
            assert time.monotonic() < deadline, answer
        return answer

    def until_result(self) -> list[dict[str, Any]]:
        """All replies up to the next result or error."""
        replies = [self.reply()]
        while replies[-1]["type"] not in ("result", "error"):
            replies.append(self.reply())
        return replies


A_CYCLE = 5  # inferences of ROBIN's: plan, three facets, answer


def batos(running: Daemon, *words: str) -> tuple[int, Any]:
    """A verb of the command line; its exit code, and what it printed as JSON, the last document of it."""
    command = [sys.executable, "-m", "batos", *words, "--connect", running.endpoint, "--json"]
    done = forked.run(command, capture_output=True, text=True, timeout=END_S, cwd=ROOT)
    assert done.stderr == "", done.stderr
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:  # one document a line
        return done.returncode, json.loads(done.stdout.splitlines()[-1])


def embedded(peer: Peer) -> dict[str, Any]:
    """What the memory holds, once all chunks have their vectors."""
    deadline = time.monotonic() + END_S
    while (told := peer.ask("memory"))["waiting"] != {"files": 0, "sections": 0}:
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    return told


def sources(found: dict[str, Any]) -> list[str]:
    return [Path(hit["source"]).name for hit in found["hits"]]


def until(so: Callable[[], object], what: str = "", limit_s: float = END_S) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + limit_s
    while not so():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


def sent(peer: Peer, id: str, target: str, selector: str, *args: Any) -> dict[str, Any]:
    assert peer.ask("send", id=id, target=target, selector=selector, args=list(args), write=True)["type"] == "accepted"
    result = peer.result(id)
    assert result["state"] == "COMPLETE", result
    return result


def done(running: Daemon, *words: str) -> Any:
    """What a verb says that succeeds."""
    code, said = batos(running, *words)
    assert code == 0, said
    return said


def last_asked(running: Daemon, op: str, **fields: Any) -> None:
    """Ask a daemon for what has it killed, and wait for its end. Whether a reply leaves before the kill is chance."""
    with Peer(running.endpoint) as peer:
        peer.send(op, **fields)
        running.ended()


def question_of(running: Daemon, id: str) -> str:
    """The question at which a mission waits."""
    with Peer(running.endpoint) as peer:
        until(lambda: peer.ask("status", id=id).get("question"))
        return str(peer.ask("status", id=id)["question"]["question"])


def result_of(running: Daemon, id: str) -> dict[str, Any]:
    with Peer(running.endpoint) as peer:
        return peer.result(id)
