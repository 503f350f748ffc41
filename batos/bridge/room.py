"""Room on disk: asked for before a pull or a create, so that neither fails half way nor fills the disk the image is on."""

from __future__ import annotations

import shutil
from collections.abc import Hashable
from pathlib import Path

from batos.bridge.wants import AGAIN, Cannot
from batos.config import MIB


class Room:
    """Free disk of the folder of Ollama's models, less what is being written there.

    :param folder: that folder; None where it is not known, as with an Ollama that is not the daemon's own: then all fits.
    :param reserve: bytes that stay free.
    """

    def __init__(self, folder: Path | None = None, reserve: int = 0) -> None:
        self.folder, self._reserve = folder, reserve
        self._claims: dict[Hashable, int] = {}

    def left(self) -> int | None:
        """Bytes that may be written now; None where that is not known."""
        free = self._free()
        return None if free is None else max(0, free - sum(self._claims.values()) - self._reserve)

    def is_claimed(self, layer: str) -> bool:
        """Whether a layer is on its way now."""
        return any(isinstance(holder, tuple) and layer in holder for holder in self._claims)

    def claim(self, holder: Hashable, needed: int) -> None:
        """See that `needed` bytes fit beside what others claim, and keep them for `holder` until `release`.

        What was claimed once is not refused later: `update` takes what is on disk by now off the claim.

        :raises Cannot: with the sizes and the remedy.
        """
        free = self._free()
        taken = sum(bytes_ for other, bytes_ in self._claims.items() if other != holder)
        if free is not None and needed and needed + taken + self._reserve > free:
            lacking = needed + taken + self._reserve - free
            others = f", {mib(taken)} are on their way already" if taken else ""
            raise Cannot(
                f"no room on disk: {mib(needed)} are needed, {self.folder} has {mib(free)} free{others}, and {mib(self._reserve)}"
                " stay free (setting disk_reserve_bytes)",
                f"free {mib(lacking)} there, or lower disk_reserve_bytes; {AGAIN}",
                "disk_full",
            )
        self._claims[holder] = needed

    def update(self, holder: Hashable, left: int) -> None:
        """So many bytes are still to be written for `holder`."""
        self._claims[holder] = left

    def release(self, holder: Hashable) -> None:
        """Nothing more is written for `holder`."""
        self._claims.pop(holder, None)

    def _free(self) -> int | None:
        if self.folder is None:
            return None
        place = self.folder
        while not place.exists():  # it is made with the first model
            place = place.parent
        return shutil.disk_usage(place).free


def mib(count: int) -> str:
    """A size in words."""
    return f"{count / MIB:,.0f} MiB"
