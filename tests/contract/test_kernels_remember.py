"""Several kernels remember in one image: each finds soon what another committed, and no number is given out twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.app.memory import MemoryRuntime
from batos.bus import MissionEnded
from batos.concurrency import Lifetime
from batos.config import Settings
from batos.image import ledger
from batos.memory import objects
from batos.memory.ingest import IngestLimits
from batos.memory.records import EPOCH
from batos.memory.store import library_of
from batos.missions import memory_writer
from batos.wire.admin_schemas import SearchRequest, UndoRequest
from tests.support.following import LIMITS, NAMES, PLAIN, WITH_TEXT, Step, happen
from tests.support.kernels import WAIT_S, daemon, kernel, looked, until
from tests.support.memory import QUICK, CountsWords, Memory, consistent, equals_a_fresh_one
from tests.support.missions import FakeInference, submit
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401

TEXT = "# Animal {n}\n\nThe quagga{n} lives in zoo {n}.\n\nIt eats grass."


@pytest.fixture(params=["zeo", "postgres"])
def at(request: pytest.FixtureRequest) -> Postgres | Zeo:
    found: Postgres | Zeo = request.getfixturevalue(request.param)
    return found


@contextlib.asynccontextmanager
async def two(at: Postgres | Zeo, folder: Path, machines: str = "ab", **more: Any) -> AsyncIterator[tuple[Kernel, Kernel]]:
    """A kernel that leads, and another, on machines of these names."""
    uri, terms = at.image(), {"watch_s": 0.05, "embed_check_s": 0.1, "remember": "on", "remember_pause_s": 0.05, **more}
    (second := folder / "second").mkdir()
    async with daemon(folder, uri, embedding(), machines[0], **terms) as leader:
        await until(lambda: leader.membership.leads, "a leader")
        async with daemon(second, uri, embedding(), machines[1], **terms) as other:
            yield leader, other


def embedding() -> FakeInference:
    made = FakeInference()
    made.embedder = CountsWords().vector
    return made


async def found(kernel: Kernel, question: str) -> list[str]:
    reply = await kernel.memory.search(SearchRequest(op="search", question=question))
    return [hit["text"] for hit in reply["hits"]]


async def sees(kernel: Kernel, condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when what is committed holds at a kernel, too: at its next look. ZEO tells its clients of a commit a moment later."""
    await looked(kernel)
    if not kernel.image.uri.startswith("zeo:"):
        assert await condition()
        return
    async with asyncio.timeout(WAIT_S):
        while not await condition():
            await looked(kernel)


async def finds(kernel: Kernel, question: str, text: str) -> None:
    """Return when a search finds a text that is committed."""

    async def is_found() -> bool:
        return text in await found(kernel, question)

    await sees(kernel, is_found)


async def loses(kernel: Kernel, question: str, word: str) -> None:
    """Return when a search finds no text with a word that the memory has let go."""

    async def is_lost() -> bool:
        return not [text for text in await found(kernel, question) if word in text]

    await sees(kernel, is_lost)


async def ingested(kernel: Kernel, *paths: Path) -> None:
    asked = await kernel.memory.ask([str(path) for path in paths], [])
    assert (await asked.done(lambda event: None))["refused"] == []


async def sent(kernel: Kernel, id: str, selector: str, *args: Any) -> None:
    """Send the memory a message by a mission that a kernel accepts; whichever thinks it."""
    message = {"target": "memory", "selector": selector, "args": args, "kwargs": {}}
    await kernel.scheduler.submit(id, f"memory {selector}", {"message": json.dumps(message)})
    await until(lambda: kernel.image.read(lambda root: ledger.record_of(root, id)).state == "COMPLETE", f"the end of {id}")


async def settled(*kernels: Kernel) -> None:
    """Wait until all is embedded, and each kernel holds what the image does."""

    def is_embedded(root: Any) -> bool:
        library = library_of(root)
        return not [*library.queue, *library.without_vectors(), *library.unlinked.keys("", excludemin=True)]

    await until(lambda: kernels[0].image.read(is_embedded), "all vectors")
    for one in kernels:
        with one.image.snapshot() as root:
            one.memory.look(root)
            equals_a_fresh_one(root, one.memory.collection)
    kernels[0].image.read(lambda root: consistent(library_of(root)))


async def test_each_kernel_finds_at_its_next_look_what_another_stored_and_forgot(at: Postgres | Zeo, tmp_path: Path) -> None:
    async with two(at, tmp_path) as (leader, other):
        files = [tmp_path / f"{n}.md" for n in range(4)]
        for n, path in enumerate(files):
            path.write_text(TEXT.format(n=n))
        await ingested(leader, *files)
        for n in range(4):
            await finds(other, f"Where does the quagga{n} live?", TEXT.format(n=n))
        await settled(leader, other)
        reply = await other.memory.search(SearchRequest(op="search", question="Where does the quagga2 live?"))
        assert reply["by_vectors"], "the vectors came, too"
        await until(lambda: leader.memory.facts()["embedder"]["state"] == "ready", "the end of the embedding")
        made, heard = (one.memory.facts()["embedder"] for one in (leader, other))
        assert heard["state"] == "elsewhere"
        assert (heard["identity"], heard["vectors"]) == (made["identity"], made["vectors"])
        await other.memory.tell(forget=str(files[2]))
        assert not [text for text in await found(other, "quagga2") if "quagga2" in text], "its own change is there at once"
        await loses(leader, "quagga2", "quagga2")
        await settled(leader, other)


async def test_missions_of_both_remember_at_once_and_nothing_is_overwritten(at: Postgres | Zeo, tmp_path: Path) -> None:
    async with two(at, tmp_path) as (leader, other):
        await submit(leader, "thought", "My name is Kim. Plan the garden")
        path = tmp_path / "a.md"
        path.write_text("".join(f"# Part {n}\n\nThe heron{n} stands there.\n\n" for n in range(30)))
        accepts = {"x": leader, "y": other}
        notes = [
            sent(accepts[name], f"{name}{n}", "remember_", f"The key {name}{n} is under stone {n}.") for n in range(10) for name in "xy"
        ]
        await asyncio.gather(*notes, ingested(leader, path))

        def remembered(root: Any) -> bool:
            return {"mission:thought", "said:thought"} <= set(library_of(root).by_source)

        await until(lambda: other.image.read(remembered), "the mission in memory")
        await settled(leader, other)

        def texts(root: Any) -> dict[str, tuple[int, str]]:
            library = library_of(root)
            return {one.source: (one.number, "".join(chunk.text for chunk in library.chunks_of(one))) for one in library.documents.values()}

        held = leader.image.read(texts)
        said = [text for _, text in held.values()]
        for name in "xy":
            assert all(f"The key {name}{n} is under stone {n}." in said for n in range(10))
        assert len({number for number, _ in held.values()}) == len(held)
        assert len({one.memory.numbers.take() // EPOCH for one in (leader, other)}) == 2, "each has an epoch of its own"
        for one in (leader, other):
            assert "The key y7 is under stone 7." in await found(one, "Where is the key y7?")


async def test_an_undo_at_one_kernel_is_followed_by_the_others(at: Postgres | Zeo, tmp_path: Path) -> None:
    async with two(at, tmp_path, remember="off") as (leader, other):
        text = "The ladder stands behind the shed."
        await sent(leader, "note", "remember_", text)
        await finds(other, "Where is the ladder?", text)
        await finds(leader, "Where is the ladder?", text)
        undone = await other.undoing.undo(UndoRequest(op="undo", id="note"))
        assert undone["documents"]["gone"]
        assert text not in await found(other, "Where is the ladder?")
        await loses(leader, "Where is the ladder?", text)
        await other.undoing.undo(UndoRequest(op="undo", id="note", redo=True))
        await finds(leader, "Where is the ladder?", text)
        await settled(leader, other)


async def test_files_that_another_kernel_of_a_machine_queued_are_read_by_the_one_that_leads(at: Postgres | Zeo, tmp_path: Path) -> None:
    async with two(at, tmp_path, "aa") as (_, other):
        path = tmp_path / "a.md"
        path.write_text("The ibis is at the lake.")
        await other.memory.ingest.ask([str(path)])
        async with asyncio.timeout(WAIT_S):
            while "The ibis is at the lake." not in await found(other, "Where is the ibis?"):
                await looked(other)


async def test_the_next_leader_goes_on_with_what_waits_and_knows_all_names(
    at: Postgres | Zeo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(at, tmp_path) as (leader, other):
        monkeypatch.setattr("batos.memory.section_builder.names_of", lambda root, documents: [])  # looks miss them
        club = tmp_path / "club.md"
        club.write_text("# The Walrus Club\n\nIt meets on Mondays.")
        await ingested(leader, club)
        await settled(leader, other)
        await leader.membership.resign()
        await until(lambda: other.membership.leads, "another leader")
        number = other.image.read(lambda root: library_of(root).by_source[str(club)])
        await until(lambda: other.memory.shelver.names.of("We saw the Walrus Club.", 0).links == (number,), "the name")
        path = tmp_path / "a.md"
        path.write_text("The ibis is at the lake.")
        await ingested(other, path)
        await finds(leader, "Where is the ibis?", "The ibis is at the lake.")
        await settled(other, leader)


async def test_who_waits_for_files_hears_of_them_where_the_lead_moved_when_they_were_read(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What reads them is cancelled between the commit and the telling, or is another kernel's."""
    async with two(postgres, tmp_path) as (leader, _):
        monkeypatch.setattr(leader.memory.ingest, "listen", lambda listener: lambda: None)  # nobody is told
        (tmp_path / "a.md").write_text("The ibis is at the lake.")
        (tmp_path / "b.md").write_bytes(b"")
        events: list[dict[str, Any]] = []
        told = await (await leader.memory.ask([str(tmp_path / "a.md"), str(tmp_path / "b.md")], [])).done(events.append)
        assert (told["queued"], told["added"], told["chunks"], len(told["refused"])) == (2, 1, 1, 1)
        assert {(Path(one["path"]).name, one["state"]) for one in events} == {("a.md", "added"), ("b.md", "refused")}


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_both_do_each_holds_what_the_image_says(postgres: Postgres, tmp_path: Path, seed: int) -> None:  # noqa: F811
    chance = random.Random(seed)

    def step() -> Step:
        what, who, name = chance.choice((*WITH_TEXT, *WITH_TEXT, *PLAIN)), chance.randrange(2), chance.choice(NAMES)
        return what, who, name, [chance.randrange(8) for _ in range(chance.randrange(1, 6))] if what in WITH_TEXT else []

    uri, both = postgres.image(), []
    async with Lifetime() as life:
        for name in "ab":
            image, _ = await life.enter_async_context(kernel(uri, name, steps=(objects.install,)))
            (tmp_path / name).mkdir()
            memory = MemoryRuntime(image, Settings(**{**QUICK, **LIMITS, "data": tmp_path / name}))
            await memory.open(CountsWords(), "words", life=life)
            both.append(Memory(image, memory, CountsWords()))
        await happen(both, tmp_path, [step() for _ in range(15)])


async def test_the_leaders_work_goes_on_after_the_server_was_away(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, failed = memory_writer.MemoryWriter.write_batch, asyncio.Event()

    async def write_batch(self: memory_writer.MemoryWriter) -> bool:
        try:
            return await real(self)
        except Exception:
            failed.set()
            raise

    def holds(root: Any, source: str) -> bool:
        return source in {document.source for document in library_of(root).documents.values()}

    monkeypatch.setattr(memory_writer, "RETRY_S", 0.05)
    monkeypatch.setattr(memory_writer.MemoryWriter, "write_batch", write_batch)
    (folder := tmp_path / "notes").mkdir()
    async with daemon(tmp_path, postgres.image(), embedding(), remember="on", limits=(IngestLimits(watch_s=0.05),)) as one:
        await until(lambda: one.lead.is_led, "the lead")
        await (await submit(one, "m0", "robin, what of it?")).end()
        await until(lambda: one.image.read(holds, "mission:m0"), "the memory of the first")
        await (await one.memory.ask([], [str(folder)])).done(lambda event: None)
        await asyncio.to_thread(postgres.stop)
        try:
            one.bus.publish(MissionEnded("m0", "COMPLETE", "robin", None))
            async with asyncio.timeout(90):
                await failed.wait()
        finally:
            await asyncio.to_thread(postgres.start)
        await (await submit(one, "m1", "robin, and now?")).end()
        await until(lambda: one.image.read(holds, "mission:m1"), "the memory of the second")
        (folder / "ibis.md").write_text("The ibis is at the lake.")
        await until(lambda: one.image.read(holds, str(folder / "ibis.md")), "the file of a watched folder")
