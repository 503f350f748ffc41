"""How often the router is right about briefs on which nothing was tuned, with the real embedder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from batos.bridge.client import OllamaInference
from batos.bridge.profiles import load_profile
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.memory.embedders import normalised
from batos.mind.codex import load_codex
from batos.mind.router import Router
from bench.router import MemoryWriter, briefs, likeness_of, measure

HELD_OUT = [brief for brief in briefs() if brief.held_out]
FLOOR, RULES_FLOOR = 0.90, 0.75


def plain(text: str) -> str:
    return " ".join(normalised(text).casefold().split())


def test_the_briefs_are_many_balanced_and_not_the_codexs_own() -> None:
    assert len(briefs()) >= 200
    assert len(HELD_OUT) >= 100
    assert len({plain(brief.brief) for brief in briefs()}) == len(briefs())
    assert set(Counter(brief.persona for brief in briefs()).values()) == {60}
    exemplars = {plain(text) for persona in load_codex().personas.values() for text in persona.exemplars}
    assert not exemplars & {plain(brief.brief) for brief in briefs()}


async def test_by_rules_alone_on_the_held_out_half() -> None:
    score, _ = await measure(Router(load_codex()), HELD_OUT)
    assert score.accuracy >= RULES_FLOOR, score.wrong


async def test_with_the_real_embedder_on_the_held_out_half(tmp_path: Path, ollama_host: str) -> None:
    image = await LivingImage.open(f"file://{tmp_path}/image.fs")
    inference = OllamaInference(ollama_host)
    likeness = likeness_of(image, MemoryWriter(inference), load_profile("embedded").embedder)
    codex = load_codex()
    router = Router(codex, likeness=likeness)
    try:
        score, _ = await measure(router, HELD_OUT)
        assert score.accuracy >= FLOOR, score.wrong
        for name, persona in codex.personas.items():
            for brief in persona.exemplars:
                found = await router.decide(MissionRecord(id="m", brief=brief, accepted=1.0, number=1))
                assert (found.persona, found.by) == (name, "rules and likeness"), brief
    finally:
        await likeness.stop()
        await inference.close()
        await image.close()
