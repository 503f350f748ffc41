"""Fences stripped, runaways cut, and honest text left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.bridge.model_output import LOOP_SPAN, WHITESPACE_RUN, RunawayWatch, strip_fences


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("plain", "plain"),
        ("```python\ndef f(self):\n    return 1\n```\nThat is it.", "def f(self):\n    return 1"),
        ("Here:\n~~~\nx\n~~~", "x"),
        ('```json\n{"a": "```"}\n```', '{"a": "```"}'),
        ("````\n```\ninner\n```\n````", "```\ninner\n```"),
        ("```\nnever closed", "never closed"),
        ("use `code` in ```one line``` here", "use `code` in ```one line``` here"),
        ("", ""),
    ],
)
def test_fences(text: str, inside: str) -> None:
    assert strip_fences(text) == inside


def run(text: str, step: int = 3) -> tuple[str | None, int]:
    """What is kept where `text`, fed in pieces, is cut, and how much was fed by then."""
    watch = RunawayWatch()
    for at in range(0, len(text), step):
        if (kept := watch.feed(text[at : at + step])) is not None:
            return kept, len(watch.text)
    return None, len(watch.text)


def test_endless_whitespace_is_cut() -> None:
    kept, fed = run('{"a": 1' + "\n \t" * 1000)
    assert kept == '{"a": 1'
    assert fed < WHITESPACE_RUN + 100


@pytest.mark.parametrize("unit", ["=", "no ", "I am here for you. ", "x" * 7 + " and then some more words follow here\n"])
def test_a_loop_is_cut_to_one_round(unit: str) -> None:
    kept, fed = run("It began well. " + unit * 400)
    assert kept is not None
    assert kept.startswith("It began well.")
    assert len(kept) <= len("It began well. ") + 2 * len(unit)
    assert fed < LOOP_SPAN + 4 * len(unit) + 100


@pytest.mark.parametrize(
    "text",
    [
        "| a | b |\n|---|---|\n" + "".join(f"| {i} | {i * i} |\n" for i in range(60)),
        "\n".join(f"{i}. Step number {i} of the plan" for i in range(80)),
        "A line\n" + "-" * 80 + "\nAnother\n" + "=" * 80,
        '{\n' + "".join(f'{" " * 40}"key{i}": {i},\n' for i in range(30)) + "}",
        "".join(f"{i % 7} {i % 11} " for i in range(400)),
    ],
)  # fmt: skip
def test_honest_text_is_left_alone(text: str) -> None:
    assert run(text) == (None, len(text))


@given(st.text(max_size=300), st.integers(1, 60))
def test_what_is_kept_is_the_beginning_of_what_was_fed(text: str, step: int) -> None:
    kept, _ = run(text * 3, step)
    assert kept is None or (text * 3).startswith(kept)
