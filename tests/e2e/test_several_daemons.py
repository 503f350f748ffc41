"""Two daemons on one PostgreSQL, as their users meet them: given a mission at one, watched at the other, killed, and looked at."""

from __future__ import annotations

import asyncio
from pathlib import Path

from batos.config import Settings
from batos.doctor.kernels import kernels
from batos.testing import ScriptedOllama
from tests.support.daemon import Peer, batos, daemon, until
from tests.support.servers import Postgres, postgres  # noqa: F401


def test_two_daemons_answer_for_each_other_and_one_goes_on_when_the_other_is_killed(
    tmp_path: Path,
    scripted: ScriptedOllama,
    postgres: Postgres,  # noqa: F811
) -> None:
    settings = {"ollama_host": scripted.host, "image.uri": postgres.image(), "image.kernels": "many"}
    with (
        daemon(tmp_path / "a", **settings, **{"image.kernel_name": "alder"}) as first,
        daemon(tmp_path / "b", **settings, **{"image.kernel_name": "beech"}) as second,
        Peer(first.endpoint) as one,
        Peer(second.endpoint) as other,
    ):
        scripted.hold()
        assert one.ask("submit", id="m1", brief="Plan the day", persona="robin")["type"] == "accepted"
        until(lambda: scripted.chats)
        until(lambda: other.ask("status", id="m1").get("running"))
        assert other.ask("status", id="m1")["kernel"] == "alder.1"
        other.send("watch", id="m1")
        assert other.reply()["type"] == "status"
        with Peer(second.endpoint) as looking:
            until(lambda: looking.ask("info")["kernel"]["relayed"]["missions"] == 1)
        scripted.release()
        events = other.until_result()
        assert {"state", "token", "result"} == {event["type"] for event in events}
        assert events[-1]["state"] == "COMPLETE"
        assert events[-1]["result"] == one.result("m1")["result"]
        assert batos(second, "status", "m1")[1]["kernel"] == "alder.1"

        scripted.hold()
        asked = len(scripted.chats)
        assert one.ask("submit", id="m2", brief="Plan the evening", persona="robin")["type"] == "accepted"
        until(lambda: len(scripted.chats) > asked)
        until(lambda: batos(second, "kernels")[1]["kernels"][0]["missions"] == 1)
        first.kill()
        scripted.release()
        assert other.result("m2")["state"] == "COMPLETE"
        assert other.ask("status", id="m2")["kernel"] == "beech.2"

        def stand() -> list[tuple[str, str, int]]:
            return [(k["name"], k["state"], k["missions"]) for k in batos(second, "kernels")[1]["kernels"]]

        until(lambda: stand() == [("alder.1", "gone", 0), ("beech.2", "leads", 0)])  # as of its last look
        code, told = batos(second, "kernels")
        assert code == 0
        assert told["name"] == "beech.2"
        assert told["kernels"][0]["gone"] == "silent"
        (check,) = asyncio.run(kernels(Settings(), second.endpoint))
        assert (check.state, check.finding) == ("ok", "1 kernel serves the image; beech.2 leads")
