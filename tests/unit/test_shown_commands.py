"""Each command that a document shows is one that the command line takes: verb, options, and the number of arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from batos.cli.app import app, register

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "lora_staging" / "README.md"]
)
_BATOS = re.compile(r"(?:^|[/(])batos$")
_BEFORE = ("sudo", "until", "if", "while", "!")
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown(text: str) -> Iterator[str]:
    """Yield the lines of shell that a page shows."""
    for block in _BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                yield line[2:]


def calls(line: str) -> Iterator[list[str]]:
    """Yield the words of each call of batos in a line of shell; quotes are kept together, what follows a pipe is left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    words: list[str] = []
    inside = False
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that the next line closes
        return
    before, skip = ";", False
    for token in [*tokens, ";"]:
        if skip:
            skip = False
        elif inside and (set(token) <= set("();|&") or token.startswith("#")):
            yield words
            inside = False
        elif inside and set(token) <= set("<>&"):
            skip = True
        elif inside:
            words.append(token)
        elif _BATOS.search(token) and (set(before) <= set("();|&") or before in _BEFORE or "(" in token):
            inside, words = True, []
        before = token


def taken(words: list[str]) -> str:
    """Return what the command line has against a call; empty if it takes it. Nothing is run."""
    command: Any = typer.main.get_command(app)
    context, arguments = None, list(words)
    try:
        while True:
            context = command.make_context(command.name or "batos", arguments, parent=context)
            arguments = [*context._protected_args, *context.args]
            if not hasattr(command, "resolve_command") or not arguments:
                return ""
            _, command, arguments = command.resolve_command(context, arguments)
    except typer.Exit:  # --help and --version
        return ""
    except Exception as e:
        return f"batos {' '.join(words)}: {getattr(e, 'message', '') or e!r}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_command_line_takes_what_a_page_shows(path: Path) -> None:
    register()
    shown_calls = [words for line in shown(path.read_text("utf-8")) for words in calls(line)]
    assert [why for words in shown_calls if (why := taken(words))] == []


def test_a_wrong_call_is_found() -> None:
    register()
    (line,) = shown("```console\n$ id=$(.venv/bin/batos send 'a brief; with marks' --no-such-flag) && batos frobnicate | cat\n```\n")
    assert len([words for words in calls(line) if taken(words)]) == 2
    assert not [words for words in calls("batos missions --all | grep x; batos send 'a b' > out.txt") if taken(words)]
