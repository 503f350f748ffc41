"""Where sentences begin and end, in prose, Markdown, lists, tables, code and conversations."""

from __future__ import annotations

import time

import pytest

from batos.memory.chunking import sentences


def parts(text: str, kind: str = "text", longest: int = 1000) -> list[str]:
    return [text[start:end] for start, end in sentences(text, kind, longest)]


@pytest.mark.parametrize(
    "text",
    [
        "One ends here. | Two begins. | Three?! | Four",
        "Dr. Smith met Mrs. Jones at St. Mary's. | They talked.",
        "It cost $3.50, i.e. too much. | Version 2.0.1 is out.",
        "He left at 3 p.m. on Jan. 5. | We stayed until 5 p.m. | The end.",
        "The U.S. Army came. | It was made in the U.S. | That was it.",
        "J. R. R. Tolkien wrote it. | George W. Bush did not.",
        "Plants need vitamin C. | We do, too.",
        "See fig. 3 and No. 7 of sec. 2. | Did he? | No. | He left.",
        "Smith et al. found it. | Others (cf. Jones et al. 2004) did not.",
        '"Really?" he said. | "Yes!" | (He meant it.) | Fine.',
        "He waited... and waited. | Nothing came... | Then it did.",
        "Yahoo! is a firm. | Really.",
        "i went home. | it was late. | then i slept.",
        "Look at https://example.org/a.b?c=d. | It is good.",
        "这是一句话。|这是第二句！|真的吗？|是的。",
        "हिन्दी में। | दूसरा वाक्य।",
        "Das ist z.B. ein Satz. | Noch einer.",
        "\N{GRINNING FACE} Nice! | \N{FAMILY}",
    ],
)
def test_prose(text: str) -> None:
    apart = [part.strip() for part in text.split("|")]
    assert parts(text.replace(" | ", " ").replace("|", "")) == apart


def test_lines_that_were_wrapped_are_one_sentence_and_lines_that_end_on_purpose_are_not() -> None:
    wrapped = "This line goes on until it reaches the\nborder of the page, where the writer\nbegan a new one. And so on.\n"
    assert parts(wrapped) == [wrapped[: wrapped.index(" And")], "And so on."]
    assert parts("Milk\nEggs from the market in the village\nBread\n") == ["Milk", "Eggs from the market in the village", "Bread"]


def test_markdown() -> None:
    text = "# Title\n\nFirst. Second, which\ngoes on.\n\nUnder\n-----\n> A quote.\n> Its end.\nText [a B](c).\n\n***\n"
    assert parts(text, "markdown") == [
        "# Title", "First.", "Second, which\ngoes on.", "Under\n-----", "> A quote.", "> Its end.", "Text [a B](c).", "***",
    ]  # fmt: skip


def test_an_item_of_a_list_keeps_its_mark_and_its_lines() -> None:
    text = "To do:\n- milk\n- eggs, which\n  must be fresh. Really.\n1. First\n2) Second\n(a) Third"
    assert parts(text) == ["To do:", "- milk", "- eggs, which\n  must be fresh.", "Really.", "1. First", "2) Second", "(a) Third"]


def test_rows_of_tables_are_sentences() -> None:
    assert parts("| a. B | c |\n|---|---|\n| 1 | 2 |\nText.") == ["| a. B | c |", "|---|---|", "| 1 | 2 |", "Text."]
    assert parts("name\tage\tcity\nAda\t36\tLondon") == ["name\tage\tcity", "Ada\t36\tLondon"]


def test_fenced_code_is_cut_at_blank_lines_only() -> None:
    text = "Look:\n```python\na = 1. \nb = a\n\nc = 2\n```\nThen. So."
    assert parts(text, "markdown") == ["Look:", "```python\na = 1. \nb = a", "c = 2\n```", "Then.", "So."]
    assert parts("~~~\nnever closed. Yes.\nmore", "markdown") == ["~~~\nnever closed. Yes.\nmore"]


def test_code() -> None:
    body = "@x\nclass A:\n    def f(self):\n        return [\n            1.\n        ]\n    def g(self):\n        pass\nz = 1"
    assert parts(f"import a\nimport b\n\n{body}\n", "code") == ["import a\nimport b", body]
    assert parts("    def f():\n        pass\ndef g():\n    pass", "code") == ["def f():\n        pass", "def g():\n    pass"]


def test_a_turn_of_a_conversation_is_a_sentence() -> None:
    assert parts("Ann: Hi. How are you?\n\nBob: Fine. You?\n", "conversation") == ["Ann: Hi. How are you?", "Bob: Fine. You?"]


def test_what_is_too_long_is_parted_at_clauses_then_words_then_anywhere() -> None:
    assert parts("aaa bbb, ccc ddd eee", longest=12) == ["aaa bbb,", "ccc ddd eee"]
    assert parts("aaaa bbbb cccc dddd", longest=10) == ["aaaa bbbb", "cccc dddd"]
    assert parts("x" * 25, longest=10) == ["x" * 10, "x" * 10, "x" * 5]
    assert parts("a" * 9 + "e\N{COMBINING ACUTE ACCENT}" + "b" * 5, longest=10) == ["a" * 9, "e\N{COMBINING ACUTE ACCENT}" + "b" * 5]


@pytest.mark.parametrize("text", ["", " ", "\n\n\t\n", "\r\n", "\ufeff\n"])
def test_nothing(text: str) -> None:
    assert parts(text) == [part for part in [text.strip()] if part]


def test_a_line_without_end_takes_no_longer_than_its_length_demands() -> None:
    found = sentences("word " * 200_000)
    assert len(found) >= 1000
    assert max(end - start for start, end in found) <= 1000


@pytest.mark.parametrize(
    "text",
    [
        " " * 100_000 + "x",
        "." * 100_000 + "x",
        "\t" * 100_000 + "x",
        "--- " + " " * 100_000 + "x",
        " " * 50_000 + "|" + " " * 50_000 + "x",
        'x."' + '"' * 100_000 + "x",
        "|" * 100_000 + "x",
        "J. " * 30_000,
        "a\n" * 50_000,
        "e" + "\N{COMBINING ACUTE ACCENT}" * 100_000,
    ],
    ids=["spaces", "dots", "tabs", "ruler", "table", "quotes", "bars", "initials", "lines", "accents"],
)
@pytest.mark.parametrize("kind", ["text", "markdown", "code"])
def test_no_text_is_slow(text: str, kind: str) -> None:
    """A pattern that looks twice at a run of characters takes minutes for these."""
    begun = time.process_time()
    sentences(text, kind)
    assert time.process_time() - begun < 2
