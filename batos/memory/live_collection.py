"""Live collection: the search index of a running daemon, which hears of what is committed to the memory.

`OwnCollection` is that of a daemon that has the image to itself: each commit hands its changes over. `SharedCollection` is that of a kernel
among several: it follows the image (`batos.memory.follower`) at each look, and at once after a commit of its own. All methods are called on
the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import numpy as np
import structlog

from batos.concurrency import in_helper
from batos.errors import BatosError
from batos.image.living_image import LivingImage
from batos.memory.embedding_worker import load_collection
from batos.memory.follower import Follower, FollowerNews
from batos.memory.search_index import Collection
from batos.memory.segments import Array, Segment
from batos.objects import Root

log = structlog.get_logger("batos.memory")
RETRY_S = 5.0  # before a collection that could not be loaded is loaded again


class LiveCollection(Protocol):
    """The search index, and what a durable commit tells it."""

    @property
    def collection(self) -> Collection:
        """Return the collection that searches use now."""
        ...

    def stored(self, segment: Segment | None, dropped: list[int]) -> None:
        """Add new chunks, and drop removed ones."""

    def relinked(self, segment: Segment) -> None:
        """Take in other entries of chunks that did not change."""

    def embedded(self, identity: str, ids: list[int], rows: Array) -> None:
        """Take in vectors of chunks by that embedder; searches have those of one embedder only."""

    async def reload(self) -> None:
        """Read the collection again from the image, after a change of embedder or to free the rows of removed chunks."""


class OwnCollection:
    """Collection of a daemon that has the image to itself. Make it with `open`."""

    def __init__(self, image: LivingImage, collection: Collection) -> None:
        self._image, self.collection = image, collection
        # changes that came while the collection was read again; None when it is not being read
        self._since: list[Callable[[Collection], object]] | None = None

    @classmethod
    async def open(cls, image: LivingImage) -> OwnCollection:
        """Load all that the memory holds."""
        return cls(image, await in_helper(image.read, load_collection))

    def stored(self, segment: Segment | None, dropped: list[int]) -> None:
        """Add new chunks, and drop removed ones."""
        if segment is not None:
            self._apply(lambda collection: collection.append(segment))
        if dropped:
            self._apply(lambda collection: collection.drop(dropped))

    def relinked(self, segment: Segment) -> None:
        """Take in other entries of chunks that did not change."""
        self._apply(lambda collection: collection.replace(segment))

    def embedded(self, identity: str, ids: list[int], rows: Array) -> None:
        """Take in vectors of chunks by that embedder; searches have those of one embedder only."""
        numbers = np.array(ids, np.int64)
        self._apply(lambda collection: collection.vectors(numbers, rows) if collection.maker.identity == identity else None)

    def _apply(self, change: Callable[[Collection], object]) -> None:
        change(self.collection)
        if self._since is not None:
            self._since.append(change)

    async def reload(self) -> None:
        """Read the collection again from the image."""
        self._since = []
        try:
            fresh = await in_helper(self._image.read, load_collection)
            for change in self._since:  # repeating a change that the snapshot already has does nothing
                change(fresh)
            self.collection = fresh
        finally:
            self._since = None


class SharedCollection:
    """Collection of a kernel that shares the image. Make it with `open`, call `look` again and again, and `run` its loading."""

    def __init__(self, image: LivingImage, follower: Follower, heard: Callable[[Root, FollowerNews], object], dropped_rows: int) -> None:
        """
        :param heard: takes the news of each look that has some, on the loop.
        :param dropped_rows: number of dropped rows from which the collection is loaded anew, if they are more than a quarter of all.
        """
        self._image, self._follower, self._heard, self._dropped_rows = image, follower, heard, dropped_rows
        self._due, self._one_load = asyncio.Event(), asyncio.Lock()

    @classmethod
    async def open(cls, image: LivingImage, heard: Callable[[Root, FollowerNews], object], dropped_rows: int) -> SharedCollection:
        """Load all that the memory holds; see `__init__`."""
        return cls(image, await in_helper(image.read, Follower.load), heard, dropped_rows)

    @property
    def collection(self) -> Collection:
        """Return the collection that searches use now."""
        return self._follower.collection

    def look(self, root: Root) -> None:
        """Take in what was committed since the last look."""
        news = self._follower.look(root)
        size, dropped = self.collection.size, self.collection.dropped
        if news.reload or dropped > max(self._dropped_rows, size // 4):
            self._due.set()
        if news.changed:
            self._heard(root, news)

    def stored(self, segment: Segment | None, dropped: list[int]) -> None:
        """Take in a commit of this kernel, and what others committed before it."""
        self._follow()

    def relinked(self, segment: Segment) -> None:
        """Take in a commit of this kernel; see `stored`."""
        self._follow()

    def embedded(self, identity: str, ids: list[int], rows: Array) -> None:
        """Take in a commit of this kernel; see `stored`."""
        self._follow()

    def _follow(self) -> None:
        try:
            self._image.read(self.look)
        except Exception as e:  # the commit is durable: an image that is away just now must not make it fail
            log.warning("memory_not_followed", error=repr(e)[:300], hint="the next look takes it in")

    async def reload(self) -> None:
        """Read the collection again from the image."""
        async with self._one_load:
            self._follower = await in_helper(self._image.read, Follower.load)
        self._follow()  # what was committed while it was loaded

    async def run(self) -> None:
        """Load the collection anew when that is due, until cancelled; searches go on meanwhile."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self.reload()
            except (BatosError, OSError) as e:
                log.warning("collection_not_loaded", error=str(e), retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
                self._due.set()
