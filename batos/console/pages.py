"""Basics of pages: templates that escape everything, their filters, form fields, and the context that every page gets.

Fields of forms and addresses are read strictly and within limits. The context holds the client, the settings, the templates and the feed.
"""

from __future__ import annotations

import asyncio
import datetime
import difflib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jinja2
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from batos.config import Settings
from batos.console.access import Access, Sessions
from batos.console.api_client import Asker
from batos.console.live_events import Feed
from batos.errors import InvalidInput, MessageTooLarge
from batos.schedules.times import shown_time
from batos.wire.fields import left_out_words

_KIND = "application/x-www-form-urlencoded"


async def form_of(request: Request, limit: int) -> ImmutableMultiDict[str, str]:
    """Return the fields of a form.

    :param limit: largest form in bytes.
    :raises MessageTooLarge: if the form is larger.
    :raises InvalidInput: if the console has no such form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _KIND:
        raise InvalidInput(f"a form is sent as {_KIND}, not as {kind[:100] or 'an unnamed type'}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise MessageTooLarge(f"a form of more than {limit} bytes")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=bool(body), errors="strict")
    except ValueError as e:  # also catches UnicodeDecodeError
        raise InvalidInput(f"the form cannot be read: {e}") from None
    return ImmutableMultiDict([(name, value.replace("\r\n", "\n")) for name, value in pairs])


def needed(fields: ImmutableMultiDict[str, str], name: str) -> str:
    """Return a field that must be there.

    :raises InvalidInput: if it is not.
    """
    value = fields.get(name, "")
    if not value:
        raise InvalidInput(f"`{name}` is missing")
    return value


def whole(text: str, name: str) -> int | None:
    """Return a whole number; None if the field was left empty.

    :raises InvalidInput: for anything else.
    """
    if not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"`{name}` is a whole number, not {text[:40]!r}") from None


HERE = Path(__file__).parent
THINKING = ("IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING")
"""The states of a running mission, in their order."""
_STEPS = (*THINKING, "COMPLETE")
_WORDS = {
    "ACCEPTED": "waiting",
    "IDLE": "begun",
    "DECOMPOSING": "decomposing",
    "DELEGATING": "delegating",
    "SYNTHESIZING": "synthesizing",
    "COMPLETE": "complete",
    "FAILED": "failed",
    "PAUSED": "paused",
    "NEEDS_INPUT": "asks you",
    "PROVISIONING": "gets a model",
}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


class Views:
    """Renders templates, in helper threads: a long page must not hold up missions."""

    def __init__(self) -> None:
        self._environment = environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.globals |= {"url": url, "step_of": step_of, "steps": _STEPS, "changed_lines": changed_lines, "now": time.time}
        environment.filters |= {
            "iso": iso,
            "moment": moment,
            "ago": ago,
            "span": span,
            "bytes": size,
            "number": number,
            "word": lambda state: _WORDS.get(state, state.lower()),
            "facet": facet,
            "left_out": lambda counts: (words := left_out_words(counts))[:1].upper() + words[1:],
            "clock": shown_time,
            "json": lambda value: json.dumps(value, ensure_ascii=False, indent=1),
        }

    async def page(self, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a response from a template."""
        return HTMLResponse(await self.text(template, **context), status)

    async def text(self, template: str, **context: Any) -> str:
        """Return a template, filled with its context."""
        return await asyncio.to_thread(lambda: self._environment.get_template(template).render(context))

    async def each(self, template: str, macro: str, items: Sequence[Any]) -> list[str]:
        """Return the output of a template's macro for each of these items."""

        def made() -> list[str]:
            draw = getattr(self._environment.get_template(template).module, macro)
            return [str(draw(item)) for item in items]

        return await asyncio.to_thread(made)


def url(path: str, **query: Any) -> str:
    """Return an address within the console; values that are None or "" are left out of the query."""
    given = [(name, value) for name, value in query.items() if value is not None and value != ""]
    return f"{path}?{urlencode(given)}" if given else path


def step_of(state: str) -> int:
    """Return the step of a mission in that state, counted from 1; 0 if it is not being thought through."""
    return _STEPS.index(state) + 1 if state in _STEPS else 0


def iso(seconds: float) -> str:
    """Return a time (seconds since the epoch) as machines read it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds")


def moment(seconds: float) -> str:
    """Return a time (seconds since the epoch) for people, in the daemon's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def ago(seconds: float) -> str:
    """Return the age of a time (seconds since the epoch): `now`, `12 s ago`, `3 min ago`."""
    passed = max(0.0, time.time() - seconds)
    return "now" if passed < 1 else f"{span(passed)} ago"


def span(seconds: float) -> str:
    """Return a length of time for people."""
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{int(seconds)} s"


def size(count: float) -> str:
    """Return a number of bytes for people."""
    if count == 1:
        return "1 byte"
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def facet(name: str) -> str:
    """Return the name of a part of a thought, for people: `still_point_facet_` is the still point."""
    return name.removesuffix("_").removesuffix("_facet").replace("_", " ") or "the weaver"


def number(count: float) -> str:
    """Return a number with its thousands apart."""
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    """Return a unified difference of two texts, without its heading: each line with what it is (`+`, `-`, `@` or ` `)."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]
    return [(line[:1] or " ", line if line.startswith("@") else line[1:]) for line in lines]


@dataclass(frozen=True)
class PageContext:
    """Parts of one console that its pages use."""

    asker: Asker
    settings: Settings
    access: Access
    sessions: Sessions
    views: Views
    feed: Feed
    clients: Sequence[tuple[str, str]]
    """Chat clients, each with its settings; none where the daemon has no interfaces for them."""

    async def show(self, template: str, page: str, title: str, status: int = 200, **context: object) -> Response:
        """Return a page.

        :param page: entry of the navigation that it belongs to; "" for none.
        """
        return await self.views.page(template, status, page=page, title=title, **context)


def see_mission(id: str, said: str = "", page: str = "") -> Response:
    """Redirect to the page of a mission, after a change to it.

    :param said: notice to show on the page.
    :param page: `conversation`, if the change was made on the page of its conversation.
    """
    if page == "conversation":
        return RedirectResponse(url("/conversation", id=id, said=said) + "#now", 303)
    return RedirectResponse(url("/mission", id=id, said=said), 303)
