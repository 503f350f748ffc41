"""Every command, script and program that a page shows is run: it ends as the page says, and shows what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import ROOT
from tests.support.shown_pages import ELSEWHERE, PAGES, RUN_BY, Machine, bare, machine, pages, run_by, shared_daemon, shown
from tools.follow import blocks_of

LONG = {f"docs/{name}.md" for name in ("api", "history", "operations", "side_by_side", "tools", "training")}
"""Pages whose commands take minutes on a slow machine."""


def followed(*, own: bool) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name, page in PAGES.items() if page.own == own]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("you")) as made, shared_daemon(made) as running:
        yield running


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", followed(own=False))
def test_a_page_is_run_with_the_daemon_that_is_there(name: str, shared: Machine) -> None:
    shared.follow(name)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", followed(own=True))
def test_a_page_that_starts_its_daemon_is_run(name: str, tmp_path: Path) -> None:
    with machine(tmp_path / "you", name) as made:
        made.follow(name)


def test_every_page_with_a_block_is_run() -> None:
    """A page that is written later needs an entry in tests/support/shown_pages.py, or a test of its own."""
    with_blocks = {name for name, text in pages().items() if list(blocks_of(text))}
    assert with_blocks == PAGES.keys() | ELSEWHERE.keys()


def test_a_command_that_is_not_run_with_its_page_is_run_by_a_test_of_its_own() -> None:
    there = [
        (name, block.how, command.words)
        for name, text in pages().items()
        for _, block in blocks_of(shown(name, text))
        for command in block.commands
    ]
    for (name, begin), file in RUN_BY.items():
        (words,) = [words for page, _, words in there if page == name and words.startswith(begin)]
        if file.endswith(".py"):
            assert f'commands_of("{name}"' in (ROOT / file).read_text(), f"{file} takes the words of {name} from there"
        else:
            assert bare(words) in [bare(other) for page, _, other in there if page == file], f"{file} has the command {words!r}, too"
    assert [(page, words) for page, how, words in there if how == "by hand" and not run_by(page, words)] == []
