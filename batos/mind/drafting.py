"""How a model is asked for a draft of a method, and after a refusal for another."""

from __future__ import annotations

from batos.bridge.types import ChatReply
from batos.mind import prompting
from batos.mind.states import by
from batos.mind.thinking import Thinking
from batos.objects import UvmObject

TEMPERATURES = (0.1, 0.4, 0.7, 0.9)
"""Of the first try and those after it: a model that was refused shall not write the same again."""
EXPERT_TEMPERATURES = (0.0, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0)
"""An expert is asked the same again after a refusal, by turns with another draw and with other methods of the handbook (`prompting.VIEWS`).
The former finds what the nearest methods show, which it did not take over rightly; the latter what they kept it from."""


async def asked(cycle: UvmObject, attempt: Thinking) -> ChatReply:
    """A model that writes anything: it is told what was refused, and why."""
    request = cycle.prompt = cycle.prompts[0]
    if cycle.refusals:
        source, reasons = cycle.refusals[-1]
        request = prompting.again(request, source, reasons, attempt.settings.synthesis_chars)
    temperature = TEMPERATURES[min(cycle.tries, len(TEMPERATURES) - 1)]
    return await attempt.chat(
        cycle.model, prompting.SYSTEM, request, part=cycle.selector, silent=True, by=by(cycle), temperature=temperature
    )


async def asked_of_expert(cycle: UvmObject, attempt: Thinking) -> ChatReply:
    """An expert for methods: asked the same again."""
    view, temperature = way(cycle.draws, len(cycle.prompts))
    cycle.prompt = cycle.prompts[view]
    return await attempt.chat(
        cycle.model, prompting.COMPACT_SYSTEM, cycle.prompt, part=cycle.selector, silent=True, by=by(cycle),
        temperature=temperature, seed=cycle.draws + 1, repeat_penalty=1.0,
    )  # fmt: skip


def way(draw: int, requests: int) -> tuple[int, float]:
    """Which of an expert's requests is made at a draw, and at what temperature: by turns the first one, at a higher one each time, and one
    of the others, at nought until all were made."""
    turn, other = divmod(draw, 2) if requests > 1 else (draw, 0)
    round_, view = divmod(turn, requests - 1) if other else (turn, -1)
    return view + 1, EXPERT_TEMPERATURES[min(round_, len(EXPERT_TEMPERATURES) - 1)]
