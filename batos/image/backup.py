"""Backups of a file image by repozo: full or incremental, beside the running daemon, each proved by restoring it.

All of this blocks for seconds: to be called in a thread. It reads the image's file and never writes to it.
"""

from __future__ import annotations

import calendar
import contextlib
import errno
import io
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import ZODB
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSError
from ZODB.scripts import repozo

from batos import private_files
from batos.errors import ImageDamaged, ImageError
from batos.image import blobs
from batos.image.checked import base_of
from batos.image.history import oid_of
from batos.image.integrity import Walk
from batos.image.progress import Progress, growing, size_of
from batos.image.storage import check_format, open_database, sync_to_disk
from batos.objects import Method

BLOBS = "blobs"
"""The folder of blobs in a folder of backups. They stay as long as the folder does: earlier backups in it need them."""
_METHOD = b"batos.objects\nMethod\n"  # how a record of a Method names its class, in pickle's protocol 3
_VERIFY = ".verify-"  # folders in which a backup is restored to be proved
_PART = "tmp.tmp"  # what repozo writes a file as, before it gets its name
_CHUNK = 1 << 20


def _opened(path: str, mode: str = "r") -> IO[Any]:
    """What repozo opens. It would write over whatever has the name, or is led to by it; all but its lists are new files."""
    if mode == "a":
        return io.TextIOWrapper(private_files.extend(path))
    if "w" in mode:
        file = private_files.create(path)
        return file if "b" in mode else io.TextIOWrapper(file)
    return open(path, mode)


vars(repozo)["open"] = _opened


@dataclass
class _Options:
    """What repozo's functions take in place of a command line."""

    repository: str
    file: str | None = None
    output: str | None = None
    full: bool = False
    quick: bool = False  # not: the bytes of the last increment alone would vouch for all before it
    gzip: bool = False
    killold: bool = False
    withverify: bool = True
    date: str | None = None
    test_now: tuple[int, ...] = ()


def backup(path: pathlib.Path, folder: pathlib.Path, *, full: bool, before: bytes, progress: Progress | None = None) -> dict[str, Any]:
    """Add a backup of the image to a folder, then prove it.

    :param full: not only what was appended since the last one. After a pack it is full in any case.
    :param before: id of a transaction that was committed before the call and must be in it.
    :returns: `folder`, `kind` (full, incremental, unchanged), `file`, `bytes` (added), and what the proof found: `total_bytes`,
        `blob_bytes`, `objects`, `methods`, `damaged` (methods that are not what was audited, transactions that are not what was written;
        the image itself has the same damage), `tid`.
    :raises ImageError: if it cannot be written, its proof fails, or others may write into the folder; a bad one is removed again.
    """
    progress = progress or Progress()
    if folder.exists() and not folder.is_dir():
        raise ImageError(f"no backup in {folder}: it is a file, not a folder; name another")
    try:
        place = private_files.folder(folder)
        private_files.check_within(place)
        _sweep(place)
        old = set(place.iterdir())
        progress.begin("writing")
        with _without_blanks(place) as repository:
            repozo.do_backup(_Options(repository, str(path), full=full, test_now=_next_second(place)))
        new = sorted(set(place.iterdir()) - old)
        try:
            for made in new:
                sync_to_disk(made)
            found = _prove(path, place, before, progress)
        except BaseException:
            _remove(new, place)
            raise
    except (repozo.RepozoError, OSError) as e:
        raise ImageError(f"no backup in {folder}: {_reason(e)}") from e
    data = next((file for file in new if file.suffix in (".fs", ".deltafs")), None)
    kind = "unchanged" if data is None else {".fs": "full", ".deltafs": "incremental"}[data.suffix]
    return {"folder": str(folder), "kind": kind, "file": data and data.name, "bytes": data.stat().st_size if data else 0, **found}


def restore(folder: pathlib.Path, path: pathlib.Path, progress: Progress | None = None) -> dict[str, Any]:
    """Make the image at `path` from the newest backup in a folder.

    :returns: `total_bytes`, `blob_bytes`, `objects`, `methods`, `damaged`, `tid`.
    :raises ImageError: if there is an image already, no backup, or one that is not whole; then nothing is left at `path`.
    """
    for taken in (path, path.with_name(path.name + ".old"), path.with_name(path.name + ".pack")):
        if private_files.taken(taken):
            raise ImageError(f"{taken} exists; a restore overwrites nothing: move it away, or name another folder with --data")
    if not folder.is_dir():
        raise ImageError(f"there is no folder {folder}; name the one that `batos backup` wrote to")
    if not any(file.suffix == ".dat" or repozo.is_data_file(file.name) for file in folder.iterdir()):
        raise ImageError(f"there is no backup in {folder}; name the folder that `batos backup` wrote to")
    try:
        target = private_files.folder(path.parent) / path.name
        with _restored(folder, target.parent, progress or Progress()) as file:
            found = _examine(file, folder / BLOBS, blobs.folder_of(target))
            _place(file, target)
    except (repozo.RepozoError, OSError) as e:
        raise ImageError(f"the backup in {folder} was not restored: {_reason(e)}") from e
    return found


@contextlib.contextmanager
def _restored(folder: pathlib.Path, beside: pathlib.Path, progress: Progress) -> Iterator[pathlib.Path]:
    """The newest backup as a file of its own, checked against repozo's sums, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix=_VERIFY, dir=beside) as scratch:
        file = pathlib.Path(scratch) / "image.fs"
        progress.begin("restoring", _newest_bytes(folder), growing(file))
        try:
            newest = max((name for name in _listed(folder) if (folder / name).exists()), default="9999")
            repozo.do_recover(_Options(str(folder), output=str(file), date=newest.partition(".")[0]))
        except KeyError as e:
            raise repozo.VerificationFail(f"the list of sums does not name {e}") from None
        except ValueError as e:  # out of a line that is not of the form
            raise repozo.VerificationFail(f"its list of sums ({folder}, *.dat) cannot be read: {e}") from None
        file.with_name(file.name + ".index").unlink(missing_ok=True)  # opened without it, every transaction is read
        progress.begin("reading it through")
        yield file


def _listed(folder: pathlib.Path) -> set[str]:
    """The files that the lists of sums name: repozo writes a file, then its line."""
    lines = [line for sums in folder.glob("*.dat") for line in sums.read_text(errors="replace").splitlines()]
    return {pathlib.Path(line.rsplit(maxsplit=3)[0]).name for line in lines if line.strip()}


def _sweep(folder: pathlib.Path) -> None:
    """Take away what a daemon that was killed, or a full disk, left: scratch folders, the beginning of a line, and files that no list
    names: the next backup would fail of them."""
    for left in folder.glob(_VERIFY + "*"):
        shutil.rmtree(left)
    (folder / _PART).unlink(missing_ok=True)
    for sums in folder.glob("*.dat"):
        whole = sums.read_bytes()
        if not whole.endswith(b"\n"):
            os.truncate(sums, whole.rfind(b"\n") + 1)
    listed = _listed(folder)
    for file in list(folder.iterdir()):
        if repozo.is_data_file(file.name) and file.name not in listed:
            file.unlink()
            file.with_suffix(".index").unlink(missing_ok=True)


def _newest_bytes(folder: pathlib.Path) -> int:
    """The size of the image that the newest backup holds: its last whole one, and what was added to it."""
    files = sorted(file for file in folder.iterdir() if repozo.is_data_file(file.name))
    whole = max((number for number, file in enumerate(files) if file.suffix == ".fs"), default=0)
    return sum(size_of(file) for file in files[whole:])


@contextlib.contextmanager
def _without_blanks(folder: pathlib.Path) -> Iterator[str]:
    """The folder's path, or another way to it: repozo's list of sums cannot hold a path with a blank in it."""
    if len(str(folder).split()) == 1:
        yield str(folder)
        return
    with tempfile.TemporaryDirectory(prefix="batos-") as scratch:
        link = pathlib.Path(scratch) / "backups"
        link.symlink_to(folder.absolute())
        yield str(link)


def _place(file: pathlib.Path, path: pathlib.Path) -> None:
    try:
        os.link(file, path)  # unlike a rename it never replaces what has come there meanwhile
    except FileExistsError:
        raise
    except OSError:  # no hard links on this file system
        file.rename(path)
    sync_to_disk(path)


def _prove(path: pathlib.Path, folder: pathlib.Path, before: bytes, progress: Progress) -> dict[str, Any]:
    with _restored(folder, folder, progress) as file:
        if not _begins_with(path, file):
            raise repozo.VerificationFail("what was written differs from the image; check the disk")
        found = _examine(file, blobs.folder_of(path), folder / BLOBS)
        if bytes.fromhex(found["tid"]) < before:
            raise repozo.VerificationFail(f"it ends at the transaction {found['tid']}, before {before.hex()}")
        return found


def _examine(file: pathlib.Path, source: pathlib.Path, target: pathlib.Path) -> dict[str, Any]:
    """Open an image as the daemon would, read it through, and check every checksum, and every method's digest; give it its blobs.

    :param source: the folder in which they are; `target` that in which they are to be.
    """
    db = open_database(f"file://{file}", cache_size=400, pool_size=7, read_only=True)
    try:
        with db.transaction() as connection:
            root = connection.root()
            check_format(root, f"file://{file}")
            if root.get("lobby") is None or root.get("ledger") is None:
                raise ImageDamaged(f"{file} is no image of BAT OS: it has no lobby")
            methods = [connection.get(oid) for oid in _methods(db)]
            damaged = [named for method in methods if (named := _damage(method))]
            walk = Walk(db)
            walk.step(0, db.getSize())
            blob_bytes, missing = blobs.copy(db, source, target)
        return {
            "total_bytes": db.getSize(),
            "objects": len(db.storage),
            "methods": len(methods),
            "blob_bytes": blob_bytes,
            "damaged": damaged + [f"{place}: {what}" for place, what in walk.damaged.items()] + missing,
            "tid": db.lastTransaction().hex(),
        }
    finally:
        db.close()


def _damage(method: Method) -> str | None:
    """The name of a method that is not what was audited; None for one that is."""
    try:
        return None if method.intact() else f"{method.selector} ({oid_of(method)})"
    except (ImageDamaged, POSError, AttributeError, TypeError, ValueError):  # not even its record can be read
        return f"({oid_of(method)})"


def _methods(db: ZODB.DB) -> list[bytes]:
    found: list[bytes] = []
    storage: FileStorage = base_of(db.storage)  # past the checksums: they are looked at once, in the order of the file
    following: bytes | None = None
    while len(storage):
        oid, _, data, following = storage.record_iternext(following)
        if _METHOD in data[:64]:
            found.append(oid)
        if following is None:
            break
    return found


def _begins_with(path: pathlib.Path, file: pathlib.Path) -> bool:
    with path.open("rb") as image, file.open("rb") as copy:
        while chunk := copy.read(_CHUNK):
            if image.read(len(chunk)) != chunk:
                return False
    return True


def _next_second(folder: pathlib.Path) -> tuple[int, ...]:
    """The time that names the backup: repozo tells them apart, and orders them, by the second."""
    moment = time.time()
    if newest := max((file.name[:19] for file in folder.iterdir() if repozo.is_data_file(file.name)), default=""):
        moment = max(moment, calendar.timegm(time.strptime(newest, "%Y-%m-%d-%H-%M-%S")) + 1)  # also after a clock was ahead, by years say
    return tuple(time.gmtime(moment)[:6])


def _remove(made: list[pathlib.Path], folder: pathlib.Path) -> None:
    """Take back a backup that is not good, also from the list of sums that an increment was added to."""
    names = {file.name for file in made}
    for file in made:
        file.unlink(missing_ok=True)
    for sums in folder.glob("*.dat"):
        lines = sums.read_text().splitlines(keepends=True)
        kept = [line for line in lines if pathlib.Path(line.rsplit(maxsplit=3)[0]).name not in names]
        if kept != lines:
            private_files.write(sums, "".join(kept))


def _reason(error: Exception) -> str:
    if isinstance(error, private_files.Exposed):
        return error.why
    if isinstance(error, OSError) and error.errno:
        hint = "; make room, or name another folder" if error.errno == errno.ENOSPC else ""
        return f"{os.strerror(error.errno)}{f' ({error.filename})' if error.filename else ''}{hint}"
    return str(error) or type(error).__name__
