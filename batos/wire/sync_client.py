"""`SyncClient`: the same as `Client`, for code without an event loop. The loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from batos.wire.client import LONG_S, Accepted, Client, ImageFile
from batos.wire.connection import MESSAGE_BYTES
from batos.wire.keys import ClientKeys

T = TypeVar("T")


class SyncClient:
    """A connection to the daemon, as a context manager; arguments, answers and errors are those of `Client`.

    It may be used by several threads at once.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        timeout_s: float = 10.0,
        *,
        message_bytes: int = MESSAGE_BYTES,
        keys: ClientKeys | None = None,
    ) -> None:
        self._client = Client(endpoint, timeout_s, message_bytes=message_bytes, keys=keys)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking = threading.Lock()  # so that nothing is asked of a loop that ends

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="batos-client", daemon=True)
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self._client.__aexit__)

    def submit(
        self,
        brief: str,
        *,
        id: str | None = None,
        persona: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        context: str | None = None,
        schema: dict[str, Any] | None = None,
        may_ask: bool = False,
        depth: str | None = None,
        flavour: str | None = None,
        needs: Sequence[str] = (),
        images: Sequence[ImageFile | Mapping[str, Any]] = (),
    ) -> Accepted:
        wants: dict[str, Any] = {"context": context, "schema": schema, "may_ask": may_ask, "depth": depth, "flavour": flavour}
        wants |= {"needs": needs, "images": images}
        return self._run(self._client.submit(brief, id=id, persona=persona, deadline_s=deadline_s, priority=priority, **wants))

    def upload(self, image: ImageFile, name: str | None = None) -> dict[str, Any]:
        return self._run(self._client.upload(image, name))

    def send(
        self,
        target: str,
        selector: str,
        /,
        *args: Any,
        id: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        **kwargs: Any,
    ) -> Accepted:
        return self._run(self._client.send(target, selector, *args, id=id, deadline_s=deadline_s, priority=priority, **kwargs))

    def send_message(
        self,
        target: str,
        selector: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        may_ask: bool = False,
        write: bool = False,
    ) -> Accepted:
        more: dict[str, Any] = {"deadline_s": deadline_s, "priority": priority, "may_ask": may_ask, "write": write}
        return self._run(self._client.send_message(target, selector, args, kwargs, id=id, **more))

    def teach(
        self, target: str, selector: str, examples: list[dict[str, Any]], *, intent: str | None = None, id: str | None = None
    ) -> Accepted:
        return self._run(self._client.teach(target, selector, examples, intent=intent, id=id))

    def revert(self, target: str, selector: str, version: int | None = None, *, id: str | None = None) -> Accepted:
        return self._run(self._client.revert(target, selector, version, id=id))

    def grant(self, target: str, selector: str, message: str, *, revoke: bool = False, id: str | None = None) -> Accepted:
        return self._run(self._client.grant(target, selector, message, revoke=revoke, id=id))

    def method(self, target: str, selector: str, at: float | str | None = None) -> dict[str, Any]:
        return self._run(self._client.method(target, selector, at))

    def methods(self, target: str | None = None, at: float | str | None = None) -> dict[str, Any]:
        return self._run(self._client.methods(target, at))

    def status(self, id: str) -> dict[str, Any]:
        return self._run(self._client.status(id))

    def result(self, id: str, wait: bool = True, timeout_s: float | None = None) -> dict[str, Any]:
        return self._run(self._client.result(id, wait, timeout_s))

    def watch(self, id: str) -> Iterator[dict[str, Any]]:
        return self._events(self._client.watch(id))

    def _events(self, events: AsyncGenerator[dict[str, Any], None]) -> Iterator[dict[str, Any]]:
        try:
            while (event := self._run(_next(events))) is not None:
                yield event
        finally:
            if self._loop is not None:  # closed by now if the reader left the loop after the client
                self._run(events.aclose())

    def cancel(self, id: str) -> dict[str, Any]:
        return self._run(self._client.cancel(id))

    def pause(self, id: str) -> dict[str, Any]:
        return self._run(self._client.pause(id))

    def resume(self, id: str) -> dict[str, Any]:
        return self._run(self._client.resume(id))

    def answer(self, id: str, text: str, number: int | None = None) -> dict[str, Any]:
        return self._run(self._client.answer(id, text, number))

    def rate(self, id: str, rating: Literal[1, -1], why: str | None = None) -> dict[str, Any]:
        return self._run(self._client.rate(id, rating, why))

    def show(self, target: str, at: float | str | None = None) -> dict[str, Any]:
        return self._run(self._client.show(target, at))

    def ls(self, target: str | None = None, at: float | str | None = None) -> dict[str, Any]:
        return self._run(self._client.ls(target, at))

    def diff(self, target: str, a: float | str, b: float | str | None = None) -> dict[str, Any]:
        return self._run(self._client.diff(target, a, b))

    def history(self, target: str, limit: int | None = None) -> dict[str, Any]:
        return self._run(self._client.history(target, limit))

    def missions(
        self,
        state: str | None = None,
        limit: int | None = None,
        at: float | str | None = None,
        *,
        before: str | None = None,
        words: str | None = None,
        system: bool | None = None,
    ) -> dict[str, Any]:
        return self._run(self._client.missions(state, limit, at, before=before, words=words, system=system))

    def failures(
        self,
        id: str | None = None,
        *,
        code: str | None = None,
        selector: str | None = None,
        limit: int | None = None,
        at: float | str | None = None,
    ) -> dict[str, Any]:
        return self._run(self._client.failures(id, code=code, selector=selector, limit=limit, at=at))

    def replay(self, id: str, timeout_s: float = LONG_S, *, prompts: bool = False) -> dict[str, Any]:
        return self._run(self._client.replay(id, timeout_s, prompts=prompts))

    def undo(
        self,
        id: str,
        *,
        redo: bool = False,
        cascade: bool = False,
        dry: bool = False,
        expect: Sequence[str] | None = None,
        timeout_s: float = LONG_S,
    ) -> dict[str, Any]:
        return self._run(self._client.undo(id, redo=redo, cascade=cascade, dry=dry, expect=expect, timeout_s=timeout_s))

    def changes(self, number: int | None = None, *, state: str | None = None, limit: int | None = None) -> dict[str, Any]:
        return self._run(self._client.changes(number, state=state, limit=limit))

    def undo_change(self, number: int, *, why: str | None = None, dry: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        return self._run(self._client.undo_change(number, why=why, dry=dry, timeout_s=timeout_s))

    def fork(self, folder: str, at: float | str | None = None, timeout_s: float = LONG_S) -> dict[str, Any]:
        return self._run(self._client.fork(folder, at, timeout_s))

    def pack(self, days: float | None = None, timeout_s: float = LONG_S) -> dict[str, Any]:
        return self._run(self._client.pack(days, timeout_s))

    def backup(self, folder: str | None = None, *, full: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        return self._run(self._client.backup(folder, full=full, timeout_s=timeout_s))

    def info(self) -> dict[str, Any]:
        return self._run(self._client.info())

    def metrics(self) -> dict[str, Any]:
        return self._run(self._client.metrics())

    def models(self, names: Sequence[str] = (), *, ensure: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        return self._run(self._client.models(names, ensure=ensure, timeout_s=timeout_s))

    def use_model(self, name: str, *, timeout_s: float = LONG_S) -> dict[str, Any]:
        return self._run(self._client.use_model(name, timeout_s=timeout_s))

    def fit_models(self, names: Sequence[str] = (), *, timeout_s: float = LONG_S) -> dict[str, Any]:
        return self._run(self._client.fit_models(names, timeout_s=timeout_s))

    def watch_models(self, names: Sequence[str] = (), *, ensure: bool = False) -> Iterator[dict[str, Any]]:
        return self._events(self._client.watch_models(names, ensure=ensure))

    def experts(
        self, *, scan: bool = False, persona: str | None = None, voice: str | None = None, timeout_s: float = LONG_S
    ) -> dict[str, Any]:
        return self._run(self._client.experts(scan=scan, persona=persona, voice=voice, timeout_s=timeout_s))

    def ingest(self, paths: Sequence[str] = (), *, follow: Sequence[str] = (), exclude: Sequence[str] = ()) -> dict[str, Any]:
        return self._run(self._client.ingest(paths, follow=follow, exclude=exclude))

    def watch_ingest(
        self, paths: Sequence[str] = (), *, follow: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        return self._events(self._client.watch_ingest(paths, follow=follow, exclude=exclude))

    def memory(self, documents: int | None = None, **change: str | int) -> dict[str, Any]:
        return self._run(self._client.memory(documents, **change))

    def curate(self, *, dry: bool = False) -> dict[str, Any]:
        return self._run(self._client.curate(dry=dry))

    def search(
        self,
        question: str,
        k: int = 10,
        *,
        explain: bool = False,
        kind: str | None = None,
        source: str | None = None,
        speaker: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> dict[str, Any]:
        facets = {"kind": kind, "source": source, "speaker": speaker, "since": since, "until": until}
        return self._run(self._client.search(question, k, explain=explain, **facets))

    def personas(self, *, accept: str | None = None, slot: str | None = None) -> dict[str, Any]:
        return self._run(self._client.personas(accept=accept, slot=slot))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._asking:
            loop = self._loop
            future = None if loop is None else asyncio.run_coroutine_threadsafe(work, loop)
        if future is None:
            work.close()
            raise RuntimeError("a SyncClient is used inside `with SyncClient(...) as client:`")
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._loop is loop:
                raise
            raise RuntimeError("the SyncClient was closed by another thread; what was asked for may have been done or not") from None
        except BaseException:  # Ctrl-C ends the wait, so it has to end the work too
            future.cancel()
            raise

    def _end(self, *last: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """End what other threads still wait for, then do `last`, then end the loop. Nothing is left to do where it ended before."""
        with self._asking:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            for work in (_given_up, *last, loop.shutdown_default_executor):
                asyncio.run_coroutine_threadsafe(work(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()


async def _next(events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
    return await anext(events, None)


async def _given_up() -> None:
    """End all that is under way on this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
