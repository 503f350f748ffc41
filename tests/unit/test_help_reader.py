"""Usages of programs, read by rule: those of argparse and click as they write them here, and texts of clap, cobra, GNU's and Go's."""

from __future__ import annotations

import argparse
import shlex
import time
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from batos.tools.description_form import fault_of
from batos.tools.help_reader import HelpReading, read_help


def told(found: HelpReading) -> dict[str, Any]:
    """The operation in short: argv as one text, and its parameters: type, ! where it is needed, the choices."""
    assert found.operation is not None, found.why
    assert fault_of(found.operation) == ""
    return {"argv": shlex.join(found.operation.argv).replace("'", ""), **{
        one.name: one.type + "!" * one.required + (" " + ",".join(one.choices) if one.choices else "") for one in found.operation.parameters
    }}  # fmt: skip


def test_argparse() -> None:
    parser = argparse.ArgumentParser(prog="tea", description="Make tea.")
    parser.add_argument("kind", choices=["green", "black"])
    parser.add_argument("cups", nargs="+", help="where it goes")
    parser.add_argument("note", nargs="?")
    parser.add_argument("-t", "--minutes", type=int, required=True, metavar="N", help="how long it draws, in minutes")
    parser.add_argument("--milk", action="store_true")
    parser.add_argument("--sugar", choices=["none", "some"])
    parser.add_argument("--version", action="version", version="1")
    assert told(read_help(parser.format_help(), ["tea"])) == {
        "argv": "--minutes {minutes} --milk {milk} --sugar {sugar} {choice} {cups} {note}",
        "minutes": "string!", "milk": "boolean", "sugar": "string none,some", "choice": "string! green,black", "cups": "array!",
        "note": "string",
    }  # fmt: skip


def test_argparse_with_commands_and_one_of_them() -> None:
    parser = argparse.ArgumentParser(prog="shop")
    parser.add_argument("--config")
    commands = parser.add_subparsers(dest="command", required=True)
    order = commands.add_parser("order", help="Order tea.", aliases=["buy"])
    order.add_argument("sku")
    order.add_argument("-n", "--count", type=int)
    commands.add_parser("list", help="List orders.")
    found = read_help(parser.format_help(), ["shop"])
    assert found.operation is None
    assert found.commands == (("order", "Order tea."), ("list", "List orders."))
    one = read_help(order.format_help(), ["shop", "order"], "Order tea.")
    assert told(one) == {"argv": "--count {count} {sku}", "sku": "string!", "count": "string"}
    assert one.operation is not None
    assert (one.operation.name, one.operation.line, one.operation.kind) == ("order", "Order tea.", "acts")


def test_click() -> None:
    @click.group()
    def shop() -> None:
        """A shop."""

    @shop.command()
    @click.argument("sku")
    @click.argument("more", nargs=-1)
    @click.option("-n", "--count", type=int, required=True, help="How many.")
    @click.option("--wrap/--no-wrap")
    @click.option("--size", type=click.Choice(["s", "m"]))
    @click.option("--day", type=str, default="today", show_default=True)
    def order(**_: Any) -> None:
        """Order tea, at once."""

    run = CliRunner().invoke
    assert read_help(run(shop, ["--help"], prog_name="shop").output, ["shop"]).commands == (("order", "Order tea, at once."),)
    found = read_help(run(shop, ["order", "--help"], prog_name="shop").output, ["shop", "order"])
    assert told(found) == {
        "argv": "--count {count} --wrap {wrap} --no-wrap {no_wrap} --size {size} --day {day} {sku} {more}",
        "count": "integer!", "wrap": "boolean", "no_wrap": "boolean", "size": "string s,m", "day": "string", "sku": "string!",
        "more": "array",
    }  # fmt: skip
    assert found.operation is not None
    assert found.operation.line == "Order tea, at once."


CLAP = """Run a thing

Usage: thing run [OPTIONS] --mode <MODE> <FILE> [ARGS]...

Arguments:
  <FILE>     The file
  [ARGS]...  Its arguments

Options:
  -m, --mode <MODE>
          How it runs

          [possible values: fast, slow]

  -j, --jobs <N>       Number of jobs [default: 1]
  -v, --verbose...     More words
      --color [<WHEN>]  Colours
      --set <KEY=VALUE>  A setting
  -h, --help           Print help
  -V, --version        Print version
"""
COBRA = """Create a new widget.

Usage:
  widgets create NAME [flags]

Aliases:
  create, new

Examples:
  widgets create one --size 3

Flags:
  -h, --help                help for create
      --label stringArray   a label
  -s, --size int            size of it (default 1)
      --dry-run             change nothing

Global Flags:
      --host string   where they are
"""
COBRA_ROOT = """Widgets.

Usage:
  widgets [command]

Available Commands:
  completion  Generate the autocompletion script
  create      Create a new widget
  help        Help about any command
  list        List widgets

Flags:
  -h, --help   help for widgets

Use "widgets [command] --help" for more information about a command.
"""
GNU = """Usage: count [OPTION]... [FILE]...
  or:  count [OPTION]... --files0-from=F
Print counts for each FILE.

  -c, --bytes            print the byte counts
      --files0-from=F    read input from the files specified by
                           NUL-terminated names in file F
      --total=WHEN       when to print a line with total counts
      --color[=WHEN]     colours
  -NUM                   same as --lines=NUM
      --help        display this help and exit
"""
GO = """Usage of serve:
  -addr string
    \tnetwork address (default ":80")
  -n int
    \tnumber of workers
  -q\tbe quiet
"""
RICH = """
 Usage: hello [OPTIONS] NAME

 Say hello.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *    name      TEXT  [required]                                              │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Options ────────────────────────────────────────────────────────────────────╮
│ --times        INTEGER  How often. [default: 1]                              │
│ --help                  Show this message and exit.                          │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
TEXTS = [
    (CLAP, ["thing", "run"], {
        "argv": "--mode {mode} --jobs {jobs} --verbose {verbose} --color {color} --set {set} {file} {args}", "mode": "string! fast,slow",
        "jobs": "string", "verbose": "boolean", "color": "boolean", "set": "string", "file": "string!", "args": "array",
    }),
    (COBRA, ["widgets", "create"], {
        "argv": "--label {label} --size {size} --dry-run {dry_run} --host {host} {name}", "label": "array", "size": "integer",
        "dry_run": "boolean", "host": "string", "name": "string!",
    }),
    (GNU, ["count"], {
        "argv": "--bytes {bytes} --files0-from {files0_from} --total {total} --color {color} {file}", "bytes": "boolean",
        "files0_from": "string", "total": "string", "color": "boolean", "file": "array",
    }),
    (GO, ["serve"], {"argv": "-addr {addr} -n {n} -q {q}", "addr": "string", "n": "integer", "q": "boolean"}),
    (RICH, ["hello"], {"argv": "--times {times} {name}", "times": "integer", "name": "string!"}),
    ("usage: hi [-v] [--to WHOM] name\n\npositional arguments:\n  name\n", ["hi"], {
        "argv": "-v {v} --to {to} {name}", "v": "boolean", "to": "string", "name": "string!",
    }),
    ("\x1b[1mUsage:\x1b[0m go [-o output] [build flags] [packages]\n", ["go"], {
        "argv": "-o {o} {packages}", "o": "string", "packages": "string",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words", "read"), TEXTS)
def test_other_forms_of_a_usage(text: str, words: list[str], read: dict[str, Any]) -> None:
    assert told(read_help(text, words)) == read


def test_commands_are_read_under_whatever_titles_they_stand() -> None:
    assert read_help(COBRA_ROOT, ["widgets"]).commands == (("create", "Create a new widget"), ("list", "List widgets"))
    own = "Usage: b [OPTIONS] COMMAND [ARGS]...\n\nOptions:\n  --help  Show this.\n\nMissions:\n  send   Give one.\n  watch  See one.\n"
    assert read_help(own, ["b"]).commands == (("send", "Give one."), ("watch", "See one."))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("It does things.\n  -v  more\n", "no line `usage`"),
        ("usage: ship new <name>\n", "'new'"),
        ("usage: pick (A | B)\n", "choose"),
        ("usage: old -abc file\n", "'-abc'"),
        ("Usage: x COMMAND [ARGS]...\n", "does not list them"),
        ("usage: x " + "[" * 20 + "a" + "]" * 20, "nested"),
    ],
)
def test_what_is_not_understood_is_told(text: str, why: str) -> None:
    found = read_help(text, [text.split()[1]])
    assert found.operation is None
    assert why in found.why


def test_an_option_that_is_not_understood_is_left_out_and_told() -> None:
    found = read_help("usage: x\n\n  -NUM  a number\n  -s  seven wise men in a row said so\n  --at <A B>  two\n", ["x"])
    assert told(found) == {"argv": "-s {s}", "s": "boolean"}
    assert [note for note in found.notes if "'-NUM'" in note]
    assert [note for note in found.notes if "'--at <A B>'" in note]


WORDS = st.sampled_from(
    ["usage:", "Usage:\n", "prog", "[", "]", "(", ")", "|", "...", "<x>", "{a,b}", "FILE", "file", "-v", "--out", "--out=F", "[OPTIONS]",
     "\n", "\n  ", "\n\n", "Commands:", "Options:", "positional arguments:", "  -n, --num N  how many", "COMMAND", "--[no-]x",
     "; rm -rf /", "$(id)", "│", "╭─ Options ─╮", "\x1b[1m", "\t", "{", "}", "'", '"', "\\", "é", "\x00"]
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(WORDS | st.text(max_size=12), max_size=60))
def test_whatever_a_usage_says_its_operation_is_valid_and_its_fixed_words_are_its_own_options(parts: list[str]) -> None:
    text = " ".join(parts)
    found = read_help(text, ["prog"])
    for name, _ in found.commands:
        assert name.replace("-", "").replace("_", "").replace(":", "").replace(".", "").isalnum()
    if found.operation is not None:
        assert fault_of(found.operation) == ""
        for word in found.operation.argv:
            assert word.startswith(("{", "-"))
            assert word.startswith("{") or word.removeprefix("--no-").lstrip("-") in text


@pytest.mark.parametrize(
    "piece", ["[", "-a, ", "usage: x ", "<", "  -x, --xx <V>  said\n", "{a,", "  a, b, c (d)\n", "usage: x [a|b] ...\n", "╭─ A ─", "-[no-]"]
)
def test_reading_a_usage_takes_time_in_proportion_to_its_length(piece: str) -> None:
    def seconds(count: int) -> float:
        text = f"usage: x\n\nOptions:\n{piece * (count // len(piece))}"
        best = 9.0
        for _ in range(3):
            begun = time.thread_time()
            read_help(text, ["x"])
            best = min(best, time.thread_time() - begun)
        return best

    assert seconds(64_000) < 8 * seconds(16_000) + 0.05
