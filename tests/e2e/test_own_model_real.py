"""Whole missions on models of a user's own Ollama, a real one: their weights are made here, so that it is known what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemon import Peer, daemon
from tests.support.tiny_models import created

QUICK = {"facets_limit": 1, "mission_attempts": 1}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["qwen3-parsed", "gpt-oss", "gemma3"])
def test_a_mission_on_a_model_of_ones_own(kind: str, tmp_path: Path, ollama_host: str) -> None:
    """One that cannot be silenced, with a parser of Ollama's; one that speaks in channels; one that neither thinks nor has tools."""
    with created(ollama_host, tmp_path, [kind]) as names:
        given = {"ollama_host": ollama_host, "model": names[kind], "num_thread": 1, **QUICK}
        with daemon(tmp_path / "data", **given) as running, Peer(running.endpoint) as peer:
            peer.send("submit", id="own", brief="Say hello to my cat", persona="robin", flavour="full", watch=True)
            end = peer.until_result()[-1]
            assert end["state"] == "COMPLETE", end
            assert "Hello there" in end["result"]["text"]
            for leaked in ("hm", "</think>", "<|channel|>", "<|message|>"):
                assert leaked not in end["result"]["text"]
            assert all(model.startswith("batos/robin:tiny-") for model in end["result"]["usage"]["models"])
            peer.send("info", ref="info")
            info = peer.reply()
            assert (info["profile"], info["model"]) == ("own", names[kind])
            assert running.terminate() == 0
        assert running.noise == []
