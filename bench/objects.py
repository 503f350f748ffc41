"""What UvmObject costs, as ratios to a plain Persistent attribute in the same run. Prints one JSON line.

python bench/objects.py
"""

from __future__ import annotations

import gc
import json
import pathlib
import sys
import tempfile
import timeit
from typing import Any

import transaction
from persistent import Persistent

from batos.image.storage import open_database
from batos.objects import UvmObject

READ, WRITE = ";".join(["o.name"] * 10), ";".join(["o.name = 1"] * 10)
OBJECTS = 2000


class Plain(Persistent):  # type: ignore[misc]
    """What the ratios refer to."""


def nanoseconds(statements: dict[str, tuple[str, Any]]) -> dict[str, float]:
    """The best of several rounds for each; the rounds take turns, so that a busy machine is unkind to all."""
    best = dict.fromkeys(statements, float("inf"))
    gc.disable()
    for _ in range(15):
        for name, (statement, target) in statements.items():
            took = timeit.timeit(statement, globals={"o": target}, number=10_000)
            best[name] = min(best[name], took / 10_000 / 10 * 1e9)
    gc.enable()
    return best


def deep(root: Any, depth: int) -> UvmObject:
    obj = UvmObject(name="value", comment="top")
    for i in range(depth):
        obj = obj.derive(number=i, comment="between")
    root[f"deep{depth}"] = obj
    return obj


def speed(root: Any) -> dict[str, float]:
    """All objects are stored and loaded: writes are registered with the connection, as in life."""
    root["plain"], root["own"] = Plain(), UvmObject()
    for obj in (root["plain"], root["own"]):
        obj.name, obj.number, obj.comment = "value", 1, "c"
    chains = {depth: deep(root, depth) for depth in (1, 3, 10)}
    transaction.commit()
    statements: dict[str, tuple[str, Any]] = {
        "plain_read": (READ, root["plain"]),
        "own_read": (READ, root["own"]),
        **{f"read_{depth}_deep": (READ, obj) for depth, obj in chains.items()},
        "plain_write": (WRITE, root["plain"]),
        "own_write": (WRITE, root["own"]),
    }
    ns = nanoseconds(statements)
    transaction.abort()
    return {
        **{f"{name}_ns": round(value, 1) for name, value in ns.items()},
        "own_read_ratio": round(ns["own_read"] / ns["plain_read"], 2),
        "own_write_ratio": round(ns["own_write"] / ns["plain_write"], 2),
        **{f"read_{depth}_deep_ratio": round(ns[f"read_{depth}_deep"] / ns["plain_read"], 1) for depth in chains},
    }


def size(root: Any, db: Any) -> float:
    """Bytes in the file for an object of five small slots and a parent, as stored: record, headers and its share of the tree."""
    from BTrees.IOBTree import IOBTree

    root["prototype"], root["tree"] = UvmObject(), IOBTree()
    transaction.commit()
    before = int(db.getSize())
    for i in range(OBJECTS):
        root["tree"][i] = UvmObject(**{"parent*": root["prototype"], "name": f"n{i}", "number": i, "done": False, "at": 1.5, "note": None})
    transaction.commit()
    return (int(db.getSize()) - before) / OBJECTS


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        db = open_database(f"file://{pathlib.Path(folder) / 'bench.fs'}", cache_size=400, pool_size=7)
        connection = db.open()
        figures = {**speed(connection.root()), "bytes_per_object": round(size(connection.root(), db))}
        connection.close()
        db.close()
    print(json.dumps({"bench": "objects", "python": sys.version.split()[0], **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
