"""OpenAPI connections: the operations of an API's document are its tools; the requests are those of HTTP connections."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import structlog

from batos.config import shown
from batos.errors import EgressRefused, InvalidInput, ToolFailed
from batos.tools import openapi_document, openapi_files
from batos.tools.definitions import ConnectionSpec, ConnectorServices, ToolCall, ToolDefinition, seconds_of
from batos.tools.egress import Egress, EgressLimits, origin_of
from batos.tools.http import adjusted
from batos.tools.http_sending import HttpRequest, HttpSender, check_options, checked_base, is_private_name, plain
from batos.tools.openapi_values import DOCUMENT_BYTES

log = structlog.get_logger("batos.tools")
_LEFT_OUT = 3  # operations that are left out, and are told
_PER_MINUTE = 600  # requests for the document and the files that it refers to
_DELIMITERS = {"spaceDelimited": " ", "tabDelimited": "\t", "pipeDelimited": "|"}
_DEEPEST = 20


class OpenApiConnector:
    """Connector of an API that an OpenAPI document describes. The place is a file or a URL.

    Options beside those of `HttpSender` are `classes`, `look`, `undo` and `server`, the URL of the API. `server` is needed where the
    document names none, another origin than its own, or, in a file, one that is not public.
    """

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        """
        :raises InvalidInput: if the place or an option is not valid.
        """
        check_options(spec, (*HttpSender.OPTIONS, "server", "classes", "look", "undo"))
        seconds_of(spec, services.limits.call_s)
        server = spec.options.get("server", "")
        if not isinstance(server, str):
            raise InvalidInput(f"{spec.name}: the option server is {shown(server)}; give the URL of the API")
        self._spec, self._services = spec, services
        self._server = checked_base(server) if server else ""
        self._url = spec.place if spec.place.startswith(("http://", "https://")) else ""
        if self._url:
            origin_of(self._url)
        elif not spec.place.startswith("/") or "\0" in spec.place:
            raise InvalidInput(f"the document {shown(spec.place)} is not valid; give a URL, or an absolute path of a file")
        self._senders: dict[str, HttpSender] = {}
        self.notes: tuple[str, ...] = ()
        """lines for the user on the document that was read last: operations that are left out, secrets that it needs"""

    async def tools(self) -> Sequence[ToolDefinition]:
        """Read the document; return a tool for each operation that can be sent.

        :raises InvalidInput: if the document is broken, or its server is not one that the user named.
        :raises ToolFailed, EgressFailed, EgressRefused: if it cannot be had.
        """
        async with contextlib.AsyncExitStack() as life:
            load = self._loader(life)
            document = await asyncio.to_thread(openapi_document.parsed, await self._document(load), self._spec.place)
            files = await openapi_files.gathered(document, self._spec.place, load)
        reading, base = await asyncio.to_thread(self._read, document, files)
        for one in reading.left_out:
            log.warning("operation_left_out", connection=self._spec.name, why=one[:300])
        self.notes = (*_left_out(reading), *reading.notes)
        if not reading.tools:
            why = f"; left out were {'; '.join(reading.left_out[:5])}" if reading.left_out else ""
            raise InvalidInput(f"{shown(self._spec.place)} describes no operation that could be a tool{why}")
        made = [ToolDefinition.of({**tool.to_wire(), "details": {**tool.details, "base": base}}) for tool in reading.tools]
        return adjusted(self._spec, made, keyed=False, private=self._sender(base).private)

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        """Make the request of an operation ready.

        :raises InvalidInput: if an argument does not fit its place in the request, or a secret is missing.
        """
        details = tool.details
        if not {"method", "path", "base", "sent"} <= set(details):
            raise ToolFailed(
                f"{self._spec.name}.{tool.name} was not read from a document; `batos tools test {self._spec.name}` reads it anew"
            )
        self._check_server(details["base"])
        sender = self._sender(details["base"])
        return sender.ready(tool, arguments, request_of(details, arguments, sender))

    async def close(self) -> None:
        """Close the connections that are kept open."""
        for sender in self._senders.values():
            await sender.close()
        self._senders.clear()

    def _loader(self, life: contextlib.AsyncExitStack) -> openapi_files.Load:
        """Return what reads the document and the files beside it, from their folder or their origin alone."""
        if not self._url:
            return lambda location: asyncio.to_thread(openapi_files.file_bytes, location, self._spec.place)
        origin = origin_of(self._url)
        limits = EgressLimits(bytes=DOCUMENT_BYTES, seconds=self._services.limits.connect_s, per_minute=_PER_MINUTE)
        private = is_private_name(origin.host) or self._spec.options.get("private") is True
        egress = Egress(private=[origin], limits=limits) if private else Egress([origin], limits=limits)
        life.push_async_callback(egress.close)

        async def fetched(url: str) -> bytes:
            answer = await egress.request("GET", url, headers={"Accept": "application/json, application/yaml;q=0.9, */*;q=0.5"})
            if answer.status != 200:
                raise ToolFailed(f"the document {shown(url)} was answered {answer.status}; give the URL of the document, or a file of it")
            return answer.body

        return fetched

    async def _document(self, load: openapi_files.Load) -> bytes:
        try:
            return await load(self._spec.place)
        except OSError as e:
            raise ToolFailed(f"the document {shown(self._spec.place)} cannot be read: {e.strerror or e}") from None

    def _read(self, document: dict[str, Any], files: Mapping[str, Any]) -> tuple[openapi_document.OpenApiReading, str]:
        base = self._server or self._named_server(document)
        self._check_server(base)
        skipped = list(self._spec.options.get("query") or {})
        headers = list(self._spec.options.get("headers") or {})
        return openapi_document.read(document, base, self._url, skipped, headers, files), base

    def _named_server(self, document: Mapping[str, Any]) -> str:
        found = openapi_document.servers(document, self._url)
        if self._url:
            return checked_base(found[0] if found else str(origin_of(self._url)))
        if not found or not found[0].startswith(("http://", "https://")):
            raise InvalidInput(f"{self._spec.name}: the document names no server by its whole URL; name it in the option server")
        base = checked_base(found[0])
        if is_private_name(origin_of(base).host) and self._spec.options.get("private") is not True:
            raise InvalidInput(
                f"{self._spec.name}: the document names the server {base}, which is not public; if it is the right one, give it in the "
                "option server"
            )
        return base

    def _check_server(self, base: str) -> None:
        if not (self._server or self._url):
            return  # a file that its user gave names it
        named = origin_of(self._server or self._url)
        if origin_of(base) != named:
            raise EgressRefused(
                f"the document names the server {base}, its user named {named}; if it is the right one, give it in the option server"
            )

    def _sender(self, base: str) -> HttpSender:
        if base not in self._senders:
            self._senders[base] = HttpSender(self._spec, self._services, base)
        return self._senders[base]


def request_of(details: Mapping[str, Any], arguments: Mapping[str, Any], sender: HttpSender) -> HttpRequest:
    """Return the request of an operation.

    :param details: of its tool, as `openapi_document.read` made them.
    :raises InvalidInput: if an argument does not fit its place in the request.
    """
    path = details["path"]
    pairs: list[tuple[str, str]] = [(name, value) for name, value in details.get("fixed") or ()]
    for about in details["sent"]:
        value = arguments.get(about["argument"])
        if about["in"] == "path":
            path = path.replace(f"{{{about['name']}}}", _path_part(about, value))
        elif value is not None:
            pairs += _pairs(about, value)
    content, kind = _content(details.get("body"), arguments)
    headers = {"Accept": "application/json, */*;q=0.5", **({"Content-Type": kind} if content is not None else {})}
    return HttpRequest(
        method=details["method"],
        url=sender.url(path, pairs),
        headers={name: value for name, value in headers.items() if name.lower() not in {own.lower() for own in sender.headers}},
        content=content,
        key_header=details.get("key_header", ""),
    )


def _left_out(reading: openapi_document.OpenApiReading) -> list[str]:
    if not reading.left_out:
        return []
    count, more = len(reading.left_out), " …" * (len(reading.left_out) > _LEFT_OUT)
    said = "; ".join(one[:200] for one in reading.left_out[:_LEFT_OUT])
    return [f"{count} of {count + len(reading.tools)} operations are left out: {said}{more}"]


def _path_part(about: Mapping[str, Any], value: Any) -> str:
    """Return what stands in a path for one parameter, in the style that the document says, as RFC 6570 expands it.

    :raises InvalidInput: if the value could lead to another path.
    """
    style, many, keyed = about.get("style"), isinstance(value, dict | list), isinstance(value, dict)
    if style == "json" and many:
        value, many, keyed = json.dumps(value, ensure_ascii=False), False, False
    given = value.items() if keyed else (("", one) for one in (value if many else [value]))
    pairs = [(str(key), plain(one)) for key, one in given if one is not None]
    name, quoted = about["name"], [[urllib.parse.quote(text, safe="") for text in pair] for pair in pairs]
    if many and about.get("explode") is True:
        parts = [f"{key}={text}" if keyed else f"{name}={text}" if style == "matrix" else text for key, text in quoted]
    else:
        between = urllib.parse.quote(_DELIMITERS.get(str(style), ","), safe=",")
        whole = between.join(text for pair in quoted for text in pair[not keyed :])
        parts = [f"{name}={whole}"] if style == "matrix" else [whole]
    if style == "matrix":
        made = "".join(f";{part.removesuffix('=')}" for part in parts)
    else:
        made = "".join(f".{part}" for part in parts) if style == "label" else ",".join(parts)
    unsafe = any("/" in text or "\\" in text for pair in pairs for text in pair) or [text for _, text in pairs] in (["."], [".."])
    if unsafe or not made.strip("."):
        what = f"{about['argument']}: {shown(value)} cannot be a part of a path"
        raise InvalidInput(f"{what}; allowed are text without slashes, not . or .., and numbers")
    return made


def _pairs(about: Mapping[str, Any], value: Any) -> list[tuple[str, str]]:
    """Return the pairs of a query for one parameter, in the style that the document says."""
    name, style, explode = about["name"], about["style"], about["explode"]
    if style == "json":
        return [(name, json.dumps(value, ensure_ascii=False))]
    if style == "deepObject" and isinstance(value, dict | list):
        return list(_deep(name, value))
    if isinstance(value, list):
        texts = [plain(one) for one in value if one is not None]
        return [(name, one) for one in texts] if explode else [(name, _DELIMITERS.get(style, ",").join(texts))]
    if isinstance(value, dict):
        if explode:
            return [(inner, plain(one)) for inner, one in value.items()]
        return [(name, ",".join(f"{inner},{plain(one)}" for inner, one in value.items()))]
    return [(name, plain(value))]


def _deep(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a value within others: `name[field]`, and `name[0]` for the first of a list."""
    if depth > _DEEPEST:
        raise InvalidInput(f"{shown(name)} is nested deeper than {_DEEPEST}, which no query holds")
    if isinstance(value, dict | list):
        for inner, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _deep(f"{name}[{inner}]", one, depth + 1)
    elif value is not None:
        yield name, plain(value)


def _content(body: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> tuple[bytes | None, str]:
    if not body:
        return None, ""
    kind = body["type"]
    if "whole" in body:
        if body["whole"] not in arguments:
            return None, ""
        value = arguments[body["whole"]]
    else:
        value = {name: arguments[argument] for argument, name in body["fields"].items() if argument in arguments}
        if not value and not body["required"]:
            return None, ""
    if "json" in kind:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), kind
    if "multipart" in kind:
        return _multipart(dict(value))
    if "form-urlencoded" in kind:
        return urllib.parse.urlencode(_form_pairs(dict(value), body.get("styles") or {})).encode(), kind
    return plain(value).encode("utf-8", "replace"), kind


def _form_pairs(value: Mapping[str, Any], styles: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, held in value.items():
        if name in styles:
            pairs += _pairs({"name": name, "style": styles[name][0], "explode": styles[name][1]}, held)
        else:
            pairs += [(name, plain(one)) for one in (held if isinstance(held, list) else [held])]
    return pairs


def _multipart(value: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a form in parts, and its type. The boundary follows from the values, so that the same call is the same request."""
    boundary = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:40]
    lines: list[str] = []
    for name, one in _form_pairs(value, {}):
        quoted = name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
        lines += [f"--{boundary}", f'Content-Disposition: form-data; name="{quoted}"', "", one]
    return "\r\n".join([*lines, f"--{boundary}--", ""]).encode("utf-8", "replace"), f"multipart/form-data; boundary={boundary}"
