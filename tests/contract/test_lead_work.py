"""The work of the leader of several kernels: whole daemons' minds in one process on one PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.errors import LedElsewhere
from batos.image import committer, kernels, ledger, notices
from batos.image.notice_channels import ChannelSpec
from batos.memory.ingest import next_file, queue_files
from batos.memory.store import library_of
from batos.schedules import book
from batos.wire import schemas
from tests.support.kernels import until
from tests.support.leaders import AFTER, BEFORE, Seizure, daemon, leads
from tests.support.missions import FakeInference, settings, submit
from tests.support.notices import world
from tests.support.servers import Postgres, postgres  # noqa: F401

HOUR = 3600.0


class Slow(FakeInference):
    """A model that takes its time."""

    async def chat(self, request: Any, **more: Any) -> Any:
        await asyncio.sleep(0.05)
        return await super().chat(request, **more)


@contextlib.asynccontextmanager
async def two(
    postgres: Postgres,  # noqa: F811
    folder: Path,
    inference: FakeInference | None = None,
    **more: Any,
) -> AsyncIterator[tuple[Kernel, Kernel]]:
    """Two kernels, the first of which leads."""
    uri = postgres.image()
    async with daemon(uri, folder / "a", inference, **more) as one:
        await leads(one)
        async with daemon(uri, folder / "b", inference, **more) as other:
            yield one, other


def ids(kernel: Kernel, prefix: str) -> list[str]:
    return kernel.image.read(lambda root: [id for id in ledger.ledger_of(root).missions if id.startswith(prefix)])


def sources(kernel: Kernel) -> dict[str, int]:
    """Documents by source."""
    return kernel.image.read(lambda root: Counter(one.source for one in library_of(root).documents.values()))


def due_schedule(root: Any) -> None:
    """A schedule that was due half an hour ago."""
    spec = book.ScheduleSpec("report", "every hour", "every 3600 from 0", "UTC", "Say what is new", "", book.ONCE, 0, book.RUN)
    book.add(root, spec, time.time() - 1.5 * HOUR)


async def test_the_leader_alone_works_and_another_kernel_takes_it_over(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    async with two(postgres, tmp_path, autotelic="on") as (one, other):
        assert one.loop.heartbeat is not None
        assert (other.loop.heartbeat, other.loop.leash, other.membership.leads) == (None, None, False)
        await one.membership.drain()
        await leads(other)
        assert (one.loop.heartbeat, other.loop.heartbeat is not None) == (None, True)
        assert other.image.read(lambda root: root["lobby"].autotelic.leash.deaths) == 0


async def test_what_is_said_at_any_kernel_the_leader_does(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    async with two(postgres, tmp_path) as (one, other):
        await other.image.system(due_schedule)
        await until(lambda: len(ids(one, "schedule-report")) == 1, "the run of a schedule that was added at another kernel")
        with world() as heard:
            spec = ChannelSpec("hook", "hook", heard.url, on=("failure",))
            await other.image.system(notices.add_channel, spec, time.time())
            note = notices.Notice("failure", "m1", time.time(), "FAILED: m1")
            await other.image.system(notices.note, note)
            await until(lambda: heard.told == ["m1"], "what a mission of another kernel has told")


@pytest.mark.parametrize(
    "request_of",
    [
        lambda folder: schemas.IngestRequest(op="ingest", paths=[str(folder)]),
        lambda folder: schemas.FolderAddRequest(op="folder_add", folder=str(folder), brief="Read {text}"),
        lambda folder: schemas.CurateRequest(op="curate"),
    ],
)
async def test_what_only_the_leader_can_do_others_refuse_with_its_name(postgres: Postgres, tmp_path: Path, request_of: Any) -> None:  # noqa: F811
    async with two(postgres, tmp_path) as (_, other):
        await until(lambda: other.membership.others(), "the other kernel")
        with pytest.raises(LedElsewhere, match=r"that is k\.1.*ask there") as refused:
            await other.transport.dispatcher.handle(request_of(tmp_path), None)  # type: ignore[arg-type]
        assert refused.value.context["kernel"] == "k.1"


async def seized(one: Kernel, other: Kernel, seizure: Seizure) -> None:
    """Return when the other kernel leads and has done the work, and the first is awake again, under another name."""
    await until(lambda: seizure.done, "the step at which the lead is taken")
    await until(lambda: not one.membership.leads and one.membership.name == "k.3", "a new name")
    await one.membership.settled()
    assert other.membership.leads
    assert other.image.read(kernels.lead_of) == ("k.2", 2), "one term after the other, one kernel in each"


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_schedule_makes_one_mission_of_a_time(postgres: Postgres, tmp_path: Path, when: str) -> None:  # noqa: F811
    async with two(postgres, tmp_path) as (one, other):
        seizure = Seizure(one, other, "accept schedule-report", when, lambda: other.image.read(book.load, "report").runs)
        await one.image.system(due_schedule)
        await seized(one, other, seizure)
        assert len(ids(other, "schedule-report")) == len(other.image.read(book.load, "report").runs) == 1


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", ["accept self_audit", "plan "])
async def test_a_beat_makes_one_audit(postgres: Postgres, tmp_path: Path, step: str, when: str) -> None:  # noqa: F811
    inference, uri = FakeInference(), postgres.image()
    inference.hold()
    more = {"autotelic": "on", "heartbeat_first_s": 1.0, "heartbeat_s": 3600}
    async with daemon(uri, tmp_path / "a", inference, **more) as one:
        await one.scheduler.submit("m0", "What is in the garden?", {})  # a beat waits for quiet, and that for the test
        await leads(one)
        async with daemon(uri, tmp_path / "b", **more) as other:

            def beats() -> int:
                return int(other.image.read(lambda root: root["lobby"].autotelic.heartbeat.beats))

            seizure = Seizure(one, other, step, when, beats)
            inference.release()
            await seized(one, other, seizure)
            assert (beats(), len(ids(other, "self_audit"))) == (1, 1)


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_mission_is_remembered_once(postgres: Postgres, tmp_path: Path, when: str) -> None:  # noqa: F811
    async with two(postgres, tmp_path) as (one, other):
        mark = partial(other.image.read, lambda root: root["lobby"].memory.lived.until)
        seizure = Seizure(one, other, "store_remembered", when, mark)
        await (await submit(one, "m1", "What is in the garden?")).end()
        await seized(one, other, seizure)
        assert (mark(), sources(other)) == (1, {"mission:m1": 1})


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", ["begin_file", "store_batch"])
async def test_a_file_is_read_once(postgres: Postgres, tmp_path: Path, step: str, when: str) -> None:  # noqa: F811
    path = tmp_path / "notes.md"
    path.write_text("".join(f"# Part {n}\n\nThe harbour of part {n} is full of boats.\n\n" for n in range(40)))
    async with two(postgres, tmp_path, ingest_batch_bytes=1024) as (one, other):

        def is_read() -> bool:
            return bool(sources(other)) and not other.image.read(lambda root: len(library_of(root).queue))

        seizure = Seizure(one, other, step, when, is_read)
        await one.memory.ask([str(path)], [])
        await seized(one, other, seizure)
        assert sources(other) == {str(path): 1}
        texts = other.image.read(lambda root: Counter(chunk.text for chunk in library_of(root).chunks.values()))
        assert (len(texts), set(texts.values())) == (40, {1})


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", ["intend", "end"])
async def test_a_notice_is_told_once(postgres: Postgres, tmp_path: Path, step: str, when: str) -> None:  # noqa: F811
    async with two(postgres, tmp_path) as (one, other):
        with world() as heard:

            def states() -> list[str]:
                return [one.state for one in other.image.read(notices.messages)]

            await one.image.system(notices.add_channel, ChannelSpec("hook", "hook", heard.url, on=("failure",)), time.time())
            seizure = Seizure(one, other, f"{step} NoticeMessage", when, lambda: states() == ["DONE"])
            await one.image.system(notices.note, notices.Notice("failure", "m1", time.time(), "FAILED: m1"))
            await seized(one, other, seizure)
            assert (states(), heard.told) == (["DONE"], ["m1"]), "a message that is sent again has the key that it had"
            assert len(heard.heard) <= 2
            assert all(one["title"].startswith("Perhaps told before: ") for one in heard.heard[1:]), "a repetition says so"


async def test_files_and_folders_are_those_of_the_machine_that_took_them_in(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    folder, uri = tmp_path / "notes", postgres.image()
    folder.mkdir()
    (folder / "boats.md").write_text("The harbour is full of boats.")
    async with daemon(uri, tmp_path / "a", host="left") as one:
        await leads(one)
        async with daemon(uri, tmp_path / "b", host="right") as other:
            await (await one.memory.ask([], [str(folder)])).done(lambda event: None)
            await one.membership.drain()
            (folder / "boats.md").unlink()
            (folder / "trees.md").write_text("The forest is full of trees.")
            await leads(other)
            await until(lambda: other.memory.watcher.away, "the first look into the folder")
            assert f"{folder} is on left, and no kernel" in other.memory.watcher.away[str(folder)]
            assert sources(other) == {str(folder / "boats.md"): 1}
            await other.image.system(queue_files, ["/data/x"], 10)
            assert (other.image.read(next_file), one.image.read(next_file)) == (("/data/x", 0), (None, 0))


async def test_a_rolling_restart_under_load_costs_no_attempt_and_no_inference(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    inference, uri, enough = Slow(), postgres.image(), asyncio.Event()
    serving, given = list[Kernel](), list[str]()

    async def serve(name: str, stack: contextlib.AsyncExitStack) -> Kernel:
        kernel = await stack.enter_async_context(daemon(uri, tmp_path / name, inference, shutdown_s=20))
        serving.append(kernel)
        return kernel

    async def load() -> None:
        while not enough.is_set():
            n = len(given)
            await serving[n % len(serving)].scheduler.submit(f"m{n}", f"What is in garden {n}?", {})
            given.append(f"m{n}")

    async with contextlib.AsyncExitStack() as rest:
        stacks = {name: await rest.enter_async_context(contextlib.AsyncExitStack()) for name in "abc"}
        kernels = {name: await serve(name, stack) for name, stack in stacks.items()}
        loading = asyncio.create_task(load())
        for name, kernel in kernels.items():
            reached = len(given) + 10
            await until(lambda reached=reached: len(given) >= reached, "load")
            kernel.drain()
            await kernel.ended()
            serving.remove(kernel)
            await stacks[name].aclose()
            kernels[name] = await serve(name, stacks[name])
        enough.set()
        await loading  # nothing was refused
        one = kernels["a"]
        await until(lambda: not one.image.read(lambda root: len(ledger.ledger_of(root).pending)), "the end of all missions")
        missions = one.image.read(lambda root: [ledger.describe(found) for found in ledger.ledger_of(root).missions.values()])
        assert {record.id for record in missions} >= set(given)
        assert [record for record in missions if (record.state, record.attempts) != ("COMPLETE", 1)] == []
        asked = Counter((request.model, request.user) for request in inference.asked)
        assert max(asked.values()) == 1, "paid twice"
        assert len({record.kernel for record in missions}) >= 3


@pytest.mark.parametrize("how_many", ["one", "many"])
async def test_a_daemon_ends_while_the_server_of_its_image_is_away(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how_many: str,
) -> None:
    monkeypatch.setattr(committer, "_CLOSING_S", 0.5)
    uri = postgres.image()
    more: dict[str, Any] = {"image": {"uri": uri, "kernels": how_many, "lease_s": 1, "look_s": 0.05}}
    kernel = await Kernel.start(settings(tmp_path, autotelic="on", **more), inference=FakeInference(), listen=False)
    if how_many == "many":
        await leads(kernel)
    await asyncio.to_thread(postgres.stop, "immediate")
    try:
        async with asyncio.timeout(90):
            await kernel.stop()
    finally:
        await asyncio.to_thread(postgres.start)
