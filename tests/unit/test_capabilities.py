"""What a model can do: as it is claimed, as it is found out, kept and heeded in what is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batos.bridge import capabilities
from batos.bridge.capabilities import AS_WORDS, SPEED_TOKENS, THOUGHT_TOKENS, Capabilities, KnownCapabilities, fitted_request
from batos.bridge.inference import ChatReply, ChatRequest
from batos.errors import InferenceFailed
from batos.image import model_registry as kept
from batos.testing.models import Model

SHOWN = Model(weights="a" * 64, template="{{ .Prompt }} {{ .Thinking }}", can=("completion", "tools")).shown()
OTHER = Model(weights="a" * 64, template="{{ .Prompt }} {{ .Thinking }}", can=("completion", "tools"), system="You are ROBIN.").shown()
SCHEMA = {"type": "object"}
MARKS = ("<|im_end|>", "<|im_start|>")


def test_claims() -> None:
    can = Capabilities.claimed({**SHOWN, "details": {"quantization_level": "Q4_K_M"}, "remote_host": ""})
    assert (can.parameters, can.quantization, can.chats, can.thinks, can.tools, can.vision, can.remote) == (
        8_030_261_248, "Q4_K_M", True, True, True, False, False,
    )  # fmt: skip
    assert can.context is None
    assert Capabilities.claimed({"model_info": {"general.architecture": "x", "x.context_length": 4096}}).context == 4096


@pytest.mark.parametrize(
    "shown",
    [
        {**SHOWN, "capabilities": ["embedding"]},
        {**SHOWN, "template": "{{ .Prompt }}"},
        {"template": ""},
    ],
)
def test_what_does_not_chat(shown: dict[str, Any]) -> None:
    assert not Capabilities.claimed(shown).chats


def test_a_renderer_is_as_good_as_a_template_and_an_old_ollama_says_nothing() -> None:
    rendered = Model(weights="a" * 64, template="{{ .Prompt }}", renderer="qwen3-coder").shown()
    assert Capabilities.claimed(rendered).chats
    assert Capabilities.claimed({"template": "{{ .Prompt }} and more"}).chats
    assert Capabilities.claimed({**SHOWN, "remote_host": "https://elsewhere"}).remote


def test_what_was_found_out_wins_and_holds_for_all_of_the_same_making() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    known = KnownCapabilities(lambda making, record: told.append((making, record)))
    assert known.of("one") is None
    known.note("one", SHOWN)
    known.note("two", OTHER)
    known.note("else", Model(weights="b" * 64, template="{{ .Prompt }} {{ .Thinking }}").shown())
    can = known.of("one")
    assert can is not None
    known.found("one", Capabilities(thinks=False, tools=True, probed=frozenset({"think"})))
    assert [one.thinks for one in map(known.of, ("one", "two", "else")) if one] == [False, False, True]
    again = KnownCapabilities()
    again.recall(told)
    again.note("two", OTHER)
    assert again.of("two") == known.of("two")
    assert "tools" not in told[0][1]  # only claimed: said again by Ollama at any time


def test_speed_is_kept_once_and_known_always() -> None:
    told: list[Any] = []
    known = KnownCapabilities(lambda making, record: told.append(record["speed"]))
    known.measured("one", 100, 1000)  # of no model that is known
    known.note("one", SHOWN)
    known.measured("one", SPEED_TOKENS - 1, 1000)
    known.measured("one", 100, 1000)
    known.measured("one", 100, 500)
    assert told == [100.0]
    assert (found := known.of("one")) is not None
    assert found.speed == 200.0


def test_the_image_keeps_the_last_ones() -> None:
    root: dict[str, Any] = {}
    assert kept.recall_capabilities(root) == []
    for number in (1, 2, 3, 2):
        kept.keep_capabilities(root, f"m{number}", {"speed": number}, 2)
    assert kept.recall_capabilities(root) == [("m3", {"speed": 3}), ("m2", {"speed": 2})]
    assert type(root["known_models"]).__module__ == "batos.image"


# --- what is sent


def request(**options: Any) -> ChatRequest:
    return ChatRequest("m", "s", "u", options=tuple(sorted({"num_ctx": 8192, "num_predict": 100, **options}.items())))


def sent(can: Capabilities | None, *, writes: Callable[[str], bool] = lambda mark: False, **options: Any) -> dict[str, Any]:
    return dict(fitted_request(request(**options), can, MARKS, writes).options)


def test_think_is_sent_only_where_it_may_be() -> None:
    assert sent(None, think=True)["think"] is True
    assert "think" not in sent(Capabilities(), think=True)
    assert "think" not in sent(Capabilities(), think=False)
    thinker, loud = Capabilities(thinks=True), Capabilities(thinks=True, silenced=False)
    assert sent(thinker)["think"] is False
    assert sent(thinker, think=True)["think"] is True
    assert sent(loud, think=False)["think"] is True


def test_who_thinks_has_tokens_for_it_within_the_context() -> None:
    thinker = Capabilities(thinks=True)
    assert sent(thinker)["num_predict"] == 100
    assert sent(thinker, think=True)["num_predict"] == 100 + THOUGHT_TOKENS
    assert sent(thinker, think=True, num_ctx=2048)["num_predict"] == 1024
    assert sent(thinker, think=True, num_ctx=2048, num_predict=2000)["num_predict"] == 2000


def test_stop_marks_of_the_profile_go_where_they_stand_in_the_template() -> None:
    assert "stop" not in sent(Capabilities(), stop=MARKS)
    assert sent(Capabilities(), stop=MARKS, writes=lambda mark: mark == "<|im_end|>")["stop"] == ("<|im_end|>",)
    assert sent(Capabilities(), stop=("END",))["stop"] == ("END",)  # named by the user
    assert fitted_request(request(), Capabilities(), MARKS, lambda mark: False) == request()


def test_a_schema_that_is_not_kept_to_is_said_in_words() -> None:
    from dataclasses import replace

    asked = replace(request(), schema=SCHEMA)
    assert fitted_request(asked, Capabilities(), (), bool).schema == SCHEMA
    words = fitted_request(asked, Capabilities(format=False), (), bool)
    assert words.schema is None
    assert words.user == f'u\n\n{AS_WORDS}\n{{"type": "object"}}'


# --- probes


def model(**says: Any) -> capabilities.Ask:
    """One that thinks and answers as it is said: `says` has what it answers to a request with `think`, a schema, tools, images."""

    async def ask(request: ChatRequest) -> ChatReply:
        options = dict(request.options)
        of = next((k for k in ("tools", "images", "schema") if getattr(request, k)), "") or f"think_{options.get('think')}"
        answer = says.get(of, ("yes", ""))
        if isinstance(answer, InferenceFailed):
            raise answer
        return ChatReply(answer[0], request.model, thinking=answer[1])

    return ask


REFUSED = InferenceFailed("it does not support that", cause="refused")


@pytest.mark.parametrize(
    ("says", "wanted", "expected"),
    [
        ({"think_True": ("yes", "hm")}, "think", {"thinks": True, "silenced": True}),
        ({"think_False": ("", "hm")}, "think", {"thinks": True, "silenced": False}),
        ({"think_True": REFUSED}, "think", {"thinks": False}),
        ({"schema": ('{"answer": "yes"}', "")}, "format", {"format": True}),
        ({"schema": ("Yes.", "")}, "format", {"format": False}),
        ({"schema": REFUSED}, "format", {"format": False}),
        ({"tools": REFUSED}, "tools", {"tools": False}),
        ({}, "tools", {"tools": True}),
        ({"images": REFUSED}, "images", {"vision": False}),
    ],
)
async def test_probes(says: dict[str, Any], wanted: str, expected: dict[str, Any]) -> None:
    claims = Capabilities(thinks=True, tools=True, vision=True)
    found = await capabilities.probe(model(**says), "m", claims, {wanted}, {"num_ctx": 512})
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.probed == {wanted}


async def test_an_ollama_that_is_away_says_nothing_of_a_model() -> None:
    away = InferenceFailed("none answers", cause="unreachable")
    with pytest.raises(InferenceFailed):
        await capabilities.probe(model(think_True=away), "m", Capabilities(thinks=True), {"think"}, {})


async def test_what_is_not_claimed_is_not_asked_for() -> None:
    async def never(request: ChatRequest) -> ChatReply:
        raise AssertionError(request)

    found = await capabilities.probe(never, "m", Capabilities(), {"think", "tools", "images"}, {})
    assert found == Capabilities(probed=frozenset({"think", "tools", "images"}))
