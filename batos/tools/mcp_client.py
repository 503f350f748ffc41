"""The connector for servers of the Model Context Protocol, over standard streams and HTTP, in all eras of the protocol.

A call is sent once. A server's question to the user ends the sending (`InputRequired`); the answer goes with the next one. Annotations of
a server say nothing of its tools unless its user trusts it. The SDK is the extra `mcp` and is imported when a connection is first used.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batos.config import shown
from batos.errors import EgressFailed, InvalidInput, ToolFailed
from batos.image.effects import ACTS, CLASSES, IDEMPOTENT, KEYED, READS, VERIFIABLE
from batos.tools.definitions import (
    ConnectionSpec,
    ConnectorServices,
    Delivery,
    InputRequired,
    ToolCall,
    ToolDefinition,
    seconds_of,
    with_secrets,
)
from batos.tools.egress import ReachableOrigins, origin_of
from batos.tools.elicitation import question_of, response_to

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CallToolResult, ContentBlock, InputRequiredResult, Tool

    from batos.tools.mcp_login import Login
    from batos.tools.mcp_session import McpSession, McpTransport

OPTIONS = ("env", "headers", "trust", "classes", "private", "login", "reach", "seconds")
INSTALL = "pip install 'batos[mcp]'"
ROUNDS = 10
"""Sendings of one call in which a server asks for no input and wants to be asked again."""
_TELL_S = 0.2  # between two lines of progress
_TELL_CHARS = 200
_SURE_STATUS = frozenset(range(300, 500)) - {408, 409, 425, 429}
_INVALID_PARAMS = -32602
_URL_FIRST = -32042  # a page is to be opened before the call is made
_SURE = {
    -32601: "has no such tool",
    -32020: "has changed its tool",
    -32021: "wants what this client does not have",
    -32022: "is of another era",
}
_NOTHING = frozenset({"null", "none", "false", "[]", "{}"})
_OPEN = frozenset({-32000, -32001, -32600, -32700})  # of the SDK, where no answer came that can be read


@dataclass(frozen=True, slots=True)
class ToolClass:
    """Choice of the connection's user for one tool."""

    kind: str
    look: str = ""
    undo: str = ""
    key: str = ""
    """name of the argument that takes the effect's key"""


@dataclass
class Talk:
    """Questions of a call so far, as they are kept between two sendings."""

    form: dict[str, Any] | None = None
    """the question that waits for its answer"""
    slot: str = ""
    """its name in the round; empty where the server asks in the middle of a call"""
    requests: dict[str, Any] = field(default_factory=dict)
    """forms of the round that wait, by name"""
    responses: dict[str, Any] = field(default_factory=dict)
    """responses of the round, by name"""
    state: str | None = None
    """the server's state of the round"""
    answered: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """forms and responses of this call, in their order"""
    again: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """those that are given again, since the server has begun anew"""
    page: bool = False
    """True if the question is a page to be opened before the call is made"""

    @classmethod
    def of(cls, pending: str) -> Talk:
        """Return the talk of which `text` was the form; an empty one for an empty text."""
        return cls(**json.loads(pending)) if pending else cls()

    def text(self) -> str:
        """Return all of it as text."""
        return json.dumps(self.__dict__, ensure_ascii=False)

    def answer(self, said: str) -> None:
        """Take the user's answer to the question that waits; go on to the next one.

        :raises InputRequired: if it does not fit, or there is a next question.
        :raises ToolFailed: if the user refuses what has to come before the call.
        """
        if self.form is None:
            return
        try:
            response = response_to(self.form, said)
        except InvalidInput as e:
            raise InputRequired(question_of(self.form, e.message), self.text()) from None
        if self.page and response["action"] != "accept":
            raise ToolFailed(f"its user did not open {self.form.get('url')}")
        self.answered.append((self.form, response))
        if self.slot:
            self.responses[self.slot] = response
        self.form, self.slot, self.page = None, "", False
        self.next()

    def next(self) -> None:
        """Ask the next question of the round.

        :raises InputRequired: if there is one.
        """
        if self.requests:
            self.slot, self.form = next(iter(self.requests.items()))
            del self.requests[self.slot]
            raise InputRequired(question_of(self.form or {}), self.text())


class McpConnector:
    """A connection to one MCP server. `place` is a command line or a URL.

    Options:

    * `env` and `headers`: values may name secrets
    * `trust`: to believe its annotations
    * `classes`: by tool a class, or a table of `class`, `look`, `undo` and `key`
    * `private`: if its results hold what is the user's
    * `login`: options of OAuth
    * `reach`: further origins that it may reach wherever they are (an authorization server at home)
    * `seconds`: of one call
    """

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        """
        :raises InvalidInput: if the place or an option is not valid.
        """
        self._spec, self._services, self._limits = spec, services, services.limits
        options = spec.options
        if unknown := [name for name in options if name not in OPTIONS]:
            raise InvalidInput(f"the option {unknown[0]!r} of {spec.name} is not valid; allowed are {', '.join(OPTIONS)}")
        self._seconds = seconds_of(spec, self._limits.call_s)
        self._over_http = spec.place.startswith(("http://", "https://"))
        self._classes = {str(name): _class_of(spec.name, str(name), chosen) for name, chosen in _mapping(options, "classes").items()}
        for name in ("env", "headers", "login"):
            _mapping(options, name)
        if "env" in options and self._over_http:
            raise InvalidInput(f"{spec.name}: `env` is for a server that is started; one at a URL takes `headers`")
        if self._over_http:
            self._origins = [origin_of(spec.place), *(origin_of(str(url)) for url in options.get("reach") or ())]
        self._session: McpSession | None = None
        self._ending: list[McpSession] = []
        self._login: Login | None = None
        self._starting = asyncio.Lock()
        self._seen = ""

    async def tools(self) -> Sequence[ToolDefinition]:
        """Ask the server for its tools; see `Connector.tools`."""
        session = await self._connected()
        found = await session.tools()
        self._seen = _digest(found)
        return [self._definition(tool) for tool in found]

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a call ready to be sent; see `Connector.prepare`. The server is started here where it does not run."""
        chosen = self._classes.get(tool.name)
        if tool.kind == KEYED and not (chosen and chosen.key):
            raise InvalidInput(f"{self._spec.name}.{tool.name} is of the class {KEYED}; name the argument that takes the key (`key`)")
        session = await self._connected()
        return ToolCall(
            connection=self._spec.name,
            tool=tool,
            arguments=arguments,
            send=lambda delivery: self._send(session, tool, arguments, delivery),
            seconds=self._seconds,
            target="" if tool.kind == READS else self._spec.name,  # what a tool changes is not known: any other may change it, too
            look=(lambda: self._look(tool.look, arguments)) if tool.kind == VERIFIABLE and tool.look else None,
            process=session.process,
        )

    async def logged_in(self) -> None:
        """Wait until a login that was sent back here has been taken up, or has failed."""
        if self._session is not None:
            await self._session.settled()

    async def close(self) -> None:
        """End the connection and the server's process."""
        if self._login is not None and self._login.leave():  # its user's browser is still to come back
            self._session = self._login = None
        sessions = [*self._ending, *([self._session] if self._session else [])]
        self._session, self._ending = None, []
        for session in sessions:
            await session.close()
        if self._login is not None:
            await self._login.close()

    async def _connected(self) -> McpSession:
        """Return the connection, which is made where there is none.

        :raises ToolFailed: if it cannot be made.
        """
        async with self._starting:
            if self._session is None or not self._session.alive:
                self._ending = [one for one in (*self._ending, self._session) if one is not None and not one.ended]
                self._session = await self._begin()
            session = self._session
            await session.ready()
            if not session.listed:  # also for the SDK: it learns which arguments go into headers
                seen, self._seen = self._seen, _digest(await session.tools())
                if seen not in ("", self._seen):
                    self._services.changed(self._spec.name)
        return session

    async def _begin(self) -> McpSession:
        try:
            from batos.tools.mcp_session import McpSession  # late: the SDK is an extra, and takes 30 MiB
        except ImportError as e:
            raise ToolFailed(f"{self._spec.name} needs the SDK of MCP ({e}); install it beside BAT OS: {INSTALL}") from None
        if self._login is not None:
            await self._login.close()
            self._login = None
        if self._over_http:
            from batos.tools.mcp_login import waiting_login

            self._login = waiting_login(self._login_file, self._spec.place)
            if self._login is not None and self._login.session is not None:
                return self._login.session
        transport = self._http() if self._over_http else self._stdio()
        session = McpSession(self._spec.name, transport, self._limits, lambda: self._services.changed(self._spec.name))
        if self._login is not None:
            self._login.session = session
        return session

    @property
    def _login_file(self) -> Path:
        return self._services.folder / f"login-{self._spec.name}.json"

    def _stdio(self) -> McpTransport:
        from batos.tools.mcp_transport import StdioTransport, words_of

        environment = self._with_secrets("env")
        return StdioTransport(self._spec.name, words_of(self._spec.place), environment, most=self._limits.message_bytes)

    def _http(self) -> McpTransport:
        from batos.tools.mcp_http import HttpTransport
        from batos.tools.mcp_login import Login

        headers = self._with_secrets("headers")
        auth = None
        if not any(name.lower() == "authorization" for name in headers):
            options = self._with_secrets("login")
            self._login = Login(self._spec.place, self._login_file, options)
            auth = self._login.provider
        reach = ReachableOrigins(self._origins[:1], private=self._origins, any_public=auth is not None)
        return HttpTransport(self._spec.place, headers=headers, reach=reach, auth=auth, most=self._limits.message_bytes)

    def _with_secrets(self, option: str) -> dict[str, str]:
        table = _mapping(self._spec.options, option)
        return {str(name): with_secrets(str(value), self._services.secret) for name, value in table.items()}

    def _definition(self, tool: Tool) -> ToolDefinition:
        hints = tool.annotations.model_dump(by_alias=True, exclude_none=True, mode="json") if tool.annotations else {}
        kind, outward = ACTS, True
        if self._spec.options.get("trust") is True:
            kind = READS if hints.get("readOnlyHint") else IDEMPOTENT if hints.get("idempotentHint") else ACTS
            outward = not (kind == READS and hints.get("openWorldHint") is False)
        chosen = self._classes.get(tool.name, ToolClass(kind))
        return ToolDefinition(
            name=tool.name,
            description=tool.description or tool.title or "",
            parameters=tool.input_schema,
            result=tool.output_schema,
            kind=chosen.kind,
            private=self._spec.options.get("private") is True,
            outward=outward,
            look=chosen.look,
            undo=chosen.undo,
            details={"annotations": hints} if hints else {},
        )

    async def _send(self, session: McpSession, tool: ToolDefinition, arguments: Mapping[str, Any], delivery: Delivery) -> Any:
        """Send a call once, on the connection that it was prepared on, or a new one where that has ended."""
        talk = Talk.of(delivery.pending)
        talk.answer(delivery.answer)
        prepared = session
        if not session.alive:
            session = await self._connected()
        given = dict(arguments)
        if tool.kind == KEYED:
            given[self._classes[tool.name].key] = delivery.key
        try:
            return await self._rounds(session, tool, given, delivery, talk)
        except asyncio.CancelledError:
            if session is not prepared:
                await session.close()  # its process is not the one that the effect's record names: what is left of the call ends here
            raise

    async def _rounds(self, session: McpSession, tool: ToolDefinition, given: dict[str, Any], delivery: Delivery, talk: Talk) -> Any:
        from mcp.shared.exceptions import MCPError

        from batos.tools.mcp_session import AskedInCall, OpenCall

        told = _Progress(delivery)
        for _ in range(ROUNDS):
            try:
                opened = OpenCall(talk.answered, leave=delivery.leave)
                result = await session.call(
                    tool.name, given, call=opened, tell=told, responses=_responses(talk.responses), state=talk.state
                )
            except AskedInCall as e:
                talk.form = e.form
                raise InputRequired(question_of(e.form), talk.text()) from None
            except MCPError as e:
                if e.code != _INVALID_PARAMS or talk.state is None:
                    raise self._meaning(session, tool, e, talk) from None
                talk.responses, talk.state = {}, None  # it does not know its own state any more, after a restart say: it asks anew
                talk.again = list(talk.answered)
                continue
            except (RuntimeError, ValueError) as e:  # the SDK's validation
                why = f"{self._spec.name}.{tool.name} answered in a form that is not valid: {str(e)[:400]}"
                raise ToolFailed(why, sure=False) from None
            if result.result_type != "input_required":
                return self._result(tool, result)  # type: ignore[arg-type]
            self._asked(tool, result, talk)  # type: ignore[arg-type]
        raise ToolFailed(f"{self._spec.name}.{tool.name} wanted to be asked again {ROUNDS} times", sure=False)

    def _asked(self, tool: ToolDefinition, result: InputRequiredResult, talk: Talk) -> None:
        """Take up what a server asks in a round; questions that were answered before are answered so again.

        :raises InputRequired: for the first question that is new.
        """
        talk.responses, talk.state, talk.requests = {}, result.request_state, {}
        for name, request in (result.input_requests or {}).items():
            if request.method != "elicitation/create":
                raise ToolFailed(f"{self._spec.name}.{tool.name} asks for {request.method}, which is not allowed to servers", sure=False)
            form = request.params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta", "task", "elicitation_id"})
            if talk.again and talk.again[0][0] == form:
                talk.responses[name] = talk.again.pop(0)[1]
            else:
                talk.requests[name] = form
        talk.next()

    def _meaning(self, session: McpSession, tool: ToolDefinition, error: MCPError, talk: Talk) -> Exception:
        """Return what an error of the protocol means for a call."""
        name, code, data = f"{self._spec.name}.{tool.name}", error.code, error.data if isinstance(error.data, Mapping) else {}
        if code == _URL_FIRST and isinstance(data.get("elicitations"), list) and data["elicitations"]:
            pages = [{**page, "mode": "url"} for page in data["elicitations"] if isinstance(page, Mapping) and page.get("url")]
            if pages:
                talk.form, talk.page = {key: pages[0].get(key, "") for key in ("mode", "message", "url")}, True
                return InputRequired(question_of(talk.form), talk.text())
        if isinstance(data.get("sent"), bool):
            return EgressFailed(f"{name}: {error.message}", sent=data["sent"])
        if isinstance(data.get("status"), int):
            if data["status"] == 404:
                session.retire("the server does not know the session any more")
            if data["status"] in _SURE_STATUS:
                return ToolFailed(f"{name}: {error.message}")
            return EgressFailed(f"{name}: {error.message}", sent=True)
        if code in _OPEN:
            why = "" if session.reason in ("", error.message) else f" ({session.reason})"
            return EgressFailed(f"{name} gave no answer: {error.message}{why}", sent=True)
        if code in _SURE:
            if code == -32020:
                self._services.changed(self._spec.name)
            return ToolFailed(f"{name}: the server {_SURE[code]}: {error.message}")
        return ToolFailed(f"{name}: {error.message}", sure=False)

    def _result(self, tool: ToolDefinition, result: CallToolResult) -> Any:
        """Return what a call came to: its structured content, else its text.

        :raises ToolFailed: if the tool says that it failed, or the result is too large.
        """
        name = f"{self._spec.name}.{tool.name}"
        found = result.structured_content
        if found is None or result.is_error:
            found = "\n".join(_told(block) for block in result.content)
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        size = len(text.encode("utf-8", "replace"))
        if size > self._limits.result_bytes:
            raise ToolFailed(f"{name} answered {size} bytes; at most {self._limits.result_bytes} are allowed", sure=False)
        if result.is_error:
            raise ToolFailed(f"{name} failed: {found or 'it does not say why'}", sure=False)
        return found

    async def _look(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return what the looking tool sees, None where it sees nothing."""
        session = await self._connected()
        looking = ToolDefinition(name=name, kind=READS)
        found = await self._send(session, looking, arguments, Delivery(""))
        inner = found["result"] if isinstance(found, Mapping) and set(found) == {"result"} else found
        if isinstance(inner, str) and inner.strip().casefold() in _NOTHING:  # a server that has no structured content
            return None
        return found if inner or (inner == 0 and inner is not False) else None  # "is it there?" is answered with false


class _Progress:
    """Tells a call's progress in lines, not too often."""

    def __init__(self, delivery: Delivery) -> None:
        self._tell, self._last = delivery.tell, 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        if now - self._last >= _TELL_S or (total is not None and progress >= total):
            self._last = now
            share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            self._tell(f"{message[:_TELL_CHARS]} ({share})" if message else share)


def _told(block: ContentBlock) -> str:
    """Return a block of a result as text; what is not text by its type and size."""
    if block.type == "text":
        return block.text
    if block.type == "image" or block.type == "audio":
        return f"[{block.type} {block.mime_type[:80]}, {_size(block.data)} bytes]"
    if block.type == "resource_link":
        size = "" if block.size is None else f", {block.size} bytes"
        return f"[link to {block.name}: {block.uri}{size}]"
    resource = block.resource
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[{resource.uri}]\n{text}"
    return f"[resource {resource.uri}, {resource.mime_type or 'of no type'}, {_size(getattr(resource, 'blob', ''))} bytes]"


def _size(data: str) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=")


def _responses(responses: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return responses as the SDK sends them."""
    if not responses:
        return None
    from mcp_types import ElicitResult

    return {name: ElicitResult.model_validate(response) for name, response in responses.items()}


def _digest(tools: Sequence[Tool]) -> str:
    return json.dumps([tool.model_dump(by_alias=True, mode="json", exclude={"meta"}) for tool in tools], sort_keys=True)


def _mapping(options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = options.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidInput(f"the option {name!r} is not valid: {shown(str(found))}; give a table of names and values")
    return found


def _class_of(connection: str, tool: str, chosen: Any) -> ToolClass:
    table = chosen if isinstance(chosen, Mapping) else {"class": chosen}
    kind = table.get("class", ACTS)
    if kind not in CLASSES or set(table) - {"class", "look", "undo", "key"}:
        raise InvalidInput(
            f"the class of {connection}.{tool} is not valid: {shown(str(chosen))}; allowed are {', '.join(CLASSES)}, "
            "or a table of class, look, undo and key"
        )
    if kind == VERIFIABLE and not table.get("look"):
        raise InvalidInput(f"{connection}.{tool} is to be {VERIFIABLE}; name the reading tool that tells whether it happened (`look`)")
    if kind == KEYED and not table.get("key"):
        raise InvalidInput(f"{connection}.{tool} is to be {KEYED}; name the argument that takes the key (`key`)")
    return ToolClass(kind, *(str(table.get(name, "")) for name in ("look", "undo", "key")))
