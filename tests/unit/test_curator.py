"""The Memory Curator: what leaves, in which company, what tells of it then, and what stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batos.errors import ImageError, UnknownSource
from batos.image import blobs
from batos.image.zodb_patches import index_position
from batos.memory import archive_format, curation, eviction, ingest
from batos.memory.curator import Gist
from batos.memory.drafts import Draft, DraftPart
from batos.memory.embedding_worker import unlinked_titles
from batos.memory.records import DIGEST, MISSION, SUMMARY
from batos.memory.section_builder import remember_document
from batos.memory.segments import LIVED
from batos.memory.store import Library, library_of
from tests.support.archives import everything, pack
from tests.support.curator import DAY, PLACES, THEMES, curated, text_of
from tests.support.memory import flip, memory


async def test_what_is_old_and_was_not_read_leaves_and_a_summary_leads_back(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill()
        before = kept.held.image.read(everything)
        assert len(before["chunks"]) == 36
        kept.clock.now += 29 * DAY
        assert (await kept.curator.round("too early"))["clusters"] == []
        kept.clock.now += 2 * DAY
        told = await kept.curator.round("time went by")
        assert told["found"] == len(told["clusters"]) == 3
        assert {cluster["why"] for cluster in told["clusters"]} == {"old"}
        assert told["chunks"] == 36
        await kept.held.whole()
        assert kept.chunks() < 12
        for cluster in told["clusters"]:
            assert len(set(kept.sources(cluster["archive"]))) == 1  # of one theme each
        hit = (await kept.held.recollection.search(Asked("the ferry and the harbour")))["hits"][0]  # type: ignore[arg-type]
        assert (hit["kind"], hit["archive"]) in [("summary", cluster["archive"]) for cluster in told["clusters"]]
        assert len(hit["of"]) == 4
        assert all("boats of" in source for source in hit["of"])
        for cluster in told["clusters"]:
            assert (await kept.curator.restore(str(cluster["archive"])))["chunks"] == 12
        assert kept.held.image.read(everything) == before
        assert (await kept.curator.round("just read"))["clusters"] == []  # who asked for it wants it


async def at_once() -> None:
    """No mission is under way."""


class Asked:
    """A request to search, as the wire has it."""

    def __init__(self, question: str, k: int = 3) -> None:
        self.question, self.k, self.explain = question, k, True
        self.kind = self.source = self.speaker = self.since = self.until = None


async def test_what_is_read_stays_until_its_reads_have_decayed(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill(("boats", "bread"))
        kept.clock.now += 30 * DAY
        for _ in range(3):
            await kept.held.recollection.search(Asked("dough flour oven crust", 12))  # type: ignore[arg-type]
        read = kept.curator.reads.take()
        assert set(read.values()) == {3}
        assert set(read) <= set(kept.held.look(lambda library: list(library.chunks)))
        for _ in range(3):
            kept.curator.reads.add(list(read))
        kept.clock.now += 1
        told = await kept.curator.round("time went by")
        assert [set(kept.sources(cluster["archive"])) for cluster in told["clusters"]] == [{"boats"}]
        kept.clock.now += 40 * DAY  # three reads, halved three times
        assert (await kept.curator.round("more went by"))["chunks"] > 0
        assert "bread" in {source for number in kept.held.look(lambda library: list(library.archives)) for source in kept.sources(number)}


async def test_what_was_seen_while_the_clock_was_ahead_grows_old_all_the_same(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        kept.clock.now += 3650 * DAY
        await kept.fill(("boats",))
        kept.clock.now -= 3650 * DAY
        assert (await kept.curator.round("the clock was set"))["clusters"] == []
        kept.clock.now += 31 * DAY
        assert len((await kept.curator.round("time went by"))["clusters"]) == 1


async def test_reads_are_written_in_one_go_and_survive_a_restart(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill(("bread",))
        chunk = kept.held.look(lambda library: library.chunks.minKey())
        kept.curator.reads.add([chunk, chunk])
        assert kept.held.look(lambda library: eviction.access_score(library, library.starts[chunk]).score) == 0
    async with memory(tmp_path) as held:
        found = held.look(lambda library: eviction.access_score(library, library.starts[chunk]))
        assert found == eviction.AccessScore(2.0, 1_000_000_000.0)
        assert found.now(1_000_000_000 + 14 * DAY, 14 * DAY) == 1.0


async def test_pinned_things_stay_and_come_back(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill()
        recollection = kept.held.recollection
        pinned = await recollection.tell(pin=str(tmp_path / "boats"))
        assert pinned["pin"] == {"source": str(tmp_path / "boats"), "stays": True, "new": True, "documents": 4, "restored": 0}
        kept.clock.now += 31 * DAY
        await kept.curator.round("time went by")
        archived = kept.held.look(lambda library: list(library.archives))
        assert {source for number in archived for source in kept.sources(number)} == {"bread", "stars"}
        again = await recollection.tell(pin=str(tmp_path / "stars"))
        assert again["pin"]["restored"] == 12
        assert (await recollection.tell(unpin=str(tmp_path / "boats")))["pin"]["documents"] == 4
        kept.clock.now += 90 * DAY
        await kept.curator.round("more went by")
        archived = kept.held.look(lambda library: list(library.archives))
        assert {source for number in archived for source in kept.sources(number)} <= {"bread", "boats", tmp_path.name, ""}
        with pytest.raises(UnknownSource):
            await recollection.tell(pin=str(tmp_path / "nothing"))
        with pytest.raises(UnknownSource, match="archive 99999 does not exist; `batos memory archives`"):
            await recollection.tell(restore="99999")
        await kept.held.whole()


async def test_under_pressure_those_go_that_count_least(tmp_path: Path) -> None:
    async with curated(tmp_path, curate_chunks=20, curate_fresh_days=1e-4) as kept:
        await kept.fill(("boats", "bread"))
        kept.curator.reads.add(kept.held.look(lambda library: [n for n, c in library.chunks.items() if "bread" in c.document.source]))
        kept.clock.now += 60
        told = await kept.curator.round("there is too much")
        await kept.held.embedded()
        assert {cluster["why"] for cluster in told["clusters"]} <= {"pressure"}
        assert kept.chunks() <= 20
        assert {source for cluster in told["clusters"] for source in kept.sources(cluster["archive"])} == {"boats"}
        assert kept.held.image.read(kept.curator.due) == ""


async def test_copies_leave_together_though_they_are_young(tmp_path: Path) -> None:
    async with curated(tmp_path, curate_fresh_days=1e-4, curate_alike=0.96) as kept:
        await kept.fill(("stars",), ("Malta",))
        (tmp_path / "copies").mkdir()
        notice = "The library of the town is closed on all public holidays, and its reading room stays shut in the week after Easter. "
        for n in range(3):
            more = f"Whoever wants to bring back a book on one of those days finds box {n} at the door."
            (tmp_path / "copies" / f"{n}.txt").write_text(f"{notice}{more}\n")
        await kept.held.read(tmp_path / "copies")
        await kept.held.embedded()
        await kept.curator.round("to see what is there")
        kept.clock.now += 60
        told = await kept.curator.round("copies")
        assert [(cluster["why"], set(kept.sources(cluster["archive"]))) for cluster in told["clusters"]] == [("redundant", {"copies"})]


async def test_summaries_grow_old_too_and_all_of_it_comes_back(tmp_path: Path) -> None:
    async with curated(tmp_path, curate_least=2, curate_cluster=8) as kept:
        await kept.fill()
        before = kept.held.image.read(everything)
        sizes = [kept.chunks()]
        for _ in range(3):
            kept.clock.now += 100 * DAY
            await kept.curator.round("time went by")
            await kept.held.whole()
            sizes.append(kept.chunks())
        assert sizes == sorted(sizes, reverse=True)
        levels = kept.held.look(lambda library: {node.level for node in library.archives.values()})
        assert max(levels) > 1  # archives were put together
        for theme in THEMES:
            for place in PLACES:
                source = str(tmp_path / theme / f"{theme} of {place}.md")
                if kept.held.look(lambda library, source=source: library.document(source).archives):
                    await kept.curator.restore(source)
        await kept.held.whole()
        assert kept.held.image.read(everything) == before


async def test_a_model_tells_of_it_once_and_the_budget_holds(tmp_path: Path) -> None:
    asked: list[tuple[str, tuple[int, ...]]] = []

    async def gist(id: str, sections: Sequence[int], sentences: int) -> Gist:
        asked.append((id, tuple(sections)))
        return Gist("Ferries, sails and sailors of Malta." if len(asked) == 1 else "", 60)

    async with curated(tmp_path, curate_tokens=100) as kept:
        await kept.fill()
        kept.curator.use(at_once, gist)
        kept.clock.now += 31 * DAY
        told = await kept.curator.round("time went by")
        assert len(asked) == 2  # 120 tokens are spent: of the third no model was asked
        assert len(dict(asked)) == 2
        assert (told["tokens"], told["by_model"]) == (120, 1)
        assert kept.held.found("sailors")[0].startswith("Ferries, sails and sailors of Malta.\n")


@pytest.mark.parametrize("said", ["", "I cannot help with that request, dear friend!", "word " * 5000])
async def test_what_a_model_says_that_is_no_summary_is_not_taken(tmp_path: Path, said: str) -> None:
    async def gist(id: str, sections: Sequence[int], sentences: int) -> Gist:
        return Gist(said, 1)

    async with curated(tmp_path) as kept:
        await kept.fill(("boats",))
        kept.curator.use(at_once, gist)
        kept.clock.now += 31 * DAY
        assert (await kept.curator.round("time went by"))["by_model"] == 0
        assert kept.held.found("ferry")


async def test_without_an_embedder_it_goes_by_words(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill(("boats",))
        kept.clock.now += 31 * DAY
        kept.held.embedder.away = True
        assert (await kept.curator.round("time went by"))["chunks"] == 12
        assert kept.held.found("ferry")
        kept.held.embedder.away = False
        await kept.held.whole()


async def test_where_there_never_was_an_embedder_things_leave_and_come_back_too(tmp_path: Path) -> None:
    async with curated(tmp_path, curate_least=3) as kept:  # the sections of a document: nothing says what else is of one theme
        kept.held.embedder.away = True
        await kept.write(("boats",))
        await kept.held.until(lambda: not kept.held.image.read(unlinked_titles, 1))  # whose links would change what is put away
        await kept.curator.round("to see what is there")
        kept.clock.now += 31 * DAY
        assert (await kept.curator.round("time went by"))["chunks"] == 12
        assert kept.held.found("ferry")
        kept.held.embedder.away = False
        await kept.held.embedded()
        for place in PLACES:
            await kept.curator.restore(str(tmp_path / "boats" / f"boats of {place}.md"))
        assert kept.chunks() == 12
        await kept.held.whole()


async def test_where_the_embedder_is_away_for_long_things_leave_without_vectors_and_get_them_when_they_are_back(tmp_path: Path) -> None:
    async with curated(tmp_path, curate_least=3) as kept:
        await kept.fill(("boats",))
        kept.held.embedder.away = True
        await kept.write(("bread",))
        await kept.curator.round("to see what is there")
        lacking = kept.held.look(lambda library: list(library.without_vectors()))
        assert len(lacking) == 12
        kept.clock.now += 29 * DAY
        assert (await kept.curator.round("it may come back"))["clusters"] == []
        kept.clock.now += 2 * DAY
        assert (await kept.curator.round("it did not"))["chunks"] == 24
        assert kept.held.found("flour")
        for place in PLACES:
            await kept.curator.restore(str(tmp_path / "bread" / f"bread of {place}.md"))
        back = kept.held.look(lambda library: list(library.without_vectors()))
        assert set(lacking) <= set(back)
        kept.held.embedder.away = False
        await kept.held.embedded()
        assert kept.held.look(lambda library: list(library.without_vectors())) == []
        await kept.held.whole()


async def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill()
        kept.clock.now += 31 * DAY
        before = kept.held.image.read(everything)
        told = await kept.curator.round("only to see", dry=True)
        assert [cluster["documents"] for cluster in told["clusters"]] == [4, 4, 4]
        assert kept.held.image.read(everything) == before


async def test_it_waits_for_missions_before_each_cluster_and_searches_do_not(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill()
        busy = asyncio.Event()
        waited = 0

        async def quiet() -> None:
            nonlocal waited
            waited += 1
            if waited == 2:
                await busy.wait()

        kept.curator.use(quiet)
        kept.clock.now += 31 * DAY
        going = asyncio.create_task(kept.curator.round("time went by"))
        await kept.held.until(lambda: waited == 2)
        assert len(kept.held.look(lambda library: list(library.archives))) == 1
        assert (await kept.held.recollection.search(Asked("ferry")))["hits"]  # type: ignore[arg-type]
        busy.set()
        assert len((await going)["clusters"]) == 3


async def test_what_changes_while_it_is_summarised_stays(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill(("boats",))

        async def gist(id: str, sections: Sequence[int], sentences: int) -> Gist:
            await kept.held.recollection.tell(forget=str(tmp_path / "boats" / "boats of Malta.md"))
            return Gist()

        kept.curator.use(at_once, gist)
        kept.clock.now += 31 * DAY
        assert (await kept.curator.round("time went by"))["clusters"] == []
        await kept.held.whole()
        assert kept.chunks() == 9


async def test_what_is_archived_while_its_file_is_read_anew_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill(("boats",))
        transaction, path = kept.held.image.system, tmp_path / "boats" / "boats of Malta.md"

        async def archived_before(step: Any, *args: Any, **more: Any) -> Any:
            if step is ingest.store_batch:
                kept.clock.now += 31 * DAY
                await kept.curator.round("time went by")
            return await transaction(step, *args, **more)

        monkeypatch.setattr(kept.held.image, "system", archived_before)
        path.write_text(path.read_text() + "# More\n\nA word more of boats.\n")
        assert (await kept.held.read(path))["refused"] == []
        await kept.held.whole()
        assert "".join(kept.held.texts(path)) == path.read_text()


def place_of(library: Library, what: str, source: str) -> int:
    """Where the record of a document is in the image's file, or that of its first chunk."""
    document = library.document(source)
    found = document if what == "a document" else next(library.chunks_of(document))
    return index_position(found._p_jar.db().storage.base, found._p_oid)


@pytest.mark.parametrize("what", ["a chunk", "a document", "an archive"])
async def test_what_is_damaged_holds_up_nothing_else(tmp_path: Path, what: str) -> None:
    source = str(tmp_path / "boats" / "boats of Malta.md")
    async with curated(tmp_path) as kept:
        await kept.fill(("boats",) if what == "an archive" else tuple(THEMES))
        if what == "an archive":
            kept.clock.now += 31 * DAY
            assert len((await kept.curator.round("time went by"))["clusters"]) == 1
            await kept.held.recollection.tell(forget=source)
            await kept.fill(tuple(theme for theme in THEMES if theme != "boats"))
            for blob in (tmp_path / "image.fs.blobs").rglob("*.blob"):
                blob.chmod(0o600)
                blob.write_bytes(b"noise")
        places = kept.held.look(lambda library: [place_of(library, what, source)] if what != "an archive" else [])
        now = kept.clock.now
    flip(tmp_path / "image.fs", *places)
    async with curated(tmp_path) as kept:
        kept.clock.now = now + 31 * DAY
        told = await kept.curator.round("time went by")
        assert sum(one["chunks"] for one in told["clusters"]) == {"a chunk": 24, "a document": 33, "an archive": 24}[what]


async def test_cancelled_in_the_middle_of_a_transaction_what_searches_see_is_what_there_is(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill()
        kept.clock.now += 31 * DAY
        real, system = kept.held.image.system, asyncio.Event()

        async def slow(function: Any, *args: Any, mission: str = "") -> Any:
            if getattr(function, "__name__", "") == "put_away":
                system.set()
            return await real(function, *args, mission=mission)

        kept.held.image.system = slow  # type: ignore[method-assign]
        going = asyncio.create_task(kept.curator.round("time went by"))
        await system.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        await kept.curator.stop()
        await kept.held.whole()
        assert len(kept.held.look(lambda library: list(library.archives))) == 1


async def test_an_archive_that_lost_its_summary_gets_another(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill(("boats",))
        kept.clock.now += 31 * DAY
        (cluster,) = (await kept.curator.round("time went by"))["clusters"]
        await kept.held.embedded()
        await kept.held.recollection.tell(forget=str(tmp_path / "boats" / "boats of Malta.md"))
        assert kept.held.found("ferry") == []
        await kept.curator.round("a summary is missing")
        await kept.held.whole()
        (text,) = kept.held.found("ferry")
        assert "Malta" not in text
        await pack(kept.held.image, tmp_path)
        data = kept.held.image.read(lambda root: blobs.read(library_of(root).archives[cluster["archive"]].blob))
        assert b"Malta" not in archive_format.zstd.decompress(data)


async def test_what_is_left_of_an_archive_is_told_anew_also_where_nothing_else_is_curated(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill(("boats",))
        kept.clock.now += 31 * DAY
        (cluster,) = (await kept.curator.round("time went by"))["clusters"]
        await kept.held.embedded()
    async with curated(tmp_path, curate_check_s=0.05, curate="off") as kept:
        kept.clock.now += 31 * DAY
        await kept.curator.restore(str(tmp_path / "boats" / "boats of Malta.md"))
        running = asyncio.create_task(kept.curator.run())
        await kept.held.until(lambda: kept.held.look(lambda library: list(library.unsummarised)) == [0])
        running.cancel()
        await kept.held.whole()
        assert "Malta" not in "".join(kept.held.texts(f"archive:{cluster['archive']}"))
        await kept.held.recollection.tell(forget=str(tmp_path / "boats" / "boats of Malta.md"))
        await kept.held.whole()
        assert not any("Malta" in text for text in kept.held.look(lambda library: [chunk.text for chunk in library.chunks.values()]))


async def test_missions_become_digests_which_are_recalled_as_missions_are(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        shelver = kept.held.recollection.shelver
        for n, place in enumerate(PLACES):
            draft = Draft(MISSION, "A question", [DraftPart(f"When does the ferry to {place} leave?\n\nIt leaves at dawn.", "A question")])

            def keep(root: Any, draft: Draft = draft, n: int = n) -> Any:
                return remember_document(root, draft, shelver, source=f"mission:{n}", mission=f"m{n}", section_chars=8000)

            kept.held.recollection.stored(await kept.held.image.system(keep), ())
        await kept.fill(("boats",))
        kept.clock.now += 31 * DAY
        await kept.curator.round("time went by")
        await kept.held.whole()
        kinds = kept.held.look(lambda library: {d.kind: [one.kind for one in d.of] for d in library.documents.values() if d.of})
        assert set(kinds) == {DIGEST, SUMMARY}
        assert set(kinds[DIGEST]) == {MISSION}
        view = kept.held.recollection.collection.view()
        digest = kept.held.look(lambda library: next(d.number for d in library.documents.values() if d.kind == DIGEST))
        assert all(flags & LIVED for flags in view.facts["flags"][(view.facts["document"] == digest) & ~view.gone])


async def test_it_comes_of_its_own_accord_for_each_reason(tmp_path: Path) -> None:
    def due() -> str:
        return kept.held.image.read(kept.curator.due)  # type: ignore[no-any-return]

    async with curated(tmp_path, curate_chunks=40, curate_s=1000, curate_growth=3) as kept:
        await kept.fill(("boats",))
        assert due() == ""
        kept.clock.now += 1001
        assert "it is time" in due()
        kept.clock.now -= 365 * DAY
        assert "it is time" in due(), "the clock was set back"
        kept.clock.now += 365 * DAY
        await kept.curator.round("it was time")
        assert due() == ""
        await kept.held.image.system(lambda root: setattr(root["lobby"].memory.curator, "bytes", 1))
        size = kept.held.image.db.getSize
        kept.held.image.db.getSize = lambda: 17 << 20
        assert "the image grew" in due()
        kept.held.image.db.getSize = size
        await kept.curator.round("it had grown")
        assert due() == ""
    async with curated(tmp_path, curate_chunks=10, curate_s=1000, curate_growth=3) as kept:
        kept.clock.now += 1001
        assert "curate_chunks" in due()
        await kept.curator.round("there was much")
        assert due() == ""  # it did all it could, and not much has come since
    async with curated(tmp_path, curate_chunks=10, curate="off") as kept:
        assert due() == ""
        begun = kept.held.look(lambda library: library._p_jar.root()["lobby"].memory.curator.rounds)
        running = asyncio.create_task(kept.curator.run())
        kept.curator.trigger("somebody proposed it")
        await kept.held.until(lambda: (kept.curator.facts()["last"] or {}).get("why") == "somebody proposed it")
        running.cancel()
        assert kept.held.look(lambda library: library._p_jar.root()["lobby"].memory.curator.rounds) == begun + 1


async def test_a_storage_without_blobs_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with curated(tmp_path) as kept:
        monkeypatch.setattr(blobs, "kept_by", lambda db: False)
        with pytest.raises(ImageError, match="keeps no blobs"):
            await kept.curator.round("in vain")
        assert kept.held.image.read(kept.curator.due) == ""


async def test_what_is_archived_is_listed(tmp_path: Path) -> None:
    async with curated(tmp_path) as kept:
        await kept.fill(("boats",))
        kept.clock.now += 31 * DAY
        (cluster,) = (await kept.curator.round("time went by"))["clusters"]
        told = (await kept.held.recollection.tell(archives=5))["archived"]
        (listed,) = told["listed"]
        assert (listed["archive"], listed["documents"], listed["chunks"], listed["level"]) == (cluster["archive"], 4, 12, 1)
        assert listed["bytes"] == cluster["bytes"]
        assert told["archives"] == 1


# --- extracts and clusters, without an image


def test_an_extract_tells_of_each_theme() -> None:
    texts = [text_of("boats", n, place) for n in range(3) for place in PLACES] + [text_of("stars", 1, "Pisa")]
    sources = [curation.ExtractSource(text) for text in texts]
    found = curation.choose_sentences(sources, None, 4)
    said = curation.extract(sources, found, None).split("\n")
    assert len(said) == 4
    assert any("telescope" in line for line in said)
    assert set(said) <= set(texts)


def test_an_extract_says_who_said_it_and_never_says_it_twice() -> None:
    sources = [
        curation.ExtractSource("I sold the boat. Nobody asked.", speaker="Ada"),
        curation.ExtractSource("I sold the boat. Nobody asked.", speaker="Ada"),
    ]
    found = curation.choose_sentences(sources, None, 5)
    assert curation.extract(sources, found, None) == "Ada: I sold the boat."
    vectors = np.eye(sum(map(len, found.sentences)), dtype=np.float32)
    assert curation.extract(sources, found, vectors) == "Ada: I sold the boat."


def test_of_nothing_but_blanks_an_extract_is_what_there_is() -> None:
    sources = [curation.ExtractSource("—"), curation.ExtractSource("  \n")]
    assert curation.extract(sources, curation.choose_sentences(sources, None, 3), None) == "—"
