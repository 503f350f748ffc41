"""Standard streams that may be closed or full, or lack characters: a command's result that cannot be written is an error of its own."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from batos.errors import OutputFailed


class _Told(io.FileIO):
    """Standard output that reports its own failures, so that they are not taken for faults of the caller."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as e:
            why = f"standard output cannot be written ({e.strerror or e}); the command may have taken effect"
            raise OutputFailed(why) from None


class _Lossy(io.FileIO):
    """Standard error. Output that it does not accept is lost."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def set_up_streams(*, output_may_be_closed: bool) -> None:
    """Set up the standard streams so that a command fails only with `OutputFailed`, when its result is lost.

    :param output_may_be_closed: True for a daemon, which serves without standard output; its output is then dropped.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY if output_may_be_closed else os.O_RDONLY), (2, os.O_WRONLY)):
        _fill(number, mode)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process runs
    sys.stdout, sys.stderr = _stream(sys.stdout, 1, _Told), _stream(sys.stderr, 2, _Lossy)


def discard_output() -> None:
    """Discard the rest of standard output: it cannot be written, and the last flush would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _fill(number: int, mode: int) -> None:
    """Open nothing in the place of a stream that was closed. Else a socket or a file would take its place, and be printed into."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _stream(given: Any, number: int, raw: type[io.FileIO]) -> io.TextIOWrapper:
    """Return a stream over a descriptor as that one was, with a mark for each character that it cannot show."""
    if not isinstance(given, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw(number, "w", closefd=False)), encoding="utf-8", errors="replace")
    given.flush()
    at_once = given.write_through  # PYTHONUNBUFFERED is set
    bare: Any = raw(number, "w", closefd=False)
    return io.TextIOWrapper(
        bare if at_once else io.BufferedWriter(bare),
        encoding=given.encoding,
        errors="replace",
        line_buffering=given.line_buffering,
        write_through=at_once,
    )
