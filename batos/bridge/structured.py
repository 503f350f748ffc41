"""Answers of a given form: a model's JSON read into a pydantic model, with repair that ends.

One function for whatever wants one (mind, memory, synthesis). It knows nothing of Ollama: it is given something that can be asked, which
in a mission is `mind.thinking.Thinking.chat` and so the journal.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from batos.bridge.json_text import values
from batos.errors import InferenceFailed

Form = TypeVar("Form", bound=BaseModel)
Ask = Callable[[str, dict[str, Any] | None], Awaitable[str]]
"""Asks a model: prompt and JSON schema (None: no constraint) in, its text out."""

FAULTS_SHOWN = 4  # of the faults of one answer, to the model that made them
SHOWN_CHARS = 600  # of the refused answer, likewise


@dataclass(frozen=True, slots=True)
class Structured(Generic[Form]):
    """A value and how it came about: the text that it was read from, how often the model was asked, what had to be repaired.

    `repaired` is empty for a text that was right as it stood, else `thought`, `fence`, `surroundings` or `end` (see `json_text`).
    """

    value: Form
    text: str
    asked: int
    repaired: str = ""


@functools.lru_cache(maxsize=256)
def _schema_of(form: type[BaseModel]) -> dict[str, Any]:
    return form.model_json_schema()


async def structured(ask: Ask, prompt: str, form: type[Form], *, repairs: int, raw_chars: int) -> Structured[Form]:
    """An answer to `prompt` of the form `form`.

    What can be put right without the model is. Else it is asked again, with what was wrong; the last time, if there are two or more,
    without a schema and with its words instead, since constrained output may loop or never end (ollama#15502, ollama#18567).
    A schema that Ollama refuses is left out at once.

    :param repairs: how often it is asked again at most.
    :param raw_chars: characters of each refused answer that the failure keeps.
    :raises InferenceFailed: with cause `malformed` and all answers as `raw` in its context; or as `ask` raises it.
    """
    schema: dict[str, Any] | None = _schema_of(form)
    words = json.dumps(schema, ensure_ascii=False)
    refused: list[str] = []
    fault = ""
    for left in range(repairs, -1, -1):
        if left == 0 and repairs > 1:
            schema = None
        text = ""
        try:
            text = await ask(_prompt(prompt, words, schema, refused, fault), schema)
        except InferenceFailed as e:
            if schema is None or not left or not _about_the_schema(e):
                raise
            schema, fault = None, ""
            continue
        found, fault = read(text, form)
        if found is not None:
            return Structured(found[0], text, repairs - left + 1, found[1])
        refused.append(text)
    raise InferenceFailed(
        f"no answer was a {form.__name__}, in {len(refused)} tries; the last time {fault}",
        cause="malformed",
        raw=[text[:raw_chars] for text in refused],
    )


def read(text: str, form: type[Form]) -> tuple[tuple[Form, str] | None, str]:
    """The value in a model's text and what had to be repaired, or None and what is wrong with it."""
    fault = ""
    for value, repair in values(text):
        try:
            return (form.model_validate(value), repair), ""
        except ValidationError as e:
            fault = fault or _fault(e)
    return None, fault or ("it was no JSON" if text.strip() else "it was empty")


def _about_the_schema(failure: InferenceFailed) -> bool:
    """Whether Ollama could make no grammar of a schema: it says so in words only (ollama/llm/server.go)."""
    return failure.cause in ("refused", "server_error") and any(word in failure.message for word in ("schema", "grammar", "format"))


def _fault(error: ValidationError) -> str:
    shown = [f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in error.errors()[:FAULTS_SHOWN]]
    return "; ".join(shown)


def _prompt(prompt: str, words: str, schema: dict[str, Any] | None, refused: list[str], fault: str) -> str:
    if refused and refused[-1].strip():
        prompt += f"\n\nYour last answer was refused ({fault}):\n{refused[-1][:SHOWN_CHARS]}\n\nAnswer again."
    if schema is None:
        prompt += f"\n\nAnswer with nothing but one JSON object of this JSON schema:\n{words}"
    return prompt
