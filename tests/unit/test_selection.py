"""What a mission may need of a model, the catalogue of those that can be had, and which of them is chosen."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.bridge.capabilities import ABILITIES, Capabilities, Needs
from batos.bridge.catalogue import Offer, offers
from batos.bridge.downloads import DiskSpace, clear_leftovers, clear_when_quiet
from batos.bridge.installed_models import Candidate
from batos.bridge.modelfile import tagged
from batos.bridge.selection import Space, best_available, best_installed, why_none_available, with_wider_context
from batos.errors import ConfigError, InvalidInput

GB = 10**9
ROOMY = Space(8 * GB)
WORDS = st.lists(st.sampled_from([*ABILITIES, "auto", "context:8k", "context:3000"]), max_size=6)


def model(name: str, gb: float = 2.0, *, billions: float = 4, context: int | None = 32_768, ours: bool = False, **can: bool) -> Candidate:
    able = Capabilities(parameters=int(billions * GB), context=context, **can)
    return Candidate(tagged(name), "", int(gb * GB), 100_000, able, ours)


def offered(*models: Candidate, source: str = "a shelf") -> list[Offer]:
    return [Offer(one, source) for one in models]


# --- needs


@given(WORDS, WORDS)
def test_needs_together_are_what_either_names(one: list[str], other: list[str]) -> None:
    both = Needs.parse(one) | Needs.parse(other)
    assert both == Needs.parse([*one, *other])
    assert both.covers(Needs.parse(one))
    assert Needs.parse(both.words()) == both
    assert bool(both) == bool(set(one + other) - {"auto"})


def test_needs_in_words() -> None:
    assert Needs.parse(["context:32k", "vision"]) == Needs(vision=True, context=32_768)
    assert Needs(vision=True, tools=True, context=2048).told() == "sees images, can use tools and reads 2,048 tokens at once"
    assert Needs(thinking=True).told() == "thinks before it answers"
    for wrong in ("hearing", "context:0", "context:k", "context:32m", ""):
        with pytest.raises(InvalidInput, match="is not a valid need; there are: vision, tools, thinking"):
            Needs.parse([wrong])
    assert Needs.parse(["context:16384k"]).context == 2**24
    with pytest.raises(InvalidInput, match="at most 16777216"):
        Needs.parse(["context:16385k"])


def test_what_a_model_lacks() -> None:
    needs = Needs(vision=True, tools=True, context=8192)
    assert needs.lacking(Capabilities(vision=True, context=4096)) == Needs(tools=True, context=8192)
    assert not needs.lacking(Capabilities(vision=True, tools=True, context=8192))
    assert not Needs(context=8192).lacking(Capabilities(context=None)), "what is not known is no want"
    assert needs.probes == {"images", "tools"}


# --- the catalogue


def test_the_shipped_catalogue_has_something_for_each_ability(tmp_path: Path) -> None:
    shipped = offers(tmp_path)
    assert len({offer.model.name for offer in shipped}) == len(shipped) > 30
    for needs in ({"vision": True}, {"tools": True}, {"thinking": True}, {"vision": True, "tools": True}):
        choice = best_available([shipped], Needs(**needs), Space(6_900_000_000))
        assert choice is not None
        assert choice.memory <= 6_900_000_000
        assert choice.context >= 8192
    assert all(offer.model.bytes < offer.model.can.parameters * 2.5 for offer in shipped if offer.model.can.parameters)
    assert "as of" in shipped[0].source


def test_a_users_own_catalogue_adds_and_goes_first(tmp_path: Path) -> None:
    own = {"house/reader:7b": (5, 7), "qwen3:8b": (9, 8)}
    texts = [f'[models."{name}"]\nbytes = {size}\nparameters = {count}\ncontext = 1\n' for name, (size, count) in own.items()]
    (tmp_path / "catalogue.toml").write_text("".join(texts))
    found = {offer.model.name: offer.model for offer in offers(tmp_path)}
    assert (found["house/reader:7b"].bytes, found["qwen3:8b"].bytes) == (5, 9)
    assert len(found) == len(offers(tmp_path / "none")) + 1


@pytest.mark.parametrize(
    "text", ["[models.x]\nbytes = 1\n", '[models."x"]\nbytes = -1\nparameters = 1\ncontext = 1\n', "models = 3", "as_of = [", "more = 1"]
)
def test_a_catalogue_that_is_none_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "catalogue.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"cannot read the catalogue in .*catalogue\.toml"):
        offers(tmp_path)


# --- the choice


def test_the_model_that_thinks_with_more_context_where_it_has_it_and_that_fits() -> None:
    present = model("now:4b", tools=True)
    choice = with_wider_context(present, Needs(tools=True, context=16_384), ROOMY)
    assert choice is not None
    assert (choice.model, choice.source, choice.context) == ("", "", 16_384)
    assert with_wider_context(present, Needs(context=65_536), ROOMY) is None, "it has no more"
    assert with_wider_context(present, Needs(vision=True, context=16_384), ROOMY) is None, "it does not see"
    assert with_wider_context(present, Needs(context=16_384), Space(3 * GB)) is None, "it does not fit"


def test_of_those_here_the_best_that_can_and_fits() -> None:
    found = [
        model("blind:9b", billions=9), model("small:1b", billions=1, vision=True), model("seer:4b", vision=True),
        model("ours:9b", billions=9, vision=True, ours=True), model("huge:70b", 40, billions=70, vision=True),
        model("away:9b", billions=9, vision=True, remote=True), model("embeds:9b", billions=9, vision=True, chats=False),
    ]  # fmt: skip
    choice = best_installed(found, Needs(vision=True), ROOMY)
    assert choice is not None
    assert (choice.model, choice.source) == ("seer:4b", "")
    assert "the best of 2 models here that do" in choice.why
    other = best_installed(found, Needs(vision=True), ROOMY, {"seer:4b"})
    assert other is not None
    assert other.model == "small:1b"
    assert best_installed(found, Needs(thinking=True), ROOMY) is None


def test_of_those_to_be_had_the_smallest_that_is_no_weaker() -> None:
    some = offered(
        model("tiny:1b", 0.5, billions=1, vision=True), model("mid:4b", 2, vision=True), model("big:8b", 5, billions=8, vision=True),
        model("short:4b", 1, vision=True, context=2048), model("blind:4b", 0.1),
    )  # fmt: skip
    assert chosen(some, least=3 * GB) == "mid:4b"
    assert chosen(some) == "tiny:1b"
    assert chosen(some, least=70 * GB) == "big:8b", "where none is as strong, the strongest"
    assert chosen(some, left_out={"tiny:1b"}) == "mid:4b", "one with hardly any context comes last"
    assert chosen(some, first={"big:8b"}) == "big:8b", "what may be pulled unasked goes first"
    assert chosen(some, first={"blind:4b"}) == "tiny:1b", "but only if it can"


def chosen(some: list[Offer], **more: object) -> str:
    choice = best_available([some], Needs(vision=True), ROOMY, **more)  # type: ignore[arg-type]
    assert choice is not None
    return choice.model


def test_the_registry_goes_before_the_catalogue_and_the_why_says_what_was_gone_by() -> None:
    mine, shipped = offered(model("mine:1b", 3, billions=1, tools=True), source="my registry"), offered(model("theirs:4b", 1, tools=True))
    choice = best_available([mine, shipped], Needs(tools=True), Space(8 * GB, 50 * GB), least=2 * GB)
    assert choice is not None
    assert (choice.model, choice.source) == ("mine:1b", "my registry")
    for words in ("can use tools", "my registry", "weaker than what thinks now", "8.0 GB (inference.memory_bytes)", "50.0 GB of disk"):
        assert words in choice.why


def test_why_there_is_none() -> None:
    some = offered(model("blind:4b"), model("big:8b", 9, vision=True), model("wide:4b", 2, vision=True), model("no:1b", vision=True))
    needs, space = Needs(vision=True), Space(8 * GB, GB)
    assert best_available([some], needs, space, left_out={"no:1b"}) is None
    told = why_none_available([some], needs, space, {"no:1b"})
    for words in ("of 4 models", "lack what is needed", "8.0 GB of memory", "1.0 GB of free disk", "was tried, or not wanted"):
        assert words in told
    assert why_none_available([[]], needs, space) == "no model is known that could be had"


def test_the_context_is_what_is_needed_and_at_least_the_usual_one() -> None:
    some = offered(model("seer:4b", vision=True))
    for needed, given_ in ((0, 8192), (4096, 8192), (16_384, 16_384)):
        choice = best_available([some], Needs(vision=True, context=needed), ROOMY)
        assert choice is not None
        assert choice.context == given_


# --- what a pull leaves


def test_only_parts_and_files_that_no_model_names_are_cleared(tmp_path: Path) -> None:
    blobs, manifest = tmp_path / "blobs", tmp_path / "manifests" / "house" / "m" / "1"
    blobs.mkdir()
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"config": {"digest": "sha256:cc"}, "layers": [{"digest": "sha256:aa"}]}')
    (tmp_path / "manifests" / "junk").write_text("[1")
    for name in ("sha256-aa", "sha256-bb", "sha256-cc", "sha256-dd-partial", "sha256-dd-partial-0", "sha256-ee-partial"):
        (blobs / name).write_bytes(b"1")
    gone = clear_leftovers(tmp_path, ["sha256:aa", "sha256:bb", "sha256:cc", "sha256:dd"])
    assert sorted(gone) == ["sha256-bb", "sha256-dd-partial", "sha256-dd-partial-0"]
    assert sorted(path.name for path in blobs.iterdir()) == ["sha256-aa", "sha256-cc", "sha256-ee-partial"]
    assert clear_leftovers(tmp_path / "none", ["sha256:aa"]) == []
    os.utime(blobs / "sha256-ee-partial", (1000, 1000))
    (blobs / "sha256-ff-partial-0").write_bytes(b"1")
    assert clear_leftovers(tmp_path, [], since=2000) == ["sha256-ff-partial-0"], "what was not told of, but written meanwhile"


async def test_what_comes_a_moment_later_is_cleared_too(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    clearing = asyncio.create_task(clear_when_quiet(tmp_path, ["sha256:aa"], 0))
    await asyncio.sleep(0)
    (tmp_path / "blobs" / "sha256-aa-partial").write_bytes(b"1")
    assert await clearing == ["sha256-aa-partial"]


def test_the_room_that_is_left(tmp_path: Path) -> None:
    assert DiskSpace().left() is None
    room = DiskSpace(tmp_path, reserve=10)
    free = room.left()
    assert free is not None
    room.claim(("m", "sha256:aa"), 1000)
    assert room.is_claimed("sha256:aa")
    assert not room.is_claimed("sha256:bb")
    assert DiskSpace(tmp_path, reserve=2**62).left() == 0
