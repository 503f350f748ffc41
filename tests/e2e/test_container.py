"""The container, built and run by the words of the page in podman: its daemon thinks a mission, and ends in good order.

No registry of images is asked: `tools/container_bases.sh` makes those that the Containerfile begins with. `NEED_CONTAINER=yes` fails where
that cannot be; otherwise the test is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import ROOT, until
from tests.support.shown_pages import commands_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

BUILD_S = 1500
PODMAN = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
"""What lets podman work within a container that itself has few rights."""
STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
OF_PIP = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Files by which pip reaches its index on this machine."""


class Engine:
    """Runs commands of the shell with a podman that keeps everything in one folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "containers.conf").write_text(PODMAN)
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        given = {"CONTAINERS_CONF": folder / "containers.conf", "CONTAINERS_STORAGE_CONF": folder / "storage.conf", "TMPDIR": folder}
        self._environment = os.environ | {name: str(value) for name, value in given.items()}

    def run(self, words: str, code: int | None = 0, limit_s: float = 300) -> str:
        """Return what a command prints; `code` is the exit status that it shall have, None any."""
        done = subprocess.run(
            words, shell=True, cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s
        )
        assert code is None or done.returncode == code, f"{words}: {done.returncode}, {done.stdout[-3000:]}"
        return done.stdout


@pytest.fixture
def engine() -> Iterator[Engine]:
    missing = [name for name in ("podman", "runc", "debootstrap", "apt-get") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        why = f"it takes root, podman, runc and debootstrap{f'; not here: {missing}' if missing else ''}"
        assert os.environ.get("NEED_CONTAINER") != "yes", why
        pytest.skip(why)
    folder = Path("/var/tmp") / f"batos-container-{os.getpid()}"  # not in memory, as the folder for tests may be: it takes gigabytes
    folder.mkdir()
    made = Engine(folder)
    try:
        made.run(f"mkdir {folder}/bases && sh tools/container_bases.sh {folder}/bases", limit_s=BUILD_S)
        yield made
    finally:
        made.run("podman rm --all --force --time 5", code=None)
        shutil.rmtree(folder, ignore_errors=True)


def test_the_words_of_the_page_build_it_and_have_it_think(engine: Engine) -> None:
    build, start, send = commands_of("docs/operations.md", "tests/e2e/test_container.py")
    bases = re.findall(r"^ARG (\w+_IMAGE)=([^@\s]+)", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    more = [f"--build-arg {name}=localhost/{image}" for name, image in bases]
    more += [f"-v {path}:{path}:ro" for path in OF_PIP if Path(path).exists()]
    assert build.endswith(" .")
    engine.run(f"{build.removesuffix(' .')} --pull-never {' '.join(more)} .", limit_s=BUILD_S)
    engine.run(start)
    until(lambda: engine.run("podman exec batos batos dashboard --once >/dev/null 2>&1 && echo up", code=None) == "up\n", "it is up", 300)
    told = engine.run(send)
    assert "COMPLETE" in told, told
    assert "error" not in engine.run("podman exec batos batos missions --state FAILED").casefold()
    engine.run("podman stop --time 60 batos")
    assert engine.run("podman inspect --format '{{.State.ExitCode}}' batos").strip() == "0", "it ended in good order"
