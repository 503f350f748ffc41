"""Write the image of an earlier version that tests open: tests/data/image-0.1.0.tar.gz.

It runs in the source tree of that version, with the environment of now:

    git worktree add /tmp/old 7364f75
    PYTHONPATH=/tmp/old .venv/bin/python tools/old_image.py tests/data/image-0.1.0.tar.gz

What is in it: missions that are complete, rated, failed, and one that a kill left between two inferences; messages to generated methods,
one with two versions; documents that a mission remembered, that were read from a file, and that are archived; a change that the loop
made of itself and one that was refused. tests/unit/test_old_image.py says what is asked of each.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.autotelic import changes
from batos.bridge.inference import ChatReply, ChatRequest
from batos.image import ledger, taught_examples
from batos.objects import Intent
from tests.unit.memory_support import QUICK, CountsWords
from tests.unit.mind_support import FakeInference, answer, mind, submit
from tests.unit.test_archiving import put_away
from tests.unit.test_changes import Proposal
from tests.unit.test_undo_memory import Held

FOLDER = Path("/tmp/image-0.1.0")  # part of the names of the documents that are read from files
UNFINISHED = "I feel stuck before the concert"
METHODS = {
    "add_": "def add_(self, number, number2):\n    return number + number2\n",
    "count_": "def count_(self, number):\n    self.total = self.total + number\n    self._p_changed = True\n    return self.total\n",
    "greet_": "def greet_(self, text):\n    return 'Hello ' + text\n",
}
NOTES = {
    "harbour.md": "# Harbour\n\nThe ferry to Malta leaves at dawn from the old pier. See Garden for the lettuce.\n",
    "garden.md": "# Garden\n\nThe tomatoes stand on the balcony and want water every day.\n",
}
FACET = "Think of what would surprise the one who asks."


class Inference(FakeInference):
    """Writes the methods that are asked for; of the unfinished mission it answers the first request, and never the second."""

    def __init__(self) -> None:
        super().__init__()
        self.embedder = CountsWords()._vector
        self.say = self._said
        self.stands = asyncio.Event()

    def _said(self, request: ChatRequest) -> str:
        if request.system.startswith("You write one method"):
            return next(source for name, source in METHODS.items() if f"Write: def {name}(" in request.user)
        return answer(request)

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Callable[[str], None] | None = None) -> ChatReply:
        if self.asked_about(UNFINISHED) and UNFINISHED in request.user:
            self.stands.set()
            await asyncio.Event().wait()
        return await super().chat(request, deadline_s=deadline_s, on_text=on_text)


async def made() -> None:
    """Make the image."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    data = FOLDER / "data"
    (FOLDER / "notes").mkdir(parents=True)
    for name, text in NOTES.items():
        (FOLDER / "notes" / name).write_text(text)
    inference = Inference()
    async with mind(data, inference, **QUICK) as kernel:
        held = Held(kernel)
        await _missions(kernel, held)
        await _documents(held)
        await _changes(kernel)
        await kernel.image.system(ledger.rate, "plan", 1, "as I like it")
        await held.embedded()
        await submit(kernel, "unfinished", UNFINISHED, persona="alfred")
        await asyncio.wait_for(inference.stands.wait(), 60)


def packed(path: Path) -> None:
    """Pack the folder of the daemon that made the image."""
    data = FOLDER / "data"
    with tarfile.open(path, "w:gz", compresslevel=9) as archive:
        for one in sorted(data.iterdir()):
            if one.suffix not in (".lock", ".tmp", ".index", ".log"):
                archive.add(one, one.name, filter=_anonymous)
    print(f"{path}: {path.stat().st_size} bytes")


async def _missions(kernel: Kernel, held: Held) -> None:
    for id, brief, persona in (("plan", "Plan the day", "robin"), ("walk", "Where shall I walk?", "babs")):
        assert (await (await submit(kernel, id, brief, persona=persona)).end())["state"] == "COMPLETE"

    def thing(root: Any) -> None:
        root["lobby"].thing = root["lobby"].genesis.derive(name="thing", comment="I am a thing for tests.", total=0)

    await kernel.image.system(thing)
    await held.sent("adds", "thing", "add_", 2, 3)
    await held.sent("counts", "thing", "count_", 5)
    await held.sent("greets", "thing", "greet_", "Ada")
    METHODS["greet_"] = METHODS["greet_"].replace("Hello", "Good day,")
    told = [{"args": ["Ada"], "result": "Good day, Ada"}]
    oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
    await kernel.image.system(taught_examples.teach, oid, "greet_", told, "a greeting", 16)
    await held.sent("learns", "thing", "learn_", "greet_")
    message = json.dumps({"target": "nobody", "selector": "add_", "args": [], "kwargs": {}})
    assert (await (await submit(kernel, "fails", "send nobody add_", message=message)).end())["state"] == "FAILED"


async def _documents(held: Held) -> None:
    await held.sent("remembers", "memory", "remember_", "The key is under the third stone of the garden wall.", "Keys")
    await held.sent("forgotten", "memory", "remember_", "The dentist is on Tuesday at nine.", "Dentist")
    assert (await held.read(*(FOLDER / "notes" / name for name in NOTES)))["refused"] == []
    await held.embedded()
    await put_away(held, FOLDER / "notes" / "garden.md", text="Balconies and their plants.")
    await held.undo("forgotten")


async def _changes(kernel: Kernel) -> None:
    proposal = Proposal(content=FACET, why="one facet spoke 9 of 10 times")
    number = await kernel.image.system(changes.propose, proposal, {"share": 0.9}, "")
    async with kernel.image.unit() as unit:
        unit.root["lobby"].robin._slots["surprise_facet_"] = Intent(FACET)
        changes.promote(unit.root, number, {"failures": [0, 0]})
        unit.note(changes.name_of(number), f"{changes.NOTE} facet of robin")
    await kernel.image.system(changes.keep, number, "nothing got worse", {"samples": 9})
    number = await kernel.image.system(changes.propose, proposal._replace(content="Think of nothing but the sea."), {}, "")
    await kernel.image.system(changes.refuse, number, "two of five missions failed", {"failures": [0, 2]})


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    asyncio.run(made())
    packed(Path(sys.argv[1]))
