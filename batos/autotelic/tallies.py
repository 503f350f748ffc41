"""Tallies: how often, how much in all, how much at most; by table and key, within bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

OTHER = "other"
_DIGITS = 3  # of what is stored: milliseconds


class Tally(NamedTuple):
    """Of one key: how often something was noted, the sum of its amounts, the greatest of them."""

    times: int
    total: float
    most: float

    @property
    def mean(self) -> float:
        """Amount each time; 0 where there was none."""
        return self.total / self.times if self.times else 0.0


NONE = Tally(0, 0.0, 0.0)


class Tallies:
    """Tables of tallies. A table holds at most `keys` keys; what comes after them is added to the key `other`."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._tables: dict[str, dict[str, Tally]] = {}

    def note(self, table: str, key: str, amount: float = 1.0) -> None:
        """Count one more, of that amount."""
        self._add(table, key, Tally(1, amount, amount))

    def add(self, table: str, key: str, count: int) -> None:
        """Count so many more; none leaves no trace."""
        if count:
            self._add(table, key, Tally(count, float(count), float(count)))

    def of(self, table: str, key: str) -> Tally:
        """The tally under a key."""
        return self._tables.get(table, {}).get(key, NONE)

    def rows(self, table: str) -> Iterator[tuple[str, Tally]]:
        """A table's keys and tallies, those that were noted most often first."""
        yield from sorted(self._tables.get(table, {}).items(), key=lambda row: (-row[1].times, row[0]))

    def sum(self, table: str) -> Tally:
        """All of a table."""
        rows = self._tables.get(table, {}).values()
        return Tally(sum(row.times for row in rows), sum(row.total for row in rows), max((row.most for row in rows), default=0.0))

    def merge(self, plain: Mapping[str, Mapping[str, Any]]) -> None:
        """Add what another one's `plain` says."""
        for table, rows in plain.items():
            for key, row in rows.items():
                self._add(table, key, Tally(*row))

    def plain(self) -> dict[str, dict[str, list[float]]]:
        """As plain values, to be stored."""
        return {
            table: {key: [row.times, round(row.total, _DIGITS), round(row.most, _DIGITS)] for key, row in rows.items()}
            for table, rows in self._tables.items()
        }

    def __bool__(self) -> bool:
        return bool(self._tables)

    def _add(self, table: str, key: str, more: Tally) -> None:
        rows = self._tables.setdefault(table, {})
        if key not in rows and len(rows) >= self._keys:
            key = OTHER
        before = rows.get(key, NONE)
        rows[key] = Tally(before.times + more.times, before.total + more.total, max(before.most, more.most))
