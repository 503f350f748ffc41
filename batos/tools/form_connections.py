"""Connections whose operations a form describes: of a program, or of an API (`batos.tools.description_form`). Their user accepted the form.

The program and the server are those that he named. A form says which arguments go to the one, and which paths of the other are asked.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from batos.config import nearest, shown
from batos.errors import InvalidInput, ToolFailed
from batos.image.effects import ACTS, IDEMPOTENT, READS
from batos.tools import openapi_document
from batos.tools.definitions import ConnectionSpec, ConnectorServices, ToolCall, ToolDefinition
from batos.tools.description_form import HttpForm, ProgramForm, document_of, filled, parameters_of, read_form
from batos.tools.http import adjusted
from batos.tools.http_sending import HttpSender, check_options
from batos.tools.openapi import request_of
from batos.tools.programs import ProgramConnector, check_size, refuse_shell, text_of

_CLASSES = (READS, IDEMPOTENT, ACTS)


class FormProgramConnector(ProgramConnector):
    """The connector of a program whose operations a form describes. Options: `form`, `classes` (by operation), and those of a program."""

    options = (*ProgramConnector.options, "form")

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        """
        :raises InvalidInput: if the command, the form or an option is not valid.
        """
        super().__init__(spec, services)
        if self._template.names:
            raise InvalidInput(f"the command {shown(spec.place)} has placeholders; with a form, only the form has them")
        form = read_form("program", spec.options["form"])
        assert isinstance(form, ProgramForm)
        self._form = form
        for one in form.operations:
            refuse_shell([*self._template.words, *one.argv])
        names = [one.name for one in form.operations]
        self._classes = _checked_classes(spec.options.get("classes", {}), names)

    def _class_of(self, classes: Any) -> str:
        return ACTS

    async def tools(self) -> Sequence[ToolDefinition]:
        """Return a tool for each operation, if the program is there.

        :raises ToolFailed: if it is not, or cannot be run.
        """
        await asyncio.to_thread(self._file)
        command = shlex.join(self._template.words)
        found = []
        for one in self._form.operations:
            kind = self._classes.get(one.name, one.kind)
            found.append(
                ToolDefinition(
                    name=one.name,
                    description=one.line or f"Run {command} as: {shlex.join(one.argv)}"[:600],
                    parameters=parameters_of(one),
                    kind=kind,
                    private=bool(self._readable or self._writable),
                    outward=kind != READS or self._spec.options.get("network", False),
                    details={"argv": one.argv},
                )
            )
        return found

    def words(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> list[str]:
        """Return the program and the arguments of one call; no value of it is taken for an option.

        :raises InvalidInput: if a value cannot be passed as it is.
        """
        properties = tool.parameters.get("properties") or {}
        numbers = {name for name, one in properties.items() if one.get("type") in ("integer", "number")}
        words = list(self._template.words)
        negative = {text_of(name, arguments[name]) for name in numbers if arguments.get(name) is not None}
        for word, is_value in filled(tool.details["argv"], arguments, text_of):
            free = not is_value or not word.startswith("-") or self._template.dashes or "--" in words
            if not free and word not in negative:
                how = "set the option dashes, if the program may be given it"
                raise InvalidInput(f"the value {shown(word)} begins with -, and the program would take it as an option; {how}")
            words.append(word)
        check_size(words)
        return words


class FormHttpConnector:
    """The connector of an API whose operations a form describes. Options: `form`, `classes`, `look`, `undo`, and those of `HttpSender`."""

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        """
        :raises InvalidInput: if the place, the form or an option is not valid.
        """
        check_options(spec, (*HttpSender.OPTIONS, "form", "classes", "look", "undo"))
        form = read_form("http", spec.options["form"])
        assert isinstance(form, HttpForm)
        self._name, self._sender = spec.name, HttpSender(spec, services, spec.place)
        reading = openapi_document.read(document_of(form, self._sender.base), self._sender.base, "", list(spec.options.get("query") or {}))
        made = [replace(tool, name=one.name, kind=one.kind) for tool, one in zip(reading.tools, form.operations, strict=True)]
        self._tools = adjusted(spec, made, keyed=False, private=self._sender.private)

    async def tools(self) -> Sequence[ToolDefinition]:
        """Return a tool for each operation. The server is not asked."""
        return self._tools

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a request ready.

        :raises InvalidInput: if an argument does not fit its place in the request, or a secret is missing.
        """
        if not {"method", "path", "sent"} <= set(tool.details):
            raise ToolFailed(f"{self._name}.{tool.name} was not made of a form; remove {self._name} and add it anew")
        return self._sender.ready(tool, arguments, request_of(tool.details, arguments, self._sender))

    async def close(self) -> None:
        """Close the connections that are kept open."""
        await self._sender.close()


def _checked_classes(given: Any, names: Sequence[str]) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"the option classes is {shown(given)}; allowed is an object of classes by operations")
    for name, kind in given.items():
        if name not in names:
            raise InvalidInput(f"the class of {shown(name)} is of no operation of the form{nearest(str(name), list(names))}")
        if kind not in _CLASSES:
            raise InvalidInput(f"the class {shown(kind)} of {name} is not valid; allowed are {', '.join(_CLASSES)}")
    return {str(name): str(kind) for name, kind in given.items()}
