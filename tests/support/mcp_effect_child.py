"""One attempt at a call of the faulty MCP server's `trade` as an effect, killed at a point. Prints what came of it.

python -m tests.support.mcp_effect_child FOLDER PLACE OPTIONS POINT [ANSWER …]
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from batos import logs
from batos.image import ledger
from batos.image.living_image import LivingImage
from batos.tools.definitions import ConnectionSpec, ConnectorServices
from batos.tools.effects import Effects
from batos.tools.toolbox import open_connector
from tests.support.effect_child import MISSION, Scripted, die_around, told


async def main(folder: Path, place: str, options: dict[str, Any], point: str, answers: list[str]) -> None:
    image = await LivingImage.open(f"file://{folder}/image.fs")
    await image.system(ledger.accept, MISSION, "buy tea", {}, True)
    connector = open_connector(ConnectionSpec("market", "mcp", place, options), ConnectorServices(secret=str, folder=folder))
    trade = next(tool for tool in await connector.tools() if tool.name == "trade")
    call = await connector.prepare(trade, {"name": "tea"})
    die_around(image, point)
    await told(Effects(image, MISSION, "image", Scripted(answers)), call)
    await connector.close()
    await image.close()


if __name__ == "__main__":
    logs.configure("error", "json")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4], sys.argv[5:]))
