"""Program connections: fixed arguments, a jail, bounded output, and nothing that runs without leave or outlives its call."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import InvalidInput, ToolFailed
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolLimits, check_definitions
from batos.tools.effects import end_process, process_start
from batos.tools.programs import OUTPUT_BYTES, WAITING, CommandTemplate, ProgramConnector, ProgramStopped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
SECRETS = {"token": "t0p-s3cret"}


def secret(name: str) -> str:
    if name not in SECRETS:
        raise InvalidInput(f"the secret {name} is not set; set it with `batos secrets set {name}`")
    return SECRETS[name]


class Runner:
    """Connectors of one test, closed at its end."""

    def __init__(self, folder: Path) -> None:
        self.services = ConnectorServices(secret=secret, folder=folder, limits=ToolLimits(call_s=20))
        self.made: list[ProgramConnector] = []

    def connector(self, place: str, **options: Any) -> ProgramConnector:
        made = ProgramConnector(ConnectionSpec("prog", "program", place, options), self.services)
        self.made.append(made)
        return made

    async def prepare(self, place: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        connector = self.connector(place, **options)
        tools = await connector.tools()
        return await connector.prepare(tools[0], arguments or {})

    async def run(self, place: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        return await (await self.prepare(place, arguments, **options)).send(Delivery("k"))


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[Runner]:
    made = Runner(tmp_path)
    yield made
    for connector in made.made:
        await connector.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(condition: Any, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return bool(condition())


# --- the template


def test_a_template_says_its_parameters() -> None:
    template = CommandTemplate.parse("tool --to={to?} '{a} and {b}' {a}")
    assert template.names == ("to", "a", "b")
    assert template.required == {"a", "b"}
    assert template.fill({"a": "x y; $(rm)", "b": 3}) == ["tool", "x y; $(rm) and 3", "x y; $(rm)"]
    assert template.fill({"a": "1", "b": "2", "to": "-z"}) == ["tool", "--to=-z", "1 and 2", "1"]


@pytest.mark.parametrize(
    "place",
    [
        "",
        "'",
        "{prog} x",
        "ls {1}",
        "ls {a-b}",
        "ls {a",
        "curl {secret:token}",
        "sh -c {x}",
        "/bin/bash -ec 'ls {x}'",
        "fish --command {x}",
        "fish --command={x}",
        "fish --com 'ls {x}'",
        "fish -C {x}",
        "fish --init-command 'ls; {x}'",
        "fish -c'ls {x}'",
    ],
)
def test_a_command_that_is_not_valid_is_refused(runner: Runner, place: str) -> None:
    with pytest.raises(InvalidInput):
        runner.connector(place)


@pytest.mark.parametrize(
    "options",
    [
        {"claases": {}},
        {"classes": {"run": "keyed"}},
        {"classes": {"walk": "reads"}},
        {"network": "yes"},
        {"env": {"A B": "x"}},
        {"env": {"A": 1}},
        {"folders": ["notes"]},
        {"folders": "/tmp"},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"memory_mib": True},
    ],
)
def test_an_option_that_is_not_valid_is_refused(runner: Runner, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        runner.connector("true", **options)


@pytest.mark.parametrize("value", ["-rf", "--help", "-"])
def test_a_value_is_never_an_option(value: str) -> None:
    with pytest.raises(InvalidInput, match="begins with -"):
        CommandTemplate.parse("rm {file}").fill({"file": value})
    with pytest.raises(InvalidInput, match="begins with -"):
        CommandTemplate.parse("rm {a}{b}").fill({"a": "", "b": value})
    assert CommandTemplate.parse("rm -- {file}").fill({"file": value})[-1] == value
    assert CommandTemplate.parse("rm --f={file}").fill({"file": value})[-1] == f"--f={value}"
    assert CommandTemplate.parse("rm {file}", dashes=True).fill({"file": value})[-1] == value


@pytest.mark.parametrize("arguments", [{}, {"a": None}, {"a": "x\0y"}, {"a": "\ud800"}, {"a": "x" * 40_000}])
def test_a_value_that_cannot_be_passed_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        CommandTemplate.parse("echo {a}").fill(arguments)


# --- a run


async def test_the_tool_has_a_parameter_for_each_placeholder(runner: Runner) -> None:
    tools = await runner.connector("echo {a} {b?}", classes={"run": "reads"}).tools()
    check_definitions("prog", tools, runner.services.limits)
    assert tools[0].parameters["required"] == ["a"]
    assert list(tools[0].parameters["properties"]) == ["a", "b"]
    assert (tools[0].kind, tools[0].outward, tools[0].untrusted) == ("reads", False, True)


async def test_a_value_stays_one_argument(runner: Runner) -> None:
    nasty = "a b'\"; echo $(id) `id` * \n|&"
    found = await runner.run("printf [%s] {x} {y}", {"x": nasty, "y": "2"})
    assert found == {"exit": 0, "stdout": f"[{nasty}][2]"}


async def test_its_payload_and_process_are_known_before_it_runs(runner: Runner, tmp_path: Path) -> None:
    call = await runner.prepare("touch {file}", {"file": str(tmp_path / "made")}, folders=[str(tmp_path)])
    pid, start = call.process.split()
    assert process_start(int(pid)) == start
    assert os.getpgid(int(pid)) == int(pid)
    assert call.payload == f"touch {tmp_path}/made"
    assert not (tmp_path / "made").exists()
    await call.send(Delivery("k"))
    assert (tmp_path / "made").exists()


async def test_what_is_not_sent_never_runs(runner: Runner, tmp_path: Path) -> None:
    connector = runner.connector("touch {file}", folders=[str(tmp_path)])
    tool = (await connector.tools())[0]
    calls = [await connector.prepare(tool, {"file": f"{tmp_path}/f{n}"}) for n in range(WAITING + 2)]
    assert await until(lambda: not alive(int(calls[0].process.split()[0]))), "the oldest is ended"
    with pytest.raises(ToolFailed, match="did not run") as refused:
        await calls[0].send(Delivery("k"))
    assert refused.value.sure
    await connector.close()
    assert await until(lambda: not any(alive(int(call.process.split()[0])) for call in calls))
    assert list(tmp_path.iterdir()) == []


async def test_a_call_can_be_sent_again(runner: Runner, tmp_path: Path) -> None:
    call = await runner.prepare("mktemp -p {folder}", {"folder": str(tmp_path)}, folders=[str(tmp_path)])
    await call.send(Delivery("k"))
    await call.send(Delivery("k"))
    assert len(list(tmp_path.iterdir())) == 2


async def test_a_nonzero_exit_code_is_the_tools_own_answer(runner: Runner) -> None:
    with pytest.raises(ToolFailed, match=r"exit code 3: .*went wrong") as failed:
        await runner.run("sh -c 'echo it went wrong >&2; exit 3'")
    assert (failed.value.sure, failed.value.context["exit"]) == (False, 3)


async def test_an_end_by_a_signal_leaves_it_open(runner: Runner) -> None:
    with pytest.raises(ProgramStopped, match="SIGSEGV"):
        await runner.run("sh -c 'kill -SEGV $$'")


async def test_a_program_that_is_missing_surely_did_not_run(runner: Runner, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    for place, why in (("no-such-program", "not there"), (str(plain), "chmod"), ("./x", "absolute")):
        with pytest.raises(ToolFailed, match=why) as failed:
            await runner.connector(place).tools()
        assert failed.value.sure


async def test_a_program_that_vanishes_before_it_is_sent_surely_did_not_run(runner: Runner, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(ToolFailed, match="did not run") as failed:
        await runner.run(str(script))
    assert failed.value.sure
    call = await runner.prepare(str(script))
    script.unlink()
    with pytest.raises(ToolFailed, match="did not run"):
        await call.send(Delivery("k"))


async def test_output_is_bounded(runner: Runner) -> None:
    found = await runner.run("sh -c 'yes | head -c 50000000; yes e | head -c 9000000 >&2'")
    assert found["stdout"] == "y\n" * (OUTPUT_BYTES // 2)
    assert "beginning" in found["cut"]
    assert len(found["stderr"]) == 2000


async def test_its_input_is_empty_and_its_environment_too(runner: Runner) -> None:
    assert (await runner.run("cat"))["stdout"] == ""
    assert (await runner.run("env"))["stdout"] == ""


async def test_secrets_are_given_by_environment_and_never_come_back(runner: Runner) -> None:
    found = await runner.run("sh -c 'printf \"$TOKEN\" | wc -c; echo $TOKEN; echo $TOKEN >&2'", env={"TOKEN": "Bearer {secret:token}"})
    assert found["stdout"] == "17\nBearer [secret]\n"
    assert "t0p" not in found["stderr"]
    with pytest.raises(InvalidInput, match="batos secrets set other"):
        await runner.prepare("env", env={"TOKEN": "{secret:other}"})


# --- the jail


async def test_only_its_folders_can_be_read_and_changed(runner: Runner, tmp_path: Path) -> None:
    for name in ("open", "shown", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "note").write_text(name)
    (tmp_path / "open" / "link").symlink_to(tmp_path / "hidden" / "note")
    folders = [f"{tmp_path}/open", f"{tmp_path}/shown:ro"]
    assert (await runner.run("cat {a} {b}", {"a": f"{tmp_path}/open/note", "b": f"{tmp_path}/shown/note"}, folders=folders))[
        "stdout"
    ] == "openshown"
    for place in (f"{tmp_path}/hidden/note", f"{tmp_path}/open/link", "/etc/shadow", f"/proc/{os.getpid()}/environ"):
        with pytest.raises(ToolFailed, match=r"exit code 1.*(denied|No such)"):
            await runner.run("cat {a}", {"a": place}, folders=folders)
    with pytest.raises(ToolFailed, match=r"Permission denied(?s:.)*its options `folders` and `network`"):
        await runner.run("cat {a}", {"a": f"{tmp_path}/hidden/note"}, folders=folders)
    for place in ("shown/note", "hidden/note", "open/link", "new"):
        with pytest.raises(ToolFailed, match="exit code"):
            await runner.run("cp /usr/bin/env {a}", {"a": f"{tmp_path}/{place}"}, folders=folders)
    await runner.run("cp /usr/bin/env {a}", {"a": f"{tmp_path}/open/note"}, folders=folders)
    assert (tmp_path / "hidden" / "note").read_text() == "hidden"


@pytest.mark.parametrize("kind", ["AF_INET", "AF_UNIX", "AF_NETLINK"])
async def test_there_is_no_network_unless_it_is_said(runner: Runner, kind: str) -> None:
    place = f"/usr/bin/env python3 -c 'import socket; socket.socket(socket.{kind}, socket.SOCK_DGRAM)'"
    if shutil.which("python3", path="/usr/bin") is None:
        pytest.skip("there is no system Python to try with")
    place = place.replace("/usr/bin/env python3", "/usr/bin/python3")
    with pytest.raises(ToolFailed, match="not permitted"):
        await runner.run(place)
    assert (await runner.run(place, network=True))["exit"] == 0


async def test_it_cannot_signal_others_nor_leave_its_group(runner: Runner) -> None:
    with pytest.raises(ToolFailed, match="exit code"):
        await runner.run("sh -c 'kill -0 {pid}'".replace("{pid}", str(os.getpid())))
    with pytest.raises(ToolFailed, match="exit code"):
        await runner.run("setsid true")


async def test_what_it_leaves_behind_ends_with_it(runner: Runner) -> None:
    found = await runner.run("sh -c 'sleep 1000 & echo $!'")
    assert await until(lambda: not alive(int(found["stdout"])))


async def test_a_run_that_is_given_up_ends_with_its_children(runner: Runner, tmp_path: Path) -> None:
    script = "sh -c 'trap \"\" TERM HUP INT; sleep 1000 & echo $! > {0}/pid.part; mv {0}/pid.part {0}/pid; wait'".replace(
        "{0}", str(tmp_path)
    )
    call = await runner.prepare(script, folders=[str(tmp_path)])
    sending = asyncio.create_task(call.send(Delivery("k")))
    assert await until((tmp_path / "pid").exists)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    leader, grandchild = int(call.process.split()[0]), int((tmp_path / "pid").read_text())
    assert await until(lambda: not alive(leader) and not alive(grandchild))


async def test_a_restart_ends_the_whole_group_by_the_record(runner: Runner, tmp_path: Path) -> None:
    script = "sh -c 'sleep 1000 & echo $! > {0}/pid.part; mv {0}/pid.part {0}/pid; wait'".replace("{0}", str(tmp_path))
    call = await runner.prepare(script, folders=[str(tmp_path)])
    sending = asyncio.create_task(call.send(Delivery("k")))
    assert await until((tmp_path / "pid").exists)
    end_process(call.process)
    with pytest.raises(ProgramStopped):
        await sending
    grandchild = int((tmp_path / "pid").read_text())
    assert await until(lambda: not alive(grandchild)), "the kernel ends a group's processes one after another"


async def test_a_killed_launcher_takes_its_program_along_and_leaves_it_open(runner: Runner) -> None:
    call = await runner.prepare("sleep 1000")
    sending = asyncio.create_task(call.send(Delivery("k")))
    pid = int(call.process.split()[0])
    children = Path(f"/proc/{pid}/task/{pid}/children")
    assert await until(lambda: bool(children.read_text().split()))
    child = int(children.read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProgramStopped):
        await sending
    assert await until(lambda: not alive(child))
