"""What the holes of a family are filled with: names of slots and fields, messages of helpers, small numbers, letters."""

from __future__ import annotations

import random

from batos.mind.handbook.families import Family


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text."""
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
"""Names that no task of training has: those of the tasks that measure."""
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
    """What a family's holes are filled with, the kind of each slot by its name, and the sources of the helpers by their selectors.

    :param new_names: with names that no task of training has.
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
