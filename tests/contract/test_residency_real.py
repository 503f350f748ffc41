"""Residency on a real Ollama of the test's own: nobody else loads or unloads there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from ollama import AsyncClient

from batos.bridge.admission import Fairness, Ticket, session
from batos.bridge.client import OllamaInference, connect
from batos.bridge.inference import ChatRequest
from batos.bridge.ollama_server import OllamaService
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.bridge.residency import Expected, Preloader, Residency, ResidentInference
from batos.config import load

pytestmark = pytest.mark.long
OPTIONS = {"num_ctx": 2048, "num_predict": 4, "temperature": 0.0, "seed": 1}
PLENTY, LITTLE = 6_900_000_000, 260_000_000  # SmolLM2 takes 237 MB, MiniLM 50


class House(NamedTuple):
    client: AsyncClient
    inner: OllamaInference
    log: Path

    def bridge(self, budget: int) -> tuple[Residency, ResidentInference]:
        residency = Residency(self.client, budget, OPTIONS, Fairness(64, 600))
        return residency, ResidentInference(self.inner, residency)

    async def there(self) -> set[str]:
        return {m.model or "" for m in (await self.client.ps()).models}

    def loads(self) -> int:
        """How many runners were started; one more, without a model, looks for devices at the start."""
        return sum("starting runner" in line and "--model" in line for line in self.log.read_text().splitlines())


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    service = OllamaService(load({"data": tmp_path, "ollama_host": "127.0.0.1:1"}, environ={}))  # nobody answers there
    host = await service.start()
    async with connect(host) as client:
        provisioner = Provisioner(client, load_profile("embedded"), modelfiles_folder())
        assert all(status.ready for status in await provisioner.ensure())
        inner = OllamaInference(host, 2, OPTIONS)
        yield House(client, inner, tmp_path / "logs" / "ollama.log")
        await inner.close()
    await service.stop()


def ask(model: str, user: str = "What is a cat?", **options: int) -> ChatRequest:
    return ChatRequest(model, "", user, options=tuple(sorted({**OPTIONS, **options}.items())))


async def test_a_small_budget_frees_memory_before_the_next_model_comes(house: House) -> None:
    residency, inference = house.bridge(LITTLE)
    await inference.chat(ask("robin:embedded"), deadline_s=120)
    assert await house.there() == {"robin:embedded"}
    await inference.embed("minilm:embedded", ["one"], deadline_s=120)
    assert await house.there() == {"minilm:embedded"}
    await inference.chat(ask("brick:embedded"), deadline_s=120)
    assert await house.there() == {"brick:embedded"}
    facts = residency.facts()
    assert (facts["loads"], facts["unloads"]) == (house.loads(), 2) == (3, 2)
    await residency.close()


async def test_within_the_budget_all_stay(house: House) -> None:
    residency, inference = house.bridge(PLENTY)
    await inference.chat(ask("robin:embedded"), deadline_s=120)
    await inference.embed("minilm:embedded", ["one"], deadline_s=120)
    await inference.chat(ask("brick:embedded"), deadline_s=120)  # ROBIN's weights and options
    assert await house.there() == {"robin:embedded", "minilm:embedded"}
    await residency.refresh()
    about = residency.about("brick:embedded")
    assert (about["resident"], about["measured"], about["loads"]) == (True, True, 1)
    assert LITTLE * 0.5 < about["bytes"] < LITTLE
    assert residency.facts()["loads"] == house.loads() == 2
    await residency.close()


async def test_missions_whose_loads_throw_each_other_out_are_served_in_groups(house: House) -> None:
    """Two contexts on one base stand for two adapters on it: Ollama loads the weights anew for either."""
    residency, inference = house.bridge(PLENTY)

    async def mission(number: int) -> None:
        with session(Ticket((False, 0), number)):
            for _ in range(2):
                await inference.chat(ask("robin:embedded", num_ctx=1024 if number % 2 else 2048), deadline_s=120)

    await asyncio.gather(*(mission(number) for number in range(6)))
    assert residency.facts()["loads"] == house.loads() == 2
    await residency.close()


async def test_preloading_loads_what_a_mission_then_needs(house: House) -> None:
    residency, inference = house.bridge(PLENTY)
    residency.preloader = Preloader(residency, 0.01, lambda: Expected([], ["robin:embedded"]))
    await residency.learn_all(["robin:embedded"])
    await inference.embed("minilm:embedded", ["one"], deadline_s=120)
    async with asyncio.timeout(90):
        while not residency.facts()["preloads"]:
            await asyncio.sleep(0.05)
    assert await house.there() == {"robin:embedded", "minilm:embedded"}
    await inference.chat(ask("robin:embedded"), deadline_s=120)
    assert house.loads() == 2
    await residency.close()
