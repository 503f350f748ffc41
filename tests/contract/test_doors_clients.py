"""Real chat clients at the doors of a whole daemon: openai-python, ollama-python, llm, LiteLLM, two of Node
(`make chat-clients`), curl; and a real Ollama."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from batos.console.access import token_of
from batos.testing import ScriptedOllama
from tests.support.daemon import END_S, ROOT, Peer, daemon, provisioned

CLIENTS = ROOT / "build" / "clients" / "bin" / "python"
ANSWER = "A cup of mint tea, since it has no caffeine and lets you sleep."
DOORS: dict[str, Any] = {"doors.enabled": "on", "doors.listen": "127.0.0.1:0"}
NODE = ROOT / "build" / "clients" / "npm"
needs_clients = pytest.mark.skipif(
    not (ROOT / "build" / "clients" / ".python").exists(), reason="`make chat-clients` did not install those of Python"
)
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (ROOT / "build" / "clients" / ".made").exists(),
    reason="there is no node, or `make chat-clients` did not install the clients of Node",
)


class Place(NamedTuple):
    """A daemon's doors, and the Ollama behind it."""

    address: str
    token: str
    peer: Peer
    server: ScriptedOllama


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("doors")
    with ScriptedOllama() as server:
        provisioned(server).say(lambda request: '{"tea": "mint"}' if request.get("format") else ANSWER)
        with daemon(folder, ollama_host=server.host, depth="direct", **DOORS) as running, Peer(running.endpoint) as peer:
            yield Place(peer.ask("info")["doors"], token_of(folder), peer, server)


def told_by(client: str, place: Place) -> dict[str, Any]:
    command = [CLIENTS, ROOT / "tests" / "support" / "chat_clients.py", client, place.address, place.token]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * END_S)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_clients
def test_openai_python(place: Place) -> None:
    told = told_by("openai", place)
    assert {"batos", "batos:plain", "batos:robin"} <= set(told["models"])
    assert told["whole"] == told["streamed"] == told["helper"] == ANSWER
    assert "SYNTHESIZING" in told["thought"]
    assert told["live"] == ANSWER
    assert told["usage"] == told["tokens"] > 0
    assert told["vectors"][0] == told["vectors"][1] > 1
    assert (told["embed_tokens"], told["packed"] < 1e-6) == (2, True), "base64, which the client asks for by itself, is the same vector"
    assert json.loads(told["value"]) == {"tea": "mint"}
    assert (told["missing"], told["stranger"]) == ([404, "model_not_found"], [401, "invalid_api_key"])
    rows = {one["id"]: one for one in place.peer.ask("missions")["missions"]}
    assert rows[told["followed"]]["context"] in rows, "the next turn follows the mission before"
    assert len({told["followed"], *told["again"]}) == 3, "who asks anew wants another answer"


@needs_clients
def test_openai_python_responses(place: Place) -> None:
    told = told_by("responses", place)
    assert told["whole"] == told["streamed"] == told["helper"] == told["snapshot"] == told["retrieved"] == told["replayed"] == ANSWER
    assert (told["status"], told["cancelled"], told["unknown"]) == ("completed", "completed", [])
    assert told["types"] == ["reasoning", "message"]
    assert (told["events"][0], told["events"][-1]) == ("response.created", "response.completed")
    assert told["tokens"] > 0
    assert told["parsed"] == "mint"
    rows = {one["id"]: one for one in place.peer.ask("missions")["missions"]}
    assert f"resp_{rows[told['followed']]['context']}" == told["first"] == told["before"]
    assert told["missing"] == [404, "unknown_mission"]
    assert "input_file" in told["refused"]


@needs_clients
def test_ollama_python(place: Place) -> None:
    told = told_by("ollama", place)
    assert "batos:latest" in told["models"]
    assert told["loaded"] == told["in_path"] == len(told["models"])
    assert {"completion", "tools"} <= set(told["capabilities"])
    assert told["whole"] == told["streamed"] == told["generated"] == ANSWER
    assert told["vectors"] == [told["embedding"]] * 2
    assert told["embed_tokens"] == 2
    assert (told["done"], told["missing"], told["stranger"]) == ("stop", 404, 401)


def missions(place: Place) -> set[str]:
    return {one["id"] for one in place.peer.ask("missions")["missions"]}


@needs_clients
def test_litellm(place: Place) -> None:
    before = missions(place)
    told = told_by("litellm", place)
    assert told == {"openai": [ANSWER, ANSWER], "ollama": [ANSWER, ANSWER]}
    assert len(missions(place) - before) == 3, "by OpenAI's interface it counts its tries, so asked again is another turn; by Ollama's not"


@needs_clients
def test_llm_as_it_is_printed(place: Place, tmp_path: Path) -> None:
    models = f"- model_id: batos\n  model_name: batos\n  api_base: {place.address}/v1\n  api_key_name: batos\n"
    (tmp_path / "extra-openai-models.yaml").write_text(models)
    program = CLIENTS.parent / "llm"
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path)}

    def llm(*words: str, given: str | None = None) -> str:
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=4 * END_S, env=environment, input=given)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    llm("keys", "set", "batos", "--value", place.token)
    before = missions(place)
    assert llm("-m", "batos", "An idea for a name of a boat", given="") == ANSWER
    assert llm("-m", "batos", "An idea for a name of a boat", given="") == ANSWER
    ideas = missions(place) - before
    assert len(ideas) == 2, "asked twice, it is two turns"
    assert llm("-c", "And for its dinghy?", given="") == ANSWER
    (followed,) = missions(place) - before - ideas
    assert place.peer.ask("status", id=followed)["context"] in ideas
    environment |= {"OLLAMA_HOST": f"{place.address.replace('//', f'//batos:{place.token}@')}"}
    assert llm("-m", "ollama/batos", "--no-stream", "A name for a tender", given="") == ANSWER


@needs_node
def test_node(place: Place) -> None:
    program = NODE / "chat_clients.mjs"  # Node looks for packages beside the program
    shutil.copyfile(ROOT / "tests" / "support" / "chat_clients.mjs", program)
    done = subprocess.run(["node", program, place.address, place.token], capture_output=True, text=True, timeout=4 * END_S)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {"batos", "batos:plain"} <= set(told["models"])
    assert told["whole"] == told["streamed"] == told["generated"] == told["texts"] == ANSWER
    assert "SYNTHESIZING" in told["thought"]
    assert told["tokens"] > 0
    assert told["missing"] == [404, "model_not_found"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_as_it_is_printed(place: Place) -> None:
    command = [
        "curl", "-sS", f"{place.address}/v1/chat/completions", "-H", f"Authorization: Bearer {place.token}",
        "-H", "Content-Type: application/json",
        "-d", '{"model": "batos", "messages": [{"role": "user", "content": "What do I drink at night?"}]}',
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == ANSWER


@pytest.mark.timeout(300)
def test_a_turn_and_a_plain_one_on_a_real_ollama(tmp_path: Path, ollama_host: str) -> None:
    import httpx

    with daemon(tmp_path, ollama_host=ollama_host, depth="direct", **DOORS) as running, Peer(running.endpoint) as peer:
        headers = {"Authorization": f"Bearer {token_of(tmp_path)}"}
        with httpx.Client(base_url=peer.ask("info")["doors"], headers=headers, timeout=120) as client:
            for model in ("batos", "batos:plain"):
                body = {"model": model, "messages": [{"role": "user", "content": "Name one colour of the sky."}], "stream": True}
                lines = [line for line in client.post("/v1/chat/completions", json=body).text.splitlines() if line.startswith("data: ")]
                assert lines[-1] == "data: [DONE]"
                found = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
                assert "".join(one["choices"][0]["delta"].get("content") or "" for one in found).strip()
            given = {"model": "minilm:embedded", "input": ["a cup of tea", "a mug of coffee"]}
            ours = client.post("/v1/embeddings", json=given).json()
            theirs = httpx.post(f"http://{ollama_host}/v1/embeddings", json=given, timeout=120).json()
            assert ours["usage"] == theirs["usage"]
            for mine, its in zip(ours["data"], theirs["data"], strict=True):
                assert mine["embedding"] == pytest.approx(its["embedding"], abs=1e-5)
            response = client.post("/v1/responses", json={"model": "batos:babs", "input": "Name one colour of the sea."}).json()
            assert (response["status"], response["output"][-1]["type"]) == ("completed", "message")
            assert response["usage"]["output_tokens"] > 0
