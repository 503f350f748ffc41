"""One call of a folder's or program's tool as an effect, killed at a point.

    python -m tests.support.tool_child FOLDER KIND PLACE TOOL ARGUMENTS POINT [OPTIONS]

A point is `N:WHAT`: the process kills itself at the N-th call of `os.WHAT`, before it; `never` for none. Prints what came of the call.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from batos.errors import BatosError
from batos.image import effects, ledger
from batos.image.living_image import LivingImage
from batos.tools.definitions import ConnectionSpec, ConnectorServices, ToolCall
from batos.tools.effects import Effects
from batos.tools.toolbox import open_connector
from tests.support.effect_child import MISSION, Question, Scripted


def die_at(point: str) -> None:
    """Have this process kill itself at a point of what is done outside the image."""
    number, _, what = point.partition(":")
    if not what:
        return
    real, left = getattr(os, what), int(number)

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **more)

    setattr(os, what, counted)


async def main(folder: Path, spec: ConnectionSpec, name: str, arguments: dict[str, Any], point: str) -> None:
    image = await LivingImage.open(f"file://{folder}/image.fs")
    await image.system(ledger.accept, MISSION, "change a file", {}, True)
    connector = open_connector(spec, ConnectorServices(secret=str, folder=folder / "tools"))
    tool = next(tool for tool in await connector.tools() if tool.name == name)

    async def prepare() -> ToolCall:
        call = await connector.prepare(tool, arguments)
        send = call.send

        async def sending(delivery: Any) -> Any:
            print("process", call.process, flush=True)
            die_at(point)
            return await send(delivery)

        return ToolCall(**{**{field: getattr(call, field) for field in ToolCall.__dataclass_fields__}, "send": sending})

    attempt = Effects(image, MISSION, "image", Scripted([]))
    try:
        print("done", json.dumps(await attempt.perform(f"{spec.name}.{name}", arguments, prepare)))
    except Question as e:
        print("asked", e)
    except BatosError as e:
        print("failed", e.message)
    standing = [one for one in image.read(effects.load, MISSION) if one.state not in effects.ENDED]
    print(len(standing))
    await connector.close()
    await image.close()


if __name__ == "__main__":
    words = sys.argv
    made = ConnectionSpec("local", words[2], words[3], {"writable": True} if words[2] == "folder" else json.loads(words[7]))
    asyncio.run(main(Path(words[1]), made, words[4], json.loads(words[5]), words[6]))
