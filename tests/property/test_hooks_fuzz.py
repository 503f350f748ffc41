"""Any request to a hook: none is a fault of the server, and none is accepted that does not prove that it knows the hook's secret."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batos.triggers.templates import CLOSING, OPENING, MissingField, field_of, fields_of, filled
from tests.support.doors import Served, accepted
from tests.support.hooks import HookCaller, github, hooked
from tests.support.missions import WAIT_S

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.text(st.characters(codec="latin-1", min_codepoint=32, exclude_characters="\x7f"), max_size=60).map(str.strip)
KINDS = ("application/json", "application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "")
NAMES = (
    "Authorization", "X-Hub-Signature-256", "webhook-signature", "webhook-timestamp", "webhook-id", "svix-signature", "X-Hook-Token",
    "X-Gitlab-Token", "Idempotency-Key", "X-GitHub-Event",
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=8,
)
payloads = st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()) | st.just(b"a=1&b=%7B")
marks = st.text(max_size=30) | st.sampled_from(["{a}", "{{a}}", "{a.b}", "{a?}", "}", "{", OPENING, CLOSING, "{body}"])


class Called(Served):
    """A kernel with a hook that may be called without end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.caller: HookCaller = self.run(hooked(self.kernel, "Say {a?} {body}", rate=1000))
        self.client.headers.pop("Authorization")


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Called]:
    made = Called(tmp_path_factory.mktemp("hooks"))
    try:
        yield made
    finally:
        made.close()


@FUZZ
@given(
    name=st.sampled_from(["issues", "Issues", "nothing"]) | st.text(max_size=20),
    headers=st.dictionaries(st.sampled_from(NAMES), texts, max_size=4),
    kind=st.sampled_from(KINDS),
    token=st.text(max_size=30),
    body=payloads,
)
@example(name="issues", headers={"Authorization": "Bearer"}, kind="", token="", body=b"{}")
@example(name="issues", headers={"webhook-id": "", "webhook-timestamp": "", "webhook-signature": "v1,"}, kind="", token="", body=b"{}")
@example(name="..", headers={}, kind="", token="", body=b"{}")
def test_nothing_is_accepted_without_a_proof(
    called: Called, name: str, headers: dict[str, str], kind: str, token: str, body: bytes
) -> None:
    before = called.run(accepted(called.kernel))
    path = f"/hooks/{urllib.parse.quote(name.encode('utf-8', 'replace'), safe='')}?token={urllib.parse.quote(token)}"
    given = httpx.Headers({**headers, "Content-Type": kind}, encoding="latin-1")
    reply = called.client.post(path, content=body, headers=given)
    assert reply.status_code in (400, 401, 403, 404, 421), reply.text  # 403: `..` leads to a page
    assert called.run(accepted(called.kernel)) == before


@FUZZ
@given(kind=st.sampled_from(KINDS), body=payloads)
def test_no_body_is_a_fault_of_the_server(called: Called, kind: str, body: bytes) -> None:
    reply = called.client.post("/hooks/issues", content=body, headers={**github(called.caller.secret, body), "Content-Type": kind})
    assert reply.status_code in (202, 400, 429, 503), reply.text
    if reply.status_code == 202:
        assert called.run(called.caller.asker.ask("result", id=reply.json()["id"], wait_s=WAIT_S / 2))["state"] in ("COMPLETE", "FAILED")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_other_methods_are_none(called: Called, method: str) -> None:
    assert called.client.request(method, "/hooks/issues", headers={"Authorization": f"Bearer {called.caller.secret}"}).status_code == 405


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_strangers_are_refused_though_they_sign(called: Called, headers: dict[str, str], status: int) -> None:
    before = called.run(accepted(called.kernel))
    body = b'{"a": "from a page"}'
    reply = called.client.post("/hooks/issues", content=body, headers={**github(called.caller.secret, body), **headers})
    assert reply.status_code == status
    assert called.run(accepted(called.kernel)) == before


@settings(max_examples=300, deadline=None)
@given(template=st.lists(marks, max_size=6).map("".join), value=values)
def test_what_fills_a_field_stays_between_its_marks(template: str, value: Any) -> None:
    brief = template.replace(OPENING, "").replace(CLOSING, "")
    fields = fields_of(brief)
    text = filled(brief, lambda path: value)
    count = text.count(OPENING)
    assert count == text.count(CLOSING)
    assert bool(count) == bool(fields)
    inside = depth = 0
    for character in text:
        depth += (character == OPENING) - (character == CLOSING)
        inside = max(inside, depth)
        assert depth >= 0
    assert inside <= 1


@given(body=values, path=st.lists(st.text("ab0.", min_size=1, max_size=3), min_size=1, max_size=4).map(".".join))
def test_a_path_finds_a_value_or_says_what_there_is(body: Any, path: str) -> None:
    try:
        field_of(body, path)
    except MissingField as e:
        told = str(e)
    else:
        return
    assert 0 < len(told) < 2000
