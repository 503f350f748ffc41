"""Tests of a program that uses BAT OS: a real daemon in a process of its own, and a model that says what the test wants.

    pytest examples/test_my_agent.py

Copy this file beside your own program. It needs no Ollama and no model.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batos.errors import MissionFailed
from batos.testing import DaemonProcess, ScriptedOllama
from batos.wire import SyncClient

MODEL = "qwen3:8b"  # a name, and no weights: the script answers for it


def planned(batos: SyncClient, guest: str) -> str:
    """Return a plan: the program under test. The id makes a second call the same mission."""
    mission = batos.submit(f"Plan a birthday party for {guest}", id=f"party-{guest}", depth="direct")
    return str(batos.result(mission.id)["text"])


@pytest.fixture(scope="module")
def ollama() -> Iterator[ScriptedOllama]:
    with ScriptedOllama([MODEL]) as server:
        yield server


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, ollama: ScriptedOllama) -> Iterator[DaemonProcess]:
    folder: Path = tmp_path_factory.mktemp("batos")
    with DaemonProcess(folder, ollama.host, model=MODEL) as process:
        yield process


@pytest.fixture
def batos(daemon: DaemonProcess) -> Iterator[SyncClient]:
    with SyncClient(daemon.endpoint) as client:
        yield client


def test_the_plan_is_what_the_model_says(batos: SyncClient, ollama: ScriptedOllama) -> None:
    ollama.say("Bake a cake for Ada.", when="party for Ada")
    assert planned(batos, "Ada") == "Bake a cake for Ada."


def test_a_second_call_asks_no_model(batos: SyncClient, ollama: ScriptedOllama) -> None:
    ollama.say("Light a lantern for Bob.", when="party for Bob")
    first = planned(batos, "Bob")
    asked = len(ollama.chats)
    assert planned(batos, "Bob") == first
    assert len(ollama.chats) == asked


def test_a_plan_survives_a_kill_in_the_middle(batos: SyncClient, ollama: ScriptedOllama, daemon: DaemonProcess) -> None:
    ollama.say("Sing for Eve.", when="party for Eve")
    ollama.hold()  # chats wait before their first token
    asked = ollama.counts["/api/chat"]
    mission = batos.submit("Plan a birthday party for Eve", id="party-Eve", depth="direct")
    ollama.wait_for("/api/chat", asked + 1)  # the mission is being thought about now
    daemon.kill()
    ollama.release()
    daemon.start()
    assert batos.result(mission.id)["text"] == "Sing for Eve."


def test_a_model_that_fails_is_an_error_that_says_so(batos: SyncClient, ollama: ScriptedOllama) -> None:
    ollama.fail("junk", when="party for Mallory", times=None)  # an answer that is not JSON
    with pytest.raises(MissionFailed) as failed:
        planned(batos, "Mallory")
    assert failed.value.context["code"] == "inference_failed"
