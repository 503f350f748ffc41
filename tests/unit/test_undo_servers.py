"""Undo on images behind a server: ZEO's, and PostgreSQL by RelStorage. The tests are those of a file; what differs is where it lies."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from batos.api.queries import Queries
from batos.image import history, ledger
from tests.support.undo import House, house
from tests.support.undo_contract import (  # noqa: F401
    test_a_part_that_was_changed_again_is_a_conflict_that_names_who_did,
    test_slots_that_came_went_and_changed_are_as_before,
    test_the_undo_is_one_annotated_transaction_and_the_record_says_so,
    test_undo_and_redo_as_often_as_one_likes,
    test_undone_twice_is_undone_once,
    test_what_others_did_to_other_parts_stays,
)

NOBODY = 65534


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A PostgreSQL of the tests' own, on a socket of its own: the beginning of an address, which a database's name completes."""
    pytest.importorskip("relstorage", reason="RelStorage is not installed (the extra `postgres`)")
    pytest.importorskip("psycopg2")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not places and shutil.which("initdb") is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    programs = places[-1].parent if places else Path(shutil.which("initdb") or "").parent
    folder = Path(tempfile.mkdtemp(prefix="batos-pg-"))  # pytest closes its own folders to others, and root's PostgreSQL is nobody's
    data = folder / "data"
    who: dict[str, int] = {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        who = {"user": NOBODY, "group": NOBODY}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program: str, *words: str) -> None:
        with (folder / "log").open("ab") as log:
            subprocess.run([programs / program, *words], stdout=log, stderr=log, cwd="/", timeout=100, check=True, **who)  # type: ignore[call-overload]

    (folder / "log").touch()
    run("initdb", "-D", str(data), "-U", "batos", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    run("pg_ctl", "-D", str(data), "-o", options, "-w", "start")
    try:
        yield f"postgres://batos@127.0.0.1:{port}/"
    finally:
        run("pg_ctl", "-D", str(data), "-m", "fast", "-w", "stop")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def zeo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A ZEO server in a process of its own: the beginning of an address, which a storage's name completes."""
    pytest.importorskip("ZEO", reason="ZEO is not installed (the extra `zeo`)")
    folder = tmp_path_factory.mktemp("zeo")
    stores = "".join(f"<filestorage s{n}>\npath {folder}/s{n}.fs\n</filestorage>\n" for n in range(_STORES))
    (folder / "zeo.conf").write_text(f"<zeo>\naddress {folder}/socket\n</zeo>\n{stores}")
    server = subprocess.Popen([sys.executable, "-m", "ZEO.runzeo", "-C", str(folder / "zeo.conf")], stderr=subprocess.DEVNULL)
    try:
        yield f"zeo://{folder}/socket?wait_timeout=60&storage="
    finally:
        server.terminate()
        server.wait()


_STORES = 20
_taken = iter(range(_STORES))


@pytest.fixture(params=["zeo", "postgres"])
async def at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    base, n = request.getfixturevalue(request.param), next(_taken)
    uri = f"{base}s{n}"
    if request.param == "postgres":
        import psycopg2

        server = psycopg2.connect(f"{base}postgres")
        server.autocommit = True
        server.cursor().execute(f"create database s{n}")
        server.close()
        uri += "?keep_history=1"
    async with house(tmp_path, uri) as opened:
        yield opened


async def test_the_past_is_looked_at_as_in_a_file(at: House) -> None:
    await at.sets("m1", a=1)
    await at.sets("m2", a=2)
    looks = Queries(at.image.db, at.image.snapshot)
    revisions = looks.history("robin", 10)["revisions"]
    assert [one["mission"] for one in revisions][:2] == ["m2", "m1"]
    assert looks.show("robin", revisions[1]["tid"])["slots"]["a"] == 1
    assert looks.diff("robin", revisions[1]["tid"], None)["changes"]
    assert at.image.db.lastTransaction().hex() >= revisions[0]["tid"]
    oid = at.image.read(lambda root: ledger.mission_of(root, "m2")._p_oid)
    assert len(history.revisions(at.image.db, oid, 10)) > 1
