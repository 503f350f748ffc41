"""Servers of images for tests: a PostgreSQL and a ZEO of their own, which a test may stop and start."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
PORTS = range(20_000, 30_000)
START_S = 100
_numbers = itertools.count()


def free_port() -> int:
    """Return a port of loopback that stays free for this process until it, or a server that it starts, listens there.

    It is below those that the system gives to programs that ask for any. An abstract socket of its number keeps it from other tests.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as mark, socket.socket() as probe:
            if sys.platform == "linux":
                mark.bind(f"\0batos-tests-port-{port}")
            probe.bind(("127.0.0.1", port))
            os.dup(mark.fileno())  # held until this process ends
            return port
    raise AssertionError(f"no port of {PORTS} is free")


class Postgres:
    """A PostgreSQL on a port of its own of loopback."""

    def __init__(self, programs: Path, folder: Path, data: Path | None = None, within: Sequence[str] = (), host: str = "127.0.0.1") -> None:
        """
        :param data: its data folder, where there is one: a copy of another server, made by `pg_basebackup`.
        :param within: what runs its programs, such as `ip netns exec NAME`.
        :param host: the address that it listens at.
        """
        self._within, self._host = within, host
        self._programs, self.folder, self._data, self._log = programs, folder, data or folder / "data", folder / "log"
        self._who: dict[str, int] = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 and not within else {}
        self.port = free_port()
        self._log.touch()
        if data is not None:
            self.start()
            return
        self._run("initdb", "-D", str(self._data), "-U", "batos", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
        with (self._data / "pg_hba.conf").open("a") as who:
            who.write(f"host all all {host}/24 trust\n")
        self.start()

    def _run(self, program: str, *words: str) -> None:
        command = [*self._within, str(self._programs / program), *words]
        with self._log.open("ab") as log:
            subprocess.run(command, stdout=log, stderr=log, cwd="/", timeout=100, check=True, **self._who)  # type: ignore[call-overload]

    def run(self, program: str, *words: str) -> None:
        """Run a client program of PostgreSQL with this server."""
        self._run(program, "-h", self._host, "-p", str(self.port), "-U", "batos", *words)

    def shell(self, words: str, folder: Path) -> None:
        """Run words of a page in a folder, where this server is the one that PostgreSQL's programs ask."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PATH": f"{self._programs}:{os.environ['PATH']}", "PGHOST": self._host, "PGPORT": str(self.port), "PGUSER": "batos"}
        command = ["bash", "--noprofile", "--norc", "-c", words]
        with self._log.open("ab") as log:
            subprocess.run(command, stdout=log, stderr=log, cwd=folder, env=environment, timeout=100, check=True, **self._who)  # type: ignore[call-overload]

    def start(self) -> None:
        """Start it, and return when it answers."""
        options = f"-p {self.port} -c listen_addresses={self._host} -c unix_socket_directories='' -c fsync=off"
        self._run("pg_ctl", "-D", str(self._data), "-o", options, "-w", "start")

    def stop(self, how: str = "fast") -> None:
        """Stop it; `immediate` is as a crash."""
        self._run("pg_ctl", "-D", str(self._data), "-m", how, "-w", "stop")

    def ask(self, question: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """The rows of an answer, asked in a session of its own."""
        import psycopg2

        server = psycopg2.connect(host="127.0.0.1", port=self.port, user="batos", dbname=database)
        try:
            server.autocommit = True
            cursor = server.cursor()
            cursor.execute(question)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            server.close()

    def image(self) -> str:
        """The address of a new, empty database."""
        name = f"s{next(_numbers)}"
        self.ask(f"create database {name}")
        return self.address(name)

    def address(self, name: str) -> str:
        """The address of the image in a database."""
        return f"postgres://batos@{self._host}:{self.port}/{name}?keep_history=1"


class Zeo:
    """A ZEO server with several storages, in a process of its own."""

    STORES = 20

    def __init__(self, folder: Path) -> None:
        self._folder, self._next = folder, itertools.count()
        stores = "".join(f"<filestorage s{n}>\npath {folder}/s{n}.fs\n</filestorage>\n" for n in range(self.STORES))
        (folder / "zeo.conf").write_text(f"<zeo>\naddress {folder}/socket\n</zeo>\n{stores}")
        self.start()

    def start(self) -> None:
        """Start it, and return when it answers: on a busy machine its imports take longer than a client waits for it."""
        command = [sys.executable, "-m", "ZEO.runzeo", "-C", str(self._folder / "zeo.conf")]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, f"the ZEO server ended with {self._process.returncode}"
            assert time.monotonic() < deadline, f"no answer from the ZEO server within {START_S} s"
            time.sleep(0.02)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            client.connect(f"{self._folder}/socket")
            return True
        return False

    def stop(self, how: str = "fast") -> None:
        """Stop it; `immediate` is as a crash."""
        self._process.kill() if how == "immediate" else self._process.terminate()
        self._process.wait()

    def image(self) -> str:
        """The address of a new, empty storage."""
        return f"zeo://{self._folder}/socket?wait_timeout=5&storage=s{next(self._next)}"


def programs() -> Path:
    """The folder of PostgreSQL's programs."""
    _needs("relstorage", "psycopg2")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not places and shutil.which("initdb") is None:
        _missing("PostgreSQL is not installed (Debian: postgresql)")
    return places[-1].parent if places else Path(shutil.which("initdb") or "").parent


def folder_of_server() -> Path:
    """A folder that a PostgreSQL may write to: pytest closes its own to others, and root's PostgreSQL is nobody's."""
    folder = Path(tempfile.mkdtemp(prefix="batos-pg-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return folder


def _needs(*modules: str) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is None:
            _missing(f"{name} is not installed (the extras `postgres` and `zeo`)")


def _missing(what: str) -> None:
    """Skip, but never where continuous integration runs: it says NEED_SERVERS."""
    if os.environ.get("NEED_SERVERS") or os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of the tests' own."""
    with postgres_server() as server:
        yield server


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL for the block."""
    where, folder = programs(), folder_of_server()
    server = Postgres(where, folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def zeo() -> Iterator[Zeo]:
    """A ZEO server of the tests' own."""
    with zeo_server() as server:
        yield server


@contextmanager
def zeo_server() -> Iterator[Zeo]:
    """A ZEO server for the block."""
    _needs("ZEO")
    folder = Path(tempfile.mkdtemp(prefix="batos-zeo-"))  # short: the path of a socket has a limit
    server = Zeo(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
