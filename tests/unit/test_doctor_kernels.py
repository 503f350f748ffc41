"""What `batos doctor` and `batos kernels` say of the kernels of an image, and where a kernel tells others to reach it."""

from __future__ import annotations

from typing import Any

import pytest

from batos.doctor.kernels import found_of
from batos.wire.endpoints import to_tell
from tests.support.cli import batos

KERNEL = {
    "name": "a.1", "host": "a", "state": "leads", "leads": True, "draining": False, "gone": None, "began": 1.0, "ended": None,
    "endpoint": "tcp://a:5757", "doors": None, "version": "1.0", "codex": "c", "profile": None, "missions": 2, "models": ["robin"],
    "unfit": [], "unreached": None,
}  # fmt: skip


def kernels(**more: Any) -> dict[str, Any]:
    other = {**KERNEL, "name": "b.2", "state": "works", "leads": False, **more}
    return {"type": "kernels", "name": "a.1", "draining": False, "kernels": [KERNEL, other]}


def test_nothing_is_said_of_a_daemon_that_has_its_image_to_itself() -> None:
    assert found_of({"name": "", "draining": False, "kernels": []}) == []


@pytest.mark.parametrize(
    ("more", "state", "words"),
    [
        ({}, "ok", "2 kernels serve the image; a.1 leads"),
        ({"gone": "silent", "state": "gone"}, "ok", "1 kernel serves the image; a.1 leads"),
        ({"unfit": ["it lacks robin:embedded"]}, "warn", "b.2 takes up no missions: it lacks robin:embedded"),
        ({"unreached": "nobody answers"}, "warn", "b.2 is not reached from here: nobody answers"),
        ({"draining": True}, "warn", "b.2 takes up no missions: it drains"),
    ],
)
def test_a_kernel_that_is_not_as_it_should_be_is_named_with_the_remedy(more: dict[str, Any], state: str, words: str) -> None:
    (check,) = found_of(kernels(**more))
    assert (check.state, check.finding) == (state, words)
    assert bool(check.remedy) is (state == "warn")


def test_it_is_said_that_nobody_leads() -> None:
    told = kernels()
    told["kernels"][0] = {**KERNEL, "leads": False}
    assert "none of 2 kernels leads" in found_of(told)[0].finding


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        ([], ""),
        (["ipc:///run/a.sock"], "ipc:///run/a.sock"),
        (["ipc:///run/a.sock", "tcp://0.0.0.0:5757"], "tcp://alder:5757"),
        (["tcp://[::]:5757"], "tcp://alder:5757"),
        (["tcp://127.0.0.1:5757", "tcp://192.0.2.7:5757"], "tcp://192.0.2.7:5757"),
        (["tcp://127.0.0.1:5757", "tcp://[::1]:5757"], "tcp://127.0.0.1:5757"),
    ],
)
def test_a_kernel_tells_the_endpoint_that_other_machines_reach_best(bound: list[str], told: str) -> None:
    assert to_tell(bound, "alder") == told


def test_the_verb_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({"kernels": kernels(gone="silent", state="gone", ended=2.0)}, "kernels")[0] == 0
    out = capsys.readouterr()
    assert "a.1 *" in out.out
    assert "b.2 is gone: silent" in out.out + out.err
    assert batos({"kernels": {"type": "kernels", "name": "", "draining": False, "kernels": []}}, "kernels")[0] == 0
    out = capsys.readouterr()
    assert "to itself" in out.out + out.err
