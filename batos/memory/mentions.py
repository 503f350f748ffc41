"""Entities: what chunks mention, by a key (the name, casefolded), and from each entity the way back to those chunks.

An entity is there as long as a chunk mentions it. All functions work inside whatever transaction is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from BTrees.LOBTree import LOBTree
from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged
from batos.objects import UvmObject

if TYPE_CHECKING:
    from batos.memory.library import Library
    from batos.memory.sections import Shelf


def add(library: Library, root: Any, chunk: UvmObject) -> None:
    """Let the entities that a chunk mentions know of it; they are made if there are none."""
    for key in chunk.mentioned:
        _entity(library, root, key, chunk.speaker if chunk.speaker.casefold() == key else key).chunks[chunk.number] = None


def of(library: Library, number: int) -> Iterable[str]:
    """The keys that the chunk of that number mentions. One that is damaged can be forgotten, too: then all entities are asked."""
    try:
        return library.chunks[number].mentioned  # type: ignore[no-any-return]
    except (ImageDamaged, POSKeyError):
        return [key for key, entity in library.entities.items() if number in entity.chunks]


def remove(library: Library, number: int, keys: Iterable[str]) -> None:
    """The chunk of that number mentions these no more. Entities that nothing mentions go."""
    for key in keys:
        entity = library.entities.get(key)
        if entity is not None:
            entity.chunks.pop(number, None)
            if not entity.chunks:
                del library.entities[key]
                library.counts.add(entities=-1)


def change(library: Library, root: Any, shelf: Shelf) -> None:
    """Let a section's chunks, which stay as they are, mention what these passages do."""
    for number, passage in zip(shelf.section.numbers, shelf.passages, strict=True):
        chunk = library.chunks[number]
        if chunk.mentioned != passage.mentioned:
            remove(library, number, set(chunk.mentioned) - set(passage.mentioned))
            chunk.mentioned = passage.mentioned
            add(library, root, chunk)


def back(library: Library, key: str, entity: UvmObject) -> None:
    """Bring back the entity that it was, which others may refer to; one that was made anew meanwhile hands over what names it."""
    now = library.entities.get(key)
    if now is None:
        library.entities[key] = entity
        library.counts.add(entities=1)
    elif now._p_oid is None or entity._p_oid < now._p_oid:  # ids ascend in time
        entity.chunks.update(now.chunks)
        library.entities[key] = entity


def _entity(library: Library, root: Any, key: str, written: str) -> UvmObject:
    found = library.entities.get(key)
    if found is None:
        named = library.by_title.get(key)
        name, kind = (library.documents[named].title, "title") if named is not None else (written, "person")
        found = UvmObject(**{"parent*": root["lobby"].traits.entity, "name": name, "kind": kind, "chunks": LOBTree()})
        library.entities[key] = found
        library.counts.add(entities=1)
    return found  # type: ignore[no-any-return]
