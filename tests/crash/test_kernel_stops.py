"""Real kernels stop (SIGSTOP) or die (kill -9) at named steps of a mission's way; another takes over; what wakes does nothing twice.

`test_kernel_points.py` has these points within one process, and more of them; here whole daemons stand still, with all that they have.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from batos.image import effects, ledger
from tests.support.crash import sampled
from tests.support.daemon import Peer, done
from tests.support.http_world import QuietHandler, serving
from tests.support.kernel_child import AFTER, BEFORE, KILL, STOP, VOTE
from tests.support.kernel_daemons import LEASE_S, Fleet, KernelDaemon, fleet, until
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401

pytestmark = pytest.mark.timeout(900)
numbers = itertools.count(1)
ENGINES = ["postgres", "zeo"]
BRIEF = "I feel stuck, and this is mission {id}"
SHARED = 4  # missions without an owner, of which each kernel claims some
LOCKED = sampled([("zeo", step) for step in ("accept {id}", "begin_attempt {id}", "add {id}", "unit {id}")], lambda case: case[0], 3)
"""Steps of which each stands still on ZEO between vote and commit."""


class Point(NamedTuple):
    """A step of a mission's way, and what is left of it at the other kernels."""

    step: str
    when: str
    acts: bool = False
    """True for a mission that orders at the shop."""
    is_accepted: bool = True
    """False if the mission is not in the image: the client has to go to another kernel."""
    is_done: bool = False
    """True if the mission is COMPLETE by then."""
    is_nobodys: bool = False
    """True for missions that were accepted and have no owner: each kernel claims some."""
    is_carried: bool = False
    """True for a commit that waits for another one of the same kernel."""
    leaves: int = 0
    """Inferences that leave after the awakening: the kernel had seen that the mission was its own just before."""


POINTS = {
    "before the acceptance": Point("accept {id}", BEFORE, is_accepted=False),
    "the acceptance has voted": Point("accept {id}", VOTE, is_accepted=False),
    "accepted, its client was not told": Point("accept {id}", AFTER),
    "before the claim": Point("begin_attempt {id}", BEFORE, is_nobodys=True),
    "the claim has voted": Point("begin_attempt {id}", VOTE, is_nobodys=True),
    "after the claim": Point("begin_attempt {id}", AFTER, is_nobodys=True),
    "before an inference": Point("ask", BEFORE),
    "before the first byte of an inference": Point("ask", AFTER, leaves=1),
    "before an answer is journaled": Point("add {id}", BEFORE),
    "the journal's entry has voted": Point("add {id}", VOTE),
    "after the journal's entry": Point("add {id}", AFTER),
    "before the intent of an act": Point("intend {id}", BEFORE, acts=True),
    "after the intent of an act": Point("intend {id}", AFTER, acts=True),
    "before the first byte of an act": Point("egress", BEFORE, acts=True),
    "after the act": Point("egress", AFTER, acts=True),
    "before the act's end": Point("end {id}", BEFORE, acts=True),
    "after the act's end": Point("end {id}", AFTER, acts=True),
    "before its commit": Point("unit {id}", BEFORE),
    "its commit has voted": Point("unit {id}", VOTE),
    "after its commit, its client was not told": Point("unit {id}", AFTER, is_done=True),
    "before its result is told": Point("reply result {id}", BEFORE, is_done=True),
    "before it is settled": Point("settle {id}", BEFORE, is_done=True, is_carried=True),
}


class Shop:
    """A shop that sells once for each key."""

    def __init__(self) -> None:
        self.sold: dict[str, str] = {}
        self.asked: list[str] = []
        lock, shop = threading.Lock(), self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                what = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with lock:
                    shop.asked.append(what)
                    shop.sold.setdefault(self.headers["Idempotency-Key"], what)
                try:
                    self.answer(200, {"sold": what})
                except OSError:
                    self.close_connection = True  # whoever asked is gone

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def times(self, id: str) -> int:
        return sum(id in what for what in self.sold.values())


class House(NamedTuple):
    """Two kernels, of which the first stops or dies, and the shop."""

    fleet: Fleet
    engine: str
    one: KernelDaemon
    other: KernelDaemon
    shop: Shop


@pytest.fixture(scope="module")
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    server: Postgres | Zeo = request.getfixturevalue(request.param)
    shop = Shop()
    with serving(shop.server), fleet(tmp_path_factory.mktemp("kernels"), server.image()) as kernels:
        one = kernels.start("a", **{"image.look_s": 0.02}).ready()
        with one.peer() as peer:  # its Ollama has loaded the model from now on: what is given to it begins there
            peer.ask("submit", id="first", brief=BRIEF.format(id="first"), persona="robin")
            until(lambda: kernels.state("first") == "COMPLETE", "the first mission")
        other = kernels.start("b", **{"image.look_s": 0.2}).ready()
        place = f"http://127.0.0.1:{shop.server.server_port}"
        done(other.daemon, "tools", "add", "shop", "--http", place, "--key-header", "Idempotency-Key", "--seconds", "4", "--on", "*")
        done(other.daemon, "allow", "shop.post")
        yield House(kernels, request.param, one, other, shop)


@pytest.fixture(autouse=True)
def at_work(house: House) -> Iterator[None]:
    """The kernel whose steps these are is there and unarmed again afterwards, whatever became of the test."""
    yield
    house.one.disarm()
    if not house.one.is_running:
        house.one.begin()
    house.one.ready()


def give(kernel: KernelDaemon, id: str, point: Point) -> None:
    """Give a mission to a kernel that answers."""
    with kernel.peer() as peer:
        send(peer, id, point)
        assert peer.reply()["type"] == "accepted"


def send(peer: Peer, id: str, point: Point) -> None:
    """Give a mission to a kernel that may never answer."""
    if point.acts:
        order = {"path": "/order", "body": {"for": id}}
        peer.send("send", id=id, target="tools.shop", selector="post_", args=[order], watch=True)
    else:
        peer.send("submit", id=id, brief=BRIEF.format(id=id), persona="robin", watch=True)


def result_of(peer: Peer, id: str) -> dict[str, Any]:
    """The result of a mission, as it comes to who watches."""
    while (reply := peer.reply())["type"] != "result" or reply["id"] != id:
        assert reply["type"] != "error", reply
    return reply


def struck(house: House, peer: Peer, prefix: str, point: Point, how: str) -> tuple[list[str], str]:
    """Let a mission come to the point at the first kernel.

    Return all missions that were given for that, and the name that the kernel had. On a busy machine it may count as gone before, and the
    other kernel has the mission: then another one is given.
    """
    for n in itertools.count():
        id = f"{prefix}.{n}."
        house.one.arm(point.step.format(id=id), point.when, how)
        ids = [f"{id}{k}" for k in range(SHARED)] if point.is_nobodys else [id]
        if point.is_nobodys:
            house.fleet.write(lambda root, ids=ids: [ledger.accept(root, k, BRIEF.format(id=k), {"persona": "robin"}, False) for k in ids])
        else:
            send(peer, id, point)
        if point.is_carried:
            until(lambda id=id: house.one.is_struck or house.fleet.state(id) == "COMPLETE", "the end")
            send(peer, f"carrier{next(numbers)}", point)
        until(lambda ids=ids: house.one.is_struck or ended_early(house, ids, point), "the point")
        if house.one.is_struck:
            break
    house.one.stopped() if how == STOP else house.one.killed()
    return ids, house.one.name


def ended_early(house: House, ids: list[str], point: Point) -> bool:
    """True if the missions are COMPLETE, and the first kernel can come to the point no more."""
    if any(house.fleet.state(id) != "COMPLETE" for id in ids):
        return False
    return not point.is_done or house.fleet.owner(ids[0]) == house.other.name


def ended_elsewhere(house: House, ids: list[str], point: Point, former: str) -> None:
    """Wait until the missions are COMPLETE, and the kernel that stands still or is dead counts as gone."""
    if not point.is_accepted:
        give(house.other, ids[0], point)
    for id in ids:
        until(lambda id=id: house.fleet.state(id) == "COMPLETE", f"the end of {id}")
    until(lambda: former in house.fleet.gone(), f"{former} to be gone")
    if not (point.is_nobodys or point.is_done):
        assert house.fleet.owner(ids[0]) != former


def check(house: House, ids: list[str], point: Point) -> None:
    house.fleet.check_once(*ids)
    until(lambda: not set(ids) & house.fleet.read(lambda root: set(root["ledger"].pending)), "settled")
    if point.acts:
        states = house.fleet.read(lambda root: [one.state for one in effects.load(root, ids[0])])
        assert (house.shop.times(ids[0]), states) == (1, ["DONE"])


def cases(how: str) -> pytest.MarkDecorator:
    """The points and engines of one kind of fault; where a sample runs (`sampled`), each point comes once, with one engine and fault."""
    every = [(engine, name, fault) for name in POINTS for fault in (STOP, KILL) for engine in ENGINES]
    # A stop between vote and commit holds all of ZEO up, which has a test of its own.
    every = [case for case in every if case[0] != "zeo" or case[2] != STOP or POINTS[case[1]].when != VOTE]
    mine = [(engine, name) for engine, name, fault in sampled(every, lambda case: case[1]) if fault == how]
    return pytest.mark.parametrize(("house", "name"), mine, indirect=["house"], scope="module")  # pytest runs those of an engine together


@cases(STOP)
def test_a_stopped_kernel_finds_itself_fenced_and_does_nothing_twice(house: House, name: str) -> None:
    point, one = POINTS[name], house.one
    with one.peer() as peer:
        ids, former = struck(house, peer, f"stop{next(numbers)}", point, STOP)
        ended_elsewhere(house, ids, point, former)
        kept, before = [house.fleet.journal(each) for each in ids], sum(map(one.asked_about, ids))
        one.wake()
        until(lambda: one.events("kernel_stood_down") and one.name != former, "a new name")
        if not point.is_nobodys:
            assert result_of(peer, ids[0])["state"] == "COMPLETE", "its client is told"
    with one.peer() as peer:
        until(lambda: not peer.ask("info")["missions"]["running"], "the end of what it had under way")
    assert [house.fleet.journal(each) for each in ids] == kept
    assert sum(map(one.asked_about, ids)) - before <= point.leaves
    check(house, ids, point)
    give(one, again := f"again-{ids[0]}", point)  # it goes on, under its new name
    until(lambda: house.fleet.state(again) == "COMPLETE", "another mission")
    check(house, [again], point)


@pytest.mark.parametrize(("house", "step"), LOCKED, indirect=["house"], scope="module")
def test_a_kernel_that_stands_still_with_the_lock_of_zeo_holds_all_up_and_nothing_is_lost(house: House, step: str) -> None:
    """ZEO 6.2 has one lock for all commits, and its `transaction-timeout` never gives it back: so others wait until it goes on."""
    one = house.one
    # A mission that a kernel accepts and begins is claimed with its acceptance; a claim of its own has one that nobody owns.
    point = Point(step, VOTE, is_nobodys=step.startswith("begin_attempt"))
    with one.peer() as peer, house.other.peer() as asking:
        ids, _ = struck(house, peer, f"lock{next(numbers)}", point, STOP)
        other = f"{ids[0]}-other"
        send(asking, other, point)
        time.sleep(3 * LEASE_S)  # the fault: that long it stands still
        assert house.fleet.state(other) == "", "no other commits meanwhile"
        one.wake()
        assert result_of(asking, other)["state"] == "COMPLETE"
        for id in ids:
            until(lambda id=id: house.fleet.state(id) == "COMPLETE", f"the end of {id}")
        if not point.is_nobodys:
            assert result_of(peer, ids[0])["state"] == "COMPLETE", "its client is told"
    house.fleet.check_once(*ids, other)


@cases(KILL)
def test_what_a_killed_kernel_had_under_way_another_ends_once(house: House, name: str) -> None:
    point, one = POINTS[name], house.one
    with one.peer() as peer:
        ids, former = struck(house, peer, f"kill{next(numbers)}", point, KILL)
    paid = {key for each in ids for key, _, _ in house.fleet.journal(each)}
    asked = house.fleet.asked()
    one.begin()
    ended_elsewhere(house, ids, point, former)
    now = house.fleet.asked()
    assert [key for key in paid if now[key] > asked[key]] == [], "what was in the journal is not asked for again"
    check(house, ids, point)
    one.ready()
