"""Run BAT OS inside a program of your own, beside its other work in one event loop.

python examples/own_process.py FOLDER "Say hello to Anna" [MODEL [OLLAMA_HOST]]
"""

import asyncio
import sys

from batos import logs
from batos.app.kernel import Kernel
from batos.config import load
from batos.wire import Client


async def main(folder: str, brief: str, model: str = "", ollama_host: str = "") -> None:
    settings = load({"data": folder, "wire.listen": (f"ipc://{folder}/wire.sock",), "doors.enabled": "off", "inference.model": model,
                     "inference.host": ollama_host})  # fmt: skip
    kernel = await Kernel.start(settings)  # a BatosError says what is in the way, and what to do
    try:
        async with Client(kernel.endpoints[0]) as batos:
            mission = await batos.submit(brief, id="hello")
            print((await batos.result(mission.id))["text"])
    finally:
        await kernel.stop()  # missions at work go on at the next start


logs.configure("warning", "json")  # the log goes to standard error
asyncio.run(main(*sys.argv[1:]))
