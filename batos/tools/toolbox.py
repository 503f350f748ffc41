"""Toolbox: the connections of the daemon, with the connectors that reach their places. A connector is opened when it is first used.

add ─ connector asks the place for its tools ─ checked ─ pinned in the image
call ─ `find` ─ arguments checked against the tool's schema ─ `prepare` ─ `batos.tools.effects` sends it
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from batos.concurrency import Background, cancel_and_wait
from batos.config import nearest, shown
from batos.errors import BatosError, InvalidInput, ToolFailed, UnknownTool
from batos.image.identity import ActingState
from batos.image.living_image import LivingImage
from batos.objects import Root
from batos.tools import connections, known_places, machines
from batos.tools.connections import PinnedConnection
from batos.tools.definitions import (
    ConnectionSpec,
    Connector,
    ConnectorServices,
    Delivery,
    ToolCall,
    ToolDefinition,
    check_definitions,
)
from batos.tools.machines import NeedMachine

if TYPE_CHECKING:
    from jsonschema import ValidationError

log = structlog.get_logger("batos.tools")
Open = Callable[[ConnectionSpec, ConnectorServices], Connector]
_CONNECTORS = {
    "http": "batos.tools.http:HttpConnector",
    "openapi": "batos.tools.openapi:OpenApiConnector",
    "web": "batos.tools.web:WebConnector",
    "folder": "batos.tools.folders:FolderConnector",
    "program": "batos.tools.programs:ProgramConnector",
    "mcp": "batos.tools.mcp_client:McpConnector",
}
_BY_FORM = {
    "http": "batos.tools.form_connections:FormHttpConnector",
    "program": "batos.tools.form_connections:FormProgramConnector",
}
"""Connectors of connections with an option `form`."""
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names of the place's choice, such as a parameter `pattern`."""
_VALUES = frozenset({"enum", "const", "default", "examples"})
_UNCHECKED = frozenset({
    "pattern", "patternProperties", "format", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    "dependentSchemas", "contains", "unevaluatedItems", "unevaluatedProperties", "uniqueItems", "propertyNames",
})  # fmt: skip
"""Keywords whose check may take for ever in a stranger's schema: his place checks them itself."""
_PARTS = ("allOf", "anyOf", "oneOf")
_MOST_PARTS = 100


def open_connector(spec: ConnectionSpec, services: ConnectorServices) -> Connector:
    """Return the connector of a connection; its module is imported here, so that a daemon loads what its user uses."""
    module, _, name = (_BY_FORM if "form" in spec.options and spec.kind in _BY_FORM else _CONNECTORS)[spec.kind].partition(":")
    made: Connector = getattr(importlib.import_module(module), name)(spec, services)
    return made


class Toolbox:
    """Connections by name, and their connectors as far as they are open."""

    def __init__(
        self, image: LivingImage, services: ConnectorServices, state: ActingState, open: Open = open_connector, machine: str = ""
    ) -> None:
        """
        :param state: identity of the image, and why it may not act.
        :param machine: name of this kernel's machine (`batos.tools.machines`); empty where one daemon has the image to itself.
        """
        self.machine = machine
        self._image, self.services, self.state, self._open = image, services, state, open
        self.connections = image.kept(connections.load)
        """Returns the connections of the image, by name."""
        self._connectors: dict[str, Connector] = {}
        self._specs: dict[str, ConnectionSpec] = {}  # those that the connectors were opened for
        self._opening: dict[str, asyncio.Lock] = {}
        self._closing = Background()

    @property
    def identity(self) -> str:
        """Return the identity of the image, from which keys of effects derive."""
        return self.state.identity

    def tied(self) -> str:
        """Return why nothing may be done outside; "" where it may."""
        return self.state.suspended

    def find(self, name: str) -> tuple[PinnedConnection, ToolDefinition]:
        """Return a tool with its connection.

        :param name: `CONNECTION.TOOL`
        :raises UnknownTool: for a name that is not one, or a tool that is suspended.
        """
        of, dot, tool = name.partition(".")
        there = self.connections()
        if not dot or of not in there:
            known = ", ".join(there) or "none (`batos tools add` makes one)"
            raise UnknownTool(f"{shown(name)} names no tool as CONNECTION.TOOL; connections are: {known}{nearest(of, list(there))}")
        return there[of], there[of].tool(tool)

    async def prepare(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a call ready to be sent.

        :raises UnknownTool: for a name that is not one.
        :raises InvalidInput: if the arguments do not fit the tool's schema.
        :raises ToolFailed: if its place cannot be reached.
        :raises NeedMachine: if its connection belongs to another machine.
        """
        connection, tool = self.find(name)
        if self.machine and (there := self._image.read(machines.elsewhere, connection.spec)):
            raise NeedMachine(connection.spec.name, there)
        check_arguments(name, tool, arguments)
        connector = await self._connector(connection.spec)
        call = await connector.prepare(tool, arguments)
        if tool.look and call.look is None:
            return ToolCall(**{**_fields(call), "look": lambda: self._looked(connection, connector, tool, arguments)})
        return call

    async def add(self, spec: ConnectionSpec, *, sought_by: str = "", again: bool = False) -> PinnedConnection:
        """Add a connection: ask its place for its tools, and pin them.

        :param sought_by: mission whose message wants it; empty: its user adds it by hand.
        :param again: put back the removed connection of that name, as it was.
        :raises InvalidInput: if it is not valid, or its name is taken.
        :raises ToolFailed, EgressFailed, EgressRefused: if the place cannot be reached; nothing was added.
        """
        if spec.name in self.connections():
            raise InvalidInput(f"the name {spec.name!r} is taken; choose another, or `batos tools remove {spec.name}` first")
        self._image.read(machines.check, spec.on, self.machine)
        spec = machines.placed(spec, self.machine)
        connector = self._open(spec, self.services)
        try:
            tools = await self._offered(spec, connector)
            _check_chosen(spec, tools)
            if again:
                await self._image.system(known_places.put_back, spec.name, tools, sought_by, mission=sought_by)
            elif sought_by:
                await self._image.system(known_places.add_sought, spec, tools, sought_by, mission=sought_by)
            else:
                await self._image.system(connections.add, spec, tools, mission="operator")
        finally:
            await _closed(connector)
        log.info("connection_added", name=spec.name, kind=spec.kind, tools=len(tools), mission=sought_by)
        return self.connections()[spec.name]._replace(notes=_notes(connector))

    async def test(self, name: str) -> PinnedConnection:
        """Ask a connection's place for its tools anew. What differs from what was pinned is suspended.

        :raises UnknownTool: if there is no connection of that name.
        """
        spec = self.connection(name).spec
        self._image.read(machines.check, self._image.read(machines.elsewhere, spec), self.machine)
        connector = self._open(spec, self.services)  # of its own: calls under way keep theirs
        try:
            tools = await self._offered(spec, connector)
        finally:
            await _closed(connector)
        changes = await self._image.system(connections.offer, name, tools, mission="operator")
        if changes:
            log.warning("tools_changed", connection=name, hint=f"batos tools test {name}")
        return self.connection(name)._replace(notes=_notes(connector))

    async def accept(self, name: str) -> PinnedConnection:
        """Pin the tools of a connection as its place describes them now."""
        self.connection(name)
        await self._image.system(connections.accept, name, mission="operator")
        return self.connection(name)

    async def remove(self, name: str) -> None:
        """Remove a connection; what it keeps running ends.

        :raises UnknownTool: if there is none of that name.
        """
        self.connection(name)
        await self._image.system(connections.remove, name, mission="operator")
        await self._drop(name)
        log.info("connection_removed", name=name)

    def look(self, root: Root) -> None:
        """Close the connectors of connections that another kernel removed, or that an undo made others.

        :param root: a fresh view of the image.
        """
        if not self._specs:
            return
        there = self.connections()
        for name, spec in self._specs.items():
            if name not in there or there[name].spec != spec:
                self._closing.start(self._close_other(name), f"closing {name}", "tools")

    async def _close_other(self, name: str) -> None:
        async with self._opening.setdefault(name, asyncio.Lock()):
            there = self.connections()
            if name not in there or there[name].spec != self._specs.get(name):
                await self._drop(name)

    def open_names(self) -> Sequence[str]:
        """Return the names of the connections whose connectors are open."""
        return tuple(self._connectors)

    async def close(self) -> None:
        """Close all connectors."""
        await self._closing.drain()
        for name in list(self._connectors):
            await self._drop(name)

    def connection(self, name: str) -> PinnedConnection:
        """Return a connection.

        :raises UnknownTool: if there is none of that name.
        """
        there = self.connections()
        if name not in there:
            known = ", ".join(there) or "none; `batos tools add` makes one"
            raise UnknownTool(f"{shown(name)} is not a connection; connections are: {known}{nearest(name, list(there))}")
        return there[name]

    async def _connector(self, spec: ConnectionSpec) -> Connector:
        async with self._opening.setdefault(spec.name, asyncio.Lock()):
            if spec.name in self._connectors and self._specs[spec.name] != spec:  # an undo took back what it was opened for
                await _closed(self._connectors.pop(spec.name))
            if spec.name not in self._connectors:
                self._connectors[spec.name], self._specs[spec.name] = self._open(spec, self.services), spec
            return self._connectors[spec.name]

    async def _drop(self, name: str) -> None:
        self._specs.pop(name, None)
        if (connector := self._connectors.pop(name, None)) is not None:
            await _closed(connector)
        self._opening.pop(name, None)

    async def _offered(self, spec: ConnectionSpec, connector: Connector) -> Sequence[ToolDefinition]:
        limits = self.services.limits
        asking = asyncio.ensure_future(connector.tools())
        done, _ = await asyncio.wait({asking}, timeout=limits.connect_s)
        if not done:
            await cancel_and_wait(asking)
            raise ToolFailed(f"{spec.name} did not say what it offers within {limits.connect_s:g} s: {shown(spec.place)}")
        found = asking.result()
        check_definitions(spec.name, found, limits)
        return found

    async def _looked(self, connection: PinnedConnection, connector: Connector, tool: ToolDefinition, arguments: Mapping[str, Any]) -> Any:
        """Return what the tool's reading neighbour says of a call: what came of it, or None if it surely did not happen."""
        reading = connection.tool(tool.look)
        known = reading.parameters.get("properties") or {}
        look = await connector.prepare(reading, {name: value for name, value in arguments.items() if name in known})
        try:
            found = await look.send(Delivery(""))
        except ToolFailed as e:
            if e.context.get("status") == 404:
                return None
            raise
        body = found.get("body", found) if isinstance(found, dict) else found
        return found if body not in (None, "", [], {}, False) else None


def _notes(connector: Connector) -> tuple[str, ...]:
    """Return what a connector has to tell of what its place said; most have nothing."""
    return tuple(getattr(connector, "notes", ()))


def _check_chosen(spec: ConnectionSpec, tools: Sequence[ToolDefinition]) -> None:
    """Refuse a class for a tool that the place does not offer: it would say nothing of the tool that was meant."""
    names = [tool.name for tool in tools]
    chosen = spec.options.get("classes")
    for name in chosen if isinstance(chosen, Mapping) else ():
        if name not in names:
            there = ", ".join(names[:20]) or "none"
            raise InvalidInput(f"the class of {shown(name)} is of no tool that {spec.name} offers{nearest(name, names)}; they are: {there}")


def check_arguments(name: str, tool: ToolDefinition, arguments: Mapping[str, Any]) -> None:
    """Check arguments against a tool's schema, but for expressions of strangers, which its place checks.

    :raises InvalidInput: with the argument, what is wrong with it, and what is allowed.
    """
    if not isinstance(arguments, Mapping):
        raise InvalidInput(f"{name} takes its arguments as a JSON object; this is {shown(json.dumps(arguments))}")
    wrong = wrong_in(name, tool, arguments)
    if wrong is not None:
        at = ".".join(map(str, wrong.absolute_path))
        expected = json.dumps(tool.parameters.get("properties", {}), ensure_ascii=False)
        said = wrong.message if len(wrong.message) <= 300 else wrong.message[:300] + "…"
        raise InvalidInput(f"{name}: {at + ': ' if at else ''}{said}; its parameters are {shown(expected)}")


def wrong_in(name: str, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ValidationError | None:
    """Return the error of what does not fit the tool's schema in a call's arguments; None where all fits, as far as is known."""
    from jsonschema import Draft202012Validator, exceptions  # imported late: only a call needs it
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    checker = Draft202012Validator(_checkable(tool.parameters), registry=Registry())  # an empty registry fetches nothing
    try:
        found: ValidationError | None = exceptions.best_match(checker.iter_errors(dict(arguments)))
    except (Unresolvable, RecursionError, exceptions.SchemaError, TypeError, ValueError) as e:
        log.warning("schema_not_usable", tool=name, error=str(e)[:200])
        return None  # the place checks them itself
    return found


def misfit_of(tool: ToolDefinition, result: Any) -> str:
    """Return in which way a result is of another form than its tool declares. "" where it is not, where the tool declares none, and where
    the result is too large to check quickly.
    """
    from jsonschema import Draft202012Validator, exceptions  # imported late: only a call needs it
    from referencing import Registry

    if tool.result is None or len(json.dumps(result)) > _MISFIT_BYTES:
        return ""
    checker = Draft202012Validator(_checkable(tool.result), registry=Registry())
    try:
        wrong = exceptions.best_match(checker.iter_errors(result))
    except Exception as e:  # a stranger's schema: whatever it is, it says nothing of the result
        log.warning("schema_not_usable", tool=tool.name, error=str(e)[:200])
        return ""
    if wrong is None:
        return ""
    at = ".".join("[]" if isinstance(part, int) else str(part) for part in wrong.absolute_path)
    return f"{at + ': ' if at else ''}{wrong.message[:200]}"


_MISFIT_BYTES = 64 << 10


def _checkable(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return [_checkable(one) for one in schema] if isinstance(schema, list) else schema
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _NAMED and isinstance(value, Mapping):
            found[name] = {key: _checkable(one) for key, one in value.items()}
        elif name in _VALUES or (name in _PARTS and _only_requires(value)):
            found[name] = value
        elif name not in _UNCHECKED and not (name == "additionalProperties" and _UNCHECKED & schema.keys()):
            found[name] = _checkable(value)
    return found


def _only_requires(parts: Any, depth: int = 0) -> bool:
    """Return True if the parts of a schema say no more than which properties there have to be: their check is quick."""
    if not isinstance(parts, list) or not 0 < len(parts) <= _MOST_PARTS or depth > 1:
        return False
    return all(
        isinstance(part, Mapping)
        and part.keys() <= {"required", "type", "description", "title", *_PARTS}
        and part.get("type", "object") == "object"
        and _are_names(part.get("required", []))
        and all(_only_requires(part[word], depth + 1) for word in _PARTS if word in part)
        for part in parts
    )


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _fields(call: ToolCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in ToolCall.__dataclass_fields__}


async def _closed(connector: Connector) -> None:
    with contextlib.suppress(BatosError, OSError):
        await connector.close()
