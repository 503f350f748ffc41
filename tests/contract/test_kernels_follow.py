"""The kernel that leads hears of what was asked of another one: schedules, watched folders, channels of notices; and who paid is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.console.api_client import Asker
from batos.image import ledger, notices
from batos.image.effects import DONE
from batos.image.notice_channels import END, PROGRAM, ChannelSpec
from batos.memory.ingest import IngestLimits
from batos.notices.courier import NoticeLimits
from batos.schedules import book
from tests.support.kernels import daemon, until
from tests.support.missions import FakeInference, submit
from tests.support.servers import Postgres, postgres  # noqa: F401

QUICK: dict[str, Any] = {"limits": (NoticeLimits(gather_s=0.0), IngestLimits(watch_s=0.05))}


def missions(kernel: Kernel, beginning: str) -> list[str]:
    """The states of the missions whose ids begin so."""
    return kernel.image.read(lambda root: [one.state for one in ledger.newest_first(root) if one.id.startswith(beginning)])  # type: ignore[no-any-return]


def is_complete(kernel: Kernel, beginning: str, count: int = 1) -> bool:
    return missions(kernel, beginning) == ["COMPLETE"] * count


async def test_the_leader_takes_up_what_was_asked_of_another_kernel(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri, place = postgres.image(), tmp_path / "inbox"
    place.mkdir()
    async with daemon(tmp_path, uri, FakeInference(), "a", **QUICK) as leader:
        await until(lambda: leader.membership.leads, "a leader")
        async with daemon(tmp_path, uri, FakeInference(), "b", **QUICK) as other:
            asker = Asker(other.transport.dispatcher, other.settings)
            await other.image.system(notices.add_channel, ChannelSpec("door", PROGRAM, "true", on=(END,)), time.time())
            soon = book.ScheduleSpec("soon", "soon", f"at {int(time.time()) + 2}", "UTC", "robin, water the plants")
            await other.image.system(book.add, soon, time.time())
            await until(lambda: is_complete(leader, "schedule-soon-"), "the mission of the schedule")
            await until(lambda: [one.state for one in other.image.read(notices.messages)] == [DONE], "the notice")

            led = Asker(leader.transport.dispatcher, leader.settings)
            await led.ask("folder_add", name="inbox", folder=str(place), brief="robin, sum this up")
            (place / "letter.md").write_text("Dear all, it rains.")
            await until(lambda: is_complete(leader, "folder-inbox-"), "the mission of the file")
            await asker.ask("folder_pause", name="inbox")
            (place / "other.md").write_text("Dear all, it snows.")
            await until(lambda: leader.memory.collection.view().n >= 2, "the file in memory")
            assert is_complete(leader, "folder-inbox-"), "it rests"
            await asker.ask("folder_resume", name="inbox")
            await until(lambda: is_complete(leader, "folder-inbox-", 2), "the mission of the other file")

            await asker.ask("schedule_add", name="later", when="every day at 8", brief="robin, greet the day")
            alarm = leader.transport.schedules.made
            assert alarm is not None
            await until(lambda: "later" in alarm.planned, "the plan")
            await asker.ask("schedule_pause", name="later")
            await until(lambda: "later" not in alarm.planned, "the pause")


async def test_each_kernel_tells_what_it_paid_itself(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri, own, others = postgres.image(), FakeInference(), FakeInference()
    async with daemon(tmp_path, uri, own, "a") as one, daemon(tmp_path, uri, others, "b") as other:
        await submit(one, "m", "robin, what of it?")
        await until(lambda: is_complete(one, "m"), "the mission")
        costs = {costs["kernel"]: costs for costs in (one.info()["costs"], other.info()["costs"])}
        assert costs.keys() == {"a.1", "b.2"}
        assert {name: figures["inferences"] for name, figures in costs.items()} == {"a.1": own.answered, "b.2": others.answered}
        assert own.answered + others.answered
        assert costs["a.1"]["durable"] == costs["b.2"]["durable"]
