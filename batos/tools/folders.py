"""Folder connections: files of one folder of this machine are listed, read and searched; where its user says so, also changed.

Each change is noted by the key of its effect before it is made, with the file as it was. So a change that was cut off is completed when
it is sent again, and is made once; `restore` takes a change back.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import itertools
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from batos.config import nearest, shown
from batos.errors import InvalidInput, ToolFailed
from batos.image.effects import IDEMPOTENT, KEYED, READS, VERIFIABLE
from batos.tools import beneath
from batos.tools.beneath import Beneath, parts_of, telling
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolCall, ToolDefinition
from batos.tools.folder_changes import FolderChange, KeptChanges, digest, name_of

FILE_BYTES = 16 << 20
"""Bytes of a file that is read, or kept as it was before a change."""
TEXT_BYTES = 1 << 20
"""Bytes of a text that is written."""
READ_CHARS, MOST_CHARS = 20_000, 100_000
"""Characters of one reading: where nothing is said, and at most."""
LISTED, SCANNED = 1000, 20_000
"""Entries of a folder that are shown, and that are looked at."""
SEARCHED_FILES, SEARCHED_BYTES, HITS = 20_000, 64 << 20, 100
"""Bounds of one search."""
_LINE_CHARS = 300
_PART = re.compile(r"\.[A-Za-z0-9_-]{1,64}\.batos-part\Z")
_OPTIONS = ("writable",)
_FOLDERS_CLOSED = "the connection may only read; its user may add it anew with `--folder PATH:rw`"


def _schema(*required: str, **more: Mapping[str, Any]) -> dict[str, Any]:
    text: dict[str, dict[str, Any]] = {
        "path": {"type": "string", "description": "relative to the folder, as `list` shows it"},
        "text": {"type": "string"},
        "to": {"type": "string", "description": "new path, relative to the folder"},
    }
    properties = {name: text[name] for name in required} | {name: {**text.get(name, {}), **said} for name, said in more.items()}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _reading(name: str, description: str, parameters: Mapping[str, Any]) -> ToolDefinition:
    return ToolDefinition(name=name, description=description, parameters=parameters, kind=READS, private=True, outward=False)


def _writing(name: str, kind: str, description: str, parameters: Mapping[str, Any], undo: str = "restore") -> ToolDefinition:
    return ToolDefinition(name=name, description=description, parameters=parameters, kind=kind, untrusted=False, undo=undo)


READING = (
    _reading("list", "List the files and folders of a folder, with sizes in bytes.", _schema(path={"type": "string"})),
    _reading(
        "read",
        f"Read a text file. `from` is the first character (0), `chars` the number of characters (at most {MOST_CHARS}).",
        _schema(
            "path",
            **{"from": {"type": "integer", "minimum": 0}, "chars": {"type": "integer", "minimum": 1, "maximum": MOST_CHARS}},
        ),
    ),
    _reading("search", "Find the lines of text files that hold a text, in any case of letters.", _schema("text", path={"type": "string"})),
)
WRITING = (
    _writing("write", IDEMPOTENT, "Write a text file; an existing one is replaced.", _schema("path", "text")),
    _writing("append", KEYED, "Add a text to the end of a file; a missing one is made.", _schema("path", "text")),
    _writing("move", VERIFIABLE, "Move or rename a file or folder; nothing is replaced.", _schema("path", "to")),
    _writing("delete", VERIFIABLE, "Delete a file or an empty folder.", _schema("path")),
    _writing(
        "restore",
        IDEMPOTENT,
        "Take back the last change of a file, or the one that a result names as its `change`.",
        _schema("path", change={"type": "string"}),
        "",
    ),
)


class FolderConnector:
    """The connector of kind `folder`. Its option `writable` (False) lets its tools change files."""

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        """
        :raises InvalidInput: if the place is not an absolute path, or an option is not valid.
        """
        for option in spec.options:
            if option not in _OPTIONS:
                allowed = ", ".join(_OPTIONS)
                raise InvalidInput(f"{option!r} is not a valid option of a folder{nearest(option, _OPTIONS)}; allowed are: {allowed}")
        writable = spec.options.get("writable", False)
        if not isinstance(writable, bool):
            raise InvalidInput(f"the option writable is {shown(writable)}; it has to be true or false")
        if not spec.place.startswith("/") or "\0" in spec.place:
            raise InvalidInput(f"the folder {shown(spec.place)} is not valid; give an absolute path, such as /home/me/notes")
        self._spec, self._services, self._writable = spec, services, writable
        self._changes = KeptChanges(services.folder / f"folder-{spec.name}")
        self._one_writer = threading.Lock()

    async def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools, if the folder is there.

        :raises ToolFailed: if it is not, or may not be used.
        """
        await asyncio.to_thread(self._check)
        return READING + WRITING if self._writable else READING

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a call ready.

        :raises InvalidInput: if a path is not valid.
        :raises ToolFailed: if the folder is not there, or may only be read.
        """
        path = "/".join(parts_of(arguments.get("path", "")))
        to = "/".join(parts_of(arguments["to"])) if "to" in arguments else ""
        work = getattr(self, f"_{tool.name}", None)
        if tool.name not in {one.name for one in READING + WRITING} or work is None:
            raise ToolFailed(f"{self._spec.name} has no tool {tool.name!r}")
        if tool.kind != READS and not self._writable:
            raise ToolFailed(f"{self._spec.name}.{tool.name} is not allowed: {_FOLDERS_CLOSED}")
        await asyncio.to_thread(self._check)
        seconds = self._services.limits.call_s
        said = {**arguments, "path": path} | ({"to": to} if to else {})

        async def send(delivery: Delivery) -> Any:
            if tool.kind == READS:
                return await asyncio.to_thread(work, said)
            return await asyncio.to_thread(self._alone, work, said, delivery)

        target = "" if tool.kind == READS else f"{self._spec.name}/{to or path}"
        look = {"move": self._look_moved, "delete": self._look_deleted}.get(tool.name)
        looks = None if look is None else lambda: asyncio.to_thread(look, said)
        name = self._spec.name
        return ToolCall(
            connection=name,
            tool=tool,
            arguments=arguments,
            send=send,
            seconds=seconds,
            target=target,
            look=looks,
            process=str(os.getpid()),  # without its start: nothing has to be ended, and nothing outlives it that had to be waited for
        )

    async def close(self) -> None:
        """Do nothing: no descriptor is kept between calls."""

    def _check(self) -> None:
        with self._beneath().folder(()) as descriptor:
            if self._writable and not os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor, effective_ids=True):
                raise ToolFailed(f"the folder {shown(self._spec.place)} is read-only for this user; change its mode, or add it for reading")

    def _beneath(self) -> Beneath:
        """Return the folder; the daemon's own folders in it are closed: they hold secrets."""
        closed = set()
        for own in (self._services.folder, self._services.folder.parent):
            try:
                closed.add(beneath.identity(own.stat()))
            except OSError:
                continue
        return Beneath(self._spec.place, closed)

    # --- reading

    def _list(self, said: Mapping[str, Any]) -> Any:
        with self._beneath().folder(parts_of(said["path"])) as descriptor, telling("listed", said["path"]):
            names = _names(descriptor)
            entries = [entry for name in names[:LISTED] if (entry := _entry(descriptor, name)) is not None]
        more = len(names) - min(len(names), LISTED)
        return {"path": said["path"], "entries": entries} | ({"left_out": more} if more else {})

    def _read(self, said: Mapping[str, Any]) -> Any:
        path, start, chars = said["path"], said.get("from", 0), min(said.get("chars", READ_CHARS), MOST_CHARS)
        with self._beneath().parent(path) as (descriptor, name), telling("read", path), beneath.open_file(descriptor, name) as file:
            data = file.read(FILE_BYTES + 1)
        if len(data) > FILE_BYTES:
            raise ToolFailed(f"{shown(path)} is larger than {FILE_BYTES} bytes, the most that is read; search it instead")
        if b"\0" in data:
            raise ToolFailed(f"{shown(path)} is not a text file ({len(data)} bytes)")
        text = data.decode("utf-8", "replace")
        end = start + chars
        left = {"next": end} if end < len(text) else {}
        return {"path": path, "text": text[start:end], "from": start, "chars": len(text), **left}

    def _search(self, said: Mapping[str, Any]) -> Any:
        if not (wanted := said["text"].casefold()):
            raise ToolFailed("the text to search for is empty; give a word or a part of a line")
        until = time.monotonic() + self._services.limits.call_s * 0.8
        hits: list[dict[str, Any]] = []
        files = read = 0
        root, whole = self._beneath(), True
        with root.folder(parts_of(said["path"])) as descriptor:
            for folder, name, path in _walk(root, descriptor, said["path"]):
                whole = files < SEARCHED_FILES and read < SEARCHED_BYTES and len(hits) < HITS and time.monotonic() < until
                if not whole:
                    break
                files += 1
                try:
                    with beneath.open_file(folder, name) as file:
                        data = file.read(min(FILE_BYTES, SEARCHED_BYTES - read))
                except (OSError, ToolFailed):
                    continue
                read += len(data)
                if b"\0" not in data:
                    hits += itertools.islice(_hits(data, wanted, path), HITS - len(hits))
        stopped = f"the search stopped after {files} files and {len(hits)} lines; name a folder or a longer text"
        if whole and len(hits) < HITS:
            return {"hits": hits, "files": files}
        return {"hits": hits, "files": files, "stopped": stopped}

    # --- changing

    def _alone(self, work: Callable[..., Any], said: Mapping[str, Any], delivery: Delivery) -> Any:
        with self._one_writer:
            delivery.leave()
            return work(said, delivery.key or secrets.token_hex(16))

    def _write(self, said: Mapping[str, Any], key: str) -> Any:
        path, data = said["path"], _bytes_of(said["text"])
        with self._beneath().parent(path, make=True) as (descriptor, name):
            change = self._changes.find(key)
            if change is None:
                change, before = _noted(descriptor, name, FolderChange(key=key, tool="write", path=path, after=digest(data)))
                try:
                    change = self._changes.add(change, before)
                except OSError as e:
                    change = dataclasses.replace(change, kept=e.strerror or str(e))
            beneath.replace(descriptor, name, data, part=_part(key), mode=change.mode)
        return {"path": path, "bytes": len(data), "replaced": change.existed, **_kept(change)}

    def _append(self, said: Mapping[str, Any], key: str) -> Any:
        path, data = said["path"], _bytes_of(said["text"])
        with self._beneath().parent(path, make=True) as (descriptor, name):
            change, again = self._changes.find(key), True
            if change is None:
                again = False
                change, before = _noted(descriptor, name, FolderChange(key=key, tool="append", path=path))
                if before is not None or not change.existed:
                    change = dataclasses.replace(change, after=digest((before or b"") + data))
                change = self._note(change, None)
            with telling("added to", path):
                opened = os.open(name, _ADDING, change.mode, dir_fd=descriptor)
            with os.fdopen(opened, "r+b", buffering=0) as file:
                beneath.check_plain(os.fstat(opened), name)
                left = _missing(opened, change.size, data) if again else data
                _add(opened, left, path)
                os.fsync(file.fileno())
            os.fsync(descriptor)
        return {"path": path, "bytes": len(data), "size": change.size + len(data), **_kept(change)}

    def _move(self, said: Mapping[str, Any], key: str) -> Any:
        path, to = said["path"], said["to"]
        folder = self._beneath()
        with folder.parent(path) as (source, name), folder.parent(to, make=True) as (target, new):
            about, there, change = beneath.look_at(source, name), beneath.look_at(target, new), self._changes.find(key)
            if change is not None and (about is None or beneath.identity(about) != change.file):
                if there is None or beneath.identity(there) != change.file:
                    raise OSError(errno.ESTALE, f"{path} is not where it was and not at {to}; another program changed it")
            else:
                about = _present(about, path)
                if there is not None:
                    raise ToolFailed(f"{shown(to)} is there already; move it away, or choose another name")
                if change is None:
                    made = FolderChange(key=key, tool="move", path=path, to=to, existed=True, file=beneath.identity(about))
                    change = self._note(made, None)
                with telling("moved", path):
                    beneath.rename((source, name), (target, new))
            os.fsync(target)
            os.fsync(source)
        return {"path": path, "to": to, **_kept(change)}

    def _delete(self, said: Mapping[str, Any], key: str) -> Any:
        path = said["path"]
        with self._beneath().parent(path) as (descriptor, name):
            about, change = beneath.look_at(descriptor, name), self._changes.find(key)
            if change is None:
                change, before = _noted(descriptor, name, FolderChange(key=key, tool="delete", path=path), _present(about, path))
                change = self._note(change, before)
            elif about is not None and not _is_same(descriptor, name, about, change):
                about = None  # it was deleted, and another came in its place
            if about is not None:
                with telling("deleted", path):
                    (os.rmdir if stat.S_ISDIR(about.st_mode) else os.unlink)(name, dir_fd=descriptor)
            os.fsync(descriptor)
        return {"path": path, "bytes": change.size, **_kept(change)}

    def _restore(self, said: Mapping[str, Any], key: str) -> Any:
        path, own = said["path"], self._changes.find(key)
        wanted = own.of if own is not None else said.get("change", "")
        change = self._changes.find(wanted) if wanted else self._changes.newest(path)
        if change is None or change.path != path:
            raise ToolFailed(f"no change of {shown(path)} is noted that could be taken back{' by that name' if wanted else ''}")
        if change.undone:
            if own is None:
                raise ToolFailed(f"that change of {shown(path)} was taken back already")
        elif change.tool == "move":
            self._move_back(change, own, key)
        else:
            self._put_back(change, own, key)
        self._changes.mark_undone(change)
        return {"path": path, "restored": change.key, "exists": change.existed}

    def _move_back(self, change: FolderChange, own: FolderChange | None, key: str) -> None:
        folder = self._beneath()
        with folder.parent(change.to) as (source, name), folder.parent(change.path, make=True) as (target, old):
            moved, back = beneath.look_at(source, name), beneath.look_at(target, old)
            if own is None or back is None or beneath.identity(back) != change.file:
                if moved is None or beneath.identity(moved) != change.file:
                    raise ToolFailed(f"{shown(change.to)} is not any more what was moved there; move it yourself")
                self._note(FolderChange(key=key, tool="restore", path=change.path, of=change.key, file=change.file), None)
                with telling("moved back", change.to):
                    beneath.rename((source, name), (target, old))
            os.fsync(target)
            os.fsync(source)

    def _put_back(self, change: FolderChange, own: FolderChange | None, key: str) -> None:
        path = change.path
        with self._beneath().parent(path, make=True) as (descriptor, name):
            if change.existed and stat.S_ISDIR(change.mode):
                with telling("made", path):
                    if beneath.look_at(descriptor, name) is None:
                        os.mkdir(name, stat.S_IMODE(change.mode), dir_fd=descriptor)
                os.fsync(descriptor)
                return
            now, current = _noted(descriptor, name, FolderChange(key=key, tool="restore", path=path, of=change.key))
            if now.existed == change.existed and now.before == change.before and (now.before or not now.existed):
                return  # as it was: the change was never made, or is taken back
            if (current is None and now.existed) or now.before != change.after:
                raise ToolFailed(f"{shown(path)} has changed since; read it, and write it as it is to be")
            before = (current or b"")[: change.size] if change.tool == "append" else self._changes.content(change)
            if change.existed and before is None:
                raise ToolFailed(f"{shown(path)} as it was before is not kept{': ' + change.kept if change.kept else ' any more'}")
            if own is None:
                self._note(now, current)
            if change.existed:
                beneath.replace(descriptor, name, before or b"", part=_part(key), mode=stat.S_IMODE(change.mode))
            else:
                with telling("deleted", path):
                    os.unlink(name, dir_fd=descriptor)
                os.fsync(descriptor)

    def _note(self, change: FolderChange, before: bytes | None) -> FolderChange:
        try:
            return self._changes.add(change, before)
        except OSError as e:
            raise ToolFailed(f"{shown(change.path)} is not changed: the change cannot be noted ({e.strerror or e})") from None

    # --- looking

    def _look_deleted(self, said: Mapping[str, Any]) -> Any:
        with self._beneath().parent(said["path"]) as (descriptor, name):
            return {"path": said["path"]} if beneath.look_at(descriptor, name) is None else None

    def _look_moved(self, said: Mapping[str, Any]) -> Any:
        folder = self._beneath()
        with folder.parent(said["path"]) as (descriptor, name):
            if beneath.look_at(descriptor, name) is not None:
                return None
        with folder.parent(said["to"]) as (descriptor, name):
            if beneath.look_at(descriptor, name) is None:
                raise OSError(errno.ESTALE, "it is neither where it was nor where it was to be")
        return {"path": said["path"], "to": said["to"]}


_ADDING = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def _bytes_of(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the text holds half a character (a lone surrogate), which no file can hold; leave it out") from None
    if len(data) > TEXT_BYTES:
        raise InvalidInput(f"the text has {len(data)} bytes; at most {TEXT_BYTES} are written at a time; `append` adds more")
    return data


def _present(about: os.stat_result | None, path: str) -> os.stat_result:
    """Return what is there, if it is a file or folder."""
    if about is None:
        raise ToolFailed(f"{shown(path)} cannot be changed: there is nothing of that name")
    if (kind := beneath.kind_of(about)) not in ("file", "folder"):
        raise ToolFailed(f"{shown(path)} is a {kind}; only files and folders are moved and deleted")
    return about


def _noted(descriptor: int, name: str, change: FolderChange, about: os.stat_result | None = None) -> tuple[FolderChange, bytes | None]:
    """Return a change with the state of its file before it, and the content of that file. The content is None if there is no file, or it is
    too large."""
    about = about or beneath.look_at(descriptor, name)
    if about is None:
        return change, None
    known = dataclasses.replace(change, existed=True, size=about.st_size, file=beneath.identity(about), mode=stat.S_IMODE(about.st_mode))
    if stat.S_ISDIR(about.st_mode) and change.tool == "delete":
        return dataclasses.replace(known, size=0, mode=about.st_mode), None
    beneath.check_plain(about, name)
    if not about.st_mode & 0o200:
        raise ToolFailed(f"{shown(change.path)} is read-only (mode {stat.S_IMODE(about.st_mode):04o}) and is not changed")
    with telling("read", change.path), beneath.open_file(descriptor, name) as file:
        data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        return dataclasses.replace(known, kept=f"it is larger than {FILE_BYTES} bytes"), None
    return dataclasses.replace(known, size=len(data), before=digest(data)), data


def _is_same(descriptor: int, name: str, about: os.stat_result, change: FolderChange) -> bool:
    """Return True if a file is the one that was there before a change; the number alone may be used again."""
    if beneath.identity(about) != change.file:
        return False
    if not change.before or not stat.S_ISREG(about.st_mode):
        return True
    with telling("read", change.path), beneath.open_file(descriptor, name) as file:
        return digest(file.read(FILE_BYTES + 1)) == change.before


def _missing(opened: int, size: int, data: bytes) -> bytes:
    """Return what an append that was cut off has still to add.

    :raises OSError: if that cannot be found out: another program changed the file.
    """
    there = os.fstat(opened).st_size
    tail = b"" if there <= size else os.pread(opened, min(there - size, FILE_BYTES), size)
    if there >= size and data.startswith(tail):
        return data[len(tail) :]
    if data in tail:
        return b""
    if there < size or tail[:1] == data[:1]:
        raise OSError(errno.ESTALE, "another program changed the file in the meantime")
    return data


def _add(opened: int, data: bytes, path: str) -> None:
    """Write at the end of a file, wholly or, where that can be, not at all.

    :raises ToolFailed: if nothing was written.
    :raises OSError: if a part was, and could not be taken back.
    """
    before, done = os.fstat(opened).st_size, 0
    try:
        while done < len(data):
            done += os.write(opened, data[done:])
    except OSError:
        if os.fstat(opened).st_size != before + done:
            raise
        os.ftruncate(opened, before)
        with telling("added to", path):
            raise


def _part(key: str) -> str:
    return f".{name_of(key)}.batos-part"


def _kept(change: FolderChange) -> dict[str, Any]:
    if change.kept:
        return {"change": change.key, "not_kept": f"the file as it was before could not be kept: {change.kept}"}
    return {"change": change.key}


def _names(descriptor: int) -> list[str]:
    with os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in itertools.islice(entries, SCANNED) if not _PART.match(entry.name))


def _entry(descriptor: int, name: str) -> dict[str, Any] | None:
    about = beneath.look_at(descriptor, name)
    if about is None:
        return None
    changed = datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds")
    entry = {"name": _visible(name), "kind": beneath.kind_of(about), "changed": changed}
    return entry | ({"bytes": about.st_size} if stat.S_ISREG(about.st_mode) else {})


def _visible(name: str) -> str:
    r"""Return a name as text: bytes that are not UTF-8 as `\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _walk(root: Beneath, descriptor: int, path: str, depth: int = 0) -> Iterator[tuple[int, str, str]]:
    """Yield the plain files beneath a folder: descriptor of their folder, name, path. What cannot be read is left out."""
    try:
        names = _names(descriptor)
    except OSError:
        return
    for name in names:
        here = f"{path}/{name}" if path else name
        try:
            about = beneath.look_at(descriptor, name)
            if about is None:
                continue
            if stat.S_ISREG(about.st_mode):
                yield descriptor, name, _visible(here)
                continue
            if not stat.S_ISDIR(about.st_mode) or depth >= beneath.PARTS:
                continue
            following = root.enter(descriptor, name)
        except (OSError, ToolFailed):
            continue
        try:
            yield from _walk(root, following, here, depth + 1)
        finally:
            os.close(following)


def _hits(data: bytes, wanted: str, path: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if (at := line.casefold().find(wanted)) >= 0:
            start = max(0, at - _LINE_CHARS // 3)
            yield {"path": path, "line": number, "text": line[start : start + _LINE_CHARS]}
