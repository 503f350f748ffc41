"""Files that an OpenAPI document refers to: they are gathered before the document is read, so that it reads as if it were one.

A file's references lead to files beneath its folder, a URL's to the same origin. What leads elsewhere is not opened: the operation that
needs it is left out, and says so. Count, bytes and levels are bounded; gathering is linear in what the files hold.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from batos.errors import BatosError, InvalidInput
from batos.tools.egress import origin_of
from batos.tools.openapi_document import LostDocument
from batos.tools.openapi_values import DOCUMENT_BYTES, value_of

FILES = 4000
"""Greatest number of files that a document in a folder refers to."""
PAGES = 200
"""Greatest number of documents that a document at a URL refers to."""
BYTES = DOCUMENT_BYTES
"""Greatest size of all of them."""
LEVELS = 20
"""Greatest number of files that lead from the document to another one, each by the one before it."""
Load = Callable[[str], Awaitable[bytes]]
"""Returns what is at a location. Raises `BatosError` or `OSError`, which says why it cannot be had."""
_AT_ONCE = 8


async def gathered(document: dict[str, Any], place: str, load: Load) -> dict[str, Any]:
    """Return the documents that a document refers to, directly or through others, by their locations.

    References are rewritten, in it and in them, to `LOCATION#POINTER`, or `#POINTER` where they lead to the document itself.

    :param place: absolute path or URL of the document.
    """
    found: dict[str, Any] = {}
    waiting = _wanted(document, place, place, found)
    left, most = BYTES, PAGES if _is_url(place) else FILES
    for _ in range(LEVELS):
        new = iter([one for one in waiting if one not in found])
        waiting = {}
        while batch := list(islice(new, _AT_ONCE)):
            room = max(0, most - len(found))
            for location in batch[room:]:
                found[location] = LostDocument(location, f"is one of more than {most}, which are not followed")
            batch = batch[:room]
            for location, data in zip(batch, await asyncio.gather(*(_loaded(load, one) for one in batch)), strict=True):
                left -= 0 if isinstance(data, LostDocument) else len(data)
                if left < 0:
                    data = LostDocument(location, f"is not followed: all that the document refers to is larger than {BYTES} bytes")
                found[location] = data if isinstance(data, LostDocument) else await asyncio.to_thread(_value, data, location)
                if not isinstance(found[location], LostDocument):
                    waiting |= _wanted(found[location], location, place, found)
    for location in waiting:
        found.setdefault(location, LostDocument(location, f"is more than {LEVELS} files away, and is not followed"))
    return {where: one._replace(name=_called(one.name, place)) if isinstance(one, LostDocument) else one for where, one in found.items()}


def _called(location: str, place: str) -> str:
    """Return a location as its user may write it: beneath that of the document."""
    return location.removeprefix(place.rpartition("/")[0] + "/")


def location_of(ref: str, location: str, place: str) -> str:
    """Return where a reference in a file leads.

    :param location: of the file that holds it.
    :param place: of the document that the user named: nothing outside of its folder, or of its origin, is opened.
    :raises InvalidInput: if it leads elsewhere; the message follows "the reference … ".
    """
    path = ref.partition("#")[0]
    if not path:
        return location
    if _is_url(place):
        try:
            target = urllib.parse.urljoin(location, path)
            same = origin_of(target) == origin_of(place)
        except (BatosError, ValueError):
            raise InvalidInput("is not a valid URL") from None
        if not same:
            raise InvalidInput(f"leads to another server than {origin_of(place)}, and is not followed")
        return target
    plain = urllib.parse.unquote(path)
    if urllib.parse.urlsplit(path).scheme or plain.startswith(("/", "\\")) or "\0" in plain:
        raise InvalidInput("is not a relative path, and is not followed; copy what it names into the document's folder")
    parts: list[str] = []
    folder = PurePosixPath(place).parent
    for part in (*PurePosixPath(location).parent.relative_to(folder).parts, *PurePosixPath(plain).parts):
        if part != "..":
            parts.append(part)
        elif not parts:
            raise InvalidInput("leads out of the document's folder, and is not followed")
        else:
            parts.pop()
    return str(folder.joinpath(*parts))


def file_bytes(location: str, place: str) -> bytes:
    """Return what is in a document, or in a file that it refers to.

    :raises InvalidInput: if a link leads out of the document's folder.
    :raises OSError: if it cannot be read.
    """
    path, folder = Path(location).resolve(strict=True), Path(place).parent.resolve()
    if location != place and not path.is_relative_to(folder):
        raise InvalidInput("leads out of the document's folder by a link, and is not followed")
    if location != place and not path.is_file():
        raise InvalidInput("leads to what is not a file")
    with path.open("rb") as file:
        return file.read(BYTES + 1)


async def _loaded(load: Load, location: str) -> bytes | LostDocument:
    try:
        return await load(location)
    except InvalidInput as e:
        return LostDocument(location, e.message)
    except (BatosError, OSError) as e:
        return LostDocument(location, f"leads to what cannot be had: {getattr(e, 'strerror', None) or e}")


def _value(data: bytes, location: str) -> Any:
    try:
        return value_of(data, location.rpartition("/")[2])
    except InvalidInput as e:
        return LostDocument(location, f"leads to what cannot be read: {e.message}")


def _wanted(document: Any, location: str, place: str, found: dict[str, Any]) -> dict[str, None]:
    """Rewrite the references of a document; return the locations that they lead to, in their order."""
    wanted: dict[str, None] = {}
    seen: set[int] = set()
    open_: list[tuple[Any, bool]] = [(document, False)]
    while open_:
        node, names = open_.pop()
        if not isinstance(node, dict | list) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, list):
            open_ += ((one, False) for one in reversed(node))
            continue
        if isinstance(ref := node.get("$ref"), str) and (location != place or not ref.startswith("#")):
            node["$ref"] = _rewritten(ref, location, place, found)
            target = node["$ref"].partition("#")[0]
            if target and target not in found and target != location:
                wanted[target] = None
        for name, inner in reversed(node.items()):
            if names or not (str(name).startswith("x-") or name in ("example", "examples")):
                open_.append((inner, name in ("properties", "paths") and not names))
    return wanted


def _rewritten(ref: str, location: str, place: str, found: dict[str, Any]) -> str:
    pointer = ref.partition("#")[2]
    try:
        target = location_of(ref, location, place)
    except InvalidInput as e:
        target = f"refused {ref.partition('#')[0]}"
        found[target] = LostDocument(ref.partition("#")[0], e.message)
    return f"#{pointer}" if target == place else f"{target}#{pointer}"


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))
