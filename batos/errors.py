"""Every error of BAT OS, and the code by which the wire and the command line name it.

    BatosError                     base of all errors; with the code `internal`, an unforeseen error: look into the daemon's log
    ├── InvalidInput               the caller's request or input is invalid; nothing was changed
    │   ├── ConfigError            a setting, a flag or a settings file is invalid
    │   ├── InvalidRequest         a request does not fit its schema
    │   │   ├── MalformedMessage   a message is not valid JSON or UTF-8, is nested too deep, or has duplicate keys
    │   │   ├── MessageTooLarge    a message has more bytes or frames than the limits allow
    │   │   ├── UnknownOp          the daemon does not have this `op`
    │   │   └── UnknownField       the operation does not have this field
    │   ├── UnknownPersona         no persona has this name
    │   ├── UnknownMission         no mission has this id
    │   ├── MissionFolded          an old mission was reduced to one line, which does not hold what the request needs
    │   ├── UnknownTarget          no object has this path or oid
    │   ├── UnknownPicture         no image of this digest was uploaded, or the daemon has removed it
    │   ├── UnknownSource          the memory holds nothing from this source
    │   ├── UnknownChange          the autotelic loop has made no change of this number, or the daemon has removed its record
    │   ├── UnknownComparison      the image has no comparison of this id, or its record was removed
    │   ├── UnknownSession         there is no such session of stepping: it was closed, left, or the daemon was started again
    │   ├── StepConflict           the image was changed meanwhile where a session changed it, too; see `conflicts`
    │   ├── UndoConflict           later work depends on the mission to undo; see `conflicts` and `missions`
    │   ├── HistoryGone            the image does not hold this moment or revision, or holds it no longer
    │   ├── Unreadable             a file cannot be read into the memory: not text, damaged, encrypted or too large
    │   ├── MissionIdTaken         the id belongs to a mission with another brief, message or lesson
    │   ├── ExpertRefused          an expert cannot be built, or cannot speak as requested
    │   ├── ModelfileError         a Modelfile has a syntax error
    │   ├── UnknownTool            no connection or tool has this name
    │   ├── GrantRefused           no grant lets this mission use the tool so; nothing was sent
    │   ├── ToolsTied              nothing may be done outside here: in a rehearsal, a trial, a replay, a copy of an image
    │   └── EgressRefused          a request may not leave this machine; nothing was sent
    ├── Busy                       the queue is full; nothing was accepted
    ├── MissionFailed              a mission ended FAILED (client side: `result` raises this error)
    │   ├── MissionCancelled       the client cancelled the mission, or the shutdown of a queue did
    │   ├── DeadlineExceeded       the mission's deadline passed
    │   ├── AttemptsExhausted      the mission used all its attempts, restarts included
    │   ├── Conflicted             the mission's commit met more conflicts than the limit allows
    │   ├── BudgetSpent            the mission asked for more inferences or nested cycles than the limits allow
    │   ├── ModelNeeded            the mission needs abilities that no available model has; see `needs`, `model`, `bytes`, `command`
    │   ├── GrantNeeded            a generated method would change more than its receiver, and its user has not granted that; see `grant`
    │   ├── QualityRefused         no answer of the model was good enough
    │   └── ModelBlind             the mission has images, and its model cannot see them; see `models` and `persona`
    ├── MethodRefused              a generated method failed its audit or trial; see `cause`, and the failure ledger for its source
    │   └── CovenantViolationError  a way out of the method leaves writes without `self._p_changed = True` after them
    ├── MethodError                a generated method is at fault, or its arguments are
    │   ├── MethodUnsupported      the method's source uses something that the sandbox cannot run; see line, column and hint
    │   ├── MethodFailed           the method raised an exception; see `type` and `trace`
    │   └── SandboxLimit           the method exceeded a limit; see `limit`
    ├── SandboxFailed              the sandbox is at fault: no worker was available, or a worker died
    ├── InferenceFailed            Ollama or a model is at fault; see `cause`
    │   └── ProvisioningFailed     a model could not be found, pulled or created
    ├── ToolFailed                 a tool refused or failed
    ├── EgressFailed               a request got no whole answer; `sent` says whether its server may have acted on it
    ├── EmbedderFailed             an embedder in the daemon's process is missing or failed; the message gives the remedy
    ├── OllamaUnavailable          no Ollama answers, and none could be started
    ├── LedElsewhere               only the kernel that leads can do this, and that is another one; see `kernel`, `endpoint`
    ├── ImageError                 the image cannot be opened or used
    │   ├── ImageLocked            another process uses the image
    │   ├── ImageAway              the server that keeps the image does not answer now; the daemon waits for it
    │   ├── KernelRefused          kernels that serve the image have another version, codex or profile than this one
    │   ├── ImageTooNew            a newer version has written the image
    │   └── ImageDamaged           the image is damaged and was refused; the message gives the remedy
    ├── EndpointError              an address cannot be bound, or is not allowed
    ├── DaemonUnavailable          (client) no daemon answers at the endpoint
    ├── OutputFailed               (command line) standard output cannot be written: the disk is full, or the stream is closed
    ├── KeyRefused                 (client) the daemon does not admit this client's key, or presents another key than the client expects
    ├── RoleRefused                the client's role does not allow the operation
    ├── HookRefused                a request to a hook has no valid signature or token, or there is no such hook
    ├── PathRefused                this client may not name this file or folder
    ├── MissionPending             (client) a mission has no result yet
    └── MessageNotUnderstood       no slot answers the selector; also an AttributeError

Signals derive from BaseException, so that neither library code nor a broad `except Exception` in a primitive
swallows them (as trio's Cancelled):

    BatosSignal
    ├── ImageFailed                the storage failed after its point of no return, or cannot write any more: exit, and let recovery decide
    └── LeadLost                   another kernel leads by now: the work that one kernel alone does ends, and commits nothing more
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

EXIT_IMAGE_FAILED = 70
"""The exit code of a daemon whose storage failed: EX_SOFTWARE of sysexits.h."""

EXIT_STALLED = 62
"""The exit code of a daemon whose loop stalled. It is also the number of the signal that then ends the daemon (`batos.supervision`). It is
one of the real-time signals, 34 to 64, that nothing else uses."""


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


class UnknownComparison(InvalidInput):
    code = "unknown_comparison"


class UnknownSession(InvalidInput):
    code = "unknown_session"


class StepConflict(InvalidInput):
    """The image was changed meanwhile in places that a session of stepping changed, too. Nothing was changed.

    `conflicts` names object, slot, both values, and the mission that wrote the image's.
    """

    code = "step_conflict"


class UndoConflict(InvalidInput):
    """Later work depends on the mission to undo. Nothing was changed.

    `conflicts` names object, part, reason and the mission that wrote it. `missions` lists the missions that an undo would include.
    """

    code = "undo_conflict"


class HistoryGone(InvalidInput):
    code = "history_gone"


class Unreadable(InvalidInput):
    code = "unreadable"


class UnreadableNow(Unreadable):
    """A file cannot be read because of its rights (then `shut` is set) or its disk. The daemon tries again."""

    shut = False


class MissionIdTaken(InvalidInput):
    code = "id_taken"


class ExpertRefused(InvalidInput):
    code = "expert_refused"


class ModelfileError(InvalidInput):
    """A Modelfile has a syntax error; `line` counts from 1."""

    code = "modelfile"

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}", line=line)
        self.line = line


class UnknownTool(InvalidInput):
    code = "unknown_tool"


class GrantRefused(InvalidInput):
    code = "grant_refused"


class ToolsTied(InvalidInput):
    code = "tools_tied"


class EgressRefused(InvalidInput):
    code = "egress_refused"


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
    """A mission asked for more inferences or nested cycles than its limits allow."""

    code = "budget_spent"


class GrantNeeded(MissionFailed):
    """A generated method would send a message that changes more than its receiver, without a grant. Methods cannot catch this error.

    `primitive` names the Primitive that would have answered, `target` and `selector` the message. `grant` has the commands that grant
    it, one for each method on the way of the message. `grant` is empty if no method may send it.
    """

    code = "grant_needed"

    def __init__(self, message: str, *, primitive: str, target: str, selector: str, grant: Iterable[str]) -> None:
        super().__init__(message, primitive=primitive, target=target, selector=selector, grant=list(grant))


class ModelNeeded(MissionFailed):
    """A mission needs capabilities that no available model has, and no other model was provided.

    `needs` lists the capabilities in words. If a model is known to have them, `model` names it, `bytes` is the size of its download,
    and `command` fetches it.
    """

    code = "model_needed"


class ModelBlind(MissionFailed):
    """A mission has images, and its model cannot see them.

    `persona` would have thought, with `model`. `models` lists the models of all Ollamas that are known to see.
    """

    code = "model_blind"

    def __init__(self, message: str, *, persona: str = "", model: str = "", models: Iterable[str] = ()) -> None:
        super().__init__(message, persona=persona, model=model, models=list(models))


class QualityRefused(MissionFailed):
    code = "quality_refused"


class MethodRefused(BatosError):
    """A generated method was refused, by an audit or at its trial.

    The failure ledger keeps `selector`, `source` and `reasons` for the next draft of a method for the selector. `cause` names the
    refusing check in one word; failures are found by it. The source does not go over the wire with the error.
    """

    code = "method_refused"
    exit_code = 1

    def __init__(self, message: str, *, selector: str, source: str, reasons: Iterable[str] = (), cause: str, **context: Any) -> None:
        super().__init__(message, cause=cause, selector=selector, reasons=list(reasons), **context)
        self.selector, self.source, self.cause = selector, source, cause
        self.reasons: tuple[str, ...] = tuple(self.context["reasons"])


class CovenantViolationError(MethodRefused):
    """A way out of a method leaves writes without `self._p_changed = True` after them."""

    code = "covenant_violation"


class MethodError(BatosError):
    """A generated method failed. Nothing that it wrote is kept."""

    code = "method"
    exit_code = 1


class MethodUnsupported(MethodError):
    """The source uses something that the sandbox cannot run. Lines count from 1, columns from 0."""

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
    """The method exceeded a limit: time, memory, recursion, depth, sends, host_calls or result. Methods cannot catch this error."""

    code = "sandbox_limit"

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message, limit=limit)
        self.limit = limit


class SandboxFailed(BatosError):
    """No worker was available, or the worker died: the method is not at fault. Nothing that the method wrote is kept."""

    code = "sandbox_failed"
    exit_code = 1
    retryable = True


class InferenceFailed(BatosError):
    """One inference failed.

    `cause` is one of: unreachable, breaker, timeout, truncated, server_error, model_changed, model_missing, malformed, refused,
    disk_full, too_long, not_in_journal. The first six may pass, so the attempt is repeated.
    """

    code = "inference_failed"
    exit_code = 1

    def __init__(self, message: str, *, cause: str, retryable: bool | None = None, **context: Any) -> None:
        super().__init__(message, cause=cause, **context)
        self.cause = cause
        if retryable is None:
            retryable = cause in ("unreachable", "breaker", "timeout", "truncated", "server_error", "model_changed")
        self.may_retry = retryable


class ToolFailed(BatosError):
    """A tool refused or failed.

    :ivar sure: True if what it was asked surely did not happen; False if the tool answered with an error and may have acted.
    """

    code = "tool_failed"

    def __init__(self, message: str, *, sure: bool = True, **context: Any) -> None:
        super().__init__(message, **context)
        self.sure = sure


class EgressFailed(BatosError):
    """A request that was allowed and got no whole answer."""

    code = "egress_failed"

    def __init__(self, message: str, *, sent: bool) -> None:
        """
        :param sent: False only where surely nothing reached the server.
        """
        super().__init__(message, sent=sent)
        self.sent = sent


class EmbedderFailed(BatosError):
    """An embedder of this process is missing, or its output is not a valid vector."""

    code = "embedder_failed"
    exit_code = 1


class ProvisioningFailed(InferenceFailed):
    """The model of an inference cannot be provided. Provisioning retries every `ProvisionLimits.retry_s`; the attempt is not repeated.

    `cause` is one of:

    * disk_full;
    * registry (it cannot be reached, or does not give the model);
    * model_missing (no registry has it);
    * recipe (a Modelfile or a file that it names);
    * truncated, server_error, refused, malformed (what Ollama did instead);
    * stopping;
    * internal.
    """

    code = "provisioning_failed"

    def __init__(self, message: str, *, cause: str, **context: Any) -> None:
        super().__init__(message, cause=cause, retryable=False, **context)


class OllamaUnavailable(BatosError):
    code = "ollama_unavailable"


class LedElsewhere(BatosError):
    code = "led_elsewhere"


class ImageError(BatosError):
    code = "image"


class ImageLocked(ImageError):
    code = "image_locked"


class ImageAway(ImageError):
    """The server that keeps the image cannot be reached now. The daemon waits for it; nothing is lost."""

    code = "image_away"
    retryable = True


class KernelRefused(ImageError):
    code = "kernel_refused"


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


class HookRefused(BatosError):
    code = "hook_refused"


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
    """Control flow that only the kernel may catch."""


class LeadLost(BatosSignal):
    pass


class ImageFailed(BatosSignal):
    """The storage failed after its point of no return, or cannot write although space is left. Only recovery knows what is on disk."""


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
    if isinstance(error, ToolFailed):
        error.sure = True
    if isinstance(error, EgressFailed):
        error.sent = bool(error.context.get("sent", True))
    if isinstance(error, MethodRefused):
        error.cause, error.selector = (str(error.context.get(name, "")) for name in ("cause", "selector"))
        error.source, error.reasons = "", tuple(map(str, error.context.get("reasons") or ()))
    return error
