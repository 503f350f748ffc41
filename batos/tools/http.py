"""HTTP connections: the six methods on paths beneath an origin that the user named."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from batos.config import shown
from batos.errors import InvalidInput, ToolFailed
from batos.image.effects import ACTS, CLASSES, IDEMPOTENT, KEYED, READS, VERIFIABLE
from batos.tools.definitions import ConnectionSpec, ConnectorServices, ToolCall, ToolDefinition
from batos.tools.http_sending import HttpRequest, HttpSender, check_options, query_pairs

_PATH = {"type": "string", "maxLength": 4000, "description": "path beneath the connection's base, such as /items/1"}
_QUERY = {"type": "object", "description": "parameters of the query: text, numbers, true, false, or lists of these"}
_HEADERS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "headers, but no credentials"}
_BODY = {"description": "a JSON value; text is sent as it is"}
_DONE = {"type": "object", "properties": {"status": {"type": "integer"}, "body": {}, "url": {"type": "string"}}}


def _tool(method: str, kind: str, description: str, *, body: bool) -> ToolDefinition:
    properties = {"path": _PATH, "query": _QUERY, **({"body": _BODY} if body else {}), "headers": _HEADERS}
    schema = {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}
    return ToolDefinition(
        name=method.lower(), description=description, parameters=schema, result=_DONE, kind=kind, details={"method": method}
    )


TOOLS = (
    _tool("GET", READS, "Read what is at a path.", body=False),
    _tool("HEAD", READS, "Look if there is something at a path.", body=False),
    _tool("POST", ACTS, "Send something to a path, to make or do something there.", body=True),
    _tool("PUT", IDEMPOTENT, "Put something at a path, in place of what is there.", body=True),
    _tool("PATCH", ACTS, "Change a part of what is at a path.", body=True),
    _tool("DELETE", IDEMPOTENT, "Delete what is at a path.", body=True),
)
_NAMES = tuple(tool.name for tool in TOOLS)


class HttpConnector:
    """Connector of one origin.

    Options beside those of `HttpSender`:

    * `key_header`: the header in which the API takes a key by which it does a request once
    * `classes`: class of an effect by tool
    * `look` and `undo`: another tool by tool
    """

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        """
        :raises InvalidInput: if the place or an option is not valid.
        """
        check_options(spec, (*HttpSender.OPTIONS, "key_header", "classes", "look", "undo"))
        self._sender = HttpSender(spec, services, spec.place)
        self._key_header = spec.options.get("key_header", "")
        if not isinstance(self._key_header, str):
            raise InvalidInput(f"{spec.name}: the option key_header is {shown(self._key_header)}; give the name of a header")
        if self._key_header:
            self._sender.check_headers({self._key_header: ""})
        self._tools = adjusted(spec, TOOLS, keyed=bool(self._key_header), private=self._sender.private)

    async def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools. The server is not asked: it need not have anything at its base."""
        return self._tools

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a request ready.

        :raises InvalidInput: if the path leads out of the base, or a header or value is not valid, or a secret is missing.
        """
        method = str(tool.details.get("method", ""))
        if tool.name not in _NAMES or method != tool.name.upper():
            raise ToolFailed(f"{tool.name!r} is not a tool of an HTTP connection; its tools are: {', '.join(_NAMES)}")
        headers = self._sender.check_headers(arguments.get("headers") or {})
        url = self._sender.url(arguments.get("path", ""), query_pairs(arguments.get("query") or {}))
        content = None
        if (body := arguments.get("body")) is not None:
            content, usual = content_of(body)
            headers = headers if any(name.lower() == "content-type" for name in headers) else {**headers, "Content-Type": usual}
        key_header = self._key_header if tool.kind == KEYED else ""

        def elsewhere(place: str) -> Mapping[str, Any]:
            parts = urllib.parse.urlsplit(place)
            beneath = parts.path.removeprefix(urllib.parse.urlsplit(self._sender.base).path)
            query = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
            return {**arguments, "path": beneath, "query": {name: given[0] if len(given) == 1 else given for name, given in query.items()}}

        return self._sender.ready(
            tool,
            arguments,
            HttpRequest(method=method, url=url, headers=headers, content=content, key_header=key_header, elsewhere=elsewhere),
        )

    async def close(self) -> None:
        """Close the connections that are kept open."""
        await self._sender.close()


def content_of(body: Any) -> tuple[bytes, str]:
    """Return the bytes of a body, and its type: text as it is, another value as JSON."""
    if isinstance(body, str):
        return body.encode("utf-8", "replace"), "text/plain; charset=utf-8"
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), "application/json"


def adjusted(spec: ConnectionSpec, tools: Sequence[ToolDefinition], *, keyed: bool, private: bool) -> tuple[ToolDefinition, ...]:
    """Return tools as the connection's options `classes`, `look` and `undo` have them.

    :param keyed: the API takes keys: what would act is keyed.
    :raises InvalidInput: if an option names a tool or class that there is not.
    """
    names = {tool.name for tool in tools}
    said: dict[str, dict[str, str]] = {}
    for option in ("classes", "look", "undo"):
        given = spec.options.get(option, {})
        if not isinstance(given, Mapping):
            raise InvalidInput(f"{spec.name}: the option {option} is {shown(given)}; allowed is an object by names of tools")
        for name, value in given.items():
            if name not in names or (option != "classes" and value not in names):
                wrong = name if name not in names else value
                raise InvalidInput(f"{spec.name}: the option {option} names {shown(wrong)}, which is not a tool of the connection")
            if option == "classes" and value not in CLASSES:
                raise InvalidInput(f"{spec.name}: the class {shown(value)} of {name} is not valid; allowed are {', '.join(CLASSES)}")
        said[option] = dict(given)
    made = []
    for tool in tools:
        usual = KEYED if keyed and tool.kind == ACTS else tool.kind
        kind = said["classes"].get(tool.name, usual)
        look, undo = said["look"].get(tool.name, ""), said["undo"].get(tool.name, "")
        if kind == VERIFIABLE and not look:
            raise InvalidInput(f"{spec.name}: {tool.name} is verifiable only with a tool that looks; name it in the option look")
        if kind == KEYED and not keyed and tool.kind != KEYED:
            raise InvalidInput(f"{spec.name}: {tool.name} is keyed only where the option key_header names the API's header for keys")
        made.append(replace(tool, kind=kind, look=look, undo=undo, private=private))
    for tool in made:
        if tool.look and next(one for one in made if one.name == tool.look).kind != READS:
            raise InvalidInput(f"{spec.name}: {tool.name} looks with {tool.look}, which does not only read")
    return tuple(made)
