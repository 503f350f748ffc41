"""`batos train persona`: from the missions that users liked to a voice of the persona that spoke in them, in the staging folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from batos.autotelic import assessments, entropy, material
from batos.autotelic.entropy import Kinds, Parts, Text, Thought
from batos.autotelic.window import Window
from batos.bridge import adapters
from batos.config import Settings
from batos.errors import ConfigError, ExpertRefused, InvalidInput, UnknownPersona
from batos.mind import gate
from batos.training.base import alone, base_of, known_versions, line, reading
from batos.training.dataset import answered, as_read, digest_of
from batos.training.export import Expert, Lineage, check_place, export, next_version
from batos.training.lora import Pairs, Plan, Trainer, begun
from batos.training.missions import Liked, conversations, liked, parted

RATE, BATCH, PASSES = 3e-4, 4, 3
"""Of the few examples there are more passes, or larger steps, would be learned by heart."""
ANSWER_TOKENS = 64  # of an answer that is compared: what it says, it says by then


class Known(NamedTuple):
    """What the image gives: missions to learn from and missions that measure, what the entropy metric needs besides, and the versions of
    the voice that it knows."""

    learned: list[Liked]
    held: list[Liked]
    kinds: Kinds
    weights: Parts
    revision: str
    versions: list[int]


class Figures(NamedTuple):
    """What a voice is like on missions that it did not learn from.

    :ivar perplexity: of the answers that users liked.
    :ivar cem: mean entropy metric of answers of its own, and how many of them the gate refuses; None where none were asked for.
    """

    perplexity: float
    cem: float | None = None
    refused: int | None = None


def voice_plan(plan: Plan) -> Plan:
    """How a voice is trained, within what a plan allows."""
    return dataclasses.replace(plan, rate=RATE, batch=BATCH, passes=PASSES)


def train_voice(
    settings: Settings,
    plan: Plan,
    staging: Path,
    persona: str,
    *,
    image: str,
    resume: bool = False,
    tell: Callable[[str], None] = lambda words: None,
) -> Path:
    """Train a voice for a persona on the base of the profile, and stage it if it is better than the plain model and what is staged.

    :param image: URI of the image whose missions are learned from.
    :param resume: go on with a training that was interrupted.
    :returns: the expert's folder.
    :raises ConfigError: without consent, or where the base's weights are not to be had as a file, the extra is missing, or the staging
        folder cannot be written.
    :raises UnknownPersona: if the image has none of that name.
    :raises InvalidInput: where too few missions can be learned from, for a resume of nothing or with other data, beside another training,
        or a staged voice of another shape.
    :raises ExpertRefused: if it came out worse; nothing is staged then.
    """
    if settings.training_consent != "on":
        raise ConfigError(
            "what missions say would be learned into weights, which may be passed on; if you agree, say so: --set training_consent=on, "
            'or training_consent = "on" in batos.toml'
        )
    persona = persona.lower()
    source, weights = base_of(settings)
    work = settings.data / "training" / name_of(persona)
    if resume:
        begun(work, plan)
    known = _known(settings, image, persona)
    data = list(dict.fromkeys(_pairs(known.learned, settings.training_chars)))
    answers = {answer for _, answer in data}
    held = [pair for pair in dict.fromkeys(_pairs(known.held, settings.training_chars)) if pair[1] not in answers]
    if not (data and held):
        raise InvalidInput(f"all that {persona} said is the same, or longer than {settings.training_chars} characters (training_chars)")
    tell(f"{len(data)} examples from {len(known.learned)} missions; {len(held)} from {len(known.held)} others measure")
    expert = Expert(persona, "voice", "voice", f"Speaks as {persona.upper()} did in missions that were rated +1.", on_choice=True)
    folder = staging / name_of(persona)
    check_place(folder)
    next_version(folder, expert, known.versions)  # what would be in its way at the end is said now
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
        trainer.train(data, (), digest, lambda point, done: tell(line(point, done)), settings.training_save_s)
        tuned = _measured(trainer, held, known, settings)
        tell(f"the new voice: {_told(tuned)}")
        if worse := [why for name, figures in rivals.items() for why in worse_than(figures, tuned, settings.training_entropy, name)]:
            raise ExpertRefused(f"the new voice of {persona} is not staged: {'; '.join(worse)}; rate more missions, or train it longer")
        lineage = Lineage(
            digest, plan.seed, known.revision, tuple(one.id for one in known.learned), _figures(trainer, plain, tuned, len(data), len(held))
        )
        return export(trainer, folder, expert, source, lineage, next_version(folder, expert, known.versions))


def name_of(persona: str) -> str:
    """The folder of a persona's voice."""
    return f"{persona}-voice"


def worse_than(rival: Figures, tuned: Figures, margin: float, name: str) -> list[str]:
    """In what a voice is worse than another one, in words; nothing where it may speak.

    :param margin: by how much its answers' entropy may be lower.
    :param name: of the other, in words.
    """
    found = []
    if not tuned.perplexity < rival.perplexity:
        found.append(f"on what it did not learn its perplexity is {tuned.perplexity:.2f}, that of {name} {rival.perplexity:.2f}")
    if rival.cem is not None and tuned.cem is not None and tuned.cem < rival.cem - margin:
        found.append(f"the entropy of its answers is {tuned.cem:.3f}, with {name} {rival.cem:.3f} (setting training_entropy)")
    if rival.refused is not None and tuned.refused is not None and tuned.refused > rival.refused:
        found.append(f"the gate refuses {tuned.refused} of its answers, {rival.refused} of those of {name}")
    return found


def _known(settings: Settings, image: str, persona: str) -> Known:
    with reading(image) as (root, revision):
        there = root["lobby"].personas
        if persona not in there:
            raise UnknownPersona(f"no persona {persona!r}; there are: {', '.join(there)}")
        found, lost = liked(root, persona, settings)
        if (count := conversations(found)) < settings.training_missions:
            left = f"; of {lost} more the prompts cannot be rebuilt" if lost else ""
            raise InvalidInput(
                f"{persona} spoke in {count} missions with briefs of their own that were rated +1{left}; a voice takes "
                f"{settings.training_missions} (setting training_missions): `batos rate MISSION +1` rates one"
            )
        learned, held = parted(found, settings.training_held_out)
        return Known(learned, held, material.kinds(root), assessments.weights_of(root), revision, known_versions(root, persona, "voice"))


def _pairs(missions: Sequence[Liked], chars: int) -> Pairs:
    read = [(as_read(said.prompt, said.system), answered(said.answer)) for one in missions for said in one.said]
    return [(prompt, answer) for prompt, answer in read if len(prompt) + len(answer) <= chars]


def _measured(trainer: Trainer, held: Pairs, known: Known, settings: Settings) -> Figures:
    """What the model is like as it is now."""
    asked = [(one, next((said for said in one.said if said.whole), None)) for one in known.held]
    wholes = [(one, said) for one, said in asked if said is not None and len(said.prompt) <= settings.training_chars]
    if not (wholes := wholes[: settings.training_answers]):
        return Figures(trainer.perplexity(held))
    answers = trainer.answers([as_read(said.prompt, said.system) for _, said in wholes], ANSWER_TOKENS)
    window, refused, values = Window(len(wholes)), 0, []
    for (one, _), answer in zip(wholes, answers, strict=True):
        refused += gate.fault_of(answer, one.brief) is not None
        brief, said = (Text(entropy.words_of(text)) for text in (one.brief, answer))
        parts, _ = window.take(Thought(one.personas, one.facets, brief, said, one.described), known.kinds)
        values.append(entropy.composite(parts, known.weights))
    return Figures(trainer.perplexity(held), sum(values) / len(values), refused)


def _told(figures: Figures) -> str:
    words = f"perplexity {figures.perplexity:.2f}"
    return words if figures.cem is None else f"{words}, entropy {figures.cem:.3f}, {figures.refused} answers that the gate refuses"


def _figures(trainer: Trainer, plain: Figures, tuned: Figures, learned: int, held: int) -> dict[str, float]:
    return {
        "steps": trainer.step, "seconds": round(trainer.seconds), "examples": learned, "held_out": held,
        **{f"plain_{name}": round(value, 4) for name, value in plain._asdict().items() if value is not None},
        **{f"tuned_{name}": round(value, 4) for name, value in tuned._asdict().items() if value is not None},
    }  # fmt: skip
