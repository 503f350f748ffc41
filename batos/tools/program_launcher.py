"""The launcher of one program: it waits for leave, puts up walls, runs the program and tells how it ended. Run by path, stdlib only.

    python -I -S program_launcher.py STATUS_DESCRIPTOR

Its standard input gives a plan (one line of JSON), then the byte `g` to begin. If that ends before the byte, nothing runs. If it ends
later, its daemon is gone or gave up: the launcher kills its process group, and itself with it. The program cannot leave that group.
On STATUS_DESCRIPTOR the launcher writes `exit N`, `signal N`, or `error TEXT` where the program surely did not run.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import resource
import select
import signal
import sys
from typing import Any

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/timezone",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/services", "/etc/protocols", "/etc/resolv.conf",
    "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ssl/cert.pem", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates", "/etc/mime.types", "/etc/fonts",
    "/dev/urandom", "/dev/random",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/sys/kernel/ngroups_max",
)  # fmt: skip
"""Files and folders that every program may read."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
WAIT_S = 60.0
"""Seconds for which the launcher waits for leave."""
_PR_SET_PDEATHSIG = 1
_SIZES = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 256 << 20), (resource.RLIMIT_NOFILE, 1024))
# System calls that lead out of the walls or the process group: (number on x86_64, number on aarch64).
_REFUSED = {
    "setpgid": (109, 154), "setsid": (112, 157), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "bpf": (321, 280), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "io_uring_setup": (425, 425),
    "perf_event_open": (298, 241), "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104), "reboot": (169, 142),
    "open_by_handle_at": (304, 265), "pidfd_getfd": (438, 438), "fsopen": (430, 430), "open_tree": (428, 428), "move_mount": (429, 429),
    "userfaultfd": (323, 282),
}  # fmt: skip
_SOCKET = (41, 198)


def main(status: int) -> None:
    os.set_inheritable(status, False)
    parent = os.getpid()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ended, note = os.pipe()
    os.set_blocking(note, False)
    signal.set_wakeup_fd(note)
    plan = _plan()
    if plan is None:
        return
    failed, failing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _become(plan, parent)
        except BaseException as e:
            why = e.strerror or str(e) if isinstance(e, OSError) else str(e)
            os.write(failing, (why or type(e).__name__).encode()[:2000])
        os._exit(127)
    os.close(failing)
    if refusal := os.read(failed, 2000):
        os.write(status, b"error " + refusal)
        return
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            pid, code = os.waitpid(child, os.WNOHANG)
            if pid:
                end = f"signal {os.WTERMSIG(code)}" if os.WIFSIGNALED(code) else f"exit {os.WEXITSTATUS(code)}"
                os.write(status, end.encode())
                break
        if 0 in ready:
            break  # the daemon is gone, or gave up
    os.killpg(0, signal.SIGKILL)


def _plan() -> dict[str, Any] | None:
    """Return the plan once there is leave to begin; None if that does not come."""
    data = b""
    while not data.endswith(b"\ng"):
        ready, _, _ = select.select([0], [], [], WAIT_S)
        piece = os.read(0, 1 << 16) if ready else b""
        if not piece:
            return None
        data += piece
    plan: dict[str, Any] = json.loads(data[:-2])
    return plan


def _become(plan: dict[str, Any], parent: int) -> None:
    """Become the program, behind walls."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.umask(0o077)
    os.chdir(plan["folder"])
    for limit, value in (*_SIZES, (resource.RLIMIT_DATA, plan["memory"])):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)  # Python ignores them, and the program would inherit that
    _lock_up(plan)
    os.execve(plan["file"], plan["argv"], plan["env"])  # noqa: S606  no shell


def _lock_up(plan: dict[str, Any]) -> None:
    where = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sandbox", "jail.py")
    spec = importlib.util.spec_from_file_location("jail", where)
    assert spec is not None
    assert spec.loader is not None
    jail = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(jail)
    libc = ctypes.CDLL(None, use_errno=True)
    changeable = jail.READABLE | jail.CHANGEABLE
    allowed = [(path, jail.READABLE) for path in (*SYSTEM, *plan["readable"])] + [(path, changeable) for path in plan["writable"]]
    allowed += [(path, changeable) for path in DEVICES]
    refused = list(_REFUSED.values()) + ([] if plan["network"] else [_SOCKET])
    with contextlib.suppress(jail.Missing) if plan["without_walls"] else contextlib.nullcontext():
        try:
            jail.no_new_privs(libc)
            jail.restrict(libc, allowed, plan["network"])
            jail.install(libc, jail.program_without(refused))
        except jail.Missing:
            if not plan["without_walls"]:
                raise RuntimeError(
                    "this kernel lacks a wall (landlock or seccomp); the option without_walls runs it all the same"
                ) from None


if __name__ == "__main__":
    main(int(sys.argv[1]))
