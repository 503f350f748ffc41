"""Plans: the formats between the states and a model, for plans, woven answers, and the facets that contributed."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from string import Template
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, create_model

from batos.bridge.capabilities import ABILITIES, Ability

QUESTION = "question_to_the_user"
NEEDS = "needs_of_the_model"
QUERY_LENGTH = 240  # greatest number of characters of one sub-query: a bound in the schema, so that a small model ends its plan in time
VERDICT: dict[str, Any] = {
    "type": "object",
    "properties": {"fit": {"type": "boolean"}, "reason": {"type": "string", "maxLength": QUERY_LENGTH}},
    "required": ["fit", "reason"],
    "additionalProperties": False,
}
"""JSON schema of a critic's verdict."""
SHARED = 0.5  # least share of a sentence's content words that a voice must contain for the sentence to come from it
_BETWEEN = re.compile(r"(?<=[.!?])\s+|(?<!\s)\s*\n\s*")


def fill(meta_prompt: str, **values: str) -> str:
    """Return a meta-prompt with its `$names` filled in; unknown ones stay, since the system may have rewritten the prompt."""
    return Template(meta_prompt).safe_substitute(values)


def plan_form(facets: Sequence[str], *, may_ask: bool = False, needs: bool = False) -> type[BaseModel]:
    """Return the form of a plan: one sub-query for every facet, by the facet's name. With `may_ask`, a question to the user comes first, or
    ""; with `needs`, the abilities that a model must have, if any.

    A text that is too long is cut, not refused.
    """
    return _plan_form(tuple(facets), may_ask, needs)


@functools.lru_cache(maxsize=256)  # making a model takes pydantic a millisecond
def _plan_form(facets: tuple[str, ...], may_ask: bool, needs: bool) -> type[BaseModel]:
    cut = BeforeValidator(lambda text: text.strip()[:QUERY_LENGTH] if isinstance(text, str) else text)
    query = Annotated[str, cut, StringConstraints(min_length=1, max_length=QUERY_LENGTH)]
    question = Annotated[str, cut, StringConstraints(max_length=QUERY_LENGTH)]
    fields: dict[str, Any] = {"question": (question, Field(alias=QUESTION))} if may_ask else {}
    if needs:
        fields["needs"] = (Annotated[list[Ability], Field(max_length=len(ABILITIES))], Field(alias=NEEDS))
    fields |= {f"facet_{i}": (query, Field(alias=name)) for i, name in enumerate(facets)}
    return create_model("Plan", __config__=ConfigDict(json_schema_extra={"additionalProperties": False}), **fields)


def read_question(text: str) -> str:
    """Return the question to the user in a model's plan; "" if there is none."""
    try:
        question = json.loads(text)[QUESTION]
    except (ValueError, RecursionError, TypeError, KeyError):
        return ""
    return question.strip()[:QUERY_LENGTH] if isinstance(question, str) else ""


def read_needs(text: str) -> list[str]:
    """Return the known needs that a model's plan names."""
    try:
        named = json.loads(text)[NEEDS]
    except (ValueError, RecursionError, TypeError, KeyError):
        return []
    return [one for one in named if one in ABILITIES] if isinstance(named, list) else []


def read_plan(text: str, facets: Sequence[str], brief: str) -> dict[str, str]:
    """Return the plan in an answer that is not of its form, facet to sub-query: a facet that it leaves out gets the brief itself."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):  # the text is not JSON, or has endless brackets
        answer = None
    if not isinstance(answer, dict):
        answer = {}
    said = {facet: _sound(query).strip()[:QUERY_LENGTH] for facet in facets if isinstance(query := answer.get(facet), str)}
    return {facet: said.get(facet) or brief for facet in facets}


def _sound(text: str) -> str:
    """Return a text without half a surrogate pair, which no model can be sent."""
    return text.encode("utf-8", "replace").decode()


def read_verdict(text: str) -> tuple[bool, str]:
    """Return True if a critic finds an answer fit, and the reason. A text that is not a verdict counts as fit."""
    try:
        verdict = json.loads(text)
        return (verdict["fit"] is not False), str(verdict["reason"]).strip()[:QUERY_LENGTH]
    except (ValueError, RecursionError, TypeError, KeyError):
        return True, "no verdict"


def voices(answers: Sequence[tuple[str, str]]) -> str:
    """Return the facets' answers as one text for the weaving."""
    return "\n\n".join(f"{called(facet)}: {text}" for facet, text in answers)


def called(facet: str) -> str:
    """Return a facet's name as people read it."""
    return facet.removesuffix("_facet_").replace("_", " ")


def without_labels(text: str, answers: Sequence[tuple[str, str]]) -> str:
    """Return a woven answer without the names that the notes had before them, where a model wrote one at the beginning of a paragraph."""
    names = {re.escape(called(name)) for name, _ in answers}
    if not names:
        return text
    return re.sub(rf"(?:\A|(?<=\n\n))(?:{'|'.join(sorted(names))}):[ \t]*+(?=\S)", "", text, flags=re.IGNORECASE)


def woven_from(text: str, answers: Sequence[tuple[str, str]]) -> list[tuple[str, str | None]]:
    """Return each sentence of a woven answer, with the voice that shares most of its words.

    None if no voice shares `SHARED` of them: the weaver's own words. Content words are cut to their first four letters, so that `walks` and
    `walking` are one: this measures use, not meaning.
    """
    said = [(name, content(words)) for name, words in answers]
    found: list[tuple[str, str | None]] = []
    for sentence in sentences(text):
        words = content(sentence)
        shares = [(len(words & own) / len(words) if words else 0.0, name) for name, own in said]
        share, name = max(shares, key=lambda pair: pair[0], default=(0.0, ""))
        found.append((sentence, name if share >= SHARED else None))
    return found


def sentences(text: str) -> list[str]:
    """Return the sentences of an answer, roughly: what ends with a mark or a line."""
    return _BETWEEN.split(text.strip())


_CONTENT = re.compile(r"\b(?:\d+\b|\w{4})")


def content(text: str) -> set[str]:
    """Return the content words of a text, cut to their first four letters, and its numbers."""
    return set(_CONTENT.findall(text.lower()))
