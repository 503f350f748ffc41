"""What a persona said in missions that their users liked: prompts and answers, as the record has them.

The record keeps the answers of a mission's inferences and checksums of what was asked. The prompts are put together again from the
mission's thought, and one is used only where it has the checksum of the one that was asked: what cannot be rebuilt word for word
is left out.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from batos.autotelic import material
from batos.config import Settings
from batos.image import journal, ledger
from batos.mind import conversation, evidence, gate, prompts, weaving
from batos.mind.incarnation import facets, system_message
from batos.mind.signals import By
from batos.objects import UvmObject

_USER = journal.PARTS.index("user")


class Said(NamedTuple):
    """One thing that a persona said: who it is, what it was asked, what it answered.

    :ivar whole: whether it is the answer to the brief, and not that of one facet.
    """

    system: str
    prompt: str
    answer: str
    whole: bool


class Liked(NamedTuple):
    """A mission that its user rated +1, as far as a persona spoke in it.

    :ivar begun: the brief with which its conversation began: its own, where it follows no other mission.
    :ivar personas: those that took part; as are facets and description, for the entropy metric.
    """

    id: str
    brief: str
    begun: str
    said: tuple[Said, ...]
    personas: tuple[str, ...]
    facets: tuple[str, ...]
    described: int


def liked(root: Any, persona: str, settings: Settings) -> tuple[list[Liked], int]:
    """The missions that users rated +1 and in which a persona spoke, newest first; and of how many none of its prompts could be rebuilt.

    Not those rated otherwise or undone, the system's own, messages, what is answered in a form, and those of which retention dropped
    the texts.
    """
    found, lost = [], 0
    for mission in ledger.newest_first(root):
        if not _counts(mission):
            continue
        own = [cycle for cycle in _cycles(mission.thought) if str(cycle.persona.name).lower() == persona]
        if not own:
            continue
        said = tuple(one for cycle in own for one in _said(root, mission, cycle, settings))
        if said:
            found.append(Liked(str(mission.id), str(mission.brief), _begun(root, mission), said, *material.shape_of(mission.thought)))
        else:
            lost += 1
    return found, lost


def parted(missions: Sequence[Liked], share: float) -> tuple[list[Liked], list[Liked]]:
    """Those to be learned from, and those that measure what was learned: at least one of each, where there are two.

    By mission, and never by what was said in it: one conversation, or one brief, is on one side. Which side that is follows from a
    digest of the brief, so that it hardly changes as missions come.
    """
    groups: dict[str, list[Liked]] = {}
    for one in missions:
        groups.setdefault(" ".join(one.begun.lower().split()), []).append(one)
    order = sorted(groups, key=lambda brief: hashlib.sha256(brief.encode("utf-8", "replace")).digest())
    count = min(len(order) - 1, math.ceil(share * len(order)))
    held = [one for brief in order[:count] for one in groups[brief]]
    return [one for brief in order[count:] for one in groups[brief]], held


def conversations(missions: Sequence[Liked]) -> int:
    """How many missions there are that begin with different briefs."""
    return len({" ".join(one.begun.lower().split()) for one in missions})


def _counts(mission: UvmObject) -> bool:
    told = ledger.describe(mission)
    usable = told["state"] == ledger.COMPLETE and told["origin"] != "system" and not (told["message"] or told["schema"] or told["undone"])
    rated = told["rating"] is not None and told["rating"]["rating"] > 0
    return bool(usable and rated and mission.thought is not None and not journal.of(mission).spent)


def _cycles(cycle: UvmObject) -> Iterator[UvmObject]:
    yield cycle
    for inner in cycle._slots.get("cycles", ()):
        yield from _cycles(inner)


def _begun(root: Any, mission: UvmObject) -> str:
    seen = {mission.id}
    while mission.context is not None and mission.context not in seen:
        seen.add(mission.context)
        if ledger.line_of(root, mission.context) is not None:
            break
        mission = ledger.mission_of(root, mission.context)
    return str(mission.brief)


def _said(root: Any, mission: UvmObject, cycle: UvmObject, settings: Settings) -> Iterator[Said]:
    """What a cycle's persona said in it, facet by facet, and in one voice at the end."""
    slots = cycle._slots
    earlier, direct = "depth" not in slots, slots.get("depth") == "direct"
    if slots.get("flavour") == "off":
        return  # it was nobody's voice
    states, intents = root["lobby"].psm, dict(facets(cycle.persona))
    bounds = {"missions": settings.context_missions, "chars": settings.context_chars}
    before = conversation.told(root, mission, **bounds)
    turns = conversation.turns(root, mission, **bounds) if direct and "." not in str(cycle.number) else ()
    told = prompts.told("" if direct else before, cycle.brief, cycle.asked)
    passages = evidence.recorded(root, mission.id, settings.evidence_chars).get(str(cycle.brief), ())
    entries, spoken = journal.load(root, mission.id), dict(slots.get("voices", ()))
    system = system_message(cycle.persona, slots.get("flavour", "full"))

    def asked(state: UvmObject, own: str, **values: str) -> str:
        return prompts.filled(own, told, state.evidence_prompt, passages, earlier=earlier, **values)

    for name, query in slots.get("plan", ()):
        if name in intents and name in spoken:
            prompt = asked(states.DELEGATING, states.DELEGATING.meta_prompt, intent=intents[name], query=query)
            if answer := _answer(entries, cycle, "DELEGATING", name, prompt):
                yield Said(system, prompt, answer, False)
    if (spoken or direct) and not (cycle.quoted or cycle.unsure):
        weave = states.SYNTHESIZING
        prompt = asked(weave, weave.direct_prompt if direct else weave.meta_prompt, voices=weaving.voices(list(spoken.items())))
        if answer := _answer(entries, cycle, "SYNTHESIZING", None, prompt, turns):
            shown = prompt if not turns else prompt.replace(told, prompts.told(before, cycle.brief, cycle.asked))
            yield Said(system, shown, evidence.without_false_marks(answer, passages), True)


def _answer(
    entries: Sequence[journal.Inference],
    cycle: UvmObject,
    state: str,
    part: str | None,
    prompt: str,
    turns: Sequence[tuple[str, str]] = (),
) -> str:
    """What was answered to a prompt; "" where it was not asked in just these words.

    Where the gate sent an answer back, it is the one that passed.
    """
    label = By(str(cycle.number), state, str(cycle.persona.name)).label(part)
    asked = [entry for entry in entries if entry.label == label]
    user = journal.content_of("", "", prompt, None, {}, turns)[_USER]
    mark = zlib.crc32(user).to_bytes(4, "big")
    if not any(entry.parts[4 * _USER : 4 * _USER + 4] == mark for entry in asked):
        return ""
    return gate.whole(asked[-1].text.strip(), cut=asked[-1].done_reason == "length")
