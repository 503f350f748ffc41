"""What an audit costs, on the methods of the corpus that are to be accepted and on all of it. Prints one JSON line.

python bench/guardian.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from batos.guardian import PersistenceGuardian, repair

CORPUS = Path(__file__).parents[1] / "tests" / "data" / "methods.jsonl"
ROUNDS = 15


def guardian() -> dict[str, float]:
    """Milliseconds: the best of several audits for each method, then the median (and worst) over methods."""
    cases = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]
    auditor = PersistenceGuardian()
    best = {case["id"]: float("inf") for case in cases}
    plain = dict.fromkeys(best, float("inf"))
    mending = dict.fromkeys(best, float("inf"))
    for _ in range(ROUNDS):
        for case in cases:
            source, selector, name = case["source"], case["selector"], case["id"]
            best[name] = min(best[name], _milliseconds(auditor.audit, source, selector))
            plain[name] = min(plain[name], _milliseconds(_compile, source))
            mending[name] = min(mending[name], _milliseconds(repair, source, selector))
    benign = [best[case["id"]] for case in cases if case["expect"] == "accept"]
    return {
        "methods": len(cases),
        "audit_benign_median_ms": round(statistics.median(benign), 3),
        "audit_benign_worst_ms": round(max(benign), 3),
        "audit_median_ms": round(statistics.median(best.values()), 3),
        "audit_worst_ms": round(max(best.values()), 3),
        "compile_only_median_ms": round(statistics.median(plain.values()), 3),
        "repair_median_ms": round(statistics.median(mending.values()), 3),
    }


def _compile(source: str) -> None:
    try:
        compile(source, "<method>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


def _milliseconds(work: Callable[..., object], *arguments: str) -> float:
    began = time.perf_counter()
    work(*arguments)
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    print(json.dumps(guardian()))
