"""Who may ask what: the role of a key, of a local user, of this machine's clients; and the paths that each may name."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from batos.cli import main
from batos.config import Settings
from batos.errors import ConfigError
from batos.wire import ClientKeys, keys
from batos.wire.fields import ROLES, Role
from batos.wire.payloads import PayloadLimits, parse_request
from batos.wire.schemas import OPS
from tests.support.wire import ask, listening, raw

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
EXAMPLES = [
    json.loads(line)
    for block in re.findall(r"```json\n(.*?)```", PAGE, re.S)
    for line in re.sub(r"\n +", " ", block).splitlines()
    if '"op"' in line
]


ACTING = (
    "tool_add", "tool_describe", "tool_test", "tool_accept", "tool_remove", "tool_offer", "tool_withdraw", "tools_resume", "tool_grant",
    "tool_ungrant", "effect_settle",
)  # fmt: skip


class Ring:
    """A daemon's keys, and clients of each role."""

    def __init__(self, folder: Path) -> None:
        self.folder, (secret, self.server) = folder, keys.create(folder / "own", "server")
        self.clients = folder / "clients"
        self.settings: dict[str, Any] = {
            "curve_secret": str(secret), "curve_clients": str(self.clients), "data": folder / "data", "curve_look_s": 0.05
        }  # fmt: skip

    def client(self, name: str, role: Role | None = None) -> ClientKeys:
        return ClientKeys.load(keys.create(self.folder, name, self.clients, role=role)[0], self.server)


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path)


@contextlib.asynccontextmanager
async def with_key(endpoint: str, own: ClientKeys) -> AsyncIterator[zmq.asyncio.Socket]:
    options = {"CURVE_PUBLICKEY": own.own.public, "CURVE_SECRETKEY": own.own.secret, "CURVE_SERVERKEY": own.server}
    async with raw(zmq.DEALER, endpoint, **options) as socket:
        yield socket


def needed(example: dict[str, Any]) -> Role:
    return parse_request(json.dumps(example).encode(), PayloadLimits.of(Settings())).role


@pytest.mark.parametrize("role", ROLES)
async def test_each_operation_is_for_those_whose_role_is_enough(ring: Ring, role: Role) -> None:
    async with (
        listening(**ring.settings, folders=("/home/you", "/srv")) as (listener, handler),
        with_key(listener.bound[0], ring.client(role, role)) as dealer,
    ):
        for example in EXAMPLES:
            before, reply = len(handler.requests), await ask(dealer, {**example, "ref": "r"})
            enough = ROLES.index(role) >= ROLES.index(needed(example))
            assert reply.get("code") == (None if enough else "role_refused"), (example, reply)
            assert len(handler.requests) - before == enough, "what is refused reaches nobody"


def test_who_only_gives_missions_cannot_do_what_an_operator_does() -> None:
    for op in ("ingest", "backup", "fork", "pack", "undo", "undo_change", "teach", "revert", "curate", *ACTING):
        assert OPS[op].least_role == "operate", op
    for example in ({"op": "memory", "forget": "/n"}, {"op": "models", "ensure": True}, {"op": "experts", "scan": True}):
        assert needed(example) == "operate"
    assert needed({"op": "memory"}) == needed({"op": "models"}) == "read"


def test_an_operation_that_does_not_say_whose_it_is_is_an_operators() -> None:
    from batos.wire.fields import Request

    assert Request.least_role == "operate"


async def test_a_new_key_may_give_missions_and_no_more(ring: Ring) -> None:
    async with listening(**ring.settings) as (listener, _), with_key(listener.bound[0], ring.client("anna")) as dealer:
        assert "code" not in await ask(dealer, {"op": "submit", "id": "m", "brief": "b"})
        refused = await ask(dealer, {"op": "pack"})
        assert (refused["code"], "batos keys role" in refused["message"]) == ("role_refused", True)


async def test_another_role_holds_on_open_connections_too(ring: Ring) -> None:
    async with listening(**ring.settings) as (listener, _), with_key(listener.bound[0], ring.client("anna", "operate")) as dealer:
        assert "code" not in await ask(dealer, {"op": "pack"})
        keys.give_role(ring.clients, "anna", "read")
        while (await ask(dealer, {"op": "pack"})).get("code") != "role_refused":
            pass  # until the daemon's next look into the folder
        assert "code" not in await ask(dealer, {"op": "info"})


def test_a_role_that_there_is_not_lets_nobody_in(ring: Ring) -> None:
    ring.client("anna", "operate")
    path = ring.clients / "anna.key"
    path.write_text(path.read_text().replace("operate", "opreate"))
    assert keys.Clients(ring.clients).known() == {}


def test_keys_of_other_programs_have_the_role_of_new_ones(ring: Ring) -> None:
    from zmq.auth import create_certificates

    ring.clients.mkdir()
    create_certificates(ring.clients, "plain")
    by_hand, _ = create_certificates(ring.clients, "named")
    Path(by_hand).write_text(Path(by_hand).read_text().replace("metadata\n", "metadata\n    role = read\n"))
    known = keys.Clients(ring.clients).known().values()
    assert {client.name: client.role for client in known} == {"plain": "submit", "named": "read"}


async def test_the_daemons_own_user_at_a_local_socket_may_do_all(ring: Ring, tmp_path: Path) -> None:
    local = f"ipc://{tmp_path}/s"
    async with listening(endpoint=local, **ring.settings) as _, with_key(local, ring.client("anna", "read")) as dealer:
        assert "code" not in await ask(dealer, {"op": "pack"}), "he can do by himself what the daemon can"
    async with listening(endpoint=local, local_role="read") as _, raw(zmq.DEALER, local) as dealer:
        assert "code" not in await ask(dealer, {"op": "pack"})


@pytest.mark.parametrize("role", ROLES)
async def test_clients_of_this_machine_have_the_role_of_the_setting(role: Role) -> None:
    async with listening(local_role=role) as (listener, _), raw(zmq.DEALER, listener.bound[0]) as dealer:
        codes = [(await ask(dealer, {"op": op, "id": "m", "brief": "b"} if op == "submit" else {"op": op})).get("code") for op in _ONE_EACH]
    assert codes == [None if ROLES.index(role) >= at else "role_refused" for at in range(3)]


_ONE_EACH = ("info", "submit", "pack")  # for each role an operation that needs it


# --- paths


async def named(endpoint: str, own: ClientKeys | None, *requests: dict[str, Any]) -> list[str | None]:
    """What becomes of requests that name paths: the codes."""
    async with with_key(endpoint, own) if own else raw(zmq.DEALER, endpoint) as dealer:
        return [(await ask(dealer, request)).get("code") for request in requests]


NAMING = 6


def naming(path: Path | str) -> list[dict[str, Any]]:
    one = str(path)
    program = {"name": "desk", "way": "program", "place": f"'{one}' {{title}}"}
    return [
        {"op": "ingest", "paths": [one]},
        {"op": "ingest", "follow": [one]},
        {"op": "fork", "folder": one},
        {"op": "backup", "folder": one},
        {"op": "tool_add", "name": "desk", "kind": "program", "place": f"'{one}' {{text}}"},
        {"op": "notice_add", **program},
    ]


@pytest.mark.parametrize("mark", ["", ":ro", ":rw"])
async def test_the_folders_of_a_program_are_named_too(ring: Ring, tmp_path: Path, mark: str) -> None:
    (data := tmp_path / "data").mkdir()
    own = ring.client("kim", "operate")
    async with listening(**ring.settings) as (listener, _):
        for op, more in (
            ("tool_add", {"name": "desk", "kind": "program", "place": f"{data}/tell"}),
            ("tool_describe", {"kind": "usage", "source": f"{data}/tell"}),
            ("notice_add", {"name": "desk", "way": "program", "place": f"{data}/tell"}),
        ):
            for folder, refused in ((f"{data}/x", None), (tmp_path, "path_refused"), ("/", "path_refused")):
                asked = {"op": op, **more, "options": {"folders": [f"{data}", f"{folder}{mark}"]}}
                assert await named(listener.bound[0], own, asked) == [refused], (op, folder)


async def test_with_keys_only_the_data_folder_and_named_ones_may_be_named(ring: Ring, tmp_path: Path) -> None:
    data, notes, other = tmp_path / "data", tmp_path / "notes", tmp_path / "other"
    for folder in (data, notes, other):
        folder.mkdir()
    (notes / "out").symlink_to(other)
    own = ring.client("anna", "operate")
    async with listening(**ring.settings, folders=(str(notes),)) as (listener, handler):
        bound = listener.bound[0]
        for fine in (data / "forks" / "f", notes, notes / "deep" / "in"):
            assert await named(bound, own, *naming(fine)) == [None] * NAMING, fine
        before = len(handler.requests)
        for outside in (other, notes / "out" / "x", notes / ".." / "other", "/etc/passwd", f"{notes}x", "/"):
            assert await named(bound, own, *naming(outside)) == ["path_refused"] * NAMING, outside
        assert len(handler.requests) == before, "what is refused reaches nobody"
        assert await named(bound, own, {"op": "backup"}, {"op": "backup", "folder": "weekly"}) == [None, None]
        assert await named(bound, own, {"op": "backup", "folder": "../../other"}) == ["path_refused"]


@pytest.mark.parametrize("folders", [(), ("/srv/notes",)])
async def test_without_keys_who_is_not_the_daemons_own_user_is_bounded_too(tmp_path: Path, folders: tuple[str, ...]) -> None:
    local = f"ipc://{tmp_path}/s"
    settings: dict[str, Any] = {"folders": folders, "data": tmp_path / "data"}
    async with listening(**settings) as (listener, _):
        bound = listener.bound[0]
        assert await named(bound, None, *naming(tmp_path)) == ["path_refused"] * NAMING
        assert await named(bound, None, *naming(tmp_path / "data" / "x")) == [None] * NAMING
    async with listening(endpoint=local, **settings) as _:
        assert await named(local, None, *naming(tmp_path)) == [None] * NAMING


def test_a_folder_is_named_by_an_absolute_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/kim")
    assert Settings(folders="~/notes, /srv").folders == ("/home/kim/notes", "/srv")
    with pytest.raises(ValueError, match="not an absolute path"):
        Settings(folders="notes")


# --- the command line


def test_a_role_is_given_and_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(tmp_path)]
    assert main(["keys", "new", *data]) == 0
    assert "give missions" in capsys.readouterr().out
    assert main(["keys", "new", "anna", "operate", *data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["role"] == "operate"
    assert main(["keys", "role", "anna", "read", *data]) == 0
    assert "look at everything" in capsys.readouterr().out
    assert main(["keys", "list", *data, "--json"]) == 0
    assert {one["name"]: one["role"] for one in json.loads(capsys.readouterr().out)["clients"]} == {"anna": "read", "client": "submit"}
    for wrong in (["role", "anna"], ["role", "anna", "root"], ["new", "bert", "opperate"], ["list", "anna"]):
        assert main(["keys", *wrong, *data]) == 2
    with pytest.raises(ConfigError, match="no key in"):
        keys.give_role(tmp_path / "keys" / "clients", "nobody", "read")
