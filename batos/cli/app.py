"""The typer application: verbs, shared options, and exit codes for errors.

Verbs are grouped as `batos --help` lists them, each with its module. A command imports the module of its own verb and no other, so that it
does not pay for the others. Negative numbers such as `-5` are arguments and not options.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
import signal
import socket
import threading
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from batos import __version__, config
from batos.cli.process import exit_code_of
from batos.errors import ConfigError, DaemonUnavailable, EndpointError

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Missions": {
        "send": "missions",
        "chat": "chat",
        "watch": "missions",
        "result": "missions",
        "status": "missions",
        "missions": "missions",
        "answer": "missions",
        "pause": "missions",
        "resume": "missions",
        "cancel": "missions",
        "rate": "missions",
        "undo": "missions",
        "replay": "missions",
        "step": "step",
        "failures": "missions",
        "schedule": "schedules",
        "hooks": "hooks",
        "folders": "folders",
        "notices": "notices",
    },
    "Memory": {"ingest": "memory", "search": "memory", "memory": "memory"},
    "Tools and what they did": {
        "tools": "tools",
        "secrets": "secrets",
        "allow": "grants",
        "ask": "grants",
        "deny": "grants",
        "grants": "grants",
        "effects": "effects",
    },
    "Messages and methods": {
        "send-to": "missions",
        "teach": "methods",
        "method": "methods",
        "methods": "methods",
        "revert": "methods",
        "grant": "methods",
        "audit": "methods",
    },
    "Objects, now and before": {
        "ls": "objects",
        "show": "objects",
        "history": "objects",
        "diff": "objects",
        "at": "objects",
        "personas": "objects",
        "changes": "changes",
        "compare": "compare",
    },
    "Models and experts": {"models": "models", "experts": "models", "train": "models"},
    "The daemon": {
        "run": "daemon",
        "service": "service",
        "dashboard": "dashboard",
        "console": "access",
        "doors": "access",
        "mcp": "mcp",
        "info": "dashboard",
        "metrics": "dashboard",
        "kernels": "kernels",
        "drain": "kernels",
        "doctor": "daemon",
        "config": "daemon",
        "keys": "access",
    },
    "The image as a whole": {"backup": "upkeep", "restore": "upkeep", "fork": "upkeep", "copy": "upkeep", "pack": "upkeep"},
}

MODULES: Mapping[str, str] = {verb: module for verbs in GROUPS.values() for verb, module in verbs.items()}


class Grouped(TyperGroup):
    """The application's commands, listed by `GROUPS`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of a line, as `click.Group.resolve_command` does. A brief is distinguished from a misspelt verb."""
        if " " in args[0].strip():
            ctx.fail(f"{config.shown(args[0])} is no verb; {how_to_send(args)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section a group."""
        limit = formatter.width - 6 - max(map(len, MODULES))
        for group, verbs in GROUPS.items():
            found = [(verb, self.commands[verb]) for verb in verbs if verb in self.commands]
            if found:
                with formatter.section(group):
                    formatter.write_dl([(f"{verb:{max(map(len, MODULES))}}", one.get_short_help_str(limit)) for verb, one in found])


_PORTS = 65535
CONNECT_S = 3.0  # seconds for checking that a daemon listens
_WRONG_USAGE: Any = typer.BadParameter.__mro__[1]  # UsageError, which typer does not export
T = TypeVar("T")

app = typer.Typer(
    name="batos",
    cls=Grouped,
    help="BAT OS: an agent that lasts. `batos` alone shows what the daemon does; with flags only it is `batos run`.",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one a line for streams.")]
Connect = Annotated[
    str | None,
    typer.Option("--connect", metavar="ENDPOINT", help="Endpoint of the daemon; without it the first one of the setting `wire.listen`."),
]
DataFlag = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Folder of the image, Ollama's models, keys and logs.")]
ImageFlag = Annotated[str | None, typer.Option("--image", metavar="URI", help="URI of the living image: file://, zeo:// or postgres://.")]
ListenFlag = Annotated[list[str] | None, typer.Option("--listen", metavar="ENDPOINT", help="Endpoint to listen on; may be repeated.")]
ProfileFlag = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="Set of models: auto, embedded, workstation, or one of your own.")
]
ModelFlag = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="[PERSONA=]NAME", help="Model that all personas, or the named one, think with; may be repeated."),
]
ConfigFlag = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings file (TOML) instead of batos.toml.")]
SetFlag = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, such as missions.queue=50; may be repeated.")
]


def how_to_send(words: list[str]) -> str:
    """Return how words are sent that are probably a brief."""
    return f"a mission is sent by: batos send {shlex.quote(' '.join(words))}"


def endpoint(connect: str | None) -> str:
    """Return the endpoint of the daemon for a client verb."""
    from batos.wire.endpoints import to_connect  # imported late: not every verb asks a daemon

    if connect == "":  # for example an unset shell variable: the command would ask another daemon than the user meant
        raise typer.BadParameter("'' names no endpoint; leave --connect out to ask the daemon of the setting wire.listen")
    return connect or to_connect(config.load().endpoints[0])


SOURCES = ("mission:", "said:", "note:", "archive:")
"""Prefixes of memory sources that are not files."""


def check_named(*given: str | None) -> None:
    """Refuse an empty path, as from an unset shell variable: it would mean the whole working folder.

    :raises typer.BadParameter: if one of the paths is empty.
    """
    if "" in given:
        raise typer.BadParameter("'' names no file and no folder; the working folder is .")


def check_reachable(address: str) -> None:
    """Report at once that no daemon listens, if that can be known: ZeroMQ itself would wait for one.

    :raises DaemonUnavailable: if nothing listens at the endpoint.
    :raises EndpointError: if the port is out of range.
    """
    kind, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and port.isdecimal():
        if int(port) > _PORTS:
            raise EndpointError(f"no endpoint: {address!r}; ports go up to {_PORTS}")
        family, target = (socket.AF_INET6 if ":" in host else socket.AF_INET), (host.strip("[]"), int(port))
    elif kind == "ipc":
        family, target = socket.AF_UNIX, ("\0" + rest[1:] if rest.startswith("@") else rest)  # type: ignore[assignment]
    else:
        return  # the client reports the error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            probe.connect(target)
        except OSError as e:
            reason = e.strerror or str(e)
            raise DaemonUnavailable(
                f"no daemon listens at {address} ({reason}); start one with `batos run`, or name another with --connect"
            ) from None


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; Ctrl-C cancels it and is a KeyboardInterrupt here."""
    return asyncio.run(_heard(work))


async def _heard(work: Coroutine[Any, Any, T]) -> T:
    """Await work; a Ctrl-C wakes the loop, whichever thread takes the signal and whenever it comes.

    The handler that asyncio sets runs when the main thread next runs Python. A signal that another thread takes, or that comes just
    before the loop waits, does not end that wait. Where a loop has a handler of its own for a signal, the signal wakes the loop.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        return await work
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    signal.signal(signal.SIGINT, handler)
    try:
        return await work
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, handler)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(f"batos {__version__}")
        raise typer.Exit


def register(verb: str = "") -> None:
    """Import the module of a verb, or of all verbs if it is unknown: import registers them with the application."""
    for module in [MODULES[verb]] if verb in MODULES else dict.fromkeys(MODULES.values()):
        importlib.import_module(f"batos.cli.{module}")


def run(words: list[str]) -> int:
    """Run a verb. Return its exit code, and print its error."""
    return exit_code_of(lambda: invoke(words), as_json="--json" in words)


def invoke(words: list[str]) -> None:
    """Run a verb. Ends as typer does, with SystemExit; but wrong usage, where `--json` asks for documents, is an error as any other.

    :raises ConfigError: for wrong usage, with `--json`.
    """
    register(words[0])
    if "--json" not in words:
        app(words, prog_name="batos")
    try:
        code = app(words, prog_name="batos", standalone_mode=False)
    except _WRONG_USAGE as e:
        command = e.ctx.command_path if e.ctx is not None else "batos"
        raise ConfigError(f"{e.format_message().rstrip('.')}; see `{command} --help`") from None
    raise SystemExit(code)


_NEGATIVE = re.compile(r"-[.,]?\d[\d.,:%°/-]*([eE][+-]?\d+)?")  # also "-5%", "-1,5" and "-10:30"
_MARK = "\0"  # a character that no word of a command line contains


class NumbersCommand(TyperCommand):
    """A command whose argument `args` may have negative numbers in it, anywhere among the options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words of a command line apart, as `click.Command.parse_args` does."""
        options = (one for one in self.params if getattr(one, "is_flag", None) is False)
        taking = {name for one in options for name in (*one.opts, *one.secondary_opts)}  # the word after one of these options is its value
        pairs = zip(["", *args], args, strict=False)
        marked = [_MARK + word if _NEGATIVE.fullmatch(word) and before not in taking else word for before, word in pairs]
        rest = super().parse_args(ctx, marked)
        if ctx.params.get("args"):
            ctx.params["args"] = [word.removeprefix(_MARK) for word in ctx.params["args"]]
        return rest
