"""The verb `drain` at daemons: one of two kernels on PostgreSQL leaves its work to the other, and one with an image of its own keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batos.testing import ScriptedOllama
from tests.support.daemon import Daemon, Peer, batos, daemon
from tests.support.servers import Postgres, postgres  # noqa: F401


def test_a_drained_kernel_ends_what_it_has_and_the_other_leads(
    tmp_path: Path,
    scripted: ScriptedOllama,
    postgres: Postgres,  # noqa: F811
) -> None:
    many: dict[str, Any] = {
        "ollama_host": scripted.host,
        "image.uri": postgres.image(),
        "image.kernels": "many",
        "image.kernel_name": "k",
        "shutdown_s": 30,
    }
    with daemon(tmp_path / "a", **many) as one, daemon(tmp_path / "b", **many) as other, Peer(other.endpoint) as peer:
        given = [f"m{n}" for n in range(6)]
        with Peer(one.endpoint) as asked:
            for id in given:
                assert asked.ask("submit", id=id, brief=f"What is in garden {id}?")["type"] == "accepted"
        code, told = batos(one, "drain", "--wait")
        assert (code, told["type"], told["name"], told["stopped"]) == (0, "drain", "k.1", True)
        assert one.ended() == 0
        for id in given:
            assert peer.result(id)["state"] == "COMPLETE"
            assert peer.ask("status", id=id)["attempts"] == 1
        assert other.logged("lead_taken")["kernel"] == "k.2"
        assert not [line for line in one.log if line.get("level") in ("error", "critical")]
        assert stops(other) == 0


def stops(running: Daemon) -> int:
    """Drain a daemon without waiting for it; its exit code."""
    code, told = batos(running, "drain")
    assert (code, told["stopped"]) == (0, False)
    return running.ended()


def test_a_daemon_with_an_image_of_its_own_is_drained_to_its_next_start(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host, shutdown_s=30) as running, Peer(running.endpoint) as peer:
        for n in range(3):
            peer.ask("submit", id=f"m{n}", brief=f"What is in garden {n}?")
        assert stops(running) == 0
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        assert [peer.result(f"m{n}")["state"] for n in range(3)] == ["COMPLETE"] * 3
        assert [peer.ask("status", id=f"m{n}")["attempts"] for n in range(3)] == [1, 1, 1]
