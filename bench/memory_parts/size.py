"""Bytes of an image for each chunk, packed: object, text, index and vector; and that deletion gives them back."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from batos.image import LivingImage
from batos.image.packing import pack
from bench.memory_parts.catalogue import fill

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"size_bytes_per_chunk_packed": ("<=", 1400), "size_left_of_deleted": ("<=", 0.01)}


async def measure(bench: Bench) -> dict[str, Any]:
    count, path = bench.args.chunks, bench.folder / "live_image.fs"
    image = await LivingImage.open(f"file://{path}")
    empty = path.stat().st_size
    await fill(image, count)
    written = path.stat().st_size - empty
    begun = time.perf_counter()
    pack(image.db, path, time.time(), threading.Event())
    took = time.perf_counter() - begun
    packed = path.stat().st_size - empty
    begun = time.perf_counter()
    await image.system(_forget, list(range(count // 2)))
    forgot = time.perf_counter() - begun
    pack(image.db, path, time.time(), threading.Event())
    left = path.stat().st_size - empty
    await image.close()
    return {
        "size_bytes_per_chunk_written": round(written / count),
        "size_bytes_per_chunk_packed": round(packed / count),
        "size_pack_s": round(took, 2),
        "size_forget_half_s": round(forgot, 2),
        "size_left_of_deleted": round(max(0.0, left / packed - 0.5) * 2, 4),
    }


def _forget(root: Any, ids: list[int]) -> None:
    for id in ids:
        del root["bench"][id]
    for log in (root["text"], root["vectors"]):
        log.drop(ids)
        log.purge()
