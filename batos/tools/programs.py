"""Program connections: one program of this machine with fixed arguments, in a jail; a call fills its placeholders.

A launcher (`program_launcher.py`) is started when a call is prepared, and waits. So the process is known, and written into the effect's
record, before anything runs. The program runs when the call is sent, and never if the call is not sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import re
import shlex
import shutil
import signal
import sys
import weakref
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batos.config import nearest, shown
from batos.errors import InvalidInput, ToolFailed
from batos.image.effects import ACTS, IDEMPOTENT, READS
from batos.tools import program_launcher
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolCall, ToolDefinition, with_secrets
from batos.tools.effects import process_start
from batos.tools.secrets import redacted

OUTPUT_BYTES = 128 << 10
"""Bytes that are kept of the output, from its beginning, and of the errors, from their end."""
ARGUMENT_BYTES = 32 << 10
"""Bytes of all arguments of a call."""
WAITING = 8
"""Number of launchers that wait for a call to be sent; the oldest is ended when there are more."""
MEMORY = 4 << 30
"""Bytes of memory of a program, where its option `memory_mib` does not say otherwise."""
_SHOWN_ERRORS = 2000
_STEP = 1 << 16
_CLASSES = (READS, IDEMPOTENT, ACTS)
_OPTIONS = ("classes", "dashes", "env", "folders", "memory_mib", "network", "seconds", "without_walls")
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]{0,39})(\?)?\}")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "busybox"})
_TEXT_WITHIN = re.compile(r"-[A-Za-z]*[cC]")
"""Matches an option of fish that holds the text to run."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_SECRET_IN = re.compile(r"\{secret:")


class ProgramStopped(Exception):
    """A program that ended before it could say how it went: it may have acted."""


@dataclass(frozen=True, slots=True)
class CommandTemplate:
    """Fixed arguments of a program, with placeholders."""

    words: tuple[str, ...]
    names: tuple[str, ...]
    """of the placeholders, in their order"""
    required: frozenset[str]
    dashes: bool = False
    """True if a value may begin with -"""

    @classmethod
    def parse(cls, text: str, *, dashes: bool = False) -> CommandTemplate:
        """Return the template of a command line such as `convert {image} --size={size?}`.

        :raises InvalidInput: if it is not valid, with the part that is not.
        """
        try:
            words = shlex.split(text)
        except ValueError as e:
            raise InvalidInput(f"the command {shown(text)} is not valid: {e}; close what is quoted") from None
        if not words or any("\0" in word for word in words):
            raise InvalidInput(f"the command {shown(text)} is not valid; give a program and its arguments, such as 'wc -w {{file}}'")
        if _SECRET_IN.search(text):
            raise InvalidInput("a command line is seen by every user of this machine; give a secret by the option env, {secret:NAME}")
        if _PLACEHOLDER.search(words[0]):
            raise InvalidInput(f"the program {shown(words[0])} is not fixed; only its arguments may have placeholders")
        found = [match for word in words for match in _PLACEHOLDER.finditer(word)]
        for word in words:
            rest = _PLACEHOLDER.sub("", word).replace("{}", "")
            if "{" in rest or "}" in rest:
                allowed = "{name} or {name?}, a letter first, then letters, digits and _"
                raise InvalidInput(f"the argument {shown(word)} has a brace that is not of a placeholder; allowed are {allowed}")
        refuse_shell(words)
        names = tuple(dict.fromkeys(match[1] for match in found))
        return cls(tuple(words), names, frozenset(match[1] for match in found if not match[2]), dashes)

    def fill(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the arguments of one call. A word with an optional placeholder that has no value is left out.

        :raises InvalidInput: if a value cannot be passed as it is.
        """
        values = {name: text_of(name, arguments[name]) for name in self.names if arguments.get(name) is not None}
        if missing := sorted(self.required - values.keys()):
            raise InvalidInput(f"the argument {missing[0]} is missing; the command is: {shlex.join(self.words)}")
        filled: list[str] = []
        for word in self.words:
            used = [match[1] for match in _PLACEHOLDER.finditer(word)]
            if any(name not in values for name in used):
                continue
            made = _PLACEHOLDER.sub(lambda match: values[match[1]], word)
            if made.startswith("-") and not word.startswith("-") and not self.dashes and "--" not in filled:
                how = f"write {shlex.quote('--')} or --option={word} into the command, or set the option dashes"
                raise InvalidInput(f"the value {shown(made)} begins with -, and the program would take it as an option; {how}")
            filled.append(made)
        check_size(filled)
        return filled


class ProgramConnector:
    """The connector of kind `program`. It offers one tool, `run`, with a parameter for each placeholder of the command.

    Options:

    * `classes` ({"run": "reads", "idempotent" or "acts"})
    * `dashes` (False)
    * `env` ({VARIABLE: text}, where {secret:NAME} is put in)
    * `folders` (list of paths that may be read and changed, or with `:ro` only read)
    * `memory_mib` (4096)
    * `network` (False)
    * `seconds` of one call
    * `without_walls` (False), which runs the program also where the kernel lacks a wall
    """

    options: tuple[str, ...] = _OPTIONS

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        """
        :raises InvalidInput: if the command or an option is not valid.
        """
        options = spec.options
        for option in options:
            if option not in self.options:
                allowed = ", ".join(self.options)
                raise InvalidInput(f"{option!r} is not a valid option of a program{nearest(option, self.options)}; allowed are: {allowed}")
        for option in ("dashes", "network", "without_walls"):
            if not isinstance(options.get(option, False), bool):
                raise InvalidInput(f"the option {option} is {shown(options[option])}; it has to be true or false")
        self._spec, self._services = spec, services
        self._template = CommandTemplate.parse(spec.place, dashes=options.get("dashes", False))
        self._kind = self._class_of(options.get("classes", {}))
        self._env = _env(options.get("env", {}))
        self._readable, self._writable = _folders(options.get("folders", []))
        self._seconds = _number("seconds", options.get("seconds", services.limits.call_s), 86_400)
        self._memory = int(_number("memory_mib", options.get("memory_mib", MEMORY >> 20), 1 << 20)) << 20
        self._waiting: deque[_Launched] = deque()
        self._all: weakref.WeakSet[_Launched] = weakref.WeakSet()

    def _class_of(self, classes: Any) -> str:
        return _kind(classes)

    async def tools(self) -> Sequence[ToolDefinition]:
        """Return the tool, if the program is there.

        :raises ToolFailed: if it is not, or cannot be run.
        """
        await asyncio.to_thread(self._file)
        value = {"type": ["string", "number"]}
        parameters = {
            "type": "object",
            "properties": dict.fromkeys(self._template.names, value),
            "required": [name for name in self._template.names if name in self._template.required],
            "additionalProperties": False,
        }
        command = shlex.join(self._template.words)
        reads = self._kind == READS
        return [
            ToolDefinition(
                name="run",
                description=f"Run the program {self._template.words[0]} as: {command}",
                parameters=parameters,
                kind=self._kind,
                private=bool(self._readable or self._writable),
                outward=not reads or self._spec.options.get("network", False),
            )
        ]

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        """Start the launcher of a call; the program itself does not run yet.

        :raises InvalidInput: if a value cannot be passed, or a secret is not set.
        :raises ToolFailed: if the program is missing or cannot be run.
        """
        words = self.words(tool, arguments)
        plan, hidden = await asyncio.to_thread(self._plan, words)
        first: list[_Launched] = [await self._launch(plan)]
        process = f"{first[0].process.pid} {await asyncio.to_thread(process_start, first[0].process.pid)}"

        async def send(delivery: Delivery) -> Any:
            """Run it. A later sending of the same call starts a launcher of its own, which ends with the daemon as the first does."""
            launched = first.pop() if first else await self._launch(plan)
            with contextlib.suppress(ValueError):
                self._waiting.remove(launched)
            try:
                delivery.leave()
            except BaseException:
                await launched.end()
                raise
            return _result(tool_name, await launched.run(), hidden)

        tool_name = f"{self._spec.name}.{tool.name}"
        return ToolCall(
            connection=self._spec.name,
            tool=tool,
            arguments=arguments,
            send=send,
            seconds=self._seconds,
            target=self._spec.name if tool.kind != READS else "",
            process=process,
            payload=shlex.join(words),
        )

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the placeholders."""
        return self._template.names

    def words(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> list[str]:
        """Return the program and the arguments of one call.

        :raises InvalidInput: if a value cannot be passed as it is.
        """
        return self._template.fill(arguments)

    async def output(self, more: Sequence[str]) -> tuple[str, str, str]:
        """Run the program with its fixed arguments and these, in its jail; return how it ended (`exit 0`), what it wrote, and its errors.

        :raises ToolFailed: if it is missing, cannot be run, or takes longer than one call may.
        """
        plan, _ = await asyncio.to_thread(self._plan, [*self._template.words, *more])
        launched = await self._launch(plan)
        with contextlib.suppress(ValueError):
            self._waiting.remove(launched)
        try:
            async with asyncio.timeout(self._seconds):
                how, output, errors = await launched.run()
        except TimeoutError:
            raise ToolFailed(f"{shlex.join(plan['argv'])} did not end within {self._seconds:g} s") from None
        if how.startswith("error "):
            raise ToolFailed(f"{shlex.join(plan['argv'])} did not run: {how.partition(' ')[2]}")
        return how, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")

    async def close(self) -> None:
        """End every program and launcher of the connection."""
        self._waiting.clear()
        for launched in list(self._all):
            await launched.end()

    async def _launch(self, plan: Mapping[str, Any]) -> _Launched:
        launched = await _Launched.start(plan)
        self._all.add(launched)
        self._waiting.append(launched)
        while len(self._waiting) > WAITING:
            await self._waiting.popleft().end()
        return launched

    def _plan(self, words: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Return what the launcher has to know, and the values that no result may show."""
        hidden: list[str] = []

        def secret(name: str) -> str:
            hidden.append(self._services.secret(name))
            return hidden[-1]

        env = {name: with_secrets(value, secret) for name, value in self._env.items()}
        file = self._file()
        for folder in (*self._readable, *self._writable):
            if not os.path.isdir(folder):
                raise ToolFailed(f"the folder {shown(folder)} of {self._spec.name} is not there; bring it back, or remove the connection")
        plan = {
            "file": file,
            "argv": words,
            "env": env,
            "folder": (*self._writable, *self._readable, "/")[0],
            "readable": [file, os.path.realpath(file), *self._readable],
            "writable": list(self._writable),
            "network": self._spec.options.get("network", False),
            "memory": self._memory,
            "without_walls": self._spec.options.get("without_walls", False),
        }
        return plan, hidden

    def _file(self) -> str:
        """Return the path of the program.

        :raises ToolFailed: if it is missing or may not be run.
        """
        name = self._template.words[0]
        if os.sep in name and not os.path.isabs(name):
            raise ToolFailed(f"the program {shown(name)} is not an absolute path; give one, or a name that is found by PATH")
        search = self._env.get("PATH") or os.environ.get("PATH") or os.defpath
        absolute = os.pathsep.join(folder for folder in search.split(os.pathsep) if os.path.isabs(folder))
        found = shutil.which(name, path=absolute)
        if found is None:
            there = os.path.isabs(name) and os.path.exists(name)
            why = "is not an executable file; `chmod +x` makes it one" if there else f"is not there (looked for in {shown(absolute)})"
            raise ToolFailed(f"the program {shown(name)} {why}; install it, or remove the connection")
        return found


class _Launched:
    """One launcher and what it runs."""

    def __init__(self, process: Process, status: int, plan: Mapping[str, Any]) -> None:
        self.process, self._status = process, status
        assert process.stdin is not None
        process.stdin.write(json.dumps(plan).encode() + b"\n")

    @classmethod
    async def start(cls, plan: Mapping[str, Any]) -> _Launched:
        status, told = os.pipe()
        os.set_blocking(status, False)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", program_launcher.__file__, str(told)),
                stdin=PIPE, stdout=PIPE, stderr=PIPE, env={}, cwd="/", pass_fds=(told,), start_new_session=True, limit=_STEP,
            )  # fmt: skip
        except BaseException as e:
            os.close(status)
            if isinstance(e, OSError):
                raise ToolFailed(f"no process could be started: {e.strerror or e}; free memory or processes, and try again") from None
            raise
        finally:
            os.close(told)
        return cls(process, status, plan)

    async def run(self) -> tuple[str, bytes, bytes]:
        """Let the program run to its end. Return how it ended, its output and its errors.

        :raises ToolFailed: if it surely did not run.
        """
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if process.returncode is not None or self._status < 0:
                raise ToolFailed("the call waited too long for its leave, and did not run; call again")
            process.stdin.write(b"g")
            output, errors = await asyncio.gather(_head(process.stdout), _tail(process.stderr))
            await process.wait()
            return os.read(self._status, 4096).decode("utf-8", "replace"), output, errors
        finally:
            await self.end()

    async def end(self) -> None:
        """Kill what is left of the group. Safe to call again."""
        status, self._status = self._status, -1
        if status < 0:
            return
        process = self.process
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.returncode is None:  # else the number may be another's by now
                os.killpg(process.pid, signal.SIGKILL)
        assert process.stdin is not None
        process.stdin.close()
        os.close(status)
        transport = process._transport  # type: ignore[attr-defined]  # wait() alone waits for readers that may be gone
        transport.close()
        with contextlib.suppress(Exception):
            await asyncio.shield(process.wait())


def _result(name: str, ended: tuple[str, bytes, bytes], hidden: Sequence[str]) -> dict[str, Any]:
    how, output, errors = ended
    kind, _, detail = how.partition(" ")
    out = redacted(output[:OUTPUT_BYTES].decode("utf-8", "replace"), hidden)
    err = redacted(errors[-OUTPUT_BYTES:].decode("utf-8", "replace"), hidden)
    end = err.strip()[-_SHOWN_ERRORS:]
    if kind == "error":
        raise ToolFailed(f"{name} did not run: {redacted(detail, hidden)}")
    if kind == "exit" and detail == "0":
        cut = {"cut": f"the output has more than {OUTPUT_BYTES} bytes; this is its beginning"} if len(output) > OUTPUT_BYTES else {}
        return {"exit": 0, "stdout": out, **({"stderr": err[-_SHOWN_ERRORS:]} if err else {}), **cut}
    if kind == "exit":
        told = out.strip()[-_SHOWN_ERRORS:]
        said = f": {end}" if end else f", and wrote no errors; its output ends: {told}" if told else ", and wrote nothing"
        raise ToolFailed(f"{name} ended with exit code {detail}{said}{walled(end)}", sure=False, exit=int(detail))
    by = signal.Signals(int(detail)).name if kind == "signal" and detail.isdigit() and int(detail) in _SIGNALS else detail
    raise ProgramStopped(f"{name} was ended by {by or 'something that did not say why'}{': ' + end if end else ''}")


def walled(errors: str) -> str:
    """Return what may lift a refusal of the jail."""
    if "Permission denied" not in errors and "Operation not permitted" not in errors:
        return ""
    return "\nit runs in a jail, which has the folders and the network that its options `folders` and `network` name; see docs/tools.md"


_SIGNALS = frozenset(int(one) for one in signal.Signals)


async def _head(stream: asyncio.StreamReader) -> bytes:
    """Read a stream to its end; return its beginning, and one byte more where there is more."""
    kept = bytearray()
    while piece := await stream.read(_STEP):
        kept += piece[: max(0, OUTPUT_BYTES + 1 - len(kept))]
    return bytes(kept)


async def _tail(stream: asyncio.StreamReader) -> bytes:
    kept = bytearray()
    while piece := await stream.read(_STEP):
        kept += piece
        del kept[:-OUTPUT_BYTES]
    return bytes(kept)


def check_size(words: Sequence[str]) -> None:
    """
    :raises InvalidInput: if the arguments of a call are too many.
    """
    size = sum(len(os.fsencode(word)) + 1 for word in words)
    if size > ARGUMENT_BYTES:
        raise InvalidInput(f"the arguments have {size} bytes; at most {ARGUMENT_BYTES} are allowed")


def text_of(name: str, value: Any) -> str:
    """Return a value as an argument of a program.

    :raises InvalidInput: if no program could be given it.
    """
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"the value of {name} holds half a character (a lone surrogate), which a program cannot be given") from None
    if "\0" in text:
        raise InvalidInput(f"the value of {name} holds a NUL, which would end the argument; leave it out")
    return text


def refuse_shell(words: Sequence[str]) -> None:
    """Refuse a value as the text of a shell: it could say anything."""
    if (shell := os.path.basename(words[0])) in _SHELLS:
        fish, given = shell == "fish", any(map(_PLACEHOLDER.search, words))
        for before, word in itertools.pairwise(words):
            # an option between -c and its text makes a later word the text
            follows = _takes_text(before, fish) and (_PLACEHOLDER.search(word) or (given and word[:1] in ("-", "+")))
            option, holds, _ = word.partition("=")
            within = _TEXT_WITHIN.match(word) or (holds and _takes_text(option, fish))
            if follows or (fish and within and _PLACEHOLDER.search(word)):
                how = 'keep the shell\'s text fixed and give values after it, as "$1"'
                raise InvalidInput(f"the argument {shown(word)} would be run by a shell, whatever its text; {how}")


def _takes_text(option: str, fish: bool) -> bool:
    """Return True if the word after an option is run. That is so after `-c` or `-ec`, and in fish after `-C`, `--command` and
    `--init-command`, which may be shortened.
    """
    if fish and option.startswith("--") and len(option) > 2:
        return any(whole.startswith(option[2:]) for whole in ("command", "init-command"))
    return option[:1] == "-" and option[1:].isalpha() and bool({"c", "C"} & set(option) if fish else "c" in option)


def _kind(classes: Any) -> str:
    kind = classes.get("run", ACTS) if isinstance(classes, Mapping) else classes
    if kind not in _CLASSES or (isinstance(classes, Mapping) and set(classes) - {"run"}):
        allowed = ", ".join(_CLASSES)
        raise InvalidInput(f'the option classes is {shown(classes)}; give {{"run": CLASS}}, where CLASS is one of: {allowed}')
    return str(kind)


def _env(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"the option env is {shown(given)}; give variables with their texts")
    for name, value in given.items():
        if not isinstance(name, str) or not _VARIABLE.match(name) or not isinstance(value, str) or "\0" in value:
            raise InvalidInput(
                f"the variable {shown(name)} of the option env is not valid; a name has letters, digits and _, a value is text"
            )
    return dict(given)


def _folders(given: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders that may be read, and those that may be changed."""
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        allowed = 'a JSON list of absolute paths, with :ro where one may only be read: folders=["/srv/notes:ro"]'
        raise InvalidInput(f"the option folders is {shown(given)}; give {allowed}")
    readable: list[str] = []
    writable: list[str] = []
    for one in given:
        path = one.removesuffix(":ro").removesuffix(":rw")
        if not os.path.isabs(path) or "\0" in path:
            raise InvalidInput(f"the folder {shown(one)} is not valid; give an absolute path, with :ro where it may only be read")
        (readable if one.endswith(":ro") else writable).append(str(Path(path)))
    return tuple(readable), tuple(writable)


def _number(name: str, given: Any, most: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given) or not 0 < given <= most:
        raise InvalidInput(f"the option {name} is {shown(given)}; it has to be a number over 0, at most {most:g}")
    return float(given)
