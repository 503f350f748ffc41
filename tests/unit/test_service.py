"""The Ollama service on the real binary: found, started, watched over, stopped, and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from batos.app.kernel import Kernel
from batos.bridge import ollama_server
from batos.bridge.ollama_server import OllamaService, ProcessNote, exclusive_lock, find_binary, version_at
from batos.config import Settings, load
from batos.errors import ConfigError, OllamaUnavailable
from batos.testing import ScriptedOllama
from tests.support import missions
from tests.support.daemon import provisioned
from tests.support.missions import WAIT_S, submit

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _nobody_at_the_default_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own Ollama is not what these tests are about."""
    monkeypatch.setattr(ollama_server, "DEFAULT_HOST", "127.0.0.1:1")


@pytest.fixture
def settings(tmp_path: Path, ollama_binary: Path) -> Settings:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ollama").symlink_to(ollama_binary)
    return load({"data": str(tmp_path), "ollama_start_s": 30}, environ={})


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[OllamaService]:
    made = OllamaService(settings)
    yield made
    await made.stop()


async def until(true: Callable[[], bool], timeout_s: float = 30) -> None:
    """Wait for another process."""
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_a_child_is_started_and_stopped(service: OllamaService, settings: Settings) -> None:
    host = await service.start()
    assert host.startswith("127.0.0.1:")
    assert service.state == "running"
    assert service.version == await version_at(host) == "0.21.0"
    assert service.pid is not None
    pid = service.pid
    await service.stop()
    assert service.state == "stopped"
    assert not alive(pid)
    assert await version_at(host) is None
    assert (settings.data / "logs" / "ollama.log").stat().st_size
    assert not (settings.data / "ollama" / "child.json").exists()
    assert (settings.data / "ollama" / ".ollama").is_dir()  # its keys too: nothing outside the data folder


async def test_a_child_that_dies_is_started_again(service: OllamaService) -> None:
    host = await service.start()
    for times in (1, 2):
        pid = service.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda n=times: service.restarts == n)  # type: ignore[misc]
        assert service.state == "running"
        assert service.pid != pid
        assert await version_at(host)


async def test_one_that_answers_is_used_as_it_is(scripted: ScriptedOllama, tmp_path: Path) -> None:
    service = OllamaService(load({"data": str(tmp_path), "ollama_host": scripted.host}, environ={}))
    assert await service.start() == scripted.host
    assert (service.state, service.pid) == ("external", None)
    await service.stop()
    assert await version_at(scripted.host)
    assert not (tmp_path / "ollama").exists()


async def test_one_at_the_default_port_is_found(scripted: ScriptedOllama, service: OllamaService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama_server, "DEFAULT_HOST", scripted.host)
    assert await service.start() == scripted.host
    assert service.state == "external"


async def test_an_address_where_none_answers_falls_back(settings: Settings) -> None:
    service = OllamaService(settings.model_copy(update={"ollama_host": "127.0.0.1:1"}))
    assert await service.start() != "127.0.0.1:1"
    assert service.state == "running"
    await service.stop()


async def test_none_and_no_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama_server, "find_binary", lambda settings: None)
    service = OllamaService(load({"data": str(tmp_path)}, environ={}))
    with pytest.raises(OllamaUnavailable, match="make ollama"):
        await service.start()
    assert service.state == "stopped"


async def test_one_that_was_named_is_waited_for_where_none_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines come up in any order: the daemon starts, and its missions wait as through any outage."""
    monkeypatch.setattr(ollama_server, "find_binary", lambda settings: None)
    with ScriptedOllama() as server:
        provisioned(server).stop()
        kernel = await Kernel.start(
            missions.settings(tmp_path, ollama_host=server.host, breaker_probe_s=0.05, provision_retry_s=3600), listen=False
        )
        try:
            heard = await submit(kernel, "m1", persona="robin")
            async with asyncio.timeout(WAIT_S):
                while not kernel.substrate.outage():
                    await asyncio.sleep(0.01)
            assert kernel.info()["ollama"]["state"] == "external"
            server.start()
            assert (await heard.end())["state"] == "COMPLETE"
        finally:
            await kernel.stop()


async def test_an_address_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"inference\.host"):
        await OllamaService(load({"data": str(tmp_path), "ollama_host": "127.0.0.1:notaport"}, environ={})).start()


@pytest.mark.parametrize(
    ("script", "says"), [("echo no such flag >&2; exit 3", "status 3.*no such flag"), ("exec sleep 60", "did not answer")]
)
async def test_a_binary_that_does_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str) -> None:
    program = tmp_path / "ollama"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(ollama_server, "find_binary", lambda settings: program)
    service = OllamaService(load({"data": str(tmp_path / "data"), "ollama_start_s": 1}, environ={}))
    with pytest.raises(OllamaUnavailable, match=f"(?s){says}"):
        await service.start()
    assert service.state == "stopped"
    assert service.pid is None


async def test_a_port_that_is_taken_is_not_the_last_word(
    service: OllamaService, scripted: ScriptedOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = ollama_server.free_port
    ports = iter([int(scripted.host.rpartition(":")[2])])
    scripted.fail("status_500", times=None, path="/api/version")
    monkeypatch.setattr(ollama_server, "free_port", lambda: next(ports, 0) or free())
    assert await service.start() != scripted.host
    assert service.state == "running"


TALKS = f"""#!{sys.executable}
import http.server, os
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"version": "0.0.1"}}')
host, port = os.environ["OLLAMA_HOST"].split(":")
http.server.HTTPServer((host, int(port)), Answers).serve_forever()
"""
"""Answers, and writes a line for each request."""


async def test_the_log_of_a_child_that_lives_for_long_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ollama").write_text(TALKS)
    (tmp_path / "bin" / "ollama").chmod(0o755)
    monkeypatch.setattr(ollama_server, "find_binary", lambda settings: tmp_path / "bin" / "ollama")
    monkeypatch.setattr(ollama_server, "LOG_LIMIT", 1000)
    monkeypatch.setattr(ollama_server, "LOOK_S", 0.01)
    service, log = OllamaService(load({"data": str(tmp_path)}, environ={})), tmp_path / "logs" / "ollama.log"
    host = await service.start()
    try:
        pid = service.pid
        async with asyncio.timeout(WAIT_S):
            aside = tmp_path / "logs" / "ollama.log.1"
            while not (aside.exists() and aside.stat().st_size > 1000):  # it is there before it is whole
                assert await version_at(host)
        assert await version_at(host)
        async with asyncio.timeout(WAIT_S):
            while not log.stat().st_size:
                await version_at(host)
        assert log.read_bytes()[:1] != b"\0", "it goes on at the beginning"
        assert (service.pid, service.restarts) == (pid, 0)
    finally:
        await service.stop()


@pytest.fixture
async def talking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OllamaService]:
    """One whose child says its version and nothing else; it is looked at often."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ollama").write_text(TALKS)
    (tmp_path / "bin" / "ollama").chmod(0o755)
    monkeypatch.setattr(ollama_server, "find_binary", lambda settings: tmp_path / "bin" / "ollama")
    monkeypatch.setattr(ollama_server, "LOOK_S", 0.01)
    monkeypatch.setattr(ollama_server, "TERM_S", 0.2)  # a stopped one takes no SIGTERM
    service = OllamaService(load({"data": str(tmp_path)}, environ={}))
    await service.start()
    yield service
    await service.stop()


async def test_a_child_that_hangs_is_ended_and_started_again(talking: OllamaService, monkeypatch: pytest.MonkeyPatch) -> None:
    host, pid = talking.host, talking.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(ollama_server, "SAY_S", 0.1)
    await until(lambda: talking.restarts > 0)
    monkeypatch.setattr(ollama_server, "SAY_S", 20)
    assert not alive(pid)
    assert (talking.state, talking.host) == ("running", host)
    assert talking.pid != pid
    assert await version_at(host)


async def test_a_child_that_is_silent_now_and_then_is_left_alone(talking: OllamaService, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be short of memory for a while: only a silence without any answer counts."""
    pid, looks, enough = talking.pid, 0, asyncio.Event()

    async def says(client: object, within_s: float) -> str | None:
        nonlocal looks
        looks += 1
        if looks > 20 * ollama_server.HUNG_LOOKS:
            enough.set()
        return "0.0.1" if looks % ollama_server.HUNG_LOOKS == 0 else None

    monkeypatch.setattr(ollama_server, "version_of", says)
    async with asyncio.timeout(WAIT_S):
        await enough.wait()
    assert (talking.pid, talking.restarts, talking.state) == (pid, 0, "running")


async def test_two_daemons_on_one_data_folder(service: OllamaService, settings: Settings) -> None:
    host = await service.start()
    second = OllamaService(settings)
    with pytest.raises(OllamaUnavailable, match="another daemon"):
        await second.start()
    assert second.state == "stopped"
    assert await version_at(host)


DAEMON = """
import asyncio, sys
from batos.bridge import ollama_server as service
from batos.bridge.client import OllamaInference, connect
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.bridge.inference import ChatRequest
from batos.config import load

service.DEFAULT_HOST = "127.0.0.1:1"

async def main():
    ollama = service.OllamaService(load({"data": sys.argv[1]}, environ={}))
    host = await ollama.start()
    async with connect(host) as client:
        profile = load_profile("embedded")
        small = profile.model_copy(update={"models": profile.models[:1], "embedder": "smollm2:embedded", "personas": {}})
        await Provisioner(client, small, modelfiles_folder()).ensure()
    await OllamaInference(host).chat(ChatRequest("smollm2:embedded", "", "Hi", None, (("num_predict", 2),)), deadline_s=60)
    print(ollama.pid, host, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def daemon(settings: Settings) -> subprocess.Popen[str]:  # type: ignore[misc]
    """A process of its own that runs an Ollama with a model in memory."""
    command = [sys.executable, "-c", DAEMON, str(settings.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        yield process  # type: ignore[misc]
        process.kill()


def said(process: subprocess.Popen[str]) -> tuple[int, str]:
    assert process.stdout is not None
    for line in process.stdout:
        word, _, host = line.strip().partition(" ")
        if word.isdigit():
            return int(word), host
    raise AssertionError("the daemon ended early")


async def test_a_killed_daemon_leaves_no_orphan(daemon: subprocess.Popen[str], settings: Settings) -> None:
    pid, host = await asyncio.to_thread(said, daemon)
    note = ProcessNote.read(settings.data / "ollama" / "child.json")
    assert note is not None
    members = note.members()
    assert pid in members
    assert len(members) >= 2  # the server and its runner
    daemon.kill()
    await until(lambda: not any(alive(m) for m in members))
    assert await version_at(host) is None


async def test_what_is_left_all_the_same_is_stopped_at_the_next_start(
    daemon: subprocess.Popen[str], settings: Settings, service: OllamaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ollama_server, "TERM_S", 0.2)
    pid, _ = await asyncio.to_thread(said, daemon)
    note = ProcessNote.read(settings.data / "ollama" / "child.json")
    assert note is not None
    members = note.members()
    runners = [m for m in members if m != pid]
    # A stopped server cannot take its SIGTERM, a runner never gets one: both outlive their daemon.
    os.kill(pid, signal.SIGSTOP)
    daemon.kill()
    daemon.wait()
    assert alive(pid)
    assert all(alive(m) for m in runners)
    await service.start()
    assert service.pid not in members
    assert not any(alive(m) for m in members)


async def test_runners_go_with_a_server_that_was_killed(daemon: subprocess.Popen[str], settings: Settings) -> None:
    pid, host = await asyncio.to_thread(said, daemon)
    note = ProcessNote.read(settings.data / "ollama" / "child.json")
    assert note is not None
    runners = [m for m in note.members() if m != pid]
    assert runners
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not any(alive(m) for m in runners))
    deadline = time.monotonic() + 30
    while await version_at(host) is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def test_a_note_of_another_process_ends_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        try:
            real = ProcessNote.of(stranger.pid)
            assert real.members() == [stranger.pid]
            for other in (ProcessNote(real.pid, real.started + 1, real.boot), ProcessNote(real.pid, real.started, "another boot")):
                other.write(tmp_path / "note")
                assert ProcessNote.read(tmp_path / "note") == other
                assert other.end() == 0
            assert stranger.poll() is None
            assert real.end() == 1
        finally:
            stranger.kill()
    assert ProcessNote.read(tmp_path / "missing") is None
    (tmp_path / "note").write_text('{"pid": 1')
    assert ProcessNote.read(tmp_path / "note") is None


def test_a_claim_is_exclusive(tmp_path: Path) -> None:
    first = exclusive_lock(tmp_path / "deep" / "lock")
    assert first is not None
    assert exclusive_lock(tmp_path / "deep" / "lock") is None
    first.close()
    again = exclusive_lock(tmp_path / "deep" / "lock")
    assert again is not None
    again.close()


def test_where_a_binary_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ollama"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    settings = load({"data": str(tmp_path)}, environ={})
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_binary(settings) != program  # not executable
    program.chmod(0o755)
    assert find_binary(settings) == program


def test_parts_of_a_broken_pull_are_kept_for_a_time(settings: Settings) -> None:
    """Ollama drops them at its start, unless it is told to drop nothing."""
    service = OllamaService(settings)
    assert "OLLAMA_NOPRUNE=1" not in service.environment()
    part = settings.data / "ollama" / "models" / "blobs" / "sha256-0-partial"
    part.parent.mkdir(parents=True)
    part.touch()
    assert "OLLAMA_NOPRUNE=1" in service.environment()
    old = time.time() - (settings.broken_pull_days + 1) * 86400
    os.utime(part, (old, old))
    assert "OLLAMA_NOPRUNE=1" not in service.environment()
