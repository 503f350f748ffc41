"""The C library's allocator, told how this process lives: many threads that take turns.

glibc gives each thread that allocates while another does an arena of its own, and what one has let go of serves no other: helper threads
that each once held much would keep all of it for good. Python's threads hardly ever allocate at the same moment.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # of mallopt(3)


def one_arena() -> bool:
    """Let all threads share one arena, from now on; whether that could be said. To be called before there are threads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it; musl and macOS do not need it
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, 1))
