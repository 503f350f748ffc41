"""One real Ollama with the embedded models for a whole test run, shared by all its processes.

Who uses it holds a shared lock on a file. A guard process started by the first user runs `ollama serve` until it gets that lock
for itself: when the last user has let go, by ending or by being killed. No server outlives its users, and nothing is counted.
The model folder, build/test-ollama, is kept between runs.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "test-ollama"
LAUNCHER = ROOT / "batos" / "bridge" / "launcher.py"
START_S = 120
ANSWER_S = 60  # for which one that is there may be too busy to answer; where nobody listens, that is told at once


@contextmanager
def shared_ollama(folder: Path = FOLDER) -> Iterator[str]:
    """The address of the server, for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "users.lock").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with (folder / "start.lock").open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            host = _running(folder) or _start(folder)
            asyncio.run(_provision(host, folder))
        yield host


def binary() -> Path:
    """The `ollama` that the tests run."""
    from batos.bridge.ollama_server import find_binary
    from batos.config import Settings

    found = find_binary(Settings())
    assert found is not None, "no ollama binary: run `make ollama`"
    return found


def _running(folder: Path) -> str | None:
    try:
        host = str(json.loads((folder / "server.json").read_text())["host"])
        return host if _answers(host) else None
    except (OSError, ValueError, KeyError):
        return None


@contextmanager
def other_ollama(folder: Path) -> Iterator[str]:
    """The address of an Ollama with the same files as the shared one, whose manifests say that they came from another path."""
    models = folder / "models"
    models.mkdir(parents=True)
    (models / "blobs").symlink_to(FOLDER / "models" / "blobs")
    for manifest in _manifests():
        told = json.loads((FOLDER / "models" / manifest).read_text())
        for layer in told["layers"]:
            layer["from"] = f"/elsewhere/{layer.get('from', '')}"
        (models / manifest).parent.mkdir(parents=True)
        (models / manifest).write_text(json.dumps(told))
    host = _free_host()
    given = {"OLLAMA_HOST": host, "OLLAMA_MODELS": str(models), "HOME": str(folder), "OLLAMA_NOPRUNE": "1"}
    with (folder / "ollama.log").open("wb") as out:
        server = subprocess.Popen([binary(), "serve"], env={**os.environ, **given}, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_S
        while not _answers(host):
            assert time.monotonic() < deadline, f"no answer from Ollama; see {folder}/ollama.log"
            time.sleep(0.05)
        yield host
    finally:
        server.terminate()
        server.wait()


def copy_models(target: Path) -> None:
    """Have the embedded models in another folder of models, too: by hard links, where the file systems are one.

    Nothing but the files of these models is looked at: other tests make and delete models in the shared folder meanwhile.
    """
    for manifest in _manifests():
        told = json.loads((FOLDER / "models" / manifest).read_text())
        digests = [layer["digest"] for layer in (told["config"], *told["layers"])]
        for file in (manifest, *(Path("blobs") / digest.replace(":", "-") for digest in digests)):
            source, copy = FOLDER / "models" / file, target / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists():
                try:
                    os.link(source, copy)
                except OSError:  # another file system
                    shutil.copy2(source, copy)


def _manifests() -> list[Path]:
    """The manifests of the embedded models, in a folder of models."""
    from batos.testing.ollama import EMBEDDED

    return [Path("manifests", "registry.ollama.ai", "library", *name.split(":")) for name in EMBEDDED]


def _free_host() -> str:
    from tests.support.servers import free_port

    return f"127.0.0.1:{free_port()}"


def _answers(host: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{host}/api/version", timeout=ANSWER_S) as reply:
            return "version" in json.load(reply)
    except (OSError, ValueError):
        return False


def _start(folder: Path) -> str:
    with (folder / "guard.log").open("ab") as out:
        command = [sys.executable, __file__, str(folder), str(binary()), _free_host()]
        guard = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    deadline = time.monotonic() + START_S
    while (host := _running(folder)) is None:
        assert guard.poll() is None, f"the guard ended with {guard.returncode}; see {folder}/guard.log and ollama.log"
        assert time.monotonic() < deadline, f"no answer from Ollama; see {folder}/ollama.log"
        time.sleep(0.05)
    guard.returncode = 0  # it is meant to outlive this process: no ResourceWarning for a running child
    return host


async def _provision(host: str, folder: Path) -> None:
    from batos.bridge import installed_models
    from batos.bridge.client import connect
    from batos.bridge.model_builder import BuiltModels
    from batos.bridge.profiles import load_profile, modelfiles_folder
    from batos.bridge.provisioning import Provisioner

    async with connect(host) as client:
        installed_models.LOOK_S = START_S  # on a busy machine it lists its models slowly, and a daemon would ask again
        provisioner = Provisioner(client, load_profile("embedded"), modelfiles_folder(), built=BuiltModels(folder / "built.json"))
        failed = [s for s in await provisioner.ensure() if not s.ready]
    assert not failed, failed


def _guard(folder: Path, program: str, host: str) -> None:
    """Run the server until nobody uses it."""
    settings = [f"OLLAMA_HOST={host}", f"OLLAMA_MODELS={folder / 'models'}", f"HOME={folder}", "OLLAMA_NUM_PARALLEL=2"]
    with (folder / "ollama.log").open("wb") as out:
        command = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *settings, "--", program, "serve"]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    while not _answers(host):
        if server.poll() is not None:
            sys.exit(1)
        time.sleep(0.05)
    _write(folder / "server.json", json.dumps({"host": host, "pid": server.pid}))
    with (folder / "users.lock").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        (folder / "server.json").unlink(missing_ok=True)
        server.send_signal(signal.SIGTERM)
        server.wait()


def _write(path: Path, text: str) -> None:
    part: IO[str]
    with path.with_suffix(".part").open("w") as part:
        part.write(text)
    path.with_suffix(".part").replace(path)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
