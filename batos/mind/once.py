"""A value that takes seconds to come to, and is the same for as long as the process lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import TypeVar

T = TypeVar("T")


def once(function: Callable[[], T]) -> Callable[[], T]:
    """Call `function` once. A thread that asks meanwhile waits for what another one comes to, and does not do the same beside it."""
    lock, found = threading.Lock(), cache(function)

    @wraps(function)
    def locked() -> T:
        with lock:
            return found()

    return locked
