"""Run a program behind the system call filter of our systemd units: `python -m tests.support.walled PROGRAM WORD...`

The filter is made as systemd makes it, of the same groups (`systemd-analyze syscall-filter`) and by the same library
(libseccomp), so that it can be tried where no systemd runs.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

from batos.cli.service import unit

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000 | errno.EPERM
_NO_NEW_PRIVS = 38
LIBRARY = ctypes.util.find_library("seccomp")


def allowed() -> set[str]:
    """The system calls that the units allow, by name."""
    text = unit(Path("/var/lib/batos"), None, user=False)
    match = re.search(r"^SystemCallFilter=(.*)$", text, re.MULTILINE)
    assert match is not None
    return _members(match[1].split())


def _members(words: list[str]) -> set[str]:
    found: set[str] = set()
    for word in words:
        if word.startswith("@"):
            listed = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True).stdout
            found |= _members([line.strip() for line in listed.splitlines()[1:] if line.strip() and not line.strip().startswith("#")])
        else:
            found.add(word)
    return found


def wall_in(names: set[str]) -> None:
    """Have this process, and those that it starts, make no other system calls: they fail with EPERM."""
    library = ctypes.CDLL(LIBRARY, use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    filter_ = library.seccomp_init(_ERRNO)
    for name in names:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert library.seccomp_rule_add(filter_, _ALLOW, number, 0) == 0, name
    assert ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert library.seccomp_load(filter_) == 0


if __name__ == "__main__":
    wall_in(allowed())
    os.execvp(sys.argv[1], sys.argv[1:])
