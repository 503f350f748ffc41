"""The documents are true: every setting, error code and verb is in them, and the generated tables are current."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
import typer

from batos import config, errors
from batos.cli.app import app, register
from batos.config import former
from batos.wire.client import Operating
from batos.wire.compare_client import Comparing
from batos.wire.folder_client import FolderWatching
from batos.wire.hook_client import Hooking
from batos.wire.notice_client import Noticing
from batos.wire.schedule_client import Scheduling
from batos.wire.schemas import OPS
from batos.wire.step_client import StepClient

ROOT = Path(__file__).parents[2]


def documents() -> str:
    return "\n".join(path.read_text("utf-8") for path in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"] if path.exists())


def generator(name: str = "gen_docs") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["settings", "errors", "verbs", "rules", "clients", "metrics", "doors", "console"])
def test_generated_tables_are_current(name: str) -> None:
    path, text, fresh = generator().filled(name)
    assert text == fresh, f"{path.name} is stale: run `make docs`"


def test_the_page_of_the_clients_shows_defaults_literals_and_what_returns() -> None:
    text = generator().clients()
    assert ', instructions: str = "") -> Accepted' in text
    assert 'verdict: Literal["left", "right", "tie"])' in text
    assert "\n* returns: `digest` and `name`" in text
    assert re.findall(r"= [,)]|\"Literal\[|^:\w+", text, re.MULTILINE) == []


def test_the_synchronous_client_is_current() -> None:
    tool = generator("gen_sync")
    assert tool.TARGET.read_text("utf-8") == tool.generated(), "batos/wire/sync_client.py is stale: run `make docs`"
    assert tool.OPERATIONS_TARGET.read_text("utf-8") == tool.operations(), "batos/wire/sync_operations.py is stale: run `make docs`"


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_no_table_has_a_name_twice(path: Path) -> None:
    """A merge that keeps both sides leaves two rows about one thing, of which one is out of date."""
    for rows in re.findall(r"(?:^\|.*\n)+", path.read_text("utf-8"), re.MULTILINE):
        names = re.findall(r"^\| (`[^|`]+`) \|", rows, re.MULTILINE)
        assert sorted(names) == sorted(set(names)), path.name


def test_every_setting_is_documented() -> None:
    text = documents()
    assert [row.name for row in config.table() if f"`{row.name}`" not in text] == []


def test_every_error_class_stands_in_the_tree_and_its_code_in_the_documents() -> None:
    text = documents()
    for code, cls in errors.by_code().items():
        if cls.__module__ == errors.__name__:
            assert re.search(rf"[ ─]{cls.__name__}\b", errors.__doc__ or ""), f"{cls.__name__} is missing in the tree of errors.py"
        assert f"`{code}`" in text, f"the code {code!r} of {cls.__name__} is in no document"


def test_every_code_in_the_source_is_a_code_of_errors() -> None:
    """An error that errors.py does not know could not be raised again by a client."""
    declared = {
        match[1]
        for path in (ROOT / "batos").rglob("*.py")
        for match in re.finditer(r'^    code(?:: ClassVar\[str\])? = "(\w+)"$', path.read_text("utf-8"), re.MULTILINE)
    }
    own = {cls.code for cls in errors.by_code().values() if cls.__module__ == errors.__name__}
    assert declared - own == set()


def test_every_verb_and_every_flag_of_it_is_documented() -> None:
    register()
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    sections = dict(
        re.findall(r"^### batos ([\w-]+)(.*?)(?=^### |\Z)", (ROOT / "docs" / "cli.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
    assert sorted(sections) == sorted(verbs)
    for name, verb in verbs.items():
        flags = {flag for parameter in verb.params for flag in parameter.opts if flag.startswith("--")}
        assert {flag for flag in flags if flag not in sections[name]} == set(), name


def test_what_a_reload_takes_over_is_documented() -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    told = re.search(r"takes over (.*?);", text, re.DOTALL)
    assert told is not None
    assert set(re.findall(r"`([\w.]+)`", told[1])) == set(config.RELOADED)
    assert set(config.RELOADED) <= set(config.names())


def test_a_limit_that_a_document_names_is_there() -> None:
    known = {f"{former.kind_of(name)[0].__name__}.{former.LIMITS[name][1]}" for name in former.LIMITS}
    assert set(re.findall(r"`(\w+Limits\.\w+)`", documents())) <= known


def test_every_op_is_documented() -> None:
    rows = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \|", (ROOT / "docs" / "wire.md").read_text("utf-8"), re.MULTILINE)
    assert set(OPS) - {op for row in rows for op in re.findall(r"`([\w.]+)`", row)} == set()


def test_every_metric_is_documented_and_no_other() -> None:
    """The names out of the code, since some are there only once something happened."""
    source = (ROOT / "batos" / "metrics.py").read_text("utf-8")
    made = set(re.findall(r'(?:Counter|Histogram)\(\s*"(batos_\w+)"', source)) | set(re.findall(r'MetricFamily\(\s*"(batos_\w+)"', source))
    made |= {f"batos_{name}" for name in re.findall(r'\("(\w+)", "[A-Z][^"]*"\)', source)}  # those named in a loop
    table = set(re.findall(r"`(batos_\w+)`", (ROOT / "docs" / "metrics.md").read_text("utf-8")))
    assert {name.removesuffix("_total") for name in table} == made
    assert {name for name in made if name == "batos_conflicts"}, "the pattern still finds those in the loop"


def test_every_make_target_is_explained() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    explained = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    targets = set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE)) - {"help", "install-dev"}
    assert [target for target in targets if not re.search(rf"\b{target}\b", explained)] == []


def test_every_document_that_source_and_pages_name_exists() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"]
    sources = [path for folder in ("batos", "bench", "tests", "tools") for path in (ROOT / folder).rglob("*.py")]
    named = {
        (path.name, name) for path in [*pages, *sources] for name in re.findall(r"(?<![:\w/])docs/[\w-]+\.md", path.read_text("utf-8"))
    }
    linked = {(path, name) for path in pages for name in re.findall(r"\]\(([\w./-]+\.(?:md|csv|toml|py|jsonl))", path.read_text("utf-8"))}
    assert len(named) > 20
    assert {(path, name) for path, name in named if not (ROOT / name).exists()} == set()
    assert {(path.name, name) for path, name in linked if not (path.parent / name).exists()} == set()


def read(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["architecture", "glossary", "rationale"])
def test_every_name_of_the_code_on_a_page_exists(page: str) -> None:
    names = set(re.findall(r"`(batos(?:\.\w+)+)`", read(page))) - {"batos.toml"}
    assert names
    for name in names:
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            with contextlib.suppress(ModuleNotFoundError):
                found = importlib.import_module(".".join(parts[:end]))
                break
        for part in parts[end:]:
            found = getattr(found, part)


def test_ten_named_functions_lead_to_the_loop_of_a_mission() -> None:
    """A stranger reads one page; each step has its function and one new idea."""
    text = read("architecture")
    steps = re.findall(r"^(\d+)\. `(batos(?:\.\w+)+)`((?:.|\n)*?)(?=^\d+\. |^#|^$)", text, re.MULTILINE)
    assert [int(number) for number, _, _ in steps] == list(range(1, 11))
    assert len({name for _, name, _ in steps}) == 10
    assert [name for _, name, words in steps if words.count("*Idea") != 1] == []
    assert len(text.split()) <= 2500


def test_a_term_stands_in_the_glossary_once() -> None:
    terms = re.findall(r"^\| `([^|`]+)` \|", read("glossary"), re.MULTILINE)
    assert len(terms) > 80
    assert sorted(terms) == sorted(set(terms))


def test_the_rationale_is_twenty_decisions_of_five_parts() -> None:
    text = read("rationale")
    decisions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert len(decisions) <= 20
    assert len(text.split()) <= 4000
    for decision in decisions:
        assert re.findall(r"^\* \*\*(\w+)\*\*", decision, re.MULTILINE) == ["Question", "Decision", "Why", "Tried", "Figure"], decision[:60]


def test_every_method_of_a_client_is_documented_and_there_without_a_loop() -> None:
    from batos.wire import Client, SyncClient

    text = (ROOT / "docs" / "clients.md").read_text("utf-8")
    parts = {**vars(Client), **vars(Operating), **vars(Scheduling), **vars(Noticing), **vars(Hooking), **vars(FolderWatching)}
    parts |= vars(Comparing)
    parts |= vars(StepClient)
    methods = {name: method for name, method in parts.items() if not name.startswith("_")}
    assert len(methods) > 25
    for name, method in methods.items():
        assert f"\n### {name}\n" in text
        mine, theirs = (inspect.signature(found).parameters for found in (getattr(SyncClient, name), method))
        assert list(mine.values()) == list(theirs.values()), name
