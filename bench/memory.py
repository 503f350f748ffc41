"""What memory costs and finds, part by part, beside its aims and beside peers measured in the same run. Prints a table, then one JSON line.

    python bench/memory.py --dir /dev/shm
    python bench/memory.py --only text,add --chunks 10000 --json

Each part is a module of bench/memory_parts: `measure(bench) -> figures`, `AIMS` (figure -> ("<=" or ">=", aim)), and `arguments(parser)` if
it takes arguments of its own; one whose data is not given says so in `lacks(args)` and is left out. Floors are figures named after the peer
(`zope_…`, `fts5_…`): what somebody gets who takes what is there.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from batos import logs

PARTS = ("text", "search", "add", "follow", "start", "size", "library", "locomo", "choi", "bridging", "ingest")


@dataclass
class Bench:
    """What a part gets: a folder of its own, which is removed afterwards, the arguments, and where to say how far it is."""

    folder: pathlib.Path
    args: argparse.Namespace
    say: Callable[[str], None]


def main() -> None:
    parts = {name: part for name in PARTS if (part := _part(name))}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the images")
    parser.add_argument("--only", default=",".join(parts), help=f"parts to run: {', '.join(parts)}")
    parser.add_argument("--chunks", type=int, default=100_000, help="how many chunks the large images hold")
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    for part in parts.values():
        getattr(part, "arguments", lambda parser: None)(parser)
    args = parser.parse_args()
    logs.configure("error", "json")
    say = (lambda words: None) if args.json else lambda words: print(words, flush=True)
    line: dict[str, Any] = {"bench": "memory", "chunks": args.chunks}
    for name in args.only.split(","):
        if name not in parts:
            parser.error(f"there is no part {name!r}: {', '.join(parts)}")
        lack = getattr(parts[name], "lacks", lambda args: "")(args)
        if lack:
            say(f"{name}: left out, {lack}")
            continue
        figures = _run(parts[name], args, say)
        aims = parts[name].AIMS
        for figure, value in figures.items():
            say(f"{name:9} {figure:44} {value!s:>12}  {_judged(value, aims.get(figure))}")
        line.update(figures)
        missed = [figure for figure, value in figures.items() if _judged(value, aims.get(figure)).endswith("missed")]
        line["missed"] = [*line.get("missed", []), *missed]
    print(json.dumps(line))


def _part(name: str) -> ModuleType | None:
    """The module of a part, if it is there: a part can be taken away with its file."""
    path = pathlib.Path(__file__).parent / "memory_parts" / f"{name}.py"
    return importlib.import_module(f"bench.memory_parts.{name}") if path.exists() else None


def _run(part: ModuleType, args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    pathlib.Path(args.dir).mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    try:
        found = part.measure(Bench(folder, args, say))
        figures: dict[str, Any] = asyncio.run(found) if inspect.iscoroutine(found) else found
        return figures
    finally:
        shutil.rmtree(folder)


def _judged(value: Any, aim: tuple[str, float] | None) -> str:
    if aim is None:
        return ""
    sign, bound = aim
    met = value <= bound if sign == "<=" else value >= bound
    return f"{sign} {bound} {'met' if met else 'missed'}"


if __name__ == "__main__":
    main()
