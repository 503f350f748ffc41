"""The check of plain words finds what it is for, and writing anew changes no word."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_words", ROOT / "tools" / "check_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _tool()


@pytest.mark.parametrize(
    "text",
    [
        "word " * 26 + "end.",
        "word " * 13 + "and; " + "word " * 13 + "end.",
        "Nobody reads this.",
        "A port is no number.",
        "| cell | whoever asks |",
        "* an item\n  that somebody wrote",
        "No one reads this.",
        "The client is told the state.",
        "Where it may have been told, the notice is in doubt.",
        "A fault is not told twice.",
        "The tokens were let go.",
        "A search that comes to nothing ends.",
        "The mission will complete.",
        "The console can do nothing that a client cannot do.",
        "A restart is not without a cost.",
        "A retry is not unusual.",
        "| `port` | the same as above |",
        "| `edit prompt` | changes a prompt; likewise `edit facet` |",
        "| `context` | begins when the former has ended |",
        "| `b` | *of them* |",
    ],
)
def test_a_broken_rule_is_found(text: str) -> None:
    assert [why for passage in tool.paragraphs(text) for why in tool.trouble(passage)]


@pytest.mark.parametrize(
    "text",
    [
        "word " * 24 + "end. " + "Word " * 24 + "end.",
        "`nobody` is a name.",
        "```\nNobody reads code.\n```",
        "It is no longer there.",
        "The daemon tells the client the state.",
        "A prompt stands for the model's view; `is told` and `will` are words.",
        "Words that BAT OS does not understand are refused, and an undo is not undone.",
        "It has no port that is free.",
        "The same id is the same mission, as above, and likewise its answer.",
        "| `id` | an id; a request with the same id is the same mission |",
        "| `all` | one of them |",
    ],
)
def test_what_is_plain_is_left_alone(text: str) -> None:
    assert [why for passage in tool.paragraphs(text) for why in tool.trouble(passage)] == []


def test_a_document_of_too_many_passive_verbs_is_found() -> None:
    active, passive = "The daemon sends the reply.\n", "The reply is often sent.\n"
    assert list(tool.passive_share(active * 17 + passive * 3)) == []
    (why,) = tool.passive_share(active * 17 + passive * 4)
    assert why.startswith("4 of 21 sentences have a passive verb, at most 15%: lines ")
    assert list(tool.passive_share(passive * 19)) == [], "a short page may need them"


@pytest.mark.parametrize(
    "source",
    [
        '"""Module that nobody reads."""',
        'def ask():\n    """Return %s."""' % ("a word " * 13),
        'class Port:\n    number = 1\n    """A port is no number."""',
        'def ask():\n    """Ask.\n\n    :param most: at most so many\n        words.\n    """',
        'option("--limit", help="At most so many.")',
        'option("--env", help="A variable as above.")',
        'option("--keys", help="Keys; one of them opens the door.")',
        '"""Return what the channel was told."""',
        '"""Module of what a mission will need."""',
        'raise InvalidInput(f"{port!r} is no port")',
        'def why(place):\n    return "" if place else f"{place} is no file that can be read"',
        'TELLS = {"gone": "nobody has read it since it was written"}',
    ],
)
def test_a_broken_text_of_a_source_is_found(source: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(source, "utf-8")
    (why,) = tool.found_in(file)
    assert why.startswith(f"{file}:")


@pytest.mark.parametrize(
    "source",
    [
        '"""Module of ports.\n\n    a.py    nobody\n    b.py    somebody\n"""',
        '"""States.\n\nasked ─ refused  by whoever answers\n"""',
        'name = "nobody"',
        'NAMES = "%s".split()' % ("nobody somebody " * 15),
        'SOURCE = "def ask(it):\\n    return nobody(it) if it is no more than this"',
        'raise InvalidInput(f"{port!r} is not a valid port")',
        'raise InvalidInput("the keys are as above, and one of them opens the door")',
        'raise InvalidInput("a notice of the channel was told meanwhile")',
        'COMMENT = "I hold the channels: a place, and what is told there."',
    ],
)
def test_a_plain_source_is_left_alone(source: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(source, "utf-8")
    assert tool.found_in(file) == []


def test_a_description_of_a_setting_stands_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "batos" / "config" / "settings.py"
    file.parent.mkdir(parents=True)
    file.write_text('keys: int = Field(1, description="number of keys; one of them opens the door")', "utf-8")
    assert tool.found_in(file) == []
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    (why,) = tool.found_in(file)
    assert "'of them'" in why


def test_of_a_text_for_the_models_of_clients_only_the_older_rules_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "batos" / "doors" / "mcp_tools.py"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    file.write_text('tool(description="Past these seconds the state is told.")', "utf-8")
    assert tool.found_in(file) == []
    file.write_text('tool(description="Past these seconds nobody waits.")', "utf-8")
    assert len(tool.found_in(file)) == 1


def test_documents_and_sources_are_checked_where_no_file_is_named() -> None:
    files = tool.checked_by_default()
    assert ROOT / "docs" / "style.md" in files
    assert set((ROOT / "batos").rglob("*.py")) <= set(files)


def test_two_sentences_on_one_line_of_a_document_are_found(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("# Page\n\nOne is here. Two is there.\n", "utf-8")
    assert [why.partition("page.md")[2] for why in tool.found_in(file)] == [":3: one sentence a line; --reflow makes it so"]
    file.write_text(tool.reflowed(file.read_text("utf-8")), "utf-8")
    assert tool.found_in(file) == []


def test_one_sentence_a_line() -> None:
    text = "# Title\n\nOne here. Two\nthere. See e.g. this.\n\n* An item. Its second.\n\n```\na. B\n```\n| a. B | c |\n"
    wanted = "# Title\n\nOne here.\nTwo there.\nSee e.g. this.\n\n* An item.\n  Its second.\n\n```\na. B\n```\n| a. B | c |\n"
    assert tool.reflowed(text) == wanted
    assert tool.reflowed(wanted) == wanted


@given(
    st.lists(st.sampled_from(["One.", "two", "Three;", "`a. B`", "\n", "\n\n", "* item", "1. first", "(See x.)", "| a | b |"]), max_size=20)
)
def test_writing_anew_changes_no_word(parts: list[str]) -> None:
    text = " ".join(parts)
    anew = tool.reflowed(text)
    assert anew.split() == text.split()
    assert tool.reflowed(anew) == anew


TEMPLATE = """{% extends "base.html" %}{# a remark that nobody reads #}
<p>{% if held %}Nobody reads <code>{{ name }}</code>.{% else %}All read {{ name }}.{% endif %}</p>
<button title="LONG">Go</button><script>whoever()</script>
"""


def test_the_templates_of_the_console_are_checked_by_block_and_by_branch(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(TEMPLATE.replace("LONG", "word " * 26), "utf-8")
    assert [passage.text.strip() for passage in tool.of_template(file)][:2] == ["Nobody reads `X`.", "All read X."]
    nobody, long = tool.found_in(file)
    assert nobody == f"{file}:2: 'Nobody' hides who acts: Nobody reads `X`. …"
    assert long.startswith(f"{file}:3: 26 words")
