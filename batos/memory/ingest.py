"""Ingest: turn files into documents of the memory.

The queue of paths is stored in the image, so that ingest continues after a `kill -9`. A child process reads each file: one that freezes its
reader, or makes it grow, is refused and does not affect the daemon. Sections are stored in transactions of bounded size. They are known by
their content. So what is already stored, from an interrupted attempt or an earlier version of the file, is neither stored nor embedded
again. The others are cut into chunks. A file that cannot be read is recorded with the reason, and the others go on.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import pathlib
import stat
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import structlog

from batos.concurrency import LoopTurns, in_helper
from batos.config import MIB, Settings
from batos.config.limits import Limits, limit
from batos.errors import BatosError, BatosSignal, Busy, ImageDamaged, ImageError, Unreadable, UnreadableNow
from batos.image.daemon_files import DaemonFiles
from batos.image.living_image import LivingImage
from batos.isolation import ChildStopped, IsolatedChild
from batos.memory import readers
from batos.memory.chunking import ChunkLimits
from batos.memory.drafts import Draft, bounded
from batos.memory.files import File, LeftOut, files_in, read_file, stamp_of
from batos.memory.machines import drop_machine, elsewhere, keep_machine
from batos.memory.records import Section
from batos.memory.section_builder import KnownName, Shelved, Shelver, digest_of
from batos.memory.segments import Segment, build
from batos.memory.store import library_of
from batos.objects import Root

log = structlog.get_logger("batos.memory")
_TEXT = 4  # greatest number of characters from one file, as a multiple of the largest file's bytes: a table repeats its columns in each row
_LOOKED = 100  # files of the queue
_REMEDY = "split it, save it anew with another program, or leave it out"


@dataclass(frozen=True, slots=True)
class IngestLimits(Limits):
    """Limits of the reading of files into the memory."""

    read_s: float = limit(120.0, ge=1, le=86_400)
    """Seconds of processor time for the child process that reads a file. A file that takes longer is refused."""
    read_bytes: int = limit(2048 * MIB, ge=256 * MIB, le=2**40)
    """Bytes of address space for the child process that reads files. A file that needs more is refused."""
    batch_bytes: int = limit(262_144, ge=1024, le=256 * MIB)
    """Bytes of text that one transaction of an ingest stores."""
    queue: int = limit(1_000_000, ge=1, le=100_000_000)
    """Greatest number of files that wait to be read. A request for more is answered `busy`."""
    folder_files: int = limit(100_000, ge=1, le=100_000_000)
    """Greatest number of files that are looked at in one folder with its subfolders."""
    attempts: int = limit(3, ge=1, le=100)
    """Greatest number of attempts at a file during which the daemon dies; then the file is refused."""
    retry_s: float = limit(10.0, ge=0.05, le=86_400)
    """Seconds before an ingest continues after a full disk."""
    refused: int = limit(1000, ge=1, le=1_000_000)
    """Number of refused files whose reason is kept, the newest."""
    watch_s: float = limit(2.0, ge=0.05, le=86_400)
    """Seconds between two looks into the watched folders."""


class Reading:
    """Reads one file at a time. All methods are called on the loop's thread."""

    def __init__(self, settings: Settings) -> None:
        own = IngestLimits.of(settings)
        self._seconds, self._memory, self._chars = own.read_s, own.read_bytes, _TEXT * settings.memory.file_bytes
        self._child = IsolatedChild(readers.__name__, memory=self._memory)
        limits = (settings.memory.file_bytes, self._seconds, self._memory)
        there = [name for name in readers.PACKAGES if find_spec(name) is not None]
        self.able = f"{readers.VERSION} {' '.join(map(str, limits))} {' '.join(there)}"
        """Version of the readers and their limits. When it changes, the daemon tries refused files again."""

    async def read(self, path: str, data: bytes) -> Draft:
        """Return the draft of a file.

        :raises Unreadable: if no reader takes the file, it holds too much, or reading takes too long or too much memory.
        """
        try:
            told = await self._child.ask([pathlib.PurePath(path).name, self._chars], data, seconds=self._seconds)
        except ChildStopped as e:
            if e.reason == "fault":
                log.error("ingest_failed", path=path, trace=e.trace)
                raise BatosError(f"{e.detail}; this is a fault in BAT OS, please report it") from None
            why = {
                "time": f"reading it took more than {self._seconds:g} s of processor time",
                "memory": f"reading it took more than {self._memory} bytes of memory",
            }.get(e.reason, f"its reader died {e.detail}, though it may have {self._memory} bytes of memory")
            raise Unreadable(f"{why}: {_REMEDY}") from None
        return await in_helper(readers.drafted, told)

    @property
    def running(self) -> bool:
        """Return True if there is a child process."""
        return self._child.pid is not None

    async def close(self) -> None:
        """End the child, even in the middle of its work."""
        await self._child.close()


class KnownSections(NamedTuple):
    """Sections that the memory already has from a source."""

    document: int
    digest: bytes
    complete: bool
    sections: tuple[Section, ...]
    elsewhere: int
    """Number of a document with the same content from another source; 0 if there is none."""


class Batch(NamedTuple):
    """Some sections that one transaction stores, with the index entries of their chunks."""

    shelved: list[Shelved]
    segment: Segment | None
    sections: list[int]
    """All sections that the document has after this batch. Until the last batch, sections of its earlier version are among them."""
    last: bool


class Batches:
    """The new sections of a draft, some at a time. Used by one thread after the other."""

    def __init__(
        self, draft: Draft, known: KnownSections, number: int, shelver: Shelver, settings: Settings, going: Callable[[], object]
    ) -> None:
        """
        :param number: number of the document.
        :param going: called before each section; what it raises ends it.
        """
        self._going = going
        self.draft, self.number, self._shelver = draft, number, shelver
        self._size = IngestLimits.of(settings).batch_bytes
        self._parts = bounded(draft.parts, ChunkLimits.of(settings).section_chars)
        self._there: dict[bytes, deque[int]] = {}
        for section in known.sections:
            self._there.setdefault(section.digest, deque()).append(section.number)
        self._old = [section.number for section in known.sections]
        self._now: list[int] = []
        self._days: Counter[int] = Counter()
        self._speakers: dict[str, None] = {}
        self._turns = LoopTurns()

    def next(self) -> Batch:
        """Return the next sections; the last batch may have none.

        :raises Unreadable: if there is not a word in all of the draft.
        """
        shelved: list[Shelved] = []
        size, last = 0, True
        for part in self._parts:
            self._going()
            self._days[part.day] += 1
            self._speakers |= dict.fromkeys(turn.speaker for turn in part.turns if turn.speaker)
            same = self._there.get(digest_of(part))
            if same:
                self._now.append(same.popleft())
                continue
            shelved.append(self._shelver.shelve(part, document=self.number, kind=self.draft.kind, day=self.draft.day))
            self._now.append(shelved[-1].shelf.section.number)
            self._turns.take()
            size += len(part.text)
            if size >= self._size:
                last = False
                break
        segment = build(entry for each in shelved for entry in each.entries) if shelved else None
        if not self._now:
            raise Unreadable("it has no text")
        kept = set(self._now)
        rest = [] if last else [number for number in self._old if number not in kept]
        return Batch(shelved, segment, self._now + rest, last)

    def facts(self, file: File) -> dict[str, Any]:
        """Return the facts of the document, once all of it was seen."""
        draft = self.draft
        days = tuple(sorted(day for day in {*self._days, draft.day} if day))
        return {
            "title": draft.title, "kind": draft.kind, "source": file.path, "sources": (file.path,), "tags": draft.tags,
            "day": draft.day or (days[0] if days else 0), "days": days, "speakers": tuple(self._speakers),
            "digest": file.digest, "complete": True, "doubts": draft.told,
        }  # fmt: skip


ADDED, UPDATED, UNCHANGED, REFUSED, FORGOTTEN = "added", "updated", "unchanged", "refused", "forgotten"
SHUT, PASSING = "shut", "passing"
"""Reasons of refused files that may become readable without a change: their permissions, or an error of the disk."""
Facts = dict[str, Any]
Stored = Callable[[Segment | None, list[int]], object]
"""Receives the changes of a transaction: index entries of new chunks, and the numbers of removed chunks."""


class IngestStopped(BatosSignal):
    """The daemon stops; the file waits for the next start."""


class _Prepared(NamedTuple):
    """A file with its first batch; none for one whose content is there already."""

    file: File
    known: KnownSections
    batches: Batches | None = None
    batch: Batch | None = None


class Ingest:
    """Reader of the queue, one file at a time. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, settings: Settings, shelver: Shelver, stored: Stored) -> None:
        """
        :param stored: hears of each transaction, once it is durable.
        """
        self._image, self._settings, self._shelver, self._stored = image, settings, shelver, stored
        self._limits = IngestLimits.of(settings)
        self.reading = Reading(settings)
        self.premises = DaemonFiles(settings)
        """Files of the daemon itself, which are never read."""
        self.able = self.reading.able
        """Version of the readers and their limits; see `Reading`."""
        self._listeners: list[Callable[[Facts], object]] = []
        self._more = asyncio.Event()
        self.alone = asyncio.Lock()
        """Held from the start of a transaction until searches know its result: under this lock, library and search index agree."""
        self._begun: set[str] = set()
        self._stopping = False
        self.under_way = ""
        """Path of the file that is being read; empty if there is none."""
        self.trouble = ""
        """Reason why the ingest is stopped; empty if it runs."""

    # --- requests

    async def ask(self, paths: Iterable[str], exclude: Sequence[str] = (), left: LeftOut | None = None) -> tuple[list[str], list[Facts]]:
        """Put files, and the files of folders, into the queue. Return the files, once that is durable, and the refused paths with reasons.

        A path is refused if it is missing or the daemon's own, also inside a given folder, or if a folder has too many files.

        :param exclude: ignore patterns for folders.
        :param left: receives the content of folders that is not read.
        :raises Unreadable: if a path is not absolute; then nothing is queued.
        :raises Busy: if the queue is full.
        """
        found, refused = await in_helper(self._files, list(paths), exclude, left)
        if found:
            await self._image.system(queue_files, found, IngestLimits.of(self._settings).queue, mission="ingest")
            self._more.set()
        return found, refused

    def look(self, root: Root) -> None:
        """Go on if files of this machine wait which another kernel queued."""
        if not self.under_way and any(not elsewhere(root, path) for path in itertools.islice(library_of(root).queue, _LOOKED)):
            self._more.set()

    def listen(self, listener: Callable[[Facts], object]) -> Callable[[], None]:
        """Call `listener` for every file with `path`, `state`, `chunks`, and `code` and `message` if it was refused. Return a function
        that ends this.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def forget(self, source: str) -> Facts:
        """Remove a document from the memory, from the index and from the vectors.

        :raises UnknownSource: if there is none from there.
        """
        async with self.alone:
            told, dropped = await self._image.system(_forget, source, mission="forget")
            self._stored(None, dropped)
        self._tell(path=source, state=FORGOTTEN, chunks=len(dropped))
        return {**told, "chunks": len(dropped)}

    async def vanished(self, path: str) -> None:
        """Forget the document of a file that no longer exists."""
        async with self.alone:
            dropped = await self._image.system(_vanished, path, mission="ingest")
            self._stored(None, dropped)
        log.info("forgotten", path=path, chunks=len(dropped))
        self._tell(path=path, state=FORGOTTEN, chunks=len(dropped))

    def _files(self, paths: list[str], exclude: Sequence[str], left: LeftOut | None) -> tuple[list[str], list[Facts]]:
        found: dict[str, None] = {}
        refused: list[Facts] = []
        skipped: dict[str, str] = {}
        for path in paths:
            if not os.path.isabs(path):
                raise Unreadable(f"{path!r} is not an absolute path; write one that begins with /")
        for path in dict.fromkeys(paths):
            try:
                if stat.S_ISDIR(pathlib.Path(path).stat().st_mode):
                    most = self._limits.folder_files
                    found |= dict.fromkeys(files_in(path, most, self.premises, exclude=exclude, skipped=skipped, left=left))
                elif why := self.premises.why_not(os.path.realpath(path)):
                    raise Unreadable(why)
                else:
                    found[os.path.normpath(path)] = None
            except OSError as e:
                refused.append({"path": path, **Unreadable(f"it cannot be read: {e.strerror}").to_wire()})
            except Unreadable as e:
                refused.append({"path": path, **e.to_wire()})
        refused += ({"path": path, **Unreadable(why).to_wire()} for path, why in skipped.items() if path not in paths)
        return list(found), refused

    # --- the work

    async def run(self) -> None:
        """Read the queued files, and files that are queued later, until cancelled. It may be run again then."""
        self._stopping = False
        try:
            await self._go_on()
        finally:
            await self.reading.close()

    async def _go_on(self) -> None:
        while True:
            self._more.clear()
            path, attempts = self._image.read(next_file)
            if path is None:
                await self._more.wait()
                continue
            try:
                self.under_way = path
                await self._one(path, attempts)
                self._begun.discard(path)
                self.trouble = ""
            except (IngestStopped, asyncio.CancelledError) as e:
                if path in self._begun:
                    self._begun.discard(path)
                    self._image.later(take_back_attempt, path)
                if isinstance(e, IngestStopped):
                    return
                raise
            except (OSError, BatosError) as e:  # the commit failed: earlier batches stay, and the file stays in the queue
                self.trouble = _trouble(e)
                log.warning("ingest_held_up", path=path, error=self.trouble, retry_s=self._limits.retry_s)
                self._tell(path=path, state="waiting", message=self.trouble)
                await asyncio.sleep(self._limits.retry_s)
            finally:
                self.under_way = ""

    async def _one(self, path: str, attempts: int) -> None:
        try:
            if path not in self._begun:  # the file caused no kill: this process started it again because the disk was full
                if attempts >= IngestLimits.of(self._settings).attempts:
                    raise Unreadable(f"the daemon died {attempts} times while it was read (setting ingest_attempts)")
                self._image.later(begin_file, path)
                self._begun.add(path)
            told = await self._read(path)
        except OSError:
            raise
        except Exception as e:  # a defect here, or damage in one file's data, must not block the other files
            if isinstance(e, ImageError) and not isinstance(e, ImageDamaged):
                raise
            error = Unreadable("there is not enough memory to read it") if isinstance(e, MemoryError) else e
            if not isinstance(error, BatosError):
                # as text: a traceback with variables would load objects whose connection is closed
                log.error("ingest_failed", path=path, trace=traceback.format_exc(limit=-4))
                error = BatosError(f"{type(e).__name__}: {e}; this is a fault in BAT OS, please report it")
            cause = (SHUT if error.shut else PASSING) if isinstance(error, UnreadableNow) else self.able
            await self._image.system(_refuse, path, stamp_of(path), error.to_wire(), cause, self._limits.refused, mission="ingest")
            log.warning("ingest_refused", path=path, error=error.message)
            self._tell(path=path, state=REFUSED, chunks=0, **error.to_wire())
            return
        log.info("ingested", **told)
        self._tell(**told)

    async def _read(self, path: str) -> Facts:
        """Read a file and store it. Return the facts to report."""
        file = await in_helper(read_file, path, self._settings.memory.file_bytes, self.premises)
        draft: Draft | None = None
        while True:
            if draft is None and not self._is_known(self._image.read(known_sections, file.path, file.digest), file):
                draft = await self.reading.read(file.path, file.data)  # before the lock is taken: reading may take long
                file = file._replace(data=b"")  # free the memory: it may be large
            async with self.alone:
                known = self._image.read(known_sections, file.path, file.digest)
                if self._is_known(known, file):
                    prepared = _Prepared(file, known)
                elif draft is None:  # a mission forgot the file meanwhile
                    continue
                else:
                    prepared = await in_helper(self._prepare, file, known, draft)
                told = await self._store(prepared)
            if told is not None:
                return {**told, **({"doubts": list(draft.told)} if draft is not None and draft.told else {})}

    @staticmethod
    def _is_known(known: KnownSections, file: File) -> bool:
        return bool(known.elsewhere) or (known.complete and known.digest == file.digest)

    def _prepare(self, file: File, known: KnownSections, draft: Draft) -> _Prepared:
        """Return the first batch of a file that is new or changed. Runs in a helper thread."""
        self._shelver.names.add({KnownName(turn.speaker) for part in draft.parts for turn in part.turns if turn.speaker})
        number = known.document or self._shelver.numbers.take()
        batches = Batches(draft, known, number, self._shelver, self._settings, self._going)
        return _Prepared(file, known, batches, batches.next())

    def stop(self) -> None:
        """Stop a helper thread that reads a long file; the end of the process waits for it."""
        self._stopping = True

    def _going(self) -> None:
        if self._stopping:
            raise IngestStopped

    async def _store(self, prepared: _Prepared) -> Facts | None:
        """Store a prepared file. Return None if the memory has changed, so that the file must be prepared again."""
        file, known, batches, batch = prepared
        if batches is None or batch is None:
            change = (_alias, known.elsewhere, file.path, file.stamp) if known.elsewhere else (_done, file.path, file.stamp)
            left = await self._image.system(*change, mission="ingest")
            if left is None:
                return None
            self._stored(None, left)
            return {"path": file.path, "state": UNCHANGED, "chunks": 0}
        chunks = gone = 0
        while True:
            facts = batches.facts(file) if batch.last else {"sources": (file.path,), "source": file.path}
            shelves = [shelved.shelf for shelved in batch.shelved]
            stored = (store_batch, file[:2], batches.number, facts, shelves, batch.segment, batch.sections, batch.last)
            dropped = await self._image.system(*stored, mission="ingest")
            if dropped is None:
                return None
            self._stored(batch.segment, dropped)
            chunks, gone = chunks + sum(len(shelf.passages) for shelf in shelves), gone + len(dropped)
            if batch.last:
                break
            self._tell(path=file.path, state="reading", chunks=chunks)
            batch = await in_helper(batches.next)
        told = {"path": file.path, "state": UPDATED if known.complete else ADDED, "kind": batches.draft.kind}
        return {**told, "chunks": chunks, "dropped": gone, "document": batches.number}

    def _tell(self, **facts: Any) -> None:
        for listener in tuple(self._listeners):
            listener(facts)


def _trouble(e: OSError | BatosError) -> str:
    if isinstance(e, BatosError):
        return e.message
    return f"the disk is full ({e.strerror})" if e.errno == errno.ENOSPC else f"cannot write: {e.strerror or e}"


# --- reads and system transactions


def next_file(root: Root) -> tuple[str | None, int]:
    """Return a file of this machine that waits, and the attempts at it."""
    queue = library_of(root).queue
    path = next((path for path in queue if not elsewhere(root, path)), None)
    return path, 0 if path is None else queue[path]


def known_sections(root: Root, path: str, digest: bytes) -> KnownSections:
    """Read the sections that the memory holds of a file.

    :param digest: digest of the file's present content.
    """
    library = library_of(root)
    elsewhere = library.by_content.get(digest, 0)
    number = library.by_source.get(path, 0)
    if not number:
        return KnownSections(0, b"", False, (), elsewhere)
    document = library.documents[number]
    if len(document.sources) > 1 and document.digest != digest:  # other sources of the document stay as they are
        return KnownSections(0, b"", False, (), elsewhere)
    return KnownSections(
        number, document.digest, document.complete, tuple(library.sections_of(document)), elsewhere if elsewhere != number else 0
    )


def queue_files(root: Root, paths: list[str], most: int) -> None:
    """Queue files, durably.

    :raises Busy: if more than `most` would wait.
    """
    library = library_of(root)
    if len(library.queue) + len(paths) > most:
        raise Busy(f"{len(library.queue)} files wait to be read already; ask again later")
    for path in paths:
        library.queue.setdefault(path, 0)  # a watcher asks again after a restart; the count of attempts goes on
    keep_machine(root, paths)


def ended_files(root: Root, paths: Iterable[str]) -> list[Facts]:
    """Return what became of those of some files that wait no more, as a listener hears it (`Ingest.listen`). A document that the memory
    has is said to be added: nothing tells whether it had an earlier version.
    """
    library = library_of(root)
    ended: list[Facts] = []
    for path in paths:
        if path in library.queue:
            continue
        if (refused := library.refused.get(path)) is not None:
            ended.append({"path": path, "state": REFUSED, "chunks": 0, "code": refused[0], "message": refused[1]})
        elif (number := library.by_source.get(path)) is None:
            ended.append({"path": path, "state": FORGOTTEN, "chunks": 0})
        else:
            chunks = sum(section.size for section in library.sections_of(library.documents[number]))
            ended.append({"path": path, "state": ADDED, "chunks": chunks})
    return ended


def begin_file(root: Root, path: str) -> None:
    """Count an attempt at a file, so that one which kills the daemon does not do so for ever."""
    queue = library_of(root).queue
    if path in queue:
        queue[path] += 1


def take_back_attempt(root: Root, path: str) -> None:
    """Take back an attempt at a file that was ended in order."""
    queue = library_of(root).queue
    if queue.get(path, 0) > 0:
        queue[path] -= 1


def _done(root: Root, path: str, stamp: tuple[int, int]) -> list[int]:
    library = library_of(root)
    library.queue.pop(path, None)
    drop_machine(root, path)
    library.refused.pop(path, None)
    if library.stamps.get(path) != stamp and _followed(library, path):
        library.stamps[path] = stamp
    return []


def _followed(library: Any, path: str) -> bool:
    """Return True if a path is in a watched folder: only there the time of the last look matters."""
    return any(path.startswith(folder.rstrip(os.sep) + os.sep) for folder in library.watched)


def _alias(root: Root, number: int, path: str, stamp: tuple[int, int]) -> list[int] | None:
    """Register another path of a document. Return the chunks of the document that this path had before; None if the document is gone
    meanwhile, and nothing was changed."""
    library = library_of(root)
    if (document := library.documents.get(number)) is None:
        return None  # another kernel has read the file anew, perhaps with this path, too
    if path in document.sources:
        return _done(root, path, stamp)
    dropped = _leave(library, path)
    library.rename(document, (*document.sources, path))
    return dropped + _done(root, path, stamp)


def store_batch(
    root: Root,
    file: tuple[str, tuple[int, int]],
    number: int,
    facts: Facts,
    shelves: list[Any],
    segment: Segment | None,
    sections: list[int],
    last: bool,
) -> list[int] | None:
    """Store some sections of a file; the file is done with the last of them.

    :param file: its path, and its time and size.
    :param number: number of the file's document.
    :param facts: facts of the file's document.
    :param sections: all that the document has with these.
    :returns: the chunks that the memory let go of; None if the document or some of `sections` are gone meanwhile, and nothing was stored.
    """
    path, stamp = file
    library = library_of(root)
    new = {shelf.section.number for shelf in shelves}
    document = library.documents.get(number)
    if document is not None and path not in document.sources:
        return None  # it was left to another path of the same content meanwhile
    if not all(section in new or section in library.sections for section in sections):
        return None  # a mission forgot the document meanwhile, or the curator archived a part of it
    dropped = _leave(library, path) if library.by_source.get(path, number) != number else []
    dropped += library.put(root, number, facts, shelves, segment, sections)
    if last:
        _done(root, path, stamp)
    return dropped


def _leave(library: Any, path: str) -> list[int]:
    """Remove a path from its document, and the document if it has no other path."""
    number = library.by_source.get(path)
    library.stamps.pop(path, None)
    if number is None:
        return []
    document = library.documents[number]
    rest = tuple(source for source in document.sources if source != path)
    if not rest:
        return library.forget(document)  # type: ignore[no-any-return]
    library.rename(document, rest)
    return []


def _forget(root: Root, source: str) -> tuple[Facts, list[int]]:
    library = library_of(root)
    document = library.document(source)
    told = {"source": source, "title": document.title, "kept": [other for other in document.sources if other != source]}
    stamp, dropped = library.stamps.get(source), _leave(library, source)
    if stamp is not None and _followed(library, source):
        library.stamps[source] = stamp  # the document stays forgotten until its file changes
    return told, dropped


def _vanished(root: Root, path: str) -> list[int]:
    library = library_of(root)
    library.refused.pop(path, None)
    return _leave(library, path)


def _refuse(root: Root, path: str, stamp: tuple[int, int], error: Facts, cause: str, most: int) -> None:
    library = library_of(root)
    library.queue.pop(path, None)
    drop_machine(root, path)
    library.refused[path] = (error["code"], error["message"], round(time.time(), 3), cause)
    library.stamps[path] = stamp
    while len(library.refused) > most:
        del library.refused[min(library.refused, key=lambda known: library.refused[known][2])]


def files_known(root: Root, folder: str) -> tuple[dict[str, tuple[int, int]], set[str], dict[str, tuple[str, float]]]:
    """Return the files of a folder in three parts:

    * those that were read or refused, with the time and size at that moment;
    * those that wait;
    * for each refused file the reason (`SHUT`, `PASSING`, or the version of the readers; empty from an early BAT OS) and the time.
    """
    library = library_of(root)
    begin, end = folder.rstrip(os.sep) + os.sep, folder.rstrip(os.sep) + chr(ord(os.sep) + 1)
    stamps, queue, refused = (tree.items(begin, end, excludemax=True) for tree in (library.stamps, library.queue, library.refused))
    return dict(stamps), {path for path, _ in queue}, {path: (why[3] if len(why) > 3 else "", why[2]) for path, why in refused}
