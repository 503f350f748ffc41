"""Requests for the search of candidates, and the candidates that it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from batos.forge.candidate_search import specification_of
from batos.objects import Example, UvmObject
from batos.synthesis import composer
from batos.synthesis.batch_runner import BatchRunner, Run
from batos.synthesis.handbook import HandbookEntry, words_in
from batos.synthesis.specification import SearchBudget, SearchContext, Specification

LIMIT = 8192
"""Bytes of the source of one method."""
WIDE = 60_000
"""Values that a search computes where a test shows that it does not make something: three times as many as else."""
ROWS = [
    {"name": "Ann", "city": "Rome", "age": 41, "member": True},
    {"name": "Bob", "city": "Bern", "age": 17, "member": True},
    {"name": "Abe", "city": "Rome", "age": 23, "member": False},
]


def here() -> Run:
    """Runs methods of these tests in this process: the sandbox has tests of its own."""

    async def run(source: str, given: list[Any]) -> Any:
        scope: dict[str, Any] = {}
        exec(source, scope)
        return scope["side_by_side_"](None, given)

    return run


def runner(run: Run | None = None, helpers: Mapping[str, str] | None = None) -> BatchRunner:
    """Return a runner of many methods; in this process, if nothing else is said."""
    return BatchRunner(run or here(), source_bytes=LIMIT, helpers=helpers or {})


def context(
    spec: Specification,
    *,
    audit: Callable[[str], bool] = lambda source: True,
    run: Run | None = None,
    edits: int = 600,
    adaptations: int = 99,
    parts: int = 20_000,
) -> SearchContext:
    """Return the context of a search for what a specification asks."""
    return SearchContext(spec, runner(run, spec.helpers), audit, SearchBudget(edits, adaptations, parts))


def entry(purpose: str, source: str) -> HandbookEntry:
    name, _, inside = source.removeprefix("def ").partition("(self")
    parameters = tuple(one.strip().rstrip("0123456789") for one in inside.partition(")")[0].split(",")[1:])
    return HandbookEntry(purpose, source, words_in(f"{purpose} {name.replace('_', ' ')}"), parameters, "self." in source, source)


LARGEST = entry("the largest of the numbers", "def largest_(self, items):\n    return max(items)")
SHORT = entry("the text without its x and y", "def short_(self, text):\n    return ''.join(c for c in text if c not in 'xy')")


def asked(intent: str, *examples: Example, call: tuple[Any, ...] | None = None, **slots: Any) -> Specification:
    return specification_of(UvmObject(**slots), "m_", examples[0].args if call is None else call, {}, intent=intent, examples=examples)


_found: dict[str, list[tuple[float, str]]] = {}


def _anything(text: str) -> bool:
    return True


async def made(
    what: Specification, *known: HandbookEntry, most: int = 20_000, audit: Any = _anything, run: Any = None
) -> list[tuple[float, str]]:
    """Return what a search finds, with its costs. The same search is made once in a process: it takes seconds."""
    key = repr((what, known, most))
    again = audit is _anything and run is None and " at 0x" not in key
    if again and key in _found:
        return list(_found[key])
    shared = [(0.6, one) for one in known]
    found = sorted(await composer.composed(context(what, audit=audit, run=run, parts=most), shared))
    if again:
        _found[key] = found
    return list(found)


def body(source: str) -> str:
    """Return the lines of a method below its head, joined by `; `."""
    return source.split(":\n    ", 1)[1].replace("\n    ", "; ")


async def first(what: Specification, *known: HandbookEntry) -> str:
    (_, text), *_ = await made(what, *known)
    return body(text)
