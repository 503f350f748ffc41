"""An expert that writes methods, hired and taught by a test."""

from __future__ import annotations

from typing import Any

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.forge import method_prompts
from batos.image import model_registry, taught_examples
from batos.image.taught_examples import Example
from tests.support.missions import FakeInference, answer

EXPERT = "brick:method-writer-v1"
DOUBLE, SQUARE = ("def twice_(self, number):\n    return number * 2\n", "def twice_(self, number):\n    return number ** 2\n")


async def hire(kernel: Kernel, base: str = "smollm2:embedded") -> None:
    """An expert for methods, as the factory records one."""
    facts = {
        "model": EXPERT, "persona": "brick", "expert": "method-writer", "version": 1, "base": base, "content": "c", "folder": "f",
        "role": "methods",
    }  # fmt: skip
    await kernel.image.system(model_registry.begin_experts, {"brick": "smollm2:embedded"})
    await kernel.image.system(model_registry.intend_expert, facts)
    await kernel.image.system(model_registry.note_built, EXPERT, "d", "r", "adapter", "")


def writing(inference: FakeInference, *sources: str) -> list[ChatRequest]:
    """A model that writes these, one after the other, whoever it is; the requests it gets."""
    asked: list[ChatRequest] = []

    def say(request: ChatRequest) -> str:
        if request.system not in (method_prompts.COMPACT_SYSTEM, method_prompts.SYSTEM):
            return answer(request)
        asked.append(request)
        return sources[min(len(asked), len(sources)) - 1]

    inference.say = say
    return asked


def teach(root: Any, example: Example, selector: str = "twice_") -> None:
    """System transaction: an example of a message to the object `thing`."""
    taught_examples.teach(root, root["lobby"].thing._p_oid, selector, [example.to_json()], "", 8)
