"""Methods on plain objects, and a sender that knows slots and nothing of a mind."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ZODB
from transaction import TransactionManager

from batos.config import Settings
from batos.errors import MessageNotUnderstood
from batos.objects import Method, Primitive, UvmObject, find
from batos.sandbox import Activity, Sandbox

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
CORPUS = Path(os.environ.get("CORPUS", Path(__file__).parents[1] / "data" / "methods.jsonl"))
COPIES = ("_clone_persistent_", "clone", "derive")


class Sends:
    """A sender: slots, copies, and host functions under their selector."""

    def __init__(self, sandbox: Sandbox, **functions: Callable[..., Any]) -> None:
        self.sandbox, self.functions = sandbox, functions
        self.activity = Activity(self, "a mission", NOW)

    async def __call__(
        self, obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], /, *, start: tuple[UvmObject, ...] = ()
    ) -> Any:
        held = next((held for place in start or (obj,) if (held := find(place, selector))), None)
        if held is None and selector in self.functions:
            answer = self.functions[selector](obj, *args, **kwargs)
            return await answer if inspect.isawaitable(answer) else answer
        if held is None and selector in COPIES:
            return getattr(obj, selector)(**kwargs)
        if held is None:
            raise MessageNotUnderstood(obj, selector)
        if isinstance(held[1], Method):
            return await self.sandbox.run(obj, held[1], args, kwargs, activity=self.activity, holder=held[0])
        if isinstance(held[1], Primitive):
            return held[1](obj, *args, **kwargs)
        return held[1]


def method(source: str) -> Method:
    return Method(source[source.index("def ") + 4 :].partition("(")[0].strip(), source)


def obj(*sources: str, **slots: Any) -> UvmObject:
    """An object with these methods and slots, stored as the image would store it."""
    made = UvmObject(**slots, **{m.selector: m for m in map(method, sources)})
    made.__getstate__()  # plain containers become persistent ones
    return made


@contextlib.contextmanager
def stored(*targets: UvmObject) -> Iterator[TransactionManager]:
    """While it lasts the objects are in an image, in a transaction that did not make them."""
    db = ZODB.DB(None)
    tm = TransactionManager(explicit=True)
    tm.begin()
    connection = db.open(tm)
    connection.root()["targets"] = targets
    tm.commit()
    tm.begin()
    try:
        yield tm
    finally:
        tm.abort()
        connection.close()
        db.close()


async def call(sends: Sends, target: UvmObject, selector: str, *args: Any, **kwargs: Any) -> Any:
    return await sends(target, selector, args, kwargs)


def plain(value: Any) -> Any:
    """A stored value as plain data, to compare it."""
    if hasattr(value, "data"):
        value = value.data
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(v) for v in value)
    return value


def slots(target: UvmObject) -> dict[str, Any]:
    return {name: plain(value) for name, value in target._slots.items() if not isinstance(value, Method)}


def settings(**more: Any) -> Settings:
    return Settings(**more)


def corpus() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


STALLED = 1.0
"""Seconds for which the loop must not be kept from running. bench/sandbox.py measures how long it is (aim: 0.1); a test on a busy
machine can only tell a stall from none."""


class Heartbeat:
    """How long the loop was kept from running by this process, at worst: `gap`, in seconds. Time for which the machine had no core
    for it does not count: that is what the process computed meanwhile, on whatever thread, or the time on the clock if less."""

    gap = 0.0

    async def __aenter__(self) -> Heartbeat:
        self._task = asyncio.ensure_future(self._beat())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.sleep(0.01)
        self._task.cancel()

    async def _beat(self) -> None:
        last = (time.perf_counter(), time.process_time())
        while True:
            await asyncio.sleep(0.002)
            now = (time.perf_counter(), time.process_time())
            self.gap = max(self.gap, min(now[0] - last[0] - 0.002, now[1] - last[1]))
            last = now
