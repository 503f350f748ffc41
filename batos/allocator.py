"""The C library's allocator, told how this process lives: many threads that take turns.

glibc gives each thread that allocates while another does an arena of its own, and what one has let go of serves no other: helper threads
that each once held much would keep all of it for good. Python's threads hardly ever allocate at the same moment.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # of mallopt(3)
_libc = ctypes.CDLL(None)


def one_arena() -> bool:
    """Let all threads share one arena, from now on; whether that could be said. To be called before there are threads."""
    mallopt = getattr(_libc, "mallopt", None)  # glibc has it; musl and macOS do not need it
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, 1))


def give_back() -> bool:
    """Give the system back what lies free between what is held; whether there was anything. After work that held much for a while: what it
    let go of would be the process's for good, as long as anything above it is held."""
    trim = getattr(_libc, "malloc_trim", None)
    return trim is not None and bool(trim(0))
