"""The words of a text: what is found with what."""

from __future__ import annotations

import pytest

from batos.memory import tokenizer as module
from batos.memory.tokenizer import LONGEST, STOP, content_words, words


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
        ("猫", "猫喜欢吃鱼"),
        ("本", "この本を読む"),
        ("물", "물을 마시다"),
        ("ทีม", "ทีมของเรา"),
        ("น้ำ", "ดื่มน้ำเยอะ"),
        ("काल", "कल और काल और किला"),
        ("தமிழ்", "தமிழ் மொழி"),
        ("Mietvertrag", "Der Miet\xadvertrag des Ge\xadwächs\xadhauses"),
        ("Mietvertrag", "Miet\u200bver\u200ctrag\u200f"),
        ("Schlüssel", "Schlu\u0308ssel"),
        ("كتاب", "كِتَـــابٌ"),
        ("שלום", "שָׁלוֹם"),
        ("123", "١٢٣"),
        ("がっこう", "がっこうへ行く"),
        ("葛城", "葛\U000e0100城の鍵"),
        ("bold", "\U0001d401\U0001d428\U0001d425\U0001d41d words"),
        ("น้ำ", "ดื่มน\u0e4d\u0e49\u0e32เยอะ"),
        ("ıspanak", "ISPANAK ÇORBASI"),
        ("diyarbakır", "DİYARBAKIR OTOGARI"),
        ("ışık", "Işık açık"),
        ("soeur", "ma sœur Anna"),
        ("smorrebrod", "Smørrebrød med laks"),
        ("Lodz", "adres: Łódź"),
        ("Da Nang", "Đà Nẵng"),
        ("ספר", "מפתח של בית־ספר"),
        ("كتاب", "کتاب من"),
        ("علی", "علي في البيت"),
        ("مدرسه", "في المدرسة مدرسة"),
        ("അവന്\u200d", "അവൻ വന്നു"),
        ("हिंदी", "हिन्दी की किताब"),
        ("चांद", "चाँद"),
        ("फोन", "फ़ोन नंबर"),
        ("संबंध", "सम्बन्ध"),
    ],
)
def test_a_question_finds_what_is_written_another_way(asked: str, said: str) -> None:
    assert words(asked)
    assert set(words(asked)) <= set(words(said))


@pytest.mark.parametrize(("one", "other"), [("कल", "काल किला कुल"), ("น้ำ", "นม"), ("ทีม", "ทาม"), ("தமிழ்", "தமாழ்")])
def test_vowel_signs_tell_words_apart(one: str, other: str) -> None:
    assert not set(words(one)) & set(words(other))


def test_a_question_of_a_single_character_of_several_finds_each() -> None:
    assert {"猫", "吃"} <= set(words("猫吃什么？")) & set(words("猫喜欢吃鱼"))


def test_what_was_indexed_by_an_earlier_version_is_found_under_its_words() -> None:
    assert module.former("काल") == ["क", "ल"]
    assert module.former("ทีม") == ["ท", "ม"]
    assert module.former("Miet\xadvertrag") == ["miet", "vertrag"]
    assert module.former("Łódź, ısı") == ["łodz", "ısı"]
    assert module.former("Das Café, 会议, МОСКВА, schön") == []


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
