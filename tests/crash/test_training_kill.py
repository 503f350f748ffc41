"""kill -9 between any two steps of a training of the loop: the old expert writes, or the new one; the next start brings it to its end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import changes
from batos.autotelic.changes import Proposal
from batos.forge import method_prompts
from batos.image import LivingImage, model_registry
from batos.synthesis.handbook import handbook
from batos.testing import ScriptedOllama
from batos.testing.script import default_answer, user_text
from batos.training.dataset import generate
from tests.support import daemon_child
from tests.support.crash import on_disk, prepare, provision, thinned
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned
from tests.support.lora import stage

OLD, NEW, FOLDER = "brick:method-writer-v1", "brick:method-writer-v2", "method-writer-change-1"
QUICK: dict[str, Any] = {
    "autotelic": "on", "heartbeat_first_s": 3600, "senses_s": 0.05, "leash_s": 1e6, "crash_limit": 100, "rehearsal_least": 1,
    "rehearsal_tasks": 2, "loop_training_minutes": 100, "evidence_passages": 0, "remember": "off", "lora_settle_s": 0,
}  # fmt: skip
TASKS = {task.prompt(example=True, book=handbook()): task.source for task in generate("validation", 1, each=1)}
ADD = "def add_(self, number, number2):\n    return number + number2\n"
REFUSING = ("before it is done away with", "after its folder is gone", "after it is done away with")


class Model(ScriptedOllama):
    """An Ollama whose new expert is right of tasks of which the old one is not, unless it is `worse`."""

    worse = False

    def __enter__(self) -> Model:
        super().__enter__()
        provisioned(self)
        self.say(self._answer)
        return self

    def _answer(self, request: dict[str, Any]) -> str:
        if not any(message["content"] == method_prompts.COMPACT_SYSTEM for message in request.get("messages", ())):
            return default_answer(request)
        asked = user_text(request)
        if asked.rpartition("\n\n")[2].startswith("def add_("):  # before it stands what the handbook has
            return ADD
        return TASKS[asked] if request["model"] == NEW and not self.worse else "def wrong_(self):\n    return None\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Model]:
    with Model() as server:
        yield server


async def proposed(image: LivingImage) -> None:
    proposal = Proposal("training", "methods", {"minutes": 1}, "it has learned")
    await image.system(changes.propose, proposal, {"trigger": "expert_behind", "key": "", "words": "w"}, "m1")


@pytest.fixture(scope="module")
def home_of(server: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a daemon whose expert has written a method, and which is to train it."""
    folder = tmp_path_factory.mktemp("before")
    provision(folder, server)
    stage(folder / "lora_staging", "method-writer", persona="brick", name="method-writer", version=1, role="methods")
    with daemon(folder, ollama_host=server.host, **{**QUICK, "autotelic": "off"}) as running, Peer(running.endpoint) as peer:
        while not any(one["state"] == "built" for one in peer.ask("experts", scan=True)["experts"]):
            time.sleep(0.05)
        assert peer.ask("send", id="m1", target="robin", selector="add_", args=[2, 3])["type"] == "accepted"
        assert peer.result("m1")["result"]["value"] == 5
        assert running.terminate() == 0
    prepare(folder, proposed)
    return folder


def standing(root: Any) -> tuple[str, str]:
    """What the record of the change says, and who writes."""
    return changes.of(root, 1)["state"], model_registry.speaks_methods(root)


def begun(home_of: Path, tmp_path: Path, server: Model) -> Path:
    server.models.pop(NEW, None)
    return Path(shutil.copytree(home_of, tmp_path / "data", ignore=shutil.ignore_patterns("*.lock")))


@pytest.mark.long
@pytest.mark.parametrize("point", thinned([point for point in daemon_child.TRAINING_POINTS if point != "never"], 3))
def test_killed_between_any_two_steps_of_a_training(home_of: Path, tmp_path: Path, server: Model, point: str) -> None:
    folder, server.worse = begun(home_of, tmp_path, server), point in REFUSING
    process = Daemon(folder, program=(daemon_child.__file__, point, "2" if "chosen" in point else "1"), ollama_host=server.host, **QUICK)
    assert process.ended(END_S) == -9, process.noise
    state, writes = on_disk(folder, standing)
    assert (state, writes) == (changes.PROPOSED, OLD), "nothing is half done"
    again = Daemon(folder, program=(daemon_child.__file__, "never", "1"), ollama_host=server.host, **QUICK)
    try:
        again.started().logged("refused" if server.worse else "promoted")
        assert again.terminate() == 0
    finally:
        if again.process.poll() is None:
            again.kill()
    expected = (changes.REFUSED, OLD) if server.worse else (changes.PROMOTED, NEW)
    assert on_disk(folder, standing) == expected
    assert {path.name for path in (folder / "lora_staging").iterdir()} == {"method-writer"} | ({FOLDER} if not server.worse else set())
    assert (NEW in server.models) == (not server.worse)
    assert again.noise == []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # it is gone, perhaps since the file was opened
        return False


def test_a_child_that_trains_ends_with_its_daemon(home_of: Path, tmp_path: Path, server: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, server.worse = begun(home_of, tmp_path, server), False
    monkeypatch.setenv("TRAINER", "stays")
    running = Daemon(folder, program=(daemon_child.__file__, "never", "1"), ollama_host=server.host, **QUICK)
    running.started().logged("training_begins")
    file = folder / "training" / "loop" / "pid"
    deadline = time.monotonic() + END_S
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.kill()
    pid = int(file.read_text())
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert on_disk(folder, standing) == (changes.PROPOSED, OLD)
    assert os.listdir(folder / "lora_staging") == ["method-writer"]
