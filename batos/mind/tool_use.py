"""Tool use of one attempt: which tools a mission is offered, its calls, and what they answered, as passages that prompts show.

call ─ journal has its end: replayed ─ else granted, or its user asked ─ `batos.tools.effects` sends it once ─ event `tool`

What a tool answers is text of strangers. It is shown between marks as a passage of that origin, never as an instruction, and an answer
cites it as it cites memory. Rehearsals, trials and replays have no hands: they see what the journal has.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import structlog

from batos import scope
from batos.bus import ToolCalled
from batos.config.limits import GivesLimits, Limits, limit
from batos.errors import BatosError, GrantRefused, InvalidInput, ToolFailed, ToolsTied, UnknownTool
from batos.image import effects, identity, method_doubts
from batos.image import grants as image_grants
from batos.image.effects import DONE, IDEMPOTENT, READS, EffectRecord
from batos.image.grants import ALLOW, ASK, DENY, CurrentGrant, GrantRecord, GrantUse
from batos.image.identity import ActingState
from batos.image.living_image import LivingImage
from batos.image.method_doubts import Doubt
from batos.image.mission_record import FROM_OTHERS, WITH_FILES, MissionRecord
from batos.memory.objects import TOOL
from batos.mind import call_misfits
from batos.mind.evidence import RecalledPassage, without_marks
from batos.mind.inference import AttemptTally
from batos.objects import Method
from batos.sandbox import senders
from batos.tools import connections, doubles, grant_questions, grants
from batos.tools.definitions import Delivery, ToolCall, ToolDefinition
from batos.tools.effects import NOT_READ, Effects, NeedEffect
from batos.tools.grant_arguments import OTHERS
from batos.tools.grant_questions import PendingCall
from batos.tools.toolbox import Toolbox, check_arguments, misfit_of

log = structlog.get_logger("batos.mind")
_EARLIER = 32  # greatest number of earlier missions of a conversation whose effects count
_TEXTS = ("text", "content", "body", "answer", "stdout", "output", "result")
_QUESTION_CHARS = 1500  # of one call in a question
MALFORMED = (400, 405, 415, 422)
"""Statuses by which a place says that a request is malformed."""
CALL = "call_"
"""Selector by which a connection is sent a call: `call_(tool, arguments)`."""


@dataclass(frozen=True, slots=True)
class ToolUseLimits(Limits):
    """Limits of one mission's tool use, beside the settings of section `tools`."""

    calls: int = limit(32, ge=1, le=1000)
    """Greatest number of calls that one mission makes."""
    shown_chars: int = limit(400, ge=50, le=10_000)
    """Number of characters of arguments and results in events and in the mission's result."""


def is_about_request(status: Any) -> bool:
    """Return True if a place refuses by this HTTP status what a request says: a 4xx, but for `NOT_READ`."""
    return isinstance(status, int) and 400 <= status < 500 and status not in NOT_READ


class Called(NamedTuple):
    """A call of a tool, and what came of it."""

    name: str
    """`CONNECTION.TOOL`"""
    arguments: Mapping[str, Any]
    result: Any = None
    error: BatosError | None = None
    kind: str = ""
    """class of the tool, one of `batos.image.effects.CLASSES`; empty where there is no such tool"""


class CallingMethod(NamedTuple):
    """Facts about the method that makes a call, as far as a decision about the call needs them."""

    is_one: bool
    """False if no method makes it"""
    why_asks: str = ""
    """why it is asked about, whatever grants say"""


class CallsTools(Protocol):
    """The attempt as its tool use needs it; `batos.mind.attempt.Attempt` is it."""

    mission: MissionRecord
    persona: str
    state: str

    def ask_operator(self, question: str) -> str:
        """Return an operator's answer to a question; the signal that the mission waits for it passes."""

    def publish(self, kind: str, **facts: Any) -> None:
        """Publish an event of the mission."""

    @property
    def tally(self) -> AttemptTally:
        """Return the current counters."""

    @property
    def has_private(self) -> bool:
        """Return True if the mission has read what is its user's own: passages of memory, files that he gave it."""


class ToolUse:
    """Calls of one attempt. `called` holds those of its own cycle, in order."""

    def __init__(
        self,
        attempt: CallsTools,
        image: LivingImage,
        toolbox: Toolbox | None,
        on_called: Callable[[ToolCalled], None],
        settings: GivesLimits,
        *,
        acts: bool,
    ) -> None:
        """
        :param toolbox: None: there are no tools.
        :param acts: False for a replay or a rehearsal, which see what the journal has and do nothing.
        """
        self._owner = weakref.ref(attempt)  # it has this object: references both ways would keep ended attempts until the collector comes
        self._image, self._toolbox, self._on_called, self._acts = image, toolbox, on_called, acts
        self._limits = ToolUseLimits.of(settings)
        self._effects: Effects | None = None
        self._identity: ActingState | None = None
        self._repeated: set[str] = set()  # keys of calls that a model asks for although the mission has made the same before
        self._spent: dict[str, int] = {}  # grant by which a call is made, by the key of its effect
        self._sender: CallingMethod | None = None  # the method whose call is brought to its end outside the gate
        self.called: list[Called] = []
        self.was_tied = False
        """True once a call was wanted that may not be made here, and that the journal does not have."""
        self.progress = ""
        """Line about the call under way: how far it is, or what it waits for; empty where there is nothing to report."""

    # --- what is offered

    def offers(self) -> list[tuple[str, ToolDefinition]]:
        """Return the tools that the mission may be offered, with their names `CONNECTION.TOOL`. A tool that a grant denies whatever the
        arguments is left out. For a mission of the system's own, so is each tool that no grant allows. Where nothing may act they are
        offered, too: the call that was wanted then says why it is not made. So does a tool that its user refused when he was asked: no
        other one is to do it in its place."""
        if self._toolbox is None:
            return []
        table, system = self._grants(), self._attempt.mission.origin == "system"
        offered = [(connection, tool) for connection, held in self._toolbox.connections().items() for tool in held.tools]
        decided = [
            (connection, tool, grants.decide(table, self._request(connection, tool, {}, frozenset()))) for connection, tool in offered
        ]
        return [
            (f"{connection}.{tool.name}", tool)
            for connection, tool, permission in decided
            if permission.verdict != DENY or (permission.grant is not None and permission.grant.origin != grants.USER and not system)
        ]

    @property
    def has_any(self) -> bool:
        """Return True if there is a connection at all."""
        return self._toolbox is not None and bool(self._toolbox.connections())

    # --- calls

    async def call(self, name: str, arguments: Mapping[str, Any], *, gated: bool) -> Any:
        """Return the result of one call; see `Effects.perform` for what it raises.

        :raises InvalidInput: for arguments that do not fit, and past `ToolUseLimits.calls`.
        """
        if self._toolbox is None:
            raise InvalidInput("there are no tools here; `batos tools add` makes a connection")
        toolbox = self._toolbox
        if self._attempt.tally.calls.total() >= self._limits.calls:
            raise InvalidInput(f"mission {self._attempt.mission.id!r} has made {self._limits.calls} calls, the most that one may make")
        if scope.current().in_trial:
            return await self._tried(toolbox, name, arguments, gated)
        if self._own().has_ended(name, arguments):  # nothing is done that could be told
            if not gated:
                self._on_called(ToolCalled(name, "replayed", 0.0, 0))
            self._note_act(name)
            return await self._own().perform(name, arguments, lambda: toolbox.prepare(name, arguments), gated=gated)
        try:
            result = await self._made(toolbox, name, arguments, gated)
        except ToolFailed as e:
            await self._doubt_refused(name, arguments, e)
            raise
        except ToolsTied:
            self.was_tied = True
            raise
        except InvalidInput as e:
            await self._doubt_misfit(toolbox, name, arguments, e)
            raise
        self._note_act(name)
        await self._clear_doubts(name)
        await self._doubt_form(name, arguments, result)
        return result

    async def _doubt_refused(self, name: str, arguments: Mapping[str, Any], error: ToolFailed) -> None:
        """Doubt the connection's method that made a call which fits its schema, and which the place refuses with a 4xx.

        If that says that the request is malformed, the doubt counts at once. Another one, as for a thing that does not exist, may be the
        fault of the message. Such a doubt counts when the next run is refused so, too.
        """
        if not is_about_request(status := error.context.get("status")):
            return
        said = f"{name}({self._short(dict(arguments))}) fits its schema and failed: {self._short(error.message)}"
        if status in MALFORMED:
            sent = effects.canonical(arguments)
            await self._doubt(f"{name} {status} {sent}", said, tool=name, arguments=sent, status=status, message=error.message)
        else:
            await self._doubt(f"{name} {status}", said, met=1)

    async def _doubt_misfit(self, toolbox: Toolbox, name: str, arguments: Mapping[str, Any], error: InvalidInput) -> None:
        """Doubt the connection's method that makes a call which does not fit its schema, unless the misfit is what it was sent."""
        if (method := _own_method()) is None or isinstance(error, UnknownTool):
            return
        args, kwargs = scope.current().run.given
        if (fault := call_misfits.fault_of(method, args, kwargs, name, toolbox.find(name)[1], arguments)) is None:
            return
        said = f"{name}({self._short(dict(arguments))}) does not fit its schema: {self._short(error.message)}"
        if fault.whose == call_misfits.METHODS:
            await self._doubt(f"{name} misfit {fault.argument}", said)
        elif fault.whose == call_misfits.UNKNOWN:
            await self._doubt(f"{name} misfit", said, met=1)

    async def _clear_doubts(self, name: str) -> None:
        """Take back doubts that do not count yet about the connection's method: the tool answers it again."""
        if (made := self._doubtable()) is not None and self._image.read(method_doubts.is_open, *made, f"{name} "):
            await self._image.system(method_doubts.clear, *made, f"{name} ", mission=self._attempt.mission.id)

    def _doubtable(self) -> tuple[bytes, str] | None:
        """Return the holder's id and the selector of the connection's method that acts here."""
        method = _own_method()
        holder = None if method is None else scope.current().run.holder()
        if method is None or holder is None or not holder._p_oid or not self._acts:
            return None
        return holder._p_oid, method.selector

    async def _doubt_form(self, name: str, arguments: Mapping[str, Any], result: Any) -> None:
        """Doubt the connection's method that made a call which is answered in another form than is declared."""
        record = self._own().last_of(name, arguments)
        if record is None or record.state != DONE:  # its user said what became of it
            return
        if _own_method() is None or self._toolbox is None or (wrong := misfit_of(self._toolbox.find(name)[1], result)) == "":
            return
        said = f"{name}({self._short(dict(arguments))}) is not answered as it is declared: {wrong}; it answered {self._short(result)}"
        sign = f"{name} form {wrong.partition(':')[0]}"
        await self._doubt(sign, said, tool=name, answer=json.dumps(result, ensure_ascii=False), lasting=True)

    async def _doubt(self, sign: str, reason: str, **more: Any) -> None:
        """Record a doubt about the connection's method that acts here.

        :param more: see `Doubt`.
        """
        method, made, mission = _own_method(), self._doubtable(), self._attempt.mission
        if method is None or made is None:
            return
        doubt = Doubt(method.version, method.digest, time.time(), sign, reason, **more)
        if not self._image.read(method_doubts.is_known, *made, doubt, mission.accepted):
            await self._image.system(method_doubts.record, *made, doubt, mission.accepted, mission=mission.id)
            log.warning("method_doubted", selector=method.selector, version=method.version, reason=reason[:200])

    async def _made(self, toolbox: Toolbox, name: str, arguments: Mapping[str, Any], gated: bool, *, reads: bool = False) -> Any:
        """Return the result of a call that is made now, and tell of it.

        :param reads: see `Effects.perform`.
        """
        began, outcome = time.monotonic(), "failed"
        self._publish(name, "called", arguments=self._short(arguments))
        size = 0
        try:
            result = await self._own().perform(name, arguments, lambda: toolbox.prepare(name, arguments), gated=gated, reads=reads)
            outcome, size = "done", len(json.dumps(result))
        except GrantRefused as e:
            outcome = "denied"
            self._publish(name, outcome, error=e.to_wire())
            raise
        except BatosError as e:
            self._publish(name, outcome, error=e.to_wire())
            raise
        except NeedEffect as need:
            need.sender = _calling_method()
            raise
        except asyncio.CancelledError:
            outcome = "doubt"
            raise
        except BaseException:
            outcome = "asked"
            raise
        finally:
            self.progress = ""
            if not gated:
                self._on_called(ToolCalled(name, outcome, time.monotonic() - began, size))
        self._publish(name, outcome, result=self._short(result))
        return result

    async def _tried(self, toolbox: Toolbox, name: str, arguments: Mapping[str, Any], gated: bool) -> Any:
        """Return what a call in a trial is answered. What the mission has asked for before is as it was. A tool that only reads is really
        asked, where a grant lets it without a question. A double of the tool answers any other call, and all that follow it. It refuses a
        call for which the version before is doubted, as the tool did.

        :raises ToolsTied: where there is no double: the tool does not say what it answers.
        """
        own, trial = self._own(), scope.current().trial
        if trial.exchanges is not None:
            said = effects.canonical(arguments)
            known, count = trial.exchanges.get((name, said), ()), trial.calls[name, said]
            if count >= len(known):
                raise ToolsTied(f"{name} is not called: the recorded mission did not call it so")
            trial.calls[name, said] += 1
            return known[count]
        if own.has_asked(name, arguments) and own.has_ended(name, arguments):
            return await own.perform(name, arguments, lambda: toolbox.prepare(name, arguments), gated=gated)
        connection, tool = toolbox.find(name)
        check_arguments(name, tool, arguments)
        if tool.kind == READS and not trial.doubled and trial.unread.isdisjoint((name, connection.spec.name)):
            call = ToolCall(connection=connection.spec.name, tool=tool, arguments=arguments, send=_unsent)
            if own.has_ended(name, arguments):
                return await own.perform(name, arguments, lambda: toolbox.prepare(name, arguments), gated=gated, reads=True)
            if not self.tied() and self._decide(call).verdict == ALLOW:
                return await self._made(toolbox, name, arguments, gated, reads=True)
        if (refusal := trial.refused.get((name, effects.canonical(arguments)))) is not None:
            raise ToolFailed(refusal.message, status=refusal.status)
        try:
            answer = trial.recorded[name] if name in trial.recorded else doubles.double(tool.result, arguments)
        except doubles.NoDouble:
            raise ToolsTied(f"{name} is not called: {self.tied() or 'this is a trial'}") from None
        trial.calls[name, effects.canonical(arguments)] += 1
        trial.doubled = True
        return answer

    async def call_all(self, calls: Sequence[tuple[str, Mapping[str, Any]]], *, gated: bool) -> list[Called]:
        """Make several calls that a model chose, one after the other, and return what came of each. Those that need their user's leave are
        asked about together, before the first is made. So is a call that acts, if the mission makes the same call a second time."""
        self._note_repeats(calls)
        await self._ask_together(calls)
        done = []
        for name, arguments in calls:
            try:
                done.append(Called(name, arguments, await self.call(name, arguments, gated=gated), kind=self._kind(name)))
            except BatosError as e:
                done.append(Called(name, arguments, error=e, kind=self._kind(name)))
        self.called += done
        return done

    async def settle(self, need: NeedEffect) -> None:
        """Bring to its end, outside the gate, what a replay needs. This method reports it: a replay tells nothing of what has ended."""
        began, outcome, size = time.monotonic(), "asked", 0
        self._sender = need.sender
        try:
            came = await self._own().settle(need)
            if isinstance(came, BatosError):  # the replay meets it, and tells it
                outcome = "denied" if isinstance(came, GrantRefused) else "failed"
                return
            result, size = json.loads(came.result or "null"), len(came.result or "")
            if came.failed:
                outcome = "denied" if result["code"] == GrantRefused.code else "failed"
                self._publish(need.name, outcome, error=result)
            else:
                outcome = "done"
                self._publish(need.name, outcome, result=self._short(result))
        except asyncio.CancelledError:
            outcome = "doubt"
            raise
        finally:
            self.progress, self._sender = "", None
            self._on_called(ToolCalled(need.name, outcome, time.monotonic() - began, size))

    def restart(self, *, gated: bool) -> None:
        """Begin the cycle anew, from the journal."""
        self.called.clear()
        if self._effects is not None:
            self._effects.restart(gated=gated)

    # --- what prompts and results show

    def passages(self, chars: int) -> tuple[RecalledPassage, ...]:
        """Return what tools answered in this cycle, as passages.

        :param chars: greatest number of characters of one.
        """
        found = []
        for one in self.called:
            text = told(one.result) if one.error is None else f"It failed: {one.error.message}"
            cut = text if len(text) <= chars else text[: chars - 1] + "…"
            cut = without_marks(cut)  # a footnote of the text is not a citation
            found.append(RecalledPassage(0, "", one.name, f"tool:{one.name}", cut, origin=TOOL, about=one.name.replace("_", " ")))
        return tuple(found)

    def facts(self) -> dict[str, Any]:
        """Return the effects of the mission for its result: those of this cycle, and strays."""
        if self._toolbox is None or (self._effects is None and not self._attempt.mission.resumed):
            return {}
        own = self._own()
        shown = [self._fact(own.known[key]) for key in own.known if key in own.asked]
        strays = [self._fact(record) for record in own.strays()]
        return {**({"tools": shown} if shown else {}), **({"strays": strays} if strays else {})}

    def _fact(self, record: EffectRecord) -> dict[str, Any]:
        return effects.to_wire(record, chars=self._limits.shown_chars)

    def quotes(self, chars: int) -> str:
        """Return what the tools answered in this cycle, as an answer that quotes it, each with the number of its passage.

        :param chars: greatest number of characters of one.
        """
        said = [(n, without_marks(main_text(one.result).strip())) for n, one in enumerate(self.called, 1) if one.error is None]
        return "\n\n".join(f"{text if len(text) <= chars else text[: chars - 1] + '…'} [{n}]" for n, text in said)

    # --- the caller of `Effects`

    async def allow(self, call: ToolCall) -> str:
        """Return by whose leave a call is made; see `batos.tools.effects.Caller`."""
        while True:
            permission = self._decide(call)
            if permission.verdict != DENY and self._is_by_hand(call):
                return "its user called it"
            if permission.verdict == ASK:
                await self._asked([PendingCall(call, permission)])
                continue
            if permission.verdict == DENY:
                raise GrantRefused(f"{call.name} is not called: {permission.reason}", tool=call.name)
            grant, size = permission.grant, _size(call)
            self._spent[call.key] = 0 if grant is None else grant.id
            if grant is None or await self._image.system(image_grants.spend, grant.id, size, time.time(), mission=self._attempt.mission.id):
                return permission.by  # else it was used up or removed meanwhile: all grants are asked anew

    def ask(self, question: str) -> str:
        """Return the user's answer about an effect in doubt, or of a tool that asks."""
        return self._attempt.ask_operator(question)

    def tied(self) -> str:
        """Return why nothing may be done outside; "" where it may."""
        if not self._acts:
            return "this is a replay or a rehearsal, which only sees what was done before"
        return "" if self._toolbox is None else self._toolbox.tied()

    def label(self) -> str:
        """Return the state and persona that call."""
        return f"- {self._attempt.state or '-'} {self._attempt.persona or '-'} tool"

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the calls so far, by tool and arguments; a trial has its own."""
        return self._attempt.tally.calls

    def tell(self, name: str, line: str) -> None:
        """Publish how far a call is, and keep it for who asks later."""
        line = line[: self._limits.shown_chars]
        self.progress = f"{name}: {line}"
        self._publish(name, "progress", line=line)

    def permits(self, call: ToolCall, arguments: Mapping[str, Any]) -> bool:
        """Return True if the grants allow the same call with other arguments, as where a server redirects it."""
        own = self._spent.get(call.key)  # the grant of this call, of which a redirect is no further use
        table = [one._replace(use=GrantUse(one.use.day)) if one.grant.id == own else one for one in self._grants()]
        return self._decide(dataclasses.replace(call, arguments=arguments), table).verdict == ALLOW

    # --- details

    @property
    def _attempt(self) -> CallsTools:
        """Return the attempt, which lives as long as a call of it."""
        attempt = self._owner()
        assert attempt is not None, "the attempt has ended"
        return attempt

    def _denied(self, call: ToolCall) -> str:
        """Return why a call that was let before is not let any more: a grant that denies it. What would ask now does not count."""
        permission = self._decide(call)
        return permission.reason if permission.grant is not None and permission.grant.verdict == DENY else ""

    def _own(self) -> Effects:
        state = None if self._toolbox is None else self._toolbox.state
        if self._effects is None or self._identity != state:  # a resume puts all that is open in doubt
            self._identity = state
            identity, marks = (state.identity, state.marks) if state is not None else ("", None)
            self._effects = Effects(self._image, self._attempt.mission.id, identity, self, self._denied, marks)
        return self._effects

    async def _asked(self, pending: Sequence[PendingCall]) -> None:
        """Ask the user about calls, in one question. His answers become grants, which decide then: `once` is for this effect alone, also
        after a restart; `no` denies exactly this call in this mission."""
        mission, shown = self._attempt.mission.id, list(pending)
        most = _QUESTION_CHARS * len(shown)
        question = grant_questions.question_text(shown, most)
        answers = grant_questions.read_answers(said := self._attempt.ask_operator(question), len(shown))
        while answers is None:
            again = f"{said[:80]!r} is not an answer to this. {question}"
            answers = grant_questions.read_answers(said := self._attempt.ask_operator(again), len(shown))
        now = time.time()
        made = []
        for answer, one in zip(answers, shown, strict=True):
            broad = grant_questions.grant_for(answer, one, mission)
            made += [] if broad is None else [broad]
            if answer != grant_questions.NEVER:  # what makes it ask may still do so: this very call needs no more
                twin = one.call.key in self._repeated or any(_same(one, other) for other in shown if other is not one)
                made.append(_for_once(answer, one, mission, alone=twin))
        await self._image.system(image_grants.add_all, made, now, mission=mission)

    def _note_repeats(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Note the keys of calls that act twice if they are made twice, and that the mission has made before."""
        for (name, arguments), after in _numbered(calls):
            if (after or self.counts()[name, effects.canonical(arguments)]) and self._kind(name) not in ("", READS, IDEMPOTENT):
                self._repeated.add(self._own().next_key(name, arguments, after))

    async def _ask_together(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Ask one question about all of these calls that need leave and are not made yet, so that the mission waits for its user once."""
        if self._toolbox is None or len(calls) < 2 or self.tied():
            return
        pending = []
        for (name, arguments), after in _numbered(calls):
            key = self._own().next_key(name, arguments, after)
            if key in self._own().known:
                continue
            with contextlib.suppress(BatosError):  # the call itself tells
                call = dataclasses.replace(await self._toolbox.prepare(name, arguments), key=key)
                permission = self._decide(call)
                if permission.verdict == ASK and not self._is_by_hand(call):
                    pending.append(PendingCall(call, permission))
        if len(pending) > 1:
            await self._asked(pending[: grant_questions.MOST_CALLS])

    def _grants(self) -> Sequence[CurrentGrant]:
        return self._image.read(image_grants.all_grants, time.time())

    def _decide(self, call: ToolCall, table: Sequence[CurrentGrant] | None = None) -> grants.Permission:
        request = self._request(call.connection, call.tool, call.arguments, self._marks(), _size(call))
        request = dataclasses.replace(request, effect=call.key)
        permission = grants.decide(self._grants() if table is None else table, request)
        answered = permission.grant is not None and permission.grant.effect == call.key
        if permission.verdict != ALLOW or call.tool.kind == READS or answered:
            return permission
        if self._image.read(identity.asks_first, self._attempt.mission.number):
            why = "the image was copied, restored or replaced after this mission began, which may have done it elsewhere"
            return permission._replace(verdict=ASK, grant=None, reason=why)
        if call.key in self._repeated:
            return permission._replace(verdict=ASK, grant=None, reason="the mission has made the very same call before")
        if why := (self._sender or _calling_method()).why_asks:
            return permission._replace(verdict=ASK, grant=None, reason=why)
        return permission

    def _note_act(self, name: str) -> None:
        """Note that a method of a connection has acted, in the mission's own transaction."""
        if self._kind(name) != READS and (method := _new_to_act()) is not None:
            method.acted = self._attempt.mission.id

    def _request(
        self, connection: str, tool: ToolDefinition, arguments: Mapping[str, Any], marks: frozenset[str], size: int = 0
    ) -> grants.ToolRequest:
        mission = self._attempt.mission
        return grants.ToolRequest(
            connection=connection,
            tool=tool,
            arguments=arguments,
            mission=mission.id,
            persona=self._attempt.persona.lower(),
            origin=grants.SYSTEM if mission.origin == "system" else grants.USER,
            now=time.time(),
            size=size,
            marks=marks,
        )

    def _marks(self) -> frozenset[str]:
        def definition(name: str) -> ToolDefinition | None:
            try:
                return None if self._toolbox is None else self._toolbox.find(name)[1]
            except UnknownTool:
                return None

        mission = self._attempt.mission
        earlier, origins = self._image.read(_followed, mission.context)
        records, origins = [*self._own().known.values(), *earlier], {mission.origin, *origins}
        told = frozenset({grants.UNTRUSTED}) if origins & FROM_OTHERS else frozenset[str]()
        recalled = self._attempt.has_private or bool(origins & WITH_FILES)
        return told | grants.collected_marks(records, definition, recalled)

    def _is_by_hand(self, call: ToolCall) -> bool:
        """Return True if the mission is the call itself: its user sent it to the connection as a message."""
        mission, sender = self._attempt.mission, self._sender or _calling_method()
        message = json.loads(mission.message) if mission.message and mission.origin != "system" else {}
        return message.get("selector") == CALL and message.get("args", [])[:1] == [call.tool.name] and not sender.is_one

    def _kind(self, name: str) -> str:
        try:
            return "" if self._toolbox is None else self._toolbox.find(name)[1].kind
        except UnknownTool:
            return ""

    def _publish(self, name: str, step: str, **facts: Any) -> None:
        self._attempt.publish("tool", tool=name, step=step, **facts)

    def _short(self, value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        most = self._limits.shown_chars
        return text if len(text) <= most else text[: most - 1] + "…"


def _own_method() -> Method | None:
    """Return the method that makes the current call, if it is a connection's own."""
    run = scope.current().run
    holder = None if run is None else run.holder()
    own = holder is not None and holder._p_jar is not None and connections.is_connection(holder._p_jar.root(), holder)
    return run.method if own else None


def _new_to_act() -> Method | None:
    """Return the method that makes the current call, if it is a connection's own and has not acted before."""
    method = _own_method()
    return method if method is not None and not method.acted else None


def _calling_method() -> CallingMethod:
    """Return what is known of the method that makes the current call."""
    new = _new_to_act()
    why = "" if new is None else f"it is the first thing that the method {new.selector!r} does outside, version {new.version}"
    return CallingMethod(bool(senders()), why)


async def _unsent(delivery: Delivery) -> Any:
    raise ToolsTied("this call is only decided on")


def _followed(root: Any, context: str | None) -> tuple[list[EffectRecord], set[str]]:
    """Return the effects of the missions that one follows, whose answers are in the conversation, and the origins of their briefs."""
    found, origins, left = list[EffectRecord](), set[str](), _EARLIER
    while context is not None and left and (mission := root["ledger"].missions.get(context)) is not None:
        found += effects.load(root, mission.id)
        origins.add(mission.origin)
        context, left = mission.context, left - 1
    return found, origins


def told(result: Any) -> str:
    """Return a tool's result as a prompt shows it: a text as it is, fields of an object one a line, all else as JSON."""
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        return "\n".join(f"{name}: {_value(value)}" for name, value in result.items() if value not in (None, "", [], {}))
    if isinstance(result, list):
        return "\n".join(map(_value, result))
    return json.dumps(result, ensure_ascii=False)


def main_text(result: Any) -> str:
    """Return the part of a tool's result that a user wants to read: its text, where an object has one, else all of it."""
    if isinstance(result, dict):
        texts = [result[name] for name in _TEXTS if isinstance(result.get(name), str) and result[name].strip()]
        if texts:
            return str(texts[0])
        if isinstance(result.get("body"), dict | list):
            return told(result["body"])
    return told(result)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _numbered(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[tuple[str, Mapping[str, Any]], int]]:
    """Yield calls, each with the number of the same ones before it."""
    seen = Counter[tuple[str, str]]()
    for name, arguments in calls:
        said = effects.canonical(arguments)
        yield (name, arguments), seen[name, said]
        seen[name, said] += 1


def _same(one: PendingCall, other: PendingCall) -> bool:
    return (one.call.name, effects.canonical(one.call.arguments)) == (other.call.name, effects.canonical(other.call.arguments))


def _for_once(answer: str, pending: PendingCall, mission: str, *, alone: bool) -> GrantRecord:
    """Return the grant that `once` or `no` makes, for this effect or for exactly this call in this mission. It is also the grant where
    another answer's would be too long. The user who answered has seen what would leave: what the mission reads meanwhile does not ask about
    it anew.

    :param alone: True if the mission has the same call elsewhere, which a `no` to this one does not mean.
    """
    made = GrantRecord(0, ALLOW, pending.call.name, mission=mission, origin=f"answer to mission {mission}")
    if answer != grant_questions.REFUSE:
        return made._replace(leaks=True, effect=pending.call.key)
    if alone:
        return made._replace(verdict=DENY, effect=pending.call.key)
    exact = effects.canonical({**{name: {"const": value} for name, value in pending.call.arguments.items()}, OTHERS: False})
    return made._replace(verdict=DENY, args=exact)


def _size(call: ToolCall) -> int:
    return len((call.payload or json.dumps(dict(call.arguments), ensure_ascii=False)).encode("utf-8", "replace"))
