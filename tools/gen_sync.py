"""Write `batos/wire/sync_client.py` and `sync_operations.py`: each method of `Client`, for callers without an event loop.

`--check` only compares, and exits 1 where the module is stale. The loop and the thread that the methods run on are written by hand, in
`batos/wire/sync_connection.py`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

WIRE = Path(__file__).parents[1] / "batos" / "wire"
_NAMES = ("client", "schedule_client", "notice_client", "hook_client", "folder_client", "step_client", "kernel_client", "compare_client")
SOURCES = tuple(WIRE / f"{name}.py" for name in _NAMES)
TARGET, OPERATIONS_TARGET = WIRE / "sync_client.py", WIRE / "sync_operations.py"
CLASSES = ("Client", "Operating")
OPERATIONS = ("Scheduling", "Noticing", "Hooking", "FolderWatching", "StepClient", "KernelReading", "Comparing")
"""The classes whose methods a client has, in the order in which they are written: in either module."""

OPERATIONS_HEAD = '''"""Part of the client for callers without an event loop: schedules, notices, hooks, folders, stepping, comparisons.

Written by tools/gen_sync.py from the modules of batos/wire that end in _client.py: change those, then run `make docs`.
"""

from __future__ import annotations

{imports}

class SyncOperations(SyncConnection):
    """Part of `SyncClient`."""

'''
HEAD = '''"""The client for callers without an event loop: `SyncClient`.

Written by tools/gen_sync.py from batos/wire/client.py and the others that end in _client.py: change those, then run `make docs`.
"""

from __future__ import annotations

{imports}

class SyncClient(SyncOperations):
    """A connection to the daemon, as a context manager. Arguments, results and errors are those of `Client`.

    Several threads may use it at once.
    """

'''


def generated() -> str:
    """Return the text of the module with `SyncClient`, formatted as the rest of the source is."""
    return _module(HEAD, CLASSES, "SyncOperations")


def operations() -> str:
    """Return the text of the module with its base."""
    return _module(OPERATIONS_HEAD, OPERATIONS, "SyncConnection")


def _module(head: str, classes: Sequence[str], base: str) -> str:
    methods: dict[str, list[str]] = {}
    known: dict[str, str] = {}
    for source in SOURCES:
        text = source.read_text("utf-8")
        tree, lines = ast.parse(text), text.splitlines()
        known |= _known(tree, f"batos.wire.{source.stem}")
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                methods[node.name] = [_method(method, lines) for method in node.body if _is_public(method)]
    body = "\n".join(method for name in classes for method in methods[name])
    return _formatted(head.format(imports=_imports(known, body, base)) + body)


def _is_public(node: ast.stmt) -> TypeGuard[ast.AsyncFunctionDef]:
    return isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_")


def _method(node: ast.AsyncFunctionDef, lines: list[str]) -> str:
    """Return the method with its own signature and docstring, and a body that calls the one of `Client`."""
    docstring = node.body[0]
    assert isinstance(docstring, ast.Expr), f"{node.name} has no docstring"
    head = "\n".join(re.sub(r"\s+# noqa: PLR0913.*$", "", line) for line in lines[node.lineno - 1 : docstring.end_lineno])
    head = head.replace("async def", "def", 1)  # the exceptions from the limit of parameters are those of `Client`
    head, streams = re.subn(r"-> AsyncGenerator\[(.+), None\]:", r"-> Iterator[\1]:", head, count=1)
    run = "_events" if streams else "_run"
    return f"{head}\n        return self.{run}(self._client.{node.name}({_passed_on(node.args)}))\n"


def _passed_on(parameters: ast.arguments) -> str:
    """Return the arguments of a call that hands every parameter but `self` on."""
    positional = [parameter.arg for parameter in parameters.posonlyargs + parameters.args][1:]
    rest = [f"*{parameters.vararg.arg}"] if parameters.vararg else []
    named = [f"{parameter.arg}={parameter.arg}" for parameter in parameters.kwonlyargs]
    others = [f"**{parameters.kwarg.arg}"] if parameters.kwarg else []
    return ", ".join(positional + rest + named + others)


def _known(tree: ast.Module, module: str) -> dict[str, str]:
    """Return the names that a module of the client imports or defines, each with its module."""
    known: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            known |= {alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            known[node.name] = module
        elif isinstance(node, ast.Assign):
            known |= {target.id: module for target in node.targets if isinstance(target, ast.Name)}
    return known


def _imports(known: dict[str, str], body: str, base: str) -> str:
    """Return the import lines for the names that the signatures use, and for the base class."""
    bases = {"SyncConnection": "batos.wire.sync_connection", "SyncOperations": "batos.wire.sync_operations"}
    known = {**known, "Iterator": "collections.abc", **bases}
    used = {node.id for node in ast.walk(ast.parse(f"class _:\n{body}")) if isinstance(node, ast.Name)} & set(known)
    modules: dict[str, list[str]] = {}
    for name in {*used, base}:
        modules.setdefault(known[name], []).append(name)
    return "\n".join(f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(modules.items()))


def _formatted(text: str) -> str:
    """Return the source as `ruff` sorts its imports and formats it."""
    for words in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(command, input=text, check=True, capture_output=True, text=True, cwd=WIRE.parents[1]).stdout
    return text


def main() -> int:
    """Write or compare the modules."""
    stale = False
    for target, fresh in ((TARGET, generated()), (OPERATIONS_TARGET, operations())):
        if target.exists() and target.read_text("utf-8") == fresh:
            continue
        if "--check" in sys.argv:
            print(f"stale: batos/wire/{target.name}; run `make docs`")
            stale = True
            continue
        target.write_text(fresh, "utf-8")
        print(f"written: batos/wire/{target.name}")
    return int(stale)


if __name__ == "__main__":
    raise SystemExit(main())
