"""Every pattern of the house is linear: no text makes one take time that grows faster than the text.

All of them are collected, those of modules and those written where they are used. Each is fed runs of what it names, after what it
begins with, and must not be more than linear where it is used: `match` at one place, anything else at every place. A run of 4,000
characters costs a linear pattern a millisecond at most; one that takes longer is measured again, by the ratio of two sizes.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

import batos
from batos.bridge.model_output import strip_fences, without_thought
from batos.errors import Unreadable
from batos.memory import readers
from batos.memory.chunking import ChunkLimits, pieces
from batos.memory.question import parse_question
from batos.memory.tokenizer import subject_of, words
from batos.mind import answer_checks, router
from batos.mind.codex import load_codex

SIZES = (60, 1000, 4000)
QUICK_S = 0.006  # of processor time at the largest size: a fifth of what a quadratic pattern takes there
STOP_S = 0.5  # at which a try is stopped: cubic, or worse
RATIO = 9.0  # of the times at four times the size: linear is 4, quadratic 16
ALPHABET = " \t\na0_x"
MOST = 12  # characters of a pattern that runs are made of, and pairs of
EXEMPT = {
    "batos.training": "reads what this repository holds, and what it makes itself",
    "batos.synthesis.families": "reads files of this package",
    "batos.synthesis.word_costs": "reads a file of this package",
    "batos.synthesis.idiom_costs._STRING": "reads the idioms",
}
AT_ONE_PLACE = {"match", "fullmatch"}


class Used(NamedTuple):
    """A pattern, where it stands, and whether it is looked for at every place of a text."""

    place: str
    pattern: re.Pattern[Any]
    everywhere: bool


class Stopped(Exception):
    """A try took far too long."""


# --- collecting


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(batos.__path__, "batos."):
        if found.name.endswith("__main__") or ".training." in found.name:
            continue
        yield importlib.import_module(found.name)


def compiled_in(value: Any, deep: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif deep and isinstance(value, dict):
        for one in value.values():
            yield from compiled_in(one, deep - 1)
    elif deep and isinstance(value, (tuple, list, set, frozenset)):
        for one in value:
            yield from compiled_in(one, deep - 1)


def text_of(node: ast.expr) -> str | None:
    """A literal pattern; what is put into it counts as the letter x."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)  # type: ignore[misc]
    return None


def flags_of(call: ast.Call) -> int:
    named = " ".join(ast.unparse(one) for one in (*call.args[1:], *(word.value for word in call.keywords)))
    return sum(getattr(re, flag) for flag in ("DOTALL", "MULTILINE", "IGNORECASE", "ASCII") if f"re.{flag}" in named)


def collected() -> Iterator[Used]:
    for module in modules():
        source = Path(module.__file__).read_text("utf-8")
        for name, value in vars(module).items():
            for pattern in compiled_in(value):
                uses = set(re.findall(rf"\b{name}\.(\w+)\b", source))
                alone = bool(uses) and uses <= AT_ONE_PLACE and not re.search(rf"[(,] *{name}\b(?!\.)", source)
                yield Used(f"{module.__name__}.{name}", pattern, not alone)
        for call in calls(ast.parse(source)):
            text = text_of(call.args[0])
            if text is not None:
                name = call.func.attr  # type: ignore[attr-defined]
                yield Used(f"{module.__name__}:{call.lineno}", re.compile(text, flags_of(call)), name not in AT_ONE_PLACE)


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Where a pattern is used as it is written; what a module compiles is known by its name."""
    for statement in tree.body:
        within = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        for node in ast.walk(statement):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            used = node.func.attr
            if ast.unparse(node.func.value) == "re" and hasattr(re, used) and (within or used != "compile"):
                yield node


# --- texts that may hurt


def samples(parsed: Any, most: int = 6) -> list[str]:
    """Some shortest texts that parts of a pattern match: what stands before a repeat matters."""
    found = [""]
    for op, value in parsed:
        options: list[str]
        if op is sre.LITERAL:
            options = [chr(value)]
        elif op in (sre.IN, sre.NOT_LITERAL, sre.ANY):
            options = [next(chars([(op, value)]), "a")]
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, _, body = value
            options = [one * max(least, 0) for one in samples(body, 2)] + samples(body, 2)
        elif op is sre.SUBPATTERN:
            options = samples(value[3], most)
        elif op is sre.ATOMIC_GROUP:
            options = samples(value, most)
        elif op is sre.BRANCH:
            options = [one for branch in value[1] for one in samples(branch, 1)]
        else:
            options = [""]
        found = list(dict.fromkeys(before + after for before in found for after in options))[:most]
    return found


CATEGORIES = {
    sre.CATEGORY_DIGIT: "0", sre.CATEGORY_NOT_DIGIT: "a", sre.CATEGORY_SPACE: " \n\t", sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_WORD: "a0_", sre.CATEGORY_NOT_WORD: " ",
}  # fmt: skip


def chars(parsed: Iterable[Any]) -> Iterator[str]:
    """Characters that a pattern names, or one of each kind that it names."""
    for op, value in parsed:
        if op is sre.LITERAL:
            yield chr(value)
        elif op is sre.NOT_LITERAL:
            yield "b" if chr(value) == "a" else "a"
        elif op is sre.RANGE:
            yield chr(value[0])
        elif op is sre.CATEGORY:
            yield from CATEGORIES[value]
        elif op is sre.IN:
            negated = value[0][0] is sre.NEGATE
            own = list(chars(value[1:] if negated else value))
            yield from [one for one in ALPHABET if one not in own][:2] if negated else own
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            yield from chars(value[2])
        elif op is sre.SUBPATTERN:
            yield from chars(value[3])
        elif op is sre.ATOMIC_GROUP:
            yield from chars(value)
        elif op is sre.BRANCH:
            for branch in value[1]:
                yield from chars(branch)
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            yield from chars(value[1])


def attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """What stands before a run, what the run is of, what stands after it."""
    parsed = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    starts = samples(parsed)
    named = list(dict.fromkeys(itertools.chain(chars(parsed), ALPHABET)))
    named = [*named[: MOST * 2], *(one for one in ALPHABET if one not in named[: MOST * 2])]
    befores = list(dict.fromkeys(["", *(start[:at] for start in starts for at in range(1, min(len(start), 8) + 1))]))[:24]
    for before in befores:
        for one in named:
            yield before, one, "\x00" if one == "x" else "x"
    for one, other in itertools.permutations(named[:MOST], 2):
        for before in ("", *starts[:1]):
            yield before, one + other, "\x00"
    for start in starts:
        if start:
            for after in ("", "\x00", " ", "\n"):
                yield "", start, after


# --- measuring


def cost(used: Used, text: Any) -> float:
    """Processor seconds of using the pattern on a text.

    :raises Stopped: past `STOP_S`.
    """
    if isinstance(used.pattern.pattern, bytes):
        text = text.encode()
    signal.setitimer(signal.ITIMER_PROF, STOP_S)
    begun = time.thread_time()
    try:
        if used.everywhere:
            for _ in used.pattern.finditer(text):
                pass
        else:
            used.pattern.match(text)
            used.pattern.fullmatch(text)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.thread_time() - begun


def run_of(before: str, of: str, after: str, size: int) -> str:
    return before + of * (size // len(of)) + after


def grows(used: Used, attack: tuple[str, str, str]) -> bool:
    """Whether the pattern takes more than linear time for runs of this kind."""
    try:
        took = 0.0
        for size, quick in zip(SIZES, (0.0, QUICK_S / 8, QUICK_S), strict=True):  # most are known at the size in the middle
            before, took = took, cost(used, run_of(*attack, size))
            if took < quick or (size == SIZES[-1] and took <= RATIO * before):
                return False
            if took > 10 * QUICK_S:
                break
        small = min(cost(used, run_of(*attack, size // 4)) for _ in range(3))
        large = min(cost(used, run_of(*attack, size)) for _ in range(3))
        return large > RATIO * max(small, 1e-5) and large > QUICK_S
    except Stopped:
        return True


@pytest.fixture(autouse=True)
def _stopped_when_it_takes_too_long() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGPROF, stop)
    yield
    signal.signal(signal.SIGPROF, before)


def test_what_backtracks_is_seen() -> None:
    """Those that were here once, and froze the daemon."""
    for text, everywhere in (
        (r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$", False),
        (r"[*_`]+|!?\[([^\]]*)\]\([^)]*\)", True),
        (r"[ \t]*\n[ \t]*", True),
        (r"(?<=[.!?])\s+|\s*\n\s*", True),
        (r"^(a+)+$", True),
    ):
        used = Used("", re.compile(text), everywhere)
        assert any(grows(used, attack) for attack in attacks(used.pattern)), text


def test_every_pattern_is_linear() -> None:
    found: dict[tuple[str, bool], Used] = {}
    for used in collected():
        if not used.place.startswith(tuple(EXEMPT)):
            found.setdefault((f"{used.pattern.pattern!r}{used.pattern.flags}", used.everywhere), used)
    assert len(found) > 150
    bad = []
    for used in found.values():
        first = next((attack for attack in attacks(used.pattern) if grows(used, attack)), None)
        if first is not None:
            bad.append(f"{used.place} ({'anywhere' if used.everywhere else 'at one place'}) for {first!r}: {used.pattern.pattern!r}")
    assert not bad, "\n".join(bad)


def test_so_are_the_triggers_of_the_personas() -> None:
    patterns = [re.compile(one.pattern, re.IGNORECASE) for persona in load_codex().personas.values() for one in persona.triggers]
    assert len(patterns) > 20
    bad = [pattern.pattern for pattern in patterns if any(grows(Used("", pattern, True), attack) for attack in attacks(pattern))]
    assert not bad


# --- what texts go through whole, loops included


def _read(name: str) -> Callable[[str], object]:
    def reading(text: str) -> object:
        try:
            return readers.read(name, text.encode())
        except Unreadable:
            return None

    return reading


def _shelved(text: str) -> object:
    return [pieces(text, kind, ChunkLimits()) for kind in ("text", "markdown", "code")]


WHOLE_STOP_S = 20.0
WHOLE: dict[str, Callable[[str], object]] = {
    **{f"reading {name}": _read(name) for name in ("a.md", "a.txt", "a.html", "a.py", "a.csv", "a.ics", "a.eml", "a.rtf", "a.opml")},
    "cutting": _shelved,
    "words": words,
    "a subject": subject_of,
    "a question": lambda text: parse_question(text, today=date(2026, 1, 1)),
    "fractal.shares": lambda text: router.shares(text, lambda sentence: {}, 3),
    "the gate": lambda text: answer_checks.fault_of(text, text[:1000]),
    "a thought": without_thought,
    "an answer of a schema": strip_fences,
}
PARTS = (
    " ", "\t", "\n", "\r\n", "a", "0", "_", ".", ",", "- ", "# ", "#", "*", "`", "~", "[", "]", "(", ")", "{", "}", "<", ">", "|", "=", "-",
    ":", ";", "'", '"', "\\", "/", "&", "&amp;", "!", "?",
    "。", "，", "字", "\u0301", "\u200b", "\xad", "🎸", "a: b\n", "12.06.23, 14:00 - A: b\n",
    "```\n", "---\n", "<b>", "</b>", "<p>", "<li>", "<td>", "<!--", "<a", "a b", ". ", " .", "\n ", " \n", "# a\n", "> ", "1. ",
    "\n\n", "\"\n", "=\n",
)  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_what_texts_go_through_is_linear(name: str) -> None:
    def took(text: str) -> float:
        signal.setitimer(signal.ITIMER_PROF, WHOLE_STOP_S)
        begun = time.thread_time()
        try:
            WHOLE[name](text)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return time.thread_time() - begun

    bad = []
    for part in PARTS:
        for before, after in (("", ""), ("# a", "x\n"), ("<p>a", "b</p>")):
            small, large = (f"{before}{part * (size // len(part))}{after}" for size in (4000, 32_000))
            try:
                if took(large) > 0.25 and min(took(large) for _ in range(2)) > 24 * max(min(took(small) for _ in range(2)), 1e-3):
                    bad.append((before, part, after))
            except Stopped:
                bad.append((before, part, after))
    assert not bad
