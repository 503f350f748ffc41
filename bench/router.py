"""How often the router finds the right persona, and what a decision costs.

The briefs of tests/data/briefs.jsonl, labelled by hand; half of them, by their hash, are held out: triggers, exemplars and
weights of the codex were tuned on the others alone. A real Ollama with the profile's embedder is asked once for each text.

    python bench/router.py --json
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from batos.bridge.inference import Inference
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.config import load
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.mind.codex import Codex, load_codex
from batos.mind.router import Likeness, Router

DATA = Path(__file__).parents[1] / "tests" / "data" / "briefs.jsonl"
PATIENCE_S = 60.0


class Brief(NamedTuple):
    """A labelled brief."""

    persona: str
    brief: str

    @property
    def held_out(self) -> bool:
        """Whether nothing was tuned on it."""
        return bool(hashlib.sha256(self.brief.encode()).digest()[0] & 1)


class Score(NamedTuple):
    """Of one way to route: how many of how many were right, and which were not."""

    right: int
    of: int
    wrong: list[tuple[Brief, str]]

    @property
    def accuracy(self) -> float:
        return self.right / self.of


class MemoryWriter:
    """An inference that embeds each text once: what is left is the decision."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._known: dict[str, list[float]] = {}

    async def digest(self, model: str) -> str:
        return "0" * 64

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        missing = [text for text in texts if text not in self._known]
        if missing:
            self._known |= zip(missing, await self._inference.embed(model, missing, deadline_s=deadline_s), strict=True)
        return [self._known[text] for text in texts]


def briefs() -> list[Brief]:
    """All labelled briefs."""
    return [Brief(**json.loads(line)) for line in DATA.read_text("utf-8").splitlines()]


async def measure(router: Router, among: Sequence[Brief], *, compare: bool = True) -> tuple[Score, list[float]]:
    """How a router does, and what each decision took, in milliseconds."""
    wrong, times = [], []
    for brief in among:
        begun = time.perf_counter()
        route = await router.decide(MissionRecord(id="m", brief=brief.brief, accepted=0.0, number=1), compare=compare)
        times.append((time.perf_counter() - begun) * 1e3)
        if route.persona != brief.persona:
            wrong.append((brief, route.persona))
    return Score(len(among) - len(wrong), len(among), wrong), times


def without_triggers(codex: Codex) -> Codex:
    """The codex with nothing but its exemplars to go by."""
    return codex.model_copy(update={"personas": {n: p.model_copy(update={"triggers": ()}) for n, p in codex.personas.items()}})


def likeness_of(image: LivingImage, inference: Any, model: str) -> Likeness:
    """A comparison that waits as long as it takes."""
    return Likeness(image, inference, model, limit_s=PATIENCE_S, pause_s=0, deadline_s=PATIENCE_S)


async def evaluate(inference: Inference, image: LivingImage, codex: Codex) -> dict[str, Any]:
    """All figures: accuracies by way and half, times in milliseconds."""
    model, remembering = load_profile("embedded").embedder, MemoryWriter(inference)
    halves = {"tuned": [b for b in briefs() if not b.held_out], "held_out": [b for b in briefs() if b.held_out]}
    alone = without_triggers(codex)
    likeness = likeness_of(image, remembering, model)
    ways = {"both": Router(codex, likeness=likeness), "embeddings_only": Router(alone, likeness=likeness), "rules_only": Router(codex)}
    found: dict[str, Any] = {"briefs": len(briefs()), **{name: len(half) for name, half in halves.items()}}
    for half, among in halves.items():
        for way, router in ways.items():
            score, _ = await measure(router, among)
            found[f"{way}_{half}"] = round(score.accuracy, 4)
            if way == "both":
                found[f"wrong_{half}"] = dict(Counter(f"{brief.persona} -> {chosen}" for brief, chosen in score.wrong))
    real = likeness_of(image, inference, model)
    for name, router in {"decision": ways["both"], "rules": ways["rules_only"], "with_embedding": Router(codex, likeness=real)}.items():
        await router.decide(MissionRecord(id="m", brief="Are you there?", accepted=0.0, number=1))
        _, times = await measure(router, briefs())
        found[f"{name}_ms"] = {"p50": quantile(times, 0.5), "p95": quantile(times, 0.95), "max": round(max(times), 2)}
    await likeness.stop()
    await real.stop()
    return found


def quantile(values: Sequence[float], at: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(len(values) * at))], 2)


async def run(host: str, codex: str) -> dict[str, Any]:
    """Figures from the Ollama at `host`, or from one that is started for the occasion."""
    from batos.bridge.client import OllamaInference, connect
    from batos.bridge.ollama_server import OllamaService
    from batos.bridge.provisioning import Provisioner

    with tempfile.TemporaryDirectory(prefix="batos-bench-") as folder:
        settings = load({"data": folder, "ollama_host": host or None})
        service = OllamaService(settings)
        image = await LivingImage.open(settings.image_uri)
        host = await service.start()
        try:
            async with connect(host) as client:
                await Provisioner(client, load_profile("embedded"), modelfiles_folder()).ensure()
            inference = OllamaInference(host)
            try:
                return await evaluate(inference, image, load_codex(codex or None))
            finally:
                await inference.close()
        finally:
            await service.stop()
            await image.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON, and print nothing else")
    parser.add_argument("--host", default="", help="address of an Ollama; without it, one that answers, or one of its own")
    parser.add_argument("--codex", default="", help="another codex")
    args = parser.parse_args()
    figures = asyncio.run(run(args.host, args.codex))
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
