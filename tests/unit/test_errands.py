"""What is asked to be done outside is said not to be done, before a model is asked; the clock is told; nothing else is taken for either."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import pytest

from batos.autotelic import replay_selection
from batos.autotelic.changes import Proposal
from batos.image import ledger
from batos.memory.records import Passage, Section, Shelf
from batos.memory.store import library_of
from batos.mind.brief_analysis import KNOWN, LONGEST, Errand, errand_of, said_of, tables
from tests.support.missions import FakeInference, mind, submit

ROOT = Path(__file__).parents[2]
LABELLED = [tuple(line.split("\t")) for line in (ROOT / "tests" / "data" / "errands.tsv").read_text("utf-8").splitlines()]
"""What a brief asks for (`-`: nothing that is done outside), and the brief. Every other line was not looked at while rules were tuned."""

BARE = [tuple(line.split("\t")) for line in (ROOT / "tests" / "data" / "errands_bare.tsv").read_text("utf-8").splitlines()]
"""Likewise: bare commands, titles to play, what is to be switched or fetched, and what is about such things. All were looked at."""


def kind(brief: str) -> str:
    found = errand_of(brief)
    return "-" if found is None else "clock" if found.kind in KNOWN else found.kind


@pytest.mark.parametrize("half", [0, 1], ids=["tuned on", "kept back"])
def test_errands_are_known_and_nothing_harmless_is_one(half: int) -> None:
    told = LABELLED[half::2]
    assert [(label, brief) for label, brief in told if label == "-" and kind(brief) != "-"] == []
    errands = [(label, brief) for label, brief in told if label != "-"]
    missed = [(label, brief) for label, brief in errands if kind(brief) != label]
    assert len(missed) <= 0.05 * len(errands), missed


def test_a_bare_command_a_title_or_a_switch_is_an_errand_and_a_question_about_one_is_not() -> None:
    assert [(label, brief) for label, brief in BARE if kind(brief) != label] == []


@pytest.mark.parametrize("errand", ["Turn off the lights", "Switch the radio on"])
def test_an_errand_that_is_the_name_of_a_song_is_not_asked_for(errand: str) -> None:
    assert errand_of(f"{errand} is a song by whom?") is None


@pytest.mark.parametrize("errand", ["Turn off the lights", "Remind me tomorrow", "Book a table for two", "Download the newest Debian ISO"])
def test_an_errand_that_is_quoted_or_named_for_a_text_is_not_asked_for(errand: str) -> None:
    assert errand_of(errand) is not None
    assert errand_of(f'"{errand}"') is not None, "marks around all of it change nothing"
    for brief in (f'"{errand}" in German', f"'{errand}' in French", f"„{errand}“: translate it", f"{errand}: a short poem"):
        assert errand_of(brief) is None, brief


def test_briefs_of_other_sets_are_no_errands() -> None:
    briefs = [json.loads(line)["brief"] for line in (ROOT / "tests" / "data" / "briefs.jsonl").read_text("utf-8").splitlines()]
    briefs += [json.loads(line)["brief"] for line in (ROOT / "bench" / "open_briefs.jsonl").read_text("utf-8").splitlines()]
    briefs += [line.split("\t")[0] for line in (ROOT / "tests" / "data" / "ordinary_questions.tsv").read_text("utf-8").splitlines()]
    assert len(briefs) > 350
    assert [brief for brief in briefs if errand_of(brief)] == []


@pytest.mark.parametrize(
    "brief",
    [
        f"Open https://example.org/ and {'read on ' * 60}",
        "Run the script\n```\nprint(1)\n```\nin your head: what does it print?",
        "",
        "?!",
    ],
)
def test_what_is_long_or_brings_its_matter_is_no_errand(brief: str) -> None:
    assert errand_of(brief) is None


def test_every_language_says_what_its_rules_find() -> None:
    now = datetime.datetime(2026, 11, 26, 9, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "CET"))
    for language, rules in tables().rules.items():
        for errand in {rule.errand for rule in rules}:
            text = said_of(errand, now)
            assert text, (language, errand)
            if errand.kind == "time":
                assert "09:05" in text
                assert "CET" in text
            elif errand.kind == "date":
                assert re.search(r"\b26|26", text)
                assert "2026" in text
            assert "{" not in text
            assert errand.kind in KNOWN or text != said_of(errand, now, connected=True)
            assert "tools add" not in said_of(errand, now, connected=True)


@pytest.mark.parametrize("char", list("a .,/:-_@'`0?\n\t¿请"))
def test_a_run_of_one_character_ends_at_once_and_is_no_errand(char: str) -> None:
    for beginning in ("", "open ", "run ", "what is the ", "send ", "wie ", "http://", "delete "):
        assert errand_of((beginning + char * LONGEST)[:LONGEST]) is None


async def test_an_errand_completes_without_a_model_and_says_that_it_cannot(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        event = await (await submit(kernel, "m1", "Fetch this page: https://example.org/news")).end()
        assert event["state"] == "COMPLETE"
        assert event["result"]["cannot"] == "network"
        assert "cannot reach the network" in event["result"]["text"]
        german = await (await submit(kernel, "m2", "Führe df -h aus", persona="brick")).end()
        assert (german["result"]["cannot"], german["result"]["persona"]) == ("program", "BRICK")
        assert german["result"]["text"].startswith("Ich kann auf diesem Rechner keine Programme")
        clock = (await (await submit(kernel, "m3", "What time is it?")).end())["result"]
        assert "cannot" not in clock
        assert re.match(r"It is \d\d:\d\d \(", clock["text"])
        assert inference.asked == []
        assert not {"Fetch this page: https://example.org/news", "What time is it?"} & set(inference.embedded), "nor an embedder"
        await kernel.image.system(lambda root: None)
        assert (await kernel.replays.replay("m1"))["outcome"] == "same"
        moment = datetime.datetime(2024, 2, 29, 12, 34).timestamp()
        await kernel.image.system(lambda root: setattr(ledger.mission_of(root, "m3"), "finished", moment))
        told = await kernel.replays.replay("m3")
        assert "12:34" in told["difference"]["found"], "a replay is told the time of then"


async def test_what_is_of_a_form_or_a_message_or_the_systems_own_is_no_errand(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, mission_attempts=1) as kernel:
        schema = json.dumps({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]})
        formed = await (await submit(kernel, "m1", "Fetch this page: https://example.org", schema=schema)).end()
        assert "cannot" not in (formed.get("result") or {})
        system = await (await submit(kernel, "m2", "Run df -h", origin="system")).end()
        assert "cannot" not in (system.get("result") or {})
        assert inference.asked


async def test_a_name_that_answers_an_earlier_turn_is_no_title_to_play(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        alone = await (await submit(kernel, "m1", "Pon Despacito")).end()
        assert alone["result"]["cannot"] == "device"
        assert inference.asked == []
        await (await submit(kernel, "m2", "¿Qué nombre pongo en la carta?")).end()
        thought = len(inference.asked)
        after = await (await submit(kernel, "m3", "Pon Juan", context="m2")).end()
        assert "cannot" not in after["result"]
        assert len(inference.asked) > thought


async def test_a_file_that_memory_has_read_is_asked_of_it(tmp_path: Path) -> None:
    def store(root: object) -> None:
        section = Section(1, 1, 1, 1, 1, b"", "", 0, True)
        facts = {"title": "todo", "source": "/home/kim/todo.txt", "sources": ("/home/kim/todo.txt",), "digest": b"d", "complete": True}
        library_of(root).put(root, 1, facts, [Shelf(section, (Passage("Buy milk."),))], None, [1])

    inference = FakeInference()
    async with mind(tmp_path, inference, remember="off") as kernel:
        await kernel.image.system(store)
        known = await (await submit(kernel, "m1", "Read the file ~/todo.txt and summarise it")).end()
        assert "cannot" not in known["result"]
        other = await (await submit(kernel, "m2", "Read the file ~/other.txt and summarise it")).end()
        assert other["result"]["cannot"] == "files"
        gone = await (await submit(kernel, "m3", "Delete the file ~/todo.txt")).end()
        assert gone["result"]["cannot"] == "files"


def test_a_calendar_that_memory_has_read_is_asked_of_it() -> None:
    assert errand_of("What's on my calendar today?") == Errand("account", "en")
    assert errand_of("What's on my calendar today?", lambda name: name == "*.ics") is None


@pytest.mark.parametrize(
    ("brief", "said"),
    [
        ("What time is it in Tokyo?", "It is 17:05 (Asia/Tokyo), by the clock of the machine that I run on."),
        ("what's the time in New York right now", "It is 03:05 (America/New York), by the clock of the machine that I run on."),
        ("Wie spät ist es in Berlin?", "Es ist 09:05 Uhr (Europe/Berlin), nach der Uhr des Rechners, auf dem ich laufe."),
    ],
)
def test_the_clock_of_another_city_is_told(brief: str, said: str) -> None:
    now = datetime.datetime(2026, 11, 26, 9, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "CET"))
    errand = errand_of(brief)
    assert errand is not None
    assert said_of(errand, now) == said
    assert errand_of("What time is it in Narnia?") is None


def test_the_language_of_the_request_is_that_of_the_answer() -> None:
    assert errand_of("¿Qué hora es?") == Errand("time", "es")
    assert errand_of("Please, what time is it now?") == Errand("time", "en")


async def test_no_change_is_tried_on_an_errand(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        for id, brief in (("errand", "What time is it?"), ("thought", "I feel stuck")):
            await (await submit(kernel, id, brief)).end()
        proposal = Proposal("prompt", "psm.SYNTHESIZING", "$brief", "why")
        assert kernel.image.read(replay_selection.chosen, proposal, "", 9) == ["thought"]


@pytest.mark.parametrize(
    ("brief", "language"),
    [
        ("Send it to Bob by mail", "en"),
        ("Send this report to my boss by e-mail.", "en"),
        ("Send Bob eine Mail", "de"),
        ("Send das bitte per Mail an Bob", "de"),
        ("Manda una mail a Bob", "it"),
        ("Manda un mail a Bob", "es"),
        ("Manda uma mensagem à Maria", "pt"),
    ],
)
def test_an_errand_is_answered_in_its_own_language(brief: str, language: str) -> None:
    assert errand_of(brief) == Errand("notify", language)


@pytest.mark.parametrize("brief", ["Send all of them a mail merge", "Send the reader to the end of the story in a message board"])
def test_english_that_a_german_rule_would_take_is_no_german_errand(brief: str) -> None:
    assert errand_of(brief) is None
