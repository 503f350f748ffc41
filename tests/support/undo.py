"""What tests of undo share: an image with a memory, missions that are done by functions of the root, and their undo."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.app.undo import UndoRunner
from batos.autotelic import changes, schema
from batos.config import Settings
from batos.image import LivingImage, ledger
from batos.memory import objects
from batos.memory.chunking import ChunkLimits
from batos.memory.records import Numbers
from batos.memory.section_builder import KnownNames, Shelver
from batos.memory.store import epoch_of, library_of
from batos.mind import memory_primitives
from batos.objects import Intent, UvmObject
from batos.wire.admin_schemas import UndoRequest
from tests.support.autonomy import EVIDENCE, Proposal
from tests.support.memory import QUICK, CountsWords, Memory
from tests.support.missions import FakeInference, Listened, mind


class FakeMemory:
    """What an undo needs of a `MemoryRuntime`; what searches would see is a list."""

    def __init__(self, image: LivingImage) -> None:
        self.shelver = Shelver(Numbers(image.read(epoch_of)), ChunkLimits(), KnownNames())
        self.seen: list[Any] = []

    def moved(self, moved: Iterable[Any]) -> None:
        self.seen.extend(moved)


class House:
    """An open image, and an `UndoRunner` of it."""

    def __init__(self, image: LivingImage, **settings: Any) -> None:
        self.image = image
        self.memory = FakeMemory(image)
        self.undoing = UndoRunner(image, self.memory, Settings(**settings))  # type: ignore[arg-type]

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


FACET = Intent("Think of what would surprise.")


async def made(at: House, work: Callable[[Any], object], content: str = "x") -> int:
    """A change that was proposed, and is promoted by doing `work` to the image."""
    number = await at.image.system(changes.propose, Proposal(content=content), EVIDENCE, "")
    async with at.image.unit() as unit:
        work(unit.root)
        changes.promote(unit.root, number, {"failures": [0, 0]})
        unit.note(changes.name_of(number), f"{changes.NOTE} facet of robin")
    return int(number)


def facet(root: Any) -> None:
    root["lobby"].robin._slots["surprise_facet_"] = FACET


NOTE = "The key is under the third stone of the garden wall."
LONG = "\n\n".join(f"Paragraph {n} speaks of boats and of harbours and of the tide at number {n}." * 3 for n in range(8))


class Held(Memory):
    """A daemon's memory, and its missions."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel.image, kernel.memory, CountsWords())
        self.kernel = kernel

    async def sent(self, id: str, target: str, selector: str, *args: Any) -> dict[str, Any]:
        heard, message = Listened(self.kernel, id), {"target": target, "selector": selector, "args": args, "kwargs": {}}
        await self.kernel.scheduler.submit(id, f"{target} {selector}", {"message": json.dumps(message)})
        result = await heard.end()
        assert result["state"] == "COMPLETE", result
        return result

    async def forget(self, id: str, source: str) -> None:
        """A mission that forgets a document, as `forget_` does."""
        await self.embedded()  # whose commits would be conflicts, which are no matter of this
        await self.image.system(ledger.accept, id, "forget", {}, True, mission=id)
        async with self.image.unit() as unit:
            library = library_of(unit.root)
            dropped = library.forget(library.document(source))
            ledger.complete(ledger.mission_of(unit.root, id), {"text": ""}, None)
            unit.note(id, "COMPLETE by ROBIN")
        self.recollection.stored(None, dropped)

    async def undo(self, id: str, **how: Any) -> dict[str, Any]:
        return await self.kernel.undoing.undo(UndoRequest(op="undo", id=id, **how))


@contextlib.asynccontextmanager
async def held(folder: Path, **settings: Any) -> AsyncIterator[Held]:
    inference = FakeInference()
    inference.embedder = CountsWords().vector
    async with mind(folder / "data", inference, **{"remember": "off", **QUICK, **settings}) as kernel:
        yield Held(kernel)
