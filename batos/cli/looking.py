"""Looking without changing: moments as people write them, and the verbs that only read, on an image file where no daemon runs."""

from __future__ import annotations

import datetime
import functools
import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batos.cli.app import Connect, endpoint
from batos.cli.asking import ask, with_nearest
from batos.errors import UnknownTarget
from batos.wire import Client

if TYPE_CHECKING:
    from batos.looks import Looks

Reply = dict[str, Any]
FileFlag = Annotated[
    str | None,
    typer.Option("--image", metavar="FILE", help="Look into this image (a file, or a URI) instead of asking a daemon."),
]
AtFlag = Annotated[str | None, typer.Option("--at", metavar="TIME", help="As it was then: see docs/cli.md for how a TIME is written.")]
_CACHE = 2000  # objects
_TID = re.compile(r"[0-9a-f]{16}\Z")
_AGO = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d)(?: ago)?\Z")
_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_FIRST = 0.0  # before that there was no image
_LAST = 1e-6  # of a second: a TIME is the last instant of what it names


def moment(text: str | None, now: Callable[[], float] = time.time) -> float | str | None:
    """A TIME as the wire has it: the id of a revision as it is, anything else in seconds since the epoch; None for now.

    :raises typer.BadParameter: for what is no TIME.
    """
    if text is None or text == "now":
        return None
    if _TID.match(text):
        return text
    if match := _AGO.match(text):
        return max(_FIRST, now() - float(match[1]) * _UNITS[match[2]])
    try:
        return _calendar(text, datetime.datetime.fromtimestamp(now()))
    except ValueError:
        years = ", its year with four digits" if re.match(r"\d\d[-./]\d\d[-./]\d\d\b", text) else ""
        raise typer.BadParameter(
            f"{text!r} is no TIME: write 2026-05-31{years}, '2026-05-31 14:30', 14:30:05, '10 min ago', 2h, or the id of a revision"
        ) from None


def _calendar(text: str, today: datetime.datetime) -> float:
    if re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", text):
        text = f"{today:%Y-%m-%d} {text}"
    begin = datetime.datetime.fromisoformat(text)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        size = datetime.timedelta(days=1)
    elif re.search(r"\d\d:\d\d:\d\d", text) is None:
        size = datetime.timedelta(minutes=1)
    elif begin.microsecond:
        return _seconds(begin)
    else:
        size = datetime.timedelta(seconds=1)
    try:
        return max(_FIRST, _seconds(begin + size) - _LAST)
    except OverflowError:  # the end of the last year that there is
        return _seconds(datetime.datetime.max)


def _seconds(moment: datetime.datetime) -> float:
    """Seconds since the epoch: of an hour that there is twice, where clocks are set back, the second; of years past all clocks, in UTC."""
    try:
        return max(_FIRST, *(moment.replace(fold=fold).timestamp() for fold in (0, 1)))
    except (OverflowError, ValueError, OSError):
        return max(_FIRST, moment.replace(tzinfo=datetime.UTC).timestamp())


def look(
    image: str | None,
    connect: Connect,
    into: Callable[[Looks], Reply],
    question: Callable[[Client], Awaitable[Reply]],
    target: str = "",
) -> Reply:
    """Ask the daemon, or with `image` look into that image.

    :param into: what is asked of a file.
    :param question: the same, of a daemon.
    :param target: the path or id that it is about, for hints.
    """
    try:
        return ask(endpoint(connect), question) if image is None else into_file(image, into)
    except UnknownTarget as e:
        raise with_nearest(e, target) from None


def into_file(image: str, into: Callable[[Looks], Reply]) -> Reply:
    """Look into an image that is only read; of one that a daemon has open, what it has committed so far is seen.

    :raises ImageError: one of its kinds.
    """
    from batos.image.storage import check_format, open_database  # late: a verb that asks a daemon needs no database
    from batos.image.unit import snapshot
    from batos.looks import Looks

    uri = image if "://" in image else f"file://{os.path.abspath(image)}"
    db = open_database(uri, cache_size=_CACHE, pool_size=4, read_only=True)
    try:
        with snapshot(db) as root:
            check_format(root, uri)
        return into(Looks(db, functools.partial(snapshot, db)))
    finally:
        db.close()
