"""PSM, the Prototypal State Machine: the states of a cycle of thought, and `run_cycle`, the loop through them.

The states are objects of the image. Their behaviour is a Primitive slot and their meta-prompt a data slot, so that both can be changed
there; a transition changes the parent pointer. The behaviours are host primitives: each takes the cycle and returns the name of the next
state, or None at the end of the cycle.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from batos import scope
from batos.bridge.capabilities import Needs
from batos.bridge.inference import ChatReply
from batos.errors import BatosError, BudgetSpent, GrantNeeded, InferenceFailed, InvalidInput, MissionFailed, QualityRefused
from batos.image.effects import READS
from batos.image.living_image import add_missing
from batos.memory.objects import TOOL
from batos.memory.tokenizer import subject_of
from batos.mind import answer_checks, evidence, plans, prompts, rule_answers, tool_use
from batos.mind.attempt import Attempt, PromptContext, current
from batos.mind.brief_analysis import KNOWN, Flavour, said_of
from batos.mind.incarnation import facets, system_message
from batos.mind.inference import InferenceAsker, ThinkingLimits, as_error
from batos.mind.messages import send
from batos.mind.model_needs import names_needs_itself
from batos.mind.prompts import EARLIER
from batos.mind.router import Route
from batos.objects import Method, Primitive, UvmObject, find
from batos.resources import charged_task

_COMPARED = 5000  # characters of the conversation, the newest, with which an answer is compared
COLD = 0.2  # temperature for answers of a fixed form, and for a repeated request


@Primitive.register("psm.idle")
async def idle(cycle: UvmObject) -> str:
    """IDLE: a brief has come; find how it is to be thought about. That is at once, by the persona's facets, or by other personas, each
    about its part."""
    attempt, inner = current(), depth_of(cycle) > 1
    if not inner and (call := rule_answers.method_call_for(lobby_of(cycle.persona), attempt, str(cycle.brief))) is not None:
        cycle.depth, cycle.depth_why, cycle.flavour, cycle.parts, cycle.facets = "direct", "a method answers it", "off", (), ()
        cycle.call = tuple(call)
        return "DECOMPOSING"
    approach = await attempt.approach(cycle.persona, str(cycle.brief), inner=inner)
    cycle.depth, cycle.depth_why, cycle.flavour = approach
    cycle.parts, cycle.facets = (), ()
    if approach.depth == "direct":
        return "DECOMPOSING"
    if depth_of(cycle) < ThinkingLimits.of(attempt.settings).depth and (approach.depth == "council" or attempt.earlier):
        lobby, parts = lobby_of(cycle.persona), attempt.share_out(cycle.brief)
        if not parts and approach.depth == "council":
            parts = attempt.council()
        cycle.parts = tuple((name, part) for name, part in parts if isinstance(lobby._slots.get(name), UvmObject) and attempt.sees(name))
    if not cycle.parts:
        cycle.facets = tuple(list(_facets(cycle))[: ThinkingLimits.of(attempt.settings).facets])
    return "DECOMPOSING"


def _facets(cycle: UvmObject) -> Iterator[tuple[str, str]]:
    """Return the facets of a cycle; without flavour only those that all personas share."""
    shared = getattr(cycle.persona, "parent*")
    return facets(shared if cycle.flavour == "off" and isinstance(shared, UvmObject) else cycle.persona)


@Primitive.register("psm.decompose")
async def decompose(cycle: UvmObject) -> str:
    """DECOMPOSING: ask the model for a sub-query per facet, as JSON of a schema. A brief that is shared out, or answered at once, is its
    own plan."""
    if cycle.parts:
        cycle.plan, cycle.plan_source = cycle.parts, "personas"
        return "DELEGATING"
    if "call" in cycle._slots:
        cycle.plan, cycle.plan_source = (), "method"
        return "DELEGATING"
    names = [name for name, _ in cycle.facets]
    own_cycle = depth_of(cycle) == 1
    may_ask, may_need = current().mission.may_ask and own_cycle, names_needs_itself(current().mission) and own_cycle
    if not names and not may_ask and not may_need:
        cycle.plan, cycle.plan_source = (), cycle.depth
        return "DELEGATING"
    own = cycle.meta_prompt if names else "Request: $brief\n\n"
    values = {"facets": "\n".join(f"- {name}: {intent}" for name, intent in cycle.facets), "names": ", ".join(names)}
    if may_ask:
        own += f" {cycle.may_ask_prompt}"
    if may_need:
        own += f" {cycle.needs_prompt}"
    prompt, form = await _prompt(cycle, own, **values), plans.plan_form(names, may_ask=may_ask, needs=may_need)
    role, system = _voice(cycle)
    needs: list[str]
    try:
        more = _with(cycle, await _turns(cycle))
        found = await current().structured(role, system, prompt, form, part="plan", temperature=COLD, **more)
    except InferenceFailed as e:
        if not (raw := e.context.get("raw")):  # the service failed; the form of the answers is not the reason
            raise
        told = (await _within(cycle)).brief  # as much as fits: a facet would repeat the whole brief
        question, plan = plans.read_question(raw[-1]), plans.read_plan(raw[-1], names, told)
        needs = plans.read_needs(raw[-1])
        cycle.plan_source = "fallback"
    else:
        said: dict[str, Any] = found.value.model_dump(by_alias=True)
        question, needs, plan = said.pop(plans.QUESTION, ""), said.pop(plans.NEEDS, []), said
        cycle.plan_source = "model"
    if may_need and needs:
        await current().require(Needs.parse(needs))
    if may_ask and question:
        cycle.asked = (question, current().ask(question))
    cycle.plan = tuple(plan.items())
    if not names:
        cycle.plan_source = cycle.depth
    return "DELEGATING"


@Primitive.register("psm.delegate")
async def delegate(cycle: UvmObject) -> str:
    """DELEGATING: facets, or other personas, think at once. As many as the state's `quorum` must have something to say. Where a method
    answers the brief, it is called in their place; one that fails leaves it to the model."""
    if "call" in cycle._slots:
        call = rule_answers.AnsweringCall(*cycle._slots.pop("call"))
        if (said := await rule_answers.answer_by_method(call)) is not None:
            cycle.said, cycle.value = said
            cycle.called = json.dumps(call.told(), ensure_ascii=False)
    elif depth_of(cycle) == 1 and (cannot := await _by_tools(cycle)) is not None:
        cycle.said, cycle.value, cycle.plan = cannot, None, ()
    if not cycle.plan:
        cycle._tmp_synthesis_ = ()
        return "SYNTHESIZING"
    if cycle.parts:
        lobby = lobby_of(cycle.persona)
        thoughts = [_other(lobby._slots[name], part) for name, part in cycle.plan]
    else:
        intents = dict(cycle.facets)
        thoughts = [_facet(cycle, name, intents[name], query) for name, query in cycle.plan]
    answers = await asyncio.gather(*map(charged_task, thoughts), return_exceptions=True)
    spoken, silent = [], []
    for (name, _), answer in zip(cycle.plan, answers, strict=True):
        if isinstance(answer, BatosError) and not isinstance(answer, GrantNeeded):  # the user must see such an error
            silent.append((name, f"{answer.code}: {answer.message}"))
        elif isinstance(answer, BaseException):
            raise answer
        elif fault := answer_checks.fault_of(answer):
            silent.append((name, f"quality_refused: {fault}"))
        else:
            spoken.append((name, answer))
    if silent:
        cycle.silent = tuple(silent)
    if len(spoken) < max(1, cycle.quorum):
        _refuse(cycle, spoken, answers)
    cycle._tmp_synthesis_ = tuple(spoken)
    return "SYNTHESIZING"


async def _by_tools(cycle: UvmObject) -> str | None:
    """Call the tools that the brief asks for. Return what is to be said where that is known without a model: what could not be done, or
    was done. None otherwise; the prompts show what the tools answered then."""
    attempt = current()
    if not attempt.tools.has_any:
        return None
    from batos.mind.tool_rounds import use_tools  # late import: it loads the tables of the choice, which only connections need

    role, system = _voice(cycle)
    if (planned := await _by_plan(str(cycle.brief), role)) is not None:
        if planned.error is None:
            return None
        cycle.cannot = "tool"
        return f"I could not do it: {_short(planned.error.message)}"
    done, native = await use_tools(attempt, str(cycle.brief), role, system, asker_of(cycle))
    errand = attempt.open_errand
    if errand is not None and errand.kind in KNOWN and all(one.error is not None for one in done):
        return said_of(errand, _clock())
    if done and all(one.error is not None for one in done):
        cycle.cannot = "tool"
        return "I could not do it: " + "; ".join(f"{one.name}: {_short(one.error.message)}" for one in done if one.error is not None)
    if done and not native and all(one.kind not in ("", READS) for one in done):
        # What was done is known, and a model that does not use tools could only tell it worse.
        return "\n".join(f"Done: {one.name} ({_short(tool_use.told(one.result))})" for one in done if one.error is None)
    if done and not native and subject_of(str(cycle.brief)).asks:
        cycle.quoted = True  # a question, and a model that would only tell the answer worse
        return attempt.tools.quotes(attempt.settings.tools.result_chars)
    if not done and errand is not None:
        cycle.cannot = errand.kind
        return said_of(errand, _clock(), connected=True)
    return None


def _clock() -> datetime.datetime:
    """Return what the machine's clock shows; in a replay, what it showed then."""
    return datetime.datetime.fromtimestamp(current().mission.finished or time.time()).astimezone()


async def _by_plan(brief: str, role: str) -> tool_use.Called | None:
    """Have a brief planned and carried out as one method, where it asks for that. Return what came of it; None where it is done call by
    call."""
    from batos.mind import tool_plans
    from batos.mind.tool_rounds import wants_plan

    return await tool_plans.carry_out(brief) if await wants_plan(current(), brief, role) else None


def _short(text: str) -> str:
    """Return a tool's text on one line, as long as a prompt shows it: an answer goes into the image and over the wire."""
    most, line = current().settings.tools.result_chars, text.replace("\n", ", ")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _refuse(cycle: UvmObject, spoken: list[tuple[str, str]], answers: list[Any]) -> None:
    """Too few had something to say: the first failure says why, since it may be worth a retry."""
    for answer in answers:
        if isinstance(answer, BatosError):
            raise answer
    heard = (
        "no facet had anything to say" if not spoken else f"only {len(spoken)} of {len(cycle.plan)} facets answered, fewer than the quorum"
    )
    raise QualityRefused(f"{heard}; try a larger model or another persona")


async def _facet(cycle: UvmObject, name: str, intent: str, query: str) -> str:
    held = find(cycle.persona, name)
    if held is not None and isinstance(held[1], Method):
        return str(await send(cycle.persona, name, query + _recalled(cycle, await _evidence(cycle)))).strip()
    reply = await _ask(cycle, await _prompt(cycle, cycle.meta_prompt, intent=intent, query=query), part=name, warmth=_temperature(0.7))
    return answer_checks.without_partial_end(reply.text.strip(), cut=reply.done_reason == "length")


async def _other(persona: UvmObject, part: str) -> str:
    """Return another persona's answer to its part of the brief: a cycle inside this one."""
    answer = str(await send(persona, "synthesize_response_for_", part))
    return evidence.unmarked(answer) if await current().evidence.about(part, gated=current().gated) else answer


@Primitive.register("psm.synthesize")
async def synthesize(cycle: UvmObject) -> str:
    """SYNTHESIZING: answer the brief, or weave what the facets said into one answer. Pass the quality gate, with one revision, which is
    plainer and colder. Where both are refused, the best of the answers at hand is kept, and is said to be unsure.
    """
    voices, told = cycle._tmp_synthesis_, await _within(cycle)
    if "said" in cycle._slots:
        # no model read what is left out
        return _woven(cycle, cycle._slots.pop("said"), (), told._replace(left_out=()), whole=True)
    found = told.passages
    schema = current().mission.schema if depth_of(cycle) == 1 else None
    keeps = _memory_test(cycle, found) if not schema and not current().shown else None  # passages do not contain what a picture shows
    own = cycle.meta_prompt if voices else cycle.direct_prompt
    prompt = await _prompt(cycle, own, voices=plans.voices(prompts.voices_within(voices, current().room)))
    if schema:
        prompt += f"\n\nWrite the answer as one JSON value of this JSON schema and nothing else:\n{json.dumps(schema)}"
    fault: str | None = None
    form = schema
    doubted: tuple[str, bool, str] | None = None  # an answer that may not fit the brief, True if it was cut off, and the reason
    for again in (False, True):
        more = f"\n\nAn earlier answer was refused because {fault}. Write another." if fault else ""
        if fault:
            current().revised(asker_of(cycle), fault)
        warmth = _temperature(0.9, COLD) if again else _temperature(0.5)
        try:
            reply = await _ask(cycle, prompt + more, warmth=warmth, schema=form, plainer=again)
        except InferenceFailed as e:
            if form is None or e.cause not in ("refused", "server_error"):
                raise
            form = None  # Ollama cannot make a grammar of it: the prompt describes the schema, and the answer is checked against it
            reply = await _ask(cycle, prompt + more, warmth=warmth, plainer=again)
        text = reply.text.strip()
        if not schema:
            cycle.cut = reply.done_reason == "length"
            text = evidence.without_false_marks(plans.without_labels(answer_checks.without_partial_end(text, cut=cycle.cut), voices), found)
            text = evidence.without_claims(text, found, str(cycle.brief))
        fault = await _fault_of(cycle, text, schema)
        if fault is None and keeps and not keeps(text):
            fault = "most of it is not from the passages from memory"
        elif fault is None and not schema and (fault := await _doubt_of(cycle, text)):
            doubted = text, cycle.cut, fault
        if fault is None and (fault := await _objection(cycle, text)) is None:
            return _woven(cycle, text, voices, told, whole=bool(schema))
        if form and reply.done_reason != "stop":
            form = None  # an endless grammar (ollama#15502): the second request relies on the prompt
    if keeps:  # quote the memory if the model does not use it
        return _quoted(cycle, voices, told)
    if depth_of(cycle) == 1 and not schema and not _has_critic(cycle):  # a part of another cycle's brief is dispensable
        for name, said in voices:
            if not await _fault_of(cycle, said, None) and not await _doubt_of(cycle, said):
                why = f"what was made of all notes was refused twice, the last time because {fault}; this is what {plans.called(name)} said"
                doubted = said, False, why
                break
        if doubted:
            text, cycle.cut, cycle.unsure = doubted
            return _woven(cycle, text, voices, told, whole=False)
    raise QualityRefused(f"the answer was refused twice, the last time because {fault}; try a larger model or another persona")


def _memory_test(cycle: UvmObject, found: tuple[evidence.RecalledPassage, ...]) -> Callable[[str], bool] | None:
    """Return the test that an answer keeps to memory. None if the answer need not keep to it: no passage fits the brief, or the brief asks
    for no fact.

    A persona that is `grounded` keeps to it closely, any other is free in its words.
    """
    if not found:
        return None
    answered = [one for one in found if one.origin == TOOL]
    if answered:  # a figure or a name that neither the tools nor the brief gave is an invention
        return lambda text: not evidence.invented(text, found, str(cycle.brief)) and bool(evidence.cited(text, answered, str(cycle.brief)))
    brief = str(cycle.brief)
    if cycle.persona.grounded and rule_answers.can_quote(brief, found):
        return lambda text: evidence.keeps_to(text, found, brief)
    if not current().earlier and rule_answers.asks_for_fact(brief, found):
        return lambda text: not rule_answers.departs_from(text, brief, found)
    return None


def _quoted(cycle: UvmObject, voices: Any, told: prompts.PromptParts) -> str:
    """Answer with the words of the memory. Return the next state."""
    tools = [n for n, one in enumerate(told.passages, 1) if one.origin == TOOL]
    quotes = [rule_answers.Quote(n, told.passages[n - 1].text) for n in tools] or rule_answers.quotes(str(cycle.brief), told.passages)
    if told.left_out:
        cycle.left_out = told.left_out
    cycle.quoted, cycle.cut, cycle.voices, cycle._tmp_synthesis_ = True, False, voices, _quotation(cycle, quotes)
    cycle.cited = tuple(tuple(one) for one in evidence.citations(quotes, told.passages))
    cycle.woven = ()
    return "COMPLETE"


def _quotation(cycle: UvmObject, quotes: Sequence[rule_answers.Quote]) -> str:
    """Return quotes as an answer; what tools answered comes without the fields that only a program reads."""
    attempt = current()
    if depth_of(cycle) == 1 and attempt.tools.called:
        return attempt.tools.quotes(attempt.settings.tools.result_chars)
    return rule_answers.quotes_text(quotes)


def _temperature(earlier: float, now: float | None = None) -> float | None:
    """Return the temperature of an inference: `earlier` for a mission that began under version 0.1.0, else `now`;
    None leaves it to the model's Modelfile.
    """
    return earlier if current().earlier else now


def _woven(cycle: UvmObject, text: str, voices: Any, told: prompts.PromptParts, *, whole: bool) -> str:
    """Store an answer with its sources. Return the next state.

    :param whole: True if it is one value of a schema, whose sentences have no source.
    """
    cycle.voices, cycle._tmp_synthesis_ = voices, text
    if told.left_out:
        cycle.left_out = told.left_out
    if found := told.passages:
        cycle.cited = tuple(tuple(one) for one in evidence.citations(evidence.cited(text, found, cycle.brief), found))
    if not whole:
        cycle.woven = tuple(name for _, name in plans.woven_from(text, voices))
    return "COMPLETE"


async def _fault_of(cycle: UvmObject, text: str, schema: dict[str, Any] | None) -> str | None:
    """Return the reason why an answer does not pass the gate; None if it passes."""
    if schema:
        cycle.value, problem = await current().read(text, schema)
        if problem:
            return f"it does not keep the schema: {problem}"
        return None
    return answer_checks.fault_of(text, cycle.brief, shortest=cycle.shortest, longest=cycle.longest, prompt=_own_words(cycle), tongue=False)


async def _doubt_of(cycle: UvmObject, text: str) -> str | None:
    """Return the reason why an answer may not fit this brief; None without a doubt."""
    attempt = current()
    if (
        (doubt := answer_checks.differs_in_language(text, cycle.brief)) or depth_of(cycle) > 1 or attempt.shown
    ):  # the brief does not contain what a picture shows
        return doubt
    before = attempt.talk.text[-_COMPARED:]
    asked = [said for said in (attempt.services.router.window(cycle.brief), before, " ".join(cycle.asked)) if said]
    return answer_checks.FOREIGN if await answer_checks.is_foreign(text, asked, attempt.nearness) else None


def _own_words(cycle: UvmObject) -> str:
    """Return the words of this state's prompt, without the brief, passages and notes."""
    words = " ".join((cycle.meta_prompt, cycle.evidence_prompt))
    return re.sub(r"\$\w+", " ", words)


def _has_critic(cycle: UvmObject) -> bool:
    """Return True if every answer of this cycle must pass a critic."""
    return current().settings.missions.critic == "on" and depth_of(cycle) == 1


async def _objection(cycle: UvmObject, text: str) -> str | None:
    """Return the critic's objection to an answer; None without a critic, without an objection, or if the verdict is unreadable."""
    if not _has_critic(cycle):
        return None
    critic = lobby_of(cycle.persona)._slots.get(cycle.critic, cycle.persona)
    told = await _within(cycle)
    prompt = plans.fill(cycle.critic_prompt, brief=prompts.brief_text(told.before, told.brief, cycle.asked), answer=text)
    reply = await _ask(cycle, prompt, persona=critic, schema=plans.VERDICT, part="critic", silent=True, warmth=0.0)
    fit, reason = plans.read_verdict(reply.text)
    return None if fit else f"the critic says: {reason}"


@Primitive.register("psm.complete")
async def complete(cycle: UvmObject) -> None:
    """COMPLETE: hand over the answer, and leave nothing of the working state behind."""
    cycle.answer = cycle._tmp_synthesis_
    for name in ("_tmp_synthesis_", "facets", "parts"):  # the plan names them, and the persona holds their intents
        cycle._slots.pop(name, None)


@Primitive.register("psm.failed")
async def failed(cycle: UvmObject) -> None:
    """FAILED: nothing of this cycle is kept; `run_cycle`'s caller dooms the transaction."""


def depth_of(cycle: UvmObject) -> int:
    """Return the nesting depth of a cycle: 1 for the mission's own."""
    return str(cycle.number).count(".") + 1


def asker_of(cycle: UvmObject) -> InferenceAsker:
    """Return the cycle as the events and the journal name it."""
    return InferenceAsker(str(cycle.number), str(cycle._slots["state*"].name), str(cycle.persona.name))


def lobby_of(obj: UvmObject) -> UvmObject:
    """Return the lobby of the image that holds an object."""
    return obj._p_jar.root()["lobby"]  # type: ignore[no-any-return]


async def _prompt(cycle: UvmObject, own: str, **values: str) -> str:
    """Return a prompt of this cycle."""
    told = await _within(cycle)
    brief = prompts.brief_text(told.before, told.brief, cycle.asked)
    return prompts.filled(own, brief, cycle.evidence_prompt, told.passages, earlier=current().earlier, **values)


async def _within(cycle: UvmObject) -> prompts.PromptParts:
    """Return the parts of the brief, the conversation and the passages from memory that fit."""
    attempt, brief, direct, own = current(), str(cycle.brief), cycle.depth == "direct", depth_of(cycle) == 1
    found = await attempt.evidence.about(brief, gated=attempt.gated)
    if own:
        found = (*attempt.tools.passages(attempt.settings.tools.result_chars), *found)
    if direct and not own:  # its brief is a part of another cycle's, which has the conversation
        return prompts.fitted_to_window(brief, "", (), found, attempt.room)
    talk = attempt.talk
    before, turns = ("", talk.turns) if direct else (talk.text, ())
    words = talk.instructions if own else ""
    return prompts.fitted_to_window(brief, before, turns, found, attempt.room, untold=talk.untold, gap=talk.gap, instructions=words)


async def _turns(cycle: UvmObject) -> tuple[tuple[str, str], ...]:
    """Return the turns of the conversation that go with a prompt; a cycle that is not direct has the conversation in the prompt."""
    return (await _within(cycle)).turns if cycle.depth == "direct" else ()


async def _evidence(cycle: UvmObject) -> tuple[evidence.RecalledPassage, ...]:
    """Return the passages from memory for the brief."""
    return (await _within(cycle)).passages


def _recalled(cycle: UvmObject, found: tuple[evidence.RecalledPassage, ...]) -> str:
    return f"\n\n{evidence.shown(cycle.evidence_prompt, found)}" if found else ""


def _voice(cycle: UvmObject, persona: UvmObject | None = None, *, plainer: bool = False) -> tuple[str, str]:
    """Return the speaker: the role of the model, and the system message.

    :param plainer: leave out the persona's inspirations, whatever the flavour.
    """
    speaker, attempt = persona or cycle.persona, current()
    flavour: Flavour = "light" if plainer and cycle.flavour == "full" and not attempt.earlier else cycle.flavour
    return attempt.plain_voice_of(speaker) if flavour == "off" else attempt.voice_of(speaker), system_message(speaker, flavour)


def _with(cycle: UvmObject, turns: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return what all inferences of a cycle have with them: the brief's pictures too, which belong before it as all that is shared does."""
    return {"by": asker_of(cycle), "context": PromptContext(turns, narrows=True, pictured=True)}


async def _ask(
    cycle: UvmObject, prompt: str, *, warmth: float | None = None, persona: UvmObject | None = None, plainer: bool = False, **more: Any
) -> ChatReply:
    role, system = _voice(cycle, persona, plainer=plainer)
    attempt, turns = current(), await _turns(cycle)
    options = {**(attempt.direct if cycle.depth == "direct" else {}), **(attempt.plain if not system else {})}
    if warmth is not None:
        options["temperature"] = warmth
    return await attempt.chat(role, system, prompt, **_with(cycle, turns), **options, **more)


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
        "evidence_prompt": "Passages from memory:\n$passages",
        "may_ask_prompt": f"If something must be known that only the user can say, put one question in the key {plans.QUESTION}; "
        "else leave that key empty.",
        "needs_prompt": f"If the request cannot be met without seeing images (vision), calling tools (tools) or thinking it through before "
        f"the answer (thinking), name that in the key {plans.NEEDS}; else leave that list empty.",
    },
    "DELEGATING": {
        "behaviour": delegate,
        "successors": ("SYNTHESIZING",),
        "comment": "I let the facets think, all at once. As many as my quorum must have something to say.",
        "quorum": 1,
        "meta_prompt": "Request: $brief\n\n$intent\n\nWork on this part of it: $query\n\nAnswer in at most five sentences.",
        "evidence_prompt": "Passages from memory:\n$passages",
    },
    "SYNTHESIZING": {
        "behaviour": synthesize,
        "successors": ("COMPLETE",),
        "comment": "I weave what the facets said into one answer, and see that it is fit to be one.",
        "shortest": 1,
        "longest": answer_checks.LONGEST,
        "direct_prompt": "$brief",
        "meta_prompt": "Request: $brief\n\nNotes to use:\n$voices\n\n"
        "Write the answer to the request, in one clear voice, using what is useful in the notes. Do not mention the notes.",
        "evidence_prompt": "Passages from memory:\n$passages\n\n"
        "Say nothing that they contradict. Behind what you take from one put its number, such as [1].",
        "critic": "alfred",
        "critic_prompt": "Request: $brief\n\nAnswer:\n$answer\n\n"
        "Does the answer serve the request? Say whether it is fit, and why in one sentence.",
    },
    "COMPLETE": {"behaviour": complete, "successors": (), "comment": "I am where a cycle ends well; what it did is committed."},
    "FAILED": {"behaviour": failed, "successors": (), "comment": "I am where a cycle ends after any exception; nothing it did is kept."},
}


INITIAL, FAILED = "IDLE", "FAILED"


@Primitive.register("persona.synthesize_response_for_")
async def synthesize_response_for_(persona: UvmObject, brief: str) -> str:
    """Answer a brief that was sent to the persona as a message, in a cycle inside the current transaction and inside the sending cycle."""
    if not (isinstance(brief, str) and brief.strip()):
        raise InvalidInput("synthesize_response_for_ takes a brief: a text that is not blank")
    attempt, outer = current(), scope.current().cycle
    cycle = new_cycle(persona, brief, Route(str(persona.name).lower(), "was sent the message", {}))
    cycle.number = attempt.number("" if outer is None else str(outer.number))
    if outer is not None:
        outer.cycles = (*outer.cycles, cycle)
    await run_cycle(cycle, attempt)
    return str(cycle._slots.pop("answer"))  # the sender keeps it: an outer cycle among its voices, a mission as its result


@Primitive.register("persona.ask_user_")
async def ask_user_(persona: UvmObject, question: str) -> str:
    """Ask the user of the current mission, for a persona. Return the answer when it comes."""
    if not isinstance(question, str):
        raise InvalidInput("ask_user_ takes a question: a text")
    return current().ask(question)


@Primitive.register("persona.think_")
async def think_(persona: UvmObject, guidance: str, question: str) -> str:
    """Think plainly, for a persona: one inference on its own model, with guidance. Every facet ends in this."""
    if not (isinstance(guidance, str) and isinstance(question, str)):
        raise InvalidInput("think_ takes a guidance and a question: two texts")
    attempt, cycle = current(), scope.current().cycle
    asker = asker_of(cycle) if cycle is not None else None
    reply = await attempt.chat(
        attempt.voice_of(persona),
        system_message(persona),
        f"{guidance}\n\n{question}",
        part="think_",
        by=asker,
        context=PromptContext(pictured=cycle is not None),
        temperature=0.7,
    )
    return reply.text.strip()


def inner_number(attempt: Attempt) -> str:
    """Return the number of the next cycle inside the one that runs now."""
    outer = scope.current().cycle
    return attempt.number("" if outer is None else str(outer.number))


def install(lobby: UvmObject) -> None:
    """Create the states, the prototype of cycles, and the messages by which personas think. A step of genesis."""
    add_missing(lobby.traits, state=lambda: lobby.genesis.derive(name="state", comment="I am what the states of the PSM have in common."))
    add_missing(
        lobby.traits,
        cycle=lambda: lobby.genesis.derive(name="cycle", comment="I am the prototype of cycles: one attempt to think a mission through."),
    )
    add_missing(lobby.traits.cycle, number="1", parts=(), cycles=(), silent=(), asked=(), cited=(), quoted=False)
    add_missing(lobby.traits.cycle, depth="facets", depth_why="", flavour="full", cut=False, unsure="", left_out=(), cannot="")
    add_missing(lobby.traits.persona, synthesize_response_for_=Primitive.of(synthesize_response_for_), ask_user_=Primitive.of(ask_user_))
    add_missing(lobby.traits.persona, think_=Primitive.of(think_))
    add_missing(lobby, psm=lambda: lobby.genesis.derive(name="psm", comment="I hold the states of the Prototypal State Machine."))
    for name, slots in STATES.items():
        made = {**slots, "name": name, "behaviour": Primitive.of(slots["behaviour"])}
        add_missing(lobby.psm, **{name: lambda: lobby.traits.state.derive()})
        add_missing(lobby.psm._slots[name], **made)
        prompt = made.get("meta_prompt")
        if prompt in EARLIER and lobby.psm._slots[name].meta_prompt == EARLIER[prompt]:
            lobby.psm._slots[name].meta_prompt = prompt


def new_cycle(persona: UvmObject, brief: str, route: Route) -> UvmObject:
    """Return a cycle of `persona` about `brief`, in its first state; the first of its mission."""
    lobby = lobby_of(persona)
    # The state is the first parent: its slots come before those that all cycles share.
    parents = {"state*": getattr(lobby.psm, INITIAL), "parent*": lobby.traits.cycle}
    return UvmObject(**parents, persona=persona, brief=brief, why=route.why)


async def run_cycle(cycle: UvmObject, attempt: Attempt) -> None:
    """Run a cycle to its end; its answer is in its slot `answer` then.

    :raises BudgetSpent: for one that is deeper inside others than `ThinkingLimits.depth`.
    :raises BatosError: (or whatever a behaviour raised) after the transition to FAILED; the caller dooms the transaction.
    """
    limits = ThinkingLimits.of(attempt.settings)
    if depth_of(cycle) > (limit := limits.method_depth if "machine" in cycle._slots else limits.depth):
        raise BudgetSpent(f"cycle {cycle.number} is inside more than {limit} others; ask for less at once")
    with scope.enter(cycle=cycle):
        await _run(cycle, attempt)


async def _run(cycle: UvmObject, attempt: Attempt) -> None:
    own = depth_of(cycle) == 1
    if own:
        attempt.persona, attempt.why = cycle.persona.name, cycle.why
    _announce(cycle, attempt, why=cycle.why)
    after = 0
    while True:
        if attempt.is_stepped:
            await attempt.arrive(cycle, after)
        after += 1
        try:
            following = await cycle.behaviour(cycle)
            if following is None:
                return
            if following not in cycle.successors:
                state = getattr(cycle, "state*").name
                raise MissionFailed(f"state {state} answered {following!r}, which is not one of its successors {cycle.successors}")
        except Exception as e:
            if attempt.stepper is not None:
                attempt.stepper.failed(cycle)
            _move(cycle, FAILED)
            _announce(cycle, attempt, error=as_error(e).to_wire())
            raise
        _move(cycle, following)
        if following != "COMPLETE" or not own:  # the commit announces the end of the mission's own cycle
            _announce(cycle, attempt)


def _move(cycle: UvmObject, state: str) -> None:
    machine = cycle._slots.get("machine") or lobby_of(cycle.persona).psm
    setattr(cycle, "state*", machine._slots[state])


def _announce(cycle: UvmObject, attempt: Attempt, **facts: object) -> None:
    asker = asker_of(cycle)
    if asker.is_own:
        attempt.state = asker.state
        if attempt.state != FAILED:
            attempt.reached = attempt.state
    attempt.moved(asker, attempt.voice_of(cycle.persona), **facts)
