"""Answer checks: the quality gate, which every answer passes. Deterministic, without inference, except for the check of relevance.

Each check returns the reason why a text is not fit, in words for the user and for the model's revision.

* Language, by script and by the small words of a language. A mission in German that is answered in English is a fault that a reader sees at
  once; a false alarm costs a revision. So the check gives a verdict only if the signs are many and agree. It judges prose alone, since
  code, names, titles and lists may be in any language. Cavnar & Trenkle (1994) rank by frequent words; the lists hold the words that each
  language has to itself among these. If a brief speaks two languages, none is required.
* Texts of generated methods: sentences, and everything returned or raised as it is, pass the checks. Single words are data (a filter knows
  the words that it looks for). Words that the user gave, in the name, the purpose, an example or an argument, are exempt.
* Relevance to the brief, by shared words, and if they are too few by embeddings. The bounds were fitted on the open half of
  `bench/answers.jsonl` and `bench/open_briefs.jsonl`, with the embedded model's answers (148 in question). One answer in four shares too
  few words with its brief. One answer in twenty is found to be foreign, and each of these truly is, on the held-out half as well. Of
  answers to another brief four in five are found. An embedder that finds all texts more similar than MiniLM does finds fewer, and no false
  ones.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from batos.memory.chunking import may_go_on, sentences
from batos.mind import plans
from batos.mind.brief_analysis import is_greeting

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
    r"\b(lyrics|anthem|nursery rhyme|liedtext|songtext|paroles d|letra d|testo d[ei]ll[ao] canzone|hymne|himno|inno nazionale|"
    r"translat|übersetz|tradu|vertaal|tradurre|language|sprach|langue|idioma|lingua|alphabet|cyrillic|kyrillisch|kanji|kana\b|hiragana|"
    r"katakana|pinyin|romaji|englis|englisc|anglais|ingl[eé]s|german|deutsch|allemand|alem[aá]n|tedesc|french|franz[oö]s|"
    r"fran[cç]ais|franc[eé]s|spanis|español|espagnol|italian|italien|portug|dutch|niederl[aä]nd|nederland|russ?i|russo\b|chines|chinois|"
    r"mandarin|cantones|kantones|japan|japon|giappon|latin|gr(ee|ie)c?[hk]|grec|arab|polish|polnisc|turkis|türkisc|turc|hindi|korea|coreano|"
    r"ukrain|swedis|schwedisc|danish|dänisc|norweg|finnis|finnisc|icelandic|isländ|czech|tschech|slova|slowak|slowen|sloven|hungar|ungarisc|"
    r"romanian|roumain|rumano|rumeno|rumän|bulgar|serb(ian|isc|o|e|ia)?\b|croat|kroat|bosni|macedoni|mazedon|albani|lithuan|litau|latvian|lettisc|estoni|estnisc|belar|hebr|"
    r"yiddish|jiddisc|thai|lao\b|khmer|burm|vietnam|indones|malay|tagalog|filipin|swahili|suaheli|hausa\b|yoruba|igbo|zulu|xhosa|amhar|tigrin|"
    r"somali|oromo|farsi|persian|persisc|persan|persa\b|dari\b|pasht|paschtu|kurd|urdu|bengal|bangla|punjab|gujarat|marathi|tamil|telugu|kannada|malayalam|sinhal|singhal|"
    r"nepal|armeni|georgi|aserb|azerb|kazak|kasach|usbek|uzbek|mongol|irish\b|gaelic|gälisc|welsh|basque|baskisc|catal|katal|galic|galiz|"
    r"esperant|sanskrit)|翻訳|翻译|翻譯|英語|英语|日本語|日语|日語|中国語|中文|한국어|번역|영어|перевед|перевод|английск|немецк|русск|अनुवाद|ترجم",
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
_LATIN, _EASTERN = "LATIN", "EAST ASIAN"
_LATIN_HITS, _LATIN_SHARE = 2, 0.25  # least number and share of small words of any language in Latin letters
_MOST_SCRIPTS = 2  # greatest number of scripts of an answer that its brief does not have
_WORD_LETTERS = 3  # least number of letters of a script that has a word in a text
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
    if len(mixed := _mixed_scripts(answer, brief)) > _MOST_SCRIPTS:
        return f"it is in {', '.join(mixed[:-1])} and {mixed[-1]} at once"
    asked, prose = _asked(brief), "\n".join(_prose(answer))
    given = None if asked is None else language_of(prose)
    if asked is None or given is None or asked == given or {asked, given} <= _EAST:
        return None
    if asked == _LATIN and given in _SMALL_WORDS:
        return None
    if asked not in _SMALL_WORDS and asked != _LATIN:  # a script of its own
        scripts = _scripts(answer)
        own = sum(count for name, count in scripts.items() if name == asked or {name, asked} <= _EAST)
        if own >= _SOME * scripts.total():
            return None
    return f"it is in {given} and the request is in {'Latin letters' if asked == _LATIN else asked}"


def _mixed_scripts(answer: str, brief: str) -> list[str]:
    """Return the scripts of an answer that is mostly in scripts that its brief does not have; those of East Asia count as one.

    A script counts if it has a fair share of the letters, and a word.
    """
    counts, known = _families(answer), _families(brief)
    if 2 * sum(counts[name] for name in known) >= counts.total():
        return []
    return [name for name, count in counts.items() if name not in known and count >= max(_WORD_LETTERS, _SOME * counts.total())]


def _families(text: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, count in _scripts(text).items():
        counts[_EASTERN if name in _EAST else name] += count
    return counts


def _asked(brief: str) -> str | None:
    """Return the language of a brief; None if its parts differ in language, or the language of one is uncertain.

    A brief may quote a text in one language and ask about it in another.
    """
    parts = [part for part in re.split(r"\n+|(?<=[:：])\s", brief) if _WORD.search(part)]
    found = {_language_or_script(part) for part in parts}
    if len(found) > 1 and found <= _EAST:
        return "CJK"
    return found.pop() if len(found) == 1 else None


def _language_or_script(text: str) -> str | None:
    """Return `language_of` a text; `LATIN` if it is uncertain which language of those in Latin letters it is."""
    if (found := language_of(text)) is not None:
        return found
    words = _WORD.findall(text.lower())
    hits = sum(word in _LANGUAGES for word in words)  # romanised Hindi and Japanese have few
    return _LATIN if sum(map(len, words)) >= LEAST_LETTERS and hits >= max(_LATIN_HITS, _LATIN_SHARE * len(words)) else None


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


_STOPS, _CLOSERS = ".!?…。！？।॥؟۔։።၊။", "\"'”’»›」』）)]*_"
_WORD_END = re.compile(r"[\s(\[{\"'“‘«/]")
_NO_END = re.compile(r"\d{1,2}|\w|[^.]++\.[^.\d].*+|")  # an item's number or the beginning of a decimal, an initial, a name of a host
_DANGLING = re.compile(r"(?:(?:\A|\n)[ \t]*+|(?<=[.!?…。！？])[ \t]++)(?:[-*+•]|\d{1,3}[.)])\Z")
"""Matches the mark of a list item without its text, at the end."""
_FENCES = re.compile(r"^[ \t]{0,3}(`{3,}+|~{3,}+)", re.MULTILINE)
_KEPT = 0.25  # least share of a cut answer that must be whole sentences: otherwise all of it is kept
_RUN = 7  # words in a row that an answer may share with the words of the prompt
_AGAIN = 3  # greatest number of repetitions of one sentence
_REFRAIN = 0.6  # least share of a text's sentences that are repeated ones in a loop
_MANY, _VARIETY = 24, 8  # least number of words of a loop, and how often each occurs on average
_CELL = 3  # greatest number of characters of a cell in a grid
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff]{2,}")
_SAID = re.compile(r"(?<=[.!?])\s+|(?<=[。！？।])\s*|\n+")
_QUOTES = tuple("'’‘\"'“”„«»‘:：「『")
_NO_WORDS = 0.5  # share of strings that are not words from which a text is not language
LONGEST = 20_000  # greatest number of characters of an answer: far above what `num_predict` allows by default
_PART_END = re.compile(r"[。！？]|(?<![.!?…])[.!?…]++(?=\s|$)|\n++")
_WORD_GATE = re.compile(r"\w")
_MARKUP = frozenset("`^|~<>=+\ufffd")  # symbols that Markdown uses, and the one for what could not be decoded
_IN_CODE = re.compile(r"(?<!`)```[^\n`]*+\n\s*+[^\s`]|`[^`\s]")
_OPERATOR = re.compile(r"(?=[^=<>+%&/$@^~]{0,2}[=<>+%&/$@^~])[!=<>+*/%&|^~$@:?-]{1,3}")
_MORSE = re.compile(r"(?=[^.]*+\.)(?=[^-]*+-)[.-]{1,6}(?:[ /|\n]{1,3}[.-]{1,6}){2,}")
_LONG = 20  # least number of characters of the first sentence of a loop
_MOST = 0.7  # share of repeated sentences in a loop
_VOWELS = frozenset("aeiouyаеиоуыэюяіαεηιουω")
_ODD = re.compile(r"[b-df-hj-np-tv-xz]{5}|([a-z])\1{4}", re.IGNORECASE | re.ASCII)
"""Part of each word in ASCII without a vowel, and of each that is one letter over and over. Other words may have such a part, too."""
_FEW_ODD = 3  # least number of strings that are not words
_WITH_VOWELS = ("CYRILLIC", "GREEK")  # scripts besides Latin whose words have vowels
_TOKENS = re.compile(r"<unk>|\[UNK\]|<pad>|\[PAD\]|<0x[0-9A-F]{2}>|(?<!\S)[Ġ▁]\w|\ufffd")
_TOKEN_SHARE = 0.15  # least number of such tokens by the number of words
_TURN = re.compile(r"^[#*<|\[\s]{0,6}(?:user|human)\b[*|>\]]{0,3}[ \t]*(?::|\n)[*\s]{0,4}([^\n]{1,2000})$", re.IGNORECASE | re.MULTILINE)
_LETTERS = re.compile(r"\w")
_ECHO_LETTERS = 12  # the same in a script without spaces, in letters
_ECHO_WORDS = 8  # an answer that exceeds the brief by this many words adds something of its own


def without_partial_end(text: str, *, cut: bool) -> str:
    """Return a cut answer up to its last whole sentence or line; any other answer unchanged.

    Repetitions at the end of a cut answer are left out.

    :param cut: True if the answer reached its length limit.
    """
    if not cut:
        return text
    text = _before_loop(text)
    if fence := _open_fence(text):
        kept = text[: text.rfind("\n")].rstrip()
        return f"{kept}\n{fence}" if len(kept) >= _KEPT * len(text) else f"{text.rstrip()}…"
    spans = sentences(text, "markdown")
    while spans and not (_is_whole(text[slice(*spans[-1])]) or "\n" in text[spans[-1][1] :]):
        spans.pop()
    end = max(spans[-1][1] if spans else 0, text.rfind("\n"))
    kept = _DANGLING.sub("", text[:end].rstrip())
    return kept if end >= _KEPT * len(text) else f"{text.rstrip()}…"


def _open_fence(text: str) -> str:
    """Return the marks of the code block in which a text ends; "" if it ends in none."""
    fence = ""
    for found in _FENCES.finditer(text):
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence):
            fence = ""
    return fence


def _is_whole(sentence: str) -> bool:
    """Return True if a sentence at the end of a cut text has its end. A full stop that belongs to a number or an abbreviation is not an
    end."""
    bare = sentence.rstrip(_CLOSERS)
    said = bare.rstrip(_STOPS)
    if bare == said:
        return False
    word = _WORD_END.split(said)[-1]
    return bare[len(said) :] != "." or not (_NO_END.fullmatch(word) or may_go_on(word))


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
    repeated = list(itertools.accumulate(again, initial=0))
    for at, (begin, words) in enumerate(said):
        end = max(at + 1, len(said) - 1)  # the last sentence may be cut off
        if again[at] and len(words) >= _LONG and repeated[end] - repeated[at] >= _MOST * (end - at):
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
    if not _says_something(text):
        return "it is empty"
    if len(text) < shortest:
        return f"it has {len(text)} characters and must have {shortest}"
    if len(text) > longest:
        return f"it has {len(text)} characters and may have {longest}"
    if _loops(text, words, brief):
        return "it repeats a few words over and over"
    if _no_words(text, words):
        return "much of it is not words"
    if prompt and _repeats_prompt(words, prompt, brief):
        return "it tells the instructions back"
    if brief and (_echoes(text, brief) or _plays_both(text, brief)):
        return "it only repeats the brief"
    return differs_in_language(text, brief) if brief and tongue else None


def _says_something(text: str) -> bool:
    """Return True if a text has a word, a symbol such as an emoji or an operator, or code, or is one of Morse."""
    if _WORD_GATE.search(text) or _IN_CODE.search(text) or _MORSE.fullmatch(text.strip()):
        return True
    return any(unicodedata.category(char)[0] == "S" and char not in _MARKUP for char in text) or bool(_OPERATOR.fullmatch(text.strip()))


def _echoes(text: str, brief: str) -> bool:
    """Return True if an answer is the brief word for word, or the brief with a few words around it. A greeting may be returned."""
    words, asked = text.lower().split(), brief.lower().split()
    if words == asked:
        return not is_greeting(brief)
    if _UNSPACED.search(brief):
        said, wanted = "".join(_LETTERS.findall(text.lower())), "".join(_LETTERS.findall(brief.lower()))
        return len(wanted) >= _ECHO_LETTERS and len(said) < len(wanted) + _ECHO_LETTERS and wanted in said
    return len(asked) >= _ECHO_WORDS and len(words) < len(asked) + _ECHO_WORDS and " ".join(_bare(asked)) in " ".join(_bare(words))


def _plays_both(text: str, brief: str) -> bool:
    """Return True if a text is a conversation with itself that begins with the brief: `User: …`."""
    asked = " ".join(brief.lower().split())
    return any(" ".join(turn[1].lower().split()) == asked for turn in _TURN.finditer(text))


def _loops(text: str, words: list[str], brief: str) -> bool:
    """Return True if a text says very little over and over. Rows of short cells do (a matrix, chords), and what the brief quotes may be
    asked for many times.
    """
    few, parts = _few(words) or _few(_pairs(text)), _SAID.split(text)
    may_repeat = "```" not in text and max(Counter(len(one.split()) for one in parts).values()) > _AGAIN  # equal ones are equally long
    if not (few or may_repeat) or _is_grid(text):  # most answers end here
        return False
    said = _said(parts)
    new = [one for one in said if not _is_quoted(one, brief)]
    return bool(new or not said) and (few or (may_repeat and _repeats(new)))


def _said(parts: Sequence[str]) -> list[str]:
    """Return the sentences of a text in bare words."""
    found = (" ".join(_bare(one.lower().split())) for one in parts)
    return [one for one in found if any(char.isalpha() for char in one)]


def _pairs(text: str) -> list[str]:
    """Return what stands for words in scripts without spaces: each two neighbours."""
    return [run[at : at + 2] for run in _UNSPACED.findall(text) for at in range(len(run) - 1)]


def _few(words: Sequence[str]) -> bool:
    return len(words) >= _MANY and len(set(words)) * _VARIETY < len(words)


def _is_grid(text: str) -> bool:
    """Return True if a text is rows of short cells: a matrix, a board, chords."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return len({len(row) for row in rows}) == 1 < min(len(rows), len(rows[0])) and all(len(cell) <= _CELL for row in rows for cell in row)


def _repeats(said: list[str]) -> bool:
    """Return True if most sentences are repeated ones. A refrain has verses between."""
    often = {one: count for one, count in Counter(said).items() if count > _AGAIN}
    return any(len(one.split()) >= 4 or len(one) >= _LONG for one in often) and sum(often.values()) >= _REFRAIN * len(said)


def _is_quoted(sentence: str, brief: str) -> bool:
    """Return True if a brief has a sentence in quotation marks or behind a colon."""
    at = brief.lower().find(sentence)
    return at > 0 and brief[:at].rstrip()[-1:] in _QUOTES


def _no_words(text: str, words: list[str]) -> bool:
    """Return True if much of a text is strings such as `xkqzrtv`, or what is left of a model's tokens: `<unk>`, `<0x0A>`, `Ġthe`.

    The strings are long and without a vowel. In capitals they are codes; in Latin letters with marks, a language that does without.
    """
    if len(_TOKENS.findall(text)) >= max(3, _TOKEN_SHARE * len(words)):
        return True
    if text.isascii() and len(_ODD.findall(text)) < _FEW_ODD:  # most answers end here
        return False
    said = [word for word in _bare(text.split()) if len(word) >= 5 and word.isalpha() and not (word.isupper() and word.isascii())]
    known = [word for word in said if word.isascii() or unicodedata.name(word[0], "").startswith(_WITH_VOWELS)]
    odd = [word for word in known if not _has_vowel(word) or len(set(word)) == 1]
    return len(odd) >= _FEW_ODD and len(odd) >= _NO_WORDS * len(known)


def _has_vowel(word: str) -> bool:
    small = word.lower()
    return not (_VOWELS.isdisjoint(small) and (small.isascii() or _VOWELS.isdisjoint(unicodedata.normalize("NFD", small))))


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
            return f"it says {insult!r}, which insults its reader; say what is wrong in plain words"
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
