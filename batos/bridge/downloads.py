"""Downloads: pull a model from a registry, layer by layer, if it fits on the disk, and so that a kill loses little.

Ollama records the progress of a layer when a transfer ends, and not at its own end. Therefore it restarts after a kill all parts that were
under way, up to 16 of 100 MB to 1 GB. So a long transfer is interrupted and resumed now and then.

Disk space is claimed before a pull or a create, so that neither fails half way nor fills the disk of the image.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batos.bridge.model_status import AGAIN, ModelProgress, ModelUnavailable, PullAllowance, ServerErrors
from batos.config import MIB
from batos.config.limits import Limits, limit

if TYPE_CHECKING:
    from ollama import AsyncClient, ProgressResponse


@dataclass(frozen=True, slots=True)
class ProvisionLimits(Limits):
    """Limits of the provisioning of models."""

    concurrency: int = limit(2, ge=1, le=16)
    """Greatest number of models that are pulled at the same time, and likewise of models that are created."""
    retry_s: float = limit(60.0, ge=1, le=86_400)
    """Seconds before a failed model is retried."""
    reserve_bytes: int = limit(512 * MIB, ge=0, le=2**50)
    """Bytes of free disk space that a pull or a build must leave."""
    note_s: float = limit(60.0, ge=0.1, le=86_400)
    """Seconds between two notes in which Ollama records the progress of a pull: a kill may lose this much progress."""


class DiskSpace:
    """Free disk space in the folder of Ollama's models, less the claims of downloads under way.

    :param folder: that folder; None if unknown, as for an Ollama that is not the daemon's own: then everything fits.
    :param reserve: bytes that stay free.
    """

    def __init__(self, folder: Path | None = None, reserve: int = 0) -> None:
        self.folder, self._reserve = folder, reserve
        self._claims: dict[Hashable, int] = {}

    def left(self) -> int | None:
        """Return the bytes that may be written now; None if that is not known."""
        free = self._free()
        return None if free is None else max(0, free - sum(self._claims.values()) - self._reserve)

    def is_claimed(self, layer: str) -> bool:
        """Return True if a layer is being downloaded now."""
        return any(isinstance(holder, tuple) and layer in holder for holder in self._claims)

    def claim(self, holder: Hashable, needed: int) -> None:
        """Claim `needed` bytes for `holder` until `release`, if they fit beside other claims.

        A claim is never refused later: `update` subtracts the bytes that are on disk by now.

        :raises Cannot: with the sizes and the remedy.
        """
        free = self._free()
        taken = sum(bytes_ for other, bytes_ in self._claims.items() if other != holder)
        if free is not None and needed and needed + taken + self._reserve > free:
            lacking = needed + taken + self._reserve - free
            others = f", {mib(taken)} are on their way already" if taken else ""
            raise ModelUnavailable(
                f"no room on disk: {mib(needed)} are needed, {self.folder} has {mib(free)} free{others}, and {mib(self._reserve)}"
                " stay free",
                f"free {mib(lacking)} there; {AGAIN}",
                "disk_full",
            )
        self._claims[holder] = needed

    def update(self, holder: Hashable, left: int) -> None:
        """Set the bytes that are still to be written for `holder`."""
        self._claims[holder] = left

    def release(self, holder: Hashable) -> None:
        """Release the disk space that `holder` claimed."""
        self._claims.pop(holder, None)

    def _free(self) -> int | None:
        if self.folder is None:
            return None
        place = self.folder
        while not place.exists():  # Ollama makes the folder with the first model
            place = place.parent
        return shutil.disk_usage(place).free


def mib(count: int) -> str:
    """Return a size in words."""
    return f"{count / MIB:,.0f} MiB"


Step = Callable[[ModelProgress], None]

TOO_LARGE = "too_large"
"""Cause of a failure: the model exceeds the size limit."""
NOTE_S = 60.0  # seconds between two notes, if the settings do not give them
NEAR_END = 0.05  # share of a layer; a pull is not interrupted within this share of the end
RECORD_S = 2.0  # seconds that Ollama gets to record the progress of an interrupted pull
RECORD_POLL_S = 0.02
QUIET_S = 0.5  # seconds without new files after which a cancelled pull counts as finished
CLOCK_S = 0.02  # seconds by which a file's time may lag behind the clock
# Ollama's answer while the cancelled pull still ends; tries, and the pause between them
STILL_ENDING, ENDING_TRIES, ENDING_PAUSE_S = "context canceled", 50, 0.1


class _Anew(Exception):
    """The transfer shall be broken off and begun anew."""


class _Transfer:
    """Progress of one pull: claims disk space as each layer begins, and decides when to interrupt the transfer or stop it.

    `came` is the number of bytes transferred so far.
    """

    def __init__(self, model: str, room: DiskSpace, step: Step, note_s: float, allowance: PullAllowance | None = None) -> None:
        self._model, self._room, self._step, self._note_s = model, room, step, note_s
        self._allowance = allowance or PullAllowance()
        self._needed = 0
        self._there = _blobs(room.folder)
        self._had: dict[str, int] = {}  # layer -> bytes that were there before the pull
        self._have: dict[str, int] = {}
        self.layers: set[str] = set()  # layers that Ollama has reported
        self._noted: dict[str, int] = {}  # layer -> bytes at its last interruption
        self._told: set[str] = set()  # layers that Ollama has reported as complete
        self._whole = False  # True if a layer is complete: Ollama checks it at the end of the transfer that brought it, not of a later one
        self.again()

    def again(self) -> None:
        """Record that a transfer begins."""
        self._begun = time.monotonic()

    @property
    def came(self) -> int:
        return sum(self._have.values()) - sum(self._had.values())

    def _begins(self, layer: str, completed: int, total: int) -> None:
        # Ollama may first report a layer when much of it has come, and reports bytes that were there as new bytes.
        known_before = self._there is None or _blob(layer) in self._there
        there = completed if completed >= total and known_before else 0
        self._needed += total - there
        most = self._allowance.most
        if most is not None and self._needed > most:
            raise ModelUnavailable(
                f"{self._model} takes {mib(self._needed)} or more, and {mib(most)} may be pulled for it",
                f"pull it yourself (`ollama pull {self._model}`), or let the loop pull more (setting autonomy.pull_bytes)",
                TOO_LARGE,
            )
        self._room.claim((self._model, layer), total - completed)
        if there < total:
            self._allowance.begins(layer)
        self._had[layer] = there
        self.layers.add(layer)

    def hear(self, part: ProgressResponse) -> None:
        """Process one step.

        :raises Cannot: if a layer does not fit, or exceeds the allowance.
        :raises _Anew: when it is time to restart the transfer.
        """
        layer, total, completed = part.digest or "", part.total, part.completed or 0
        if layer and total is not None:
            if layer in self.layers:
                self._room.update((self._model, layer), total - completed)
            else:
                self._begins(layer, completed, total)
            self._have[layer] = completed
            if completed >= total and layer not in self._told:
                self._told.add(layer)
                self._allowance.whole(completed - self._had[layer])
        self._step(ModelProgress(self._model, part.status or "", layer, part.completed, total))
        if layer and total is not None:
            self._whole = self._whole or completed >= total
            worth_it = completed > self._noted.get(layer, 0) and total - completed > NEAR_END * total
            if worth_it and not self._whole and time.monotonic() - self._begun > self._note_s:
                self._noted[layer] = completed
                raise _Anew

    def over(self) -> None:
        """End the transfer."""
        for layer in self.layers:
            self._room.release((self._model, layer))


def _blob(layer: str) -> str:
    """Return the name of a layer's file."""
    return layer.replace(":", "-")


def _blobs(folder: Path | None) -> set[str] | None:
    """Return the names of the layers that an Ollama has; None if its folder is not known."""
    return None if folder is None else {path.name for path in (folder / "blobs").glob("sha256-*")}


async def pull(
    client: AsyncClient,
    name: str,
    *,
    model: str,
    room: DiskSpace,
    step: Step,
    again: str = AGAIN,
    note_s: float = NOTE_S,
    allowance: PullAllowance | None = None,
) -> None:
    """Pull `name`. Ollama keeps the data of an interrupted or cancelled pull; the next pull resumes it.

    :param model: name under which its steps are reported.
    :param again: remedy for the error message.
    :param note_s: seconds after which the transfer is restarted, so that Ollama records its progress.
    :param allowance: limit of the pull, and the bytes pulled.
    :raises Cannot: if the model is unavailable, a layer would not fit, or it is larger than allowed.
    """
    remedy = f"see that this machine reaches the registry ({again}), or run `ollama pull {name}` where it does"
    allowance = allowance or PullAllowance()
    transfer = _Transfer(model, room, step, note_s, allowance)
    try:
        with ServerErrors(f"cannot pull {name}", remedy, reported="registry"):
            while not await _transferred(client, name, transfer, remedy):
                await _recorded(room.folder, transfer.layers)
    except asyncio.CancelledError:
        await _recorded(room.folder, transfer.layers)
        raise
    finally:
        allowance.came += transfer.came
        transfer.over()


async def _transferred(client: AsyncClient, name: str, transfer: _Transfer, remedy: str) -> bool:
    """Run one transfer. Return True if it completed, and was not interrupted on purpose."""
    from batos.bridge.client_library import ResponseError

    transfer.again()
    for tries_left in reversed(range(ENDING_TRIES)):
        try:
            stream: AsyncIterator[ProgressResponse] = await client.pull(name, insecure=on_loopback(name), stream=True)
            await follow_steps(stream, transfer.hear, remedy)
            return True
        except _Anew:
            return False
        except ResponseError as e:
            if STILL_ENDING not in e.error or not tries_left:
                raise
            await asyncio.sleep(ENDING_PAUSE_S)
    return False


async def follow_steps(stream: AsyncIterator[ProgressResponse], hear: Callable[[ProgressResponse], None], remedy: str) -> None:
    """Read the steps of a pull or a create to their end.

    :raises Cannot: when they end before success, or `hear` raises it; Ollama stops then.
    """
    last: str | None = None
    async with contextlib.aclosing(stream) as steps:  # type: ignore[type-var]
        async for part in steps:
            last = part.status
            hear(part)
    if last != "success":
        raise ModelUnavailable(f"Ollama stopped at {last!r}", remedy, "truncated")


async def _recorded(folder: Path | None, layers: set[str]) -> None:
    """Wait until Ollama has noted how far the layers of a pull came that was broken off just now, where its `folder` is known."""
    since = time.time() - CLOCK_S

    def noted(layer: str) -> bool:
        parts = list((folder / "blobs").glob(f"{layer.replace(':', '-')}-partial-*")) if folder is not None else []
        return not parts or any(part.stat().st_mtime >= since for part in parts)

    end = time.monotonic() + RECORD_S
    while not all(map(noted, layers)) and time.monotonic() < end:  # noqa: ASYNC110 - the files are another program's
        await asyncio.sleep(RECORD_POLL_S)


async def clear_when_quiet(folder: Path, layers: Collection[str], since: float | None) -> list[str]:
    """Delete the files of a cancelled pull. Return their names. A pull that was cancelled before its first layer was reported may create
    files a moment later. So the search is repeated until no file has come for `QUIET_S`.

    :param layers: layers that the pull had begun.
    :param since: parts that were written since this time are its, too; None: there may be those of another pull.
    """
    gone: list[str] = []
    quiet = time.monotonic() + QUIET_S
    while time.monotonic() < quiet:
        if found := await asyncio.to_thread(clear_leftovers, folder, layers, since):
            gone += found
            quiet = time.monotonic() + QUIET_S
        await asyncio.sleep(RECORD_POLL_S)
    return gone


def clear_leftovers(folder: Path, layers: Collection[str], since: float | None = None) -> list[str]:
    """Delete the leftovers of a pull: its parts, and files of its layers that no model refers to.

    :param folder: folder of an Ollama's models. Its server does the same when it starts.
    """
    blobs, gone = folder / "blobs", []
    names = [_blob(layer) for layer in layers]
    used = _used(folder) if names else set()
    found = [path for name in names for path in blobs.glob(f"{name}-partial*")] + [blobs / name for name in names if name not in used]
    if since is not None:
        found += [path for path in blobs.glob("sha256-*-partial*") if _written(path) >= since]
    for path in dict.fromkeys(found):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            gone.append(path.name)
    return gone


def _written(path: Path) -> float:
    """Return the time of a file's last change; a time long ago if the file is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _used(folder: Path) -> set[str]:
    """Return the files of layers that models of an Ollama refer to."""
    used = set()
    for path in (folder / "manifests").rglob("*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # a folder, or a file that is not a manifest
            read = json.loads(path.read_bytes())
            used |= {_blob(str(one["digest"])) for one in (read["config"], *(read.get("layers") or ()))}
    return used


def on_loopback(name: str) -> bool:
    """Return True if a model's name points to a registry on this machine. Such a registry speaks plain HTTP, which only this machine can
    overhear."""
    host, slash, _ = name.partition("://")[2].partition("/") if "://" in name else name.partition("/")
    if not slash:
        return False
    bare = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
