"""The covenant's analysis against an interpreter: random methods are run on a receiver that remembers its state at the flag.

What a run leaves unflagged the guardian must have refused. For methods without loops, errors and aliases the verdict is exact: refused
if and only if some run breaks the covenant.
"""

from __future__ import annotations

import copy
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batos.guardian import PersistenceGuardian
from batos.guardian.verdict import COVENANT_RULES

GUARDIAN = PersistenceGuardian()
BITS = 12
RUNS = 24
LINES = 500


class Recorder:
    """A receiver whose flag takes a picture of its state."""

    def __init__(self) -> None:
        self.state = {"count": 0, "items": [[0], [1]], "table": {"k": [2], "m": {"n": [3]}}, "rows": [[4], [5]]}
        self.picture = copy.deepcopy(self.state)

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["state"][name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_p_changed":
            self.__dict__["picture"] = copy.deepcopy(self.state)
        elif name in ("state", "picture"):
            self.__dict__[name] = value
        else:
            self.state[name] = value

    def __delattr__(self, name: str) -> None:
        del self.state[name]

    @property
    def flagged(self) -> bool:
        return bool(self.picture == self.state)


def bits(given: tuple[int, ...]) -> Iterator[int]:
    """Answers for the conditions of one run; zeros when they are used up."""
    return itertools.chain(given, itertools.repeat(0))


def storable(value: object, around: tuple[int, ...]) -> bool:
    """Whether a state can be kept and compared: plain values and containers, none of which holds itself."""
    if isinstance(value, (list, tuple, dict)) and id(value) not in around:
        parts = value.values() if isinstance(value, dict) else value
        return all(storable(part, (*around, id(value))) for part in parts)
    return value is None or isinstance(value, (int, str))


class TooLong(Exception):
    """A run that walks over what it appends to never ends."""


def bounded(steps: int) -> Callable[..., Any]:
    """A trace function that ends a run after so many lines."""
    left = iter(range(steps))

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != "<generated>":
            return None
        if next(left, None) is None:
            raise TooLong
        return trace

    return trace


def breaks(source: str, given: tuple[int, ...]) -> bool:
    """Whether a run of the method returns with a state that is not the flagged one."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "<generated>", "exec"), namespace)
    receiver = Recorder()
    before = sys.gettrace()
    sys.settrace(bounded(LINES))
    try:
        result = namespace["m"](receiver, bits(given))
        if isinstance(result, Iterator):
            list(itertools.islice(result, 100))
    except Exception:
        return False  # writes of a method that raises are dropped
    finally:
        sys.settrace(before)
    return storable(receiver.state, ()) and not receiver.flagged


def refused(source: str) -> bool:
    verdict = GUARDIAN.audit(source, "m")
    return any(finding.rule in COVENANT_RULES for finding in verdict.findings)


# --- methods without aliases, loops and errors: the verdict is exact

DIRECT = ["self.count = {n}", "self.items.append({n})", "self.table['k'] = {n}", "self.rows[0] = {n}", "self.fresh{n} = {n}"]
FLAG = "self._p_changed = True"
NEUTRAL = ["x = self.count", "y = list(self.items)", "x = len(self.rows)", "pass"]


def written(head: str, body: list[str]) -> str:
    """The source of a method, every `{n}` another number: what is written is always something new."""
    numbers = itertools.count(100)
    return head + "".join(f"    {re.sub('{n}', lambda _: str(next(numbers)), line)}\n" for line in body)


@st.composite
def straight(draw: st.DrawFn, depth: int = 3) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["write", "write", "flag", "flag", "neutral", "if", "return", "raise"]))
        if kind == "write":
            lines.append(draw(st.sampled_from(DIRECT)))
        elif kind == "flag":
            lines.append(FLAG)
        elif kind == "neutral":
            lines.append(draw(st.sampled_from(NEUTRAL)))
        elif kind == "return":
            lines.append("return 1")
        elif kind == "raise":
            lines.append("raise ValueError('x')")
        elif depth:
            lines.append("if next(c):")
            lines += ["    " + line for line in draw(straight(depth=depth - 1))]
            if draw(st.booleans()):
                lines.append("else:")
                lines += ["    " + line for line in draw(straight(depth=depth - 1))]
    return lines or ["pass"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(straight())
def test_without_aliases_the_verdict_is_exact(body: list[str]) -> None:
    source = written("def m(self, c):\n", ["x = y = 0", *body])
    conditions = source.count("next(c)")
    if conditions > 8:
        return
    broken = any(breaks(source, given) for given in itertools.product((0, 1), repeat=conditions))
    assert refused(source) == broken, source


# --- everything: nothing is missed

BEFORE = """\
def m(self, c):
    x, y, d, e, rows, t, w, b, z, me = [], [], {'k': []}, [0], [[0]], ([0], [1]), [], [], [], self
    f = x.append
    def put(a, b=e):
        a.append(next(c) + 1000)
        return b
    def own(v):
        self.count = v
        return self.rows
    def pick(a):
        return a
    def later(v):
        return lambda w: v.append(w)
    g = later(y)
"""
ACTIONS = [
    "self.count = {n}",
    "self.count += {n}",
    "self.items.append({n})",
    "self.table['k'].append({n})",
    "self.table['m']['n'] = {n}",
    "del self.rows[0]",
    "x = self.items",
    "x.append({n})",
    "y = x",
    "y.append({n})",
    "x, y = y, x",
    "x = []",
    "x = [self.items]",
    "x[0].append({n})",
    "e = self.rows[0]",
    "e.append({n})",
    "e += [{n}]",
    "x += [{n}]",
    "e = {'n': {n}}",
    "self.items.append(e)",
    "self.table['e'] = e",
    "d['k'] = self.items",
    "d['k'].append({n})",
    "d.setdefault('z', self.rows).append({n})",
    "d = {'k': [self.table]}",
    "d['k'][0]['q'] = {n}",
    "d = {}",
    "(w := self.items).append({n})",
    "rows = list(self.rows)",
    "rows[0].append({n})",
    "rows = [list(r) for r in self.rows]",
    "rows.append({n})",
    "rows = sorted(self.rows, key=len)",
    "for r in self.rows:\n    r.append({n})",
    "for k, v in self.table.items():\n    x = v",
    "for i, r in enumerate(rows):\n    r.append({n})",
    "put(self.items)",
    "put(x)",
    "put(y, self.rows).append({n})",
    "own({n})",
    "own({n})[0].append({n})",
    "pick(self.items).append({n})",
    "x = pick(x)",
    "f = self.items.append",
    "f({n})",
    "f = e.append",
    "g = later(self.items)",
    "g({n})",
    "g = later([])",
    "[self.rows.append(i) for i in (1, {n})]",
    "x = (self.rows.append(i) for i in (1, {n}))",
    "y = [r for r in self.rows]",
    "list(map(self.items.append, [{n}]))",
    "x = map(self.rows.append, [{n}])",
    "list(x)",
    "t = (self.items, self.rows)",
    "t[1].append({n})",
    "for q in t:\n    q.append({n})",
    "a, *b = self.rows",
    "b.append({n})",
    "x = self.table if next(c) else {}",
    "x = self.rows or []",
    "x = dict(self.table)",
    "x['k'] = {n}",
    "match self.rows:\n    case [first, *rest]:\n        first.append({n})",
    "y = max(self.rows, key=len)",
    "x = {**self.table}",
    "x['k'].append({n})",
    "self.items = x",
    "self.rows = rows",
    "y = self.items + [1]",
    "y[0].append({n})",
    "x = [self]",
    "x[0].count = {n}",
    "me = self",
    "me.count = {n}",
    "w = next(iter(self.rows))",
    "w.append({n})",
    "x = zip(self.rows, rows)",
    "for p, q in zip(self.rows, self.items):\n    p.append({n})",
    "x = self.items[:]",
    "del x[0]",
    "x.extend([{n}])",
    "x.update({'z': {n}})",
    "y = self.table.get('k', [])",
    "y.clear()",
    "z = self.table.pop('k', None)",
    "1 // next(c)",
    "x = (lambda v: v)(self.items)",
    "(lambda v=self.items: v.append({n}))()",
    FLAG,
    FLAG,
    FLAG,
    FLAG,
]
LAST = ["pass", FLAG, "return x", "return None", f"{FLAG}\nreturn y", "return self.items.append(1)"]


@st.composite
def anything(draw: st.DrawFn, depth: int = 3, looping: bool = False) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["act"] * 8 + ["if", "for", "while", "try", "finally", "out"]))
        if kind == "act" or (not depth and kind != "out"):
            lines += draw(st.sampled_from(ACTIONS)).split("\n")
        elif kind == "out":
            lines.append(draw(st.sampled_from(["return 1", "return x", "raise ValueError('x')", *(["break", "continue"] * looping)])))
        else:
            lines += draw(compound(kind, depth - 1, looping))
    return lines


@st.composite
def compound(draw: st.DrawFn, kind: str, depth: int, looping: bool) -> list[str]:
    def block(head: str, loop: bool = looping) -> list[str]:
        return [head, *("    " + line for line in draw(anything(depth=depth, looping=loop)))]

    match kind:
        case "if":
            return block("if next(c):") + (block("else:") if draw(st.booleans()) else [])
        case "for":
            return block("for i in (1, 2):", True) + (block("else:") if draw(st.booleans()) else [])
        case "while":
            return block("while next(c):", True)
        case "try":
            lines = block("try:") + block("except (ZeroDivisionError, LookupError, TypeError, ValueError, AttributeError):")
            return lines + (block("finally:") if draw(st.booleans()) else [])
    return block("try:") + block("finally:")


def check_nothing_is_missed(body: list[str], given: list[tuple[int, ...]]) -> None:
    source = written(BEFORE, body)
    try:
        compile(source, "<generated>", "exec")
    except SyntaxError:
        return  # `continue` in a finally clause and the like
    if any(breaks(source, bits) for bits in given):
        verdict = GUARDIAN.audit(source, "m")
        assert any(finding.rule in (*COVENANT_RULES, "size", "store") for finding in verdict.findings), source


RANDOM_BITS = st.lists(st.tuples(*[st.integers(0, 1)] * BITS), min_size=RUNS, max_size=RUNS)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(anything(), st.sampled_from(LAST), RANDOM_BITS)
def test_no_violation_is_missed(body: list[str], last: str, given: list[tuple[int, ...]]) -> None:
    check_nothing_is_missed([*body, *last.split("\n")], given)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from([action for action in ACTIONS if action != FLAG]), min_size=1, max_size=6),
    RANDOM_BITS.map(lambda bits: bits[:4]),
)
def test_no_alias_is_missed(actions: list[str], given: list[tuple[int, ...]]) -> None:
    """The flag before the last action: what that one writes, through whatever the others built, is not flagged."""
    lines = [line for action in actions for line in action.split("\n")]
    check_nothing_is_missed([*lines, FLAG, *actions[-1].split("\n")], given)
