"""Follow a document: run its blocks in a folder, one after the other, and see whether what it shows is what appears.

    python tools/follow.py docs/tutorial.md [--in FOLDER] [--write]

A block is fenced with ```console. In it a line `$ command` is run by one shell for the whole document, lines `> …` after it belong to it,
the rest is what it shows. Figures, ids, paths and days may differ; `…` stands for any text, `…` or `[…]` alone on a line for any lines.
Of a command that shows nothing the exit code counts. Blocks ```sh and ```python are run whole, the first by the same shell.
What stands in a comment just before the block says how it is to be taken:

    <!-- follow: serves READY -->   its last command runs until the end; the next block begins when a line with READY has appeared
    <!-- follow: varies -->         a model speaks, or it depends on the machine: only the exit codes are compared
    <!-- follow: exit 1 -->         the last command ends with this code; else 0
    <!-- follow: by hand -->        is not run

`--write` puts what appeared into the document. Blocks of more than 24 lines are shown in part, with `[…]`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r"(?:<!-- follow: (?P<how>[^>]*?) -->\n)?^```(?P<kind>console|sh|python)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
HOME = "/home/you/batos"
LINES = 24
READY_S = COMMAND_S = 600
_END = "follow-end-of-command"


@dataclass
class Command:
    """One command of a block, what the document shows for it, and what came of it."""

    words: str
    shown: list[str] = field(default_factory=list)
    appeared: list[str] = field(default_factory=list)
    code: int = 0


@dataclass
class Block:
    how: str
    commands: list[Command]

    def trouble(self) -> Iterator[str]:
        """What is not as the document says."""
        wanted = int(self.how.removeprefix("exit ")) if self.how.startswith("exit ") else 0
        for command in self.commands:
            code = wanted if command is self.commands[-1] else 0
            if command.code != code:
                yield f"$ {command.words}\nended with {command.code}, not {code}:\n" + "\n".join(command.appeared)
            elif command.shown and not self.how.startswith(("varies", "serves")) and not _fits(command.shown, command.appeared):
                yield "\n".join([f"$ {command.words}", "shown:", *command.shown, "appeared:", *_cut(command.appeared)])


def blocks_of(text: str) -> Iterator[tuple[re.Match[str], Block]]:
    """The blocks of a document that are run."""
    for match in BLOCK.finditer(text):
        commands: list[Command] = []
        if match["kind"] == "sh":
            commands.append(Command(match["body"].rstrip("\n")))
        elif match["kind"] == "python":
            commands.append(Command(f"python3 - <<'{_END}'\n{match['body']}{_END}"))
        if commands:
            yield match, Block(match["how"] or "", commands)
            continue
        for line in match["body"].splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:]))
            elif line.startswith("> ") or line == ">":
                commands[-1].words += "\n" + line[2:]
            else:
                commands[-1].shown.append(line)
        yield match, Block(match["how"] or "", commands)


class Shell:
    """One bash in a folder, fed one command at a time."""

    def __init__(self, folder: Path, environment: dict[str, str], limit_s: float = COMMAND_S) -> None:
        self._folder, self._environment, self._limit_s = folder, environment, limit_s
        self._home = environment.get("HOME", str(Path.home()))
        self._serving: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, command: Command) -> None:
        """Run a command to its end.

        :raises TimeoutError: if it takes longer than it may.
        """
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        watchdog = threading.Timer(self._limit_s, self._kill)
        watchdog.start()
        # a command must not read what is meant for the shell
        self._bash.stdin.write(f"{{ {command.words}\n}} </dev/null\ncode=$?; echo; echo {_END} $code\n")
        lines = []
        for line in self._bash.stdout:
            if line.startswith(_END):
                command.code = int(line.split()[1])
                break
            lines.append(line.rstrip("\n"))
        else:
            watchdog.cancel()
            raise TimeoutError(f"$ {command.words}\nhas not ended after {self._limit_s} s:\n" + "\n".join(lines))
        watchdog.cancel()
        while lines and not lines[-1]:
            lines.pop()
        command.appeared = [_homely(line, self._folder, self._home) for line in lines]

    def serve(self, command: Command, ready: str) -> None:
        """Start what goes on until the end, and wait until it says that it is ready."""
        before, _, words = command.words.rpartition("\n")
        process = subprocess.Popen(
            ["bash", "-c", f"{before}\nexec {words}"], cwd=self._folder, env=self._environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._serving.append(process)
        assert process.stdout is not None
        watchdog = threading.Timer(min(READY_S, self._limit_s), process.kill)
        watchdog.start()
        for line in process.stdout:
            command.appeared.append(_homely(line.rstrip("\n"), self._folder, self._home))
            if ready in line:
                break
        else:
            command.code = process.wait() or 1
        watchdog.cancel()
        self._readers.append(threading.Thread(target=process.stdout.read, daemon=True))  # a full pipe would stop it
        self._readers[-1].start()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)

    def close(self) -> None:
        for process in self._serving:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(60)
        for reader in self._readers:
            reader.join(60)
        for process in self._serving:
            assert process.stdout is not None
            process.stdout.close()
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._bash.wait(60)
        self._kill()  # what it left in the background
        assert self._bash.stdout is not None
        self._bash.stdout.close()


def follow(
    text: str, folder: Path, environment: dict[str, str], instead: dict[str, str] | None = None, limit_s: float = COMMAND_S
) -> list[tuple[re.Match[str], Block]]:
    """Run all blocks of a document.

    :param instead: commands that are run in the place of others; an empty one is left out.
    :param limit_s: seconds that one command may take.
    :return: the blocks with what came of them, but those that are followed by hand.
    :raises TimeoutError: if a command takes longer than that.
    """
    shell, found = Shell(folder, environment, limit_s), list(blocks_of(text))
    try:
        for _, block in found:
            for command in block.commands if block.how != "by hand" else ():
                asked, command.words = command.words, (instead or {}).get(command.words, command.words)
                if not command.words:
                    command.words, command.appeared = asked, command.shown
                    continue
                if block.how.startswith("serves ") and command is block.commands[-1]:
                    shell.serve(command, block.how.removeprefix("serves "))
                else:
                    shell.run(command)
                command.words = asked
                print(f"$ {asked}", *command.appeared, "", sep="\n", flush=True)
    finally:
        shell.close()
    return [(match, block) for match, block in found if block.how != "by hand"]


def _homely(line: str, folder: Path, home: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line).replace(str(folder), HOME).replace(home, str(Path(HOME).parent)).rstrip()


def _cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LINES else [*lines[: LINES // 2], "[…]", *lines[-LINES // 2 :]]


def _fits(shown: list[str], appeared: list[str]) -> bool:
    """Compare what appeared with what a document shows: `…` stands for any text, and alone on a line for any lines."""
    parts = []
    for line in _plain(shown):
        any_lines = line in ("…", "[…]")
        parts.append("(?:.*\n)*?" if any_lines else ".*?".join(map(re.escape, line.split("…"))) + "\n")
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in _plain(appeared))) is not None


def _plain(lines: list[str]) -> list[str]:
    """Lines without what may differ: ids, figures, times, days, how columns are filled up."""
    plain = [re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{8}-\d+\b|\boid:[0-9a-f]+\b|\b[0-9a-f]{16}\b", "ID", line) for line in lines]
    plain = [re.sub(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "DAY", re.sub(r"\bCES?T\b", "CET", line)) for line in plain]
    plain = [re.sub(r"\d+(?:[.:-]\d+)* ?(?:s|min|h|B|KiB|MiB|GiB)?\b", "0", line) for line in plain]
    return [" ".join(line.split()) for line in plain if line.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path)
    parser.add_argument("--in", dest="folder", type=Path, help="a fresh checkout; default: an empty folder")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = given.document.read_text("utf-8")
    with tempfile.TemporaryDirectory() as empty:
        folder = (given.folder or Path(empty)).resolve()
        environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        followed = follow(text, folder, environment)
    if given.write:
        for match, block in reversed(followed):
            lines = [line for c in block.commands for line in ("$ " + c.words.replace("\n", "\n> "), *_cut(c.appeared))]
            text = text[: match.start("body")] + "\n".join(lines) + "\n" + text[match.end("body") :]
        given.document.write_text(text, "utf-8")
        return 0
    trouble = [line for _, block in followed for line in block.trouble()]
    print(*trouble, sep="\n\n", file=sys.stderr)
    return 1 if trouble else 0


if __name__ == "__main__":
    raise SystemExit(main())
