"""Output of a chat: the answer as it streams, progress in one quiet line, and the outcome of a turn."""

from __future__ import annotations

import re
from typing import Any

from rich.cells import cell_len

from batos.cli.mission_view import called, cost, doubts, inside, of_answer, sources, tool_step
from batos.cli.output import Output, PassingLine, clean, one_line
from batos.errors import BatosError

_DOES = {"ACCEPTED": "waits", "IDLE": "begins", "DECOMPOSING": "plans", "DELEGATING": "thinks", "SYNTHESIZING": "writes"}
"""Words on the screen for each state of a mission."""
_AGAIN = ("ACCEPTED", "IDLE", "DECOMPOSING", "DELEGATING", "FAILED", "PAUSED")
"""States after which the answer starts again from its beginning."""
_ADVICE = {
    "inference_failed": "`batos doctor` looks at Ollama and its models",
    "provisioning_failed": "`batos models --ensure` looks after the models",
    "attempts_exhausted": "`batos failures --mission {id}` says what each attempt met",
    "quality_refused": "say it in other words, or let another think: /persona",
    "budget_spent": "ask for less at a time",
    "model_blind": "once a model that sees thinks, give the image and the brief again",
    "cancelled": "it was taken back",
    "image": "look at the disk of the daemon",
}
"""Advice for a mission that FAILED, by error code."""
_WHATEVER = "/show has its record; said again, it is tried again"


_WORDS = re.compile(r"(\s+)")
_LONG = 24  # characters after which an unfinished word is written


class _Running:
    """Running text on a terminal, broken between words."""

    def __init__(self, output: Output) -> None:
        self._console = output.console
        self._word = ""  # a word that may go on
        self._column = 0

    def write(self, text: str) -> None:
        """Add text; its last word is written once it has ended, or has become long: not every script parts its words."""
        *whole, self._word = _WORDS.split(self._word + text)
        if len(self._word) > _LONG:
            whole, self._word = [*whole, self._word], ""
        self._put(whole)

    def end(self) -> None:
        """Write the rest; the next text begins a line."""
        self._put([self._word])
        self._word, self._column = "", 0

    def _put(self, parts: list[str]) -> None:
        width = self._console.width
        for part in parts:
            wide = cell_len(part.rpartition("\n")[2])
            if "\n" in part:
                self._column = 0
            elif self._column and self._column + wide > width:
                part = "\n" if part.isspace() else f"\n{part}"
                self._column, wide = 0, 0 if part == "\n" else wide
            self._console.file.write(part)
            self._column += wide
        self._console.file.flush()


class Screen:
    """Shows one turn after the other."""

    def __init__(self, output: Output, *, lively: bool) -> None:
        """
        :param lively: on a terminal. Elsewhere only the answers go to standard output, each when it is there.
        """
        self.output, self._lively = output, lively
        self._passing = PassingLine(output)
        self._running = _Running(output)
        self._heard = ""  # text of the answer so far
        self._counts: dict[str, int] = {}  # characters received by speaker, of text that does not belong to the answer yet
        self._told = ""  # the last reason for waiting that was shown

    @property
    def streaming(self) -> bool:
        """Return True if a part of the answer is shown."""
        return bool(self._heard)

    def hear(self, event: dict[str, Any]) -> None:
        """Show an event of a running mission."""
        self._told = ""
        if event.get("type") == "token":
            self._token(event)
        elif event.get("type") == "revised" and not inside(event):
            self.restart(f"refused, {one_line(event.get('why', ''), 200)}; it is written anew")
        elif event.get("type") == "tool":
            self.told(tool_step(event))
        elif event.get("type") in ("state", "status"):
            self._state(event)

    def restart(self, why: str = "it was cut off here, and begins again") -> None:
        """End the partial answer with a reason, because it is written again."""
        if self._heard:
            self._heard = ""
            self._running.end()
            self.told(f"\n({why})")

    def _token(self, event: dict[str, Any]) -> None:
        text = clean(event.get("text", ""))
        if not of_answer(event):
            who = str(event.get("facet") or event.get("persona") or "").removesuffix("_facet_")
            self._counts[who] = self._counts.get(who, 0) + len(text)
            self._say_passing(", ".join(f"{name}: {count} characters" for name, count in self._counts.items()))
        elif self._lively:
            self._passing.clear()
            text = text if self._heard else text.lstrip()
            self._heard += text
            self._running.write(text)

    def _state(self, event: dict[str, Any]) -> None:
        state, error = str(event.get("state")), event.get("error")
        if inside(event):
            self._say_passing(f"{event.get('persona')} {_DOES.get(state, state.lower())} about a part")
            return
        self._counts.clear()
        if state in _AGAIN:
            self.restart()
        if state == "FAILED" and error:
            self.told(f"an attempt failed ({error.get('code')}: {one_line(error.get('message', ''), 200)})")
        elif state == "PAUSED":
            self._say_passing(f"paused; `batos resume {event.get('id')}` lets it go on")
        elif state in _DOES:
            place = f", number {event['place']} in the queue" if event.get("place") else ""
            why = f" ({event['why']})" if event.get("why") else ""
            self._say_passing(f"{event.get('persona') or 'it'} {_DOES[state]}{place}{why}")

    def _say_passing(self, text: str) -> None:
        if not self._heard:  # else the line would appear in the middle of the answer
            self._passing.tell(text)

    def waiting(self, why: str) -> None:
        """Show the reason for waiting; only once if lines do not vanish."""
        self.restart()
        if self._lively:
            self._passing.tell(why)
        elif why != self._told:
            self.output.note(why)
        self._told = why

    def question(self, event: dict[str, Any]) -> None:
        """Show a mission's question."""
        self.clear()
        if self.output.as_json:
            self.output.event(event)
            return
        self.output.say(str(event["question"]), "bold")
        self.told("(the next line answers it; Ctrl-C takes the mission back)" if self._lively else "")

    def ended(self, event: dict[str, Any]) -> bool:
        """Show the end of a mission. Return True if it is COMPLETE."""
        streamed, self._heard = self._heard, ""
        self._passing.clear()
        self._running.end()
        self._counts.clear()
        good = event.get("state") == "COMPLETE"
        if self.output.as_json:
            self.output.event(event)
        elif good:
            self._answer(streamed, event.get("result") or {})
        else:
            if streamed:
                self.output.say()
            self._failed(str(event.get("id")), event.get("error") or {})
        return good

    def _answer(self, streamed: str, result: dict[str, Any]) -> None:
        text = clean(result.get("text", ""))
        kept = text.rstrip("…`\n ")  # an answer that was cut off may end in "…"
        if not streamed:
            self.output.say(text)
        elif text.startswith(streamed.rstrip()):  # the answer has gone on after the last event
            self.output.write(text[len(streamed.rstrip()) :].rstrip() + "\n")
        elif kept and streamed.startswith(kept):
            self.told(f"\n(kept up to: …{one_line(kept[-40:])})")
        else:  # the watch joined late, events were dropped, or the answer was revised
            self.told("\n(what is kept of it:)")
            self.output.say(text)
        for line in (*sources(result), *called(result), *doubts(result), cost(result)):
            if line:
                self.told(line)
        if self._lively:
            self.output.say()

    def _failed(self, id: str, error: dict[str, Any]) -> None:
        code = str(error.get("code"))
        say = self.output.say if self._lively else self.output.note
        say(f"FAILED, {code}: {error.get('message')}", "red")
        self.told(_ADVICE.get(code, _WHATEVER).format(id=id))

    def error(self, error: BatosError) -> None:
        """Show that something could not be done."""
        self.clear()
        if self.output.as_json:
            self.output.event({"type": "error", **error.to_wire()})
        else:
            self.output.error(error)

    def told(self, text: str) -> None:
        """Say something beside the answers."""
        self._passing.clear()
        if text:
            (self.output.say if self._lively else self.output.note)(text, "dim")

    def clear(self) -> None:
        """Clear the line that is being written."""
        self._passing.clear()
        if self._heard:
            self._heard = ""
            self._running.end()
            self.output.say()
