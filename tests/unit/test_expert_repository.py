"""The experts that an image knows, and the election of voices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import ExpertRefused, UnknownPersona
from batos.image import history, model_registry
from batos.image.living_image import LivingImage
from batos.mind import psm
from batos.mind.codex import load_codex
from batos.mind.incarnation import Incarnation

BASES = {"babs": "smollm2:embedded", "robin": "smollm2:embedded"}


async def opened(path: Path) -> LivingImage:
    return await LivingImage.open(
        f"file://{path / 'live_image.fs'}", steps=(Incarnation(load_codex()), psm.install, model_registry.install_experts)
    )


@pytest.fixture
async def image(tmp_path: Path) -> AsyncIterator[LivingImage]:
    made = await opened(tmp_path)
    await made.system(model_registry.begin_experts, BASES)
    yield made
    await made.close()


def facts(name: str = "weaver", version: int = 1, content: str = "c1", **more: Any) -> dict[str, Any]:
    return {
        "model": f"babs:{name}-v{version}", "persona": "babs", "expert": name, "version": version, "base": "smollm2:embedded",
        "content": content, "folder": name, "missions": ("m1",), **more,
    }  # fmt: skip


async def build(image: LivingImage, name: str = "weaver", version: int = 1, **more: Any) -> str:
    given = facts(name, version, **more)
    await image.system(model_registry.intend_expert, given)
    await image.system(model_registry.note_built, given["model"], "d" * 64, "r" * 64, "adapter", "")
    return str(given["model"])


def voice(image: LivingImage) -> str:
    return str(image.read(model_registry.voices)["babs"]["model"])


async def test_an_expert_speaks_when_it_is_built_and_not_before(image: LivingImage) -> None:
    await image.system(model_registry.intend_expert, facts())
    assert voice(image) == ""
    assert [e["state"] for e in image.read(model_registry.describe_experts)] == ["intended"]
    await image.system(model_registry.note_built, "babs:weaver-v1", "d", "r", "adapter", "")
    assert voice(image) == "babs:weaver-v1"
    (found,) = image.read(model_registry.describe_experts)
    assert (found["state"], found["speaks"], found["missions"], found["digest"]) == ("built", True, ("m1",), "d")


async def test_the_highest_version_wins_and_of_equals_the_one_that_came_last(image: LivingImage) -> None:
    await build(image, "weaver", 2)
    await build(image, "weaver", 1)
    assert voice(image) == "babs:weaver-v2"
    await build(image, "teller", 2)
    assert voice(image) == "babs:teller-v2"
    await build(image, "weaver", 3, role="methods")
    assert voice(image) == "babs:teller-v2", "a writer of methods does not speak"


async def test_what_falls_hands_over_and_what_is_built_anew_keeps_its_voice(image: LivingImage) -> None:
    await build(image, "weaver", 1)
    await build(image, "weaver", 2)
    await image.system(model_registry.intend_expert, facts("weaver", 2))
    assert voice(image) == "babs:weaver-v2", "missions wait for it"
    await image.system(model_registry.note_unusable, "babs:weaver-v2", model_registry.MISSING, "gone")
    assert voice(image) == "babs:weaver-v1"
    await image.system(model_registry.note_unusable, "babs:weaver-v1", model_registry.MISSING, "gone")
    assert voice(image) == ""


async def test_a_version_never_changes_once_it_was_built(image: LivingImage) -> None:
    await image.system(model_registry.intend_expert, facts(content="first try"))
    await build(image, content="second try")
    with pytest.raises(ExpertRefused, match="a version never changes"):
        await image.system(model_registry.intend_expert, facts(content="another"))
    assert image.read(model_registry.describe_experts)[0]["content"] == "second try"
    await image.system(model_registry.refuse_expert, facts(content=""), "wrong base")
    assert image.read(model_registry.describe_experts)[0]["state"] == "built", "a refused folder takes nothing from what is built"
    await image.system(model_registry.forget_expert, "babs:weaver-v1")
    assert len(image.read(model_registry.describe_experts)) == 1


async def test_the_operator_decides(image: LivingImage) -> None:
    one, two = await build(image, "weaver", 1), await build(image, "weaver", 2)
    await image.system(model_registry.choose_voice, "babs", one)
    assert voice(image) == one
    await build(image, "weaver", 3)
    assert voice(image) == one, "what was chosen stays"
    await image.system(model_registry.choose_voice, "babs", "plain")
    assert voice(image) == ""
    await image.system(model_registry.choose_voice, "babs", "newest")
    assert voice(image) == "babs:weaver-v3"
    with pytest.raises(ExpertRefused, match=f"experts that can: {one}, {two}, babs:weaver-v3; or choose newest or plain"):
        await image.system(model_registry.choose_voice, "babs", "babs:nobody-v1")
    with pytest.raises(ExpertRefused, match="cannot speak for robin"):
        await image.system(model_registry.choose_voice, "robin", one)
    with pytest.raises(UnknownPersona):
        await image.system(model_registry.choose_voice, "nobody", "plain")


async def test_experts_of_another_base_are_silent(image: LivingImage) -> None:
    """As after a change of the profile, and back."""
    await build(image)
    await image.system(model_registry.begin_experts, {"babs": "llama3.1:8b"})
    assert voice(image) == ""
    await image.system(model_registry.begin_experts, BASES)
    assert voice(image) == "babs:weaver-v1"


async def test_what_does_not_change_writes_nothing(image: LivingImage) -> None:
    model = await build(image)
    before = image.db.lastTransaction(), image.read(lambda root: root["lobby"].babs._p_serial)
    await image.system(model_registry.begin_experts, BASES)
    await image.system(model_registry.note_facts, model, {"about": ""})
    assert image.read(lambda root: root["lobby"].babs._p_serial) == before[1]
    assert image.db.lastTransaction() == before[0]


async def test_it_all_stays_over_a_restart_and_shows(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await first.system(model_registry.begin_experts, BASES)
    await build(first)
    before = first.read(model_registry.report_experts)
    await first.close()
    second = await opened(tmp_path)
    assert second.read(model_registry.report_experts) == before
    shown = second.read(lambda root: history.show(history.resolve(root, "babs")))
    assert shown["slots"]["voice"] == "babs:weaver-v1"
    (found,) = before["experts"]
    proxy = second.read(lambda root: history.show(history.resolve(root, found["oid"])))
    assert proxy["slots"]["state"] == "built"
    assert second.read(lambda root: model_registry.expert_repository(root) is root["lobby"].pLLM_obj.lora_repository)
    await second.close()


async def test_an_image_of_an_earlier_version_gets_the_repository(tmp_path: Path) -> None:
    old = await LivingImage.open(f"file://{tmp_path / 'live_image.fs'}", steps=(Incarnation(load_codex()), psm.install))
    await old.close()
    new = await opened(tmp_path)
    assert new.read(model_registry.report_experts)["voices"]["babs"] == {"choice": "newest", "model": ""}
    await new.close()
