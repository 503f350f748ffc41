"""A process whose disk is full from a given byte on: for each byte in turn it works on an image, and tells what went wrong.

    python full_disk_child.py FOLDER STEP

The system refuses to let a file grow past RLIMIT_FSIZE, in the middle of a write too; for the writer that is a full disk.
One line of JSON comes out: how many runs there were, what failed in how many, and every promise that was not kept.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import json
import logging
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from batos.errors import BatosError, ImageFailed
from batos.image import LivingImage, journal, ledger
from batos.image.journal import InferenceRecord
from batos.image.storage import open_database
from batos.objects import UvmObject

BIG, SMALL = "b" * 20_000, "s" * 300  # more, and less, than a file's buffer holds
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """No file may grow past `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, UNLIMITED)


def add_part(lobby: UvmObject) -> None:
    if "part" not in lobby._slots:
        lobby.part = UvmObject(effects=(), filling="")


class Run:
    """One life of an image on a disk that fills."""

    def __init__(self, path: Path) -> None:
        self.uri = f"file://{path}"
        self.kept: list[tuple[str, str]] = []  # what was acknowledged: the step, the mission
        self.refused: collections.Counter[str] = collections.Counter()

    async def try_(self, what: str, id: str, work: Any) -> None:
        try:
            await work
        except (OSError, BatosError, ImageFailed) as e:
            self.refused[f"{what}: {type(e).__name__}"] += 1
        else:
            self.kept.append((what, id))

    async def mission(self, image: LivingImage, id: str, filling: str) -> None:
        """A mission from its acceptance to its end, however much of it can be recorded."""
        await self.try_("accept", id, image.system(ledger.accept, id, f"brief of {id}", {}, True, mission=id))
        if ("accept", id) not in self.kept:
            return
        answer = InferenceRecord(b"k" * 16, 0, f"{id} {filling}", "m", "d", 1, 1, 0.0, 0.0, "stop", 0.0)
        await self.try_("journal", id, image.system(journal.add, id, answer, mission=id))
        await self.try_("complete", id, self.complete(image, id, filling))
        if ("complete", id) not in self.kept:
            await self.try_("fail", id, image.system(ledger.fail, id, {"code": "x", "message": id}, {}, False, mission=id))
        image.committer.defer(ledger.settle, id)

    async def complete(self, image: LivingImage, id: str, filling: str) -> None:
        async with image.unit() as unit:
            part = unit.root["lobby"].part
            part.effects = (*part.effects, id)
            part.filling = id + filling
            ledger.complete(ledger.mission_of(unit.root, id), {"text": id}, None)

    def broken(self, root: Any) -> list[str]:
        """The promises that this image does not keep."""
        missions = {m.id: ledger.describe(m) for m in ledger.newest_first(root)}
        effects, found = root["lobby"].part.effects, []
        for what, id in self.kept:
            if id not in missions:
                found.append(f"{id} is lost")
            elif what == "journal" and [e.text.split()[0] for e in journal.load(root, id)] != [id]:
                found.append(f"the inference of {id} is lost")
            elif what == "complete" and missions[id].state != ledger.COMPLETE:
                found.append(f"the end of {id} is lost")
            elif what == "fail" and len(ledger.failures_of(root, id)) != 1:
                found.append(f"the failure of {id} is lost")
        complete = [id for id, mission in missions.items() if mission.state == ledger.COMPLETE]
        if sorted(complete) != sorted(effects):
            found.append(f"complete are {complete}, effects are {effects}")
        if set(missions) - {id for what, id in self.kept if what == "accept"}:
            found.append("there is what was refused")
        return found


async def one(base: Path, folder: Path, size: int, close_full: bool) -> tuple[Run, list[str]]:
    """Fill the disk at `size` bytes; the run, and what did not hold."""
    path = folder / "i.fs"
    shutil.copy(base, path)
    run, found = Run(path), []
    image = await LivingImage.open(run.uri, steps=(add_part,), on_failed=lambda failure: None)
    with room(size):
        await run.mission(image, "m1", SMALL)
        await run.mission(image, "m2", BIG)
        await run.mission(image, "m3", SMALL)
        with contextlib.suppress(ImageFailed):
            found += [f"while full: {text}" for text in image.read(run.broken)]
        if close_full:
            await image.close()
    if not close_full:
        await run.mission(image, "m4", SMALL)
        if ("complete", "m4") not in run.kept:
            found.append(f"with room again it does not go on: {run.refused}")
        found += [f"with room again: {text}" for text in image.read(run.broken)]
        shutil.copy(path, folder / "killed.fs")
        found += [f"killed after it: {text}" for text in opened(folder / "killed.fs", run)]
        await image.close()
    found += [f"at the next start: {text}" for text in opened(path, run)]
    for left in folder.iterdir():
        left.unlink()
    return run, found


def opened(path: Path, run: Run) -> list[str]:
    try:
        db = open_database(f"file://{path}", cache_size=400, pool_size=7)
    except BatosError as e:
        return [str(e)]
    try:
        with db.transaction() as connection:
            return run.broken(connection.root())
    finally:
        db.close()


async def first_start(folder: Path, size: int) -> list[str]:
    """The disk is full while the image is made: the start is refused, and the next one, with room, is as the first."""
    path, found = folder / "i.fs", []
    with room(size):
        try:
            image = await LivingImage.open(f"file://{path}", steps=(add_part,), on_failed=lambda failure: None)
        except (OSError, BatosError, ImageFailed) as e:
            if not isinstance(e, BatosError):
                found.append(f"the first start ends in {e!r}")
        else:
            await image.close()
    gc.collect()  # a process that ended has let go of its lock; a FileStorage that could not be made does so when it is forgotten
    try:
        image = await LivingImage.open(f"file://{path}", steps=(add_part,))
    except Exception as e:
        found.append(f"the second start: {e!r}")
    else:
        run = Run(path)
        await run.mission(image, "m1", SMALL)
        found += image.read(run.broken)
        await image.close()
    for left in folder.iterdir():
        left.unlink()
    return found


def quiet() -> None:
    """No log: it may be a file, and as full as the others."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable()


async def main(folder: Path, step: int) -> dict[str, Any]:
    base = folder / "base.fs"
    image = await LivingImage.open(f"file://{base}", steps=(add_part,))
    await image.close()
    work = folder / "work"
    work.mkdir()
    refused: collections.Counter[str] = collections.Counter()
    broken: dict[str, list[str]] = {}
    runs, size, clean = 0, base.stat().st_size, 0
    while clean < 2:
        for close_full in (False, True):
            run, found = await one(base, work, size, close_full)
            runs += 1
            refused.update(run.refused)
            clean = clean + 1 if not run.refused else 0
            if found:
                broken[f"{size - base.stat().st_size}{' closed' if close_full else ''}"] = found
        size += step
    for size in range(0, base.stat().st_size + step, step):
        if found := await first_start(work, size):
            broken[f"first {size}"] = found
        runs += 1
    return {"runs": runs, "refused": dict(refused), "broken": broken}


if __name__ == "__main__":
    quiet()
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))))
