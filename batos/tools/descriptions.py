"""Descriptions that are not a schema: what a program says of its usage, and pages about an API. They are read here; where the rules do not
suffice, a model fills the form (`batos.mind.description_writer`). Nothing counts before its user has accepted it.

A program runs in the jail of program connections, without network, and is asked for its usage only. Of a page the text is read, in a
process of its own.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import shlex
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from batos.config import shown
from batos.errors import BatosError, InvalidInput, ToolFailed
from batos.isolation import IsolatedChild
from batos.tools import page_reader
from batos.tools.definitions import ConnectionSpec, ConnectorServices
from batos.tools.description_form import OPERATIONS, DescriptionForm, ProgramForm, ProgramOperation, fault_of
from batos.tools.egress import Egress, EgressLimits, HttpAnswer, origin_of
from batos.tools.help_reader import HelpReading, read_help
from batos.tools.http_sending import is_private_name
from batos.tools.programs import ProgramConnector, walled
from batos.tools.web import PAGE_BYTES, READER_BYTES, page_of

TEXT_CHARS = 60_000
"""Characters of a description that are read for a model."""
RUNS = 120
"""Greatest number of usages that a program is asked for: its own, and those of its commands."""
DEPTH = 3
"""Greatest number of words of a command."""
USAGE_S, ALL_S = 10.0, 60.0
"""Seconds of one usage, and of all of them."""
_AT_ONCE = 4
_MEMORY_MIB = 2048
_ENV = {"HOME": "/", "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8", "PAGER": "cat", "MANPAGER": "cat"}
_NOTES = 12


class ReadDescription(NamedTuple):
    """A description as far as it is read."""

    form: DescriptionForm | None
    """the operations, where rules read them all"""
    text: str
    """text for a model to read; "" where the rules sufficed"""
    notes: tuple[str, ...] = ()
    """lines for its user: what was left out"""


async def of_program(command: str, options: Mapping[str, Any], services: ConnectorServices) -> ReadDescription:
    """Return what a program says of its usage.

    :param command: the program, and fixed arguments of it.
    :param options: of the connection: `folders`, which it may only read, `without_walls`, `memory_mib`, and `env`, without its secrets.
    :raises InvalidInput: if the command is not valid.
    :raises ToolFailed: if it cannot be run, or says nothing.
    """
    given = options.get("env") or {}
    env = {**_ENV, **{name: value for name, value in given.items() if "{secret:" not in str(value)}}
    kept = {name: options[name] for name in ("without_walls", "memory_mib") if name in options}
    folders = [f"{str(one).removesuffix(':rw').removesuffix(':ro')}:ro" for one in options.get("folders") or ()]
    own = {"env": env, "seconds": USAGE_S, "memory_mib": _MEMORY_MIB, "folders": folders, **kept}
    connector = ProgramConnector(ConnectionSpec("usage", "program", command, own), services)
    try:
        if connector.parameters:
            raise InvalidInput(f"the command {shown(command)} has placeholders; give the program alone, and what always follows it")
        return await _usages(connector, shlex.split(command))
    finally:
        await connector.close()


async def of_document(place: str, services: ConnectorServices) -> ReadDescription:
    """Return the text of a description.

    :param place: URL, or absolute path of a file.
    :raises InvalidInput: if the place is not valid.
    :raises ToolFailed, EgressFailed, EgressRefused: if it cannot be had, or cannot be read as text.
    """
    answer = await _page(place, services)
    child = IsolatedChild(page_reader.__name__, memory=READER_BYTES)
    try:
        found = await page_of(child, answer, TEXT_CHARS)
    finally:
        await child.close()
    if not found["text"].strip():
        raise ToolFailed(f"{shown(place)} holds no text; write the form by hand, and give it with --form FILE")
    notes = (f"the description has more than {TEXT_CHARS} characters; its beginning is read",) if "told" in found else ()
    return ReadDescription(None, f"{found['title']}\n{found['text']}".strip(), notes)


async def _page(place: str, services: ConnectorServices) -> HttpAnswer:
    if place.startswith(("http://", "https://")):
        origin = origin_of(place)
        limits = EgressLimits(bytes=PAGE_BYTES, seconds=services.limits.connect_s)
        private = is_private_name(origin.host)
        egress = Egress(private=[origin], limits=limits) if private else Egress([origin], limits=limits)
        try:
            answer = await egress.request("GET", place, headers={"Accept": "text/html,text/markdown,text/plain,*/*;q=0.5"})
        finally:
            await egress.close()
        if answer.status != 200:
            raise ToolFailed(f"{shown(place)} was answered {answer.status}; give the URL of the description, or a file of it")
        return answer
    if not place.startswith("/") or "\0" in place:
        raise InvalidInput(f"the description {shown(place)} is not valid; give a URL, or an absolute path of a file")
    try:
        body = await asyncio.to_thread(_bytes_of, Path(place))
    except OSError as e:
        raise ToolFailed(f"the description {shown(place)} cannot be read: {e.strerror or e}") from None
    return HttpAnswer(200, {"content-type": mimetypes.guess_type(place)[0] or "text/plain"}, body, f"file://{place}")


def _bytes_of(path: Path) -> bytes:
    if not path.is_file():
        raise OSError("it is not a file")
    with path.open("rb") as file:
        data = file.read(PAGE_BYTES + 1)
    if len(data) > PAGE_BYTES:
        raise OSError(f"it has more than {PAGE_BYTES} bytes")
    return data


async def _usages(connector: ProgramConnector, words: list[str]) -> ReadDescription:
    """Return what a program and its commands say, each asked for its usage."""
    name = os.path.basename(words[0])
    first = await _usage(connector, words, (), "")
    if first.reading.why and not first.reading.commands:
        return ReadDescription(None, first.text[:TEXT_CHARS], (f"the usage of {name} is not read by rule: {first.reading.why}",))
    operations: list[ProgramOperation] = []
    notes: list[str] = []
    waiting = deque([first])
    end, runs = time.monotonic() + ALL_S, 1
    while waiting:
        command, found, _ = waiting.popleft()
        at = " ".join(command) or name
        if found.why and not found.commands:
            notes.append(f"the command {at} is left out: {found.why}")
        notes += [f"{at}: {note}" for note in found.notes]
        if found.operation is not None and len(operations) < OPERATIONS:
            _take(operations, found.operation, command, notes)
        if found.commands and len(command) >= DEPTH:
            notes.append(f"the commands of {at} are left out: they are {len(command) + 1} words deep")
            continue
        for start in range(0, len(found.commands), _AT_ONCE):
            batch = found.commands[start : start + _AT_ONCE]
            if runs + len(batch) > RUNS or time.monotonic() > end or len(operations) >= OPERATIONS:
                notes.append(f"commands of {at} from {batch[0][0]} on are left out: there are too many")
                break
            runs += len(batch)
            asked = (_usage(connector, words, (*command, one), line) for one, line in batch)
            for (one, _), told in zip(batch, await asyncio.gather(*asked, return_exceptions=True), strict=True):
                if isinstance(told, BatosError):
                    notes.append(f"the command {' '.join((*command, one))} is left out: {told.message[:200]}")
                elif isinstance(told, BaseException):
                    raise told
                else:
                    waiting.append(told)
    if not operations:
        return ReadDescription(None, first.text[:TEXT_CHARS], (f"no command of {name} is read by rule", *notes[:_NOTES]))
    more = (f"… and {len(notes) - _NOTES} more",) if len(notes) > _NOTES else ()
    return ReadDescription(ProgramForm(operations=operations), "", (*notes[:_NOTES], *more))


def _take(operations: list[ProgramOperation], one: ProgramOperation, command: tuple[str, ...], notes: list[str]) -> None:
    made = one.model_copy(update={"argv": [*command, *one.argv], "name": one.name if command else "run"})
    taken = {other.name for other in operations}
    if why := fault_of(made) or ("its name is taken" if made.name in taken else ""):
        notes.append(f"the command {' '.join(command)} is left out: {why}")
    else:
        operations.append(made)


class _Usage(NamedTuple):
    """Usage of a command."""

    command: tuple[str, ...]
    reading: HelpReading
    text: str


async def _usage(connector: ProgramConnector, words: list[str], command: tuple[str, ...], line: str) -> _Usage:
    """Ask a program, or a command of it, for its usage.

    :raises ToolFailed: if it cannot be run, fails, or says nothing.
    """
    first: _Usage | None = None
    why = "it says nothing"
    for flag in ("--help", "-h"):
        how, output, errors = await connector.output([*command, flag])
        text = output if output.strip() else errors
        found = _Usage(command, read_help(text, [*words, *command], line), text)
        if not found.reading.why or found.reading.commands:
            return found
        if how != "exit 0" and "usage" not in text.lower():
            end = (errors.strip() or output.strip())[-300:]
            why = f"it ended with {how.replace('exit', 'exit code')}{': ' + end if end else ''}{walled(errors)}"
        elif text.strip():
            first = first or found
    if first is None:
        called = " ".join([os.path.basename(words[0]), *words[1:], *command])
        raise ToolFailed(f"{called} does not tell its usage by --help or -h: {why}")
    return first
