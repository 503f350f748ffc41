"""From a closed image to the first answer: it is opened, the collection read, a question scored by text and vectors.

Imports are told apart: a daemon does them once, in a helper thread, whatever the image holds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from typing import TYPE_CHECKING, Any

from batos.image import LivingImage
from bench.memory_parts.catalogue import fill

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"start_to_first_answer_s": ("<=", 0.5)}
STARTS = 5
CHILD = """
import time
started = time.perf_counter()
import asyncio, json, resource, sys
import numpy as np
from batos.image import LivingImage
from batos.memory.search_index import Collection
from batos.memory.text_index import SegmentedText
from batos.memory.part_log import VectorLog
from batos.memory.tokenizer import words

async def main():
    begun = time.perf_counter()
    image = await LivingImage.open(sys.argv[1])
    opened = time.perf_counter()
    with image.snapshot() as root:
        collection = Collection.load(root["text"], root["vectors"])
    loaded = time.perf_counter()
    view = collection.view()
    scores = view.bm25(words("Which exception is raised when the file cannot be opened?"))
    scores += view.matrix @ view.matrix[7]
    assert view.has.all() and int(np.argmax(scores)) >= 0
    now = time.perf_counter()
    await image.close()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = {"imports": begun - started, "open": opened - begun, "load": loaded - opened, "answer": now - loaded}
    print(json.dumps({**told, "all": now - begun, "rss": rss}))

asyncio.run(main())
"""


async def measure(bench: Bench) -> dict[str, Any]:
    uri = f"file://{bench.folder / 'live_image.fs'}"
    image = await LivingImage.open(uri)
    await fill(image, bench.args.chunks)
    await image.close()
    runs = []
    for _ in range(STARTS):
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, uri, stdout=asyncio.subprocess.PIPE)
        told, _ = await child.communicate()
        runs.append(json.loads(told.splitlines()[-1]))
    return {
        "start_to_first_answer_s": round(statistics.median(run["all"] for run in runs), 3),
        "start_open_s": round(statistics.median(run["open"] for run in runs), 3),
        "start_load_s": round(statistics.median(run["load"] for run in runs), 3),
        "start_answer_s": round(statistics.median(run["answer"] for run in runs), 3),
        "start_imports_s": round(statistics.median(run["imports"] for run in runs), 3),
        "start_rss_mb": round(max(run["rss"] for run in runs) / 1024),
    }
