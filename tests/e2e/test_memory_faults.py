"""Wrong input, full disks, folders and embedders that go away, met by a whole daemon while it reads: clear, and nothing lost."""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path

from batos.testing import ScriptedOllama
from tests.support.daemon import Daemon, Peer, daemon, provisioned, until
from tests.support.documents import DATA, pdf

GB = 1 << 30
A_PART = 256 * 1024
"""Bytes: less than the long file needs in the image."""


def peak_bytes(running: Daemon) -> int:
    """The most memory that the process had so far."""
    line = next(line for line in Path(f"/proc/{running.process.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def wrong(folder: Path) -> dict[str, str]:
    """Files that cannot be read, and a word of why each is refused."""
    noise = random.Random(1).randbytes(200_000)
    files = {
        "junk.txt": (noise, "binary"),
        "text_then_junk.txt": (b"A walrus. " * 10_000 + noise, "binary"),
        "junk.pdf": (noise, "its content does not"),
        "endless.txt": (b"a" * 20_000_000, "a word of more than"),
        "endless.json": (b"[" * 5_000_000, "a word of more than"),
        "broken.pdf": (pdf("A walrus.")[:300], "broken"),
        "locked.pdf": ((DATA / "locked_aes.pdf").read_bytes(), "encrypted with a password"),
        "empty.md": (b" \n", "empty"),
    }
    for name, (data, _) in files.items():
        (folder / name).write_bytes(data)
    with (folder / "huge.txt").open("wb") as huge:
        huge.truncate(GB)
    os.mkfifo(folder / "pipe.txt")
    return {**{name: why for name, (_, why) in files.items()}, "huge.txt": f"it has {GB} bytes", "pipe.txt": "not a file"}


def test_files_of_all_wrong_kinds_are_refused_and_the_others_read(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    refused = wrong(notes)
    (notes / "a_line.txt").write_text("The walrus said a word. " * 100_000)  # 2.4 MB in one line
    (notes / "good.md").write_text("# Good\n\nThe heron stands by the pond.\n")
    with (
        ScriptedOllama() as server,
        daemon(tmp_path / "data", ollama_host=provisioned(server).host) as running,
        Peer(running.endpoint) as peer,
    ):
        before = peak_bytes(running)
        peer.send("ingest", paths=[str(notes)], watch=True, ref="i")
        replies = [peer.reply()]
        while "added" not in replies[-1]:
            replies.append(peer.reply())
        assert replies[-1]["added"] == 2
        told = {Path(one["path"]).name: one["message"] for one in replies[-1]["refused"]}
        assert told.keys() == refused.keys()
        assert [name for name, why in refused.items() if why not in told[name]] == []
        assert peak_bytes(running) - before < 200 * 2**20
        assert peer.ask("search", question="Where does the heron stand?")["hits"][0]["text"].endswith("by the pond.")
        assert running.terminate() == 0
    assert running.noise == []


def test_a_disk_that_fills_up_while_a_file_is_read(tmp_path: Path) -> None:
    text = "".join(f"# Part {n}\n\nThis is what part {n} says about number{n} and its neighbours.\n\n" for n in range(1500))
    (tmp_path / "long.md").write_text(text)
    with ScriptedOllama() as server:
        options = {"ollama_host": provisioned(server).host, "ingest_batch_bytes": 2048, "ingest_retry_s": 0.1}
        with daemon(tmp_path / "data", **options) as running, Peer(running.endpoint) as peer, Peer(running.endpoint) as other:
            size, room = (tmp_path / "data" / "live_image.fs").stat().st_size, resource.RLIM_INFINITY
            resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (size + A_PART, room))
            peer.send("ingest", paths=[str(tmp_path / "long.md")], watch=True, ref="i")
            states = []
            while (reply := peer.reply()).get("state") != "waiting":
                assert "added" not in reply, "the whole file needs more than there is room for"
                states.append(reply.get("state"))
            assert "reading" in states, "some of it was read before"
            assert "cannot write" in reply["message"] or "full" in reply["message"]
            assert other.ask("memory")["trouble"] == reply["message"]
            assert other.ask("search", question="What does part 1 say?")["hits"]
            resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (room, room))
            while "added" not in (reply := peer.reply()):
                pass
            assert (reply["added"], reply["refused"]) == (1, [])
            assert other.ask("memory")["trouble"] == ""
            assert other.ask("search", question="number1499")["hits"][0]["section"] == "Part 1499"
            assert other.ask("memory")["sections"] == 1500
            assert running.terminate() == 0
    assert running.noise == []


def test_a_folder_and_an_embedder_that_go_away_and_come_back(tmp_path: Path) -> None:
    notes, elsewhere = tmp_path / "notes", tmp_path / "elsewhere"
    notes.mkdir()
    (notes / "good.md").write_text("# Good\n\nThe heron stands by the pond.\n")
    with ScriptedOllama() as server:
        provisioned(server)
        options = {"ollama_host": server.host, "watch_s": 0.05, "embed_retry_s": 0.1, "inference_retries": 0, "outage_wait_s": 0}
        server.fail("status_500", times=None, path="/api/embed")
        with daemon(tmp_path / "data", **options) as running, Peer(running.endpoint) as peer:
            peer.ask("ingest", paths=[], follow=[str(notes)])
            until(lambda: peer.ask("memory")["documents"] == 1)
            until(lambda: peer.ask("memory")["embedder"]["state"] == "away")
            found = peer.ask("search", question="Where does the heron stand?")
            assert (found["hits"][0]["section"], found["by_vectors"]) == ("Good", False)
            assert peer.ask("memory")["waiting"]["sections"] == 1
            server.clear()
            until(lambda: peer.ask("memory")["waiting"]["sections"] == 0)
            notes.rename(elsewhere)
            until(lambda: peer.ask("memory")["followed"][0]["away"])
            assert peer.ask("memory")["documents"] == 1
            assert peer.ask("search", question="Where does the heron stand?")["hits"]
            (elsewhere / "new.md").write_text("# New\n\nA walrus came by.\n")
            elsewhere.rename(notes)
            until(lambda: peer.ask("memory")["documents"] == 2)
            assert peer.ask("memory")["followed"][0]["away"] == ""
            assert running.terminate() == 0
    assert running.noise == []
