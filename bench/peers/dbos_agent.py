"""The mission as a DBOS workflow, on its SQLite system database. See run.py."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from calls import FACETS, ask
from child import done, serve
from dbos import DBOS, DBOSConfig, SetWorkflowID

DBOS(config=DBOSConfig(name="peers", system_database_url=f"sqlite:///{os.path.abspath(sys.argv[2])}", run_admin_server=False))


@DBOS.step()
async def call(mission: str, step: str, given: list[str]) -> str:
    return await ask(mission, step, given)


@DBOS.workflow()
async def think(mission: str) -> str:
    # changed here
    plan = await call(mission, "plan", [])
    facets = await asyncio.gather(*(call(mission, name, [plan]) for name in FACETS))
    return await call(mission, "answer", sorted(facets))


async def main(mode: str, missions: list[str], at_once: int) -> None:
    async def one(mission: str) -> None:
        with SetWorkflowID(mission):
            handle = await DBOS.start_workflow_async(think, mission)
        await handle.get_result()

    if mode == "run":
        await serve(missions, at_once, one)
        return
    wall, cpu = time.perf_counter(), time.process_time()  # launch() has begun to go on with them
    ended = set()
    while len(ended) < len(missions):
        await asyncio.sleep(0.1)
        ended = {w.workflow_id for w in await DBOS.list_workflows_async(status="SUCCESS", load_input=False, load_output=False)}
    done(len(missions), wall, cpu)


async def launched() -> None:
    DBOS.launch()
    await main(sys.argv[1], [f"mission-{i:03}" for i in range(int(sys.argv[3]))], int(sys.argv[4]))


if __name__ == "__main__":
    asyncio.run(launched())
    DBOS.destroy()
