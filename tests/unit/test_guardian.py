"""The Persistence Guardian: what it accepts, what it refuses, and what it says."""

from __future__ import annotations

import json

import pytest

from batos import errors
from batos.config import Settings
from batos.guardian import DEFAULT, STRICT, CovenantViolationError, MethodRefused, PersistenceGuardian, Verdict
from batos.guardian.allowlist import MODULES, SUPPLIED
from batos.guardian.policy import ToolTable, policy_named
from batos.guardian.rules import CHECKS, RULES
from batos.guardian.rules.base import Rule
from batos.guardian.rules.syntax import CHILDREN
from tests.support.guardian_cases import blocks, corpus, name_of

GUARDIAN = PersistenceGuardian()
CORPUS = corpus()


def audit(source: str, selector: str = "m", policy: str = "default", tools: ToolTable | None = None) -> Verdict:
    return GUARDIAN.audit(source, selector, policy, tools=tools)


# --- the corpus, and cases of our own


@pytest.mark.parametrize("case", [case for case in CORPUS if case["expect"] == "reject"], ids=lambda case: case["id"])
def test_every_attack_of_the_corpus_that_can_be_seen_is_refused(case: dict[str, str]) -> None:
    assert not audit(case["source"], case["selector"]).accepted


@pytest.mark.parametrize("case", [case for case in CORPUS if case["expect"] == "accept"], ids=lambda case: case["id"])
def test_every_benign_method_of_the_corpus_is_accepted(case: dict[str, str]) -> None:
    assert audit(case["source"], case["selector"]).findings == ()


@pytest.mark.parametrize(("head", "source"), blocks("guardian_refused.txt"), ids=lambda text: text if "\n" not in text else "")
def test_refused(head: str, source: str) -> None:
    assert head.split()[0] in {finding.rule for finding in audit(source).errors}


@pytest.mark.parametrize(("head", "source"), blocks("guardian_accepted.txt"), ids=lambda text: text if "\n" not in text else "")
def test_accepted(head: str, source: str) -> None:
    assert audit(source, name_of(source)).errors == ()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_examples_of_a_rule_are_true(rule: Rule) -> None:
    assert audit(rule.accepted, name_of(rule.accepted), rule.policy, rule.tools).findings == ()
    assert {finding.rule for finding in audit(rule.refused, name_of(rule.refused), rule.policy, rule.tools).findings} == {rule.id}


def test_rule_ids_are_unique_and_every_check_is_for_a_node_of_the_list() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert set(rule.nodes) <= set(CHILDREN), rule.id
    assert set(CHECKS) == set(CHILDREN)


# --- findings


def test_a_finding_says_where_what_and_what_to_do() -> None:
    verdict = audit("def m(self):\n    x = 1\n    return eval('x')\n")
    (finding,) = verdict.findings
    assert (finding.rule, finding.severity, finding.line, finding.column) == ("builtin", "error", 3, 12)
    assert "eval" in finding.reason
    assert finding.hint
    assert str(finding).startswith("line 3: eval ")


def test_all_findings_come_at_once_in_the_order_of_the_text() -> None:
    verdict = audit("def n(self):\n    import os\n    self.x = eval('1')\n    return self.__class__\n")
    assert [(finding.line, finding.rule) for finding in verdict.findings] == [
        (1, "shape"),
        (2, "import"),
        (3, "builtin"),
        (4, "covenant"),
        (4, "attribute"),
    ]


def test_a_covenant_finding_names_the_way_out_and_the_write() -> None:
    source = "def m(self, x):\n    self.a = x\n    if x:\n        return 1\n    self._p_changed = True\n"
    (finding,) = audit(source).findings
    assert finding.line == 4
    assert "line 2" in finding.reason
    assert finding.hint == "Insert `self._p_changed = True` directly before this return."


def test_warnings_do_not_refuse() -> None:
    verdict = audit("def m(self):\n    try:\n        return self.x()\n    except Exception:\n        pass\n    return None\n")
    assert [finding.severity for finding in verdict.findings] == ["warning"]
    assert verdict.accepted
    assert verdict.check() is verdict


def test_check_raises_for_the_covenant_and_for_the_rest() -> None:
    with pytest.raises(CovenantViolationError, match="not followed by") as broken:
        audit("def m(self):\n    self.x = 1\n").check()
    assert broken.value.code == "covenant_violation"
    with pytest.raises(MethodRefused) as refused:
        audit("def m(self):\n    return eval('1')\n    import os\n").check()
    assert type(refused.value) is MethodRefused
    assert refused.value.code == "method_refused"
    assert refused.value.selector == "m"
    assert len(refused.value.reasons) == 2
    assert refused.value.source.startswith("def m")
    assert refused.value.cause == "guardian"


def test_the_errors_survive_the_wire() -> None:
    with pytest.raises(CovenantViolationError) as broken:
        audit("def m(self):\n    self.x = 1\n").check()
    again = errors.from_wire(json.loads(json.dumps(broken.value.to_wire())))
    assert isinstance(again, CovenantViolationError)
    assert (again.selector, again.reasons, again.cause) == (broken.value.selector, broken.value.reasons, "guardian")


# --- the contract


def test_the_contract_names_effects() -> None:
    source = (
        "def m(self, peer, k):\n    import json\n    from math import pi\n    row = self.rows[k]\n    row['n'] = self.size(pi)\n"
        "    self.last = peer.tell(json.dumps(k))\n    if not k:\n        raise KeyError(k)\n"
        "    self._p_changed = True\n    return self.name.upper()\n"
    )
    verdict = audit(source)
    assert verdict.accepted
    assert verdict.contract == {
        "reads": ("name", "rows"),
        "writes": ("last", "rows"),
        "sends": ("size", "tell"),
        "reaches": (),
        "needs_grant": (),
        "imports": ("json", "math"),
        "raises": ("KeyError",),
    }
    assert json.loads(json.dumps(verdict.to_wire()))["contract"]["writes"] == ["last", "rows"]


@pytest.mark.parametrize(
    "text",
    [
        "self.memory.forget_(x)", "forget = self.memory.forget_\n    forget(x)", "getattr(self.memory, 'forget_')(x)", "x.forget_()",
        "list(map(self.memory.forget_, [x]))", "super().forget_(x)", "def inner():\n        x.forget_()\n    inner()",
    ],
)  # fmt: skip
def test_the_contract_names_what_needs_a_grant_wherever_it_stands(text: str) -> None:
    guardian = PersistenceGuardian(reaching=("forget_", "revert_"))
    assert guardian.audit(f"def m(self, x):\n    {text}\n", "m").contract["needs_grant"] == ("forget_",)
    assert guardian.audit("def m(self, x):\n    self.recall_(x)\n", "m").contract["needs_grant"] == ()


def test_a_pure_method_has_an_empty_contract() -> None:
    assert set(audit("def m(self, x):\n    return x + 1\n").contract.values()) == {()}


# --- policies


def test_strict_allows_neither_imports_nor_async() -> None:
    with_import = "def m(self):\n    import json\n    return json.dumps(1)\n"
    awaiting = "async def m(self):\n    return await self.think()\n"
    for source in (with_import, awaiting):
        assert GUARDIAN.audit(source, "m", DEFAULT).accepted
        assert not GUARDIAN.audit(source, "m", STRICT).accepted


@pytest.mark.parametrize(
    ("capability", "source"),
    [
        ("files", "def m(self):\n    return open('x').read()\n"),
        ("files", "def m(self):\n    from pathlib import Path\n    return Path('x').read_text()\n"),
        ("network", "def m(self, url):\n    import urllib.request\n    return urllib.request.urlopen(url).read()\n"),
    ],
)
def test_a_capability_covers_what_is_refused_without_it(capability: str, source: str) -> None:
    (finding,) = GUARDIAN.audit(source, "m").findings
    assert finding.rule == capability
    other = {"files": "network", "network": "files"}[capability]
    assert not GUARDIAN.audit(source, "m", DEFAULT.granting(other)).accepted
    assert GUARDIAN.audit(source, "m", DEFAULT.granting(capability)).accepted
    assert GUARDIAN.audit(source, "m", f"default+{capability}").accepted


def test_no_capability_covers_the_process() -> None:
    assert not audit("def m(self):\n    import os\n    return os.fork()\n", policy="default+files+network").accepted


def test_policies_by_name() -> None:
    assert policy_named("default") is DEFAULT
    assert policy_named("default+network+files").name == "default+files+network"
    for name in ("lenient", "default+root"):
        with pytest.raises(ValueError, match="there are"):
            policy_named(name)


# --- limits, each at its bound and one past it


def limited(**values: int) -> PersistenceGuardian:
    return PersistenceGuardian(Settings.model_validate(values))


def test_bytes() -> None:
    source = "def m(self):\n    return 'ä'\n"
    padded = source + "#" * (300 - len(source.encode()))
    assert limited(method_bytes=300).audit(padded, "m").accepted
    assert [finding.rule for finding in limited(method_bytes=300).audit(padded + "#", "m").findings] == ["size"]


def test_nodes_depth_and_names() -> None:
    many = "def m(self):\n    return [" + "0, " * 60 + "]\n"
    assert limited(method_nodes=70).audit(many, "m").accepted
    assert not limited(method_nodes=60).audit(many, "m").accepted
    deep = "def m(self, x):\n    return x" + "[0]" * 10 + "\n"
    assert limited(method_depth=13).audit(deep, "m").accepted
    assert not limited(method_depth=12).audit(deep, "m").accepted
    named_ = "def m(self, {0}):\n    return {0}\n"
    assert limited(method_name_chars=8).audit(named_.format("a" * 8), "m").accepted
    assert not limited(method_name_chars=8).audit(named_.format("a" * 9), "m").accepted


def test_values_and_steps() -> None:
    assert limited(method_value=1000).audit("def m(self):\n    return 'x' * 1000\n", "m").accepted
    assert not limited(method_value=1000).audit("def m(self):\n    return 'x' * 1001\n", "m").accepted
    inner = "".join(f"    def f{i}():\n        f{i - 1}()\n        f{i - 1}()\n" for i in range(1, 14))
    bomb = f"def m(self):\n    def f0():\n        self.x()\n{inner}    f13()\n    f13()\n    return 1\n"
    assert [finding.rule for finding in limited(audit_steps=1000).audit(bomb, "m").findings] == ["size"]


@pytest.mark.parametrize(
    "source",
    [
        "",
        " ",
        "\n",
        "\0",
        "def",
        "def m(self):",
        "\ud800",
        "def m(self):\n    return '\ud800'",
        "\ufeffdef m(self): return 1",
        "(" * 5000,
        "x" * 16000,
        "def m(self):\n return " + "-" * 15000 + "1",
        "def m(self):\n return " + "[" * 150 + "]" * 150,
        "def m(self):\n return " + "not " * 3000 + "x",
        "def m(self):\n    x = " + "1" * 5000,
        "def m(self):\r    return 1",
        "# -*- coding: utf-7 -*-\ndef m(self): return 1",
        "def m(self):\x0c return 1",
        "lambda: " * 1500 + "0",
        "def m(self):\n return f'" + "{x!r}" * 3000 + "'",
    ],
    ids=range(20),
)
def test_what_is_no_method_is_refused_and_never_raises(source: str) -> None:
    verdict = audit(source)
    assert not verdict.accepted
    with pytest.raises(MethodRefused):
        verdict.check()


def test_bytes_that_are_not_utf8_are_refused() -> None:
    assert GUARDIAN.audit(b"def m(self):\n    return 1\n", "m").accepted
    verdict = GUARDIAN.audit(b"def m(self):\n    return '\xff'\n", "m")
    assert "text" in {finding.rule for finding in verdict.findings}


@pytest.mark.parametrize("selector", ["", "__init__", "_p_changed", "class", "a b", "ä", "1a", "f()"])
def test_selectors_that_are_none(selector: str) -> None:
    assert not audit("def m(self):\n    return 1\n", selector).accepted


def test_a_source_that_warns_python_raises_nothing() -> None:
    assert audit("def m(self, x):\n    return '\\d' if x is 1 else 2\n").accepted


# --- the vocabulary


def test_the_sandbox_has_what_methods_may_import() -> None:
    """The list is Monty's: a member that it lacks would be accepted here and fail there."""
    monty = pytest.importorskip("pydantic_monty")
    missing = []
    with monty.Monty(max_processes=1) as pool, pool.checkout() as session:
        for module in sorted(MODULES):
            native = MODULES[module] - SUPPLIED.get(module, frozenset())
            if native:
                session.feed_run(f"import {module}")
            for member in sorted(native):
                try:
                    session.feed_run(f"{module}.{member}")
                except monty.MontyError:
                    missing.append(f"{module}.{member}")
    assert missing == []


def test_the_sandbox_supplies_the_rest() -> None:
    from batos.sandbox import stdlib

    named = [stdlib.member(module, member) for module, members in SUPPLIED.items() for member in members]
    assert [name for name in named if name not in stdlib.FUNCTIONS] == []
