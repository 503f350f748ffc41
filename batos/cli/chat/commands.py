"""The commands of a chat: lines that begin with `/` and a word."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from batos.cli.chat.dialogue import DEPTHS, FLAVOURS, Dialogue
from batos.cli.chat.keyboard import Names, Seat
from batos.cli.chat.screen import Screen
from batos.cli.output import one_line
from batos.cli.record import page, picture
from batos.cli.undo import print_undo
from batos.config import nearest
from batos.errors import InvalidInput, UndoConflict, UnknownPersona
from batos.wire import Client

_COMMAND = re.compile(r"/(\w*)(?:\s+(.*))?\s*", re.DOTALL)  # a path has a second /, and is none
_NOBODY = "anyone"  # instead of a persona
_NONE = "none"  # instead of an image
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
"""Each command: its word, and what it does."""


def names(personas: list[str]) -> Names:
    """What can be completed: the commands, and the words that they take."""
    words = {"/persona": [*personas, _NOBODY], "/depth": DEPTHS, "/flavour": FLAVOURS}
    return {command: words.get(command, ()) for command in HELP}


def known(persona: str, personas: list[str]) -> str:
    """The name of a persona as the daemon writes it.

    :raises UnknownPersona: if there is none of that name.
    """
    name = persona.lower()
    if name not in personas:
        raise UnknownPersona(f"no persona {persona!r}{nearest(name, personas)}; there are: {', '.join(personas)}")
    return name


class Commands:
    """Does them."""

    def __init__(self, client: Client, dialogue: Dialogue, seat: Seat, screen: Screen, personas: list[str]) -> None:
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
        """Whether a line is a command. One that begins with a space never is."""
        return _COMMAND.fullmatch(line) is not None

    async def do(self, line: str) -> None:
        """Do a command.

        :raises InvalidInput: for one that there is not, with the nearest.
        """
        found = _COMMAND.fullmatch(line)
        assert found is not None
        command, word = f"/{found[1].lower()}", (found[2] or "").strip()
        if command not in self._does:
            raise InvalidInput(f"no command {command!r}{nearest(command, HELP)}; /help lists them. A space before it makes it a brief")
        await self._does[command](word)

    def _told(self, name: str, value: str | None, otherwise: str) -> None:
        self._screen.told(f"{name}: {value or otherwise}")

    def _mission(self) -> str:
        """The last mission.

        :raises InvalidInput: if there is none yet.
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
    """The word, or what is chosen now where there is none.

    :raises InvalidInput: for a word that there is not.
    """
    if not word:
        return now
    if word.lower() not in words:
        raise InvalidInput(f"no {what} {word!r}{nearest(word, words)}; there are: {', '.join(words)}")
    return word.lower()
