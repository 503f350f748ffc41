"""What the curator asks of a model: a mission of the system's own, paid for once, and never more than a wish."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batos.app.kernel import Kernel
from batos.errors import InferenceFailed
from batos.image import journal, ledger
from batos.memory.curator import Gist
from batos.mind import memory_primitives
from tests.support.memory import QUICK, CountsWords
from tests.support.missions import FakeInference, mind
from tests.support.undo import LONG, Held

SAID = "Boats, harbours and the tide."


@contextlib.asynccontextmanager
async def harbours(folder: Path, inference: FakeInference, **settings: object) -> AsyncIterator[tuple[Kernel, list[int]]]:
    """A daemon that remembers something long, and its sections."""
    inference.embedder = CountsWords().vector
    async with mind(folder, inference, **{"remember": "off", "curate_s": 86400, **QUICK, **settings}) as kernel:
        held = Held(kernel)
        if not held.look(lambda library: list(library.sections)):
            await held.sent("m1", "memory", "remember_", LONG, "Harbours")
            await held.embedded()
        yield kernel, held.look(lambda library: list(library.sections))


async def test_it_is_asked_once_under_its_id_also_after_a_restart(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = lambda request: SAID
    for life in range(2):
        async with harbours(tmp_path, inference) as (kernel, sections):
            gist = await memory_primitives.gist_source(kernel.scheduler, kernel.events)("curate-1", sections, 3)
            assert (gist.text, gist.mission) == (SAID, "curate-1")
            assert gist.tokens > 0
            asked = inference.asked_about("Say in at most 3 sentences")
            assert len(asked) == 1, life
            assert "harbours" in asked[0].user
            assert kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "curate-1")).origin) == "system"


@pytest.mark.parametrize("how", ["fails", "nothing_there", "too_late"])
async def test_where_none_is_to_be_had_it_is_blank(tmp_path: Path, how: str) -> None:
    inference = FakeInference()
    inference.say = lambda request: SAID
    async with harbours(tmp_path, inference, mission_attempts=1) as (kernel, sections):
        ask = memory_primitives.gist_source(kernel.scheduler, kernel.events)
        if how == "fails":
            inference.fail_when = lambda request: InferenceFailed("no", cause="unreachable")
            gist = await ask("curate-1", sections, 3)
        elif how == "nothing_there":
            gist = await ask("curate-1", [10**9], 3)
        else:
            kernel.scheduler.settings = kernel.scheduler.settings.model_copy(update={"mission_deadline_s": 0.05})
            inference.hold()
            gist = await ask("curate-1", sections, 3)
            inference.release()
        assert gist.text == ""
        assert gist in (Gist(), Gist("", gist.tokens, "curate-1"))


async def test_what_it_said_is_in_the_summary_and_nowhere_else(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = lambda request: SAID
    settings = {"curate_age_days": 0, "curate_fresh_days": 0, "curate_least": 2}
    async with harbours(tmp_path, inference, **settings) as (kernel, _):
        curator = kernel.memory.curator
        told = await curator.round("a test says so")
        assert (len(told["clusters"]), told["by_model"]) == (1, 1)
        held = Held(kernel)
        assert any(text.startswith(SAID) for text in held.texts(f"archive:{told['clusters'][0]['archive']}"))
        (mission,) = held.look(lambda library: [id for id in ledger.ledger_of(library._p_jar.root()).missions if id.startswith("curate-")])

        def left(root: object) -> tuple[object, list[object]]:
            return ledger.describe(ledger.mission_of(root, mission)).result["text"], journal.load(root, mission)  # type: ignore[return-value]

        assert kernel.image.read(left) == ("", [])


async def test_the_loop_may_propose_a_round_unless_it_is_off(tmp_path: Path) -> None:
    async with mind(tmp_path / "on", FakeInference()) as kernel:
        assert kernel.improving.ground.curates
        assert kernel.improving.curate is not None
        assert (await kernel.improving.curate())["why"] == "it was proposed"
    async with mind(tmp_path / "off", FakeInference(), curate="off") as kernel:
        assert not kernel.improving.ground.curates
