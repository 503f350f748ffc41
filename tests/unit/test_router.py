"""The router: who thinks a brief through, and why."""

from __future__ import annotations

import pytest

from batos.errors import UnknownPersona
from batos.mind.codex import Codex, load_codex
from batos.mind.router import Router

ROUTER = Router(load_codex())


@pytest.mark.parametrize(
    ("brief", "persona"),
    [
        ("I'm feeling really stuck on this project, and I don't know why I'm so unmotivated.", "robin"),
        ("Why does everything feel pointless lately?", "robin"),
        ("Plan a birthday party for a cat lover on a budget", "brick"),
        ("How do I move a database to a new server?", "brick"),
        ("Look up the population of Iceland.", "babs"),
        ("Who wrote the first program for a machine?", "babs"),
        ("How efficient is your own process?", "alfred"),
        ("Audit the last ten missions for waste.", "alfred"),
        ("Protocol conflict: latency of the last cycle was 90 s", "alfred"),
    ],
)
def test_a_brief_finds_its_persona(brief: str, persona: str) -> None:
    route = ROUTER.route(brief)
    assert route.persona == persona
    assert route.why
    assert route.scores[persona] == max(route.scores.values()) > 0


def test_every_exemplar_of_the_codex_goes_to_its_own_persona() -> None:
    codex = load_codex()
    assert {
        brief: ROUTER.route(brief).persona for persona in codex.personas.values() for brief in persona.exemplars
    } == {brief: name for name, persona in codex.personas.items() for brief in persona.exemplars}  # fmt: skip


def test_case_does_not_matter() -> None:
    assert ROUTER.route("LOOK UP THE POPULATION OF ICELAND").persona == "babs"


def test_the_reason_names_the_signs_the_strongest_first() -> None:
    assert ROUTER.route("Why do I feel so sad?").why == "speaks of feelings, names an emotion, asks why"


@pytest.mark.parametrize("brief", ["xyzzy", "…", "猫"])
def test_a_brief_that_speaks_for_nobody_goes_to_the_fallback_with_a_reason(brief: str) -> None:
    route = ROUTER.route(brief)
    assert route.persona == "brick"
    assert "nothing in the brief" in route.why
    assert set(route.scores.values()) == {0}


def test_an_explicit_choice_wins_also_over_the_systems_own() -> None:
    assert ROUTER.route("I feel sad", persona="babs").persona == "babs"
    assert ROUTER.route("self_audit", persona=" BABS ", origin="system").persona == "babs"


def test_the_systems_own_missions_go_to_alfred() -> None:
    route = ROUTER.route("I feel sad", origin="system")
    assert (route.persona, route.why) == ("alfred", "is the system's own mission")


def test_an_unknown_persona_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownPersona, match="no persona 'penguin'; there are: robin, brick, babs, alfred"):
        ROUTER.route("Hello", persona="penguin")


def test_a_codex_of_one_other_persona_routes_everything_to_it() -> None:
    one = {"core_mission": "To stand.", "core_method": "Standing.", "pillars": ["Ice"], "model": "robin"}
    router = Router(Codex.model_validate({"personas": {"penguin": one}}))
    assert router.route("I feel sad").persona == "penguin"
    assert router.route("self_audit", origin="system").persona == "penguin"
