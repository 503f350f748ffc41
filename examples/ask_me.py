"""Give a mission that may use a folder and may ask you, and answer its questions from Python.

    python examples/ask_me.py ~/desk "Write the file list.txt with what I need for pancakes" [ENDPOINT]

The folder becomes the connection `desk`, with tools that list, read, search and write its files. Reading is free; before it writes, the
mission asks, and you answer `once`, `mission`, `always`, `never` or `no`. With `may_ask` it may also ask about the brief itself.
"""

import sys
from pathlib import Path

from batos.wire import SyncClient

folder, brief = Path(sys.argv[1]).expanduser().resolve(), sys.argv[2]

with SyncClient(*sys.argv[3:4]) as batos:
    batos.tool_add("desk", "folder", str(folder), {"writable": True})  # the same connection again changes nothing
    mission = batos.submit(brief, may_ask=True)
    for event in batos.watch(mission.id):  # goes on over a restart of the daemon; a question waits for its answer as long as it takes
        if event["type"] == "needs_input":
            batos.answer(mission.id, input(f"{event['question']}\n> "), event["number"])
        elif event["type"] == "tool" and event["step"] == "done":
            print(f"{event['tool']}: {event['result']}")
    result = batos.result(mission.id)
    print(result["text"])
    for effect in batos.effects(mission.id)["effects"]:
        print(f"{effect['state']} {effect['tool']}, by {effect['grant']}")
