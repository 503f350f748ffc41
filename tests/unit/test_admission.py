"""What is refused of a message before it becomes a mission: names that are slips, arguments that do not fit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.errors import InvalidInput, UnknownTarget
from batos.image import taught_examples
from batos.mind import messages
from batos.mind.messages import similar_selectors
from batos.objects import Intent, Method, find
from tests.support.methods import give
from tests.support.missions import FakeInference, mind

COUNT = "def count_words_(self, text, least=1):\n    return len(text.split())\n"


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with mind(tmp_path, FakeInference()) as kernel:
        await give(kernel, count_words_=Method("count_words_", COUNT), celsius_=Intent("Fahrenheit to Celsius"), size=3)
        yield kernel


def checked(kernel: Kernel, selector: str, *args: Any, target: str = "thing", write: bool = False, **kwargs: Any) -> None:
    kernel.image.read(messages.check_message, target, selector, args, kwargs, write)


@pytest.mark.parametrize(
    ("word", "names", "meant"),
    [
        ("count_word_", ("count_words_",), True),
        ("count_words", ("count_words_",), True),
        ("Count_Words_", ("count_words_",), True),
        ("countwords_", ("count_words_",), True),
        ("words_count_", ("count_words_",), True),
        ("word_count_", ("count_words_",), True),
        ("cuont_wrods_", ("count_words_",), True),
        ("celcius_", ("celsius_",), True),
        ("clesius_", ("celsius_",), True),
        ("count_letters_", ("count_words_",), False),
        ("fahrenheit_", ("celsius_",), False),
        ("sub_", ("sum_",), True),
        ("max_", ("min_",), False),
        ("at_", ("as_", "a_"), False),
        ("encode_", ("decode_",), False),
        ("count_words_", ("count_words_",), False),
    ],
)
def test_what_is_a_slip(word: str, names: tuple[str, ...], meant: bool) -> None:
    assert bool(similar_selectors(word, names)) is meant


def test_the_nearest_come_first() -> None:
    assert similar_selectors("count_wordz_", ("count_wordsy_", "count_words_", "delete_")) == ["count_words_", "count_wordsy_"]


async def test_a_selector_near_a_known_one_is_refused_with_the_nearest_names(kernel: Kernel) -> None:
    with pytest.raises(InvalidInput, match=r"^thing has no slot 'count_word_', but 'count_words_'.*--write"):
        checked(kernel, "count_word_", "a b")
    checked(kernel, "count_word_", "a b", write=True)
    checked(kernel, "frobnicate_", 1)
    with pytest.raises(InvalidInput, match="'celsius_'"):
        checked(kernel, "celcius_", 1)
    with pytest.raises(InvalidInput, match="'think_'"):  # inherited, and a primitive
        checked(kernel, "thnik_", "a", "b", target="robin")


async def test_what_was_taught_is_no_slip(kernel: Kernel) -> None:
    def teach(root: Any) -> None:
        taught_examples.teach(root, root["lobby"].thing._p_oid, "count_word_", [{"args": ["a"], "result": 1}], "", 8)

    await kernel.image.system(teach)
    checked(kernel, "count_word_", "a")


@pytest.mark.parametrize(
    ("target", "selector", "args", "kwargs", "said"),
    [
        ("thing", "count_words_", (), {}, "takes (text, [least]); given: none; missing a required argument: 'text'"),
        ("thing", "count_words_", ("a", 1, 2), {}, 'given: "a", 1, 2; too many positional arguments'),
        ("thing", "count_words_", ("a",), {"most": 3}, 'given: "a", most=; got an unexpected keyword argument'),
        ("robin", "think_", ("only one",), {}, "(guidance, question); given: \"only one\"; missing a required argument: 'question'"),
        ("thing", "size", (1,), {}, "holds data and takes no arguments"),
    ],
)
async def test_arguments_that_do_not_fit(kernel: Kernel, target: str, selector: str, args: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked(kernel, selector, *args, target=target, **kwargs)
    assert said in caught.value.message
    assert "self" not in caught.value.message


async def test_what_fits_and_what_nobody_can_know(kernel: Kernel) -> None:
    checked(kernel, "count_words_", "a")
    checked(kernel, "count_words_", "a", least=2)
    checked(kernel, "celsius_", 1, 2, 3)  # an intent: it is written for what it is sent
    checked(kernel, "size")
    checked(kernel, "clone", name="x")
    with pytest.raises(UnknownTarget):
        checked(kernel, "size", target="nothing")
    assert kernel.image.read(lambda root: find(root["lobby"].thing, "size")) is not None
