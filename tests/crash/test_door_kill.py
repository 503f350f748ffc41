"""A daemon that is killed in the middle of a streamed turn: a retry gets the same mission's answer, and nothing is paid twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.console.access import token_of
from batos.testing import ScriptedOllama
from tests.support.daemon import Peer, daemon, provisioned
from tests.support.servers import free_port

BODY = {"model": "batos", "messages": [{"role": "user", "content": "Plan a quiet evening for two"}]}


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "evening"}])
def test_a_retry_after_a_kill_is_the_same_mission(tmp_path: Path, scripted: ScriptedOllama, headers: dict[str, str]) -> None:
    provisioned(scripted)
    given: dict[str, Any] = {"doors.enabled": "on", "doors.listen": f"127.0.0.1:{free_port()}", "depth": "facets", "remember": "off"}
    address = f"http://{given['doors.listen']}"
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host, **given) as running:
        headers = {**headers, "Authorization": f"Bearer {token_of(tmp_path)}"}
        with httpx.stream("POST", f"{address}/v1/chat/completions", json={**BODY, "stream": True}, headers=headers, timeout=60) as reply:
            mission = reply.headers["x-batos-mission"]
            scripted.wait_for("/api/chat")
            running.kill()
            with pytest.raises(httpx.HTTPError):
                reply.read()
    begun = len(scripted.chats)
    scripted.release()
    with daemon(tmp_path, ollama_host=scripted.host, **given) as running, Peer(running.endpoint) as peer:
        again = httpx.post(f"{address}/v1/chat/completions", json=BODY, headers=headers, timeout=60)
        assert (again.status_code, again.headers["x-batos-mission"]) == (200, mission)
        text = again.json()["choices"][0]["message"]["content"]
        assert text
        assert [one["id"] for one in peer.ask("missions", system=False)["missions"]] == [mission]
        asked = [str(one["messages"]) for one in scripted.chats[begun:]]
        assert len(set(asked)) == len(asked), "no inference was asked for twice"
        running.kill()
    paid = len(scripted.chats)
    with daemon(tmp_path, ollama_host=scripted.host, **given):
        last = httpx.post(f"{address}/v1/chat/completions", json=BODY, headers=headers, timeout=60)
        assert last.json()["choices"][0]["message"]["content"] == text
    assert len(scripted.chats) == paid, "what was answered is answered from its mission"


def test_a_response_goes_on_after_a_kill(tmp_path: Path, scripted: ScriptedOllama) -> None:
    """Its client asks for it by its id, or sends it again; the next turn that names it waits for it."""
    provisioned(scripted)
    given: dict[str, Any] = {"doors.enabled": "on", "doors.listen": f"127.0.0.1:{free_port()}", "depth": "facets", "remember": "off"}
    address, asked = f"http://{given['doors.listen']}/v1/responses", {"model": "batos", "input": "Plan a quiet evening for two"}
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host, **given) as running:
        headers = {"Authorization": f"Bearer {token_of(tmp_path)}", "x-stainless-retry-count": "0"}
        with httpx.stream("POST", address, json={**asked, "stream": True}, headers=headers, timeout=60) as reply:
            mission = reply.headers["x-batos-mission"]
            scripted.wait_for("/api/chat")
            running.kill()
            with pytest.raises(httpx.HTTPError):
                reply.read()
    begun = len(scripted.chats)
    scripted.release()
    with daemon(tmp_path, ollama_host=scripted.host, **given) as running, Peer(running.endpoint) as peer:
        follow = {"model": "batos", "input": "And for three?", "previous_response_id": f"resp_{mission}"}
        after = httpx.post(address, json=follow, headers=headers, timeout=60).json()
        known = httpx.get(f"{address}/resp_{mission}", headers=headers, timeout=60).json()
        again = httpx.post(address, json=asked, headers=headers, timeout=60).json()
        assert again["id"] == known["id"] == f"resp_{mission}", "nobody heard it to its end: it is not made twice"
        assert again["output"][-1] == known["output"][-1]
        rows = {one["id"]: one for one in peer.ask("missions", system=False)["missions"]}
        assert rows[after["id"].removeprefix("resp_")]["context"] == mission
        assert len(rows) == 2
        sent = [str(one["messages"]) for one in scripted.chats[begun:]]
        assert len(set(sent)) == len(sent), "no inference was asked for twice"
