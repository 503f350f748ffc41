"""Files on their way into Ollama: content-addressed, and not uploaded twice."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ollama import AsyncClient


async def upload(client: AsyncClient, path: Path) -> str:
    """See that Ollama has the content of a file; answers its digest, `sha256:...`.

    Asks first: to the upload of a blob that it has, Ollama answers without reading, and the connection breaks.

    :raises OSError, ResponseError, ConnectionError, httpx.HTTPError: where the file cannot be read or the server fails.
    """
    digest = await asyncio.to_thread(_digest, path)
    # AsyncClient has no call for this question; its address and connections are the ones to ask with.
    if (await client._client.head(f"/api/blobs/{digest}")).status_code != 200:
        await client.create_blob(path)
    return digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
