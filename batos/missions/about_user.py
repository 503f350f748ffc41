"""Questions of the user about himself: answered in his own words, from what he told in earlier missions, without a model.

"Who am I?" and "What do you know about me?" share no word with "My name is Kim". A question in French shares none with a statement in
English. So no search finds one by the other. Both are read by rule, in the languages of `about_user.toml`: what a question asks for, and
which statements tell it. The answer quotes the newest of these statements and says when they were made. Where the user told nothing, the
answer says that; a model would make something up.

A question about one fact ("Where do I live?") that no statement answers is left to thought if memory holds a passage about it.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from importlib import resources
from typing import Any, NamedTuple

from batos.image.living_image import LivingImage
from batos.image.mission_record import BY_USER, MissionRecord
from batos.memory.chunking import sentences
from batos.memory.objects import USER, origin_of
from batos.memory.records import NOTE, STATEMENT, SUMMARY
from batos.memory.store import library_of
from batos.mind import evidence, rule_answers
from batos.mind.attempt import Attempt
from batos.objects import Root

WHO, NAME, ALL, NOUNS = "who", "name", "all", "nouns"
LONGEST = 160
"""Characters of a question: a longer brief asks for more."""
_MOST = {WHO: 4, ALL: 12}
_FEW = 3  # statements that answer another question
_EXAMINED = 2000  # newest documents of the user that are looked through
_IDENTITY = ("job", "home", "origin")  # what is told beside the name to who asks who he is
_BEFORE = " \t\n¿¡\"'“„«-–*"
_AFTER = " \t\n?!.。？！؟\"'”»…"
_MARKS = "?¿？؟"
_FACTS = ("value", "persona", "by_rule", "text", "quoted", "citations", "why")
_CALLED = re.compile(
    r"\b(?:called|named|name|heiß\w{1,2}|heiss\w{1,2}|namens|appell?\w{1,3}|nomm\w{1,3}|llam\w{1,3}|chiam\w{1,3}|cham\w{1,3}|nome|nombre|nom|"
    r"heet|heten|naam|зовут|имя|imię|wabi|nazywa|adı|heter)\b|名|という|叫|이름|नाम|اسم",
    re.IGNORECASE,
)
_ASKS_AGE = re.compile(
    r"\b(?:how old|age|alt|alter|âge|años|edad|anni|anos|idade|oud|лет|lat|yaş\w{0,6}|gammal)\b|歳|年齢|岁|歲|多大|살|나이|उम्र|عمر",
    re.IGNORECASE,
)
_NOUN = r"(?P<noun>\w[\w' -]{0,24}?)"
_UNSPACED = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_ASKS_OTHER = re.compile(r"\b(?:where|wo|où|dónde|donde|dove|onde|waar|где|gdzie|nerede|var)\b|どこ|哪|어디|أين", re.IGNORECASE)


class SelfQuestion(NamedTuple):
    """A question of the user about himself."""

    kind: str
    """Kind: `who`, `name`, `all`, `nouns`, or another name of the table's `[statements]`."""
    language: str
    nouns: tuple[str, ...] = ()
    """Of `nouns`: those that it may ask about."""


class Told(NamedTuple):
    """A sentence of the user, and where it stands."""

    text: str
    chunk: int
    day: int
    """`date.toordinal()`; 0: unknown."""


def self_question_of(brief: str) -> SelfQuestion | None:
    """Return what a brief asks about its user; None for any other brief."""
    if len(brief) > LONGEST or "\n" in brief.strip():
        return None
    asked = " ".join(brief.casefold().strip(_BEFORE).split()).rstrip(_AFTER)
    marked = any(mark in brief for mark in _MARKS)
    for language, first in _languages().items():
        if not first.search(asked):
            continue  # most briefs: the expressions below take longer, and are compiled where they are needed
        polite, kinds, _ = _questions(language)
        for bare in dict.fromkeys((asked, polite.sub("", asked))):
            for kind, pattern in kinds.items():
                nouns: tuple[str, ...] = ()
                found = pattern.fullmatch(bare) or (pattern.fullmatch(f"{bare}?") if marked else None)
                if found and (kind != NOUNS or (nouns := _nouns_of(found["noun"]))):
                    return SelfQuestion(kind, language, nouns)
    return None


async def answer_about_user(attempt: Attempt, image: LivingImage) -> dict[str, Any] | None:
    """Return the result of a mission that asks about its user; None where it is to be thought about."""
    mission = attempt.mission
    asks = mission.origin in BY_USER and not (mission.message or mission.schema or mission.images or mission.paused)
    if not asks or attempt.has_begun or (question := self_question_of(mission.brief)) is None:
        return None
    told = [one for one in image.read(_told, question, mission.brief) if self_question_of(one.text) is None]
    if not told and mission.context:
        return None  # the conversation may hold it
    if not told and question.kind not in (WHO, NAME, ALL) and await attempt.evidence.about(mission.brief):
        return None
    facts = {"value": None, "persona": str(mission.persona).upper() if mission.persona else None, "by_rule": True}
    says = _questions(question.language).says
    if not told:
        nothing = says["nothing" if question.kind in (WHO, ALL) else "not_that"]
        return {**facts, "text": nothing, "why": "asks about its user, who told nothing of it"}
    text, found = image.read(_quoted, told, says, _MOST.get(question.kind, _FEW))
    cited = [one.to_wire() for one in found]
    return {**facts, "text": text, "quoted": True, "citations": cited, "why": "asks about its user, who told it himself"}


def as_recorded(mission: MissionRecord) -> dict[str, Any] | None:
    """Return the recorded result of an ended mission that was answered so, for a replay: it followed from the memory of then. None for any
    other mission."""
    told = mission.result or {}
    if not (mission.is_final and mission.origin in BY_USER and told.get("by_rule")):
        return None
    return {name: value for name, value in told.items() if name in _FACTS}


def _told(root: Root, question: SelfQuestion, brief: str) -> list[Told]:
    """Return the statements that answer a question, the newest first of each kind."""
    from batos.missions.memory_writer import is_about_speaker  # late: it loads numpy

    found = [one for one in _sentences(root) if one.text.strip() != brief.strip()]
    tells = _statements()

    def those(*kinds: str) -> list[Told]:
        return [one for kind in kinds for one in found if tells[kind].search(one.text)]

    if question.kind == ALL:
        return [one for one in found if is_about_speaker(one.text) or any(pattern.search(one.text) for pattern in tells.values())] or found
    if question.kind == NAME:
        return those(NAME) or those("name_weak")
    if question.kind == WHO:
        named = those(NAME) or those("name_weak")
        return list(dict.fromkeys([*named[:2], *those(*_IDENTITY)])) or [one for one in found if is_about_speaker(one.text)]
    if question.kind != NOUNS:
        return those(question.kind)
    spoken = [one for one in found if any(_noun(noun).search(one.text) for noun in question.nouns)]
    if (wants := rule_answers.wanted_by(brief)) or _ASKS_AGE.search(brief):
        return [one for one in spoken if all(want.search(one.text) for want in wants) and re.search(r"\d", one.text)]
    if _ASKS_OTHER.search(brief):
        return [one for one in spoken if tells["home"].search(one.text)]
    return [one for one in spoken if _CALLED.search(one.text)] or spoken


def _sentences(root: Root) -> Iterator[Told]:
    """Yield what the user said, the newest first, each sentence once."""
    library, seen = library_of(root), set[str]()
    numbers = set().union(*(library.catalogue.find(kind=kind) or () for kind in (STATEMENT, NOTE, SUMMARY)))
    for number in sorted(numbers, reverse=True)[:_EXAMINED]:
        document = library.documents.get(number)
        if document is None or origin_of(root, document) != USER:
            continue
        for chunk in library.chunks_of(document):
            for start, end in sentences(chunk.text):
                text = chunk.text[start:end]
                if text not in seen:
                    seen.add(text)
                    yield Told(text, chunk.number, document.day)


def _quoted(root: Root, told: Sequence[Told], says: dict[str, str], most: int) -> tuple[str, tuple[evidence.Citation, ...]]:
    """Return statements as an answer, with their sources."""
    shown = told[:most]
    chunks = list(dict.fromkeys(one.chunk for one in shown))
    found = evidence.passages(root, chunks, sum(len(one.text) for one in shown) + 10_000)
    numbers = {one.number: n for n, one in enumerate(found, 1)}
    quotes = [(numbers[one.chunk], one) for one in shown if one.chunk in numbers]
    lines = [f"{_lead(says, one)}“{one.text}” [{n}]" for n, one in quotes]
    if len(told) > len(shown):
        lines.append(says["more"].format(count=len(told) - len(shown)))
    return "\n".join(lines), evidence.citations([(n, one.text) for n, one in quotes], found)


def _lead(says: dict[str, str], one: Told) -> str:
    when = f" ({says['on'].format(day=date.fromordinal(one.day).isoformat())})" if one.day else ""
    return f"{says['told']}{when}: "


def _nouns_of(word: str) -> tuple[str, ...]:
    return tuple(name for name in _table()["nouns"] if _noun(name).fullmatch(word))


class _Questions(NamedTuple):
    polite: re.Pattern[str]
    kinds: dict[str, re.Pattern[str]]
    says: dict[str, str]


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files(__package__).joinpath("about_user.toml").read_text("utf-8"))


@functools.cache
def _languages() -> dict[str, re.Pattern[str]]:
    """Return for each language the pattern that a question in it matches somewhere."""
    return {language: re.compile(of["first"]) for language, of in _table().items() if "first" in of}


@functools.cache
def _questions(language: str) -> _Questions:
    of = _table()[language]
    kinds = {kind: _joined(patterns) for kind, patterns in of.items() if isinstance(patterns, list)}
    says = {name: of[name] for name in ("told", "on", "nothing", "not_that", "more")}
    return _Questions(re.compile(f"^(?:{of['polite']}){{1,3}}"), kinds, says)


@functools.cache
def _statements() -> dict[str, re.Pattern[str]]:
    told = _table()["statements"]
    return {kind: re.compile(_either(patterns), 0 if kind == "name_weak" else re.IGNORECASE) for kind, patterns in told.items()}


@functools.cache
def _noun(name: str) -> re.Pattern[str]:
    """Return the pattern of a noun in a sentence: a word of its own, where words are spaced."""
    return re.compile(rf"(?:(?<!\w)|(?<={_UNSPACED}))(?i:{_table()['nouns'][name]})(?:(?!\w)|(?={_UNSPACED}))")


def _joined(patterns: Sequence[str]) -> re.Pattern[str]:
    """Return patterns as one; one group takes the noun between any of their beginnings and any of their ends."""
    if not all("{noun}" in one for one in patterns):
        return re.compile(_either(patterns))
    ends = [one.split("{noun}") for one in patterns]
    return re.compile(f"(?:{_either(before for before, _ in ends)}){_NOUN}(?:{_either(after for _, after in ends)})")


def _either(patterns: Iterable[str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)
