"""A voice as a change: it waits until it is chosen, is rehearsed on recorded missions, speaks if it is better, and goes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import change_types, changes
from batos.autotelic.changes import Proposal
from batos.errors import ExpertRefused, InvalidInput, UnknownPersona
from batos.image import model_registry
from tests.support.autonomy import BRIEFS, improving, listed, stepped, thought, varied
from tests.support.methods import sent
from tests.support.missions import FakeInference, mind

VOICE = "robin:voice-v1"


async def hire(kernel: Kernel, model: str = VOICE, version: int = 1, **more: Any) -> None:
    """An expert that may speak for robin once it is chosen, as the factory records one."""
    facts = {
        "model": model, "persona": "robin", "expert": "voice", "version": version, "base": "smollm2:embedded", "content": model,
        "folder": "f", "on_choice": True, **more,
    }  # fmt: skip
    await kernel.image.system(model_registry.begin_experts, {"robin": "smollm2:embedded"})
    await kernel.image.system(model_registry.intend_expert, facts)
    await kernel.image.system(model_registry.note_built, model, "d", "r", "adapter", "")


def voice(kernel: Kernel) -> dict[str, str]:
    return kernel.image.read(model_registry.voices)["robin"]


def speaking() -> FakeInference:
    """A service where the voice is a model of its own."""
    inference = FakeInference()
    inference.digests[VOICE] = "e" * 64
    return inference


async def tried(kernel: Kernel, id: str = "try", model: str = VOICE, persona: str = "robin") -> dict[str, Any]:
    return await sent(kernel, id, "autotelic.changes", "try_voice_", persona, model)


async def test_a_voice_that_waits_for_a_choice_does_not_speak_unasked(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await hire(kernel)
        assert voice(kernel) == {"choice": "newest", "model": ""}
        await hire(kernel, "robin:plainly-v1", on_choice=False)
        assert voice(kernel)["model"] == "robin:plainly-v1"
        await kernel.image.system(model_registry.choose_voice, "robin", VOICE)
        assert voice(kernel) == {"choice": VOICE, "model": VOICE}
        await kernel.image.system(model_registry.choose_voice, "robin", "newest")
        assert voice(kernel)["model"] == "robin:plainly-v1"


async def test_a_voice_is_rehearsed_speaks_where_it_is_better_and_goes_back(tmp_path: Path) -> None:
    inference = speaking()
    inference.say = varied(lambda request: request.model == VOICE)
    async with improving(tmp_path, inference) as kernel:
        await hire(kernel)
        await thought(kernel, *BRIEFS, persona="robin")
        assert (await tried(kernel))["result"]["value"] == {"change": 1}
        assert voice(kernel)["model"] == "", "not yet"
        (change,) = await stepped(kernel)
        assert (change["state"], change["kind"], change["source"]) == (changes.PROMOTED, "voice", change_types.ASKED_BY_USER)
        told = change["comparison"]
        assert (told["missions"], told["unknown"]) == (4, 0)
        assert told["changed"]["cem"] > told["without"]["cem"]
        assert voice(kernel) == {"choice": VOICE, "model": VOICE}
        await thought(kernel, BRIEFS[0], prefix="after", persona="robin")
        assert {request.model for request in inference.asked[-2:]} == {VOICE}
        await kernel.undoing.undo_change(1, "a user said so")
        assert voice(kernel) == {"choice": "newest", "model": ""}


async def test_a_voice_that_says_nothing_is_refused(tmp_path: Path) -> None:
    inference = speaking()
    before = inference.say
    inference.say = lambda request: "" if request.model == VOICE and request.schema is None else before(request)
    async with improving(tmp_path, inference) as kernel:
        await hire(kernel)
        await thought(kernel, *BRIEFS, persona="robin")
        await tried(kernel)
        (change,) = await stepped(kernel)
        assert change["state"] == changes.REFUSED
        assert "missions that fail: 0 before, 4 with it" in change["reason"]
        assert voice(kernel) == {"choice": "newest", "model": ""}


async def test_what_cannot_be_tried_says_why(tmp_path: Path) -> None:
    async with improving(tmp_path / "on", FakeInference()) as kernel:
        await hire(kernel)
        assert (await tried(kernel, "m1", "robin:nobody-v1"))["error"]["code"] == ExpertRefused.code
        assert (await tried(kernel, "m2", persona="nobody"))["error"]["code"] == UnknownPersona.code
        await kernel.image.system(model_registry.choose_voice, "robin", VOICE)
        assert "speaks with robin:voice-v1 already" in (await tried(kernel, "m3"))["error"]["message"]
        assert listed(kernel) == []
        await kernel.image.system(model_registry.choose_voice, "robin", "plain")
        with pytest.raises(InvalidInput, match="plain already"):
            kernel.image.read(change_types.check_voice, Proposal("voice", "robin", "plain", "why"), None)
    async with mind(tmp_path / "off", FakeInference()) as kernel:
        await hire(kernel)
        error = (await tried(kernel))["error"]
        assert (error["code"], "experts --voice" in error["message"]) == (InvalidInput.code, True)
