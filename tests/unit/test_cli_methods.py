"""What is said of a method that was written: how, and whether that is a reason for doubt."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import typer
from rich.console import Console

from batos.cli import main, methods
from batos.cli.methods import read_example, written
from batos.cli.mission_view import doubts
from batos.cli.output import Output
from tests.support.cli import daemon


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ({}, ""),
        ({"tries": 1, "trials": 2}, ", 1 tries"),
        ({"tries": 3, "trials": 2}, ", 3 tries: not sure; teach it another example"),
        ({"tries": 8, "trials": 3}, ", 8 tries"),
        ({"tries": 1, "trials": 2, "edited": True}, ", 1 tries, amended"),
        ({"tries": 4, "trials": 2, "edited": True}, ", 4 tries, amended: not sure; teach it another example"),
        ({"tries": 3, "trials": 2, "constant": True}, ", 3 tries: not sure; teach it an example with another answer"),
        (
            {"tries": 3, "trials": 2, "constant": True, "open": [{"result": 1}, {"result": 2}]},
            ", 3 tries: not sure; its examples leave something open",
        ),
        ({"tries": 1, "trials": 2, "open": []}, ", 1 tries"),
        ({"tries": 3, "trials": 1, "candidates": 3, "agreed": 3}, ", 3 tries, 3 of 3 written alike"),
        ({"tries": 5, "trials": 1, "candidates": 3, "agreed": 2}, ", 5 tries, 2 of 3 written alike: not sure; teach it an example"),
    ],
)
def test_a_method_says_how_sure_it_is(came: dict[str, Any], told: str) -> None:
    assert written(came) == told


@pytest.mark.parametrize(
    ("text", "args", "result"),
    [
        ("[2, 3] -> 5", [2, 3], 5),
        ("plain words -> 2", ["plain words"], 2),
        ('["a->b"] -> ["a", "b"]', ["a->b"], ["a", "b"]),
        ("-> 4", [], 4),
    ],
)
def test_an_example_is_read_at_the_arrow_that_parts_its_sides(text: str, args: list[object], result: object) -> None:
    assert read_example(text) == {"args": args, "result": result}
    assert read_example('{"args": ["a->b"], "result": 1}') == {"args": ["a->b"], "result": 1}


@pytest.mark.parametrize("text", ['["a" -> 3', '["a"] -> {"b": ', "five"])
def test_an_example_that_begins_as_json_and_is_none_is_said_to_be(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="each side JSON or a plain text"):
        read_example(text)


@pytest.mark.parametrize(
    "example",
    [
        {"args": [[5, 7], "it's"], "result": [7]},
        {"result": 3},
        {"args": ["\x9a\u202e\ud83d fox" * 20], "result": 3},
        {"args": ["a->b"], "kwargs": {"n": 1}, "slots": {"total": 5}, "after": {"total": 6}, "result": None},
    ],
)
@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_open_is_asked_with_commands_that_teach_it(
    example: dict[str, Any], terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Output()
    if terminal:
        output.console = Console(width=80, force_terminal=True, color_system=None)
    methods.show_open_case("till", "over_", [example, {**example, "result": "x"}], output)
    lines = capsys.readouterr().out.splitlines()
    told = [shlex.split(line) for line in lines if "batos teach" in line]
    assert [words[:5] for words in told] == [["batos", "teach", "till", "over_", "-e"]] * 2
    assert [{"args": [], **read_example(words[5])} for words in told] == [{"args": [], **example}, {"args": [], **example, "result": "x"}]


@pytest.mark.parametrize(
    ("kind", "told"), [("intent", "there are none: it is an intent; if a mission reverted it, `batos undo`"), ("data", "it is data")]
)
def test_where_there_is_no_version_it_is_said_what_there_is(kind: str, told: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        methods.differences({"kind": kind, "versions": []}, (1, 2))
    assert told in caught.value.message


def test_a_result_says_of_what_was_written_it_is_not_sure() -> None:
    sure = {"selector": "a_", "object": "oid:1", "candidates": 1, "agreed": 1, "open": []}
    wrote = [
        sure,
        {**sure, "selector": "b_", "open": [{"result": 1}, {"result": 2}]},
        {**sure, "selector": "c_", "candidates": 3, "agreed": 2},
        {**sure, "selector": "c_", "receiver": "oid:2", "open": [{"result": 1}, {"result": 2}]},
        {**sure, "selector": "d_", "object": None, "open": [{"result": 1}, {"result": 2}]},
        {"selector": "e_", "object": "oid:1"},  # of an earlier version of the system
    ]
    told = [("oid:1", "b_"), ("oid:1", "c_"), ("oid:2", "c_")]
    assert doubts({"wrote": wrote}) == [f"wrote {name}, and is not sure of it: batos method {whose} {name}" for whose, name in told]
    assert doubts({}) == []


def test_what_changed_between_two_versions_also_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    versions = [{"version": number, "source": f"def a_(self):\n    return {number}\n"} for number in (2, 1)]
    with daemon({"method": {"type": "method", "versions": versions}}) as scripted:
        words = ["method", "robin", "a_", "--connect", scripted.endpoint, "--diff", "1"]
        assert main([*words, "2"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-2:] == ["-    return 1", "+    return 2"]
        assert main([*words, "2", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["type"], told["diff"]) == ("method", lines)
        for more in ([], ["--json"]):
            assert main([*words, "9", *more]) == 2
            told = capsys.readouterr()
            assert "there is no version 9; there are 1, 2" in " ".join((told.out + told.err).split())
