"""What is old leaves a daemon's memory and comes back: by the command line, with a scripted model that tells of it, and with a real one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support.curator import PLACES, text_of
from tests.support.daemon import END_S, Daemon, Peer, batos, daemon, embedded, provisioned, sources

SAID = "The harbour ferry has a keel and sails, and sailors go home on it."
OLD: dict[str, Any] = {"curate_age_days": 0, "curate_fresh_days": 0, "curate_s": 3600, "curate_least": 4, "chunk_smallest": 20}


@pytest.fixture
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    for place in PLACES:
        (folder / f"{place}.md").write_text("".join(f"# Part {n}\n\n{text_of('boats', n, place)}\n\n" for n in range(3)))
    return folder


def curated(running: Daemon) -> dict[str, Any]:
    """A round that found something: the first only notices what there is."""
    deadline = time.monotonic() + END_S
    while not (told := batos(running, "memory", "curate")[1])["clusters"]:
        assert time.monotonic() < deadline, told
    return told  # type: ignore[no-any-return]


def test_notes_leave_and_come_back(tmp_path: Path, notes: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(SAID, "Say in at most")
        with daemon(tmp_path, ollama_host=server.host, **OLD) as running, Peer(running.endpoint) as peer:
            batos(running, "ingest", str(notes))
            before = embedded(peer)
            batos(running, "memory", "pin", str(notes / "Bergen.md"))
            asked = len(server.chats)
            told = curated(running)
            assert (told["chunks"], told["by_model"], len(told["clusters"])) == (9, 1, 1)
            assert told["tokens"] > 0
            assert len(server.chats) == asked + 1

            found = batos(running, "search", "Who goes home on the ferry with a keel?", "-k", "20", "--explain")[1]
            number = told["clusters"][0]["archive"]
            hit = next(hit for hit in found["hits"] if SAID in hit["text"])
            assert (hit["kind"], hit["archive"]) == ("summary", number)
            assert sorted(Path(source).name for source in hit["of"]) == ["Genoa.md", "Lisbon.md", "Malta.md"]
            assert "Bergen.md" in sources(found)

            missions = peer.ask("missions")["missions"]
            (asked_by,) = [one for one in missions if one["id"].startswith("curate-")]
            assert (asked_by["origin"], asked_by["state"]) == ("system", "COMPLETE")
            assert SAID not in str(peer.ask("result", id=asked_by["id"]))  # it is in the summary, and nowhere else

            listed = batos(running, "memory", "archives")[1]["archived"]
            assert [(one["archive"], one["by_model"]) for one in listed["listed"]] == [(number, True)]
            assert listed["pinned"] == [str(notes / "Bergen.md")]
            assert batos(running, "ingest", str(notes))[1]["unchanged"] == 4

            assert peer.ask("backup")["blob_bytes"] > 0
            assert batos(running, "memory", "restore", str(notes / "Malta.md"))[1]["restored"] == {"archives": [number], "chunks": 3}
            assert batos(running, "memory", "restore", str(number))[1]["restored"] == {"archives": [number], "chunks": 6}
            assert embedded(peer)["chunks"] == before["chunks"]
            hits = batos(running, "search", text_of("boats", 0, "Malta"), "-k", "1")[1]["hits"]
            assert text_of("boats", 0, "Malta") in hits[0]["text"]
            assert running.terminate() == 0
        elsewhere = tmp_path / "elsewhere"
        with daemon(elsewhere, ollama_host=server.host, curate="off", image=f"file://{restored(tmp_path, elsewhere)}") as running:
            assert batos(running, "memory", "restore", str(number))[1]["restored"]["chunks"] == 9


def restored(folder: Path, elsewhere: Path) -> Path:
    """The image of a backup, in a folder of its own."""
    from batos.image.backup import restore

    image = elsewhere / "live_image.fs"
    restore(folder / "backups", image)
    return image


def test_of_its_own_accord_and_after_missions(tmp_path: Path, notes: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        quick = {**OLD, "curate_s": 0.1, "curate_check_s": 0.1, "curate_tokens": 0}
        with daemon(tmp_path, ollama_host=server.host, **quick) as running, Peer(running.endpoint) as peer:
            server.hold()
            asked = len(server.chats)
            peer.send("submit", id="m1", brief="I feel stuck")
            assert peer.reply()["type"] == "accepted"
            server.wait_for("/api/chat", asked + 1)
            batos(running, "ingest", str(notes))
            time.sleep(1.0)  # time enough for some rounds
            assert peer.ask("memory", archives=9)["archived"]["archives"] == 0
            server.release()
            assert peer.result("m1")["state"] == "COMPLETE"
            curated = running.logged("curated")
            assert curated["chunks"] > 0
            assert peer.ask("memory", archives=9)["archived"]["archives"] > 0
            assert peer.ask("info")["memory"]["curator"]["last"]["at"] >= curated["at"], "of this round, or of one that came after it"
            assert running.terminate() == 0


@pytest.mark.long
def test_with_a_real_model(tmp_path: Path, notes: Path, ollama_host: str) -> None:
    with daemon(tmp_path, ollama_host=ollama_host, **OLD) as running, Peer(running.endpoint) as peer:
        batos(running, "ingest", str(notes))
        held = embedded(peer)
        told = curated(running)
        assert told["tokens"] > 0
        embedded(peer)
        hit = batos(running, "search", "boats in a harbour", "-k", "1")[1]["hits"][0]
        assert (hit["kind"], hit["archive"]) == ("summary", told["clusters"][0]["archive"])
        for one in told["clusters"]:
            batos(running, "memory", "restore", str(one["archive"]))
        assert embedded(peer)["chunks"] == held["chunks"]
        assert running.terminate() == 0
