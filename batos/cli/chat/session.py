"""Session: a chat from its first line to its last, with Ctrl-C, and its commands: lines that begin with `/` and a word."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from batos.cli.chat.dialogue import DEPTHS, FLAVOURS, Dialogue
from batos.cli.chat.keyboard import Interrupted, LineSource, Names
from batos.cli.chat.screen import Screen
from batos.cli.mission_view import page, picture
from batos.cli.missions import print_undo
from batos.cli.output import one_line
from batos.cli.process import INTERRUPTED
from batos.config import nearest
from batos.errors import BatosError, InvalidInput, UndoConflict, UnknownPersona
from batos.wire import Client

_COMMAND = re.compile(r"/(\w*)(?:\s+(.*))?\s*", re.DOTALL)  # a path has a second / and is not a command
_NOBODY = "anyone"  # word for no particular persona
_NONE = "none"  # word for no image
_ALONE = ("/help", "/new", "/show", "/undo")  # commands without an argument
HELP = {
    "/help": ("", "these commands"),
    "/new": ("", "a new conversation"),
    "/persona": ("[NAME]", f"who thinks from now on; `{_NOBODY}`: the router says"),
    "/depth": ("[DEPTH]", f"how deeply it is thought: {', '.join(DEPTHS)}"),
    "/flavour": ("[FLAVOUR]", f"how much of the persona is in the answers: {', '.join(FLAVOURS)}"),
    "/model": ("[MODEL]", "which model speaks; with a name, and after /persona, this one from now on"),
    "/show": ("", "the record of the last mission: who thought what, from what, at what cost"),
    "/undo": ("", "take back what the last mission did to the image, after a look at it"),
    "/image": ("[FILE]", "an image that goes with the next turn; alone, those that do; `none` drops them, `none NAME` one"),
}
"""Maps each command to its argument and its help text."""


def names(personas: list[str]) -> Names:
    """Return the words for completion: the commands, and their arguments."""
    words = {"/persona": [*personas, _NOBODY], "/depth": DEPTHS, "/flavour": FLAVOURS}
    return {command: words.get(command, ()) for command in HELP}


def known(persona: str, personas: list[str]) -> str:
    """Return the name of a persona as the daemon writes it.

    :raises UnknownPersona: if no persona has that name.
    """
    name = persona.lower()
    if name not in personas:
        raise UnknownPersona(f"no persona {persona!r}{nearest(name, personas)}; there are: {', '.join(personas)}")
    return name


class Commands:
    """Does them."""

    def __init__(self, client: Client, dialogue: Dialogue, seat: LineSource, screen: Screen, personas: list[str]) -> None:
        self._client, self._dialogue, self._seat, self._screen, self._personas = client, dialogue, seat, screen, personas
        self._does: dict[str, Callable[[str], Awaitable[None]]] = {
            "/help": self._help,
            "/new": self._new,
            "/persona": self._persona,
            "/depth": self._depth,
            "/flavour": self._flavour,
            "/model": self._model,
            "/show": self._show,
            "/undo": self._undo,
            "/image": self._image,
        }

    def means(self, line: str) -> bool:
        """Return True if a line is a command. One that begins with a space never is."""
        return _COMMAND.fullmatch(line) is not None

    async def do(self, line: str) -> None:
        """Run a command.

        :raises InvalidInput: for an unknown command, with the nearest known one; for words after a command that takes none.
        """
        found = _COMMAND.fullmatch(line)
        assert found is not None
        command, word = f"/{found[1].lower()}", (found[2] or "").strip()
        if command not in self._does:
            raise InvalidInput(f"no command {command!r}{nearest(command, HELP)}; /help lists them. A space before it makes it a brief")
        if word and command in _ALONE:
            raise InvalidInput(f"{command} takes no words, got {one_line(word)!r}; write {command} alone. Nothing was done")
        await self._does[command](word)

    def _told(self, name: str, value: str | None, otherwise: str) -> None:
        self._screen.told(f"{name}: {value or otherwise}")

    def _mission(self) -> str:
        """Return the last mission.

        :raises InvalidInput: if there is no mission yet.
        """
        if self._dialogue.last is None:
            raise InvalidInput("this conversation has no mission yet; say something first")
        return self._dialogue.last

    async def _help(self, _: str) -> None:
        rows = [(f"{command} {word}".rstrip(), about) for command, (word, about) in HELP.items()]
        if self._screen.output.as_json:
            self._screen.output.event({"type": "help", "commands": dict(rows)})
        else:
            self._screen.output.rows(("", ""), rows)

    async def _new(self, _: str) -> None:
        self._dialogue.leave()
        self._screen.told("a new conversation")

    async def _persona(self, name: str) -> None:
        wishes = self._dialogue.wishes
        if name:
            wishes.persona = None if name.lower() == _NOBODY else known(name, self._personas)
        self._told("persona", wishes.persona, "whom the router says")

    async def _depth(self, word: str) -> None:
        wishes = self._dialogue.wishes
        wishes.depth = _chosen("depth", word, DEPTHS, wishes.depth)
        self._told("depth", wishes.depth, "as the daemon is set")

    async def _flavour(self, word: str) -> None:
        wishes = self._dialogue.wishes
        wishes.flavour = _chosen("flavour", word, FLAVOURS, wishes.flavour)
        self._told("flavour", wishes.flavour, "as the daemon is set")

    async def _model(self, name: str) -> None:
        persona = self._dialogue.wishes.persona
        if name and persona is None:
            raise InvalidInput("a model speaks for a persona; choose one first, with /persona NAME")
        voices = (await self._client.experts(persona=persona if name else None, voice=name or None))["voices"]
        told = {one["name"]: one.get("model") for one in (await self._client.personas())["personas"]}
        for each in (persona,) if persona else self._personas:
            voice = voices.get(each) or {}
            self._told(each, voice.get("model") or told.get(each), "no model")
        if not name:
            experts = [one for one in (await self._client.experts())["experts"] if one.get("role", "voice") == "voice"]
            others = [one["model"] for one in experts if persona in (None, one["persona"])]
            self._screen.told(f"after /persona, /model takes: {', '.join(('newest', 'plain', *others))}")

    async def _show(self, _: str) -> None:
        record = (await self._client.show(self._mission()))["record"]
        if self._screen.output.as_json:
            self._screen.output.event({"type": "show", "record": record})
        else:
            page(record, self._screen.output)

    async def _undo(self, _: str) -> None:
        id = self._mission()
        try:
            seen = await self._client.undo(id, dry=True)
        except UndoConflict as e:
            raise UndoConflict(f"{e.message}; `batos undo {id} --cascade` takes these back, too", **e.context) from None
        if self._screen.output.as_json:
            self._screen.output.event(seen)
        else:
            print_undo(seen, self._screen.output)
        if not seen.get("already"):
            answer = await self._seat.line("Take that back? [y/N] ", kept=False)
            if answer.strip().lower() not in ("y", "yes"):
                self._screen.told("nothing was done")
                return
            await self._client.undo(id, expect=[one["id"] for one in seen["missions"]])
        before = (await self._client.status(id)).get("context")
        self._dialogue.back(before)
        then = f"goes on after: {one_line((await self._client.status(before))['brief'])}" if before else "begins anew"
        self._screen.told(f"undone; the conversation {then}")

    async def _image(self, word: str) -> None:
        images = self._dialogue.images
        first, _, name = word.partition(" ")
        if first.lower() == _NONE:
            self._drop(name.strip())
        elif word:
            found = await self._client.upload(word.strip("'\""))
            if all(one["digest"] != found["digest"] for one in images):
                images.append(found)
        if not images:
            self._screen.told("image: none goes with the next turn")
        for one in images:
            self._screen.told(f"image: {picture(one)}; it goes with the next turn")

    def _drop(self, name: str) -> None:
        """Leave out the images of that name, or all.

        :raises InvalidInput: for a name that none has.
        """
        images = self._dialogue.images
        left = [one for one in images if name and one["name"] != name]
        if name and len(left) == len(images):
            names = [str(one["name"]) for one in images]
            raise InvalidInput(f"no image {name!r}{nearest(name, names)} goes with the next turn; there are: {', '.join(names) or 'none'}")
        images[:] = left


def _chosen(what: str, word: str, words: tuple[str, ...], now: str | None) -> str | None:
    """Return the word, or the current choice without a word.

    :raises InvalidInput: if the word is not a valid choice.
    """
    if not word:
        return now
    if word.lower() not in words:
        raise InvalidInput(f"no {what} {word!r}{nearest(word, words)}; there are: {', '.join(words)}")
    return word.lower()


T = TypeVar("T")
_HOW = (
    "A \\ at the end of a line goes on in the next one; so does Alt-Enter. See /help for commands; Ctrl-C stops an answer, Ctrl-D leaves."
)


class ChatSession:
    """Loop of a chat: takes line after line, until there are no more."""

    def __init__(self, dialogue: Dialogue, commands: Commands, seat: LineSource, screen: Screen, *, lively: bool) -> None:
        """:param lively: True if a user types the lines."""
        self._dialogue, self._commands, self._seat, self._screen, self._lively = dialogue, commands, seat, screen, lively
        self._under_way: asyncio.Future[Any] | None = None
        self._pressed = False
        self._turns = self._failed = 0

    async def run(self, context: str | None = None, *, last: bool = False) -> int:
        """Chat. Return the exit code.

        :param context: mission to follow.
        :param last: continue the last conversation.
        :raises BatosError: if that is not possible.
        """
        self._screen.told(_HOW if self._lively else "")
        try:
            with self._seat.quiet():
                await self._begin(context, last)
                while True:
                    await self._next()
        except EOFError:
            self._left()
        except Interrupted:
            return INTERRUPTED
        return 1 if self._failed and not self._lively else 0

    async def _next(self) -> None:
        """Take the next line.

        :raises EOFError: if there are no more.
        :raises Interrupted: if there was Ctrl-C, and no user who could continue.
        """
        try:
            line = await self._stoppable(self._seat.line("> "))
        except Interrupted:
            if not self._lively:
                raise
        except BatosError as e:  # for example a line that cannot be read
            self._failed += 1
            self._screen.error(e)
        else:
            await self._take(line)

    async def _begin(self, context: str | None, last: bool) -> None:
        if context is not None:
            await self._turn(self._dialogue.join(context), raises=True)
        elif last and not await self._turn(self._dialogue.find(), raises=True):
            self._screen.told("no earlier conversation exists to continue; a new one begins")

    async def _take(self, line: str) -> None:
        if self._commands.means(line):
            await self._turn(self._commands.do(line))
        elif brief := line.strip():
            self._turns += 1
            if await self._turn(self._dialogue.say(brief)) is False:
                self._failed += 1

    async def _turn(self, work: Coroutine[Any, Any, T], *, raises: bool = False) -> T | None:
        """Run work that Ctrl-C stops without ending the chat. Return None if it was stopped or refused.

        :param raises: True if an error ends the chat.
        """
        try:
            return await self._stoppable(work)
        except Interrupted:
            with contextlib.suppress(Interrupted):  # Ctrl-C again: give up waiting
                await self._stoppable(self._stop())
        except BatosError as e:
            if raises:
                self._screen.clear()
                raise
            self._failed += 1
            self._screen.error(e)
        return None

    async def _stop(self) -> None:
        try:
            await self._dialogue.stop()
        except BatosError as e:
            self._screen.error(e)

    def _left(self) -> None:
        """Print at the end the work that is still under way."""
        self._screen.clear()
        if waits := self._dialogue.under_way:
            self._screen.told(f"the mission {waits} waits for an answer: `batos chat --last` goes on with it")
        if self._screen.output.as_json:
            self._screen.output.event({"type": "chat", "turns": self._turns, "failed": self._failed, "last": self._dialogue.last})

    # --- Ctrl-C

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Let Ctrl-C stop only the work under way, while the block lasts. At a prompt it is a key."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.press)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def press(self) -> None:
        """Hear Ctrl-C."""
        if self._under_way is not None:
            self._pressed = True
            self._under_way.cancel()

    async def _stoppable(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something.

        :raises Interrupted: if there was Ctrl-C.
        """
        self._under_way, self._pressed = asyncio.ensure_future(work), False
        try:
            return await self._under_way  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if not self._pressed:
                raise
            raise Interrupted from None
        finally:
            self._under_way = None
