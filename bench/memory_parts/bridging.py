"""Questions that go by way of something, as in HotpotQA (Yang et al., EMNLP 2018): two texts together answer, the second says nothing of
what is asked about. Such a collection is not ours to ship, so one is made here out of a seed: an encyclopedia of people, places, firms and
works, a page each, in several wordings, and questions of which each needs two pages. What it cannot show: how real texts name things by
other words than their titles. recall@5 = share of the two pages among the first five, mean over the questions.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from batos.memory.search import QuestionVectors, prepare_question, search
from batos.memory.search_index import Collection, View
from batos.memory.section_builder import Gazetteer
from batos.memory.segments import Entry, Facts, build, traits
from batos.memory.tokenizer import words
from bench.memory_parts.catalogue import RRF_K
from bench.memory_parts.embedder import Array, vectors

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"bridging_gain_over_hybrid": (">=", 0.10)}
K, DEPTH = 5, 200
EACH = 60  # people, firms, places, works
ASKED = 150

FIRST = [
    "Ada",
    "Bruno",
    "Clara",
    "Dmitri",
    "Elsa",
    "Farid",
    "Greta",
    "Hugo",
    "Ines",
    "Jakob",
    "Karin",
    "Leon",
    "Mona",
    "Nils",
    "Olga",
    "Pavel",
    "Quentin",
    "Rosa",
    "Stefan",
    "Tilda",
    "Uwe",
    "Vera",
    "Wim",
    "Yara",
]
LAST = [
    "Abend",
    "Brandt",
    "Calloway",
    "Dvorak",
    "Eklund",
    "Ferrant",
    "Grosz",
    "Halloran",
    "Ivers",
    "Jansson",
    "Kessler",
    "Lindqvist",
    "Marek",
    "Novak",
    "Orlov",
    "Pryce",
    "Quist",
    "Rademaker",
]
PLACE = [
    "Alder",
    "Birch",
    "Cold",
    "Dun",
    "Elm",
    "Fair",
    "Glen",
    "Hazel",
    "Iron",
    "King",
    "Lang",
    "Marl",
    "Nether",
    "Oak",
    "Penn",
    "Quarry",
    "Red",
    "Stone",
    "Thorn",
    "Under",
]
END = (
    "bridge", "bury", "dale", "field", "ford", "haven", "minster", "mouth", "stead", "ton", "wick", "worth",
)  # fmt: skip
TRADE = (
    "Foundry", "Instruments", "Shipyard", "Press", "Optics", "Motors", "Weavers", "Pianos", "Chemical Works", "Clockmakers",
)  # fmt: skip
THING = [
    "Lantern",
    "Harvest",
    "Meridian",
    "Tempest",
    "Orchard",
    "Labyrinth",
    "Horizon",
    "Pilgrim",
    "Nocturne",
    "Compass",
    "Mirror",
    "Voyage",
]
HUE = (
    "Amber", "Silent", "Broken", "Distant", "Golden", "Hollow", "Northern", "Paper", "Scarlet", "Winter", "Second", "Burning",
)  # fmt: skip
STUDY = (
    "botany", "law", "architecture", "chemistry", "music", "astronomy", "medicine", "engraving",
)  # fmt: skip
RIVER = (
    "Aske", "Borne", "Calder", "Dove", "Eddle", "Fenn", "Greta", "Humber",
)  # fmt: skip
GOODS = (
    "tin", "wool", "salt", "cherries", "slate", "glass", "linen", "herring",
)  # fmt: skip


class Page(NamedTuple):
    """A page of the encyclopedia."""

    title: str
    text: str


class Asked(NamedTuple):
    """A question and the titles of the two pages that answer it."""

    text: str
    pages: tuple[str, str]


def made(seed: int = 5) -> tuple[list[Page], list[Asked]]:
    """The encyclopedia and its questions."""
    rng = random.Random(seed)
    people = rng.sample([f"{first} {last}" for first in FIRST for last in LAST], EACH)
    places = rng.sample([name + end for name in PLACE for end in END], EACH)
    firms = [f"{rng.choice(LAST)} {trade}" for trade in rng.choices(TRADE, k=EACH)]
    firms = list(dict.fromkeys(firms))
    works = rng.sample([f"{hue} {thing}" for hue in HUE for thing in THING], EACH)

    def year() -> int:
        return rng.randrange(1820, 2005)

    born = {one: rng.choice(places) for one in people}
    seat = {one: rng.choice(places) for one in firms}
    head = {one: rng.choice(people) for one in firms}
    author = {one: rng.choice(people) for one in works}
    owner = {one: rng.choice(firms) for one in works}
    pages = [_person(rng, one, born[one], year()) for one in people] + [_place(rng, one, year()) for one in places]
    pages += [_firm(rng, one, seat[one], head[one], year()) for one in firms]
    pages += [_work(rng, one, author[one], owner[one], year()) for one in works]
    rng.shuffle(pages)
    asked = []
    for _ in range(ASKED):
        work, firm = rng.choice(works), rng.choice(firms)
        asked.append(rng.choice(_questions(rng, work, author[work], owner[work], firm, seat[firm], head[firm])))
    return pages, list(dict.fromkeys(asked))


def _questions(rng: random.Random, work: str, author: str, owner: str, firm: str, seat: str, head: str) -> list[Asked]:
    kind = rng.choice(("novel", "work", "book"))
    return [
        Asked(f"In which town was the author of {work} born?", (work, author)),
        Asked(f"What did the person who wrote {work} study?", (work, author)),
        Asked(f"When was the company founded that published {work}?", (work, owner)),
        Asked(f"The {kind} {work} was brought out by a firm with its seat in what town?", (work, owner)),
        Asked(f"Which river flows through the town where {firm} has its seat?", (firm, seat)),
        Asked(f"What is traded at the market of the town that is home to {firm}?", (firm, seat)),
        Asked(f"What subject was studied by the founder of {firm}?", (firm, head)),
        Asked(f"{firm} was set up by somebody who was born in what town?", (firm, head)),
    ]


def _person(rng: random.Random, name: str, place: str, year: int) -> Page:
    study, other = rng.sample(STUDY, 2)
    return Page(name, rng.choice((
        f"{name} was born in {place} in {year} and studied {study} before turning to other things, {other} among them.",
        f"A native of {place}, {name} ({year}) read {study} at the university and was known for a love of {other}.",
        f"{name} grew up in {place}. After a degree in {study} came years of travel; the diaries were printed in {year + 60}.",
    )))  # fmt: skip


def _place(rng: random.Random, name: str, year: int) -> Page:
    river, goods = rng.choice(RIVER), rng.choice(GOODS)
    return Page(name, rng.choice((
        f"{name} is a market town on the {river}, known since {year} for its trade in {goods}.",
        f"The {river} runs through {name}, where {goods} has been sold at the weekly market since {year}.",
        f"{name} got its charter in {year}. Merchants come to buy {goods}; the {river} is crossed by a stone bridge.",
    )))  # fmt: skip


def _firm(rng: random.Random, name: str, place: str, head: str, year: int) -> Page:
    return Page(name, rng.choice((
        f"{name} is a firm in {place}, founded in {year} by {head}.",
        f"Established in {year}, {name} is based at {place}. {head} set it up with borrowed money.",
        f"{head} opened {name} in {place} in {year}; it has about two hundred workers.",
    )))  # fmt: skip


def _work(rng: random.Random, name: str, author: str, owner: str, year: int) -> Page:
    return Page(name, rng.choice((
        f"{name} is a novel by {author}, published by {owner} in {year}.",
        f"{author} wrote {name} in a single winter. {owner} brought it out in {year}, to mixed reviews.",
        f"Published in {year} by {owner}, {name} made {author} known to many readers.",
    )))  # fmt: skip


async def measure(bench: Bench) -> dict[str, Any]:
    pages, asked = made()
    rows = await vectors([page.text for page in pages])
    places = {page.title: row for row, page in enumerate(pages)}
    linked, plain = _view(pages, rows, links=True), _view(pages, rows, links=False)
    questions = [prepare_question(linked, one.text) for one in asked]
    cleaned, full = await vectors([q.cleaned for q in questions]), await vectors([q.text for q in questions])
    recalls: dict[str, list[float]] = {"search": [], "without_links": [], "hybrid": [], "hybrid_rrf60": []}
    for at, one in enumerate(asked):
        pair, wanted = QuestionVectors(cleaned[at], full[at]), {places[title] for title in one.pages}
        found = {
            "search": [hit.id for hit in search(linked, questions[at], pair, K).hits],
            "without_links": [hit.id for hit in search(plain, questions[at], pair, K).hits],
            **_hybrids(plain, one.text, full[at]),
        }
        for name, ids in found.items():
            recalls[name].append(len(wanted.intersection(ids[:K])) / len(wanted))
    mean = {name: sum(of) / len(of) for name, of in recalls.items()}
    best = max(mean["hybrid"], mean["hybrid_rrf60"])
    figures: dict[str, Any] = {"bridging_questions": len(asked), "bridging_pages": len(pages)}
    figures |= {f"bridging_{name}_recall_{K}": round(value, 4) for name, value in mean.items()}
    figures["bridging_led_on"] = round(sum(question.bridges for question in questions) / len(questions), 4)
    return {**figures, "bridging_gain_over_hybrid": round(mean["search"] - best, 4)}


def _view(pages: list[Page], rows: Array, *, links: bool) -> View:
    names = Gazetteer((page.title, row) for row, page in enumerate(pages))
    entries = []
    for row, page in enumerate(pages):
        flags, told = traits(page.text)
        pointed = tuple(other for other in names.find(page.text) if other != row) if links else ()  # its document's number is its row
        entries.append(Entry(row, [*words(page.title), *words(page.text)], Facts(row, row, length=told, flags=flags), pointed))
    collection = Collection()
    collection.append(build(entries))
    collection.vectors(np.arange(len(pages)), rows)
    return collection.view()


def _hybrids(view: View, text: str, row: Array) -> dict[str, list[int]]:
    """Plain hybrids of BM25 and the question's vector: standardised scores in equal parts, and ranks."""
    scores = [view.bm25(words(text)), view.matrix @ row]
    added = sum((one - one.mean()) / (one.std() or 1) for one in scores)
    ranks: dict[int, float] = {}
    for one in scores:
        for rank, place in enumerate(np.argsort(-one, kind="stable")[:DEPTH].tolist(), 1):
            ranks[place] = ranks.get(place, 0.0) + 1 / (RRF_K + rank)
    by_ids = view.ids
    return {
        "hybrid": by_ids[np.argsort(-added, kind="stable")].tolist(),
        "hybrid_rrf60": by_ids[sorted(ranks, key=lambda place: (-ranks[place], place))].tolist(),
    }
