"""Inference that waits for its model, and brings back one that vanished."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from batos.bridge.inference import ChatRequest, ReadyInference
from batos.errors import BatosError, InferenceFailed, ProvisioningFailed
from tests.support.missions import DIGEST, FakeInference

REQUEST = ChatRequest("robin:embedded", "system", "user")


class Models:
    """What there is, as a provisioner knows it."""

    def __init__(self) -> None:
        self.there = asyncio.Event()
        self.failure: BatosError | None = None
        self.healed: list[str] = []

    async def ready(self, model: str) -> None:
        await self.there.wait()
        if self.failure is not None:
            raise self.failure

    async def heal(self, model: str) -> None:
        self.healed.append(model)


def gone(times: int, cause: str = "model_missing") -> Any:
    left = [InferenceFailed("no such model", cause=cause)] * times
    return lambda request: left.pop() if left else None


@pytest.fixture
def models() -> Models:
    return Models()


async def test_what_comes_before_its_model_waits(models: Models) -> None:
    inner = FakeInference()
    inference = ReadyInference(inner, ready=models.ready, heal=models.heal)
    chat = asyncio.create_task(inference.chat(REQUEST, deadline_s=1))
    await asyncio.sleep(0)
    assert inner.asked == []
    models.there.set()
    assert (await chat).digest == DIGEST
    assert await inference.digest("robin:embedded") == DIGEST
    assert models.healed == []


async def test_a_model_that_cannot_be_had_is_not_asked(models: Models) -> None:
    inner = FakeInference()
    models.there.set()
    models.failure = ProvisioningFailed("cannot be had", cause="registry")
    with pytest.raises(ProvisioningFailed):
        await ReadyInference(inner, ready=models.ready, heal=models.heal).chat(REQUEST, deadline_s=1)
    assert inner.asked == []


async def test_a_model_that_vanished_is_brought_back_once(models: Models) -> None:
    inner = FakeInference()
    models.there.set()
    inference = ReadyInference(inner, ready=models.ready, heal=models.heal)
    inner.fail_when = gone(1)
    assert (await inference.chat(REQUEST, deadline_s=1)).text
    assert models.healed == ["robin:embedded"]
    inner.fail_when = gone(2)
    with pytest.raises(InferenceFailed):
        await inference.chat(REQUEST, deadline_s=1)
    assert len(models.healed) == 2


async def test_other_failures_pass_through(models: Models) -> None:
    inner = FakeInference()
    models.there.set()
    inner.fail_when = gone(1, "server_error")
    with pytest.raises(InferenceFailed):
        await ReadyInference(inner, ready=models.ready, heal=models.heal).chat(REQUEST, deadline_s=1)
    assert (models.healed, len(inner.asked)) == ([], 1)
