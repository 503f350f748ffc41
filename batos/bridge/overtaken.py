"""Requests that another change of Ollama's models came between.

Ollama lists the files of its manifests and then looks at each. Where one is deleted in between, whatever was asked fails, of whichever
model: listing, creating and deleting with the path that is gone, looking at a model and chatting with "not found" (0.17.4,
`manifest.Manifests` in manifest/manifest.go; measured: one request in a hundred beside a client that makes and deletes models).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

TIMES = 3
"""How often the same is asked: between a listing and its looks there is a millisecond, so twice in a row is rare."""


async def asked(call: Callable[[], Awaitable[T]]) -> T:
    """What a request answers, made again at once where another one came between.

    :param call: makes the request; one that is answered in parts reads them all.
    :raises ResponseError: as the last one had it.
    """
    from ollama import ResponseError

    for _ in range(TIMES - 1):
        try:
            return await call()
        except ResponseError as e:
            if not _may_be(e.status_code, e.error):
                raise
    return await call()


def _may_be(status: int, error: str) -> bool:
    """Whether it may come of that. "Not found" mostly is true, and is then said again."""
    return status == 404 or ("manifests" in error and "no such file or directory" in error)
