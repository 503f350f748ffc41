"""What is quoted of a passage: whole sentences, lines, rows or items, those that answer, and nothing where nothing does."""

from __future__ import annotations

import pytest

from batos.mind import rule_answers
from batos.mind.evidence import Citation, RecalledPassage, citations, cited, without_claims


def passage(text: str, *, origin: str = "file", title: str = "note", about: str = "", quotable: bool = True) -> RecalledPassage:
    return RecalledPassage(1, "0a", title, "note.md", text, 1, origin, 0, about, quotable)


KIM = passage("My name is Kim and I have a dog called Bruno.", origin="user")


@pytest.mark.parametrize(
    ("brief", "text", "quoted"),
    [
        ("What am I allergic to?", "I had the flu in March.\nI am allergic to penicillin.\nAsk Dr. Weber.", "I am allergic to penicillin."),
        (
            "Where is Dr. Weber?",
            "It rained. Dr. Weber is in Hafenstr. 5, second floor. He is nice.",
            "Dr. Weber is in Hafenstr. 5, second floor.",
        ),
        (
            "Wo ist der Zahnarzt?",
            "Zahnarzttermin: 12. März, 15 Uhr, Hafenstr. 12. Nichts essen.",
            "Zahnarzttermin: 12. März, 15 Uhr, Hafenstr. 12.",
        ),
        ("When is the party?", "Anna: When is the party?\nBen: On Saturday at five.\nAnna: Fine.", "Ben: On Saturday at five."),
        (
            "What do we need for the cake?",
            "For the cake we need:\n- flour\n- six eggs\n\nBring a tin.",
            "For the cake we need:\n- flour\n- six eggs",
        ),
        ("Wann hat Tante Gesa Geburtstag?", "name;tag;gabe\nGesa;2. August;Tee\nFiete;29. November;Rad", "Gesa;2. August;Tee"),
        ("When was Bruno born?", "Bruno is my dog. He was born in 2019. He eats fish.", "Bruno is my dog. He was born in 2019."),
        (
            "Look up when the lease ends",
            "The rent is 40 euros, due on the third. The lease ends on 30 September 2027, and not before.",
            "The lease ends on 30 September 2027, and not before.",
        ),
        ("Who has the spare key?", "# Keys\n\nThe spare key is with Mrs Lund.", "The spare key is with Mrs Lund."),
    ],
)
def test_the_parts_that_answer_are_quoted_whole(brief: str, text: str, quoted: str) -> None:
    (quote,) = rule_answers.quotes(brief, [passage(text)])
    assert quote.text == quoted
    assert rule_answers.asks_for_fact(brief, [passage(text)])


def test_a_list_that_its_title_announces_is_quoted_whole() -> None:
    listed = passage("- milk\n- bread\n- 6 eggs", title="Shopping list")
    assert rule_answers.quotes_text(rule_answers.quotes("What is on my shopping list?", [listed])) == "“- milk\n- bread\n- 6 eggs” [1]"


@pytest.mark.parametrize(
    ("brief", "found"),
    [
        ("What is the capital of France?", passage("We were in France twice. The hotel was bad.")),
        ("How much does the heater cost?", passage("The heater is from Thoms and is blue.")),
        ("When is the party?", passage("The party is at Lena's, bring salad.")),
        ("What is the plumber's phone number?", passage("The plumber comes on 3 May.")),
        ("What is my name?", passage("It is said to be Kim, by name.", quotable=False)),
        ("?!", passage("Anything at all.")),
    ],
)
def test_nothing_that_does_not_answer_is_quoted(brief: str, found: RecalledPassage) -> None:
    assert rule_answers.quotes(brief, [found]) == []
    assert not rule_answers.can_quote(brief, [found])
    assert not rule_answers.asks_for_fact(brief, [found])


@pytest.mark.parametrize(
    ("brief", "asks"),
    [
        ("What is my dog called?", True),
        ("Who is Bruno?", True),
        ("What is a dog?", False),
        ("Plan a week with my dog Bruno", False),
        ("Write a poem about my dog Bruno", False),
    ],
)
def test_only_who_asks_for_the_fact_is_held_to_it(brief: str, asks: bool) -> None:
    assert rule_answers.asks_for_fact(brief, [KIM]) is asks


@pytest.mark.parametrize(
    ("answer", "leaves"),
    [
        ("Your dog is called Bruno.", False),
        ("That would be Bruno, your dog, as you told me.", False),
        ("Your dog is called Rex.", True),
        ("I do not know.", True),
        ("Bruno, and he is 7 years old.", True),
    ],
)
def test_an_answer_that_leaves_what_was_said(answer: str, leaves: bool) -> None:
    assert rule_answers.departs_from(answer, "What is my dog called?", [KIM]) is leaves


def test_what_was_cut_to_fit_is_not_quoted_in_part() -> None:
    found = passage("The key is with Mrs Lund. The key to the shed is und…")
    assert [quote.text for quote in rule_answers.quotes("Where is the key?", [found])] == ["The key is with Mrs Lund."]


def test_a_mark_counts_where_its_sentence_has_something_of_the_passage() -> None:
    brief = "What am I allergic to?"
    found = (passage("I am allergic to penicillin since 1987."),)
    for invention in ("It is peanuts [1].", "You are allergic to shellfish. [1]", "It began in 1999, by penicillin [1]."):
        assert cited(invention, found, brief) == [], invention
        assert "[1]" not in without_claims(invention, found, brief)
    right = "You are allergic to penicillin [1]."
    assert cited(right, found, brief) == [(1, right)]
    assert without_claims(right, found, brief) == right


def test_citations_of_an_earlier_version_are_of_files() -> None:
    told = Citation(*(1, "0a", "Mills", "mills.md", ("It is.",))).to_wire()
    assert (told["origin"], told["day"]) == ("file", None)
    ((one),) = citations([(1, "x")], [KIM._replace(day=739_000)])
    assert (one.origin, one.to_wire()["day"]) == ("user", "2024-04-24")


@pytest.mark.parametrize("char", list("a .;,?:#-|\n\t…0"))
def test_a_run_of_one_character_is_gone_through_at_once(char: str) -> None:
    found = [passage((char * 20_000) + " dog")]
    assert len(rule_answers.quotes("What is my dog called?", found)) <= 1


@pytest.mark.parametrize(
    ("brief", "text", "quoted"),
    [
        ("When is Anna's birthday?", "Anna's flat is in Ulm. Ben's birthday is on 4 June.", ""),
        ("When is my birthday?", "Ben's birthday is on 4 June.", ""),
        ("When is my birthday?", "My birthday is on 3 May. Ben's birthday is on 4 June.", "My birthday is on 3 May."),
        ("When does Ben's school start?", "Anna's school starts at 9. Ben's school starts at 8.", "Ben's school starts at 8."),
        ("What is my wife's name?", "My wife's name is Ida.", "My wife's name is Ida."),
        ("Where is my key?", "My key is at Anna's place.", "My key is at Anna's place."),
    ],
)
def test_what_is_somebody_elses_is_not_quoted(brief: str, text: str, quoted: str) -> None:
    assert " ".join(one.text for one in rule_answers.quotes(brief, [passage(text)])) == quoted


@pytest.mark.parametrize(
    ("brief", "text", "quoted"),
    [
        (
            "When was the roof repaired?",
            "The roof was inspected in 2019. It was repaired by Kaya & Sons in June 2021. The bill is in the folder.",
            "The roof was inspected in 2019. It was repaired by Kaya & Sons in June 2021.",
        ),
        (
            "What is Bruno allergic to?",
            "Bruno is our dog. He is big. He is allergic to chicken. He is six.",
            "Bruno is our dog. He is allergic to chicken.",
        ),
        (
            "Who is the landlord?",
            "The landlord is Mr. P. Hansen (tel. 040 123). He lives upstairs.",
            "The landlord is Mr. P. Hansen (tel. 040 123).",
        ),
    ],
)
def test_a_pronoun_stands_for_what_was_named_before(brief: str, text: str, quoted: str) -> None:
    assert " ".join(one.text for one in rule_answers.quotes(brief, [passage(text)])) == quoted
