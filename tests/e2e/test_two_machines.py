"""examples/two_machines/compose.yaml as processes: two machines and a PostgreSQL in network namespaces, each with its own data folder."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from batos.errors import BatosError
from batos.wire import SyncClient
from tests.support.daemon import ROOT, until
from tests.support.servers import NOBODY, Postgres, folder_of_server, programs

COMPOSE = yaml.safe_load((ROOT / "examples" / "two_machines" / "compose.yaml").read_text("utf-8"))
NETWORK = "10.77.93"
ADDRESSES = {"db": f"{NETWORK}.1", "a": f"{NETWORK}.2", "b": f"{NETWORK}.3"}
LEASE_S, THINKING_S, WAIT_S = 2, 1.5, 90
SELLING_S, CALL_S, SHOP_PORT = 3, 8, 8090
OLLAMA = f"""
import threading, time
from batos.testing import ScriptedOllama
from tests.support.daemon import provisioned
with ScriptedOllama() as server:
    provisioned(server).say(lambda request: time.sleep({THINKING_S}) or "It is done.")
    print(server.host, flush=True)
    threading.Event().wait()
"""

ONCE = """
import sys
from pathlib import Path
from batos.image import effects
from tests.support.kernel_daemons import Fleet
image, ids = Fleet(Path(), sys.argv[1]), sys.argv[2:]
image.check_once(*ids)
for id in ids:
    states = [one.state for one in image.read(lambda root, id=id: effects.load(root, id))]
    assert states == (["DONE"] if id.endswith("order") else []), (id, states)
image.close()
"""
"""Program: each mission is COMPLETE once, by its history, with each inference once in the journal; an order has one act, which is done."""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


class Machines:
    """The services of the file, each in a network namespace of its own on one bridge."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._mark = folder, f"batos{os.getpid()}"
        self._started: list[subprocess.Popen[str]] = []
        self.kernels: dict[str, subprocess.Popen[str]] = {}
        self._ollamas: dict[str, str] = {}
        self._shop_said: list[str] = []

    def build(self) -> None:
        """Make the namespaces and the bridge between them, which no other network is connected to."""
        ip("netns", "add", self._name("hub"))
        ip("-n", self._name("hub"), "link", "add", "bridge", "type", "bridge")
        ip("-n", self._name("hub"), "link", "set", "bridge", "up")
        for name in COMPOSE["services"]:
            ip("netns", "add", self._name(name))
            ip("-n", self._name("hub"), "link", "add", f"to-{name}", "type", "veth", "peer", "name", "net", "netns", self._name(name))
            ip("-n", self._name("hub"), "link", "set", f"to-{name}", "master", "bridge", "up")
            ip("-n", self._name(name), "address", "add", f"{ADDRESSES[name]}/24", "dev", "net")
            for device in ("lo", "net"):
                ip("-n", self._name(name), "link", "set", device, "up")

    def remove(self) -> None:
        """End all that runs in them, and take them away."""
        for process in self._started:
            process.kill()
        for process in self._started:
            process.communicate()
        for name in ("hub", *COMPOSE["services"]):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", self._name(name))

    def _name(self, machine: str) -> str:
        return f"{self._mark}{machine}"

    def within(self, machine: str, *, nobody: bool = False) -> list[str]:
        """What runs a command on a machine: its network, and its host name."""
        told = COMPOSE["services"][machine].get("hostname", machine)
        who = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if nobody else []
        return ["ip", "netns", "exec", self._name(machine), "unshare", "--uts", "sh", "-c", f'hostname {told}; exec "$@"', "sh", *who]

    def run(self, machine: str, *words: str, **more: Any) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}
        command = [*self.within(machine), sys.executable, *words]
        with (self.folder / f"{machine}.log").open("a") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self._started.append(process)
        return process

    def connect(self, machine: str, connected: bool) -> None:
        """Plug a machine's network in, or pull it out."""
        ip("-n", self._name("hub"), "link", "set", f"to-{machine}", "up" if connected else "down")

    def start(self, machine: str, database: str) -> None:
        """Start the kernel of a machine, with an Ollama of its own, and return when it lets missions in."""
        if machine not in self._ollamas:
            ollama = self.run(machine, "-c", OLLAMA)
            assert ollama.stdout is not None
            self._ollamas[machine] = ollama.stdout.readline().strip()
        asked = {name: str(value) for name, value in COMPOSE["services"][machine]["environment"].items()}
        assert asked["BATOS_IMAGE_URI"] == "postgres://batos:change-me@db/image?keep_history=1"
        asked |= {"BATOS_IMAGE_URI": database, "BATOS_INFERENCE_HOST": self._ollamas[machine], "BATOS_IMAGE_LEASE_S": str(LEASE_S)}
        asked |= {"BATOS_DOORS_ENABLED": "off", "BATOS_AUTONOMY_MODE": "off"}
        words = ["-m", "batos", "run", "--data", str(self.folder / machine), "--listen", f"ipc://{self.folder / machine}.sock"]
        kernel = self.kernels[machine] = self.run(machine, *words, **asked)
        assert kernel.stdout is not None
        assert any("Give it a mission" in line for line in kernel.stdout), f"{machine} ended with {kernel.wait()}"

    def open_shop(self) -> None:
        """Open the shop of the example on the machine `db`, which both machines reach."""
        shop = str(ROOT / "examples" / "two_machines" / "shop.py")
        words = ("--host", ADDRESSES["db"], "--port", str(SHOP_PORT), "--seconds", str(SELLING_S), "--book", str(self.book))
        said = self.run("db", shop, *words).stdout
        assert said is not None
        threading.Thread(target=self._shop_said.extend, args=(said,), daemon=True).start()
        self.shop_says("shop at")

    @property
    def book(self) -> Path:
        """What the shop sold, a line each."""
        return self.folder / "orders.txt"

    def shop_says(self, *words: str) -> None:
        """Wait until the shop has said a line with these words."""
        until(lambda: any(all(word in line for word in words) for line in list(self._shop_said)), f"{words}, said by the shop")

    def check_once(self, database: str, *ids: str) -> None:
        """Each of these missions was done once, as the image says."""
        command = [*self.within("db"), sys.executable, "-c", ONCE, database, *ids]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr

    def ask(self, machine: str) -> SyncClient:
        return SyncClient(f"ipc://{self.folder / machine}.sock", timeout_s=20)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("setpriv") is None:
        pytest.skip("machines of their own need root, `ip` (iproute2) and `setpriv`")
    made = Machines(tmp_path)
    try:
        try:
            made.build()
        except subprocess.CalledProcessError as e:
            pytest.skip(f"network namespaces are not allowed here: {e.stderr.strip()}")
        yield made
    finally:
        made.remove()


@pytest.fixture
def database(machines: Machines) -> Iterator[str]:
    """The address of an empty database on the machine `db`."""
    asked = COMPOSE["services"]["db"]["environment"]
    assert (asked["POSTGRES_USER"], asked["POSTGRES_DB"]) == ("batos", "image")
    folder = folder_of_server()
    server = Postgres(programs(), folder, within=machines.within("db", nobody=True), host=ADDRESSES["db"])
    try:
        server.run("createdb", "image")
        yield server.address("image")
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)


def ended(client: SyncClient, ids: list[str]) -> None:
    end = time.monotonic() + WAIT_S
    left = set(ids)
    while left:
        assert time.monotonic() < end, f"these have not ended: {left}"
        for id in sorted(left):
            with contextlib.suppress(BatosError):
                if client.status(id)["state"] == "COMPLETE":
                    left.discard(id)
        time.sleep(0.1)


def under_way(machines: Machines, clients: dict[str, SyncClient], name: str) -> list[str]:
    """Have the machines think missions and order at the shop, and return the missions once the order is there; nothing is sold yet."""
    ids = [f"{name}-{n}" for n in range(4)]
    for id, client in zip(ids, itertools.cycle(clients.values()), strict=False):
        client.submit(f"Say that it is done: {id}", id=id, depth="direct")
    order = f"{name}-order"
    clients["b"].send("tools.shop", "post_", {"path": "/order", "body": {"for": order}}, id=order)
    machines.shop_says("asked for", order)
    return [*ids, order]


def machine_of(client: SyncClient, id: str) -> tuple[str, str]:
    """The machine whose kernel has a mission, and the other one."""
    mine = str(client.status(id)["kernel"]).partition(".")[0]
    return mine, {"a": "b", "b": "a"}[mine]


@pytest.mark.timeout(600)
def test_the_missions_of_a_machine_that_is_lost_go_on_at_the_other(machines: Machines, database: str) -> None:
    for name in ("a", "b"):
        machines.start(name, database)
    machines.open_shop()
    with machines.ask("a") as a, machines.ask("b") as b:
        keyed = {"key_header": "Idempotency-Key", "seconds": CALL_S, "private": True}
        a.tool_add("shop", "http", f"http://{ADDRESSES['db']}:{SHOP_PORT}", keyed, on="*")
        a.tool_grant("allow", "shop.post", leaks=True)
        until(lambda: [one["name"] for one in b.tools()["connections"]] == ["shop"], "the shop, at b")
        clients = {"a": a, "b": b}
        first = under_way(machines, clients, "first")
        lost, other = machine_of(b, first[-1])
        machines.kernels[lost].kill()
        ended(clients[other], first)
        machines.start(lost, database)
    with machines.ask("a") as a, machines.ask("b") as b:
        clients = {"a": a, "b": b}
        second = under_way(machines, clients, "second")
        lost, other = machine_of(b, second[-1])
        machines.connect(lost, False)
        ended(clients[other], second)
        machines.connect(lost, True)
        ended(clients[lost], [*first, *second])
        clients[lost].submit("Say that it is done once more", id="third", depth="direct")
        ended(clients[other], ["third"])
        orders = [first.pop(), second.pop()]
        for id in (*first, *second, "third"):
            assert a.result(id)["text"] == b.result(id)["text"] == "It is done."
        for id in orders:
            assert a.status(id)["attempts"] == b.status(id)["attempts"] == 2, "its machine was lost, and the other one went on"
    assert sorted(json.loads(line)["for"] for line in machines.book.read_text().splitlines()) == orders
    machines.check_once(database, *first, *second, "third", *orders)
