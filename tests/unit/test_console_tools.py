"""The console's page of tools, and what a mission's page says of its effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batos.console.access import ConsoleLimits
from batos.image import effects
from batos.image.effects import ACTS, DONE, IN_DOUBT, INTENDED, EffectRecord
from batos.image.grants import GrantRecord, add
from batos.tools import connections
from batos.tools.definitions import ConnectionSpec, ToolDefinition
from tests.support.console import seated, seen, served
from tests.support.missions import submit

ROWS = ConsoleLimits().rows
DOUBT, SOLD = "d" * 32, "a" * 32


def put(root: Any) -> None:
    """A connection, a grant, and two effects of the mission m1: one that is done, one in doubt."""
    tools = [ToolDefinition(name="post", description="Sends <b>it</b>.")]
    connections.add(root, ConnectionSpec("shop", "http", "https://a.example", {"headers": {"Authorization": "{secret:SHOP}"}}), tools)
    add(root, GrantRecord(0, "allow", "shop.post", uses=5), 1.0)
    for key, state, more in ((SOLD, DONE, {"result": '{"order": 1}'}), (DOUBT, IN_DOUBT, {"why": "no answer within 60 s"})):
        record = EffectRecord(key, "shop.post", ACTS, '{"sku":"<tea>"}', 0, INTENDED, 1.0, grant="grant 1 (user)")
        effects.intend(root, "m1", record)
        effects.end(root, "m1", record._replace(state=state, **more))


async def test_connections_grants_and_effects_are_shown_and_settled(tmp_path: Path) -> None:
    async with served(tmp_path) as kernel, seated(kernel) as seat:
        assert "No connections." in seen(await seat.see("/tools"))
        await (await submit(kernel, "m1", "Buy tea")).end()
        await kernel.image.system(put)
        page = await seat.see("/tools")
        assert "<tea>" not in page, "what a tool was given is text"
        text = seen(page)
        for part in (
            "In doubt 1", "no answer within 60 s", "It lacks the secret SHOP", "allow shop.post, 0 of 5 uses today", "by leave of grant 1",
            "What came of it",
        ):  # fmt: skip
            assert part in text, part
        assert "shop.post" in seen(await seat.see("/object", 404, target="tools.shop.post")), "an operation is no object"
        own = seen(await seat.see("/mission", id="m1"))
        assert "What it did outside 2" in own
        assert "It happened" in own

        assert (await seat.post("/effect", key=DOUBT, how="maybe")).status_code == 400
        settled = await seat.post("/effect", key=DOUBT, how="happened", page="mission")
        assert (settled.status_code, settled.headers["location"]) == (303, "/mission?id=m1&said=settled")
        assert "In doubt" not in seen(await seat.see("/tools"))
        assert (await seat.post("/effect", key=DOUBT, how="happened")).status_code == 400, "it is in no doubt any more"

        assert (await seat.post("/grant/remove", number="1")).status_code == 303
        assert "No grants" in seen(await seat.see("/tools"))
        assert (await seat.post("/grant/remove", number="1")).status_code == 400


async def test_tools_are_searched_by_words_and_a_long_list_is_cut(tmp_path: Path) -> None:
    tools = [ToolDefinition(name=f"thing{n}", kind="reads", description=f"Reads <i>thing</i> {n}.") for n in range(ROWS + 1)]

    def many(root: Any) -> None:
        connections.add(root, ConnectionSpec("shop", "http", "https://a.example"), [*tools, ToolDefinition(name="sell")])

    async with served(tmp_path) as kernel, seated(kernel) as seat:
        assert 'role="search"' not in await seat.see("/tools")
        await kernel.image.system(many)
        text = seen(await seat.see("/tools"))
        assert f"{ROWS + 2} tools" in text
        assert "2 more: search for them" in text
        text = seen(await seat.see("/tools?q=ACTS+sell"))
        assert f"1 of {ROWS + 2} tools" in text
        assert "thing1" not in text
        page = await seat.see("/tools?q=%3Cscript%3E")
        assert f"0 of {ROWS + 2} tools" in seen(page)
        assert "<script>" not in page.partition("<main")[2], "what is searched for is text"
