"""Families of method tasks: a purpose in several wordings, and the method that serves it.

They stand in `method_families/*.txt`, each as

    selector, another_selector | kinds of arguments | slots and other holes | helper
    a wording; another wording
        return the_body(of, the, method)

Arguments have the names of `batos.synthesis.specification.signature`. Holes are words in capitals, filled anew in each task. `SLOT:number`
and `OTHER:…` are a slot and its kind, `FIELD:nfield` a field of records, `HELPER:of_number` a message to send. `K` is a small number, `L` a
letter. `products.txt` puts parts into frames.
"""

from __future__ import annotations

import ast
import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

FOLDER = Path(__file__).parent / "method_families"
FAR = "far"
BLIND = frozenset(
    [
        "errands",
        "figures",
        "hours",
        "household",
        "ledgers",
        "office",
        "reading",
        "reckoning",
        "rows",
        "tables",
        "things",
        "wordcraft",
        "writing",
    ]
)
"""Files of authors who saw neither the other files nor the measuring tasks. Their families are measured apart."""
EVERYDAY = frozenset(
    [
        "count_words",
        "largest",
        "add_to_SLOT",
        "sum_of",
        "smallest",
        "average",
        "sort_ascending",
        "reverse_text",
        "shout",
        "longest_word",
        "count_items",
        "count_vowels",
        "append_to_SLOT",
        "current_SLOT",
        "without_duplicates",
        "join_with_commas",
        "greet",
        "is_even",
        "add",
        "count_SLOT",
    ]
)
"""Families that people ask for first. They are always in the training part, so no measurement uses them."""
_PLACEHOLDERS = {"SLOT": "slot", "OTHER": "other_slot", "FIELD": "field", "TFIELD": "kind", "HELPER": "helper_", "K": "3", "L": "a"}
HOLE = re.compile(r"SLOT|OTHER|TFIELD|FIELD|HELPER|INTENT|\b[KL]\b|(?<=_)[KL]\b|(?<=_)[KL](?=_)")
"""Matches the holes of a text."""


@dataclass(frozen=True, eq=False)
class Family:
    """One purpose and its method.

    :ivar holes: hole -> its kind.
    :ivar kinds: kinds of the arguments.
    :ivar group: the file it stands in.
    """

    name: str
    group: str
    selectors: tuple[str, ...]
    intents: tuple[str, ...]
    kinds: tuple[str, ...]
    body: str
    holes: dict[str, str] = field(default_factory=dict)

    @cached_property
    def shape(self) -> str:
        """Return a digest of what the method computes, independent of its names. Families of one shape are always in the same part."""
        body = fill(self.body, {**_PLACEHOLDERS, "INTENT": repr(self.intents[0])})
        tree = ast.parse("def m(self):\n" + body)
        names: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = names.setdefault(node.id, f"n{len(names)}")
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest()

    @property
    def told(self) -> tuple[str, ...]:
        """Return the wordings that tasks use. Of a blind author only the first counts: the others say too little and only help a search."""
        return self.intents[:1] if self.group in BLIND else self.intents

    @cached_property
    def part(self) -> str:
        """Return `far`, `train`, `validation` or `test`. It depends on the shape only, so a new family does not move others."""
        if self.group == FAR:
            return FAR
        if self.name in EVERYDAY or self.shape in _everyday_shapes():
            return "train"
        share = int(self.shape[:8], 16) / 16**8
        return "test" if share < 0.12 else "validation" if share < 0.16 else "train"


def fill(text: str, holes: dict[str, str]) -> str:
    """Return a text with its holes filled."""
    return HOLE.sub(lambda found: holes.get(found[0], found[0]), text)


@cache
def families() -> tuple[Family, ...]:
    """Return all families, in the order of the files. A far family whose shape another one has is left out."""
    found = [
        family
        for path in sorted(FOLDER.glob("*.txt"))
        for family in (_products(path.read_text("utf-8")) if path.stem == "products" else _read(path.read_text("utf-8"), path.stem))
    ]
    found += list(_thinking())
    near = {family.shape for family in found if family.group != FAR}
    return tuple(family for family in found if family.group != FAR or family.shape not in near)


@cache
def _everyday_shapes() -> frozenset[str]:
    return frozenset(family.shape for family in families_of_names())


def families_of_names() -> Iterator[Family]:
    """Yield the families that people ask for first."""
    for path in sorted(FOLDER.glob("*.txt")):
        if path.stem not in ("products", FAR):
            yield from (family for family in _read(path.read_text("utf-8"), path.stem) if family.name in EVERYDAY)


def _read(text: str, group: str) -> Iterator[Family]:
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.split("\n") if line.strip() and not line.startswith("#")]
        if lines:
            yield _family(lines, group)


def _family(lines: list[str], group: str) -> Family:
    selectors, *columns = (part.strip() for part in lines[0].split("|"))
    words = " ".join(columns).split()
    body = "\n".join(lines[2:]) + "\n"
    holes = dict(word.split(":") for word in words if ":" in word)
    for hole in ("K", "L"):
        if hole in HOLE.findall(lines[0]) or hole in HOLE.findall(body):
            holes[hole] = hole
    names = tuple(name.strip() for name in selectors.split(","))
    intents = tuple(intent.strip() for intent in lines[1].split(";"))
    return Family(names[0], group, names, intents, tuple(word for word in words if ":" not in word), body, holes)


def _products(text: str) -> Iterator[Family]:
    sections = dict(re.findall(r"^\[([^\]]+)\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL))
    for title, frames in sections.items():
        what = title.removeprefix("frames: ")
        if what == title:
            continue
        for line in sections[what].strip().split("\n"):
            name, words, code = (part.strip() for part in line.split(" | "))
            made = frames.replace("<name>", name).replace("<words>", words).replace("<code>", code)
            yield from _read(made, f"products: {what}")


# --- methods that need words and no computing

_THOUGHTS = """
koan, poem, haiku, comfort, advice, riddle, toast, lullaby, blessing, proverb, apology, pep_talk, summary, critique, outline, slogan
---
Offer a short koan that opens the mind
Offer a playful riddle that turns a thought around
Answer with a poem of four lines
Write a haiku about what was said
Give comfort in plain and kind words
Give advice as an old friend would
Write a toast for the occasion
Write a lullaby that calms
Speak a blessing over the plan
Answer with a proverb that fits
Write a sincere apology
Give a pep talk before a hard day
Summarise the text in one sentence
Criticise the plan kindly and clearly
Write an outline of the idea
Find a slogan for the product
Explain the idea to a child
Explain it as a teacher would
Translate the text into plain words
Describe how it feels
Imagine how the story goes on
Ask three questions that help to think it through
Name what is behind the worry
Look at it from the other side
Offer a gentle thought that loosens a knot
Offer a surprising comparison
Tell a fable with a moral
Suggest a name for it
Suggest a small first step
Reflect on what was said with warmth
Meditate on the question without answering it
Turn the complaint into a wish
Praise what is good about it
Find the humour in it
Write a letter to the future self
Give the stoic's view of it
Give the optimist's view of it
Answer with un-ironic enthusiasm
Adopt the perspective of a gardener
Speak as a wise grandmother would
"""


def _thinking() -> Iterator[Family]:
    names, intents = (part.strip() for part in _THOUGHTS.split("---"))
    nouns = [name.strip() for name in names.split(",")]
    for number, intent in enumerate(intents.split("\n")):
        noun = nouns[number % len(nouns)]
        forms = ("{}_protocol", "{}_for", "sages_{}_protocol", f"{{}}_{number}", "offer_{}", "kind_{}_protocol")
        selectors = tuple(form.format(noun) for form in forms)
        body = "    return self.think_(INTENT, text)\n"
        yield Family(f"think_{number}", "thinking", selectors, (intent,), ("text",), body, {"INTENT": "intent"})


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


N_FIELDS = words_of("price age score weight size points year count rating salary")
T_FIELDS = words_of("city color team kind state role country status")
SLOT_NAMES: dict[str, tuple[str, ...]] = {
    "number": words_of(
        "total balance score visits stock points budget counter level mileage debt weight energy coins progress votes "
        "height speed hits credit sum_so_far step last_price attempts"
    ),
    "words": words_of("items notes tasks names queue log history basket tags guests todo seen_words friends open_jobs"),
    "numbers": words_of("values readings scores temperatures prices measures amounts marks results daily_sales"),
    "record": words_of("ages stock votes counts settings prices phone_book scores ratings stock_by_name"),
    "text": words_of("title motto status greeting mood label city last_word color owner"),
    "flag": words_of("active open enabled visible locked done alarm is_on"),
    "records": words_of("people orders members rooms players plants trips products contacts jobs"),
    "date": words_of("due_date birthday begun_on last_visit deadline start_date day"),
}
NEW_SLOT_NAMES: dict[str, tuple[str, ...]] = {
    "number": ("savings", "pages", "fuel", "distance", "goals", "rainfall", "tokens"),
    "words": ("books", "ideas", "errands", "songs", "visitors"),
    "numbers": ("samples", "grades", "times", "weights"),
    "record": ("inventory", "wages", "heights"),
    "text": ("slogan", "headline", "nickname"),
    "flag": ("ready", "muted", "paused"),
    "records": ("pupils", "cars", "recipes"),
    "date": ("release_date", "opened_on"),
}
"""Names that no training task has. The tasks that measure use them."""
_LIKE = {
    "positive": "number", "zero_or_not": "number", "any": "number", "maybe_empty": "words", "repeats_list": "words",
    "maybe_sorted_numbers": "numbers", "maybe_no_numbers": "numbers", "record_distinct": "record", "record_positive": "record",
    "n": "number", "keys_words": "words",
    "maybe_text": "text", "maybe_sorted": "numbers", "text_record": "record",
}  # fmt: skip
_HELPERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "of_number": (
        ("price_", "tax_", "bonus_", "fee_", "cost_", "points_for_", "rate_", "score_of_", "weight_of_", "measure_"),
        ("number * 3 + 1", "number + 10", "number * number", "7 - number"),
    ),
    "of_flag": (("is_big_", "allowed_", "is_valid_", "accepts_", "fits_", "wanted_"), ("number > 5", "number % 2 == 0", "number < 9")),
    "of_text": (
        ("polish_", "nickname_", "label_", "translate_", "decorate_", "clean_", "title_of_", "code_of_"),
        ("text.upper()", "text[:2]", 'text + "o"', "text[::-1]"),
    ),
}
_GIVEN = {"of_number": "number", "of_flag": "number", "of_text": "text"}


def draw(family: Family, rng: random.Random, *, new_names: bool = False) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return fillings of a family's holes, the kind of each slot by its name, and sources of the helpers by their selectors.

    :param new_names: use names that no task of training has.
    """
    holes: dict[str, str] = {}
    slot_kinds: dict[str, str] = {}
    helpers: dict[str, str] = {}
    for hole, kind in family.holes.items():
        if hole in ("SLOT", "OTHER"):
            known = (NEW_SLOT_NAMES if new_names else SLOT_NAMES)[_LIKE.get(kind, kind)]
            holes[hole] = rng.choice([name for name in known if name not in slot_kinds])
            slot_kinds[holes[hole]] = kind
        elif hole == "HELPER":
            selectors, codes = _HELPERS[kind]
            holes[hole] = rng.choice(selectors[-2:] if new_names else selectors[:-2])
            given = _GIVEN[kind]
            helpers[holes[hole]] = f"def {holes[hole]}(self, {given}):\n    return {rng.choice(codes)}\n"
        elif hole == "INTENT":
            holes[hole] = repr(family.intents[0])
        else:
            holes[hole] = rng.choice({"nfield": N_FIELDS, "tfield": T_FIELDS, "K": "2345678", "L": "aeilnorst"}[kind])
    return holes, slot_kinds, helpers
