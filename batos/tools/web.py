"""Web connections: pages of the public web as readable text, and a search by the user's SearXNG."""

from __future__ import annotations

import json
import mimetypes
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batos.config import shown
from batos.errors import InvalidInput, ToolFailed, Unreadable
from batos.image.effects import READS
from batos.isolation import ChildStopped, IsolatedChild
from batos.tools import page_reader
from batos.tools.definitions import NOT_GRANTED, ConnectionSpec, ConnectorServices, Delivery, ToolCall, ToolDefinition, seconds_of
from batos.tools.egress import Egress, EgressLimits, HttpAnswer, origin_of
from batos.tools.http_sending import HttpRequest, HttpSender, check_options

CHARS = 20_000
"""Characters of a page's text, where a call does not say otherwise."""
_MOST_CHARS = 200_000
_RESULTS = 10
PAGE_BYTES = 8 << 20
"""Greatest size of a page."""
READER_BYTES = 1 << 30
"""Memory of the process that reads pages."""
_READ_S = 20.0
_URL = {"type": "string", "maxLength": 4000, "description": "http:// or https:// URL of a public page"}
_CHARS = {"type": "integer", "minimum": 1, "maximum": _MOST_CHARS, "description": f"characters of text, usually {CHARS}"}
_FETCH = ToolDefinition(
    name="fetch",
    description="Read a page of the web as text, with its links.",
    parameters={"type": "object", "properties": {"url": _URL, "max_chars": _CHARS}, "required": ["url"], "additionalProperties": False},
    kind=READS,
)
_COUNT = {"type": "integer", "minimum": 1, "maximum": 50, "description": f"number of results, usually {_RESULTS}"}
_QUERY = {"type": "string", "minLength": 1, "maxLength": 1000}
_SEARCH = ToolDefinition(
    name="search",
    description="Search the web.",
    parameters={"type": "object", "properties": {"query": _QUERY, "count": _COUNT}, "required": ["query"], "additionalProperties": False},
    kind=READS,
)


class WebConnector:
    """Connector of the public web. Options: `search` (base of a SearXNG), `headers`, `query` and `private` of that, `seconds`."""

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        """
        :raises InvalidInput: if the place or an option is not valid.
        """
        check_options(spec, ("search", *HttpSender.OPTIONS))
        if spec.place:
            raise InvalidInput(f"the place {shown(spec.place)} is not valid for the web, which is everywhere; leave it empty")
        search = spec.options.get("search", "")
        if not isinstance(search, str):
            raise InvalidInput(f"{spec.name}: the option search is {shown(search)}; give the URL of a SearXNG")
        if not search and (idle := sorted(set(spec.options) & {"headers", "query", "private"})):
            raise InvalidInput(f"{spec.name}: the options {', '.join(idle)} are for the server of the option search, which is not given")
        self._name = spec.name
        self._seconds = seconds_of(spec, services.limits.call_s)
        self._searched = HttpSender(spec, services, search) if search else None
        self._egress = Egress(any_public=True, limits=EgressLimits(bytes=PAGE_BYTES, seconds=self._seconds))
        self._child = IsolatedChild(page_reader.__name__, memory=READER_BYTES)

    async def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools, without any request."""
        return (_FETCH, _SEARCH) if self._searched else (_FETCH,)

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a call ready.

        :raises InvalidInput: if the URL is not valid, or a secret of the search is missing.
        """
        if tool.name == "search" and self._searched:
            return self._search(self._searched, tool, arguments)
        if tool.name != "fetch":
            raise ToolFailed(f"{self._name} has no tool {tool.name!r}")
        url, most = arguments["url"], int(arguments.get("max_chars", CHARS))
        origin_of(url)

        async def send(delivery: Delivery) -> Any:
            return await self._fetched(url, most, lambda place: "" if delivery.permits({**arguments, "url": place}) else NOT_GRANTED)

        return ToolCall(connection=self._name, tool=tool, arguments=arguments, send=send, seconds=self._seconds, payload=f"GET {url}")

    async def close(self) -> None:
        """Close the connections that are kept open; end the process that reads pages."""
        await self._egress.close()
        await self._child.close()
        if self._searched:
            await self._searched.close()

    async def _fetched(self, url: str, most: int, refusal: Callable[[str], str]) -> dict[str, Any]:
        headers = {"Accept": "text/html,application/xhtml+xml,application/pdf;q=0.9,*/*;q=0.8"}
        answer = await self._egress.request("GET", url, headers=headers, refusal=refusal)
        if not 200 <= answer.status < 300:
            wait = answer.headers.get("retry-after", "")
            later = f"; it may be asked again after: {wait[:40]}" if wait else ""
            raise ToolFailed(f"{shown(url)} was answered {answer.status}{later}", status=answer.status)
        return await page_of(self._child, answer, most)

    def _search(self, sender: HttpSender, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        query = [("q", arguments["query"]), ("format", "json")]
        request = HttpRequest(method="GET", url=sender.url("/search", query), headers={"Accept": "application/json"})
        ready = sender.ready(tool, arguments, request)
        count = int(arguments.get("count", _RESULTS))

        async def send(delivery: Delivery) -> Any:
            try:
                answer = await ready.send(delivery)
            except ToolFailed as e:
                if e.context.get("status") == 403:
                    raise ToolFailed(
                        f"{sender.base} refuses to answer as JSON (403); add `json` to `search: formats:` in its settings.yml, restart it",
                        status=403,
                    ) from None
                raise
            return _results(answer["body"], sender.base, count)

        return ToolCall(connection=self._name, tool=tool, arguments=arguments, send=send, seconds=ready.seconds, payload=ready.payload)


async def page_of(child: IsolatedChild, answer: HttpAnswer, most: int) -> dict[str, Any]:
    """Return the title, the text and the links of what a server answered.

    :param child: runs the reader of pages.
    :param most: characters of text.
    :raises ToolFailed: if it cannot be read as text.
    """
    found: dict[str, Any] = {"url": answer.url, "title": "", "text": "", "links": []}
    if not answer.body:
        return found
    declared = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", answer.headers.get("content-type", ""), re.IGNORECASE)
    request = [_name_of(answer), declared[1] if declared else "", answer.url, most]
    try:
        pieces = await child.ask(request, answer.body, seconds=_READ_S)
    except Unreadable as e:
        kind = answer.headers.get("content-type", "of no type")[:80]
        raise ToolFailed(f"{shown(answer.url)} ({kind}, {len(answer.body)} bytes) cannot be read as text: {e.message}") from None
    except ChildStopped as e:
        raise ToolFailed(f"{shown(answer.url)} cannot be read as text: its reader was stopped ({e.reason})") from None
    for what, *piece in pieces:
        if what == "link":
            found["links"].append({"text": piece[0], "url": piece[1]})
        elif what == "cut":
            found["told"] = f"the text has {piece[0]} characters; max_chars cut it at {most}"
        else:
            found[what] += piece[0]
    return found


def _results(body: Any, base: str, count: int) -> list[dict[str, str]]:
    results = body.get("results") if isinstance(body, dict) else None
    if not isinstance(results, list):
        raise ToolFailed(f"{base} answered no list of results but {shown(json.dumps(body))}; is it a SearXNG?")
    found = [one for one in results if isinstance(one, dict) and isinstance(one.get("url"), str)]
    return [{"title": str(one.get("title") or ""), "url": one["url"], "content": str(one.get("content") or "")} for one in found[:count]]


def _name_of(answer: HttpAnswer) -> str:
    """Return a name for a document, whose suffix says its kind: by its type, else by its URL."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/xhtml+xml", "text/html"):
        return "page.html"
    suffix = mimetypes.guess_extension(kind) or ""
    if kind.endswith("json"):
        suffix = ".json"
    if suffix in ("", ".bin"):
        suffix = "." + urllib.parse.urlsplit(answer.url).path.rpartition("/")[2].rpartition(".")[2] if kind != "text/plain" else ".txt"
    return f"page{suffix[:10] if re.fullmatch(r'[.][a-z0-9]+', suffix) else '.txt'}"
