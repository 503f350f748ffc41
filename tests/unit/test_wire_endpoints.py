import os
import socket as sockets
import stat
from pathlib import Path

import pytest
import zmq

from batos.config import Settings
from batos.errors import EndpointError
from batos.wire import Client, endpoints
from batos.wire.endpoints import check, normalised, to_connect
from batos.wire.listener import Listener
from tests.support.wire import Scripted, ask, listening, raw


@pytest.mark.parametrize(
    ("endpoint", "bound"),
    [
        ("tcp://127.0.0.1:5757", "tcp://127.0.0.1:5757"),
        ("tcp://127.1.2.3:*", "tcp://127.1.2.3:*"),
        ("tcp://localhost:0", "tcp://127.0.0.1:0"),
        ("tcp://[::1]:5757", "tcp://[::1]:5757"),
        ("ipc:///tmp/batos.sock", "ipc:///tmp/batos.sock"),
    ],
)
def test_endpoints_of_this_machine(endpoint: str, bound: str) -> None:
    assert normalised(endpoint) == bound


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "192.168.1.7", "[::]", "[fe80::1]", "eth0", "lo", "example.org", "127.1", "128.0.0.1"])
def test_endpoints_that_others_could_reach_are_refused(host: str) -> None:
    with pytest.raises(EndpointError, match="CURVE"):
        normalised(f"tcp://{host}:5757")


@pytest.mark.parametrize(
    "endpoint",
    ["", "5757", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:70000", "tcp://127.0.0.1:x", "ipc://", "inproc://a", "ws://127.0.0.1:1"],
)
def test_what_is_no_endpoint(endpoint: str) -> None:
    with pytest.raises(EndpointError, match="no endpoint"):
        normalised(endpoint)


@pytest.mark.parametrize(
    ("listens", "found"),
    [
        ("tcp://*:5757", "tcp://127.0.0.1:5757"),
        ("tcp://0.0.0.0:1", "tcp://127.0.0.1:1"),
        ("tcp://[::]:1", "tcp://[::1]:1"),
        ("tcp://192.168.1.7:1", "tcp://192.168.1.7:1"),
        ("ipc:///x", "ipc:///x"),
    ],
)
def test_where_a_client_of_the_same_machine_finds_it(listens: str, found: str) -> None:
    assert to_connect(listens) == found


def test_who_has_no_daemon_of_his_own_is_led_to_that_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, path = tmp_path / "machine.sock", tmp_path / ".local/share/batos/wire.sock"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(endpoints, "MACHINE", f"ipc://{machine}")
    own = f"ipc://{path}"
    assert Client().endpoint == own, "there is none of the machine either"
    with sockets.socket(sockets.AF_UNIX) as theirs:
        theirs.bind(str(machine))
        theirs.listen()
        assert Client().endpoint == f"ipc://{machine}"
        path.parent.mkdir(parents=True)
        with sockets.socket(sockets.AF_UNIX) as ours:
            ours.bind(str(path))
            ours.listen()
            assert Client().endpoint == own
        assert path.is_socket()
        assert Client().endpoint == f"ipc://{machine}", "nobody listens at what a killed daemon left"
        assert to_connect(f"ipc://{tmp_path}/another") == f"ipc://{tmp_path}/another", "what somebody named is what he meant"
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/batos")  # what systemd tells the daemon itself
    assert Settings().endpoints == ("ipc:///run/batos/wire.sock",)


async def test_a_taken_port_is_named_with_the_remedy() -> None:
    async with listening() as (first, _):
        second = Listener(first.bound, Settings(), Scripted())
        with pytest.raises(EndpointError, match=rf"{first.bound[0]} is taken.*--listen"):
            await second.start()
        async with raw(zmq.DEALER, first.bound[0]) as dealer:
            assert (await ask(dealer, {"op": "info"}))["type"] == "status"


async def test_what_is_free_is_free_after_it_was_looked_at(tmp_path: Path) -> None:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = [f"tcp://127.0.0.1:{probe.getsockname()[1]}", f"ipc://{tmp_path}/wire.sock"]
    for endpoint in free:
        check(endpoint)
        assert list(tmp_path.iterdir()) == []
        async with listening(endpoint=endpoint):
            with pytest.raises(EndpointError, match="taken"):
                check(endpoint)


async def test_one_bad_endpoint_binds_none() -> None:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(EndpointError):
        await Listener([free, "tcp://*:5757"], Settings(), Scripted()).start()
    async with listening(endpoint=free) as (listener, _):
        assert listener.bound == [free]


async def test_a_local_socket(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/wire.sock"
    async with listening(endpoint=endpoint) as (listener, _), raw(zmq.REQ, endpoint) as req:
        assert listener.bound == [endpoint]
        assert (await ask(req, {"op": "info"}))["type"] == "status"
        with pytest.raises(EndpointError, match="taken"):
            await Listener([endpoint], Settings(), Scripted()).start()
        assert (await ask(req, {"op": "info"}))["type"] == "status"


async def test_a_local_socket_left_by_a_dead_daemon_is_taken_over(tmp_path: Path) -> None:
    with sockets.socket(sockets.AF_UNIX) as dead:
        dead.bind(f"{tmp_path}/wire.sock")
    async with listening(endpoint=f"ipc://{tmp_path}/wire.sock") as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        assert (await ask(dealer, {"op": "info"}))["type"] == "status"


async def test_a_local_socket_in_no_folder(tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="cannot listen"):
        await Listener([f"ipc://{tmp_path}/none/wire.sock"], Settings(), Scripted()).start()


async def test_the_default_is_a_socket_of_ones_own_that_clients_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BATOS_LISTEN", raising=False)
    (endpoint,) = Settings().endpoints
    before = os.umask(0o077)
    try:
        async with listening(endpoint=endpoint) as (listener, _), Client() as client:
            assert listener.bound == [client.endpoint] == [f"ipc://{tmp_path}/.local/share/batos/wire.sock"]
            assert (await client.status("m"))["type"] == "status"
            socket = tmp_path / ".local/share/batos/wire.sock"
            assert [stat.S_IMODE(one.stat().st_mode) & 0o077 for one in (socket, socket.parent)] == [0, 0]
    finally:
        os.umask(before)


async def test_clients_find_the_endpoint_that_the_settings_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BATOS_LISTEN", raising=False)
    async with listening() as (listener, _):
        (tmp_path / "batos.toml").write_text(f'listen = ["{listener.bound[0]}"]')
        async with Client() as client:
            assert (await client.status("m"))["type"] == "status"
        monkeypatch.setenv("BATOS_LISTEN", f"ipc://{tmp_path}/other.sock")
        assert Client().endpoint == f"ipc://{tmp_path}/other.sock"


@pytest.mark.parametrize("mode", [0o770, 0o707])
async def test_a_folder_that_others_may_write_in_is_no_place_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """Who may write there could put a socket of his own in its place, and answer in the daemon's name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".local/share/batos"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(EndpointError, match="chmod 700"):
        await Listener(Settings().endpoints, Settings(), Scripted()).start()


async def test_two_endpoints_are_one_daemon(tmp_path: Path) -> None:
    listener = Listener(["tcp://127.0.0.1:0", f"ipc://{tmp_path}/wire.sock"], Settings(), Scripted())
    await listener.start()
    for endpoint in listener.bound:
        async with raw(zmq.DEALER, endpoint) as dealer:
            assert (await ask(dealer, {"op": "info"}))["type"] == "status"
    await listener.stop()
