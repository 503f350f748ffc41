"""Provisioning: compare the models that the profile needs with those that Ollama has, and build or pull the missing ones.

It runs at every start and on request, so it heals. A model that was deleted by hand comes back. A base whose files changed is rebuilt; so
is a persona whose Modelfile, adapter or base changed. Each model has a task of its own, which no waiting caller can cancel. So a model that
is unavailable, or takes an hour, does not delay the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from batos.bridge import modelfile
from batos.bridge.client import version_of
from batos.bridge.downloads import NOTE_S, DiskSpace, clear_when_quiet, pull
from batos.bridge.failures import retry_on_race
from batos.bridge.model_builder import BuiltModels, ModelBuilder, Recipe, recipe_from_modelfile, recipe_from_source
from batos.bridge.model_status import AGAIN, Hear, ModelStatus, ModelUnavailable, PullAllowance, Reports, ServerErrors, WantedModel
from batos.bridge.modelfile import Modelfile, tagged
from batos.bridge.profiles import BaseModelSource, Profile
from batos.concurrency import SingleFlight
from batos.errors import InferenceFailed, ModelfileError, ProvisioningFailed

if TYPE_CHECKING:
    from ollama import AsyncClient

log = structlog.get_logger(__name__)

BROKEN_S = 0.2  # seconds before the only retry after a broken connection: a dying server may still answer for a moment


class Provisioner:
    """Sees to the models of one profile on one Ollama.

    :param client: a client of that Ollama (`bridge.client.connect`).
    :param modelfiles_dir: folder with one folder of Modelfiles a profile.
    :param concurrency: models pulled, and models created, at the same time.
    :param built: remembers what the models were built from.
    :param room: says whether a pull or a create fits on the disk.
    :param note_s: see `pulling.pull`.
    """

    def __init__(
        self,
        client: AsyncClient,
        profile: Profile,
        modelfiles_dir: Path,
        concurrency: int = 2,
        *,
        built: BuiltModels | None = None,
        room: DiskSpace | None = None,
        note_s: float = NOTE_S,
    ) -> None:
        self._client, self._note_s = client, note_s
        self._pulls, self._creates = asyncio.Semaphore(concurrency), asyncio.Semaphore(concurrency)
        self._reports, self._room = Reports(), room or DiskSpace()
        self._builder = ModelBuilder(client, built or BuiltModels(), self._room, self._reports.step)
        self.unreached = asyncio.Event()
        """Set when Ollama does not answer and a model stays unfinished. The watcher of the hosts clears it."""
        self.changed: Callable[[], None] = lambda: None
        """Called after each build, pull or deletion of a model, before waiting requests continue."""
        self._works: SingleFlight[None] = SingleFlight("provisioning")
        self._runs = 0
        self._stopping = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._folder = modelfiles_dir
        self._wants = self._wanted(profile)

    # --- requests

    def status(self) -> list[ModelStatus]:
        """Return the current state of each model."""
        return [want.status for want in self._wants.values()]

    def knows(self, model: str) -> bool:
        """Return True if a model is in the profile, or was requested."""
        return tagged(model) in self._wants

    def is_ready(self, model: str) -> bool:
        """Return True if a model of the profile is installed as the profile wants it."""
        status = self.status_of(model)
        return status is not None and status.ready

    def status_of(self, model: str) -> ModelStatus | None:
        """Return the current state of a model; None for one that is not in the profile, and was not requested."""
        want = self._wants.get(tagged(model))
        return None if want is None else want.status

    @property
    def under_way(self) -> bool:
        """Return True if provisioning is under way."""
        return self._runs > 0

    def watch(self, hear: Hear) -> Callable[[], None]:
        """Call `hear` with every event from now on. Return the function that ends that. `hear` is called on the loop, and must not wait.

        Events: `{"type": "progress", "model", "status", "layer", "completed", "total"}`, the last three if known (bytes), and `{"type":
        "model", "name", "state", "detail", "remedy"}` when a model's state is final.
        """
        return self._reports.watch(hear)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._quiet.wait()

    async def ready(self, model: str) -> None:
        """Wait until `model` is there. A model of no profile is looked for, and pulled, on the spot.

        While its Ollama does not answer, this goes on waiting.

        :raises ProvisioningFailed: if the model is not available, with the cause, and the remedy in the message.
        """
        want = self._wants.get(tagged(model))
        if want is None:
            want = self._want(model, kept=False)
            await self._run([want])
        await want.settled.wait()
        self._forget(want)
        if not want.status.ready:
            raise ProvisioningFailed(
                f"the model {model} could not be had: {want.status.detail}. Remedy: {want.status.remedy}",
                cause=want.status.cause,
                model=model,
                detail=want.status.detail,
                remedy=want.status.remedy,
            )

    async def ensure(self, models: Iterable[str] = ()) -> list[ModelStatus]:
        """Make or pull whatever is missing or out of date; returns when each model is there or has failed.

        :param models: only these; one of no profile is pulled. Left out: all that are needed.
        """
        wants = [self._want(model, kept=False) for model in dict.fromkeys(models)] or list(self._wants.values())
        await self._run(wants)
        for want in wants:
            self._forget(want)
        return [want.status for want in wants] if models else self.status()

    async def heal(self, model: str) -> ModelStatus:
        """Look after one model now, its base included: for a model that was there and is gone."""
        want = self._want(model, kept=False)
        await self._run([want])
        return want.status

    async def fetch(
        self,
        model: str,
        most: int | None,
        whole: Callable[[int], object] = lambda size: None,
        begins: Callable[[str], object] = lambda layer: None,
    ) -> tuple[ModelStatus, int]:
        """Pull a model that nothing needs yet, of at most `most` bytes. Return its final status, and the bytes pulled.

        If the call is cancelled, the pull ends, unless another caller waits for it too; the next pull resumes it.

        :param most: limit in bytes; None: no limit.
        :param whole: called with the size of each layer as soon as it is complete.
        :param begins: called with the digest of each layer that is new here.
        """
        want = self._want(model, kept=False)
        if not want.kept:
            want.source = BaseModelSource(name=model)
        allowance = want.allowance = PullAllowance(most, whole=whole, begins=begins)
        try:
            await self._run([want])
        except asyncio.CancelledError:
            await self.abandon(model)
            raise
        self._forget(want)
        return want.status, allowance.came

    async def abandon(self, model: str, others: int = 0) -> None:
        """End the work on a model, unless more than `others` callers wait for it; waiting callers learn that it failed."""
        want = self._wants.get(tagged(model))
        if want is not None and want.waiting <= others:
            await self._works.give_up(want)
            self._forget(want)

    async def make(self, base: str, models: Mapping[str, Modelfile]) -> list[ModelStatus]:
        """Build models on an installed base, for the caller only. Return the final status of each. The base is not pulled.

        :param models: the Modelfile of each, by name.
        """
        below = self._want(base, kept=False)
        if not below.kept:
            below.source = BaseModelSource(name=base, pulled=False)
        wants = [self._wants.setdefault(tagged(name), WantedModel(tagged(name), made=made, kept=False)) for name, made in models.items()]
        await self._run(wants)
        for want in wants:
            self._forget(want)
        return [want.status for want in wants]

    async def clear(self, layers: Collection[str], since: float) -> None:
        """Delete what a pull that was given up left, where the folder of the models is known. An Ollama that is not the daemon's own does
        so when it starts.

        :param layers: layers that the pull had begun; `since` is its start in seconds since the epoch.
        """
        folder = self._room.folder
        if folder is not None:
            mine = [layer for layer in layers if not self._room.is_claimed(layer)]
            if gone := await clear_when_quiet(folder, mine, None if self.under_way else since):
                log.info("pull_cleared", files=len(gone))

    @property
    def room(self) -> int | None:
        """Return the bytes of disk that a pull may take now; None if that is not known."""
        return self._room.left()

    async def discard(self, model: str) -> None:
        """Delete an unused model, if it exists.

        :raises InferenceFailed: if Ollama does not do it now.
        """
        from batos.bridge.client_library import ResponseError

        if (want := self._wants.get(tagged(model))) is not None and not want.kept:
            del self._wants[want.name]
        try:
            with ServerErrors(f"cannot delete {model}", AGAIN):
                await retry_on_race(lambda: self._client.delete(model))
        except ModelUnavailable as e:
            if not (isinstance(e.__cause__, ResponseError) and e.__cause__.status_code == HTTPStatus.NOT_FOUND):
                raise InferenceFailed(e.detail, cause=e.cause, model=model) from e
        finally:
            self.changed()

    async def close(self) -> None:
        """End the work under way. Ollama keeps the data of a pull, and the next one resumes it."""
        self._stopping = True
        await self._works.stop()

    def adopt(self, profile: Profile) -> None:
        """Provide the models of another profile from now on. Work for the last one goes on; nothing is deleted."""
        fresh = self._wanted(profile)
        asked_for = {name: want for name, want in self._wants.items() if not want.kept}
        self._wants = asked_for | {name: self._wants.get(name, want) if want.made is None else want for name, want in fresh.items()}

    # --- the work

    def _wanted(self, profile: Profile) -> dict[str, WantedModel]:
        wants = {tagged(m.name): WantedModel(tagged(m.name), source=m) for m in profile.models}
        for role, model in profile.personas.items():
            made = profile.made.get(role)
            file = None if made is not None else self._folder / profile.name / f"{role}.Modelfile"
            wants[tagged(model)] = WantedModel(tagged(model), file=file, made=made)
        return wants

    def _want(self, model: str, *, kept: bool = True) -> WantedModel:
        want = self._wants.setdefault(tagged(model), WantedModel(tagged(model), source=BaseModelSource(name=model), kept=kept))
        want.kept = want.kept or kept
        return want

    def _forget(self, want: WantedModel) -> None:
        if not want.kept and not want.status.ready and self._wants.get(want.name) is want:
            del self._wants[want.name]

    async def _run(self, wants: list[WantedModel]) -> None:
        async with self._counted():
            for want in wants:
                want.waiting += 1
            try:
                await asyncio.wait([self._begin(want) for want in wants])
            finally:
                for want in wants:
                    want.waiting -= 1

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self._runs += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._runs -= 1
            if not self._runs:
                self._quiet.set()

    def _begin(self, want: WantedModel) -> asyncio.Task[None]:
        """Return the task for a model: the one under way, or a new one."""
        return self._works.begin(want, lambda: self._settle(want))

    async def _settle(self, want: WantedModel) -> None:
        async with self._counted():
            before, want.began = want.status, time.monotonic()
            try:
                try:
                    await self._provide(want)
                except ModelUnavailable as e:
                    if e.cause != "truncated":
                        raise
                    await asyncio.sleep(BROKEN_S)  # the connection broke: a second failure shows the cause
                    await self._provide(want)
            except ModelUnavailable as e:
                await self._fell(want, e)
            except asyncio.CancelledError:
                why, remedy = ("the daemon is stopping", "start it again") if self._stopping else ("it was given up", "ask again")
                want.settle("failed", why, remedy, "stopping")
                raise
            except Exception as e:
                log.exception("provisioning failed", model=want.name)
                want.settle("failed", f"{type(e).__name__}: {e}", f"this is a fault in BAT OS, please report it; {AGAIN}", "internal")
            finally:
                want.ended = time.monotonic()
                self.changed()
                self._reports.over(want.name)
            if want.status != before:
                self._reports.status(want.status)

    async def _fell(self, want: WantedModel, why: ModelUnavailable) -> None:
        """Settle a failure. Without an answer from Ollama the model waits, as inferences do; after any other failure it has failed."""
        cause = why.cause
        if cause == "truncated" and await version_of(self._client) is None:
            cause = "unreachable"
        if cause == "unreachable":
            want.reopen(why.detail, why.remedy, cause)
            self.unreached.set()
        else:
            want.settle("failed", why.detail, why.remedy, cause)

    async def _provide(self, want: WantedModel) -> None:
        have = await self._builder.listed()
        # Before any work: a request that waits for a missing model must not see the old state.
        if want.name not in have:
            want.reopen("missing")
        elif not want.status.ready:
            want.reopen("being checked")
        if want.made is not None:
            await self._build(want, recipe_from_modelfile(want.made, self._folder), have, f"on {want.made.from_}")
        elif want.file is not None:
            await self._build(want, self._read(want.file), have, f"from {want.file.name}")
        elif want.source is not None and want.source.package:
            await self._build(want, recipe_from_source(want.source), have, f"from the package {want.source.package}")
        elif want.name in have:
            want.settle("present")
        elif want.source is not None and not want.source.pulled:
            raise ModelUnavailable(
                f"{want.name} is gone from Ollama, and was not named: the profile auto pulls nothing",
                f"pull it (`ollama pull {want.name}`; {AGAIN}), or let another one think: `batos models use NAME`",
                "model_missing",
            )
        else:
            name = want.source.name if want.source is not None else want.name
            async with self._pulls:
                again, step = AGAIN if want.kept else "then ask again", self._reports.step
                await pull(
                    self._client, name, model=want.name, room=self._room, step=step, again=again, note_s=self._note_s,
                    allowance=want.allowance,
                )  # fmt: skip
            want.settle("pulled")

    async def _build(self, want: WantedModel, recipe: Recipe, have: dict[str, str], source: str) -> None:
        base_digest = await self._base(want, recipe.base) if recipe.base else ""
        digests = await self._builder.digests(want.name, recipe)
        there = have.get(want.name)
        if there is not None and await self._builder.is_built(want.name, recipe, digests, base_digest, there):
            return want.settle("present")
        async with self._creates:
            await self._builder.build(want.name, recipe, digests, base_digest)
        want.settle("created", source if there is None else f"rebuilt {source}: it changed, or what it builds on did")

    def _read(self, file: Path) -> Recipe:
        try:
            return recipe_from_modelfile(modelfile.read_modelfile(file), file.parent)
        except (OSError, UnicodeDecodeError) as e:
            raise ModelUnavailable(f"cannot read {file}: {e}", f"put a Modelfile there; {AGAIN}") from None
        except ModelfileError as e:
            raise ModelUnavailable(f"{file}, {e.message}", f"correct that line; {AGAIN}") from None

    async def _base(self, want: WantedModel, model: str) -> str:
        """Return the digest of a base, once it is there. One that no profile lists is taken if it is there, else pulled."""
        below: WantedModel | None = self._want(model, kept=want.kept)
        while below is not None:
            if below is want:
                raise ModelUnavailable(f"its base {model} builds on it: FROM goes round in a circle", f"name another base; {AGAIN}")
            below = below.waits_for
        want.waits_for = base = self._want(model, kept=want.kept)
        try:
            if base.ended < want.began:  # otherwise another model that builds on this base has just checked it
                await asyncio.wait([self._begin(base)])
        finally:
            want.waits_for = None
        if not base.status.ready:
            raise ModelUnavailable(f"its base {model} could not be had: {base.status.detail}", base.status.remedy, base.status.cause)
        digest = (await self._builder.listed()).get(base.name)
        if digest is None:
            raise ModelUnavailable(f"its base {model} went away", AGAIN, "model_missing")
        return digest
