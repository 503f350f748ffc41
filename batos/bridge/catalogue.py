"""Catalogue of models that can be pulled, with their claimed capabilities and sizes. Nothing is pulled here.

The shipped catalogue is `catalogue.toml` beside this module; a user's own is a file of that name in the data folder.

The user's own registry is listed too. It speaks the distribution protocol: `/v2/_catalog` lists its repositories, if it allows that (the
public library of Ollama does not; the shipped catalogue covers it). The listing reads the manifest of each model, some kilobytes of its
files, and only the header of its weights.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from batos.bridge.capabilities import PLAIN, Capabilities, figure
from batos.bridge.downloads import on_loopback
from batos.bridge.installed_models import UNKNOWN_CACHE, Candidate, cache_of
from batos.bridge.lora import gguf
from batos.bridge.modelfile import tagged
from batos.config import MIB
from batos.errors import ConfigError

if TYPE_CHECKING:
    import httpx

CATALOGUE = "catalogue.toml"
CATALOGUE_FILE = Path(__file__).with_name(CATALOGUE)
ENTRIES_LIMIT = 2048
"""Greatest number of models in one file."""


class _Entry(BaseModel):
    """A model of a catalogue file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int = Field(gt=0)
    parameters: int = Field(gt=0)
    context: int = Field(gt=0)
    cache: int = Field(UNKNOWN_CACHE, gt=0)
    can: tuple[Literal["vision", "tools", "thinking"], ...] = ()


class _File(BaseModel):
    """A catalogue file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: str = ""
    source: str = ""
    models: dict[str, _Entry] = Field({}, max_length=ENTRIES_LIMIT)


class Offer(NamedTuple):
    """A model that a user can install.

    :ivar source: origin of the model, in words.
    """

    model: Candidate
    source: str


def offers(data: Path) -> list[Offer]:
    """Return the models of the shipped catalogue and of the user's own in the folder `data`. The user's models replace shipped ones of the
    same name.

    :raises ConfigError: if the user's own file is not well formed.
    """
    own = data / CATALOGUE
    found = {offer.model.name: offer for offer in _read(CATALOGUE_FILE)}
    if own.is_file():
        found |= {offer.model.name: offer for offer in _read(own)}
    return list(found.values())


def _read(path: Path) -> list[Offer]:
    try:
        read = _File.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as e:
        raise ConfigError(f"cannot read the catalogue in {path}: {e}") from None
    source = (read.source or f"the catalogue in {path}") + (f", as of {read.as_of}" if read.as_of else "")
    return [Offer(_model(name, entry), source) for name, entry in read.models.items()]


def _model(name: str, entry: _Entry) -> Candidate:
    can = Capabilities(
        parameters=entry.parameters,
        context=entry.context,
        vision="vision" in entry.can,
        tools="tools" in entry.can,
        thinks="thinking" in entry.can,
    )
    return Candidate(tagged(name), "", entry.bytes, entry.cache, can)


LIST_S = 20.0
"""Seconds for a registry to list its models."""
MODELS_LIMIT = 256
"""Greatest number of models of one registry that are looked at."""
AT_ONCE = 8
TEXT_BYTES, HEADER_BYTES = MIB, MIB
"""Greatest number of bytes that are read of a manifest, a configuration or a template, and of a weights file, whose header comes first."""
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
_LAYER = "application/vnd.ollama.image."
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMBT])")
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


class RegistryListing(NamedTuple):
    """Models in a registry, and the reason why the list is incomplete, in words; empty if it is complete."""

    offers: tuple[Offer, ...]
    trouble: str = ""


class _Unfit(Exception):
    """Reason why a registry, or a model in it, lacks requested data."""


async def registry_models(host: str) -> RegistryListing:
    """Return the models of the registry at `host` (host:port; plain HTTP on loopback, else HTTPS).

    Never raises for what a registry does: it may be away, or answer nonsense.
    """
    import httpx

    local = on_loopback(f"{host}/")
    transport = httpx.AsyncHTTPTransport(trust_env=False) if local else None  # an address on this machine needs no proxy
    base = f"{'http' if local else 'https'}://{host}/v2/"
    try:
        async with (
            asyncio.timeout(LIST_S),
            httpx.AsyncClient(base_url=base, follow_redirects=True, timeout=LIST_S, trust_env=not local, transport=transport) as client,
        ):
            return await _Registry(client, host).listed()
    except TimeoutError:
        return RegistryListing((), f"the registry {host} did not say within {LIST_S:g} s what it has")
    except (httpx.HTTPError, httpx.InvalidURL, _Unfit, OSError, ValueError) as e:
        return RegistryListing((), f"the registry {host} does not say what it has: {str(e) or repr(e)}")


class _Registry:
    def __init__(self, client: httpx.AsyncClient, host: str) -> None:
        self._client, self._host = client, host
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def listed(self) -> RegistryListing:
        repositories = _texts(await self._json(f"_catalog?n={MODELS_LIMIT}"), "repositories")[:MODELS_LIMIT]
        tagged = await asyncio.gather(*(self._tags(name) for name in repositories))
        names = [(name, tag) for name, tags in zip(repositories, tagged, strict=True) for tag in tags]
        found = await asyncio.gather(*(self._model(name, tag) for name, tag in names[:MODELS_LIMIT]))
        offers = tuple(Offer(one, f"the registry {self._host}") for one in found if one is not None)
        beyond = len(names) - MODELS_LIMIT
        return RegistryListing(offers, f"the registry {self._host} has {beyond} models more than are looked at" if beyond > 0 else "")

    async def _tags(self, name: str) -> list[str]:
        import httpx

        try:
            return _texts(await self._json(f"{name}/tags/list"), "tags")
        except (httpx.HTTPError, _Unfit, ValueError):  # a repository whose tags were deleted
            return []

    async def _model(self, name: str, tag: str) -> Candidate | None:
        """Return a model of the registry; None if it is not a model, or lacks data."""
        import httpx

        try:
            manifest = await self._json(f"{name}/manifests/{tag}", accept=_MANIFEST)
            layers = [one for one in manifest.get("layers") or () if isinstance(one, dict)]
            by_kind = {str(one.get("mediaType")).removeprefix(_LAYER): one for one in layers}
            if "model" not in by_kind:
                return None
            config = await self._json(f"{name}/blobs/{manifest['config']['digest']}")
            template = ""
            if "template" in by_kind:
                template = (await self._bytes(f"{name}/blobs/{by_kind['template']['digest']}", TEXT_BYTES)).decode("utf-8", "replace")
            keys = gguf.read_keys(await self._bytes(f"{name}/blobs/{by_kind['model']['digest']}", HEADER_BYTES))
            size = sum(int(one["size"]) for one in layers) + int(manifest["config"]["size"])
        except (httpx.HTTPError, _Unfit, ValueError, KeyError, TypeError):
            return None
        can = _capabilities(config, template, keys, projector="projector" in by_kind)
        return Candidate(f"{self._host}/{name}:{tag}", "", size, cache_of(keys), can)

    async def _json(self, path: str, accept: str = "application/json") -> dict[str, Any]:
        import json

        read = json.loads(await self._bytes(path, TEXT_BYTES, {"Accept": accept}, whole=True))
        if not isinstance(read, dict):
            raise _Unfit(f"/v2/{path} answers no object")
        return read

    async def _bytes(self, path: str, most: int, headers: Mapping[str, str] | None = None, *, whole: bool = False) -> bytes:
        """Return the first bytes of the content at a path.

        :param whole: True: longer content is an error.
        """
        asked = {**(headers or {}), **({} if whole else {"Range": f"bytes=0-{most - 1}"})}
        read = bytearray()
        async with self._turns, self._client.stream("GET", path, headers=asked) as reply:
            if reply.is_error:
                raise _Unfit(f"/v2/{path.partition('?')[0]} answers {reply.status_code} {reply.reason_phrase}")
            async for part in reply.aiter_bytes():
                read += part
                if len(read) >= most:
                    break
        if whole and len(read) > most:
            raise _Unfit(f"/v2/{path} is longer than {most} bytes")
        return bytes(read[:most])


def _texts(told: Mapping[str, Any], name: str) -> list[str]:
    found: Sequence[Any] = told.get(name) or ()
    return [one for one in found if isinstance(one, str) and one]


def _capabilities(config: Mapping[str, Any], template: str, keys: Mapping[str, Any], *, projector: bool) -> Capabilities:
    """Return the capabilities that Ollama claims for a model once it is installed. They are claims: probes check them then."""
    parser, renderer = str(config.get("parser") or ""), str(config.get("renderer") or "")
    context = figure(keys, "context_length")
    return Capabilities(
        parameters=_parameters(keys.get("general.parameter_count"), str(config.get("model_type") or "")),
        context=context if isinstance(context, int) and context > 0 else None,
        quantization=str(config.get("file_type") or ""),
        chats=figure(keys, "pooling_type") is None and (bool(renderer) or template.strip() not in ("", PLAIN)),
        thinks=".Thinking" in template or "thinking" in parser,
        tools=".Tools" in template or bool(parser),
        vision=projector or figure(keys, "vision.block_count") is not None,
    )


def _parameters(counted: Any, said: str) -> int | None:
    """Return the number of parameters: from the model's file, else from its configuration (`134.52M`); None if unknown."""
    if isinstance(counted, int) and counted > 0:
        return counted
    found = _SIZE.fullmatch(said.strip())
    return round(float(found[1]) * _UNITS[found[2]]) if found else None
