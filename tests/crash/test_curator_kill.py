"""kill -9 of whoever curates: between any two steps nothing is lost, nothing is there twice, and all of it comes back."""

from __future__ import annotations

import os
import pickle
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from batos.image import blobs
from batos.memory import archive_format, archiver
from batos.memory.store import library_of
from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.archives import everything
from tests.support.crash import on_disk
from tests.support.curator import DAY, THEMES, curated
from tests.support.daemon import Peer, daemon, provisioned
from tests.support.memory import consistent

ROOT = Path(__file__).parents[2]
POINTS = ("summarised", "blob_stored", "voted", "committed", "told", "summarised_again", "round_noted")

KILLED = """
import asyncio, os, pickle, signal, sys
from pathlib import Path
from batos.image import LivingImage
from batos.image.checksummed_storage import CheckedStorage
from batos.memory import curation
from batos.memory.curator import Curator
from batos.app.memory import MemoryRuntime
from tests.support.archives import everything
from tests.support.curator import DAY, curated

folder, point = Path(sys.argv[1]), sys.argv[2]

def before(owner, name):
    setattr(owner, name, lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL))

def after(owner, name, count=1):
    real, left = getattr(owner, name), [count]
    def wrapped(*args, **kwargs):
        found = real(*args, **kwargs)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(owner, name, wrapped)

async def main():
    async with curated(folder, curate_clusters=2) as kept:
        await kept.fill()
        (folder / "before").write_bytes(pickle.dumps(kept.held.image.read(everything)))
        kept.clock.now += 31 * DAY
        if point == "summarised":
            before(curation, "put_away")
        elif point == "blob_stored":
            after(CheckedStorage, "storeBlob", 2)
        elif point == "voted":
            real = curation.put_away
            def put_away(*args):
                before(kept.held.image.committer._syncer, "sync")  # what follows when this is committed, and not yet durable
                return real(*args)
            curation.put_away = put_away
        elif point == "committed":
            before(MemoryRuntime, "stored")
        elif point == "told":
            after(MemoryRuntime, "stored", 2)
        elif point == "round_noted":
            after(curation, "note_round")
        if point == "summarised_again":
            first = (await kept.curator.round("time went by"))["clusters"][0]["archive"]
            source = kept.held.look(lambda library: library.archives[first].of[0].source)
            await kept.held.recollection.tell(forget=source)
            (folder / "gone").write_text(source)
            after(MemoryRuntime, "stored")
        await kept.curator.round("time went by")
        raise AssertionError("it lives")

asyncio.run(main())
"""


@pytest.mark.parametrize("point", POINTS)
async def test_killed_between_any_two_steps(tmp_path: Path, point: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = forked.run([sys.executable, "-c", KILLED, str(tmp_path), point], cwd=ROOT, env=environ, capture_output=True, timeout=100)
    assert child.returncode == -9, child.stderr.decode()
    before: dict[str, Any] = pickle.loads((tmp_path / "before").read_bytes())
    async with curated(tmp_path) as kept:
        await kept.held.whole()
        kept.clock.now += 40 * DAY
        await kept.curator.round("it goes on")
        await kept.held.whole()
        assert kept.chunks() < len(before["chunks"]) / 2
        assert kept.held.look(lambda library: list(library.unsummarised)) == [0]
        blobs.sweep(kept.held.image.db)
        assert len(list(tmp_path.rglob("*.blob"))) == len(list(blobs.records(kept.held.image.db)))
        for number in kept.held.look(lambda library: list(library.archives)):
            if kept.held.look(lambda library, number=number: number in library.archives):
                await kept.curator.restore(str(number))
        await kept.held.whole()
        after = kept.held.image.read(everything)
    if point == "summarised_again":
        assert (tmp_path / "gone").read_text() not in after["sources"]
        assert {n: after["chunks"][n] for n in after["chunks"]} == {n: before["chunks"][n] for n in after["chunks"]}
    else:
        assert after == before


def texts_of(root: Any) -> dict[str, str]:
    """The whole text of each document that was read, what is archived of it included. All parts of the library must agree."""
    library = library_of(root)
    consistent(library)
    there = {number: library.text_of(library.section(number)) for number in library.sections}
    owners = {number: library.section(number).document for number in library.sections}
    for node in library.archives.values():
        material = archive_format.unpack_archive(blobs.read(node.blob))
        assert not {one.section.number for one in material.held} & there.keys()
        there |= {one.section.number: one.text for one in material.held}
        owners |= {one.section.number: one.section.document for one in material.held}
        assert node.summary is not None
        assert node.summary.archive is node
    found = {}
    for document in filter(lambda one: one.archive is None, library.documents.values()):
        own = (number for number, of in owners.items() if of == document.number)
        found[document.source] = "".join(there[number] for number in archiver.section_order(document, own))
    return found


def test_a_daemon_that_curates_and_is_killed_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("CRASH_SEED", "9")))
    data = tmp_path / "data"
    (tmp_path / "notes").mkdir()
    texts = {}
    for n in range(40):
        path = tmp_path / "notes" / f"note{n}.md"
        named, said = THEMES[sorted(THEMES)[n % 3]]
        texts[str(path)] = "".join(f"# Part {k} of note {n}\n\nThe {named} number {n} {said[k]}.\n\n" for k in range(3))
        path.write_text(texts[str(path)])
    quick = {
        "curate_age_days": 0,
        "curate_fresh_days": 0,
        "curate_s": 0.05,
        "curate_check_s": 0.05,
        "curate_least": 6,
        "curate_cluster": 12,
    }
    quick |= {"embed_retry_s": 0.1, "curate_tokens": 0, "chunk_smallest": 20}
    with ScriptedOllama() as server:
        provisioned(server)
        for life in range(5):
            with daemon(data, ollama_host=server.host, **quick) as running, Peer(running.endpoint) as peer:
                if not life:
                    peer.ask("ingest", paths=[str(tmp_path / "notes")])
                while peer.ask("memory")["waiting"]["files"]:
                    time.sleep(0.02)
                while life == 4 and not peer.ask("memory", archives=1)["archived"]["archives"]:
                    time.sleep(0.02)  # a busy machine: there would be nothing to bring back
                time.sleep(chance.uniform(0.0, 0.6))  # not to wait for anything: the kill may come at any moment
                running.kill()
            assert on_disk(data, texts_of) == texts
        with daemon(data, ollama_host=server.host, **{**quick, "curate": "off"}) as running, Peer(running.endpoint) as peer:
            told = peer.ask("memory", archives=1000)
            assert told["archived"]["archives"] > 0
            for one in told["archived"]["listed"]:
                if one["archive"] in {left["archive"] for left in peer.ask("memory", archives=1000)["archived"]["listed"]}:
                    peer.ask("memory", restore=str(one["archive"]))
            assert running.terminate() == 0
        assert on_disk(data, texts_of) == texts
        assert on_disk(data, lambda root: list(library_of(root).archives)) == []
