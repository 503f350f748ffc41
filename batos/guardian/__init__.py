"""The Persistence Guardian: audits generated source. Source text in, verdict out; no I/O, and nothing is run.

    verdict = PersistenceGuardian().audit(source, "remember")
    verdict.accepted, verdict.findings, verdict.contract
    verdict.check()    # raises CovenantViolationError or MethodRefused

`repair(source, selector)` mends what can be mended without a model. The rules, each with examples: docs/guardian.md.
"""

from batos.errors import CovenantViolationError, MethodRefused
from batos.guardian.guardian import PersistenceGuardian
from batos.guardian.policy import DEFAULT, POLICIES, STRICT, Policy
from batos.guardian.policy import policy_named as policy_named
from batos.guardian.repair import Repaired, repair, selector_of
from batos.guardian.subject import A_SELECTOR, is_selector
from batos.guardian.verdict import Contract, Finding, Verdict

__all__ = [
    "A_SELECTOR",
    "DEFAULT",
    "POLICIES",
    "STRICT",
    "Contract",
    "CovenantViolationError",
    "Finding",
    "MethodRefused",
    "PersistenceGuardian",
    "Policy",
    "Repaired",
    "Verdict",
    "is_selector",
    "policy_named",
    "repair",
    "selector_of",
]
