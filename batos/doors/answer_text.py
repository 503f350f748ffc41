"""Text of an answer, put together from a mission's events as they come: pieces, thoughts, the end."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from batos.console.api_client import Reply
from batos.errors import BatosError
from batos.wire.fields import left_out_words

FINAL = ("COMPLETE", "FAILED")
"""States in which a mission has ended."""
_AGAIN = ("ACCEPTED", "IDLE", "DECOMPOSING", "DELEGATING")
"""States after which an answer is written from its beginning."""
_ANEW = "\n\n---\n\n"
"""Stands between an answer that was refused, or taken back, and the one that takes its place."""
_LINE = 300  # characters of a line about a tool


class AnswerPart(NamedTuple):
    """A part of an answer as it comes. `beat` says that nothing came for some time."""

    kind: str
    """`thought`, `text` or `beat`"""
    text: str = ""


class Answered(NamedTuple):
    """The end of a turn."""

    mission: str
    text: str
    """the whole answer, or the question that the mission asks"""
    usage: dict[str, Any]
    citations: tuple[dict[str, Any], ...] = ()
    error: dict[str, Any] | None = None
    cut: bool = False
    """True: the answer came to the greatest length that the model may give"""


class AnswerText:
    """Answer of one mission, put together from its events.

    The reader gets the pieces of the answer as they are written. Where the whole answer is another one in the end, it follows the pieces:
    sent pieces cannot be taken back.
    """

    def __init__(self, mission: str, schema: dict[str, Any] | None) -> None:
        """:param schema: of the answer; its text is then the value, told whole at the end."""
        self._mission, self._schema = mission, schema
        self._told = ""  # what was told of the answer that is being written
        self._live = False  # True: each piece since the beginning of this answer was heard
        self._shown: tuple[Any, Any] = (None, None)
        self.end: Answered | None = None

    def hear(self, event: Reply) -> list[AnswerPart]:
        """Return what an event tells; `end` is set by the last one."""
        kind = event["type"]
        inside = "." in str(event.get("cycle", ""))
        if kind == "result":
            return self._result(event)
        if kind == "needs_input" or event.get("question"):
            question = event["question"] if isinstance(event.get("question"), str) else event["question"]["question"]
            return self._ended(str(question), {}, ())
        if kind in ("state", "status"):
            return [] if inside else self._state(event)
        if kind == "token" and not inside and not event.get("facet") and event.get("state") == "SYNTHESIZING":
            return self._token(str(event["text"]))
        if kind == "revised" and not inside:
            return [*self._discard(), AnswerPart("thought", f"refused: {event.get('why')}\n")]
        if kind == "tool":
            told = event.get("arguments") or event.get("line") or event.get("result") or event.get("error") or ""
            return [AnswerPart("thought", f"{event['tool']} {event['step']}: {' '.join(str(told).split())[:_LINE]}\n")]
        if kind == "provision":
            return [AnswerPart("thought", f"pulling {event.get('model')}: {event.get('status')}\n")]
        return []

    def _state(self, event: Reply) -> list[AnswerPart]:
        state, persona = event["state"], event.get("persona")
        parts = self._discard() if state in _AGAIN else []
        self._live = self._live or (event["type"] == "state" and state == "SYNTHESIZING")
        if (state, persona) != self._shown and state not in FINAL:
            self._shown = (state, persona)
            why = f" ({event['why']})" if event.get("why") else ""
            parts.append(AnswerPart("thought", f"{state}{f' {persona}' if persona else ''}{why}\n"))
        return parts

    def _token(self, text: str) -> list[AnswerPart]:
        if not self._live or self._schema is not None:
            return []
        if not self._told:
            text = text.lstrip()
        self._told += text
        return [AnswerPart("text", text)] if text else []

    def _discard(self) -> list[AnswerPart]:
        told, self._told = self._told, ""
        return [AnswerPart("text", _ANEW)] if told else []

    def _result(self, event: Reply) -> list[AnswerPart]:
        told: list[AnswerPart] = []
        if event["state"] == "COMPLETE":
            result = event.get("result") or {}
            if left := result.get("left_out"):
                told = [AnswerPart("thought", f"{left_out_words(left)}\n")]
            parts = told + self._ended(text_of(result, self._schema), result.get("usage") or {}, result.get("citations") or ())
            assert self.end is not None
            self.end = self.end._replace(cut=bool(result.get("cut")))
            return parts
        error = event.get("error") or {"code": BatosError.code, "message": "the mission failed"}
        self.end = Answered(self._mission, "", {}, error=error)
        return []

    def _ended(self, text: str, usage: dict[str, Any], citations: Any) -> list[AnswerPart]:
        self.end = Answered(self._mission, text, usage, tuple(citations))
        told = self._told
        if text.startswith(told):
            rest = text[len(told) :]
        elif text.startswith(told.rstrip()):
            rest = text[len(told.rstrip()) :].lstrip()
        else:
            rest = f"{_ANEW}{text}"
        return [AnswerPart("text", rest)] if rest else []


def text_of(result: Reply, schema: dict[str, Any] | None) -> str:
    """Return the text of a mission's result; for an answer with a schema, its value as JSON."""
    if schema is not None and result.get("value") is not None:
        return json.dumps(result["value"], ensure_ascii=False)
    return str(result.get("text") or "")
