"""Verdict of an audit: findings, an effect contract, and whether the source may be installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from batos.errors import CovenantViolationError, MethodRefused

COVENANT_RULES = ("covenant", "covenant-order")
Severity = Literal["error", "warning"]


class Contract(TypedDict):
    """Effects of a method on the image, by name; each tuple is sorted. Stored with the Method."""

    reads: tuple[str, ...]
    """Slots of self that the method reads."""
    writes: tuple[str, ...]
    """Slots of self that the method writes, also through aliases and containers."""
    sends: tuple[str, ...]
    """Selectors that the method sends, to self and to others."""
    reaches: tuple[str, ...]
    """Tools that the method may call, each with its class: `CONNECTION.TOOL=CLASS`; without one where it is not known."""
    needs_grant: tuple[str, ...]
    """Messages in the text, by name, that change more than their receiver. The method's user has to grant each of them."""
    imports: tuple[str, ...]
    """Modules that the method imports."""
    raises: tuple[str, ...]
    """Exceptions that the method raises by name."""


EMPTY_CONTRACT: Contract = {"reads": (), "writes": (), "sends": (), "reaches": (), "needs_grant": (), "imports": (), "raises": ()}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the guardian found. Only errors refuse a source; warnings go along."""

    rule: str
    severity: Severity
    line: int
    """Line of the finding, counted from 1. 0 if the finding has no line."""
    column: int
    """Column of the finding, counted from 1, in bytes of UTF-8 as Python's parser counts them."""
    reason: str
    """Faults of the source, each with its place."""
    hint: str
    """An instruction for a model or a person: the text to write instead."""

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason} [{self.rule}]. {self.hint}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of `PersistenceGuardian.audit`: all findings at once. It never raises by itself; `check` does."""

    selector: str
    source: str
    policy: str
    findings: tuple[Finding, ...] = ()
    contract: Contract = field(default_factory=lambda: EMPTY_CONTRACT.copy())

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that refuse the source."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def accepted(self) -> bool:
        """Return True if the source may be installed, as far as an audit without a run can tell."""
        return not self.errors

    def check(self) -> Verdict:
        """Return the verdict itself, if the source is accepted.

        :raises CovenantViolationError: if the Persistence Covenant is (also) broken.
        :raises MethodRefused: if anything else is wrong.
        """
        errors = self.errors
        if not errors:
            return self
        broken = any(finding.rule in COVENANT_RULES for finding in errors)
        kind = CovenantViolationError if broken else MethodRefused
        reasons = [str(finding) for finding in errors]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        message = f"the guardian refuses {self.selector!r}: {reasons[0]}{more}"
        raise kind(message, selector=self.selector, source=self.source, reasons=reasons, cause="guardian")

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "accepted": self.accepted,
            "selector": self.selector,
            "policy": self.policy,
            "findings": [finding.to_wire() for finding in self.findings],
            "contract": {name: list(names) for name, names in self.contract.items()},  # type: ignore[call-overload]
        }
