"""Checks of answers: whether a text answers a closed task, by data that stands beside the task.

A check is a dict; all that it names must hold:

* `accept`, `forbid`, `about`: one of `accept` is said, as itself and for sure; none of `forbid` is said. Where `about` names the words of
  the question, `forbid` may be told of in passing after the answer ("Canberra. Sydney is larger."), but not as an answer.
* `options`, `pick`, `letters`: exactly that one of several options is named, by its words or, with `letters`, by its key.
* `verdict`, `yes`, `no`: "yes" or "no" in any of the languages, true or false, or a sentence that one of the patterns `yes` or `no` finds.
* `json`: the whole answer, in a code fence or not, is JSON of that schema.
* `list`: `count` different items, one a `line` or between `comma`s (`split`), each of them of the pattern `item`.
* `words`, `sentences`: how many at least and at most.
* `match`, `never`: patterns each of which, or none of which, the answer has.

An answer that leaves open what is so ("It might be Rome", "I do not know") is not right. Case, accents and marks of emphasis do not matter,
but for `match` and `never`. What is said has to be said soon, or last: a text that goes on about other things and comes by a name is no
answer.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import jsonschema

SHORT = 3  # words of a clause that says no more than a name
NEAR = 3  # words before a name, among which a "not" denies it
SOON = 30  # words within which an answer says what it has to, unless it ends with that
LONG = 60  # words of an answer that has to say it in its first sentence, or in its last
LENGTHY = 35  # words from which on an answer made of the brief is the brief told back
STATEMENT = 25  # words of an answer to yes or no that says neither, at most

_TITLES = re.compile(r"\b(mr|mrs|ms|dr|prof|st|hr|fr|sr|sra)\.")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
_CLAUSE = re.compile(r",\s|[;—–]|:\s|\s-\s|\b(?:but|while|whereas|although|though|aber|sondern|wahrend|obwohl|pero|sino|mientras|aunque)\b")
_NOT = {
    *("not", "never", "neither", "nor", "nothing", "nobody", "without", "cannot", "except"),
    *("nicht", "kein", "keine", "keinen", "weder", "nie", "ohne", "no", "ni", "nunca", "sin"),
}
_INSTEAD = re.compile(
    r"\b(?:than|unlike|instead of|compared (?:to|with)|as opposed to|statt|anstatt|mas que|en vez de|en lugar de|verglichen mit)\b.*",
    re.DOTALL,
)
_DENIED = re.compile(
    r"\W*(?:(?:is|are|was|were|does|did|do|can|ist|sind|war)\s+(?:not|nicht|kein\w*)\b|"
    r"(?:is|are|was|were|does|did|do|ca)n'?t\b|no (?:es|fue)\b)"
)
_BELIEF = re.compile(r"\b(?:think|thought|believe|assume|mistake\w*|confuse\w*|denken|glauben|verwechsel\w*|creen|piensan|confunden)\b")
_PAST = re.compile(r"\b(?:was|were|used to|former\w*|until|before|old|war|fruher|ehemalig\w*|era|fue|antigua)\b")
_REFUSAL = re.compile(
    r"\b(?:(?:do not|don't|didn't) know|not (?:sure|certain|able to)|unsure|uncertain|it depends|"
    r"(?:can ?not|can't) (?:say|tell|determine|answer|know)|weiss (?:es |ich )*nicht|nicht sicher|nicht sagen|"
    r"no lo se\b|no estoy segur\w|no puedo decir)"
)
_MAYBE = re.compile(
    r"\b(?:might|maybe|perhaps|possibly|probably|could be|may be|unclear|either|not (?:mentioned|stated|given|specified)|"
    r"(?:does|do) not (?:say|state|mention|specify)|vielleicht|moglicherweise|wahrscheinlich|konnte\b.{0,30}\bsein|quizas?|tal vez|"
    r"posiblemente|probablemente|podria ser)\b"
)
_AGAIN = re.compile(r"^\W*(?:actually|wait|sorry|correction|no|or|also|alternatively|oder|o|y|eigentlich|en realidad)\b")

_WORD_YES, _WORD_NO = "yes|true|correct|ja|richtig|wahr|si|verdadero", "no|false|incorrect|nein|falsch|falso"
_SUBJECT = (
    r"(?:the |die |la )?(?:(?:correct|right|final|best) )?"
    r"(?:answer|statement|sentence|claim|option|choice|number|letter|antwort|aussage|respuesta|opcion|it|that|this|es)"
)
_CALLED = r"(?:answer|option|choice|sentence|number|antwort|respuesta|opcion)"
_IS = r"(?:\s+(?:is|would be|ist|lautet|es))?"
_LEAD = re.compile(rf"\W*(?:{_SUBJECT}{_IS}\W+)?(?:({_WORD_YES})|({_WORD_NO}))\b(?P<rest>.*)", re.DOTALL)
_LATER = re.compile(rf"(?:^|[.!?:]\s+)(?:so |thus |therefore |also )?(?:{_SUBJECT}{_IS}\W+)?(?:({_WORD_YES})|({_WORD_NO}))\W*(?=[.!?,]|$)")
_OTHER = r"\s*(?:,|/|and|or|und|oder|y|o)\s*"
_BULLET = re.compile(r"^\s*(?:[-*•–·]|\(?\d+[.):]|\(?[a-z][.)])\s+", re.IGNORECASE)
_FENCE = re.compile(r"\A\s*```\w*\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)


def right(check: dict[str, Any], answer: str, brief: str = "") -> bool:
    """Whether an answer stands a check.

    :param brief: what was asked; where it is told back, that is no answer, even though it holds one.
    :raises ValueError: where the check names what there is no check for.
    """
    if unknown := check.keys() - _PARAMETERS - _PARTS.keys():
        raise ValueError(f"no check is called {sorted(unknown)[0]!r}; there are {', '.join(sorted(_PARTS))}")
    if not answer.strip() or (check.keys() & {"accept", "pick", "verdict"} and _asks_back(answer, brief)):
        return False
    return all(holds(check, answer) for name, holds in _PARTS.items() if name in check)


def plain(text: str) -> str:
    """A text in small letters, without accents, marks of emphasis and the dots of titles."""
    folded = unicodedata.normalize("NFKD", text.replace("’", "'").replace("‘", "'").casefold())
    bare = "".join(char for char in folded if not unicodedata.combining(char))
    return _TITLES.sub(r"\1", re.sub(r"[*_`#>¿¡]", "", bare)).strip()


# --- what is named


def _names(check: dict[str, Any], answer: str) -> bool:
    return _claims(answer, check["accept"], check.get("forbid", ()), check.get("about"))


def _claims(answer: str, accept: Iterable[str], forbid: Iterable[str], about: Iterable[str] | None) -> bool:
    """Whether one of `accept` is what the answer claims, and none of `forbid`."""
    sentences = [sentence for sentence in _SENTENCE.split(plain(answer)) if sentence.strip()]
    clauses = [(sentence, clause) for sentence in sentences for clause in _CLAUSE.split(sentence) if clause.strip(" .!?\"'")]
    claimed = next((i for i, (_, clause) in enumerate(clauses) if _asserts(clause, accept)), None)
    if claimed is None or _REFUSAL.search(plain(answer)) or _hedged(clauses, claimed):
        return False
    claim = clauses[claimed][0]
    late = sum(len(_words(clause)) for _, clause in clauses[:claimed]) > SOON
    if claim != sentences[-1] and (late or (claim != sentences[0] and len(_words(plain(answer))) > LONG)):
        return False
    for i, (sentence, clause) in enumerate(clauses):
        if not _asserts(clause, forbid) or _BELIEF.search(clause):
            continue
        if about is None or i == claimed or len(_words(clause)) <= SHORT:
            return False
        if _MAYBE.search(sentence) or _AGAIN.search(clause):
            return False
        if _asserts(clause, about) and not _asserts(clause, accept) and not _PAST.search(clause):
            return False
    return True


def _hedged(clauses: list[tuple[str, str]], claimed: int) -> bool:
    """Whether a clause, what its sentence says before it, or a mere "maybe" after it leaves open whether it is so."""
    own = [i for i, (sentence, _) in enumerate(clauses) if sentence == clauses[claimed][0]]
    return any(_MAYBE.search(clauses[i][1]) and (i <= claimed or len(_words(clauses[i][1])) <= SHORT) for i in own)


def _asserts(clause: str, names: Iterable[str]) -> bool:
    """Whether a clause says one of these names other than to deny it or to compare with it."""
    said = _INSTEAD.sub("", clause)
    for name in names:
        for found in re.finditer(rf"(?<!\w)(?<!\d[.,:]){re.escape(plain(name))}(?!\w|[.,:]\d)", said):
            before = _words(said[: found.start()])[-NEAR:]
            if (
                not _NOT.intersection(before)
                and not any(word.endswith("n't") for word in before)
                and not _DENIED.match(said[found.end() :])
            ):
                return True
    return False


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:['’.,:-]\w+)*", text)


# --- options


def _picks(check: dict[str, Any], answer: str) -> bool:
    options, pick = {plain(key): texts for key, texts in check["options"].items()}, plain(check["pick"])
    others = [text for key, texts in options.items() if key != pick for text in texts]
    if check.get("letters"):
        keyed, rest = _keys(plain(answer), "|".join(map(re.escape, options)))
        if keyed:
            first = next((part for part in _SENTENCE.split(rest) if part.strip()), "")
            at_odds = _asserts(first, others) and not _asserts(first, options[pick])  # "B) carrot", where B is the apple
            return keyed == {pick} and not at_odds and not _REFUSAL.search(plain(answer))
    return _claims(answer, options[pick], others, check.get("about", ()))


def _keys(said: str, keys: str) -> tuple[set[str], str]:
    """The keys of options that an answer names as its answer, and what follows the one that it begins with.

    :param keys: a pattern of them. One that is a word, too ("A horse"), counts where a mark, an end or an "is" follows.
    """
    ends = r"(?P<mark>\s*[).:]|\s+-)|(?=\W*(?:$|\n)|\s+(?:is|ist|es|and|or|und|oder|y|o)\b|,\s)"
    lead = re.match(rf"\W*(?:{_SUBJECT}{_IS}\W+)?\(?({keys})(?:{ends})", said)
    told = set(re.findall(rf"\b{_CALLED}(?:\s+(?:is|ist|es))?\W+\(?({keys})(?![\w'])", said))
    if lead is None or (told and lead["mark"]):  # all options told back, and then the answer
        return told, ""
    rest = said[lead.end() :]
    more = re.match(rf"{_OTHER}\(?({keys})(?!\w)", rest)
    return {*told, lead[1], *([more[1]] if more else [])}, rest


# --- yes or no


def _judges(check: dict[str, Any], answer: str) -> bool:
    said = plain(answer)
    if _REFUSAL.search(said) or _MAYBE.search(_SENTENCE.split(said)[0]):
        return False
    wanted = check["verdict"]
    spelled = re.sub(r"n't\b", " not", said.replace("can't", "cannot").replace("won't", "will not"))
    stated = {name for name in ("yes", "no") if any(re.search(pattern, spelled) for pattern in check.get(name, ()))}
    verdicts = {"yes" if found[1] else "no" for found in _LATER.finditer(said)}
    if lead := _LEAD.match(said):
        if re.match(rf"{_OTHER}(?:{_WORD_YES}|{_WORD_NO})\b", lead["rest"]):
            return False
        verdicts.add("yes" if lead[1] else "no")
    if verdicts:
        return verdicts == {wanted} and (not stated or wanted in stated)
    return stated == {wanted} and len(_words(said)) <= STATEMENT  # a longer text tells of all sorts of things


# --- forms


def _is_json(check: dict[str, Any], answer: str) -> bool:
    fenced = _FENCE.match(answer)
    try:
        value = json.loads(fenced[1] if fenced else answer)
    except ValueError:
        return False
    return bool(jsonschema.Draft202012Validator(check["json"]).is_valid(value))


def _is_list(check: dict[str, Any], answer: str) -> bool:
    wanted = check["list"]
    lines = [line for line in answer.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].rstrip().endswith(":"):
        lines = lines[1:]
    if wanted["split"] == "comma":
        if len(lines) != 1:
            return False
        lines = [part for part in re.split(r",\s*(?:and|und|y)\s|,|\s(?:and|und|y)\s", lines[0]) if part.strip()]
    items = [plain(_BULLET.sub("", line)).strip(" .,;!") for line in lines]
    return len(items) == len(set(items)) == wanted["count"] and all(re.fullmatch(wanted["item"], item) for item in items)


def _counts(name: str, parts: Callable[[str], list[str]]) -> Callable[[dict[str, Any], str], bool]:
    def holds(check: dict[str, Any], answer: str) -> bool:
        least, most = check[name]
        return bool(least <= len(parts(answer)) <= most)

    return holds


_PARTS: dict[str, Callable[[dict[str, Any], str], bool]] = {
    "accept": _names,
    "pick": _picks,
    "verdict": _judges,
    "json": _is_json,
    "list": _is_list,
    "words": _counts("words", _words),
    "sentences": _counts("sentences", lambda answer: [part for part in _SENTENCE.split(answer.strip()) if part.strip()]),
    "match": lambda check, answer: all(re.search(pattern, answer.strip()) for pattern in check["match"]),
    "never": lambda check, answer: not any(re.search(pattern, answer.strip()) for pattern in check["never"]),
}
_PARAMETERS = {"forbid", "about", "options", "letters", "yes", "no"}


# --- answers to open briefs

REPEATED = 3  # times that a sentence of SAME words or more stands in an answer which goes round in circles
SAME = 4
ALIKE = 0.5  # share of the five-word runs of an answer that stand in it before, or in the brief, from which on it is nothing new
LONGEST = 28  # letters of a word
_MARKS = re.compile(r"<\|[\w ]+\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|�")
_ODD = re.compile(r"[bcdfghjklmnpqrstvwxz]{7,}|[a-z]+\d+[a-z]+\d*[a-z]*|(.)\1{4,}")
_LINKS = (
    "a an the and or but of to in on at for with from by as is are was be that which who my your our his her their its this if "
    "der die das ein eine und oder aber von zu mit fur im am ist sind dass el la los las un una y o de en con por para que es"
)
_OPEN_WORDS = frozenset(_LINKS.split())  # no sentence ends with one


def garbage(answer: str, brief: str) -> list[str]:
    """What makes an answer garbage, mostly nothing: `empty`, `repetition`, `no words`, `marks` of a template, `told back` the brief."""
    words = _words(plain(answer))
    if not words:
        return ["empty"]
    found = []
    sentences = [" ".join(_words(part)) for part in _SENTENCE.split(plain(answer))]
    often = max(sentences.count(sentence) if len(sentence.split()) >= SAME else 0 for sentence in sentences)
    runs = _runs(answer)
    stuck = any(len(set(words[i : i + 6])) == 1 for i in range(len(words) - 5))
    if often >= REPEATED or stuck or (len(runs) >= 20 and 1 - len(set(runs)) / len(runs) > ALIKE):
        found.append("repetition")
    odd = [word for word in words if len(word) > LONGEST or (_ODD.search(word) and not word.startswith("www"))]
    letters = [char for char in plain(answer) if char.isalpha()]
    foreign = sum(not ("a" <= char <= "z") and char not in "æøœßı" for char in letters)
    if len(odd) > max(1, 0.03 * len(words)) or foreign > 0.1 * max(1, len(letters)):
        found.append("no words")
    if _MARKS.search(answer):
        found.append("marks")
    if _told_back(answer, brief):
        found.append("told back")
    return found


def _told_back(answer: str, brief: str) -> bool:
    """Whether most of an answer is the brief's own words, in their order."""
    known, runs = set(_runs(brief)), _runs(answer)
    return bool(known and runs) and sum(run in known for run in runs) / len(runs) > ALIKE


def _asks_back(answer: str, brief: str) -> bool:
    """Whether an answer to a closed task tells back the passage and the question, and not only the sentence that holds the answer."""
    return ("?" in answer or len(_words(answer)) >= LENGTHY) and _told_back(answer, brief)


def _runs(text: str) -> list[tuple[str, ...]]:
    words = _words(plain(text))
    return [tuple(words[i : i + 5]) for i in range(len(words) - 4)]


def cut_off(answer: str) -> bool:
    """Whether an answer ends in the middle of a sentence.

    A signature, the line of a poem and the item of a list need no full stop, as long as the other lines have none either.
    """
    lines = [line.strip() for line in answer.strip().splitlines() if line.strip()]
    if not lines:
        return False
    last = lines[-1].rstrip("*_` ")
    if last[-1:] in set(".!?…\"”»'’)]}|") or (last and unicodedata.category(last[-1]) in ("So", "Sk")):
        return False
    words = _words(plain(last))
    if not words or last.endswith((",", ":", ";", "-")) or words[-1] in _OPEN_WORDS:
        return True
    before = [line for line in lines[:-1] if not line.endswith(":")]
    bare = sum(line[-1] not in '.!?…"”»' for line in before)
    return not (before and (len(words) <= SHORT + 1 or bare * 2 >= len(before)))
