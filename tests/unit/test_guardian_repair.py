"""Repairs that need no model: each one alone, all together, and none where none is due."""

from __future__ import annotations

import pytest

from batos.guardian import PersistenceGuardian, repair
from batos.guardian.repair import selector_of
from tests.support.guardian_cases import blocks, corpus, name_of

GUARDIAN = PersistenceGuardian()
GOOD = "def add(self, x):\n    self.items.append(x)\n    self._p_changed = True\n    return x\n"
COVENANT = "added the covenant"

CASES = [
    ("took the code out of its fence", f"Sure!\n```python\n{GOOD}```\nIt appends.\n", GOOD),
    ("took the code out of its fence", f"```\n{GOOD}", GOOD),
    ("took the code out of its fence", f"```\nprint('x')\n```\nthen\n~~~py\n{GOOD}~~~\n", GOOD),
    ("made typographic characters plain", "def add(self):\n    return “yes” + ‘no’\n", "def add(self):\n    return \"yes\" + 'no'\n"),
    (
        "made tabs spaces",
        "def add(self, x):\n    if x:\n\treturn 1\n    return 2\n",
        "def add(self, x):\n    if x:\n        return 1\n    return 2\n",
    ),
    ("removed the text around the definition", f"Here is the method:\n\n{GOOD}\nI hope that it's what you want.\n", GOOD),
    ("removed the indentation", "    def add(self):\n        return 1\n", "def add(self):\n    return 1\n"),
    ("took the method out of its class", "class Basket:\n    def add(self):\n        return 1\n", "def add(self):\n    return 1\n"),
    (
        "moved imports into the body",
        "import json\n\ndef add(self, x):\n    return json.dumps(x)\n",
        "def add(self, x):\n    import json\n    return json.dumps(x)\n",
    ),
    (
        "moved imports into the body",
        "from __future__ import annotations\ndef add(self):\n    return 1\n\nprint(add(None))\n",
        "def add(self):\n    return 1\n",
    ),
    ("gave it the selector's name", "def add_item(self):\n    return 1\n", "def add(self):\n    return 1\n"),
    ("added self", "def add(x):\n    return x\n", "def add(self, x):\n    return x\n"),
    ("added self", "def add():\n    return 1\n", "def add(self):\n    return 1\n"),
    (
        "added missing imports",
        'def add(self):\n    """Doc."""\n    return math.pi\n',
        'def add(self):\n    """Doc."""\n    import math\n    return math.pi\n',
    ),
    (COVENANT, "def add(self, x):\n    self.x = x\n", "def add(self, x):\n    self.x = x\n    self._p_changed = True\n"),
    (
        COVENANT,
        "def add(self, x):\n    self.x = x\n    return x\n",
        "def add(self, x):\n    self.x = x\n    self._p_changed = True\n    return x\n",
    ),
    (COVENANT, "def add(self, x): self.x = x", "def add(self, x):\n    self.x = x\n    self._p_changed = True"),
    (
        COVENANT,
        "def add(self, x):\n    for y in x:\n        self.items.append(y)\n        if y > 3:\n"
        "            return False  # enough\n    return True\n",
        "def add(self, x):\n    for y in x:\n        self.items.append(y)\n        if y > 3:\n            self._p_changed = True\n"
        "            return False  # enough\n    self._p_changed = True\n    return True\n",
    ),
    (
        COVENANT,
        "def add(self, x):\n    self.x = x\n    self._p_changed = True\n    self.tell(x)\n",
        "def add(self, x):\n    self.x = x\n    self._p_changed = True\n    self.tell(x)\n    self._p_changed = True\n",
    ),
]


@pytest.mark.parametrize(("name", "source", "wanted"), CASES)
def test_each_repair(name: str, source: str, wanted: str) -> None:
    mended = repair(source, "add")
    assert name in mended.repairs
    assert mended.source == wanted
    assert GUARDIAN.audit(mended.source, "add").accepted, mended.source
    assert repair(mended.source, "add") == (mended.source, ())


def test_a_method_that_calls_itself_keeps_its_name() -> None:
    """Renamed, it was accepted, and sent to a message that nobody understands."""
    source = "def factorial(self, n):\n    return 1 if n < 2 else n * self.factorial(n - 1)\n"
    assert repair(source, "product_") == (source, ())
    assert "shape" in {finding.rule for finding in GUARDIAN.audit(source, "product_").findings}
    reads = "def total(self):\n    return self.total + 1\n"
    assert repair(reads, "product_").source == reads.replace("def total", "def product_"), "a slot is no call of itself"


def test_everything_at_once() -> None:
    source = (
        "Of course! Here you go:\n\n```python\nimport json\n\ndef store(key, value):\n"
        "    self.table[key] = json.dumps(value)\n    return re.sub('a', ‘b’, key)\n```\n"
    )
    mended = repair(source, "remember")
    assert mended.source == (
        "def remember(self, key, value):\n    import re\n    import json\n    self.table[key] = json.dumps(value)\n"
        "    self._p_changed = True\n    return re.sub('a', 'b', key)\n"
    )
    assert mended.repairs == (
        "took the code out of its fence",
        "made typographic characters plain",
        "moved imports into the body",
        "gave it the selector's name",
        "added self",
        "added missing imports",
        COVENANT,
    )
    assert GUARDIAN.audit(mended.source, "remember").accepted


@pytest.mark.parametrize("source", [source for _, source in blocks("guardian_accepted.txt")])
def test_a_good_method_is_left_alone(source: str) -> None:
    assert repair(source, name_of(source)) == (source, ())


@pytest.mark.parametrize("case", corpus(), ids=lambda case: case["id"])
def test_repairs_are_made_once_and_make_no_attack_acceptable(case: dict[str, str]) -> None:
    mended = repair(case["source"], case["selector"])
    assert repair(mended.source, case["selector"]) == (mended.source, ())
    if case["expect"] == "reject" and case["group"] not in ("covenant", "covenant_order", "wrong_shape", "unusual_stores"):
        harmless = case["id"] == "def-07"  # the code around the definition is dropped
        assert harmless or not GUARDIAN.audit(mended.source, case["selector"]).accepted
    if case["expect"] == "accept":
        assert mended.repairs == ()


@pytest.mark.parametrize(
    "source",
    [
        "def add(self, x):\n    return self.items.append(x)\n",  # the write is in the return itself
        "def add(self, x):\n    try:\n        return int(x)\n    finally:\n        self.count += 1\n",  # written after the return began
        "def add(self, x):\n    if x: self.x = x; return 1\n    return 2\n",
        "def one(self):\n    return 1\ndef two(self):\n    return 2\n",
        "class A:\n    def one(self):\n        return 1\n    def two(self):\n        return 2\n",
        "nothing here",
        "",
    ],
)
def test_what_is_not_safe_is_left_to_the_model(source: str) -> None:
    assert repair(source, "add").repairs == ()


def test_the_selector_of_a_text() -> None:
    assert selector_of("Here:\n```\nasync def  ask(self):\n") == "ask"
    assert selector_of(b"\xff") == ""
