"""Invocation: one run of one method. The loop's thread drives the worker by hand, in the mission's own transaction.

The worker computes until it needs something: a slot, a send, the clock. It stops while the host finds the answer, which may take an
inference; then it resumes. Signals, cancellation, conflicts of the database and limits never go back into the worker: they end the run,
and everything it wrote is undone.

A turn of a run is one such computation. It runs on the loop's own thread if it is expected to be short, else on a helper thread, which the
loop awaits. A turn that exceeds the expectation is cut off. Its worker is killed, and another one repeats the run up to there, off the
loop, with the answers that the first one got. A run depends only on its program, its arguments and these answers, so nothing is asked or
done twice.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import operator
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transaction.interfaces import TransientError
from ZODB.POSException import POSError

from batos import resources, scope
from batos.errors import (
    BatosError,
    GrantRefused,
    ImageError,
    MessageNotUnderstood,
    MethodFailed,
    MissionFailed,
    SandboxFailed,
    SandboxLimit,
    ToolsTied,
)
from batos.objects import Intent, Method, Primitive, UvmObject, find, parents_of
from batos.objects.slot_values import PLAIN
from batos.sandbox import run_context
from batos.sandbox.membrane import (
    CONTAINER,
    Handle,
    Handles,
    Membrane,
    SlotJournal,
    TooLarge,
    check_slot_name,
    client,
    is_number_in_slot,
    unchanged,
)
from batos.sandbox.prelude import ERRORS
from batos.sandbox.run_context import Activity, RunLimits
from batos.sandbox.worker_calls import Overdue
from batos.sandbox.workers import Workers, WorkerSession

if TYPE_CHECKING:
    from batos.sandbox.program_cache import Loaded

_REPEATED = 16  # answers kept so that they can be repeated; a run with more answers is no longer cut off

Answer = Callable[[Any], Any]
"""Resumes a snapshot, and answers the next snapshot."""


class Drive:
    """A run in a worker. `begin` and `answer` return the snapshot at which the run waits, or its end."""

    def __init__(self, workers: Workers, session: WorkerSession, loaded: Loaded, activity: Activity) -> None:
        self._workers, self._session, self._loaded, self._activity = workers, session, loaded, activity
        self._begin: Callable[[], Any] | None = None
        self._answers: list[tuple[Any, Answer]] | None = []

    async def begin(self, feed: Callable[[WorkerSession], Any]) -> Any:
        """Return the first turn: `feed` gives a worker's session its code."""
        self._begin = functools.partial(feed, self._session)
        return await self._turn(self._begin)

    async def answer(self, snapshot: Any, answer: Answer) -> Any:
        """Return the next turn."""
        if self._answers is not None and len(self._answers) < _REPEATED:
            self._answers.append((_question(snapshot), answer))
        else:
            self._answers = None
        return await self._turn(functools.partial(answer, snapshot))

    async def _turn(self, call: Callable[[], Any]) -> Any:
        pace, begun = self._loaded.pace, time.perf_counter()
        charged = resources.charge(None)  # charge what the client computes in a turn to the turn's time
        try:
            if self._answers is not None and pace.short:
                return await self._session.short_turn(call)
            return await self._session.turn(call)
        except Overdue:
            pace.cut()
            return await self._again()
        finally:
            took = time.perf_counter() - begun
            pace.took(took)
            self._activity.seconds += took
            resources.charge(charged)

    async def _again(self) -> Any:
        assert self._begin is not None
        answers, self._answers = self._answers or [], None
        await self._workers.load(self._session, self._loaded.image)
        snapshot = await self._session.turn(self._begin)
        for question, answer in answers:
            if _question(snapshot) != question:
                raise SandboxFailed(f"{self._loaded.program.selector}: done again, the run went another way")
            snapshot = await self._session.turn(functools.partial(answer, snapshot))
        return snapshot


def _question(snapshot: Any) -> tuple[Any, ...]:
    return type(snapshot), getattr(snapshot, "object_id", None), getattr(snapshot, "function_name", None)


BUILT_IN = ("_clone_persistent_", "clone", "derive")
"""Messages that every object understands without a slot."""
LOOKUP, UNDERSTANDS = "_lookup_", "_understands_"
"""Slots by which host code stands for slots that an object does not have. `_lookup_` is sent the name, and answers the value; what
`_understands_` answers are messages: it is sent the name with their arguments."""
FATAL = (TransientError, POSError, MissionFailed, ImageError, SandboxFailed, SandboxLimit, ToolsTied)
"""Errors that a method must not catch: the mission's transaction or its budget is gone, or nothing may be done outside."""
_NOTHING_FURTHER: tuple[Any, ...] = ({}, [], False)  # a send without arguments by name, without changes, and not to a parent
_ANSWERING = (Method, Intent, Primitive)  # types of slot values that answer messages
_HEAVY = 5000  # nodes held; comparing that many takes milliseconds
_SENT_ALONG = 2000  # nodes of a slot sent along before the method asks; larger slots are sent on request


def running() -> Invocation | None:
    """Return the run on whose behalf host code works now; None where no method sent anything."""
    run: Invocation | None = scope.current().run
    return run


def senders() -> list[Invocation]:
    """Return the runs on whose behalf host code works now, the innermost first; none where no method sent anything."""
    found, run = [], running()
    while run is not None:
        found.append(run)
        run = run.sender
    return found


class Stale(Exception):
    """A slot was changed by another message of the same mission since this run read it."""


class WorkerLost(SandboxFailed):
    """The worker died before the run had asked for anything: perhaps long before, while it waited. Another may be tried."""


class Invocation:
    """One run. `run` answers the method's value, checked, or raises."""

    def __init__(
        self,
        workers: Workers,
        limits: RunLimits,
        loaded: Loaded,
        obj: UvmObject,
        method: Method,
        holder: UvmObject | None,
        activity: Activity,
        outer: Invocation | None,
    ) -> None:
        self._workers, self.loaded, self.obj, self.method, self._holder = workers, loaded, obj, method, holder
        self.activity, self.outer, self.sender = activity, outer, running()
        self.depth: int = 1 if outer is None else outer.depth + 1
        self.started: dict[str, int] = {}
        counts = activity.started if outer is None else outer.started
        count = counts[method.selector] = counts.get(method.selector, 0) + 1
        self.path: str = f"{'' if outer is None else outer.path}/{method.selector}:{count}"
        self.journal, self.limits = SlotJournal(), limits
        self.handles = Handles(activity.name)
        self.membrane = Membrane(self.handles, nodes=limits.nodes, text=limits.text_bytes)
        self._given: dict[tuple[int, str], tuple[UvmObject, str, Any, int]] = {}
        self._weight = self._calls = 0
        self._errors: dict[tuple[str, str], BatosError] = {}
        self.acted = False
        self.given: tuple[Sequence[Any], Mapping[str, Any]] = ((), {})
        """Arguments of the message that the method answers, by position and by name."""

    async def run(self, session: WorkerSession, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the method in a worker that has it loaded, apply its changes, and return its value.

        :raises MethodFailed: for an exception of the method itself. Other errors: see the module.
        """
        monty, self.given = client(), (args, kwargs)
        try:
            given = self._inputs(args, kwargs)
            code = f"_b_run({self.loaded.program.function}, {', '.join(given)})"
            drive = Drive(self._workers, session, self.loaded, self.activity)
            try:
                snapshot = await drive.begin(lambda held: held.monty.feed_start(code, inputs=given, print_callback=held.output))
                if self.activity.computed > self.limits.total_s:
                    raise self._out_of_time()
                if not isinstance(snapshot, monty.MontyComplete):
                    snapshot = await self._answered(drive, snapshot)
            except monty.MontyError as e:
                raise self._failure(e) from e
            value = self._ended(snapshot.output)
        except (TransientError, POSError):
            raise  # the whole transaction is lost and takes no more changes
        except BaseException:
            self.journal.undo()
            raise
        if self.outer is not None:
            self.outer.journal.adopt(self.journal)
        return value

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the worker's inputs by name, in the order in which `_b_run` takes them.

        Each container that crosses costs microseconds, so empty ones at the end are left out.
        """
        try:
            given: dict[str, Any] = {"_b_o": self.handles.give(self.obj), "_b_a": self.membrane.inward(tuple(args)) if args else ()}
            named = self.membrane.inward(dict(kwargs)) if kwargs else None
            known = self._known() if self.loaded.program.reads else None
        except (TypeError, ValueError) as e:
            raise MethodFailed(self.method.selector, type(e).__name__, str(e)) from e
        if known or named:
            given["_b_known"] = known or {}
        if named:
            given["_b_kw"] = named
        return given

    async def _answered(self, drive: Drive, snapshot: Any) -> Any:
        """Answer the worker's requests until it has ended."""
        monty, limits = client(), self.limits
        with scope.enter(run=self):
            while not isinstance(snapshot, monty.MontyComplete):
                self._calls += 1
                if self._calls > limits.host_calls:
                    raise self._limit("host_calls", f"more than {self._calls - 1} reads, sends and the like")
                snapshot = await drive.answer(snapshot, await self._step(snapshot))
                if self.activity.computed > limits.total_s:
                    raise self._out_of_time()
        return snapshot

    def _ended(self, output: Any) -> Any:
        changes: Any = []
        if type(output) is list:
            if len(output) != 2:
                raise MethodFailed(self.method.selector, "TypeError", "no value came out of the sandbox")
            output, changes = output
        try:
            value = self.membrane.outward(output)
            if changes != []:
                self._write(changes)
        except TooLarge as e:
            raise self._limit("result", str(e)) from e
        except Stale:
            raise
        except (TypeError, ValueError, AttributeError, PermissionError) as e:
            raise MethodFailed(self.method.selector, type(e).__name__, str(e)) from e
        return value

    # --- values sent along, and changes since then

    def _known(self) -> dict[str, Any]:
        """Return the slots that the method's text reads of its receiver, if they are small. The method need not ask for them."""
        known = {}
        for name in self.loaded.program.reads:
            held = find(self.obj, name) if name not in BUILT_IN else None
            if held is None or isinstance(held[1], _ANSWERING):
                continue
            try:
                plain = self.membrane.inward(held[1], nodes=_SENT_ALONG, text=64 * _SENT_ALONG)
            except (TypeError, ValueError):
                continue  # the method gets the reason if it asks
            known[name] = self._give(self.obj, name, plain, self.membrane.weight)
        return known

    def _give(self, obj: UvmObject, name: str, plain: Any, weight: int) -> Any:
        """Note that the run has this value of a slot. All such values are compared after each send, so their total size is limited."""
        key = (id(obj), name)
        self._weight += weight - self._given.get(key, (obj, name, None, 0))[3]
        if self._weight > self.limits.nodes:
            raise self._limit("result", "more data of slots than a method may hold at a time")
        self._given[key] = (obj, name, plain, weight)
        return plain

    def _refreshed(self) -> list[list[Any]]:
        """Return the slots given to this run that have changed since: `[object, slot, value]`, or `[object, slot]` for a removed one."""
        changed: list[list[Any]] = []
        for key, (obj, name, plain, _) in list(self._given.items()):
            held = find(obj, name)
            if held is not None and unchanged(held[1], plain):
                continue
            if held is None or isinstance(held[1], _ANSWERING):
                self._weight -= self._given.pop(key)[3]
                changed.append([self.handles.give(obj), name])
            else:
                changed.append([self.handles.give(obj), name, self._give(obj, name, self.membrane.inward(held[1]), self.membrane.weight)])
        return changed

    def _write(self, changes: Any) -> None:
        """Apply the changes that the sandbox reports. They are untrusted."""
        if type(changes) is list and len(changes) == 1 and is_number_in_slot(changes[0]):
            plain, weight = changes, 2 * CONTAINER + 2  # the weight that the conversion would count
        else:
            plain = self.membrane.outward(changes)  # convert as one value: a thousand slots may share one large list
            if type(plain) is not list or not all(type(change) is list and 2 <= len(change) <= 3 for change in plain):
                raise TypeError("changes are a list of object, slot and value")
            weight = self.membrane.weight // max(1, len(plain))
        for change in plain:
            obj, name, value = change if len(change) == 3 else (self.obj, *change)
            if not isinstance(obj, UvmObject):
                raise TypeError(f"a {type(obj).__name__} has no slots; only objects of the image have them")
            check_slot_name(name)
            if obj is not self.obj and not self.activity.may_write(obj, self.obj):
                raise PermissionError(f"slot {name!r} of another object is written by that object's own methods: send it a message")
            given = self._given.get((id(obj), name))
            if given is not None and ((held := find(obj, name)) is None or not unchanged(held[1], given[2])):
                raise Stale(name)
            self.journal.write(obj, name, self._give(obj, name, value, weight + CONTAINER * (3 - len(change))))

    # --- requests of the worker

    async def _step(self, snapshot: Any) -> Answer:
        """Answer the worker's question. Return the value that resumes it."""
        monty = client()
        if isinstance(snapshot, monty.NameLookupSnapshot):
            return await self._lookup(snapshot)
        if not isinstance(snapshot, monty.FunctionSnapshot):
            raise self._limit("host_calls", "a future that is never resolved")
        try:
            if snapshot.is_os_function:
                answer = run_context.deterministic_answer(self.activity, self.path, str(snapshot.function_name), snapshot.args)
            else:
                answer = await self._asked(snapshot)
            return operator.methodcaller("resume", {"return_value": answer})
        except (*FATAL, Stale):
            raise
        except Exception as e:
            kind, text = self._told(e)
            return operator.methodcaller("resume", {"exc_type": kind, "message": text})

    async def _lookup(self, snapshot: Any) -> Answer:
        # Only text that bypassed the rewriter asks this way, such as patterns. Unbound names come here, too.
        missing = operator.methodcaller("resume")
        if snapshot.object_id is None:
            return missing
        try:
            kind, value = await self._read(self.handles.get(snapshot.object_id), snapshot.variable_name)
        except (*FATAL, Stale):
            raise
        except Exception:
            return missing
        return operator.methodcaller("resume", value=value) if kind == 0 else missing

    async def _sent_around(self, target: Handle, selector: Any, args: Any, kwargs: Any) -> Any:
        answer = await self._settled(self._call, target, selector, args, kwargs, [], False)
        return answer[1] if type(answer) is list else answer

    def _asked(self, snapshot: Any) -> Awaitable[Any]:
        name, args = snapshot.function_name, snapshot.args
        if snapshot.object_id is not None:
            return self._sent_around(self.handles.get(snapshot.object_id), name, list(args), dict(snapshot.kwargs))
        if name == "_b_call" and len(args) == 2:
            return self._settled(self._call, self.handles.give(self.obj).value, *args, *_NOTHING_FURTHER)
        if name == "_b_call" and len(args) in (3, 6):
            return self._settled(self._call, self.handles.get(args[0]), *args[1:], *_NOTHING_FURTHER[len(args) - 3 :])
        if name == "_b_read" and len(args) == 2:
            return self._read(self.handles.get(args[0]), args[1])
        if name == "_b_drop" and len(args) == 4:
            return self._settled(self._drop, self.handles.get(args[0]), *args[1:])
        if name == "import":
            raise ModuleNotFoundError("a method cannot import this module")
        raise NameError(f"name {str(name)[:100]!r} is not defined")

    async def _settled(self, work: Any, *args: Any) -> Any:
        """Return `[True, value, refreshed]`, or `[False, [type, text], refreshed]`: refreshed slots go along with an exception, too.

        If nothing was refreshed, return the value alone, unless it is a list.
        """
        try:
            value = [True, self.membrane.inward(await work(*args))]
        except (*FATAL, Stale):
            raise
        except Exception as e:
            if not self._given:
                raise
            value = [False, list(self._told(e))]
        if self._weight > _HEAVY:
            await asyncio.sleep(0)  # a nested run may have just written as much: give the loop a turn in between
        refreshed = self._refreshed() if self._given else []
        return value[1] if value[0] and not refreshed and type(value[1]) is not list else [*value, refreshed]

    async def _read(self, target: Handle, name: Any) -> tuple[int, Any]:
        """Return `(0, value)` for data and `(1, None)` for slots that answer messages."""
        obj = target.obj
        held = find(obj, check_slot_name(name))
        if held is None:
            parent = obj._slots.get(f"{name}*")
            if isinstance(parent, UvmObject):
                return 0, self.handles.give(parent, self.obj if obj is self.obj else None)
            if name in BUILT_IN or find(obj, UNDERSTANDS) is not None:
                return 1, None
            if find(obj, LOOKUP) is not None:
                return 0, self.membrane.inward(await self._sent(obj, LOOKUP, [name], {}, ()))
            if find(obj, "_doesNotUnderstand_") is not None:
                return 0, self.membrane.inward(await self._sent(obj, "_doesNotUnderstand_", [name], {}, ()))
            raise MessageNotUnderstood(obj, name)
        if isinstance(held[1], _ANSWERING):
            return 1, None
        return 0, self._give(obj, name, self.membrane.inward(held[1]), self.membrane.weight)

    def _call(self, target: Handle, selector: Any, args: Any, kwargs: Any, changes: Any, above: Any) -> Awaitable[Any]:
        if changes != []:
            self._write(changes)
        check_slot_name(selector)
        arguments, named = self.membrane.outward(args), {}
        if kwargs != {}:
            named = self.membrane.outward(kwargs)
        if type(arguments) not in (list, tuple) or (named != {} and (type(named) is not dict or not all(type(k) is str for k in named))):
            raise TypeError("arguments are a list, and a dict by name")
        start: tuple[UvmObject, ...] = ()
        obj = target.obj
        if target.receiver is not None:
            obj, start = target.receiver, (obj,)
        elif above is True:
            if obj is not self.obj:
                raise PermissionError("only a method's own receiver can be resent to")
            start = parents_of(self.holder())
            if not start:
                raise MessageNotUnderstood(obj, selector)
        return self._sent(obj, selector, list(arguments), named, start)

    async def _sent(self, obj: UvmObject, selector: str, args: list[Any], kwargs: dict[str, Any], start: tuple[UvmObject, ...]) -> Any:
        self.activity.sends += 1
        self.acted = True
        if self.activity.sends > self.limits.sends:
            raise self._limit("sends", f"more than {self.limits.sends} sends by the methods of one mission")
        answer = await self.activity.send(obj, selector, args, kwargs, start=start)
        return await answer if type(answer) not in PLAIN and inspect.isawaitable(answer) else answer

    async def _drop(self, target: Handle, name: Any, changes: Any, written: Any) -> None:
        self._write(changes)
        obj = target.obj
        if not self.activity.may_write(obj, self.obj):
            raise PermissionError("a slot of another object is deleted by that object's own methods: send it a message")
        if written is True and check_slot_name(name) not in obj._slots:
            return  # written and deleted again before the change came here
        self.journal.delete(obj, name)
        self._weight -= self._given.pop((id(obj), name), (obj, name, None, 0))[3]
        self.acted = True

    # --- errors

    def holder(self) -> UvmObject:
        """Return the object whose slot holds the method that runs; where it is not in a slot, the receiver."""
        if self._holder is None:
            held = find(self.obj, self.method.selector)
            self._holder = held[0] if held is not None and held[1] is self.method else self.obj
        return self._holder

    def _told(self, error: Exception) -> tuple[str, str]:
        """Return an error of the host as the sandbox gets it: type and message. It is kept, to be raised itself if the method lets it
        pass.
        """
        kind, text = _host_error(error)
        if isinstance(error, BatosError) and not isinstance(error, MessageNotUnderstood):
            # Drop the traceback: its frames hold this invocation, and a garbage collection of ten thousand such cycles took 100 ms.
            self._errors[kind, text] = error.with_traceback(None)
        return kind, text

    def _limit(self, limit: str, text: str) -> SandboxLimit:
        return SandboxLimit(f"{self.method.selector}: {text}; the limit is a setting of the sandbox", limit=limit)

    def _out_of_time(self) -> SandboxLimit:
        workers, host, most = self.activity.seconds, self.activity.host.seconds, self.limits.total_s
        return self._limit(
            "time",
            f"the methods of this mission have computed for {workers + host:.1f} s of {most:g}. Of these {workers:.1f} s "
            f"passed in their workers, and {host:.1f} s in the daemon for what they read, wrote and sent",
        )

    def _failure(self, error: Exception) -> BaseException:
        monty = client()
        if isinstance(error, monty.MontyCrashedError):
            if error.timed_out:
                return self._limit("time", f"no end after {self.limits.time_s:g} s; the worker was killed")
            died = SandboxFailed if self._calls else WorkerLost
            return died(f"{self.method.selector}: the worker died ({error}); it is replaced")
        if not isinstance(error, monty.MontyRuntimeError):
            return MethodFailed(self.method.selector, "TypeError", str(error)[:1000])
        inner = error.exception()
        kind, text = type(inner).__name__, str(inner.args[0]) if inner.args else ""
        for exception, start, limit in _LIMITS:
            if kind == exception and text.startswith(start):
                return self._limit(limit, text)
        kind, text = _host_error(inner)
        known = self._errors.get((kind, text))
        if known is not None and not isinstance(known, MethodFailed):
            return known
        trace = [(self.method.selector, line) for line in self.loaded.lines(error)]
        if isinstance(known, MethodFailed):
            trace += known.trace
        return MethodFailed(self.method.selector, kind, text[:_TEXT], trace)


_TEXT = 2000  # characters of an exception's message that are kept
_LIMITS = (
    ("MemoryError", "memory limit exceeded", "memory"),
    ("MemoryError", "the worker exceeded its memory limit", "memory"),
    ("TimeoutError", "feed time limit exceeded", "time"),
)


def _host_error(error: BaseException) -> tuple[str, str]:
    """Return name and message of the builtin exception that stands for an error on the other side."""
    if isinstance(error, MethodFailed):
        return error.type, error.text
    if isinstance(error, GrantRefused):
        return "PermissionError", error.message
    text = error.message if isinstance(error, BatosError) else str(error.args[0]) if error.args else ""
    for cls in type(error).__mro__:
        if cls.__module__ == "builtins" and cls.__name__ in ERRORS:
            if cls is Exception and isinstance(error, BatosError):
                break
            return cls.__name__, text
    return "RuntimeError", text
