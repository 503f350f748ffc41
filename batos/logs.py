"""Structured logs: one event a line, with the mission's id where there is one; to standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO, cast


def _without_rich() -> None:
    """Keep rich, and what it imports, out of the daemon's memory (10 MB): it runs for months and draws nothing.

    structlog imports rich to draw tracebacks, httpx imports it for a command line of its own. Both do without. Code that imports rich
    itself gets it.
    """
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: the import system says that there is no such module
    if "structlog" not in sys.modules and "rich" not in sys.modules:
        sys.modules["rich"] = None  # type: ignore[assignment]
        try:
            import structlog  # noqa: F401
        finally:
            del sys.modules["rich"]


_without_rich()

import structlog  # noqa: E402

from batos.errors import BatosError  # noqa: E402


class _Tolerant:
    """A stream on which a line that cannot be written is lost. Else a full disk or a closed pipe behind standard error would fail a mission
    that was accepted and durable, for want of a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):  # ValueError: the stream is closed
            return 0

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def _untold(record: logging.LogRecord) -> bool:
    """Return True if a line of ZODB's log reports something new: damage is reported by the code that meets it, without a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], BatosError))


def _in_our_words(record: logging.LogRecord) -> bool:
    """Return True if a line of ZODB's log stays as it is; the line about an ignored index, as after a kill, is rewritten."""
    begin, image = "Ignoring index for ", record.getMessage()
    if not image.startswith(begin):
        return True
    why = "the index beside it did not fit, as after a kill; it is a cache: the image was read through instead"
    structlog.get_logger("batos.image").info("index_renewed", image=image.removeprefix(begin), why=why)
    return False


class _Passed(logging.Handler):
    """The libraries' own warnings (ZODB, asyncio) in the same place and of the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        say = structlog.get_logger("batos").error if record.levelno >= logging.ERROR else structlog.get_logger("batos").warning
        say(record.getMessage(), logger=record.name, **({"exc_info": record.exc_info} if record.exc_info else {}))


_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # priorities of sd-daemon(3)
_least = logging.INFO  # lowest severity that is written


def set_level(level: str) -> None:
    """Write lines of that level and more severe ones from now on, also of existing loggers."""
    global _least
    _least = getattr(logging, level.upper())


def _severe(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if getattr(logging, method.upper(), logging.ERROR) < _least:  # structlog's `exception` counts as an error
        raise structlog.DropEvent
    return event


class _Levelled(structlog.make_filtering_bound_logger(logging.DEBUG)):  # type: ignore[misc]
    """Passes all on, since the level may change (`_severe`); but a line for each mission, where it is not wanted, ends here already."""

    def info(self, event: str, *args: Any, **more: Any) -> Any:
        return super().info(event, *args, **more) if _least <= logging.INFO else None


def _prioritised(logger: Any, method: str, line: Any) -> str:
    """Return the line as the journal takes it: one line, with its priority before it."""
    return f"<{_PRIORITIES.get(method, 3)}>{line}"


def configure(level: str, style: str, *, journal: bool = False) -> None:
    """Set up logging for the process.

    :param level: least severe level that is written; `set_level` changes it.
    :param style: `console`, `json`, `journal` (JSON with the priority before it), or `auto`: console on a terminal, `journal` where the
        journal reads it, JSON lines elsewhere.
    :param journal: whether standard error is the journal.
    """
    set_level(level)
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if console else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[
            _severe,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
            *([_prioritised] if style == "journal" or (style == "auto" and journal) else []),
        ],
        wrapper_class=_Levelled,
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _Tolerant(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.getLogger("ZODB.Connection").addFilter(_untold)
    logging.getLogger("ZODB.FileStorage").addFilter(_in_our_words)
    # Write the warnings of libraries (ZODB, asyncio) to the same place.
    logging.basicConfig(level=logging.WARNING, handlers=[_Passed()])
