"""kill -9 between any two steps from the watch of a change to its undo: all of it is done, or nothing, and the next start goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import changes, schema
from batos.config import Settings
from batos.image import LivingImage, history, ledger
from batos.image.transaction_undo import UNDO
from batos.objects import Intent
from batos.testing import ScriptedOllama
from tests.support import daemon_child
from tests.support.autonomy import EVIDENCE, Proposal, ended
from tests.support.crash import on_disk, prepare, provision, thinned
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned

QUICK = {"autotelic": "on", "heartbeat_first_s": 3600, "senses_s": 0.05, "crash_limit": 100, "leash_missions": 4, "leash_s": 1}
DURABLE = ("after its commit, before its sync", "before searches hear of it")
FACET = Intent("Think of what would surprise.")


async def harmful(image: LivingImage) -> None:
    """A change whose watch is over, with what it did to missions."""
    for n in range(8):
        await ended(image, f"before{n}")
    number = await image.system(changes.propose, Proposal(), EVIDENCE, "")
    async with image.unit() as unit:
        unit.root["lobby"].robin.surprise_facet_ = FACET
        changes.promote(unit.root, number, {})
        unit.note(changes.name_of(number), changes.NOTE)
    for n in range(8):
        await ended(image, f"after{n}", state="internal")

    def long_ago(root: Any) -> None:
        changes.record_of(root, number).decided -= 3600
        for n in range(8):
            ledger.mission_of(root, f"before{n}").finished -= 7200

    await image.system(long_ago)


async def deadly(image: LivingImage) -> None:
    """A change under whose watch a daemon died."""
    await harmful(image)

    def dead(root: Any) -> None:
        schema.part_of(root, "leash").change, schema.part_of(root, "leash").running = 1, True

    await image.system(dead)


def standing(root: Any) -> tuple[str, bool, int]:
    """What the record says, whether the facet is there, how often it was undone."""
    robin = root["lobby"].robin
    undone = sum(one["mission"] == UNDO + "change:1" for one in history.revisions(root._p_jar.db(), robin._p_oid, 100))
    return changes.of(root, 1)["state"], "surprise_facet_" in robin._slots, undone


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        yield provisioned(server)


@pytest.fixture(scope="module")
def home_of(server: ScriptedOllama, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a daemon that was there before."""
    folder = tmp_path_factory.mktemp("before")
    provision(folder, server)
    return folder


@pytest.fixture
def folder(home_of: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(home_of, tmp_path / "data", ignore=shutil.ignore_patterns("*.lock")))


@pytest.mark.parametrize("point", thinned(daemon_child.LEASH_POINTS))
def test_killed_between_any_two_steps_from_the_watch_to_the_undo(folder: Path, server: ScriptedOllama, point: str) -> None:
    prepare(folder, harmful)
    process = Daemon(folder, program=(daemon_child.__file__, point, "1"), ollama_host=server.host, **QUICK)
    assert process.ended(END_S) == -9, process.noise
    done = point in DURABLE
    assert on_disk(folder, standing) == ((changes.UNDONE, False, 1) if done else (changes.PROMOTED, True, 0)), "all of it, or nothing"
    with daemon(folder, ollama_host=server.host, **QUICK) as running, Peer(running.endpoint) as peer:
        if not done:
            running.logged("change_taken_back", state=changes.UNDONE)
        told = peer.ask("info")["autotelic"]["leash"]
        assert (told["watched"], told["last"]["number"], told["last"]["state"]) == (None, 1, changes.UNDONE)
        assert running.terminate() == 0
    assert on_disk(folder, standing) == (changes.UNDONE, False, 1)


@pytest.mark.parametrize("point", thinned(["before its record is written", "before its commit", *DURABLE]))
def test_killed_between_any_two_steps_of_disabling_it(folder: Path, server: ScriptedOllama, point: str) -> None:
    quick = {**QUICK, "crash_limit": 1, "senses_s": 3600}
    prepare(folder, deadly)
    process = Daemon(folder, program=(daemon_child.__file__, point, "1"), ollama_host=server.host, **quick)
    assert process.ended(END_S) == -9, process.noise
    assert not any(line.get("event") == "started" for line in process.log), "it is taken back before missions are let in"
    done = point in DURABLE
    assert on_disk(folder, standing) == ((changes.DISABLED, False, 1) if done else (changes.PROMOTED, True, 0))
    with daemon(folder, ollama_host=server.host, **quick) as running, Peer(running.endpoint) as peer:
        assert peer.ask("info")["autotelic"]["leash"]["last"]["state"] == changes.DISABLED
        assert running.terminate() == 0
    assert on_disk(folder, standing) == (changes.DISABLED, False, 1)


def test_a_crash_loop_disables_the_last_change_not_the_daemon(folder: Path, server: ScriptedOllama) -> None:
    """After as many deaths as leave the missions that saw them an attempt without the change."""
    quick = {**QUICK, "crash_limit": Settings().crash_limit, "senses_s": 3600}
    prepare(folder, harmful)
    for life in range(3):
        with daemon(folder, ollama_host=server.host, **quick) as running, Peer(running.endpoint) as peer:
            told = peer.ask("info")["autotelic"]["leash"]
            if life < 2:
                assert (told["watched"]["number"], told["deaths"]) == (1, life)
                peer.ask("submit", id=f"m{life}", brief="I feel stuck")
                running.kill()
                continue
            assert told["watched"] is None
            assert (told["last"]["state"], told["last"]["reason"]) == (changes.DISABLED, "the daemon died 2 times since it was made")
            order = [line["event"] for line in running.log if line["event"] in ("change_disabled", "started")]
            assert order == ["change_disabled", "started"]
            for number in range(2):
                assert peer.result(f"m{number}")["state"] == "COMPLETE", "what was accepted goes on, without the change"
            assert running.terminate() == 0
    assert on_disk(folder, standing) == (changes.DISABLED, False, 1)
