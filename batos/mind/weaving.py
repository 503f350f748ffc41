"""What the states say to a model and make of its answer: plans, woven answers, and the gate that an answer passes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from string import Template
from typing import Any

QUERY_LENGTH = 240  # characters of one sub-query: the schema's bound, so that a small model's plan ends in time
_WORD = re.compile(r"\w")


def fill(meta_prompt: str, **values: str) -> str:
    """A meta-prompt with its `$names` filled in; unknown ones stay, since the system may have rewritten the prompt."""
    return Template(meta_prompt).safe_substitute(values)


def plan_schema(facets: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of a plan: one sub-query for every facet."""
    query = {"type": "string", "minLength": 1, "maxLength": QUERY_LENGTH}
    return {"type": "object", "properties": dict.fromkeys(facets, query), "required": list(facets), "additionalProperties": False}


def read_plan(text: str, facets: Sequence[str], brief: str) -> tuple[dict[str, str], str]:
    """The plan in a model's answer: facet to sub-query, and `model` or `fallback`.

    Where the answer is no such JSON, or leaves a facet out, the facet gets the brief itself.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or brackets without end
        answer = None
    if not isinstance(answer, dict):
        answer = {}
    plan, whole = {}, True
    for facet in facets:
        query = answer.get(facet)
        query = query.strip()[:QUERY_LENGTH] if isinstance(query, str) else ""
        plan[facet] = query or brief
        whole = whole and bool(query)
    return plan, "model" if whole else "fallback"


def voices(answers: Sequence[tuple[str, str]]) -> str:
    """The facets' answers as one text for the weaving."""
    return "\n\n".join(f"{facet.removesuffix('_facet_').replace('_', ' ')}: {text}" for facet, text in answers)


def fault_of(text: str, brief: str) -> str | None:
    """Why a text is not fit to be the answer to a brief; None if it is."""
    words = text.lower().split()
    if not _WORD.search(text):
        return "it is empty"
    if words == brief.lower().split():
        return "it only repeats the brief"
    if len(words) >= 24 and len(set(words)) * 8 < len(words):
        return "it repeats a few words over and over"
    return None
