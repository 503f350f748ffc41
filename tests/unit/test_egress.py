"""What leaves the process on behalf of a mission: where it may go, how much comes back, and what a failure says."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from batos.errors import EgressFailed, EgressRefused
from batos.tools.egress import Egress, EgressLimits, WebOrigin, is_public, origin_of


@dataclass
class World:
    """A server on this machine that notes what reaches it."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)

    @property
    def here(self) -> WebOrigin:
        return WebOrigin("http", "127.0.0.1", self.port)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := (await reader.readline()).decode():
                head = {}
                while (row := (await reader.readline()).decode().strip()) != "":
                    name, _, value = row.partition(":")
                    head[name.lower()] = value.strip()
                await reader.readexactly(int(head.get("content-length", 0)))
                self.asked.append(line.split()[0] + " " + line.split()[1])
                self.heads.append(head)
                writer.write(self.answer(line.split()[1]))
                await writer.drain()
                if line.split()[1] == "/hang":
                    await asyncio.Event().wait()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def answer(self, path: str) -> bytes:
        def whole(body: bytes, *more: str) -> bytes:
            return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *more, "", ""]).encode() + body

        if path.startswith("/to?"):
            return f"HTTP/1.1 302 Found\r\nLocation: {path[4:]}\r\nContent-Length: 0\r\n\r\n".encode()
        if path == "/big":
            return whole(b"x" * 300_000)
        if path == "/bomb":
            return whole(gzip.compress(b"\0" * 10_000_000), "Content-Encoding: gzip")
        if path == "/gzip":
            return whole(gzip.compress(b"small"), "Content-Encoding: gzip")
        if path == "/broken":
            return whole(b"no gzip", "Content-Encoding: gzip")
        if path == "/br":
            return whole(b"..", "Content-Encoding: br")
        if path == "/hang":
            return b""
        if path == "/cut":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf"
        return whole(b"ok")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


def at(*addresses: str) -> object:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


async def asked(egress: Egress, method: str, url: str, **more: object) -> str:
    """The body as text; or the code of the error and whether the request may have been sent."""
    try:
        return (await egress.request(method, url, **more)).body.decode()  # type: ignore[arg-type]
    except EgressRefused as e:
        return e.code
    except EgressFailed as e:
        return f"{e.code} {e.sent}"
    finally:
        await egress.close()


async def test_a_granted_origin_of_this_machine_is_reached_and_no_other(world: World) -> None:
    assert await asked(Egress(private=[world.here]), "GET", world.url("/")) == "ok"
    assert await asked(Egress(), "GET", world.url("/")) == "egress_refused"
    assert await asked(Egress(private=[WebOrigin("http", "127.0.0.1", 9)]), "GET", world.url("/")) == "egress_refused"
    assert await asked(Egress(private=[world.here._replace(scheme="https")]), "GET", world.url("/")) == "egress_refused"
    assert world.asked == ["GET /"]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "LOCALHOST.", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "0.0.0.0", "[::1]", "[::]",
        "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::7f00:1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]",
        "169.254.169.254",
        "[fe80::1]", "[fd00::1]", "[fec0::1]", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200", "224.0.0.1",
        "255.255.255.255", "１２７.0.0.1",
    ],
)  # fmt: skip
async def test_whatever_is_not_public_is_refused_however_it_is_written(world: World, host: str) -> None:
    answer = await asked(Egress(any_public=True, limits=EgressLimits(connect_s=1, seconds=5)), "GET", world.url("/", host))
    assert answer in ("egress_refused", "egress_failed False"), "the latter where this system knows no such address"
    assert world.asked == []


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("93.184.216.34", "10.0.0.1"), ("10.0.0.1", "93.184.216.34"), ("::ffff:127.0.0.1",)])
async def test_a_name_that_is_elsewhere_than_in_public_is_refused(world: World, addresses: tuple[str, ...]) -> None:
    egress = Egress([WebOrigin("http", "shop.example", world.port)], resolve=at(*addresses))  # type: ignore[arg-type]
    assert await asked(egress, "GET", world.url("/", "shop.example")) == "egress_refused"
    assert world.asked == []


async def test_a_name_that_moves_after_it_was_looked_at_is_looked_at_again(world: World) -> None:
    answers = iter((["93.184.216.34"], ["127.0.0.1"]))

    async def moves(host: str, port: int) -> Sequence[str]:
        return next(answers)

    egress = Egress(any_public=True, resolve=moves, limits=EgressLimits(connect_s=0.2))
    assert (await asked(egress, "GET", world.url("/", "shop.example"))).startswith("egress_failed")
    assert await asked(egress, "GET", world.url("/", "shop.example")) == "egress_refused"
    assert world.asked == []


async def test_clouds_metadata_is_refused_to_a_private_name_that_points_there(world: World) -> None:
    egress = Egress(private=[WebOrigin("http", "router.lan", 80)], resolve=at("169.254.169.254"))  # type: ignore[arg-type]
    assert await asked(egress, "GET", "http://router.lan/latest/meta-data") == "egress_refused"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/", "ok"), ("http://127.0.0.1:9/x", "egress_refused"), ("file:///etc/passwd", "egress_refused"),
        ("ftp://127.0.0.1/", "egress_refused"),
        ("http://me:word@127.0.0.1:9/", "egress_refused"), ("//169.254.169.254/latest", "egress_refused"),
        ("http://[::1]:1/", "egress_refused"),
    ],
)  # fmt: skip
async def test_each_redirect_is_checked(world: World, target: str, expected: str) -> None:
    assert await asked(Egress(private=[world.here]), "GET", world.url(f"/to?{target}")) == expected


async def test_redirects_end_and_those_of_writes_are_the_answer(world: World) -> None:
    egress = Egress(private=[world.here], limits=EgressLimits(redirects=3))
    round_about = world.url("/to?/to?/to?/to?/to?/")
    assert await asked(egress, "GET", round_about) == "egress_failed True"
    answer = await egress.request("POST", world.url("/to?/paid"), content=b"pay")
    assert (answer.status, answer.headers["location"]) == (302, "/paid")
    await egress.close()
    assert world.asked[-1] == "POST /to?/paid"


async def test_credentials_stay_with_the_origin_that_they_were_given_for(world: World) -> None:
    egress = Egress(private=[world.here, world.here._replace(host="localhost")])
    head = {"Authorization": "Bearer x", "X-Api-Key": "y", "Accept": "text/plain"}
    assert await asked(egress, "GET", world.url(f"/to?http://localhost:{world.port}/y"), headers=head) == "ok"
    first, second = world.heads
    assert first["authorization"] == "Bearer x"
    assert not {"authorization", "x-api-key"} & second.keys()
    assert second["accept"] == "text/plain"


@pytest.mark.parametrize(
    "url", ["", "x", "/path", "http://", "javascript:1", "http://me@127.0.0.1/", "http://127.0.0.1:99999/", "localhost:80"]
)
async def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    assert await asked(Egress(any_public=True), "GET", url) == "egress_refused"


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/big", "egress_failed True"), ("/bomb", "egress_failed True"), ("/gzip", "small"), ("/broken", "egress_failed True"),
     ("/br", "egress_failed True"), ("/cut", "egress_failed True"), ("/hang", "egress_failed True")],
)  # fmt: skip
async def test_an_answer_is_bounded_and_whole(world: World, path: str, expected: str) -> None:
    limits = EgressLimits(bytes=100_000, seconds=2 if path == "/hang" else 60)
    assert await asked(Egress(private=[world.here], limits=limits), "POST", world.url(path), content=b"{}") == expected


async def test_what_surely_did_not_leave_says_so(world: World) -> None:
    free = WebOrigin("http", "127.0.0.1", 1)
    assert await asked(Egress(private=[free]), "POST", "http://127.0.0.1:1/pay", content=b"1") == "egress_failed False"
    nowhere = Egress(private=[world.here], resolve=at())  # type: ignore[arg-type]
    assert await asked(nowhere, "POST", world.url("/")) == "egress_failed False"


async def test_more_requests_than_a_minute_allows_wait_and_run_out_of_time(world: World) -> None:
    egress = Egress(private=[world.here], limits=EgressLimits(per_minute=2, seconds=2))
    for _ in range(2):
        assert (await egress.request("GET", world.url("/"))).status == 200
    with pytest.raises(EgressFailed, match=r"did not leave within 2 s: .*nothing was done") as failed:
        await egress.request("GET", world.url("/third"))
    assert not failed.value.sent
    assert "GET /third" not in world.asked
    await egress.close()


async def test_proxies_of_the_environment_are_not_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await asked(Egress(private=[world.here]), "GET", world.url("/")) == "ok"


def test_origins_are_told_as_urls_have_them() -> None:
    assert str(origin_of("HTTPS://Shop.Example:443/x?y#z")) == "https://shop.example"
    assert str(origin_of("http://[2606:4700::1111]:8080/")) == "http://[2606:4700::1111]:8080"
    assert origin_of("https://bücher.example/").host == "xn--bcher-kva.example"


def test_what_is_public() -> None:
    assert all(map(is_public, ("93.184.216.34", "2606:4700::1111", "64:ff9b::5db8:d822")))
    assert not any(map(is_public, ("192.0.2.1", "198.18.0.1", "::", "2001:db8::1", "fe80::1%eth0")))


async def test_the_last_word_is_asked_for_when_a_connection_is_open_and_may_hold_the_request_back(world: World) -> None:
    class Held(BaseException):
        pass

    def hold() -> None:
        asked.append(len(world.asked))
        raise Held

    asked: list[int] = []
    egress = Egress(private=[world.here])
    with pytest.raises(Held):
        await egress.request("POST", world.url("/"), content=b"pay", leave=hold)
    assert (await egress.request("POST", world.url("/"), content=b"pay", leave=lambda: asked.append(len(world.asked)))).status == 200
    assert (asked, world.asked) == ([0, 0], ["POST /"])
    await egress.close()
