"""Fixtures that several unit tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from batos.app.kernel import Kernel
from batos.image import LivingImage
from batos.sandbox import Sandbox
from tests.support.console import Seat, seated
from tests.support.image import Store
from tests.support.missions import FakeInference
from tests.support.sandbox import settings
from tests.support.undo import House, house


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[House]:
    """An image with an undo of its own."""
    async with house(tmp_path) as opened:
        yield opened


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    """An image that is new, and open."""
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    yield image
    await image.close()


@pytest.fixture
def inference() -> FakeInference:
    """Answers in Ollama's place."""
    return FakeInference()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox that the tests of a module share."""
    async with Sandbox(settings()) as running:
        yield running


@pytest.fixture
async def seat(kernel: Kernel) -> AsyncIterator[Seat]:
    """A browser's session at the console of `kernel`."""
    async with seated(kernel) as seat:
        yield seat


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A file of objects, open."""
    store = Store(tmp_path / "o.fs")
    yield store
    store.close()
