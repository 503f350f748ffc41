"""What threads have let go of serves all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANY_THREADS = """
import re, sys, threading
from batos.resources import one_arena
if sys.argv[1] == "one":
    assert one_arena()
held = []
together = threading.Barrier(6)

def allocate():
    together.wait()
    for _ in range(2000):
        held.append(bytearray(30_000))  # from the C library itself

threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(re.findall(r"^[0-9a-f]+000000-", open("/proc/self/maps").read(), re.MULTILINE)))  # heaps of arenas are aligned
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc, and glibc")
def test_threads_share_one_arena() -> None:
    found = {}
    for how in ("one", "many"):
        command = [sys.executable, "-c", MANY_THREADS, how]
        child = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=True)
        found[how] = int(child.stdout)
    assert found["one"] < found["many"]


FREE_BETWEEN = """
import re
from batos.resources import give_memory_back, one_arena

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])

one_arena()
held = [bytearray(30_000) for _ in range(2000)]
last = held.pop()
held.clear()
before = resident()
assert give_memory_back()
print(before - resident(), len(last))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc, and glibc")
def test_what_is_free_below_what_is_held_is_given_back() -> None:
    command = [sys.executable, "-c", FREE_BETWEEN]
    child = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=True)
    assert int(child.stdout.split()[0]) > 40_000  # KiB, of 58,594
