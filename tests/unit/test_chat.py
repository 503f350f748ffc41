"""The chat: turns that follow one another, questions, commands, what is typed and what is shown, against a socket with scripted replies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from batos.cli import main
from batos.cli.chat import keyboard, session
from batos.cli.chat.dialogue import Bookmark, Dialogue
from batos.cli.chat.keyboard import Keyboard, LineSource, Pipe
from batos.cli.chat.screen import Screen
from batos.cli.chat.session import ChatSession, Commands, names
from batos.cli.output import Output
from batos.errors import Busy, DaemonUnavailable, InvalidInput, RoleRefused, UndoConflict, UnknownMission
from batos.wire import Client
from batos.wire.fields import Request
from tests.support.cli import Daemon, Script, daemon

PERSONAS = ["robin", "brick"]
INFO = {"type": "info", "pid": 7, "uptime_s": 5.0, "personas": PERSONAS}
ACCEPTED = {"type": "accepted", "state": "ACCEPTED"}
CTRL_D = "\x04"
CTRL_C = "\x03"


def token(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "token", "state": "SYNTHESIZING", "facet": None, "text": text, **more}


def result(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "result", "state": "COMPLETE", "result": {"text": text, "persona": "ROBIN", "usage": {"inferences": 1}, **more}}


ANSWERED = [{"type": "status", "state": "IDLE"}, token("The sea "), token("says hush."), result("The sea says hush.")]


def script(**more: Any) -> Script:
    return {"info": INFO, "submit": ACCEPTED, "watch": ANSWERED, **more}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [n for n in os.environ if n.startswith("BATOS_") or n in ("NO_COLOR", "FORCE_COLOR")]:
        monkeypatch.delenv(name)


class Seated:
    """Somebody at the keyboard of a chat."""

    def __init__(self, scripted: Daemon, dialogue: Dialogue, session: ChatSession, type_: Callable[[str], None]) -> None:
        self.scripted, self.dialogue, self.session, self.type = scripted, dialogue, session, type_

    def asked(self, op: str) -> list[Request]:
        return [request for request in self.scripted.requests if request.op == op]

    def briefs(self) -> list[str]:
        return [request.brief for request in self.asked("submit")]  # type: ignore[attr-defined]

    async def typed(self, *lines: str, **begin: Any) -> int:
        """Type lines, and Ctrl-D after them; the exit code."""
        self.type("".join(f"{line}\r" for line in lines) + CTRL_D)
        return await self.session.run(**begin)


@contextlib.asynccontextmanager
async def seated(told: Script, folder: Path, *, may_ask: bool = False, seat: LineSource | None = None) -> AsyncIterator[Seated]:
    """A chat with a daemon that answers by a script."""
    with daemon(told) as scripted, create_pipe_input() as keys:
        async with Client(scripted.endpoint, 5.0) as client:
            typist = seat or Keyboard(folder / "history", names(PERSONAS), input=keys, output=DummyOutput())
            screen = Screen(Output(), lively=seat is None)
            dialogue = Dialogue(client, typist, screen, Bookmark(folder, "tcp://the-daemon"), may_ask=may_ask)
            all_commands = Commands(client, dialogue, typist, screen, PERSONAS)
            session = ChatSession(dialogue, all_commands, typist, screen, lively=seat is None)
            with session.listening():
                yield Seated(scripted, dialogue, session, keys.send_text)


def plain(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


# --- turns


async def test_each_turn_is_a_mission_that_follows_the_last_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(script(), tmp_path) as chat:
        assert await chat.typed("What does the sea say?", "", "  And the wind? ") == 0
        first, second = chat.asked("submit")
        assert (first.brief, first.context, second.brief) == ("What does the sea say?", None, "And the wind?")  # type: ignore[attr-defined]
        assert second.context == first.id != second.id  # type: ignore[attr-defined]
    out = plain(capsys)
    assert out.count("The sea says hush.") == 2, "streamed, and not told again"
    assert "ROBIN, 1 inference" in out


async def test_a_turn_that_is_refused_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replies = iter([ACCEPTED, RoleRefused("you may only read"), ACCEPTED])
    async with seated(script(submit=lambda request: next(replies)), tmp_path) as chat:
        assert await chat.typed("One", "Two", "Three") == 0
        one, _, three = chat.asked("submit")
        assert three.context == one.id  # type: ignore[attr-defined]
        assert chat.dialogue.last == three.id  # type: ignore[attr-defined]
    assert "role_refused: you may only read" in capsys.readouterr().err


async def test_a_mission_that_failed_says_why_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code, advice in (("attempts_exhausted", "batos failures --mission"), ("strange", "/show has its record")):
        end = {"type": "result", "state": "FAILED", "error": {"code": code, "message": "three attempts"}}
        async with seated(script(watch=[token("Half an "), end]), tmp_path) as chat:
            await chat.typed("Why?")
        out = plain(capsys)
        assert f"FAILED, {code}: three attempts" in out
        assert advice in out


async def test_a_turn_that_is_refused_leaves_the_note_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bookmark = Bookmark(tmp_path, "tcp://the-daemon")
    for noted in (None, {"id": "m6"}):
        bookmark.keep(noted or {})
        async with seated(script(submit=RoleRefused("you may only read")), tmp_path) as chat:
            await chat.typed("One")
        assert bookmark.read() == noted
        assert "--last" not in plain(capsys), "nothing waits"


async def test_what_the_daemon_never_had_is_not_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = asyncio.Event()

    async def forever(self: Client, brief: str, **more: Any) -> Any:
        held.set()
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "submit", forever)
        async with seated(script(cancel=UnknownMission("no mission")), tmp_path) as chat:
            running = asyncio.ensure_future(chat.typed("One"))
            await held.wait()
            chat.session.press()
            await running
            assert chat.dialogue.last is None
    assert Bookmark(tmp_path, "tcp://the-daemon").read() is None
    assert "before the daemon had it" in plain(capsys)


async def test_a_daemon_that_has_no_time_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batos.cli.chat.dialogue._BUSY_S", 0.01)
    replies = iter([Busy("the queue is full"), Busy("the queue is full"), ACCEPTED])
    async with seated(script(submit=lambda request: next(replies)), tmp_path) as chat:
        await chat.typed("Why?")
        assert len({request.id for request in chat.asked("submit")}) == 1, "it is the same mission"  # type: ignore[attr-defined]
        assert len(chat.asked("submit")) == 3


async def test_ctrl_c_stops_the_answer_and_not_the_chat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endless = [{"type": "state", "state": "SYNTHESIZING"}, token("On and on")]
    watched = iter([endless, ANSWERED])
    cancelled = {"type": "status", "state": "FAILED", "error": {"code": "cancelled", "message": "x"}}
    async with seated(script(watch=lambda request: next(watched), cancel=cancelled), tmp_path) as chat:
        running = asyncio.ensure_future(chat.typed("Talk", "Shorter"))
        await asyncio.to_thread(chat.scripted.heard.wait, 20)
        chat.session.press()
        assert await running == 0
        talk, shorter = chat.asked("submit")
        assert [request.id for request in chat.asked("cancel")] == [talk.id]  # type: ignore[attr-defined]
        assert shorter.context == talk.id, "what was said stays said"  # type: ignore[attr-defined]
    out = plain(capsys)
    assert "(stopped)" in out
    assert "hush." in out


async def test_what_was_faster_than_ctrl_c_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = {"type": "status", "state": "COMPLETE", "result": {"text": "There it is."}}
    async with seated(script(watch=[{"type": "status", "state": "IDLE"}], cancel=late), tmp_path) as chat:
        running = asyncio.ensure_future(chat.typed("Talk"))
        await asyncio.to_thread(chat.scripted.heard.wait, 20)
        chat.session.press()
        await running
    assert "There it is." in plain(capsys)


async def test_ctrl_c_at_the_prompt_takes_the_line_back(tmp_path: Path) -> None:
    async with seated(script(), tmp_path) as chat:
        chat.type("Never mind" + CTRL_C)
        assert await chat.typed("Why?") == 0
        assert chat.briefs() == ["Why?"]


# --- questions


def asking(question: str = "How many guests?") -> Script:
    asked = {"type": "needs_input", "state": "NEEDS_INPUT", "question": question, "number": 1}
    again = {"type": "status", "state": "NEEDS_INPUT", "question": {"question": question, "number": 1}}
    return script(watch=[asked, again, *ANSWERED], answer={"type": "status", "state": "IDLE"})


async def test_a_question_is_asked_and_the_next_line_answers_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(asking(), tmp_path, may_ask=True) as chat:
        await chat.typed("Plan a party", "", "/twelve")
        (answer,) = chat.asked("answer")
        assert (answer.text, answer.number) == ("/twelve", 1)  # type: ignore[attr-defined]
        assert chat.asked("submit")[0].may_ask is True  # type: ignore[attr-defined]
    out = plain(capsys)
    assert out.count("How many guests?") == 1
    assert "hush." in out


async def test_an_answer_that_comes_too_late_is_told_and_the_mission_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asking()
    told["answer"] = InvalidInput("question 1 was answered already")
    async with seated(told, tmp_path) as chat:
        await chat.typed("Plan a party", "twelve")
    captured = capsys.readouterr()
    assert "answered already" in captured.err
    assert "hush." in captured.out


async def test_who_leaves_at_a_question_is_told_how_to_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(asking(), tmp_path) as chat:
        await chat.typed("Plan a party")
        assert chat.asked("answer") == []
    assert "batos chat --last" in plain(capsys)


async def test_ctrl_c_at_a_question_takes_the_mission_back(tmp_path: Path) -> None:
    told = asking()
    told["cancel"] = {"type": "status", "state": "FAILED"}
    async with seated(told, tmp_path) as chat:
        chat.type("Plan a party\r" + CTRL_C)
        await chat.typed()
        assert len(chat.asked("cancel")) == 1


# --- where it goes on


async def test_the_last_conversation_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(script(), tmp_path) as chat:
        await chat.typed("/persona brick", "One")
        (one,) = chat.asked("submit")
    plain(capsys)
    known = {"type": "status", "state": "COMPLETE", "brief": "One"}
    async with seated(script(status=known, watch=result("Hush.")), tmp_path) as chat:
        await chat.typed("Two", last=True)
        (two,) = chat.asked("submit")
        assert (two.context, two.persona) == (one.id, "brick")  # type: ignore[attr-defined]
    out = plain(capsys)
    assert out.index("> One") < out.index("Hush.")


async def test_a_turn_that_never_reached_the_daemon_is_given_again(tmp_path: Path) -> None:
    """As a chat leaves it that was killed between its note and the daemon's reply."""
    Bookmark(tmp_path, "tcp://the-daemon").keep({"id": "m7", "brief": "One", "persona": "robin", "context": "m6"})
    async with seated(script(status=UnknownMission("no mission 'm7'")), tmp_path) as chat:
        await chat.typed(last=True)
        (given,) = chat.asked("submit")
        assert (given.id, given.brief, given.persona, given.context) == ("m7", "One", "robin", "m6")  # type: ignore[attr-defined]


async def test_without_a_conversation_a_new_one_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for noted in (None, "", "[1]", '{"id": 7}', "{"):
        if noted is not None:
            Bookmark(tmp_path, "tcp://the-daemon").keep({})
            next(tmp_path.glob("chat_last_*")).write_text(noted)
        async with seated(script(), tmp_path) as chat:
            await chat.typed("One", last=True)
            assert chat.asked("submit")[0].context is None  # type: ignore[attr-defined]
        assert "a new one begins" in plain(capsys)


async def test_a_conversation_that_is_in_another_image_is_told(tmp_path: Path) -> None:
    async with seated(script(), tmp_path) as chat:
        await chat.typed("One")
    async with seated(script(status=UnknownMission("no mission 'm9'")), tmp_path) as chat:
        with pytest.raises(UnknownMission, match="does not have the last conversation"):
            await chat.typed(last=True)
        assert chat.asked("submit") == []


async def test_a_mission_to_go_on_after_must_be_there(tmp_path: Path) -> None:
    async with seated(script(status=UnknownMission("no mission 'm9'")), tmp_path) as chat:
        with pytest.raises(UnknownMission):
            await chat.typed("Two", context="m9")


def test_a_bookmark_is_its_users_alone_and_one_for_each_daemon(tmp_path: Path) -> None:
    here, there = Bookmark(tmp_path, "tcp://here"), Bookmark(tmp_path, "tcp://there")
    here.keep({"id": "a"})
    there.keep({"id": "b"})
    here.keep({"id": "c", "brief": "Why?"})
    assert (here.read(), there.read()) == ({"id": "c", "brief": "Why?"}, {"id": "b"})
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 2, "nothing is left beside them"
    nowhere = Bookmark(tmp_path / "missing", "tcp://here")
    nowhere.keep({"id": "a"})
    assert nowhere.read() is None


# --- lines


@pytest.mark.parametrize("typed", ["one\\\rtwo\r", "one\x1b\rtwo\r", "one\x1b[200~\n\x1b[201~two\r"])
async def test_a_brief_has_several_lines(tmp_path: Path, typed: str) -> None:
    async with seated(script(), tmp_path) as chat:
        chat.type(typed)
        await chat.typed()
        assert chat.briefs() == ["one\ntwo"]


async def test_what_was_typed_is_kept_for_its_user_alone(tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    os.umask(0)
    try:
        async with seated(asking(), tmp_path) as chat:
            await chat.typed("Plan a party", "secret answer")
    finally:
        os.umask(before)
    history = tmp_path / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+Plan a party\n" in history.read_text()
    assert "secret" not in history.read_text()


async def test_a_long_history_leaves_its_older_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyboard, "HISTORY_BYTES", 2000)
    history = tmp_path / "history"
    history.write_text("".join(f"\n# 2026-11-26\n+line {n}\n" for n in range(200)))
    history.chmod(0o600)
    async with seated(script(), tmp_path) as chat:
        chat.type("\x1b[A\r")  # up: the newest
        await chat.typed()
        assert chat.briefs() == ["line 199"]
    kept = history.read_text()
    assert len(kept) < 1200
    assert kept.lstrip().startswith("# 2026-11-26\n+line ")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


async def test_a_history_that_cannot_be_kept_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    async with seated(script(), tmp_path) as chat:
        assert await chat.typed("Why?") == 0


def test_tab_completes_commands_and_their_words(tmp_path: Path) -> None:
    completer = keyboard._Names(names(PERSONAS))

    def found(text: str) -> list[str]:
        return [one.text for one in completer.get_completions(Document(text), None)]  # type: ignore[arg-type]

    assert found("/de") == ["/depth"]
    assert found("/persona ") == ["robin", "brick", "anyone"]
    assert found("/depth c") == ["council"]
    assert found("de") == found("/nothing x") == []


# --- commands


async def test_an_unknown_command_is_answered_with_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(script(), tmp_path) as chat:
        await chat.typed("/dept", "/persona robbin", "/undo", "/depth deep")
        assert chat.briefs() == []
    told = capsys.readouterr().err
    for words in ("did you mean '/depth'", "did you mean 'robin'", "no mission yet", "there are: auto, direct, facets, council"):
        assert words in told


async def test_words_after_a_command_that_takes_none_are_not_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(script(), tmp_path) as chat:
        await chat.typed("One", "/new And a question?", f"/undo {'x' * 200}", "/show me", "Two")
        one, two = chat.asked("submit")
        assert two.context == one.id, "the conversation goes on"  # type: ignore[attr-defined]
        assert not chat.asked("undo")
    told = capsys.readouterr().err
    assert "/new takes no words, got 'And a question?'; write /new alone" in " ".join(told.split())
    assert told.count("takes no words") == 3


async def test_what_is_no_command_is_a_brief(tmp_path: Path) -> None:
    async with seated(script(), tmp_path) as chat:
        await chat.typed("/etc/passwd is what?", " /help me", "1/2")
        assert chat.briefs() == ["/etc/passwd is what?", "/help me", "1/2"]


async def test_who_thinks_is_chosen_and_a_new_conversation_begun(tmp_path: Path) -> None:
    async with seated(script(), tmp_path) as chat:
        await chat.typed("/persona Brick", "One", "/new", "/persona anyone", "Two")
        one, two = chat.asked("submit")
        assert (one.persona, two.persona, two.context) == ("brick", None, None)  # type: ignore[attr-defined]


async def test_help_names_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(script(), tmp_path) as chat:
        await chat.typed("/help", "/image", "/flavour", "/depth")
    out = plain(capsys)
    assert all(command in out for command in session.HELP)
    assert "image: none goes with the next turn" in out


def uploaded(request: Request) -> dict[str, Any]:
    size = request.bytes  # type: ignore[attr-defined]
    image = {"type": "image/png", "bytes": size, "width": 8, "height": 8}
    return {"type": "upload", "digest": request.digest, "bytes": size, "have": size, "whole": True, "image": image}  # type: ignore[attr-defined]


def named(request: Request) -> list[str]:
    return [one.name for one in request.images]  # type: ignore[attr-defined]


async def test_images_go_with_the_next_turn_and_with_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a cat.png", "dog.png", "owl.png"):
        (tmp_path / name).write_bytes(name.encode())
    async with seated(script(upload=uploaded), tmp_path) as chat:
        await chat.typed(
            "/image a cat.png", "/image 'dog.png'", "/image dog.png", "/image gone.png", "/image none kat.png", "/image none a cat.png",
            "/image owl.png", "/image", "What is this?", "And now?", "/image dog.png", "/image none", "Still there?",
        )  # fmt: skip
        first, second, third = chat.asked("submit")
        assert (named(first), named(second), named(third)) == (["dog.png", "owl.png"], [], [])
    told = capsys.readouterr()
    assert "image: dog.png, PNG, 8 × 8, 7 B" in told.out
    assert "the image 'gone.png' cannot be read: No such file" in told.err
    assert "no image 'kat.png' (did you mean 'a cat.png'?)" in told.err


async def test_images_stay_where_the_daemon_refuses_the_turn_and_are_in_the_note_of_one_that_is_given_again(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"cat")
    answers: list[Any] = [InvalidInput("not now"), ACCEPTED]
    async with seated(script(upload=uploaded, submit=lambda request: answers.pop(0)), tmp_path) as chat:
        await chat.typed("/image cat.png", "One", "Two")
        assert [named(request) for request in chat.asked("submit")] == [["cat.png"], ["cat.png"]]
    one = {"digest": "0" * 64, "name": "owl.png"}
    Bookmark(tmp_path, "tcp://the-daemon").keep({"id": "lost", "brief": "What is it?", "images": json.dumps([one])})
    async with seated(script(status=UnknownMission("no mission 'lost'")), tmp_path) as chat:
        await chat.typed(last=True)
        assert [named(request) for request in chat.asked("submit")] == [["owl.png"]]


@pytest.mark.parametrize(("wish", "word"), [("depth", "direct"), ("flavour", "off")])
async def test_a_wish_is_passed_on(tmp_path: Path, wish: str, word: str) -> None:
    async with seated(script(), tmp_path) as chat:
        await chat.typed(f"/{wish} {word.upper()}", "One")
        assert len(chat.briefs()) == 1
        assert getattr(chat.dialogue.wishes, wish) == word


UNDONE = {
    "type": "undo", "redo": False, "objects": [{"oid": "oid:1", "parts": ["mood"]}], "documents": {"gone": ["Keys"], "back": []},
    "missions": [{"id": "lot", "brief": "Two", "finished": 1.0}],
}  # fmt: skip


async def test_undo_shows_what_it_takes_back_and_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids: list[str] = []

    def status(request: Any) -> dict[str, Any]:
        return {"type": "status", "state": "COMPLETE", "brief": "One", **({"context": ids[0]} if request.id != ids[0] else {})}

    def submit(request: Any) -> dict[str, Any]:
        ids.append(request.id)
        return ACCEPTED

    told = script(submit=submit, status=status, undo=lambda request: {**UNDONE, "dry": request.dry})
    async with seated(told, tmp_path) as chat:
        await chat.typed("One", "Two", "/undo", "n", "/undo", "y", "Three")
        assert [(request.id, request.dry) for request in chat.asked("undo")] == [(ids[1], True), (ids[1], True), (ids[1], False)]  # type: ignore[attr-defined]
        assert chat.asked("undo")[-1].expect == ["lot"]  # type: ignore[attr-defined]
        assert chat.asked("submit")[-1].context == ids[0], "it goes on after what is left"  # type: ignore[attr-defined]
    out = plain(capsys)
    for words in ("would be undone", "oid:1 mood", "Keys (gone)", "nothing was done", "goes on after: One"):
        assert words in out


async def test_after_the_undo_of_the_only_turn_there_is_no_last_conversation(tmp_path: Path) -> None:
    status = {"type": "status", "state": "COMPLETE", "brief": "One"}
    async with seated(script(status=status, undo={**UNDONE, "already": True, "id": "m"}), tmp_path) as chat:
        await chat.typed("One", "/undo")
        assert chat.dialogue.last is None
    assert Bookmark(tmp_path, "tcp://the-daemon").read() is None


async def test_an_undo_that_something_depends_on_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with seated(script(undo=UndoConflict("later work depends on it")), tmp_path) as chat:
        await chat.typed("One", "/undo")
    assert "--cascade" in capsys.readouterr().err


async def test_which_model_speaks_is_shown_and_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"type": "personas", "personas": [{"name": name, "model": f"{name}:embedded"} for name in PERSONAS]}
    experts = {
        "type": "experts",
        "experts": [{"model": "robin:sage-v1", "persona": "robin"}, {"model": "robin:writer-v1", "persona": "robin", "role": "methods"}],
        "voices": {"robin": {"model": "robin:sage-v1"}},
    }
    async with seated(script(personas=told, experts=experts), tmp_path) as chat:
        await chat.typed("/model", "/model plain", "/persona robin", "/model plain")
        chosen = [(request.persona, request.voice) for request in chat.asked("experts") if request.voice]  # type: ignore[attr-defined]
        assert chosen == [("robin", "plain")]
    captured = capsys.readouterr()
    assert "robin: robin:sage-v1" in captured.out
    assert "brick: brick:embedded" in captured.out
    assert "writer-v1" not in captured.out, "it is no voice"
    assert "choose one first" in captured.err


# --- what is shown


def shown(streamed: list[str], end: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    screen = Screen(Output(), lively=True)
    for text in streamed:
        screen.hear(token(text))
    screen.ended(end)
    return plain(capsys)


def test_an_answer_that_became_another_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(["One ", "two"], result("One two three."), capsys).startswith("One two three.\n")
    assert "(kept up to: …One two.)" in shown(["One two. And th"], result("One two."), capsys)
    assert "(kept up to: …One two.)" in shown(["One two. And th"], result("One two. …", cut=True), capsys)
    assert shown(["One two."], result("Three."), capsys).startswith("One two.\n(what is kept of it:)\nThree.\n")
    assert shown([], result("Three."), capsys).startswith("Three.\n")


def test_an_answer_that_begins_again_is_not_mixed_with_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Output(), lively=True)
    screen.hear(token("Half an ans"))
    screen.hear({"type": "state", "state": "FAILED", "error": {"code": "inference_failed", "message": "cut"}})
    screen.hear({"type": "state", "state": "IDLE", "persona": "ROBIN"})
    screen.hear(token("A whole answer."))
    screen.ended(result("A whole answer."))
    out = plain(capsys)
    assert out.count("A whole answer.") == 1
    assert "begins again" in out
    assert "inference_failed: cut" in out


def test_no_text_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in shown(
        ["\x1b[2JOne"], result("\x1b[2JTwo", citations=[{"n": 1, "source": "\x1b]0;x", "title": "t", "chunk": "c"}]), capsys
    )


def test_an_answer_is_broken_between_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output()
    monkeypatch.setattr(output.console, "_width", 12)
    screen = Screen(output, lively=True)
    for text in ("One two th", "ree fo", "ur\n\nfive si", "x twelve-wide and ", "漢" * 30, "."):
        screen.hear(token(text))
    whole = "One two three four\n\nfive six twelve-wide and " + "漢" * 30 + "."
    screen.ended(result(whole))
    out = plain(capsys)
    assert out.startswith("One two \nthree four\n\nfive six \ntwelve-wide \nand \n漢")
    assert out.replace("\n", "").startswith(whole.replace("\n", ""))


def test_a_word_that_has_no_end_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Output(), lively=True)
    screen.hear(token("漢" * 30))
    assert plain(capsys) == "漢" * 30


async def test_an_answer_of_another_daemon_begins_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed and started in less time than it takes to notice: the watch goes on, with a status between."""
    infos = itertools.chain([INFO], itertools.repeat({**INFO, "pid": 8}))
    watched = [token("Half an ans"), {"type": "status", "state": "SYNTHESIZING"}, token("A whole answer."), result("A whole answer.")]
    async with seated(script(watch=watched, info=lambda request: next(infos)), tmp_path) as chat:
        await chat.typed("Why?")
    out = plain(capsys)
    assert "(it was cut off here, and begins again)\nA whole answer.\n" in out


async def test_a_status_of_the_same_daemon_cuts_nothing_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched = [token("A whole "), {"type": "status", "state": "SYNTHESIZING"}, token("answer."), result("A whole answer.")]
    async with seated(script(watch=watched), tmp_path) as chat:
        await chat.typed("Why?")
    assert plain(capsys).count("A whole answer.") == 1


async def test_a_daemon_that_answers_slowly_is_the_same_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started, waits = time.monotonic() - 5.0, iter([0.0, 1.5, 0.0])

    def info(request: Request) -> dict[str, Any]:
        told = {**INFO, "uptime_s": time.monotonic() - started}
        time.sleep(next(waits))  # the reply is that much older when it arrives
        return told

    status = {"type": "status", "state": "SYNTHESIZING"}
    watched = [token("A "), status, token("whole "), status, token("answer."), result("A whole answer.")]
    async with seated(script(watch=watched, info=info), tmp_path) as chat:
        await chat.typed("Why?")
    assert "begins again" not in plain(capsys)


async def test_a_turn_that_no_daemon_confirmed_is_told_as_such_when_it_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()

    async def forever(self: Client, brief: str, **more: Any) -> Any:
        held.set()
        await asyncio.Event().wait()

    async def away(self: Client, id: str) -> Any:
        raise DaemonUnavailable("no daemon")

    async with seated(script(), tmp_path) as chat:
        monkeypatch.setattr(Client, "submit", forever)
        monkeypatch.setattr(Client, "cancel", away)
        running = asyncio.ensure_future(chat.typed("One"))
        await held.wait()
        chat.session.press()
        await running
        noted = Bookmark(tmp_path, "tcp://the-daemon").read()
    out = " ".join(plain(capsys).split())
    assert "`batos chat --last` gives it" in out
    assert "batos watch" not in out, "there may be no such mission"
    assert noted is not None
    assert noted["brief"] == "One"


# --- out of a pipe


@contextlib.contextmanager
def piped(data: bytes) -> Iterator[Pipe]:
    reader, writer = os.pipe()
    try:
        os.write(writer, data)
        os.close(writer)
        yield Pipe(reader)
    finally:
        os.close(reader)


async def lines(pipe: Pipe) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(EOFError):
        while True:
            try:
                found.append(await pipe.line("> "))
            except InvalidInput as e:
                found.append(f"! {e.message}")
    return found


async def test_lines_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped("one\r\ntwo\\\nand more\n\nzwölf".encode()) as pipe:
        assert await lines(pipe) == ["one", "two\nand more", "", "zwölf"]
    with piped(b"one\n\xff\nthree\\") as pipe:
        one, two, three = await lines(pipe)
        assert (one, three) == ("one", "three")
        assert "not UTF-8" in two
    monkeypatch.setattr(keyboard, "LINE_BYTES", 10)
    monkeypatch.setattr(keyboard, "_CHUNK", 8)
    with piped(b"x" * 40 + b"\nmore\n") as pipe:
        (refused,) = await lines(pipe)
        assert "more than 10 bytes" in refused


async def test_a_line_of_a_pipe_that_was_stopped_is_not_lost() -> None:
    reader, writer = os.pipe()
    pipe = Pipe(reader)
    waiting = asyncio.ensure_future(pipe.line("> "))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.write(writer, b"one\n")
    os.close(writer)
    assert await lines(pipe) == ["one"]
    os.close(reader)


async def test_out_of_a_pipe_answers_alone_go_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = iter([ANSWERED, {"type": "result", "state": "FAILED", "error": {"code": "deadline", "message": "late"}}, ANSWERED])
    with piped(b"One\n/persona brick\nTwo\nThree\n") as pipe:
        async with seated(script(watch=lambda request: next(ends)), tmp_path, seat=pipe) as chat:
            assert await chat.session.run() == 1
            assert chat.briefs() == ["One", "Two", "Three"]
    captured = capsys.readouterr()
    assert captured.out == "The sea says hush.\nThe sea says hush.\n"
    assert "FAILED, deadline: late" in captured.err


async def test_ctrl_c_while_a_pipe_is_waited_for_ends_the_chat(tmp_path: Path) -> None:
    class Watched(Pipe):
        waits = asyncio.Event()

        async def line(self, prompt: str, *, kept: bool = True) -> str:
            self.waits.set()
            return await super().line(prompt, kept=kept)

    reader, writer = os.pipe()
    seat = Watched(reader)
    async with seated(script(), tmp_path, seat=seat) as chat:
        running = asyncio.ensure_future(chat.session.run())
        await seat.waits.wait()
        chat.session.press()
        assert await running == 130
    os.close(writer)


# --- the verb


def test_wrong_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--last", "--context", "m1"]) == 2
    with daemon(script()) as scripted:
        assert main(["chat", "--persona", "robbin", "--connect", scripted.endpoint]) == 4
    assert "did you mean 'robin'" in capsys.readouterr().err
    assert main(["chat", "--connect", "tcp://127.0.0.1:9"]) == 3


def test_no_other_verb_waits_for_what_a_chat_needs() -> None:
    code = "import sys, batos.cli.app as a; a.register(); sys.exit('prompt_toolkit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
