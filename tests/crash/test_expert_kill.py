"""kill -9 of a daemon between any two steps of the building of an expert: the next start finds its way, and builds once."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from batos.bridge.client import connect
from batos.image import model_registry
from batos.testing import ScriptedOllama
from tests.support import daemon_child
from tests.support.crash import on_disk, thinned
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned
from tests.support.lora import stage

WEAVER = "babs:knowledge-weaver-v1"
AFTER_CREATE = ("after it is created", "after it is tried", "before it is recorded", "after it is recorded")
QUICK = {"lora_settle_s": 0, "lora_scan_s": 0.1}


def creates(server: ScriptedOllama) -> int:
    return sum(r.path == "/api/create" and r.body.get("model") == WEAVER for r in server.requests)


@pytest.mark.parametrize("point", thinned(daemon_child.EXPERT_POINTS))
def test_killed_between_any_two_steps(tmp_path: Path, point: str) -> None:
    stage(tmp_path / "lora_staging")
    with ScriptedOllama() as server:
        provisioned(server)
        process = Daemon(tmp_path, program=(daemon_child.__file__, point, "1"), ollama_host=server.host, **QUICK)
        assert process.ended(END_S) == -9
        known = on_disk(tmp_path, model_registry.describe_experts)
        assert [e["state"] for e in known] == ([] if point == "before it is intended" else ["intended"])
        assert all(not e["speaks"] for e in known)
        assert creates(server) == (1 if point in AFTER_CREATE else 0)
        with daemon(tmp_path, ollama_host=server.host, **QUICK) as running, Peer(running.endpoint) as peer:
            while (reply := peer.ask("experts", scan=True))["voices"]["babs"]["model"] != WEAVER:
                assert reply["type"] == "experts"
            (found,) = reply["experts"]
            assert (found["state"], found["speaks"], found["digest"]) == ("built", True, server.models[WEAVER].digest)
            assert creates(server) == 1, "built once, whatever was interrupted"
            assert running.terminate() == 0
    assert not list(tmp_path.glob("lora_scratch/*"))


@pytest.mark.long
def test_the_same_on_a_real_ollama(tmp_path: Path, ollama_host: str) -> None:
    """One life after the other, each killed one step later than the one before; the last one is let be."""
    name = f"killed-{uuid.uuid4().hex[:8]}"
    model = f"babs:{name}-v1"
    stage(tmp_path / "lora_staging", name=name)

    async def digest(*, remove: bool = False) -> str | None:
        async with connect(ollama_host) as client:
            found = {m.model: m.digest for m in (await client.list()).models}.get(model)
            if remove:
                await client.delete(model)
            return found

    made = None
    for point in ("after it is intended", "after it is uploaded", "after it is created", "after it is tried"):
        process = Daemon(tmp_path, program=(daemon_child.__file__, point, "1"), ollama_host=ollama_host, **QUICK)
        assert process.ended(END_S) == -9, point
        (known,) = on_disk(tmp_path, model_registry.describe_experts)
        assert (known["state"], known["speaks"]) == ("intended", False), point
        there = asyncio.run(digest())
        assert (there is not None) == (point in AFTER_CREATE), point
        assert made is None or there == made, "what was built stays as it is"
        made = there
    with daemon(tmp_path, ollama_host=ollama_host, **QUICK) as running, Peer(running.endpoint) as peer:
        (found,) = peer.ask("experts", scan=True)["experts"]
        assert (found["state"], found["speaks"], found["digest"]) == ("built", True, made)
        assert running.terminate() == 0
    assert asyncio.run(digest(remove=True)) == made
