"""Program cache: methods rewritten, compiled by the sandbox's interpreter, checked by its type checker, and kept as worker images."""

from __future__ import annotations

import ast
import asyncio
import collections
import functools
import io
import re
from dataclasses import dataclass, field
from typing import Any

from batos.errors import MethodUnsupported, SandboxFailed
from batos.sandbox import stdlib
from batos.sandbox.prelude import PRELUDE
from batos.sandbox.rewriter import BUILTINS, Program, rewrite
from batos.sandbox.worker_calls import Pace
from batos.sandbox.workers import Workers

_TRACED = "\0"  # before the source of a traced program: no source begins so
_KEPT = 512  # programs kept; a program takes some 30 KB
_PRELUDE_LINES = PRELUDE.count("\n") + 1

STUB = """
from typing import Any
class UvmObject:
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
    def __delattr__(self, name: str) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
"""
"""Stub for the type checker, beside its own: `self` has every slot."""

_CERTAIN = frozenset(
    [
        "unresolved-reference",
        "unresolved-attribute",
        "call-non-callable",
        "missing-argument",
        "unknown-argument",
        "too-many-positional-arguments",
        "unsupported-operator",
        "not-iterable",
    ]
)
"""Rules of the type checker whose findings fail at run time. Findings of other rules are matters of taste in annotations."""
_OF_OTHERS = re.compile(r"`[+|&^-]=`[^`]* of type `(list|set|dict)\[[^`]*` and `\1\[")
"""Matches a container that takes in one with other elements. The checker insists on the first element type; Python does not."""
_EITHER = re.compile(r"`[^`]+ \| [^`]+`")
"""Matches a value of a union type, such as an item of a mixed list. The method knows the actual type; the checker does not."""
_GUESSED = re.compile(r"type `(object|Sized|Hashable|Iterable|Supports\w+)\b")  # the last: what a builtin's parameter expects
_DIAGNOSTIC = re.compile(r"^main\.py:(\d+):(\d+): (?:error|warning)\[([\w-]+)\] (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Loaded:
    """A program with the image of a worker that holds it."""

    program: Program
    image: bytes
    key: str
    pace: Pace = field(compare=False)

    def lines(self, error: Any) -> list[int]:
        """Return the lines of the method's source that an error of the interpreter passed through, innermost last."""
        return _lines(self.program, error)


class Programs:
    """Programs by source text, made when they are first needed."""

    def __init__(self, workers: Workers, *, limit: int) -> None:
        self._workers, self._limit = workers, limit
        self._known: collections.OrderedDict[str, Loaded] = collections.OrderedDict()

    async def get(self, source: str, *, traces: bool = False) -> Loaded:
        """Return the program of a source.

        :param traces: True for one that notes the lines that it reaches.
        :raises MethodUnsupported: if the sandbox cannot run it.
        :raises SandboxFailed: if there is no worker to compile it.
        """
        key = _TRACED + source if traces else source
        found = self.known(key)
        if found is None:
            found = self._known[key] = Loaded(*await self._compiled(source, traces), key, Pace(source))
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found

    def known(self, source: str) -> Loaded | None:
        """Return the program of a source, if it has been made."""
        found = self._known.get(source)
        if found is not None:
            self._known.move_to_end(source)
        return found

    async def _compiled(self, source: str, traces: bool) -> tuple[Program, bytes]:
        from pydantic_monty import CollectString, MontyCrashedError, MontyError

        program = await asyncio.to_thread(rewrite, source, limit=self._limit, traces=traces)  # takes a second for the worst 16 KB of source
        session = await self._workers.session()
        try:
            text, output = PRELUDE + "\n" + program.text, CollectString(1024)
            answer = await session.turn(functools.partial(session.monty.feed_start, text, print_callback=output), stand_by=False)
            if hasattr(answer, "resume"):  # a default value that asks the host for something
                raise MethodUnsupported("default values of parameters are literals", line=1, column=0)
            return program, bytes(await session.turn(session.monty.dump, stand_by=False))
        except MontyCrashedError as e:
            raise SandboxFailed(f"the worker that compiled {program.selector!r} died: {e}") from e
        except MontyError as e:
            line = (_lines(program, e) or [1])[-1]
            raise MethodUnsupported(f"the sandbox cannot run this: {e}", line=line, column=0) from None
        finally:
            await session.leave()

    async def type_check(self, source: str) -> list[tuple[int, int, str]]:
        """Return the certain findings of the type checker: line, column and text, in the source as it was written."""
        from pydantic_monty import MontyCrashedError, MontyError, MontyTypingError

        session = await self._workers.session(type_check=True, type_check_stubs=STUB, type_check_format="concise")
        try:
            text, annotations = await asyncio.to_thread(_annotated, source)
            await session.turn(functools.partial(session.monty.feed_start, text), stand_by=False)
        except MontyTypingError as e:
            return _certain(e.display(), source, annotations)
        except MontyCrashedError as e:
            raise SandboxFailed(f"the type checker's worker died: {e}") from e
        except MontyError:
            return []  # not a finding of the checker; the rewritten text has to compile in any case
        finally:
            await session.leave()
        return []


_Place = tuple[int, int]
"""Line and column, both counted from 1. The column counts characters, as the checker does."""


def _annotated(source: str) -> tuple[str, list[tuple[_Place, _Place]]]:
    """Return the source with its receiver declared a UvmObject, and the places of its annotations."""
    method = ast.parse(source).body[0]
    assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    lines, at = _lines_of(source), method.lineno - 1  # a comment before the definition may contain the same words
    if method.name in BUILTINS:  # within the method, this name means the builtin: see `rewrite`
        name = re.compile(rf"(\bdef[\s\\]+){method.name}\b")
        lines = lines[:at] + _lines_of(name.sub(lambda found: found[1] + "_" * len(method.name), "".join(lines[at:]), count=1))
    receiver = (method.args.posonlyargs + method.args.args)[0]
    if receiver.annotation is None:
        line = lines[receiver.lineno - 1].encode()
        end = receiver.end_col_offset or 0
        lines[receiver.lineno - 1] = (line[:end] + b": UvmObject" + line[end:]).decode()
    source = "".join(lines)
    return source, _annotations(source)


def _lines_of(source: str) -> list[str]:
    """Return the lines as Python counts them, with their ends. `splitlines` would also split at form feeds."""
    return io.StringIO(source, newline="").readlines()


def _annotations(source: str) -> list[tuple[_Place, _Place]]:
    lines = [line.encode() for line in _lines_of(source)]

    def place(line: int | None, column: int | None) -> _Place:
        return (line or 0, len(lines[(line or 1) - 1][:column].decode(errors="replace")) + 1)

    held = (getattr(node, field, None) for node in ast.walk(ast.parse(source)) for field in ("annotation", "returns"))
    return [(place(one.lineno, one.col_offset), place(one.end_lineno, one.end_col_offset)) for one in held if isinstance(one, ast.expr)]


def _certain(text: str, source: str, annotations: list[tuple[_Place, _Place]]) -> list[tuple[int, int, str]]:
    shift = len(": UvmObject")
    found = []
    for line, column, rule, what in _DIAGNOSTIC.findall(text):
        # Annotations are not evaluated. Their names may be imported in the body, where the annotation does not see them.
        if rule == "unresolved-reference" and any(begin <= (int(line), int(column)) < end for begin, end in annotations):
            continue
        supplied = any(f"`{name}`" in what for name in stdlib.METHODS)
        supplied = supplied or ".".join(re.findall(r"`(\w+)`", what)) in stdlib.FUNCTIONS  # Module `m` has no member `f`
        supplied = supplied or (
            rule == "unresolved-reference" and what.split("`")[1] in BUILTINS
        )  # the checker knows fewer builtins than there are; `refusals` knows which of them are forbidden
        # a finding about a value whose type the checker does not know well enough
        guessed = "None" in what or _GUESSED.search(what) or _EITHER.search(what)
        if rule in _CERTAIN and not guessed and not supplied and not _OF_OTHERS.search(what):
            first = int(line) == 1 and int(column) > source.find("self")
            found.append((int(line), max(0, int(column) - 1 - (shift if first else 0)), what))
    return found


def _lines(program: Program, error: Any) -> list[int]:
    known = [program.lines.get(frame.line - _PRELUDE_LINES) for frame in error.traceback()] if hasattr(error, "traceback") else []
    return [line for line in known if line is not None]
