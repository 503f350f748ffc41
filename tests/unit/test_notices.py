"""Notices: what is noted, for whom, in which words, and when it is told."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import socket
import subprocess
import sys
import zoneinfo
from pathlib import Path
from typing import Any

import pytest

from batos.bus import ScheduleStopped
from batos.console.api_client import Asker
from batos.errors import BatosError, InvalidInput
from batos.image import effects, ledger, notice_channels, notices
from batos.image.effects import DONE, FAILED, IN_DOUBT, EffectRecord
from batos.image.notice_channels import ChannelSpec
from batos.image.notices import ChangeFact, Notice
from batos.notices import apprise_sender
from batos.notices.courier import NoticeLimits
from batos.notices.messages import words_of
from batos.notices.quiet_hours import QuietHours
from batos.notices.transports import UNSENT, parted_place, transport_of
from batos.schedules import book
from batos.tools.definitions import ConnectorServices
from batos.tools.effects import HOW
from tests.support.console import seated, served
from tests.support.notices import SOON, opened, world


@pytest.mark.parametrize("waits", [True, False])
def test_a_connection_of_a_library_that_does_not_wait_for_it_counts_as_made(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise_sender, "reach", reach := apprise_sender.NetworkReach())
    with socket.create_server(("127.0.0.1", 0)) as server, apprise_sender.SeenSocket() as client:
        client.setblocking(waits)
        with contextlib.suppress(BlockingIOError):
            client.connect(server.getsockname())
    assert (reach.tried, reach.nothing_left) == (1, False)


def test_a_connection_that_is_refused_does_not_count_as_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise_sender, "reach", reach := apprise_sender.NetworkReach())
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with apprise_sender.SeenSocket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(unused.getsockname())
    assert reach.nothing_left


async def test_ends_failures_and_questions_are_told_each_once(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            async with office.courier():
                for id in ("a", "b", "c", "mine", "gone"):
                    await office.accept(id, **({"origin": "system"} if id == "mine" else {}))
                await office.end("a", "Forty-two.")
                await office.until(lambda: len(there.told) == 1)
                await office.end("mine", "of the system's own")
                await office.end("gone", None, code="cancelled")
                await office.end("b", None)
                await office.until(lambda: len(there.told) == 2)
                await office.image.system(ledger.ask_question, "c", "Which colour?", 0, 0)
                await office.until(lambda: len(there.told) == 3)
                await office.until(lambda: not any(one.is_open for one in office.messages()))
            assert sorted(there.titles) == ["A question: Brief of c", "Done: Brief of a", "Failed: Brief of b"]
            (question,) = (one for one in there.heard if one["fact"] == "question")
            assert question["link"] == "http://127.0.0.1:5758/mission?id=c"
            assert "Which colour?" in question["text"]
            assert "batos answer c" in question["text"]
            assert next(one for one in there.heard if one["fact"] == "end")["text"] == "Forty-two."
            assert len({one["Idempotency-Key"] for one in there.headers}) == 3
            assert office.waiting() == 0
            assert {one.state for one in office.messages()} == {DONE}


async def test_without_channels_nothing_is_noted_and_the_outbox_is_not_made(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await office.accept("a")
        await office.end("a", None)
        assert office.image.read(notices.outbox_of) is None


async def test_a_rule_says_which_facts_of_which_missions_are_told(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("planned", "hook", there.url, on=("end",), origin="schedule")
            await office.add("robin", "hook", there.url, on=("failure",), persona="Robin")
            async with office.courier():
                await office.accept("a", origin="schedule")
                await office.accept("b")
                await office.accept("c", persona="robin")
                for id in ("a", "b"):
                    await office.end(id)
                await office.end("c", None)
                await office.until(lambda: len(there.told) == 2)
            assert sorted(there.told) == ["a", "c"]


async def test_a_doubt_is_told_as_such_where_its_user_is_asked_and_where_nobody_asks_any_more(tmp_path: Path) -> None:
    def intended(root: Any, mission: str) -> str:
        key = effects.key_of("image", mission, "shop.order", "{}", 0)
        effects.intend(root, mission, EffectRecord(key, "shop.order", "acts", "{}", 0, effects.INTENDED, 1.0))
        return key

    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url, on=("doubt",))
            async with office.courier():
                for id in ("a", "b", "c"):
                    await office.accept(id)
                key = await office.image.system(intended, "a")
                question = f"shop.order {{}} was cut off and may have happened [{key[:8]}]. Say {HOW}."
                await office.image.system(ledger.ask_question, "c", "Which colour?", 0, 0)
                await office.image.system(ledger.ask_question, "a", question, 0, 0)
                await office.until(lambda: there.told == ["a"])
                assert "may have happened" in there.heard[0]["text"]
                await office.image.system(intended, "b")
                await office.end("b", None, code="cancelled")
                await office.until(lambda: there.told == ["a", "b"])
                assert "batos effects --doubt" in there.heard[1]["text"]


async def test_a_channel_that_a_message_bent_is_told_nothing_and_an_undo_of_its_user_counts(tmp_path: Path) -> None:
    def bend(root: Any, place: str) -> None:
        root["lobby"].notices.desk._slots["place"] = place

    with world() as there, world() as elsewhere:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            await office.image.system(bend, elsewhere.url)
            async with office.courier() as courier:
                assert (await courier.test("desk", "t1")).state == FAILED
                assert "something else" in office.messages()[0].why
                await office.image.system(bend, there.url)
                assert (await courier.test("desk", "t2")).state == DONE
            assert not elsewhere.heard


async def test_a_fault_in_what_is_noted_keeps_no_mission_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as office:
        await office.add("desk", "program", "true")
        monkeypatch.setattr(notices, "note", lambda *args, **more: int("none"))
        await office.accept("a")
        await office.end("a", None)
        assert office.image.read(ledger.record_of, "a").state == ledger.FAILED


def test_a_daemon_without_channels_loads_nothing_that_sends() -> None:
    heavy = ("batos.notices.courier", "batos.notices.transports", "batos.tools.http_sending", "apprise")
    code = f"import sys, batos.app.kernel; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_schedule_that_stopped_is_told(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url, on=("schedule",))
            spec = book.ScheduleSpec("morning", "hourly", "cron 0 * * * *", "UTC", "x")
            await office.image.system(book.add, spec, 1.0)
            async with office.courier():
                await office.image.system(book.pause, "morning", "its last 3 runs failed")
                office.bus.publish(ScheduleStopped("morning", "its last 3 runs failed"))
                await office.until(lambda: there.heard)
            assert there.titles == ["Stopped: schedule morning"]
            await office.image.system(book.resume, "morning", 2.0)
            await office.image.system(book.pause, "morning")
            assert office.waiting() == 0, "a pause by its user is none"


async def test_a_change_of_the_systems_own_is_told_once_and_one_of_before_the_channel_never(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url, on=("change",))
            office.changes = [ChangeFact(1, "Changed", 0.5, "before"), ChangeFact(2, "Changed", 5.0, "a trigger")]
            for _ in range(2):
                async with office.courier() as courier:
                    await office.until(lambda: len(there.heard) == 1)
                    courier.stir()
                    await office.until(lambda: not office.waiting())
            assert there.told == ["2"]


async def test_many_notices_come_in_one_message(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            for number in range(notices.MOST_WAITING + 20):
                await office.accept(f"m{number}")
                await office.end(f"m{number}", None)
            assert office.waiting() == notices.MOST_WAITING + 20
            async with office.courier():
                await office.until(lambda: there.heard)
                await office.until(lambda: not office.waiting())
            (one,) = there.heard
            assert one["title"] == f"{notices.MOST_WAITING + 20} notices: {notices.MOST_WAITING} failed"
            assert len(one["text"].splitlines()) == 21
            assert f"and {notices.MOST_WAITING} more" in one["text"]


def test_a_message_of_many_names_questions_first() -> None:
    told = [Notice("end", "a", 1.0, "Done: a"), Notice("question", "b", 2.0, "A question: b", "Which?")]
    words = words_of(told, 0, "http://127.0.0.1:5758")
    assert words.title == "2 notices: 1 question, 1 done"
    assert words.text.splitlines() == ["* A question: b (`batos answer b`)", "* Done: a"]
    assert words.link == "http://127.0.0.1:5758/"


@pytest.mark.parametrize("text", ["-rf /", "--exec=x", "- a list"])
def test_words_from_outside_begin_no_option(text: str) -> None:
    words = words_of([Notice("end", "a", 1.0, "Done: a", text)], 0, "")
    assert not words.text.startswith("-")
    assert not words.title.startswith("-")
    assert words.text.strip() == text


async def test_more_messages_than_the_rate_allows_come_together(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            now = 1000.0
            office.now = lambda: now  # type: ignore[assignment]
            limits = NoticeLimits(gather_s=0.0, most=2, window_s=600.0, look_s=0.05)
            async with office.courier(limits):
                for number in range(2):
                    await office.accept(f"m{number}")
                    await office.end(f"m{number}")
                    await office.until(lambda: len(there.heard) == number + 1)  # noqa: B023
                for number in range(2, 5):
                    await office.accept(f"m{number}")
                    await office.end(f"m{number}")
                await office.until(lambda: office.waiting() == 3)
                assert len(there.heard) == 2
                now += 601
                await office.until(lambda: len(there.heard) == 3)
            assert there.heard[2]["title"] == "3 notices: 3 done"


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def moment(day: int, hour: int, minute: int = 0, month: int = 11) -> float:
    return datetime.datetime(2026, month, day, hour, minute, tzinfo=BERLIN).timestamp()


@pytest.mark.parametrize(
    ("hours", "at", "until"),
    [
        ("22:00-7:00", moment(3, 21, 59), None),
        ("22:00-7:00", moment(3, 22), moment(4, 7)),
        ("22:00-7:00", moment(3, 6, 59), moment(3, 7)),
        ("22:00-7:00", moment(3, 7), None),
        ("22-7", moment(3, 23), moment(4, 7)),
        ("12:30-13:00", moment(3, 12, 45), moment(3, 13)),
        ("12:30-13:00", moment(3, 13), None),
        ("22:00-2:30", moment(28, 23, month=3), moment(29, 3, 30, month=3)),  # 2:30 is jumped over
        ("", moment(3, 3), None),
    ],
)
def test_quiet_hours_end_when_the_clock_of_the_zone_says_so(hours: str, at: float, until: float | None) -> None:
    assert QuietHours(hours, "Europe/Berlin").until(at) == (at if until is None else until)


@pytest.mark.parametrize(
    ("hours", "zone"), [("22", "UTC"), ("25:00-7:00", "UTC"), ("7:00-7:00", "UTC"), ("22-7", "Mars/Olympus"), ("x-y", "UTC")]
)
def test_quiet_hours_that_mean_nothing_are_refused(hours: str, zone: str) -> None:
    with pytest.raises(InvalidInput):
        QuietHours(hours, zone)


async def test_what_comes_in_quiet_hours_is_told_together_after_them(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url, quiet="22:00-7:00", zone="Europe/Berlin")
            now = moment(3, 23)
            office.now = lambda: now  # type: ignore[assignment]
            async with office.courier():
                for id in ("a", "b"):
                    await office.accept(id)
                    await office.end(id)
                await office.until(lambda: office.waiting() == 2)
                assert not there.heard
                now = moment(4, 7)
                await office.until(lambda: there.heard)
            assert there.titles == ["2 notices: 2 done"]


async def test_a_channel_that_fails_is_tried_again_a_bounded_number_of_times(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            async with office.courier():
                there.answers = [404, 503, 200]
                await office.accept("a")
                await office.end("a")
                await office.until(lambda: office.messages() and office.messages()[0].state == DONE)
                assert [one["repeated"] for one in there.heard] == [False, True], "after a 503 it may have been told"
                assert len({one["key"] for one in there.heard}) == 1
                assert there.heard[1]["title"] == "Perhaps told before: Done: Brief of a"
                there.answers = [404] * 4
                await office.accept("b")
                await office.end("b")
                await office.until(lambda: office.messages()[0].state == FAILED and not office.messages()[0].again)
            last = office.messages()[0]
            assert (last.attempts, "404" in last.why) == (SOON.tries, True)
            now = last.at
            assert office.image.read(lambda root: [one.key for one in notices.untold(root, now)]) == [last.key]
            assert office.image.read(lambda root: list(notices.untold(root, now + notices.UNTOLD_S))) == []


async def test_a_channel_that_tells_at_most_once_tells_nothing_twice(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url, once=True)
            async with office.courier():
                there.answers = [404, 503]
                await office.accept("a")
                await office.end("a")
                await office.until(lambda: office.messages() and office.messages()[0].state == IN_DOUBT)
                assert len(there.heard) == 1, "what surely was not told is told again, what may have been is not"
                assert "--once" in office.messages()[0].why
                await office.accept("b")
                await office.end("b")
                await office.until(lambda: len(there.heard) == 2)


async def test_a_channel_that_was_removed_or_paused_is_told_nothing(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            await office.image.system(notice_channels.set_paused, "desk", True)
            async with office.courier() as courier:
                await office.accept("a")
                await office.end("a")
                await office.until(lambda: office.waiting() == 1)
                with pytest.raises(InvalidInput, match="paused"):
                    await courier.test("desk", "t1")
                await office.image.system(notice_channels.set_paused, "desk", False)
                courier.stir()
                await office.until(lambda: there.heard)
                await office.image.system(notices.remove_channel, "desk")
                await office.accept("b")
                await office.end("b")
            assert there.told == ["a"]


async def test_a_copy_of_an_image_tells_nothing_that_its_original_tells(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            await office.accept("a")
            await office.end("a", None)
            office.suspended = "this image is a copy"
            async with office.courier() as courier:
                await office.until(lambda: not office.waiting())
                assert "this image is a copy" in office.messages()[0].why
                await office.accept("b")
                await office.end("b", None)
                await office.until(lambda: office.waiting() == 1)
                office.suspended = ""
                courier.stir()
                await office.until(lambda: there.heard)
            assert there.told == ["b"]


async def test_a_copy_that_is_started_again_keeps_what_it_noted_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_WAITING", 1)
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            for id in ("a", "more"):
                await office.accept(id)
                await office.end(id, None)
            office.suspended = "this image is a copy"
            async with office.courier():
                await office.until(lambda: not office.waiting())
                await office.accept("b")
                await office.end("b", None)
                await office.until(lambda: office.waiting() == 1)
            async with office.courier() as courier:  # started again, and still a copy
                await asyncio.sleep(0)
                await office.image.system(notices.note_changes, [])
                assert office.waiting() == 1
                office.suspended = ""
                courier.stir()
                await office.until(lambda: there.heard)
            assert there.told == ["b"]
            assert there.titles == ["Failed: Brief of b"], "of what its original noted nothing is counted"


async def test_a_copy_on_a_full_disk_drops_what_its_original_noted_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop, tries = notices.drop_all, list[str]()

    def full(root: Any, why: str, epoch: str) -> int:
        tries.append(why)
        if len(tries) == 1:
            raise OSError("no space left on device")
        return drop(root, why, epoch)

    monkeypatch.setattr(notices, "drop_all", full)
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            await office.accept("a")
            await office.end("a", None)
            office.suspended = "this image is a copy"
            async with office.courier():
                await office.until(lambda: not office.waiting())
            assert (len(tries), there.heard) == (2, [])


async def test_a_test_is_sent_at_once_and_its_id_names_it(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url, quiet="00:00-23:59")
            async with office.courier() as courier:
                first, again = await asyncio.gather(courier.test("desk", "t1"), courier.test("desk", "t1"))
                assert (first.state, first) == (DONE, again)
                assert (await courier.test("desk", "t1")).key == first.key
                assert len(there.heard) == 1
                there.answers = [500]
                assert (await courier.test("desk", "t2")).state == IN_DOUBT
                assert office.messages()[0].again == 0.0, "a test is not tried again"


async def test_a_program_gets_the_words_as_arguments_and_nothing_more(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    script = "import json,os,sys; json.dump([sys.argv[1:], sorted(os.environ)], open(sys.argv[1] + '/told', 'w'))"
    folders = [str(out), f"{sys.prefix}:ro", f"{sys.base_prefix}:ro"]
    async with opened(tmp_path) as office:
        place = f'{sys.executable} -S -c "{script}" {out} {{fact}} {{title}} {{text}} {{link}}'
        await office.add("desk", "program", place, options={"folders": folders})
        async with office.courier():
            await office.accept("a", "Water the plants")
            await office.end("a", "--help me")
            await office.until(lambda: office.messages() and office.messages()[0].state in (DONE, FAILED))
        assert office.messages()[0].state == DONE, office.messages()[0].why
        (words, env) = json.loads((out / "told").read_text())
        assert words[1:] == ["end", "Done: Water the plants", " --help me", "http://127.0.0.1:5758/mission?id=a"]
        assert "HOME" not in env


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("code", "state"), [(1, IN_DOUBT), (UNSENT, FAILED)])
async def test_a_program_that_fails_is_run_again_and_says_so_where_it_may_have_told(
    tmp_path: Path, code: int, state: str, once: bool
) -> None:
    (out := tmp_path / "out").mkdir()
    script = f"import sys; open(sys.argv[1] + '/told', 'a').write(sys.argv[2] + chr(10)); sys.exit({code})"
    place = f'{sys.executable} -S -c "{script}" {out} {{title}}'
    folders = [str(out), f"{sys.prefix}:ro", f"{sys.base_prefix}:ro"]
    async with opened(tmp_path) as office:
        await office.add("desk", "program", place, options={"folders": folders}, once=once)
        async with office.courier():
            await office.accept("a")
            await office.end("a")
            await office.until(lambda: office.messages() and not office.messages()[0].is_open)
        tries = 1 if once and state == IN_DOUBT else SOON.tries
        assert (office.messages()[0].state, office.messages()[0].attempts) == (state, tries)
        assert f"exit code {code}" in office.messages()[0].why
    told = (out / "told").read_text().splitlines()
    again = "Perhaps told before: Done: Brief of a" if state == IN_DOUBT else "Done: Brief of a"
    assert told == ["Done: Brief of a", *[again] * (tries - 1)]


@pytest.mark.parametrize(
    ("way", "place", "said"),
    [
        ("program", "notify-send {colour}", "colour"),
        ("hook", "ftp://here/x", "not valid"),
        ("hook", "https://{secret:HOST}/x", "not a secret"),
        ("hook", "https://me:word@host.example/x", "password"),
        ("apprise", "my phone", "not valid"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path: Path, way: str, place: str, said: str) -> None:
    with pytest.raises(BatosError, match=said):
        transport_of(ChannelSpec("desk", way, place), ConnectorServices(secret=str, folder=tmp_path))


@pytest.mark.parametrize(
    ("way", "place", "kept", "secret"),
    [
        ("apprise", "tgram://123:ABC/9", "{secret:notices.desk}", "tgram://123:ABC/9"),
        ("apprise", "{secret:PHONE}", "{secret:PHONE}", ""),
        ("hook", "http://127.0.0.1:9/hook", "http://127.0.0.1:9/hook", ""),
        ("hook", "https://hooks.example/services/T0123456789/B01234567890123456", "https://hooks.example{secret:notices.desk}",
         "/services/T0123456789/B01234567890123456"),
        ("hook", "https://hooks.example/{secret:X}", "https://hooks.example/{secret:X}", ""),
        ("program", "curl {text}", "curl {text}", ""),
    ],
)  # fmt: skip
def test_what_of_a_place_is_a_secret_is_not_kept_in_the_image(way: str, place: str, kept: str, secret: str) -> None:
    assert parted_place(ChannelSpec("desk", way, place)) == (kept, secret)


async def test_a_secret_of_a_hook_is_put_in_when_it_is_sent_and_shown_nowhere(tmp_path: Path) -> None:
    with world() as there:
        async with opened(tmp_path) as office:
            base = there.url.removesuffix("/hook")
            office.secrets["notices.desk"] = "/services/B0123456789/deep?token=abc"
            await office.add("desk", "hook", f"{base}{{secret:notices.desk}}")
            async with office.courier():
                await office.accept("a")
                await office.end("a")
                await office.until(lambda: there.heard)
                assert there.paths == ["/services/B0123456789/deep?token=abc"]
                there.answers = [403] * SOON.tries
                await office.accept("b")
                await office.end("b")
                await office.until(lambda: office.messages()[0].state == FAILED and not office.messages()[0].again)
            why = office.messages()[0].why
            assert "403" in why
            assert "B0123456789" not in why
            assert "token" not in why


async def test_the_link_of_a_question_leads_to_the_page_that_answers_it(tmp_path: Path) -> None:
    with world() as there:
        async with served(tmp_path, limits=(NoticeLimits(gather_s=0.0, look_s=0.05),)) as kernel, seated(kernel) as seat:
            asker = Asker(kernel.transport.dispatcher, kernel.settings)
            await asker.ask("notice_add", name="desk", way="hook", place=there.url, on=["question"])
            id = await seat.gave("Choose a restaurant", may_ask="yes")
            async with asyncio.timeout(90):
                while not there.heard:
                    await asyncio.sleep(0.01)
            (told,) = there.heard
            assert told["mission"] == id
            assert told["link"].startswith(str(seat.client.base_url).rstrip("/"))
            page = await seat.see(told["link"])
            assert "what of question_to_the_user" in page
            assert "what of question_to_the_user" in told["text"]
            assert 'action="/answer"' in page


async def test_channels_are_checked_bounded_and_found_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as office:
        await office.add("desk", "program", "true")
        await office.add("desk", "program", "true")
        with pytest.raises(InvalidInput, match="taken"):
            await office.add("desk", "program", "false")
        with pytest.raises(InvalidInput, match="did you mean"):
            await office.image.system(notice_channels.set_paused, "desc", True)
        bad: list[dict[str, Any]] = [{"on": ("ends",)}, {"on": ()}, {"origin": "No Such"}, {"origin": "shedule"}]
        for said in bad:
            with pytest.raises(InvalidInput):
                await office.add("other", "program", "true", **said)
        for name in ("2", "a b", ""):
            with pytest.raises(InvalidInput):
                await office.add(name, "program", "true")
        for number in range(notice_channels.MOST_CHANNELS - 1):
            await office.add(f"c{number}", "program", "true")
        with pytest.raises(InvalidInput, match="most"):
            await office.add("over", "program", "true")


async def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "KEPT", 5)
    with world() as there:
        async with opened(tmp_path) as office:
            await office.add("desk", "hook", there.url)
            async with office.courier() as courier:
                for number in range(9):
                    await courier.test("desk", f"t{number}")
            assert len(office.messages()) == 5
            assert len(there.heard) == 9
