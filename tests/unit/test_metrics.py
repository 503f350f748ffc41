"""Metrics: what is counted, where it may be read, and that reading never holds up the loop."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from batos import metrics
from batos.app.kernel import Kernel
from batos.bus import MemoryQueried, MethodRan, SourceAudited, ToolCalled
from batos.errors import EndpointError, InferenceFailed
from tests.support.console import http_client
from tests.support.missions import FakeInference, mind, submit


async def read(kernel: Kernel) -> dict[str, float]:
    """Every sample by its name and labels."""
    async with http_client(trust_env=False) as client:
        reply = await client.get(f"http://{kernel.metrics.address}/metrics")
    return {name: float(value) for name, value in re.findall(r"^(\w[^ ]*(?:\{[^}]*\})?) ([^ ]+)$", reply.text, re.MULTILINE)}


async def test_missions_states_inferences_and_the_image(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused") if "what of sage_facet_" in request.user else None
    async with mind(tmp_path, inference, metrics="127.0.0.1:0") as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        inference.fail_when = lambda request: InferenceFailed("no", cause="refused")
        await (await submit(kernel, "m2", "I feel sad")).end()
        kernel.bus.publish(SourceAudited(True))
        found = await read(kernel)
        assert found['batos_missions_total{outcome="COMPLETE",persona="ROBIN"}'] == 1
        assert found['batos_missions_total{outcome="FAILED",persona="ROBIN"}'] == 1
        assert found['batos_mission_failures_total{code="inference_failed"}'] == 1
        assert found['batos_inferences_total{model="robin:embedded",outcome="ok"}'] == 4
        assert found['batos_inferences_total{model="robin:embedded",outcome="refused"}'] == 2
        assert found['batos_tokens_total{kind="prompt",model="robin:embedded"}'] == 28
        assert found['batos_state_seconds_count{state="DELEGATING"}'] == 1
        assert found['batos_state_seconds_count{state="DECOMPOSING"}'] == 2
        assert found['batos_guardian_verdicts_total{verdict="accepted"}'] == 1
        assert (found["batos_units_total"], found["batos_aborts_total"]) == (1, 1)
        assert found["batos_image_objects"] > 20
        assert found['batos_missions_now{doing="running"}'] == 0


async def test_what_the_loop_knows(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), metrics="127.0.0.1:0", autotelic="on", heartbeat_first_s=3600) as kernel:
        assert (await read(kernel))["batos_triggers_total"] == 0
        await (await submit(kernel, "m1", "I feel stuck")).end()
        kernel.bus.publish(MethodRan("oid:1", "a_", False))
        async with asyncio.timeout(90):
            while "batos_entropy_rolling" not in (found := await read(kernel)):
                await asyncio.sleep(0.01)
        assert found['batos_entropy{part="cem"}'] == found["batos_entropy_rolling"]
        assert 0 < found['batos_entropy{part="structure"}'] < 1
        assert found['batos_method_runs_total{outcome="failed"}'] == 1
        assert found["batos_triggers_quiet"] == 0


@pytest.mark.parametrize("autotelic", ["on", "off"])
async def test_questions_to_the_memory(tmp_path: Path, autotelic: str) -> None:
    async with mind(tmp_path, FakeInference(), metrics="127.0.0.1:0", autotelic=autotelic, heartbeat_first_s=3600) as kernel:
        await kernel.memory.recall("What do you know of tomatoes?")
        found = await read(kernel)
        assert found['batos_retrievals_total{found="no"}'] == 1
        kernel.bus.publish(MemoryQueried(2))
        assert (await read(kernel))['batos_retrievals_total{found="yes"}'] == 1


async def test_reading_waits_for_nothing(tmp_path: Path) -> None:
    """While a mission hangs on its model, metrics are read; and none is kept of a mission that ended."""
    inference = FakeInference()
    inference.hold()
    async with mind(tmp_path, inference, metrics="127.0.0.1:0") as kernel:
        heard = await submit(kernel, "m1", "I feel stuck")
        await inference.came(1)
        assert (await read(kernel))['batos_missions_now{doing="running"}'] == 1
        inference.release()
        await heard.end()
        await asyncio.wait_for(kernel.scheduler.quiet(), 90)
        assert len(kernel.metrics.durations) == 0


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "192.0.2.1:9000", "nonsense", "127.0.0.1:port", "example.org:9000", ":9000", "127.0.0.1:65536"]
)
async def test_only_on_loopback(tmp_path: Path, address: str) -> None:
    with pytest.raises(EndpointError, match=r"127\.0\.0\.1:PORT"):
        async with mind(tmp_path, FakeInference(), metrics=address):
            pass


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    async with mind(tmp_path / "a", FakeInference(), metrics="127.0.0.1:0") as kernel:
        with pytest.raises(EndpointError, match="another port"):
            async with mind(tmp_path / "b", FakeInference(), metrics=kernel.metrics.address):
                pass


# --- who may read


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with mind(tmp_path, FakeInference(), metrics="127.0.0.1:0") as kernel:
        yield kernel


def asked(kernel: Kernel, request: str) -> bytes:
    """What comes back for the bytes of a request; PORT is the metrics' own."""
    host, _, port = kernel.metrics.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request.replace("PORT", port).encode())
        return connection.makefile("rb").read()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: 127.0.0.1:PORT", b"200 OK"),
        ("Host: localhost:PORT", b"200 OK"),
        ("host: LOCALHOST:PORT", b"200 OK"),
        ("Host: rebound.example:PORT", b"421 Misdirected Request"),
        ("Host: rebound.example", b"421 Misdirected Request"),
        ("Host: 127.0.0.1:PORT.rebound.example", b"421 Misdirected Request"),
        ("Host: 127.0.0.1", b"421 Misdirected Request"),
        ("Host: 127.0.0.1:1", b"421 Misdirected Request"),
        ("Host: rebound.example:PORT\r\nHost: 127.0.0.1:PORT", b"421 Misdirected Request"),
        ("Host: 127.0.0.1:PORT\r\nHost: rebound.example:PORT", b"421 Misdirected Request"),
        ("X-Forwarded-Host: 127.0.0.1:PORT", b"421 Misdirected Request"),
        ("Host: 127.0.0.1:PORT\r\nOrigin: http://evil.example", b"403 Forbidden"),
        ("Host: 127.0.0.1:PORT\r\nOrigin: null", b"403 Forbidden"),
        ("Host: 127.0.0.1:PORT\r\nOrigin: https://127.0.0.1:PORT", b"403 Forbidden"),
        ("Host: 127.0.0.1:PORT\r\nOrigin: http://127.0.0.1:PORT", b"200 OK"),
        ("Host: 127.0.0.1:PORT\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script", b"403 Forbidden"),
        ("Host: localhost:PORT\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", b"200 OK"),
    ],
)
async def test_a_page_of_another_name_or_site_reads_nothing(kernel: Kernel, headers: str, status: bytes) -> None:
    reply = await asyncio.to_thread(asked, kernel, f"GET /metrics HTTP/1.1\r\n{headers}\r\n\r\n")
    assert reply.partition(b"\r\n")[0].partition(b" ")[2] == status
    assert (b"batos_uptime_seconds" in reply) is (status == b"200 OK")
    assert b"access-control" not in reply.lower()


@pytest.mark.parametrize("request_line", ["GET /metrics HTTP/1.0", "GET http://127.0.0.1:PORT/metrics HTTP/1.1", "GET /metrics"])
async def test_who_names_no_host_reads_nothing(kernel: Kernel, request_line: str) -> None:
    assert b"batos_uptime_seconds" not in await asyncio.to_thread(asked, kernel, f"{request_line}\r\n\r\n")


async def test_an_address_of_the_sixth_version(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), metrics="[::1]:0") as kernel:
        assert kernel.metrics.address.startswith("[::1]:")
        assert (await read(kernel))["batos_uptime_seconds"] >= 0


@contextlib.contextmanager
def crowd(kernel: Kernel, says: bytes, count: int) -> Iterator[list[socket.socket]]:
    """So many that say this, and no more."""
    host, _, port = kernel.metrics.address.partition(":")
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_connection((host, int(port)), timeout=30)) for _ in range(count)]
        for one in found:
            with contextlib.suppress(ConnectionError):
                one.sendall(says)
        yield found


def gone(one: socket.socket) -> bool:
    """Wait until it is cut off."""
    with contextlib.suppress(ConnectionError):
        while one.recv(65536):
            pass
    return True


@pytest.mark.parametrize("says", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: "])
async def test_who_says_nothing_more_takes_nobodys_place(kernel: Kernel, says: bytes) -> None:
    threads = threading.active_count()
    with crowd(kernel, says, 3 * metrics._THREADS) as many:
        assert (await read(kernel))["batos_uptime_seconds"] >= 0
        assert threading.active_count() <= threads + metrics._THREADS + 1
        for one in many[: -metrics.READERS]:
            assert await asyncio.to_thread(gone, one)


@pytest.mark.parametrize("drips", [False, True])
async def test_who_is_slow_is_cut_off_however_much_he_drips(kernel: Kernel, drips: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "READ_S", 0.1)
    with crowd(kernel, b"GET /metrics HTTP/1.1\r\nX: ", 1) as [one]:
        ended = asyncio.create_task(asyncio.to_thread(gone, one))
        async with asyncio.timeout(90):
            while not ended.done():
                if drips:
                    with contextlib.suppress(ConnectionError):
                        one.sendall(b"a")
                await asyncio.wait([ended], timeout=0.02)


async def test_without_the_setting_they_are_counted_and_served_nowhere(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        kernel.bus.publish(SourceAudited(True))
        assert not hasattr(kernel.metrics, "address")
        told = {metric["name"]: metric for metric in await asyncio.to_thread(kernel.metrics.told)}
    assert told["batos_guardian_verdicts"]["kind"] == "counter"
    [sample] = told["batos_guardian_verdicts"]["samples"]
    assert sample == {"name": "batos_guardian_verdicts_total", "labels": {"verdict": "accepted"}, "value": 1.0}
    assert told["batos_image_objects"]["samples"][0]["value"] > 0


async def test_calls_of_tools_are_counted_and_timed_where_they_left(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), metrics="127.0.0.1:0") as kernel:
        for outcome, size in (("done", 40), ("done", 2), ("doubt", 0), ("denied", 0), ("replayed", 0)):
            kernel.bus.publish(ToolCalled("shop.post", outcome, 0.5, size))
        found = await read(kernel)
    assert found['batos_tool_calls_total{outcome="done",tool="shop.post"}'] == 2
    assert found['batos_tool_calls_total{outcome="denied",tool="shop.post"}'] == 1
    assert found['batos_tool_seconds_count{tool="shop.post"}'] == 3, "those that left, or were to"
    assert found['batos_tool_bytes_total{tool="shop.post"}'] == 42
    assert found["batos_effects_in_doubt"] == 0
