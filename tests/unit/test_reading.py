"""Files that freeze their reader, make it grow, or kill it: refused with the reason, and the daemon answers meanwhile."""

from __future__ import annotations

import asyncio
import types
import zipfile
from pathlib import Path

import pytest

from batos.memory import readers
from batos.memory.drafts import Draft, DraftPart, Turn
from tests.support.memory import memory

FREEZES = """
import re
from batos.memory import readers

def serve(request, data):
    if b"freeze" in data:
        re.match(r"(a+)+$", "a" * 60 + "!")
    if b"grow" in data:
        list(bytearray(1 << 24) for _ in range(1 << 12))
    if b"die" in data:
        import ctypes
        ctypes.string_at(0)
    yield from readers.serve(request, data)
"""


@pytest.fixture
def _fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does what a file says. Real ones are not known to freeze any more."""
    (tmp_path / "fragile_reader.py").write_text(FREEZES)
    monkeypatch.syspath_prepend(str(tmp_path))

    names = {name: getattr(readers, name) for name in ("VERSION", "PACKAGES", "drafted")}
    monkeypatch.setattr("batos.memory.ingest.readers", types.SimpleNamespace(__name__="fragile_reader", **names))


@pytest.mark.usefixtures("_fragile")
async def test_one_bad_file_holds_up_nobody(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("freeze", "grow", "die", "good"):
        (notes / f"{name}.txt").write_text(f"This file says {name}.\n")
    async with memory(tmp_path, read_s=1, read_memory_bytes=1 << 28) as held:
        reading = asyncio.create_task(held.read(notes))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0.01)
            turns += 1
        told = reading.result()
        why = {Path(one["path"]).stem: one["message"] for one in told["refused"]}
        assert turns > 20
        assert told["added"] == 1
        assert held.found("good")
        assert "more than 1 s of processor time" in why["freeze"]
        assert "bytes of memory" in why["grow"]
        assert "its reader died by SIGSEGV" in why["die"]


@pytest.mark.usefixtures("_fragile")
async def test_the_end_of_the_daemon_waits_for_no_reader(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "freeze.txt").write_text("This file says freeze.\n")
    async with memory(tmp_path, read_s=3600) as held:
        await held.recollection.ask([str(tmp_path / "notes")], [])
        await held.until(lambda: held.recollection.ingest.under_way)
        reading = held.recollection.ingest.reading
        await held.until(lambda: reading.running)
    assert not reading.running


async def test_a_small_archive_that_says_very_much_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    page = "<p>the quick brown fox jumps over the lazy dog</p>" * 4000
    with zipfile.ZipFile(tmp_path / "notes" / "book.epub", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip")
        book.writestr("page.xhtml", f"<html><body>{page}</body></html>")
    async with memory(tmp_path, ingest_file_bytes=16 << 10) as held:
        refused = (await held.read(tmp_path / "notes"))["refused"]
        assert "characters of text; at most 65536 are read (setting memory.file_bytes)" in refused[0]["message"]
        assert held.look(lambda library: library.counts.chunks) == 0


async def test_of_many_doubts_of_a_file_some_are_told(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    head = "From x@y Mon Jan  1 00:00:00 2024\nFrom: a@b\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=X\n\n"
    text = "--X\nContent-Type: text/plain\n\nCaf\xe9 cr\xe8me\n"
    attached = "--X\nContent-Type: application/zip; name={0}.zip\nContent-Disposition: attachment; filename={0}.zip\n\nPK\3\4\n"
    mails = (f"{head}{text}{attached.format(number)}--X--\n\n" for number in range(200))
    (tmp_path / "notes" / "all.mbox").write_bytes("".join(mails).encode("latin-1"))
    async with memory(tmp_path) as held:
        told = (await held.read(tmp_path / "notes"))["events"][-1]["doubts"]
        assert len(told) == 21
        assert "(200 times)" in told[0]
        assert told[-1] == "and 181 more doubts"
        assert held.look(lambda library: library.documents[library.documents.minKey()].doubts) == tuple(told)


def test_a_draft_comes_through_whole() -> None:
    text = "Anna: \ud83d é 会\n" * 100_000
    parts = [DraftPart(text, "a", 5, (Turn(0, 3, "Anna"), Turn(3, 9, ""))), DraftPart("", "b")]
    draft = Draft("conversation", "t", parts, 7, ("x",), ("told",))
    pieces = [
        ["draft", draft.kind, draft.title, draft.day, ["x"], ["told"]],
        ["part", "a", 5],
        ["turns", [[0, 3, "Anna"], [3, 9, ""]]],
        ["text", text[:1000]],
        ["text", text[1000:]],
        ["part", "b", 0],
    ]
    assert readers.drafted([pieces[:3], [], pieces[3:]]) == draft
