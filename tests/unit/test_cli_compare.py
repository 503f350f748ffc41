"""The verb compare: what it asks the daemon for, how it judges, and what its report says."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batos.cli import compare, main
from batos.cli.output import Output
from batos.errors import UnknownComparison
from tests.support.cli import batos, daemon

COST = {"inferences": 12, "tokens": 4000, "minutes": 0.5}
BUDGET = {"inferences": 200, "tokens": 200_000, "minutes": 60.0}
PLAN = {"type": "compare_plan", "id": "c1", "words": "robin with brick in its place", "pairs": 4, "judge": "me", "rules": [],
        "variant": {}, "budget": BUDGET, "estimate": {**COST, "large": False}}  # fmt: skip
SIDE = {"text": "It is late.", "failed": "", "tokens": 7}
SIDES = {"base": SIDE, "changed": SIDE}
FIGURES: dict[str, Any] = {
    "pairs": 3, "judged": 2, "wins": {"base": 0, "changed": 1, "tie": 1}, "share": 1.0, "interval": [0.025, 1.0], "verdict": "undecided",
    "why": "it won 1 of 1 decided pairs: too few to say anything", "settled": 1, "disagreed": 0,
    "costs": {"tokens": {"base": 210.0, "changed": 200.0, "difference": -10.0, "interval": [-12.0, -8.0]}},
    "methods": {"wins": "exact binomial (Clopper-Pearson), 95 %, ties left out", "costs": "bootstrap"},
}  # fmt: skip
TOLD: dict[str, Any] = {
    "type": "comparison", "id": "c1", "state": "done", "reason": "", "words": "robin with brick in its place", "persona": "robin",
    "judge": "rules", "rules": ["length"], "pairs": 4, "done": 4, "left_out": 1, "unjudged": 0, "cost": COST, "budget": BUDGET,
    "begun": 1.7e9, "ended": 1.7e9, "promoted": None, "note": "", "verdict": "undecided", "variant": {}, "figures": FIGURES,
    "compared": [
        {"number": 1, "brief": "Why am I tired?", "mission": "m1", "hidden": False, "winner": "changed", "why": "length", **SIDES},
        {"number": 2, "brief": "Why am I sad?", "mission": "m2", "hidden": False, "winner": "tie", "why": "both say the same", **SIDES},
        {"number": 3, "brief": "Order tea", "mission": "m3", "left_out": "shop.order is not called (with the variant)"},
        {"number": 4, "brief": "Why am I lost?", "mission": "m4", "hidden": True, "why": ""},
    ],
}  # fmt: skip


def begins(plan: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda request: plan if request.dry else TOLD


def test_a_new_one_names_its_cost_begins_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    briefs = tmp_path / "briefs.txt"
    briefs.write_text('# of Mondays\nWhy am I tired?\n\n{"brief": "Who is Ada?", "depth": "facets", "contains": ["math"]}\n')
    code, asked = batos(
        {"compare.start": begins(PLAN), "compare.show": TOLD},
        "compare", "robin", "--with", "brick", "--id", "c1", "--briefs", str(briefs), "--depth", "direct", "--rule", "length",
        "--set", "depth=facets",
        "--missions", "3", "--match", "Monday", "--inferences", "9", "--tokens", "10", "--minutes", "2.5",
    )  # fmt: skip
    dry, start, _ = asked
    assert (code, dry.dry, start.dry) == (0, True, False)
    assert (start.id, start.persona, start.other, start.judge, start.rules, start.changed) == (
        "c1", "robin", "brick", "rules", ["length"], {"depth": "facets"},
    )  # fmt: skip
    assert [(one.brief, one.depth, one.contains) for one in start.briefs] == [
        ("Why am I tired?", "direct", []),
        ("Who is Ada?", "facets", ["math"]),
    ]
    assert (start.missions, start.match, start.inferences, start.tokens, start.minutes) == (3, "Monday", 9, 10, 2.5)
    said = capsys.readouterr().out
    for words in (
        "c1: robin with brick in its place, on 4 missions",
        "about 12 inferences, 4000 tokens, 0.5 minutes of model time; at most 200 inferences",
        "4 of 4, 1 left out",
        "rules: length (1 needed no judge)",
        "1 with it, 0 as it is, 1 ties; its share is 1, 0.025 to 1 (exact binomial (Clopper-Pearson), 95 %, ties left out)",
        "undecided: it won 1 of 1 decided pairs: too few to say anything",
        "shop.order is not called (with the variant)",
        "waits for your judgement",
    ):
        assert words in said
    assert "-12 to -8" in said


def test_a_codex_file_goes_as_its_text(tmp_path: Path) -> None:
    codex = tmp_path / "mine.toml"
    codex.write_text("[personas.robin]\n")
    _, asked = batos({"compare.start": begins(PLAN), "compare.show": TOLD}, "compare", "robin", "--with", str(codex))
    assert (asked[1].codex, asked[1].other) == ("[personas.robin]\n", None)


def test_a_large_one_begins_only_when_its_user_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    large = {**PLAN, "estimate": {**COST, "large": True}}
    code, asked = batos({"compare.start": large}, "compare", "robin", "--with", "brick")
    assert (code, len(asked)) == (2, 1)
    assert "--yes begins it" in capsys.readouterr().err
    code, asked = batos({"compare.start": begins(large), "compare.show": TOLD}, "compare", "robin", "--with", "brick", "--yes")
    assert (code, len(asked)) == (0, 3)


def test_one_that_is_stopped_goes_on_and_is_promoted_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    promoted = {**TOLD, "promoted": 7, "note": "it is kinder", "change": 7}
    code, asked = batos(
        {"compare.resume": TOLD, "compare.show": TOLD, "compare.promote": promoted},
        "compare", "--resume", "c1", "--judge", "alfred", "--inferences", "300", "--promote", "--note", "it is kinder", "--anyway",
    )  # fmt: skip
    assert (code, [one.op for one in asked]) == (0, ["compare.resume", "compare.show", "compare.promote"])
    assert (asked[0].judge, asked[0].inferences, asked[2].note, asked[2].anyway) == ("alfred", 300, "it is kinder", True)
    assert "change 7: it is kinder (`batos changes undo 7`)" in capsys.readouterr().out


def test_they_are_listed_stopped_and_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({"compare.list": {"type": "comparisons", "comparisons": [TOLD]}}, "compare")[0] == 0
    assert "c1  done   4/4    rules  undecided" in capsys.readouterr().out
    assert batos({"compare.list": {"type": "comparisons", "comparisons": []}}, "compare")[0] == 0
    assert "none so far" in capsys.readouterr().err
    batos({"compare.stop": {**TOLD, "state": "stopped"}}, "compare", "--stop", "c1")
    assert "c1: stopped, 4 of 4 pairs; batos compare --resume c1 goes on" in capsys.readouterr().out
    batos({"compare.remove": {"type": "comparisons", "comparisons": []}}, "compare", "--remove", "c1")
    assert "c1 is forgotten" in capsys.readouterr().out
    code, _ = batos({"compare.show": UnknownComparison("no comparison 'c9' in this image")}, "compare", "--show", "c9", "--json")
    assert (code, json.loads(capsys.readouterr().out)["code"]) == (4, "unknown_comparison")


def test_judging_shows_left_and_right_asks_again_and_can_be_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    def pair(number: int) -> dict[str, Any]:
        told = {"number": number, "brief": "Why?", "left": "Late.", "right": "Early.", "judged": number - 1, "of": 3}
        return {"type": "compare_pair", "id": "c1", "pair": told}

    lines = iter(["what", "L", "tie", "q"])
    with daemon({"compare.next": pair(1), "compare.judge": lambda request: pair(request.number + 1), "compare.show": TOLD}) as scripted:
        told = compare.judged("c1", scripted.endpoint, Output(), read=lambda question: next(lines))
    assert told["id"] == "c1"
    assert [(one.number, one.verdict) for one in scripted.requests if one.op == "compare.judge"] == [(1, "left"), (2, "tie")]
    said = capsys.readouterr()
    assert "1 of 3: Why?" in said.out
    assert "LEFT\nLate.\n\nRIGHT\nEarly." in said.out
    assert "'what' is none of left, right, tie" in said.err
    assert "left to judge: 1 pair; go on with: batos compare --resume c1" in said.err


@pytest.mark.parametrize(("typed", "judged"), [("", 0), ("r\n", 1)])
def test_ctrl_c_ends_the_judging_at_once(typed: str, judged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = {"number": 1, "brief": "Why?", "left": "Late.", "right": "Early.", "judged": 0, "of": 3}
    told = {"type": "compare_pair", "id": "c1", "pair": pair}
    asked = threading.Semaphore(0)

    class Screen(Output):
        def write(self, text: str) -> None:
            super().write(text)
            asked.release()

    def sit() -> None:
        os.write(leader, typed.encode())
        if all(asked.acquire(timeout=20) for _ in range(judged + 1)):
            os.kill(os.getpid(), signal.SIGINT)
        else:
            os.write(leader, b"q\n")  # for a judging that a Ctrl-C would not end

    leader, follower = pty.openpty()
    with daemon({"compare.next": told, "compare.judge": told, "compare.show": TOLD}) as scripted, open(follower) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        user = threading.Thread(target=sit)
        user.start()
        with pytest.raises(KeyboardInterrupt):
            compare.judged("c1", scripted.endpoint, Screen())
        user.join()
    os.close(leader)
    assert [one.verdict for one in scripted.requests if one.op == "compare.judge"] == ["right"] * judged


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["robin"], "--with or --set says what it is compared with"),
        (["--with", "brick"], "belong to a persona"),
        (["robin", "--show", "c1"], "at a time"),
        (["robin", "--set", "depth"], "--set takes NAME=VALUE"),
        (["robin", "--with", "brick", "--judge", "you"], "--judge is one of me, alfred, rules"),
        (["robin", "--with", "brick", "--depth", "direct"], "are of given briefs"),
        (["--show", "c1", "--judge", "me"], "a judge and a budget belong to a new comparison"),
        (["--show", "c1", "--promote"], "--promote takes the reason as --note TEXT"),
        (["--promote", "--note", "x"], "--promote belongs to a comparison"),
        (["robin", "--with", "nowhere.toml"], "--with nowhere.toml: No such file"),
        (["robin", "--with", "brick", "--briefs", "nowhere.txt"], "--briefs nowhere.txt: No such file"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_daemon_is_asked(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words, "--connect", "tcp://127.0.0.1:1"]) == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", "").split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# nothing\n", "has no brief"),
        ('{"brief": 1}\n', "line 1: an object has `brief`"),
        ("a\n{not json\n", "line 2: it is not valid JSON"),
    ],
)
def test_a_file_of_briefs_that_is_none_is_refused_by_its_line(text: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        compare.briefs_in(text)
