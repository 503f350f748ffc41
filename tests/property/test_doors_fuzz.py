"""Any request at any door: no answer is a fault of the server, nothing is accepted without the token or from a page of another site."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batos.doors.access import DoorLimits
from tests.support.doors import Served, accepted, door_token, user

ROUTES = (
    ("GET", "/"), ("GET", "/v1/models"), ("GET", "/v1/models/batos"), ("POST", "/v1/chat/completions"), ("GET", "/api/version"),
    ("GET", "/api/tags"), ("GET", "/api/ps"), ("POST", "/api/show"), ("POST", "/api/chat"), ("POST", "/api/generate"),
    ("POST", "/v1/embeddings"), ("POST", "/api/embed"), ("POST", "/api/embeddings"),
    ("POST", "/v1/responses"), ("GET", "/v1/responses/resp_a.1"), ("POST", "/v1/responses/resp_a/cancel"),
    ("GET", "/nothing"), ("DELETE", "/v1/models"),
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
parts = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "audio"])}, optional={"text": values, "image_url": values})
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool", "robot"]),
        "content": st.text(max_size=20) | st.lists(parts, max_size=2),
    },
    optional={"images": values},
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["batos", "batos:robin", "batos:plain", "batos:nobody", "gpt", "minilm:embedded"]) | values,
        "messages": st.lists(messages | values, max_size=3) | values,
        "prompt": values, "name": values, "stream": st.booleans() | values, "stream_options": values, "response_format": values,
        "format": values, "options": values, "n": values, "think": values, "metadata": values, "temperature": values, "stop": values,
        "input": st.lists(st.text(max_size=9) | messages | values, max_size=2) | st.text(max_size=9) | values, "dimensions": values,
        "encoding_format": values, "instructions": values, "previous_response_id": values, "text": values, "background": values,
    },
)  # fmt: skip
payloads = st.binary(max_size=60) | bodies.map(lambda value: json.dumps(value).encode())
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("doors"), DoorLimits(body_bytes=2048, messages=8))
    try:
        yield made
    finally:
        made.close()


@FUZZ
@given(route=st.sampled_from(ROUTES), payload=payloads)
def test_no_body_is_a_fault_of_the_server(doors: Served, route: tuple[str, str], payload: bytes) -> None:
    reply = doors.client.request(*route, content=payload, headers={"Content-Type": "application/json"})
    assert reply.status_code in (200, 400, 404, 405, 413), reply.text
    if reply.status_code != 200:
        assert reply.json()["error"]


@FUZZ
@given(path=st.text(max_size=40), name=st.text(max_size=20))
def test_no_path_and_no_name_is_a_fault_of_the_server(doors: Served, path: str, name: str) -> None:
    told = urllib.parse.quote(path.encode("utf-8", "replace"))
    assert doors.client.get(f"/v1/models/{told}").status_code in (200, 404)
    assert doors.client.get(f"/x{told}").status_code == 404
    assert doors.client.get(f"/v1/responses/resp_{told}").status_code in (400, 404)
    assert doors.client.post("/api/show", json={"model": name}).status_code in (200, 404)


def test_a_body_above_the_limit_is_refused(doors: Served) -> None:
    limit = b" " * 2048
    assert doors.client.post("/api/show", content=limit).status_code == 400
    assert doors.client.post("/api/show", content=limit + b" ").status_code == 413


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic %%%"}, 401),
        ({"Authorization": "Basic YmF0b3M6d3Jvbmc="}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_strangers_are_refused_at_each_route(doors: Served, method: str, path: str, headers: dict[str, str], status: int) -> None:
    before = doors.run(accepted(doors.kernel))
    body = {"model": "batos", "messages": [user("Let me in")], "prompt": "Let me in"}
    reply = doors.client.request(method, path, json=body if method == "POST" else None, headers=headers)
    assert reply.status_code == status
    assert reply.json()["error"]
    assert doors.run(accepted(doors.kernel)) == before


@pytest.mark.parametrize("way", ["bearer", "basic", "x-api-key", "path"])
def test_the_token_is_taken_however_a_client_sends_it(doors: Served, way: str) -> None:
    token = door_token(doors.kernel)
    given = {
        "bearer": {"Authorization": f"bearer {token}"},
        "basic": {"Authorization": "Basic " + base64.b64encode(f"batos:{token}".encode()).decode()},
        "x-api-key": {"x-api-key": token},
        "path": {},
    }[way]
    prefix = f"/token/{token}" if way == "path" else ""
    assert doors.kernel.doors is not None
    reply = httpx.get(f"{doors.kernel.doors.address}{prefix}/api/tags", headers=given)
    assert (reply.status_code, len(reply.json()["models"]) > 2) == (200, True)
