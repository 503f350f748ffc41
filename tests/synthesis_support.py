"""Contexts of a program search for tests: candidates run in this process, since the sandbox has tests of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from batos.synthesis.batch_runner import BatchRunner, Run
from batos.synthesis.specification import SearchBudget, SearchContext, Specification

LIMIT = 8192
"""Bytes of the source of one method."""


def here() -> Run:
    """Return a runner of single methods, in this process."""

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
    parts: int = 60_000,
) -> SearchContext:
    """Return the context of a search for what a specification asks."""
    return SearchContext(spec, runner(run, spec.helpers), audit, SearchBudget(edits, adaptations, parts))
