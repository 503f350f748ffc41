"""The Incarnation Protocol: what the codex makes in the image, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from batos.mind import psm
from batos.mind.incarnation import PLAIN_FACET, facets, system_message
from batos.objects import Intent, Primitive
from tests.unit.mind_support import FakeInference, mind, submit

PENGUIN = """
[personas.penguin]
core_mission = "To stand still."
core_method = "Standing."
pillars = ["Patience", "Ice"]
model = "robin"
triggers = [{ pattern = 'ice', weight = 9.0, says = "speaks of ice" }]
[personas.penguin.protocols]
waddle_facet_ = "Go slowly."
"""


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


async def test_a_second_start_changes_nothing_and_what_the_image_learned_stays(tmp_path: Path) -> None:
    def learn(root: Any) -> None:
        robin = root["lobby"].robin
        robin.core_mission = "To listen."
        robin._slots["new_facet_"] = Intent("Sing.")
        del robin._slots["sages_koan_protocol_"]
        root["lobby"].psm.IDLE.comment = "I was changed."

    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.image.system(learn)
        before = kernel.image.read(lambda root: len(kernel.image.db.storage))

    def check(lobby: Any) -> None:
        assert lobby.robin.core_mission == "To listen."
        assert "new_facet_" in lobby.robin._slots
        assert "sages_koan_protocol_" in lobby.robin._slots, "what is missing is added"
        assert lobby.psm.IDLE.comment == "I was changed."

    await look(tmp_path, check)
    async with mind(tmp_path, FakeInference()) as kernel:
        assert len(kernel.image.db.storage) == before


async def test_a_fifth_persona_by_editing_the_file_alone(tmp_path: Path) -> None:
    await look(tmp_path, lambda lobby: None)
    path = tmp_path / "codex.toml"
    shipped = Path(psm.__file__).with_name("codex.toml").read_text("utf-8")
    path.write_text(shipped + PENGUIN, "utf-8")
    inference = FakeInference()
    async with mind(tmp_path, inference, codex=str(path)) as kernel:
        assert kernel.image.read(lambda root: root["lobby"].personas)[-1] == "penguin"
        end = await (await submit(kernel, "m1", "Tell me of ice")).end()
        assert end["result"]["persona"] == "PENGUIN"
        assert end["result"]["facets"] == ["waddle_facet_", "plain_facet_"]
        assert {request.model for request in inference.asked} == {"robin:embedded"}
    # taken out of the file again, it stays in the image, and is not chosen any more
    async with mind(tmp_path, FakeInference()) as kernel:
        assert "penguin" in kernel.image.read(lambda root: root["lobby"].personas)
        assert (await (await submit(kernel, "m2", "Tell me of ice")).end())["result"]["persona"] == "BRICK"
