"""The rules for methods with tools against an interpreter: random methods are run on tools that count calls and remember arguments.

What the guardian accepts acts no more often than its literals say, and hands no text of one connection to another as a path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batos.guardian import PersistenceGuardian
from batos.guardian.policy import ReachableTool

GUARDIAN = PersistenceGuardian()
TOOLS = {
    "shop": {"end": ReachableTool("shop.end", "acts", ("order",)), "list": ReachableTool("shop.list", "reads")},
    "notes": {"write": ReachableTool("notes.write", "keyed", ("path", "text"), frozenset({"path"}))},
}
LONG, LITERAL, DEPTH, LINES = 150, 3, 2, 800
"""Length of what is not bounded; the largest literal; nested loops; lines after which a run is cut off."""
MARK = "said-by-the-shop"


class Shop:
    def __init__(self) -> None:
        self.ended = 0

    def end(self, order: Any = None) -> dict[str, Any]:
        self.ended += 1
        return {"left": [MARK] * LONG, "name": MARK}

    def list(self) -> dict[str, Any]:
        return {"left": [MARK] * LONG, "name": MARK}


class Notes:
    def __init__(self) -> None:
        self.paths: list[str] = []

    def write(self, path: Any, text: Any = None) -> str:
        self.paths.append(str(path))
        return "written"


class Tools:
    def __init__(self) -> None:
        self.shop, self.notes = Shop(), Notes()


class Receiver:
    def __init__(self) -> None:
        self.tools, self.kept = Tools(), ["kept"] * LONG

    def other_(self, *args: Any) -> Any:
        return args[0] if args else "other"


class TooLong(Exception):
    """A run that has no end in sight."""


def bounded(lines: int) -> Callable[..., Any]:
    """A trace function that ends a run after so many lines."""
    left = iter(range(lines))

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != "<generated>":
            return None
        if next(left, None) is None:
            raise TooLong
        return trace

    return trace


ITERABLES = [
    "ids",
    "ids[:3]",
    "ids[-3:]",
    "ids[1:3]",
    "ids[:-1]",
    "ids[2:]",
    "ids[::-1]",
    "ids[:3:-1]",
    "range(3)",
    "range(n)",
    "range(len(ids))",
    "range(min(len(ids), 3))",
    "(1, 2)",
    "[1, *ids]",
    "sorted(ids)",
    "sorted(ids)[:2]",
    "enumerate(ids[:2])",
    "zip(ids, xs)",
    "zip(ids[:2], xs)",
    "self.kept",
    "self.kept[:2]",
    "said['left']",
    "said['left'][:2]",
    "xs",
    "ys",
    "list(ys)",
    "[i for i in ids]",
    "[i for i in ids[:2]]",
    "reversed(ys)",
    "(ids if n else ys)",
    "(ys or ids)",
    "{1: 2}.items()",
    "'a b'.split()",
    "map(str, ids)",
    "map(str, ids[:2])",
    "filter(None, ys)",
    "ids + ys",
    "ys + ys",
    "dict.fromkeys(ids)",
]
CHANGES = [
    "ys.append(1)",
    "ys.extend(ids)",
    "ys += ids",
    "xs = ids",
    "xs = ids[:2]",
    "xs = ys",
    "xs.extend(ids)",
    "ys.pop()",
    "ys = xs",
    "add = ys.append",
    "add(3)",
    "list(map(add, ids))",
    "self.kept = ys",
    "self.kept.extend(ids)",
    "ys = ys + ids",
    "box = [ys]",
    "box[0].extend(ids)",
    "ys[0:0] = ids",
    "ys, xs = xs, ys",
    "ys = sorted(ids)[:2]",
    "fun = act",
    "both = {'a': ys}",
    "both['a'] += ids",
]
ACTS = ["self.tools.shop.end(1)", "act()", "act(2)", "twice()", "said = self.tools.shop.end(n)", "fun()"]
HEAD = """\
def m(self, ids, n):
    said, xs, ys, fun = self.tools.shop.list(), ids[:2], [1], len
    fun = str
    box, both, add = [ys], {}, [].append
    def act(k=0):
        return self.tools.shop.end(k)
    def twice():
        return [act(1) for _ in (1, 2)]
"""


WALKED = st.one_of(st.sampled_from(["ys", "xs"]), st.sampled_from(ITERABLES))


@st.composite
def body(draw: st.DrawFn, depth: int = DEPTH) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["act", "act", "change", "change", "for", "for", "while", "comprehension", "if", "map"]))
        if kind == "act":
            lines.append(draw(st.sampled_from(ACTS)))
        elif kind == "change":
            lines.append(draw(st.sampled_from(CHANGES)))
        elif kind == "comprehension":
            lines.append(f"[{draw(st.sampled_from(['act()', 'self.tools.shop.end(i)', 'i']))} for i in {draw(WALKED)}]")
        elif kind == "map":
            lines.append(f"list(map({draw(st.sampled_from(['act', 'lambda i: act(i)', 'str']))}, {draw(WALKED)}))")
        elif depth:
            heads = {"for": f"for i in {draw(WALKED)}:", "while": "while n > 0:", "if": "if n:"}
            lines.append(heads[kind])
            lines += ["    " + line for line in (["n -= 1"] if kind == "while" else []) + draw(body(depth=depth - 1))]
    return lines or ["act()"]


def run(source: str) -> Receiver:
    namespace: dict[str, Any] = {}
    exec(compile(source, "<generated>", "exec"), namespace)
    receiver, before = Receiver(), sys.gettrace()
    sys.settrace(bounded(LINES))
    try:
        namespace["m"](receiver, list(range(LONG)), LONG)
    except Exception:
        return receiver  # what was done is done
    finally:
        sys.settrace(before)
    return receiver


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(body())
def test_what_is_accepted_acts_as_often_as_its_literals_say(lines: list[str]) -> None:
    source = HEAD + "".join(f"    {line}\n" for line in lines)
    findings = GUARDIAN.audit(source, "m", "default+tools", tools=TOOLS).errors
    if any(finding.rule == "tool-loop" for finding in findings):
        return
    calls = sum(line.count(f"{name}(") for line in lines for name in ("end", "act", "twice", "fun")) + source.count("map(act")
    assert run(source).tools.shop.ended <= calls * 2 * LITERAL ** (DEPTH + 1), source


TEXTS = [
    "said['name']",
    "'/'.join([said['name']])",
    "f'a/{said}'",
    "'%s.md' % said['name']",
    "'{}'.format(said['name'])",
    "str(said)",
    "said['left'][0]",
    "x",
    "y",
    "said['name'].upper()",
    "'a' + said['name']",
    "name(said)",
    "[t for t in said['left']][0]",
    "box[0]",
    "self.other_(said['name'])",
    "'plain'",
    "self.kept[0]",
    "max(said['left'])",
    "(x or said['name'])",
    "(x if n else y)",
    "given['k']",
    "repr(said)[:30]",
    "chain(said['left'])",
    "int(len(said['name']))",
    "dict(k=said['name'])['k']",
    "json.loads(json.dumps(said))['name']",
    "next(iter(said['left']))",
]
STEPS = [
    "x = {}",
    "y = {}",
    "box.append({})",
    "given['k'] = {}",
    "self.kept = [{}]",
    "x += str({})",
    "for t in [{}]:\n        x = t",
    "x, y = {}, x",
    "if n:\n        y = {}",
    "box = [{}]",
    "given = dict(given, k={})",
    "self.tools.notes.write({}, 'x')",
    "self.tools.notes.write(path={}, text=x)",
    "self.tools.notes.write('a', {})",
    "box[0] = {}",
    "box += [{}]",
]
HEAD_OF_PLACES = """\
def m(self, ids, n):
    import json
    said, x, y, box, given = self.tools.shop.list(), 'x', 'y', ['b'], {'k': 'k'}
    def name(page):
        return page['name']
    def chain(parts):
        return ''.join(parts[:2])
"""


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(TEXTS)), min_size=1, max_size=6))
def test_what_is_accepted_hands_no_text_of_one_connection_to_another_as_a_path(steps: list[tuple[str, str]]) -> None:
    source = HEAD_OF_PLACES + "".join(f"    {step.replace('{}', text)}\n" for step, text in steps)
    if any(finding.rule == "tool-place" for finding in GUARDIAN.audit(source, "m", "default+tools", tools=TOOLS).errors):
        return
    assert not any(MARK in path for path in run(source).tools.notes.paths), source
