"""HTTP requests of connections: the URL stays beneath the base that the user named. Secrets are put in as a request leaves and taken out of
all that comes back. The status of a reply says whether the request was carried out.

reply            reading tools               acting tools
2xx              the result                  the result
3xx              followed by the egress      not followed: 307 and 308 surely did nothing, others may have acted
408 425 429 5xx  sent again within the time  open, but for a 429 that says when to come back, where a repetition is harmless
409              failed                      open
other 4xx        failed                      surely did not happen
"""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import json
import re
import time
import unicodedata
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from batos.config import nearest, shown
from batos.errors import BatosError, EgressFailed, InvalidInput, ToolFailed
from batos.image.effects import IDEMPOTENT, KEYED, READS
from batos.tools.definitions import (
    NOT_GRANTED,
    ConnectionSpec,
    ConnectorServices,
    Delivery,
    ToolCall,
    ToolDefinition,
    seconds_of,
    with_secrets,
)
from batos.tools.egress import Egress, EgressLimits, HttpAnswer, WebOrigin, is_public, origin_of
from batos.tools.grant_arguments import goes_back

TRIES = 5
"""Greatest number of sendings of a request that only reads."""
_LATER_S = 1.0  # the sender's own limit comes before that of the effect: it knows whether the request has left
_PER_MINUTE = 600  # requests to an origin that its user named
_PAUSE_S = 0.5
_OPEN = frozenset({408, 409, 425, 429})
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_VALUE = re.compile(r"[\t\x20-\x7e\u00a0-\u00ff]*\Z")
_CREDENTIAL = re.compile(r"auth|cookie|api[-_]?key|token|secret|password|credential", re.IGNORECASE)
_STEERING = re.compile(
    r"(host|connection|content-length|transfer-encoding|te|trailer|upgrade|expect|keep-alive|proxy-.*|forwarded|x-forwarded-.*"
    r"|x-(http-)?method(-override)?|x-original-url|x-rewrite-url)\Z",
    re.IGNORECASE,
)  # they change where a request goes, or what it does there
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SHORTEST_SECRET = 4  # shorter ones are not taken out of replies: they would be found in every word
_TEXTS = ("xml", "javascript", "x-www-form-urlencoded", "yaml", "graphql", "x-ndjson")
_BODY_SHOWN = 2000
_LINKS_CHARS = 8000  # of a longer header of links nothing is read


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request of a tool, without secrets."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    key_header: str = ""
    """header that carries the effect's key"""
    elsewhere: Callable[[str], Mapping[str, Any]] | None = None
    """Returns the arguments with which its tool asks for another URL; None where a tool has no such arguments."""


class HttpSender:
    """Sends the requests of one connection, beneath its base. Options: `headers`, `query` (values may name secrets), `private`, `seconds`.

    The server may be at a private address where its user named one, or said `private`: true. A public name that resolves to a private
    address is refused. `private`: "results" only marks what it answers as private.
    """

    OPTIONS = ("headers", "query", "private", "seconds")

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices, base: str) -> None:
        """
        :param base: `ORIGIN` or `ORIGIN/PATH`.
        :raises InvalidInput: if the base or an option is not valid.
        """
        self._name, self._services, limits = spec.name, services, services.limits
        self.base = checked_base(base)
        self.origin = origin_of(self.base)
        self.headers = _texts(spec, "headers")
        self.query = _texts(spec, "query")
        for name, value in self.headers.items():
            _check_header(name, value)
        private = spec.options.get("private", False)
        if private not in (True, False, "results"):
            raise InvalidInput(f'{spec.name}: the option private is {shown(private)}; allowed are true, false and "results"')
        self.private = bool(private)
        """True if what the server answers belongs to the user alone."""
        self.seconds = seconds_of(spec, limits.call_s)
        self._egress = egress_for(self.origin, private is True, limits.result_bytes, self.seconds)
        self._used: dict[str, str] = {}

    def url(self, path: str, query: Sequence[tuple[str, str]] = ()) -> str:
        """Return the URL of a path beneath the base.

        :raises InvalidInput: if the path could lead out of the base.
        """
        url = url_beneath(self.base, path)
        return f"{url}?{urllib.parse.urlencode(query)}" if query else url

    def check_headers(self, headers: Mapping[str, Any]) -> dict[str, str]:
        """Return headers that a caller gave.

        :raises InvalidInput: for credentials, for headers that steer a request elsewhere, and for those that the connection sets itself.
        """
        own = {name.lower() for name in self.headers}
        for name, value in headers.items():
            if _CREDENTIAL.search(name) or name.lower() in own:
                raise InvalidInput(
                    f"the header {shown(name)} is not the caller's to give: the connection's option `headers` sets credentials"
                )
            if _STEERING.match(name):
                raise InvalidInput(f"the header {shown(name)} is not allowed: it changes where a request goes or what it does")
            _check_header(name, str(value))
        return {name: str(value) for name, value in headers.items()}

    def ready(self, tool: ToolDefinition, arguments: Mapping[str, Any], request: HttpRequest) -> ToolCall:
        """Return the call that sends a request.

        :raises InvalidInput: if a secret is missing.
        """
        self._with_secrets(request)

        async def send(delivery: Delivery) -> Any:
            return await self.send(request, tool.kind, delivery)

        target = "" if tool.kind == READS else request.url.partition("?")[0]
        payload = self._payload(request)
        return ToolCall(
            connection=self._name,
            tool=tool,
            arguments=arguments,
            send=send,
            seconds=self.seconds + _LATER_S,
            target=target,
            payload=payload,
        )

    async def send(self, request: HttpRequest, kind: str, delivery: Delivery) -> Any:
        """Send a request; return `{"status", "body", "url"}`, with the URL of the `next` page where the server names one (RFC 8288).

        :param kind: the effect's class.
        :raises ToolFailed: if it surely did not happen, or the server answered and nothing is open.
        :raises EgressFailed: if no whole answer came, or one that leaves open whether it happened.
        """
        try:
            answer = await self._answered(request, kind, delivery)
            return self._result(answer)
        except BatosError as e:
            e.message = self._redacted(e.message)
            e.args = (e.message,)
            raise

    async def close(self) -> None:
        """Close the connections that are kept open."""
        await self._egress.close()

    async def _answered(self, request: HttpRequest, kind: str, delivery: Delivery) -> HttpAnswer:
        url, headers = self._with_secrets(request)
        if request.key_header and delivery.key:
            headers[request.key_header] = delivery.key
        end = time.monotonic() + self.seconds

        def refusal(place: str) -> str:
            if why := self._leads_out(place):
                return why
            return "" if request.elsewhere is None or delivery.permits(request.elsewhere(place)) else NOT_GRANTED

        for attempt in range(1, TRIES + 1):
            left = max(0.001, end - time.monotonic())
            answer = await self._egress.request(
                request.method,
                url,
                headers=headers,
                content=request.content,
                seconds=left,
                leave=delivery.leave,
                refusal=refusal,
            )
            if 200 <= answer.status < 300 or (answer.status < 400 and kind == READS):
                return answer
            pause = _pause(answer, kind, attempt)
            if pause is None or attempt == TRIES or time.monotonic() + pause >= end:
                raise self._fault(answer, request, kind)
            delivery.tell(f"{self.origin} answered {answer.status}; the request is sent again in {pause:g} s")
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _leads_out(self, place: str) -> str:
        """Return why a URL is not beneath the base; "" if it is, or is of another server, which is not reached anyway."""
        base, path = urllib.parse.urlsplit(self.base).path, urllib.parse.urlsplit(place).path
        if origin_of(place) != self.origin or ((path == base or path.startswith(f"{base}/")) and not goes_back(path)):
            return ""
        return f"it is not beneath {self.base}, for which the connection is; another connection can name it"

    def _fault(self, answer: HttpAnswer, request: HttpRequest, kind: str) -> BatosError:
        status = answer.status
        said = f"{request.method} {request.url} was answered {status}"
        if 300 <= status < 400:
            place = answer.headers.get("location", "nowhere")
            sure = status in (307, 308)
            came = "nothing was done" if sure else "it may have acted"
            return ToolFailed(f"{said}, to {shown(place)}; a request that acts is not redirected; {came}", sure=sure, status=status)
        if (body := self._body(answer)) not in ("", None):
            said += f": {shown(body if isinstance(body, str) else json.dumps(body, ensure_ascii=False))}"
        if wait := answer.headers.get("retry-after"):
            said += f"; it may be asked again after: {wait[:40]}"
        if status in (401, 403) and not (self.headers or self.query):
            said += (
                '; where it needs a credential, give the connection the option headers, such as {"Authorization": "Bearer {secret:NAME}"}'
            )
        if kind == READS or (400 <= status < 500 and status not in _OPEN):
            return ToolFailed(said, status=status)
        return EgressFailed(f"{said}, which leaves open if it happened", sent=True)

    def _result(self, answer: HttpAnswer) -> dict[str, Any]:
        found = {"status": answer.status, "body": self._body(answer), "url": self._redacted(answer.url)}
        if following := _next_page(answer):
            found["next"] = self._redacted(following)
        return found

    def _body(self, answer: HttpAnswer) -> Any:
        try:
            body = self._cleaned(body_of(answer))
            size = len(json.dumps(body, ensure_ascii=False))
        except RecursionError:
            body = self._cleaned(text_of(answer))
            size = len(body)
        most = self._services.limits.result_bytes * 3 // 4  # the rest is for the other fields, and what JSON escapes
        if size <= most:
            return body
        kind = answer.headers.get("content-type", "")
        begin = self._cleaned(text_of(answer))[: most // 8]
        return {"type": kind, "bytes": len(answer.body), "begin": begin, "told": "the answer is too large; ask for less of it"}

    def _cleaned(self, value: Any) -> Any:
        """Return a JSON value without secrets, and without halves of characters, which no file could hold."""
        if isinstance(value, str):
            return self._redacted(value.encode("utf-8", "replace").decode())
        if isinstance(value, dict):
            return {self._cleaned(name): self._cleaned(inner) for name, inner in value.items()}
        return [self._cleaned(inner) for inner in value] if isinstance(value, list) else value

    def _redacted(self, text: str) -> str:
        for value, name in sorted(self._used.items(), key=lambda one: -len(one[0])):
            for form in (value, urllib.parse.quote(value, safe=""), urllib.parse.quote_plus(value), repr(value)[1:-1]):
                text = text.replace(form, f"{{secret:{name}}}")
        return text

    def _secret(self, name: str) -> str:
        value = self._services.secret(name)
        if not _VALUE.match(value):
            raise InvalidInput(f"the secret {name} holds a line break or a character that no header may hold; set it anew")
        if len(value) >= _SHORTEST_SECRET:
            self._used[value] = name
        return value

    def _with_secrets(self, request: HttpRequest) -> tuple[str, dict[str, str]]:
        headers = {**{name: with_secrets(value, self._secret) for name, value in self.headers.items()}, **request.headers}
        query = {name: with_secrets(value, self._secret) for name, value in self.query.items()}
        mark = "&" if "?" in request.url else "?"
        return request.url + (mark + urllib.parse.urlencode(query) if query else ""), headers

    def _payload(self, request: HttpRequest) -> str:
        query = urllib.parse.urlencode(self.query, safe="{}:")
        url = request.url + (("&" if "?" in request.url else "?") + query if query else "")
        lines = [f"{request.method} {url}", *(f"{name}: {value}" for name, value in {**self.headers, **request.headers}.items())]
        body = (request.content or b"").decode("utf-8", "replace")
        cut = body if len(body) <= _BODY_SHOWN else f"{body[:_BODY_SHOWN]}… ({len(body)} characters)"
        return "\n".join([*lines, *(["", cut] if cut else [])])


def _next_page(answer: HttpAnswer) -> str:
    """Return the URL of the page after an answer, as the server's header says it; empty if it says none."""
    if len(links := answer.headers.get("link", "")) > _LINKS_CHARS:
        return ""
    try:
        place = httpx.Response(answer.status, headers={"link": links}).links.get("next", {}).get("url")
        return urllib.parse.urljoin(answer.url, place) if place else ""
    except (ValueError, AttributeError):
        return ""


def checked_base(base: str) -> str:
    """Return the base of a connection, without a slash at its end.

    :raises InvalidInput: if it is not `ORIGIN` or `ORIGIN/PATH`.
    """
    origin = origin_of(base)
    parsed = httpx.URL(base)
    if parsed.query or parsed.fragment or "?" in base or "#" in base:
        raise InvalidInput(f"the base {shown(base)} is not valid: it has a query or a fragment; give ORIGIN or ORIGIN/PATH")
    split = urllib.parse.urlsplit(base)
    return url_beneath(str(origin), split.path.rstrip("/"))


def url_beneath(base: str, path: str) -> str:
    """Return the URL of a path beneath a base, however the server reads escapes, dots and slashes.

    :raises InvalidInput: if the path is not a plain one.
    """

    def refused(why: str) -> InvalidInput:
        return InvalidInput(f"the path {shown(path)} is not allowed: {why}; give a path beneath {base}, such as /items/1")

    if not isinstance(path, str):
        raise refused("it is not text")
    if path.startswith(("//", "/\\")) or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path):
        raise refused("it names a server")
    if "?" in path or "#" in path:
        raise refused("it holds a query or a fragment (parameter `query`)")
    if _BROKEN_ESCAPE.search(path):
        raise refused("a % is not followed by two hexadecimal digits (%25 stands for itself)")
    plain, before = path, ""
    for _ in range(5):
        before, plain = plain, urllib.parse.unquote(plain, errors="replace")
        if plain == before:
            break
    else:
        raise refused("it is escaped many times over")
    if plain.count("/") != path.count("/") or "\\" in plain:
        raise refused("it holds an escaped slash or a backslash")
    if any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in plain):
        raise refused("it holds a control character")
    folded = unicodedata.normalize("NFKC", plain)
    if folded.count("/") != plain.count("/") or "\\" in folded:
        raise refused("it holds a character that may be read as a slash")
    if any(part.split(";")[0].strip() in (".", "..") for part in folded.split("/")):
        raise refused("it holds . or .. as a part")
    quoted = urllib.parse.quote(path, safe="/%:@!$&'()*+,;=~-._")
    return base + (quoted if not quoted or quoted.startswith("/") else f"/{quoted}")


def query_pairs(query: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the pairs of a query: a list repeats its name, null is left out.

    :raises InvalidInput: for a value that is an object.
    """
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict | list):
                raise InvalidInput(f"the query's {shown(name)} is {shown(one)}; allowed are text, numbers, true, false, and lists of these")
            if one is not None:
                pairs.append((name, plain(one)))
    return pairs


def plain(value: Any) -> str:
    """Return a JSON value as URLs have it."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else json.dumps(value)


def body_of(answer: HttpAnswer) -> Any:
    """Return the body of an answer: a JSON value, or text, or the type and size of what is neither."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not answer.body:
        return ""
    if kind.endswith(("/json", "+json")):
        try:
            return json.loads(answer.body, parse_constant=str)
        except (ValueError, RecursionError):
            return text_of(answer)
    if kind.startswith("text/") or kind.endswith(_TEXTS) or (not kind and _is_text(answer.body)):
        return text_of(answer)
    return {"type": kind or "unknown", "bytes": len(answer.body)}


def text_of(answer: HttpAnswer) -> str:
    """Return the body of an answer as text, by the charset that it declares."""
    declared = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", answer.headers.get("content-type", ""), re.IGNORECASE)
    try:
        return answer.body.decode(declared[1] if declared else "utf-8", "replace")
    except (LookupError, ValueError):
        return answer.body.decode("utf-8", "replace")


def check_options(spec: ConnectionSpec, allowed: Sequence[str]) -> None:
    """
    :raises InvalidInput: for an option that a kind of connection does not have.
    """
    for name in spec.options:
        if name not in allowed:
            there = ", ".join(allowed)
            raise InvalidInput(f"{name!r} is not a valid option of kind {spec.kind}{nearest(name, allowed)}; allowed are: {there}")


def egress_for(origin: WebOrigin, private: bool, result_bytes: int, seconds: float) -> Egress:
    """Return a client that reaches one origin: at private addresses only where its user named such an address, or said so."""
    limits = EgressLimits(
        bytes=4 * result_bytes, seconds=seconds, per_minute=_PER_MINUTE
    )  # a large answer is cut, so that what was done is not in doubt
    if private or is_private_name(origin.host):
        return Egress(private=[origin], limits=limits)
    return Egress([origin], limits=limits)


def is_private_name(host: str) -> bool:
    """Return True if a host is a private or loopback address as it stands."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return not is_public(host)


def _pause(answer: HttpAnswer, kind: str, attempt: int) -> float | None:
    """Return the seconds after which a request is sent again; None if it is not."""
    said = _retry_after(answer.headers.get("retry-after", ""))
    if kind == READS and (answer.status in (408, 425, 429) or answer.status >= 500):
        return _PAUSE_S * 2 ** (attempt - 1) if said is None else said
    return said if kind in (KEYED, IDEMPOTENT) and answer.status == 429 else None


def _retry_after(said: str) -> float | None:
    if re.fullmatch(r"\d{1,9}", said.strip()):
        return float(said)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _texts(spec: ConnectionSpec, option: str) -> dict[str, str]:
    given = spec.options.get(option, {})
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and isinstance(value, str) for name, value in given.items()):
        raise InvalidInput(
            f'{spec.name}: the option {option} is not valid; allowed is an object of texts, such as {{"X-Key": "{{secret:NAME}}"}}'
        )
    return dict(given)


def _check_header(name: str, value: str) -> None:
    if not _HEADER.match(name):
        raise InvalidInput(f"{shown(name)} is not a valid name of a header; allowed are letters, digits and -")
    if not _VALUE.match(value):
        raise InvalidInput(f"the value of the header {name} is not valid: it holds a line break or a character beyond Latin-1")


def _is_text(body: bytes) -> bool:
    try:
        return "\x00" not in body.decode()
    except UnicodeDecodeError:
        return False
