"""What tests of undo share: an image with a memory, missions that are done by functions of the root, and their undo."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from batos.app.undo import Undoing
from batos.autotelic import schema
from batos.config import Settings
from batos.image import LivingImage, ledger
from batos.memory import objects
from batos.memory.chunking import ChunkLimits
from batos.memory.records import Numbers
from batos.memory.section_builder import KnownNames, Shelver
from batos.memory.store import epoch_of
from batos.mind import memory_primitives
from batos.objects import UvmObject
from batos.wire.admin_schemas import UndoRequest


class FakeMemory:
    """What an undo needs of a `Recollection`; what searches would see is a list."""

    def __init__(self, image: LivingImage) -> None:
        self.shelver = Shelver(Numbers(image.read(epoch_of)), ChunkLimits(), KnownNames())
        self.seen: list[Any] = []

    def moved(self, moved: Iterable[Any]) -> None:
        self.seen.extend(moved)


class House:
    """An open image, and an `Undoing` of it."""

    def __init__(self, image: LivingImage, **settings: Any) -> None:
        self.image = image
        self.memory = FakeMemory(image)
        self.undoing = Undoing(image, self.memory, Settings(**settings))  # type: ignore[arg-type]

    async def did(self, id: str, work: Callable[[Any], object]) -> None:
        """A mission that does `work` to the image, as an attempt commits it."""
        await self.image.system(ledger.accept, id, f"brief of {id}", {}, True, mission=id)
        async with self.image.unit() as unit:
            work(unit.root)
            ledger.complete(ledger.mission_of(unit.root, id), {"text": id}, None)
            unit.note(id, "COMPLETE by ROBIN")
        await self.image.system(ledger.settle, id)

    async def sets(self, id: str, name: str = "robin", **slots: Any) -> None:
        """A mission that sets slots of an object of the lobby; None takes one away."""

        def work(root: Any) -> None:
            held = root["lobby"]._slots[name]._slots
            for slot, value in slots.items():
                if value is None:
                    del held[slot]
                else:
                    held[slot] = value

        await self.did(id, work)

    async def undo(self, id: str, **how: Any) -> dict[str, Any]:
        return await self.undoing.undo(UndoRequest(op="undo", id=id, **how))

    def slots(self, name: str = "robin") -> dict[str, Any]:
        """The slots of an object of the lobby that tests set, plain."""

        def read(root: Any) -> dict[str, Any]:
            return {name: value for name, value in root["lobby"]._slots[name]._slots.items() if name not in ("parent*", "name")}

        return self.image.read(lambda root: dict(read(root)))  # type: ignore[no-any-return]


def step(lobby: UvmObject) -> None:
    """Three objects to change."""
    for name in ("robin", "brick", "babs"):
        if name not in lobby._slots:
            lobby._slots[name] = lobby.genesis.derive(name=name)


@contextlib.asynccontextmanager
async def house(folder: Path, uri: str = "", **settings: Any) -> AsyncIterator[House]:
    image = await LivingImage.open(
        uri or f"file://{folder / 'i.fs'}", steps=(step, objects.install, memory_primitives.install_memory, schema.install)
    )
    try:
        yield House(image, **settings)
    finally:
        await image.close()
