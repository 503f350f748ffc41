"""Files on their way into Ollama: content-addressed, and not uploaded twice."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ollama import AsyncClient

CHUNK_BYTES = 1024 * 1024


async def upload(client: AsyncClient, path: Path, *, digest: str | None = None, on_bytes: Callable[[int], None] | None = None) -> str:
    """See that Ollama has the content of a file; answers its digest, `sha256:...`.

    Asks first: to the upload of a blob that it has, Ollama answers without reading, and the connection breaks.

    :param digest: the file's digest, where it is known.
    :param on_bytes: hears how many bytes have been sent so far.
    :raises OSError, ResponseError, ConnectionError, httpx.HTTPError: where the file cannot be read or the server fails.
    """
    known = await asyncio.to_thread(digest_of, path) if digest is None else digest
    if not await has(client, known):
        # As AsyncClient.create_blob, which would read the file a second time for its digest and says nothing of progress.
        await client._request_raw("POST", f"/api/blobs/{known}", content=_chunks(path, on_bytes))  # type: ignore[no-untyped-call]
    return known


async def has(client: AsyncClient, digest: str) -> bool:
    """Whether Ollama has the blob of that digest."""
    # AsyncClient has no call for this question; its address and connections are the ones to ask with.
    return bool((await client._client.head(f"/api/blobs/{digest}")).status_code == 200)


def digest_of(path: Path) -> str:
    """The digest of a file's content, `sha256:...`."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


async def _chunks(path: Path, on_bytes: Callable[[int], None] | None) -> AsyncIterator[bytes]:
    sent = 0
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
            sent += len(chunk)
            if on_bytes is not None:
                on_bytes(sent)
