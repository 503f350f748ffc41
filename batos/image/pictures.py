"""Pictures that go with briefs, kept once by what is in them, as blobs.

A picture is in the image before a mission can name it, so that a mission that is accepted has its own. `accept` writes them into its slot
`images`: its own, and those that the mission before it in a conversation had, so that it is settled once what a model is shown. A picture
stays as long as a mission holds it: retention lets go of it with the texts of the mission's journal. One that no mission holds is kept
for the hours that somebody may need from its upload to his mission.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

from BTrees.OOBTree import OOBTree, OOTreeSet
from persistent import Persistent

from batos.errors import ImageError, UnknownPicture
from batos.image import blobs

SHOWN_LIMIT = 64
"""Pictures of a mission, those of earlier ones included: the setting `brief_images` allows no more."""
_BATCH = 32  # pictures that one system transaction of upkeep lets go of
Shown = dict[str, Any]
"""What is known of a picture of a mission: `digest`, `name`, `type`, `bytes`, `width`, `height`; `of`, the earlier mission whose it was."""


class Picture(Persistent):
    """One picture, and the missions that hold it."""

    __module__ = "batos.image"

    def __init__(self, blob: Any, type: str, bytes: int, width: int, height: int) -> None:
        self.blob, self.type, self.bytes, self.width, self.height = blob, type, bytes, width, height
        self.missions = OOTreeSet()

    def about(self) -> Shown:
        """What it is, as plain values."""
        return {name: getattr(self, name) for name in ("type", "bytes", "width", "height")}


class Pictures(Persistent):
    """All of them, by digest; and when those were brought that no mission holds yet, with their bytes."""

    __module__ = "batos.image"

    def __init__(self) -> None:
        self.kept, self.waiting = OOBTree(), OOBTree()


def _kept(root: Any) -> Any:
    """The pictures by digest; an empty mapping where there never was one."""
    held = root["ledger"].pictures
    return {} if held is None else held.kept


# --- system transactions


def add(root: Any, digest: str, data: bytes, about: Shown, room: int | None = None) -> None:
    """System transaction: keep a picture; one that is there stays as it is, but counts as brought now.

    :param digest: SHA-256 of its bytes, in hexadecimal.
    :param room: bytes of pictures that no mission holds: past it, those that wait longest go. None: any.
    :raises ImageError: for a storage that keeps no blobs.
    """
    ledger = root["ledger"]
    if ledger.pictures is None:
        if not blobs.kept_by(root._p_jar.db()):
            raise ImageError("this image is in a storage without blobs, and cannot keep pictures; use one in a file")
        ledger.pictures = Pictures()
    if bring_again(root, digest) is not None:
        return
    pictures = ledger.pictures
    if room is not None:
        waiting = sorted((since, size, other) for other, (since, size) in pictures.waiting.items())
        taken = len(data) + sum(size for _, size, _ in waiting)
        for _, size, other in waiting:
            if taken > room:
                _drop(pictures, other)
                taken -= size
    pictures.kept[digest] = Picture(blobs.write(root._p_jar, data), **about)
    pictures.waiting[digest] = time.time(), len(data)


def bring_again(root: Any, digest: str) -> Shown | None:
    """System transaction: have a picture that is there count as brought now; what it is, None where it is not there."""
    held = _kept(root).get(digest)
    if held is None:
        return None
    if digest in root["ledger"].pictures.waiting:
        root["ledger"].pictures.waiting[digest] = time.time(), held.bytes
    return held.about()  # type: ignore[no-any-return]


def hold(root: Any, mission: str, own: str | None, before: Any) -> list[Shown]:
    """System transaction's part: let a mission that is accepted hold its pictures; all that it shows, its own first.

    :param own: its own, as JSON: rows of `digest` and `name`.
    :param before: the mission that it follows, whose pictures are shown again; None where it follows none.
    :raises UnknownPicture: for one of its own that is not there.
    """
    if not own and (before is None or not before.images):  # nearly always
        return []
    kept, shown = _kept(root), []
    for one in json.loads(own or "[]"):
        if one["digest"] not in kept:
            raise UnknownPicture(f"no image {one['digest'][:16]}… is here, or not any more; upload it again (op `upload`)")
        shown.append({**one, **kept[one["digest"]].about()})
    if before is not None and before.images:
        earlier = ({"of": before.id, **one} for one in json.loads(before.images))
        shown += [one for one in earlier if one["digest"] in kept][: SHOWN_LIMIT - len(shown)]
    for one in shown:
        kept[one["digest"]].missions.insert(mission)
        root["ledger"].pictures.waiting.pop(one["digest"], None)
    return shown


def release(root: Any, mission: Any) -> bool:
    """System transaction's part: a mission shows its pictures to nobody any more; whether it held any. What no other holds goes."""
    released, kept = False, _kept(root)
    for digest in {one["digest"] for one in json.loads(mission.images or "[]")}:
        held = kept.get(digest)
        if held is not None and mission.id in held.missions:
            held.missions.remove(mission.id)
            released = True
            if not held.missions:
                del kept[digest]
    return released


def forget_unheld(root: Any, before: float) -> int:
    """System transaction: let go of some that no mission holds, and that were brought before a moment; how many."""
    found = unheld(root, before)
    for digest in found:
        _drop(root["ledger"].pictures, digest)
    return len(found)


def _drop(pictures: Pictures, digest: str) -> None:
    del pictures.kept[digest], pictures.waiting[digest]


# --- reads


def unheld(root: Any, before: float) -> list[str]:
    """The digests of some that no mission holds, and that were brought before a moment."""
    held = root["ledger"].pictures
    waiting = {} if held is None else held.waiting
    return list(itertools.islice((digest for digest, (since, _) in waiting.items() if since < before), _BATCH))


def about(root: Any, digest: str) -> Shown | None:
    """What a picture is; None where it is not there."""
    held = _kept(root).get(digest)
    return None if held is None else held.about()


def read(root: Any, digest: str) -> bytes:
    """The bytes of a picture.

    :raises UnknownPicture: where it is not there.
    :raises ImageDamaged: where its file is not what was written.
    """
    held = _kept(root).get(digest)
    if held is None:
        raise UnknownPicture(f"the image {digest[:16]}… is not kept any more (setting journal_days)")
    return blobs.read(held.blob)
