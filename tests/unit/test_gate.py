"""What an answer must be, whoever wrote it; and which language a text is in."""

from __future__ import annotations

import pytest

from batos.mind import gate, language

BRIEF = "I'm feeling really stuck on this project, and I don't know why I'm so unmotivated."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty"),
        (" \n\t", "it is empty"),
        ("... — !?", "it is empty"),
        ("plan the  DAY", "it only repeats the brief"),
        ("again " * 24, "it repeats a few words over and over"),
        ("again and " * 12, "it repeats a few words over and over"),
        ("again " * 23, None),
        ("Plan the day in three steps.", None),
        ("猫", None),
        ("7", None),
    ],
)
def test_the_gate(text: str, fault: str | None) -> None:
    assert gate.fault_of(text, "Plan the day") == fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (BRIEF, "it only repeats the brief"),
        (f"Answer: {BRIEF}", "it only repeats the brief"),
        (f'"{BRIEF.rstrip(".")}!"', "it only repeats the brief"),
        (f"{BRIEF} That is a heavy thing to carry, and it may be that the project has lost its meaning for you.", None),
        ("Stuck is where you are, not who you are.", None),
    ],
)
def test_the_brief_again_with_a_few_words_is_no_answer(text: str, fault: str | None) -> None:
    assert gate.fault_of(text, BRIEF) == fault


def test_an_answer_has_a_length() -> None:
    assert gate.fault_of("Yes.", shortest=5) == "it has 4 characters and must have 5"
    assert gate.fault_of("Yes, do.", longest=7) == "it has 8 characters and may have 7"
    assert gate.fault_of("Yes, do.", shortest=8, longest=8) is None


GERMAN = "Ich weiß nicht, warum ich mich so müde fühle, und ich habe das Gefühl, dass es nicht besser wird."
TEXTS = {
    "English": BRIEF,
    "German": GERMAN,
    "French": "Je ne sais pas pourquoi je suis si fatigué, et il me semble que cela ne va pas mieux avec le temps.",
    "Spanish": "No sé por qué estoy tan cansado, y me parece que no se mejora con el tiempo, pero lo intento.",
    "Italian": "Non so perché sono così stanco, e mi sembra che non migliori con il tempo, anche se ci provo molto.",
    "Portuguese": "Eu não sei por que estou tão cansado, e parece que isso não melhora com o tempo, mas eu tento.",
    "Dutch": "Ik weet niet waarom ik zo moe ben, en het lijkt erop dat het niet beter wordt met de tijd, maar ik probeer het.",
    "CYRILLIC": "Я не знаю, почему я так устал, и мне кажется, что лучше не становится.",
    "HIRAGANA": "なぜこんなにつかれているのかわからない",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_language_is_told_by_its_small_words_or_its_script(name: str) -> None:
    assert language.language_of(TEXTS[name]) == name


@pytest.mark.parametrize("text", ["", "42", "Ja.", "def f(x): return x + 1", "Berlin Paris Madrid Roma Lisboa London Amsterdam", "x" * 500])
def test_where_it_cannot_be_told_it_is_not(text: str) -> None:
    assert language.language_of(text) is None


def test_an_answer_in_another_language_is_refused() -> None:
    assert gate.fault_of(BRIEF, GERMAN) == "it is in English and the request is in German"
    assert gate.fault_of(TEXTS["CYRILLIC"], BRIEF) == "it is in CYRILLIC and the request is in English"


def test_unless_the_brief_speaks_of_languages() -> None:
    assert gate.fault_of(GERMAN, "Translate to German what I told you about the way that I feel now.") is None
    assert gate.fault_of(GERMAN, "How would you say it in the language of Goethe if you were to write it?") is None


@pytest.mark.parametrize(
    "brief",
    [
        "Plan a birthday party for a cat lover on a budget",
        "Why do people die in a war that no one as such wants to be in?",
        "A B C D E F G H I J K O",
        "Make a to-do list: la la la, do re mi",
    ],
)
def test_english_briefs_with_words_of_other_languages_are_english(brief: str) -> None:
    assert language.language_of(brief) in (None, "English")
