"""Ingest: files become documents of the memory.

What is to be read stands in a queue in the image, so that it goes on after a `kill -9`. A file is read in a helper thread and
stored in transactions of bounded size; its sections are known by their content, so that what is there already, from an attempt
that was cut short or from an earlier version of the file, is neither stored nor embedded again. A file that cannot be read is
noted with the reason, and the others go on.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import pathlib
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import structlog

from batos.config import Settings
from batos.errors import BatosError, Busy, ImageError, Unreadable
from batos.image.living import LivingImage
from batos.image.turns import Turns, in_helper
from batos.memory import readers
from batos.memory.drafts import Draft, bounded
from batos.memory.library import Section, library_of
from batos.memory.naming import Name
from batos.memory.segments import Segment, build
from batos.memory.shelving import Shelved, Shelver, digest_of

log = structlog.get_logger("batos.memory")

ADDED, UPDATED, UNCHANGED, REFUSED, FORGOTTEN = "added", "updated", "unchanged", "refused", "forgotten"
Facts = dict[str, Any]
Stored = Callable[[Segment | None, list[int]], object]
"""Hears what a transaction has stored: the index entries of new chunks, the numbers of those that are gone."""


class File(NamedTuple):
    """A file as it was read: its path, its time (ns) and size, the digest of its bytes, the bytes."""

    path: str
    stamp: tuple[int, int]
    digest: bytes
    data: bytes


class Known(NamedTuple):
    """What the memory has from a source already."""

    document: int
    digest: bytes
    complete: bool
    sections: tuple[Section, ...]
    elsewhere: int
    """Number of a document with the same content from another source; 0 if there is none."""


class Ingest:
    """Reads what is in the queue, one file at a time. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, settings: Settings, shelver: Shelver, numbers: Callable[[], int], stored: Stored) -> None:
        """
        :param numbers: answers a number that no document has.
        :param stored: hears of each transaction, once it is durable.
        """
        self._image, self._settings, self._shelver, self._numbers, self._stored = image, settings, shelver, numbers, stored
        self._listeners: list[Callable[[Facts], object]] = []
        self._more = asyncio.Event()
        self._alone = asyncio.Lock()
        self._begun: set[str] = set()
        self.under_way = ""
        """The file that is being read; empty while there is none."""
        self.trouble = ""
        """Why nothing goes on, while that is so."""

    # --- asking for it

    async def ask(self, paths: Iterable[str]) -> list[str]:
        """Put files into the queue, of folders those in them; the files, once that is durable.

        :raises Unreadable: for a path that is not there, or a folder with too many files; nothing is put in then.
        :raises Busy: if the queue is full.
        """
        found = await in_helper(self._files, list(paths))
        await self._image.system(_queue, found, self._settings.ingest_queue, mission="ingest")
        self._more.set()
        return found

    def listen(self, listener: Callable[[Facts], object]) -> Callable[[], None]:
        """Have `listener` hear of every file: `path`, `state`, `chunks`, and `code` and `message` if it was refused. What ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def forget(self, source: str) -> Facts:
        """Take a document out of the memory, also out of the index and the vectors.

        :raises UnknownSource: if there is none from there.
        """
        async with self._alone:
            told, dropped = await self._image.system(_forget, source, mission="forget")
        self._changed(None, dropped)
        self._tell(path=source, state=FORGOTTEN, chunks=len(dropped))
        return {**told, "chunks": len(dropped)}

    async def vanished(self, path: str) -> None:
        """Forget what was read from a file that is no more."""
        async with self._alone:
            dropped = await self._image.system(_vanished, path, mission="ingest")
        self._changed(None, dropped)
        log.info("forgotten", path=path, chunks=len(dropped))
        self._tell(path=path, state=FORGOTTEN, chunks=len(dropped))

    def _files(self, paths: list[str]) -> list[str]:
        found: dict[str, None] = {}
        for path in paths:
            if not os.path.isabs(path):
                raise Unreadable(f"{path!r} is no absolute path; the daemon does not know which folder you are in")
            try:
                kind = pathlib.Path(path).stat()
            except OSError as e:
                raise Unreadable(f"{path} cannot be read: {e.strerror}") from None
            folder = stat.S_ISDIR(kind.st_mode)
            found |= dict.fromkeys(files_in(path, self._settings.ingest_folder_files) if folder else [os.path.normpath(path)])
        return list(found)

    # --- doing it

    async def run(self) -> None:
        """Read what is in the queue, and what comes into it, until cancelled."""
        while True:
            self._more.clear()
            path = self._image.read(_next)
            if path is None:
                await self._more.wait()
                continue
            try:
                async with self._alone:
                    self.under_way = path
                    await self._one(path)
                self._begun.discard(path)
                self.trouble = ""
            except OSError as e:  # out of the commit: what was stored before stays, the file stays in the queue
                self.trouble = f"the disk is full ({e.strerror})" if e.errno == errno.ENOSPC else f"cannot write: {e.strerror or e}"
                log.warning("ingest_held_up", path=path, error=self.trouble, retry_s=self._settings.ingest_retry_s)
                self._tell(path=path, state="waiting", message=self.trouble)
                await asyncio.sleep(self._settings.ingest_retry_s)
            finally:
                self.under_way = ""

    async def _one(self, path: str) -> None:
        try:
            if path not in self._begun:  # what this process began anew, because the disk was full, did not kill it
                await self._image.system(_begin, path, self._settings.ingest_attempts, mission="ingest")
                self._begun.add(path)
            file = await in_helper(_read, path, self._settings.ingest_file_bytes)
            told = await self._store(file)
        except (OSError, ImageError):
            raise
        except Exception as e:  # a fault of ours in one file must not hold up the others
            error = Unreadable("there is not enough memory to read it") if isinstance(e, MemoryError) else e
            if not isinstance(error, BatosError):
                log.exception("ingest_failed", path=path)
                error = BatosError(f"{type(e).__name__}: {e}; this is a fault in BAT OS, please report it")
            await self._image.system(_refuse, path, _stamp_of(path), error.to_wire(), self._settings.refused_files, mission="ingest")
            log.warning("ingest_refused", path=path, error=error.message)
            self._tell(path=path, state=REFUSED, chunks=0, **error.to_wire())
            return
        log.info("ingested", **told)
        self._tell(**told)

    async def _store(self, file: File) -> Facts:
        known = self._image.read(_known, file.path, file.digest)
        if known.complete and known.digest == file.digest:
            await self._image.system(_done, file.path, file.stamp, mission="ingest")
            return {"path": file.path, "state": UNCHANGED, "chunks": 0}
        if known.elsewhere:
            dropped = await self._image.system(_alias, known.elsewhere, file.path, file.stamp, mission="ingest")
            self._changed(None, dropped)
            return {"path": file.path, "state": UNCHANGED, "chunks": 0, "same_as": known.elsewhere}
        draft = await in_helper(readers.read, file.path, file.data)
        self._shelver.names.add({Name(turn.speaker) for part in draft.parts for turn in part.turns if turn.speaker})
        number = known.document or self._numbers()
        chunks = dropped_chunks = 0
        batches = _Batches(draft, known, number, self._shelver, self._settings)
        while True:
            batch = await in_helper(batches.next)
            facts = batches.facts(file) if batch.last else {"sources": (file.path,), "source": file.path}
            shelves = [shelved.shelf for shelved in batch.shelved]
            stored = (_put, file[:2], number, facts, shelves, batch.segment, batch.sections, batch.last)
            dropped, first = await self._image.system(*stored, mission="ingest")
            self._changed(batch.segment, dropped)
            chunks += sum(len(shelf.passages) for shelf in shelves)
            dropped_chunks += len(dropped)
            if batch.last:
                self._shelver.names.add([Name(draft.title, number, first)])
                break
            self._tell(path=file.path, state="reading", chunks=chunks)
        state = UPDATED if known.complete else ADDED
        return {"path": file.path, "state": state, "kind": draft.kind, "chunks": chunks, "dropped": dropped_chunks, "document": number}

    def _changed(self, segment: Segment | None, dropped: list[int]) -> None:
        self._shelver.names.drop(dropped)
        self._stored(segment, dropped)

    def _tell(self, **facts: Any) -> None:
        for listener in tuple(self._listeners):
            listener(facts)


class _Batch(NamedTuple):
    shelved: list[Shelved]
    segment: Segment | None
    sections: list[int]
    """All sections that the document has with this batch; to the last one, those of its earlier version are among them."""
    last: bool


class _Batches:
    """The new sections of a draft, some at a time. Used by one thread after the other."""

    def __init__(self, draft: Draft, known: Known, number: int, shelver: Shelver, settings: Settings) -> None:
        self._draft, self._number, self._shelver = draft, number, shelver
        self._size = settings.ingest_batch_bytes
        self._parts = bounded(draft.parts, settings.ingest_section_chars)
        self._there: dict[bytes, deque[int]] = {}
        for section in known.sections:
            self._there.setdefault(section.digest, deque()).append(section.number)
        self._old = [section.number for section in known.sections]
        self._now: list[int] = []
        self._days: Counter[int] = Counter()
        self._speakers: dict[str, None] = {}
        self._turns = Turns()

    def next(self) -> _Batch:
        """The next sections; the last batch may have none."""
        shelved: list[Shelved] = []
        size, last = 0, True
        for part in self._parts:
            self._days[part.day] += 1
            self._speakers |= dict.fromkeys(turn.speaker for turn in part.turns if turn.speaker)
            same = self._there.get(digest_of(part))
            if same:
                self._now.append(same.popleft())
                continue
            shelved.append(self._shelver.shelve(part, document=self._number, kind=self._draft.kind, day=self._draft.day))
            self._now.append(shelved[-1].shelf.section.number)
            self._turns.take()
            size += len(part.text)
            if size >= self._size:
                last = False
                break
        segment = build(entry for each in shelved for entry in each.entries) if shelved else None
        kept = set(self._now)
        rest = [] if last else [number for number in self._old if number not in kept]
        return _Batch(shelved, segment, self._now + rest, last)

    def facts(self, file: File) -> Facts:
        """What is known of the document once all of it was seen."""
        draft = self._draft
        days = tuple(sorted(day for day in {*self._days, draft.day} if day))
        return {
            "title": draft.title, "kind": draft.kind, "source": file.path, "sources": (file.path,), "tags": draft.tags,
            "day": draft.day or (days[0] if days else 0), "days": days, "speakers": tuple(self._speakers),
            "digest": file.digest, "complete": True,
        }  # fmt: skip


# --- files


def files_in(folder: str, most: int) -> list[str]:
    """The files of a folder and those in it that look like texts, in order; hidden ones and links are left out.

    :raises Unreadable: if the folder cannot be read, or there are too many files.
    """
    found: list[str] = []

    def failed(e: OSError) -> None:
        if e.filename == folder:
            raise Unreadable(f"the folder {folder} cannot be read: {e.strerror}")

    for place, folders, names in os.walk(folder, onerror=failed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.startswith(".") and pathlib.PurePath(name).suffix.lower() in readers.SUFFIXES and not os.path.islink(path):
                found.append(path)
            if len(found) > most:
                raise Unreadable(f"there are more than {most} files in {folder} (setting ingest_folder_files); name folders in it")
    return found


def _read(path: str, largest: int) -> File:
    """
    :raises Unreadable: for what is no file, too large, away, or not ours to read.
    """
    try:
        path.encode()
        with open(path, "rb", opener=_opened) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise Unreadable("it is no file")
            if about.st_size > largest:
                raise Unreadable(f"it has {about.st_size} bytes; at most {largest} are read (setting ingest_file_bytes): split it")
            data = file.read(largest + 1)
    except UnicodeEncodeError:
        raise Unreadable("its name is no UTF-8; rename it") from None
    except OSError as e:
        raise Unreadable(f"it cannot be read: {e.strerror}") from None
    if len(data) > largest:
        raise Unreadable(f"it grew past {largest} bytes while it was read (setting ingest_file_bytes)")
    if not data.strip():
        raise Unreadable("it is empty")
    return File(path, (about.st_mtime_ns, about.st_size), hashlib.sha256(data).digest(), data)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for somebody to write


def _stamp_of(path: str) -> tuple[int, int]:
    try:
        about = pathlib.Path(path).stat()
    except (OSError, ValueError):
        return 0, 0
    return about.st_mtime_ns, about.st_size


# --- reads and system transactions


def _next(root: Any) -> str | None:
    queue = library_of(root).queue
    return queue.minKey() if queue else None


def _known(root: Any, path: str, digest: bytes) -> Known:
    library = library_of(root)
    elsewhere = library.by_content.get(digest, 0)
    number = library.by_source.get(path, 0)
    if not number:
        return Known(0, b"", False, (), elsewhere)
    document = library.documents[number]
    if len(document.sources) > 1 and document.digest != digest:  # the others that share it stay as they are
        return Known(0, b"", False, (), elsewhere)
    return Known(number, document.digest, document.complete, tuple(library.sections_of(document)), elsewhere if elsewhere != number else 0)


def _queue(root: Any, paths: list[str], most: int) -> None:
    library = library_of(root)
    if len(library.queue) + len(paths) > most:
        raise Busy(f"{len(library.queue)} files wait to be read already (setting ingest_queue); ask again later")
    library.queue.update(dict.fromkeys(paths, 0))


def _begin(root: Any, path: str, most: int) -> None:
    """Count an attempt at a file, so that one which kills the daemon does not do so for ever.

    :raises Unreadable: past the limit.
    """
    queue = library_of(root).queue
    if queue.get(path, 0) >= most:
        raise Unreadable(f"the daemon died {most} times while it was read (setting ingest_attempts); it is left out until it changes")
    queue[path] = queue.get(path, 0) + 1


def _done(root: Any, path: str, stamp: tuple[int, int]) -> None:
    library = library_of(root)
    library.queue.pop(path, None)
    library.refused.pop(path, None)
    if library.stamps.get(path) != stamp:
        library.stamps[path] = stamp


def _alias(root: Any, number: int, path: str, stamp: tuple[int, int]) -> list[int]:
    """Note that a document is found at another path, too; the chunks of what was there before."""
    library = library_of(root)
    dropped = _leave(library, path)
    document = library.documents.get(number)
    if document is not None:
        library.rename(document, (*document.sources, path))
        _done(root, path, stamp)
    return dropped


def _put(
    root: Any,
    file: tuple[str, tuple[int, int]],
    number: int,
    facts: Facts,
    shelves: list[Any],
    segment: Segment | None,
    sections: list[int],
    last: bool,
) -> tuple[list[int], int]:
    path, stamp = file
    library = library_of(root)
    dropped = _leave(library, path) if library.by_source.get(path, number) != number else []
    dropped += library.put(root, number, facts, shelves, segment, sections)
    if last:
        _done(root, path, stamp)
    return dropped, library.section(sections[0]).first


def _leave(library: Any, path: str) -> list[int]:
    """Take a path away from the document it belongs to, and that with it if it has no other."""
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


def _forget(root: Any, source: str) -> tuple[Facts, list[int]]:
    library = library_of(root)
    document = library.document(source)
    told = {"source": source, "title": document.title, "kept": [other for other in document.sources if other != source]}
    return told, _leave(library, source)


def _vanished(root: Any, path: str) -> list[int]:
    library = library_of(root)
    library.refused.pop(path, None)
    return _leave(library, path)


def _refuse(root: Any, path: str, stamp: tuple[int, int], error: Facts, most: int) -> None:
    library = library_of(root)
    library.queue.pop(path, None)
    library.refused[path] = (error["code"], error["message"], round(time.time(), 3))
    library.stamps[path] = stamp
    while len(library.refused) > most:
        del library.refused[min(library.refused, key=lambda known: library.refused[known][2])]


def files_known(root: Any, folder: str) -> dict[str, tuple[int, int]]:
    """Every file of a folder that was read or refused, with its time and size then."""
    begin, end = folder.rstrip(os.sep) + os.sep, folder.rstrip(os.sep) + chr(ord(os.sep) + 1)
    return dict(library_of(root).stamps.items(begin, end, excludemax=True))
