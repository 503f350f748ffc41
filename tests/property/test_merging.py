"""A codex that changes and an image that lives: what the image did itself is never undone, and the rest follows the codex."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batos.mind.incarnation import DELETED, digest, merge
from batos.objects import Intent, Method

NAMES = st.sampled_from(["core_mission", "pillars", "sage_facet_", "koan_protocol_"])
VALUES = st.one_of(
    st.sampled_from(["one", "two"]), st.sampled_from([("one",), ("one", "two")]), st.sampled_from([Intent("one"), Intent("two")])
)
LEARNED = st.one_of(VALUES, st.builds(lambda: Method("koan_protocol_", "def koan_protocol_(self): return 1")), st.just(7))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("codex"), st.dictionaries(NAMES, VALUES)),
        st.tuples(st.just("set"), st.tuples(NAMES, LEARNED)),
        st.tuples(st.just("delete"), NAMES),
    ),
    max_size=12,
)


def incarnate(said: dict[str, str], image: dict[str, Any], codex: dict[str, Any]) -> dict[str, str]:
    """As the Incarnation Protocol does it; what was kept."""
    merged = merge(said, image, codex)
    image.update(merged.store)
    for name in merged.remove:
        del image[name]
    said.clear()
    said.update(merged.said)
    return merged.kept


def follow(said: dict[str, str], image: dict[str, Any], codex: dict[str, Any]) -> None:
    """Incarnate, and look at what became of each slot."""
    was_said, before = dict(said), dict(image)
    kept = incarnate(said, image, codex)
    assert image.pop("name") == before.pop("name") == "ROBIN", "a slot that no codex ever spoke of"
    for name in {*codex, *before, *image}:
        as_agreed = (name in before) == (name in was_said) and (name not in before or digest(before[name]) == was_said[name])
        if as_agreed:
            assert image.get(name) == codex.get(name), "what the image did not touch follows the codex"
            assert name not in kept
        else:
            assert image.get(name) is before.get(name), "what the image did itself stays"
            assert (name in kept) == (
                name in {**codex, **was_said} and (name in image or name in codex) and image.get(name) != codex.get(name)
            )
        assert (kept.get(name) == DELETED) == (name not in image and name in codex)
    image["name"] = "ROBIN"
    once = dict(image), dict(said)
    assert incarnate(said, image, codex) == kept
    assert (image, said) == once, "a second time changes nothing"


@given(st.dictionaries(NAMES, VALUES), STEPS)
def test_what_the_image_did_stays_and_the_rest_follows_the_codex(codex: dict[str, Any], steps: list[tuple[str, Any]]) -> None:
    said: dict[str, str] = {}
    image: dict[str, Any] = {"name": "ROBIN"}
    follow(said, image, codex)
    learned: dict[str, Any] = {}  # what no codex can ever say
    for kind, what in steps:
        if kind == "codex":
            follow(said, image, what)
            assert {name: image[name] for name in learned} == learned
            continue
        name = what[0] if kind == "set" else what
        learned.pop(name, None)
        if kind == "delete":
            image.pop(name, None)
            continue
        image[name] = what[1]
        if digest(what[1]) is None:
            learned[name] = what[1]


@given(st.dictionaries(NAMES, VALUES, min_size=1), st.lists(st.dictionaries(NAMES, VALUES), max_size=5), st.data())
def test_a_slot_deleted_on_purpose_stays_deleted_while_the_codex_speaks_of_it(
    codex: dict[str, Any], later: list[dict[str, Any]], data: st.DataObject
) -> None:
    said: dict[str, str] = {}
    image: dict[str, Any] = {}
    incarnate(said, image, codex)
    name = data.draw(st.sampled_from(sorted(codex)))
    del image[name]
    for new in later:
        kept = incarnate(said, image, {**new, name: new.get(name, codex[name])})
        assert name not in image
        assert kept[name] == DELETED


@given(st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=6))
def test_an_image_that_does_nothing_itself_is_what_the_codex_says(codices: list[dict[str, Any]]) -> None:
    said: dict[str, str] = {}
    image: dict[str, Any] = {}
    for codex in codices:
        assert incarnate(said, image, codex) == {}
        assert image == codex
        assert said == {name: digest(value) for name, value in codex.items()}


@given(VALUES, VALUES)
def test_a_digest_tells_values_apart_also_by_their_kind(one: Any, other: Any) -> None:
    assert (digest(one) == digest(other)) == (one == other and type(one) is type(other))
