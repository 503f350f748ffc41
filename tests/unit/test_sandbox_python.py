"""What methods may be written in: the same source in the sandbox and in CPython, and refusals with hints."""

# ruff: noqa: E501  the sources of methods

from __future__ import annotations

import builtins
import copy
import inspect
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from batos.errors import MethodError, MethodFailed, MethodUnsupported
from batos.guardian import PersistenceGuardian
from batos.guardian.allowlist import SUPPLIED
from batos.objects import Method, UvmObject
from batos.sandbox import Sandbox, unsupported
from tests.support.sandbox import Sends, call, corpus, method, obj, settings, slots, stored
from tests.support.sandbox_cases import CASES

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Plain:
    """What `self` is in CPython."""


async def in_cpython(source: str, args: list[Any], state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    space: dict[str, Any] = {}
    exec(source, space)
    receiver = Plain()
    receiver.__dict__.update(copy.deepcopy(state))
    try:
        value = space["m"](receiver, *copy.deepcopy(args))
        if inspect.isawaitable(value):
            value = await value
    except Exception as e:
        return ("raised", type(e).__name__), state  # a method that raises leaves nothing written: the one difference, and meant
    if isinstance(value, (types.GeneratorType, type({}.keys()))):
        value = list(value)
    receiver.__dict__.pop("_p_changed", None)
    return value, receiver.__dict__


async def in_sandbox(sandbox: Sandbox, source: str, args: list[Any], state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    target = obj(**copy.deepcopy(state))
    try:
        value = await sandbox.run(target, method(source), args, activity=Sends(sandbox).activity)
    except MethodFailed as e:
        value = ("raised", e.type)
    return value, slots(target)


_OF_MANY_KINDS = """def {name}(self, q):
    self.items.append(q)
    self.tags["n"] = self.tags.get("n", 0) + q
    self.seen.add(q)
    self.count += self.twice_(q, more=1)
    self._p_changed = True
    return [*(str(x) for x in self.items if x), *self.tags, self.name.upper(), f"{{self.count:>3}}"]
"""


@pytest.mark.parametrize("name", sorted(name for name in dir(builtins) if name.islower() and name.isidentifier()))
async def test_a_method_may_be_named_as_a_builtin(sandbox: Sandbox, name: str) -> None:
    """It is not what the prelude, or the method itself, gets by that name: a method `set` lost what it wrote, `list` did not run."""
    if not PersistenceGuardian().audit(_OF_MANY_KINDS.format(name=name), name).accepted:
        pytest.skip("no selector")
    twice = "def twice_(self, q, more=0):\n    self.items.append(9)\n    self._p_changed = True\n    return 2 * q + more\n"
    target = obj(_OF_MANY_KINDS.format(name=name), twice, items=[1, 0], tags={"a": 1}, seen={1}, count=1, name="bo")
    await sandbox.compile(_OF_MANY_KINDS.format(name=name))
    assert await call(Sends(sandbox), target, name, 5) == ["1", "5", "9", "a", "n", "BO", " 12"]
    assert slots(target) == {"items": [1, 0, 5, 9], "tags": {"a": 1, "n": 5}, "seen": {1, 5}, "count": 12, "name": "bo"}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("def list(self, one):\n    return [*list(self.items), one]\n", [3, 1, 2, 5]),
        ("def len(self, more):\n    return len(self.items) + more\n", 8),
        ("def max(self, n):\n    return max(n, max(self.items))\n", 5),
        ("# def max(self, n): of all\ndef max(self, n):\n    '# def max'\n    return max(n, max(self.items))\n", 5),
        ("# a page ends\x0c here, \u2028 a line\ndef \\\n  max(self, n):\n    return max(n, max(self.items))\n", 5),
        ("def sorted(self, by):\n    return sorted(self.items, key=lambda n: -n * by)\n", [3, 2, 1]),
    ],
)
async def test_a_method_gets_the_builtin_that_it_is_named_as(sandbox: Sandbox, source: str, value: Any) -> None:
    await sandbox.compile(source)
    target = obj(source, items=[3, 1, 2])
    assert await call(Sends(sandbox), target, method(source).selector, 5) == value


@pytest.mark.parametrize("name", ["iter", "list", "len", "type"])
async def test_a_local_name_hides_no_builtin_from_what_is_made_of_a_generator(sandbox: Sandbox, name: str) -> None:
    source = f"def m(self, {name}):\n    def each():\n        for n in range(3):\n            yield n * {name}\n    return sorted(each()), tuple(-n for n in each())\n"
    assert await sandbox.run(obj(), method(source), [2], activity=Sends(sandbox).activity) == ([0, 2, 4], (0, -2, -4))


@pytest.mark.parametrize(
    "source",
    [
        "def m(self, xs: List[int], n: Optional[int] = None) -> Any:\n    return xs[n or 0]\n",
        "def m(self, xs: 'List[int]', n: 'Optional[int]' = None) -> 'Any':\n    return xs[n or 0]\n",
        "def m(self: UvmObject,\n      xs: Sequence[Union[int, str]],\n      n: datetime.date | None = None,\n) -> Dict[str, Any]:\n    return xs[0]\n",
        "def m(self, xs: list, word='é', day: date = None) -> Decimal:\n    from decimal import Decimal\n    return int(Decimal(xs[0]))\n",
        "def m(self, xs):\n    first: Optional[int] = xs[0]\n    rest: List[int]\n    def inner(n: Any, *more: Any, **named: Mapping) -> Any:\n"
        "        return n\n    return inner(first)\n",
    ],
)
async def test_annotations_need_no_import(sandbox: Sandbox, source: str) -> None:
    """Nothing evaluates them, and the guardian takes them; an import in the body would not reach those of the signature."""
    assert PersistenceGuardian().audit(source, "m").accepted
    await sandbox.compile(source)
    assert await sandbox.run(obj(), method(source), [[5, 6]], activity=Sends(sandbox).activity) == 5


@pytest.mark.parametrize(("source", "args", "state"), CASES, ids=range(len(CASES)))
async def test_a_method_does_what_it_does_in_cpython(sandbox: Sandbox, source: str, args: list[Any], state: dict[str, Any]) -> None:
    expected = await in_cpython(source, args, state)
    got = await in_sandbox(sandbox, source, args, state)
    assert repr(got[0]) == repr(expected[0])
    assert got[1] == expected[1]
    assert [type(v) for v in got[1].values()] == [type(v) for v in expected[1].values()]


REFUSED = {
    "def m(self):\n    import os\n    return os.getcwd()\n": (2, "no module 'os'"),
    "def m(self):\n    from statistics import nope\n": (2, "fmean"),
    "def m(self):\n    class E(Exception):\n        pass\n": (2, "builtin exceptions"),
    "def m(self, p):\n    import re\n    flags = re.VERBOSE | re.I\n    return re.compile(p, flags)\n": (3, "in the call"),
    "def m(self):\n    x = yield 1\n": (2, "collect results in a list"),
    "def m(self):\n    while True:\n        yield 1\n": (2, "without an end"),
    "async def m(self):\n    async for x in self.xs:\n        pass\n": (2, "plain `for`"),
    "def m(self):\n    return eval('1')\n": (2, "by name"),
    "def m(self):\n    return open('/etc/passwd').read()\n": (2, "no files"),
    "def m(self):\n    global x\n    x = 1\n": (2, "slots of self"),
    "def m(self):\n    self._p_jar = None\n": (2, "reserved name"),
    "def m(self):\n    return self.__dict__\n": (2, "reserved name"),
    "def m(self):\n    self._p_changed = False\n": (2, "Covenant"),
    "def m(self):\n    import json\n    json.dumps = len\n": (3, "cannot be changed"),
    "def m(self):\n    _b_changes()\n": (2, "reserved name"),
    "def m():\n    pass\n": (1, "the receiver"),
    "x = 1\n": (1, "one `def`"),
    "def m(self):\n    break\n": (2, "outside loop"),
    "def m(self:\n": (1, "no Python"),
    "def m(self):\n    return " + "(" * 250 + ")" * 250: (2, "no Python"),
    "def m(self):\n    return self" + ".a" * 3000: (1, "simpler"),
    "def m(self):\n    return '" + "x" * 20_000 + "'": (1, "longer than"),
    "@staticmethod\ndef m(self):\n    pass\n": (2, "decorators"),
    "def m(self):\n    return super().title\n": (2, "messages only"),
    "def m(self):\n    [0 for self.x in (1, 2)]\n": (2, "local name"),
}


@pytest.mark.parametrize("source", REFUSED, ids=range(len(REFUSED)))
async def test_what_cannot_run_is_refused_with_line_and_hint(sandbox: Sandbox, source: str) -> None:
    line, hint = REFUSED[source]
    with pytest.raises(MethodUnsupported) as caught:
        await sandbox.compile(source)
    assert caught.value.line == line
    assert hint in caught.value.hint
    assert any(hint in text for _, _, text in unsupported(source, limit=16 * 1024))


TYPED = {
    "def m(self):\n    x = 1\n    return nothing_like_this(x)\n": 3,
    "def m(self, text: str):\n    return text.uper()\n": 2,
    "def m(self):\n    def f(a):\n        return a\n    return f(1, 2)\n": 4,
    "def m(self, n: Optional[int] = None) -> List[int]:\n    held: List[int] = [1]; held += List\n    return held\n": 2,
}


@pytest.mark.parametrize("source", TYPED, ids=range(len(TYPED)))
async def test_the_type_check_names_lines_of_the_source_as_it_was_written(sandbox: Sandbox, source: str) -> None:
    with pytest.raises(MethodUnsupported) as caught:
        await sandbox.compile(source)
    assert caught.value.line == TYPED[source]


@pytest.mark.parametrize(("source", "args", "state"), CASES, ids=range(len(CASES)))
async def test_the_type_check_refuses_nothing_that_runs(sandbox: Sandbox, source: str, args: list[Any], state: dict[str, Any]) -> None:
    value, _ = await in_sandbox(sandbox, source, args, state)
    if not (isinstance(value, tuple) and value[:1] == ("raised",)):
        assert await sandbox.programs.type_check(source) == []


@pytest.mark.parametrize("work", ["'a'.encode(name)", "b'a'.decode(name)", "bytes('a', name)", "str(b'a', name)"])
async def test_an_encoding_that_there_is_not_is_refused_with_those_that_there_are(sandbox: Sandbox, work: str) -> None:
    with pytest.raises(MethodFailed, match=r"unknown encoding: klingon; a method has utf-8, .* latin-1"):
        await sandbox.run(obj(), method(f"def m(self, name):\n    return {work}\n"), ["klingon"], activity=Sends(sandbox).activity)


async def test_an_error_names_the_line_of_the_source(sandbox: Sandbox) -> None:
    source = "def m(self, xs):\n    '''Doc.'''\n    # comment\n\n    total = [x\n             for x in xs]\n    del total[0]\n\n    return total[5]\n"
    with pytest.raises(MethodFailed) as caught:
        await sandbox.run(obj(), method(source), [[1, 2]], activity=Sends(sandbox).activity)
    assert (caught.value.type, caught.value.trace) == ("IndexError", (("m", 9),))


async def test_an_error_in_a_method_with_fractions_names_its_line_too(sandbox: Sandbox) -> None:
    source = "def m(self, n):\n    from fractions import Fraction\n\n    if 0 < n:\n        # comment\n        return sorted([\n            Fraction(1, 2),\n            Fraction(1, 0)])\n"
    with pytest.raises(MethodFailed) as caught:
        await sandbox.run(obj(), method(source), [1], activity=Sends(sandbox).activity)
    assert (caught.value.type, caught.value.trace) == ("ZeroDivisionError", (("m", 6),))


def built(value: Any) -> Any:
    return (
        UvmObject(**{name: built(held) for name, held in value["$uvm"].items()}) if isinstance(value, dict) and "$uvm" in value else value
    )


@pytest.mark.parametrize(("module", "members"), sorted((module, sorted(members)) for module, members in SUPPLIED.items()))
async def test_the_type_check_knows_what_is_supplied(sandbox: Sandbox, module: str, members: list[str]) -> None:
    members = [member for member in members if member not in ("VERBOSE", "X")]  # no values: they belong into a call
    used = ", ".join(f"{module}.{member}" for member in members)
    await sandbox.compile(f"def m(self):\n    import {module}\n    return str([{used}])\n")
    await sandbox.compile(f"def m(self):\n    from {module} import {', '.join(members)}\n    return str([{', '.join(members)}])\n")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient() -> AsyncIterator[Sandbox]:
    """A sandbox that ends soon what would never end."""
    async with Sandbox(settings(sandbox_time_s=0.5)) as running:
        yield running


@pytest.mark.parametrize("row", corpus(), ids=lambda row: row["id"])
async def test_the_corpus(impatient: Sandbox, row: dict[str, Any]) -> None:
    target = obj(**{name: built(held) for name, held in (row.get("slots") or {}).items()})
    before = {name: slots(held) for name, held in target._slots.items() if isinstance(held, UvmObject)}
    sends = Sends(impatient, unit_price=lambda o, n: o.base - n // 10, note=lambda o, text: o.notes.append(text))
    with stored(target):
        await judged(impatient, row, target, sends)
        assert {name: slots(held) for name, held in target._slots.items() if isinstance(held, UvmObject)} == before


async def judged(sandbox: Sandbox, row: dict[str, Any], target: UvmObject, sends: Sends) -> None:
    try:
        value = await sandbox.run(target, Method(row["selector"], row["source"]), row.get("args") or [], activity=sends.activity)
    except MethodError:
        if row["expect"] == "accept":
            raise
    else:
        assert row["expect"] != "accept" or value == row["result"]
        target.__getstate__()  # it can be stored
