"""The commit thread: groups, isolation, cancellation, and a storage that fails for good."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import importlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from transaction.interfaces import DoomedTransaction, TransientError

from batos.api.dispatcher import Dispatcher
from batos.api.missions import MissionRequests
from batos.api.queries import Queries, QueryRequests
from batos.errors import BatosSignal, ImageError, ImageFailed
from batos.image import LivingImage, ledger
from batos.image.checksummed_storage import base_of
from batos.image.history import revisions
from batos.mind.events import Events
from batos.objects import UvmObject
from batos.wire.schemas import MissionsRequest, WatchRequest


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    image = await LivingImage.open(
        f"file://{tmp_path / 'i.fs'}", steps=(lambda lobby: lobby._slots.setdefault("n", 0),), on_failed=failures.append
    )
    failures.clear()
    yield image
    await image.close()


failures: list[BaseException] = []


class Gate:
    """Holds the commit thread inside a system function, so that what arrives meanwhile is one round."""

    def __init__(self, image: LivingImage) -> None:
        self.image, self.entered, self.go = image, threading.Event(), threading.Event()

    def _hold(self, root: Any) -> None:
        self.entered.set()
        assert self.go.wait(30)

    async def __aenter__(self) -> Gate:
        self.held = asyncio.create_task(self.image.system(self._hold))
        await asyncio.to_thread(self.entered.wait, 30)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.go.set()
        await self.held


def bump(root: Any, by: int = 1) -> int:
    root["lobby"].n += by
    return int(root["lobby"].n)


def fails(root: Any) -> None:
    root["lobby"].n += 1000
    raise LookupError("of this function alone")


def value(image: LivingImage) -> int:
    return int(image.read(lambda root: root["lobby"].n))


async def tasks(*coroutines: Any) -> list[asyncio.Task[Any]]:
    """Started, and run up to their first wait."""
    started = [asyncio.create_task(c) for c in coroutines]
    await asyncio.sleep(0)
    return started


async def test_what_arrives_together_is_one_group_and_one_transaction(image: LivingImage) -> None:
    before = dict(image.committer.stats)
    async with Gate(image):
        started = await tasks(*(image.system(bump, mission=f"m{i}") for i in range(50)))
    assert [await task for task in started] == list(range(1, 51))
    assert image.committer.stats["groups"] == before["groups"] + 2  # the gate's and one more
    assert image.committer.stats["system"] == before["system"] + 51
    newest = revisions(image.db, image.read(lambda root: root["lobby"]._p_oid), 9)
    assert newest[0]["mission"] == " ".join(f"m{i}" for i in range(50))
    assert len(newest) == 2  # and genesis


async def test_a_group_has_a_limit(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}", steps=(lambda lobby: lobby._slots.setdefault("n", 0),), batch=10)
    async with Gate(image):
        groups = image.committer.stats["groups"]
        started = await tasks(*(image.system(bump) for _ in range(25)))
    await asyncio.gather(*started)
    assert image.committer.stats["groups"] == groups + 1 + 3
    await image.close()


async def test_a_result_comes_only_when_it_is_durable(image: LivingImage) -> None:
    for i in range(1, 4):
        assert await image.system(bump) == i
        assert value(image) == i


async def test_a_function_that_fails_takes_nobody_with_it_and_leaves_nothing(image: LivingImage) -> None:
    async with Gate(image):
        started = await tasks(image.system(bump), image.system(fails), image.system(bump))
    assert await started[0] == 1
    with pytest.raises(LookupError, match="of this function alone"):
        await started[1]
    assert await started[2] == 2
    assert value(image) == 2


async def test_what_cannot_be_stored_fails_only_its_function(image: LivingImage) -> None:
    async with Gate(image):
        started = await tasks(image.system(bump), image.system(lambda root: setattr(root["lobby"], "bad", object())), image.system(bump))
    await started[0]
    with pytest.raises(TypeError, match="slot 'bad'"):
        await started[1]
    assert await started[2] == 2


class Signal(BatosSignal):
    pass


@pytest.mark.parametrize("signal", [Signal, SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_no_signal_ends_the_thread(image: LivingImage, signal: type[BaseException]) -> None:
    def raises(root: Any) -> None:
        raise signal("out of a function")

    future = asyncio.ensure_future(asyncio.wait_for(image.committer.system(bump), 90))
    with contextlib.suppress(signal):
        # awaited by hand: a task would hand SystemExit and KeyboardInterrupt to the loop
        await image.committer.system(raises)
    assert await future == 1
    assert await asyncio.wait_for(image.system(bump), 90) == 2


async def test_the_missions_of_a_group_fit_into_its_note(image: LivingImage) -> None:
    async with Gate(image):
        started = await tasks(*(image.system(bump, mission=f"{i:0100}") for i in range(100)))
    await asyncio.gather(*started)
    note = revisions(image.db, image.read(lambda root: root["lobby"]._p_oid), 1)[0]["mission"]
    assert note.endswith(" …")
    assert all(len(name) == 100 for name in note.split()[:-1])
    assert len(note) < 1100


# --- deferred


async def test_deferred_work_rides_with_the_next_group_and_at_the_latest_with_close(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / 'i.fs'}"
    image = await LivingImage.open(uri, steps=(lambda lobby: lobby._slots.setdefault("n", 0),), batch=5)
    groups = image.committer.stats["groups"]
    image.committer.defer(bump)
    image.committer.defer(bump)
    assert value(image) == 0
    assert await image.system(bump) == 3
    assert image.committer.stats["groups"] == groups + 1
    for _ in range(5):  # a batch of them goes by itself
        image.committer.defer(bump)
    await image.system(lambda root: None)
    assert value(image) == 8
    image.committer.defer(bump)
    await image.close()
    image = await LivingImage.open(uri)
    assert value(image) == 9
    await image.close()


async def test_deferred_work_that_fails_hurts_nobody(image: LivingImage) -> None:
    image.committer.defer(fails)
    image.committer.defer(bump)
    assert await image.system(bump) == 2
    assert await image.system(bump) == 3


class Watched(collections.deque[Any]):
    """Who takes from it."""

    def __init__(self) -> None:
        super().__init__()
        self.takers: set[str] = set()

    def popleft(self) -> Any:
        self.takers.add(threading.current_thread().name)
        return super().popleft()


async def test_what_was_deferred_is_taken_by_the_thread_alone(image: LivingImage) -> None:
    """A loop that took from it too, between the thread's count and its taking, once ended the thread."""
    watched = image.committer.deferred = Watched()
    for _ in range(50):
        image.committer.defer(bump)
        image.committer.flush()
        image.committer.defer(bump)
        await image.system(bump)
    assert watched.takers == {"committer"}
    assert await image.system(bump) == 151


# --- units


async def test_a_unit_commits_at_its_end_and_names_the_mission(image: LivingImage) -> None:
    async with image.unit() as unit:
        unit.root["lobby"].n = 5
        unit.note("m1", "COMPLETE by robin")
        oid = unit.root["lobby"]._p_oid
        assert unit.get(oid) is unit.root["lobby"]
    newest = revisions(image.db, oid, 1)[0]
    assert (newest["mission"], newest["note"]) == ("m1", "COMPLETE by robin")
    assert value(image) == 5


@pytest.mark.parametrize("text", ["x" * 100_000, "lone \ud800 surrogate", "", " "])
async def test_no_note_hinders_a_commit(image: LivingImage, text: str) -> None:
    async with image.unit() as unit:
        unit.root["lobby"].n = 5
        unit.note("m1", text)
    assert value(image) == 5


async def test_a_doomed_unit_and_one_that_raises_leave_nothing(image: LivingImage) -> None:
    async with image.unit() as unit:
        unit.root["lobby"].n = 5
        unit.doom()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  the unit's exit is what is tested
        async with image.unit() as unit:
            unit.root["lobby"].n = 5
            _ = 1 / 0
    assert value(image) == 0


async def test_a_doomed_commit_raises_and_the_connection_is_fit_again(image: LivingImage) -> None:
    with pytest.raises(DoomedTransaction):  # noqa: PT012  the unit's exit is what is tested
        async with image.unit() as unit:
            unit.doom()
            await image.committer.commit(unit.connection.transaction_manager)
    assert await image.system(bump) == 1


async def test_a_conflict_comes_out_of_the_unit_and_the_next_attempt_sees_the_other(image: LivingImage) -> None:
    with pytest.raises(TransientError):  # noqa: PT012  the unit's exit is what is tested
        async with image.unit() as unit:
            unit.root["lobby"].n += 10
            await image.system(bump)
    assert value(image) == 1
    async with image.unit() as unit:
        unit.root["lobby"].n += 10
    assert value(image) == 11
    assert image.committer.stats["conflicts"] == 1


async def test_a_unit_sees_the_image_as_it_was_at_its_beginning(image: LivingImage) -> None:
    async with image.unit() as unit:
        await image.system(bump)
        assert unit.root["lobby"].n == 0
    assert value(image) == 1


async def test_many_units_at_once_lose_no_update(image: LivingImage) -> None:
    await image.system(lambda root: [setattr(root["lobby"], f"o{i}", UvmObject(n=0)) for i in range(20)] and None)

    async def one(i: int) -> None:
        for _ in range(5):
            async with image.unit() as unit:
                await asyncio.sleep(0)
                unit.root["lobby"]._slots[f"o{i}"].n += 1

    await asyncio.gather(*(one(i) for i in range(20)))
    assert image.read(lambda root: [root["lobby"]._slots[f"o{i}"].n for i in range(20)]) == [5] * 20


async def test_cancelling_during_the_commit_waits_for_it(image: LivingImage) -> None:
    """Else the connection would go back to its pool while the thread commits it."""

    async def change() -> None:
        async with image.unit() as unit:
            unit.root["lobby"].n = 7

    async with Gate(image) as gate:
        [task] = await tasks(change())
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        gate.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert value(image) == 7
    assert await image.system(bump) == 8


async def test_cancelling_the_one_who_waits_for_a_system_function_does_not_undo_it(image: LivingImage) -> None:
    async with Gate(image):
        [task] = await tasks(image.system(bump))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await image.system(bump) == 2


# --- the end


async def test_closing_commits_what_is_queued_and_refuses_what_comes_after(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / 'i.fs'}"
    image = await LivingImage.open(uri, steps=(lambda lobby: lobby._slots.setdefault("n", 0),))
    async with Gate(image) as gate:
        started = await tasks(*(image.system(bump) for _ in range(5)))
        [closing] = await tasks(image.committer.close())
        with pytest.raises(ImageError, match="closed"):
            await image.system(bump)
        gate.go.set()
        assert [await task for task in started] == [1, 2, 3, 4, 5]
        await closing
    await image.close()
    with pytest.raises(ImageError, match="closed"):
        await image.system(bump)
    image = await LivingImage.open(uri)
    assert value(image) == 5
    await image.close()


def broken(*args: Any) -> None:
    raise OSError(errno.EIO, "Input/output error")


def break_finish(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_of(image.db.storage), "_finish_finish", broken)


def break_fsync(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", broken)


async def unit_that_changes(image: LivingImage) -> None:
    async with image.unit() as unit:
        unit.root["lobby"].n = 70


@pytest.mark.parametrize("breaking", [break_finish, break_fsync])
@pytest.mark.parametrize("what", [lambda image: image.system(bump), unit_that_changes], ids=["system", "unit"])
async def test_a_failing_fsync_is_the_end_and_nobody_hangs(
    image: LivingImage,
    monkeypatch: pytest.MonkeyPatch,
    what: Callable[[LivingImage], Any],
    breaking: Callable[[LivingImage, pytest.MonkeyPatch], None],
) -> None:
    """Neither the one whose commit it was, nor those beside and behind it; nobody is told that it did not happen."""
    assert await image.system(bump) == 1
    async with Gate(image) as gate:
        # The gate's own commit changes nothing, so the first to reach the disk is `what`.
        started = await tasks(what(image), unit_that_changes(image), image.system(bump), unit_that_changes(image))
        breaking(image, monkeypatch)
        gate.go.set()
    for result in await asyncio.gather(*started, return_exceptions=True):
        assert isinstance(result, ImageFailed)
    with pytest.raises(ImageFailed, match="Input/output error"):
        await image.system(bump)
    with pytest.raises(ImageFailed):
        async with image.unit():
            pass
    assert [type(failure) for failure in failures] == [ImageFailed]


async def test_a_full_disk_fails_one_commit_and_the_image_goes_on(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    module = importlib.import_module("ZODB.FileStorage.FileStorage")
    monkeypatch.setattr(module, "cp", full)  # by which it writes a transaction into the file
    for work in (image.system(bump), unit_that_changes(image)):
        with pytest.raises(OSError, match="No space left"):
            await work
        await image.told()  # a group that writes nothing says nothing of the disk
        assert image.facts()["trouble"] == "the image could not be written: No space left on device; make room on its disk"
    assert value(image) == 0
    monkeypatch.undo()
    assert await image.system(bump) == 1
    assert image.facts()["trouble"] == ""
    await unit_that_changes(image)
    assert value(image) == 70
    assert not failures


async def test_one_fsync_serves_all_that_waited(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), real(fd)))
    async with Gate(image) as gate:
        started = await tasks(*(image.system(bump) for _ in range(20)), *(own_object(image, name) for name in ("genesis", "traits")))
        synced.clear()
        gate.go.set()
    await asyncio.gather(*started)
    assert value(image) == 20
    assert image.committer.stats["units"] == 2
    assert len(synced) <= 2  # the gate's own round may have changed nothing


async def own_object(image: LivingImage, name: str) -> None:
    async with image.unit() as unit:
        getattr(unit.root["lobby"], name).n = 1


async def test_what_is_seen_before_it_is_durable_waits_at_the_barrier(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, go_on = threading.Event(), threading.Event()
    real = os.fsync

    def slow(fd: int) -> None:
        syncing.set()
        assert go_on.wait(20)
        real(fd)

    await image.committer.barrier()  # nothing is open: returns at once
    monkeypatch.setattr(os, "fsync", slow)
    bumped = asyncio.create_task(image.system(bump))
    await asyncio.to_thread(syncing.wait, 20)
    assert value(image) == 1  # seen
    barrier = asyncio.create_task(image.committer.barrier())
    await asyncio.sleep(0)
    assert not bumped.done()
    assert not barrier.done()
    go_on.set()
    await barrier
    assert bumped.done()


class Sync:
    """An fsync that waits until it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go_on, self.done, self._real = threading.Event(), threading.Event(), threading.Event(), os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, fd: int) -> None:
        self.began.set()
        assert self.go_on.wait(30)
        self._real(fd)
        self.done.set()


@pytest.mark.parametrize("when", ["before the look", "during the look"])
@pytest.mark.parametrize("op", ["missions", "watch"])
async def test_the_desk_tells_nothing_that_is_not_durable(image: LivingImage, monkeypatch: pytest.MonkeyPatch, op: str, when: str) -> None:
    def end(root: Any) -> None:
        ledger.complete(ledger.mission_of(root, "m"), {"text": ""}, None)

    await image.system(ledger.accept, "m", "b", {}, False)
    part: Any = Mock(live=lambda id: {}, state=lambda id: None)
    following = MissionRequests(image, part, Events(), part, part, ratings=part, watches_per_client=1)
    queries = Queries(image.db, image.snapshot)
    desk = Dispatcher(image, [following, QueryRequests(queries)])
    loop, sync, told = asyncio.get_running_loop(), Sync(monkeypatch), list[tuple[Any, bool]]()
    client = Mock(closed=False, send=lambda reply: told.append((reply, sync.done.is_set())))
    barrier, missions = image.barrier, queries.missions

    def committed() -> None:
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(image.system(end)))
        assert sync.began.wait(30)

    async def at_the_barrier() -> None:
        if when == "during the look" and not sync.began.is_set():
            await asyncio.to_thread(committed)  # while it waits for what came before
            return
        sync.go_on.set()
        await barrier()

    def look(*args: Any) -> Any:
        if when == "during the look":
            committed()
        return missions(*args)

    monkeypatch.setattr(image, "barrier", at_the_barrier)
    monkeypatch.setattr(queries, "missions", look)
    if when == "before the look":
        await asyncio.to_thread(committed)
    try:
        request = MissionsRequest(op="missions", state="COMPLETE") if op == "missions" else WatchRequest(op="watch", id="m")
        await desk.handle(request, client)
    finally:
        sync.go_on.set()
    assert told
    assert all(durable for reply, durable in told if "COMPLETE" in str(reply))


async def test_what_one_turn_of_the_loop_brings_is_one_group(image: LivingImage) -> None:
    before = dict(image.committer.stats)
    await asyncio.gather(*(image.system(bump) for _ in range(200)))
    assert image.committer.stats["groups"] == before["groups"] + 1
    assert image.committer.stats["system"] == before["system"] + 200


async def test_what_was_asked_for_in_the_turn_that_closes_is_committed(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / 'i.fs'}"
    image = await LivingImage.open(uri, steps=(lambda lobby: lobby._slots.setdefault("n", 0),))
    asked = asyncio.ensure_future(image.system(bump))
    image.later(bump)
    await asyncio.sleep(0)  # `asked` has its first turn, in which nobody wakes the thread yet
    await image.close()
    assert await asked == 2  # what was deferred goes first
    image = await LivingImage.open(uri)
    assert value(image) == 2
    await image.close()


async def test_a_transaction_is_gathered_in_memory_and_a_large_one_lets_go_of_it(image: LivingImage) -> None:
    storage = base_of(image.db.storage)

    def held() -> int:
        return int(storage._tfile.getbuffer().nbytes)

    await image.system(lambda root: root["lobby"]._slots.__setitem__("large", UvmObject(text="x" * (9 << 20))))
    assert held() > 9 << 20
    await image.system(bump)
    assert held() < 1 << 20
    assert value(image) == 1
    assert image.read(lambda root: len(root["lobby"].large.text)) == 9 << 20


async def test_who_commits_first_is_told_first(tmp_path: Path) -> None:
    """Also where the loop was busy while both were committed: what searches see is put together in that order."""
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    loop, settled, told = asyncio.get_running_loop(), [], []

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        def call_soon_threadsafe(self, *call: Any) -> None:
            settled.append(call)

    async def unit() -> None:
        async with image.unit() as unit:
            unit.root["a"] = 1
        told.append("unit")

    async def system() -> None:
        await image.system(lambda root: root.update(b=1))
        told.append("system")

    image.committer.loop = Busy()  # type: ignore[assignment]
    tasks = []
    for work in (unit, system):
        tasks.append(asyncio.create_task(work()))
        async with asyncio.timeout(90):
            while len(settled) < len(tasks):
                await asyncio.sleep(0.01)
    for function, *args in settled:
        loop.call_soon(function, *args)
    image.committer.loop = loop
    await asyncio.gather(*tasks)
    assert told == ["unit", "system"]
    await image.close()
