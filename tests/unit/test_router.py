"""The router: who thinks a brief through, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from batos.errors import UnknownPersona
from batos.image.mission_record import MissionRecord
from batos.mind.codex import Codex, load_codex
from batos.mind.incarnation import Exemplars
from batos.mind.router import ExemplarSimilarity, Route, Router, Texts

ROUTER = Router(load_codex())
NAMES = ("robin", "brick", "babs", "alfred")


class Alikes:
    """A comparison that says what the test wants, and remembers what it was asked."""

    def __init__(self, **means: float) -> None:
        self.means, self.asked = means, list[str]()

    async def of(self, text: str, exemplars: Texts, nearest: int) -> dict[str, ExemplarSimilarity] | None:
        self.asked.append(text)
        return {name: ExemplarSimilarity(mean, exemplars[name][0], mean) for name, mean in self.means.items()} or None


def route(router: Router, brief: str, *, persona: str | None = None, origin: str = "client") -> Route:
    return asyncio.run(router.decide(MissionRecord(id="m", brief=brief, accepted=1.0, number=1, persona=persona, origin=origin)))


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
def test_by_rules_alone_a_brief_finds_its_persona(brief: str, persona: str) -> None:
    found = route(ROUTER, brief)
    assert (found.persona, found.by) == (persona, "rules")
    assert found.why
    assert found.scores[persona]["score"] == max(score["score"] for score in found.scores.values()) > 0


def test_case_does_not_matter() -> None:
    assert route(ROUTER, "LOOK UP THE POPULATION OF ICELAND").persona == "babs"


def test_the_reason_names_the_signs_the_strongest_first() -> None:
    assert route(ROUTER, "Why do I feel so sad?").why == "speaks of feelings, names an emotion, asks why"


@pytest.mark.parametrize("brief", ["xyzzy", "…", "猫"])
def test_a_brief_that_speaks_for_nobody_goes_to_the_fallback_with_a_reason(brief: str) -> None:
    found = route(ROUTER, brief)
    assert (found.persona, found.by) == ("brick", "fallback")
    assert "the brief fits no other" in found.why
    assert {score["score"] for score in found.scores.values()} == {0}


def test_likeness_and_triggers_are_weighed_as_the_codex_says() -> None:
    codex = load_codex()
    alikes = Alikes(robin=0.6, brick=0.1, babs=0.1, alfred=0.1)
    found = route(Router(codex, likeness=alikes), "Look up the population of Iceland.")
    triggers = {name: score["triggers"] for name, score in found.scores.items()}
    assert triggers["babs"] > 0
    for name in NAMES:
        expected = triggers[name] / (sum(triggers.values()) + codex.routing.doubt) + codex.routing.likeness * alikes.means[name]
        assert found.scores[name] == {"score": round(expected, 4), "triggers": triggers[name], "alike": alikes.means[name]}
    assert (found.persona, found.by) == ("robin", "rules and likeness")
    assert found.why == "is like “I'm feeling really stuck on this project, and I don't know…” (0.60)"


def test_nothing_but_likeness_is_enough() -> None:
    found = route(Router(load_codex(), likeness=Alikes(babs=0.3, robin=0.2)), "猫")
    assert (found.persona, found.by, found.scores["alfred"]["score"]) == ("babs", "rules and likeness", 0)


def test_without_an_embedder_the_rules_decide() -> None:
    assert route(Router(load_codex(), likeness=Alikes()), "Why do I feel so sad?") == route(ROUTER, "Why do I feel so sad?")


def test_an_explicit_choice_wins_and_says_who_would_have_been_chosen() -> None:
    found = route(ROUTER, "I feel sad", persona="babs")
    assert (found.persona, found.by, found.preferred) == ("babs", "mission", "robin")
    assert found.scores["robin"]["score"] > found.scores["babs"]["score"]
    assert route(ROUTER, "self_audit", persona="babs", origin="system").persona == "babs"


def test_the_systems_own_missions_go_to_alfred_and_cost_no_embedding() -> None:
    alikes = Alikes(robin=1.0)
    found = route(Router(load_codex(), likeness=alikes), "I feel sad", origin="system")
    assert (found.persona, found.why, found.by) == ("alfred", "is the system's own mission", "system")
    assert alikes.asked == []


def test_an_unknown_persona_is_refused_with_those_there_are() -> None:
    assert ROUTER.known(" BABS ") == "babs"
    with pytest.raises(UnknownPersona, match="no persona 'penguin'; there are: robin, brick, babs, alfred"):
        ROUTER.known("penguin")


def test_who_is_not_in_the_image_is_not_chosen() -> None:
    there: Mapping[str, Exemplars] = {"brick": Exemplars(()), "babs": Exemplars(())}
    router = Router(load_codex(), lambda: there)
    assert router.personas == ("brick", "babs")
    assert route(router, "I feel sad and lonely").persona == "brick"
    assert route(router, "How are you doing?", origin="system").persona in there
    with pytest.raises(UnknownPersona):
        router.known("robin")
    with pytest.raises(UnknownPersona, match=r"setting missions\.codex"):
        route(Router(load_codex(), dict), "I feel sad")


def test_a_codex_of_one_other_persona_routes_everything_to_it() -> None:
    one: dict[str, Any] = {"core_mission": "To stand.", "core_method": "Standing.", "pillars": ["Ice"], "model": "robin"}
    router = Router(Codex.model_validate({"personas": {"penguin": one}}))
    assert route(router, "I feel sad").persona == "penguin"
    assert route(router, "self_audit", origin="system").persona == "penguin"


def test_of_a_long_brief_beginning_and_end_are_looked_at() -> None:
    alikes = Alikes(robin=0.5)
    router = Router(load_codex(), likeness=alikes, chars=100)
    brief = "a" * 99 + "b" * 10_000 + "c" * 99
    route(router, brief)
    assert alikes.asked == ["a" * 50 + "\n" + "c" * 50]
    assert router.window("x" * 100) == "x" * 100
    assert router.window("x" * 101) == "x" * 50 + "\n" + "x" * 50


def test_a_decision_survives_its_record() -> None:
    for found in (route(ROUTER, "Why do I feel so sad?"), route(ROUTER, "I feel sad", persona="babs")):
        assert Route.from_record(found.to_record()) == found
