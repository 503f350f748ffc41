"""The worker that gives chunks their vectors, in the background: section by section, as `batos.memory.meaning` has it.

Which sections wait stands in the image, so that it goes on after a restart. An embedder that is away is asked again after a while;
searches go by words meanwhile. When the settings ask for another embedder than the vectors are from, those serve until the new ones
are all there (`batos.memory.changing`). When there is nothing to do, and under load that does not end every `TIDY_S`, it tidies up: small
parts of the index are merged, and what was dropped is taken out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import structlog

from batos.config import Settings
from batos.errors import BatosError, EmbedderFailed
from batos.image.living import LivingImage
from batos.image.turns import in_helper
from batos.memory import changing, linking, meaning
from batos.memory.changing import Adopted
from batos.memory.chunking import Limits
from batos.memory.collection import Collection
from batos.memory.embedders import Embedder
from batos.memory.embedders.choosing import Readers
from batos.memory.library import library_of
from batos.memory.partlog import BEGIN, Drops
from batos.memory.segments import Array
from batos.memory.shelving import Shelver

log = structlog.get_logger("batos.memory")

_PROBE = "Is anybody there?"
TIDY_S = 30.0
"""Between two times that it tidies up under load that does not end: what was dropped, and is still in memory, grows with each mission."""
MERGES = 8  # of parts of one log, at such a time


class Hearer(Protocol):
    """Who is told what was committed (`batos.recollection.Recollection`)."""

    collection: Collection

    def count(self) -> int: ...
    def stored(self, segment: Any, dropped: list[int]) -> None: ...
    def relinked(self, segment: Any) -> None: ...
    def embedded(self, identity: str, ids: list[int], rows: Array) -> None: ...
    async def reload(self) -> None: ...


class Vectors:
    """See the module. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, readers: Readers, shelver: Shelver, limits: Limits, settings: Settings, hearer: Hearer) -> None:
        self._image, self._readers, self._shelver, self.limits = image, readers, shelver, limits
        self._settings, self._hearer = settings, hearer
        self._more = asyncio.Event()
        self._identity = ""
        self._former_until, self._former_why = 0.0, ""
        self._state, self._why = "waiting", ""
        self._tidied_at = time.monotonic()

    def wake(self) -> None:
        """There may be something to do."""
        self._more.set()

    def facts(self) -> dict[str, Any]:
        """How it stands: the embedder's identity, `ready`, `working`, `waiting` or `away`, why, and chunks that have a vector.

        `serving` is the identity of the embedder that those vectors are from: another one while a change is under way.
        """
        told = {"identity": self._identity, "state": self._state, "why": self._why, "vectors": self._hearer.count()}
        return {**told, "serving": self._hearer.collection.maker.identity}

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._more.clear()
            try:
                more = await self._step()
            except (BatosError, OSError) as e:  # an OSError is of a full disk; nothing of this step was kept
                await self._away(e)
                continue
            if not more:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.embed_check_s):
                        await self._more.wait()

    async def _step(self) -> bool:
        """Do some of what is to be done; whether there may be more."""
        await self._linked()
        await self._late()
        await self._known()
        if work := await self._readable(changing.due, self._identity):
            if self._state != "away":
                self._state, self._why = "working", ""
            await self._round(work, self._readers.present, self._identity)
            self._state, self._why = "working", ""
            if time.monotonic() - self._tidied_at >= TIDY_S:
                await self._tidied(MERGES)
            return True
        if not await self._arrived():
            return True
        self._state = "ready"
        await self._tidied()
        return False

    async def _readable(self, which: Callable[[Any, int], changing.Due], identity: str) -> list[meaning.Work]:
        """The next sections that lack an embedder's vectors; those that are damaged stay without."""
        while True:
            due: changing.Due = await in_helper(self._image.read, which, self._settings.embed_sections)
            if due.damaged:
                log.error("sections_damaged", sections=due.damaged, hint="they stay without vectors; restore a backup (`batos restore`)")
                await self._image.system(changing.pass_over, due.damaged, identity, mission="ingest")
            if due.works or not due.damaged:
                return due.works

    async def _away(self, e: BatosError | OSError) -> None:
        why = e.message if isinstance(e, BatosError) else f"vectors cannot be stored: {e.strerror or e}"
        if self._state != "away":
            log.warning("embedder_away", error=why, retry_s=self._settings.embed_retry_s, hint="searches go by words meanwhile")
        self._state, self._why = "away", why
        await asyncio.sleep(self._settings.embed_retry_s)

    async def _round(self, work: list[meaning.Work], embedder: Embedder, identity: str) -> None:
        """Embed these sections; one that cannot be, though the embedder is there, stays without and holds up no other.

        :raises BatosError: where the embedder is away.
        """
        try:
            await self._embed(work, embedder, identity)
        except OSError:
            raise
        except Exception as e:
            if isinstance(e, BatosError):
                await embedder.embed([_PROBE])
            for one in work if len(work) > 1 else []:
                await self._round([one], embedder, identity)
            if len(work) == 1:
                log.error("section_without_vectors", section=work[0].section.number, trace=traceback.format_exc(limit=-4))
                await self._image.system(changing.give_up, work[0], identity, mission="ingest")

    async def _linked(self) -> None:
        """Let texts point at documents that came after them, by their titles."""
        settings = self._settings
        while names := await in_helper(self._image.read, linking.unlinked, settings.embed_sections):
            self._shelver.names.add(name for name in names if name.document)
            view = self._hearer.collection.view()
            found = await in_helper(self._image.read, linking.naming, view, names, settings.link_chunks)
            made = await in_helper(linking.relinked, found, self._shelver)
            for begin in range(0, max(1, len(made)), settings.embed_sections):
                some = made[begin : begin + settings.embed_sections]
                done = names if begin + settings.embed_sections >= len(made) else []
                segment = await self._image.system(linking.keep, done, some, mission="ingest")
                if segment is not None:
                    self._hearer.relinked(segment)

    async def _known(self) -> None:
        """Ask who the embedder is; if it is another than the vectors are from, its own are made beside them."""
        identity = await self._readers.present.identity()
        if str(identity) == self._identity:
            return
        adopted = await self._image.system(changing.adopt, str(identity), identity.dimensions, identity.place, mission="ingest")
        self._identity = str(identity)
        maker = self._hearer.collection.maker
        if adopted is Adopted.SERVES:
            log.info("vectors_from", embedder=self._identity)
            await self._hearer.reload()
        elif maker.identity != self._identity:
            log.info("embedder_changes", embedder=self._identity, serving=maker.identity, hint="searches go on meanwhile")
            self._former_until = 0.0
            await self._former()  # loaded before it is asked
        elif adopted is Adopted.BACK:
            log.info("embedder_back", embedder=self._identity)

    async def _arrived(self) -> bool:
        """Let searches use the present embedder's vectors, once all are there; whether they do."""
        if self._hearer.collection.maker.identity != self._identity:
            if not await self._image.system(changing.arrive, self._identity, mission="ingest"):
                return False
            await self._hearer.reload()
            log.info("embedder_changed", embedder=self._identity)
        await self._readers.let_go()
        return True

    async def _late(self) -> None:
        """Give what came during a change the vectors that searches use meanwhile, if their embedder can be had."""
        while time.monotonic() >= self._former_until:
            work = await self._readable(changing.late, self._hearer.collection.maker.identity)
            former = await self._former() if work else None
            if former is None:
                return
            try:
                await self._round(work, former, self._hearer.collection.maker.identity)
            except (BatosError, OSError) as e:
                self._former_away(e)

    async def _former(self) -> Embedder | None:
        """The embedder that searches' vectors are from, where it is not the present one and can be had."""
        maker = self._hearer.collection.maker
        former = self._readers.former(maker)
        if former is None:
            return None
        try:
            if str(await former.identity()) == maker.identity:
                return former
            self._former_away(EmbedderFailed("its model has other weights by now"))
        except BatosError as e:
            self._former_away(e)
        return None

    def _former_away(self, e: BatosError | OSError) -> None:
        why = e.message if isinstance(e, BatosError) else f"vectors cannot be stored: {e.strerror or e}"
        self._former_until = time.monotonic() + self._settings.embed_retry_s
        if why != self._former_why:
            log.warning("former_embedder_away", error=why, hint="what comes during the change is found by words until its end")
        self._former_why = why

    async def _embed(self, work: list[meaning.Work], embedder: Embedder, identity: str) -> None:
        plans = await in_helper(lambda: [meaning.plan(one, self.limits) for one in work])
        rows = await embedder.embed([text for plan in plans for text in plan.texts])
        if str(await embedder.identity()) != identity:
            return  # another by now: whose these are is not known, and the next round makes them again
        made = await in_helper(self._made, plans, rows)
        kept = await self._image.system(meaning.keep, identity, made, mission="ingest")
        self._hearer.stored(kept.segment, kept.dropped)
        if kept.ids:
            self._hearer.embedded(identity, kept.ids, kept.vectors)

    def _made(self, plans: list[meaning.Plan], rows: Array) -> list[meaning.Made]:
        made, at = [], 0
        for plan in plans:
            made.append(meaning.make(plan, rows[at : at + len(plan.texts)], self._shelver, self.limits))
            at += len(plan.texts)
        return made

    # --- tidying up

    async def purge(self) -> None:
        """Take what was dropped out of the index and the vectors for good."""
        for name in await in_helper(self._image.read, _logs):
            drops = await in_helper(self._image.read, _drops, name)
            if len(drops.ids) < 2:  # one entry is none
                continue
            after: int | None = BEGIN
            while after is not None:
                after = await self._image.system(_purge, name, drops, after, self._settings.purge_rows, mission="ingest")

    async def _tidied(self, merges: int = 0) -> None:
        """Tidy up.

        :param merges: of parts of each log, at most; 0: as many as there are to do, until somebody needs it for something else.
        """
        for name in await in_helper(self._image.read, _logs):
            left = merges or math.inf
            while left > 0 and not (self._more.is_set() and not merges) and await self._image.system(_tidy, name, mission="ingest"):
                left -= 1
        if max(await in_helper(self._image.read, _most_dropped)) > self._settings.dropped_rows:
            await self.purge()
        if self._hearer.collection.dropped > max(self._settings.dropped_rows, self._hearer.collection.size // 4):
            await self._hearer.reload()
        self._tidied_at = time.monotonic()


def loaded(root: Any) -> Collection:
    """All that searches see, with the vectors of the embedder that the image has them of."""
    library = library_of(root)
    return Collection.load(library.text, library.vectors.get(library.embedder))


def _logs(root: Any) -> list[str]:
    """Names of the logs there are: the text's is empty, those of vectors are called by their embedders."""
    return ["", *library_of(root).vectors]


def _log(root: Any, name: str) -> Any:
    library = library_of(root)
    return library.vectors.get(name) if name else library.text


def _most_dropped(root: Any) -> list[int]:
    return [log.dropped() for name in _logs(root) if (log := _log(root, name)) is not None]


def _drops(root: Any, name: str) -> Drops:
    held = _log(root, name)
    return held.drops() if held is not None else Drops(np.empty(0, np.int64), np.empty(0, np.int64), BEGIN)


def _purge(root: Any, name: str, drops: Drops, after: int, rows: int) -> int | None:
    held = _log(root, name)
    return held.purge_some(drops, after, rows) if held is not None else None


def _tidy(root: Any, name: str) -> bool:
    """One merge, if one is due; whether there may be more."""
    held = _log(root, name)
    return held is not None and bool(held.tidy())
