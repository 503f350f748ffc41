"""What an agent's history costs on disk: 400 turns of 1,000 bytes, one object an entry. Prints one JSON line.

The same turns in one PersistentList show what a record that grows comes to.

python bench/growth.py
"""

from __future__ import annotations

import asyncio
import json
import logging
import pathlib
import random
import string
import sys
import tempfile
from typing import Any

import structlog
from persistent.list import PersistentList

from batos.image import LivingImage
from batos.image.upkeep import Upkeep, UpkeepPlan
from batos.image.usage_totals import CostMeter
from batos.objects import UvmObject

TURNS, BYTES = 400, 1000


def entry(root: Any, text: str) -> None:
    """One object an entry, linked to the one before: what an agent of BAT OS does."""
    agent = root["lobby"].agent
    agent.turn = UvmObject(**{"parent*": root["lobby"].turns, "text": text, "before": agent.turn})


def item(root: Any, text: str) -> None:
    """One list that grows."""
    root["lobby"].agent.turns.append(text)


def begin(root: Any) -> None:
    lobby = root["lobby"]
    lobby.turns = lobby.genesis.derive(name="turn")
    lobby.agent = lobby.genesis.derive(name="agent", turn=None, turns=PersistentList())


async def growth(folder: pathlib.Path, write: Any) -> dict[str, float]:
    """Growth of the file by `write`, one commit a turn, as a multiple of the payload; before and after a pack."""
    image = await LivingImage.open(f"file://{folder / 'i.fs'}")
    upkeep = Upkeep(image, CostMeter(image), UpkeepPlan(0, 0, interval_s=1e6, first_s=1e6), backups=folder)
    rng = random.Random(1)
    await image.system(begin)
    await upkeep.pack()
    empty = image.db.getSize()
    for _ in range(TURNS):
        await image.system(write, "".join(rng.choices(string.ascii_letters, k=BYTES)))
    grown = image.db.getSize()
    packed = await upkeep.pack()
    await image.close()
    payload = TURNS * BYTES
    return {"before_pack": round((grown - empty) / payload, 4), "after_pack": round((packed["bytes_after"] - empty) / payload, 4)}


async def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    figures = {}
    for name, write in (("one_object_an_entry", entry), ("persistent_list", item)):
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = await growth(pathlib.Path(folder), write)
    own = figures["one_object_an_entry"]
    met = own["before_pack"] <= 2.5 and own["after_pack"] <= 1.2
    print(json.dumps({"bench": "growth", "turns": TURNS, "bytes": BYTES, "unit": "multiple of the payload", **figures, "met": met}))
    return 0  # `met` says it; the other benches of a run are still wanted


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
