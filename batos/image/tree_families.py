"""The families of BTrees, each loaded when it is first used.

`import BTrees` loads all 22 families (whole numbers of 32 and 64 bits, objects, floats as keys and values). Each has a library of its own,
which takes memory. An image uses five. Importing this module makes the others wait, if nothing has imported BTrees before. A record of
any family opens as ever: the first name of a class loads its family.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import threading
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

_BUILDER = "BTrees._module_builder"
_OF_FAMILY = frozenset({"__all__", "__provides__"})
"""Special names that the module of a family has, beside those of every module."""
_loading = threading.RLock()


class _WaitingFamily(ModuleType):
    """The module of a family that nothing has used yet."""

    def __init__(self, prefix: str, create: Callable[[str], ModuleType]) -> None:
        super().__init__(f"BTrees.{prefix}BTree")
        self._load: Callable[[], ModuleType] | None = functools.partial(create, prefix)

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__" and name not in _OF_FAMILY:  # asked of every module, such as `__file__`
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _loading:
            if self._load is not None:  # else another thread has loaded it meanwhile
                self.__dict__.update({**vars(self._load()), **vars(self)})
                self._load = None
                self.__class__ = ModuleType  # type: ignore[assignment]  # from now on an attribute is looked up as of any module
        return getattr(self, name)


def _let_wait() -> None:
    """Make the families of BTrees wait. A BTrees that makes its families in another way stays as it is."""
    found = importlib.util.find_spec("BTrees")
    spec = PathFinder.find_spec(_BUILDER, found.submodule_search_locations) if found else None
    if spec is None or spec.loader is None:
        return
    builder = sys.modules[_BUILDER] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    if callable(create := vars(builder).get("create_module")):
        vars(builder)["create_module"] = lambda prefix: _WaitingFamily(prefix, create)


if "BTrees" not in sys.modules:
    _let_wait()
