"""Abstract objects: what a name may stand for, and what may be inside it.

A set of objects is an `int`, one bit an object. There is one object for self, one for all that belongs to other objects, one a
slot, and one for each place in the source where a value comes into being. What is inside an object only grows.
"""

from __future__ import annotations

from collections.abc import Hashable

SELF = 1
FOREIGN = 2
"""reached through an attribute of something that is not self"""


class Heap:
    """The abstract objects of one analysis."""

    def __init__(self) -> None:
        self.contents = [0, FOREIGN]
        self.version = 0
        """counts up whenever anything is learned"""
        self.slots = 0
        """all objects that are slots of self"""
        self.known = 0
        """all objects that are containers for certain"""
        self._bits: dict[Hashable, int] = {}
        self._slot_names: dict[int, str] = {}

    def at(self, place: Hashable, *, known: bool = False) -> int:
        """The object that comes into being at a place, empty."""
        bit = self._bits.get(place)
        if bit is None:
            bit = self._bits[place] = 1 << len(self.contents)
            self.contents.append(0)
            if known:
                self.known |= bit
        return bit

    def unknown(self, place: Hashable) -> int:
        """A value of which nothing is known but that it is not self's: it holds others, and those hold others like themselves."""
        bit = self._bits.get(place)
        if bit is None:
            bit = self.at(place)
            inner = self.at((place, "inside"))
            self.contents[-1] = inner
            self.contents[-2] = inner
        return bit

    def slot(self, name: str) -> int:
        """The object that a slot of self holds. Its elements count as itself."""
        bit = self._bits.get(name)
        if bit is None:
            bit = self.at(name)
            self.contents[-1] = bit
            self.slots |= bit
            self._slot_names[bit] = name
        return bit

    def names(self, objects: int) -> list[str]:
        """The slots among some objects."""
        return [name for bit, name in self._slot_names.items() if bit & objects]

    def inside(self, objects: int) -> int:
        """What may be directly inside some objects."""
        found = 0
        contents = self.contents
        while objects:
            low = objects & -objects
            found |= contents[low.bit_length() - 1]
            objects ^= low
        return found

    def reach(self, objects: int) -> int:
        """The objects and all that may be inside them, at any depth."""
        while (more := objects | self.inside(objects)) != objects:
            objects = more
        return objects

    def put(self, objects: int, value: int) -> None:
        """Note that `value` may be inside each of `objects`."""
        objects &= ~(SELF | FOREIGN)
        while objects and value:
            low = objects & -objects
            index = low.bit_length() - 1
            if value & ~self.contents[index]:
                self.contents[index] |= value
                self.version += 1
            objects ^= low
