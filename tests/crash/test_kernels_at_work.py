"""Several real kernels on one image under kills: beats, archives, a rolling restart under load, and a memory whose files change."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from zmq import RCVTIMEO, Again

from batos.image import ledger
from batos.memory.records import MISSION
from batos.memory.store import library_of
from tests.support.crash import SEED, sampled
from tests.support.curator import PLACES, text_of
from tests.support.kernel_child import AFTER, BEFORE, KILL, VOTE
from tests.support.kernel_daemons import LEASE_S, WAIT_S, Fleet, KernelDaemon, fleet, until
from tests.support.memory import consistent
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401

pytestmark = pytest.mark.timeout(900)
MOMENTS = [BEFORE, VOTE, AFTER]
BEATS = {"autotelic": "on", "senses_s": 3600, "heartbeat_first_s": 0.1, "heartbeat_s": 3600, "heartbeat_jitter": 0, "crash_limit": 100}
CURATES = {"curate_age_days": 0, "curate_fresh_days": 0, "curate_s": 86_400, "curate_least": 4, "chunk_smallest": 20}
CALM_S = 30.0
"""A lease where no kernel is to be taken for gone, however late it gives a sign of life on a busy machine."""
QUESTIONS = ["word3 and Part 3", "word1 in a.md", "Line 7 of c.txt", "And Part 6?"]
numbers = itertools.count(1)


def told(kernel: KernelDaemon, op: str, **fields: Any) -> dict[str, Any] | None:
    """The last reply to a request; None if the kernel died before."""
    life = kernel.daemon
    with kernel.peer() as peer:
        peer.socket.setsockopt(RCVTIMEO, 100)
        peer.send(op, **fields)
        while True:
            try:
                reply = peer.reply()
            except Again:
                if life.process.poll() is not None:
                    return None
                continue
            if not (reply.get("watching") or reply["type"] == "file"):
                return reply


# --- beats


@pytest.fixture(scope="module")
def beating(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:  # noqa: F811
    with fleet(tmp_path_factory.mktemp("kernels"), postgres.image(), **BEATS) as kernels:
        kernels.start("k")
        kernels.start("k")
        yield kernels


@pytest.mark.parametrize(
    ("step", "when"), sampled(itertools.product(["accept self_audit", "plan "], MOMENTS), lambda case: case[0], first=1)
)
def test_a_beat_makes_one_audit(beating: Fleet, step: str, when: str) -> None:
    """The leader dies, and so does the next one in the beat that is due: the third makes it."""

    def beats() -> tuple[int, int]:
        def read(root: Any) -> tuple[int, int]:
            audits = [id for id in ledger.ledger_of(root).missions if id.startswith("self_audit")]
            return int(root["lobby"].autotelic.heartbeat.beats), len(audits)

        found: tuple[int, int] = beating.read(read)
        return found

    def is_quiet() -> bool:
        return not beating.read(lambda root: len(ledger.ledger_of(root).pending))

    leader = beating.led_by()
    until(lambda: beats()[0] >= 1, "the first beat")
    id = f"news{next(numbers)}"
    with leader.peer() as peer:
        assert peer.ask("submit", id=id, brief="I feel stuck", persona="robin")["type"] == "accepted"
    until(lambda: beating.state(id) == "COMPLETE" and is_quiet(), "quiet")
    before, leader = beats(), beating.led_by()  # it may be another one by now
    (other,) = (one for one in beating.daemons if one is not leader)
    beating.write(lambda root: setattr(root["lobby"].autotelic.heartbeat, "due", time.time() - 1))
    other.arm(step, when, KILL)
    leader.daemon.kill()
    other.killed()
    beating.led_by()
    until(lambda: beats()[0] == before[0] + 1 and is_quiet(), "the beat")
    assert beats() == (before[0] + 1, before[1] + 1)


# --- archives


@pytest.mark.parametrize("when", sampled(MOMENTS, lambda case: "", first=1))
def test_an_archive_is_made_once(postgres: Postgres, tmp_path: Path, when: str) -> None:  # noqa: F811
    uri = f"{postgres.image()}&shared_blob_dir=0&blob_dir={tmp_path}"
    texts = [text_of("boats", part, at) for at in PLACES for part in range(3)]
    (tmp_path / "notes").mkdir()
    for at in PLACES:
        (tmp_path / "notes" / f"{at}.md").write_text("".join(f"# Part {n}\n\n{text_of('boats', n, at)}\n\n" for n in range(3)))
    with fleet(tmp_path, uri, **CURATES) as kernels:
        for n in range(2):
            kernels.start("k", **{"image.uri": f"{uri}/blobs{n}"})
        leader = kernels.led_by()
        assert (told(leader, "ingest", paths=[str(tmp_path / "notes")], watch=True) or {})["type"] == "ingest"
        until(lambda: not kernels.read(lambda root: list(library_of(root).without_vectors())), "vectors")
        kernels.arm("put_away", when, KILL)
        until(lambda: told(kernels.led_by(), "curate") is None, "a leader that dies as it archives")

        def archived() -> bool:
            told(kernels.led_by(), "curate")
            return bool(kernels.read(lambda root: len(library_of(root).archives)))

        until(archived, "an archive")
        for number in kernels.read(lambda root: list(library_of(root).archives)):
            assert (told(kernels.led_by(), "memory", restore=str(number)) or {})["type"] == "memory"

        def held(root: Any) -> list[str]:
            return [chunk.text for chunk in library_of(root).chunks.values() if "harbour" in chunk.text]

        found = kernels.read(held)
        assert sorted(next(text for text in texts if text in chunk) for chunk in found) == sorted(texts), "each once"


# --- a rolling restart


def test_a_rolling_restart_under_load_costs_no_attempt_and_no_inference(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    """Clients give missions to all kernels meanwhile, as client libraries do: who is refused, or hears nothing, asks another kernel."""
    refused: Counter[str] = Counter()
    given: list[str] = []
    asked_again: list[str] = []
    enough = threading.Event()
    with fleet(tmp_path, postgres.image(), shutdown_s=60, **{"image.lease_s": CALM_S}) as kernels:
        for name in "abc":
            kernels.start(name)
        for one in kernels.daemons:
            one.ready()

        def under_way() -> int:
            """The number of missions that have not ended."""
            return sum(kernels.state(id) not in ledger.FINAL for id in kernels.read(lambda root: list(ledger.ledger_of(root).pending)))

        def is_accepted(one: KernelDaemon, id: str) -> bool:
            try:
                reply = told(one, "submit", id=id, brief=f"What is in garden {id}?", persona="robin")
            except OSError:  # it starts
                return False
            if reply is not None and reply["type"] != "accepted":
                refused[str(reply.get("code"))] += 1
            return reply is not None and reply["type"] == "accepted"

        def load(client: int) -> None:
            chance = random.Random(SEED + client)
            for n in itertools.count():
                id = f"m{client}-{n}"
                while not is_accepted(chance.choice(kernels.daemons), id):
                    asked_again.append(id)
                given.append(id)
                until(lambda: enough.is_set() or under_way() < 20, "fewer that wait")
                if enough.is_set():
                    return

        loading = [threading.Thread(target=load, args=(client,), daemon=True) for client in range(3)]
        for client in loading:
            client.start()
        for one in kernels.daemons:
            reached = len(given) + 10
            until(lambda reached=reached: len(given) >= reached, "load")
            with one.peer() as peer:
                assert peer.ask("kernels", drain=True)["draining"]
            assert one.daemon.ended(WAIT_S) == 0
            one.begin()
            one.ready()
        enough.set()
        for client in loading:
            client.join()
        until(lambda: all(kernels.state(id) in ledger.FINAL for id in given), "the end of all")
        assert asked_again, "some came to a kernel that was not there"
        assert set(refused) <= {"busy"}, "a client is told to ask later or elsewhere, and of no fault"
        kernels.check_once(*given)
        records = [kernels.read(lambda root, id=id: ledger.record_of(root, id)) for id in given]
        assert {record.attempts for record in records} == {1}
        asked = kernels.asked()
        assert [n for n in asked.values() if n > 1] == [], "nothing is paid twice"
        for event in ("deferred_failed", "kernel_gone"):
            assert not [line for one in kernels.daemons for line in one.events(event, ever=True)]


# --- the memory


def says(name: str, parts: list[int]) -> str:
    """Sections that name others; no two passages are alike, whose order in a search would be chance."""
    return "".join(
        f"# Part {n}\n\nIt says word{n} in {name}, and see Part {(n + 1) % 8}. "
        + " ".join(f"Line {line} of {name}, part {n}, goes on." for line in range(20 * (n % 3)))
        + "\n\n"
        for n in parts
    )


@pytest.mark.parametrize("engine", ["postgres", "zeo"])
def test_the_memory_is_what_the_files_say(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Files change, are read and forgotten, and missions are remembered, in any order, while kernels die and stand still."""
    server: Postgres | Zeo = request.getfixturevalue(engine)
    chance, files, missions = random.Random(SEED), dict[str, str](), list[str]()
    print(f"CRASH_SEED={SEED}")
    notes = tmp_path / "notes"
    notes.mkdir()
    more = {"remember": "on", "remember_pause_s": 0.1, "ingest_batch_bytes": 1024, "ingest_section_chars": 600}
    with fleet(tmp_path, server.image(), **more) as kernels:
        for _ in range(3):
            kernels.start("k")
        for one in kernels.daemons:
            one.ready()
        over = threading.Event()
        chance_of_faults = random.Random(SEED + 1)

        def faults() -> None:
            while not over.wait(chance_of_faults.uniform(0.2, 1.5)):
                one = chance_of_faults.choice(kernels.daemons)
                if chance_of_faults.random() < 0.5:
                    one.daemon.process.kill()
                    one.daemon.ended()
                    one.begin()
                    one.ready()
                else:
                    one.daemon.process.send_signal(signal.SIGSTOP)
                    over.wait(chance_of_faults.uniform(0.5, 1.5) * LEASE_S)
                    one.wake()

        def done(op: str, *allowed: str, **fields: Any) -> None:
            """Ask kernels until one of them says that it is done; who does not lead, and who dies, is asked no more."""

            def is_done() -> bool:
                try:
                    reply = told(chance.choice(kernels.daemons), op, **fields)
                except OSError:  # it starts
                    return False
                if reply is None or (reply["type"] == "error" and reply["code"] in ("led_elsewhere", "busy", "image_away")):
                    return False
                assert reply["type"] != "error" or reply["code"] in allowed, reply
                return True

            until(is_done, f"{op} {fields}")

        striking = threading.Thread(target=faults, daemon=True)
        striking.start()
        try:
            for n in range(30):
                name = chance.choice(["a.md", "b.md", "c.txt"])
                path = str(notes / name)
                what = chance.choice(["read", "read", "forget", "mission"])
                if what == "read":
                    files[path] = says(name, chance.sample(range(8), chance.randint(1, 6)))
                    Path(path).write_text(files[path])
                    done("ingest", paths=[path], watch=True)
                elif what == "forget":
                    if files.pop(path, ""):
                        done("memory", "unknown_source", forget=path)  # it may be done, and nobody told
                else:
                    missions.append(f"m{n}")
                    done("submit", id=f"m{n}", brief=f"I feel stuck, and this is mission m{n}", persona="robin")
        finally:
            over.set()
            striking.join()
        for id in missions:
            until(lambda id=id: kernels.state(id) in ledger.FINAL, f"the end of {id}")
        kernels.check_once(*missions)

        def remembered(root: Any) -> Counter[str]:
            return Counter(str(one.mission) for one in library_of(root).documents.values() if one.kind == MISSION)

        def read(root: Any) -> dict[str, str]:
            library = library_of(root)
            texts = {path: library.chunks_of(library.document(path)) for path in library.by_source if path.startswith("/")}
            return {path: "".join(chunk.text for chunk in chunks) for path, chunks in texts.items()}

        until(lambda: kernels.read(remembered) == Counter(missions), "the memory of all missions, once")
        until(lambda: not kernels.read(lambda root: len(library_of(root).queue) or list(library_of(root).without_vectors())), "all of it")
        found = kernels.read(read)
        assert {path: text.split() for path, text in found.items()} == {path: text.split() for path, text in files.items()}
        kernels.read(lambda root: consistent(library_of(root)))

        def hits(one: KernelDaemon, question: str) -> Any:
            reply = told(one, "search", question=question, k=20)
            return reply and [(hit["source"], hit["text"]) for hit in reply["hits"]]

        for question in QUESTIONS:
            until(lambda asked=question: len({str(hits(one, asked)) for one in kernels.daemons}) == 1, f"one answer of all to {question!r}")
