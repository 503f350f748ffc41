"""Forms of OpenAI's Responses interface: the response as a whole, and the numbered events of its stream.

States and calls of tools are a `reasoning` item with a summary, the answer is a `message` item. What is thought after the answer has begun
is a `reasoning` item of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from batos.doors import forms
from batos.doors.answer_text import Answered, AnswerPart
from batos.errors import Busy, MissionCancelled

PREFIX = "resp_"
_LENGTH = {"reason": "max_output_tokens"}
Item = dict[str, Any]


def response_id(mission: str, answers: int) -> str:
    """Return the id of a response.

    :param mission: of a plain inference any id.
    :param answers: number of the mission's question that its turn answers; 0: none.
    """
    return f"{PREFIX}{mission}{f'.{answers}' if answers else ''}"


class ResponseForm:
    """Response of one turn."""

    def __init__(self, id: str, model: str, *, kept: bool, given: dict[str, Any] | None = None, created: float | None = None) -> None:
        """
        :param kept: True for one that can be asked for later: that of a mission.
        :param given: the fields of the request, which the response repeats.
        :param created: seconds since 1970; None: now.
        """
        said = given or {}
        self.id = id
        self._head: dict[str, Any] = {
            "id": id, "object": "response", "created_at": int(time.time() if created is None else created), "model": model, "store": kept,
            "background": bool(said.get("background")), "instructions": said.get("instructions"), "metadata": said.get("metadata") or {},
            "max_output_tokens": said.get("max_output_tokens"), "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "previous_response_id": said.get("previous_response_id"), "temperature": said.get("temperature"), "top_p": said.get("top_p"),
            "text": said.get("text") or {"format": {"type": "text"}}, "reasoning": {"effort": None, "summary": None},
            "truncation": "disabled", "service_tier": "default", "user": said.get("user"),
        }  # fmt: skip

    def under_way(self) -> dict[str, Any]:
        """Return the response before its end."""
        return self._with("in_progress", [])

    def ended(self, end: Answered, output: list[Item]) -> dict[str, Any]:
        """Return the response at its end."""
        if end.error is not None:
            cancelled = end.error["code"] == MissionCancelled.code
            error = None if cancelled else {"code": "server_error", "message": f"{end.error['message']} ({end.error['code']})"}
            return self._with("cancelled" if cancelled else "failed", output, error=error)
        tokens = forms.tokens_of(end)
        usage = {
            "input_tokens": tokens["prompt_tokens"], "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": tokens["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens["total_tokens"],
        }  # fmt: skip
        return self._with("incomplete" if end.cut else "completed", output, usage=usage, cut=end.cut)

    def whole(self, end: Answered, thought: str = "") -> dict[str, Any]:
        """Return the response at its end, with all that it tells."""
        output = [reasoning_item(f"rs_{self.id}", thought)] if thought else []
        if end.error is None:
            output.append(message_item(f"msg_{self.id}", end))
        return self.ended(end, output)

    def _with(
        self, status: str, output: list[Item], *, error: Item | None = None, usage: Item | None = None, cut: bool = False
    ) -> dict[str, Any]:
        incomplete = _LENGTH if cut else None
        return {**self._head, "status": status, "output": output, "error": error, "usage": usage, "incomplete_details": incomplete}


def reasoning_item(id: str, text: str) -> Item:
    """Return the item of what was thought."""
    return {"id": id, "type": "reasoning", "status": "completed", "summary": [{"type": "summary_text", "text": text}] if text else []}


def message_item(id: str, end: Answered) -> Item:
    """Return the item of an answer."""
    return {**_begun_message(id), "status": "incomplete" if end.cut else "completed", "content": [_text(end.text, _citations(end))]}


def _begun_message(id: str) -> Item:
    return {"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}


def _text(text: str, annotations: list[Item]) -> Item:
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


def _citations(end: Answered) -> list[Item]:
    return [{"type": one["type"], **one["url_citation"]} for one in forms.annotations_of(end)]


class ResponseEvents:
    """Events of a streamed response, as they come; each has its number."""

    def __init__(self, form: ResponseForm) -> None:
        self._form = form
        self._number = 0
        self._items: list[Item] = []  # by their index in the output
        self._thought: str | None = None  # text of the reasoning item that is open, which is the last item but for the message
        self._thinks = self._says = -1  # index of the reasoning item that is open, and of the message
        self._said = ""

    def begin(self) -> Iterator[bytes]:
        """Yield the events before anything is thought."""
        yield self._event("response.created", response=self._form.under_way())
        yield self._event("response.in_progress", response=self._form.under_way())

    def part(self, part: AnswerPart) -> Iterator[bytes]:
        """Yield the events of a part of the answer."""
        if part.kind == "beat":
            yield forms.BEAT
        elif part.kind == "thought":
            yield from self._think(part.text)
        else:
            yield from self._say(part.text)

    def end(self, end: Answered) -> Iterator[bytes]:
        """Yield the events of the end."""
        yield from self._end_thought()
        if end.error is not None and end.error["code"] == Busy.code:  # the answer goes on at the next start of the daemon
            yield self._event("error", code=Busy.code, message=str(end.error["message"]), param=None)
            return
        if end.error is not None:
            if self._says >= 0:
                self._items[self._says] |= {"status": "incomplete", "content": [_text(self._said, [])]}
            yield self._event("response.failed", response=self._form.ended(end, self._items))
            return
        yield from self._say("")
        whole = message_item(self._items[self._says]["id"], end)
        at = {"item_id": whole["id"], "output_index": self._says, "content_index": 0}
        part = whole["content"][0]
        for index, annotation in enumerate(part["annotations"]):
            yield self._event("response.output_text.annotation.added", **at, annotation_index=index, annotation=annotation)
        yield self._event("response.output_text.done", **at, text=part["text"], logprobs=[])
        yield self._event("response.content_part.done", **at, part=part)
        self._items[self._says] = whole
        yield self._event("response.output_item.done", output_index=self._says, item=whole)
        yield self._event(f"response.{'incomplete' if end.cut else 'completed'}", response=self._form.ended(end, self._items))

    def _think(self, text: str) -> Iterator[bytes]:
        if self._thought is None:
            self._thinks, self._thought = len(self._items), ""
            more = f"_{self._thinks}" if self._items else ""
            self._items.append({"id": f"rs_{self._form.id}{more}", "type": "reasoning", "status": "in_progress", "summary": []})
            yield self._event("response.output_item.added", output_index=self._thinks, item=self._items[self._thinks])
            yield self._event("response.reasoning_summary_part.added", **self._of_thought(), part={"type": "summary_text", "text": ""})
        self._thought += text
        yield self._event("response.reasoning_summary_text.delta", **self._of_thought(), delta=text)

    def _of_thought(self) -> Item:
        return {"item_id": self._items[self._thinks]["id"], "output_index": self._thinks, "summary_index": 0}

    def _end_thought(self) -> Iterator[bytes]:
        if self._thought is None:
            return
        at, text = self._of_thought(), self._thought
        yield self._event("response.reasoning_summary_text.done", **at, text=text)
        yield self._event("response.reasoning_summary_part.done", **at, part={"type": "summary_text", "text": text})
        self._items[self._thinks] = reasoning_item(at["item_id"], text)
        yield self._event("response.output_item.done", output_index=self._thinks, item=self._items[self._thinks])
        self._thought = None

    def _say(self, text: str) -> Iterator[bytes]:
        yield from self._end_thought()
        if self._says < 0:
            self._says = len(self._items)
            self._items.append(_begun_message(f"msg_{self._form.id}"))
            yield self._event("response.output_item.added", output_index=self._says, item=self._items[self._says])
            yield self._event("response.content_part.added", **self._of_text(), part=_text("", []))
        if text:
            self._said += text
            yield self._event("response.output_text.delta", **self._of_text(), delta=text, logprobs=[])

    def _of_text(self) -> Item:
        return {"item_id": self._items[self._says]["id"], "output_index": self._says, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return f"event: {kind}\n".encode() + forms.event({"type": kind, "sequence_number": number, **fields})
