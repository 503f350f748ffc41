"""Method, Intent, Primitive."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from batos.objects import Intent, Method, Primitive


@Primitive.register("test._double")
def _double(receiver: int) -> int:
    return 2 * receiver


def test_a_primitive_runs_registered_host_code_only() -> None:
    assert Primitive.of(_double)(21) == 42
    for name in ("os.system", "builtins.eval", "batos.objects.UvmObject"):
        with pytest.raises(LookupError, match="no host code is registered"):
            Primitive(name)("x")
    with pytest.raises(LookupError):
        Primitive.of(len)


def test_a_primitive_is_written_under_its_stable_name() -> None:
    assert Primitive.of(_double).text == "test._double"
    with pytest.raises(ValueError, match="has this name already"):
        Primitive.register("test._double")(lambda receiver: receiver)
    for name in ("double", "Test.double", "a.b.c", "test.", ""):
        with pytest.raises(ValueError, match="two parts"):
            Primitive.register(name)


def test_what_an_earlier_version_called_a_primitive_is_read_under_its_stable_name() -> None:
    old = pickle.dumps(Primitive("x.y"), 3).replace(b"\x03\x00\x00\x00x.y", b"\x16\x00\x00\x00batos.mind.states.idle")
    assert pickle.loads(old) == Primitive("batos.mind.states.idle") == Primitive("psm.idle")
    assert pickle.dumps(pickle.loads(old), 3) == pickle.dumps(Primitive("psm.idle"), 3)


@pytest.mark.parametrize("kind", [Intent, Primitive])
def test_they_are_values(kind: type[Any]) -> None:
    value = kind("a.b")
    assert value == kind("a.b")
    assert hash(value) == hash(kind("a.b"))
    assert value != kind("other")
    assert Intent("a.b") != Primitive("a.b")
    assert pickle.loads(pickle.dumps(value, 3)) == value
    assert copy.deepcopy(value) == copy.copy(value) == value
    with pytest.raises(AttributeError, match="is a value"):
        value.text = "changed"
    assert value.text == "a.b"


@pytest.mark.parametrize("text", ["", "  \n", None, 5, b"x"])
def test_blank_texts_are_refused(text: Any) -> None:
    with pytest.raises(TypeError, match="not blank"):
        Intent(text)


def test_a_method_knows_its_versions_and_whether_it_was_tampered_with() -> None:
    first = Method("greet", "async def greet(self): return 1", parameters=("self",), contract={"writes": (), "reads": ("name",)})
    second = Method("greet", "async def greet(self): return 2", previous=first)
    assert [m.version for m in second.versions()] == [2, 1]
    assert second.versions() == [second, first]
    assert first.contract == (("reads", ("name",)), ("writes", ()))
    assert first.digest != second.digest
    assert second.intact()
    second.source += " "
    assert not second.intact()
    assert repr(first) == "<Method new>"
