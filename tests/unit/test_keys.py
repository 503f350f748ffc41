"""CURVE: who comes in with which key, what who does not is told, and what a key's file may be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from structlog.testing import capture_logs

from batos.cli import main
from batos.config import Settings
from batos.errors import BatosError, ConfigError, DaemonUnavailable, EndpointError, KeyRefused
from batos.wire import Client, ClientKeys, SyncClient, keys
from batos.wire.listener import Listener
from tests.support.wire import Scripted, ask, raw

AT_ONCE_S = 50.0  # of a time limit of 60: the answer does not come from waiting


class Ring:
    """A daemon's keys, and those of a client that it lets in."""

    def __init__(self, folder: Path) -> None:
        self.secret, self.server = keys.create(folder / "d", "server")
        self.clients = folder / "clients"
        self.anna = self.client("anna")
        self.settings = Settings(curve_secret=str(self.secret), curve_clients=str(self.clients), data=folder, curve_look_s=0.05)

    def client(self, name: str) -> ClientKeys:
        """A new client that is let in."""
        own, _ = keys.create(self.clients.parent, name, self.clients)
        return ClientKeys.load(own, self.server)


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path)


@asynccontextmanager
async def guarded(settings: Settings, *endpoints: str, handler: Scripted | None = None) -> AsyncIterator[str]:
    """A listener with keys; its endpoint."""
    listener = Listener(endpoints or ["tcp://127.0.0.1:*"], settings, handler or Scripted())
    await listener.start()
    try:
        yield listener.bound[0]
    finally:
        await listener.stop()


async def asked(endpoint: str, own: ClientKeys | None, timeout_s: float = 60.0) -> dict[str, Any]:
    async with Client(endpoint, timeout_s, keys=own) as client:
        return await client.status("m")


async def refused(endpoint: str, own: ClientKeys | None) -> str:
    """What somebody who is not let in is told, soon."""
    begun = time.monotonic()
    with pytest.raises(KeyRefused) as caught:
        await asked(endpoint, own)
    assert time.monotonic() - begun < AT_ONCE_S
    return caught.value.message


@pytest.mark.parametrize("kind", ["tcp", "ipc", "any"])
async def test_the_right_key_comes_in(ring: Ring, tmp_path: Path, kind: str) -> None:
    endpoint = {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{tmp_path}/s", "any": "tcp://*:*"}[kind]
    async with guarded(ring.settings, endpoint) as bound:
        assert (await asked(bound.replace("0.0.0.0", "127.0.0.1"), ring.anna))["type"] == "status"


async def test_a_client_without_a_loop_comes_in_too(ring: Ring) -> None:
    async with guarded(ring.settings) as bound:

        def ask() -> dict[str, Any]:
            with SyncClient(bound, keys=ring.anna) as client:
                return client.status("m")

        assert (await asyncio.to_thread(ask))["type"] == "status"


async def test_who_is_not_known_is_told_so(ring: Ring, tmp_path: Path) -> None:
    own, _ = keys.create(tmp_path / "elsewhere", "eve")
    async with guarded(ring.settings) as bound:
        with capture_logs() as logged:
            message = await refused(bound, ClientKeys.load(own, ring.server))
        assert "wire.client_keys" in message
        assert "client_refused" in [line["event"] for line in logged]
        assert (await asked(bound, ring.anna))["type"] == "status"


async def test_no_key_is_told_so(ring: Ring, tmp_path: Path) -> None:
    async with guarded(ring.settings) as bound:
        assert "wire.client_key" in await refused(bound, None)
        local = f"ipc://{tmp_path}/local"
        async with guarded(ring.settings, local):
            assert "wire.client_key" in await refused(local, None), "a local socket is no way round"


async def test_another_daemon_than_meant_hears_nothing(ring: Ring, tmp_path: Path) -> None:
    _, other = keys.create(tmp_path / "other", "server")
    async with guarded(ring.settings) as bound:
        assert "wire.server_key" in await refused(bound, ring.anna._replace(server=keys.load_public(other)))


async def test_keys_for_a_daemon_without_any_are_told_so(ring: Ring) -> None:
    async with guarded(Settings()) as bound:
        assert "uses no keys" in await refused(bound, ring.anna)


async def test_a_stolen_public_key_is_not_enough(ring: Ring) -> None:
    """Its owner is let in by the secret key that belongs to it."""
    _, secret = zmq.curve_keypair()
    async with guarded(ring.settings) as bound:
        with pytest.raises(BatosError) as caught:
            await asked(bound, ring.anna._replace(own=ring.anna.own._replace(secret=secret)), timeout_s=2.0)
        assert isinstance(caught.value, KeyRefused | DaemonUnavailable)


async def test_every_further_request_is_refused_at_once(ring: Ring, tmp_path: Path) -> None:
    async with guarded(ring.settings) as bound, Client(bound) as client:
        for _ in range(2):
            with pytest.raises(KeyRefused):
                await client.status("m")


async def test_the_folder_of_clients_is_as_it_is_when_somebody_knocks(ring: Ring) -> None:
    async with guarded(ring.settings) as bound:
        assert await asked(bound, ring.anna)
        bert = ring.client("bert")
        assert await asked(bound, bert), "put in while the daemon runs"
        os.unlink(ring.clients / "anna.key")
        await refused(bound, ring.anna)
        assert await asked(bound, bert)
        (ring.clients / "junk.key").write_text('curve\n    public-key = "short"\n')
        with capture_logs() as logged:
            assert await asked(bound, bert), "a file that is no key does not hurt the others"
        assert "client_key_unreadable" in [line["event"] for line in logged]


async def test_a_link_to_nothing_in_the_folder_of_clients_shuts_out_nobody(ring: Ring) -> None:
    (ring.clients / "moved.key").symlink_to(ring.clients / "gone")
    async with guarded(ring.settings) as bound:
        assert await asked(bound, ring.anna)


async def test_a_folder_that_is_not_there_lets_nobody_in(ring: Ring) -> None:
    settings = Settings(curve_secret=str(ring.secret), curve_clients=str(ring.clients / "none"))
    async with guarded(settings) as bound:
        await refused(bound, ring.anna)


async def test_a_folder_that_cannot_be_read_lets_nobody_in_until_it_can(ring: Ring, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_text("a file")
    async with guarded(Settings(curve_secret=str(ring.secret), curve_clients=str(odd))) as bound:
        with capture_logs() as logged:
            await refused(bound, ring.anna)
        assert "clients_unreadable" in [line["event"] for line in logged]
        odd.unlink()
        odd.symlink_to(ring.clients)
        assert await asked(bound, ring.anna)


async def until_refused(client: Client) -> KeyRefused:
    """Ask until it is refused, as it is after the daemon's next look at its folder."""
    async with asyncio.timeout(90):
        while True:
            try:
                await client.status("m")
            except KeyRefused as e:
                return e


async def test_a_key_that_is_taken_out_shuts_out_a_connection_that_is_open(ring: Ring) -> None:
    bert, handler = ring.client("bert"), Scripted()
    kept = (ring.clients / "anna.key").read_bytes()
    async with (
        guarded(ring.settings, handler=handler) as bound,
        Client(bound, keys=ring.anna) as anna,
        Client(bound, keys=bert) as other,
    ):
        await other.status("m")
        await anna.status("m")
        os.unlink(ring.clients / "anna.key")
        assert "wire.client_keys" in (await until_refused(anna)).message
        served = len(handler.requests)
        with pytest.raises(KeyRefused):
            await anna.submit("do it all the same")
        assert len(handler.requests) == served, "nothing of hers is begun"
        await other.status("m")
        (ring.clients / "anna.key").write_bytes(kept)
        async with asyncio.timeout(90):
            while True:
                with contextlib.suppress(KeyRefused):
                    await anna.status("m")
                    break


async def test_who_is_shut_out_hears_nothing_more_of_what_was_asked_before(ring: Ring) -> None:
    handler = Scripted()
    async with guarded(ring.settings, handler=handler) as bound, Client(bound, keys=ring.anna) as anna:
        await anna.status("m")
        (heard,) = handler.clients  # what a watch would keep
        assert not heard.closed
        with capture_logs() as logged:
            os.unlink(ring.clients / "anna.key")
            await until_refused(anna)
            async with asyncio.timeout(90):
                while not heard.closed:
                    with contextlib.suppress(KeyRefused):
                        await anna.status("m")
        assert "clients_shut_out" in [line["event"] for line in logged]


async def test_a_folder_that_cannot_be_read_any_more_shuts_out_all(ring: Ring) -> None:
    async with guarded(ring.settings) as bound, Client(bound, 0.5, keys=ring.anna) as anna:
        await anna.status("m")
        aside = ring.clients.rename(ring.clients.with_name("aside"))
        ring.clients.write_text("a file")
        await until_refused(anna)
        ring.clients.unlink()
        aside.rename(ring.clients)
        assert await asked(bound, ring.anna)


async def test_a_routing_id_that_comes_back_under_another_key_is_another_client(ring: Ring) -> None:
    bert, handler = ring.client("bert"), Scripted()
    async with guarded(ring.settings, handler=handler) as bound:
        for own in (ring.anna, bert):
            keys_of = {"CURVE_PUBLICKEY": own.own.public, "CURVE_SECRETKEY": own.own.secret, "CURVE_SERVERKEY": own.server}
            async with raw(zmq.DEALER, bound, ROUTING_ID=b"same", **keys_of) as socket:
                async with asyncio.timeout(90):
                    while not handler.clients or handler.clients[-1].peer.curve_key != own.own.public:
                        await ask(socket, {"op": "status", "id": "m"})
        first, last = handler.clients[0], handler.clients[-1]
    assert first.peer is not last.peer, "what the first watches does not come to the second"


# --- what is refused before anything listens


@pytest.mark.parametrize("endpoint", ["tcp://0.0.0.0:*", "tcp://*:*"])
async def test_beyond_loopback_without_keys_is_refused(endpoint: str) -> None:
    with pytest.raises(EndpointError, match="batos keys new"):
        await Listener([endpoint], Settings(), Scripted()).start()


async def test_a_secret_key_that_others_may_read_is_refused(ring: Ring) -> None:
    ring.secret.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        await Listener(["tcp://127.0.0.1:*"], ring.settings, Scripted()).start()


def test_files_are_for_their_owner_and_nothing_is_overwritten(tmp_path: Path) -> None:
    secret, public = keys.create(tmp_path / "k", "anna", tmp_path / "c")
    assert (secret.stat().st_mode & 0o777, public.stat().st_mode & 0o777) == (0o600, 0o644)
    assert secret.parent.stat().st_mode & 0o077 == 0
    pair = keys.load_pair(secret)
    assert keys.load_public(public) == keys.load_public(pair.public.decode()) == pair.public
    assert pair.secret.decode() not in public.read_text()
    before = secret.read_bytes()
    with pytest.raises(ConfigError, match="overwritten"):
        keys.create(tmp_path / "k", "anna", tmp_path / "c")
    assert secret.read_bytes() == before
    for name in ("", "../x", "a b", ".hidden", "x" * 65):
        with pytest.raises(ConfigError, match="not a valid name"):
            keys.create(tmp_path, name)


@pytest.mark.parametrize("key", ["a" * 39 + "/", "a//" + "b" * 37, "a/./" + "b" * 36])
def test_a_key_that_a_path_would_be_cut_from_is_one(tmp_path: Path, key: str) -> None:
    secret, _ = keys.create(tmp_path, "anna")
    made = ClientKeys.of(Settings(curve_client=str(secret), curve_server=key))
    assert made is not None
    assert made.server == key.encode()


def test_what_is_no_key(tmp_path: Path) -> None:
    secret, public = keys.create(tmp_path, "anna")
    with pytest.raises(ConfigError, match="key_secret"):
        keys.load_pair(public)
    with pytest.raises(ConfigError, match="no key in"):
        keys.load_public(tmp_path / "none.key")
    (tmp_path / "binary.key").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="no key in"):
        keys.load_public(tmp_path / "binary.key")
    with pytest.raises(ConfigError, match="both settings"):
        ClientKeys.of(Settings(curve_client=str(secret)))
    assert ClientKeys.of(Settings()) is None


# --- the command line


def test_keys_are_made_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    data = str(tmp_path / "data")
    assert main(["keys", "new", "anna", "--data", data]) == 2
    assert main(["keys", "new", "--data", data]) == 0
    told = capsys.readouterr().out
    assert "wire.secret_key = " in told
    assert main(["keys", "new", "--data", data]) == 2, "nothing is overwritten"
    capsys.readouterr()
    assert main(["keys", "new", "anna", "--data", data, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["type"], made["client"]) == ("keys", "anna")
    assert main(["keys", "list", "--data", data, "--json"]) == 0
    assert sorted(one["name"] for one in json.loads(capsys.readouterr().out)["clients"]) == ["anna", "client"]
    assert main(["keys", "list", "--data", data]) == 0
    assert "anna" in capsys.readouterr().out
    settings = Settings(data=Path(data), curve_secret=f"{data}/keys/server.key_secret")

    async def status() -> int:
        async with guarded(settings) as bound:
            for name, value in made["settings"].items():
                monkeypatch.setenv(f"BATOS_{name.upper()}", value)
            words = ["status", "m", "--json", "--connect", bound]
            with_keys = await asyncio.to_thread(main, words)
            for name in made["settings"]:
                monkeypatch.delenv(f"BATOS_{name.upper()}")
            assert await asyncio.to_thread(main, words) == KeyRefused.exit_code
            return with_keys

    assert asyncio.run(status()) == 0
    assert "key_refused" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["nwe"], ["new", "server"]])
def test_wrong_words(words: list[str], tmp_path: Path) -> None:
    assert main(["keys", *words, "--data", str(tmp_path)]) == 2
    assert not (tmp_path / "keys").exists()


def test_a_folder_of_clients_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["keys", "list", "--data", str(tmp_path / "file")]) == 2
    assert f"the folder of clients {tmp_path}/file/keys/clients cannot be read: Not a directory" in capsys.readouterr().err
