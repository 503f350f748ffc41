r"""Input of a chat: a keyboard, with history and multi-line input, or a pipe, one line a turn.

In both, a `\` at the end of a line continues in the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from batos.errors import InvalidInput

HISTORY_BYTES = 1024 * 1024  # bytes of history above which the older half is removed
LINE_BYTES = 1024 * 1024  # most bytes of a line of a pipe: no message may be longer
_GOES_ON = "\\"
_CHUNK = 65536

Names = Mapping[str, Sequence[str]]


class Interrupted(Exception):
    """Error: the user pressed Ctrl-C."""


class LineSource(Protocol):
    """Source of lines."""

    async def line(self, prompt: str, *, kept: bool = True) -> str:
        """Return the next line.

        :param kept: True if it goes into the history.
        :raises EOFError: if there are no more.
        :raises Interrupted: if the user pressed Ctrl-C instead.
        """

    def quiet(self) -> contextlib.AbstractContextManager[None]:
        """Hide typed text while the block lasts; it becomes part of the next line."""


class Keyboard:
    """Input from a terminal."""

    def __init__(self, history: Path | None, names: Names, *, input: Input | None = None, output: Output | None = None) -> None:
        """
        :param history: file of the typed lines; None: they are kept for this chat only.
        :param names: words that Tab completes: commands, and their arguments.
        """
        given: dict[str, Any] = {
            "multiline": True,
            "key_bindings": _keys(),
            "interrupt_exception": Interrupted,
            "prompt_continuation": "  ",
            "complete_while_typing": False,
            "reserve_space_for_menu": 4,
            "input": input,
            "output": output,
        }
        self._session: PromptSession[str] = PromptSession(history=_history(history), completer=_Names(names), **given)
        self._aside: PromptSession[str] = PromptSession(history=InMemoryHistory(), **given)

    async def line(self, prompt: str, *, kept: bool = True) -> str:
        return await (self._session if kept else self._aside).prompt_async(prompt, handle_sigint=False)

    async def changed(self, prompt: str, text: str) -> str:
        """Return a text as the user changes it in place; Ctrl-X Ctrl-E opens the editor of the environment.

        :raises EOFError: (or Interrupted) if the user gives it up.
        """
        return await self._aside.prompt_async(prompt, default=text, handle_sigint=False, enable_open_in_editor=True)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        try:
            descriptor = sys.stdin.fileno()
            before = termios.tcgetattr(descriptor)
        except (OSError, ValueError, termios.error):  # not a terminal, as in a test
            yield
            return
        # In line mode the system would swallow a Ctrl-D between two prompts. Ctrl-C stays a signal.
        silent = [*before]
        silent[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
        try:
            yield
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Pipe:
    """A file or another program."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._come = bytearray()
        self._ended = False
        self._reading: asyncio.Future[bytes] | None = None

    async def line(self, prompt: str, *, kept: bool = True) -> str:
        """Return the next line of the pipe: see `LineSource.line`.

        :raises InvalidInput: if a line is too long, or not UTF-8.
        """
        parts = [await self._next()]
        while parts[-1].endswith(_GOES_ON):
            parts[-1] = parts[-1].removesuffix(_GOES_ON)
            try:
                parts.append(await self._next())
            except EOFError:
                break
        return "\n".join(parts)

    def quiet(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def _next(self) -> str:
        while b"\n" not in self._come and not self._ended:
            if len(self._come) > LINE_BYTES:
                self._ended = True  # the rest of the input begins in the middle of a line
                self._come.clear()
                raise InvalidInput(f"a line of standard input has more than {LINE_BYTES} bytes; the chat ends here")
            if chunk := await self._chunk():
                self._come += chunk
            else:
                self._ended = True
        if not self._come:
            raise EOFError
        line, _, rest = self._come.partition(b"\n")
        self._come = bytearray(rest)
        try:
            return line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as e:
            raise InvalidInput(f"a line of standard input is not UTF-8 (byte {e.start}); it is passed over") from None

    async def _chunk(self) -> bytes:
        """Return the next bytes; none at the end. A thread waits for them that the end of the process need not wait for."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_future()
            threading.Thread(target=_read, args=(self._descriptor, self._reading), name="standard input", daemon=True).start()
        chunk = await asyncio.shield(self._reading)  # a Ctrl-C meanwhile loses no input
        self._reading = None
        return chunk


def _read(descriptor: int, into: asyncio.Future[bytes]) -> None:
    try:
        chunk = os.read(descriptor, _CHUNK)
    except OSError:  # standard input is closed
        chunk = b""
    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
        into.get_loop().call_soon_threadsafe(into.set_result, chunk)


def _keys() -> KeyBindings:
    """Return the key bindings. Enter sends, except after `\\`. Alt-Enter, which is Escape and Enter, starts a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith(_GOES_ON) and not buffer.document.current_line_after_cursor:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


class _Names(Completer):
    """Completes a command, and the word after it."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        command, space, word = document.text_before_cursor.partition(" ")
        begun, known = (word, self._names.get(command, ())) if space else (command, tuple(self._names))
        if document.text_before_cursor.startswith("/"):
            yield from (Completion(name, -len(begun)) for name in known if name.startswith(begun))


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        if path.stat().st_size > HISTORY_BYTES:
            _shorten(path)
    except OSError:
        return InMemoryHistory()
    return _Lasting(str(path))


class _Lasting(FileHistory):
    """History in a file. If it can no longer be written, as on a full disk, the chat goes on."""

    def load_history_strings(self) -> Iterable[str]:
        return _unless_unreadable(super().load_history_strings)

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


def _unless_unreadable(load: Callable[[], Iterable[str]]) -> Iterable[str]:
    try:
        return load()
    except OSError:
        return ()


def _shorten(path: Path) -> None:
    """Leave the newer half of a history, from the beginning of an entry on."""
    kept = path.read_bytes()[-HISTORY_BYTES // 2 :]
    kept = kept[max(0, kept.find(b"\n# ")) :]
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(kept)
    fresh.replace(path)
