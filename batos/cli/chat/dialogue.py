"""Dialogue with a daemon: each turn is a durable mission that follows the last one.

The client gives a turn its id before it asks the daemon. So whatever is lost, a message, the daemon or the chat itself, the same turn can
be submitted again and is the same mission. Thought that was done meanwhile is not repeated.

A bookmark beside the history holds the newest turn of the last conversation with a daemon, so that `--last` finds it again. It is written
before the daemon is asked: a turn is not lost when the chat is killed between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from batos.cli.app import check_reachable
from batos.cli.chat.keyboard import LineSource
from batos.cli.chat.screen import Screen
from batos.errors import BatosError, Busy, DaemonUnavailable, InvalidInput, UnknownMission
from batos.wire import Client

_NAMED = 16  # characters of a digest that identify a daemon


class Bookmark:
    """The note about one daemon."""

    def __init__(self, folder: Path | None, endpoint: str) -> None:
        """
        :param folder: where it is kept; None: nowhere, it ends with the chat.
        """
        name = hashlib.sha256(endpoint.encode("utf-8", "surrogateescape")).hexdigest()[:_NAMED]
        self._path = None if folder is None else folder / f"chat_last_{name}.json"

    def read(self) -> dict[str, str] | None:
        """Return the fields of the noted turn; None if there is none, or it is unreadable."""
        if self._path is None:
            return None
        try:
            noted = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        fit = isinstance(noted, dict) and "id" in noted and all(isinstance(value, str) for value in noted.values())
        return noted if fit else None

    def keep(self, turn: Mapping[str, Any]) -> None:
        """Note a turn in place of the previous one; without fields, note none.

        If writing fails, as on a full disk, the chat goes on, and `--last` finds the previous turn.
        """
        if self._path is None:
            return
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
                json.dump(turn, file)
            fresh.replace(self._path)


T = TypeVar("T")
DEPTHS = ("auto", "direct", "facets", "council")
FLAVOURS = ("auto", "full", "light", "off")
_LOOK_S = 0.3  # seconds between two checks whether the daemon is back
_BUSY_S = 1.0
_CLOCK_S = 1.0  # seconds by which two reports of the same start may differ
_FIELDS = ("persona", "context", "depth", "flavour")


@dataclass
class Wishes:
    """Options of a user for the coming turns; None leaves one to the daemon."""

    persona: str | None = None
    depth: str | None = None
    flavour: str | None = None

    def given(self) -> dict[str, str]:
        """Return those that are wished."""
        return {name: value for name, value in vars(self).items() if value is not None}


class Dialogue:
    """One conversation after the other, with one daemon."""

    def __init__(self, client: Client, seat: LineSource, screen: Screen, bookmark: Bookmark, *, may_ask: bool) -> None:
        """
        :param seat: source of the answers to a mission's questions.
        :param may_ask: True if missions may ask their user questions.
        """
        self._client, self._seat, self._screen, self._bookmark, self._may_ask = client, seat, screen, bookmark, may_ask
        self.wishes = Wishes()
        self.images: list[dict[str, Any]] = []  # images for the next turn, as `upload` returned them
        self.last: str | None = None  # the mission that the next turn follows
        self.under_way: str | None = None  # the mission that runs now
        self._accepted = False  # True if the daemon confirmed that it has that mission
        self._before: dict[str, str] = {}  # the bookmark's record before this turn
        self._daemon: tuple[int, float, float] = (0, 0.0, 0.0)  # process id; earliest and latest start by this machine's clock

    # --- turns

    async def say(self, brief: str) -> bool:
        """Take a turn, to its end. Return True if it is COMPLETE.

        :raises BatosError: if the daemon refuses the turn; then the conversation is unchanged.
        """
        follows = {} if self.last is None else {"context": self.last}
        shown = {"images": json.dumps([{name: one[name] for name in ("digest", "name")} for one in self.images])} if self.images else {}
        return await self._take({"id": str(uuid.uuid4()), "brief": brief, **follows, **shown, **self.wishes.given()})

    async def find(self) -> bool:
        """Resume the last conversation with its options, and follow its last turn to the end. Return True if there is one.

        :raises UnknownMission: if the daemon no longer knows the mission.
        """
        noted = self._bookmark.read()
        if noted is None:
            return False
        self.wishes = Wishes(**{name: value or noted.get(name) for name, value in vars(self.wishes).items()})
        try:
            await self.join(noted["id"])
        except UnknownMission as e:
            if "brief" not in noted:
                told = f"{e.message}: this image does not have the last conversation; without --last a new one begins"
                raise UnknownMission(told) from None
            await self._take(noted)  # the chat was killed before the daemon received the mission
        return True

    async def join(self, id: str) -> None:
        """Continue after a mission; follow it to its end first.

        :raises UnknownMission: if no mission has that id.
        """
        status = await self._again(lambda: self._client.status(id))
        self._mark(id)
        self._screen.told(f"> {status.get('brief', '')}")
        await self._follow(id)

    async def _take(self, turn: dict[str, str]) -> bool:
        self._before = self._bookmark.read() or {}
        self._bookmark.keep(turn)
        self.under_way, self._accepted = turn["id"], False
        more: dict[str, Any] = {name: turn[name] for name in _FIELDS if name in turn}
        more["images"] = json.loads(turn.get("images", "[]"))
        try:
            await self._again(lambda: self._client.submit(turn["brief"], id=turn["id"], may_ask=self._may_ask, **more))
        except BatosError:
            self._unsaid()
            raise
        self.images.clear()
        self._mark(turn["id"])
        return await self._follow(turn["id"])

    async def _follow(self, id: str) -> bool:
        """Show a mission until it has ended, across any restarts of the daemon. Return True if it is COMPLETE."""
        self.under_way, self._accepted = id, True
        await self._known()
        answered: set[int] = set()
        while True:
            try:
                end = await self._again(lambda: self._heard(id, answered))
            except BatosError:
                self.under_way = None
                raise
            if end is not None:
                self.under_way = None
                return self._screen.ended(end)

    async def _heard(self, id: str, answered: set[int]) -> dict[str, Any] | None:
        """Hear a mission's events; the last one.

        :param answered: the numbers of its questions that were answered from here.
        """
        async with contextlib.aclosing(self._client.watch(id)) as events:
            async for event in events:
                if event.get("type") == "result":
                    return event
                if event.get("type") == "status" and self._screen.streaming and not await self._known():
                    self._screen.restart()
                if (question := _question(event)) and question["number"] not in answered:
                    await self._answer(id, question)
                    answered.add(question["number"])
                elif not question:
                    self._screen.hear(event)
        return None

    async def _answer(self, id: str, question: dict[str, Any]) -> None:
        """Ask the user to answer a mission's question."""
        self._screen.question({"type": "needs_input", "id": id, **question})
        text = ""
        while not text.strip():
            text = await self._seat.line("? ", kept=False)
        try:
            await self._again(lambda: self._client.answer(id, text, question["number"]))
        except InvalidInput as e:  # the question was answered elsewhere, or the mission has ended meanwhile
            self._screen.error(e)

    async def stop(self) -> None:
        """Take the mission that is under way back."""
        id, self.under_way = self.under_way, None
        self._screen.clear()
        if id is None:
            return
        try:
            reply = await self._client.cancel(id)
        except UnknownMission:
            self._unsaid()
            self._screen.told("(stopped before the daemon had it)")
        except DaemonUnavailable:
            told = f"once one does, `batos cancel {id}` takes it back, and `batos watch {id}` shows it"
            if not self._accepted:
                told = "it may not have this turn; `batos chat --last` gives it, once one does"
            self._screen.told(f"(no daemon answers; {told})")
        else:
            if self.last != id:
                self._mark(id)
            if reply.get("state") == "COMPLETE":  # the mission ended before it could be stopped
                self._screen.ended({**reply, "type": "result"})
            else:
                self._screen.told("(stopped)")

    # --- the conversation

    def leave(self) -> None:
        """Begin a new conversation with the next turn."""
        self.last = None

    def back(self, to: str | None) -> None:
        """Let the next turn follow an earlier mission, or none."""
        self._mark(to)

    def _mark(self, id: str | None) -> None:
        """Let the next turn follow this mission, and write the bookmark with its options."""
        self.last = id
        self._bookmark.keep({} if id is None else {"id": id, **self.wishes.given()})

    def _unsaid(self) -> None:
        """Take the turn back, because the daemon has not accepted it."""
        self.under_way = None
        self._bookmark.keep(self._before)

    # --- the daemon

    async def _known(self) -> bool:
        """Return True if the daemon is the same process as at the last call: another one thinks an answer through again."""
        before, self._daemon = self._daemon, await self._again(self._process)
        (pid, earliest, latest), (now, not_before, not_after) = before, self._daemon
        return pid == now and not_before <= latest + _CLOCK_S and earliest <= not_after + _CLOCK_S

    async def _process(self) -> tuple[int, float, float]:
        """Return the daemon's process id, and between which moments it started. A slow reply widens the span."""
        asked = time.monotonic()
        info = await self._client.info()
        pid, uptime_s = int(info.get("pid", 0)), float(info.get("uptime_s", 0))
        return pid, asked - uptime_s, time.monotonic() - uptime_s

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the reply to a request that may be repeated. Wait while no daemon answers or the daemon is busy."""
        while True:
            try:
                return await ask()
            except DaemonUnavailable:
                await self._there()
            except Busy as e:
                self._screen.waiting(e.message)
                await asyncio.sleep(_BUSY_S)

    async def _there(self) -> None:
        """Wait until a daemon listens at the endpoint. Send nothing before: all queued requests would arrive at once."""
        while True:
            self._screen.waiting(f"no daemon answers at {self._client.endpoint}; it is waited for, Ctrl-C gives up")
            try:
                return await asyncio.to_thread(check_reachable, self._client.endpoint)
            except DaemonUnavailable:
                await asyncio.sleep(_LOOK_S)


def _question(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the question of a mission in this event: `question` and `number`."""
    if event.get("type") == "needs_input":
        return {"question": event.get("question"), "number": event.get("number")}
    asked = event.get("question") if event.get("state") == "NEEDS_INPUT" else None
    return asked if isinstance(asked, dict) else None
