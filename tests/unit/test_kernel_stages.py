"""The stages of the start, and the operations that the started daemon serves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batos.app import stages
from batos.app.kernel import Kernel
from batos.app.undo import UndoRunner
from batos.autotelic.heartbeat import Heartbeat
from batos.autotelic.rollback_monitor import Leash
from batos.autotelic.telemetry import Senses
from batos.errors import BatosError
from batos.image.backup_schedule import Backups
from batos.image.living_image import LivingImage
from batos.image.upkeep import Upkeep
from batos.image.usage_totals import CostMeter
from batos.memory.curator import Curator
from batos.memory.folder_watcher import FolderWatcher
from batos.methods.runtime import MethodRuntime
from batos.mind.router import Likeness
from batos.missions.scheduler import Scheduler
from batos.wire.listener import Listener
from batos.wire.schemas import OPS
from tests.support.missions import FakeInference, mind, settings


async def test_each_operation_of_the_wire_has_a_handler(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        assert kernel.transport.dispatcher.operations == set(OPS.values())


async def test_a_stage_is_usable_alone(tmp_path: Path) -> None:
    wanted, stop = settings(tmp_path), stages.StopRequest()
    async with stages.open_storage(wanted, stop) as storage, stages.keep_image(wanted, storage) as upkeep:
        assert "lobby" in storage.image.read(lambda root: list(root))
        assert upkeep.costs.facts()["inferences"] == 0
    assert not stop.is_made


@pytest.mark.parametrize("stage", ["connect_models", "keep_image", "open_memory", "build_missions", "open_transport", "start_work"])
async def test_a_start_that_fails_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Whichever stage fails, the image is closed, and may be opened again."""
    opened = list[LivingImage]()
    real = LivingImage.open

    async def noted(*args: Any, **more: Any) -> LivingImage:
        opened.append(await real(*args, **more))
        return opened[-1]

    def fails(*args: Any, **more: Any) -> Any:
        raise BatosError("no")

    before = asyncio.all_tasks()
    with monkeypatch.context() as patch:
        patch.setattr(LivingImage, "open", noted)
        patch.setattr(stages, stage, fails)
        with pytest.raises(BatosError, match="no"):
            await Kernel.start(settings(tmp_path), inference=FakeInference())
    assert asyncio.all_tasks() == before
    async with mind(tmp_path, FakeInference()) as kernel:
        assert kernel.info()["missions"]["running"] == 0


ENDS: list[tuple[type[Any], str]] = [
    (Heartbeat, "run"),
    (Scheduler, "stop"),
    (Curator, "run"),
    (Listener, "stop"),
    (Leash, "end"),
    (MethodRuntime, "close"),
    (UndoRunner, "stop"),
    (Curator, "stop"),
    (FolderWatcher, "run"),
    (Likeness, "stop"),
    (Backups, "run"),
    (Upkeep, "run"),
    (Upkeep, "stop"),
    (CostMeter, "stop"),
    (Senses, "flush"),
    (LivingImage, "close"),
]
"""What ends, in this order, when a daemon stops."""


async def test_parts_end_in_the_reverse_order_of_their_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system does of its own accord, then missions, then the transport, at last the image."""
    ended = list[tuple[type[Any], str]]()

    def note(owner: type[Any], method: str) -> None:
        real = getattr(owner, method)

        async def noted(*args: Any, **more: Any) -> Any:
            if method != "run":
                ended.append((owner, method))
                return await real(*args, **more)
            try:
                return await real(*args, **more)
            except asyncio.CancelledError:
                ended.append((owner, method))
                raise

        monkeypatch.setattr(owner, method, noted)

    for owner, method in ENDS:
        note(owner, method)
    kernel = await Kernel.start(settings(tmp_path, autotelic="on", curate="on"), inference=FakeInference())
    await asyncio.sleep(0.1)
    assert ended == []
    await kernel.stop()
    assert ended == ENDS
