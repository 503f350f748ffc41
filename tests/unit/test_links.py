"""Links: names of documents in texts, and one step along them."""

from __future__ import annotations

import pytest

from batos.memory.search import prepare_question, search
from batos.memory.section_builder import Gazetteer
from tests.support.search import Said, collection


@pytest.fixture
def gazetteer() -> Gazetteer:
    return Gazetteer([("Blue Rain", 1), ("Blue Rain Pictures", 2), ("Mercury (planet)", 3), ("Mercury (god)", 4), ("ideas", 5), ("The", 6)])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("He made Blue Rain.", [1]),
        ("He made blue rain, twice: Blue Rain!", [1]),
        ("Blue Rain Pictures made Blue Rain.", [2, 1]),
        ("Mercury is small.", [3, 4]),
        ("We had ideas.", []),
        ("See Ideas.", [5]),
        ("The end.", []),
        ("Blue raincoats.", []),
        ("Blue", []),
        ("", []),
    ],
)
def test_names_in_a_text(gazetteer: Gazetteer, text: str, found: list[int]) -> None:
    assert gazetteer.find(text) == found


def test_a_name_that_comes_later_is_found_from_then_on(gazetteer: Gazetteer) -> None:
    assert gazetteer.find("Ann Lee swam.") == []
    gazetteer.add("Ann Lee", 7)
    assert gazetteer.find("Ann Lee swam.") == [7]


FILLER = [Said(f"The firm of number {i} was founded in the year of the rain.", document=i + 10) for i in range(20)]
CHUNKS = [
    Said("The Zephyr is a car that was made by Aldous Works.", document=1, links=(2,)),
    Said("Aldous Works, in Leeds, began as a smithy.", document=2),
    *FILLER,
]
BRIDGING = "Where was the company founded that made the Zephyr?"


def test_a_question_that_goes_by_way_of_something_is_led_on_by_a_link() -> None:
    view = collection(CHUNKS).view()
    hits = search(view, prepare_question(view, BRIDGING), None, 3).hits
    assert [hit.id for hit in hits[:2]] == [0, 1]
    assert hits[1].path == (0, 1)
    assert hits[1].signals["link"] > 0
    assert hits[0].path == (0,)


def test_without_the_link_the_second_text_is_lost() -> None:
    view = collection([CHUNKS[0]._replace(links=()), *CHUNKS[1:]]).view()
    assert 1 not in [hit.id for hit in search(view, prepare_question(view, BRIDGING), None, 10).hits]


def test_a_plain_question_goes_no_step() -> None:
    view = collection(CHUNKS).view()
    assert 1 not in [hit.id for hit in search(view, prepare_question(view, "What is the Zephyr?"), None, 5).hits[:1]]
    assert all(len(hit.path) == 1 for hit in search(view, prepare_question(view, "What is the Zephyr?"), None, 5).hits)


def test_a_target_that_was_forgotten_is_not_found_again() -> None:
    made = collection(CHUNKS)
    made.drop([1])
    view = made.view()
    assert 1 not in [hit.id for hit in search(view, prepare_question(view, BRIDGING), None, 30).hits]
