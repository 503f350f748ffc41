"""Send a mission to a BAT OS daemon and print what happens until its result: ZeroMQ and JSON, nothing else.

python examples/send_mission.py "Plan a birthday party for a cat lover on a budget" [ENDPOINT]
"""

import json
import sys
import uuid

import zmq
from endpoint import own

brief = sys.argv[1] if len(sys.argv) > 1 else "Plan a birthday party for a cat lover on a budget"
endpoint = sys.argv[2] if len(sys.argv) > 2 else own()
socket = zmq.Context().socket(zmq.DEALER)
socket.setsockopt(zmq.LINGER, 0)
socket.connect(endpoint)
socket.send_json({"op": "submit", "id": str(uuid.uuid4()), "brief": brief, "watch": True})

wait_ms = 5_000  # a daemon that is there accepts at once
while True:
    if not socket.poll(wait_ms):
        sys.exit(f"no daemon answers at {endpoint}: start one with `batos run`, or name another ENDPOINT")
    reply = json.loads(socket.recv())
    print(json.dumps(reply, ensure_ascii=False), flush=True)
    wait_ms = 600_000  # to think takes longer
    if reply["type"] in ("result", "error"):
        sys.exit(0 if reply.get("state") == "COMPLETE" else 1)
