"""The line of a key in a TOML text."""

from __future__ import annotations

import pytest

from batos.mind.codex import line_of

TEXT = '''# a comment
[routing]
doubt = 4.0

[personas.robin]

# about the mission
core_mission = "To
listen."
pillars = [
    "one",  # why
    # between
    "two", "three",
]
triggers = [
    { pattern = 'a', weight = 1.0 },
    { pattern = 'b',
      weight = 2.0 },
]
[personas.robin.protocols]
sage_facet_ = """
Many
lines."""
last = 1
'''.replace('"To\nlisten."', '"""To\nlisten."""').replace("{ pattern = 'b',\n      weight", "{ pattern = 'b', weight")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (["routing"], "[routing]"),
        (["routing", "doubt"], "doubt"),
        (["personas", "robin"], "[personas.robin]"),
        (["personas", "robin", "core_mission"], "core_mission"),
        (["personas", "robin", "pillars"], "pillars = ["),
        (["personas", "robin", "pillars", 0], '"one"'),
        (["personas", "robin", "pillars", 2], '"two", "three"'),
        (["personas", "robin", "triggers", 1, "weight"], "'b'"),
        (["personas", "robin", "protocols", "sage_facet_"], "sage_facet_"),
        (["personas", "robin", "protocols", "last"], "last"),
        (["personas", "robin", "core_method"], "[personas.robin]"),
        (["personas", "robin", "pillars", 9], "pillars"),
    ],
)
def test_the_line_is_where_the_key_begins(path: list[str | int], words: str) -> None:
    line = line_of(TEXT, path)
    assert line is not None
    assert words in TEXT.splitlines()[line - 1]


@pytest.mark.parametrize("path", [[], ["nothing"], ["nothing", "here"]])
def test_what_is_not_there_has_no_line(path: list[str | int]) -> None:
    assert line_of(TEXT, path) is None
