"""The words of a text: what is found with what."""

from __future__ import annotations

import pytest

from batos.memory import words as module
from batos.memory.words import LONGEST, STOP, content_words, words


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("cafes", "Cafés"),
        ("STRASSE", "Straße"),
        ("painting", "She painted the paintings."),
        ("Harriet", "Harriet’s"),
        ("full", "ｆｕｌｌ"),
        ("case", "snake_case"),
        ("東京", "昨日、東京都に行く"),
        ("서울", "나는 서울에 산다"),
        ("Москва", "МОСКВА"),
        ("14", "v3.14"),
    ],
)
def test_a_question_finds_what_is_written_another_way(asked: str, said: str) -> None:
    assert words(asked)
    assert set(words(asked)) <= set(words(said))


def test_words_that_say_nothing_are_left_out() -> None:
    assert words("Hey! What's up, thanks? I don't know what they'd have been doing.") == ["know"]
    question = "When did Harriet row to the C++ evening at the lighthouse in May?"
    assert words(question) == ["harriet", "row", "c", "evening", "lighthous", "may"]
    assert words("") == words("?!… \n") == []


def test_stop_words_are_the_same_however_they_are_written() -> None:
    assert words(" ".join(STOP)) == words(" ".join(STOP).upper()) == words("Don’t") == []


def test_repetitions_count() -> None:
    assert words("paint painted painting") == ["paint"] * 3


def test_content_words_are_readable() -> None:
    assert content_words("When did Oskar paint the harbours at the café?") == ["oskar", "paint", "harbours", "cafe"]


def test_what_is_no_language_does_not_fill_the_vocabulary() -> None:
    assert [len(word) for word in words("q" * 1_000_000)] == [LONGEST]
    assert words("q" * 100) == words("q" * 200)
    assert words("\ud800 lone") == ["lone"]


def test_stems_are_forgotten_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KNOWN", 10)
    monkeypatch.setattr(module, "_STEMS", module._Stems())
    said = " ".join(f"paintings{i}" for i in range(35))
    assert words(said) == [f"paintings{i}" for i in range(35)]
    assert len(module._STEMS) <= 10
