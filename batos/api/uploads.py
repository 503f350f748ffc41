"""Uploads of pictures for briefs: they arrive in parts, and are stored in the living image once complete."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any

from batos.api.dispatcher import handles
from batos.bridge.inference import picture_look as look_at_picture
from batos.concurrency import in_helper
from batos.config import MIB, Settings
from batos.config.limits import Limits, limit
from batos.errors import Busy, InvalidInput, MessageTooLarge, UnknownPicture
from batos.image import blobs, ledger
from batos.image.living_image import LivingImage
from batos.mind.inference import ThinkingLimits
from batos.objects import Root
from batos.wire import schemas
from batos.wire.endpoints import WireLimits
from batos.wire.outbox import Recipient

Reply = dict[str, Any]
_BESIDE_DATA = 512  # bytes of a message besides its data; base64 makes four bytes of three
AT_ONCE = 256
"""Uploads at the same time. Even a small picture takes memory for its record."""
_IDLE_S = 60.0  # seconds without progress after which an upload makes room for others


@dataclass(frozen=True, slots=True)
class UploadLimits(Limits):
    """Limits of images that clients upload."""

    image_bytes: int = limit(16 * MIB, ge=1024, le=128 * MIB)
    """Largest size of an image of a brief, in bytes."""
    image_pixels: int = limit(64_000_000, ge=1, le=1_000_000_000)
    """Largest number of pixels of an image of a brief. A decoder needs four bytes for each pixel."""
    memory_bytes: int = limit(64 * MIB, ge=1024, le=4096 * MIB)
    """Memory in bytes for images that are partly uploaded."""
    disk_bytes: int = limit(1024 * MIB, ge=1024, le=2**50)
    """Disk space in bytes for uploaded images that belong to no mission. Above it, the oldest images are removed."""
    hours: float = limit(24.0, ge=0, le=8760)
    """Hours for which an uploaded image that belongs to no mission is kept."""


class _Part:
    """Bytes of a picture that have come so far."""

    def __init__(self, size: int) -> None:
        self.size, self.data, self.at = size, bytearray(), time.monotonic()
        self.keeping: asyncio.Task[None] | None = None


class Uploads:
    """Uploads under way. Parts are accepted in order and held in memory; a complete picture is stored. `have` is the number of bytes
    received, so that a client can repeat lost parts.

    An unfinished upload counts towards `UploadLimits.memory_bytes`. Two clients may send one picture together.
    """

    def __init__(self, image: LivingImage, settings: Settings) -> None:
        self._image, self._settings = image, settings
        self._parts: dict[str, _Part] = {}

    @handles(schemas.UploadRequest)
    async def upload(self, request: schemas.UploadRequest, client: Recipient) -> None:
        """Take a part of an image, and tell the client at once: the reply speaks only of what is durable."""
        client.send(await self.take(request))

    @handles(schemas.ImageRequest)
    async def image(self, request: schemas.ImageRequest, client: Recipient) -> None:
        """Send a part of an image of a mission.

        :raises UnknownMission: if there is no mission of that id.
        :raises UnknownPicture: if it has no such image, or its images are no longer kept.
        :raises InvalidInput: if the part begins behind the end.
        """
        most = (WireLimits.of(self._settings).message_bytes - _BESIDE_DATA) * 3 // 4
        client.send(await in_helper(self._image.read, _part_of, request, most))

    async def take(self, request: schemas.UploadRequest) -> Reply:
        """Accept a part of an image. Return the bytes received so far, and facts about the image once it is complete and durable.

        :raises MessageTooLarge: if the image has more bytes or pixels than the limits allow.
        :raises InvalidInput: if it is not an image that models accept, or does not have its digest.
        :raises Busy: while other uploads use all the memory.
        """
        if (known := await self._known(request.digest)) is not None:
            return known
        self._check_size(request.bytes)
        part = self._parts.get(request.digest)
        if part is not None and part.size != request.bytes and part.keeping is None and time.monotonic() - part.at > _IDLE_S:
            del self._parts[request.digest]  # the client that announced the other size is gone
            part = None
        if part is not None and part.size != request.bytes:
            raise InvalidInput(
                f"upload: `bytes` is {request.bytes}, but earlier parts of this image gave {part.size}; send the same size with every part"
            )
        if request.data:
            data = _decoded(request.data)
            if part is None and request.offset == 0:
                part = self._parts[request.digest] = self._begin(request.bytes)
            # else this part came before, or comes too early
            if part is not None and part.keeping is None and request.offset == len(part.data):
                part.data += data
                part.at = time.monotonic()
                if len(part.data) > part.size:
                    del self._parts[request.digest]
                    raise InvalidInput(f"upload: more than the {part.size} bytes came that were announced; begin it again")
        have = 0 if part is None else len(part.data)
        if part is None or have < part.size:
            told = {"type": "upload", "digest": request.digest, "bytes": request.bytes, "have": have, "whole": False}
            return {**told, "part": max(3, (WireLimits.of(self._settings).message_bytes - _BESIDE_DATA) * 3 // 4)}
        if part.keeping is None:
            part.keeping = asyncio.create_task(self._keep(request.digest, part))
            # mark the exception as retrieved: all clients that wait for it may have left
            part.keeping.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(part.keeping)  # the client may leave: the upload goes on
        found = await self._known(request.digest)
        assert found is not None, "it is kept for hours"
        return found

    def named(self, images: list[schemas.Image]) -> str | None:
        """Return the pictures of a brief in the ledger's form; None where there are none.

        :raises InvalidInput: for more than the settings allow, or one that is named twice.
        """
        if len(images) > (limit := ThinkingLimits.of(self._settings).images):
            raise InvalidInput(f"submit: {len(images)} images; at most {limit} are taken")
        if len({one.digest for one in images}) < len(images):
            raise InvalidInput("submit: an image is named twice; name each once")
        rows = [{"digest": one.digest, "name": one.name} for one in images]
        return json.dumps(rows, ensure_ascii=False, separators=(",", ":")) if rows else None

    async def _known(self, digest: str) -> Reply | None:
        """Return the reply about a picture that is whole and durable; None where it is not there."""
        if self._image.read(blobs.about_picture, digest) is None:
            return None
        about = await self._image.system(blobs.bring_picture_again, digest)
        if about is None:  # the image was removed meanwhile
            return None
        return {"type": "upload", "digest": digest, "bytes": about["bytes"], "have": about["bytes"], "whole": True, "image": about}

    def _check_size(self, size: int) -> None:
        if size > (limit := UploadLimits.of(self._settings).image_bytes):
            raise MessageTooLarge(f"an image of {size / MIB:.1f} MiB; at most {limit / MIB:g} are taken: save it smaller")

    def _begin(self, size: int) -> _Part:
        """Make room for a picture."""
        room, now = UploadLimits.of(self._settings).memory_bytes, time.monotonic()
        taken = sum(part.size for part in self._parts.values())
        for digest, part in sorted(self._parts.items(), key=lambda one: one[1].at):
            full = taken + size > room or len(self._parts) >= AT_ONCE
            if full and part.keeping is None and now - part.at > _IDLE_S:
                taken -= self._parts.pop(digest).size
        if taken + size > room:
            if not self._parts:
                raise MessageTooLarge(f"an image of {size} bytes is too large; all uploads together have {room} bytes")
            raise Busy(f"other uploads take {taken} bytes of the {room} for all; try again later")
        if len(self._parts) >= AT_ONCE:
            raise Busy(f"{len(self._parts)} uploads are under way, the most at a time; try again later")
        return _Part(size)

    async def _keep(self, digest: str, part: _Part) -> None:
        data = bytes(part.data)
        try:
            if (found := await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())) != digest:
                raise InvalidInput(f"upload: what came is {found[:16]}…, and {digest[:16]}… was announced; begin it again")
            look = look_at_picture(data)
            if look.width * look.height > (limit := UploadLimits.of(self._settings).image_pixels):
                raise MessageTooLarge(f"an image of {look.width} × {look.height} pixels; at most {limit} in all are taken: save it smaller")
            about = {**look._asdict(), "bytes": len(data)}
            await self._image.system(blobs.add_picture, digest, data, about, UploadLimits.of(self._settings).disk_bytes)
        finally:
            self._parts.pop(digest, None)


def _part_of(root: Root, request: schemas.ImageRequest, most: int) -> Reply:
    shown = json.loads(ledger.mission_of(root, request.id).images or "[]")
    about = next((one for one in shown if one["digest"] == request.digest), None)
    if about is None:
        raise UnknownPicture(f"the mission {request.id!r} has no image {request.digest[:16]}…; its status names those it has")
    data = blobs.read_picture(root, request.digest)
    if request.offset >= len(data):
        raise InvalidInput(f"image: `offset` is {request.offset}, and the image has {len(data)} bytes")
    told = {"type": "image", "id": request.id, "digest": request.digest, "format": about["type"], "bytes": len(data)}
    part = data[request.offset : request.offset + most]
    return {**told, "offset": request.offset, "data": base64.b64encode(part).decode()}


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as e:
        raise InvalidInput(f"upload: `data` is not valid base64: {e}") from None
