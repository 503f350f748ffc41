"""Requests that another change of Ollama's models came between.

Ollama lists the files of its manifests and then looks at each. Where one is deleted in between, whatever was asked fails, of whichever
model: listing, creating and deleting with the path that is gone, looking at a model and chatting with "not found" (0.17.4,
`manifest.Manifests` in manifest/manifest.go; measured: one request in a hundred beside a client that makes and deletes models).
And a layer that a create found there may go with another model that has it before the manifest is written: then it is made again from
the upload on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

TIMES = 3
"""How often the same is asked: between a listing and its looks there is a millisecond, so twice in a row is rare."""


async def asked(call: Callable[[], Awaitable[T]]) -> T:
    """What a request answers, made again at once where another one came between.

    :param call: makes the request; one that is answered in parts reads them all. It may need others to be made again before it.
    :raises Exception: as the last one had it.
    """
    for _ in range(TIMES - 1):
        try:
            return await call()
        except Exception as e:
            if not (_may_be(e) or _may_be(e.__cause__)):
                raise
    return await call()


def _may_be(error: BaseException | None) -> bool:
    """Whether it may come of that. "Not found" mostly is true, and is then said again."""
    from batos.bridge.client_library import ResponseError

    if not isinstance(error, ResponseError):
        return False
    gone = "no such file or directory" in error.error and ("/manifests/" in error.error or "/blobs/" in error.error)
    return error.status_code == 404 or gone
