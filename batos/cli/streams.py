"""The standard streams of a command: closed ones, full ones, and characters that they cannot show.

A result that nobody gets is an error of its own (`OutputFailed`), whoever prints it; a line beside it, on standard error, is lost.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from batos.errors import OutputFailed


class _Told(io.FileIO):
    """Standard output: what it does not take is said to be so, and not taken for a fault of whoever prints."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as e:
            why = f"standard output takes nothing ({e.strerror or e}); what was asked for may be done all the same"
            raise OutputFailed(why) from None


class _Lossy(io.FileIO):
    """Standard error: what it does not take is lost."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def set_up(*, output_may_be_closed: bool) -> None:
    """Make the standard streams of this process such that no command fails of them, but by `OutputFailed` where its result is lost.

    :param output_may_be_closed: for a daemon, which serves all the same: what it prints goes nowhere then.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY if output_may_be_closed else os.O_RDONLY), (2, os.O_WRONLY)):
        _fill(number, mode)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process runs
    sys.stdout, sys.stderr = _stream(sys.stdout, 1, _Told), _stream(sys.stderr, 2, _Lossy)


def discard() -> None:
    """Let what is still to be printed on standard output go nowhere: it cannot be written, and the last flush would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _fill(number: int, mode: int) -> None:
    """Open nothing in the place of a stream that was closed: else a socket or a file would come to be there, and be printed into."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _stream(given: Any, number: int, raw: type[io.FileIO]) -> io.TextIOWrapper:
    """A stream over a descriptor as that one was, with a mark for each character that it cannot show."""
    if not isinstance(given, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw(number, "w", closefd=False)), encoding="utf-8", errors="replace")
    given.flush()
    at_once = given.write_through  # PYTHONUNBUFFERED
    bare: Any = raw(number, "w", closefd=False)
    return io.TextIOWrapper(
        bare if at_once else io.BufferedWriter(bare),
        encoding=given.encoding,
        errors="replace",
        line_buffering=given.line_buffering,
        write_through=at_once,
    )
