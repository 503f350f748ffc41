"""Stepping into missions: how fast a transition is reached, what a mirror costs, and if failed missions are stepped to where they failed.

Everything is real but the model, which answers at once or fails as it is told. Prints one JSON line.

    python bench/step.py --missions 200 --objects 100000 --dir /dev/shm
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import pathlib
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import structlog
from BTrees.OOBTree import OOBTree

from batos.image import ledger
from batos.image.living_image import LivingImage, mirror
from tests.support.failing_missions import BRIEF, KINDS, Failing, failing
from tests.support.missions import FakeInference, mind, submit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missions", type=int, default=200, help="failed missions that are stepped into")
    parser.add_argument("--objects", type=int, default=100_000, help="objects of the image that is mirrored")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the images")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    try:
        line = asyncio.run(measured(folder, args.missions, args.objects))
        print(json.dumps(line))
    finally:
        shutil.rmtree(folder)


async def measured(folder: pathlib.Path, missions: int, objects: int) -> dict[str, Any]:
    """Return all figures."""
    return {
        **await failures(folder / "failures", missions),
        **await transitions(folder / "steps"),
        **await mirrors(folder / "mirror", objects),
    }


async def failures(folder: pathlib.Path, count: int) -> dict[str, Any]:
    """Make missions fail in all kinds, and step to where each failed: the same error in the same state, or at the question with which it
    was cancelled."""
    right, recorded, expected, new, wrong = 0, 0, 0, 0, Counter[str]()
    async with failing(folder) as world:
        made = []
        for number in range(count):
            kind = list(KINDS)[number % len(KINDS)]
            ended = await KINDS[kind](world, f"m{number}")
            world.mend()
            assert ended.get("error"), (kind, ended)
            made.append((kind, f"m{number}", ended["error"]))
        begun = time.perf_counter()
        asked = len(world.inference.asked)
        for kind, id, error in made:
            found, journaled = await stepped(world, id)
            fits = found["error"]["code"] == error["code"] and (found["reached"] == found["state_recorded"] or "question" in found)
            right += fits
            wrong[kind] += not fits
            recorded, expected, new = recorded + found["counts"]["recorded"], expected + journaled, new + found["counts"]["new"]
        took = time.perf_counter() - begun
        new += len(world.inference.asked) - asked
    return {
        "failed_missions": count, "kinds": len(KINDS), "stepped_to_the_failure": right, "wrong": {k: n for k, n in wrong.items() if n},
        "replayed": recorded, "journaled": expected, "new_inferences": new, "ms_each": round(1000 * took / count, 1),
    }  # fmt: skip


async def stepped(world: Failing, id: str) -> tuple[dict[str, Any], int]:
    """Return where a session stands after it is opened, with what the failure ledger says, and the inferences of the journal."""
    reply = await world.desk.ask("step.open", id=id, session=id)
    await world.desk.ask("step.close", session=id)

    def read(root: Any) -> tuple[str, int]:
        held = ledger.mission_of(root, id).journal
        return ledger.failures(root, id=id, limit=1)[0]["context"]["state"], 0 if held is None else len(held.entries)

    state, journaled = world.kernel.image.read(read)
    own = [one for one in reply["rail"] if one["number"] <= reply["at"]["number"] and "." not in one["cycle"]]
    return {**reply, "state_recorded": state, "reached": own[-1]["state"]}, journaled


async def transitions(folder: pathlib.Path) -> dict[str, Any]:
    """Time the way to each transition of a mission of five inferences, each from a session that is opened anew."""
    from tests.support.failing_missions import Desk

    async with mind(folder, FakeInference()) as kernel:
        desk = Desk(kernel)
        assert "result" in await (await submit(kernel, "five", BRIEF, depth="facets")).end()
        rail = (await desk.ask("step.open", id="five", session="s", at="end"))["rail"]
        await desk.ask("step.close", session="s")
        took, computed = [], []
        for _ in range(20):
            for one in rail:
                begun, before = time.perf_counter(), time.process_time()
                reply = await desk.ask("step.open", id="five", session="s", at=one["number"])
                took.append(1000 * (time.perf_counter() - begun))
                computed.append(1000 * (time.process_time() - before))
                assert reply["at"]["number"] == one["number"]
                await desk.ask("step.close", session="s")
    return {
        "transitions": len(rail), "transition_ms_median": round(statistics.median(took), 2),
        "transition_ms_p95": round(sorted(took)[int(len(took) * 0.95)], 2), "transition_ms_max": round(max(took), 2),
        "transition_cpu_ms_max": round(max(computed), 2),
    }  # fmt: skip


async def mirrors(folder: pathlib.Path, objects: int) -> dict[str, Any]:
    """Time the opening of a mirror of an image of many objects, as it was some transactions ago, with one read, and its memory."""
    folder.mkdir()  # noqa: ASYNC240  a bench
    image = await LivingImage.open(f"file://{folder / 'image.fs'}")
    try:
        for begin in range(0, objects, 1000):

            def add(root: Any, begin: int = begin) -> None:
                lobby = root["lobby"]
                if begin == 0:
                    lobby.things = OOBTree()
                for number in range(begin, begin + 1000):
                    lobby.things[f"thing {number}"] = lobby.genesis.derive(name=f"thing {number}", text="x" * 200)

            await image.system(add)
        before = image.db.lastTransaction()
        await image.system(lambda root: setattr(root["lobby"], "later", 1))
        gc.collect()
        rss = _rss()
        begun = time.perf_counter()
        async with mirror(image, cache_size=2000, before=bytes(before)) as made:
            assert not made.read(lambda root: "later" in root["lobby"]._slots)
            assert made.read(lambda root: root["lobby"].things["thing 0"].name) == "thing 0"
            took = time.perf_counter() - begun
            grown = _rss() - rss
        return {"mirror_objects": len(image.db.storage), "mirror_ms": round(1000 * took, 1), "mirror_mb": round(grown, 1)}
    finally:
        await image.close()


def _rss() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    main()
