"""Prerequisites of a trial: a model to pull, or an expert for methods to train. If the change is refused, they are removed again.

They are recorded in the change's record before any work begins, so that a kill leaves nothing untracked behind.

A training runs in a child of the daemon that computes only when no other process wants to:

counted and noted ─ trained ─ staged, in one rename ─ built by the LoRA factory ─ rehearsed ─ chosen, or removed

The expert writes only once it is chosen. It has a version and a folder of its own, so that the current one is not touched. After a kill at
any point, the next daemon finds the folder, or trains again; the child ends with its daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog

from batos import private_files
from batos.autotelic import changes
from batos.autotelic.changes import Proposal
from batos.bridge import launcher
from batos.bridge.downloads import TOO_LARGE
from batos.bridge.lora.adapters import Unfit
from batos.bridge.lora.staging import ABOUT, ExpertManifest, read_about
from batos.bridge.model_status import ModelStatus
from batos.bridge.ollama_server import ProcessNote
from batos.bridge.profiles import Profile
from batos.bridge.selection import configured_profile
from batos.concurrency import in_helper
from batos.config import Settings
from batos.config.limits import Limits, limit
from batos.errors import ExpertRefused, ProvisioningFailed
from batos.image import model_registry
from batos.image.living_image import LivingImage
from batos.objects import Root, UvmObject

log = structlog.get_logger("batos.autotelic")

Facts = dict[str, Any]
Keep = Callable[[Facts], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class LoopTrainingLimits(Limits):
    """Limits of a training that the system begins by itself."""

    threads: int = limit(2, ge=1, le=256)
    """Number of threads of a training."""
    limit_s: float = limit(21_600.0, gt=0, le=7 * 86400)
    """Seconds after which a training that the system started is cancelled."""


class NotYet(Exception):
    """A change cannot be tried now, and may be later: why."""


class Preparation(Protocol):
    """Brings about what changes of one kind need to be tried."""

    async def prepare(self, number: int, proposal: Proposal, held: Facts, keep: Keep) -> Facts:
        """Create the prerequisites of a change. Return them as facts for its record.

        :param number: number of the change.
        :param held: facts kept by an earlier attempt that a restart interrupted.
        :param keep: makes facts durable.
        :raises NotYet: if they may be available later.
        :raises BatosError: if they are not available; the change is then refused.
        """

    def made(self, proposal: Proposal, held: Mapping[str, Any]) -> Proposal:
        """Return the proposal to try and make, completed with its prerequisites."""

    async def clear(self, held: Mapping[str, Any]) -> None:
        """Remove the preparations of a refused change. It may be repeated.

        :raises BatosError: if that cannot be done now.
        """


class Pulls(Protocol):
    """`budget.Budget`, as a pull needs it."""

    @property
    def pull_limit(self) -> int:
        """Return the bytes that may be pulled in 24 hours."""

    async def may_pull(self) -> int:
        """Return the bytes that may be pulled now."""

    async def pulled(self, size: int) -> None:
        """Count the pulled bytes."""

    def came(self, size: int) -> None:
        """Count bytes in the middle of a pull, without waiting until that is durable."""


class Store(Protocol):
    """`bridge.models.Models`, as a pull needs it."""

    async def has(self, name: str) -> bool:
        """Return True if a model is installed."""

    async def fetch(self, name: str, most: int, whole: Callable[[int], object]) -> tuple[ModelStatus, int]:
        """Pull a model of at most `most` bytes. Return its status, and the bytes pulled.

        :param whole: called with the size of each layer as soon as it is complete.
        """

    async def discard(self, name: str) -> None:
        """Delete a model."""


class ModelPreparation:
    """Models that a persona may be given. Facts: the `model` that was not there before, the `bytes` that came, whether it is `there`."""

    def __init__(self, image: LivingImage, models: Store, pulls: Pulls) -> None:
        self._image, self._models, self._pulls = image, models, pulls

    async def prepare(self, number: int, proposal: Proposal, held: Facts, keep: Keep) -> Facts:
        """See `Preparation`."""
        name = str(proposal.content).strip()
        if held.get("there") or (not held and await self._models.has(name)):
            return held
        most = await self._pulls.may_pull()
        if not most:
            raise NotYet(f"the loop has pulled all that it may in 24 hours ({self._pulls.pull_limit} bytes, setting autonomy.pull_bytes)")
        held = {"model": name, "bytes": held.get("bytes", 0), "there": False}
        await keep(held)
        counted = 0

        def whole(size: int) -> None:  # stop at once: a stop or a kill may interrupt the pull, and the next pull finds the layer
            nonlocal counted
            counted += size
            self._pulls.came(size)

        status, came = await self._models.fetch(name, most, whole)
        await self._pulls.pulled(came - counted)
        held = {**held, "bytes": held["bytes"] + came, "there": status.ready}
        await keep(held)
        log.info("model_fetched", change=number, model=name, bytes=came, there=status.ready, why=status.detail)
        if status.ready:
            return held
        if status.state != "failed" or (status.cause == TOO_LARGE and most < self._pulls.pull_limit):
            raise NotYet(status.detail)
        raise ProvisioningFailed(
            f"the model {name} could not be had: {status.detail}",
            cause=status.cause, model=name, detail=status.detail, remedy=status.remedy,
        )  # fmt: skip

    def made(self, proposal: Proposal, held: Mapping[str, Any]) -> Proposal:
        """See `Preparation`."""
        return proposal

    async def clear(self, held: Mapping[str, Any]) -> None:
        """See `Preparation`."""
        name = held.get("model")
        if name and not self._image.read(_is_spoken, name):
            await self._models.discard(name)
            log.info("model_discarded", model=name)


def _is_spoken(root: Root, model: str) -> bool:
    """Return True if a persona speaks with a model."""
    lobby = root["lobby"]
    return any(isinstance(one := lobby._slots.get(name), UvmObject) and one.model == model for name in lobby.personas)


TRAINING_MODULES = ("torch", "transformers", "accelerate", "safetensors", "gguf")
"""Packages of the extra `training`."""
EXPERT_NAME = "method-writer"
LOOK_S = 1.0  # seconds between two checks whether the training is still wanted
_TAIL = 300  # greatest number of characters from the end of a failed training's output


class TrainingBudget(Protocol):
    """`budget.Budget`, as a training needs it."""

    async def may_train(self) -> float:
        """Return the minutes that the training may take now."""

    async def trains(self, minutes: float) -> None:
        """Count minutes that are about to be spent."""


class ExpertFactory(Protocol):
    """`bridge.factory.LoraFactory`, as a training needs it."""

    async def scan_settled(self) -> None:
        """Build the staged experts."""

    async def discard(self, model: str, why: str) -> None:
        """Delete the model of an expert whose folder was taken away."""

    def report(self) -> dict[str, Any]:
        """Return the state of experts and folders."""


TrainingCommand = Callable[[Settings, str, Path, float], Sequence[str]]
"""Returns the command, from the settings, the image's URI, a data folder of its own, and the minutes that it may take."""


def training_command(settings: Settings, image: str, work: Path, minutes: float) -> list[str]:
    """Return the command `batos train methods --from-image` with a data folder and a staging folder of its own."""
    given = {"image": image, "lora_staging": work / "lora_staging", "training_threads": LoopTrainingLimits.of(settings).threads}
    words = [sys.executable, "-m", "batos", "train", "methods", "--from-image", "--minutes", f"{minutes:g}"]
    words += ["--data", str(work), "--profile", settings.inference.profile]
    return words + [word for name, value in given.items() for word in ("--set", f"{name}={value}")]


def why_no_training(settings: Settings, profile: Profile | None = None) -> str:
    """Return the reason why no expert can be trained here; empty if one can.

    :param profile: the one in force; what the settings say of it where it is left out.
    """
    if not settings.autonomy.training_minutes:
        return "trainings are off (autonomy.training_minutes is 0)"
    if settings.methods.writer != "expert":
        return f"no expert writes methods here (methods.writer is {settings.methods.writer!r})"
    profile = profile or configured_profile(settings)
    if not profile.models[0].package:
        return f"the base of the profile {profile.name!r} is not a GGUF file, so nothing can be trained on it"
    if lacking := [name for name in TRAINING_MODULES if importlib.util.find_spec(name) is None]:
        return f"the extra `training` is not installed: {', '.join(lacking)} missing (pip install 'batos[training]')"
    return ""


class TrainingPreparation:
    """Trains, stages and has built. Facts: the `minutes` that were counted, the `folder`, and, once it is there, the `model`."""

    def __init__(
        self,
        image: LivingImage,
        settings: Settings,
        budget: TrainingBudget,
        factory: Callable[[], ExpertFactory | None],
        staging: Path,
        *,
        command: TrainingCommand = training_command,
    ) -> None:
        """:param factory: returns the builder of experts; None if there is no Ollama.
        :param staging: folder for the new expert.
        """
        self._image, self._settings, self._budget, self._factory, self._staging = image, settings, budget, factory, staging
        self.command, self._work = command, settings.data / "training" / "loop"

    async def prepare(self, number: int, proposal: Proposal, held: Facts, keep: Keep) -> Facts:
        """See `Preparation`.

        :raises ExpertRefused: for a training that failed, or whose expert cannot be built.
        """
        if (factory := self._factory()) is None:
            raise NotYet("no Ollama is available to build an expert")
        if not held.get("model"):
            folder = self._staging / f"{EXPERT_NAME}-change-{number}"
            if not folder.exists():
                minutes = min(training_minutes_of(proposal), await self._budget.may_train())
                if not minutes:
                    raise NotYet("the loop has trained for as long as it may in 24 hours (autonomy.training_minutes)")
                await self._budget.trains(minutes)
                held = {"minutes": minutes, "folder": folder.name}
                await keep(held)
                await self._train(number, minutes)
                await in_helper(self._stage, folder)
            try:
                about = await in_helper(lambda: read_about(folder / ABOUT))
            except Unfit as e:  # a user has changed the expert since
                raise ExpertRefused(f"{folder.name}: {e}") from None
            figures = dict(about.lineage.figures)
            held = {**held, "folder": folder.name, "model": about.model, "figures": figures}
            await keep(held)
            log.info("expert_trained", change=number, model=about.model, figures=figures)
        await self._built(factory, held)
        return held

    def made(self, proposal: Proposal, held: Mapping[str, Any]) -> Proposal:
        """See `Preparation`."""
        return proposal._replace(content={"model": held["model"]})

    async def clear(self, held: Mapping[str, Any]) -> None:
        """See `Preparation`."""
        if not held.get("folder"):
            return
        folder = self._staging / held["folder"]
        about = None
        with contextlib.suppress(Unfit):  # a kill may have left a part of it
            about = await in_helper(lambda: read_about(folder / ABOUT) if folder.exists() else None)
        await in_helper(_remove, folder)
        model = held.get("model") or (about.model if about is not None else "")
        if model and (factory := self._factory()) is not None:
            await factory.discard(model, "it was not taken: `batos changes` says why")
            log.info("expert_discarded", model=model)

    # --- the child process

    async def _train(self, number: int, minutes: float) -> None:
        """Run the training to its end.

        :raises ExpertRefused: if it fails, takes too long, or is not wanted any more.
        """
        await in_helper(self._make_ready)
        words = self.command(self._settings, self._image.uri, self._work, minutes)
        begun, said = time.monotonic(), self._work / "training.log"
        with private_files.renew(said) as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), launcher.IDLE, "--", *words),
                stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        log.info("training_begins", change=number, minutes=minutes, pid=process.pid)
        ended, note = asyncio.create_task(process.wait()), ProcessNote.of(process.pid)
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=LOOK_S)
                if time.monotonic() - begun > LoopTrainingLimits.of(self._settings).limit_s:
                    raise ExpertRefused(f"the training took longer than {LoopTrainingLimits.of(self._settings).limit_s:g} s")
                if self._image.read(changes.of, number)["state"] != changes.PROPOSED:
                    raise ExpertRefused("its training was stopped")
        finally:
            await in_helper(note.end)
            await ended
        if process.returncode:
            raise ExpertRefused(f"the training ended with {process.returncode}: {await in_helper(_tail, said)}")

    def _make_ready(self) -> None:
        """Create a staging folder for the training, with the current expert, from which it continues."""
        shutil.rmtree(self._work / "lora_staging", ignore_errors=True)
        own = self._work / "lora_staging" / EXPERT_NAME
        private_files.make(own.parent)
        writes = self._image.read(_writer)
        if writes is not None and (self._staging / writes["folder"] / ABOUT).exists():
            shutil.copytree(self._staging / writes["folder"], own)
        known, proved = (folder / "training" / EXPERT_NAME / "proved.json" for folder in (self._settings.data, self._work))
        if known.exists() and not proved.exists():  # a proved adapter needs no second proof, which takes minutes
            private_files.make(proved.parent)
            private_files.write(proved, known.read_bytes())

    # --- result of the training

    def _stage(self, folder: Path) -> None:
        """Move the trained expert as a whole into the factory's folder. It writes methods only once it is chosen.

        :raises ExpertRefused: if the training left none.
        """
        made = self._work / "lora_staging" / EXPERT_NAME
        before = self._image.read(_writer)
        try:
            left = read_about(made / ABOUT) if (made / ABOUT).exists() else None
        except Unfit as e:  # for example, the loss is not a number
            raise ExpertRefused(f"the training left an expert that cannot be read: {e}") from None
        if left is None or (before is not None and left.version == before["version"]):
            raise ExpertRefused("the training ended well and left no expert")
        try:
            private_files.folder(self._staging)
        except private_files.Exposed as e:
            raise ExpertRefused(f"no expert is put there: {e.why}") from None
        partial = _partial(folder)
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(made, partial)
        about = read_about(partial / ABOUT)
        text = re.sub(r"(?m)^(version|on_choice) = .*\n", "", (partial / ABOUT).read_text("utf-8"))
        private_files.write(partial / ABOUT, f"version = {self._image.read(_next_version, about)}\non_choice = true\n{text}")
        read_about(partial / ABOUT)  # an invalid adapter must not get into the folder
        os.replace(partial, folder)

    async def _built(self, factory: ExpertFactory, held: Mapping[str, Any]) -> None:
        """Wait for the build of the expert.

        :raises NotYet: if it waits for something.
        :raises ExpertRefused: if it cannot be.
        """
        await factory.scan_settled()
        known = next((one for one in self._image.read(model_registry.describe_experts) if one["model"] == held["model"]), None)
        if known is not None and known["state"] == model_registry.BUILT:
            return
        refusal = next((one for one in factory.report()["refused"] if one["folder"] == held["folder"]), None)
        reason = (known or {}).get("reason") or (refusal or {}).get("reason") or "it is not yet built"
        if (refusal is None or refusal["waits"]) and (known is None or known["state"] == model_registry.INTENDED):
            raise NotYet(f"{held['model']}: {reason}")
        raise ExpertRefused(f"{held['model']} cannot be built: {reason}")


def training_minutes_of(proposal: Proposal) -> float:
    """Return the minutes that a proposal asks for; 0 if it names none."""
    asked: Any = proposal.content.get("minutes") if isinstance(proposal.content, Mapping) else proposal.content
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(asked))
    return 0.0


def _writer(root: Root) -> dict[str, Any] | None:
    """Return the expert that writes methods now."""
    model = model_registry.speaks_methods(root)
    return next((one for one in model_registry.describe_experts(root) if one["model"] == model), None)


def _next_version(root: Root, about: ExpertManifest) -> int:
    """Return the version after all that were ever known."""
    same = (one for one in model_registry.describe_experts(root) if (one["persona"], one["expert"]) == (about.persona.lower(), about.name))
    return 1 + max((int(one["version"]) for one in same), default=0)


def _remove(folder: Path) -> None:
    for one in (folder, _partial(folder)):
        shutil.rmtree(one, ignore_errors=True)


def _partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}")  # the factory ignores folders with such names


def _tail(file: Path) -> str:
    text = file.read_text("utf-8", "replace").strip()
    return " ".join(text[-_TAIL:].split())
