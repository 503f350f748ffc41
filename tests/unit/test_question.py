"""What a question says before anything is searched."""

from __future__ import annotations

from datetime import date

import pytest

from batos.memory.question import Span, parse_question
from batos.memory.segments import NUMBER, WHEN, speaker_key

ANN, BEN, MARY = speaker_key("Ann"), speaker_key("Ben"), speaker_key("Mary Jane Watson")
DAYS = Span(date(2022, 11, 1).toordinal(), date(2023, 12, 31).toordinal())


def day(*parts: int) -> int:
    return date(*parts).toordinal()


def named(text: str, *within: date, days: Span | None = DAYS, today: date | None = None) -> list[int]:
    """In how many of the question's spans each of the days lies."""
    spans = parse_question(text, days=lambda: days, today=today).spans
    return [sum(span.first <= one.toordinal() <= span.last for span in spans) for one in within]


@pytest.mark.parametrize(
    "text",
    [
        "What happened on 7 May 2023?",
        "What happened on 7th of May, 2023?",
        "what happened on may 7, 2023",
        "What happened on May 7th, 2023?",
        "What happened on 2023-05-07?",
    ],
)
def test_a_day_is_named_in_many_ways(text: str) -> None:
    assert named(text, date(2023, 5, 7), date(2023, 5, 8), date(2023, 6, 7), date(2022, 5, 7)) == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("text", "may", "june"),
    [
        ("Where were we in May 2023?", 2, 1),
        ("Where were we in May?", 1, 0),
        ("Where may we go?", 0, 0),
        ("Did they march to the sea?", 0, 0),
        ("What was bought in 2023?", 1, 1),
        ("What did she do on Jun. 2?", 0, 1),
        ("Who ran 2000 metres?", 0, 0),
        ("What is planned for 31 June 2023?", 1, 2),
        ("What happened in 0000-13?", 0, 0),
    ],
)
def test_months_and_years(text: str, may: int, june: int) -> None:
    assert named(text, date(2023, 5, 20), date(2023, 6, 20)) == [may, june]


def test_a_month_without_its_year_is_that_of_every_year_there_is() -> None:
    assert named("What did we do in November?", date(2022, 11, 5), date(2023, 11, 5), date(2021, 11, 5)) == [1, 1, 0]
    assert named("What did we do in November?", date(2022, 11, 5), days=None) == [0]


@pytest.mark.parametrize(
    ("text", "hit", "miss"),
    [
        ("What did I say yesterday?", date(2023, 5, 16), date(2023, 5, 15)),
        ("What did I say last week?", date(2023, 5, 9), date(2023, 5, 15)),
        ("What did I say last month?", date(2023, 4, 30), date(2023, 5, 1)),
        ("What did I say last year?", date(2022, 1, 1), date(2023, 1, 1)),
        ("What did I say two weeks ago?", date(2023, 5, 3), date(2023, 5, 12)),
    ],
)
def test_relative_days_count_from_today_and_only_if_that_is_given(text: str, hit: date, miss: date) -> None:
    assert named(text, hit, miss, today=date(2023, 5, 17)) == [1, 0]
    assert named(text, hit, miss) == [0, 0]


def test_a_number_of_years_that_leads_out_of_the_calendar_names_no_day() -> None:
    assert parse_question("What was 9999 years ago?", today=date(2023, 5, 17)).spans == ()


def test_names_of_speakers_are_facets_and_not_words_of_the_dense_question() -> None:
    question = parse_question("What did Ann's sister tell mary jane watson about the sea?", {ANN, BEN, MARY})
    assert question.speakers == (MARY, ANN)
    assert question.cleaned == "sister tell sea"
    assert {"ann", "mari", "sea"} <= set(question.words)


@pytest.mark.parametrize(
    ("text", "named", "people", "cleaned"),
    [
        ("What did Caroline paint?", {"Caroline Smith", "Caroline Jones"}, 1, "paint"),
        ("What did caroline paint?", {"Caroline Smith", "Caroline Jones"}, 1, "paint"),
        ("What did Caroline Smith paint?", {"Caroline Smith"}, 1, "paint"),
        ("What did Caroline's friend Ann paint?", {"Caroline Smith", "Caroline Jones", "Ann"}, 2, "friend paint"),
        ("What did Ann and Ann's cat eat?", {"Ann"}, 1, "cat eat"),
        ("What did Smith paint?", set(), 0, "smith paint"),
        ("Will it rain in May?", set(), 0, "rain may"),
        ("will it rain?", set(), 0, "rain"),
        ("What did Will say?", {"Will"}, 1, "say"),
        ("Which mark did Ann get?", {"Ann"}, 1, "mark"),
        ("what did mark get?", {"Mark"}, 1, "what did mark get?"),
    ],
)
def test_who_is_named_by_a_part_of_a_name(text: str, named: set[str], people: int, cleaned: str) -> None:
    speakers = {speaker_key(name): name for name in ("Caroline Smith", "Caroline Jones", "Ann", "Will", "Mark")}

    def called(name: str) -> list[int]:
        return [key for key, whole in speakers.items() if whole.casefold().startswith(name + " ")]

    question = parse_question(text, speakers.keys(), called=called)
    assert {speakers[key] for key in question.speakers} == named
    assert question.people == people
    assert question.cleaned == cleaned or people == 0


def test_a_question_of_nothing_but_stop_words_and_names_is_embedded_as_it_is() -> None:
    assert parse_question("Who is Ann?", {ANN}).cleaned == "Who is Ann?"


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        ("When did Ann go?", WHEN),
        ("In what year did Ann go?", WHEN),
        ("How long ago did she go?", WHEN | NUMBER),
        ("How many children does she have?", NUMBER),
        ("How long did it take?", NUMBER),
        ("What does she do when it rains?", 0),
        ("Where does she live?", 0),
    ],
)
def test_what_an_answer_must_have(text: str, wants: int) -> None:
    assert parse_question(text).wants == wants


@pytest.mark.parametrize(
    ("text", "bridges"),
    [
        ("In which year was the company founded that made the Zephyr?", True),
        ("Who is the mother of the director of Blue Rain?", True),
        ("What is the capital of the country in which Ann was born?", True),
        ("Are Blue Rain and Red Snow by the same director?", True),
        ("The Zephyr was made by a firm with its seat in what town?", True),
        ("Which town is the founder of Aldous Works from?", True),
        ("Where was the author of Blue Rain born?", True),
        ("Who is the author of Blue Rain?", False),
        ("What is the capital of France?", False),
        ("When was the Zephyr made?", False),
        ("What did Ann paint?", False),
    ],
)
def test_questions_that_go_by_way_of_something(text: str, bridges: bool) -> None:
    assert parse_question(text).bridges is bridges
