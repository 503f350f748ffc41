"""A courier that is killed at each step: no notice that was noted is lost, and none is told twice but with its key, and saying so."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.daemon import END_S, ROOT
from tests.support.notice_child import POINTS, SURELY_UNTOLD
from tests.support.notices import World, opened, world


def child(folder: Path, point: str, *, there: World | None = None) -> tuple[int, dict[str, Any]]:
    """Run a courier for the missions a and b; the world kills it where one is given, as soon as it hears anything."""
    words = [sys.executable, "-m", "tests.support.notice_child", str(folder), point, "a", "b"]
    started: Future[subprocess.Popen[str]] = Future()
    if there is not None:
        there.when = lambda: started.result(END_S).kill()  # it may be heard before its start is heard of here
    with forked.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as running:
        started.set_result(running)
        said, errors = running.communicate(timeout=END_S)
    if there is not None:
        there.when = bool
    assert running.returncode in (0, -signal.SIGKILL), errors
    return running.returncode, json.loads(said.splitlines()[-1]) if running.returncode == 0 else {}


def prepare(folder: Path, way: str, place: str, **said: Any) -> None:
    async def add() -> None:
        async with opened(folder) as office:
            await office.add("desk", way, place, **said)

    asyncio.run(add())


@pytest.mark.parametrize("point", [*POINTS, "the world heard it"])
def test_a_kill_loses_no_notice_and_a_repetition_has_its_key_and_says_so(tmp_path: Path, point: str) -> None:
    with world() as there:
        prepare(tmp_path, "hook", there.url)
        heard = there if point == "the world heard it" else None
        assert child(tmp_path, "" if heard else point, there=heard)[0] == -signal.SIGKILL, "it comes to the point"
        before = list(there.heard)
        code, told = child(tmp_path, "")
    assert (code, told["waiting"], set(told["states"])) == (0, 0, {"DONE"})
    assert sorted(there.told) == ["a", "b"], "each notice was told, once for each key"
    if point in SURELY_UNTOLD:
        assert not before
        assert not any(one["repeated"] for one in there.heard)
    for one in there.heard[len(before) :]:
        may_be_known = one["key"] in {earlier["key"] for earlier in before}
        assert one["repeated"] or not may_be_known, "what may have been told says so"
    assert len(there.heard) <= 3


@pytest.mark.parametrize("point", [*POINTS, "the world heard it"])
def test_a_channel_that_tells_at_most_once_loses_none_unseen(tmp_path: Path, point: str) -> None:
    with world() as there:
        prepare(tmp_path, "hook", there.url, once=True)
        heard = there if point == "the world heard it" else None
        assert child(tmp_path, "" if heard else point, there=heard)[0] == -signal.SIGKILL
        code, told = child(tmp_path, "")
    assert (code, told["waiting"]) == (0, 0)
    assert len({one["key"] for one in there.heard}) == len(there.heard), "nothing is told twice"
    missing = 2 - len(there.told)
    assert missing == 0 or "IN_DOUBT" in told["states"], "what may be lost is said to be in doubt"
    if point in SURELY_UNTOLD:
        assert missing == 0


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("point", ["in the intent", "before delivery", "after delivery", "after the outcome"])
def test_a_program_is_ended_with_its_daemon_and_run_again(tmp_path: Path, point: str, once: bool) -> None:
    out = tmp_path / "out"
    out.mkdir()
    folders = [str(out), f"{sys.prefix}:ro", f"{sys.base_prefix}:ro"]
    script = "import sys; open(sys.argv[1] + '/told', 'a').write(sys.argv[2] + chr(9) + sys.argv[3] + chr(10))"
    place = f'{sys.executable} -S -c "{script}" {out} {{key}} {{title}}'
    prepare(tmp_path, "program", place, options={"folders": folders}, once=once)
    assert child(tmp_path, point)[0] == -signal.SIGKILL
    code, told = child(tmp_path, "")
    cut_off = point in ("before delivery", "after delivery")
    assert code == 0
    assert ("IN_DOUBT" in told["states"]) == (once and cut_off)
    lines = [line.split("\t") for line in (out / "told").read_text().splitlines()] if (out / "told").exists() else []
    titles = dict(lines)
    notices = sum(1 if "Done" in title else 2 for title in titles.values())
    repeated = [title for _, title in lines if title.startswith("Perhaps told before")]
    if once:
        assert len(lines) == len(titles), "nothing is told twice"
        assert not repeated
        assert notices == 2 or point == "before delivery", "what is not told is in doubt"
        return
    assert notices == 2
    assert len(lines) == len(titles) + (point == "after delivery")
    assert len(repeated) == cut_off
