"""Random programs do in the sandbox what they do in CPython; random mutations of methods never hurt the host."""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batos.errors import BatosError, MethodFailed, MethodUnsupported
from batos.objects import Method, UvmObject
from batos.sandbox import Sandbox
from tests.support.sandbox import STALLED, Heartbeat, Sends, corpus, method, obj, slots, stored
from tests.support.sandbox import settings as sandbox_settings
from tests.support.sandbox_cases import CASES

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(sandbox_settings(sandbox_time_s=0.3, sandbox_host_calls=500)) as running:
        yield running


# --- differential: statements over a few slots and locals of known types

NUMBERS = st.sampled_from(["x", "self.n", "len(self.xs)", "len(ys)", "3", "-2", "self.d.get('a', 0)", "sum(ys)", "max([x, self.n])"])
LISTS = st.sampled_from(
    ["self.xs", "ys", "list(self.d.values())", "[x, self.n]", "sorted(self.xs, key=lambda v: -v)", "[v for v in ys if v > x]"]
)
TEXTS = st.sampled_from(["self.t", "'ab'", "str(self.n)", "self.t.upper()", "f'{x}-{self.t!r}'", "'-'.join(map(str, ys))"])
OPERATORS = st.sampled_from(["+", "-", "*", "//", "%"])


@st.composite
def statements(draw: st.DrawFn, depth: int = 0) -> list[str]:
    number, other, items, text = draw(NUMBERS), draw(NUMBERS), draw(LISTS), draw(TEXTS)
    simple = [
        f"self.n = {number} {draw(OPERATORS)} {other}",
        f"self.n {draw(st.sampled_from(['+=', '-=']))} {number}",
        f"x = {number}",
        f"ys = list({items})",
        f"ys.append({number})",
        f"self.xs.append({number})",
        f"self.xs += [{number}]",
        f"self.xs = {items}",
        f"self.d[{text}] = {number}",
        f"self.d['a'] = self.d.setdefault('a', 1) + {number}",
        f"self.t = {text}[:9]",
        f"self.t += {text}[:2]",
        "self.xs.sort(key=lambda v: -v)",
        "del self.xs[0]",
        "del self.d['a']",
        "del self.extra",
        f"self.extra = {items}",
        "ys = self.xs",
        f"x, self.n = {number}, {other}",
        f"x = next((v for v in {items} if v > {number}), {other})",
        f"x = 1 if any(v == {number} for v in {items}) else 2",
        f"assert {number} < 9, 'big'",
    ]
    kind = draw(st.integers(0, 9 if depth < 2 else 6))
    if kind <= 6:
        return [draw(st.sampled_from(simple))]
    inner = ["    " + line for line in draw(blocks(depth + 1))]
    if kind == 7:
        return [f"if {number} > {other}:", *inner, "else:", "    x = 7"]
    if kind == 8:
        return [f"for v in list({items})[:4]:", "    x = v", *inner]
    return [
        "try:",
        *inner,
        "except (IndexError, KeyError, AttributeError) as e:",
        "    self.t = type(e).__name__",
        "finally:",
        "    x += 1",
    ]


def blocks(depth: int = 0) -> st.SearchStrategy[list[str]]:
    return st.lists(statements(depth), min_size=1, max_size=4).map(lambda parts: [line for part in parts for line in part])


class Plain:
    """What `self` is in CPython."""


STATE = {"n": 2, "xs": [3, 1, 2], "d": {"a": 1, "b": 5}, "t": "bat"}


def in_cpython(source: str) -> tuple[Any, dict[str, Any]]:
    space: dict[str, Any] = {}
    exec(source, space)
    receiver = Plain()
    receiver.__dict__.update(copy.deepcopy(STATE))
    try:
        return space["m"](receiver, 1), receiver.__dict__
    except Exception as e:
        return type(e).__name__, STATE


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(blocks())
async def test_random_methods_do_what_they_do_in_cpython(sandbox: Sandbox, lines: list[str]) -> None:
    source = (
        "def m(self, x):\n    ys = [4, 0]\n" + "".join(f"    {line}\n" for line in lines) + "    return [x, ys, self.n, self.xs, self.t]\n"
    )
    expected = in_cpython(source)
    target = obj(**copy.deepcopy(STATE))
    try:
        value = await sandbox.run(target, method(source), [1], activity=Sends(sandbox).activity)
    except MethodFailed as e:
        value = e.type
    assert (value, slots(target)) == expected, source


# --- mutations

HOSTILE = [
    "def m(self):\n    return ().__class__.__base__.__subclasses__()\n",
    "def m(self):\n    import os\n    return os.system('true')\n",
    "def m(self):\n    return open('/etc/passwd').read()\n",
    "def m(self):\n    while True:\n        try:\n            pass\n        except BaseException:\n            continue\n",
    "def m(self):\n    x = []\n    while True:\n        x = [x, x]\n",
    "def m(self):\n    self._p_jar.transaction_manager.abort()\n",
    "def m(self):\n    self.peer.count = 5\n    self._p_changed = True\n",
    "def m(self):\n    return (lambda: 0).__globals__\n",
    "def m(self):\n    a = []\n    a.append(a)\n    self.deep = a\n    return str(a)\n",
    "def m(self):\n    for i in range(10 ** 6):\n        self.nobody(i)\n",
    "def m(self):\n    raise SystemExit\n",
    "def m(self):\n    match self:\n        case object(count=c):\n            return c\n",
    "def m(self):\n    def g():\n        yield 1\n    return g().gi_frame\n",
    "def m(self):\n    _b_call(self, 'm', [], {}, [[self.peer, 'count', 1]], False)\n",
]
WORDS = [
    "self",
    "self.peer",
    "_p_jar",
    "__class__",
    "_b_U",
    "yield",
    "lambda: 0",
    "10 ** 9",
    "del ",
    "await ",
    "(",
    ")",
    ":",
    "*",
    "peer.count = 1",
    "\n",
    "    ",
]


def mutated(source: str, others: list[str], chance: random.Random) -> str:
    """A source with some words, lines or characters of others; one that parses, if one comes soon."""
    for _ in range(20):
        new = source
        for _ in range(chance.randint(1, 4)):
            new = chance.choice((_word, _word, _word, _line, _piece))(new, chance.choice(others), chance)
        if parsed(new):
            break
    return new[:4000]


def _word(source: str, other: str, chance: random.Random) -> str:
    places = list(re.finditer(r"\w+|[^\w\s]", source))
    place = chance.choice(places) if places else None
    word = chance.choice([*re.findall(r"[\w.]+", other), chance.choice(WORDS)])
    return source if place is None else source[: place.start()] + word + source[place.end() :]


def _line(source: str, other: str, chance: random.Random) -> str:
    lines, more = source.splitlines(), other.splitlines()[1:]
    at = chance.randrange(1, len(lines)) if len(lines) > 1 else 0
    lines[at : at + chance.randrange(2)] = [chance.choice(more)] if more else []
    return "\n".join(lines) + "\n"


def _piece(source: str, other: str, chance: random.Random) -> str:
    at, start = chance.randrange(len(source) + 1), chance.randrange(len(other) or 1)
    piece = chance.choice([chance.choice(WORDS), other[start : start + chance.randint(1, 40)], chr(chance.randrange(0x250)), ""])
    return source[:at] + piece + source[at + chance.randrange(10) :]


def parsed(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


async def test_mutated_methods_never_hurt_the_host(sandbox: Sandbox) -> None:
    chance = random.Random(20261121)
    sources = [source for source, _, _ in CASES] + HOSTILE * 4 + [row["source"] for row in corpus() if 0 < len(row["source"]) < 2000]
    ran = 0
    peer = UvmObject(count=0)
    target = obj(peer=peer, count=1, items=[1], **{k: v for k, v in STATE.items() if k != "xs"})
    with stored(target) as tm:
        async with Heartbeat() as heart:
            for _ in range(400):
                source = mutated(chance.choice(sources), sources, chance)
                try:
                    await sandbox.run(target, Method("m", source), [[1, 2]], activity=Sends(sandbox).activity)
                    ran += 1
                except BatosError as e:
                    ran += not isinstance(e, MethodUnsupported)
                assert peer.count == 0, source
                target.__getstate__()
                tm.abort()
                tm.begin()
    assert ran > 100
    assert heart.gap < STALLED
    assert await sandbox.run(obj(), method("def m(self):\n    return 1\n"), activity=Sends(sandbox).activity) == 1
