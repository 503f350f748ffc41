"""`batos train persona`: from the missions that users liked to a voice of the persona that spoke in them, in the staging folder.

The record keeps the answers of a mission's inferences and checksums of the prompts. The prompts are rebuilt from the mission's thought.
A prompt is used only if its checksum matches, that is, if it was rebuilt word for word.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from batos.autotelic import entropy, entropy_records
from batos.autotelic.entropy import Kinds, Parts, Text, Thought, Window
from batos.bridge.lora import adapters
from batos.config import Settings
from batos.errors import ConfigError, ExpertRefused, InvalidInput, UnknownPersona
from batos.image import journal, ledger
from batos.mind import answer_checks, evidence, plans, prompts
from batos.mind.evidence import EvidenceLimits
from batos.mind.incarnation import facets, system_message
from batos.mind.inference import InferenceAsker
from batos.objects import Root, UvmObject
from batos.training.dataset import answered, as_read, digest_of
from batos.training.lora import Pairs, Trainer, TrainingPlan, begun
from batos.training.workspace import (
    Expert,
    TrainingLimits,
    TrainingLineage,
    alone,
    base_of,
    check_place,
    export,
    known_versions,
    line,
    next_version,
    reading,
)

_USER = journal.PARTS.index("user")


class Said(NamedTuple):
    """One answer of a persona, with its system prompt and prompt.

    :ivar whole: True for the answer to the brief, False for the answer of one facet.
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


def liked(root: Root, persona: str, settings: Settings) -> tuple[list[Liked], int]:
    """Return the missions that users rated +1 and in which a persona spoke, newest first. Return also the number of those without a prompt
    that could be rebuilt.

    Left out are missions that were rated otherwise or undone, system missions, messages, answers of a schema, and missions whose texts
    retention dropped.
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
            found.append(
                Liked(str(mission.id), str(mission.brief), _begun(root, mission), said, *entropy_records.shape_of(mission.thought))
            )
        else:
            lost += 1
    return found, lost


def parted(missions: Sequence[Liked], share: float) -> tuple[list[Liked], list[Liked]]:
    """Split missions into those to learn from and those to measure by: at least one of each, where there are two.

    A conversation, or a brief, is on one side. The side follows from a digest of the brief, so it hardly changes as missions come.
    """
    groups: dict[str, list[Liked]] = {}
    for one in missions:
        groups.setdefault(" ".join(one.begun.lower().split()), []).append(one)
    order = sorted(groups, key=lambda brief: hashlib.sha256(brief.encode("utf-8", "replace")).digest())
    count = min(len(order) - 1, math.ceil(share * len(order)))
    held = [one for brief in order[:count] for one in groups[brief]]
    return [one for brief in order[count:] for one in groups[brief]], held


def conversations(missions: Sequence[Liked]) -> int:
    """Return the number of missions that begin with different briefs."""
    return len({" ".join(one.begun.lower().split()) for one in missions})


def _counts(mission: UvmObject) -> bool:
    told = ledger.describe(mission)
    usable = told.state == ledger.COMPLETE and told.origin != "system" and not (told.message or told.schema or told.undone)
    rated = told.rating is not None and told.rating["rating"] > 0
    return bool(usable and rated and mission.thought is not None and not journal.of(mission).spent)


def _cycles(cycle: UvmObject) -> Iterator[UvmObject]:
    yield cycle
    for inner in cycle._slots.get("cycles", ()):
        yield from _cycles(inner)


def _begun(root: Root, mission: UvmObject) -> str:
    seen = {mission.id}
    while mission.context is not None and mission.context not in seen:
        seen.add(mission.context)
        if ledger.line_of(root, mission.context) is not None:
            break
        mission = ledger.mission_of(root, mission.context)
    return str(mission.brief)


def _said(root: Root, mission: UvmObject, cycle: UvmObject, settings: Settings) -> Iterator[Said]:
    """Yield the answers of the persona of a cycle: facet by facet, then the woven one."""
    slots = cycle._slots
    earlier, direct = "depth" not in slots, slots.get("depth") == "direct"
    if slots.get("flavour") == "off":
        return  # no persona spoke
    states, intents = root["lobby"].psm, dict(facets(cycle.persona))
    limits, shown_before = EvidenceLimits.of(settings), journal.told_before_of(root, mission.id)
    shown = None if shown_before is None else prompts.ConversationRange(*shown_before)
    talk = prompts.earlier_talk(root, mission, shown, limits.former_bounds)
    passages = evidence.recorded(root, mission.id, limits.chars).get(str(cycle.brief), ())
    if direct and "." in str(cycle.number):
        talk = prompts.EarlierTalk()
    before, turns = ("", talk.turns) if direct else (talk.text, ())
    words = "" if "." in str(cycle.number) else talk.instructions
    parts = prompts.fitted_to_window(cycle.brief, before, turns, passages, None, untold=talk.untold, gap=talk.gap, instructions=words)
    told = prompts.brief_text(parts.before, parts.brief, cycle.asked)
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
        prompt = asked(weave, weave.direct_prompt if direct else weave.meta_prompt, voices=plans.voices(list(spoken.items())))
        if answer := _answer(entries, cycle, "SYNTHESIZING", None, prompt, parts.turns):
            read = prompt if not turns else prompt.replace(told, prompts.brief_text(talk.text, parts.brief, cycle.asked))
            yield Said(system, read, evidence.without_false_marks(answer, passages), True)


def _answer(
    entries: Sequence[journal.InferenceRecord],
    cycle: UvmObject,
    state: str,
    part: str | None,
    prompt: str,
    turns: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the answer to a prompt; "" where the prompt was not asked in just these words.

    Where the gate refused an answer, it is the one that passed.
    """
    label = InferenceAsker(str(cycle.number), state, str(cycle.persona.name)).label(part)
    asked = [entry for entry in entries if entry.label == label]
    user = journal.content_of("", "", prompt, None, {}, turns)[_USER]
    mark = zlib.crc32(user).to_bytes(4, "big")
    if not any(entry.parts[4 * _USER : 4 * _USER + 4] == mark for entry in asked):
        return ""
    return answer_checks.without_partial_end(asked[-1].text.strip(), cut=asked[-1].done_reason == "length")


RATE, BATCH, PASSES = 3e-4, 4, 3
"""Learning rate, batch size and passes. With so few examples, more passes or larger steps would make the model memorise them."""
ANSWER_TOKENS = 64  # tokens of an answer that is compared: enough to show its content


class KnownVoice(NamedTuple):
    """The image's data for a voice: missions to learn from, missions to measure by, inputs of the entropy metric, and known versions."""

    learned: list[Liked]
    held: list[Liked]
    kinds: Kinds
    weights: Parts
    revision: str
    versions: list[int]


class VoiceFigures(NamedTuple):
    """The figures of a voice on missions that it did not learn from.

    :ivar perplexity: perplexity of the answers that users liked.
    :ivar cem: mean entropy metric of the voice's own answers, and the number that the gate refuses; None without such answers.
    """

    perplexity: float
    cem: float | None = None
    refused: int | None = None


def voice_plan(plan: TrainingPlan) -> TrainingPlan:
    """Return the plan of a voice's training, within what a plan allows."""
    return dataclasses.replace(plan, rate=RATE, batch=BATCH, passes=PASSES)


def train_voice(
    settings: Settings,
    plan: TrainingPlan,
    staging: Path,
    persona: str,
    *,
    image: str,
    resume: bool = False,
    tell: Callable[[str], None] = lambda words: None,
) -> Path:
    """Train a voice for a persona on the base of the profile. Stage it if it is better than the plain model and what is staged.

    :param image: URI of the image whose missions are learned from.
    :param resume: resume an interrupted training.
    :returns: the expert's folder.
    :raises ConfigError: without consent, or if the base's weights are not available as a file, the extra is missing, or the staging
        folder cannot be written.
    :raises UnknownPersona: if the image has no persona of that name.
    :raises InvalidInput: if too few missions are usable, there is nothing to resume, or other data, another training runs, or a staged
        voice has another shape.
    :raises ExpertRefused: if the new voice is worse; then nothing is staged.
    """
    if settings.memory.training_consent != "on":
        raise ConfigError(
            "what missions say would be learned into weights, which may be passed on. If you agree, say so: "
            "--set memory.training_consent=on, "
            'or training_consent = "on" in the section [memory] of batos.toml'
        )
    persona = persona.lower()
    source, weights = base_of(settings)
    work = settings.data / "training" / name_of(persona)
    if resume:
        begun(work, plan)
    known = _known(settings, image, persona)
    data = list(dict.fromkeys(_pairs(known.learned, TrainingLimits.of(settings).chars)))
    answers = {answer for _, answer in data}
    held = [pair for pair in dict.fromkeys(_pairs(known.held, TrainingLimits.of(settings).chars)) if pair[1] not in answers]
    if not (data and held):
        raise InvalidInput(f"all that {persona} said is the same, or longer than {TrainingLimits.of(settings).chars} characters")
    tell(f"{len(data)} examples from {len(known.learned)} missions; {len(held)} from {len(known.held)} others measure")
    expert = Expert(persona, "voice", "voice", f"Speaks as {persona.upper()} did in missions that were rated +1.", on_choice=True)
    folder = staging / name_of(persona)
    check_place(folder)
    next_version(folder, expert, known.versions)  # report an obstacle now, not at the end of the training
    with alone(work):
        digest, rivals = digest_of(data), {}
        if (file := folder / adapters.WEIGHTS).exists():
            earlier = Trainer(weights, work, plan)
            try:
                earlier.take(earlier.read(file))
            except InvalidInput:
                raise InvalidInput(f"{file.parent} holds a voice of another making; move it away, or call it otherwise") from None
            rivals["the voice that is staged"] = _measured(earlier, held, known, settings)
        trainer = Trainer(weights, work, plan)
        rivals["the plain model"] = plain = _measured(trainer, held, known, settings)
        for name, figures in rivals.items():
            tell(f"{name}: {_told(figures)}")
        if resume and trainer.resume(digest):
            tell(f"going on at step {trainer.step}")
        trainer.train(data, (), digest, lambda point, done: tell(line(point, done)), TrainingLimits.of(settings).save_s)
        tuned = _measured(trainer, held, known, settings)
        tell(f"the new voice: {_told(tuned)}")
        if worse := [
            why for name, figures in rivals.items() for why in worse_than(figures, tuned, TrainingLimits.of(settings).entropy, name)
        ]:
            raise ExpertRefused(f"the new voice of {persona} is not staged: {'; '.join(worse)}; rate more missions, or train it longer")
        lineage = TrainingLineage(
            digest, plan.seed, known.revision, tuple(one.id for one in known.learned), _figures(trainer, plain, tuned, len(data), len(held))
        )
        return export(trainer, folder, expert, source, lineage, next_version(folder, expert, known.versions))


def name_of(persona: str) -> str:
    """Return the folder name of a persona's voice."""
    return f"{persona}-voice"


def worse_than(rival: VoiceFigures, tuned: VoiceFigures, margin: float, name: str) -> list[str]:
    """Return in words how a voice is worse than another one; empty if it may speak.

    :param margin: largest accepted fall of the entropy of its answers.
    :param name: the other voice, in words.
    """
    found = []
    if not tuned.perplexity < rival.perplexity:
        found.append(f"on what it did not learn its perplexity is {tuned.perplexity:.2f}, that of {name} {rival.perplexity:.2f}")
    if rival.cem is not None and tuned.cem is not None and tuned.cem < rival.cem - margin:
        found.append(f"the entropy of its answers is {tuned.cem:.3f}, with {name} {rival.cem:.3f}")
    if rival.refused is not None and tuned.refused is not None and tuned.refused > rival.refused:
        found.append(f"the gate refuses {tuned.refused} of its answers, {rival.refused} of those of {name}")
    return found


def _known(settings: Settings, image: str, persona: str) -> KnownVoice:
    with reading(image) as (root, revision):
        there = root["lobby"].personas
        if persona not in there:
            raise UnknownPersona(f"no persona {persona!r}; there are: {', '.join(there)}")
        found, lost = liked(root, persona, settings)
        if (count := conversations(found)) < TrainingLimits.of(settings).missions:
            left = f"; of {lost} more the prompts cannot be rebuilt" if lost else ""
            raise InvalidInput(
                f"{persona} spoke in {count} missions with briefs of their own that were rated +1{left}; a voice takes "
                f"{TrainingLimits.of(settings).missions}: `batos rate MISSION +1` rates one"
            )
        learned, held = parted(found, TrainingLimits.of(settings).held_out)
        return KnownVoice(
            learned,
            held,
            entropy_records.persona_kinds(root),
            entropy_records.weights_of(root),
            revision,
            known_versions(root, persona, "voice"),
        )


def _pairs(missions: Sequence[Liked], chars: int) -> Pairs:
    read = [(as_read(said.prompt, said.system), answered(said.answer)) for one in missions for said in one.said]
    return [(prompt, answer) for prompt, answer in read if len(prompt) + len(answer) <= chars]


def _measured(trainer: Trainer, held: Pairs, known: KnownVoice, settings: Settings) -> VoiceFigures:
    """Return the figures of the present model."""
    asked = [(one, next((said for said in one.said if said.whole), None)) for one in known.held]
    wholes = [(one, said) for one, said in asked if said is not None and len(said.prompt) <= TrainingLimits.of(settings).chars]
    if not (wholes := wholes[: TrainingLimits.of(settings).answers]):
        return VoiceFigures(trainer.perplexity(held))
    answers = trainer.answers([as_read(said.prompt, said.system) for _, said in wholes], ANSWER_TOKENS)
    window, refused, values = Window(len(wholes)), 0, []
    for (one, _), answer in zip(wholes, answers, strict=True):
        refused += answer_checks.fault_of(answer, one.brief) is not None
        brief, said = (Text(entropy.words_of(text)) for text in (one.brief, answer))
        parts, _ = window.take(Thought(one.personas, one.facets, brief, said, one.described), known.kinds)
        values.append(entropy.composite(parts, known.weights))
    return VoiceFigures(trainer.perplexity(held), sum(values) / len(values), refused)


def _told(figures: VoiceFigures) -> str:
    words = f"perplexity {figures.perplexity:.2f}"
    return words if figures.cem is None else f"{words}, entropy {figures.cem:.3f}, {figures.refused} answers that the gate refuses"


def _figures(trainer: Trainer, plain: VoiceFigures, tuned: VoiceFigures, learned: int, held: int) -> dict[str, float]:
    return {
        "steps": trainer.step, "seconds": round(trainer.seconds), "examples": learned, "held_out": held,
        **{f"plain_{name}": round(value, 4) for name, value in plain._asdict().items() if value is not None},
        **{f"tuned_{name}": round(value, 4) for name, value in tuned._asdict().items() if value is not None},
    }  # fmt: skip
