"""The mission as a LangGraph graph, with its SQLite checkpointer. See run.py."""

from __future__ import annotations

import asyncio
import operator
import sys
from typing import Annotated, Any, TypedDict

from calls import FACETS, ask
from child import serve
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

DURABILITY = sys.argv[5] if len(sys.argv) > 5 else "async"


class State(TypedDict, total=False):
    """What a mission knows."""

    mission: str
    plan: str
    facets: Annotated[list[str], operator.add]
    answer: str


async def decompose(state: State) -> State:
    return {"plan": await ask(state["mission"], "plan")}


async def synthesize(state: State) -> State:
    # changed here
    return {"answer": await ask(state["mission"], "answer", sorted(state["facets"]))}


def facet(name: str) -> Any:
    async def think(state: State) -> State:
        return {"facets": [await ask(state["mission"], name, [state["plan"]])]}

    return think


def built(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("decompose", decompose)
    graph.add_node("synthesize", synthesize)
    graph.add_edge(START, "decompose")
    for name in FACETS:
        graph.add_node(name, facet(name))
        graph.add_edge("decompose", name)
    graph.add_edge(list(FACETS), "synthesize")
    graph.add_edge("synthesize", END)
    return graph.compile(checkpointer=saver)


async def main(mode: str, path: str, missions: list[str], at_once: int) -> None:
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        graph = built(saver)

        async def one(mission: str | None, thread: str) -> None:
            config = {"configurable": {"thread_id": thread}}
            await graph.ainvoke({"mission": mission} if mission else None, config, durability=DURABILITY)

        if mode == "run":
            await serve(missions, at_once, lambda mission: one(mission, mission))
        elif mode == "start":
            await asyncio.Event().wait()  # it is there, and nothing happens
        else:
            # recovery: begin
            threads = {found.config["configurable"]["thread_id"] async for found in saver.alist(None)}
            unfinished = []
            for thread in sorted(threads):
                state = await graph.aget_state({"configurable": {"thread_id": thread}})
                if state.next:
                    unfinished.append(thread)
            await serve(unfinished, at_once, lambda thread: one(None, thread))
            lost = [mission for mission in missions if mission not in threads]  # accepted, and never checkpointed
            await serve(lost, at_once, lambda mission: one(mission, mission))
            # recovery: end


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], [f"mission-{i:03}" for i in range(int(sys.argv[3]))], int(sys.argv[4])))
