"""The checks of the bench that counts right answers: any sensible phrasing passes, what is wrong, hedged or out of form does not."""

from __future__ import annotations

import collections
import importlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def module(name: str) -> Any:
    return importlib.import_module(name)


def right(check: dict[str, Any], answer: str) -> bool:
    return bool(module("checks").right(check, answer))


# --- the tasks


def test_every_check_knows_the_right_and_the_wrong_phrasings_that_stand_beside_it() -> None:
    tasks, checks = module("tasks"), module("checks")
    misjudged = [
        (task.id, answer, wanted)
        for task in tasks.load(tasks.CLOSED)
        for wanted, answers in ((True, task.right), (False, task.wrong))
        for answer in answers
        if checks.right(task.check, answer, task.brief) is not wanted
    ]
    assert not misjudged


def test_no_check_is_satisfied_by_what_says_nothing() -> None:
    tasks, checks = module("tasks"), module("checks")
    said = ("", "   \n", "I am not sure.", "I don't know.", "It depends.", "...", "Das weiß ich nicht.", "No lo sé.")
    passed = [(task.id, answer) for task in tasks.load(tasks.CLOSED) for answer in said if checks.right(task.check, answer)]
    assert not passed


def test_the_brief_told_back_is_no_answer() -> None:
    tasks, checks = module("tasks"), module("checks")
    told = [task for task in tasks.load(tasks.CLOSED) if "?" in task.brief or len(task.brief.split()) > checks.LENGTHY]
    assert len(told) > 100
    assert not [task.id for task in told if checks.right(task.check, task.brief, task.brief)]
    passage = "On Monday the bakery opens at 7, and on Tuesday it opens at 8. " * 4
    assert right({"accept": ["8"]}, passage)
    assert not checks.right({"accept": ["8"]}, passage, passage + "When does it open on Tuesday?")
    assert checks.right({"accept": ["8"]}, "On Tuesday it opens at 8.", passage + "When does it open on Tuesday?")


def test_there_are_160_closed_tasks_of_seven_kinds_and_each_has_what_tests_its_check() -> None:
    tasks = module("tasks")
    found = tasks.load(tasks.CLOSED)
    assert len({task.id for task in found}) == len({(task.brief, json.dumps(task.earlier)) for task in found}) == 160
    assert {task.kind for task in found} == {"fact", "yesno", "capital", "choice", "label", "form", "followup"}
    assert {task.language for task in found} == {"en", "de", "es"}
    assert all(task.check and task.right and task.wrong for task in found)
    assert all([turn["role"] for turn in task.earlier] == ["user", "assistant"] for task in found if task.kind == "followup")


@pytest.mark.parametrize(("file", "group"), [("CLOSED", "kind"), ("OPEN", "use")])
def test_half_of_each_kind_is_held_back_as_it_was_drawn(file: str, group: str) -> None:
    tasks = module("tasks")
    found = tasks.load(getattr(tasks, file))
    drawn = tasks.draw_halves([task.id for task in found], [getattr(task, group) for task in found])
    assert drawn == {task.id: task.half for task in found}
    counted = collections.Counter((getattr(task, group), task.half) for task in found)
    assert all(counted[name, "open"] == counted[name, "held_back"] for name, _ in counted)
    assert len(tasks.load(getattr(tasks, file), "held_back")) == len(found) / 2


def test_there_are_sixty_open_briefs_to_count_and_forty_to_judge() -> None:
    tasks = module("tasks")
    assert collections.Counter(task.use for task in tasks.load(tasks.OPEN)) == {"garbage": 60, "judged": 40}


def test_a_sample_has_all_kinds_and_the_same_seed_draws_the_same() -> None:
    tasks = module("tasks")
    every = tasks.load(tasks.CLOSED)
    some = tasks.some(every, 14, 3)
    assert {(task.kind, task.half) for task in some} == {(task.kind, task.half) for task in every}
    assert some == tasks.some(every, 14, 3) != tasks.some(every, 14, 4)
    assert len(tasks.some(every, 0, 3)) == len(every)


# --- the checks, in phrasings that stand beside no task

CAPITAL = {"accept": ["Canberra"], "forbid": ["Sydney", "Melbourne"], "about": ["capital"]}
PRICE = {"accept": ["3", "three"], "forbid": ["8", "eight"]}
LETTERS = {"options": {"A": ["carrot"], "B": ["apple"], "C": ["potato"]}, "pick": "B", "letters": True}
LABEL = {"options": {"positive": ["positive"], "negative": ["negative"]}, "pick": "positive"}
SHUT = {"verdict": "no", "yes": [r"is open today"], "no": [r"is closed", r"is not open"]}
ARRAY = {"json": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "string"}}}
LINES = {"list": {"count": 2, "split": "line", "item": "cats?|dogs?"}}
COMMAS = {"list": {"count": 2, "split": "comma", "item": "cats?|dogs?"}}


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (CAPITAL, "**Canberra**"),
        (CAPITAL, "canberra!"),
        (CAPITAL, "It isn't Sydney but Canberra."),
        (CAPITAL, "Sydney is the largest city of the country, but the capital is Canberra."),
        (CAPITAL, "Canberra is the capital. Many believe that the capital is Sydney."),
        (CAPITAL, "Canberra. Until 1927 the capital was Melbourne."),
        (CAPITAL, "There are many things to be said " * 6 + "of cities. The answer is Canberra."),
        (CAPITAL, "The capital is Canberra, though it could be larger and is perhaps not the first city that one thinks of."),
        (CAPITAL, "Canberra. " + "It is a young city, planned by an American, with a lake in the middle. " * 6),
        (PRICE, "It costs €3."),
        (PRICE, "three euros, instead of eight"),
        (LETTERS, "b"),
        (LETTERS, "B."),
        (LETTERS, "The correct answer is (B)."),
        (LETTERS, "**B) apple**\n\nA carrot and a potato are vegetables."),
        (LETTERS, "An apple is a fruit, while a carrot is a vegetable."),
        (LABEL, "Positive, because nothing in it is negative."),
        (LABEL, "This is clearly a positive review."),
        (SHUT, "No."),
        (SHUT, "**No**, because it is a holiday."),
        (SHUT, "The answer is no."),
        (SHUT, "It is closed."),
        (ARRAY, '["a", "b"]'),
        (ARRAY, '```json\n["a", "b"]\n```'),
        (LINES, "1. Cats\n2. Dogs"),
        (LINES, "Here they are:\n* cat\n* dog"),
        (COMMAS, "Cat, dog."),
        ({"match": ["^BANANA$"]}, " BANANA\n"),
        ({"words": [1, 3]}, "a good-natured dog"),
    ],
)
def test_a_sensible_phrasing_of_the_right_answer_is_right(check: dict[str, Any], answer: str) -> None:
    assert right(check, answer)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (CAPITAL, "Canberra or Sydney."),
        (CAPITAL, "Canberra. Or Sydney."),
        (CAPITAL, "Perhaps Canberra."),
        (CAPITAL, "Canberra, but I'm not sure."),
        (CAPITAL, "It is not Canberra."),
        (CAPITAL, "Canberra isn't the capital."),
        (CAPITAL, "Canberra is a city. The capital of Australia is Melbourne."),
        (CAPITAL, "Canberra. Wait, it was Sydney."),
        (CAPITAL, "Canberra, perhaps."),
        (
            CAPITAL,
            "What a question! Canberra has a lake. " + "It lies in the middle of parks, and many people work for the state there. " * 4,
        ),
        (CAPITAL, "Canberras"),
        (CAPITAL, "There are many things to be said " * 6 + "of cities. Canberra is one of them. So is Rome, and so is Paris."),
        (PRICE, "It costs 3.50"),
        (PRICE, "13 euros"),
        (PRICE, "Children pay three euros or eight euros."),
        (LETTERS, "A"),
        (LETTERS, "A carrot"),
        (LETTERS, "B or C"),
        (LETTERS, "B) carrot"),
        (LETTERS, "The answer is C."),
        (LETTERS, "A) carrot\nB) apple\nC) potato"),
        (LABEL, "positive or negative"),
        (LABEL, "It is not positive."),
        (LABEL, "It might be positive."),
        (SHUT, "Yes and no."),
        (SHUT, "Yes. No, it is closed."),
        (SHUT, "No, it is open today."),
        (SHUT, "Perhaps no."),
        (
            SHUT,
            "In the story, a lion walks through the town and asks everyone for the way to the library, which is closed, "
            + "and so on " * 6,
        ),
        (ARRAY, '["a"]'),
        (ARRAY, 'Here: ["a", "b"]'),
        (ARRAY, '["a", "b"'),
        (LINES, "cat\ncat"),
        (LINES, "cat, dog"),
        (COMMAS, "cat\ndog"),
        (COMMAS, "cat, dog, cat"),
        ({"match": ["^BANANA$"]}, "banana"),
        ({"words": [1, 3]}, "four words are there"),
        ({"never": ["cat"]}, "a cat"),
        ({"sentences": [1, 1]}, "One. Two."),
    ],
)
def test_what_is_wrong_or_hedged_or_out_of_form_is_not_right(check: dict[str, Any], answer: str) -> None:
    assert not right(check, answer)


def test_a_check_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ValueError, match="no check is called 'acept'"):
        right({"acept": ["Rome"]}, "Rome")


# --- open briefs

SOUND = "Dear Clara,\n\nthank you for the watercolours. I have painted the harbour with them.\n\nWith love,\nTom"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (SOUND, []),
        ("", ["empty"]),
        ("!!!", ["empty"]),
        ("It is a good day today. " * 4, ["repetition"]),
        ("so so so so so so so so", ["repetition"]),
        ("The qzxvbrtk of mrtplkvbn is a a1b2c3 fghjklmnpq.", ["no words"]),
        ("これは日本語の文章です。そして長い。", ["no words"]),
        ("A note.<|im_end|>", ["marks"]),
        ("Write a thank-you note to my aunt Clara, who gave me a set of watercolours.", ["told back"]),
    ],
)
def test_garbage_is_told_from_an_answer(answer: str, why: list[str]) -> None:
    brief = "Write a thank-you note to my aunt Clara, who gave me a set of watercolours."
    assert module("checks").garbage(answer, brief) == why


@pytest.mark.parametrize(
    ("answer", "cut"),
    [
        (SOUND, False),
        ("It is done.", False),
        ('"It is done."', False),
        ("Good luck! 🙂", False),
        ("Take these:\n- a tent\n- two blankets\n- a lamp", False),
        ("The snow fell\nupon the wall\nand on the bell\nand on us all", False),
        ("", False),
        ("First you open the", True),
        ("It was a long day and the children were tired because they had", True),
        ("Take these:\n- a tent\n- two blankets and a", True),
        ("This is what you need:", True),
        ("First wash it. Then dry it,", True),
    ],
)
def test_an_answer_that_ends_within_a_sentence_is_cut_off(answer: str, cut: bool) -> None:
    assert module("checks").cut_off(answer) is cut


# --- figures


@pytest.mark.parametrize(
    ("one", "other", "p"), [(0, 0, 1.0), (5, 5, 1.0), (0, 1, 1.0), (1, 9, 0.021484375), (9, 1, 0.021484375), (0, 6, 0.03125)]
)
def test_mcnemar_is_exact(one: int, other: int, p: float) -> None:
    assert module("answers").mcnemar(one, other) == p


def test_a_score_counts_what_one_side_alone_had_right() -> None:
    rows = [{"mission": m, "direct": d} for m, d in ((True, True), (True, False), (False, True), (False, True), (False, False))]
    assert module("answers").score(rows) == {"n": 5, "mission": 2, "direct": 3, "only_mission": 1, "only_direct": 2, "p": 1.0}


def test_judges_see_each_pair_in_both_orders_and_never_whose_it_is(tmp_path: Path) -> None:
    judge = module("judge")
    told = [(f"open-{i}", "open" if i % 2 else "held_back", "A brief.", {"mission": f"m{i}", "direct": f"d{i}"}) for i in range(20)]
    judge.write_sheets(tmp_path, told, random.Random(1))
    key = json.loads((tmp_path / "key.json").read_text())
    sheets = [[json.loads(line) for line in (tmp_path / f"sheet-{n}.jsonl").read_text().splitlines()] for n in (1, 2)]
    assert len({one["mission"] for one in key.values()}) == 2  # the key is needed
    assert [line["id"] for line in sheets[0]] != [id for id, *_ in told]
    for one, other in zip(*sheets, strict=True):
        assert (one["id"], one["first"], one["second"]) == (other["id"], other["second"], other["first"])
        assert one.keys() == {"id", "brief", "first", "second"}
    files = [
        {"judge": "ada", "sheet": n, "verdicts": {line["id"]: "first" if line["first"][0] == "m" else "second" for line in sheet}}
        for n, sheet in enumerate(sheets, 1)
    ]
    assert judge.points(key, files) | {"by_half": 0} == {
        "bench": "judge", "verdicts": 40, "points": 1.0, "by_judge": {"ada": 1.0}, "by_half": 0, "by_sheet": {"1": 1.0, "2": 1.0},
        "first": 0.5, "agree": 1.0,
    }  # fmt: skip
    always = [{**file, "verdicts": dict.fromkeys(key, "first")} for file in files]
    assert (judge.points(key, always)["points"], judge.points(key, always)["first"], judge.points(key, always)["agree"]) == (0.5, 1.0, 0.0)
    ties = [{**file, "verdicts": dict.fromkeys(key, "tie")} for file in files]
    assert judge.points(key, ties)["points"] == 0.5


def test_verdicts_that_fit_no_sheet_are_refused() -> None:
    judge = module("judge")
    key = {"a": {"half": "open", "mission": "first"}, "b": {"half": "open", "mission": "second"}}
    for file, words in (
        ({"sheet": 3, "verdicts": {}}, "no sheet 3"),
        ({"sheet": 1, "verdicts": {"a": "first"}}, "'b'"),
        ({"sheet": 1, "verdicts": {"a": "first", "b": "mine"}}, "'mine' is no verdict"),
    ):
        with pytest.raises(ValueError, match=words):
            judge.points(key, [{"judge": "ada", **file}])
