"""Records are written by a shorter way: the same bytes as ZODB's own writer gives, whatever is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ZODB.Connection
from BTrees.LOBTree import LOBTree
from persistent import Persistent
from persistent.wref import WeakRef
from ZODB.serialize import ObjectWriter

from batos.image import LivingImage
from batos.image.pickling import QuickWriter
from batos.objects import Intent, SlotList, UvmObject


class WithArguments(Persistent):
    """References to such objects do not name the class."""

    def __getnewargs__(self) -> tuple[int, ...]:
        return (1,)


async def test_the_bytes_are_those_of_the_usual_writer(tmp_path: Path) -> None:
    image = await LivingImage.open(f"file://{tmp_path / 'i.fs'}")
    assert vars(ZODB.Connection)["ObjectWriter"] is QuickWriter

    def fill(root: Any) -> None:
        friend, made = UvmObject(name="friend"), WithArguments()
        values = {"n": 1, "text": "words", "data": b"\x00", "pair": (friend, 2.5, None, True)}
        root["all"] = UvmObject(**{"parent*": friend, "list": [friend, {"made": made}], **values})
        root["tree"] = LOBTree({n: (n, friend) for n in range(200)})
        root["odd"] = [WeakRef(friend), UvmObject, Intent("do it"), made]

    await image.system(fill)
    with image.snapshot() as root:
        objects = [root["all"], root["all"].list, root["tree"], root["tree"]._firstbucket, root["all"].pair[0], root]
        for obj in objects:
            obj._p_activate()
            assert QuickWriter(obj).serialize(obj) == ObjectWriter(obj).serialize(obj)
        assert isinstance(root["all"].list, SlotList)
        assert root["odd"][0]() is root["all"].pair[0]
        assert root["odd"][1] is UvmObject
    await image.close()
