"""The mission as a CrewAI flow that is persisted. See run.py."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

from calls import FACETS, ask
from child import serve
from crewai.flow.flow import Flow, and_, listen, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from pydantic import BaseModel

store = SQLiteFlowPersistence(os.path.abspath(sys.argv[2]))


class State(BaseModel):
    """What a mission knows; `id` is its mission's."""

    id: str = ""
    plan: str = ""
    facets: dict[str, str] = {}
    answer: str = ""


@persist(store)
class Mission(Flow[State]):
    """One mission."""

    @start()
    async def decompose(self) -> None:
        self.state.plan = await ask(self.state.id, "plan")

    @listen(decompose)
    async def risks(self) -> None:
        self.state.facets["risks"] = await ask(self.state.id, "risks", [self.state.plan])

    @listen(decompose)
    async def steps(self) -> None:
        self.state.facets["steps"] = await ask(self.state.id, "steps", [self.state.plan])

    @listen(decompose)
    async def costs(self) -> None:
        self.state.facets["costs"] = await ask(self.state.id, "costs", [self.state.plan])

    @listen(and_(risks, steps, costs))
    async def synthesize(self) -> None:
        # changed here
        self.state.answer = await ask(self.state.id, "answer", [self.state.facets[name] for name in FACETS])


async def main(mode: str, missions: list[str], at_once: int) -> None:
    async def one(mission: str) -> Any:
        return await Mission(suppress_flow_events=True).kickoff_async(inputs={"id": mission})

    if mode == "run":
        await serve(missions, at_once, one)
    elif mode == "start":
        await asyncio.Event().wait()  # it is there, and nothing happens
    else:
        # recovery: begin
        unfinished = [mission for mission in missions if not (store.load_state(mission) or {}).get("answer")]
        await serve(unfinished, at_once, one)
        # recovery: end


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], [f"mission-{i:03}" for i in range(int(sys.argv[3]))], int(sys.argv[4])))
