"""The memory page: what it holds, and what answers a question, with the reasons."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from batos.console.asking import Reply
from batos.console.seat import Seat

FIELDS = ("kind", "source", "speaker", "since", "until")
KINDS = (
    "text", "markdown", "html", "pdf", "document", "table", "mail", "code", "conversation", "note", "statement", "mission", "summary",
)  # fmt: skip
SAID_BY = {"user": "you said so", "self": "it said so itself", "tool": "a method noted it"}
"""Who says a passage, where it is no file."""


async def search(seat: Seat, request: Request) -> Response:
    """Without a question, what the memory holds."""
    question = request.query_params.get("q", "").strip()
    asked = {name: request.query_params.get(name, "").strip() for name in FIELDS}
    held = await seat.asker.ask("memory", documents=seat.settings.console_rows)
    found = None
    if question:
        fits: dict[str, Any] = {name: value for name, value in asked.items() if value}
        found = await seat.asker.ask("search", question=question, k=min(seat.settings.console_rows, 20), explain=True, **fits)
    return await seat.show(
        "memory.html",
        "memory",
        "Memory",
        question=question,
        asked=asked,
        kinds=KINDS,
        said_by=SAID_BY,
        held=held,
        found=found,
        most=_most(found),
    )


def _most(found: Reply | None) -> float:
    """The largest signal of all passages: the measure of their bars."""
    hits = found["hits"] if found else []
    return max((abs(value) for hit in hits for value in hit["signals"].values()), default=0) or 1.0
