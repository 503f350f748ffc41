"""What is in the memory of a scripted Ollama: one runner for each file of weights, as Ollama keeps them."""

from __future__ import annotations

import threading
from typing import Any

from batos.testing.models import Model

RUNNER_OPTIONS = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread")

DEFAULT_CONTEXT = 2048


class Runners:
    """The runners. `loads` names the models for which weights were loaded, in order; `sizes` is bytes by name, 1 for the others."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.sizes: dict[str, int] = {}
        self._lock = threading.Lock()
        self._there: dict[str, tuple[str, Model, dict[str, Any]]] = {}  # by weights

    def use(self, name: str, model: Model, options: dict[str, Any] | None = None) -> bool:
        """See that a model is in memory; whether it had to be loaded. What else was on its weights is gone then."""
        own = {key: value for key, value in {**model.parameters, **(options or {})}.items() if key in RUNNER_OPTIONS}
        with self._lock:
            there = self._there.get(model.weights)
            if there is not None and (there[1].adapters, there[2]) == (model.adapters, own):
                return False
            self._there[model.weights] = (name, model, own)
            self.loads.append(name)
            return True

    def drop(self, model: Model) -> None:
        """Unload the runner of a model's weights, whichever model it was loaded for."""
        with self._lock:
            self._there.pop(model.weights, None)

    def listed(self) -> dict[str, Model]:
        """The models that runners were loaded for."""
        with self._lock:
            return {name: model for name, model, _ in self._there.values()}

    def contexts(self) -> dict[str, int]:
        """By name of these, the context that they were loaded with."""
        with self._lock:
            return {name: int(options.get("num_ctx", DEFAULT_CONTEXT)) for name, _, options in self._there.values()}
