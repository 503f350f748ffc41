"""Writing records: ZODB's own writer, with a shorter way for most of what it asks.

The pickler asks of every value in a record, and of every part of every reference, whether it is persistent: 600 times where a note of
a few lines is committed, since leaves of trees are written whole. ZODB's answer takes four steps even for a number. Here plain values
and objects that the image knows already are answered first, with the same answer; everything else is ZODB's to say.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from persistent import Persistent
from ZODB.serialize import ObjectWriter, binary

_PLAIN = frozenset((int, str, bytes, binary, tuple, float, bool, type(None), type))
"""Types whose values are never persistent themselves. `type` is of the classes that references name; persistent classes have another."""


class QuickWriter(ObjectWriter):
    """Writes the same bytes."""

    def __init__(self, obj: Any = None) -> None:
        super().__init__(obj)
        self._p.persistent_id = _asker(self._jar, self.persistent_id)


def _asker(jar: Any, ask: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def persistent_id(value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return None
        known = _by_class(kind)  # type: ignore[arg-type]  # classes are hashable
        if known and (oid := value._p_oid) is not None and value._p_jar is jar:
            return binary(oid), kind
        return ask(value)

    return persistent_id


@functools.cache
def _by_class(kind: type) -> bool:
    """Whether references to the objects of a class are their id and the class."""
    return issubclass(kind, Persistent) and not hasattr(kind, "__getnewargs__")


def install() -> None:
    """Let all connections of this process write so."""
    connection = importlib.import_module("ZODB.Connection")
    assert vars(connection)["ObjectWriter"] in (ObjectWriter, QuickWriter), "this ZODB writes records in another way"
    vars(connection)["ObjectWriter"] = QuickWriter
