"""An alarm that is killed at each step of a run: no run is lost, and none is made twice."""

from __future__ import annotations

import asyncio
import datetime
import json
import signal
import sys
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.daemon import END_S, ROOT
from tests.support.schedule_child import POINTS
from tests.support.schedules import opened

BEGIN = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp()
HOURS = 4


def child(folder: Path, point: str = "", passes: int = 0) -> tuple[int, list[str]]:
    words = [sys.executable, "-m", "tests.support.schedule_child", str(folder), str(BEGIN), str(HOURS), point, str(passes)]
    done = forked.run(words, capture_output=True, text=True, timeout=END_S, cwd=ROOT)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_loses_no_run_and_doubles_none(tmp_path: Path, point: str, passes: int) -> None:
    async def prepare() -> None:
        async with opened(tmp_path) as held:
            for name in ("one", "two"):
                await held.add("cron 0 * * * *", BEGIN, name=name, missed="all")

    asyncio.run(prepare())
    assert child(tmp_path, point, passes)[0] == -signal.SIGKILL, "it comes to the point"
    code, planned = child(tmp_path)
    assert code == 0
    expected = [f"20260301T0{hour}0000Z" for hour in range(1, HOURS + 1)]
    assert sorted(planned) == sorted(2 * expected)
