"""Options of `batos tools add`: the place that a connection reaches, and what its kind needs besides."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from batos.cli.client import OptionGroup
from batos.cli.missions import value_of
from batos.config import nearest
from batos.image.effects import CLASSES

_WEB = ("http://", "https://")
_TELLTALE = re.compile(r"auth|token|secret|passw|cookie|api.?key|credential", re.IGNORECASE)
_BY_NAME = "{secret:"


@dataclass(frozen=True)
class PlaceOptions(OptionGroup):
    """Exactly one of them names the place."""

    mcp: Annotated[str | None, typer.Option("--mcp", metavar="COMMAND|URL", help="An MCP server: its command line, or its URL.")] = None
    openapi: Annotated[str | None, typer.Option("--openapi", metavar="FILE|URL", help="An API that an OpenAPI document describes.")] = None
    http: Annotated[str | None, typer.Option("--http", metavar="ORIGIN", help="An HTTP server: https://shop.example.")] = None
    folder: Annotated[str | None, typer.Option("--folder", metavar="PATH[:rw]", help="A folder; with :rw its files may be changed.")] = None
    program: Annotated[
        str | None, typer.Option("--program", metavar="COMMAND", help="A program with fixed arguments and {placeholders}.")
    ] = None
    help_of: Annotated[
        str | None, typer.Option("--help-of", metavar="PROGRAM", help="A program, its operations as `PROGRAM --help` describes them.")
    ] = None
    web: Annotated[bool, typer.Option("--web", help="Public web pages, as readable text; with --search also a search.")] = False


@dataclass(frozen=True)
class ConnectionOptions(OptionGroup):
    """Options of a connection besides its place."""

    described_by: Annotated[
        str | None,
        typer.Option("--described-by", metavar="FILE|URL", help="Of --http and --program: a text that describes the operations."),
    ] = None
    form: Annotated[
        str | None, typer.Option("--form", metavar="FILE", help="Of --http and --program: the operations as a form (docs/tools.md).")
    ] = None
    write_form: Annotated[
        str | None, typer.Option("--write-form", metavar="FILE", help="Write the form of a description, and add nothing.")
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Add operations that were read by rule without asking.")] = False
    search: Annotated[str | None, typer.Option("--search", metavar="ORIGIN", help="Of --web: a SearXNG server.")] = None
    server: Annotated[str | None, typer.Option("--server", metavar="URL", help="Of --openapi: the server, if not the document's.")] = None
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="A header; {secret:NAME} stands for a secret.")
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable of a server or program; {secret:NAME} stands for a secret."),
    ] = None
    trust: Annotated[bool, typer.Option("--trust", help="Of --mcp: believe the server about the effects of its tools.")] = False
    classes: Annotated[
        list[str] | None, typer.Option("--class", metavar="TOOL=CLASS", help="What a repetition does: " + ", ".join(CLASSES) + ".")
    ] = None
    looks: Annotated[
        list[str] | None, typer.Option("--look", metavar="TOOL=TOOL", help="The reading tool that tells whether a call happened.")
    ] = None
    undos: Annotated[list[str] | None, typer.Option("--undo", metavar="TOOL=TOOL", help="The tool that takes a call back.")] = None
    keys: Annotated[
        list[str] | None, typer.Option("--key", metavar="TOOL=ARGUMENT", help="Of --mcp: the argument that takes the effect's key.")
    ] = None
    key_header: Annotated[
        str | None, typer.Option("--key-header", metavar="NAME", help="Of --http: the header that takes the effect's key.")
    ] = None
    seconds: Annotated[float | None, typer.Option("--seconds", metavar="S", min=0.1, max=86_400, help="Seconds for one call.")] = None
    private: Annotated[
        bool, typer.Option("--private", help="Its results are private data; an HTTP server may be at a private address.")
    ] = False
    on: Annotated[
        str | None, typer.Option("--on", metavar="KERNEL", help="Machine of the connection, by its kernel's name; * for all.")
    ] = None
    more: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Any other option of its kind: see docs/tools.md.")
    ] = None


class FormOptions(NamedTuple):
    """Source of the form of a connection's operations, and what becomes of it."""

    described: bool = False
    """True if a description is read"""
    source: str = ""
    """URL or file of the description; empty: the program's usage"""
    file: str = ""
    """a form that is given"""
    target: str = ""
    """the file that the form is written to; nothing is added then"""
    yes: bool = False


class Place(NamedTuple):
    """A connection as the wire's `tool_add` names it."""

    kind: str
    place: str
    options: dict[str, Any]
    form: FormOptions


def place_of(places: PlaceOptions, given: ConnectionOptions) -> Place:
    """Return the place and the options that a command line names.

    :raises typer.BadParameter: unless exactly one place is named, and for an option that its kind does not have.
    """
    named = {kind: value for kind, value in vars(places).items() if value not in (None, False)}
    if len(named) != 1:
        said = f"these are {len(named)}: {', '.join('--' + kind.replace('_', '-') for kind in named)}" if named else "none is named"
        raise typer.BadParameter(
            f"a connection has one place, by --mcp, --openapi, --http, --folder, --program, --help-of or --web; {said}"
        )
    [(kind, value)] = named.items()
    usage, kind = kind == "help_of", "program" if kind == "help_of" else kind
    options, form = _options(kind, given), _form_options(usage, given)
    if kind == "folder":
        path, writable = (value[:-3], True) if value.endswith(":rw") else (value.removesuffix(":ro"), False)
        return Place(kind, _absolute(path), {**options, **({"writable": True} if writable else {})}, form)
    if kind == "program" or (kind == "mcp" and not value.startswith(_WEB)):
        return Place(kind, absolute_command(kind, value), options, form)
    if kind == "openapi" and not value.startswith(_WEB):
        return Place(kind, _absolute(value), options, form)
    return Place(kind, "" if kind == "web" else value, options, form)


def _form_options(usage: bool, given: ConnectionOptions) -> FormOptions:
    source = given.described_by or ""
    if sum((usage, bool(source), bool(given.form))) > 1:
        raise typer.BadParameter("operations are described once: by --help-of, --described-by or --form")
    described = usage or bool(source)
    if (given.write_form or given.yes) and not described:
        raise typer.BadParameter(f"--{'write-form' if given.write_form else 'yes'} goes with --help-of or --described-by")
    source = source if not source or source.startswith(_WEB) else _absolute(source)
    return FormOptions(described, source, given.form or "", given.write_form or "", given.yes)


_FORM = ("described_by", "form", "write_form", "yes")
_ALLOWED = {
    "mcp": ("header", "env", "trust", "classes", "looks", "undos", "keys", "seconds", "private"),
    "openapi": ("server", "header", "classes", "looks", "undos", "seconds", "private"),
    "http": ("header", "classes", "looks", "undos", "key_header", "seconds", "private", *_FORM),
    "folder": (),
    "program": ("env", "classes", "seconds", *_FORM),
    "web": ("search", "header", "seconds", "private"),
}
_FLAGS = {
    "classes": "class", "looks": "look", "undos": "undo", "keys": "key", "key_header": "key-header", "described_by": "described-by",
    "write_form": "write-form",
}  # fmt: skip


def _options(kind: str, given: ConnectionOptions) -> dict[str, Any]:
    for name, value in vars(given).items():
        if value and name not in ("more", "on") and name not in _ALLOWED[kind]:
            there = ", ".join(f"--{_FLAGS.get(one, one)}" for one in _ALLOWED[kind]) or "none but --option"
            raise typer.BadParameter(f"--{_FLAGS.get(name, name)} does not go with --{kind}; its options are {there}")
    found: dict[str, Any] = {
        "search": given.search, "server": given.server, "key_header": given.key_header, "seconds": given.seconds,
        "trust": given.trust or None, "private": given.private or None,
        "headers": pairs_of("--header", given.header, ":"), "env": pairs_of("--env", given.env, "="),
        **_by_tool(kind, given), **{name: value_of(text) for name, text in pairs_of("--option", given.more, "=").items()},
    }  # fmt: skip
    for flag, name in (("--header", "headers"), ("--env", "env")):
        check_no_secret(flag, found[name])
    return {name: value for name, value in found.items() if value not in (None, {}, "")}


def _by_tool(kind: str, given: ConnectionOptions) -> dict[str, Any]:
    tables = {
        name: pairs_of(f"--{name}", value, "=")
        for name, value in (("class", given.classes), ("look", given.looks), ("undo", given.undos), ("key", given.keys))
    }
    for tool, chosen in tables["class"].items():
        if chosen not in CLASSES:
            raise typer.BadParameter(f"{tool}={chosen}: the class is not valid{nearest(chosen, CLASSES)}; allowed are {', '.join(CLASSES)}")
    if kind != "mcp":
        return {"classes": tables["class"], "look": tables["look"], "undo": tables["undo"]}
    tools = dict.fromkeys(tool for table in tables.values() for tool in table)
    merged = {tool: {name: table[tool] for name, table in tables.items() if tool in table} for tool in tools}
    return {"classes": {tool: chosen["class"] if list(chosen) == ["class"] else chosen for tool, chosen in merged.items()}}


def pairs_of(flag: str, given: Iterable[str] | None, sign: str) -> dict[str, str]:
    """Return the names and values of an option that is repeated.

    :param sign: what stands between the two.
    :raises typer.BadParameter: for a word without it, and for a name that is given twice.
    """
    found: dict[str, str] = {}
    for text in given or ():
        name, there, value = text.partition(sign)
        if not there or not name.strip():
            raise typer.BadParameter(f"{flag} takes NAME{sign}VALUE, not {text!r}")
        if name.strip() in found:
            raise typer.BadParameter(f"{flag} {name.strip()} is given twice")
        found[name.strip()] = value.strip() if sign == ":" else value
    return found


def check_no_secret(flag: str, given: dict[str, str]) -> None:
    """Refuse a value that looks like a secret: it would be in the image, and stay in its history.

    :raises typer.BadParameter: with the way to keep it beside the image.
    """
    for name, value in given.items():
        if _TELLTALE.search(name) and value and _BY_NAME not in value:
            raise typer.BadParameter(
                f"{flag} {name} looks like a secret, which would stay in the image: keep it with `batos secrets set NAME`, and write "
                "{secret:NAME} in its place"
            )


def _absolute(path: str) -> str:
    if not path:
        raise typer.BadParameter("'' names no file and no folder; the working folder is .")
    return str(Path(os.path.abspath(os.path.expanduser(path))))


def absolute_command(kind: str, text: str) -> str:
    """Return a command line whose program is an absolute path.

    :raises typer.BadParameter: if it is not valid, or its program is not there.
    """
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise typer.BadParameter(f"the command {text!r} is not valid: {e}") from None
    if not words:
        raise typer.BadParameter(f"--{kind} names no program")
    found = shutil.which(os.path.expanduser(words[0]))
    if found is None:
        raise typer.BadParameter(
            f"the program {words[0]!r} is not there: it is neither a file that runs, nor in a folder of PATH; install it first"
        )
    found = os.path.abspath(found)
    if found == words[0]:
        return text
    rest = text.lstrip().removeprefix(words[0])
    return shlex.quote(found) + rest if len(rest) < len(text.lstrip()) else shlex.join([found, *words[1:]])
