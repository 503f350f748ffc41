"""Plans, woven answers, and the gate that an answer passes."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from batos.mind import plans

FACETS = ("sage_facet_", "plain_facet_")


def test_a_meta_prompt_is_filled_and_what_it_does_not_know_stays() -> None:
    assert plans.fill("$brief, $nonsense, $$5 and 100 %", brief="Hi") == "Hi, $nonsense, $5 and 100 %"


def test_a_brief_with_dollars_is_not_filled_twice() -> None:
    assert plans.fill("$brief|$intent", brief="costs $intent", intent="x") == "costs $intent|x"


def test_the_schema_asks_for_every_facet_and_nothing_else() -> None:
    schema = plans.plan_form(FACETS).model_json_schema()
    assert list(schema["properties"]) == schema["required"] == list(FACETS)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["sage_facet_"]["maxLength"] == plans.QUERY_LENGTH


def test_a_form_with_a_question_asks_for_it_first() -> None:
    form = plans.plan_form(FACETS, may_ask=True)
    assert list(form.model_json_schema()["properties"]) == [plans.QUESTION, *FACETS]
    plan = form.model_validate({plans.QUESTION: "", "sage_facet_": "why?", "plain_facet_": "what?"})
    assert plan.model_dump(by_alias=True)[plans.QUESTION] == ""


def test_a_plan_of_its_form() -> None:
    plan = plans.plan_form(FACETS).model_validate({"plain_facet_": " what now? ", "sage_facet_": "x" * 900, "extra": "ignored"})
    assert plan.model_dump(by_alias=True) == {"sage_facet_": "x" * plans.QUERY_LENGTH, "plain_facet_": "what now?"}
    for lacking in ({"sage_facet_": "why?"}, {"sage_facet_": "why?", "plain_facet_": " "}, {"sage_facet_": "why?", "plain_facet_": 3}):
        with pytest.raises(ValidationError, match="plain_facet_"):
            plans.plan_form(FACETS).model_validate(lacking)


def test_a_plan_that_is_not_of_its_form_is_used_for_what_it_has() -> None:
    text = json.dumps({"plain_facet_": " what now? ", "sage_facet_": "why?", "extra": "ignored"})
    assert plans.read_plan(text, FACETS, "brief") == {"sage_facet_": "why?", "plain_facet_": "what now?"}
    half = plans.read_plan(r'{"sage_facet_": "why? \ud83d", "plain_facet_": 3}', FACETS, "brief")
    assert half == {"sage_facet_": "why? ?", "plain_facet_": "brief"}, "what no request could be made of is left out"


@pytest.mark.parametrize(
    "text",
    [
        "", "no json", "[]", "null", "3", '"text"', '{"sage_facet_": "why?"', "[" * 50_000, '{"a":' * 50_000, "NaN",
    ],
    ids=range(10),
)  # fmt: skip
def test_what_is_no_plan_becomes_the_brief_for_every_facet(text: str) -> None:
    assert plans.read_plan(text, FACETS, "the brief") == dict.fromkeys(FACETS, "the brief")


@pytest.mark.parametrize(
    "missing", ["{}", '{"plain_facet_": ""}', '{"plain_facet_": "  "}', '{"plain_facet_": 5}', '{"plain_facet_": ["x"]}']
)
def test_a_facet_that_was_left_out_gets_the_brief(missing: str) -> None:
    text = json.dumps({"sage_facet_": "why?", **json.loads(missing)})
    assert plans.read_plan(text, FACETS, "the brief") == {"sage_facet_": "why?", "plain_facet_": "the brief"}


@pytest.mark.parametrize(("length", "kept"), [(240, 240), (241, 240)])
def test_a_sub_query_has_a_limit(length: int, kept: int) -> None:
    plan = plans.read_plan(json.dumps(dict.fromkeys(FACETS, "x" * length)), FACETS, "b")
    assert len(plan["sage_facet_"]) == kept


def test_the_voices_are_named_in_order() -> None:
    assert plans.voices([("still_point_facet_", "Be."), ("odd", "Do.")]) == "still point: Be.\n\nodd: Do."


def test_each_sentence_of_an_answer_has_the_voice_that_said_it() -> None:
    said = [("sage_facet_", "The river does not hurry."), ("still_point_facet_", "Be kind to yourself today.")]
    woven = plans.woven_from("Be kind to yourself. A river never hurries!\nBananas grow elsewhere. So.", said)
    assert woven == [
        ("Be kind to yourself.", "still_point_facet_"), ("A river never hurries!", "sage_facet_"),
        ("Bananas grow elsewhere.", None), ("So.", None),
    ]  # fmt: skip
    assert plans.woven_from("Anything.", []) == [("Anything.", None)]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"fit": true, "reason": "it helps"}', (True, "it helps")),
        ('{"fit": false, "reason": " it is off the point "}', (False, "it is off the point")),
        ('{"fit": null, "reason": "?"}', (True, "?")),
        ("", (True, "no verdict")),
        ("[]", (True, "no verdict")),
        ('{"fit": false}', (True, "no verdict")),
        ("[" * 50_000, (True, "no verdict")),
    ],
    ids=range(7),
)
def test_a_critic_that_cannot_be_read_has_nothing_against_it(text: str, verdict: tuple[bool, str]) -> None:
    assert plans.read_verdict(text) == verdict


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("brick: Plan it.\n\nBrick: Then do it.", "Plan it.\n\nThen do it."),
        ("Sage: rest.", "rest."),
        ("still point: wait.", "wait."),
        ("A brick: the red one.", "A brick: the red one."),
        ("Use this:\nbrick: 4\nsand: 2", "Use this:\nbrick: 4\nsand: 2"),
        ("brick:", "brick:"),
    ],
)
def test_the_names_of_notes_are_no_part_of_the_answer(said: str, kept: str) -> None:
    assert plans.without_labels(said, [("brick", "x"), ("sage_facet_", "y"), ("still_point_facet_", "z")]) == kept
    assert plans.without_labels(said, []) == said
