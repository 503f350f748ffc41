"""Reading of files in a child process: one that freezes its reader, or makes it grow, is refused, and the daemon hears nothing of it."""

from __future__ import annotations

import pathlib
from importlib.util import find_spec

import structlog

from batos.config import Settings
from batos.confined import Child, Stopped
from batos.errors import BatosError, Unreadable
from batos.image.turns import in_helper
from batos.memory import readers
from batos.memory.drafts import Draft

log = structlog.get_logger("batos.memory")
_TEXT = 4  # times the bytes of the largest file, in characters, that one may say: a table says its columns in each row
_REMEDY = "split it, save it anew with another program, or leave it out"


class Reading:
    """Reads one file at a time. All methods are called on the loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self._seconds, self._memory, self._chars = settings.read_s, settings.read_memory_bytes, _TEXT * settings.ingest_file_bytes
        self._child = Child(readers.__name__, memory=settings.read_memory_bytes)
        limits = (settings.ingest_file_bytes, settings.read_s, settings.read_memory_bytes)
        there = [name for name in readers.PACKAGES if find_spec(name) is not None]
        self.able = f"{readers.VERSION} {' '.join(map(str, limits))} {' '.join(there)}"
        """What the readers can do: files that were refused are tried again when it is another."""

    async def read(self, path: str, data: bytes) -> Draft:
        """What a file says.

        :raises Unreadable: for what no reader takes, what says too much, and what takes too long, or too much memory.
        """
        try:
            told = await self._child.ask([pathlib.PurePath(path).name, self._chars], data, seconds=self._seconds)
        except Stopped as e:
            if e.reason == "fault":
                log.error("ingest_failed", path=path, trace=e.trace)
                raise BatosError(f"{e.detail}; this is a fault in BAT OS, please report it") from None
            why = {
                "time": f"reading it took more than {self._seconds:g} s of processor time (setting read_s)",
                "memory": f"reading it took more than {self._memory} bytes of memory (setting read_memory_bytes)",
            }.get(e.reason, f"its reader died {e.detail}, though it may have {self._memory} bytes of memory (setting read_memory_bytes)")
            raise Unreadable(f"{why}: {_REMEDY}") from None
        return await in_helper(readers.drafted, told)

    async def close(self) -> None:
        """End the child, at whatever it is."""
        await self._child.close()
