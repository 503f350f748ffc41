"""Write the data folder of a daemon of an earlier version that tests start anew: tests/data/daemon-0.1.0.tar.gz.

It runs in the source tree of that version, with the environment of now:

    git worktree add /tmp/old 7364f75
    PYTHONPATH=/tmp/old .venv/bin/python tools/old_daemon.py tests/data/daemon-0.1.0.tar.gz

The daemon gets its missions over the wire, with a scripted Ollama, and is killed at the end. In it are missions of each state (complete,
rated, failed, cancelled, undone, paused, one that asks its user, one at work, one that waits for it), messages to taught methods of two
versions, a followed folder, an expert that was built and speaks, and a backup. tests/e2e/test_old_daemon.py says what is asked of each.
tools/old_image.py writes an image with what needs another hand than a client's: changes of the loop and archives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import batos
from batos.testing import ScriptedOllama
from batos.wire import Client

FOLDER = Path("/tmp/daemon-0.1.0")  # part of the names of the documents that are read from files
DATA, STAGING, NOTES = FOLDER / "data", FOLDER / "staging", FOLDER / "notes"
HELD = "before the concert"
"""Words of the brief that is planned, and never answered."""
SKIPPED = (".lock", ".tmp", ".index", ".log", ".sock", ".gguf", ".token", ".json")


async def given(endpoint: str, ollama: ScriptedOllama) -> None:
    """Give the daemon all kinds of missions."""
    async with Client(endpoint, timeout_s=300) as client:
        for id, brief, persona in (("plan", "Plan the day", "robin"), ("walk", "Where shall I walk?", "babs")):
            await client.submit(brief, id=id, persona=persona)
            await client.result(id, timeout_s=300)
        await client.rate("plan", 1, "as I like it")
        for id, name, greeting in (("lesson", "Ada", "Hello Ada"), ("again", "", "Hello you")):
            await client.teach("brick", "greet_", [{"args": [name], "result": greeting}], intent="a greeting", id=id)
            await client.result(id, timeout_s=300)
        await client.send("brick", "greet_", "Bob", id="greets")
        await client.result("greets", timeout_s=300)
        await client.send("memory", "remember_", "The key is under the third stone.", "Keys", id="remembers")
        await client.result("remembers", timeout_s=300)
        await client.send("memory", "remember_", "The dentist is on Tuesday at nine.", "Dentist", id="forgotten")
        await client.result("forgotten", timeout_s=300)
        await client.undo("forgotten")
        await client.ingest([], follow=[str(NOTES)])
        await client.submit(
            "Say it in a form",
            id="fails",
            persona="alfred",
            schema={"type": "object", "required": ["a"], "properties": {"a": {"const": 7}}},
        )
        with contextlib.suppress(batos.errors.MissionFailed):
            await client.result("fails", timeout_s=300)
        await client.experts(scan=True)
        await client.experts(persona="babs", voice="babs:ships-log-v1")
        await client.backup()
        await client.submit("Plan a party", id="asks", persona="robin", may_ask=True)
        async for event in client.watch("asks"):
            if event["type"] == "needs_input":
                break
        await client.submit(f"I feel stuck {HELD}", id="unfinished", persona="alfred")
        await asyncio.to_thread(ollama.wait_for, "/api/chat", len(ollama.chats) + 2, 300)
        await client.submit("And then?", id="follows", context="unfinished")
        await client.submit("Count the sheep", id="paused", context="unfinished")
        await client.pause("paused")
        await client.submit("Count the stars", id="cancelled", context="unfinished")
        await client.cancel("cancelled")
        for one in (await client.missions())["missions"]:
            print(one["id"], one["state"])
        print(await client.experts())


def main(path: Path) -> None:
    """Run the old daemon, and pack its folder."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    NOTES.mkdir(parents=True)
    (NOTES / "harbour.md").write_text("# Harbour\n\nThe ferry to Malta leaves at dawn from the old pier.\n")
    source = Path(batos.__file__).parents[1]
    shutil.copytree(source / "examples" / "experts" / "ships-log", STAGING / "ships-log")
    with ScriptedOllama() as ollama:
        ollama.say("def greet_(self, text):\n    return 'Hello ' + (text or 'you')\n", when="Hello you")
        ollama.say("def greet_(self, text):\n    return 'Hello ' + text\n", when="Hello Ada")
        ollama.fail("slow", when=lambda request: HELD in str(request["messages"]) and not request.get("format"), times=None)
        ollama.say("no form", when="Say it in a form")
        listen = f"ipc://{FOLDER}/s"
        command = [sys.executable, "-m", "batos", "run", "--data", str(DATA), "--listen", listen]
        for setting in (f"ollama_host={ollama.host}", "autotelic=off", f"lora_staging={STAGING}"):
            command += ["--set", setting]
        with (FOLDER / "log").open("w") as log:
            daemon = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(source)})
        try:
            asyncio.run(given(listen, ollama))
        finally:
            daemon.kill()
            daemon.wait()
    with tarfile.open(path, "w:gz", compresslevel=9) as archive:
        for one in sorted(DATA.rglob("*")):
            if one.is_file() and one.suffix not in SKIPPED:
                archive.add(one, str(one.relative_to(DATA)), filter=_anonymous)
    print(f"{path}: {path.stat().st_size} bytes")


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main(Path(sys.argv[1]))
