"""Files become documents: once, in parts that stay, and none holds up another."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batos.api.dispatcher import Dispatcher
from batos.api.memory import MemoryRequests
from batos.errors import Busy, ImageDamaged, ImageError, InferenceFailed, UnknownSource, Unreadable
from batos.image import LivingImage
from batos.image.zodb_patches import index_position
from batos.memory import embedding_worker, objects
from batos.memory import ingest as ingesting
from batos.memory.files import read_file
from batos.memory.store import library_of
from batos.mind.evidence import passages
from batos.wire.admin_schemas import IngestRequest, SearchRequest
from tests.support.image import within
from tests.support.memory import CountsWords, flip, memory

TOMATOES = (
    "# Garden\n\nThe tomatoes stand on the balcony and want water every day.\n\n# Cats\n\nThe cat sleeps on the piano all day long.\n"
)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "garden.md").write_text(TOMATOES)
    return folder


async def test_a_file_is_found_by_its_words_at_once_and_has_vectors_after_that(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        told = await held.read(notes / "garden.md")
        assert (told["added"], told["refused"], told["queued"]) == (1, [], 1)
        assert "tomatoes stand on the balcony" in held.found("Where are the tomatoes?")[0]
        await held.whole()
        await held.embedded()
        await held.whole()
        assert held.recollection.facts()["chunks"] == held.recollection.count() == told["chunks"] == 2
        assert "".join(held.texts(notes / "garden.md")) == TOMATOES


async def test_the_same_again_changes_nothing(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        await held.read(notes / "garden.md")
        await held.embedded()
        before, asked = held.numbers(notes / "garden.md"), len(held.embedder.texts)
        told = await held.read(notes / "garden.md")
        assert (told["added"], told["unchanged"], told["chunks"]) == (0, 1, 0)
        os.utime(notes / "garden.md", (1, 1))  # touched, not changed
        assert (await held.read(notes / "garden.md"))["unchanged"] == 1
        assert held.numbers(notes / "garden.md") == before
        assert len(held.embedder.texts) == asked


async def test_parts_that_did_not_change_keep_their_chunks_and_are_not_embedded_again(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        await held.read(notes / "garden.md")
        await held.embedded()
        garden, cats = held.numbers(notes / "garden.md")
        held.embedder.texts.clear()
        (notes / "garden.md").write_text(TOMATOES.replace("tomatoes", "potatoes") + "\n# Dogs\n\nThe dog has no piano at all.\n")
        told = await held.read(notes / "garden.md")
        assert (told["updated"], told["chunks"]) == (1, 2)
        await held.embedded()
        await held.whole()
        assert held.numbers(notes / "garden.md")[1] == cats
        assert garden not in held.numbers(notes / "garden.md")
        assert not any("cat sleeps" in text for text in held.embedder.texts)
        assert held.found("tomatoes") == []
        assert "potatoes" in held.found("potatoes")[0]


@pytest.mark.parametrize("stored", [0, 1])
async def test_a_document_that_a_mission_forgets_while_its_file_is_read_is_read_anew(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    calls, loop = 0, asyncio.get_running_loop()

    def forgotten_first(root: Any, *args: Any) -> None:
        nonlocal calls
        calls += 1
        library, path = library_of(root), str(notes / "garden.md")
        gone = library.forget(library.document(path)) if calls == stored + 1 else []
        loop.call_soon_threadsafe(held.recollection.stored, None, gone)

    text = TOMATOES + "".join(f"# Part {n}\n\nThis is what part {n} says about number{n}.\n\n" for n in range(60))
    async with memory(tmp_path, ingest_batch_bytes=1024) as held:
        await held.read(notes / "garden.md")
        within(monkeypatch, held.image, ingesting.store_batch, forgotten_first)
        (notes / "garden.md").write_text(text)
        assert (await held.read(notes / "garden.md"))["refused"] == []
        await held.embedded()
        await held.whole()
        assert "".join(held.texts(notes / "garden.md")) == text


async def test_the_same_text_in_two_files_is_one_document_until_one_of_them_changes(tmp_path: Path, notes: Path) -> None:
    (notes / "copy.md").write_text(TOMATOES)
    async with memory(tmp_path) as held:
        told = await held.read(notes)
        assert (told["added"], told["unchanged"]) == (1, 1)
        assert held.look(lambda library: len(library.documents)) == 1
        assert held.numbers(notes / "copy.md") == held.numbers(notes / "garden.md")
        (notes / "copy.md").write_text("# Garden\n\nNothing grows here any more.\n")
        assert (await held.read(notes / "copy.md"))["added"] == 1
        assert held.look(lambda library: len(library.documents)) == 2
        assert held.look(lambda library: list(library.document(str(notes / "garden.md")).sources)) == [str(notes / "garden.md")]
        told = await held.recollection.tell(forget=str(notes / "copy.md"))
        assert told["forgotten"]["kept"] == []
        await held.whole()


async def test_forgetting_one_of_two_names_keeps_the_text(tmp_path: Path, notes: Path) -> None:
    (notes / "copy.md").write_text(TOMATOES)
    async with memory(tmp_path) as held:
        await held.read(notes)
        told = await held.recollection.tell(forget=str(notes / "copy.md"))
        assert told["forgotten"] == {"source": str(notes / "copy.md"), "title": "Garden", "kept": [str(notes / "garden.md")], "chunks": 0}
        assert held.found("tomatoes")
        with pytest.raises(UnknownSource, match=r"garden\.md"):
            await held.recollection.tell(forget=str(notes / "copy.md"))


async def test_what_was_forgotten_is_nowhere_once_the_image_is_packed(tmp_path: Path, notes: Path) -> None:
    secret = "xylographic zanzibar"
    (notes / "secret.md").write_text(f"# Secret\n\nThe password is {secret}, and nobody may know.\n")
    async with memory(tmp_path) as held:
        await held.read(notes)
        await held.embedded()
        assert b"zanzibar" in (tmp_path / "image.fs").read_bytes()
        told = await held.recollection.tell(forget=str(notes / "secret.md"))
        assert told["forgotten"]["chunks"] == 1
        await held.whole()
        assert held.found("zanzibar") == []
        held.image.db.pack()
    data = (tmp_path / "image.fs").read_bytes()
    assert b"tomato" in data
    assert b"zanzibar" not in data
    assert b"xylograph" not in data
    async with memory(tmp_path) as held:
        await held.whole()
        assert len(held.found("tomatoes")) == 1


async def test_files_that_cannot_be_read_are_told_of_and_the_others_go_on(tmp_path: Path, notes: Path) -> None:
    (notes / "a-junk.txt").write_bytes(bytes(range(256)) * 20)
    (notes / "b-empty.txt").write_text("  \n")
    (notes / "c-large.txt").write_text("word " * 3000)
    (notes / "d-broken.pdf").write_bytes(b"%PDF-1.4\nnothing of a PDF follows\n%%EOF")
    os.mkfifo(notes / "e-pipe.txt")
    async with memory(tmp_path, ingest_file_bytes=10_000) as held:
        told = await held.read(notes)
        assert told["added"] == 1
        assert [Path(one["path"]).name[0] for one in told["refused"]] == list("abcde")
        assert {one["code"] for one in told["refused"]} == {"unreadable"}
        said = " ".join(one["message"] for one in told["refused"])
        for words in ("binary data", "it is empty", "setting memory.file_bytes", "PDF is broken", "not a file"):
            assert words in said
        listed = (await held.recollection.tell())["refused"]
        assert [one["path"] for one in listed] == [one["path"] for one in told["refused"]]
        (notes / "b-empty.txt").write_text("Not empty any more.")
        assert (await held.read(notes / "b-empty.txt"))["added"] == 1
        assert len((await held.recollection.tell())["refused"]) == 4


async def test_what_is_there_is_read_beside_what_is_not(tmp_path: Path, notes: Path) -> None:
    (notes / "many").mkdir()
    for name in "abc":
        (notes / "many" / f"{name}.md").write_text(name)
    async with memory(tmp_path, ingest_folder_files=2) as held:
        told = await held.read(notes / "garden.md", notes / "nothing.md", notes / "many", follow=[notes / "away"])
        assert (told["added"], told["queued"]) == (1, 1)
        assert {Path(one["path"]).name: one["code"] for one in told["refused"]} == {
            "nothing.md": "unreadable", "many": "unreadable", "away": "unreadable",
        }  # fmt: skip
        said = " ".join(one["message"] for one in told["refused"])
        for words in ("No such file", "more than 2 files", "is not there: only a folder can be watched"):
            assert words in said


async def test_paths_of_which_none_is_there_are_refused_and_nothing_is_queued(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path, ingest_folder_files=2) as held:
        with pytest.raises(Unreadable, match=r"nothing\.md: it cannot be read: No such file or directory \(1 more\)"):
            await held.read(notes / "nothing.md", notes / "nor-this.md")
        with pytest.raises(Unreadable, match="not an absolute path"):
            await held.read("garden.md")
        for name in "abc":
            (notes / f"{name}.md").write_text(name)
        with pytest.raises(Unreadable, match="more than 2 files"):
            await held.read(notes)
        assert held.look(lambda library: (len(library.queue), len(library.documents))) == (0, 0)


async def test_a_full_queue_is_busy(tmp_path: Path, notes: Path) -> None:
    (notes / "b.md").write_text("b")
    async with memory(tmp_path, ingest_queue=1) as held:
        with pytest.raises(Busy, match="files wait to be read already"):
            await held.read(notes)
        assert (await held.read(notes / "b.md"))["added"] == 1


async def test_a_long_file_is_stored_in_several_transactions_and_goes_on_where_it_was(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"# Part {n}\n\nThis is what part {n} says about number{n}.\n\n" for n in range(60))
    (notes / "long.md").write_text(text)
    room = False

    def third_finds_no_room(root: Any, *args: Any) -> None:
        if len(args[-2]) > 40 and not room:  # the sections that the document has with this batch
            raise OSError(errno.ENOSPC, "No space left on device")

    def hear(event: dict[str, Any]) -> None:
        nonlocal room
        room = room or event["state"] == "waiting"

    async with memory(tmp_path, ingest_batch_bytes=1024) as held:
        within(monkeypatch, held.image, ingesting.store_batch, third_finds_no_room)
        held.recollection.ingest.listen(hear)
        told = await held.read(notes / "long.md")
        assert [event["state"] for event in told["events"]].count("waiting") == 1
        assert "disk is full" in next(event["message"] for event in told["events"] if event["state"] == "waiting")
        assert told["added"] == 1
        assert told["chunks"] < 30  # the sections of the first two transactions were there already
        await held.embedded()
        await held.whole()
        assert "".join(held.texts(notes / "long.md")) == text
        assert held.recollection.ingest.trouble == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [(ImageDamaged("a batos.objects.UvmObject: its checksum is wrong"), "image_damaged"), (ZeroDivisionError("a fault"), "internal")],
)
async def test_one_that_cannot_be_looked_up_holds_up_no_other(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    """A damaged record of it, or a fault of ours."""
    (notes / "other.md").write_text("The dog has no piano.\n")

    def failing(root: Any, path: str, digest: bytes) -> None:
        if path.endswith("garden.md"):
            raise error

    async with memory(tmp_path) as held, asyncio.timeout(90):
        within(monkeypatch, held.image, ingesting.known_sections, failing)
        told = await held.read(notes)
        assert told["added"] == 1
        assert [(one["code"], Path(one["path"]).name) for one in told["refused"]] == [(code, "garden.md")]


async def test_a_section_that_is_damaged_holds_up_no_vectors(tmp_path: Path, notes: Path) -> None:
    (notes / "other.md").write_text("# Garden of dogs\n\nThe dog has no piano.\n")
    async with memory(tmp_path) as held:
        held.embedder.away = True
        await held.read(notes / "garden.md")
        _, cats = held.numbers(notes / "garden.md")
    data = (tmp_path / "image.fs").read_bytes()
    assert b"tomatoes stand on" in data
    (tmp_path / "image.fs").write_bytes(data.replace(b"tomatoes stand on", b"tomatoes stood on"))
    async with memory(tmp_path) as held:
        await held.read(notes / "other.md")
        await held.embedded()
        view = held.recollection.collection.view()
        assert set(view.ids[view.has].tolist()) == {cats, *held.numbers(notes / "other.md")}
        (notes / "stand.md").write_text("# Tomatoes\n\nThey are named where nobody can read it.\n")  # a title that is looked for there
        await held.read(notes / "stand.md")
        await held.embedded()
        assert held.recollection.vectors.facts()["state"] == "ready"


async def test_a_document_of_which_a_chunk_is_damaged_can_be_forgotten_and_read_again(tmp_path: Path, notes: Path) -> None:
    """Also where that chunk names somebody, which its record cannot say any more."""
    (notes / "water.md").write_text("# Water Every Day\n\nOf a can.\n")
    async with memory(tmp_path) as held:
        await held.read(notes / "water.md")
        await held.embedded()
        await held.read(notes / "garden.md")
        await held.embedded()
        assert held.look(lambda library: list(library.entities)) == ["water every day"]
    data = (tmp_path / "image.fs").read_bytes()
    (tmp_path / "image.fs").write_bytes(data.replace(b"omatoes stand on", b"omatoes stood on"))
    async with memory(tmp_path) as held:
        with pytest.raises(ImageDamaged):
            held.texts(notes / "garden.md")
        await held.recollection.tell(forget=str(notes / "garden.md"))
        assert held.look(lambda library: list(library.entities)) == []
        await held.whole()
        assert (await held.read(notes / "garden.md"))["added"] == 1
        await held.whole()
        assert any("omatoes stand on" in text for text in held.texts(notes / "garden.md"))


async def test_a_document_that_is_damaged_keeps_no_daemon_from_starting_and_no_other_from_being_found(tmp_path: Path, notes: Path) -> None:
    (notes / "dogs.md").write_text("# Dogs\n\nThe dog sleeps on the sofa all day long.\n")
    async with memory(tmp_path) as held:
        await held.read(notes)
        await held.embedded()
        at = held.look(lambda library: index_position(library._p_jar.db().storage.base, library.document(str(notes / "garden.md"))._p_oid))
    flip(tmp_path / "image.fs", at)
    async with memory(tmp_path) as held:
        found = await held.recollection.search(SearchRequest(op="search", question="who sleeps all day long?"))
        assert [hit["source"] for hit in found["hits"]] == [str(notes / "dogs.md")]
        recalled = await held.recollection.recall("who sleeps on the sofa or the piano all day long?")
        assert len(recalled) == 2
        assert [one.source for one in held.image.read(passages, recalled, 1000)] == [str(notes / "dogs.md")]
        assert [one["source"] for one in (await held.recollection.tell(10))["listed"]] == [str(notes / "dogs.md")]


async def test_damage_where_it_is_noted_is_told_and_passes(tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = [ImageError("the image is away")] * 4  # a group that fails is tried once more, each alone

    def away(root: Any, *args: Any) -> None:
        if damaged:
            raise damaged.pop()

    async with memory(tmp_path) as held, asyncio.timeout(90):
        within(monkeypatch, held.image, ingesting.store_batch, away)
        told = await held.read(notes / "garden.md")
        assert told["events"][0]["state"] == "waiting"
        assert "the image is away" in told["events"][0]["message"]
        assert told["added"] == 1


async def test_what_is_in_the_queue_is_read_after_a_restart(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        await held.image.system(ingesting.queue_files, [str(notes / "garden.md")], 10)  # as if the process had died right after
    async with memory(tmp_path) as held:
        await held.until(lambda: held.found("tomatoes"))
        await held.embedded()
        await held.whole()
        chunks = held.numbers(notes / "garden.md")
    async with memory(tmp_path) as held:
        (notes / "more.md").write_text("# More\n\nMore of it.\n")
        await held.read(notes / "more.md")
        assert min(held.numbers(notes / "more.md")) > max(chunks)  # numbers of another run are never those of an earlier one
        await held.embedded()
        await held.whole()


async def test_searches_go_by_words_while_the_embedder_is_away(tmp_path: Path, notes: Path) -> None:
    embedder = CountsWords()
    embedder.away = True
    async with memory(tmp_path, embedder=embedder) as held:
        await held.read(notes / "garden.md")
        await held.until(lambda: held.recollection.vectors.facts()["state"] == "away")
        assert held.recollection.vectors.facts()["why"] == "nobody answers"
        assert held.found("tomatoes")
        embedder.away = False
        await held.embedded()
        await held.whole()
        assert held.recollection.count() == 2


async def test_what_is_told_of_the_vectors_is_what_searches_have(tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed can be read while the disk still writes it; searches have it, and whoever waits for it hears of it, after that."""
    writing, written = threading.Event(), threading.Event()
    real = os.fsync

    def slow(fd: int) -> None:
        writing.set()
        assert written.wait(20)
        real(fd)

    embedder = CountsWords()
    async with memory(tmp_path, embedder=embedder) as held:
        await held.read(notes / "garden.md")
        await held.embedded()
        embedder.away = True
        (notes / "cellar.md").write_text("# Cellar\n\nThe apples lie on straw.\n")
        await held.read(notes / "cellar.md")
        await held.until(lambda: held.recollection.vectors.facts()["state"] == "away")
        assert (await held.recollection.tell())["waiting"]["sections"] == 1
        monkeypatch.setattr(os, "fsync", slow)
        embedder.away = False
        await asyncio.to_thread(writing.wait, 20)
        assert not held.look(lambda library: list(library.without_vectors()))
        telling = asyncio.create_task(held.recollection.tell())
        assert not (await asyncio.wait({telling}, timeout=0.2))[0]  # it would say that none waits, and count the vectors of before
        written.set()
        told = await telling
        assert (told["waiting"]["sections"], told["embedder"]["vectors"]) == (0, told["chunks"])


async def test_another_embedder_makes_all_vectors_anew(tmp_path: Path, notes: Path) -> None:
    async with memory(tmp_path) as held:
        await held.read(notes / "garden.md")
        await held.embedded()
        first = held.look(lambda library: library.embedder)
    other = CountsWords()
    other.digest_now = "d2"
    async with memory(tmp_path, embedder=other) as held:
        await held.until(lambda: held.look(lambda library: library.embedder) not in ("", first))
        await held.embedded()
        await held.whole()
        second, other.digest_now = held.look(lambda library: library.embedder), "d3"  # while there is nothing to do
        await held.until(lambda: held.look(lambda library: library.embedder) not in (first, second))
        await held.embedded()
        await held.whole()
        assert held.look(lambda library: list(library.vectors)) == [held.look(lambda library: library.embedder)]
        assert len(other.texts) >= 2


async def test_a_file_that_kills_the_daemon_is_left_out_after_some_attempts(tmp_path: Path, notes: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'image.fs'}", steps=(objects.install,))  # nobody reads what is in the queue
    await image.system(ingesting.queue_files, [str(notes / "garden.md")], 10)
    for _ in range(3):
        await image.system(ingesting.begin_file, str(notes / "garden.md"))
    await image.close()
    async with memory(tmp_path) as held:
        await held.until(lambda: held.look(lambda library: len(library.refused)))
        told = await held.recollection.tell()
        assert "died 3 times" in told["refused"][0]["message"]
        assert told["waiting"]["files"] == 0
        assert (await held.read(notes / "garden.md"))["added"] == 1  # asked for again, it is tried again


async def test_asked_for_again_while_it_waits_its_attempts_are_counted_on(tmp_path: Path, notes: Path) -> None:
    """A client that watches asks again after each restart."""
    path = str(notes / "garden.md")
    image = await LivingImage.open(f"file://{tmp_path / 'image.fs'}", steps=(objects.install,))
    await image.system(ingesting.queue_files, [path], 10)
    await image.system(ingesting.begin_file, path)
    await image.system(ingesting.queue_files, [path], 10)
    assert image.read(ingesting.next_file) == (path, 1)
    await image.close()


class Heard:
    """A client of the desk."""

    def __init__(self) -> None:
        self.replies: list[dict[str, Any]] = []

    def send(self, reply: dict[str, Any], *, event: bool = False) -> None:
        self.replies.append(reply)


async def test_a_watch_that_is_asked_for_again_in_a_silence_reads_nothing_again(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "slow.md").write_text("A file that takes its time.\n")
    going_on, read = threading.Event(), read_file
    began: list[str] = []

    def slowly(path: str, *given: Any) -> Any:
        began.append(Path(path).name)
        if path.endswith("slow.md"):
            going_on.wait(20)
        return read(path, *given)

    monkeypatch.setattr(ingesting, "read_file", slowly)
    async with memory(tmp_path) as held:
        client: Any = Heard()
        desk = Dispatcher(held.image, [MemoryRequests(held.recollection)])
        asked = IngestRequest(op="ingest", paths=[str(notes)], watch=True, ref=1)
        watching = asyncio.create_task(desk.handle(asked, client))
        try:
            await held.until(lambda: "slow.md" in began)
            await desk.handle(asked.model_copy(), client)
            assert held.look(lambda library: [Path(path).name for path in library.queue]) == ["slow.md"]
            (notes / "new.md").write_text("Another one.\n")
            await desk.handle(IngestRequest(op="ingest", paths=[str(notes / "new.md")], watch=True, ref=1), client)
            assert held.look(lambda library: len(library.queue)) == 2, "what is asked for beside it is read"
        finally:
            going_on.set()
        await watching
        assert [reply for reply in client.replies if reply.get("watching")] == [
            {"type": "ingest", "watching": True, "queued": queued} for queued in (2, 2, 1)
        ]
        assert client.replies[-1]["added"] == 2
        assert began.count("garden.md") == 1


async def test_a_section_that_no_embedder_takes_holds_up_no_other(tmp_path: Path, notes: Path) -> None:
    class Picky(CountsWords):
        async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
            if any("tomatoes" in text for text in texts):
                raise InferenceFailed("tomatoes are too much for it", cause="refused")
            return await super().embed(model, texts, deadline_s=deadline_s)

    async with memory(tmp_path, embedder=Picky()) as held:
        await held.read(notes / "garden.md")
        await held.embedded()
        assert held.recollection.count() == 1
        assert held.found("tomatoes")


async def test_under_load_that_does_not_end_it_is_tidied_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was dropped stays in memory until then, and each mission drops something."""
    monkeypatch.setattr(embedding_worker, "TIDY_S", 0.0)
    async with memory(tmp_path, dropped_rows=1) as held:
        for n in range(12):
            (tmp_path / "a.md").write_text(f"# A\n\nThe {n}th text of this file, which takes the place of the one before it.\n")
            await held.read(tmp_path / "a.md")
            held.recollection.vectors.wake()
            await held.embedded()
        held.recollection.vectors.more.set()  # somebody needs it, always
        await held.recollection.vectors.tidied(embedding_worker.MERGES)
        assert held.recollection.collection.dropped <= 1
        await held.whole()
