"""The Incarnation Protocol: what the codex makes in the image, and what it leaves alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import structlog

from batos.errors import ConfigError, InvalidInput, UnknownPersona
from batos.mind.codex import load_codex
from batos.mind.incarnation import CHANGED, DELETED, DROPPED, PLAIN_FACET, REMOVED, accept, facets, system_message
from batos.objects import Intent, Method, Primitive, UvmObject
from batos.wire.admin_schemas import Accepting, PersonasRequest
from tests.support.codex import PENGUIN, SHIPPED
from tests.support.missions import FakeInference, mind, submit


async def look(folder: Path, function: Callable[[Any], Any], **more: Any) -> Any:
    async with mind(folder, FakeInference(), **more) as kernel:
        return kernel.image.read(lambda root: function(root["lobby"]))


async def test_the_personas_are_clones_with_the_codex_in_their_slots(tmp_path: Path) -> None:
    def check(lobby: Any) -> None:
        assert lobby.personas == ("robin", "brick", "babs", "alfred")
        for name in lobby.personas:
            persona = lobby._slots[name]
            assert persona.name == name.upper()
            assert persona._slots["parent*"] is lobby.traits.persona
            assert persona.model == name
            assert isinstance(persona._slots["training_data"], str)
            assert len(persona._slots["raises"]) == 1
            assert (
                isinstance(persona._slots["synthesize_response_for_"], Primitive) if "synthesize_response_for_" in persona._slots else True
            )
        assert isinstance(lobby.robin._slots["sage_facet_"], Intent)

    await look(tmp_path, check)


async def test_a_personas_own_facets_come_first_and_protocols_are_none(tmp_path: Path) -> None:
    found = await look(tmp_path, lambda lobby: list(facets(lobby.robin)))
    assert [name for name, _ in found] == ["sage_facet_", "still_point_facet_", "plain_facet_"]
    assert found[-1][1] == PLAIN_FACET


async def test_the_system_message_says_who_speaks(tmp_path: Path) -> None:
    said = await look(tmp_path, lambda lobby: system_message(lobby.brick))
    assert said.startswith("You are BRICK. To understand the 'what' and the 'how'")
    assert said.endswith("The Hitchhiker's Guide: tangential erudition.")


def serials(root: Any) -> dict[str, bytes]:
    """By what transactions the objects of genesis, and the personas, were last written."""
    lobby = root["lobby"]
    held = {**lobby._slots, **lobby.traits._slots, **lobby.psm._slots}
    return {name: one._p_serial for name, one in held.items() if isinstance(one, UvmObject) and one._p_activate() is None}


async def test_a_second_start_changes_nothing_and_what_the_image_learned_stays(tmp_path: Path) -> None:
    def learn(root: Any) -> None:
        robin = root["lobby"].robin
        robin.core_mission = "To listen."
        robin._slots["new_facet_"] = Intent("Sing.")
        del robin._slots["sages_koan_protocol_"]
        robin._slots["still_point_facet_"] = Method("still_point_facet_", "def still_point_facet_(self, query):\n    return query\n")
        root["lobby"].psm.IDLE.comment = "I was changed."

    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.image.system(learn)
        before = kernel.image.read(serials)

    def check(lobby: Any) -> None:
        assert lobby.robin.core_mission == "To listen."
        assert "new_facet_" in lobby.robin._slots
        assert "sages_koan_protocol_" not in lobby.robin._slots, "it was deleted on purpose"
        assert isinstance(lobby.robin._slots["still_point_facet_"], Method)
        assert lobby.psm.IDLE.comment == "I was changed."

    await look(tmp_path, check)
    async with mind(tmp_path, FakeInference()) as kernel:
        assert kernel.image.read(serials) == before, "nothing of it was written at either start"
        assert kernel.personas()["personas"][0]["kept"] == [
            {"slot": "core_mission", "why": CHANGED},
            {"slot": "still_point_facet_", "why": CHANGED},
            {"slot": "sages_koan_protocol_", "why": DELETED},
        ]


async def test_a_changed_codex_changes_what_the_image_has_not(tmp_path: Path) -> None:
    path = tmp_path / "codex.toml"
    path.write_text(SHIPPED + PENGUIN, "utf-8")

    def learn(root: Any) -> None:
        penguin = root["lobby"].penguin
        penguin.pillars = ("Fish",)
        penguin._slots["learned_exemplars"][b"k"] = ("Swim", "m0", 1.0)

    async with mind(tmp_path, FakeInference(), codex=str(path)) as kernel:
        await kernel.image.system(learn)
    changed = PENGUIN.replace("To stand still.", "To swim.").replace('"Ice"]', '"Snow"]').replace("waddle_facet_", "dive_facet_")
    path.write_text(SHIPPED + changed + 'slide_facet_ = "On the belly."', "utf-8")
    with structlog.testing.capture_logs() as logged:
        async with mind(tmp_path, FakeInference(), codex=str(path)) as kernel:
            penguin = next(p for p in kernel.personas()["personas"] if p["name"] == "penguin")
            assert penguin["core_mission"] == "To swim."
            assert penguin["pillars"] == ["Fish"]
            assert [b["selector"] for b in penguin["behaviour"] if b["facet"]] == ["dive_facet_", "slide_facet_", "plain_facet_"]
            assert penguin["learned"] == 1
            assert penguin["kept"] == [{"slot": "pillars", "why": CHANGED}]
    done = next(line for line in logged if line["event"] == "incarnated")
    assert (done["persona"], done["changes"]) == (
        "penguin",
        {"core_mission": "updated", "dive_facet_": "added", "slide_facet_": "added", "waddle_facet_": "removed"},
    )
    left = next(line for line in logged if line["event"] == "codex_not_followed")
    assert (left["persona"], left["slots"], left["log_level"]) == ("penguin", {"pillars": CHANGED}, "warning")


async def test_a_persona_that_was_deleted_in_the_image_does_not_come_back(tmp_path: Path) -> None:
    def delete(root: Any) -> None:
        del root["lobby"]._slots["babs"]

    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.image.system(delete)
    async with mind(tmp_path, FakeInference()) as kernel:
        assert kernel.router.personas == ("robin", "brick", "alfred")
        babs = next(p for p in kernel.personas()["personas"] if p["name"] == "babs")
        assert babs == {"name": "babs", "routed": False, "kept": [{"slot": None, "why": DELETED}]}
        end = await (await submit(kernel, "m1", "Look up the population of Iceland.")).end()
        assert end["result"]["persona"] != "BABS"


async def test_an_operator_takes_what_the_codex_says(tmp_path: Path) -> None:
    path = tmp_path / "codex.toml"
    path.write_text(SHIPPED + PENGUIN, "utf-8")

    def change(root: Any) -> None:
        lobby = root["lobby"]
        lobby.penguin.pillars, lobby.penguin.core_mission = ("Fish",), "To dive."
        lobby.penguin._slots["waddle_facet_"] = Method("waddle_facet_", "def waddle_facet_(self, query):\n    return query\n")
        lobby.penguin._slots["learned_exemplars"][b"k"] = ("Swim", "m0", 1.0)
        del lobby._slots["babs"]

    async with mind(tmp_path, FakeInference(), codex=str(path)) as kernel:
        await kernel.image.system(change)
    path.write_text(SHIPPED + PENGUIN.replace("waddle_facet_", "dive_facet_"), "utf-8")
    async with mind(tmp_path, FakeInference(), codex=str(path)) as kernel:
        told = kernel.personas()["personas"]
        assert {p["name"]: {k["slot"]: k["why"] for k in p["kept"]} for p in told if p["kept"]} == {
            "babs": {None: DELETED},
            "penguin": {"pillars": CHANGED, "core_mission": CHANGED, "waddle_facet_": DROPPED},
        }
        end = functools.partial(kernel.image.system, mission="operator")
        codex = kernel.codex
        await end(accept, codex, "penguin", "pillars")
        assert kernel.image.read(lambda root: (root["lobby"].penguin.pillars, root["lobby"].penguin.core_mission)) == (
            ("Patience", "Ice"),
            "To dive.",
        )
        for name, slot, error, words in (
            ("penguin", "pillars", InvalidInput, "'core_mission', 'waddle_facet_'"),
            ("robin", None, InvalidInput, "everywhere"),
            ("babs", "model", InvalidInput, "the whole persona"),
            (
                "robin",
                "pilars",
                InvalidInput,
                r"'robin' has no slot 'pilars' \(did you mean 'pillars'\?\); the codex gives it: core_mission",
            ),
            ("nobody", None, UnknownPersona, "robin"),
        ):
            with pytest.raises(error, match=words):
                await end(accept, codex, name, slot)
        await end(accept, codex, "penguin")
        told = await kernel.transport.personas.personas(PersonasRequest(op="personas", accept=Accepting(persona=" Babs")), Mock())
        assert [p["name"] for p in told["personas"] if p["kept"]] == []
        assert "babs" in kernel.router.personas
        answered = await (await submit(kernel, "m1", "Look up the population of Norway.")).end()
        assert answered["result"]["persona"] == "BABS"
    # from here on the codex is followed again, and what was learned is there
    path.write_text(SHIPPED + PENGUIN.replace("To stand still.", "To swim.").replace("waddle_facet_", "dive_facet_"), "utf-8")
    async with mind(tmp_path, FakeInference(), codex=str(path)) as kernel:
        penguin = kernel.personas()["personas"][-1]
        assert (penguin["core_mission"], penguin["kept"], penguin["learned"]) == ("To swim.", [], 1)
        assert [b["selector"] for b in penguin["behaviour"] if b["facet"]] == ["dive_facet_", "plain_facet_"]


async def test_a_name_that_the_image_needs_is_refused(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.image.system(lambda root: root["lobby"]._slots.__setitem__("penguin", root["lobby"].genesis.derive(name="a bird")))
    path = tmp_path / "codex.toml"
    path.write_text(SHIPPED + PENGUIN, "utf-8")
    with pytest.raises(ConfigError, match="'penguin', but the image already has another object"):
        await look(tmp_path, lambda lobby: None, codex=str(path))
    assert await look(tmp_path, lambda lobby: (lobby.penguin.name, dict(lobby.penguin._slots).keys() - {"name", "parent*"})) == (
        "a bird",
        set(),
    )


async def test_an_image_from_before_the_codex_was_remembered(tmp_path: Path) -> None:
    def older(root: Any) -> None:
        lobby = root["lobby"]
        del lobby._slots["incarnation"], lobby.robin._slots["exemplars"], lobby.robin._slots["learned_exemplars"]
        lobby.brick.core_mission = "To build."

    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.image.system(older)
    async with mind(tmp_path, FakeInference()) as kernel:
        told = {p["name"]: p for p in kernel.personas()["personas"]}
        assert told["robin"]["exemplars"] == len(load_codex().personas["robin"].exemplars)
        assert told["robin"]["kept"] == []
        assert told["brick"]["core_mission"] == "To build."
        assert [k["slot"] for k in told["brick"]["kept"]] == ["core_mission"]


async def test_what_there_is_to_say_of_a_persona(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        told = kernel.personas()
        assert [p["name"] for p in told["personas"]] == ["robin", "brick", "babs", "alfred"]
        assert told["embedder"]["model"] == "minilm:embedded"
        robin = told["personas"][0]
        assert (robin["routed"], robin["model"], robin["learned"], robin["kept"]) == (True, "robin:embedded", 0, [])
        assert robin["core_mission"].startswith("To interpret the 'why'")
        kinds = {b["selector"]: (b["kind"], b["facet"]) for b in robin["behaviour"]}
        own = {name: kind for name, kind in kinds.items() if kind != ("primitive", False)}
        assert own == {
            "sage_facet_": ("intent", True),
            "still_point_facet_": ("intent", True),
            "sages_koan_protocol_": ("intent", False),
            "plain_facet_": ("intent", True),
        }
        assert {"synthesize_response_for_", "forget_exemplar_"} <= kinds.keys() - own.keys()


async def test_a_fifth_persona_by_editing_the_file_alone(tmp_path: Path) -> None:
    await look(tmp_path, lambda lobby: None)
    path = tmp_path / "codex.toml"
    path.write_text(SHIPPED + PENGUIN, "utf-8")
    inference = FakeInference()
    async with mind(tmp_path, inference, codex=str(path)) as kernel:
        assert kernel.image.read(lambda root: root["lobby"].personas)[-1] == "penguin"
        end = await (await submit(kernel, "m1", "Tell me of ice")).end()
        assert end["result"]["persona"] == "PENGUIN"
        assert end["result"]["facets"] == ["waddle_facet_", "plain_facet_"]
        assert {request.model for request in inference.asked} == {"robin:embedded"}
    # taken out of the file again, it stays in the image, and is not chosen any more
    async with mind(tmp_path, FakeInference()) as kernel:
        penguin = kernel.personas()["personas"][-1]
        assert (penguin["name"], penguin["routed"], penguin["core_mission"]) == ("penguin", False, "To stand still.")
        assert penguin["kept"] == [{"slot": None, "why": REMOVED}]
        assert "penguin" not in kernel.router.personas
        assert (await (await submit(kernel, "m2", "Tell me of ice")).end())["result"]["persona"] == "BRICK"
