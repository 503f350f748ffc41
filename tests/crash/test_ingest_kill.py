"""kill -9 in the middle of an ingest, again and again: in the end all is there, once, and nothing was done for nothing."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from batos.memory.store import library_of
from batos.testing import ScriptedOllama
from tests.support.crash import on_disk
from tests.support.daemon import Peer, daemon, provisioned
from tests.support.memory import consistent

FILES, PARTS = 12, 25
SETTINGS = {"ingest_batch_bytes": 1024, "ingest_attempts": 100, "embed_sections": 2, "embed_retry_s": 0.1}


def written(folder: Path) -> dict[str, str]:
    """Notes of several sections each; text by path."""
    folder.mkdir()
    texts = {}
    for file in range(FILES):
        parts = (f"# Part {n} of note {file}\n\nWhat part {n} says, only note {file} says: word{file}x{n}.\n\n" for n in range(PARTS))
        texts[str(folder / f"note{file:02}.md")] = "".join(parts)
    for path, text in texts.items():
        Path(path).write_text(text)
    return texts


def looked_at(root: Any) -> tuple[dict[str, tuple[bool, str]], int]:
    """Of each document whether it is complete, and its text; the files in the queue. All must fit together."""
    library = library_of(root)
    consistent(library)
    documents = {
        d.source: (bool(d.complete), "".join(library.text_of(section) for section in library.sections_of(d)))
        for d in library.documents.values()
    }
    return documents, len(library.queue)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    data, texts, chance = tmp_path / "data", written(tmp_path / "notes"), random.Random(8)
    with ScriptedOllama() as server:
        provisioned(server)
        for life in range(6):
            with daemon(data, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
                if not life:
                    assert peer.ask("ingest", paths=[str(tmp_path / "notes")])["queued"] == FILES
                time.sleep(chance.uniform(0.0, 0.25))  # not to wait for anything: the kill may come at any moment
                running.kill()
            documents, queued = on_disk(data, looked_at)
            assert queued + sum(complete for complete, _ in documents.values()) == FILES, "each file is read, or waits to be"
            for source, (complete, text) in documents.items():
                assert (text == texts[source]) if complete else texts[source].startswith(text)
        with daemon(data, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
            while (told := peer.ask("memory"))["waiting"] != {"files": 0, "sections": 0}:
                time.sleep(0.05)
            assert (told["documents"], told["refused"]) == (FILES, [])
            assert told["embedder"]["vectors"] == told["chunks"]
            assert running.terminate() == 0
        documents, _ = on_disk(data, looked_at)
        assert documents == {source: (True, text) for source, text in texts.items()}
