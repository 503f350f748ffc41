"""Brief analysis: how deeply a mission is thought about and in whose voice, and which briefs are errands. By rule, without a model.

A fact, a definition, a text to write, arithmetic or a greeting is best answered at once, whatever the model. Plans, problems, decisions and
feelings may gain by several ways of thinking, where the model is fit for them. A small model does best with one inference. What it makes of
its own plan and notes is worse than its first answer. Decision 13 of docs/rationale.md has the figures.

An errand asks for an action outside of the system. A model that is asked to open a page, run a program or send a reminder claims that it
did. For actions that the system cannot do, it says so itself; it knows the time and date of its machine. `errands.toml` has the patterns
and the answers, by language. A false alarm refuses a good brief, a miss leaves a poor answer. So only a short brief that begins with the
request is an errand.
"""

from __future__ import annotations

import datetime
import functools
import re
import tomllib
import zoneinfo
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Literal, NamedTuple, cast, get_args

from batos.memory.store import library_of
from batos.objects import Root

Depth = Literal["direct", "facets", "council"]
Flavour = Literal["full", "light", "off"]
DEPTHS: tuple[Depth, ...] = get_args(Depth)
FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)
AUTO = "auto"

FIT = 1_000_000_000  # least number of parameters of a model that thinks by facets
FACETS_S = 60.0  # seconds: a mission with less time answers directly
FACETS_INFERENCES = 6  # inferences that facets take: a plan, some facets, the weaving and one revision

_GREETING = re.compile(
    r"\W*(?:(?:ok(?:ay)?|great|perfect|nice|super|alles klar|gut|prima|d['’]accord|vale|va bene)[\s,.!]{1,3})?"
    r"(?:(?:hi|hello|hey|yo|cheers|good (?:morning|afternoon|evening|night|day)|what['’]s up|thanks?|thank you|bye|goodbye|"
    r"hallo|moin|servus|grüß gott|grüezi|guten (?:tag|morgen|abend)|gute nacht|danke\w{0,6}|vielen dank|tschüss|"
    r"bonjour|bonsoir|bonne nuit|salut|coucou|merci|au revoir|hola|buenas|buenos d[ií]as|gracias|adiós|"
    r"ciao|salve|buongiorno|buonasera|buonanotte|grazie|arrivederci|olá|oi|bom dia|boa (?:tarde|noite)|obrigad[oa]|tchau|"
    r"hoi|dag|goede(?:morgen|middag|navond)|dank (?:je|u)|bedankt|привет|здравствуй(?:те)?|добр(?:ый день|ый вечер|ое утро)|спасибо|пока|"
    r"cześć|dzień dobry|dziękuję|merhaba|selam|günaydın|teşekkür\w{0,10}|hej|tack|नमस्ते|धन्यवाद|مرحبا|السلام عليكم|شكرا)(?!\w)|"
    r"(?:你好|您好|早上好|晚上好|谢谢|謝謝|再见|こんにちは|こんばんは|おはよう|ありがとう|さようなら|안녕|감사합니다|고마워))",
    re.IGNORECASE,
)
_GREETING_WORDS, _GREETING_CHARS = 8, 60
_TIMES = (
    "plus|minus|times|divided by|mal|geteilt durch|fois|divisé par|por|más|menos|entre|per|più|meno|diviso|vezes|mais|keer|plus|"
    "gedeeld door|умножить на|плюс|минус|乘以|乘|加|减|除以|かける|たす|ひく|わる|곱하기|더하기|빼기|나누기"
)
_ARITHMETIC = re.compile(
    rf"\d\s{{0,3}}(?:%\s*(?:of|von|de|di|van)\b|(?:[+*×÷^]|\s[-/]\s)|{_TIMES})\s{{0,3}}\(?-?\d|\b(?:sqrt|sin|cos|tan|log|ln|exp|abs)\s?\(|"
    r"\b(?:half|double|square root|wurzel|hälfte|racine carrée|raíz cuadrada|radice quadrata) (?:of|von|aus|de|di) \d|\d squared\b|"
    r"\bconvert -?\d|(?<![\d.,])\d[\d.,]{0,20} ?°?[a-z]{1,12} (?:to|into|in|nach|en) °?[a-z]{1,12}\W{0,3}$",
    re.IGNORECASE,
)
_FIGURES = re.compile(r"(?=[^\n]*\d\s*[-+*/×÷^!=])\W*(?:[\w'’]+ ){0,4}[(\d][\d\s.,+*/×÷^()!=-]*[\d)!][\s=?]*")
"""Matches a brief that is a sum, with a few words before it."""
_POLITE = re.compile(
    r"[\W_]*+(?:(?:please|kindly|(?:can|could|would|will) you|i (?:need|want|would like|['’]d like) you to|bitte|"
    r"(?:kannst|könntest|würdest) du|(?:können|könnten|würden) sie|s['’]il (?:te|vous) plaît|(?:peux|pourrais)-tu|(?:pouvez|pourriez)-vous|"
    r"por favor|(?:puedes|podrías|puede)|per favore|(?:puoi|potresti|può)|(?:podes|pode|poderia)|alsjeblieft|(?:kun|kan|wil|zou) je|"
    r"пожалуйста|(?:можешь|можете)|请|請|help me (?:to )?(?=write|translate|rewrite|rephrase|"
    r"draft))[\s,]*+(?:mir |mal |bitte |me |please )*+)*+",
    re.IGNORECASE,
)
_TEXT_VERBS = (
    r"\b(?:write|draft|compose|rewrite|rephrase|reword|translate|summari[sz]e|shorten|proofread|"
    r"correct|paraphrase|reply to|answer this|fix|"
    r"schreibe?|formuliere?|übersetze?|fasse?\b.{0,200}\bzusammen|kürze?|korrigiere?|écris|rédige|traduis|résume|corrige|reformule|"
    r"escribe|escriba|redacta|traduce|traduzca|resume|corrige|scrivi|traduci|riassumi|correggi|escreve|escreva|traduz|traduza|"
    r"resuma|corrija|schrijf|vertaal|vat\b.{0,200}\bsamen|напиши\w{0,2}|переведи\w{0,2}|исправь\w{0,2}|перефразируй\w{0,2}|сократи\w{0,2}|"
    r"napisz|przetłumacz|popraw|yaz|çevir|skriv|översätt)\b|"
    r"(?:翻译|翻譯|写一|寫一|改写|改寫|总结|總結|润色|潤色)|(?:翻訳して|訳して|書いて|要約して|添削して)|"
    r"(?:번역해|써 ?줘|써 ?주세요|작성해|"
    r"요약해)"
)
_TEXT_NOUNS = (
    "message|letter|note|e-?mail|mail|poem|haiku|limerick|song|speech|toast|caption|slogan|joke|story|invitation|card|reply|title|headline|"
    "tweet|fun fact|riddle|synonym|antonym|rhyme|example|sentence|word|quote|definition|nachricht|brief|gedicht|witz|geschichte|rede|"
    "einladung|karte|antwort|titel|synonym|beispiel|satz|wort|zitat|reim|lettre|poème|blague|histoire|discours|synonyme|exemple|phrase|"
    "carta|mensaje|poema|chiste|historia|cuento|discurso|sinónimo|ejemplo|frase|lettera|messaggio|poesia|barzelletta|storia"
)
_TEXT = re.compile(_TEXT_VERBS, re.IGNORECASE)
_WANTED_TEXT = re.compile(
    r"(?:(?:i (?:need|want|would like|['’]d like)|give me|tell me|find me|make me|ich (?:brauche|hätte gern|möchte)|gib mir|erzähle? mir|"
    r"sag mir|nenne? mir|il me faut|donne-moi|raconte-moi|necesito|dame|cuéntame|ho bisogno di|dammi|raccontami) )?"
    rf"(?:an?|one|ein\w{{0,3}}|une?|un[ao]?) (?:[\w-]{{1,20}} ){{0,3}}?(?:{_TEXT_NOUNS})s?\b|(?:explain|spell|"
    rf"define|erkläre?|buchstabiere?|"
    r"definiere?|explique|épelle|explica|deletrea|spiega|leg\b.{1,40}\buit)\b",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(?:plan|plans|planning|strateg(?:y|ies)|roadmap|itinerary|schedule|timetable|budget|organi[sz]e|prioriti[sz]e|"
    r"how (?:do|can|could|should) (?:i|we)|should (?:i|we)|what (?:can|could|would) (?:i|we)|"
    r"help me|decid(?:e|ing)|decision|choose between|"
    r"weigh|advice|advise|problem|trouble|stuck|struggl\w+|solve|conflict|argu(?:e|ed|ing|ment)|pros and cons|good idea|best way|"
    r"would you (?:do|suggest|recommend|choose|advise)|is it (?:better|worth|wiser|smarter)|"
    r"in my (?:place|shoes)|if you were me|torn between|"
    r"i feel|i.m (?:so |very |really )?(?:sad|lonely|afraid|anxious|worried|angry|tired|lost|scared|ashamed|stressed|overwhelmed)|"
    r"grie(?:f|ving)|broke up|miss (?:him|her|them|my)|"
    r"plane (?:mir|mit|ein\w{0,2}|mein\w{0,2}|unser\w{0,2}|die|den|das|für)|planen|entscheiden|soll(?:te|en|ten)? (?:ich|wir)|"
    r"wie (?:kann|soll|können|sollen) (?:ich|wir)|was (?:kann|soll|können|sollen) (?:ich|wir)|ratschlag|rate mir|hilf mir|problem\w*|"
    r"traurig|einsam|angst|"
    r"planifie|organise|(?:que|comment|quoi) (?:puis|dois)-je|dois-je|devrais-je|devons-nous|conseil|aide-moi|choisir entre|problème|"
    r"je me sens|j.ai peur|planifica|organiza|debería|cómo puedo|qué (?:puedo|debo) hacer|consejo|ayúdame|problema|me siento|triste|miedo|"
    r"pianifica|organizza|dovrei|devo|come posso|cosa (?:posso|devo) fare|consiglio|aiutami|mi sento|ho paura|"
    r"planeje|planeia|deveria|como posso|o que (?:posso|devo) fazer|conselho|ajud[ae]-me|me ajude|sinto-me|medo|"
    r"moet ik|zal ik|moeten we|hoe kan ik|wat kan ik doen|advies|help mij|probleem|verdrietig|eenzaam|"
    r"спланируй\w{0,2}|составь план|стоит ли|что мне делать|как мне|помоги\w{0,2}|посоветуй\w{0,2}|проблем\w{1,3}|грустно|одиноко|боюсь)\b|"
    r"(?:计划|規劃|规划|我应该|我該|该不该|怎么办|怎麼辦|帮我|难过|難過|伤心|孤独|焦虑|烦恼)|"
    r"(?:計画|すべき|どうすれば|どうしたら|相談|助けて|悲しい|寂しい|不安|悩)|(?:계획|해야 할까|어떻게 해야|조언|도와|슬퍼|외로|고민)",
    re.IGNORECASE,
)
_FACT = re.compile(
    r"\W*(?:what|who|whom|whose|when|where|which|how (?:many|much|far|old|tall|long|big|high|fast|"
    r"often)|is|are|was|were|do|does|did|can|has|"
    r"have|name|define|list|tell me (?:the|what|who|when|where|about)|give me (?:the|a definition)|"
    r"was|wer|wann|wo|welche[rsn]?|wie (?:viele?|hoch|alt|weit|groß|lang)|ist|sind|nenne|qué|quién|cuándo|dónde|cuál|cuánt[oa]s?|define|"
    r"(?:the )?(?:capital|population|meaning|currency|author|plural|opposite|height|area) of|hauptstadt von|capitale (?:du|de|di|d['’]))\b",
    re.IGNORECASE,
)
_DEFINITION = re.compile(
    r"\W*(?:what(?:['’]s| is| are| was| were| does| do)|who|when|where|which|how (?:many|much|far|old|tall|long|big|high|fast)|define|"
    r"was (?:ist|sind|war|bedeutet|heißt)|wer|wann|wo|qu['’]est-ce|que (?:veut dire|signifie)|qui|quand|où|qué (?:es|son|significa)|quién|"
    r"cuándo|dónde|cos['’]è|che cos['’]è|chi|quando|dove|o que é|quem|onde|wat (?:is|zijn|betekent)|"
    r"wie|wanneer|waar|что такое|кто|когда|где)\b",
    re.IGNORECASE,
)
_ADVICE = re.compile(
    r"\b(?:best|good|better|should|could|would|ideas?|tips|ways?|pros|you|beste[nrs]?|gute?[nrs]?|"
    r"besser\w{0,2}|soll\w{0,4}|würdest|meilleure?s?|"
    r"bonne?|mejor\w{0,2}|buen[oa]?|migliore?i?|melhor\w{0,2})\b",
    re.IGNORECASE,
)
_SELF = re.compile(
    r"\b(?:i|i['’]m|me|my|mine|we|us|our|ich|mir|mich|mein\w{0,2}|wir|uns|unser\w{0,2}|je|j|moi|mon|"
    r"ma|mes|nous|notre|nos|yo|mi|mis|nosotros|"
    r"nuestr[oa]s?|io|mio|mia|noi|eu|meu|minha|ik|mij|mijn|wij|ons|я|мне|меня|мой|моя|мо[её]|мы|нам|ja|mój|moja|ben|benim|jag|min)\b|"
    r"我|私|僕|俺|わたし|저는|제가|내가|나는|우리|मैं|मुझे|मेर|أنا",
    re.IGNORECASE,
)
_ASKS = re.compile(r"[?？؟]\W{0,5}$|(?:吗|嗎|呢|ですか|ますか)[。.]?$")
_SHORT_WORDS, _SHORT_CHARS = 12, 100
"""Greatest number of words and of characters of a question that asks for one thing."""


class Approach(NamedTuple):
    """A decision: how deeply, why, and how much of the persona's own flavour is in it."""

    depth: Depth
    why: str
    flavour: Flavour


class AskedApproach(NamedTuple):
    """Requested approach, and its source: a mission, a persona, or a setting. `auto` leaves it to the rules."""

    value: str
    by: str


class BriefFacts(NamedTuple):
    """Facts that the rules use besides the brief's words."""

    parameters: int | None = None
    """Number of parameters of the model that speaks; None if it is not known."""
    parts: int = 0
    """Number of personas that the brief needs."""
    follows_deep: bool = False
    """True if the mission that this one follows was thought about in several ways."""
    deadline_s: float | None = None
    inferences: int = 64
    """Greatest number of inferences of the mission."""
    speaks: bool = True
    """True if the brief speaks for a persona."""
    expert: bool = False
    """True if an expert, trained as the persona, speaks for it."""


def decide(brief: str, depths: Sequence[AskedApproach], flavours: Sequence[AskedApproach], facts: BriefFacts) -> Approach:
    """Return the approach to a brief.

    :param brief: the part of the brief that is analysed.
    :param depths: requested depths, the most specific first; `flavours` likewise.
    """
    flavour = _flavour(flavours, facts)
    asked = next((one for one in depths if one.value != AUTO), None)
    if asked is not None:
        return Approach(cast(Depth, asked.value), f"asked for by the {asked.by}", flavour)
    if facts.parameters is not None and facts.parameters < FIT:
        return Approach("direct", f"a model of {_size(facts.parameters)} parameters does best with one answer", flavour)
    if facts.deadline_s is not None and facts.deadline_s < FACETS_S:
        return Approach("direct", f"there are {facts.deadline_s:g} s for it", flavour)
    if facts.inferences < FACETS_INFERENCES:
        return Approach("direct", f"it may ask for {facts.inferences} inferences", flavour)
    if facts.parts:
        return Approach("council", f"it speaks for {facts.parts} personas", flavour)
    open_, why = kind_of(brief)
    if open_ is None and facts.follows_deep:
        open_, why = True, "it follows one that was"
    elif open_ is None and asks_one_thing(brief):
        open_, why = False, "it asks for a fact"
    elif open_ is None and facts.speaks:
        open_, why = True, "it does not show that one answer is enough"
    elif open_ is None:
        open_, why = False, "it fits no persona"
    return Approach("facets" if open_ else "direct", why, flavour)


def _is_short(brief: str) -> bool:
    """Return True if a brief is short and does not speak of its user."""
    return len(brief.split()) <= _SHORT_WORDS and len(brief) <= _SHORT_CHARS and _SELF.search(brief) is None


def asks_one_thing(brief: str) -> bool:
    """Return True if a brief is a short question that does not speak of its user, in any language: it asks for a fact."""
    return _ASKS.search(brief) is not None and _is_short(brief)


def is_greeting(brief: str) -> bool:
    """Return True if a brief only greets, or thanks."""
    return _GREETING.match(brief) is not None and len(brief.split()) <= _GREETING_WORDS and len(brief) <= _GREETING_CHARS


def kind_of(brief: str) -> tuple[bool | None, str]:
    """Return True if a brief is open, so that several ways of thinking may help it, False if not, None if unknown; and the reason."""
    if is_greeting(brief):
        return False, "it is a greeting"
    first, _, _ = brief.strip().partition("\n")
    asked = first[found.end() :] if (found := _POLITE.match(first)) else first
    if _TEXT.match(asked) or _WANTED_TEXT.match(asked):
        return False, "it asks for a text"
    open_ = _OPEN.search(brief) is not None
    if _FIGURES.fullmatch(brief) or (not open_ and _ARITHMETIC.search(brief)):
        return False, "it is arithmetic"
    if _is_short(brief) and _DEFINITION.match(asked) and not _ADVICE.search(brief):
        return False, "it asks for a fact"
    if open_:
        return True, "it is open: a plan, a problem, a decision or a feeling"
    if _FACT.match(asked):
        return False, "it asks for a fact"
    if _TEXT.search(brief):
        return False, "it asks for a text"
    return None, ""


def _flavour(flavours: Sequence[AskedApproach], facts: BriefFacts) -> Flavour:
    asked = next((one for one in flavours if one.value != AUTO), None)
    if asked is not None:
        return cast(Flavour, asked.value)
    small = facts.parameters is not None and facts.parameters < FIT
    return "full" if facts.expert or (facts.speaks and not small) else "off"


def _size(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} billion" if parameters >= FIT else f"{parameters / 1e6:.0f} million"


LONGEST = 400
"""Greatest number of characters of an errand: a longer brief includes the text that it is about."""
TIME, DATE, FILES, ACCOUNT, DEVICE = "time", "date", "files", "account", "device"
KNOWN = (TIME, DATE)
"""Errands that the system can answer itself."""
EXPORTS = ("*.ics", "*.mbox", "*.eml", "*.msg")
"""Names of files that hold mails and events."""
_BEFORE = " \t\n¿¡\"'“„«-–*"
_AFTER = " \t\n?!.。？！"
_READS = re.compile(r"(?:read|open|lies|öffne|lis|ouvre|lee|abre|leggi|apri|lê|lees)\b")
_TITLE = (
    r"(?P<title>[^\W\d_][\w'’&.-]{0,25}(?: [\w'’&.-]{1,25}){0,6}?)"
    r"(?: (?:en|sur|su|no|na|on|auf) (?:spotify|youtube|deezer|netflix|tidal|apple music))?"
    r"(?:,? (?:por favor|s['’]il (?:te|vous) pla[îi]t|per favore|please))?[\s.!]{0,3}\Z"
)
"""Pattern of what is asked to be played, at the end of a brief."""
_QUOTED = re.compile(r"""\s*(?:["“„«][^"”“»\n]{1,200}["”“»]\W{0,4}\w|'[^'\n]{1,200}'\W{1,4}\w)""")
"""Matches a brief that begins with a quotation and goes on: the request follows it."""
_TEXT_NEXT = re.compile(r"[^:\n]{3,120}: ")
_NAMED = re.compile(r"[\w.~/-]{0,200}\.\w{1,5}\b")


class Errand(NamedTuple):
    """Errand: `network`, `program`, `notify`, `account`, `senses`, `files`, `order`, `device`, `time` or `date`; and the language of the
    request.
    """

    kind: str
    language: str
    place: str = ""
    """Zone of a `time`, such as `Asia/Tokyo`; empty: that of the machine."""

    @property
    def is_for_tools(self) -> bool:
        """Return True if a tool is to do it where one can: all but what the machine's own clock shows."""
        return self.kind not in KNOWN or bool(self.place)


class _Rule(NamedTuple):
    errand: Errand
    pattern: str


def errand_of(brief: str, held: Callable[[str], bool] = lambda name: False, *, alone: bool = True) -> Errand | None:
    """Return the errand that a brief asks for; None for any other brief.

    :param held: returns True if memory has read a file of that name: then reading it is not an errand.
    :param alone: False if the brief goes on from an earlier one. A name behind a verb may then be what the earlier brief was about, and not
        a title to play.
    """
    if len(brief) > LONGEST or "```" in brief or _QUOTED.match(brief) or _is_title(brief):
        return None
    asked = " ".join(brief.casefold().strip(_BEFORE).split())
    for language, polite in tables().polite.items():
        found = polite.match(asked)
        said = asked[found.end() :] if found else asked
        bare = said.rstrip(_AFTER)
        some = tables().any_of[language]
        if not (some.match(said) or some.match(bare)):
            continue  # most briefs match none of them: testing the expressions one by one takes longer
        for errand, pattern in tables().rules[language]:
            if found := _compiled(pattern).match(bare if errand.kind in KNOWN else said):
                if place := found.groupdict().get("place"):
                    return errand._replace(place=zone) if (zone := _zone_of(place)) else None
                if errand.kind == ACCOUNT and any(map(held, EXPORTS)):
                    return None
                if errand.kind == FILES and _READS.match(said) and any(held(name) for name in _NAMED.findall(said)):
                    return None
                return errand
    return _played(brief) if alone else None


def _played(brief: str) -> Errand | None:
    """Return the errand to play what a brief names, such as a song: it has no article, and begins with a capital."""
    said = " ".join(brief.strip(_BEFORE).split())
    for language, (pattern, apart) in tables().titles.items():
        found = pattern.match(said)
        if found and found["title"][0].isupper() and apart.isdisjoint(found["title"].casefold().split()):
            return Errand(DEVICE, language)
    return None


def _is_title(brief: str) -> bool:
    """Return True if a brief names a matter, and asks for a text about it behind a colon."""
    found = _TEXT_NEXT.match(brief)
    rest = brief[found.end() :] if found else ""
    return bool(rest) and _WANTED_TEXT.match(rest) is not None


@functools.cache
def _zones() -> dict[str, str]:
    """Return the zones of the machine's database by the city in their names."""
    cities = (zone for zone in sorted(zoneinfo.available_timezones()) if "/" in zone and not zone.startswith(("Etc/", "SystemV/")))
    return {zone.rpartition("/")[2].replace("_", " ").casefold(): zone for zone in cities}


def _zone_of(place: str) -> str | None:
    return _zones().get(place.casefold().removesuffix(" city").strip()) or _zones().get(place.casefold().strip())


def said_of(errand: Errand, now: datetime.datetime, *, connected: bool = False) -> str:
    """Return the answer to an errand.

    :param now: current time of the machine, with its zone.
    :param connected: True if there are tools, none of which does it.
    """
    says = tables().says[errand.language]
    if connected and errand.kind not in KNOWN:
        return str(says["unfit"])
    text = str(says[errand.kind])
    if errand.kind not in KNOWN:
        return text
    if errand.place:
        now = now.astimezone(zoneinfo.ZoneInfo(errand.place))
    return text.format(
        time=f"{now:%H:%M}",
        zone=errand.place.replace("_", " ") or now.tzname() or "UTC",
        weekday=says["weekdays"][now.weekday()],
        day=now.day,
        month=says["months"][now.month - 1],
        year=now.year,
    )


def has_read(root: Root, name: str) -> bool:
    """Return True if the memory of an image has a file of that name, in any folder. A name that begins with `*` fits each file whose name
    ends with the rest."""
    if name.startswith("*"):
        return any(source.casefold().endswith(name[1:]) for source in library_of(root).by_source)
    last = name.rpartition("/")[2].casefold()
    return any(source.rpartition("/")[2].casefold() == last for source in library_of(root).by_source)


class _Tables(NamedTuple):
    polite: dict[str, re.Pattern[str]]
    any_of: dict[str, re.Pattern[str]]
    """Language -> all its rules in one expression."""
    rules: dict[str, list[_Rule]]
    titles: dict[str, tuple[re.Pattern[str], frozenset[str]]]
    """Language -> pattern of a request to play something, and words that a title never has."""
    says: dict[str, dict[str, str | list[str]]]


@functools.cache
def tables() -> _Tables:
    """Return the patterns, compiled when a brief is first looked at."""
    table = tomllib.loads(resources.files("batos.mind").joinpath("errands.toml").read_text("utf-8"))
    shared = table.pop("shared")
    polite, any_of, rules, titles, says = {}, {}, {}, {}, {}
    for language, told in table.items():
        polite[language] = re.compile(f"(?:{told['polite']}){{1,3}}" if "polite" in told else r"(?!)")
        rules[language] = [
            _Rule(Errand(kind, language), _filled(pattern, shared)) for kind, patterns in told["rules"].items() for pattern in patterns
        ]
        any_of[language] = re.compile("|".join(f"(?:{rule.pattern})" for rule in rules[language]))
        if played := told.get("titles"):
            asked = f"(?:{told['polite']}){{0,3}}(?:{played['verb']}){_TITLE}"
            titles[language] = (re.compile(asked, re.IGNORECASE), frozenset(played["apart"].split()))
        says[language] = told["says"]
    return _Tables(polite, any_of, rules, titles, says)


_compiled = functools.cache(re.compile)


def _filled(pattern: str, shared: dict[str, str]) -> str:
    for name, what in shared.items():
        pattern = pattern.replace(f"{{{name}}}", what)
    return pattern
