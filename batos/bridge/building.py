"""Builds: a base model from a package's files, a persona's model from its Modelfile; once a content."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import structlog

from batos import private_files
from batos.bridge import blobs, modelfile
from batos.bridge.built import Built
from batos.bridge.candidates import as_listed
from batos.bridge.client import CONNECT_S
from batos.bridge.modelfile import Modelfile
from batos.bridge.names import tagged
from batos.bridge.overtaken import asked
from batos.bridge.pulling import Step, follow
from batos.bridge.recipes import Recipe
from batos.bridge.requantize import Unreadable, requantize
from batos.bridge.room import Room
from batos.bridge.wants import AGAIN, Cannot, Progress, ServerErrors
from batos.errors import ModelfileError

if TYPE_CHECKING:
    from ollama import AsyncClient, ProgressResponse

log = structlog.get_logger(__name__)

ROOM_REMEDY = f"see Ollama's log, and that its model folder has room; {AGAIN}"


class Builder:
    """Builds models on one Ollama."""

    def __init__(self, client: AsyncClient, built: Built, room: Room, step: Step) -> None:
        self._client, self._built, self._room, self._step = client, built, room, step

    async def listed(self) -> dict[str, str]:
        """The models that are there, each with its digest.

        :raises Cannot: when Ollama does not say.
        """
        with ServerErrors("cannot list the models", AGAIN):
            async with asyncio.timeout(CONNECT_S):
                listed = await asked(self._client.list)
            return {tagged(m.model): m.digest or "" for m in listed.models if m.model}

    async def digests(self, model: str, recipe: Recipe) -> dict[Path, str]:
        """The digest of every file of a recipe."""
        found = {}
        for path in recipe.paths:
            self._step(Progress(model, f"reading {path.name}"))
            try:
                found[path] = await self._built.digest_of(path)
            except OSError as e:
                raise Cannot(f"cannot read {path}: {e.strerror or e}", f"put it there; {AGAIN}") from None
        return found

    async def is_built(self, model: str, recipe: Recipe, digests: dict[Path, str], base_digest: str, digest: str) -> bool:
        """Whether the model, listed under `digest`, is what the recipe makes on the base of that digest.

        What was built here is known by its fingerprint. Of any other model, one of a former version's say, what `show` tells
        is compared, where that tells all of it.
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
        """Upload what Ollama lacks, create the model, and note what it was built from.

        :raises Cannot: when it does not come about.
        """
        async with self._requantized(model, recipe, digests) as (made, known):
            try:
                await self._make_room(model, made, known)
                request = made.request(known)
                if recipe.base:
                    with ServerErrors("cannot list the models", AGAIN):
                        request["from"] = await as_listed(self._client, recipe.base)
                await asked(lambda: self._create(model, request, known))
            finally:
                self._room.release(model)
        self._built.note(model, (await self.listed()).get(model, ""), recipe.fingerprint(digests, base_digest))

    @asynccontextmanager
    async def _requantized(self, model: str, recipe: Recipe, digests: dict[Path, str]) -> AsyncIterator[tuple[Recipe, dict[Path, str]]]:
        """The recipe as it goes to Ollama, with its files' digests; its weights, where it says so, written anew while the build lasts."""
        if not recipe.requantize:
            yield recipe, digests
            return
        ((name, source),) = recipe.files.items()
        out, stop = self._built.beside(f"{recipe.requantize}.gguf"), Event()
        self._step(Progress(model, f"writing {name} as {recipe.requantize}"))
        try:
            digest = await asyncio.to_thread(_written, source, recipe.requantize, out, stop)
            yield replace(recipe, files={name: out}), {out: digest}
        finally:
            stop.set()
            out.unlink(missing_ok=True)

    async def _make_room(self, model: str, recipe: Recipe, digests: dict[Path, str]) -> None:
        with ServerErrors("cannot ask for blobs", AGAIN):
            missing = [path for path, digest in digests.items() if not await blobs.has(self._client, digest)]
        self._room.claim(model, size_of([*missing, *recipe.converted]))

    async def _upload(self, model: str, path: Path, digest: str) -> None:
        total = size_of([path])

        def sent(count: int) -> None:
            self._step(Progress(model, f"uploading {path.name}", path.name, count, total))

        await blobs.upload(self._client, path, digest=digest, on_bytes=sent)

    async def _create(self, model: str, request: dict[str, Any], files: dict[Path, str]) -> None:
        from batos.bridge.client_library import ProgressResponse

        with ServerErrors(f"cannot upload the files of {model}", ROOM_REMEDY):
            for path, digest in files.items():
                await self._upload(model, path, digest)
        with ServerErrors(f"cannot build {model}", ROOM_REMEDY):
            # As AsyncClient.create, which has no words for RENDERER, PARSER and REQUIRES.
            body = {"model": model, "stream": True, **request}
            stream = await self._client._request(ProgressResponse, "POST", "/api/create", json=body, stream=True)
            await follow(stream, lambda part: self._hear(model, part), ROOM_REMEDY)

    def _hear(self, model: str, part: ProgressResponse) -> None:
        self._step(Progress(model, part.status or "", part.digest or "", part.completed, part.total))

    async def _shown(self, name: str) -> Modelfile | None:
        """What a model is made of; None where it is not there or its Modelfile cannot be read: then it is built anew."""
        from batos.bridge.client_library import ResponseError

        with ServerErrors(f"cannot look at {name}", AGAIN):
            try:
                return modelfile.parse((await asked(lambda: self._client.show(name))).modelfile or "")
            except ModelfileError as e:
                log.warning("unreadable Modelfile in Ollama", model=name, error=e.message)
                return None
            except ResponseError as e:
                if e.status_code == 404:
                    return None
                raise


def _written(source: Path, kind: str, out: Path, stop: Event) -> str:
    """Write weights anew; answers the digest of what was written.

    :raises Cannot: where they cannot be read, or what is written has no room.
    """
    try:
        private_files.make(out.parent)
        requantize(source, kind, out, stop)
        return blobs.digest_of(out)
    except Unreadable as e:
        raise Cannot(f"cannot read {source}: {e}", f"install the package anew; {AGAIN}") from None
    except OSError as e:
        cause = "disk_full" if e.errno == errno.ENOSPC else "recipe"
        raise Cannot(f"cannot write {out}: {e.strerror or e}", f"see that it can be written, and has room; {AGAIN}", cause) from None


def size_of(paths: list[Path]) -> int:
    """Bytes of files, all together."""
    return sum(path.stat().st_size for path in paths)


def _same_from(weights: str, shown: Modelfile, recipe: Recipe) -> bool:
    """Whether a model is of those weights, one GGUF file, and says what the recipe says. A template that is not said is Ollama's own."""
    said = recipe.said
    return (
        shown.from_.endswith(weights.replace(":", "-"))
        and (not said.get("template") or shown.template == said["template"])
        and _rest_of(shown) == {name: said.get(name) or None for name in _RESTS}
        and shown.parameters.items() >= (said.get("parameters") or {}).items()
    )


def _same_on(base: Modelfile, shown: Modelfile, recipe: Recipe) -> bool:
    """Whether a model is what the recipe says, on its base as it is now. `show` names the weights by the digest of their blob."""
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
    """The rest of what a model says, in a recipe's words."""
    messages = [{"role": role, "content": content} for role, content in shown.messages]
    values = (shown.system, messages, list(shown.licenses), shown.renderer, shown.parser, shown.requires)
    return {name: value or None for name, value in zip(_RESTS, values, strict=True)}
