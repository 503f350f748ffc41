"""Which language a text is in, as far as the quality gate needs to know: by script, and by the small words of a language.

A mission in German that is answered in English is a fault that a reader sees at once; a wrong alarm costs a revision.
So a verdict is given only where the signs are many and speak for one language (Cavnar & Trenkle 1994 for the idea of
ranking by frequent words; the lists are of the words that each language has to itself among these).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_LISTS = {
    "English": "the and of to is are was were you your that this with for have has not what which would could from they there their it "
    "be been can will how why i my we our do does",
    "German": "der die das und ist nicht ich du er sie es wir ihr ein eine einen einem einer zu den dem des mit für auf von wie was "
    "warum auch sich kann werden wird sind haben hat bin mein dein noch aber oder wenn",
    "French": "le la les et est une un des du que qui dans pour pas vous nous je tu il elle ce cette avec sur au aux mon ma mes votre "
    "pourquoi comment sont être avoir mais ou où plus",
    "Spanish": "el la los las y es una un que en por para con no se del al lo como más pero su sus mi mis yo tú usted está están ser "
    "qué cómo cuando muy también porque",
    "Italian": "il lo la gli le e è una un che di per con non si del della nel sono come più ma suo sua mio mia io tu lei perché anche "
    "questo questa quando molto cosa",
    "Portuguese": "o a os as e é uma um que em por para com não se do da no na mais mas seu sua meu minha eu você está são como porque "
    "também quando muito isso",
    "Dutch": "de het een en is van ik je jij hij zij wij niet dat die te met voor op aan zijn heb heeft hebben waarom hoe wat ook "
    "maar of als mijn jouw naar nog",
}
_SMALL_WORDS = {name: frozenset(word for word in words.split() if len(word) > 1) for name, words in _LISTS.items()}
_LANGUAGES: dict[str, list[str]] = {}
for _name, _small in _SMALL_WORDS.items():
    for _word in _small:
        _LANGUAGES.setdefault(_word, []).append(_name)
_NAMES = re.compile(
    r"\b(translat\w*|übersetz\w*|tradu\w*|vertaal\w*|english|englisch|anglais|inglés|inglese|german|deutsch|allemand|french|französisch|"
    r"français|spanish|spanisch|español|italian\w*|portug\w*|dutch|niederländisch|nederlands|russian|chinese|japanese|latin|greek|arabic|"
    r"polish|turkish|hindi|korean|ukrainian|swedish|danish|norwegian|finnish|czech|language|sprache|langue|idioma|lingua)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+")

LEAST_LETTERS, LEAST_WORDS = 12, 6
"""What a text must have for a verdict on its script, and on its language."""
SHARE, LEAST_HITS, LEAD = 0.15, 3, 2.0
"""A language is named where so many of the words are its small words, and so many times as many as the next one's."""


def named(text: str) -> bool:
    """Whether a text speaks of languages or of translating: then an answer in another language may be what is asked for."""
    return _NAMES.search(text) is not None


def language_of(text: str) -> str | None:
    """The language of a text by its English name, or the script of one that is not Latin; None where it cannot be told."""
    words = _WORD.findall(text.lower())
    if sum(map(len, words)) < LEAST_LETTERS:
        return None
    script = _script(text)
    if script != "LATIN":
        return script
    if len(words) < LEAST_WORDS:
        return None
    hits = Counter(dict.fromkeys(_SMALL_WORDS, 0))
    for word in words:
        for name in _LANGUAGES.get(word, ()):
            hits[name] += 1
    (best, count), (_, second) = hits.most_common(2)
    return best if count >= SHARE * len(words) and count >= max(LEAST_HITS, LEAD * second) else None


def differs(answer: str, brief: str) -> str | None:
    """Why an answer is in the wrong language for its brief; None if it is not, or if that cannot be told."""
    if named(brief):
        return None
    asked, given = language_of(brief), language_of(answer)
    if asked is None or given is None or asked == given:
        return None
    return f"it is in {given} and the request is in {asked}"


def _script(text: str) -> str | None:
    """The script of most letters by the first word of their Unicode names: LATIN, CYRILLIC, CJK ..."""
    if text.isascii():
        return "LATIN"  # by far the most; `language_of` has seen letters in it
    counts = Counter(unicodedata.name(letter, "?").split(" ", 1)[0] for letter in text[:2000] if letter.isalpha())
    return counts.most_common(1)[0][0] if counts else None
