"""`self` as a capability: reads, writes, sends, resends, errors both ways, and what is undone when a method raises."""

# ruff: noqa: E501  the sources of methods

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import transaction
from ZODB.POSException import ConflictError

from batos.errors import DeadlineExceeded, GrantRefused, ImageFailed, InferenceFailed, MethodFailed, SandboxFailed, SandboxLimit, ToolsTied
from batos.objects import Intent, Method, SlotDict, SlotList, UvmObject
from batos.sandbox import Activity, Sandbox
from tests.support.sandbox import NOW, Sends, call, method, obj, settings, slots, stored

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(settings(sandbox_sends=200, sandbox_depth=6, sandbox_parallel=3)) as running:
        yield running


async def test_a_parents_slot_is_read_and_writing_makes_an_own_one(sandbox: Sandbox) -> None:
    parent = obj(title="base", items=[1], unread=[0])
    child = obj(
        "def m(self):\n    self.items.append(2)\n    self.title += '!'\n    return [self.title, self.items, self.unread]\n",
        **{"parent*": parent},
    )
    assert await call(Sends(sandbox), child, "m") == ["base!", [1, 2], [0]]
    assert slots(parent) == {"title": "base", "items": [1], "unread": [0]}
    assert slots(child) == {"parent*": parent, "items": [1, 2], "title": "base!"}


async def test_containers_stay_who_they_are(sandbox: Sandbox) -> None:
    target = obj(
        "def m(self):\n    self.rows.pop(0)\n    self.rows[-1]['n'] = 9\n    self.rows.append({'n': 5})\n    self.d['k'].append(1)\n",
        rows=[{"n": i} for i in range(4)],
        d={"k": []},
    )
    rows, second, inner = target.rows, target.rows[1], target.d["k"]
    assert isinstance(rows, SlotList)
    assert isinstance(second, SlotDict)
    await call(Sends(sandbox), target, "m")
    assert target.rows is rows
    assert rows[0] is second
    assert target.d["k"] is inner
    assert slots(target) == {"rows": [{"n": 1}, {"n": 2}, {"n": 9}, {"n": 5}], "d": {"k": [1]}}


async def test_nested_sends_see_what_was_written_and_what_they_write_is_seen(sandbox: Sandbox) -> None:
    target = obj(
        "def m(self):\n    xs = self.items\n    self.n = 1\n    xs.append(1)\n    got = self.inner()\n    xs.append(3)\n    return [got, self.n, xs, self.new]\n",
        "def inner(self):\n    self.items.append(2)\n    self.n += 1\n    self.new = 'made'\n    return list(self.items)\n",
        items=[],
    )
    assert await call(Sends(sandbox), target, "m") == [[1, 2], 2, [1, 2, 3], "made"]
    assert slots(target) == {"items": [1, 2, 3], "n": 2, "new": "made"}


async def test_a_method_that_raises_leaves_nothing_not_even_what_it_had_sent(sandbox: Sandbox) -> None:
    target = obj(
        "def m(self):\n    self.n = 1\n    self.items.append(1)\n    self.inner()\n    del self.gone\n    self.inner()\n    raise ValueError('late')\n",
        "def inner(self):\n    self.items.append({'by': 'inner'})\n    self.count += 1\n",
        "def outer(self):\n    try:\n        self.m()\n    except ValueError as e:\n        self.caught = str(e)\n    return self.items\n",
        items=[0], count=0, gone=1,
    )  # fmt: skip
    before = slots(target)
    with pytest.raises(MethodFailed, match="late"):
        await call(Sends(sandbox), target, "m")
    assert slots(target) == before
    assert await call(Sends(sandbox), target, "outer") == [0]
    assert slots(target) == {**before, "caught": "late"}


async def test_other_objects_are_written_by_their_own_methods_only(sandbox: Sandbox) -> None:
    peer = obj("def put(self, n):\n    self.n = n\n", n=0, items=[])
    target = obj(
        "def write(self):\n    self.peer.n = 5\n",
        "def append(self):\n    self.peer.items.append(1)\n",
        "def drop(self):\n    del self.peer.n\n",
        "def send(self):\n    self.peer.put(7)\n    return self.peer.n\n",
        peer=peer,
    )
    with stored(target):
        for selector in ("write", "append", "drop"):
            with pytest.raises(MethodFailed, match="PermissionError"):
                await call(Sends(sandbox), target, selector)
        assert slots(peer) == {"n": 0, "items": []}
        assert await call(Sends(sandbox), target, "send") == 7
        sends = Sends(sandbox)
        sends.activity.grant(peer)
        await call(sends, target, "write")
        assert peer.n == 5


async def test_what_a_method_makes_it_may_fill(sandbox: Sandbox) -> None:
    target = obj(
        "def m(self):\n    new = self.derive(kind='note')\n    new.title = 'a'\n    new.tags = ['x']\n    new.tags.append('y')\n"
        "    twin = self._clone_persistent_(n=2)\n    self.kids = [new, twin]\n    return [new.base, new is self.kids[0], new == twin, twin.n]\n",
        base="b", n=1,
    )  # fmt: skip
    assert await call(Sends(sandbox), target, "m") == ["b", True, False, 2]
    new, twin = target.kids
    assert slots(new) == {"parent*": target, "kind": "note", "title": "a", "tags": ["x", "y"]}
    assert twin.n == 2


async def test_resends_go_to_the_parents_of_the_holder_and_keep_the_receiver(sandbox: Sandbox) -> None:
    root = obj("def greet(self, n):\n    return 'root ' + self.name + str(n)\n", name="root")
    middle = obj("def greet(self, n):\n    return 'middle, ' + super().greet(n + 1)\n", **{"parent*": root})
    leaf = obj(
        "def greet(self, n):\n    return 'leaf, ' + self.resend('greet', n + 1)\n",
        "def direct(self):\n    return [self.parent.greet(0), self.parent.name, self.parent == self.parent]\n",
        "def none(self):\n    return super().nothing()\n",
        name="leaf", **{"parent*": middle},
    )  # fmt: skip
    sends = Sends(sandbox)
    assert await call(sends, leaf, "greet", 0) == "leaf, middle, root leaf2"
    assert await call(sends, leaf, "direct") == ["middle, root leaf1", "root", True]
    with pytest.raises(MethodFailed, match="AttributeError"):
        await call(sends, leaf, "none")


async def test_sends_in_key_functions_and_as_values(sandbox: Sandbox) -> None:
    kids = [obj("def score(self, f):\n    return len(self.title) * f\n", title=title) for title in ("bob", "al", "claire")]
    target = obj(
        "def m(self):\n"
        "    ranked = sorted(self.kids, key=lambda k: k.score(2), reverse=True)\n"
        "    best, least = max(self.kids, key=lambda k: k.score(1)), min(self.kids, key=lambda k: k.score(1))\n"
        "    self.kids.sort(key=lambda k: k.score(1))\n"
        "    f = self.twice\n"
        "    sums = list(map(self.twice, [1, 2])) + [f(4)]\n"
        "    long = [k.title for k in filter(lambda k: k.score(1) > 2, self.kids)]\n"
        "    found = next((k for k in self.kids if k.score(1) == 6), None)\n"
        "    calls = any(k.score(1) == 2 for k in self.kids)\n"
        "    return [[k.title for k in ranked], best.title, least.title, sums, long, found.title, calls, found in self.kids, self.kids.index(found)]\n",
        "def twice(self, n):\n    return n * 2\n",
        kids=kids,
    )
    got = await call(Sends(sandbox), target, "m")
    assert got == [["claire", "bob", "al"], "claire", "al", [2, 4, 8], ["bob", "claire"], "claire", True, True, 2]
    assert [k.title for k in target.kids] == ["al", "bob", "claire"]


async def test_any_stops_sending_where_the_answer_is_known(sandbox: Sandbox) -> None:
    asked = []
    target = obj("def m(self, xs):\n    return [any(self.ask(x) for x in xs), next(x for x in xs if self.ask(x))]\n")
    sends = Sends(sandbox, ask=lambda o, x: asked.append(x) or x == 2)
    assert await call(sends, target, "m", [1, 2, 3]) == [True, 2]
    assert asked == [1, 2, 1, 2]


async def test_a_plain_call_waits_for_an_inference_and_an_awaited_one_too(sandbox: Sandbox) -> None:
    async def ask(o: UvmObject, question: str) -> str:
        await asyncio.sleep(0.01)
        return f"<{question}>"

    target = obj(
        "def m(self):\n    return self.ask('a') + self.ask('b')\n",
        "async def n(self):\n    import asyncio\n    x = await self.ask('a')\n    return [x, *await asyncio.gather(self.ask('b'), self.ask('c'))]\n",
    )
    sends = Sends(sandbox, ask=ask)
    assert await call(sends, target, "m") == "<a><b>"
    assert await call(sends, target, "n") == ["<a>", "<b>", "<c>"]


async def test_exceptions_pass_both_ways(sandbox: Sandbox) -> None:
    def fail(o: UvmObject, how: str) -> None:
        raise {
            "key": KeyError("k"),
            "type": TypeError("t"),
            "own": type("Own", (OSError,), {})("o"),
            "inference": InferenceFailed("gone", cause="timeout"),
        }[how]

    target = obj(
        "def m(self, how):\n    try:\n        self.fail(how)\n    except KeyError as e:\n        return 'key ' + str(e)\n    except OSError as e:\n"
        "        return 'os ' + str(e)\n    except Exception as e:\n        return type(e).__name__ + ' ' + str(e)\n",
        "def through(self, how):\n    self.fail(how)\n",
        "def inner(self, n):\n    return [1][n]\n",
        "def outer(self):\n    try:\n        self.inner(3)\n    except IndexError as e:\n        return str(e)\n",
        "def missing(self):\n    try:\n        self.no_such_thing()\n    except AttributeError:\n        return hasattr(self, 'nothing')\n",
    )
    sends = Sends(sandbox, fail=fail)
    assert [await call(sends, target, "m", how) for how in ("key", "type", "own")] == ["key 'k'", "TypeError t", "os o"]
    assert await call(sends, target, "m", "inference") == "RuntimeError gone"
    with pytest.raises(InferenceFailed):
        await call(sends, target, "through", "inference")
    with pytest.raises(MethodFailed, match="through, line 2: TypeError: t"):
        await call(sends, target, "through", "type")
    assert await call(sends, target, "outer") == "list index out of range"
    assert await call(sends, target, "missing") is False


SWALLOW = "def m(self):\n    self.n = 1\n    while True:\n        try:\n            self.fail()\n        except BaseException:\n            self.n += 1\n"


@pytest.mark.parametrize(
    "error", [ImageFailed("s"), DeadlineExceeded("d"), SandboxFailed("f"), asyncio.CancelledError(), KeyboardInterrupt()]
)
async def test_signals_and_lost_missions_never_resume_a_method(sandbox: Sandbox, error: BaseException) -> None:
    calls = []

    async def fail(o: UvmObject) -> None:
        calls.append(1)
        if isinstance(error, KeyboardInterrupt):
            raise ImageFailed("stands for any signal: a loop would end by the real one")
        raise error

    target = obj(SWALLOW, n=0)
    with pytest.raises((ImageFailed, type(error))):
        await call(Sends(sandbox, fail=fail), target, "m")
    assert (len(calls), target.n) == (1, 0)


async def test_a_conflict_of_the_database_never_resumes_a_method(sandbox: Sandbox) -> None:
    target = obj(SWALLOW, n=0)
    with stored(target) as tm:
        theirs = transaction.TransactionManager(explicit=True)
        theirs.begin()
        other = target._p_jar.db().open(theirs)

        async def fail(o: UvmObject) -> None:
            other.get(o._p_oid).n = 5
            theirs.commit()
            o.n = 6
            tm.commit()

        with pytest.raises(ConflictError):
            await call(Sends(sandbox, fail=fail), target, "m")
        other.close()
        tm.abort()
        tm.begin()
        assert target.n == 5


async def test_objects_come_back_as_themselves_and_nothing_is_forged(sandbox: Sandbox) -> None:
    seen: list[Any] = []
    secret = obj(n=1)
    target = obj(
        "def m(self, x):\n    class UvmObject:\n        def __init__(self, oid):\n            self._oid = oid\n"
        "    self.see(x, self, {'k': [x]})\n    self.see(UvmObject('ab'))\n",
        "def t(self):\n    return type(self)()\n",
    )
    sends = Sends(sandbox, see=lambda o, *args: seen.append(args))
    with pytest.raises(MethodFailed, match="may not leave"):
        await call(sends, target, "m", secret)
    assert seen == [(secret, target, {"k": [secret]})]
    with pytest.raises(MethodFailed):
        await call(sends, target, "t")


async def test_data_intents_and_special_values_cross(sandbox: Sandbox) -> None:
    day = datetime.date(2026, 1, 2)
    target = obj(
        "def m(self):\n    return [self.day.isoformat(), self.pair, self.n, self.wish('x'), self.nested]\n",
        day=day, pair=(1, (2, 3)), n=None, wish=Intent("say it"), nested={"a": [{"b": {1, 2}}]},
    )  # fmt: skip

    async def send(o: UvmObject, selector: str, args: Any, kwargs: Any, /, *, start: Any = ()) -> Any:
        return [selector, *args]

    value = await sandbox.run(target, target.m, activity=Activity(send, "s", NOW))
    assert value == ["2026-01-02", (1, (2, 3)), None, ["wish", "x"], {"a": [{"b": {1, 2}}]}]


async def test_a_number_that_cannot_be_compared_does_not_leave(sandbox: Sandbox) -> None:
    """It could be stored; then whatever reads its slot, or writes there again, fails with an error that is no method's."""
    target = obj(
        "def m(self, text):\n    from decimal import Decimal\n    self.rates.append(Decimal(text))\n    self._p_changed = True\n",
        "def n(self):\n    from decimal import Decimal\n    return Decimal('sNaN')\n",
        rates=[],
    )
    sends = Sends(sandbox)
    await call(sends, target, "m", "NaN")
    for selector, args in (("m", ["sNaN"]), ("n", [])):
        with pytest.raises(MethodFailed, match="signalling NaN may not leave"):
            await call(sends, target, selector, *args)
    await call(sends, target, "m", "1.5")
    assert [str(rate) for rate in target.rates] == ["NaN", "1.5"]


async def test_the_same_seed_and_clock_give_the_same_run(sandbox: Sandbox) -> None:
    source = (
        "def m(self):\n    import random, datetime, time, uuid\n    return [random.random(), random.randint(1, 99), str(uuid.uuid4()), "
        "datetime.datetime.utcnow().isoformat(), datetime.date.today().isoformat(), time.time(), datetime.datetime.now(datetime.timezone.utc).isoformat(), self.inner()]\n"
    )
    target = obj(source, "def inner(self):\n    import random\n    return random.random()\n")
    runs = [await call(Sends(sandbox), target, "m") for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert runs[0][3:7] == ["2026-01-02T03:04:05", "2026-01-02", NOW.timestamp(), "2026-01-02T03:04:05+00:00"]
    assert runs[0][0] != runs[0][7]
    twice = Sends(sandbox)
    assert (await call(twice, target, "m"))[0] != (await call(twice, target, "m"))[0]


async def test_a_missing_slot_asks_does_not_understand_if_somebody_answers_it(sandbox: Sandbox) -> None:
    target = obj("def m(self):\n    return self.anything\n", "def _doesNotUnderstand_(self, selector):\n    return 'no ' + selector\n")
    assert await call(Sends(sandbox), target, "m") == "no anything"


async def test_an_object_that_understands_messages_hears_of_no_read_and_one_that_looks_up_answers_reads(sandbox: Sandbox) -> None:
    heard: list[str] = []
    place = obj(_understands_="host code")
    target = obj(
        "def m(self):\n    p = self.holder.any_name\n    f = p.order\n    g = getattr(p, 'look')\n    return [hasattr(p, 'pay'), f(1), g(), p.pay(by=2)]\n",
        holder=obj("def _lookup_(self, name):\n    return self.place\n", place=place),
    )
    answers = {name: lambda obj, *args, name=name, **more: heard.append(name) or [*args, *more] for name in ("order", "look", "pay")}
    assert await call(Sends(sandbox, **answers), target, "m") == [True, [1], [], ["by"]]
    assert heard == ["order", "look", "pay"]


async def test_nobody_catches_that_nothing_may_be_done_outside(sandbox: Sandbox) -> None:
    def act(obj: UvmObject, error: str) -> None:
        raise (ToolsTied if error == "tied" else GrantRefused)("not now")

    source = "def m(self, error):\n    try:\n        return self.act(error)\n    except PermissionError as e:\n        return str(e)\n    except Exception:\n        return 'caught'\n"
    target, sends = obj(source), Sends(sandbox, act=act)
    assert await call(sends, target, "m", "refused") == "not now"
    with pytest.raises(ToolsTied):
        await call(sends, target, "m", "tied")


async def test_concurrent_methods_on_one_object_lose_no_update(sandbox: Sandbox) -> None:
    target = obj("def m(self):\n    self.n += 1\n    self.log.append(self.n)\n", n=0, log=[])
    sends = Sends(sandbox)
    await asyncio.gather(*(call(sends, target, "m") for _ in range(5)))
    assert slots(target) == {"n": 5, "log": [1, 2, 3, 4, 5]}


async def test_depth_and_sends_are_limited_and_nobody_catches_that(sandbox: Sandbox) -> None:
    deep = obj(
        "def m(self, n):\n    try:\n        return 0 if n == 0 else 1 + self.m(n - 1)\n    except BaseException:\n        return -1\n"
    )
    assert await call(Sends(sandbox), deep, "m", 5) == 5
    with pytest.raises(SandboxLimit) as caught:
        await call(Sends(sandbox), deep, "m", 6)
    assert caught.value.limit == "depth"
    storm = obj(
        "def m(self):\n    for i in range(10 ** 6):\n        try:\n            self.nobody()\n        except Exception:\n            pass\n"
    )
    with pytest.raises(SandboxLimit) as caught:
        await call(Sends(sandbox), storm, "m")
    assert caught.value.limit == "sends"


async def test_full_depth_in_every_chain_at_once_does_not_deadlock(sandbox: Sandbox) -> None:
    deep = [obj("def m(self, n):\n    return 0 if n == 0 else 1 + self.m(n - 1)\n") for _ in range(9)]
    async with asyncio.timeout(90):
        assert await asyncio.gather(*(call(Sends(sandbox), each, "m", 5) for each in deep)) == [5] * 9


async def test_a_doomed_trial_leaves_nothing(sandbox: Sandbox) -> None:
    target = obj("def m(self):\n    self.n += 1\n    self.kid = self.derive(x=1)\n    return self.n\n", n=0)
    with stored(target) as tm:
        tm.doom()
        assert await call(Sends(sandbox), target, "m") == 1
        tm.abort()
        tm.begin()
        assert (target.n, "kid" in target._slots) == (0, False)
        assert await call(Sends(sandbox), target, "m") == 1
        tm.commit()
        tm.begin()
        assert target.kid.x == 1


async def test_a_method_not_in_a_slot_runs_too(sandbox: Sandbox) -> None:
    loose = Method("m", "def m(self, *, a=1, **more):\n    return [a, more]\n")
    assert await sandbox.run(obj(), loose, [], {"a": 2, "b": 3}, activity=Sends(sandbox).activity) == [2, {"b": 3}]
    assert method("def m(self):\n    pass\n").selector == "m"
