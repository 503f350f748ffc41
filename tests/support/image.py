"""What the tests of objects and image share: a real database on a file, opened, closed and opened again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import transaction
import ZODB

from batos.image import LivingImage
from batos.objects import UvmObject


class Store:
    """A FileStorage database of a test's own. Each `open` begins with nothing loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = ZODB.DB(str(path))

    @contextlib.contextmanager
    def open(self, *, commit: bool = False) -> Iterator[Any]:
        tm = transaction.TransactionManager(explicit=True)
        connection = self.db.open(transaction_manager=tm)
        connection.cacheMinimize()  # it comes from a pool: begin with ghosts
        tm.begin()
        try:
            yield connection.root()
            if commit:
                tm.commit()
                tm.begin()
        finally:
            tm.abort()
            connection.close()

    def put(self, **objects: Any) -> None:
        with self.open(commit=True) as root:
            root.update(objects)

    def reopen(self) -> None:
        self.db.close()
        self.db = ZODB.DB(str(self.path))

    def close(self) -> None:
        self.db.close()


def is_ghost(obj: Any) -> bool:
    return obj._p_state == -1


def step(lobby: UvmObject) -> None:
    if "robin" not in lobby._slots:
        lobby.robin = lobby.genesis.derive(name="robin", comment="I am ROBIN.", tags=["a"], n=0)


async def change(image: LivingImage, mission: str, **slots: Any) -> str:
    """Set slots of ROBIN's; the transaction's id."""
    async with image.unit() as unit:
        for name, value in slots.items():
            if value is None:
                del unit.root["lobby"].robin._slots[name]
            else:
                unit.root["lobby"].robin._slots[name] = value
        unit.note(mission, f"COMPLETE by {mission}")
    return image.db.lastTransaction().hex()  # type: ignore[no-any-return]


def within(patch: pytest.MonkeyPatch, image: LivingImage, step: Callable[..., Any], first: Callable[..., object]) -> None:
    """Call `first(root, *args)` at the beginning of each read and system transaction `step(root, *args)` of an image.

    What it raises fails the transaction, as damage or a full disk would.
    """

    def preceded(root: Any, *args: Any) -> Any:
        first(root, *args)
        return step(root, *args)

    for name in ("read", "system"):
        real = getattr(image, name)

        def run(function: Callable[..., Any], *args: Any, real: Any = real, **more: Any) -> Any:
            return real(preceded if function is step else function, *args, **more)

        patch.setattr(image, name, run)
