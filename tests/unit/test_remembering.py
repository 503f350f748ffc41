"""Missions as memory, and memory by messages."""

from __future__ import annotations

import asyncio
import datetime
import errno
import functools
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transaction.interfaces import TransientError

from batos.app.kernel import Kernel
from batos.errors import ImageDamaged, InferenceFailed
from batos.image import ledger
from batos.image.mission_record import MissionRecord
from batos.memory.chunking import ChunkLimits
from batos.memory.records import Numbers
from batos.memory.section_builder import KnownNames, Shelver
from batos.memory.segments import Segment
from batos.memory.store import epoch_of, library_of
from batos.missions import memory_writer
from tests.support import missions
from tests.support.missions import FakeInference, Listened, give, submit

mind = functools.partial(missions.mind, remember="off")  # each test does it itself


class FakeMemory:
    """Numbers and a shelver; what searches would see is a list."""

    def __init__(self, epoch: int) -> None:
        self.shelver = Shelver(Numbers(epoch), ChunkLimits(), KnownNames())
        self.seen: list[tuple[list[int], list[int]]] = []

    def stored(self, segment: Segment | None, dropped: list[int]) -> None:
        self.seen.append(([] if segment is None else segment.ids.tolist(), dropped))

    async def recall(self, question: str) -> Sequence[int]:
        return [number for ids, _ in self.seen for number in ids]


async def with_memory(kernel: Kernel) -> FakeMemory:
    memory = FakeMemory(kernel.image.read(epoch_of))
    give(kernel, memory=memory)
    return memory


def remembering_of(kernel: Kernel, memory: FakeMemory) -> memory_writer.MemoryWriter:
    return memory_writer.MemoryWriter(kernel.image, shelver=memory.shelver, stored=memory.stored, section_chars=20_000, pause_s=0)


async def ended(kernel: Kernel, id: str, brief: str, **options: Any) -> dict[str, Any]:
    return await (await submit(kernel, id, brief, **options)).end()


async def sent(kernel: Kernel, id: str, target: str, selector: str, *args: Any) -> dict[str, Any]:
    heard, message = Listened(kernel, id), {"target": target, "selector": selector, "args": args, "kwargs": {}}
    await kernel.scheduler.submit(id, f"{target} {selector}", {"message": json.dumps(message)})
    return await heard.end()


def documents(kernel: Kernel) -> list[dict[str, Any]]:
    def read(root: Any) -> list[dict[str, Any]]:
        library = library_of(root)
        names = ("source", "kind", "title", "mission", "tags")
        return [
            {**{name: getattr(one, name) for name in names}, "text": "".join(chunk.text for chunk in library.chunks_of(one))}
            for one in library.documents.values()
        ]

    return kernel.image.read(read)  # type: ignore[no-any-return]


async def test_what_was_answered_and_what_failed_becomes_memory_once(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("it broke", cause="malformed") if "wheel" in request.user else None
    async with mind(tmp_path, inference, mission_attempts=1) as kernel:
        memory = await with_memory(kernel)
        await ended(kernel, "m1", "Plan the garden\nwith beans")
        assert (await ended(kernel, "m2", "Plan the wheel"))["state"] == "FAILED"
        await ended(kernel, "m3", "What did you do?", origin="system")
        work = remembering_of(kernel, memory)
        assert await work.write_batch()
        assert not await work.write_batch(), "and nothing twice"
        garden, wheel = documents(kernel)
        assert (garden["source"], garden["kind"], garden["title"], garden["mission"]) == ("mission:m1", "mission", "Plan the garden", "m1")
        assert garden["text"].startswith("Plan the garden\nwith beans\n\nTake one small step")
        assert garden["tags"] == ("brick",)
        assert wheel["kind"] == "failure"
        assert "This failed (inference_failed): it broke" in wheel["text"]
        assert [len(ids) for ids, _ in memory.seen] == [2]
    async with mind(tmp_path, FakeInference()) as kernel:
        assert not await remembering_of(kernel, await with_memory(kernel)).write_batch(), "nor after a restart"


async def test_a_mission_that_ends_after_a_rest_is_remembered_at_once(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        memory, now, stored = await with_memory(kernel), itertools.count(step=4000), asyncio.Event()
        work = memory_writer.MemoryWriter(
            kernel.image,
            shelver=memory.shelver,
            stored=lambda segment, dropped: stored.set() if segment is not None else None,
            section_chars=20_000,
            pause_s=3600,
            clock=lambda: float(next(now)),
        )
        task = asyncio.create_task(work.run(kernel.bus))
        await ended(kernel, "m1", "My name is Kim.")
        await asyncio.wait_for(stored.wait(), 90)
        task.cancel()
        assert {one["kind"] for one in documents(kernel)} == {"mission", "statement"}


async def test_a_mission_that_goes_on_holds_up_none_behind_it_and_is_not_forgotten(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        work = remembering_of(kernel, await with_memory(kernel))
        inference.hold()
        heard = await submit(kernel, "held", "Plan the long way")
        await inference.came(1)
        await kernel.scheduler.pause("held")
        inference.release()
        for i in range(3):
            await ended(kernel, f"m{i}", f"Plan the day {i}")
        while await work.write_batch():
            pass
        assert {one["mission"] for one in documents(kernel)} == {"m0", "m1", "m2"}
        await kernel.scheduler.resume("held")
        await heard.end()
        assert await work.write_batch()
        assert {one["mission"] for one in documents(kernel)} == {"held", "m0", "m1", "m2"}


async def test_many_missions_are_remembered_in_several_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_writer, "_BATCH", 2)
    monkeypatch.setattr(memory_writer, "_STRETCH", 3)
    async with mind(tmp_path, FakeInference()) as kernel:
        work = remembering_of(kernel, await with_memory(kernel))
        heard = [await submit(kernel, f"m{i}", f"Plan the day {i}") for i in range(7)]
        for one in heard:
            await one.end()
        rounds = 0
        while await work.write_batch():
            rounds += 1
        assert rounds >= 4
        assert sorted(one["mission"] for one in documents(kernel)) == [f"m{i}" for i in range(7)]


async def test_a_transaction_that_is_repeated_after_a_crash_keeps_nothing_twice(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        memory = await with_memory(kernel)
        await ended(kernel, "m1", "Plan the garden")
        until, still_open, found = kernel.image.read(memory_writer.missions_to_remember)
        kept = remembering_of(kernel, memory).prepared(found)
        for _ in range(2):
            await kernel.image.system(memory_writer.store_remembered, kept, None, (0, ()), until, still_open)
        assert len(documents(kernel)) == 1


async def test_missions_remember_recall_and_forget_by_messages(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        memory = await with_memory(kernel)
        result = await sent(kernel, "m1", "memory", "remember_", "The key is under the third stone.", "Keys")
        assert result["state"] == "COMPLETE", result
        (note,) = documents(kernel)
        assert (note["kind"], note["title"], note["mission"], note["text"]) == ("note", "Keys", "m1", "The key is under the third stone.")
        (first,) = memory.seen
        again = await sent(kernel, "m2", "memory", "remember_", "The key is under the third stone.")
        assert again["result"]["value"] == result["result"]["value"]
        assert len(documents(kernel)) == 1
        found = await sent(kernel, "m3", "memory", "recall_", "where is the key?")
        assert len(found["result"]["value"]) == 1
        assert result["result"]["value"]["oid"]
        refused = await sent(kernel, "m4", "memory", "remember_", "  ")
        assert refused["error"]["code"] == "invalid"
        assert memory.seen == [first]


async def test_what_a_cycle_remembered_that_met_a_conflict_is_there_once(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), mission_attempts=1) as kernel:
        memory = await with_memory(kernel)
        commit = kernel.image.committer.commit
        left = itertools.count()

        async def conflict(tm: Any) -> None:
            if next(left) < 2:
                raise TransientError("a conflict")
            await commit(tm)

        kernel.image.committer.commit = conflict  # type: ignore[method-assign]
        result = await sent(kernel, "m1", "memory", "remember_", "Only once, whatever happens.")
        assert result["state"] == "COMPLETE"
        assert len(memory.seen) == 1
        assert len(documents(kernel)) == 1


async def test_a_full_disk_and_a_damaged_mission_hold_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, describe, kept = memory_writer.store_remembered, ledger.describe, asyncio.Event()
    full = [OSError(errno.ENOSPC, "No space left on device")] * 4  # the committer tries the jobs of a group once more, each alone

    def stored(root: Any, *args: Any) -> bool:
        if full:
            raise full.pop()
        return store(root, *args)

    def damaged(mission: Any) -> MissionRecord:
        if mission.id == "m1":
            raise ImageDamaged("it is damaged")
        return describe(mission)

    async with mind(tmp_path, FakeInference()) as kernel:
        memory = await with_memory(kernel)
        await ended(kernel, "m1", "I feel stuck")
        await ended(kernel, "m2", "I feel sad")
        monkeypatch.setattr(memory_writer, "store_remembered", stored)
        monkeypatch.setattr(memory_writer, "RETRY_S", 0)
        monkeypatch.setattr(memory_writer.ledger, "describe", damaged)
        monkeypatch.setattr(memory, "stored", lambda *_: kept.set())
        task = asyncio.create_task(remembering_of(kernel, memory).run(kernel.bus))
        hears = asyncio.create_task(kept.wait())
        await asyncio.wait([hears, task], timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert (kept.is_set(), task.done()) == (True, False)
        assert [one["source"] for one in documents(kernel)] == ["mission:m2"]
        task.cancel()


async def test_what_was_lived_is_of_the_day_that_the_clock_on_the_wall_showed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `today` and `yesterday` of a question are."""
    evening = datetime.datetime(2026, 11, 24, 2, 30, tzinfo=datetime.UTC).timestamp()  # in California, the evening of the 23rd
    monkeypatch.setenv("TZ", "PST8")
    time.tzset()
    try:
        async with mind(tmp_path, FakeInference()) as kernel:
            memory = await with_memory(kernel)
            await ended(kernel, "m1", "I feel stuck")
            await sent(kernel, "m2", "memory", "remember_", "The cat sleeps on the piano.")

            def then(root: Any) -> None:
                for id in ("m1", "m2"):
                    ledger.mission_of(root, id).finished = evening

            await kernel.image.system(then)
            while await remembering_of(kernel, memory).write_batch():
                pass
            days = kernel.image.read(lambda root: {one.source: one.day for one in library_of(root).documents.values()})
            assert datetime.date.fromordinal(days["mission:m1"]) == datetime.date(2026, 11, 23)
            note = next(day for source, day in days.items() if source.startswith("note:"))
            accepted = kernel.image.read(lambda root: ledger.mission_of(root, "m2").accepted)
            assert datetime.date.fromordinal(note) == datetime.date.fromtimestamp(accepted)
    finally:
        monkeypatch.undo()
        time.tzset()
