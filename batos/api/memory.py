"""Requests about the memory: ingest, contents, curation, search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from batos.api.dispatcher import handles
from batos.wire import schemas
from batos.wire.outbox import Recipient

if TYPE_CHECKING:
    from batos.memory.curator import Curator

Reply = dict[str, Any]


class IngestJob(Protocol):
    """Files that are being read into the memory; to be waited for, or closed."""

    files: list[str]
    refused: list[Reply]
    left_out: Reply

    async def done(self, tell: Callable[[Reply], object], /) -> Reply:
        """Wait until each file is read or refused; return the figures. `tell` takes the fate of each file as it comes."""

    def close(self) -> None:
        """Wait no more."""


class MemoryService(Protocol):
    """The memory of a running daemon, as its clients use it."""

    curator: Curator

    async def tell(self, *args: Any, **request: Any) -> Reply:
        """Make the changes asked for, and return the contents of the memory."""

    async def search(self, request: schemas.SearchRequest, /) -> Reply:
        """Return the passages that answer a question."""

    async def ask(self, paths: list[str], follow: list[str], exclude: Sequence[str], /) -> IngestJob:
        """Have files read, and folders followed."""


class LeaderGate(Protocol):
    """Refusal of requests that only the kernel that leads can serve."""

    def require_lead(self, doing: str, /) -> None:
        """Go on only if this kernel leads."""


class _Alone:
    def require_lead(self, doing: str, /) -> None:
        """See `LeaderGate`."""


class MemoryRequests:
    """Handlers of the requests about the memory."""

    def __init__(self, memory: MemoryService, leader: LeaderGate | None = None) -> None:
        """
        :param leader: refuses what only the kernel that leads can do; None: this one has the image to itself.
        """
        self._memory, self._leader = memory, leader or _Alone()
        self._watched: dict[tuple[Recipient, str | int | None], tuple[schemas.IngestRequest, int]] = {}

    @handles(schemas.IngestRequest)
    async def ingest(self, request: schemas.IngestRequest, client: Recipient) -> None:
        """Send the number of files; where the client watches, then the fate of each, and the figures at the end."""
        watched = (client, request.ref)
        asked, queued = self._watched.get(watched, (None, 0))
        # the client repeats its request after a silence, as when one file takes long: keep one watch, and read no file again
        if asked == request:
            client.send({"type": "ingest", "watching": True, "queued": queued})
            return
        self._leader.require_lead("read files, those of its machine,")
        ingest = await self._memory.ask(request.paths, request.follow, request.exclude)
        if not request.watch:
            ingest.close()
            more = {name: facts for name, facts in (("refused", ingest.refused), ("left_out", ingest.left_out)) if facts}
            client.send({"type": "ingest", "queued": len(ingest.files), **more})
            return
        client.send({"type": "ingest", "watching": True, "queued": len(ingest.files)})
        if watched in self._watched:
            ingest.close()
            return
        self._watched[watched] = request, len(ingest.files)
        try:
            client.send({"type": "ingest", **await ingest.done(lambda event: client.send({"type": "file", **event}, event=True))})
        finally:
            del self._watched[watched]

    @handles(schemas.MemoryRequest)
    async def memory(self, request: schemas.MemoryRequest, client: Recipient) -> Reply:
        """Forget, restore, pin or unpin a source as requested; return the contents of the memory."""
        return {"type": "memory", **await self._memory.tell(**request.model_dump(exclude={"op", "ref"}))}

    @handles(schemas.CurateRequest)
    async def curate(self, request: schemas.CurateRequest, client: Recipient) -> Reply:
        """Run one round of the curator."""
        self._leader.require_lead("curate the memory")
        return {"type": "curate", **await self._memory.curator.round("it was asked for", dry=request.dry)}

    @handles(schemas.SearchRequest)
    async def search(self, request: schemas.SearchRequest, client: Recipient) -> Reply:
        """Return the passages that answer a question."""
        return {"type": "search", **await self._memory.search(request)}
