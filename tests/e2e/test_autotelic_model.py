"""A model that its operator allows, from a real registry into a real Ollama: tried by real inferences, taken or not, and given back."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import zmq

from batos.autotelic import changes
from batos.autotelic.changes import Proposal
from batos.bridge.client import connect
from batos.image import LivingImage
from tests.support.crash import prepare
from tests.support.daemon import Peer, daemon
from tests.support.registry import registry

REAL: dict[str, Any] = {
    "remember": "off", "evidence_passages": 0, "num_predict": 16, "facets_limit": 1, "mission_attempts": 1, "structured_repairs": 0,
    "rehearsal_missions": 1, "rehearsal_least": 1,
}  # fmt: skip
LOOP: dict[str, Any] = {"autotelic": "on", "heartbeat_first_s": 3600, "senses_s": 0.5}
SLOW_S = 240  # for one step on a real model on a busy machine


async def push(host: str, name: str) -> None:
    async with connect(host) as client:
        await client.copy("smollm2:embedded", name)
        async for _ in await client.push(name, insecure=True, stream=True):
            pass
        await client.delete(name)


def there(host: str) -> set[str]:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{host}/api/tags", timeout=30) as reply:
        return {model["name"] for model in json.load(reply)["models"]}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_model_is_pulled_tried_by_real_inferences_and_decided_upon(tmp_path: Path, ollama_host: str) -> None:
    with registry(tmp_path / "registry") as server:
        name = f"127.0.0.1:{server.port}/batos/smollm2:tried"
        asyncio.run(push(ollama_host, name))
        assert name not in there(ollama_host)
        data = tmp_path / "data"
        with daemon(data, ollama_host=ollama_host, **REAL) as running, Peer(running.endpoint) as peer:
            peer.socket.setsockopt(zmq.RCVTIMEO, 1000 * SLOW_S)
            peer.send("submit", id="u1", brief="I feel stuck and I miss my friend", persona="robin", watch=True)
            assert peer.until_result()[-1]["state"] == "COMPLETE"
            assert running.terminate() == 0

        async def proposed(image: LivingImage) -> None:
            proposal = Proposal("model", "robin", name, "it may do better")
            await image.system(changes.propose, proposal, {"trigger": "missions_costly", "key": "", "words": "w"}, "u1")

        prepare(data, proposed)
        with daemon(data, ollama_host=ollama_host, autotelic_models=name, **REAL, **LOOP) as running:
            fetched = running.logged("model_fetched", SLOW_S)
            assert (fetched["model"], fetched["there"]) == (name, True)
            decided = running.logged(("promoted", "refused"), SLOW_S)
            with Peer(running.endpoint) as peer:
                [change] = peer.ask("changes", number=1)["changes"]
                told = change["comparison"]
                assert told["prepared"] == {"model": name, "bytes": fetched["bytes"], "there": True}
                assert told["missions"] == 1, change["reason"]
                assert told["paid"]["inferences"] >= 1, "the journal is of another model"
                assert told["changed"]["seconds"] > 0
                if decided["event"] == "promoted":
                    assert peer.ask("undo_change", number=1)["objects"]
                else:
                    assert name not in there(ollama_host), "what is not taken is not kept"
                assert peer.ask("show", target="robin")["slots"]["model"] == "robin"
            assert running.terminate() == 0
        assert running.noise == []
        if name in there(ollama_host):
            asyncio.run(forget(ollama_host, name))


async def forget(host: str, name: str) -> None:
    async with connect(host) as client:
        await client.delete(name)
