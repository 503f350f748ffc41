"""Who connects and has no session takes no place of who has one, whatever he sends or does not send, and however often."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from batos.app.kernel import Kernel
from batos.console.connections import STRANGERS, ConnectionSlot, ConnectionSlots
from batos.console.server import REQUESTS
from tests.support.console import Seat, http_client, seated, served, stream
from tests.support.missions import WAIT_S

_FORM = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 4096\r\n\r\n"
LOGIN = "POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n" + _FORM + "token=a"
STATIC = "GET /static/console.css HTTP/1.1\r\nHost: {host}\r\n\r\n"
ATTACKS = {
    "says nothing": "",
    "half a request": "GET / HTTP/1.1\r\nHost: {host}\r\nX: ",
    "half a form": LOGIN,
    "asks without a session": "GET / HTTP/1.1\r\nHost: {host}\r\nCookie: batos=no\r\n\r\n",
    "asks for much and reads nothing": STATIC * 32,
}


class Stranger(NamedTuple):
    """A connection of an attacker's."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def gone(self) -> None:
        """Wait until the console has cut it off."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    """A console that waits for long for what a browser wants: nothing here is let go of because it is slow."""
    async with served(tmp_path, console_request_s=600, console_refresh_s=0.05, console_pages=2, ping_s=0.1) as kernel:
        yield kernel


@contextlib.asynccontextmanager
async def strangers(kernel: Kernel, count: int, says: str) -> AsyncIterator[list[Stranger]]:
    assert kernel.console is not None
    host = kernel.console.address.removeprefix("http://")
    name, _, port = host.partition(":")
    found: list[Stranger] = []
    try:
        for _ in range(count):
            own = socket.socket()
            own.setblocking(False)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what is not read fills it soon
            await asyncio.get_running_loop().sock_connect(own, (name, int(port)))
            one = Stranger(*await asyncio.open_connection(sock=own, limit=1024))
            found.append(one)
            with contextlib.suppress(ConnectionError):
                one.writer.write(says.format(host=host).encode())
        yield found
    finally:
        for one in found:
            one.writer.transport.abort()


async def works(kernel: Kernel, seat: Seat) -> None:
    """Pages on connections that are made for each, a live page, and a mission that is given: all as if nobody else were there."""
    async with http_client(
        str(seat.client.base_url), cookies=dict(seat.client.cookies), timeout=WAIT_S, limits=httpx.Limits(max_keepalive_connections=0)
    ) as client:
        own = Seat(kernel, client)
        for path in ("/", "/object?target=robin", "/models", "/static/console.js"):
            await own.see(path)
        async with stream(own, "/events") as rows:
            await own.gave("Plan the day")
            await rows.until("complete")


@pytest.mark.parametrize("says", ATTACKS.values(), ids=ATTACKS)
async def test_no_crowd_of_strangers_keeps_out_who_is_signed_in(kernel: Kernel, says: str) -> None:
    async with seated(kernel) as seat, strangers(kernel, STRANGERS + 64, says) as crowd:
        await works(kernel, seat)
        ends = [asyncio.create_task(one.gone()) for one in crowd]
        async with asyncio.timeout(WAIT_S):
            for end in itertools.islice(asyncio.as_completed(ends), len(crowd) - STRANGERS):
                await end
        async with seated(kernel) as other:  # nor does it keep out who comes with the token
            await works(kernel, other)
        for end in ends:
            end.cancel()


async def test_nor_does_one_that_goes_on_coming_and_dripping(kernel: Kernel) -> None:
    drips: set[asyncio.Task[None]] = set()

    async def drip(one: Stranger) -> None:
        with contextlib.suppress(ConnectionError):
            while not one.reader.at_eof():
                one.writer.write(b"a")
                await asyncio.sleep(0.05)

    async def come() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(12):
                for one in await stack.enter_async_context(strangers(kernel, 40, ATTACKS["half a request"])):
                    drips.add(asyncio.create_task(drip(one)))

    async with seated(kernel) as seat, stream(seat, "/events") as rows:
        coming = asyncio.create_task(come())
        while not coming.done():
            await works(kernel, seat)
        await coming
        await seat.gave("And in the evening")
        await rows.until("complete")
    for task in drips:
        task.cancel()
    await asyncio.gather(*drips, return_exceptions=True)


async def test_seats_are_bounded_and_one_that_signs_out_makes_room(kernel: Kernel) -> None:
    assert kernel.console is not None
    async with seated(kernel) as seat:
        await seat.see("/")  # now its own connection has a seat
        [(name, value)] = dict(seat.client.cookies).items()
        asks = f"GET /object HTTP/1.1\r\nHost: {{host}}\r\nCookie: {name}={value}\r\n\r\n" + ATTACKS["half a request"]
        async with strangers(kernel, 2 + REQUESTS, asks) as many:
            answers = [await one.reader.readuntil(b"\r\n") for one in many]
            assert answers.count(b"HTTP/1.1 503 Service Unavailable\r\n") == 1, "the seat's own connection has one"
            async with seated(kernel) as other:  # who has none is let in, and told
                assert "signed in" in await other.see("/", 503)
                many[0].writer.transport.abort()
                async with asyncio.timeout(WAIT_S):
                    while (await other.client.get("/")).status_code == 503:
                        await asyncio.sleep(0.01)


# --- the places alone


def placed(places: ConnectionSlots, count: int) -> tuple[list[ConnectionSlot], list[ConnectionSlot]]:
    """So many that stand, and the list of those that will be cut off."""
    cut: list[ConnectionSlot] = []
    found: list[ConnectionSlot] = []
    for n in range(count):
        found.append(ConnectionSlot(places, lambda n=n: cut.append(found[n])))  # type: ignore[misc]
        found[n].stand()
    return found, cut


def test_the_oldest_that_stands_goes_first_and_who_asks_is_young_again() -> None:
    places = ConnectionSlots(3, 1)
    (a, b, c), cut = placed(places, 3)
    a.ask()
    late, _ = placed(places, 1)
    assert cut == [b]
    placed(places, 1)
    assert cut == [b, c]
    a.leave()
    placed(places, 1)
    assert cut == [b, c]
    assert late


def test_who_sits_is_never_cut_off_and_stands_again_without_a_session() -> None:
    places = ConnectionSlots(1, 2)
    [a], cut = placed(places, 1)
    assert a.sit()
    assert a.sit(), "the same seat"
    [b], _ = placed(places, 1)
    assert b.sit()
    [c], crowded = placed(places, 1)
    assert not c.sit()
    placed(places, 5)
    assert (cut, crowded) == ([], [c])
    a.stand()
    placed(places, 1)
    assert cut == [a]
    b.leave()
    [d], _ = placed(places, 1)
    assert d.sit()


def test_one_that_is_gone_takes_no_place_any_more() -> None:
    places = ConnectionSlots(1, 1)
    [a], _ = placed(places, 1)
    a.leave()
    a.ask()
    a.stand()
    assert a.sit()
    [b], cut = placed(places, 1)
    assert b.sit()
    assert cut == []
