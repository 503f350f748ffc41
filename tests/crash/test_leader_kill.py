"""kill -9 of the real daemon that leads, at each step of what only it does: another takes the lead, and each thing is done once.

`tests/contract/test_lead_work.py` has the leader stand still at these steps. Here its process dies: before a commit, between the votes and
the commit, and after it, when no part of the daemon has heard of it.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from batos.autotelic import change_types, changes, improver
from batos.autotelic.changes import Proposal
from batos.image import history, ledger, notices
from batos.image.notice_channels import ChannelSpec
from batos.image.scrubber import Walk
from batos.memory.records import MISSION
from batos.memory.store import library_of
from batos.schedules import book
from tests.support.crash import sampled
from tests.support.kernel_child import AFTER, BEFORE, KILL, TURN, VOTE
from tests.support.kernel_daemons import Fleet, KernelDaemon, fleet, until
from tests.support.notices import world
from tests.support.servers import Postgres, postgres  # noqa: F401

pytestmark = pytest.mark.timeout(900)
numbers = itertools.count(1)
SETTINGS = {
    "remember": "on", "remember_pause_s": 0.2, "ingest_batch_bytes": 1024, "embed_retry_s": 0.1, "autotelic": "on", "senses_s": 0.05,
    "heartbeat_first_s": 3600, "crash_limit": 100, "leash_s": 1, "leash_missions": 4, "evidence_passages": 0,
}  # fmt: skip
MOMENTS = [BEFORE, VOTE, AFTER]
OTHER_MOMENTS = {"notice": [BEFORE, AFTER], "pack": [BEFORE, TURN, AFTER]}
HOUR = 3600.0


def steps(*names: str, first: int = 0) -> list[tuple[str, str]]:
    """The moments of steps; one moment of each, where it is a sample that runs (`sampled`)."""
    return sampled([(name, when) for name in names for when in OTHER_MOMENTS.get(name, MOMENTS)], lambda case: case[0], first)


def moments(first: int) -> list[str]:
    """The same for one commit."""
    return [when for _, when in steps("", first=first)]


class House(NamedTuple):
    """Kernels of one machine."""

    fleet: Fleet
    folder: Path

    def pair(self) -> tuple[KernelDaemon, KernelDaemon]:
        """The one that leads and the other, when both are there again. On a busy machine the lead may move at any time."""
        leader = self.fleet.led_by()
        (other,) = [one for one in self.fleet.daemons if one is not leader]
        return leader, other

    def dies(self) -> KernelDaemon:
        """Wait until the kernel that came to the armed step has killed itself, and another name leads. Return the one that lives.

        The dead one is started again meanwhile.
        """
        until(lambda: len(self.fleet.running) < 2, "a kernel to die")
        (dead,) = [one for one in self.fleet.daemons if not one.is_running]
        (alive,) = [one for one in self.fleet.daemons if one is not dead]
        dead.killed()
        former = dead.name
        dead.begin()
        until(lambda: self.fleet.leader()[0] not in ("", former), "another leader")
        return alive

    def missions(self, prefix: str) -> list[str]:
        found: list[str] = self.fleet.read(lambda root: [id for id in ledger.ledger_of(root).missions if id.startswith(prefix)])
        return found

    def sources(self) -> Counter[str]:
        """Documents by source."""
        found: Counter[str] = self.fleet.read(lambda root: Counter(one.source for one in library_of(root).documents.values()))
        return found


@pytest.fixture(scope="module")
def house(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:  # noqa: F811
    folder = tmp_path_factory.mktemp("kernels")
    with fleet(folder, postgres.image(), **SETTINGS) as kernels:
        kernels.start("k")
        kernels.start("k")
        yield House(kernels, folder)


@pytest.fixture(autouse=True)
def one_leader_a_term(house: House) -> Iterator[None]:
    yield
    house.fleet.disarm()
    led = {(line["term"], line["kernel"]) for one in house.fleet.daemons for line in one.events("lead_taken", ever=True)}
    assert len(led) == len({term for term, _ in led}), "no term has two leaders"


def killed_leader(house: House, step: str, when: str) -> tuple[KernelDaemon, KernelDaemon]:
    """The leader and the other kernel, when whichever comes to a step of the leader's is to die there."""
    pair = house.pair()
    house.fleet.arm(step, when, KILL)
    return pair


@pytest.mark.parametrize("when", moments(0))
def test_a_schedule_makes_one_mission_of_a_time(house: House, when: str) -> None:
    name = f"r{next(numbers)}"
    killed_leader(house, f"accept schedule-{name}", when)

    def due(root: Any) -> None:
        spec = book.ScheduleSpec(name, "every hour", "every 3600 from 0", "UTC", "Say what is new", "", book.ONCE, 0, book.RUN)
        book.add(root, spec, time.time() - 1.5 * HOUR)

    house.fleet.write(due)
    house.dies()
    until(lambda: house.fleet.read(lambda root: book.load(root, name)).runs, "the run")
    (mission,) = house.missions(f"schedule-{name}")
    until(lambda: house.fleet.state(mission) == ledger.COMPLETE, "its end")
    house.fleet.check_once(mission)
    assert len(house.fleet.read(lambda root: book.load(root, name)).runs) == 1


@pytest.mark.parametrize("when", moments(1))
def test_a_mission_is_remembered_once(house: House, when: str) -> None:
    id = f"lived{next(numbers)}"
    _, other = killed_leader(house, "store_remembered", when)
    with other.peer() as peer:
        assert peer.ask("submit", id=id, brief=f"I feel stuck, and this is mission {id}", persona="robin")["type"] == "accepted"
    house.dies()
    until(lambda: house.fleet.state(id) == "COMPLETE", "the end of it")
    until(lambda: house.sources()[f"mission:{id}"], "the memory of it")
    often = house.fleet.read(lambda root: Counter(d.source for d in library_of(root).documents.values() if d.kind == MISSION))
    assert set(often.values()) == {1}


@pytest.mark.parametrize(("step", "when"), steps("queue_files", "begin_file", "store_batch"))
def test_a_file_is_read_once(house: House, step: str, when: str) -> None:
    n = next(numbers)
    path = house.folder / f"notes{n}.md"
    path.write_text("".join(f"# Part {k} of {n}\n\nThe harbour of part {k} of {n} is full of boats.\n\n" for k in range(30)))
    leader, _ = killed_leader(house, step, when)
    with leader.peer() as peer:
        peer.send("ingest", paths=[str(path)])
        alive = house.dies()
    if step == "queue_files" and when != AFTER:  # its client was not told of it, and asks again
        with alive.peer() as peer:
            until(lambda: peer.ask("ingest", paths=[str(path)])["type"] != "error", "the queue")

    def texts(root: Any) -> Counter[str]:
        return Counter(chunk.text for chunk in library_of(root).chunks.values() if f" of {n} is" in chunk.text)

    until(lambda: len(house.fleet.read(texts)) == 30 and not house.fleet.read(lambda root: len(library_of(root).queue)), "the text")
    assert house.sources()[str(path)] == 1
    assert set(house.fleet.read(texts).values()) == {1}


@pytest.mark.parametrize(("step", "when"), steps("intend NoticeMessage", "end NoticeMessage", "notice"))
def test_a_notice_is_told_once(house: House, step: str, when: str) -> None:
    name = f"hook{next(numbers)}"
    killed_leader(house, step, when)
    with world() as heard:
        house.fleet.write(lambda root: notices.add_channel(root, ChannelSpec(name, "hook", heard.url, on=("failure",)), time.time()))
        house.fleet.write(lambda root: notices.note(root, notices.Notice("failure", name, time.time(), f"FAILED: {name}")))
        house.dies()

        def states() -> list[str]:
            found: list[str] = house.fleet.read(lambda root: [one.state for one in notices.messages(root) if one.channel == name])
            return found

        until(lambda: states() == ["DONE"], "what became of the notice")
        assert heard.told == [name], "a message that is sent again has the key that it had"
        assert len(heard.heard) <= 2
        house.fleet.write(lambda root: notices.remove_channel(root, name))


@pytest.mark.parametrize("when", moments(2))
def test_a_change_is_made_once_and_taken_back_once(house: House, when: str) -> None:
    n = next(numbers)
    facet = Proposal("facet", f"robin.gardener{n}_facet_", "Look at it as a gardener looks at a bed in spring.", "it may help")
    house.pair()
    kept: list[int] = []

    def rehearsed(root: Any) -> None:
        kept[:] = [changes.propose(root, facet, {"trigger": "t", "key": "", "words": "w"}, "")]
        found = {"reason": "", improver.STANDING: change_types.standing(root, facet), improver.AFTER: improver.last_change(root)}
        changes.rehearsed(root, kept[0], found)

    def lived(root: Any, prefix: str, failed: bool) -> None:
        for id in (f"{prefix}-{n}-{k}" for k in range(12)):
            ledger.accept(root, id, "brief", {}, True)
            if failed:
                ledger.fail(root, id, {"code": "internal", "message": "x"}, {}, True)
            else:
                ledger.complete(ledger.mission_of(root, id), {"text": "x", "usage": {"model_ms": 4000}}, None)

    def state() -> str:
        return str(house.fleet.read(lambda root: changes.of(root, kept[0]))["state"])

    def notes() -> list[str]:
        def read(root: Any) -> list[str]:
            return [one["mission"] for one in history.revisions(root._p_jar.db(), root["lobby"].robin._p_oid, 100)]

        return [note for note in house.fleet.read(read) if note.endswith(f"change:{kept[0]}")]

    house.fleet.write(lambda root: lived(root, "before", False))
    number = house.fleet.read(lambda root: len(changes.listed(root))) + 1
    house.fleet.arm(f"unit change:{number}", when, KILL)
    house.fleet.write(rehearsed)
    assert kept == [number]
    house.dies()
    until(lambda: state() == changes.PROMOTED, "the change")
    assert notes() == [f"change:{number}"]
    house.pair()
    house.fleet.arm(f"unit undo:change:{number}", when, KILL)
    house.fleet.write(lambda root: lived(root, "after", True))
    house.dies()
    until(lambda: state() == changes.UNDONE, "the undo")
    assert notes() == [f"undo:change:{number}", f"change:{number}"]


@pytest.mark.parametrize("when", moments(1))
def test_the_one_that_takes_the_lead_dies_too(house: House, when: str) -> None:
    leader, other = house.pair()
    term = house.fleet.leader()[1]
    other.arm("take_lead", when, KILL)
    leader.daemon.kill()
    other.killed()
    house.pair()
    assert house.fleet.leader()[1] >= term + 1 + (when == AFTER)


@pytest.mark.parametrize(("step", "when"), steps("register_kernel", "take_epoch", first=1))
def test_a_kernel_that_dies_while_it_registers_takes_nothing_from_the_others(house: House, step: str, when: str) -> None:
    """The registration gives it its name, and the epoch the numbers of what it stores."""
    id = f"registered{next(numbers)}"
    _, other = house.pair()
    other.daemon.kill()
    other.arm(step, when, KILL)
    other.begin()
    other.killed()
    _, other = house.pair()
    with other.peer() as peer:
        assert peer.ask("submit", id=id, brief=f"I feel stuck, and this is mission {id}", persona="robin")["type"] == "accepted"
    until(lambda: house.fleet.state(id) == "COMPLETE", "the end of it")
    house.fleet.check_once(id)
    names = [line["kernel"] for one in house.fleet.daemons for line in one.events("kernel_registered", ever=True)]
    assert len(set(names)) == len(names)


@pytest.mark.filterwarnings(r"ignore:There is no defined value for the \*next\* parameter")  # as `batos.image.scrubber` has it
@pytest.mark.parametrize(("step", "when"), steps("pack", first=1))
def test_a_pack_that_dies_leaves_the_image_whole_and_another_packs_it(house: House, step: str, when: str) -> None:
    id = f"packed{next(numbers)}"
    leader, _ = killed_leader(house, step, when)

    def changed(root: Any) -> None:
        """A pack takes turns only at what is new since the one before."""
        ledger.accept(root, f"{id}.{next(numbers)}", "I feel stuck", {"persona": "robin"}, False)

    while len(house.fleet.running) == 2:  # asked again of another one, where the lead has moved
        house.fleet.write(changed)
        with leader.peer() as packing:
            packing.send("pack", days=0)
            until(lambda: len(house.fleet.running) < 2 or packing.socket.poll(0), "the pack")
        leader = next((one for one in house.fleet.daemons if one.name == house.fleet.leader()[0]), leader)
    alive = house.dies()
    with alive.peer() as peer:
        assert peer.ask("submit", id=id, brief=f"I feel stuck, and this is mission {id}", persona="robin")["type"] == "accepted"

    def packed() -> bool:
        with house.pair()[0].peer() as peer:
            return bool(peer.ask("pack", days=0)["type"] == "pack")

    until(packed, "the pack")
    until(lambda: house.fleet.state(id) == "COMPLETE", "the end of it")
    walk = Walk(house.fleet.db)
    while not walk.rounds:
        assert walk.step(50) == []
    assert walk.facts()["damages"] == 0
