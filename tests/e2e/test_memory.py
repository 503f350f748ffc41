"""Notes read, asked about and forgotten, as a user does it: a daemon, the command line, a real Ollama."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import END_S, Peer, batos, daemon, embedded, provisioned, sources

NOTES = {
    "garden.md": "# Garden\n\nThe tomatoes stand on the balcony and want water twice a day.\n\n# Cellar\n\nThe apples lie on straw.\n",
    "car.md": "# Car\n\nThe old Volvo needs new brakes before winter. The garage in Mill Street does it.\n",
    "chat.txt": "# 8 May 2023\nAnna: I planted basil.\nBen: My cat ate mine last year.\nAnna: Oh no, poor basil!\nBen: She was fine.\n",
}


@pytest.fixture
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    for name, text in NOTES.items():
        (folder / name).write_text(text)
    return folder


def test_notes_are_read_asked_about_and_forgotten(tmp_path: Path, notes: Path, ollama_host: str) -> None:
    with daemon(tmp_path, ollama_host=ollama_host) as running, Peer(running.endpoint) as peer:
        code, told = batos(running, "ingest", str(notes))
        assert (code, told["added"], told["refused"]) == (0, 3, [])
        assert sources(batos(running, "search", "Where are the tomatoes?", "-k", "1")[1]) == ["garden.md"]  # by words, at once
        held = embedded(peer)
        assert held["embedder"]["vectors"] == held["chunks"]
        # no word of these questions is in the notes that answer them
        assert sources(batos(running, "search", "vehicle repair", "-k", "1")[1]) == ["car.md"]
        code, found = batos(running, "search", "Which pet ate a herb?", "-k", "2", "--explain")
        assert "chat.txt" in sources(found)
        assert found["by_vectors"] is True
        assert all(hit["signals"] for hit in found["hits"])
        assert sources(batos(running, "search", "basil", "--speaker", "Ben")[1]) == ["chat.txt", "chat.txt"]
        code, told = batos(running, "memory", "forget", str(notes / "chat.txt"))
        assert (code, told["forgotten"]["chunks"], told["documents"]) == (0, 4, 2)
        assert "chat.txt" not in sources(batos(running, "search", "basil")[1])
        assert batos(running, "memory", "forget", str(notes / "chat.txt"))[0] == 4
        assert peer.ask("pack", days=0)["type"] == "pack"
        assert running.terminate() == 0
    image = (tmp_path / "live_image.fs").read_bytes()
    assert b"basil" not in image
    assert b"tomatoes" in image
    with daemon(tmp_path, ollama_host=ollama_host) as running:
        assert sources(batos(running, "search", "vehicle repair", "-k", "1")[1]) == ["car.md"]
        assert running.terminate() == 0
    assert running.noise == []


def test_a_watched_folder_over_a_restart(tmp_path: Path, notes: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        quick = {"ollama_host": server.host, "watch_s": 0.1}
        with daemon(tmp_path, **quick) as running, Peer(running.endpoint) as peer:
            code, told = batos(running, "ingest", "--watch", str(notes))
            assert (code, told["added"]) == (0, 3)
            (notes / "new.md").write_text("# New\n\nA walrus came by.\n")
            while peer.ask("memory")["documents"] < 4:
                time.sleep(0.05)
            running.kill()
        (notes / "car.md").unlink()
        with daemon(tmp_path, **quick) as running, Peer(running.endpoint) as peer:
            while peer.ask("memory")["documents"] != 3:
                time.sleep(0.05)
            listed = peer.ask("memory", documents=10)["listed"]
            assert sorted(Path(document["source"]).name for document in listed) == ["chat.txt", "garden.md", "new.md"]
            assert peer.ask("memory", unfollow=str(notes))["followed"] == []
            assert running.terminate() == 0


def test_the_same_watch_asked_for_twice_stays_one(tmp_path: Path, notes: Path) -> None:
    with ScriptedOllama() as server, daemon(tmp_path, ollama_host=provisioned(server).host) as running, Peer(running.endpoint) as peer:
        peer.send("ingest", paths=[str(notes)], watch=True, ref="i")
        peer.send("ingest", paths=[str(notes)], watch=True, ref="i")
        ends: list[dict[str, Any]] = []
        begun = 0
        while not ends or begun < 2:
            reply = peer.reply()
            begun += "watching" in reply
            ends += [reply] if reply["type"] == "ingest" and "watching" not in reply else []
        assert len(ends) == 1 or ends[1]["unchanged"] == 3  # where the first had ended when the second came
        assert ends[0]["added"] == 3
        for refused in ({"paths": [str(notes / "nothing.md")]}, {"paths": ["garden.md"]}, {"follow": [str(notes / "car.md")]}):
            assert peer.ask("ingest", **refused)["code"] == "unreadable"
        assert peer.ask("memory", unfollow="/nowhere")["code"] == "unreadable"
        assert running.terminate() == 0


@pytest.mark.long
def test_a_question_is_answered_from_the_notes_that_it_cites(tmp_path: Path, notes: Path, ollama_host: str) -> None:
    with daemon(tmp_path, ollama_host=ollama_host, num_predict=48, facets_limit=1) as running, Peer(running.endpoint) as peer:
        assert batos(running, "ingest", str(notes))[0] == 0
        embedded(peer)
        peer.ask("submit", id="q1", brief="Look up which garage does the brakes of the Volvo")
        end = peer.result("q1")
        assert end["state"] == "COMPLETE", end
        result = end["result"]
        assert result["persona"] == "BABS"
        assert "car.md" in [Path(one["source"]).name for one in result["citations"]], result
        cited = next(one for one in result["citations"] if one["source"].endswith("car.md"))
        assert "Mill Street" in peer.ask("show", target=cited["chunk"])["slots"]["text"]
        assert all(sentence in result["text"] for sentence in cited["sentences"])
        # and what was answered is memory itself, soon after
        deadline = time.monotonic() + END_S
        while "mission:q1" not in [one["source"] for one in peer.ask("memory", documents=10)["listed"]]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert running.terminate() == 0
    assert running.noise == []
