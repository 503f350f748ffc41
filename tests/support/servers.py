"""Servers of images for tests: a PostgreSQL and a ZEO of their own, which a test may stop and start."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
_numbers = itertools.count()


class Postgres:
    """A PostgreSQL on a port of its own of loopback."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._data, self._log = programs, folder / "data", folder / "log"
        self._who: dict[str, int] = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._log.touch()
        self._run("initdb", "-D", str(self._data), "-U", "batos", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
        self.start()

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        with self._log.open("ab") as log:
            subprocess.run(command, stdout=log, stderr=log, cwd="/", timeout=100, check=True, **self._who)  # type: ignore[call-overload]

    def start(self) -> None:
        """Start it, and return when it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
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
        return f"postgres://batos@127.0.0.1:{self.port}/{name}?keep_history=1"


class Zeo:
    """A ZEO server with several storages, in a process of its own."""

    STORES = 20

    def __init__(self, folder: Path) -> None:
        self._folder, self._next = folder, itertools.count()
        stores = "".join(f"<filestorage s{n}>\npath {folder}/s{n}.fs\n</filestorage>\n" for n in range(self.STORES))
        (folder / "zeo.conf").write_text(f"<zeo>\naddress {folder}/socket\n</zeo>\n{stores}")
        self.start()

    def start(self) -> None:
        """Start it; clients wait for it."""
        command = [sys.executable, "-m", "ZEO.runzeo", "-C", str(self._folder / "zeo.conf")]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def stop(self, how: str = "fast") -> None:
        """Stop it; `immediate` is as a crash."""
        self._process.kill() if how == "immediate" else self._process.terminate()
        self._process.wait()

    def image(self) -> str:
        """The address of a new, empty storage."""
        return f"zeo://{self._folder}/socket?wait_timeout=5&storage=s{next(self._next)}"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of the tests' own."""
    pytest.importorskip("relstorage", reason="RelStorage is not installed (the extra `postgres`)")
    pytest.importorskip("psycopg2")
    with postgres_server() as server:
        yield server


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL for the block."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not places and shutil.which("initdb") is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    programs = places[-1].parent if places else Path(shutil.which("initdb") or "").parent
    folder = Path(tempfile.mkdtemp(prefix="batos-pg-"))  # pytest closes its own folders to others, and root's PostgreSQL is nobody's
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    server = Postgres(programs, folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def zeo() -> Iterator[Zeo]:
    """A ZEO server of the tests' own."""
    pytest.importorskip("ZEO", reason="ZEO is not installed (the extra `zeo`)")
    with zeo_server() as server:
        yield server


@contextmanager
def zeo_server() -> Iterator[Zeo]:
    """A ZEO server for the block."""
    folder = Path(tempfile.mkdtemp(prefix="batos-zeo-"))  # short: the path of a socket has a limit
    server = Zeo(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
