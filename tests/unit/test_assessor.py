"""The assessor on missions that really run: measured after their end, written in batches, and made up for after a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import entropy_records
from batos.autotelic.entropy_records import Assessment
from batos.bridge.inference import ChatRequest
from batos.image import ledger
from tests.support.autonomy import ON, assessed, done, opened
from tests.support.methods import ADD, give, sent, writing
from tests.support.missions import FakeInference, answer, mind, submit, written


def kept(kernel: Kernel) -> list[Assessment]:
    return kernel.image.read(entropy_records.last_assessments, 100)  # type: ignore[no-any-return]


def embedding(text: str) -> list[float]:
    return [float(text.lower().count(letter)) for letter in "aeionrst"]


async def test_a_mission_is_measured_after_its_end_without_a_model_call(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.embedder = embedding
    async with mind(tmp_path, inference, **ON) as kernel:
        await done(kernel, "m1", "I feel stuck")
        answered = inference.answered
        found = await assessed(kernel, "m1")
        assert inference.answered == answered
        assert found["source"] == "embedding"
        assert found["novelty"] == 1.0
        assert 0 < found["relevance"] <= 1
        assert 0 < found["structure"] < 1
        assert found["cem"] == pytest.approx(sum(found[part] for part in ("relevance", "diversity", "novelty", "structure")) / 4, abs=1e-3)
        await done(kernel, "m2", "I feel stuck")
        assert (await assessed(kernel, "m2"))["novelty"] == pytest.approx(0, abs=1e-6), "the same answer again"
        mean = (found["cem"] + (await assessed(kernel, "m2"))["cem"]) / 2
        assert kernel.info()["autotelic"]["cem"]["rolling"] == pytest.approx(mean, abs=1e-4)


async def test_without_an_embedder_it_works_and_says_so(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), **ON) as kernel:
        await done(kernel, "m1", "I feel stuck")
        assert (await assessed(kernel, "m1"))["source"] == "words"


async def test_what_counts_is_what_users_asked_in_words_and_got_an_answer_to(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with mind(tmp_path, inference, **ON) as kernel:
        await give(kernel)
        assert (await sent(kernel, "message", "thing", "add_", 1, 2))["state"] == "COMPLETE"
        await done(kernel, "audit", "self_audit", origin="system")
        say, inference.say = inference.say, lambda request: ""
        assert (await (await submit(kernel, "failed", "I feel sad")).end())["state"] == "FAILED"
        inference.say = say
        await done(kernel, "m1", "I feel stuck")
        await assessed(kernel, "m1")
        await kernel.loop.tick()
        await written(kernel)
        assert [one.number for one in kept(kernel)] == [4]


async def test_batches_are_written_and_a_restart_goes_on_with_them(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, **ON) as kernel:
        for n in range(6):
            await done(kernel, f"m{n}", f"I feel stuck, for the {n}th time")
        last = await assessed(kernel, "m5")
        assert kept(kernel) == []
    async with mind(tmp_path, inference, **ON) as kernel:
        assert [one.number for one in kept(kernel)] == [1, 2, 3, 4, 5, 6]
        assert kept(kernel)[-1].to_wire() == last
        await done(kernel, "m6", "I feel stuck, for the 6th time")
        assert (await assessed(kernel, "m6"))["novelty"] == pytest.approx(0, abs=1e-3), "it remembers the answers of before"
        assert kernel.loop.assessor is not None
        assert kernel.loop.assessor.watch.learned == 4


async def test_what_a_kill_took_is_measured_at_the_next_start(tmp_path: Path) -> None:
    """With the loop off nothing is measured, as if the daemon had been killed before it came to it."""
    inference = FakeInference()
    async with mind(tmp_path, inference, autotelic="off") as kernel:
        await done(kernel, "m1", "I feel stuck")
        await done(kernel, "m2", "I feel sad")
    async with mind(tmp_path, inference, **ON) as kernel:
        assert (await assessed(kernel, "m1"))["novelty"] == 1.0
        assert (await assessed(kernel, "m2"))["novelty"] == pytest.approx(0, abs=1e-6)


async def test_more_missions_than_it_gets_to(tmp_path: Path) -> None:
    inference = FakeInference()
    waits = asyncio.Event()

    async with mind(tmp_path, inference, **ON, cem_queue=2) as kernel:
        assert kernel.loop.assessor is not None
        embed = kernel.loop.assessor.embed

        async def slow(texts: Any) -> list[list[float]]:
            await waits.wait()
            return await embed(texts)

        kernel.loop.assessor.embed = slow
        for n in range(5):
            await done(kernel, f"m{n}", "I feel stuck")
        assert kernel.loop.assessor.facts()["waiting"] <= 2
        waits.set()
        await assessed(kernel, "m4")
        assert kernel.loop.assessor.left_out >= 1


async def test_the_image_keeps_the_last_ones_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        for n in range(1, 40):
            await image.system(entropy_records.keep_assessments, [Assessment(n, 0.5, 0.5, 0.5, 0.5, 0.5, "words")], {"sum": n}, 10)
        assert [one.number for one in image.read(entropy_records.last_assessments, 100)] == list(range(30, 40))
        assert [one.number for one in image.read(entropy_records.last_assessments, 3)] == [37, 38, 39]
        assert image.read(entropy_records.watch_of) == {"sum": 39}
        assert image.read(entropy_records.assessment_of, 5) is None


async def test_a_rut_is_noticed(tmp_path: Path) -> None:
    """Different answers at first, then always the same one: the metric falls, and it is said."""
    inference = FakeInference()
    topics = ("gardens want water", "bread needs yeast", "planets move around", "violins sound warm", "rivers carve valleys")
    turn = 0

    def say(request: ChatRequest) -> str:
        return answer(request) if request.schema else f"Remember that {topics[turn % 5]}, for reason number {turn}."

    inference.say = say
    async with mind(tmp_path, inference, **ON) as kernel:
        for turn in range(12):
            await done(kernel, f"m{turn}", f"I feel stuck about {topics[turn % 5]}")
            await assessed(kernel, f"m{turn}")
        assert not kernel.info()["autotelic"]["cem"]["fallen"]
        inference.say = answer
        for n in range(12, 20):
            await done(kernel, f"m{n}", f"I feel stuck about {topics[n % 5]}")
            await assessed(kernel, f"m{n}")
        assert kernel.info()["autotelic"]["cem"]["fallen"]
        assert kernel.loop.alarms is not None
        fired = await kernel.loop.alarms.check()
        assert fired is not None
        assert fired.trigger == "entropy_falls"
        brief = kernel.image.read(lambda root: ledger.mission_of(root, fired.mission).brief)
        assert "the composite entropy of thought has fallen for good: usual was 0." in brief
        await kernel.scheduler.quiet()
        again = await kernel.loop.alarms.check()
        assert again is None or again.trigger == "entropy_still", "it is quiet until it has recovered"
