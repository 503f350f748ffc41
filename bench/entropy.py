"""What the entropy metric costs a mission, and how soon the watch over it finds a fall.

Cost: one mission of a 200-word answer measured against a full window, embeddings at hand, in milliseconds; beside it the reading of
its material from an image. The watch: false alarms in 1,000 missions of which nothing changes, and missions until a fall is found.

    python bench/entropy.py --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from batos import logs
from batos.app.kernel import Kernel
from batos.autotelic import entropy, entropy_records
from batos.autotelic.entropy import EMBEDDING, WORDS, Kinds, Text, Thought, Window
from batos.autotelic.entropy_worker import EntropyLimits
from batos.config import Settings
from batos.image import ledger

WORDS_OF_ANSWER = 200
MEASURED = 200
ALLOWED_MS = 20.0


def thought(chance: random.Random, dimensions: int) -> tuple[list[str], list[list[float]]]:
    """Brief and answer as a mission has them: texts, and vectors."""
    texts = [" ".join(f"word{chance.randrange(3000)}" for _ in range(count)) for count in (20, WORDS_OF_ANSWER)]
    return texts, [[chance.gauss(0, 1) for _ in range(dimensions)] for _ in texts] if dimensions else []


def taken(window: Window, texts: list[str], vectors: list[list[float]]) -> str:
    """Everything that the metric does with a mission once its texts are embedded; what they were compared by."""
    meanings = [entropy.meaning_of(vector) for vector in vectors] or [None] * 2
    brief, answer = (Text(entropy.words_of(text), meaning) for text, meaning in zip(texts, meanings, strict=True))
    lines = [f"{n} ROBIN model" for n in range(3)] + ["def sage_facet_(self, query):\n    return query\n" * 5]
    one = Thought(("robin",), ("robin sage_facet_",), brief, answer, entropy.description_length(lines))
    parts, source = window.take(one, Kinds(4, 12))
    entropy.composite(parts, parts._replace(relevance=0.25, diversity=0.25, novelty=0.25, structure=0.25))
    return source


def cost(dimensions: int) -> dict[str, float]:
    """Milliseconds a mission, with embeddings of so many dimensions; 0: by words."""
    chance, window, times = random.Random(7), Window(EntropyLimits().window), []
    for _ in range(MEASURED + 64):
        texts, vectors = thought(chance, dimensions)
        begun = time.perf_counter()
        source = taken(window, texts, vectors)
        times.append((time.perf_counter() - begun) * 1e3)
        assert source == (EMBEDDING if dimensions else WORDS)
    return percentiles(times[64:])


def percentiles(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {"p50": round(times[len(times) // 2], 2), "p95": round(times[int(len(times) * 0.95)], 2), "max": round(times[-1], 2)}


async def reading(folder: Path) -> dict[str, float]:
    """Milliseconds to read what there is to measure of a mission."""
    kernel = await Kernel.start(Settings(data=folder, autotelic="off", log_level="error"), inference=Instant(), listen=False)
    try:
        for n in range(20):
            await kernel.scheduler.submit(f"m{n}", "I feel stuck: why is that?", {})
        await kernel.scheduler.quiet()
        times = []
        for n in range(20):
            begun = time.perf_counter()
            found = kernel.image.read(
                lambda root, n=n: (entropy_records.material_of(root, ledger.mission_of(root, f"m{n}")), entropy_records.persona_kinds(root))
            )
            times.append((time.perf_counter() - begun) * 1e3)
            assert found[0] is not None
        return percentiles(times)
    finally:
        await kernel.stop()


class Instant:
    """An inference that answers at once, and has no embedder."""

    async def chat(self, request: Any, **more: Any) -> Any:
        from batos.bridge.inference import ChatReply

        text = json.dumps(dict.fromkeys(request.schema["properties"], "what of it")) if request.schema else "Take one small step."
        return ChatReply(text, request.model, "d" * 64, 7, 5, 0.5, 2.0)

    async def embed(self, model: str, texts: Any, **more: Any) -> Any:
        from batos.errors import InferenceFailed

        raise InferenceFailed("there is no embedder here", cause="model_missing", model=model)

    async def continues(self, model: str) -> bool:
        return False

    async def digest(self, model: str) -> str:
        return "d" * 64


def watch(runs: int) -> dict[str, Any]:
    """How the watch does on noise, and on falls by so many standard deviations."""
    figures: dict[str, Any] = {"false_alarms_in_1000": sum(alarm(run, 0.0, 1000) is not None for run in range(runs)) / runs}
    for deviations in (1, 2, 3):
        delays = [found for run in range(runs) if (found := alarm(run, deviations, 300, calm=64)) is not None and found > 0]
        figures[f"missions_to_find_{deviations}_deviations"] = {
            "mean": round(statistics.mean(delays), 1),
            "p95": sorted(delays)[int(len(delays) * 0.95)],
        }
    return figures


def alarm(seed: int, fall: float, count: int, calm: int = 0) -> int | None:
    """How many missions after the fall it was found; None if never."""
    chance, state = random.Random(seed), entropy.CusumState()
    baseline = EntropyLimits().baseline
    for n in range(count + calm):
        state = entropy.cusum_after(state, chance.gauss(0.6 - (0.05 * fall if n >= calm else 0), 0.05), WORDS, baseline)
        if state.fallen:
            return n - calm + 1
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON, and print nothing else")
    parser.add_argument("--runs", type=int, default=200, help="runs of the watch")
    args = parser.parse_args()
    logs.configure("error", "json")
    figures: dict[str, Any] = {f"measure_ms_{dimensions or 'words'}": cost(dimensions) for dimensions in (0, 384, 1024)}
    with tempfile.TemporaryDirectory(prefix="batos-bench-") as folder:
        figures["read_ms"] = asyncio.run(reading(Path(folder)))
    figures["allowed_ms"] = ALLOWED_MS
    figures["kept"] = all(figures[f"measure_ms_{kind}"]["p95"] + figures["read_ms"]["p95"] <= ALLOWED_MS for kind in ("words", 384))
    figures.update(watch(args.runs))
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:32} {value}")


if __name__ == "__main__":
    main()
