"""The verbs ingest and memory."""

from __future__ import annotations

import json
import os
import re

import pytest

from batos.cli import main
from batos.errors import UnknownSource, Unreadable
from tests.support.cli import batos

EMBEDDER = {"identity": "ollama:minilm@1:384", "state": "working", "why": "", "vectors": 30}
HELD = {
    "type": "memory", "documents": 3, "sections": 9, "chunks": 40, "entities": 2, "archives": 1,
    "waiting": {"files": 0, "sections": 4}, "trouble": "",
    "refused": [{"path": "/n/x.pdf", "code": "unreadable", "message": "it is encrypted", "at": 0.0}],
    "followed": [{"folder": "/n", "away": "the folder /n is away"}], "embedder": EMBEDDER,
}  # fmt: skip
END = {"type": "ingest", "queued": 3, "added": 1, "updated": 0, "unchanged": 1, "forgotten": 0, "chunks": 12, "took_s": 0.5}
REFUSED = {"path": "/n/x.pdf", "code": "unreadable", "message": "it is encrypted"}
EVENTS = [
    {"type": "ingest", "queued": 3, "watching": True},
    {"type": "file", "path": "/n/a.md", "state": "reading", "chunks": 7},
    {"type": "file", "path": "/n/a.md", "state": "added", "chunks": 12, "kind": "markdown"},
    {"type": "file", "path": "/n/b.md", "state": "unchanged", "chunks": 0},
    {"type": "file", "state": "refused", "chunks": 0, **REFUSED},
]


def test_ingest_tells_of_each_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, [request] = batos({"ingest": [*EVENTS, {**END, "refused": [REFUSED]}]}, "ingest", "notes", "/n/a.md", "--watch", "later")
    assert (code, request.watch) == (1, True)
    assert request.paths == [os.path.abspath("notes"), "/n/a.md"]
    assert request.follow == [os.path.abspath("later")]
    told = capsys.readouterr()
    assert told.out.splitlines()[:4] == [
        "added      /n/a.md: 12 chunks",
        "unchanged  /n/b.md",
        "refused    /n/x.pdf: it is encrypted",
        "1 added, 1 unchanged, 1 refused; 12 chunks can be searched (0.5 s)",
    ]
    assert "watching" in told.out.splitlines()[4]
    assert "7 chunks so far" in told.err


def test_ingest_as_json_is_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"ingest": [*EVENTS[:3], {**END, "refused": []}]}, "ingest", "/n/a.md", "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (code, [line["type"] for line in lines]) == (0, ["ingest", "file", "file", "ingest"])


def test_ingest_of_what_is_not_there_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    away = {"path": os.path.abspath("later"), "code": "unreadable", "message": "it is not there"}
    code, _ = batos({"ingest": [EVENTS[0], EVENTS[2], {**END, "refused": [away]}]}, "ingest", "/n/a.md", "--watch", "later")
    assert (code, "watching" in capsys.readouterr().out) == (1, False)
    code, _ = batos({"ingest": Unreadable("/n/x: it cannot be read: No such file or directory")}, "ingest", "/n/x")
    assert (code, "unreadable: /n/x: it cannot be read" in capsys.readouterr().err) == (1, True)


def test_ingest_of_nothing_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({}, "ingest") == (2, [])
    assert "name a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("ingest", ""), ("ingest", "a.txt", ""), ("ingest", "--watch", ""), ("memory", "forget", ""), ("memory", "pin", ""),
        ("search", "trees", "--source", ""), ("fork", ""), ("backup", ""),
        ("restore", ""), ("audit", ""),
    ],
)  # fmt: skip
def test_an_empty_name_is_not_the_working_folder(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    asking = ["--connect", "tcp://127.0.0.1:9"] if words[0] not in ("restore", "audit") else []
    assert main([*words, *asking]) == 2
    assert "the working folder is ." in capsys.readouterr().err


def test_memory_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, [request] = batos({"memory": HELD}, "memory")
    assert (code, request.documents, request.forget, request.unfollow) == (0, None, None, None)
    out = capsys.readouterr().out
    for words in (
        "3 documents, 40 chunks, 2 entities",
        "30 chunks have one; working",
        "4 sections for vectors",
        "/n, away: the folder",
        "encrypted",
    ):
        assert words in out
    assert batos({"memory": HELD}, "memory", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out) == HELD


def test_memory_says_whose_vectors_serve_during_a_change_of_embedder(capsys: pytest.CaptureFixture[str]) -> None:
    batos({"memory": {**HELD, "embedder": {**EMBEDDER, "serving": "onnx:minilm@2:384"}}}, "memory")
    assert "those of onnx:minilm@2:384 serve" in capsys.readouterr().out.replace("\n", " ")
    batos({"memory": {**HELD, "embedder": {**EMBEDDER, "serving": EMBEDDER["identity"]}}}, "memory")
    assert "serve" not in capsys.readouterr().out


def test_memory_lists_documents(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"source": "/n/a.md", "title": "A\x1b[31m", "kind": "markdown", "chunks": 12, "day": "2024-01-01", "oid": "oid:5c"}
    code, [request] = batos({"memory": {**HELD, "listed": [one]}}, "memory", "documents", "--limit", "1")
    assert (code, request.documents) == (0, 1)
    told = capsys.readouterr()
    assert re.search(r"A\[31m +markdown +12 +2024-01-01 +oid:5c +/n/a.md", told.out)
    assert "the newest 1 of 3" in told.err
    batos({"memory": {**HELD, "listed": []}}, "memory", "documents")
    assert "memory is empty" in capsys.readouterr().out


def test_memory_forgets_and_unfollows(capsys: pytest.CaptureFixture[str]) -> None:
    gone = {"source": "/n/a.md", "title": "A", "kept": [], "chunks": 12}
    code, [request] = batos({"memory": {**HELD, "forgotten": gone}}, "memory", "forget", "/n/a.md")
    assert (code, request.forget) == (0, "/n/a.md")
    told = capsys.readouterr()
    assert "A is forgotten: 12 chunks" in told.out
    assert "batos pack --days 0" in told.err
    batos({"memory": {**HELD, "forgotten": {**gone, "kept": ["/n/b.md"]}}}, "memory", "forget", "/n/a.md")
    assert "kept as that of /n/b.md" in capsys.readouterr().out
    assert batos({"memory": HELD}, "memory", "unfollow", "notes")[1][0].unfollow == os.path.abspath("notes")
    assert batos({"memory": HELD}, "memory", "forget", "mission:m1")[0] != 2
    for words in (("forget",), ("documents", "x"), ("nonsense",)):
        assert batos({}, "memory", *words)[0] == 2


def test_a_source_that_is_no_path_is_found_too(capsys: pytest.CaptureFixture[str]) -> None:
    gone = {"source": "odd", "title": "Odd", "kept": [], "chunks": 1}
    script = {"memory": lambda request: {**HELD, "forgotten": gone} if request.forget == "odd" else UnknownSource("nothing is from there")}
    code, requests = batos(script, "memory", "forget", "odd")
    assert (code, [request.forget for request in requests]) == (0, [os.path.abspath("odd"), "odd"])
    assert batos({"memory": UnknownSource("nothing is from there")}, "memory", "forget", "odd")[0] == 4
    assert "unknown_source" in capsys.readouterr().err


ROUND = {"type": "curate", "why": "it was asked for", "chunks": 12, "bytes": 900, "by_model": 0, "tokens": 0, "took_s": 0.1}


def test_the_curator_says_what_it_archived_or_would(capsys: pytest.CaptureFixture[str]) -> None:
    done = {**ROUND, "found": 3, "clusters": [{"archive": 77, "why": "old", "chunks": 12, "bytes": 900}]}
    code, [request] = batos({"curate": done}, "memory", "curate")
    assert (code, request.op, request.dry) == (0, "curate", False)
    told = capsys.readouterr()
    assert "12 chunks are in 1 new archives" in told.out
    assert re.search(r"77 +old +12 +900", told.out)
    assert "2 more wait" in told.err
    would = {
        **ROUND,
        "found": 1,
        "clusters": [{"why": "redundant", "chunks": 4, "documents": 5, "sources": ["/n/a.md", "/n/b.md", "/n/c.md", "/n/d.md"]}],
    }
    code, [request] = batos({"curate": would}, "memory", "curate", "--dry-run")
    assert request.dry
    told = capsys.readouterr()
    assert re.search(r"redundant +4 +5 +a.md, b.md, c.md and 2 more", told.out)
    assert "nothing was changed" in told.err
    batos({"curate": {**ROUND, "found": 0, "clusters": []}}, "memory", "curate")
    assert "nothing can be archived" in capsys.readouterr().out
    for words in (("curate", "x"), ("pin",), ("restore",), ("documents", "--dry-run"), ("archives", "x")):
        assert batos({}, "memory", *words)[0] == 2


def test_archives_are_listed_with_what_is_pinned(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"archive": 77, "of": ["/n/a.md"], "documents": 1, "chunks": 12, "bytes": 900, "level": 2, "made": 86400.0, "summary": None}
    code, [request] = batos(
        {"memory": {**HELD, "archived": {"archives": 9, "listed": [one], "pinned": ["/n"]}}}, "memory", "archives", "--limit", "1"
    )
    assert (code, request.archives, request.documents) == (0, 1, None)
    told = capsys.readouterr()
    assert re.search(r"77 +12 +900 +2 +1970-01-02 +a.md", told.out)
    assert "pinned: /n" in told.out
    assert "the newest 1 of 9" in told.err
    batos({"memory": {**HELD, "archived": {"archives": 0, "listed": [], "pinned": []}}}, "memory", "archives")
    assert "no archives" in capsys.readouterr().out


def test_what_was_archived_is_brought_back_and_pinned(capsys: pytest.CaptureFixture[str]) -> None:
    back = {"memory": {**HELD, "restored": {"archives": [77], "chunks": 12}}}
    assert batos(back, "memory", "restore", "77")[1][0].restore == "77"
    assert "12 chunks are back, from 1 archives" in capsys.readouterr().out
    assert batos(back, "memory", "restore", "notes")[1][0].restore == os.path.abspath("notes")
    assert batos(back, "memory", "restore", "archive:77")[1][0].restore == "archive:77"
    capsys.readouterr()
    batos({"memory": {**HELD, "restored": {"archives": [], "chunks": 0}}}, "memory", "restore", "notes")
    assert "no chunk of it is archived" in capsys.readouterr().out
    pinned = {"source": "/n", "stays": True, "new": True, "documents": 4, "restored": 3}
    assert batos({"memory": {**HELD, "pin": pinned}}, "memory", "pin", "/n")[1][0].pin == "/n"
    assert capsys.readouterr().out == "/n stays; 4 documents are pinned\n3 chunks came back for it\n"
    batos({"memory": {**HELD, "pin": {**pinned, "stays": False, "new": False, "restored": 0}}}, "memory", "unpin", "/n")
    assert capsys.readouterr().out == "/n may leave, as before; 4 documents are pinned\n"


def test_what_is_left_out_and_what_is_doubtful_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    left = {"files": 3, "kinds": {".jpg": 2, "": 1}, "ignored": 4, "links": [{"path": "/n/out", "to": "/srv"}], "hidden": 1}
    doubtful = {"type": "file", "path": "/n/a.txt", "state": "added", "chunks": 1, "doubts": ["read as cp1251, by guess"]}
    code, [request] = batos(
        {"ingest": [EVENTS[0], doubtful, {**END, "left_out": left}]}, "ingest", "/n", "--exclude", "*.log", "--exclude", "tmp/"
    )
    assert (code, request.exclude) == (0, ["*.log", "tmp/"])
    told = capsys.readouterr().out
    assert "doubt      read as cp1251, by guess\n" in told
    said = (
        "3 files that are not read (2 .jpg, 1 without a suffix); 4 by patterns (.gitignore, --exclude); links that lead out of the folder"
    )
    assert f"left out   {said} or nowhere: /n/out to /srv\n" in told
    batos({"memory": [{**HELD, "followed": [{"folder": "/n", "away": "", "exclude": ["*.log"], "left_out": left}]}]}, "memory")
    assert "2 .jpg" in capsys.readouterr().out
