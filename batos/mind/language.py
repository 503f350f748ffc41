"""Which language a text is in, as far as the quality gate needs to know: by script, and by the small words of a language.

A mission in German that is answered in English is a fault that a reader sees at once; a wrong alarm costs a revision.
So a verdict is given only where the signs are many and speak for one language (Cavnar & Trenkle 1994 for the idea of
ranking by frequent words; the lists are of the words that each language has to itself among these), and of prose alone: code, names,
titles and lists are in whatever language they are. Where one brief speaks two languages nobody knows which one it asks for.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

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
    r"\b(translat|übersetz|tradu|vertaal|tradurre|englis|englisc|anglais|ingl[eé]s|german|deutsch|allemand|alem[aá]n|tedesc|french|franz[oö]s|"
    r"fran[cç]ais|franc[eé]s|spanis|español|espagnol|italian|italien|portug|dutch|niederl[aä]nd|nederland|russi|chines|japan|latin|gr(ee|ie)c?[hk]|"
    r"arab|polish|polnisc|turkis|türkisc|hindi|korea|ukrain|swedis|schwedisc|danish|dänisc|norweg|finnis|czech|hebr|thai|vietnam|language|"
    r"sprach|langue|idioma|lingua)|翻訳|翻译|英語|英语|日本語|日语|中国語|中文|한국어|번역|перевед|перевод|английск|русск|немецк",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+")
_NO_PROSE = re.compile(r"```.*?(```|\Z)|`[^`\n]*`|https?://\S+|[“„«\"「『][^”“»\"」』\n]{1,200}[”“»\"」』]", re.DOTALL)
"""Code, addresses, and what is quoted."""
_CODE = re.compile(
    r"\s*(def |class |import |from \w+ import|return\b|(if|for|while) .*:\s*$|#|//|function |const |let |var |public |select )"
    r"|.*([{};]|\):)\s*$",
    re.IGNORECASE,
)
"""A line of code that stands in no block."""
_ITEM = re.compile(r"\s*([-*•·–]|\d{1,3}[.)])\s+")
_ENDS = (".", "!", "?", "。", "！", "？", "…", "।", "؟")
_EAST = frozenset(("HIRAGANA", "KATAKANA", "CJK", "KATAKANA-HIRAGANA"))
"""Scripts that one Japanese text is written in; the last of them is Chinese, too."""
_WEIGHT = {"HIRAGANA": 2, "KATAKANA": 2, "CJK": 4, "HANGUL": 3}
"""Letters of an alphabet that one character of a script stands for."""

LEAST_LETTERS, LEAST_WORDS = 12, 6
"""What a text must have for a verdict on its script, and on its language."""
SHARE, LEAST_HITS, LEAD = 0.15, 3, 2.0
"""A language is named where so many of the words are its small words, and so many times as many as the next one's."""
_ITEM_WORDS = 8  # of an item of a list that is a name, and no sentence
_SOME = 0.05  # of an answer's letters in the script of the brief: it is not all in another one


def named(text: str) -> bool:
    """Whether a text speaks of languages or of translating: then an answer in another language may be what is asked for."""
    return _NAMES.search(text) is not None


def language_of(text: str) -> str | None:
    """The language of a text by its English name, or the script of one that is not Latin; None where it cannot be told."""
    words = _WORD.findall(text.lower())
    if sum(map(len, words)) < LEAST_LETTERS:
        return None
    script = max(scripts := _scripts(text), key=lambda name: scripts[name])
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
    asked, prose = _asked(brief), "\n".join(_prose(answer))
    given = None if asked is None else language_of(prose)
    if asked is None or given is None or asked == given or {asked, given} <= _EAST:
        return None
    if asked not in _SMALL_WORDS:  # a script of its own
        scripts = _scripts(answer)
        own = sum(count for name, count in scripts.items() if name == asked or {name, asked} <= _EAST)
        if own >= _SOME * scripts.total():
            return None
    return f"it is in {given} and the request is in {asked}"


def _asked(brief: str) -> str | None:
    """The language of a brief; None where its parts are in several, or one of them cannot be told.

    Who quotes a text may ask about it in another language than the text's.
    """
    parts = [part for part in re.split(r"\n+|(?<=[:：])\s", brief) if _WORD.search(part)]
    if len(parts) < 2:
        return language_of(brief)
    found = {language_of(part) for part in parts}
    if len(found) > 1 and found <= _EAST:
        return "CJK"
    return found.pop() if len(found) == 1 else None


def _prose(text: str) -> Iterator[str]:
    """The lines of a text without code and names."""
    for line in _NO_PROSE.sub(" ", text).splitlines():
        item = _ITEM.match(line)
        if _CODE.match(line):
            continue
        if item is None or line.rstrip().endswith(_ENDS) or len(line[item.end() :].split()) > _ITEM_WORDS:
            yield line


def _scripts(text: str) -> Counter[str]:
    """Letters by script, which is the first word of their Unicode names: LATIN, CYRILLIC, CJK ...

    Shapes of letters for mathematics, and of full or half width, are the letters that they show.
    """
    if text.isascii():
        return Counter(LATIN=1)  # by far the most; who asks has seen letters in it
    counts: Counter[str] = Counter()
    for letter in unicodedata.normalize("NFKC", text[:2000]):
        if letter.isalpha():
            name = unicodedata.name(letter, "?").split(" ", 1)[0]
            counts[name] += _WEIGHT.get(name, 1)
    return counts or Counter({"?": 1})
