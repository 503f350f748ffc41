"""Runtime of generated methods: the guardian, the sandbox, and claims on the methods that are being written.

Concurrent sends of the same missing message have it written once. Others see a method when the mission that wrote it has committed. So a
mission that comes second leaves its unit of work and waits until the first has ended. It begins again with a view that has the method.
Where waiting could go round in a circle, neither waits: both write, and a conflict of the database settles it. `Making` does the same
inside one attempt.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import datetime
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

from batos import scope
from batos.bus import EventBus, MethodRan, SourceAudited
from batos.config import Settings
from batos.errors import BatosSignal, MethodError
from batos.guardian import PersistenceGuardian, Verdict, policy_named
from batos.image import taught_examples
from batos.image.living_image import LivingImage
from batos.objects import Example, Intent, Method, Primitive, UvmObject, find
from batos.objects.json_form import oid_of
from batos.sandbox import Activity, Sandbox, Sender
from batos.sandbox.tracing import TraceListener
from batos.synthesis.specification import KINDS, kind_of
from batos.tools import connections


class BeingWritten(BatosSignal):
    """Signal that another mission is writing the method that this one needs: the cycle begins again when that one has ended."""

    def __init__(self, other: str) -> None:
        super().__init__(other)
        self.other = other


class WriterAwaited(BatosSignal):
    """Signal that the expert that writes methods may be there soon: the cycle that needs one begins again when that is known."""


class Claims:
    """Claims on the methods that are being written, each by one attempt (named by its mission)."""

    def __init__(self) -> None:
        self.owners: dict[Hashable, str] = {}
        self._ended: dict[str, asyncio.Event] = {}
        self._waiting: dict[str, str] = {}

    def claim(self, key: Hashable, owner: str) -> None:
        """Claim a method for a mission, until `release`.

        :raises BeingWritten: if another mission has claimed it, and can be waited for.
        """
        other = self.owners.setdefault(key, owner)
        if other == owner:
            self._ended.setdefault(owner, asyncio.Event())
        elif not self._leads_to(other, owner):
            raise BeingWritten(other)

    async def ended(self, other: str, owner: str) -> None:
        """Wait, for the mission `owner`, until the mission `other` has released its claim."""
        event = self._ended.get(other)
        if event is None or self._leads_to(other, owner):
            return
        self._waiting[owner] = other
        try:
            await event.wait()
        finally:
            del self._waiting[owner]

    def release(self, owner: str) -> None:
        """End the attempt's claims, so that others may look for the methods that were written in it."""
        for key in [key for key, holder in self.owners.items() if holder == owner]:
            del self.owners[key]
        event = self._ended.pop(owner, None)
        if event is not None:
            event.set()

    def _leads_to(self, other: str, owner: str) -> bool:
        """Return True if `other` waits, directly or by way of others, for `owner`."""
        seen = {other}
        while (other := self._waiting.get(other, "")) and other not in seen:
            if other == owner:
                return True
            seen.add(other)
        return False


def misfit(source: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return why a call does not fit a method's parameters; None if it does."""
    given = inspect.Signature(parameters_of(source))
    try:
        given.bind(*args, **kwargs)
    except TypeError as e:
        return f"it is called with {len(args)} arguments{''.join(f', {name}=' for name in kwargs)}: {e}"
    return None


def takes(source: str, taught: Sequence[Example], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True if a method is for a call: the call fits the parameters, and gives each parameter a value of its kind.

    The kinds of a parameter are those that examples give it, and that its name says (`plain_values.signature`). Without either it takes
    any.

    :param taught: the examples of the method.
    """
    signature = inspect.Signature(parameters_of(source))
    kinds: dict[str, set[str]] = {name: {name.rstrip("0123456789")} & KINDS for name in signature.parameters}
    for one in taught:
        with contextlib.suppress(TypeError):  # the arguments belong to a method with other parameters
            for name, value in signature.bind(*one.args, **dict(one.kwargs)).arguments.items():
                kinds[name].add(_kind(value))
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return False
    return all(not kinds[name] - {_NOTHING} or _kind(value) in (*kinds[name], _OTHER) for name, value in given.items())


_NOTHING, _OTHER = "nothing", "other"


def _kind(value: Any) -> str:
    return _NOTHING if value is None else kind_of(value)


def parameters_in(source: str) -> list[str]:
    """Return the parameters of a method's source behind `self`, in words."""
    return [str(parameter) for parameter in parameters_of(source)]


def parameters_of(source: str) -> list[inspect.Parameter]:
    """Return the parameters behind `self`, as the signature of the definition has them."""
    definition = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    spec, kinds = definition.args, inspect.Parameter
    positional = [*spec.posonlyargs, *spec.args]
    missing = len(positional) - len(spec.defaults)
    found = [kinds(arg.arg, kinds.POSITIONAL_OR_KEYWORD, default=kinds.empty if i < missing else None) for i, arg in enumerate(positional)][
        1:
    ]
    if spec.vararg:
        found.append(kinds(spec.vararg.arg, kinds.VAR_POSITIONAL))
    pairs = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    found += [kinds(arg.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else None) for arg, default in pairs]
    if spec.kwarg:
        found.append(kinds(spec.kwarg.arg, kinds.VAR_KEYWORD))
    return found


Forge = Callable[[Any, UvmObject, str, Sequence[Any], Mapping[str, Any]], Awaitable[Method]]
"""Writes a missing method. The first argument is the attempt that needs it, a `batos.mind.attempt.Attempt`, which this package does not
know.
"""


class MethodRuntime:
    """Guardian, sandbox and claims; one for the daemon. The sandbox is started when the first method runs."""

    def __init__(
        self,
        image: LivingImage,
        settings: Settings,
        *,
        forge: Forge,
        deliver: Sender,
        bus: EventBus | None = None,
        writers_known: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """
        :param forge: writes a missing method.
        :param deliver: sends a method's messages to their receivers.
        :param bus: receives `SourceAudited` and `MethodRan`; None: no events are sent, as in a rehearsal.
        :param writers_known: returns when it is known which experts are there, after a start.
        """
        self.image, self.settings, self.forge, self.deliver = image, settings, forge, deliver
        self.claims = Claims()
        self.trace: TraceListener | None = None
        """Hears of each run of a method, where a user steps through them."""
        self._guardian, self._policy = PersistenceGuardian(settings, Primitive.reaching()), policy_named(settings.methods.policy)
        self.bus = bus or EventBus()
        self._sandbox = Sandbox(settings)
        self._starting = asyncio.Lock()
        self._started = False
        self.writers_known = writers_known

    def audit(
        self, source: str, selector: str, *, tools: bool = False, sealed: bool = False, denied: Callable[[str], bool] | None = None
    ) -> Verdict:
        """Return the guardian's verdict, by the policy of the settings.

        :param tools: True for a method that may use tools: the policy grants that besides.
        :param sealed: True for a plan, to which free texts of tools are sealed; likewise.
        :param denied: returns True for a tool (`CONNECTION.TOOL`) that the method may not call; None: it may call all.
        """
        granted = [name for name, wanted in ((TOOLS, tools), (SEALED, sealed)) if wanted]
        policy = self._policy.granting(*granted) if granted else self._policy
        there = self.image.read(connections.reachable_tools) if TOOLS in policy.capabilities else None
        if there is not None and denied is not None:
            there = {alias: {name: tool._replace(denied=denied(tool.name)) for name, tool in held.items()} for alias, held in there.items()}
        verdict = self._guardian.audit(source, selector, policy, tools=there)
        self.bus.publish(SourceAudited(verdict.accepted))
        return verdict

    def lets_pass(self, source: str, selector: str) -> bool:
        """Return True if the guardian accepts a source that no model wrote; it is not counted. Any thread may call this."""
        return self._guardian.audit(source, selector, self._policy).accepted

    async def sandbox(self) -> Sandbox:
        """Return the sandbox, started.

        :raises SandboxFailed: if no worker runs.
        """
        async with self._starting:
            if not self._started:
                await self._sandbox.start()
                self._started = True
        return self._sandbox

    @property
    def writer_awaited(self) -> bool:
        """Return True if an expert for methods may be there soon, where none is there."""
        return self.writers_known is not None and self.settings.methods.writer == "expert"

    async def writer_known(self) -> None:
        """Wait until it is known if there is an expert for methods."""
        if self.writers_known is not None:
            await self.writers_known()
            self.writers_known = None

    async def close(self) -> None:
        """End the sandbox, if it was started."""
        if self._started:
            await self._sandbox.close()


TOOLS, SEALED = "tools", "sealed"
"""Capability of the guardian's policy that lets a method use tools; and that of plans, to which free texts of tools are sealed."""


def may_use_tools(method: Method) -> bool:
    """Return True if the policy under which a method was written lets it use tools."""
    return TOOLS in str(dict(method.provenance).get("policy", "")).split("+")


def is_sealed(method: Method) -> bool:
    """Return True if free texts that tools answer to a method are sealed: it is a plan."""
    return SEALED in str(dict(method.provenance).get("policy", "")).split("+")


def home_of(obj: UvmObject, selector: str) -> UvmObject:
    """Return the object that is to hold a method. It is the one that holds the Intent or the earlier method, so that all that inherit have
    it. Else it is the receiver."""
    found = find(obj, selector)
    return found[0] if found is not None and isinstance(found[1], Intent | Method) else obj


def taken(obj: UvmObject, holder: UvmObject, method: Method, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True if a method takes a call. It does so by its parameters, by what the receiver and the holder were taught, or because an
    earlier version took it. A call that only the new version rejects is the fault of the new version.
    """
    taught = [
        one
        for home in {obj, holder}
        if home._p_jar is not None
        for one in taught_examples.examples_of(home._p_jar.root(), home, method.selector)[0]
    ]
    return any(takes(one.source, taught, args, kwargs) for one in method.versions())


class Making:
    """Methods of one attempt at a mission: those it runs, those it writes."""

    def __init__(self, mission: str, accepted: float, methods: MethodRuntime) -> None:
        self.methods = methods
        self._mission = mission
        self._now = datetime.datetime.fromtimestamp(accepted, datetime.UTC)
        self._writing: dict[Hashable, asyncio.Future[None]] = {}
        self._waits: list[tuple[tuple[Hashable, ...], Hashable]] = []
        self.restart()

    def restart(self) -> None:
        """Begin anew: no method was run yet."""
        self.activity = self.new_activity()

    def new_activity(self) -> Activity:
        """Return the state that the methods of one run share. Clock and seed are those of the mission, so that a replay is exact."""
        return Activity(send=self.methods.deliver, seed=self._mission, now=self._now, trace=self.methods.trace)

    async def run(self, obj: UvmObject, holder: UvmObject, method: Method, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a method in the mission's own transaction."""
        sandbox, oid = await self.methods.sandbox(), oid_of(holder) or ""
        try:
            value = await sandbox.run(obj, method, args, kwargs, activity=self.activity, holder=holder)
        except MethodError:
            self.methods.bus.publish(MethodRan(oid, method.selector, False, taken(obj, holder, method, args, kwargs)))
            raise
        self.methods.bus.publish(MethodRan(oid, method.selector, True))
        return value

    @contextlib.asynccontextmanager
    async def writing(self, key: Hashable) -> AsyncIterator[bool]:
        """Wait for the turn to write a method; the block writes it. It gets True if another part of this mission wrote it meanwhile.

        Where waiting could go round in a circle, the part that would close the circle does not wait. It writes for a trial, of which
        nothing is kept.
        """
        waited, around = False, scope.current().writing
        while (other := self._writing.get(key)) is not None and not self._leads_to(key, around):
            wait = around, key
            self._waits.append(wait)
            try:
                await asyncio.wait([other])
            finally:
                self._waits.remove(wait)
            waited = True
        done = asyncio.get_running_loop().create_future()
        self._writing.setdefault(key, done)
        try:
            with scope.enter(writing=(*around, key)):
                yield waited
        finally:
            if self._writing.get(key) is done:
                del self._writing[key]
            done.set_result(None)

    def _leads_to(self, key: Hashable, around: tuple[Hashable, ...]) -> bool:
        """Return True if the writer of `key` waits, directly or through others, for a method that is written in this context."""
        found, more = {key}, {key}
        while more:
            more = {wanted for by, wanted in self._waits if not found.isdisjoint(by)} - found
            found |= more
        return not found.isdisjoint(around)

    def release(self) -> None:
        """Release the claims of this attempt, which has ended: others may look for the methods that were written in it."""
        self.methods.claims.release(self._mission)
