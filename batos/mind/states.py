"""What each state of the PSM does: host primitives, reached through the state objects' `behaviour` slots.

A behaviour takes the cycle and answers the name of the next state, or None where the cycle ends.
"""

from __future__ import annotations

import asyncio
from typing import Any

from batos.errors import InferenceFailed, QualityRefused
from batos.mind import weaving
from batos.mind.incarnation import facets, system_message
from batos.mind.thinking import current
from batos.objects import Primitive, UvmObject


@Primitive.register
async def idle(cycle: UvmObject) -> str:
    """IDLE: a brief has come; take the facets that will think about it."""
    chosen = list(facets(cycle.persona))[: current().settings.facets_limit]
    cycle.facets = tuple(chosen)
    return "DECOMPOSING"


@Primitive.register
async def decompose(cycle: UvmObject) -> str:
    """DECOMPOSING: ask the model for a sub-query per facet, as JSON of a schema."""
    names = [name for name, _ in cycle.facets]
    prompt = weaving.fill(
        cycle.meta_prompt,
        brief=cycle.brief,
        facets="\n".join(f"- {name}: {intent}" for name, intent in cycle.facets),
        names=", ".join(names),
    )
    reply = await current().chat(
        cycle.persona.model, system_message(cycle.persona), prompt, schema=weaving.plan_schema(names), part="", temperature=0.2
    )
    plan, cycle.plan_source = weaving.read_plan(reply.text, names, cycle.brief)
    cycle.plan = tuple(plan.items())
    return "DELEGATING"


@Primitive.register
async def delegate(cycle: UvmObject) -> str:
    """DELEGATING: the facets think at once, each by its intent. One answer is enough to go on."""
    intents = dict(cycle.facets)
    answers = await asyncio.gather(*(_facet(cycle, name, intents[name], query) for name, query in cycle.plan), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, InferenceFailed):
            raise answer
    spoken = [
        (name, text)
        for (name, _), text in zip(cycle.plan, answers, strict=True)
        if isinstance(text, str) and not weaving.fault_of(text, "")
    ]
    if not spoken:
        for answer in answers:
            if isinstance(answer, InferenceFailed):
                raise answer
        raise QualityRefused("no facet had anything to say; try a larger model or another persona")
    cycle._tmp_synthesis_ = tuple(spoken)
    return "SYNTHESIZING"


async def _facet(cycle: UvmObject, name: str, intent: str, query: str) -> str:
    prompt = weaving.fill(cycle.meta_prompt, brief=cycle.brief, intent=intent, query=query)
    reply = await current().chat(cycle.persona.model, system_message(cycle.persona), prompt, part=name, temperature=0.7)
    return reply.text.strip()


@Primitive.register
async def synthesize(cycle: UvmObject) -> str:
    """SYNTHESIZING: weave what the facets said into one answer, and pass the quality gate, with one revision."""
    fault: str | None = None
    for temperature in (0.5, 0.9):
        prompt = weaving.fill(cycle.meta_prompt, brief=cycle.brief, voices=weaving.voices(cycle._tmp_synthesis_))
        if fault:
            prompt += f"\n\nAn earlier answer was refused because {fault}. Write another."
        reply = await current().chat(cycle.persona.model, system_message(cycle.persona), prompt, temperature=temperature)
        text = reply.text.strip()
        fault = weaving.fault_of(text, cycle.brief)
        if fault is None:
            cycle._tmp_synthesis_ = text
            return "COMPLETE"
    raise QualityRefused(f"the answer was refused twice, the last time because {fault}; try a larger model or another persona")


@Primitive.register
async def complete(cycle: UvmObject) -> None:
    """COMPLETE: hand over the answer, and leave nothing of the working state behind."""
    current().answer = cycle._tmp_synthesis_
    del cycle._slots["_tmp_synthesis_"]


@Primitive.register
async def failed(cycle: UvmObject) -> None:
    """FAILED: nothing of this cycle is kept; its transaction is doomed by the one who runs it."""


STATES: dict[str, dict[str, Any]] = {
    "IDLE": {
        "behaviour": idle,
        "successors": ("DECOMPOSING",),
        "comment": "I am where a cycle begins: a brief is there, nothing has been thought.",
    },
    "DECOMPOSING": {
        "behaviour": decompose,
        "successors": ("DELEGATING",),
        "comment": "I take a brief apart into one sub-query per facet.",
        "meta_prompt": "Request: $brief\n\nWays of thinking:\n$facets\n\n"
        "For each way of thinking write one short question or task that it should work on to answer the request. "
        "Answer with a JSON object with the keys $names.",
    },
    "DELEGATING": {
        "behaviour": delegate,
        "successors": ("SYNTHESIZING",),
        "comment": "I let the facets think, all at once.",
        "meta_prompt": "$intent\n\nThe request is: $brief\n\nWork on this part of it: $query\n\nAnswer in at most five sentences.",
    },
    "SYNTHESIZING": {
        "behaviour": synthesize,
        "successors": ("COMPLETE",),
        "comment": "I weave what the facets said into one answer.",
        "meta_prompt": "Request: $brief\n\nNotes to use:\n$voices\n\n"
        "Write the answer to the request, in one clear voice, using what is useful in the notes. Do not mention the notes.",
    },
    "COMPLETE": {"behaviour": complete, "successors": (), "comment": "I am where a cycle ends well; what it did is committed."},
    "FAILED": {"behaviour": failed, "successors": (), "comment": "I am where a cycle ends after any exception; nothing it did is kept."},
}
