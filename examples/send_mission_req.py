"""Send a mission to a BAT OS daemon from a REQ socket, one reply to each request: submit, then ask for the result.

python examples/send_mission_req.py "Plan a birthday party for a cat lover on a budget" [ENDPOINT]
"""

import json
import sys
import uuid

import zmq
from endpoint import own

brief = sys.argv[1] if len(sys.argv) > 1 else "Plan a birthday party for a cat lover on a budget"
endpoint = sys.argv[2] if len(sys.argv) > 2 else own()
socket = zmq.Context().socket(zmq.REQ)
socket.setsockopt(zmq.LINGER, 0)
socket.connect(endpoint)

request, wait_ms = {"op": "submit", "id": str(uuid.uuid4()), "brief": brief}, 5_000  # a daemon that is there accepts at once
while True:
    socket.send_json(request)
    if not socket.poll(wait_ms):
        sys.exit(f"no daemon answers at {endpoint}: start one with `batos run`, or name another ENDPOINT")
    reply = json.loads(socket.recv())
    print(json.dumps(reply, ensure_ascii=False), flush=True)
    if reply["type"] in ("result", "error"):
        sys.exit(0 if reply.get("state") == "COMPLETE" else 1)
    wait_ms = 90_000  # above wait_s
    request = {"op": "result", "id": request["id"], "wait_s": 30}
