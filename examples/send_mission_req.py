"""Send a mission to a BAT OS daemon from a REQ socket, one reply to each request: submit, then ask for the result.

python examples/send_mission_req.py "Plan a birthday party for a cat lover on a budget" [ENDPOINT]
"""

import json
import sys
import uuid

import zmq

brief = sys.argv[1] if len(sys.argv) > 1 else "Plan a birthday party for a cat lover on a budget"
endpoint = sys.argv[2] if len(sys.argv) > 2 else "tcp://127.0.0.1:5757"
socket = zmq.Context().socket(zmq.REQ)
socket.setsockopt(zmq.LINGER, 0)
socket.setsockopt(zmq.RCVTIMEO, 90_000)  # milliseconds: above wait_s
socket.connect(endpoint)

mission = str(uuid.uuid4())
request = {"op": "submit", "id": mission, "brief": brief}
while True:
    socket.send_json(request)
    reply = json.loads(socket.recv())
    print(json.dumps(reply, ensure_ascii=False), flush=True)
    if reply["type"] in ("result", "error"):
        sys.exit(0 if reply.get("state") == "COMPLETE" else 1)
    request = {"op": "result", "id": mission, "wait_s": 30}
