"""Tables: CSV and its like. Each row says what its columns are called, in whatever chunk it is."""

from __future__ import annotations

import csv
import io
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import dates

KIND = "table"
_DELIMITERS = ",;\t|"
_LOOKED_AT = 50  # lines by which it is decided what parts the columns
_FIT = 0.8  # of these that have as many columns as most
_NAME_CHARS = 80  # of a column
_NUMBER = re.compile(r"[-+$€£¥%\d.,:/ ]++\Z")


def read_tables(path: pathlib.PurePath, text: str) -> Draft | None:
    """What a text of rows says; None for one that has none."""
    delimiter = _delimiter(text)
    if not delimiter:
        return None
    csv.field_size_limit(1 << 26)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return Draft(KIND, path.stem, [DraftPart("".join(lines(rows)))], day=dates.in_name(path.stem))


def lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A line each row, as Markdown has them; each cell with the name of its column, if the first row has such."""
    names: list[str] | None = None
    first: list[str] | None = None
    for row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        if not any(cells):
            continue
        if first is None:
            first = cells
            continue
        if names is None:
            names = first if _are_names(first, cells) else []
            yield f"| {' | '.join(filter(None, first))} |\n"
        if names:
            said = [f"{names[at]}: {cell}" if at < len(names) and names[at] else cell for at, cell in enumerate(cells) if cell]
        else:
            said = [cell for cell in cells if cell]
        yield f"| {' | '.join(said)} |\n"
    if first is not None and names is None:
        yield f"| {' | '.join(filter(None, first))} |\n"


def _are_names(row: list[str], after: list[str]) -> bool:
    """Whether a first row names the columns: words, short and different, above a row with as many cells."""
    named = [cell for cell in row if cell]
    words = all(len(cell) <= _NAME_CHARS and not _NUMBER.match(cell) for cell in named)
    return words and len(set(named)) == len(named) and len(named) >= 2 and len(named) >= len([cell for cell in after if cell]) - 1


def _delimiter(text: str) -> str:
    """What parts the columns; empty for a text without any."""
    head = "".join(text[: 1 << 16].splitlines(keepends=True)[:_LOOKED_AT])
    best, most = "", 1.0
    for one in _DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(io.StringIO(head, newline=""), delimiter=one) if row]
        except csv.Error:
            continue
        usual = max(set(widths), key=widths.count, default=0)
        fit = widths.count(usual) / max(1, len(widths))
        if usual > 1 and len(widths) > 1 and fit >= _FIT and usual * fit > most:
            best, most = one, usual * fit
    return best
