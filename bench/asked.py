"""Two kernels on one PostgreSQL, asked about each other's missions: how soon one hears what the other does, and what looking costs.

    python bench/asked.py
    python bench/asked.py --missions 200 --look 0.05

Both kernels are in this process, on a PostgreSQL that the bench starts; the model answers at once. `end_*_ms`: from the moment when the
kernel that thinks publishes an end until the other one does. `word_*_ms`: the same of pieces of text, which come by the relay.
`cancel_*_ms`: a cancellation at the kernel that does not think the mission, until it is told as ended. `look_*_ms`: one look at so many
missions that wait. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from batos.image import ledger
from batos.mind.events import Events
from batos.missions.mission_news import MissionNews
from tests.support import several
from tests.support.missions import FakeInference, answer
from tests.support.servers import postgres_server
from tests.support.several import Member, pair, until

WAITING = (100, 1000, 10_000)
LOOKS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missions", type=int, default=100)
    parser.add_argument("--look", type=float, default=0.2, help="seconds (image.look_s)")
    asked = parser.parse_args()
    several.LOOK_S = asked.look
    with tempfile.TemporaryDirectory(prefix="asked-") as folder, postgres_server() as server:
        found = asyncio.run(measured(server.image(), pathlib.Path(folder), asked.missions))
    print(json.dumps({"look_s": asked.look, "missions": asked.missions, **found}))


async def measured(uri: str, folder: pathlib.Path, missions: int) -> dict[str, float]:
    """The figures, of two kernels."""
    async with pair(uri, folder, inference=lambda: Talker()) as (a, b):
        moments = {one: heard_at(one, "result") for one in (a, b)}
        for number in range(missions):
            await a.client.submit(f"Plan day {number}", id=f"e{number}")
            await a.client.result(f"e{number}")
        await until(lambda: len(moments[b]) >= missions)
        ends = [moments[b][id] - moments[a][id] for id in moments[a]]
        words = {one: heard_at(one, "token") for one in (a, b)}
        stop = b.kernel.events.follow("token", lambda event: None)
        for number in range(missions):
            a.inference.hold()
            await a.client.submit(f"Say day {number}", id=f"w{number}")
            await until(lambda: b.kernel.info()["kernel"]["relayed"]["missions"])
            a.inference.release()
            await a.client.result(f"w{number}")
            await until(lambda id=f"w{number}": id in moments[b])
        stop()
        lags = [words[b][id] - words[a][id] for id in words[b]]
        cancels = []
        for number in range(missions):
            a.inference.hold()
            await a.client.submit(f"Stop day {number}", id=f"c{number}")
            await a.inference.came(len(a.inference.asked))
            begun = time.perf_counter()
            await b.client.cancel(f"c{number}")
            cancels.append(time.perf_counter() - begun)
            a.inference.release()
        looks = await looked(b)
    return {**spread("end", ends), **spread("word", lags), **spread("cancel", cancels), **looks}


class Talker(FakeInference):
    """Answers with text of its own for each brief, so that none comes from the journal of another."""

    def __init__(self) -> None:
        super().__init__()
        self.say = lambda request: f"{answer(request)} {len(self.asked)}" if request.schema is None else answer(request)


def heard_at(one: Member, kind: str) -> dict[str, float]:
    """When the last event of a kind was published at a kernel, by mission; filled from now on."""
    moments: dict[str, float] = {}

    def hear(event: dict[str, Any]) -> None:
        moments[event["id"]] = time.perf_counter()

    one.kernel.events.listen(kind, hear)
    return moments


async def looked(one: Member) -> dict[str, float]:
    """What a look costs at so many missions that wait, once it knows them."""
    await one.kernel.membership.drain()
    found, given = {}, 0
    for count in WAITING:
        while given < count:
            ids = [f"l{number}" for number in range(given, min(count, given + 500))]
            await one.kernel.image.system(lambda root, ids=ids: [ledger.accept(root, id, "Wait", {"paused": True}, False) for id in ids])
            given += len(ids)
        news, times = MissionNews(Events(), lambda id: False), []
        with one.kernel.image.snapshot() as root:
            news.look(root)
            for _ in range(LOOKS):
                begun = time.perf_counter()
                news.look(root)
                times.append(time.perf_counter() - begun)
        found[f"look_{count}_ms"] = round(statistics.median(times) * 1000, 2)
    return found


def spread(name: str, seconds: list[float]) -> dict[str, float]:
    """The median and the 99th of a hundred."""
    ordered = sorted(seconds)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {f"{name}_median_ms": round(statistics.median(ordered) * 1000, 1), f"{name}_p99_ms": round(last * 1000, 1)}


if __name__ == "__main__":
    main()
