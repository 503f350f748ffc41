"""Every error of BAT OS, and the code by which the wire and the command line name it.

    BatosError                     base of all, and what nobody foresaw: look into the daemon's log
    ├── InvalidInput               the caller is at fault; nothing was changed
    │   ├── ConfigError            a setting, a flag or a settings file
    │   ├── InvalidRequest         a request that is not of its schema
    │   │   ├── MalformedMessage   no JSON, not UTF-8, too deep, duplicate keys ...
    │   │   ├── MessageTooLarge    more bytes or frames than the limits allow
    │   │   ├── UnknownOp          an `op` that this daemon does not have
    │   │   └── UnknownField       a field that the op does not have
    │   ├── UnknownPersona         no such persona
    │   ├── UnknownMission         no mission of that id
    │   ├── MissionFolded          a mission so old that one line of it is kept, and more would be needed
    │   ├── UnknownTarget          no object under that path or oid
    │   ├── UnknownPicture         no image of that digest was uploaded, or it is not kept any more
    │   ├── UnknownSource          nothing in the memory is from there
    │   ├── UnknownChange          the loop has made no change of that number, or it is not kept any more
    │   ├── UndoConflict           later work depends on the mission that was to be undone; see `conflicts` and `missions`
    │   ├── HistoryGone            a moment or revision that is not kept any more, or never was
    │   ├── Unreadable             a file that cannot be read into the memory: no text, broken, encrypted, too large
    │   ├── MissionIdTaken         the id names a mission with another brief, message or lesson
    │   ├── ExpertRefused          an expert that cannot be built or cannot speak as it was asked to
    │   └── ModelfileError         a Modelfile is not of the syntax
    ├── Busy                       the queue is full; nothing was accepted
    ├── MissionFailed              a mission ended FAILED (client side: what `result` raises)
    │   ├── MissionCancelled       its client, or the shutdown of a queue, took it back
    │   ├── DeadlineExceeded       its time was up
    │   ├── AttemptsExhausted      too many attempts, restarts counted
    │   ├── Conflicted             its commit met more conflicts than the limit allows
    │   ├── BudgetSpent            more inferences, or cycles inside cycles, than the limits allow
    │   ├── ModelNeeded            it needs what no model here can do, and none may be had; see `needs`, `model`, `bytes`, `command`
    │   ├── GrantNeeded            a generated method would change more than a receiver, and its user has not let it; see `grant`
    │   ├── QualityRefused         nothing fit to be an answer came out
    │   └── ModelBlind             it has images, and the model that would think about them does not see; see `models` and `persona`
    ├── MethodRefused              a generated method did not pass; see `cause`, and the failure ledger for its source
    │   └── CovenantViolationError  a way out of it leaves writes without `self._p_changed = True` after them
    ├── MethodError                a generated method is at fault, or what it was told to do
    │   ├── MethodUnsupported      its source holds what the sandbox cannot run; line, column and a hint
    │   ├── MethodFailed           it raised an exception; see `type` and `trace`
    │   └── SandboxLimit           it met a limit; see `limit`
    ├── SandboxFailed              the sandbox is at fault: no worker, or a worker died
    ├── InferenceFailed            Ollama or a model is at fault; see `cause`
    │   └── ProvisioningFailed     a model could be neither found, pulled nor created
    ├── EmbedderFailed             an embedder of this process cannot be had or failed; the message says what to do
    ├── OllamaUnavailable          no Ollama answers and none could be started
    ├── ImageError                 the image cannot be opened or used
    │   ├── ImageLocked            another process has it
    │   ├── ImageTooNew            written by a newer version
    │   └── ImageDamaged           refused, with the remedy in the message
    ├── EndpointError              an address cannot be bound, or may not be
    ├── DaemonUnavailable          (client) nobody answers at the endpoint
    ├── OutputFailed               (command line) standard output takes nothing: a full disk, or it is closed
    ├── KeyRefused                 (client) the daemon lets in only those with other keys, or has another key itself
    ├── RoleRefused                the client's role is too little for the operation
    ├── PathRefused                a file or folder that this client may not name
    ├── MissionPending             (client) a mission has no result yet
    └── MessageNotUnderstood       no slot for a selector; also an AttributeError

Signals derive from BaseException, so that neither library code nor a broad `except Exception` in a primitive
swallows them (as trio's Cancelled):

    BatosSignal
    └── ImageFailed                the storage failed after its point of no return, or writes no more: exit, let recovery decide
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

EXIT_IMAGE_FAILED = 70
"""The exit code of a daemon whose storage failed: EX_SOFTWARE of sysexits.h."""

EXIT_STALLED = 62
"""The exit code of a daemon whose loop stalled. It is also the number of the signal that then ends the daemon (`batos.supervision`): one of
the real-time signals, 34 to 64, that nothing else uses."""


class BatosError(Exception):
    """Base of all errors. `message` says what was wrong, where, and what to do about it."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 4
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context

    def to_wire(self) -> dict[str, Any]:
        """Return the error as the wire shows it: `{"code", "message"}`, with context where there is one."""
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.context:
            wire["context"] = self.context
        return wire


class InvalidInput(BatosError):
    code = "invalid"


class ConfigError(InvalidInput):
    code = "config"
    exit_code = 2


class InvalidRequest(InvalidInput):
    code = "invalid_request"


class MalformedMessage(InvalidRequest):
    code = "malformed"


class MessageTooLarge(InvalidRequest):
    code = "too_large"


class UnknownOp(InvalidRequest):
    code = "unknown_op"


class UnknownField(InvalidRequest):
    code = "unknown_field"


class UnknownPersona(InvalidInput):
    code = "unknown_persona"


class UnknownMission(InvalidInput):
    code = "unknown_mission"


class MissionFolded(InvalidInput):
    code = "mission_folded"


class UnknownTarget(InvalidInput):
    code = "unknown_target"


class UnknownPicture(InvalidInput):
    code = "unknown_image"


class UnknownSource(InvalidInput):
    code = "unknown_source"


class UnknownChange(InvalidInput):
    code = "unknown_change"


class UndoConflict(InvalidInput):
    """Later work depends on a mission that was to be undone. Nothing was changed.

    `conflicts` names object, part, why, and whose work it is; `missions` are those that would have to be undone with it.
    """

    code = "undo_conflict"


class HistoryGone(InvalidInput):
    code = "history_gone"


class Unreadable(InvalidInput):
    code = "unreadable"


class UnreadableNow(Unreadable):
    """Cannot be read for a reason that is not in the file: its rights (then `shut`), or its disk. It is tried again by itself."""

    shut = False


class MissionIdTaken(InvalidInput):
    code = "id_taken"


class ExpertRefused(InvalidInput):
    code = "expert_refused"


class ModelfileError(InvalidInput):
    """A Modelfile is not of the syntax; `line` counts from 1."""

    code = "modelfile"

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}", line=line)
        self.line = line


class Busy(BatosError):
    code = "busy"
    retryable = True


class MissionFailed(BatosError):
    code = "failed"
    exit_code = 1


class MissionCancelled(MissionFailed):
    code = "cancelled"


class DeadlineExceeded(MissionFailed):
    code = "deadline"


class AttemptsExhausted(MissionFailed):
    code = "attempts_exhausted"


class Conflicted(MissionFailed):
    """A cycle's commit met more conflicts than the limit `AttemptLimits.conflict_retries` allows."""

    code = "conflict"
    retryable = True


class BudgetSpent(MissionFailed):
    """A mission asked for more inferences, or went deeper into cycles of cycles, than its limit allows."""

    code = "budget_spent"


class GrantNeeded(MissionFailed):
    """A generated method would send a message that changes more than its receiver, and its user has not let it. Methods cannot catch it.

    `primitive` names what would have answered, `target` and `selector` the message. `grant` has the commands that would let it be sent, one
    for each method that sent or had it sent; none where no method may send it.
    """

    code = "grant_needed"

    def __init__(self, message: str, *, primitive: str, target: str, selector: str, grant: Iterable[str]) -> None:
        super().__init__(message, primitive=primitive, target=target, selector=selector, grant=list(grant))


class ModelNeeded(MissionFailed):
    """A mission needs what no model here can do, and none was provided.

    `needs` are its needs in words. Where a model is known that meets them, `model` names it, `bytes` is the size of its download, and
    `command` gets it.
    """

    code = "model_needed"


class ModelBlind(MissionFailed):
    """A mission has images, and the model that would think about them does not see.

    `persona` would have thought, with `model`; `models` lists those of the Ollamas here that see, as far as is known.
    """

    code = "model_blind"

    def __init__(self, message: str, *, persona: str = "", model: str = "", models: Iterable[str] = ()) -> None:
        super().__init__(message, persona=persona, model=model, models=list(models))


class QualityRefused(MissionFailed):
    code = "quality_refused"


class MethodRefused(BatosError):
    """A generated method was refused, by an audit or at its trial.

    The failure ledger keeps `selector`, `source` and `reasons`: whoever writes the next method for the selector reads them.
    `cause` names what refused it, in one word; failures are found by it. The source does not go over the wire with the error.
    """

    code = "method_refused"
    exit_code = 1

    def __init__(self, message: str, *, selector: str, source: str, reasons: Iterable[str] = (), cause: str, **context: Any) -> None:
        super().__init__(message, cause=cause, selector=selector, reasons=list(reasons), **context)
        self.selector, self.source, self.cause = selector, source, cause
        self.reasons: tuple[str, ...] = tuple(self.context["reasons"])


class CovenantViolationError(MethodRefused):
    """A method that writes can be left without `self._p_changed = True` as the last thing it did."""

    code = "covenant_violation"


class MethodError(BatosError):
    """A generated method could not do its work. Nothing that it wrote is kept."""

    code = "method"
    exit_code = 1


class MethodUnsupported(MethodError):
    """The source holds what the sandbox cannot run. Lines count from 1, columns from 0."""

    code = "method_unsupported"

    def __init__(self, hint: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}: {hint}", line=line, column=column)
        self.hint, self.line, self.column = hint, line, column


class MethodFailed(MethodError):
    """The method raised an exception that it did not handle.

    `type` names a builtin exception, `text` is its message, `trace` says where: `selector`, line of its source, innermost last.
    """

    code = "method_failed"

    def __init__(self, selector: str, type: str, text: str, trace: Sequence[tuple[str, int]] = ()) -> None:
        where = f", line {trace[-1][1]}" if trace else ""
        super().__init__(f"{selector}{where}: {type}: {text}", type=type, trace=[f"{name}:{line}" for name, line in trace])
        self.type, self.text, self.trace = type, text, tuple(trace)


class SandboxLimit(MethodError):
    """The method met a limit: time, memory, recursion, depth, sends, host_calls or result. It cannot be caught by methods."""

    code = "sandbox_limit"

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message, limit=limit)
        self.limit = limit


class SandboxFailed(BatosError):
    """No fault of the method's: no worker could be had, or it died. Nothing that the method wrote is kept."""

    code = "sandbox_failed"
    exit_code = 1
    retryable = True


class InferenceFailed(BatosError):
    """One inference did not come to a good end.

    `cause` is one of: unreachable, breaker, timeout, truncated, server_error, model_changed, model_missing, malformed, refused,
    disk_full, too_long, not_in_journal. The first six may pass: the attempt is made again.
    """

    code = "inference_failed"
    exit_code = 1

    def __init__(self, message: str, *, cause: str, retryable: bool | None = None, **context: Any) -> None:
        super().__init__(message, cause=cause, **context)
        self.cause = cause
        if retryable is None:
            retryable = cause in ("unreachable", "breaker", "timeout", "truncated", "server_error", "model_changed")
        self.may_retry = retryable


class EmbedderFailed(BatosError):
    """An embedder that works in this process cannot be had, or what it made is no vector."""

    code = "embedder_failed"
    exit_code = 1


class ProvisioningFailed(InferenceFailed):
    """The model that an inference needs cannot be had. It is tried again every `ProvisionLimits.retry_s`, so the attempt is not.

    `cause` is one of: disk_full, registry (it cannot be reached, or will not give the model), model_missing (no registry has it),
    recipe (a Modelfile or a file that it names), truncated, server_error, refused, malformed (what Ollama did instead), stopping, internal.
    """

    code = "provisioning_failed"

    def __init__(self, message: str, *, cause: str, **context: Any) -> None:
        super().__init__(message, cause=cause, retryable=False, **context)


class OllamaUnavailable(BatosError):
    code = "ollama_unavailable"


class ImageError(BatosError):
    code = "image"


class ImageLocked(ImageError):
    code = "image_locked"


class ImageTooNew(ImageError):
    code = "image_too_new"


class ImageDamaged(ImageError):
    code = "image_damaged"


class EndpointError(BatosError):
    code = "endpoint"


class DaemonUnavailable(BatosError):
    code = "no_daemon"
    exit_code = 3


class OutputFailed(BatosError):
    code = "output"


class KeyRefused(BatosError):
    code = "key_refused"


class RoleRefused(BatosError):
    code = "role_refused"


class PathRefused(BatosError):
    code = "path_refused"


class MissionPending(BatosError):
    code = "pending"
    retryable = True


class MessageNotUnderstood(BatosError, AttributeError):
    """No slot answers a selector, neither in the object nor in its parents.

    An AttributeError, so that `hasattr`, `getattr` with a default, `copy` and `pickle` keep their meaning.
    """

    code = "not_understood"

    def __init__(self, target: object, selector: str) -> None:
        BatosError.__init__(self, f"{target!r} does not understand {selector!r}: no slot of that name in it or its parents")
        self.target = target
        self.selector = selector
        self.name = selector


class BatosSignal(BaseException):
    """Control flow that nothing but the kernel may catch."""


class ImageFailed(BatosSignal):
    """The storage failed after its point of no return: only recovery knows what is on disk; or it does not write, with room left."""


def by_code() -> dict[str, type[BatosError]]:
    """Return every class of the tree under its code."""
    found: dict[str, type[BatosError]] = {}
    classes: list[type[BatosError]] = [BatosError]
    for cls in classes:
        found.setdefault(cls.code, cls)
        classes += cls.__subclasses__()
    return found


def from_wire(wire: Mapping[str, Any]) -> BatosError:
    """Return the error that `to_wire` described; an unknown code, of a newer daemon, becomes a plain BatosError."""
    cls = by_code().get(str(wire.get("code")), BatosError)
    error = cls.__new__(cls)  # the constructors of some classes take other arguments than the wire shows
    BatosError.__init__(error, str(wire.get("message", "")))
    error.context = dict(wire.get("context") or {})
    if isinstance(error, InferenceFailed):
        error.cause = str(error.context.get("cause", ""))
        error.may_retry = cls.retryable
    if isinstance(error, MethodRefused):
        error.cause, error.selector = (str(error.context.get(name, "")) for name in ("cause", "selector"))
        error.source, error.reasons = "", tuple(map(str, error.context.get("reasons") or ()))
    return error
