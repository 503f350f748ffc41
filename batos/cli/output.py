"""Output of the command line: text for people, JSON for programs (`--json`).

Texts come from missions, models and other clients. They are printed without markup and without control characters, so that no answer can
move the cursor, retitle the terminal or hide a line.

Standard streams may be closed or full, or lack characters. A result that cannot be written is an error of its own (`OutputFailed`); a
message beside it, on standard error, is lost.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from batos.errors import BatosError, OutputFailed

if TYPE_CHECKING:
    from rich.status import Status

PIPE_WIDTH = 10_000  # columns without a terminal, so that nothing is cut or wrapped
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: object) -> str:
    """Return the text without control characters (line feeds and tabs stay), marks that reverse its direction and halves of characters."""
    return _CONTROL.sub("", str(text))


def json_text(value: Any) -> str:
    """Return a value as JSON in which control characters are escaped, so that `clean` leaves it unchanged."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def one_line(text: object, width: int = 72) -> str:
    """Return the text on one line, cut with an ellipsis past `width` characters."""
    joined = " ".join(clean(text).split())
    return joined if len(joined) <= width else joined[: width - 1].rstrip() + "…"


def ago(moment: float | None) -> str:
    """Return the age of a moment (seconds since the epoch) in one unit: `12 s`, `5 min`, `3 h`, `2 d`."""
    if moment is None:
        return ""
    seconds = max(0.0, time.time() - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(count: float) -> str:
    """Return a number of bytes: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class Output:
    """Destination and form of a command's output."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = _console(sys.stdout)
        self.errors = _console(sys.stderr)

    def document(self, value: Any) -> None:
        """Print one JSON document."""
        print(json.dumps(value, indent=2, default=str))

    def event(self, value: Any) -> None:
        """Print one line of a stream of JSON documents, at once."""
        print(json.dumps(value, default=str), flush=True)

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line."""
        self.console.print(Text(clean(text), style=style))

    def copied(self, text: str) -> None:
        """Print a line that is there to be copied: on a terminal it is not wrapped either, which would put line feeds into it."""
        self.console.print(Text(clean(text)), soft_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """Print a line beside the result: to standard error."""
        self.errors.print(Text(clean(text), style=style))

    def write(self, text: str) -> None:
        """Print a piece of running text, at once and without a line feed."""
        self.console.print(Text(clean(text)), end="")
        self.console.file.flush()

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values in two columns."""
        table = _table(("", ""))
        for name, value in pairs:
            table.add_row(Text(clean(name), style="bold"), Text(clean(value)))
        self._table(table)

    def rows(self, columns: Sequence[str], rows: Iterable[Sequence[object]], styles: dict[str, str] | None = None) -> None:
        """Print a table; without headings where all of them are empty. `styles` gives certain cell texts a style."""
        table = _table(columns)
        for row in rows:
            cells = [clean(cell) for cell in row]
            table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in cells))
        self._table(table)

    def _table(self, table: Table) -> None:
        # Rich pads the last column with blanks. A pipe would pass them on, and a narrow window would wrap them.
        with self.console.capture() as capture:
            self.console.print(table)
        for line in capture.get().splitlines():
            self.console.file.write(line.rstrip() + "\n")

    def error(self, error: BatosError) -> None:
        """Print an error: to standard error for people, as a document on standard output for programs."""
        if self.as_json:
            self.document({"type": "error", **error.to_wire()})
            return
        code = str(error.context.get("code", error.code))  # for a mission that FAILED: the code of its error
        line = Text(f"{clean(code)}: ", style="bold red")
        self.errors.print(line.append(clean(error.message), style="not bold default"))


class PassingLine:
    """A line on a terminal with the present activity, which vanishes. Elsewhere it prints nothing."""

    def __init__(self, output: Output) -> None:
        self._console = output.console
        self._live: Status | None = None

    def tell(self, text: str) -> None:
        """Replace the text of the line."""
        if not self._console.is_terminal:
            return
        if self._live is None:
            self._live = self._console.status("", spinner="dots")
            self._live.start()
        self._live.update(one_line(text, max(20, self._console.width - 4)))

    def clear(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _console(stream: Any) -> Console:
    # Use soft_wrap only without a terminal: there each line stays one line, however long.
    terminal = bool(stream.isatty())
    return Console(file=stream, width=None if terminal else PIPE_WIDTH, highlight=False, markup=False, emoji=False, soft_wrap=not terminal)


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=None, show_header=any(columns), header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        last = number == len(columns) - 1
        table.add_column(column, no_wrap=not last, overflow="fold" if last else "ellipsis")
    return table


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
    """Open nothing in the place of a stream that was closed: else a socket or a file would come to be there, and be printed into."""
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
