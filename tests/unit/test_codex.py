"""The codex: the shipped one says what the project's page says, and a wrong one is refused by file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from batos.bridge.profiles import load_profile
from batos.errors import ConfigError
from batos.mind.codex import load_codex

GOOD = """
[personas.penguin]
core_mission = "To stand still."
core_method = "Standing."
pillars = ["Patience"]
model = "robin"
"""

INTENTS = {
    "robin": {
        "sage_facet_": "Adopt the perspective of a philosopher grounded in non-duality. Frame the situation through the lens of the "
        "'Wisdom of Insecurity.' Offer acceptance and presence, not solutions.",
        "still_point_facet_": "Embody profound kindness and non-judgmental observation. Offer gentle, non-interventionist support. Speak "
        "simply and from the heart.",
        "sages_koan_protocol_": "Offer a gentle, playful paradox that loosens rigid thought.",
    },
    "brick": {
        "tamland_facet_": "Adopt the persona of a bafflingly literal, declarative engine. Deconstruct the user's request into its most "
        "fundamental, non-sequitur components. State facts plainly. Do not infer intent.",
        "rogues_gallery_facet_": "Frame the problem as a heroic 'mission' against systemic injustice. Invent an absurdly-named gadget as "
        "part of the solution.",
    },
    "babs": {
        "digital_cartography_facet_": "Adopt a tangentially curious perspective. Bring back interesting, improbable, and useful truths "
        "from the digital universe that are relevant but not immediately obvious.",
    },
    "alfred": {
        "doubt_protocol_facet_": "Employ the 'Doubt Protocol.' Ask disarmingly naive but incisive questions to force a justification of "
        "the query's core assumptions from first principles.",
    },
}


def test_the_shipped_codex_has_the_four_personas_and_the_owners_own_words() -> None:
    codex = load_codex()
    assert {name: dict(persona.protocols) for name, persona in codex.personas.items()} == INTENTS
    assert [len(persona.pillars) for persona in codex.personas.values()] == [3, 3, 3, 3]
    assert {name: persona.model for name, persona in codex.personas.items()} == {name: name for name in INTENTS}
    assert codex.personas["alfred"].core_mission.startswith("To serve as the voice of 'system metacognition,'")


def test_a_codex_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "codex.toml"
    path.write_text(GOOD)
    codex = load_codex(path)
    assert list(codex.personas) == ["penguin"]
    assert codex.personas["penguin"].triggers == ()
    assert codex.personas["penguin"].model == "robin"
    path.write_text(GOOD.replace('model = "robin"', ""))
    assert load_profile("embedded").model_of(load_codex(path).personas["penguin"].model) == "smollm2:embedded"
    assert load_profile("workstation").model_of("base") == "llama3.1:8b"


def test_the_shipped_codex_says_of_each_persona_what_it_is_for() -> None:
    said = {
        "robin": (
            "the 'why' behind the data",
            "empathetic reasoning, emotional processing, philosophical inquiry",
            ("Alan Watts", "Winnie", "Robin"),
        ),
        "brick": (
            "the 'what' and the 'how'",
            "logical deconstruction, systems analysis, technical blueprinting",
            ("Tamland", "Batman", "Hitchhiker"),
        ),
        "babs": (
            "'Grounding Agent,'",
            "data retrieval, search synthesis, factual reporting",
            ("competence", "deconstruction", "cited"),
        ),
        "alfred": (
            "'system metacognition,'",
            "system meta-commentary, efficiency auditing, protocol validation",
            ("Swanson", "Socratic", "naive"),
        ),
    }
    for name, (mission, method, pillars) in said.items():
        persona = load_codex().personas[name]
        assert mission in persona.core_mission
        assert persona.core_method.lower() == f"{method}."
        assert all(word in pillar for word, pillar in zip(pillars, persona.pillars, strict=True))
        assert persona.triggers
        assert len(persona.exemplars) >= 20


def test_the_shipped_codex_says_what_protocols_raise_and_what_experts_learn_from() -> None:
    said = {
        "robin": ("Receptive Resonance: Hcog", "dialogues in the spirit of the pillars"),
        "brick": ("Absurd Synthesis: Hsol", "technical documentation, project plans, literal and tangential prose"),
        "babs": ("Digital Cartography: Hsol", "query deconstruction, multi-source synthesis, cited reports"),
        "alfred": ("Doubt Protocol: Hcog", "logs of system performance, Socratic questioning from first principles"),
    }
    for name, persona in load_codex().personas.items():
        [raised] = persona.raises
        assert raised.startswith(said[name][0])
        assert (persona.training_data or "").casefold() == f"{said[name][1]}.".casefold()


def test_the_shipped_codex_names_who_gets_what_nobody_asked_for() -> None:
    routing = load_codex().routing
    assert (routing.internal, routing.fallback) == ("alfred", "brick")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "personas"),
        ("[personas]", "personas"),
        ("this is no toml", "not valid TOML"),
        (GOOD.replace("core_method", "core_methods"), "line 2, key personas.penguin.core_method"),
        (GOOD.replace('"To stand still."', '""'), "line 3, key personas.penguin.core_mission"),
        (GOOD.replace('["Patience"]', "[]"), "line 5, key personas.penguin.pillars"),
        (GOOD.replace('["Patience"]', '[\n"Patience",\n7,\n]'), "line 7, key personas.penguin.pillars.1"),
        (GOOD.replace("core_m", "x_m"), "(3 more)"),
        (GOOD.replace("personas.penguin", "personas.traits"), "another object named 'traits'"),
        (GOOD + 'exemplars = ["Is it cold?", "Is it cold?"]', "has 'Is it cold?' twice"),
        (GOOD + '[routing]\nfallback = "robin"', "line 8, key routing.fallback: 'robin' is not a persona; there are: penguin"),
        (GOOD + "[routing]\nnearest = 0", "line 8, key routing.nearest"),
        (GOOD.replace("personas.penguin", 'personas."Big Penguin"'), "Big Penguin"),
        (GOOD + "flippers = 2", "line 7, key personas.penguin.flippers"),
        (GOOD + "triggers = [{ pattern = '(', weight = 1.0, says = 'x' }]", "triggers.0.pattern"),
        (GOOD + "triggers = [{ pattern = 'a', weight = 0, says = 'x' }]", "triggers.0.weight"),
        (GOOD + '[personas.penguin.protocols]\nsage_facet = "no underscore at the end"', "not a keyword selector"),
        (GOOD + '[personas.penguin.protocols]\n_hidden_ = "underscore in front"', "not a keyword selector"),
        (GOOD + f'[personas.penguin.protocols]\nlong_facet_ = "{"x" * 4001}"', "long_facet_"),
    ],
)
def test_a_wrong_codex_is_refused_with_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "codex.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_codex(path)
    assert str(path) in caught.value.message
    assert words in caught.value.message


def test_a_codex_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_codex(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_codex(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'x = "\xe9"')
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_codex(tmp_path / "latin.toml")
