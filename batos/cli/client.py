"""Client side of the verbs: connect to the daemon, show that it works, and hint at similar names when one is unknown.

Verbs that only read also work on an image file when no daemon runs. Moments are parsed as people write them.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import inspect
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer

from batos.cli.app import Connect, check_reachable, endpoint, run_async
from batos.cli.output import Output, size
from batos.config import load, nearest
from batos.errors import BatosError, UnknownTarget
from batos.wire import Client, ClientKeys

if TYPE_CHECKING:
    from batos.api.queries import Queries

T = TypeVar("T")
SHOWN_AFTER_S = 1.0  # a faster answer needs no sign of progress
LOOK_S = 0.5


def ask(address: str, question: Callable[[Client], Awaitable[T]], *, shows: bool = False, upkeep: bool = False) -> T:
    """Ask the daemon at an endpoint one question. A terminal shows that it is under way, and for how long.

    :param shows: True if the question shows its progress itself.
    :param upkeep: True if it is a piece of upkeep, whose progress the daemon reports.
    :raises DaemonUnavailable: if no daemon answers.
    """

    async def asking() -> T:
        async with client_of(address) as client:
            if shows:
                return await question(client)
            return await shown(question(client), (lambda: _step(client)) if upkeep else None)

    check_reachable(address)
    return run_async(asking())


def agreed(question: str, output: Output) -> None:
    """Ask the user of a terminal for a yes, until the answer is yes or no. Ctrl-C is exit code 130, as anywhere else.

    :raises typer.Exit: with exit code 1 if the answer is no, or the input ends.
    """
    answer = ""
    while answer not in ("y", "yes"):
        try:
            answer = input(f"{question} [y/N]: ").strip().lower()
        except EOFError:  # Ctrl-D
            output.note("")
            answer = "no"
        except KeyboardInterrupt:
            output.note("\nnothing was done")
            raise
        if answer in ("", "n", "no"):
            output.note("nothing was done")
            raise typer.Exit(1)


def client_of(address: str) -> Client:
    """Return a client of the daemon at an endpoint, with the keys that the settings name.

    :raises ConfigError: for keys that cannot be used.
    """
    return Client(address, keys=ClientKeys.of(load()))


async def shown(work: Awaitable[T], step: Callable[[], Awaitable[str]] | None) -> T:
    """Return the result of some work. Show progress after the first second.

    :param step: returns the present step; called now and then.
    """
    task, said = asyncio.ensure_future(work), "waiting"
    try:
        await asyncio.wait([task], timeout=SHOWN_AFTER_S)
        if not task.done():
            with showing(lambda: said):
                while not task.done():
                    said = said if step is None else await step()
                    await asyncio.wait([task], timeout=LOOK_S)
        return await task
    finally:
        task.cancel()


@contextlib.contextmanager
def showing(step: Callable[[], str]) -> Iterator[None]:
    """While the block lasts, a terminal's standard error has a line that says what it is at, and for how long.

    :param step: what it is at; asked from a thread of rich's.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    begun = time.monotonic()

    class _Line:
        def __rich__(self) -> Text:
            return Text(f"{step()} · {time.monotonic() - begun:.0f} s", no_wrap=True, overflow="ellipsis")

    with Console(file=sys.stderr).status(cast(Any, _Line()), spinner="dots"):
        yield


async def _step(client: Client) -> str:
    upkeep = (await client.info()).get("upkeep", {})
    return f"{upkeep['under_way']}: {step_of(upkeep['progress'])}" if upkeep.get("under_way") else "waiting"


def step_of(progress: dict[str, Any]) -> str:
    """Return a step and how far it is: `restoring, 12.0 MiB of 80.1 MiB`."""
    done = f", {size(progress['done'])} of {size(progress['total'])}" if progress.get("total") else ""
    return f"{progress.get('step', '')}{done}"


def with_nearest(error: BatosError, word: str) -> BatosError:
    """Return the error with the nearest of the names that its message lists after `there are: `."""
    if "did you mean" in error.message:
        return error
    names = error.message.rpartition("there are: ")[2].split(", ") if "there are: " in error.message else []
    return type(error)(error.message + nearest(word.rpartition(".")[2], names), **error.context)


Reply = dict[str, Any]
FileFlag = Annotated[
    str | None,
    typer.Option("--image", metavar="FILE", help="Look into this image (a file, or a URI) instead of asking a daemon."),
]


class OptionGroup:
    """Options that belong together, as one parameter of a verb: a frozen dataclass whose fields are options with a default.

        @app.command()
        @grouped
        def history(target: Target, source: QuerySource = DAEMON, as_json: Json = False) -> None: ...

    The command line has `--image` and `--connect` in the place of `source`.
    """


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with each parameter that is an option group replaced by the fields of that group, for typer to read."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[name] = kind
            types = get_type_hints(kind, include_extras=True)
            parameters += [parameter.replace(name=one.name, annotation=types[one.name], default=one.default) for one in fields(kind)]  # type: ignore[arg-type]
        else:
            parameters.append(parameter.replace(annotation=kind))

    @functools.wraps(verb)
    def flat(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        verb(**given, **made)

    del flat.__wrapped__  # else typer would read the signature of the wrapped function
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {one.name: one.annotation for one in parameters}
    return flat


@dataclass(frozen=True)
class QuerySource(OptionGroup):
    """Source of a verb's answer: a daemon, or an image file."""

    image: FileFlag = None
    connect: Connect = None

    @property
    def endpoint(self) -> str:
        """Return the endpoint of the daemon."""
        return endpoint(self.connect)

    def words(self) -> list[str]:
        """Return the options of a command that has this source."""
        return [*(["--image", self.image] if self.image else []), *(["--connect", self.connect] if self.connect else [])]


DAEMON = QuerySource()
AtFlag = Annotated[str | None, typer.Option("--at", metavar="TIME", help="State at this time: docs/cli.md describes a TIME.")]
_CACHE = 2000  # objects kept in the cache of the database
_TID = re.compile(r"[0-9a-f]{16}\Z")
_AGO = re.compile(r"(\d+(?:\.\d+)?) ?(s|sec|min|m|h|d|w|(?:second|minute|hour|day|week)s?|mins|secs)(?: ago)?\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
_FIRST = 0.0  # images do not reach further back
_LAST = 1e-6  # seconds: a TIME means the last instant of what it names


def moment(text: str | None, now: Callable[[], float] = time.time) -> float | str | None:
    """Return a TIME in the wire's form: the id of a revision unchanged, anything else in seconds since the epoch; None for now.

    :raises typer.BadParameter: if the text is not a valid TIME.
    """
    text = text and text.strip()
    if text is None or text.lower() == "now":
        return None
    if _TID.match(text):
        return text
    if match := _AGO.match(text):
        return max(_FIRST, now() - float(match[1]) * _UNITS[match[2][0]])
    try:
        return _calendar(text, datetime.datetime.fromtimestamp(now()))
    except ValueError:
        years = ", its year with four digits" if re.match(r"\d\d[-./]\d\d[-./]\d\d\b", text) else ""
        raise typer.BadParameter(
            f"{text!r} is not a valid TIME: write 2026-05-31{years}, '2026-05-31 14:30', 14:30:05, '10 min ago', 2h, or a revision's id"
        ) from None


def _calendar(text: str, today: datetime.datetime) -> float:
    if re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", text):
        text = f"{today:%Y-%m-%d} {text}"
    begin = datetime.datetime.fromisoformat(text)
    if begin.microsecond:
        return _seconds(begin)
    size = _size(text)
    try:
        return max(_FIRST, _seconds(begin + size) - _LAST)
    except OverflowError:  # the end of the last year that the calendar has
        return _seconds(datetime.datetime.max)


def _size(text: str) -> datetime.timedelta:
    """Return how long that is which a date of ISO 8601 names: a week, a day, an hour, a minute or a second."""
    clock = re.search(r"(?<=[\d])[T ](\d\d)(:?\d\d)?(:?\d\d)?", text)
    if clock is None:
        return datetime.timedelta(days=7 if re.fullmatch(r"\d{4}-?W\d\d", text) else 1)
    return datetime.timedelta(seconds=1 if clock[3] else 60 if clock[2] else 3600)


def _seconds(moment: datetime.datetime) -> float:
    """Return the seconds since 1970. If clocks are set back and an hour occurs twice, the second one counts. Years beyond local clocks
    count in UTC.
    """
    try:
        return max(_FIRST, *(moment.replace(fold=fold).timestamp() for fold in (0, 1)))
    except (OverflowError, ValueError, OSError):
        return max(_FIRST, moment.replace(tzinfo=datetime.UTC).timestamp())


def look(
    source: QuerySource,
    into: Callable[[Queries], Reply],
    question: Callable[[Client], Awaitable[Reply]],
    target: str = "",
) -> Reply:
    """Ask the daemon, or read the image file that the source names.

    :param into: question to a file.
    :param question: the same question to a daemon.
    :param target: path or id that it is about, for hints.
    """
    try:
        return ask(source.endpoint, question) if source.image is None else into_file(source.image, into)
    except UnknownTarget as e:
        raise with_nearest(e, target) from None


def into_file(image: str, into: Callable[[Queries], Reply]) -> Reply:
    """Query an image read-only. If a daemon has the image open, the query sees all commits so far.

    :raises ImageError: if the image cannot be opened.
    """
    from batos.api.queries import Queries
    from batos.image.storage import check_format, open_database  # imported late: a verb that asks a daemon needs no database
    from batos.image.unit_of_work import snapshot

    uri = image if "://" in image else f"file://{os.path.abspath(image)}"
    db = open_database(uri, cache_size=_CACHE, pool_size=4, read_only=True)
    try:
        with snapshot(db) as root:
            check_format(root, uri)
        return into(Queries(db, functools.partial(snapshot, db)))
    finally:
        db.close()
