"""Mark of a copy that is under way on a server, so that no daemon takes the part that is there for an image.

In PostgreSQL it is a table, which the finished copy drops. Elsewhere it is the first transaction of the storage, with an id before all
that an image can have. It says at which transaction the copy is whole.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, NamedTuple

import ZODB
from ZODB.Connection import TransactionMetaData
from ZODB.MappingStorage import MappingStorage
from ZODB.utils import p64, z64

from batos.errors import ImageError
from batos.image import server
from batos.image.checksummed_storage import base_of

FIRST = p64(1)
"""Id of the transaction that is the mark."""
_TABLE = "batos_copy"
_KEY = "copy"


class CopyMark(NamedTuple):
    """Mark of a copy: the identity of the image that is copied, and the last transaction that belongs to the copy, in hexadecimal."""

    source: str
    until: str


def read_mark(storage: Any) -> CopyMark | None:
    """Return the mark of a copy that is not whole; None for whatever else the storage holds."""
    if (session := _session(storage)) is not None:
        with contextlib.closing(session), session.cursor() as cursor:
            cursor.execute("SELECT to_regclass(%s)", (_TABLE,))
            if cursor.fetchone()[0] is None:
                return None
            cursor.execute(f"SELECT source, until FROM {_TABLE}")  # noqa: S608 - a name of ours
            return CopyMark(*(cursor.fetchone() or ("", "")))
    if not keeps_history(storage):
        return None
    for first in base_of(storage).iterator(FIRST, FIRST):
        mark = CopyMark(**json.loads(first.extension.get(_KEY, "{}"))) if _KEY in first.extension else None
        if mark is not None and storage.lastTransaction().hex() < mark.until:
            return mark
    return None


def keeps_history(storage: Any) -> bool:
    """Return True if a storage keeps transactions and earlier revisions."""
    return hasattr(base_of(storage), "supportsUndo") and bool(storage.supportsUndo())


def set_mark(storage: Any, mark: CopyMark) -> None:
    """Mark an empty storage as a copy that is not whole."""
    if (session := _session(storage)) is not None:
        with contextlib.closing(session), session.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {_TABLE}")
            cursor.execute(f"CREATE TABLE {_TABLE} AS SELECT %s::text AS source, %s::text AS until", tuple(mark))
        return
    about = TransactionMetaData(b"", b"the mark of a copy", {_KEY: json.dumps(mark._asdict())})
    storage.tpc_begin(about, FIRST, " ")
    storage.restore(z64, FIRST, _empty_root(), "", None, about)
    storage.tpc_vote(about)
    storage.tpc_finish(about)


def clear_mark(storage: Any) -> None:
    """Let a copy that is whole be an image."""
    if (session := _session(storage)) is not None:
        with contextlib.closing(session), session.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {_TABLE}")


def refuse_unfinished(storage: Any, uri: str) -> None:
    """Refuse a storage that holds a part of a copy.

    :param uri: address of the storage, as messages show it.
    :raises ImageError: with the way to go on.
    """
    if read_mark(storage) is not None:
        raise ImageError(f"{uri} holds an unfinished copy, and no image yet; end it: `batos copy --to` it again, from the same image")


def _session(storage: Any) -> Any:
    """Return a session with the storage's PostgreSQL; None for another storage."""
    adapter = server.postgres_of(storage)
    return None if adapter is None else server.open_session(adapter, "copy")


def _empty_root() -> bytes:
    with contextlib.closing(ZODB.DB(MappingStorage())) as db:
        return bytes(db.storage.load(z64)[0])
