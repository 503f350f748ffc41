"""Sessions of the console: what ends them, for good, and what does not; what lies in their file, and what a damaged file does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from batos.app.kernel import Kernel
from batos.cli import main
from batos.console.access import SESSIONS_NAME, Sessions
from batos.errors import ConfigError
from tests.support.cli import daemon
from tests.support.console import Seat, http_client, seated, served
from tests.support.missions import WAIT_S, settings

TOKEN = "t" * 43


def sessions_of(folder: Path, token: str = TOKEN, lasts_s: float = 3600, limit: int = 256) -> Sessions:
    return Sessions(folder, token, lasts_s, limit)


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return sessions_of(tmp_path)


# --- the file


def test_a_session_is_open_until_it_is_ended(tmp_path: Path, sessions: Sessions) -> None:
    one, other = sessions.begin(), sessions.begin()
    assert sessions.is_open(one)
    sessions.end(one)
    for anew in (sessions, sessions_of(tmp_path)):
        assert (anew.is_open(one), anew.is_open(other)) == (False, True)
    sessions.end(one)
    assert sessions.end_all() == 1
    for anew in (sessions, sessions_of(tmp_path)):
        assert not anew.is_open(other)


def test_a_session_ends_with_its_time(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    key, end = sessions.begin(), time.time() + 3601
    monkeypatch.setattr("batos.console.access.time.time", lambda: end)
    assert not sessions.is_open(key)


def test_the_file_lets_nobody_in(tmp_path: Path, sessions: Sessions) -> None:
    key = sessions.begin()
    path = tmp_path / SESSIONS_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key not in path.read_text()
    for name in json.loads(path.read_text()):
        assert not sessions.is_open(name)
    assert not sessions_of(tmp_path, "u" * 43).is_open(key), "another token ends every session"
    for forged in ("", ".", key[:-1], key + "x", "é", "\0", "9" * 4000):
        assert not sessions.is_open(forged)


def test_there_are_no_more_than_the_limit_and_the_oldest_ends(tmp_path: Path) -> None:
    sessions = sessions_of(tmp_path, limit=3)
    keys = [sessions.begin() for _ in range(5)]
    assert [sessions.is_open(key) for key in keys] == [False, False, True, True, True]
    assert len(json.loads((tmp_path / SESSIONS_NAME).read_text())) == 3
    again = sessions.begin(instead=keys[3])
    assert [sessions.is_open(key) for key in (*keys[2:], again)] == [True, False, True, True]


def test_what_has_run_out_leaves_the_file(tmp_path: Path) -> None:
    sessions_of(tmp_path, lasts_s=-1).begin()
    sessions_of(tmp_path).begin()
    assert len(json.loads((tmp_path / SESSIONS_NAME).read_text())) == 1


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"a": "b"}', b'{"a": {}}', b"\xff", b"[" * 100_000, b'{"a": 1e999}', b'{"a": NaN}'])
def test_a_damaged_file_ends_every_session_and_another_can_begin(tmp_path: Path, text: bytes) -> None:
    sessions = sessions_of(tmp_path)
    before = sessions.begin()
    (tmp_path / SESSIONS_NAME).write_bytes(text)
    assert not sessions.is_open(before)
    assert sessions.is_open(sessions.begin())


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    elsewhere = sessions_of(tmp_path)
    key = elsewhere.begin()
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / SESSIONS_NAME).symlink_to(tmp_path / SESSIONS_NAME)
    sessions = sessions_of(folder)
    assert not sessions.is_open(key)
    sessions.end_all()
    assert sessions_of(tmp_path).is_open(key)


def _begins(folder: Path, count: int, keys: multiprocessing.Queue[str]) -> None:
    sessions = sessions_of(folder)
    for _ in range(count):
        keys.put(sessions.begin())


def test_no_process_loses_or_brings_back_what_another_did(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    keys: multiprocessing.Queue[str] = context.Queue()
    others = [context.Process(target=_begins, args=(tmp_path, 20, keys)) for _ in range(3)]
    for other in others:
        other.start()
    begun = [keys.get(timeout=WAIT_S) for _ in range(60)]
    for other in others:
        other.join()
    sessions = sessions_of(tmp_path)
    assert all(sessions.is_open(key) for key in begun)


class _Full:
    """A disk on which nothing can be written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def write(path: Path, text: str) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("batos.console.access.private_files.write", write)


def test_on_a_full_disk_sessions_begin_and_end_all_the_same(tmp_path: Path, sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sessions.begin()
    with monkeypatch.context() as patch, capture_logs() as lines:
        _Full(patch)
        meanwhile, other = sessions.begin(), sessions.begin()
        assert sessions.is_open(before)
        assert sessions.is_open(meanwhile)
        sessions.end(meanwhile)
        assert not sessions.is_open(meanwhile)
        sessions.end(before)
        assert not sessions.is_open(before)
        assert sessions.is_open(other)
    assert [line["event"] for line in lines] == ["console_session_not_kept"] * 2 + ["console_sessions_ended"]
    assert not sessions_of(tmp_path).is_open(before), "it stays ended"
    sessions_of(tmp_path).end_all()
    assert not sessions.is_open(other), "what only memory has ends by another process, too"


def test_an_end_that_cannot_be_kept_is_told(tmp_path: Path, sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    key = sessions.begin()

    def unlink(self: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    _Full(monkeypatch)
    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(ConfigError, match=SESSIONS_NAME):
        sessions.end(key)


# --- a browser


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with served(tmp_path, console_refresh_s=0.05, ping_s=60) as kernel:
        yield kernel


@contextlib.asynccontextmanager
async def copy_of(seat: Seat, kernel: Kernel) -> AsyncIterator[Seat]:
    """Somebody else who has the cookie."""
    async with http_client(str(seat.client.base_url), cookies=dict(seat.client.cookies), timeout=30) as client:
        yield Seat(kernel, client)


@contextlib.asynccontextmanager
async def live(seat: Seat) -> AsyncIterator[asyncio.Task[bytes]]:
    """A live page; the task ends when it does."""
    async with seat.client.stream("GET", "/events") as answer:
        assert answer.status_code == 200
        yield asyncio.ensure_future(answer.aread())


@pytest.mark.parametrize("everywhere", [False, True])
async def test_a_copied_cookie_is_worth_nothing_once_its_owner_has_signed_out(kernel: Kernel, everywhere: bool) -> None:
    async with seated(kernel) as seat, seated(kernel) as other, copy_of(seat, kernel) as thief:
        await thief.see("/")
        async with live(thief) as stolen, live(other) as followed:
            assert (await seat.post("/logout/all" if everywhere else "/logout")).status_code == 303
            await asyncio.wait_for(stolen, WAIT_S)
            if everywhere:
                await asyncio.wait_for(followed, WAIT_S)
            else:
                assert not followed.done()
                followed.cancel()
        await thief.see("/", 401)
        assert (await thief.post("/submit", id="x1", brief="steal")).status_code == 401
        assert "steal" not in str(kernel.image.facts())
        await other.see("/", 401 if everywhere else 200)


async def test_a_restart_ends_no_session_and_brings_none_back(tmp_path: Path) -> None:
    cookies = []
    async with served(tmp_path) as kernel, seated(kernel) as seat, seated(kernel) as other:
        cookies = [dict(one.client.cookies).popitem()[1] for one in (seat, other)]
        await seat.post("/logout")
    async with served(tmp_path) as kernel:
        assert kernel.console is not None
        name = f"batos_{kernel.console.address.rpartition(':')[2]}"
        found = []
        for cookie in cookies:
            async with http_client(kernel.console.address, cookies={name: cookie}) as client:
                found.append((await client.get("/")).status_code)
        assert found == [401, 200]


async def test_the_link_again_takes_the_place_of_the_session_before(kernel: Kernel) -> None:
    assert kernel.console is not None
    async with seated(kernel) as seat, copy_of(seat, kernel) as before:
        await seat.client.get(kernel.console.link)
        await seat.see("/")
        await before.see("/", 401)


async def test_all_sessions_are_ended_from_a_terminal_while_the_daemon_runs(kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(kernel) as seat, seated(kernel) as other, live(other) as followed:
        command = ["console", "--logout", "--all", "--data", str(kernel.settings.data)]
        assert await asyncio.to_thread(main, command) == 0
        assert "2 sessions ended" in capsys.readouterr().out
        await seat.see("/", 401)
        await asyncio.wait_for(followed, WAIT_S)


def test_all_sessions_are_ended_from_a_terminal_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(tmp_path), "--json"]
    assert main(["console", "--logout", "--all", *where]) == 0
    assert json.loads(capsys.readouterr().out) == {"type": "console", "ended": 0}
    key = sessions_of(tmp_path).begin()
    assert main(["console", "--logout", "--all", *where]) == 0
    assert json.loads(capsys.readouterr().out) == {"type": "console", "ended": 1}
    assert not sessions_of(tmp_path).is_open(key)
    assert main(["console", "--logout", "--all", "--data", str(tmp_path / "nowhere")]) == 0
    assert not (tmp_path / "nowhere").exists()


def test_the_sessions_of_the_daemon_that_answers_are_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions_of(tmp_path).begin()
    with daemon({"info": {"type": "info", "console": "http://127.0.0.1:5780", "data": str(tmp_path)}}) as scripted:
        assert main(["console", "--logout", "--all", "--connect", scripted.endpoint]) == 0
    assert capsys.readouterr().out.startswith("1 session ended")
    assert main(["console", "--logout", "--all", "--connect", f"ipc://{tmp_path}/nobody"]) == 3


@pytest.mark.parametrize("half", ["--logout", "--all"])
def test_a_terminal_has_no_session_of_its_own_to_end(half: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = sessions_of(tmp_path).begin()
    assert main(["console", half, "--data", str(tmp_path)]) == 2
    assert "--logout --all" in " ".join(capsys.readouterr().err.split())
    assert sessions_of(tmp_path).is_open(key)
    assert main(["console", "--logout-all", "--data", str(tmp_path)]) == 0, "as it was called first"
    assert not sessions_of(tmp_path).is_open(key)


async def test_the_setting_bounds_what_is_kept(tmp_path: Path) -> None:
    async with served(tmp_path, console_sessions=2) as kernel, contextlib.AsyncExitStack() as stack:
        seats = [await stack.enter_async_context(seated(kernel)) for _ in range(3)]
        await seats[0].see("/", 401)
        for seat in seats[1:]:
            await seat.see("/")
        assert sorted(os.listdir(tmp_path)).count(SESSIONS_NAME) == 1
    assert settings(tmp_path).console_sessions == 256
