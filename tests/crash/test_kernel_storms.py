"""Faults of all kernels of one image at once: their PostgreSQL is away, also during a takeover; and all of them write one persona."""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from zmq import RCVTIMEO, ZMQError

from batos.image import ledger
from batos.memory.records import MISSION
from batos.memory.store import library_of
from batos.objects import Method
from batos.testing.script import default_answer
from tests.support.crash import SEED, sampled
from tests.support.kernel_child import AFTER, BEFORE, KILL, STOP, VOTE
from tests.support.kernel_daemons import WAIT_S, Fleet, KernelDaemon, fleet, until
from tests.support.servers import Postgres, postgres  # noqa: F401

pytestmark = pytest.mark.timeout(900)
AWAY_S, LEASE_S = 10.0, 5.0
BRIEF = "I feel stuck, and this is mission {id}"
numbers = itertools.count(1)
AWAY = [("immediate", AWAY_S), ("fast", AWAY_S), ("immediate", 0.0)]
TAKEOVER = [("declare_gone", BEFORE), ("declare_gone", VOTE), ("begin_attempt", BEFORE), ("begin_attempt", VOTE), ("take_lead", VOTE)]


@pytest.fixture(scope="module")
def three(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:  # noqa: F811
    with fleet(
        tmp_path_factory.mktemp("kernels"), postgres.image(), remember="on", remember_pause_s=0.2, **{"image.lease_s": LEASE_S}
    ) as kernels:
        for name in "abc":
            kernels.start(name)
        yield kernels


@pytest.fixture(autouse=True)
def all_there(three: Fleet) -> None:
    three.disarm()
    for one in three.daemons:
        one.ollama.clear()  # what a test before had it say would come first
        if not one.is_running:
            one.begin()
    for one in three.daemons:
        one.ready()


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """An event that Ollamas wait for; it comes with the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def slow(kernels: Fleet, chance: random.Random, most_s: float) -> None:
    """Let inferences take their time, so that a fault meets some under way."""
    for one in kernels.daemons:
        one.ollama.say(lambda request: (time.sleep(chance.uniform(0, most_s)), default_answer(request))[1])


def submitted(kernels: list[KernelDaemon], prefix: str, count: int) -> list[str]:
    """Missions that were acknowledged, given to the kernels in turn."""
    ids = []
    for n, kernel in zip(range(count), itertools.cycle(kernels), strict=False):
        with kernel.peer() as peer:
            assert peer.ask("submit", id=f"{prefix}-{n}", brief=BRIEF.format(id=f"{prefix}-{n}"), persona="robin")["type"] == "accepted"
        ids.append(f"{prefix}-{n}")
    return ids


def held(kernels: Fleet, go: threading.Event) -> list[str]:
    """Missions that are all under way, wherever they are thought: no Ollama answers before `go`."""
    for one in kernels.daemons:
        one.ollama.say(lambda request: (go.wait(WAIT_S), default_answer(request))[1])
    ids = submitted(kernels.daemons, f"taken{next(numbers)}", 6)
    until(lambda: all(map(kernels.owner, ids)), "missions under way")
    return ids


def check(kernels: Fleet, ids: list[str]) -> None:
    """All missions are COMPLETE, once, remembered once, and what was in a journal was not asked for again."""
    for id in ids:
        until(lambda id=id: kernels.state(id) in ledger.FINAL, f"the end of {id}")
    kernels.check_once(*ids)
    until(lambda: not set(ids) & kernels.read(lambda root: set(root["ledger"].pending)), "settled")
    until(lambda: set(ids) <= set(remembered(kernels)), "the memory of all")
    assert {remembered(kernels)[id] for id in ids} == {1}
    for one in kernels.running:
        assert not one.events("deferred_failed"), "nothing is dropped"
        assert not [line for line in one.daemon.log if line.get("level") == "critical"]


def remembered(kernels: Fleet) -> Counter[str]:
    found: Counter[str] = kernels.read(
        lambda root: Counter(str(d.mission) for d in library_of(root).documents.values() if d.kind == MISSION)
    )
    return found


def away(postgres: Postgres, how: str, seconds: float) -> None:  # noqa: F811
    """The fault itself: the server is not there, for so long."""
    postgres.stop(how)
    time.sleep(seconds)
    postgres.start()


@pytest.mark.parametrize(("how", "seconds"), sampled(AWAY, lambda case: ""))
def test_missions_of_all_kernels_outlive_a_server_that_is_away(postgres: Postgres, three: Fleet, how: str, seconds: float) -> None:  # noqa: F811
    slow(three, random.Random(SEED), 0.3)
    names = {one.name for one in three.daemons}
    before = three.asked()
    ids = submitted(three.daemons, f"away{next(numbers)}", 30)
    until(lambda: sum(three.asked().values()) > sum(before.values()) + 10, "missions under way")
    away(postgres, how, seconds)
    late = submitted(three.daemons, f"late{next(numbers)}", 3)  # each kernel takes missions again
    check(three, [*ids, *late])
    assert {one.name for one in three.daemons} == names, "none of them counts as gone: all were away from the server"
    assert [three.read(lambda root, id=id: ledger.record_of(root, id)).attempts for id in ids] == [1] * len(ids)


@pytest.mark.parametrize(
    ("step", "when", "seconds"),
    [
        pytest.param(*case, marks=[pytest.mark.long] if case[2] else [])
        for case in sampled([(*step, s) for step in TAKEOVER for s in (0.0, AWAY_S)], lambda case: case[0])
    ],
)
def test_a_takeover_that_meets_a_server_that_is_away_goes_on(
    postgres: Postgres,  # noqa: F811
    three: Fleet,
    go: threading.Event,
    step: str,
    when: str,
    seconds: float,
) -> None:
    """One kernel is killed, and the one that takes its missions over stands still in a step of that, while the server goes away."""
    ids = held(three, go)
    if step == "take_lead":  # the one that is killed leads
        until(lambda: three.leader()[0] in {kernel.name for kernel in three.daemons}, "a leader")
        one = next(kernel for kernel in three.daemons if kernel.name == three.leader()[0])
    else:
        one = next(kernel for kernel in three.daemons if kernel.name == three.owner(ids[0]))
    other, third = (kernel for kernel in three.daemons if kernel is not one)
    other.arm(step, when, STOP)
    third.arm(step, when, STOP)
    one.daemon.kill()
    go.set()
    until(lambda: other.is_stopped or third.is_stopped, "the takeover")
    postgres.stop("immediate")
    for kernel in (other, third):
        kernel.disarm()
    time.sleep(seconds)  # the fault
    postgres.start()
    check(three, ids)


@pytest.mark.parametrize("faults", sampled(["at rest", "with kills and stops"], lambda case: ""))
def test_one_persona_that_all_kernels_write_loses_no_write(three: Fleet, faults: str) -> None:
    """Its slots, its methods, the briefs that it learns by, and the memory of its missions."""
    run, chance = next(numbers), random.Random(SEED)
    count, given = f"count{run}", f"given{run}"
    steps = (f"self.{count} = self.{count} + 1", f"self.{given} = self.{given} + (id,)", f"return self.{count}")
    source = "\n    ".join((f"def tally{run}_(self, id):", *steps)) + "\n"

    def prepare(root: Any) -> None:
        robin = root["lobby"].robin
        for name, value in ((count, 0), (given, ()), (f"tally{run}_", Method(f"tally{run}_", source))):
            robin._slots[name] = value

    def written(request: dict[str, Any]) -> str:
        said = request["messages"][0]["content"]
        if not said.startswith("You write one method"):
            return default_answer(request)
        (selector, *_) = re.findall(rf"word{run}x\d+_", request["messages"][1]["content"])
        return f"def {selector}(self, text):\n    return text\n"

    three.write(prepare)
    for one in three.daemons:
        one.ollama.say(written)
    tallies, words, briefs = ([f"{kind}{run}-{n}" for n in range(of)] for kind, of in (("tally", 45), ("word", 9), ("brief", 9)))

    def give(id: str) -> dict[str, Any]:
        n = id.rpartition("-")[2]
        if id in tallies:
            return {"op": "send", "target": "robin", "selector": f"tally{run}_", "args": [id]}
        if id in words:
            return {"op": "send", "target": "robin", "selector": f"word{run}x{n}_", "args": ["tea"], "write": True}
        return {"op": "submit", "brief": f"How do I build shed {n} of run {run}?", "persona": "robin"}

    def client(mine: list[str], chance: random.Random) -> None:
        while mine:
            kernel = chance.choice(three.daemons)
            try:
                with kernel.peer() as peer:
                    peer.socket.setsockopt(RCVTIMEO, 2000)
                    if peer.ask(**give(mine[0]), id=mine[0])["type"] == "accepted":
                        mine.pop(0)
            except (ZMQError, OSError):  # it is killed, or stands still
                time.sleep(0.05)

    ids = [*tallies, *words, *briefs]
    chance.shuffle(ids)
    clients = [threading.Thread(target=client, args=(ids[n::3], random.Random(SEED + n)), daemon=True) for n in range(3)]
    for one in clients:
        one.start()
    if faults != "at rest":
        killed, stopped, _ = three.daemons
        killed.arm(f"unit tally{run}-", chance.choice([BEFORE, VOTE, AFTER]), KILL)
        stopped.arm(f"unit tally{run}-", chance.choice([BEFORE, VOTE, AFTER]), STOP)
        killed.killed()
        stopped.stopped()
        time.sleep(1.5 * LEASE_S)  # the fault
        stopped.wake()
        killed.begin()
        killed.ready()
    until(lambda: not any(one.is_alive() for one in clients), "the acceptance of all")
    check(three, ids)
    robin = three.read(lambda root: {name: root["lobby"].robin._slots.get(name) for name in (count, given)})
    assert (robin[count], sorted(robin[given])) == (len(tallies), sorted(tallies)), "no write is lost, and none is made twice"
    kept = three.read(lambda root: [f"word{run}x{n}_" in root["lobby"].robin._slots for n in range(len(words))])
    assert kept == [True] * len(words)
