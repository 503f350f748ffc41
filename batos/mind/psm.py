"""The Prototypal State Machine: a cycle is an object whose `state*` parent is the current state.

The states are objects of the image. Their behaviour is a Primitive slot and their meta-prompt a data slot, so that both
can be changed there; a transition is a change of the pointer.
"""

from __future__ import annotations

import contextvars

from batos.errors import BudgetSpent, InvalidInput, MissionFailed
from batos.image.genesis import add_missing
from batos.mind.incarnation import system_message
from batos.mind.prompts import EARLIER
from batos.mind.router import Route
from batos.mind.signals import as_error
from batos.mind.states import STATES, by, depth_of, lobby_of
from batos.mind.thinking import Thinking, current
from batos.objects import Primitive, UvmObject

INITIAL, FAILED = "IDLE", "FAILED"
_inside: contextvars.ContextVar[UvmObject | None] = contextvars.ContextVar("batos_cycle", default=None)


@Primitive.register("persona.synthesize_response_for_")
async def synthesize_response_for_(persona: UvmObject, brief: str) -> str:
    """A persona's way of answering a brief when it is sent the message: a cycle inside the current transaction, and inside
    the cycle that sent it, if one did."""
    if not (isinstance(brief, str) and brief.strip()):
        raise InvalidInput("synthesize_response_for_ takes a brief: a text that is not blank")
    attempt, outer = current(), _inside.get()
    cycle = new_cycle(persona, brief, Route(str(persona.name).lower(), "was sent the message", {}))
    cycle.number = attempt.number("" if outer is None else str(outer.number))
    if outer is not None:
        outer.cycles = (*outer.cycles, cycle)
    await run_cycle(cycle, attempt)
    return str(cycle._slots.pop("answer"))  # whoever asked has it: an outer cycle among its voices, a mission as its result


@Primitive.register("persona.ask_user_")
async def ask_user_(persona: UvmObject, question: str) -> str:
    """A persona's way of asking the user of the current mission: answers what the user says, whenever that is."""
    if not isinstance(question, str):
        raise InvalidInput("ask_user_ takes a question: a text")
    return current().ask(question)


@Primitive.register("persona.think_")
async def think_(persona: UvmObject, guidance: str, question: str) -> str:
    """A persona's plain way of thinking: one inference on its own model, by a guidance; what a facet comes down to."""
    if not (isinstance(guidance, str) and isinstance(question, str)):
        raise InvalidInput("think_ takes a guidance and a question: two texts")
    attempt, cycle = current(), _inside.get()
    asker = by(cycle) if cycle is not None else None
    reply = await attempt.chat(
        attempt.voice_of(persona),
        system_message(persona),
        f"{guidance}\n\n{question}",
        part="think_",
        by=asker,
        pictured=cycle is not None,
        temperature=0.7,
    )
    return reply.text.strip()


def inner_number(attempt: Thinking) -> str:
    """The number of the next cycle inside the one that runs now."""
    outer = _inside.get()
    return attempt.number("" if outer is None else str(outer.number))


def install(lobby: UvmObject) -> None:
    """The step of genesis that makes the states, the prototype of cycles, and the personas' way in."""
    add_missing(lobby.traits, state=lambda: lobby.genesis.derive(name="state", comment="I am what the states of the PSM have in common."))
    add_missing(
        lobby.traits,
        cycle=lambda: lobby.genesis.derive(name="cycle", comment="I am the prototype of cycles: one attempt to think a mission through."),
    )
    add_missing(lobby.traits.cycle, number="1", parts=(), cycles=(), silent=(), asked=(), cited=(), quoted=False)
    add_missing(lobby.traits.cycle, depth="facets", depth_why="", flavour="full", cut=False, unsure="", left_out=())
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
    """A cycle of `persona` about `brief`, in its first state; the first of its mission."""
    lobby = lobby_of(persona)
    # The state is the first parent: what it says goes before what all cycles have in common.
    parents = {"state*": getattr(lobby.psm, INITIAL), "parent*": lobby.traits.cycle}
    return UvmObject(**parents, persona=persona, brief=brief, why=route.why)


async def run_cycle(cycle: UvmObject, attempt: Thinking) -> None:
    """Run a cycle to its end; its answer is in its slot `answer` then.

    :raises BudgetSpent: for one that is deeper inside others than `cycle_depth`.
    :raises BatosError: (or whatever a behaviour raised) after the transition to FAILED; the caller dooms the transaction.
    """
    name = "synthesis_depth" if "machine" in cycle._slots else "cycle_depth"
    if depth_of(cycle) > (limit := getattr(attempt.settings, name)):
        raise BudgetSpent(f"cycle {cycle.number} is deeper than {limit} (setting {name})")
    token = _inside.set(cycle)
    try:
        await _run(cycle, attempt)
    finally:
        _inside.reset(token)


async def _run(cycle: UvmObject, attempt: Thinking) -> None:
    if depth_of(cycle) == 1:
        attempt.persona, attempt.why = cycle.persona.name, cycle.why
    _announce(cycle, attempt, why=cycle.why)
    while True:
        try:
            following = await cycle.behaviour(cycle)
            if following is None:
                return
            if following not in cycle.successors:
                state = getattr(cycle, "state*").name
                raise MissionFailed(f"state {state} answered {following!r}, which is none of its successors {cycle.successors}")
        except Exception as e:
            _move(cycle, FAILED)
            _announce(cycle, attempt, error=as_error(e).to_wire())
            raise
        _move(cycle, following)
        if following != "COMPLETE" or depth_of(cycle) > 1:  # the mission's own is announced when it is committed
            _announce(cycle, attempt)


def _move(cycle: UvmObject, state: str) -> None:
    machine = cycle._slots.get("machine") or lobby_of(cycle.persona).psm
    setattr(cycle, "state*", machine._slots[state])


def _announce(cycle: UvmObject, attempt: Thinking, **facts: object) -> None:
    asker = by(cycle)
    if depth_of(cycle) == 1:
        attempt.state = asker.state
        if attempt.state != FAILED:
            attempt.reached = attempt.state
    attempt.moved(asker, attempt.voice_of(cycle.persona), **facts)
