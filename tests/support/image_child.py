"""A process that accepts, thinks and commits in a loop, and tells over stdout what was acknowledged. It is killed.

    python image_child.py IMAGE_URI SEED [STOP_POINT]

With a stop point (`before_` or `after_` and one of STEPS) it kills itself there.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from typing import Any

from ZODB.FileStorage import FileStorage

from batos.image import LivingImage, journal, ledger
from batos.image.journal import InferenceRecord
from batos.objects import UvmObject

WORKERS = 8
STOP_AFTER = 25  # commits; genesis is the first two or three
STEPS = {"vote": "tpc_vote", "finish": "_finish", "fsync": "_finish_finish"}  # of a commit, as FileStorage calls them
PARTS = 5  # objects that one unit changes together


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # one write: a line is there or it is not


def add_effects(lobby: UvmObject) -> None:
    if "parts" not in lobby._slots:
        lobby.parts = tuple(UvmObject(effects=()) for _ in range(PARTS * WORKERS))


async def worker(image: LivingImage, number: int, seed: int) -> None:
    rng = random.Random(seed * 1000 + number)
    turn = 0
    while True:
        id = f"{seed}-{number}-{turn}"
        turn += 1
        await image.system(ledger.accept, id, f"brief of {id}", {}, True, mission=id)
        say("accepted", id)
        for i in range(rng.randrange(3)):
            answer = InferenceRecord(b"k" * 16, i, f"{id} {i} " + "x" * rng.randrange(4000), "m", "d", 1, 1, 0.0, 0.0, "stop", 0.0)
            await image.system(journal.add, id, answer, mission=id)
            say("journaled", id, i)
        if rng.random() < 0.2:
            await image.system(ledger.fail, id, {"code": "x", "message": id}, {}, True, mission=id)
            say("failed", id)
            continue
        async with image.unit() as unit:
            mission = ledger.mission_of(unit.root, id)
            for part in unit.root["lobby"].parts[number * PARTS : (number + 1) * PARTS]:
                part.effects = (*part.effects[-50:], id)
                part.filling = "y" * rng.randrange(2000)
            ledger.complete(mission, {"text": id}, None)
            unit.note(id, "COMPLETE")
        say("complete", id)
        image.committer.defer(ledger.settle, id)


def arm(point: str) -> None:
    """Kill this process before or after one of the steps of its STOP_AFTERth commit."""
    moment, step = point.split("_", 1)
    original = getattr(FileStorage, STEPS[step])
    left = STOP_AFTER

    def call(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(FileStorage, STEPS[step], call)


async def main(uri: str, seed: int, point: str) -> None:
    if point:
        arm(point)
    image = await LivingImage.open(uri, steps=(add_effects,))
    for mission in await image.system(ledger.recover, 64):
        say("resumed", mission.id)
    say("ready")
    await asyncio.gather(*(worker(image, number, seed) for number in range(WORKERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
