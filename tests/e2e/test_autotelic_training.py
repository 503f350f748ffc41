"""A real training of seconds that the loop makes: a real child and adapter, a real Ollama that builds it, both experts asked."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import change_preparation, changes
from batos.autotelic.changes import Proposal
from batos.bridge import launcher
from batos.bridge.client import connect
from batos.bridge.lora.staging import read_about
from batos.config import Settings
from batos.image import ledger, model_registry
from tests.support import short_training
from tests.support.daemon import ROOT

SETTINGS: dict[str, Any] = {
    "autotelic": "on", "heartbeat_first_s": 3600, "senses_s": 3600, "remember": "off", "evidence_passages": 0, "lora_scan_s": 3600,
    "lora_settle_s": 0, "loop_training_minutes": 5, "rehearsal_tasks": 2, "rehearsal_least": 1, "rehearsal_s": 900,
    "training_threads": 1,
}  # fmt: skip
MINUTES = 0.05


def briefly(settings: Settings, image: str, work: Path, minutes: float) -> list[str]:
    """The very command, on fewer tasks."""
    words = change_preparation.training_command(settings, image, work, minutes)
    return [words[0], short_training.__file__, *words[words.index("train") :]]


@contextlib.asynccontextmanager
async def cleared(host: str) -> AsyncIterator[None]:
    """The models of this test are gone after it."""
    try:
        yield
    finally:
        async with connect(host) as client:
            for model in (await client.list()).models:
                if model.model and model.model.startswith("brick:method-writer-v"):
                    await client.delete(model.model)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_the_loop_trains_an_expert_and_decides_upon_it(tmp_path: Path, ollama_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "IDLE", "NOT_IDLE=1")  # beside other tests it would hardly ever have its turn
    for module in change_preparation.TRAINING_MODULES:
        pytest.importorskip(module)
    staging = tmp_path / "lora_staging"
    shutil.copytree(ROOT / "lora_staging" / "method-writer", staging / "method-writer")
    settings = Settings(data=tmp_path, lora_staging=str(staging), ollama_host=ollama_host, **SETTINGS)
    assert change_preparation.why_no_training(settings) == ""
    async with cleared(ollama_host):
        kernel = await Kernel.start(settings, listen=False)
        try:
            await kernel.models_settled()
            factory, improver = kernel.substrate.factory, kernel.improving.improver
            assert factory is not None
            assert improver is not None
            await factory.scan_settled()
            old = kernel.image.read(model_registry.speaks_methods)
            shipped = read_about(staging / "method-writer" / "expert.toml").version
            assert old == f"brick:method-writer-v{shipped}"
            one: Any = improver.preparations["training"]
            one.command = briefly
            await kernel.image.system(ledger.accept, "m1", "learn", {"origin": "system"}, False)
            await kernel.image.system(ledger.fail, "m1", {"code": "cancelled", "message": ""}, {}, True)
            proposal = Proposal("training", "methods", {"minutes": MINUTES}, "it has learned")
            await kernel.image.system(changes.propose, proposal, {"trigger": "expert_behind", "key": "", "words": "w"}, "m1")
            async with asyncio.timeout(1000):
                while await improver.step():
                    pass
            change = kernel.image.read(changes.of, 1)
            log = (tmp_path / "training" / "loop" / "training.log").read_text()
            prepared = change["comparison"]["prepared"]
            assert prepared["model"] == f"brick:method-writer-v{shipped + 1}", (change["reason"], log)
            assert prepared["figures"]["steps"] >= 1
            assert change["comparison"].get("trials") == 2, change["reason"]
            assert change["comparison"]["paid"]["inferences"] == 4
            folder = staging / prepared["folder"]
            if change["state"] == changes.PROMOTED:
                assert kernel.image.read(model_registry.speaks_methods) == prepared["model"]
                assert (read_about(folder / "expert.toml").version, read_about(folder / "expert.toml").on_choice) == (shipped + 1, True)
                await kernel.undoing.undo_change(1, "the test says so")
            else:
                assert change["state"] == changes.REFUSED
                assert not folder.exists()
            assert kernel.image.read(model_registry.speaks_methods) == old
            assert read_about(staging / "method-writer" / "expert.toml").version == shipped, "what is shipped is as it was"
        finally:
            await kernel.stop()
