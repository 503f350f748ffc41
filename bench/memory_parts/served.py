"""The embedded profile's embedder on an Ollama of the bench's own, or on the one that OLLAMA_HOST names."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator

from batos.bridge.client import OllamaInference, connect
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.bridge.service import OllamaService
from batos.config import load


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[OllamaInference, str]]:
    """What asks it, and the model's name."""
    profile = load_profile("embedded")
    with tempfile.TemporaryDirectory(prefix="batos-bench-") as folder:
        service = OllamaService(load({"data": folder}))
        host = await service.start()
        inference = OllamaInference(host)
        try:
            async with connect(host) as client:
                await Provisioner(client, profile, modelfiles_folder()).ensure()
            yield inference, profile.embedder
        finally:
            await inference.close()
            await service.stop()
