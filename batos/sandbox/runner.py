"""The sandbox: runs generated methods."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from batos import resources
from batos.config import Settings
from batos.errors import MethodUnsupported, SandboxFailed, SandboxLimit
from batos.guardian.policy import AuditLimits
from batos.objects import Method, UvmObject
from batos.sandbox.invocation import Invocation, Stale, WorkerLost, running
from batos.sandbox.run_context import Activity, RunLimits
from batos.sandbox.tracing import RAN, RanLine, TracedRun, TraceListener, read_lines
from batos.sandbox.workers import Workers, WorkerSession

if TYPE_CHECKING:
    from batos.sandbox.program_cache import Programs


async def _traced(
    listener: TraceListener, invocation: Invocation, session: WorkerSession, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    value, error = None, None
    try:
        value = await invocation.run(session, args, kwargs)
    except BaseException as e:
        error = e
        raise
    finally:
        lines = await _noted_lines(session)
        listener(TracedRun(invocation.obj, invocation.holder(), invocation.method, args, kwargs, value, error, lines))
    return value


async def _noted_lines(session: WorkerSession) -> tuple[RanLine, ...] | None:
    from pydantic_monty import MontyError

    try:
        noted = await session.turn(lambda: session.monty.feed_start(RAN))
        return read_lines(noted.output)
    except (MontyError, RuntimeError, AttributeError, OSError):  # its worker died, or waits in the middle of the run
        return None


_RERUNS = 5  # reruns of a method that met another transaction's change before it had done anything


class Sandbox:
    """Runs methods in jailed workers. Start it once; it serves every mission.

    sandbox = Sandbox(settings)
    await sandbox.start()
    value = await sandbox.run(obj, method, args, kwargs, activity=activity)
    await sandbox.close()
    """

    def __init__(self, settings: Settings) -> None:
        self.limits = RunLimits.of(settings)
        self.workers = Workers(settings)
        self._source_bytes = AuditLimits.of(settings).bytes

    @functools.cached_property
    def programs(self) -> Programs:
        """Return the methods as programs of the workers."""
        from batos.sandbox.program_cache import Programs  # late: a daemon that runs no method keeps the rewriting out of its memory

        return Programs(self.workers, limit=self._source_bytes)

    @property
    def walls(self) -> dict[str, bool]:
        """Return which walls stand around the workers: `no_new_privs`, `rlimits`, `landlock`, `seccomp`."""
        return dict(self.workers.walls)

    async def start(self) -> None:
        """Start the workers.

        :raises SandboxFailed: if none runs.
        """
        await self.workers.start()

    async def close(self) -> None:
        """End the workers."""
        await self.workers.close()

    async def __aenter__(self) -> Sandbox:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def compile(self, source: str) -> None:
        """Check that a source can run: rewriting, the interpreter's compiler, its type checker.

        :raises MethodUnsupported: with the first finding by line, and a hint that a model can use.
        """
        await self.programs.get(source)
        found = sorted(await self.programs.type_check(source))
        if found:
            line, column, text = found[0]
            raise MethodUnsupported(text, line=line, column=column)

    async def run(
        self,
        obj: UvmObject,
        method: Method,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        activity: Activity,
        holder: UvmObject | None = None,
        apart: bool = False,
    ) -> Any:
        """Send `method` to `obj`, inside the transaction that `obj` belongs to. Return its value.

        Slots are written when the method ends or sends. A method that raises leaves nothing written, by itself or by methods that it
        sent to.

        :param holder: the object in whose slot the method was found, for resends; looked up if left out.
        :param apart: run in another transaction than the method under way (a trial), one level deeper.
        :raises MethodUnsupported: if the sandbox cannot run it.
        :raises MethodFailed: if it raises.
        :raises SandboxLimit: if it exceeds a limit.
        :raises SandboxFailed: if there is no worker, or it dies.

        An error that host code raises in answer to a send, a signal or a conflict, is passed on unchanged.
        """
        run = self._run(obj, method, args, kwargs or {}, activity, holder, apart)
        return await (run if resources.computes_for(activity.host) else resources.charged(run, activity.host))

    async def _run(
        self,
        obj: UvmObject,
        method: Method,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        activity: Activity,
        holder: UvmObject | None,
        apart: bool,
    ) -> Any:
        traces = activity.trace is not None
        loaded = (None if traces else self.programs.known(method.source)) or await self.programs.get(method.source, traces=traces)
        outer = running()
        if outer is not None and outer.activity is not activity and not apart:
            outer = None
        if outer is not None and outer.depth >= self.limits.depth:
            depth = self.limits.depth
            raise SandboxLimit(f"{method.selector}: methods send to methods more than {depth} deep", limit="depth")
        if outer is None:  # a send within a chain already has its place
            await self.workers.chains.enter()
        try:
            lost = False
            for _ in range(_RERUNS):
                invocation = Invocation(self.workers, self.limits, loaded, obj, method, holder, activity, None if apart else outer)
                if outer is not None:
                    invocation.depth = outer.depth + 1
                session = self.workers.ready(loaded.key) or await self.workers.take(loaded.key, loaded.image)
                try:
                    if activity.trace is not None:
                        return await _traced(activity.trace, invocation, session, args, kwargs)
                    return await invocation.run(session, args, kwargs)
                except WorkerLost:
                    if lost:
                        raise
                    lost = True
                except Stale:
                    if invocation.acted:
                        break
                finally:
                    self.workers.give_back(session, loaded.key, loaded.image)
        finally:
            if outer is None:
                self.workers.chains.leave()
        raise SandboxFailed(f"{method.selector}: another message of the same mission changed what it read; send again")
