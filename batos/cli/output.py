"""Output of the command line: text for people, JSON for programs (`--json`).

Texts come from missions, models and other clients. They are printed without markup and without control characters, so that no answer can
move the cursor, retitle the terminal or hide a line.

Standard streams may be closed or full, or lack characters. A result that cannot be written is an error of its own (`OutputFailed`); a
message beside it, on standard error, is lost.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from batos.errors import BatosError

if TYPE_CHECKING:  # imported when something is printed: the daemon prints nothing with them
    from rich.console import Console
    from rich.status import Status
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 10_000  # columns without a terminal, so that nothing is cut or wrapped
_GAP = 2  # columns between two cells of a table
_LAST_WIDTH = 12  # columns that the last cell of a table's row needs at least; it is wrapped
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


def counted(count: int, thing: str) -> str:
    """Return a number with its noun, which forms its plural by an s: `1 chunk`, `2 chunks`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


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

    @cached_property
    def console(self) -> Console:
        """Rich's console on standard output."""
        return _console(sys.stdout)

    @cached_property
    def errors(self) -> Console:
        """Rich's console on standard error."""
        return _console(sys.stderr)

    @cached_property
    def is_terminal(self) -> bool:
        """True if a person reads standard output on a terminal."""
        return sys.stdout.isatty()

    def document(self, value: Any) -> None:
        """Print one JSON document."""
        print(json.dumps(value, indent=2, default=str))

    def event(self, value: Any) -> None:
        """Print one line of a stream of JSON documents, at once."""
        print(json.dumps(value, default=str), flush=True)

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line."""
        self.console.print(_text(text, style))

    def copied(self, text: str) -> None:
        """Print a line that is there to be copied: on a terminal it is not wrapped either, which would put line feeds into it."""
        self.console.print(_text(text), soft_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """Print a line beside the result: to standard error."""
        self.errors.print(_text(text, style))

    def write(self, text: str) -> None:
        """Print a piece of running text, at once and without a line feed."""
        self.console.print(_text(text), end="")
        self.console.file.flush()

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values in two columns."""
        self._table(("", ""), [(_text(name, "bold"), _text(value)) for name, value in pairs])

    def rows(self, columns: Sequence[str], rows: Iterable[Sequence[object]], styles: dict[str, str] | None = None) -> None:
        """Print a table; without headings where all of them are empty. `styles` gives certain cell texts a style."""
        texts = ([clean(cell) for cell in row] for row in rows)
        self._table(columns, [[_text(cell, (styles or {}).get(cell, "")) for cell in row] for row in texts])

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
        """Print rows as a table. On a terminal that is too narrow for it, print each row as a block of lines, so that no cell is cut."""
        if not _fits(columns, rows, self.console.width):
            self._blocks(columns, rows)
            return
        table = _table(columns)
        for row in rows:
            table.add_row(*row)
        # Rich pads the last column with blanks. A pipe would pass them on, and a narrow window would wrap them.
        with self.console.capture() as capture:
            self.console.print(table)
        for line in capture.get().splitlines():
            self.console.file.write(line.rstrip() + "\n")

    def _blocks(self, columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
        from rich.text import Text

        widest = max(map(len, columns[1:]), default=0)
        for first, *others in rows:
            self.console.print(Text.assemble((f"{columns[0]} ", "dim") if columns[0] else "", first), soft_wrap=True)
            for heading, cell in zip(columns[1:], others, strict=True):
                if cell.plain.strip():
                    line = Text.assemble("  ", (f"{heading:{widest}}  " if widest else "", "bold"), cell)
                    self.console.print(line, soft_wrap=True)  # the terminal wraps it, so that an id can be copied whole

    def error(self, error: BatosError) -> None:
        """Print an error: to standard error for people, as a document on standard output for programs."""
        if self.as_json:
            self.document({"type": "error", **error.to_wire()})
            return
        code = str(error.context.get("code", error.code))  # for a mission that FAILED: the code of its error
        line = _text(f"{code}: ", "bold red")
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


def _text(text: object, style: str = "") -> Text:
    """Return a cleaned text of rich's."""
    from rich.text import Text

    return Text(clean(text), style=style)


def _console(stream: Any) -> Console:
    from rich.console import Console

    # Use soft_wrap only without a terminal: there each line stays one line, however long.
    terminal = bool(stream.isatty())
    return Console(file=stream, width=None if terminal else PIPE_WIDTH, highlight=False, markup=False, emoji=False, soft_wrap=not terminal)


def _fits(columns: Sequence[str], rows: Iterable[Sequence[Text]], width: int) -> bool:
    """Return True if a table shows all columns but the last without a cut, and of the last one at least `_LAST_WIDTH` characters."""
    if len(columns) < 2:
        return True
    from rich.cells import cell_len

    widths = [cell_len(heading) for heading in columns]
    for row in rows:
        longest = (max(map(cell_len, cell.plain.split("\n"))) for cell in row)
        widths = [max(pair) for pair in zip(widths, longest, strict=True)]
    *others, last = widths
    return sum(others) + _GAP * len(others) + min(last, _LAST_WIDTH) <= width


def _table(columns: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=any(columns), header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for number, column in enumerate(columns):
        last = number == len(columns) - 1
        table.add_column(column, no_wrap=not last, overflow="fold" if last else "ellipsis")
    return table
