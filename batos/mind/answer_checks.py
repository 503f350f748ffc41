"""Answer checks: the quality gate, which every answer passes. Deterministic, without inference, except for the check of relevance.

Each check returns the reason why a text is not fit, in words for the user and for the model's revision.

* Language, by script and by the small words of a language. A mission in German that is answered in English is a fault that a reader sees at
  once; a false alarm costs a revision. So a verdict is given only if the signs are many and agree (Cavnar & Trenkle 1994 rank by frequent
  words; the lists hold the words that each language has to itself among these), and for prose alone: code, names, titles and lists may be
  in any language. If a brief speaks two languages, none is required.
* Texts of generated methods: sentences, and everything returned or raised as it is, pass the checks. Single words are data (a filter knows
  the words that it looks for). Words that the user gave, in the name, the purpose, an example or an argument, are exempt.
* Relevance to the brief, by shared words, and if they are too few by embeddings. The bounds were fitted on the open half of
  `bench/answers.jsonl` and `bench/open_briefs.jsonl`, with the embedded model's answers (148 in question). One in four shares too few words
  with its brief; one in twenty is found to be foreign, and each of these truly is, on the held-out half as well. Of answers to another
  brief four in five are found. An embedder that finds all texts more similar than MiniLM does finds fewer, and no false ones.
"""

from __future__ import annotations

import ast
import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from batos.mind import plans

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
"""Matches code, addresses, and quoted text."""
_CODE = re.compile(
    r"\s*(def |class |import |from \w+ import|return\b|(if|for|while) .*:\s*$|#|//|function |const |let |var |public |select )"
    r"|.*([{};]|\):)\s*$",
    re.IGNORECASE,
)
"""Matches a line of code outside of a code block."""
_ITEM = re.compile(r"\s*([-*•·–]|\d{1,3}[.)])\s+")
_ENDS = (".", "!", "?", "。", "！", "？", "…", "।", "؟")
_EAST = frozenset(("HIRAGANA", "KATAKANA", "CJK", "KATAKANA-HIRAGANA"))
"""Scripts that occur in one Japanese text; Chinese uses the last one too."""
_WEIGHT = {"HIRAGANA": 2, "KATAKANA": 2, "CJK": 4, "HANGUL": 3}
"""Letters of an alphabet for which one character of a script counts."""

LEAST_LETTERS, LEAST_WORDS = 12, 6
"""Least number of letters for a verdict on the script of a text, and of words for a verdict on its language."""
SHARE, LEAST_HITS, LEAD = 0.15, 3, 2.0
"""A language is recognised by the share of its small words, by their number, and by its lead (a factor) over the next language."""
_ITEM_WORDS = 8  # greatest number of words of a list item that is a name and not a sentence
_SOME = 0.05  # least share of an answer's letters in the script of the brief: below it the answer is in another script


def speaks_of_languages(text: str) -> bool:
    """Return True if a text is about languages or translation: then an answer in another language may be asked for."""
    return _NAMES.search(text) is not None


def language_of(text: str) -> str | None:
    """Return the English name of a text's language, or the script of a text that is not in Latin letters; None if it is uncertain."""
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


def differs_in_language(answer: str, brief: str) -> str | None:
    """Return the reason why an answer has the wrong language for its brief; None if it has the right one, or the language is uncertain."""
    if speaks_of_languages(brief):
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
    """Return the language of a brief; None if its parts differ in language, or the language of one is uncertain.

    A brief may quote a text in one language and ask about it in another.
    """
    parts = [part for part in re.split(r"\n+|(?<=[:：])\s", brief) if _WORD.search(part)]
    if len(parts) < 2:
        return language_of(brief)
    found = {language_of(part) for part in parts}
    if len(found) > 1 and found <= _EAST:
        return "CJK"
    return found.pop() if len(found) == 1 else None


def _prose(text: str) -> Iterator[str]:
    """Yield the lines of a text without code and names."""
    for line in _NO_PROSE.sub(" ", text).splitlines():
        item = _ITEM.match(line)
        if _CODE.match(line):
            continue
        if item is None or line.rstrip().endswith(_ENDS) or len(line[item.end() :].split()) > _ITEM_WORDS:
            yield line


def _scripts(text: str) -> Counter[str]:
    """Count the letters of a text by script. A script is the first word of a letter's Unicode name: LATIN, CYRILLIC, CJK ...

    Shapes of letters for mathematics, and of full or half width, are the letters that they show.
    """
    if text.isascii():
        return Counter(LATIN=1)  # by far the most usual case; the caller has checked that the text has letters
    counts: Counter[str] = Counter()
    for letter in unicodedata.normalize("NFKC", text[:2000]):
        if letter.isalpha():
            name = unicodedata.name(letter, "?").split(" ", 1)[0]
            counts[name] += _WEIGHT.get(name, 1)
    return counts or Counter({"?": 1})


_SENTENCE_END = re.compile(r"[。！？]++[”’」』）]*+|(?<![.!?…])[.!?…]++[\"'”’»)\]*_]*+(?=\s|$)")
_KEPT = 0.25  # least share of a cut answer that must be whole sentences: otherwise all of it is kept
_RUN = 7  # words in a row that an answer may share with the words of the prompt
_AGAIN = 3  # greatest number of repetitions of one sentence
_NO_WORDS = 0.5  # share of strings that are not words from which a text is not language
LONGEST = 20_000  # greatest number of characters of an answer: far above what `num_predict` allows by default
_PART_END = re.compile(r"[。！？]|(?<![.!?…])[.!?…]++(?=\s|$)|\n++")
_WORD_GATE = re.compile(r"\w")
_LONG = 20  # least number of characters of the first sentence of a loop
_MOST = 0.7  # share of repeated sentences in a loop
_VOWELS = frozenset("aeiouy")
_ECHO_WORDS = 8  # an answer that exceeds the brief by this many words adds something of its own


def without_partial_end(text: str, *, cut: bool) -> str:
    """Return a cut answer up to its last whole sentence or line; any other answer unchanged.

    Repetitions at the end of a cut answer are left out.

    :param cut: True if the answer reached its length limit.
    """
    if not cut:
        return text
    text = _before_loop(text)
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    end = max(ends[-1] if ends else 0, text.rfind("\n"))
    kept = text[:end].rstrip() if end >= _KEPT * len(text) else f"{text.rstrip()}…"
    return f"{kept}\n```" if kept.count("```") % 2 else kept


def _before_loop(text: str) -> str:
    """Return a text up to the start of a loop: from there to the end, most sentences repeat earlier ones."""
    if "```" in text:
        return text
    ends = [*(found.end() for found in _PART_END.finditer(text)), len(text)]
    said = [(begin, " ".join(_bare(text[begin:end].lower().split()))) for begin, end in zip([0, *ends], ends, strict=False)]
    said = [(begin, words) for begin, words in said if words]
    known: set[str] = set()
    again = []  # for each sentence: True if it occurred before
    for _, words in said:
        again.append(words in known)
        known.add(words)
    for at, (begin, words) in enumerate(said):
        rest = again[at:-1] if at + 1 < len(said) else again[at:]  # the last sentence may be cut off
        if again[at] and len(words) >= _LONG and sum(rest) >= _MOST * len(rest):
            return text[:begin].rstrip()
    return text


def fault_of(text: str, brief: str = "", *, shortest: int = 1, longest: int = LONGEST, prompt: str = "", tongue: bool = True) -> str | None:
    """Return the reason why a text cannot be the answer to a brief; None if it can.

    :param brief: text of the brief; empty: skip the checks against it.
    :param prompt: the prompt besides the brief: an answer must not repeat it.
    :param shortest: characters that it must have.
    :param longest: characters that it may have.
    :param tongue: True if the text must be in the brief's language.
    """
    words = text.lower().split()
    if not _WORD_GATE.search(text):
        return "it is empty"
    if len(text) < shortest:
        return f"it has {len(text)} characters and must have {shortest}"
    if len(text) > longest:
        return f"it has {len(text)} characters and may have {longest}"
    if (len(words) >= 24 and len(set(words)) * 8 < len(words)) or _repeats(text):
        return "it repeats a few words over and over"
    if _no_words(words):
        return "much of it is not words"
    if prompt and _repeats_prompt(words, prompt, brief):
        return "it tells the instructions back"
    if brief and _echoes(words, brief.lower().split()):
        return "it only repeats the brief"
    return differs_in_language(text, brief) if brief and tongue else None


def _echoes(words: list[str], asked: list[str]) -> bool:
    """Return True if an answer is the brief word for word, or the brief with a few words around it."""
    if words == asked:
        return True
    if len(asked) < _ECHO_WORDS or len(words) >= len(asked) + _ECHO_WORDS:
        return False
    return " ".join(_bare(asked)) in " ".join(_bare(words))


def _repeats(text: str) -> bool:
    """Return True if a long sentence is repeated several times, outside of code."""
    if "```" in text:
        return False
    sentences = re.split(r"(?<=[.!?])\s+|\n+", text)
    if len(sentences) <= _AGAIN:
        return False
    said = Counter(" ".join(_bare(one.lower().split())) for one in sentences)
    return any(count > _AGAIN and len(sentence.split()) >= 4 for sentence, count in said.items())


def _no_words(words: list[str]) -> bool:
    """Return True if much of a text is strings such as `xkqzrtv`: long, of Latin letters, and without a vowel."""
    latin = [word for word in _bare(words) if word.isascii() and word.isalpha() and len(word) >= 5]
    odd = [word for word in latin if _VOWELS.isdisjoint(word) or len(set(word)) == 1]
    return len(odd) >= 3 and len(odd) >= _NO_WORDS * len(latin)


def _repeats_prompt(words: list[str], prompt: str, asked: str) -> bool:
    """Return True if an answer repeats a run of words from the prompt that the brief does not have."""
    said = f" {' '.join(_bare(words))} "
    found = [run for run in _runs(prompt) if run in said]
    return bool(found) and any(run not in f" {' '.join(_bare(asked.lower().split()))} " for run in found)


@functools.lru_cache(maxsize=64)  # a state's own words are equal for all missions
def _runs(prompt: str) -> tuple[str, ...]:
    """Return each run of words of a prompt, with a space before and after it."""
    words = _bare(prompt.lower().split())
    return tuple(f" {' '.join(words[at : at + _RUN])} " for at in range(len(words) - _RUN + 1))


def _bare(words: list[str]) -> list[str]:
    return [word.strip(".,;:!?\"'()") for word in words]


_SENTENCE = 3  # least number of words of a sentence
_LONG_TEXTS = 8  # least number of words for a check whether a text is language
_INSULTS = re.compile(
    r"\b(stupid|idiots?|idiotic|morons?|imbeciles?|dumb(ass)?|dimwits?|losers?|retard(ed|s)?|shut up|pathetic|worthless|"
    r"fuck\w*|shit\w*|ass ?holes?|bitch\w*|bastards?|cunts?|whores?|scum|"
    r"idiot(en|in)?|dumm(kopf|er|e)?|blöd(mann|er|e)?|trottel|arschloch|scheiß\w*|depp|"
    r"idiotas?|imbécil(es)?|estúpid[oa]s?|gilipollas|mierda|pendej[oa]s?|connard|salope|merde|stupide|crétin)\b",
    re.IGNORECASE,
)


def fault_of_method_texts(source: str, own: str = "") -> str | None:
    """Return the reason why a method's texts are not acceptable; None if they are.

    :param source: a source that the guardian accepted.
    :param own: words of the user.
    """
    for text in _sentences(ast.parse(source)):
        insult = next((found[0] for found in _INSULTS.finditer(text) if found[0].lower() not in own.lower()), None)
        if insult is not None:
            return f"it says {insult!r}, which insults whoever asks; say what is wrong in plain words"
        if len(text.split()) >= _LONG_TEXTS and (fault := fault_of(text, tongue=False)):
            return f"the text {text[:40]!r} is not fit: {fault}"
    return None


def _sentences(tree: ast.AST) -> Iterator[str]:
    """Yield the texts that are sentences, and those that the method returns or raises unchanged."""
    documented = {
        id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Return | ast.Raise):
            yield from _literal_texts(node.value if isinstance(node, ast.Return) else node.exc)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            if len(node.value.split()) >= _SENTENCE:
                yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield _joined(node)


def _literal_texts(node: ast.expr | None) -> Iterator[str]:
    """Yield the texts that an expression is, by whichever way."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _literal_texts(node.body)
        yield from _literal_texts(node.orelse)
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        for one in (node.left, node.right) if isinstance(node, ast.BinOp) else node.values:
            yield from _literal_texts(one)
    elif isinstance(node, ast.Call):
        for one in node.args:
            yield from _literal_texts(one)


def _joined(node: ast.JoinedStr) -> str:
    return " ".join(part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str))


Nearness: TypeAlias = Callable[[str, Sequence[str]], Awaitable[float | None]]
"""Returns the cosine of a text to the most similar of other texts; None if it is not available now."""


async def no_similarity(text: str, others: Sequence[str]) -> None:
    """Return no similarity: the `Nearness` without an embedder."""


FOREIGN = "it has nothing to do with the request"
_SHORTEST = 25  # words: for a shorter answer neither words nor embeddings are reliable
_SAYING = 4  # least number of content words in a request that has a subject: any answer fits "Surprise me"
_SHARED = 0.1  # cosine of content words from which an answer is about the brief
_ALIKE = 0.15  # cosine of embeddings from which an answer is about the brief


async def is_foreign(answer: str, asked: Sequence[str], nearness: Nearness) -> bool:
    """Return True if an answer is about something other than all the texts that it answers; False if unknown, as for a list.

    :param asked: the brief, and the earlier conversation.
    """
    asked = [one for one in asked if len(plans.content(one)) >= _SAYING]
    if not asked or len(answer.split()) < _SHORTEST or language_of(answer) is None:
        return False
    if any(_shared(answer, one) >= _SHARED for one in asked):
        return False
    alike = await nearness(answer, asked)
    return alike is not None and alike < _ALIKE


def _shared(one: str, other: str) -> float:
    words, others = plans.content(one), plans.content(other)
    return len(words & others) / (len(words) * len(others)) ** 0.5 if words and others else 0.0
