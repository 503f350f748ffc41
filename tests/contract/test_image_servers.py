"""The image on a server, ZEO's and PostgreSQL by RelStorage: one daemon at a time, and a server that goes away and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from BTrees.OOBTree import OOBTree, OOTreeSet
from transaction import TransactionManager
from ZODB.POSException import ConflictError

from batos.errors import ImageAway, ImageError, ImageFailed, ImageLocked
from batos.image import committer, ledger, server
from batos.image.ledger import PendingSet
from batos.image.living_image import LivingImage
from batos.image.scrubber import Walk
from batos.image.storage import open_database
from tests.support import forked
from tests.support.missions import FakeInference, mind, submit
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401

ROOT = Path(__file__).parents[2]
WAIT_S = 60


@pytest.fixture(params=["zeo", "postgres"])
def at(request: pytest.FixtureRequest) -> Postgres | Zeo:
    found: Postgres | Zeo = request.getfixturevalue(request.param)
    return found


def count(root: Any) -> int:
    root["counter"] = root.get("counter", 0) + 1
    return int(root["counter"])


# --- one daemon at a time


async def test_a_second_daemon_is_refused_and_told_who_has_it(at: Postgres | Zeo) -> None:
    uri = at.image()
    image = await LivingImage.open(uri)
    try:
        with pytest.raises(ImageLocked, match=f"process {os.getpid()} on .*--image"):
            await LivingImage.open(uri)
        assert await image.system(count) == 1
    finally:
        await image.close()
    again = await LivingImage.open(uri)
    assert await again.system(count) == 2
    await again.close()


HOLDER = """
import asyncio, sys
from batos import logs
from batos.image.living_image import LivingImage

logs.configure("error", "json")

async def hold():
    image = await LivingImage.open(sys.argv[1])
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


@pytest.fixture
def holders() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        one.send_signal(signal.SIGKILL)
        one.communicate()


def hold(uri: str, holders: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    child = forked.Popen([sys.executable, "-c", HOLDER, uri], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    holders.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


async def test_the_image_of_a_daemon_that_was_killed_is_free_at_once(at: Postgres | Zeo, holders: list[subprocess.Popen[str]]) -> None:
    uri = at.image()
    child = hold(uri, holders)
    with pytest.raises(ImageLocked, match=f"process {child.pid} on"):
        await LivingImage.open(uri)
    child.kill()
    child.wait()
    began, image = time.monotonic(), None
    while image is None:  # PostgreSQL frees the lock when it notices the end of the session
        try:
            image = await LivingImage.open(uri)
        except ImageLocked:
            assert time.monotonic() - began < server.LEASE_S
    assert await image.system(count) == 1
    await image.close()


async def test_a_holder_on_another_machine_is_gone_when_it_renews_nothing(zeo: Zeo, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(server, "LEASE_S", 0.5)
    monkeypatch.setattr(server, "_LOOK_S", 0.1)
    uri = zeo.image()
    monkeypatch.setattr(server, "_boot", lambda: "another machine")
    lost: list[BaseException] = []
    first = await LivingImage.open(uri, on_failed=lost.append)
    monkeypatch.setattr(server, "_boot", lambda: "this machine")
    second = await LivingImage.open(uri)  # `_RENEW_S` is far longer: the first renews nothing meanwhile
    assert await second.system(count) == 1
    with pytest.raises(ImageFailed, match="was taken by"):
        first.use.ensure()
    await first.close()
    assert await second.system(count) == 2  # and the end of the first takes nothing from the second
    second.use.ensure()
    await second.close()


async def test_a_holder_on_another_machine_that_renews_keeps_the_image(zeo: Zeo, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(server, "LEASE_S", 30)
    monkeypatch.setattr(server, "_LOOK_S", 0.1)
    monkeypatch.setattr(server, "_RENEW_S", 0.05)
    uri = zeo.image()
    monkeypatch.setattr(server, "_boot", lambda: "another machine")
    first = await LivingImage.open(uri)
    monkeypatch.setattr(server.ImageUse, "is_alive", lambda use: None)
    with pytest.raises(ImageLocked):
        await LivingImage.open(uri)
    await first.close()


async def test_two_that_make_an_image_at_the_same_moment_make_one(postgres: Postgres) -> None:  # noqa: F811
    for _ in range(3):
        uri = postgres.image()
        children = [
            forked.Popen([sys.executable, "-c", HOLDER, uri], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in range(2)
        ]
        try:
            said = await asyncio.to_thread(_first_end, children)
            assert "ImageLocked" in said, said
        finally:
            for child in children:
                child.kill()
                child.communicate()


def _first_end(children: list[subprocess.Popen[str]]) -> str:
    """What the one that was refused said, once it has ended; the other goes on."""
    ended = threading.Event()
    for child in children:
        threading.Thread(target=lambda one=child: (one.wait(), ended.set()), daemon=True).start()
    assert ended.wait(WAIT_S)
    (refused,) = [child for child in children if child.poll() is not None]
    return refused.communicate()[1]


# --- a server that goes away


async def test_a_commit_that_meets_a_restart_is_in_the_image_once(at: Postgres | Zeo) -> None:
    image = await LivingImage.open(at.image())
    try:
        assert await image.system(count) == 1
        for how in ("fast", "immediate"):
            before = image.read(lambda root: root["counter"])
            await asyncio.to_thread(at.stop, how)
            waiting = [asyncio.create_task(image.system(count)) for _ in range(5)]
            while not image.committer.trouble:
                await asyncio.sleep(0)
            assert "cannot be reached" in image.committer.trouble
            await asyncio.to_thread(at.start)
            found = await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
            assert sorted(found) == [before + n for n in range(1, 6)]
            assert image.read(lambda root: root["counter"]) == before + 5
            assert not image.committer.trouble
    finally:
        await image.close()


async def test_a_commit_whose_answer_was_lost_is_not_done_again(postgres: Postgres) -> None:  # noqa: F811
    """The server commits and the connection ends before it says so: the outcome is unknown to the daemon, until it looks."""
    image = await LivingImage.open(postgres.image())
    storage = image.committer.connection._storage.base
    finish, runs = storage.tpc_finish, []

    def lost(*args: Any, **more: Any) -> Any:
        serial = finish(*args, **more)
        if not runs:
            runs.append(1)
            import psycopg2

            raise psycopg2.OperationalError("server closed the connection unexpectedly")
        return serial

    image.committer.connection._storage.tpc_finish = lost
    try:
        assert await asyncio.wait_for(image.system(count), WAIT_S) == 1
        assert runs
        assert image.read(lambda root: root["counter"]) == 1
        assert await image.system(count) == 2
    finally:
        await image.close()


async def test_a_commit_whose_answer_was_lost_ends_the_daemon_where_no_history_tells_of_it(postgres: Postgres) -> None:  # noqa: F811
    failed: list[BaseException] = []
    uri = postgres.image().replace("keep_history=1", "keep_history=0")
    image = await LivingImage.open(uri, on_failed=failed.append)
    storage, finish = image.committer.connection._storage, image.committer.connection._storage.tpc_finish

    def lost(*args: Any, **more: Any) -> Any:
        import psycopg2

        finish(*args, **more)
        raise psycopg2.OperationalError("server closed the connection unexpectedly")

    storage.tpc_finish = lost
    with pytest.raises(ImageFailed, match="shows at the next start"):
        await asyncio.wait_for(image.system(count), WAIT_S)
    await image.close()
    assert len(failed) == 1
    again = await LivingImage.open(uri)
    try:
        assert again.read(lambda root: root["counter"]) == 1
    finally:
        await again.close()


async def test_a_server_that_is_lost_before_a_commit_begins_leaves_the_committer_at_work(postgres: Postgres) -> None:  # noqa: F811
    image = await LivingImage.open(postgres.image())
    storage = image.committer.connection._storage

    def gone() -> bytes:
        import psycopg2

        raise psycopg2.OperationalError("server closed the connection unexpectedly")

    async def write() -> None:
        async with image.unit() as unit:
            unit.root["written"] = True

    storage.lastTransaction = gone
    writing = asyncio.create_task(write())
    while not writing.done():
        assert image.committer.thread.is_alive()
        await asyncio.sleep(0.01)
    assert isinstance(writing.exception(), ConflictError), "it is tried again"
    del storage.lastTransaction
    await write()
    await image.close()


async def test_all_that_waits_for_a_server_at_the_end_waits_for_it_together(
    postgres: Postgres,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committer, "_CLOSING_S", 2.0)
    image = await LivingImage.open(postgres.image())
    begun, go = asyncio.Semaphore(0), asyncio.Event()

    async def write(name: str) -> None:
        async with image.unit() as unit:
            unit.root[name] = True
            begun.release()
            await go.wait()

    writing = [asyncio.create_task(write(f"slot{n}")) for n in range(6)]
    for _ in writing:
        await begun.acquire()
    await asyncio.to_thread(postgres.stop)
    try:
        go.set()
        while not image.committer.trouble:
            await asyncio.sleep(0)
        began = time.monotonic()
        await image.close()
        assert time.monotonic() - began < 6 * 2.0, "not each of the six its own two seconds"
        assert {type(one) for one in await asyncio.gather(*writing, return_exceptions=True)} == {ImageAway}
    finally:
        await asyncio.to_thread(postgres.start)


async def test_a_server_that_stands_still_does_not_hold_up_the_end(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(server, "_LOOK_S", 0.01)
    monkeypatch.setattr(server, "_ENDING_S", 0.1)
    image = await LivingImage.open(postgres.image())
    use: Any = image.use
    [(session,)] = postgres.ask(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32 | objid::bigint) ="
        f" {server.LOCK} AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        image.uri.rpartition("/")[2].partition("?")[0],
    )
    os.kill(session, signal.SIGSTOP)
    try:
        while not use.asking.locked():  # a look begins and stays
            await asyncio.sleep(0.01)
        await asyncio.wait_for(asyncio.shield(closing := asyncio.create_task(image.close())), WAIT_S)
    finally:
        os.kill(session, signal.SIGCONT)
        await closing


async def test_reads_say_that_the_server_is_away(postgres: Postgres) -> None:  # noqa: F811
    image = await LivingImage.open(postgres.image())
    kept = image.kept(lambda root: dict(root["lobby"]._slots))
    try:
        await asyncio.to_thread(postgres.stop)
        with pytest.raises(ImageAway):
            image.read(lambda root: dict(root["lobby"]._slots))
        with pytest.raises(ImageAway):
            kept()
        with pytest.raises(ImageAway):
            async with image.unit() as unit:
                dict(unit.root["lobby"]._slots)
    finally:
        await asyncio.to_thread(postgres.start)
        await image.close()


async def test_a_server_that_is_not_there_is_told_with_a_remedy() -> None:
    with pytest.raises(ImageError, match="check that its server runs") as raised:
        open_database("postgres://nobody:hidden@127.0.0.1:1/none?keep_history=1", cache_size=400, pool_size=7)
    assert "nobody:…@" in str(raised.value)
    assert "hidden" not in str(raised.value)


async def test_another_that_took_the_image_while_its_server_was_away_ends_this_daemon(postgres: Postgres) -> None:  # noqa: F811
    failed: list[BaseException] = []
    uri = postgres.image()
    image = await LivingImage.open(uri, on_failed=failed.append)
    use: Any = image.use
    with use.asking:  # the watch of this daemon does not come first
        postgres.ask("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'batos, %'")
        database = uri.rpartition("/")[2].partition("?")[0]
        import psycopg2

        other = psycopg2.connect(
            host="127.0.0.1", port=postgres.port, user="batos", dbname=database, application_name="batos, process 1 on x"
        )
        other.autocommit = True
        other.cursor().execute("select pg_advisory_lock(%s)", (server.LOCK,))
    async with asyncio.timeout(WAIT_S):
        while not failed:
            await asyncio.sleep(0.01)
    assert isinstance(failed[0], ImageFailed)
    assert "process 1 on x" in str(failed[0])
    other.close()
    await image.close()


# --- conflicts, the walk, sessions


async def test_conflicts_that_trees_resolve_are_resolved(at: Postgres | Zeo) -> None:
    uri = at.image()
    first, second = (open_database(uri, cache_size=400, pool_size=7) for _ in range(2))
    one, two = TransactionManager(explicit=True), TransactionManager(explicit=True)
    a, b = first.open(one), second.open(two)
    one.begin()
    a.root()["set"], a.root()["pending"], a.root()["tree"] = OOTreeSet(["x"]), PendingSet(["x"]), OOBTree({"x": 1})
    one.commit()
    one.begin(), two.begin()
    while "tree" not in b.root():  # ZEO tells other clients of a commit a moment later
        two.abort()
        two.begin()
    a.root()["set"].insert("p"), b.root()["set"].insert("q")
    a.root()["pending"].insert("p"), b.root()["pending"].insert("q")
    a.root()["tree"]["p"], b.root()["tree"]["q"] = 1, 2
    one.commit(), two.commit()
    expected = (["p", "q", "x"], ["p", "q", "x"], {"p": 1, "q": 2, "x": 1})

    def seen() -> Any:
        one.abort()
        one.begin()
        return list(a.root()["set"]), list(a.root()["pending"]), dict(a.root()["tree"])

    one.begin()
    async with asyncio.timeout(WAIT_S):
        while seen() != expected:  # ZEO tells the others soon
            await asyncio.sleep(0.01)
    one.abort()
    for connection, db in ((a, first), (b, second)):
        connection.close()
        db.close()


async def test_the_walk_finds_nothing_where_nothing_is_wrong(at: Postgres | Zeo) -> None:
    image = await LivingImage.open(at.image())
    walk = Walk(image.db)
    while not walk.rounds:
        assert await asyncio.to_thread(walk.step, 20) == []
        await image.system(count)  # others write meanwhile
    assert walk.checked >= len(image.db.storage) - 5
    assert walk.facts()["damages"] == 0
    await image.close()


async def test_no_session_rests_in_a_transaction(postgres: Postgres) -> None:  # noqa: F811
    """It would hold vacuum back for as long as the daemon rests."""
    uri = postgres.image()
    image = await LivingImage.open(uri)
    await image.system(count)
    image.read(lambda root: root["counter"])
    image.facts()
    image.db.storage.lastTransaction()
    database = uri.rpartition("/")[2].partition("?")[0]
    query = f"select query from pg_stat_activity where datname = '{database}' and state = 'idle in transaction'"
    async with asyncio.timeout(WAIT_S):
        while postgres.ask(query):  # the daemon's own watch is in one for a moment, at each of its looks
            await asyncio.sleep(0.01)
    await image.close()


# --- missions, while the server is away


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_missions_go_on_when_the_server_is_back_and_each_ends_once(postgres: Postgres, tmp_path: Path, how: str) -> None:  # noqa: F811
    inference = FakeInference()
    async with mind(tmp_path, inference, image=postgres.image(), concurrent_missions=8) as kernel:
        inference.hold()
        heard = [await submit(kernel, f"m{n}", depth="direct") for n in range(6)]
        await inference.came(6)
        await asyncio.to_thread(postgres.stop, how)
        inference.release()  # what they answer is journaled and committed while the server is away
        late = asyncio.create_task(submit(kernel, "late", depth="direct"))
        while not kernel.image.committer.trouble:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(postgres.start)
        async with asyncio.timeout(WAIT_S):
            ends = [await one.end() for one in [*heard, await late]]
        assert [(end["state"], end.get("error")) for end in ends] == [("COMPLETE", None)] * 7
        records = kernel.image.read(lambda root: {id: ledger.record_of(root, id) for id in ("m0", "m5", "late")})
        assert {record.state for record in records.values()} == {"COMPLETE"}
        assert len(inference.asked) == 7  # what was answered while the server was away is not paid for again
        assert not kernel.image.committer.trouble


FULL = """
create function full_disk() returns trigger as $$ begin raise exception 'no space' using errcode = '53100'; end $$ language plpgsql;
create trigger full_disk before insert on object_state for each row execute function full_disk();
"""


async def test_a_full_disk_of_the_server_is_told_as_one_and_commits_go_on_when_there_is_room(postgres: Postgres) -> None:  # noqa: F811
    uri = postgres.image()
    database = uri.rpartition("/")[2].partition("?")[0]
    image = await LivingImage.open(uri)
    assert await image.system(count) == 1
    postgres.ask(FULL, database)
    with pytest.raises(OSError, match="No space left on device: 'the disk of PostgreSQL'"):
        await image.system(count)
    with pytest.raises(OSError, match="No space left on device"):
        async with image.unit() as unit:
            unit.root["written"] = True
    assert "make room on its disk" in image.committer.trouble
    postgres.ask("drop trigger full_disk on object_state", database)
    assert await image.system(count) == 2
    assert not image.committer.trouble
    assert image.read(lambda root: "written" in root) is False
    await image.close()
