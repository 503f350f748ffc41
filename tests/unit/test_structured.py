"""Answers of a form: what is put right without the model, what it is asked again, and where that ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from batos.bridge.structured_output import Structured, json_values, read_structured, structured
from batos.errors import InferenceFailed


class Step(BaseModel):
    name: str = Field(min_length=1)
    weight: int = 1


class Plan(BaseModel):
    steps: list[Step] = Field(min_length=1, max_length=3)
    sure: bool


GOOD = '{"steps": [{"name": "look"}, {"name": "leap", "weight": 2}], "sure": true}'
BAD = '{"steps": [], "sure": true}'


class Model:
    """Answers in turn; an exception among the answers is raised."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any] | None]] = []

    async def __call__(self, prompt: str, schema: dict[str, Any] | None) -> str:
        self.asked.append((prompt, schema))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ask(model: Model, repairs: int = 2, raw_chars: int = 100) -> Structured[Plan]:
    return await structured(model, "Plan it.", Plan, repairs=repairs, raw_chars=raw_chars)


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        (GOOD, ""),
        (f"  {GOOD}\n", ""),
        (f"<think>Let me see: {{}}</think>{GOOD}", "thought"),
        (f"```json\n{GOOD}\n```", "fence"),
        (f"Here you are:\n```\n{GOOD}", "fence"),
        (f"Sure! {GOOD} I hope that helps {{really}}.", "surroundings"),
        (f"Use {{braces}}: {GOOD}", "surroundings"),
        (f"```\n{GOOD}\nthat is it\n```", "surroundings"),
        (GOOD[:-1], "end"),
        (GOOD[:-1] + ",\n\n\n", "end"),
        ('{"sure": true, "steps": [{"name": "look"}, {"name": "leap"', "end"),
        ('{"sure": true, "steps": [{"name": "say \\"hi\\" }"}', "end"),
    ],
)
async def test_what_is_put_right_without_the_model(text: str, repaired: str) -> None:
    found = await ask(Model(text))
    assert found.value.steps[0].name in ("look", 'say "hi" }')
    assert (found.repaired, found.asked, found.text) == (repaired, 1, text)


@pytest.mark.parametrize(
    "text",
    [
        "", "no", GOOD.replace("true", "NaN"), "[" * 50_000, '{"a":' * 50_000, '{"steps": [{"name": "\\ud800"}], "sure": true}',
        '{"sure": true, "steps": [{"name": "loo', '{"sure": true, "steps": [{"name": "look", "weight": 1',
        '{"sure": true, "steps": [{"name":',
        '{"steps": [{"name": "look"}], "sure": tr', '{"steps": [{"name": "look"]}, "sure": true}',
    ],
    ids=range(11),
)  # fmt: skip
def test_what_is_no_answer(text: str) -> None:
    """Half a value is none: nobody knows how it would have gone on."""
    found, fault = read_structured(text, Plan)
    assert found is None
    assert fault


async def test_it_is_asked_again_with_what_was_wrong() -> None:
    model = Model(BAD, GOOD)
    assert (await ask(model)).asked == 2
    (first, schema), (second, again) = model.asked
    assert first == "Plan it."
    assert schema == again == Plan.model_json_schema()
    assert "steps: List should have at least 1 item" in second
    assert BAD in second


async def test_the_last_time_without_a_schema() -> None:
    model = Model(BAD, "", GOOD)
    assert (await ask(model)).asked == 3
    prompt, schema = model.asked[-1]
    assert schema is None
    assert json.dumps(Plan.model_json_schema()) in prompt


@pytest.mark.parametrize("repairs", [0, 1, 2, 5])
async def test_it_ends_and_keeps_what_was_said(repairs: int) -> None:
    model = Model(*["x" * 300] * 9)
    with pytest.raises(InferenceFailed, match=f"no answer was a Plan, in {repairs + 1} tries") as failed:
        await ask(model, repairs)
    assert len(model.asked) == repairs + 1
    assert failed.value.cause == "malformed"
    assert not failed.value.may_retry
    assert failed.value.context["raw"] == ["x" * 100] * (repairs + 1)


async def test_a_schema_that_ollama_refuses_is_left_out() -> None:
    model = Model(InferenceFailed("invalid JSON schema in format", cause="server_error"), GOOD)
    assert (await ask(model, 1)).value.sure
    assert model.asked[1][1] is None


@pytest.mark.parametrize(
    "failure",
    [
        InferenceFailed("no", cause="refused"),
        InferenceFailed("schema", cause="timeout"),
        InferenceFailed("of all formats", cause="truncated"),
    ],
)
async def test_other_failures_are_the_callers(failure: InferenceFailed) -> None:
    model = Model(failure, GOOD)
    with pytest.raises(InferenceFailed) as failed:
        await ask(model)
    assert failed.value is failure
    assert len(model.asked) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.data())
def test_closing_never_invents_a_value(value: Any, data: st.DataObject) -> None:
    """Whatever is read from a text that breaks off holds only what was written: each leaf is one of the whole's."""
    text = json.dumps(value)
    part = text[: data.draw(st.integers(0, len(text)))]
    leaves = _leaves(value)
    for found, repair in json_values(part):
        if repair == "end":
            assert all(any(leaf == known and type(leaf) is type(known) for known in leaves) for leaf in _leaves(found))


@given(st.text(max_size=60), st.sampled_from(["{", "[", '"', "}", "]", "\\", "`", ","]))
def test_no_text_breaks_it(text: str, letter: str) -> None:
    for found, _ in json_values(letter + text):
        json.dumps(found)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in _leaves(inner)]
    return [value]
