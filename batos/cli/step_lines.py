"""Lines of a session of stepping: what each says, and what it asks of the daemon."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from batos.cli import step_view
from batos.cli.chat.keyboard import Interrupted, Keyboard, Names
from batos.cli.missions import value_of
from batos.cli.output import Output
from batos.config import nearest
from batos.errors import InvalidInput
from batos.wire import Client

HELP: Mapping[str, str] = {
    "where": "where it stands",
    "rail": "all transitions of the mission",
    "next [N]": "go on by one transition; at most N new inferences are paid for",
    "go PLACE [N]": "go to the transition of a number, or to a state; back as well",
    "end [N]": "go on to the end",
    "failure": "go to where it failed",
    "slots": "the slots of the cycle",
    "prompts": "the inferences up to here",
    "prompt N": "one of them, with its whole prompt and answer",
    "tools": "what the tools answered; nothing is sent again",
    "error": "the error, whole",
    "runs": "the runs of methods up to here",
    "run N [LINE]": "one of them: source, line, local values; at the LINEth line that it came to",
    "show OBJECT": "an object of the mirror; cycle and mission are those that stand here",
    "eval EXPRESSION": "the value of a line of Python, in which cycle, mission, lobby and the personas have names",
    "send OBJECT SELECTOR [ARG]...": "send a message; nothing of it is kept",
    "set OBJECT.SLOT VALUE": "change a slot (JSON or text); cycle.SLOT is one of the cycle, here",
    "unset OBJECT.SLOT": "remove a slot",
    "edit KIND TARGET [TEXT|@FILE]": "change a prompt, facet, intent, method, model or answer; without a text, in place",
    "reply TEXT": "answer the question that the mission waits with",
    "edits": "the changes",
    "drop N": "take one back",
    "diff": "all changes as one diff, and what others changed meanwhile",
    "continue [anyway] [NOTE]": "take them over and let the mission go on, after a question; continue! asks none",
    "help": "these lines",
    "quit": "leave; nothing was changed",
}
KINDS = ("prompt", "facet", "intent", "method", "model", "answer")


def names() -> Names:
    """Return the words for completion."""
    return {words.split()[0]: () for words in HELP}


class StepLines:
    """A session, as the command line drives it."""

    def __init__(self, client: Client, reply: dict[str, Any], output: Output) -> None:
        """
        :param reply: the reply to the request that opened the session.
        """
        self._client, self.reply, self._output = client, reply, output
        self.session = str(reply["session"])
        self.seat: Keyboard | None = None
        """The keyboard that questions go to; None where there is no keyboard."""
        self.is_over = False
        """True once the user has left, or the mission goes on."""
        shown = {"rail": step_view.show_rail, "prompts": step_view.show_inferences, "tools": step_view.show_tools,
                 "runs": step_view.show_runs, "edits": step_view.show_edits}  # fmt: skip
        self._shows: Mapping[str, Callable[[Any, Output], None]] = shown
        self._does: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "next": self._next, "go": self._go, "end": self._end, "failure": self._failure, "prompt": self._prompt, "run": self._run,
            "show": self._show, "eval": self._eval, "send": self._send, "set": self._set, "unset": self._unset, "edit": self._edit,
            "reply": self._reply, "drop": self._drop, "diff": self._diff, "continue": self._continue, "continue!": self._at_once,
        }  # fmt: skip

    @property
    def prompt(self) -> str:
        """Return the place in two words, for the prompt."""
        at = self.reply["at"]
        return f"{at['number']} {at['state']}"

    def place(self) -> None:
        """Print where it stands."""
        step_view.show_place(self.reply, self._output)

    async def do(self, line: str) -> None:
        """Carry out a line.

        :raises InvalidInput: for one that says nothing, with the nearest that does.
        :raises BatosError: as the daemon answers.
        """
        word, _, rest = line.strip().partition(" ")
        word, rest = word.lower(), rest.strip()
        if not word or word.startswith("#"):
            return
        if word in self._shows:
            self._shows[word](self.reply, self._output)
        elif word in self._does:
            await self._does[word](rest)
        elif word in ("quit", "exit"):
            self.is_over = True
            await self._client.step_close(self.session)
        elif word == "where":
            self.place()
        elif word == "slots":
            step_view.show_slots(self.reply["slots"], self._output)
        elif word == "error":
            self._output.say(step_view.told(self.reply.get("error", "no error ended the thinking up to here")))
        elif word == "help":
            self._output.rows(("line", "what it does"), HELP.items())
        else:
            raise InvalidInput(f"no line begins with {word!r}{nearest(word, [*names()])}; `help` lists them")

    # --- going

    async def _next(self, rest: str) -> None:
        await self._to(int(self.reply["at"]["number"]) + 1, rest)

    async def _end(self, rest: str) -> None:
        await self._to("end", rest)

    async def _failure(self, rest: str) -> None:
        await self._to("failure", rest)

    async def _go(self, rest: str) -> None:
        place, _, count = rest.partition(" ")
        if not place:
            raise InvalidInput("go takes a place: the number of a transition (`rail` lists them), or a state such as SYNTHESIZING")
        await self._to(int(place) if place.isdecimal() else place, count)

    async def _to(self, place: int | str, count: str) -> None:
        self.reply = await self._client.step_go(self.session, place, inferences=_number(count or "0", "of new inferences"))
        self.place()

    # --- looking

    async def _prompt(self, rest: str) -> None:
        found = await self._client.step_show(self.session, inference=_number(rest, "of an inference"))
        step_view.show_inference(found["inference"], self._output)

    async def _run(self, rest: str) -> None:
        number, _, line = rest.partition(" ")
        at = _number(line, "of a line") if line else None
        found = await self._client.step_show(self.session, run=_number(number, "of a run"), line=at)
        step_view.show_run(found["method"], self._output)

    async def _show(self, rest: str) -> None:
        found = (await self._client.step_show(self.session, target=rest or "lobby"))["object"]
        step_view.show_slots(found["slots"], self._output)

    async def _eval(self, rest: str) -> None:
        found = await self._client.step_eval(self.session, rest)
        self._output.say(step_view.told(found["value"]))

    async def _send(self, rest: str) -> None:
        words = _words(rest)
        if len(words) < 2:
            raise InvalidInput('send takes an object, a selector and arguments: send brick count_words_ "a b"')
        found = await self._client.step_send(self.session, words[0], words[1], [value_of(one) for one in words[2:]])
        self._output.say(step_view.told(found["value"]))

    # --- changing

    async def _set(self, rest: str) -> None:
        target, _, text = rest.partition(" ")
        if not text:
            raise InvalidInput('set takes a slot and its value: set robin.core_mission "To be kind."')
        own = target.startswith("cycle.")
        await self._changed("cycle" if own else "slot", target.removeprefix("cycle.") if own else target, value_of(_text(text.strip())))

    async def _unset(self, rest: str) -> None:
        self.reply = await self._client.step_edit(self.session, "slot", rest, remove=True)
        self._output.note("changed; `end` thinks it again", "dim")

    async def _edit(self, rest: str) -> None:
        kind, _, more = rest.partition(" ")
        target, _, text = more.strip().partition(" ")
        if kind not in KINDS or not target:
            raise InvalidInput(f"edit takes a kind ({', '.join(KINDS)}), a target, and a text: edit prompt SYNTHESIZING @prompt.txt")
        await self._changed(kind, target, _text(text.strip()) if text.strip() else await self._edited(kind, target))

    async def _edited(self, kind: str, target: str) -> str:
        if self.seat is None:
            raise InvalidInput(f"edit {kind} {target} takes a text, or @FILE: there is no terminal to change it in place")
        try:
            text = await self.seat.changed("", await self._present(kind, target))
        except (EOFError, Interrupted):
            raise InvalidInput("nothing was changed") from None
        return text.rstrip("\n") + ("\n" if kind == "method" else "")

    async def _present(self, kind: str, target: str) -> str:
        if kind == "answer":
            found = await self._client.step_show(self.session, inference=_number(target, "of an inference"))
            return str(found["inference"]["said"] or "")
        if kind == "prompt":
            target = f"psm.{target.removeprefix('psm.').upper()}.meta_prompt"
        path, _, slot = target.rpartition(".")
        held = (await self._client.step_show(self.session, target=path))["object"]["slots"].get(slot, "")
        return str(next((held[name] for name in ("source", "intent") if name in held), held) if isinstance(held, dict) else held)

    async def _reply(self, rest: str) -> None:
        await self._changed("reply", "", rest)

    async def _changed(self, kind: Any, target: str, value: Any) -> None:
        self.reply = await self._client.step_edit(self.session, kind, target, value)
        self._output.note("changed; `end` thinks it again", "dim")

    async def _drop(self, rest: str) -> None:
        self.reply = await self._client.step_drop(self.session, _number(rest, "of a change"))
        self._output.note("taken back", "dim")

    # --- continuing

    async def _diff(self, rest: str) -> None:
        step_view.show_diff(await self._client.step_continue(self.session, dry=True), self._output)

    async def _continue(self, rest: str) -> None:
        if self.seat is None:
            raise InvalidInput("there is no keyboard to answer a question here; `continue! NOTE` takes the changes over without a question")
        ahead = await self._client.step_continue(self.session, dry=True)
        step_view.show_diff(ahead, self._output)
        if "why_not" in ahead:
            return
        said = await self.seat.line(f"let mission {self.reply['id']} go on with this? [y/N] ", kept=False)
        if said.strip().lower() in ("y", "yes"):
            await self._at_once(rest)
        else:
            self._output.note("nothing was changed", "dim")

    async def _at_once(self, rest: str) -> None:
        anyway, _, note = rest.partition(" ")
        done = await self._client.step_continue(self.session, note if anyway == "anyway" else rest, anyway=anyway == "anyway")
        self.is_over = True
        if done["with"]:
            self._output.say(f"the changes are mission {done['with']}; `batos undo {done['with']}` takes them back", "green")
        self._output.say(f"mission {done['id']} goes on: `batos watch {done['id']}`", "green")


def _number(text: str, what: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidInput(f"{text!r} is not a number {what}")
    return int(text)


def _text(text: str) -> str:
    """Return a text, or that of the file that `@FILE` names.

    :raises InvalidInput: if the file cannot be read.
    """
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidInput(f"{text[1:]!r} cannot be read: {e}") from None


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as e:
        raise InvalidInput(f"{line!r} cannot be taken apart: {e}") from None
