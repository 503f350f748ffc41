"""Try an installed BAT OS, without its source tree: a daemon thinks a mission, shows its console, backs its image up, ends in good order.

Run by the interpreter of the environment that it is installed in, from a folder that is not the checkout. A scripted Ollama stands in for a
real one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import batos
from batos.testing import ScriptedOllama
from batos.wire import Client

WAIT_S = 60


def batos_says(*words: str) -> Any:
    """The JSON document that the installed command prints."""
    command = Path(sys.executable).with_name("batos")
    done = subprocess.run([command, *words, "--json"], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)


async def think(endpoint: str) -> str:
    """The answer to a mission."""
    async with Client(endpoint, WAIT_S) as client:
        accepted = await client.submit("I feel stuck")
        result = await client.result(accepted.id, timeout_s=WAIT_S)
        return str(result["text"])


def page(link: str) -> str:
    """A page of the console, as a browser gets it."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), urllib.request.ProxyHandler({}))
    with browser.open(link, timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def main() -> None:
    """Try it; an assertion fails where something is missing."""
    assert "site-packages" in batos.__file__, f"this is the source tree: {batos.__file__}"
    with tempfile.TemporaryDirectory(prefix="batos-smoke-") as folder, ScriptedOllama() as ollama:
        words = [sys.executable, "-I", "-m", "batos", "run", "--json", "--console", "--data", folder, "--listen", "tcp://127.0.0.1:*"]
        settings = {"inference.host": ollama.host, "autonomy.mode": "off", "console.listen": "127.0.0.1:0", "daemon.log_level": "error"}
        words += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder)
        try:
            assert daemon.stdout is not None
            started = json.loads(daemon.stdout.readline())
            endpoint = started["endpoints"][0]
            assert asyncio.run(think(endpoint)), "an answer"
            assert len(batos_says("personas", "--connect", endpoint)["personas"]) == 4, "the codex came along"
            assert "robin" in page(batos_says("console", "--data", folder, "--connect", endpoint)["link"]).lower(), (
                "the console's pages came along"
            )
            assert batos_says("backup", "--connect", endpoint)["damaged"] == []
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(WAIT_S) == 0
        finally:
            daemon.kill()
            daemon.wait()
        found = batos_says("restore", os.path.join(folder, "backups"), "--data", os.path.join(folder, "again"))
        assert found["damaged"] == []
    print(f"package: {batos.__version__} on Python {sys.version.split()[0]} thinks, shows, backs up, restores")


if __name__ == "__main__":
    main()
