"""What Ollama loads for a model, which is not its name: the weights, the adapters on them, and the options of the runner.

Ollama keeps one runner for each file of weights. Models that differ only by their system message share it; another adapter,
or another value of an option below, makes Ollama load the weights anew (v0.17.4, server/sched.go: needsReload).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batos.bridge.modelfile import Modelfile

RUNNER_OPTIONS = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread")


@dataclass(frozen=True, slots=True)
class Load:
    """What is in memory for a model. `weights` and `adapters` are names of blobs, `options` pairs sorted by name."""

    weights: str
    adapters: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, shown: Modelfile, options: Mapping[str, Any]) -> Load:
        """The load of a model.

        :param shown: the Modelfile that Ollama shows of it, which names blobs.
        :param options: those of the request; they go before the model's own.
        """
        own = {name: value for name, value in {**shown.parameters, **options}.items() if name in RUNNER_OPTIONS}
        return cls(_blob(shown.from_), tuple(_blob(a) for a in shown.adapters), tuple(sorted(own.items())))

    def evicts(self, other: Load) -> bool:
        """Whether loading this one throws the other out, whatever memory there is."""
        return self.weights == other.weights and self != other


def _blob(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
