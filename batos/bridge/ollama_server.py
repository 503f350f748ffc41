"""The Ollama server: use one that answers, else start one, watch it, and stop it with the daemon.

The child runs on a free loopback port with its models in the data folder. It is restarted on the same port when it dies or hangs. When the
daemon is killed the child dies too (`launcher`); a child that survives all the same is stopped at the next start.

Such a process group is recorded on disk with values that a recycled pid cannot match. These are the start time of the process and the boot
of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Literal

import structlog

from batos import private_files
from batos.bridge.client import connect, version_of
from batos.concurrency import cancel_and_wait
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import OllamaUnavailable

TERM_S = 5.0  # seconds between SIGTERM and SIGKILL
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ServiceLimits(Limits):
    """Limits of an Ollama that the daemon starts."""

    start_s: float = limit(60.0, gt=0, le=600)
    """Seconds for a started Ollama to answer."""
    broken_pull_days: float = limit(7.0, ge=0, le=3650)
    """Days for which the parts of an interrupted pull are kept."""


@dataclass(frozen=True, slots=True)
class ProcessNote:
    """A child that leads its own process group and session: `started` in clock ticks since boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessNote:
        """Return the note of a running process."""
        stat = _stat(pid)
        return cls(pid, stat.started if stat else 0, _boot())

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        private_files.write(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> ProcessNote | None:
        """Return the note in a file; None if there is none, or it was cut short by a crash."""
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def members(self) -> list[int]:
        """Return the processes of the group that are still alive: a killed leader may leave its children behind.

        A pid is not given anew while a group of that number exists, so session, group and start time tell them apart
        from strangers.
        """
        if self.boot != _boot():
            return []
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := _stat(int(name))) is not None:
                alive = stat.state not in "ZX"
                if alive and stat.group == self.pid and stat.session == self.pid and stat.started >= self.started:
                    found.append(int(name))
        return found

    def end(self) -> int:
        """Stop the whole group: SIGTERM, then SIGKILL. Blocks for up to `TERM_S` and a bit. Answers how many there were."""
        count = len(self.members())
        for how, wait_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, TERM_S)):
            deadline = time.monotonic() + wait_s
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            while self.members() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            if not self.members():
                break
        return count


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    group: int
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain any characters, including spaces and brackets
    return _Stat(fields[0], int(fields[2]), int(fields[3]), int(fields[19]))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return ""


def exclusive_lock(path: Path) -> IO[bytes] | None:
    """Return an exclusive lock on a file, held until the returned file is closed or the process dies; None if another has it."""
    private_files.make(path.parent)
    file = private_files.extend(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


log = structlog.get_logger(__name__)

State = Literal["stopped", "starting", "external", "running", "restarting"]

DEFAULT_HOST = "127.0.0.1:11434"
POLL_S = 0.05  # seconds between two checks whether a starting server answers
BACKOFF_S, BACKOFF_LIMIT_S = 0.25, 30.0  # seconds before the first restart, doubled up to the limit
STEADY_S = 60.0  # seconds after which a child counts as stable, and the back-off restarts
PORT_ATTEMPTS = 3  # another process may take the free port before Ollama does
STOP_S = 5.0
LOG_LIMIT = 16 * 1024 * 1024  # bytes above which the log is rotated
LOOK_S = 60.0  # seconds between two checks of a child: of its answer and of the size of its log
SAY_S = 20.0  # seconds for an answer; even a busy Ollama answers in milliseconds, but the machine may be short of memory
HUNG_LOOKS = 5  # checks without an answer after which the child hangs. In all less time than missions wait (`RetryPolicy.outage_wait_s`)
LOG_TAIL = 600  # characters of the log that an error shows
NO_BINARY = "run `make ollama`, or install Ollama, or set inference.host to one that runs"


def find_binary(settings: Settings) -> Path | None:
    """Return the `ollama` to start: on PATH, built in this checkout, or in the data folder."""
    root = Path(__file__).parents[2]
    on_path = shutil.which("ollama")
    places = [Path(on_path)] if on_path else []
    places += [root / "build" / "ollama" / "bin" / "ollama", settings.data / "bin" / "ollama"]
    return next((p for p in places if os.access(p, os.X_OK) and p.is_file()), None)


async def version_at(host: str) -> str | None:
    """Return the version of the Ollama at `host`; None if none answers in time."""
    async with connect(host) as client:
        return await version_of(client)


class OllamaService:
    """Finds or runs the server. `start` says where it is; `stop` ends what `start` started."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.data / "ollama"
        self._note_path = self._folder / "child.json"
        self._state: State = "stopped"
        self._host = self._version = ""
        self._port = 0
        self._restarts = 0
        self._child: asyncio.subprocess.Process | None = None
        self._note: ProcessNote | None = None
        self._claim: IO[bytes] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """Return the state. `external`: another process's server; `running`: own child; `restarting`: the child died or hung, and
        restarts.
        """
        return self._state

    @property
    def host(self) -> str:
        """Return the address of the server, which stays after a restart. Empty before `start`."""
        return self._host

    @property
    def version(self) -> str:
        """Return the version that the server reported at the start; empty if it did not answer."""
        return self._version

    @property
    def restarts(self) -> int:
        """Return the number of restarts of the child after it died or hung."""
        return self._restarts

    @property
    def models_folder(self) -> Path | None:
        """Return the child's folder of models; None for a server that was found, whose folder is unknown."""
        return None if self._state == "external" else self._folder / "models"

    @property
    def pid(self) -> int | None:
        """Return the process id of the child; None without a child."""
        return self._child.pid if self._child is not None else None

    async def start(self) -> str:
        """Find a server or start one. Return its address. A configured one that does not answer is waited for if none can be started.

        :raises OllamaUnavailable: if none answers, none is configured and none can be started, with the remedy.
        :raises ConfigError: if `inference.host` is not a valid address.
        """
        named = self._settings.inference.host
        self._state = "starting"
        try:
            version = await version_at(named or DEFAULT_HOST)
            if version is not None:
                self._state, self._host, self._version = "external", named or DEFAULT_HOST, version
                return self._host
            binary = find_binary(self._settings)
            if binary is None and named:  # the server may start later than this machine
                log.warning("no Ollama answers at the given address; what needs it waits", ollama_host=named, remedy=NO_BINARY)
                self._state, self._host = "external", named
                return named
            if binary is None:
                raise OllamaUnavailable(f"no Ollama answers at {DEFAULT_HOST}, and there is no `ollama` to start: {NO_BINARY}")
            if named:
                log.warning("no Ollama answers at the given address; starting one", ollama_host=named, binary=str(binary))
            await self._start_child(binary)
        except BaseException:
            await self.stop()
            raise
        return self._host

    async def stop(self) -> None:
        """End the child, its runners included. A server that was found is left alone."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            await cancel_and_wait(watcher)
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            child.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), STOP_S)
        await self._clear_group()
        if self._claim is not None:
            self._claim.close()
            self._claim = None
        self._state = "stopped"

    # --- child process

    async def _start_child(self, binary: Path) -> None:
        self._claim = await asyncio.to_thread(exclusive_lock, self._folder / "child.lock")
        if self._claim is None:
            raise OllamaUnavailable(f"another daemon runs an Ollama in {self._folder}; stop it, or give this one another data folder")
        left = ProcessNote.read(self._note_path)
        if left is not None and (ended := await asyncio.to_thread(left.end)):
            log.warning("stopped what a former daemon left behind", pid=left.pid, processes=ended)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._port = free_port()
            self._host = f"127.0.0.1:{self._port}"
            try:
                await self._spawn(binary)
                break
            except OllamaUnavailable:
                await self._clear_group()
                if attempt == PORT_ATTEMPTS or "address already in use" not in self._log_tail():
                    raise
        self._state = "running"
        self._watcher = asyncio.create_task(self._watch(binary), name="ollama-watcher")

    async def _spawn(self, binary: Path) -> None:
        """Start the child and wait until it answers.

        :raises OllamaUnavailable: when it ends or stays silent, with the end of its log.
        """
        launcher = Path(__file__).with_name("launcher.py")
        with self._open_log() as output:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(launcher), str(os.getpid()), *self.environment(), "--", str(binary), "serve",
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._note = ProcessNote.of(self._child.pid)
        self._note.write(self._note_path)
        deadline = time.monotonic() + ServiceLimits.of(self._settings).start_s
        while (version := await version_at(self._host)) is None:
            if self._child.returncode is not None:
                raise OllamaUnavailable(f"{binary} ended with status {self._child.returncode} at its start: {self._log_tail()}")
            if time.monotonic() > deadline:
                limit = f"{ServiceLimits.of(self._settings).start_s:g} s"
                raise OllamaUnavailable(f"{binary} did not answer at {self._host} within {limit}: {self._log_tail()}")
            await asyncio.sleep(POLL_S)
        self._version = version
        log.info("ollama started", host=self._host, version=version, pid=self._child.pid)

    def environment(self) -> list[str]:
        """Return the child's environment as NAME=VALUE; its keys are kept in the data folder too."""
        return [
            f"OLLAMA_HOST={self._host}",
            f"OLLAMA_MODELS={self._folder / 'models'}",
            *(["OLLAMA_NOPRUNE=1"] if self._has_broken_pulls() else []),
            f"OLLAMA_NUM_PARALLEL={self._settings.inference.concurrency}",
            f"HOME={self._folder}",
        ]

    def _has_broken_pulls(self) -> bool:
        """Return True if parts of layers wait for a pull to resume. Ollama would delete them at its start, with other unused blobs."""
        oldest = time.time() - ServiceLimits.of(self._settings).broken_pull_days * 86400
        return any(part.stat().st_mtime > oldest for part in (self._folder / "models" / "blobs").glob("*-partial"))

    async def _watch(self, binary: Path) -> None:
        """Start the child again whenever it dies, or hangs."""
        backoff = BACKOFF_S
        while self._child is not None:
            born = time.monotonic()
            status = await self._over(self._child)
            self._state = "restarting"
            if time.monotonic() - born > STEADY_S:
                backoff = BACKOFF_S
            happened = "died" if status is not None else "hangs"
            log.error(f"ollama {happened}; starting it again", pid=self._child.pid, status=status, backoff_s=backoff)
            while True:
                await self._clear_group()
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, BACKOFF_LIMIT_S)
                try:
                    await self._spawn(binary)
                    break
                except (OllamaUnavailable, OSError) as e:
                    log.error("ollama could not be started again", error=str(e), backoff_s=backoff)
            self._restarts += 1
            self._state = "running"

    async def _over(self, child: asyncio.subprocess.Process) -> int | None:
        """Wait until the child ends or hangs, and keep its log short. Return its status; None if it hangs.

        One that is busy says its version all the same. Looks are counted, and not seconds: the daemon may have been asleep itself.
        """
        ending, silent = asyncio.ensure_future(child.wait()), 0
        try:
            async with connect(self._host) as client:
                while silent < HUNG_LOOKS:
                    await asyncio.wait([ending], timeout=LOOK_S)
                    await asyncio.to_thread(self._shorten_log)
                    if ending.done():
                        return ending.result()
                    silent = 0 if await version_of(client, SAY_S) is not None else silent + 1
                    if silent:
                        log.warning("ollama does not say its version", pid=child.pid, times=silent, of=HUNG_LOOKS)
            return None
        finally:
            ending.cancel()

    async def _clear_group(self) -> None:
        """End the processes that the child left in its group: runners outlive a killed server."""
        note, self._note = self._note, None
        if note is not None:
            await asyncio.to_thread(note.end)
            self._note_path.unlink(missing_ok=True)

    def _open_log(self) -> IO[bytes]:
        path = self._settings.data / "logs" / "ollama.log"
        private_files.make(path.parent)
        if path.exists() and path.stat().st_size > LOG_LIMIT:
            path.replace(path.with_suffix(".log.1"))
        return private_files.extend(path)

    def _shorten_log(self) -> None:
        """Set a long log aside while the child writes it: the child appends, and goes on at the beginning."""
        path = self._settings.data / "logs" / "ollama.log"
        aside = path.with_suffix(".log.1")
        with contextlib.suppress(OSError):
            if path.stat().st_size > LOG_LIMIT:
                try:
                    with path.open("rb") as log, private_files.renew(aside) as copy:
                        shutil.copyfileobj(log, copy)
                except OSError:  # the disk has no space for both
                    aside.unlink(missing_ok=True)
                os.truncate(path, 0)

    def _log_tail(self) -> str:
        path = self._settings.data / "logs" / "ollama.log"
        try:
            return path.read_text("utf-8", "replace")[-LOG_TAIL:].strip()
        except OSError:
            return ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
