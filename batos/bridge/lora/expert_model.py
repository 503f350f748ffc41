"""Expert models on Ollama: their foundation, their build, and the mark by which they are recognised.

An expert's model says in a licence text what it was made of. So a build that was interrupted after its last step is recognised as done. A
model of another author under that name is not overwritten.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from batos import private_files
from batos.bridge.failures import retry_on_race
from batos.bridge.installed_models import listed_name
from batos.bridge.lora import adapters
from batos.bridge.lora.adapters import AdapterBase, Unfit
from batos.bridge.lora.gguf import WritingStopped
from batos.bridge.lora.staging import Staged, content_digest, names_a_repository, same_base
from batos.bridge.model_builder import upload_blob
from batos.bridge.modelfile import Modelfile, parse_modelfile, tagged
from batos.bridge.profiles import EXPERT_MARK, Profile
from batos.errors import BatosError, ModelfileError

if TYPE_CHECKING:
    from ollama import AsyncClient

MAKER = 1
"""Version of the build. A new version builds all experts anew."""
TRIAL = "Say yes."
NO_MEMORY = "requires more system memory"
"""Text of Ollama when other programs occupy the memory that a model needs: it is not a fault of the model."""


class NotNow(Exception):
    """A temporary failure; the message names the obstacle."""


@dataclass(frozen=True, slots=True)
class Foundation:
    """Foundation of a persona's experts: its plain model, as Ollama has it now."""

    persona: str
    model: str
    base_name: str
    known_as: tuple[str, ...]
    shown: Modelfile
    base: AdapterBase

    @property
    def weights(self) -> Path:
        """Return the file of the base's weights, on the machine of Ollama."""
        return Path(self.shown.from_)

    def check(self, staged: Staged) -> None:
        """See that an expert fits.

        :raises Unfit: with the reason.
        """
        said, trained_on = staged.about.base, staged.adapter.base_name
        if not same_base(said, self.base_name, self.known_as):
            raise Unfit(f"wrong base: expert.toml says {said!r}, {self.persona}'s model is built on {self.base_name!r}")
        if self.known_as and names_a_repository(trained_on) and not same_base(trained_on, self.base_name, self.known_as):
            fitting = ", ".join(self.known_as)
            raise Unfit(f"wrong base: {adapters.CONFIG} says {trained_on!r}; adapters for {self.base_name!r} are trained on {fitting}")
        if self.shown.adapters:
            raise Unfit(f"{self.persona}'s own model has an adapter already, and Ollama takes one; take it out of the Modelfile")
        adapters.check(staged.adapter, self.base)

    def recipe(self, staged: Staged, how: str) -> str:
        """Return the digest of all inputs of the model."""
        shown = self.shown
        parts = [shown.template, shown.system, shown.parameters, shown.messages]
        mixed = ["each pair of matrices by its own rank"] if staged.adapter.mixed else []  # an earlier version used one rank for all pairs
        return content_digest([MAKER, staged.content, staged.model, self.weights.name, how, parts, *mixed])


async def foundation(client: AsyncClient, persona: str, model: str, base_name: str, known_as: tuple[str, ...]) -> Foundation:
    """Return the foundation of the persona's experts.

    :raises Unfit: if the base takes no adapters.
    :raises NotNow: if Ollama does not answer, or has no such model yet.
    """
    with failing(f"cannot look at {model}"):
        shown = await retry_on_race(lambda: client.show(model))
    try:
        parsed = parse_modelfile(shown.modelfile or "")
    except ModelfileError as e:
        raise NotNow(f"the Modelfile of {model} cannot be read: {e.message}") from None
    return Foundation(persona, model, base_name, known_as, parsed, AdapterBase.of(shown.modelinfo or {}))


def bases_of(roles: Mapping[str, str], profile: Profile, modelfiles: Path) -> dict[str, tuple[str, str]]:
    """Return for each persona its plain model and the base that its Modelfile names; a model without a Modelfile is its own base.

    :param roles: name of a persona -> its role in the profile.
    """
    found = {}
    for persona, role in roles.items():
        model = profile.model_of(role)
        made, file = profile.made.get(role.lower()), modelfiles / profile.name / f"{role.lower()}.Modelfile"
        try:
            base = (made or parse_modelfile(file.read_text("utf-8"))).from_
        except (OSError, UnicodeDecodeError, BatosError):  # provisioning reports the reason
            base = model
        found[persona] = model, tagged(base)
    return found


async def delete_model(client: AsyncClient, model: str) -> None:
    """Delete a model, if it is there.

    :raises NotNow: if Ollama does not do it now.
    """
    if tagged(model) in await model_digests(client):
        with failing(f"cannot delete {model}"):
            await retry_on_race(lambda: client.delete(model))


class ExpertMark(NamedTuple):
    """Mark in a model that names its expert and its content; empty if the model has none."""

    content: str = ""
    recipe: str = ""


async def expert_mark_of(client: AsyncClient, model: str) -> ExpertMark:
    """Return the expert mark of the model with that name.

    :raises NotNow: if Ollama does not answer.
    """
    with failing(f"cannot look at {model}"):
        found = EXPERT_MARK.search((await retry_on_race(lambda: client.show(model))).license or "")
    return ExpertMark(found[2], found[3]) if found is not None and found[1] == model else ExpertMark()


async def model_digests(client: AsyncClient) -> dict[str, str]:
    """Return the digest of each model that Ollama has.

    :raises NotNow: if it does not answer.
    """
    with failing("cannot list the models"):
        return {tagged(m.model): m.digest for m in (await retry_on_race(client.list)).models if m.model and m.digest}


class ExpertBuilder:
    """Builds expert models.

    :param scratch: folder for files on their way; emptied here.
    :param quantize: quantisation of fused weights.
    :param options: options of the trial and of the later inferences.
    """

    def __init__(self, client: AsyncClient, scratch: Path, *, quantize: str, options: Mapping[str, Any], deadline_s: float) -> None:
        self._client, self._scratch, self._quantize = client, scratch, quantize
        self._options, self._deadline_s = dict(options), deadline_s
        self._stop = Event()

    def way(self, staged: Staged, on: Foundation) -> tuple[str, str]:
        """Return the way an expert is built, as in its recipe, and a remark to report with it."""
        if not staged.about.fuse:
            return "adapter", ""
        if not on.weights.is_file():
            return "adapter", f"not fused: the weights of {on.base_name} cannot be read at {on.weights}; is Ollama on another machine?"
        return f"fused {self._quantize}", ""

    async def build(self, staged: Staged, on: Foundation, how: str, recipe: str) -> None:
        """Make the model. May be repeated at any time.

        :raises Unfit: if the base is not available.
        :raises NotNow: if something was in the way.
        """
        await retry_on_race(lambda: self._built(staged, on, how, recipe))

    async def _built(self, staged: Staged, on: Foundation, how: str, recipe: str) -> None:
        mark = f"BAT OS expert {staged.model}, content {staged.content}, recipe {recipe}"
        private_files.make(self._scratch)
        file = self._scratch / f"{recipe}.gguf"
        try:
            if how == "adapter":
                given = await self._adapter(staged, on, file)
                with failing("cannot list the models"):
                    base = await listed_name(self._client, on.model)
                await self._create(staged.model, from_=base, adapters=given, license=mark)
            else:
                given = await self._fused(staged, on, file)
                quantize = {} if self._quantize == "f16" else {"quantize": self._quantize}
                await self._create(staged.model, files=given, license=[*on.shown.licenses, mark], **_voice(on.shown), **quantize)
        finally:
            file.unlink(missing_ok=True)

    async def attempt(self, model: str) -> None:
        """Generate one token with the model. Delete a model that fails.

        :raises Unfit: if Ollama cannot run it.
        :raises NotNow: if something was in the way.
        """
        from batos.bridge.client_library import ResponseError

        said = [{"role": "user", "content": TRIAL}]
        try:
            async with asyncio.timeout(self._deadline_s):
                with failing(f"cannot try {model}", but=ResponseError):
                    await retry_on_race(lambda: self._client.chat(model, said, options={**self._options, "num_predict": 1}))
        except ResponseError as e:
            if e.status_code == 404:
                raise NotNow(f"{model} went away after it was built") from None
            if e.status_code == HTTPStatus.SERVICE_UNAVAILABLE or NO_MEMORY in e.error:
                raise NotNow(f"cannot try {model}: {e.error}") from None
            with failing(f"cannot take {model} away"):
                await retry_on_race(lambda: self._client.delete(model))
            raise Unfit(f"Ollama cannot run it: {e.error}") from None
        except TimeoutError:
            raise NotNow(f"{model} did not answer within {self._deadline_s:g} s") from None

    def stop(self) -> None:
        """End the work that is under way in threads."""
        self._stop.set()

    # --- steps

    async def _adapter(self, staged: Staged, on: Foundation, file: Path) -> dict[str, str]:
        source = staged.adapter.file
        if not staged.adapter.architecture:
            with failing("cannot translate the adapter"):
                await asyncio.to_thread(adapters.write_gguf, staged.adapter, on.base, file)
            source = file
        with failing(f"cannot upload {source.name}"):
            digest = await upload_blob(self._client, source)
        await self._unchanged(staged)
        return {"adapter.gguf": digest}

    async def _fused(self, staged: Staged, on: Foundation, file: Path) -> dict[str, str]:
        with failing("cannot fuse"):
            await asyncio.to_thread(adapters.fuse, on.weights, staged.adapter, on.base, file, self._stop)
        await self._unchanged(staged)
        with failing("cannot upload the fused weights"):
            return {"model.gguf": await upload_blob(self._client, file)}

    async def _unchanged(self, staged: Staged) -> None:
        """Check that the files used for the build are the files that were checked and digested."""
        with failing("cannot read the adapter again"):
            same = await asyncio.to_thread(staged.intact)
        if not same:
            raise NotNow("its files changed while they were read")

    async def _create(self, model: str, **arguments: Any) -> None:
        last: str | None = None
        with failing(f"cannot build {model}"):
            stream: AsyncIterator[Any] = await self._client.create(model, stream=True, **arguments)
            async for part in stream:
                last = part.status
        if last != "success":
            raise NotNow(f"Ollama stopped at {last!r}")


class failing:
    """Context manager that turns errors of files and requests into `NotNow`; `but`: errors to let through."""

    def __init__(self, what: str, but: type[Exception] = NotNow) -> None:
        self._what, self._but = what, but

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import httpx

        from batos.bridge.client_library import ResponseError

        if error is None or isinstance(error, (Unfit, NotNow, self._but)):
            return
        # ValueError: an answer that is not JSON, or a file that changed during the build.
        if isinstance(error, ResponseError | ConnectionError | httpx.HTTPError | OSError | ValueError | KeyError | WritingStopped):
            raise NotNow(f"{self._what}: {str(error) or repr(error)}") from error


def _voice(shown: Modelfile) -> dict[str, Any]:
    """Return the persona's own words, for a model that does not inherit them."""
    messages = [{"role": role, "content": content} for role, content in shown.messages]
    found = {"system": shown.system, "template": shown.template, "parameters": shown.parameters, "messages": messages}
    return {name: value for name, value in found.items() if value}
