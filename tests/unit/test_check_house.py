"""tools/check_house.py: each rule of the house fails when it is broken, on a small made-up tree; and the house keeps them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
KEPT = {
    "batos/__init__.py": "",
    "batos/ink.py": '"""Ink."""\n\n\nclass Ink:\n    """A colour."""\n\n    def dry(self) -> None:\n        """Let it dry."""\n',
    "batos/pen.py": '"""Pens."""\n\nfrom batos.ink import Ink\n\n\nclass Pen:\n    ink: Ink\n',
    "tests/unit/test_ink.py": "from tests.support import paper\nfrom tests.support.paper import test_of_each_kind\n",
    "tests/support/paper.py": "def test_of_each_kind():\n    pass\n",
    "bench/pens.py": "",
}
LATE = "def late():\n    from batos.pen import Pen\n"
TYPED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import batos.pen\n"


def tool() -> ModuleType:
    """Return tools/check_house.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("check_house", ROOT / "tools" / "check_house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


house = tool()


def breaches(root: Path, changes: dict[str, str]) -> list[str]:
    """Return the breaches in a tree of KEPT with `changes`."""
    for path, text in {**KEPT, **changes}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    return list(house.breaches(house.read(root)))


def test_a_tree_that_keeps_the_rules_has_no_breach(tmp_path: Path) -> None:
    assert breaches(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("path", "text", "breach"),
    [
        ("batos/ink.py", "from batos import pen\n", "import cycle of batos.ink, batos.pen"),
        ("batos/ink.py", "from .pen import Pen\n", "import cycle of batos.ink, batos.pen"),
        ("batos/ink.py", LATE, "import cycle of batos.ink, batos.pen"),
        ("batos/ink.py", TYPED, "import cycle of batos.ink, batos.pen"),
        ("batos/long.py", "\n" * 701, "batos/long.py: 701 lines"),
        ("batos/quill.py", "class Pen:\n    pass\n", "batos/pen.py:6: class Pen is also in batos/quill.py:1"),
        ("batos/quill.py", '"""What writes."""\n', "batos/quill.py:1: docstring begins with What"),
        ("batos/quill.py", 'class Quill:\n    """Who writes."""\n', "docstring begins with Who"),
        ("batos/quill.py", 'def wet():\n    """Whether it is wet."""\n', "docstring begins with Whether"),
        ("batos/quill.py", 'async def wet():\n    """\n    How wet it is.\n    """\n', "docstring begins with How"),
        ("batos/quill.py", 'def held():\n    """Where\'s the hand?"""\n', "docstring begins with Where"),
        ("batos/quill.py", 'wet = True\n"""Whether it is wet."""\n', "batos/quill.py:2: docstring begins with Whether"),
        ("batos/quill.py", 'class Quill:\n    ink: int = 0\n    """How much ink."""\n', "docstring begins with How"),
        ("tests/unit/test_pen.py", "import tests.unit.test_ink\n", "tests/unit/test_pen.py:1: imports tests.unit.test_ink"),
        ("tests/unit/test_pen.py", "from tests.unit.test_ink import dried\n", "imports tests.unit.test_ink.dried"),
        ("tests/unit/test_pen.py", "from tests.unit import helpers\n", "imports tests.unit.helpers"),
        ("tests/crash/test_pen.py", "def test():\n    from tests.crash import test_ink\n", "test_pen.py:2: imports tests.crash.test_ink"),
        ("tests/support/paper.py", "from tests.e2e.test_ink import dried\n", "tests/support/paper.py:1: imports"),
        ("batos/quill.py", "def f():  # noqa: PLR0913\n    pass\n", "batos/quill.py:1: an exception to PLR0913 needs its reason"),
        ("batos/quill.py", "x = 1  # noqa: E501, PLR0913  a reason\n" * 11, "11 exceptions to PLR0913; at most 10"),
    ],
)
def test_each_rule_fails_when_it_is_broken(tmp_path: Path, path: str, text: str, breach: str) -> None:
    found = breaches(tmp_path, {path: text})
    assert len(found) == 1
    assert breach in found[0]


def test_too_many_modules(tmp_path: Path) -> None:
    many = {f"batos/m{n}.py": "" for n in range(house.MOST_MODULES + 1 - 3)}
    assert breaches(tmp_path, many) == [f"batos: {house.MOST_MODULES + 1} modules; at most {house.MOST_MODULES}"]


@pytest.mark.parametrize("use", ["ink._dry()", "from batos.ink import _dry", 'patch("batos.ink._dry")'])
def test_too_many_uses_of_what_is_private(tmp_path: Path, use: str) -> None:
    allowed = "self._dry()\nsuper()._dry()\nink._slots\nink._p_changed\npatch('bench._dry')\n"
    path, most = "tests/unit/test_pen.py", house.MOST_PRIVATE
    assert breaches(tmp_path, {path: allowed + f"{use}\n" * most}) == []
    *found, said = breaches(tmp_path, {path: allowed + f"{use}\n" * (most + 1)})
    assert said.startswith(f"tests: {most + 1} uses of private names; at most {most}")
    assert found[0] == f"{path}:6: uses _dry, which is private"


def test_ten_exceptions_with_their_reasons_are_allowed(tmp_path: Path) -> None:
    assert breaches(tmp_path, {"batos/quill.py": "x = 1  # noqa: PLR0913  a command's options\n" * 10}) == []


def test_ruff_refuses_a_ninth_parameter() -> None:
    def refused(parameters: int) -> bool:
        source = f"def f({', '.join(f'a{n}: int' for n in range(parameters))}) -> None: ...\n"
        words = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", "batos/quill.py", "-"]
        return "PLR0913" in subprocess.run(words, cwd=ROOT, input=source, capture_output=True, text=True).stdout

    assert not refused(8)
    assert refused(9)


def test_the_house_keeps_its_rules() -> None:
    assert house.breaches(house.read(ROOT)) == []
