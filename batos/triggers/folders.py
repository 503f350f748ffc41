"""Watched folders in the image whose files become missions: objects under `lobby.folders`.

The memory reads the files (`batos.memory.folder_watcher`), also new versions of them, and waits for those that are being written. A
trigger holds for each file of its folder which content is settled: it became a mission, or it was there before. A file is settled in the
transaction that accepts its mission, and the mission's id comes from folder, path and content. So no kill and no restart makes two missions
of one content, or none.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from BTrees.OOBTree import OOBTree

from batos.config import nearest
from batos.errors import InvalidInput
from batos.image import ledger, notices
from batos.image.notice_channels import SCHEDULE
from batos.image.notices import Notice
from batos.memory.store import Library, library_of
from batos.objects import Root, UvmObject
from batos.triggers.register import (
    RUNS_KEPT,
    MissionTerms,
    Register,
    TriggeredRun,
    check_terms,
    failures_in_row,
    note_run,
    outcome,
    runs_of,
    terms_of,
)
from batos.triggers.templates import MissingField, fields_of, filled

ORIGIN = "folder"
"""Origin of the missions of folders."""
PREFIX = "folder-"
"""Beginning of the ids of missions that folders make."""
STOP_AFTER = 5
FIELDS = ("path", "name", "folder", "text")
"""Fields of briefs."""
TEXT_CHARS = 8000
FOLDERS = Register("folders", "watched", "batos folders add", "watched folder with missions", 200)
_NOT_NAME = re.compile(r"[^a-z0-9]+")


class FolderSpec(NamedTuple):
    """Words of a user about the files of a folder."""

    name: str
    folder: str
    """absolute path"""
    brief: str
    """may hold `FIELDS`; without `{text}`, the text of the file stands below it"""
    terms: MissionTerms = MissionTerms()
    stop_after: int = STOP_AFTER
    """failures in a row after which it stops; 0: it goes on"""


class KeptFolder(NamedTuple):
    """A watched folder with missions, as plain values."""

    spec: FolderSpec
    number: int
    """given once in an image"""
    paused: bool = False
    why: str = ""
    """why it was paused, where it stopped of itself"""
    runs: tuple[TriggeredRun, ...] = ()
    """the newest last"""
    forgiven: str = ""
    """the last mission whose failure does not count any more"""

    def mission_of(self, path: str, digest: bytes) -> str:
        """Return the id of the mission of a file with some content."""
        mark = hashlib.sha256(f"{self.spec.folder}\0{path}\0".encode("utf-8", "surrogatepass") + digest).hexdigest()
        return f"{PREFIX}{self.spec.name}-{self.number}-{mark[:24]}"


class DueFile(NamedTuple):
    """A file whose content is to become a mission."""

    path: str
    digest: bytes
    text: str = ""


def install(lobby: UvmObject) -> None:
    """Make the object that holds the watched folders with missions. A step of genesis."""
    comment = "I hold the watched folders whose new and changed files become missions."
    prototype = "I am the prototype of watched folders with missions: a brief for each file, and which files are settled."
    FOLDERS.install(lobby, (comment, prototype), folder="", stop_after=STOP_AFTER, why="", forgiven="", seen=None)


def load(root: Root, name: str) -> KeptFolder:
    """Return the watched folder of a name.

    :raises InvalidInput: if there is none.
    """
    return _described(name, FOLDERS.held(root, name))


def find(root: Root, name: str) -> KeptFolder | None:
    """Return the watched folder of a name; None if there is none."""
    found = FOLDERS.find(root, name)
    return None if found is None else _described(name, found)


def said(root: Root, name: str) -> tuple[FolderSpec, int, bool]:
    """Return what its user said of a folder: not what became of its files."""
    held = load(root, name)
    return held.spec, held.number, held.paused


def places(root: Root) -> dict[str, str]:
    """Return the folder of each name."""
    return {name: str(FOLDERS.held(root, name).folder) for name in FOLDERS.names(root)}


def is_within(folder: str, path: str) -> bool:
    """Return True if a file is in a folder."""
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def is_watched(root: Root, folder: str) -> bool:
    """Return True if the memory watches a folder, or one that it is in."""
    return any(folder == watched or is_within(watched, folder) for watched in library_of(root).watched)


def sort_out(root: Root, name: str, paths: Iterable[str] | None = None) -> tuple[list[str], dict[str, bytes]]:
    """Return the files of a folder whose content is to become a mission, and those that are to be settled without one, with their digests.

    :param paths: files to look at; default: all that the memory has of the folder.
    """
    found = FOLDERS.find(root, name)
    if found is None:
        return [], {}
    library, seen = library_of(root), found.seen
    due: list[str] = []
    settled: dict[str, bytes] = {}
    for path in _paths(library, str(found.folder)) if paths is None else paths:
        digest = _digest_of(library, path)
        known = seen.get(path)
        if digest is None or known == digest:
            continue
        if isinstance(known, tuple) and tuple(library.stamps.get(path, ())) == known:  # it was there before, and was read since
            settled[path] = digest
        else:
            due.append(path)
    return due, settled


def due_file(root: Root, name: str, path: str, chars: int) -> DueFile | None:
    """Return a file that is to become a mission, with its text; None if it is not any more.

    :param chars: most characters of its text.
    """
    if not sort_out(root, name, [path])[0]:
        return None
    library = library_of(root)
    document = library.documents[library.by_source[path]]
    parts: list[str] = []
    for section in library.sections_of(document):
        parts.append(library.text_of(section))
        if sum(map(len, parts)) > chars:
            break
    return DueFile(path, bytes(document.digest), "".join(parts))


def brief_of(spec: FolderSpec, file: DueFile, chars: int) -> str:
    """Return the brief of a file's mission.

    :param chars: most characters of its text.
    """
    told = {"path": file.path, "name": os.path.basename(file.path), "folder": spec.folder}

    def value_of(field: str) -> str:
        if field == "text":
            return file.text[:chars] + (" […]" if len(file.text) > chars else "")
        if field not in told:
            raise MissingField(field)
        return told[field]

    template = spec.brief if "text" in fields_of(spec.brief) else f"{spec.brief}\n\nThe text of the file:\n{{text}}"
    return filled(template, value_of)


def failures(root: Root, held: KeptFolder) -> int:
    """Return the number of its missions that failed in a row."""
    return failures_in_row(root, [run.mission for run in held.runs], held.forgiven)


def open_missions(root: Root, held: KeptFolder) -> int:
    """Return the number of its missions that have not ended."""
    return sum(outcome(root, run.mission)[0] not in ("", *ledger.FINAL) for run in held.runs)


# --- system transactions


def add(root: Root, spec: FolderSpec, there: Mapping[str, tuple[int, int]]) -> KeptFolder:
    """System transaction: have the files of a folder become missions; return it. One of the same words is returned as it is.

    :param spec: with the name empty, one is made of the folder's.
    :param there: files that are there already, with time and size: they become no missions.
    :raises InvalidInput: if a part of it is not valid, the name is taken, or there are too many.
    """
    check_terms(spec.brief, spec.terms)
    if unknown := [field for field in fields_of(spec.brief) if field not in FIELDS]:
        raise InvalidInput(f"{{{unknown[0]}}} is not a field{nearest(unknown[0], FIELDS)}; a brief may have {', '.join(FIELDS)}")
    if not 0 <= spec.stop_after <= RUNS_KEPT:
        raise InvalidInput(f"it may stop after 1 to {RUNS_KEPT} failures in a row, or not at all (0), not after {spec.stop_after}")
    base = spec.name or _derived(spec.folder)
    taken = root["lobby"]._slots[FOLDERS.place]._slots
    name = base
    for number in range(2, FOLDERS.most + 2):
        known = find(root, name)
        if known is not None and known.spec == spec._replace(name=name):
            return known
        if spec.name or name not in taken:
            break
        name = f"{base}-{number}"
    library, seen = library_of(root), OOBTree()
    for path, stamp in there.items():
        digest = _digest_of(library, path)
        seen[path] = digest if digest is not None and tuple(library.stamps.get(path, ())) == stamp else stamp
    slots = {"folder": spec.folder, "brief": spec.brief, **spec.terms._asdict(), "stop_after": spec.stop_after, "seen": seen}
    return _described(name, FOLDERS.make(root, name, slots))


def pause(root: Root, name: str, why: str = "") -> KeptFolder:
    """System transaction: make no missions of a folder's files for now; return it.

    :param why: the reason, where it stops of itself.
    :raises InvalidInput: if there is none of that name.
    """
    one = FOLDERS.held(root, name)
    if not one.paused:
        one._slots["paused"], one._slots["why"] = True, why
        if why:
            persona = terms_of(one).persona
            notices.note(root, Notice(SCHEDULE, name, time.time(), f"Stopped: missions of the folder {name}", why), ORIGIN, persona)
    return _described(name, one)


def resume(root: Root, name: str) -> KeptFolder:
    """System transaction: go on, with the files that came meanwhile, too; return it.

    :raises InvalidInput: if there is none of that name.
    """
    one = FOLDERS.held(root, name)
    if one.paused:
        runs = runs_of(one)
        one._slots["paused"], one._slots["why"] = False, ""
        one._slots["forgiven"] = runs[-1].mission if runs else ""
    return _described(name, one)


def reopen(root: Root, name: str) -> int:
    """System transaction: have the files that are there, and became no mission, become missions; return their number.

    :raises InvalidInput: if there is none of that name.
    """
    one = FOLDERS.held(root, name)
    held, library = _described(name, one), library_of(root)
    without = []
    for path, known in one.seen.items():
        digest = _digest_of(library, path) if isinstance(known, tuple) else known
        if digest is None or not ledger.is_known(root, held.mission_of(path, digest)):
            without.append(path)
    for path in without:
        del one.seen[path]
    return len(without)


def settle(root: Root, name: str, number: int, contents: Mapping[str, bytes]) -> None:
    """System transaction: note that some contents are settled. Nothing happens if the folder was removed meanwhile."""
    found = FOLDERS.find(root, name)
    if found is not None and int(found.number) == number:
        found.seen.update(contents)


def note(root: Root, held: KeptFolder, file: DueFile, run: TriggeredRun) -> None:
    """Part of a system transaction: note the mission of a file.

    :raises FolderChanged: if the folder was paused or removed meanwhile.
    """
    found = FOLDERS.find(root, held.spec.name)
    if found is None or int(found.number) != held.number or found.paused:
        raise FolderChanged(f"{held.spec.name!r} was paused or removed meanwhile")
    found.seen[file.path] = file.digest
    note_run(found, run)


class FolderChanged(InvalidInput):
    """The watched folder is not as it was when the mission of a file was decided."""


def _paths(library: Library, folder: str) -> list[str]:
    begin, end = folder.rstrip(os.sep) + os.sep, folder.rstrip(os.sep) + chr(ord(os.sep) + 1)
    return list(library.by_source.keys(begin, end, excludemax=True))


def _digest_of(library: Library, path: str) -> bytes | None:
    number = library.by_source.get(path)
    document = None if number is None else library.documents.get(number)
    return bytes(document.digest) if document is not None and document.complete and document.digest else None


def _derived(folder: str) -> str:
    name = _NOT_NAME.sub("-", os.path.basename(folder.rstrip(os.sep)).lower()).strip("-")[:30]
    return name if name[:1].isalpha() else f"folder-{name}".strip("-")


def _described(name: str, one: UvmObject) -> KeptFolder:
    spec = FolderSpec(name, one.folder, one.brief, terms_of(one), int(one.stop_after))
    return KeptFolder(spec, int(one.number), bool(one.paused), one.why, runs_of(one), one.forgiven)
