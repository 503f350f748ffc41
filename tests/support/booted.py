"""A machine of its own on which systemd is process 1, to try our units for real: `with booted(folder) as machine: ...`.

It is a set of namespaces (mounts, processes, network, control groups ...) over a throw-away layer on this machine's files: whatever
happens in it is gone with it. Only what is asked for is started. The environment of the tests is at /opt/batos, the source tree at
/opt/source. It takes root, systemd, util-linux, overlayfs and control groups of version 2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
BOOT_S = 60
WAIT_S = 60
_NO_FOLDER = "sh: 0: getcwd() failed: No such file or directory\n"  # what a shell says that was started outside of its root
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = "/opt/batos/bin/python"
MASKED = (
    "systemd-sysctl.service", "systemd-tmpfiles-setup.service", "systemd-tmpfiles-setup-dev.service", "systemd-udevd.service",
    "systemd-udev-trigger.service", "systemd-modules-load.service", "tmp.mount", "systemd-timesyncd.service", "systemd-binfmt.service",
    "proc-sys-fs-binfmt_misc.automount", "dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "systemd-remount-fs.service", "systemd-random-seed.service", "systemd-machine-id-commit.service", "systemd-update-utmp.service",
    "kmod-static-nodes.service", "keyboard-setup.service", "console-setup.service", "systemd-firstboot.service", "networking.service",
)  # fmt: skip
"""What Debian starts with a machine and this one has no use for."""

_UP = """\
set -e
folder=$1 environment=$2 source=$3
mount --make-rprivate /
mount -t tmpfs tmpfs "$folder/layer"
mkdir "$folder/layer/upper" "$folder/layer/work" "$folder/layer/root"
root=$folder/layer/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/layer/upper,workdir=$folder/layer/work" "$root"
mount -t proc proc "$root/proc"
mount --bind /proc/sys "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/etc/systemd/system"
mkdir -p "$root/opt/batos" "$root/opt/source" "$root/run/host"
mount --bind "$environment" "$root/opt/batos"
mount --bind "$source" "$root/opt/source"
mount --bind "$folder/host" "$root/run/host"
cp "$folder/default.target" "$root/etc/systemd/system/"
shift 3
for closed; do [ "$closed" = -- ] && break; chmod o+x "$root$closed"; shift; done
shift
for unit; do ln -s /dev/null "$root/etc/systemd/system/$unit"; done
cd "$root"
exec chroot "$root" env -i container=batos NOTIFY_SOCKET=/run/host/notify PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --log-target=console --show-status=no
"""
_TARGET = """\
[Unit]
Description=nothing but what is asked for
Requires=systemd-journald.service
After=systemd-journald.service
AllowIsolate=yes
"""


class Unbootable(Exception):
    """This machine does not let such a one be made; why."""


class Machine:
    """One that is up."""

    def __init__(self, pid: int) -> None:
        self._enter = ["nsenter", "-t", str(pid), "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", f"--root=/proc/{pid}/root"]

    def run(self, *words: str, user: int | None = None, code: int | None = 0) -> str:
        """What a command on it prints, standard error included.

        :param user: number of the user who runs it; root if left out.
        :param code: the exit status that it shall have; None: any.
        """
        home = "/root" if user is None else f"/home/u{user}"
        given = [f"PATH={PATH}", f"HOME={home}", f"XDG_RUNTIME_DIR=/run/user/{user or 0}", "PYTHONPATH=/opt/source"]
        who = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        there = ["env", "-i", *given, *who, "sh", "-c", 'cd "$HOME"; exec "$@"', "sh"]
        try:
            done = subprocess.run(
                [*self._enter, *there, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT_S, cwd="/"
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not within {WAIT_S} s: {' '.join(words)}; the journal: {self._journal()}") from None
        said = done.stdout.removeprefix(_NO_FOLDER)
        assert code is None or done.returncode == code, f"{' '.join(words)}: {done.returncode}, {said}; the journal: {self._journal()}"
        return said.strip()

    def batos(self, *words: str, user: int | None = None, code: int | None = 0) -> str:
        """What our command prints there."""
        return self.run(PYTHON, "-m", "batos", *words, user=user, code=code)

    def write(self, path: str, text: str) -> None:
        """Put a file there."""
        self.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && printf %s "$2" >"$1" && chmod 644 "$1"', "sh", path, text)

    def shown(self, name: str, user: int | None = None) -> str:
        """A property of the daemon's unit, as systemd says it."""
        return self.run("systemctl", *(["--user"] if user else []), "show", "-P", name, "batos.service", user=user)

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """What `look` says, once it says something."""
        deadline = time.monotonic() + WAIT_S
        while not (found := look()):
            assert time.monotonic() < deadline, (
                f"not in {WAIT_S} s: {what}; {self.run('journalctl', '--no-pager', '-n', '20', '-o', 'cat')}"
            )
            time.sleep(0.1)
        return found

    def _journal(self) -> str:
        words = ["journalctl", "--no-pager", "-n", "30", "-o", "short-monotonic"]
        return subprocess.run([*self._enter, *words], capture_output=True, text=True, timeout=WAIT_S, cwd="/").stdout


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """Such a machine, for as long as it is needed.

    :raises Unbootable: where there can be none.
    """
    group = _group(folder)
    (folder / "layer").mkdir()
    (folder / "host").mkdir()
    (folder / "default.target").write_text(_TARGET)
    (folder / "up.sh").write_text(_UP)
    closed = [str(one) for one in reversed(Path(sys.base_prefix).resolve().parents) if not one.stat().st_mode & 0o001]
    words = ["sh", str(folder / "up.sh"), str(folder), sys.prefix, str(ROOT), *closed, "--", *MASKED]
    spaces = ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "--kill-child", "--"]
    entering = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(group)]
    with (folder / "log").open("wb") as log, contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ear:
        ear.bind(str(folder / "host" / "notify"))
        outer = subprocess.Popen([*entering, *spaces, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _await(ear, outer, folder / "log")
            ear.close()  # it goes on telling, and would wait for a socket that nobody reads
            machine = Machine(int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]))
            machine.run("systemctl", "log-target", "journal")
            yield machine
        finally:
            outer.kill()
            outer.wait()
            _drop(group)


def _group(folder: Path) -> Path:
    missing = [name for name in ("unshare", "nsenter", "setpriv", "systemctl", "journalctl") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing or not SYSTEMD.exists():
        raise Unbootable(f"it takes root and systemd{f'; not here: {missing}' if missing else ''}")
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    unified = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if unified is None or "overlay" not in Path("/proc/filesystems").read_text():
        raise Unbootable("it takes overlayfs, and control groups of version 2")
    group = unified / f"batos-test-{os.getpid()}-{folder.name}"
    try:
        group.mkdir()
    except OSError as e:
        raise Unbootable(f"no control group can be made: {e.strerror}") from None
    return group


def _await(ear: socket.socket, outer: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until systemd says that all is up: it tells whoever started it, as a service does."""
    deadline = time.monotonic() + BOOT_S
    ear.settimeout(0.5)
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            if b"READY=1" in ear.recv(8192).split(b"\n"):
                return
        if outer.poll() is not None:
            break
    raise Unbootable(f"systemd does not come up here: {log.read_text('utf-8', 'replace')[-400:]}")


def _drop(group: Path) -> None:
    """Take the control group away, once the last of its processes is gone."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            for one in sorted((path.parent for path in group.rglob("cgroup.procs")), reverse=True):
                one.rmdir()
            return
        except OSError:  # one of them ends just now
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
