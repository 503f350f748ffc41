"""Transports of notices: a message becomes one call that is ready to be sent, as those of tools are, by the same jail and client.

A program runs in the jail of programs, with fixed arguments whose placeholders a message fills. A hook is a POST by the guarded client.
What the library apprise reaches is sent by a program of ours in the same jail. Its requests, time and memory are bounded, and the daemon
imports nothing of the library.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import shlex
import sys
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from batos.config import nearest, shown
from batos.errors import BatosError, InvalidInput, ToolFailed
from batos.image.effects import ACTS, KEYED
from batos.image.notice_channels import APPRISE, HOOK, PROGRAM, ChannelSpec
from batos.notices.messages import MessageWords, payload
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolCall, ToolDefinition, with_secrets
from batos.tools.http_sending import HttpRequest, HttpSender
from batos.tools.programs import CommandTemplate, ProgramConnector
from batos.tools.secrets import redacted

FIELDS = ("title", "text", "link", "fact", "mission", "key")
"""Placeholders of a program's command."""
KEY_HEADER = "Idempotency-Key"
"""Header of a hook with the message's key: the same whenever the message is sent."""
CALL_S = 30.0
"""Seconds of one sending, where the channel does not say otherwise."""
UNSENT = 75
"""Exit code of a program that surely sent nothing, so that it may be tried again: EX_TEMPFAIL of sysexits.h."""
_OPTIONS = {
    PROGRAM: ("env", "folders", "network", "seconds", "without_walls"),
    HOOK: ("headers", "private", "seconds"),
    APPRISE: ("seconds",),
}
_SECRET = re.compile(r"\{secret:[^}]*\}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://")
_TELLTALE = re.compile(r"[A-Za-z0-9_-]{16,}")
_SENDER = Path(__file__).with_name("apprise_sender.py")


class Transport(Protocol):
    """Way to one channel."""

    async def prepare(self, words: MessageWords, key: str, at: float, *, repeats: bool) -> ToolCall:
        """Make a message ready to be sent; nothing leaves yet.

        :param key: of the message.
        :param repeats: True if an earlier sending may have arrived.
        :raises BatosError: if it surely cannot be sent.
        """

    async def close(self) -> None:
        """End all that belongs to the transport."""


def transport_of(spec: ChannelSpec, services: ConnectorServices) -> Transport:
    """Return the transport of a channel.

    :raises InvalidInput: if its place or an option is not valid.
    """
    for option in spec.options:
        if option not in _OPTIONS[spec.way]:
            allowed = ", ".join(_OPTIONS[spec.way])
            hint = nearest(option, _OPTIONS[spec.way])
            raise InvalidInput(f"{option!r} is not an option of a channel of the way {spec.way}{hint}; allowed are: {allowed}")
    options = {"seconds": CALL_S, **spec.options}
    if spec.way == PROGRAM:
        return _ProgramTransport(spec, options, services)
    return _HookTransport(spec, options, services) if spec.way == HOOK else _AppriseTransport(spec, options, services)


async def check_channel(spec: ChannelSpec, services: ConnectorServices) -> None:
    """Check that messages could be sent to a channel, as far as that can be found out without sending one.

    :raises InvalidInput: if its place or an option is not valid.
    :raises ToolFailed: if its program or apprise is not there.
    """
    transport = transport_of(spec, services)
    try:
        if isinstance(transport, _ProgramTransport):
            await transport.check()
        elif spec.way == APPRISE:
            apprise_folder()
    finally:
        await transport.close()


def parted_place(spec: ChannelSpec) -> tuple[str, str]:
    """Return the place of a channel as the image keeps it, and what of it is a secret, which is kept beside the image. The secret is empty
    if nothing is one.

    An apprise URL is a secret as a whole. Of a hook's URL what comes after the server is one, where it looks like it.
    """
    if _SECRET.search(spec.place) or spec.way == PROGRAM:
        return spec.place, ""
    named = f"{{secret:{secret_of(spec.name)}}}"
    if spec.way == APPRISE:
        return named, spec.place
    found = urllib.parse.urlsplit(spec.place)
    origin = f"{found.scheme}://{found.netloc}"
    rest = spec.place.removeprefix(origin)
    looks = any(any(one.isdigit() for one in word) for word in _TELLTALE.findall(rest))
    return (origin + named, rest) if looks and spec.place.startswith(origin) else (spec.place, "")


def secret_of(name: str) -> str:
    """Return the name of the secret that is kept for a channel."""
    return f"notices.{name}"


class _ProgramTransport:
    def __init__(self, spec: ChannelSpec, options: Mapping[str, Any], services: ConnectorServices) -> None:
        template = CommandTemplate.parse(spec.place)
        for name in template.names:
            if name not in FIELDS:
                raise InvalidInput(f"{{{name}}} is not a field of notices{nearest(name, FIELDS)}; allowed are {', '.join(FIELDS)}")
        self._names = template.names
        self._connector = ProgramConnector(ConnectionSpec(spec.name, "program", spec.place, options), services)

    async def check(self) -> None:
        await self._connector.tools()

    async def prepare(self, words: MessageWords, key: str, at: float, *, repeats: bool) -> ToolCall:
        told = words.repeated() if repeats else words
        values = {"title": told.title, "text": told.text, "link": told.link, "fact": told.fact, "mission": told.mission, "key": key}
        (tool,) = await self._connector.tools()
        return await self._connector.prepare(tool, {name: values[name] for name in self._names})

    async def close(self) -> None:
        await self._connector.close()


class _HookTransport:
    def __init__(self, spec: ChannelSpec, options: Mapping[str, Any], services: ConnectorServices) -> None:
        fixed = spec.place.partition("{secret:")[0]
        found = urllib.parse.urlsplit(fixed)
        if found.scheme not in ("http", "https") or not found.netloc:
            raise InvalidInput(
                f"the hook {shown(fixed)} is not valid; give an address such as https://HOST/PATH, whose HOST is not a secret"
            )
        base = f"{found.scheme}://{found.netloc}"
        self._base, self._rest = base, spec.place.removeprefix(base)
        self._services = services
        self._tool = ToolDefinition(name="post", kind=ACTS if spec.once else KEYED, details={"method": "POST"})
        self._sender = HttpSender(ConnectionSpec(spec.name, "http", base, options), services, base)
        if fixed == spec.place:
            self._url(self._rest)

    async def prepare(self, words: MessageWords, key: str, at: float, *, repeats: bool) -> ToolCall:
        hidden: list[str] = []

        def secret(name: str) -> str:
            hidden.append(self._services.secret(name))
            return hidden[-1]

        body = json.dumps(payload(words, key, at, repeats=repeats), ensure_ascii=False).encode("utf-8", "replace")
        headers = {"Content-Type": "application/json"}
        try:
            url = self._url(with_secrets(self._rest, secret))
            hidden += [url.removeprefix(self._base)] if hidden else []
            request = HttpRequest(method="POST", url=url, headers=headers, content=body, key_header=KEY_HEADER)
            call = self._sender.ready(self._tool, {}, request)
        except BatosError as e:
            raise InvalidInput(redacted(e.message, hidden)) from None

        async def send(delivery: Delivery) -> Any:
            try:
                return await call.send(delivery)
            except BatosError as e:
                e.message = redacted(e.message, hidden)
                e.args = (e.message,)
                raise

        return ToolCall(connection=call.connection, tool=self._tool, arguments={}, send=send, seconds=call.seconds)

    def _url(self, rest: str) -> str:
        path, mark, query = rest.partition("?")
        return self._sender.url(path) + mark + query

    async def close(self) -> None:
        await self._sender.close()


class _AppriseTransport:
    def __init__(self, spec: ChannelSpec, options: Mapping[str, Any], services: ConnectorServices) -> None:
        if not _SECRET.search(spec.place) and not _URL.match(spec.place):
            raise InvalidInput("the apprise URL is not valid; write one such as ntfy://HOST/TOPIC, or {secret:NAME}")
        self._spec, self._options, self._services = spec, options, services
        self._connectors: list[ProgramConnector] = []

    async def prepare(self, words: MessageWords, key: str, at: float, *, repeats: bool) -> ToolCall:
        told = words.repeated() if repeats else words
        text = f"{told.text}\n{told.link}" if told.link and told.link not in told.text else told.text
        message = base64.b64encode(
            json.dumps({"title": told.title, "text": text}).encode()
        ).decode()  # no text of it is read as a secret's name
        site = apprise_folder()
        place = shlex.join([sys.executable, "-I", str(_SENDER), site])
        folders = dict.fromkeys(f"{one}:ro" for one in (sys.prefix, sys.base_prefix, site, str(_SENDER.parent)))
        options = {
            **self._options, "env": {"BATOS_URL": self._spec.place, "BATOS_MESSAGE": message}, "network": True,
            "folders": list(folders), "without_walls": True,
        }  # fmt: skip
        connector = ProgramConnector(ConnectionSpec(self._spec.name, "program", place, options), self._services)
        self._connectors.append(connector)
        (tool,) = await connector.tools()
        return await connector.prepare(tool, {})

    async def close(self) -> None:
        for connector in self._connectors:
            await connector.close()


def apprise_folder() -> str:
    """Return the folder in which apprise is installed. Nothing of it is imported.

    :raises ToolFailed: if it is not installed.
    """
    found = importlib.util.find_spec("apprise")
    if found is None or found.origin is None:
        raise ToolFailed("apprise is not installed; `pip install 'batos[notify]'`, or tell a program or a hook instead")
    return str(Path(found.origin).parents[1])
