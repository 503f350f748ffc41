"""Which few of many tools are offered: by words, by what they need of one another, and by the names in a brief."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from batos.mind.tool_catalogue import ON_LINE, catalogue_of, clauses_of, names_in
from batos.mind.tool_choice import COMPARED, ToolOffer, offered, offered_lines
from batos.mind.tool_facts import facts_of
from batos.tools import openapi_document

ID, NAME, TEXT = {"id": {"type": "integer"}}, {"name": {"type": "string"}}, {"type": "string"}


def answer(schema: dict[str, Any]) -> dict[str, Any]:
    return {"responses": {"200": {"content": {"application/json": {"schema": schema}}}}}


def thing(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**ID, **fields}}


def many(schema: dict[str, Any], field: str = "results") -> dict[str, Any]:
    return {"type": "object", "properties": {field: {"type": "array", "items": schema}}}


SHIP = thing(tonnage=TEXT, flag=TEXT, launched=TEXT)
SAILOR = thing(birthday=TEXT, email=TEXT, rank=TEXT)
SOUGHT = {"parameters": [{"name": "q", "in": "query", "schema": TEXT}]}
PATHS: dict[str, Any] = {
    "/search/ships": {"get": {"summary": "Search ships", **SOUGHT, **answer(many(SHIP))}},
    "/search/sailors": {"get": {"summary": "Search people", **SOUGHT, **answer(many(SAILOR))}},
    "/ships/newest": {"get": {"summary": "The newest ships", **answer(many(SHIP))}},
    "/ships/{ship_id}": {"get": {"summary": "One ship", **answer(SHIP)}, "delete": {"summary": "Scrap a ship"}},
    "/ships/{ship_id}/crew": {"get": {"summary": "Who sails on a ship", **answer(many(SAILOR, "aboard"))}},
    "/ships/{ship_id}/cargo": {"get": {"summary": "Freight of a ship"}, "put": {"summary": "Load freight onto a ship"}},
    "/ships/{ship_id}/route": {"get": {"summary": "Ports on the route of a ship"}},
    "/sailors/{sailor_id}": {"get": {"summary": "One sailor", **answer(SAILOR)}},
    "/sailors/{sailor_id}/medals": {"get": {"summary": "Medals of a sailor"}},
    "/me/watches": {"get": {"summary": "Watches of the current user"}},
    "/ports": {"get": {"summary": "All ports", **answer(many(thing(depth=TEXT)))}},
    "/ports/{port_id}/tides": {"get": {"summary": "Tides of a port"}},
    "/weather": {"get": {"summary": "Weather at sea"}},
}


def offers_of(paths: dict[str, Any]) -> list[ToolOffer]:
    document = {"openapi": "3.1.0", "paths": paths}
    return [ToolOffer(f"sea.{tool.name}", tool) for tool in openapi_document.read(document, "https://sea.example").tools]


OFFERS = offers_of(PATHS)


async def paths_offered(text: str, k: int, likeness: Any = None) -> set[str]:
    found = await offered(text, OFFERS, k, likeness)
    return {f"{offer.tool.details['method']} {offer.tool.details['path']}" for offer, _ in found}


def test_a_tool_says_what_it_needs_and_what_its_result_holds() -> None:
    by_path = {(one.tool.details["method"], one.tool.details["path"]): facts_of(one.tool) for one in OFFERS}
    assert by_path["GET", "/ships/{ship_id}/crew"].needs == (("ship",),)
    assert by_path["GET", "/ships/{ship_id}/crew"].holds[("aboard",)] == {"id", "birthday", "email", "rank"}
    assert by_path["GET", "/search/ships"].seeks
    assert not by_path["GET", "/ships/newest"].seeks
    assert by_path["GET", "/me/watches"].own
    assert not by_path["GET", "/ports"].own
    nameless = offers_of({"/harbours/{harbour}/cranes/{id}": {"get": {}}, "/tugs/{id}": {"get": {}}})
    assert [facts_of(one.tool).labels for one in nameless] == [("cranes",), ("tugs",)]


async def test_a_tool_that_needs_an_identifier_brings_one_that_gives_it() -> None:
    assert await paths_offered("medals", 2) == {"GET /sailors/{sailor_id}/medals", "GET /search/sailors"}
    assert await paths_offered("tides", 2) == {"GET /ports/{port_id}/tides", "GET /ports"}


async def test_things_are_known_by_their_fields_where_a_field_has_another_name() -> None:
    with_crew = {path: item for path, item in PATHS.items() if path != "/search/sailors"}
    offers = offers_of(with_crew)
    found = await offered("medals", offers, 2)
    assert {offer.tool.details["path"] for offer, _ in found} == {"/sailors/{sailor_id}/medals", "/ships/{ship_id}/crew"}


async def test_what_acts_on_a_path_brings_what_reads_it_and_a_deletion_has_to_be_asked_for() -> None:
    assert {"PUT /ships/{ship_id}/cargo", "GET /ships/{ship_id}/cargo"} <= await paths_offered("load the freight", 3)
    assert "DELETE /ships/{ship_id}" in await paths_offered("remove the ship", 3)
    assert "DELETE /ships/{ship_id}" not in await paths_offered("the ship", 3)


async def test_a_field_of_a_result_is_a_word_of_its_tool() -> None:
    assert "GET /sailors/{sailor_id}" in await paths_offered("birthday of the sailor", 3)


@pytest.mark.parametrize(
    ("text", "lookup"), [("route of the ship Pequod", "GET /search/ships"), ("medals won by Ishmael Smith", "GET /search/sailors")]
)
async def test_a_name_brings_the_tools_that_look_for_it(text: str, lookup: str) -> None:
    assert lookup in await paths_offered(text, 2)


async def test_few_tools_are_all_offered_in_the_order_of_their_likeness() -> None:
    async def likeness(ones: Sequence[str], others: Sequence[str]) -> list[list[float]]:
        return [[0.1 if "Weather" in other else 0.9 if "Tides" in other else 0.0 for other in others] for _ in ones]

    found = await offered("anything", OFFERS, len(OFFERS), likeness)
    assert len(found) == len(OFFERS)
    assert [round(like, 1) for _, like in found[:2]] == [0.9, 0.1]
    assert await paths_offered("anything", 1, likeness) == {"GET /ports/{port_id}/tides"}


async def test_no_more_tools_than_the_bound_are_compared_by_an_embedder() -> None:
    asked: list[int] = []

    async def likeness(ones: Sequence[str], others: Sequence[str]) -> list[list[float]]:
        asked.append(len(others))
        return [[0.0] * len(others) for _ in ones]

    offers = offers_of({f"/things{n}/{{id}}/parts": {"get": {"summary": f"Parts of kind {n}"}} for n in range(1500)})
    begun = time.perf_counter()
    found = await offered("parts of kind 1234", offers, 8, likeness)
    assert max(asked) == COMPARED
    assert "/things1234/{id}/parts" in [offer.tool.details["path"] for offer, _ in found]
    assert time.perf_counter() - begun < 20


def test_a_catalogue_is_made_once_and_its_choice_is_the_same_each_time() -> None:
    tools = [offer.tool for offer in OFFERS]
    held = catalogue_of(tools)
    assert catalogue_of(list(tools)) is held
    near = [0.0] * len(tools)
    assert held.taken("route of a ship", near, 5) == held.taken("route of a ship", near, 5)
    assert len(held.taken("route of a ship", near, 50)) == len(tools)
    assert held.taken("route of a ship", near, 0) == []


def test_clauses_and_names_of_a_brief() -> None:
    assert clauses_of("Pause the player, turn it down and go on.") == ["Pause the player", "turn it down", "go on."]
    assert clauses_of("Pause the player") == []
    by, has, beside = names_in("Is a film by Ann Lee in Bob Ray's list, and the album 'Blue'?")
    assert (by.text, by.agent, has.text, has.agent) == ("Ann Lee", True, "Bob Ray", True)
    assert (beside.text, beside.beside, beside.agent) == ("Blue", {"album"}, False)
    assert names_in("the most popular TV show") == []


async def test_a_tool_that_needs_a_user_brings_the_one_that_says_who_calls() -> None:
    user = thing(email=TEXT, display_name=TEXT)
    paths = {
        "/me": {"get": {"summary": "Profile of the current user", **answer(user)}},
        "/users/{user_id}/lists": {"post": {"summary": "Create a list for a user"}},
        "/lists/{list_id}": {"get": {"summary": "One list", **answer(thing(owner=user, title=TEXT))}},
        "/lists/{list_id}/songs": {"get": {"summary": "Songs of a list"}},
        "/songs": {"get": {"summary": "All songs", **answer(many(thing(title=TEXT, artist=TEXT)))}},
    }
    found = await offered("Create a new list", offers_of(paths), 2)
    assert {offer.tool.details["path"] for offer, _ in found} == {"/users/{user_id}/lists", "/me"}


async def test_of_near_doubles_one_is_enough_where_others_say_something_else() -> None:
    paths = {
        f"/ships/{{ship_id}}/{word}": {"get": {"summary": f"Pictures of the {word} of a ship"}} for word in ("bow", "stern", "deck", "mast")
    }
    paths["/weather"] = {"get": {"summary": "Weather for pictures"}}
    assert "/weather" in {offer.tool.details["path"] for offer, _ in await offered("pictures", offers_of(paths), 2)}


def paths_of(lines: Sequence[Sequence[ToolOffer]]) -> list[set[str]]:
    return [{f"{offer.tool.details['method']} {offer.tool.details['path']}" for offer in line} for line in lines]


async def test_tools_that_read_parts_of_one_resource_share_a_line() -> None:
    lines = paths_of(await offered_lines("crew of the ship Pequod", OFFERS, 3))
    assert len(lines) == 3
    ship = next(line for line in lines if "GET /ships/{ship_id}/crew" in line)
    assert ship == {f"GET /ships/{{ship_id}}{part}" for part in ("", "/crew", "/cargo", "/route")}
    assert {"GET /search/ships", "GET /search/sailors"} in lines
    assert not any("DELETE" in path or "PUT" in path for line in lines if len(line) > 1 for path in line)
    assert all(len(line) == 1 for line in await offered_lines("ships", OFFERS, len(OFFERS)))


async def test_what_one_call_cannot_tell_apart_shares_no_line() -> None:
    def parts(types: dict[str, str]) -> dict[str, Any]:
        given = {name: [{"name": "at", "in": "query", "schema": {"type": kind, "description": name}}] for name, kind in types.items()}
        return {f"/ships/{{id}}/{name}": {"get": {"summary": f"The {name} of a ship", "parameters": one}} for name, one in given.items()}

    offers = offers_of(parts({"mast": "string", "bow": "integer", "stern": "integer"}))
    lines = paths_of(await offered_lines("ship", offers, 2))
    assert sorted(map(len, lines)) == [1, 2]
    assert {"GET /ships/{id}/bow", "GET /ships/{id}/stern"} in lines
    twice = [*offers_of(parts({"mast": "string"})), ToolOffer("lake.bow", offers_of(parts({"bow": "string"}))[0].tool)]
    twice += offers_of(parts({"stern": "string"}))
    assert {len({offer.name.partition(".")[0] for offer in line}) for line in await offered_lines("ship", twice, 2)} == {1}
    many_parts = offers_of(parts({f"deck{n}": "string" for n in range(3 * ON_LINE)}))
    assert [len(line) for line in await offered_lines("ship", many_parts, 2)] == [ON_LINE, ON_LINE]
