"""A daemon whose embedder is another than the one that the image's vectors are from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.image.storage import open_database
from batos.memory.embedders import NORMALISATION
from batos.memory.store import library_of
from batos.testing import ScriptedOllama
from batos.testing.models import base
from tests.support.daemon import Peer, daemon, provisioned, until

QUESTION = "Where does the heron stand?"
OLD = "old-words:latest"


def filled(folder: Path, host: str) -> str:
    """An image with a note, whose vectors are from a model that the profile does not have any more; the identity of that."""
    note = folder.with_name(f"{folder.name}.md")
    note.write_text("# Good\n\nThe heron stands by the pond.\n")
    with daemon(folder, ollama_host=host) as running, Peer(running.endpoint) as peer:
        peer.ask("ingest", paths=[str(note)])
        until(lambda: peer.ask("memory")["embedder"]["vectors"] == 1)
        assert running.terminate() == 0
    db = open_database(f"file://{folder / 'live_image.fs'}", cache_size=1000, pool_size=7)
    try:
        with db.transaction() as connection:
            return made_by(connection.root(), f"ollama:{OLD}@{base(OLD).digest[:16]}.{NORMALISATION}")
    finally:
        db.close()


def made_by(root: Any, who: str) -> str:
    library = library_of(root)
    log = library.vectors.pop(library.embedder)
    log.identity = library.embedder = f"{who}:{log.dimensions}"
    library.vectors[log.identity] = log
    return str(log.identity)


@pytest.mark.parametrize("there", [True, False])
def test_the_old_model_reads_questions_if_ollama_has_it_still_and_is_never_fetched(tmp_path: Path, there: bool) -> None:
    with ScriptedOllama(pullable=[OLD]) as server:
        old = filled(tmp_path, provisioned(server).host)
        if there:
            server.models[OLD] = base(OLD)
        server.fail("status_500", times=None, when=lambda request: request.get("model") == "minilm:embedded", path="/api/embed")
        options = {"ollama_host": server.host, "embed_retry_s": 0.1, "inference_retries": 0, "remember": "off"}
        with daemon(tmp_path, **options) as running, Peer(running.endpoint) as peer:
            until(lambda: peer.ask("memory")["embedder"]["state"] == "away")
            assert peer.ask("memory")["embedder"]["serving"] == old
            found = peer.ask("search", question=QUESTION)
            assert (found["hits"][0]["section"], found["by_vectors"]) == ("Good", there)
            assert there or OLD in found["why"]
            server.clear()
            until(lambda: peer.ask("memory")["embedder"]["serving"].startswith("ollama:minilm:embedded@"))
            until(lambda: peer.ask("search", question=QUESTION)["by_vectors"])
            assert running.terminate() == 0
        assert (OLD in server.models, OLD in str([r for r in server.requests if r.path == "/api/pull"])) == (there, False)
