"""Settings: where they come from, what they may be, how they refuse."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import re
from pathlib import Path
from typing import Any

import pytest

from batos import config
from batos.app.kernel import Kernel
from batos.cli import main
from batos.config import client_folder, former, local_endpoint, validators
from batos.errors import BatosError, ConfigError
from batos.guardian import policy_named
from batos.guardian.allowlist import CAPABILITIES
from batos.guardian.policy import POLICIES
from batos.memory.curator import CuratorLimits

FILES = (
    "data", "inference.modelfiles", "missions.codex", "inference.staging", "backup.folder", "wire.secret_key", "wire.client_keys",
    "wire.client_key", "wire.server_key", "memory.embedder_folder",
)  # fmt: skip
"""Settings that name a file or folder, in which ~ is a user's home."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def load(flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None, **more: Any) -> config.Settings:
    return config.load(flags, environ=environ or {}, **more)


def test_flag_before_environment_before_file_before_default(tmp_path: Path) -> None:
    (tmp_path / "cwd" / "batos.toml").write_text("[missions]\nqueue = 1\ninferences = 1\nattempts = 30\n")
    environ = {"BATOS_MISSIONS_QUEUE": "2", "BATOS_MISSIONS_INFERENCES": "2"}
    settings, sources = config.load_with_sources({"missions.queue": 3}, environ=environ)
    missions = settings.missions
    assert (missions.queue, missions.inferences, missions.attempts, missions.concurrent) == (3, 2, 30, 4)
    assert sources["missions.queue"] == "flag"
    assert sources["missions.inferences"] == "BATOS_MISSIONS_INFERENCES"
    assert sources["missions.attempts"] == str(tmp_path / "cwd" / "batos.toml")
    assert sources["missions.concurrent"] == "default"
    assert settings.notes == ()


def test_sequences_that_end_an_answer_may_hold_anything() -> None:
    assert load(environ={"BATOS_STOP": "END, now"}).stop == ("END, now",)
    assert load({"stop": '["\\n\\n", "User:"]'}).stop == ("\n\n", "User:")
    for wrong in ('[""]', "[", "[3]"):
        with pytest.raises(ConfigError, match=r"setting 'inference\.stop'"):
            load({"stop": wrong})


def test_further_ollamas_are_a_list() -> None:
    assert load(environ={"BATOS_OLLAMA_HOSTS": "a:1, b:2"}).ollama_hosts == ("a:1", "b:2")
    assert load({"ollama_hosts": "a"}).ollama_hosts == ("a",)


def test_the_file_in_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "batos.toml").write_text("mission_attempts = 30\n")
    assert load({"data": str(tmp_path)}).mission_attempts == 30
    assert load(environ={"BATOS_DATA": str(tmp_path)}).mission_attempts == 30
    assert load().mission_attempts == 3


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("mission_attempts = 31\n")
    assert load(config_file=other).mission_attempts == 31
    assert load(environ={"BATOS_CONFIG": str(other)}).mission_attempts == 31
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load(config_file=tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="'' names no settings file"):
        load(config_file="")


@pytest.mark.parametrize("text", [b"mission_attempts = ", b"\xff\xfe", b"= 3"])
def test_a_file_that_is_no_toml(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "cwd" / "batos.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=r"batos\.toml"):
        load()


def test_a_folder_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(config_file=tmp_path)


def test_a_key_that_is_no_setting_names_the_nearest(tmp_path: Path) -> None:
    for text, name, likely in (
        ("listn = 'x'", "listn", "wire.listen"),
        ("[missions]\nquue = 3", "missions.quue", "missions.queue"),
        ("[mission]\nqueue = 3", "mission.queue", "missions.queue"),
        ("[inference]\nqueue = 3", "inference.queue", "missions.queue"),
        ("[inference]\nnum_ctx = 3", "inference.num_ctx", "inference.window"),
        ("quue_limit = 3", "quue_limit", "missions.queue"),
    ):
        (tmp_path / "cwd" / "batos.toml").write_text(text + "\n")
        with pytest.raises(ConfigError, match=rf"unknown setting '{name}' in .*batos\.toml \(did you mean '{likely}'\?\)"):
            load()
    (tmp_path / "cwd" / "batos.toml").unlink()
    with pytest.raises(ConfigError, match=r"unknown setting 'missions\.quue' \(did you mean 'missions\.queue'\?\); `batos config` lists"):
        load({"missions.quue": "3"})


def test_a_section_is_no_value(tmp_path: Path) -> None:
    (tmp_path / "cwd" / "batos.toml").write_text("missions = 3\n")
    with pytest.raises(ConfigError, match=r"'missions' in .*batos\.toml is a section.*write \[missions\]"):
        load()
    (tmp_path / "cwd" / "batos.toml").write_text("[missions]\nqueue = {most = 3}\n")
    with pytest.raises(ConfigError, match=r"setting 'missions\.queue' \(from .*batos\.toml\)"):
        load()


def test_variables_that_are_no_settings() -> None:
    environ = {"BATOS_LISTN": "x", "BATOS_DATA": "x", "BATOS_CONFIG": "x", "BATOS_ZZZZ": "1", "OTHER": "1"}
    assert config.unknown_variables(environ) == ["BATOS_LISTN (did you mean 'BATOS_WIRE_LISTEN'?)", "BATOS_ZZZZ"]


def test_an_unfit_value_names_setting_and_source() -> None:
    with pytest.raises(ConfigError, match=r"setting 'missions\.queue' \(from BATOS_MISSIONS_QUEUE\).*integer.*'many'"):
        load(environ={"BATOS_MISSIONS_QUEUE": "many"})
    with pytest.raises(ConfigError, match=r"setting 'missions\.queue' \(from BATOS_QUEUE_LIMIT\).*integer.*'many'"):
        load(environ={"BATOS_QUEUE_LIMIT": "many"})


def test_a_policy_is_one_that_the_guardian_has() -> None:
    assert (set(validators.POLICIES), set(validators.CAPABILITIES)) == (set(POLICIES), set(CAPABILITIES) - {"sealed"})  # of plans alone
    for name in ("strict", "default+files", "default+files+network"):
        assert policy_named(load({"guardian_policy": name}).guardian_policy)
    for name in ("foo", "default+foo", "default+", "+files"):
        with pytest.raises(ValueError, match="there are"):
            policy_named(name)
        with pytest.raises(ConfigError, match=r"'methods\.policy' \(from flag\).*there are"):
            load({"guardian_policy": name})


@pytest.mark.parametrize("verb", ["run", "config", "doctor"])
def test_a_policy_that_is_none_is_wrong_usage_of_every_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--set", "methods.policy=foo"]) == 2
    assert capsys.readouterr().err.startswith("config: setting 'methods.policy'")


@pytest.mark.parametrize(
    "row", [row for row in config.table() if " to " in row.limits and not row.limits.startswith(">")], ids=lambda row: row.name
)
def test_every_limit_holds_at_the_limit_and_one_beyond(row: config.SettingRow) -> None:
    low, high = (float(word) if "." in word else int(word) for word in row.limits.split(" to "))
    for value in (low, high):
        assert load({row.name: value}).value(row.name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=row.name):
            load({row.name: value})


@pytest.mark.parametrize("name", former.LIMITS)
def test_a_limit_is_given_under_its_former_name_within_its_bounds(name: str) -> None:
    kind, field = former.kind_of(name)
    default = load().value(name)
    assert default == getattr(kind(), field)
    bounds = next(one.metadata for one in dataclasses.fields(kind) if one.name == field)
    fitting = {
        "chunk_smallest": {"chunk_largest": 100_000}, "chunk_largest": {"chunk_smallest": 20},
        "trigger_recent_s": {"trigger_window_s": 366 * 86400}, "trigger_window_s": {"trigger_recent_s": 0.05},
    }.get(name, {})  # fmt: skip
    for value in (bounds[way] for way in ("ge", "le") if way in bounds):
        settings = load({**fitting, name: str(value)})
        assert getattr(kind.of(settings), field) == settings.value(name) == value
        assert any(note.startswith(f"{name} (from flag) is no longer a setting") for note in settings.notes)
    wrong = [bounds[way] + step for way, step in (("ge", -1), ("gt", 0), ("le", 1), ("lt", 0)) if way in bounds]
    for value in wrong or (["nonsense"] if former.type_name(name) == "choice" else []):
        with pytest.raises(ConfigError, match=rf"setting '{name}' \(from flag\): .*; got "):
            load({name: value})
    if bounds:
        with pytest.raises(ConfigError, match=rf"setting '{name}' \(from flag\): true and false are not numbers"):
            load({name: True})


@pytest.mark.parametrize("name", former.RENAMED)
def test_a_setting_is_given_under_its_former_name_with_a_warning(name: str, tmp_path: Path) -> None:
    now = former.RENAMED[name]
    value = SOME.get(now) or load().value(now) or "a:1"
    settings, sources = config.load_with_sources({name: value}, environ={})
    assert settings.value(now) == settings.value(name) == load({now: value}).value(now)
    assert sources[now] == "flag"
    assert [note for note in settings.notes if note.startswith(f"{name} (from flag) is a former name of {now}; write {now}")]
    assert load({now: value}).notes == ()
    assert config.Settings.model_validate({name: value}).value(now) == settings.value(now)
    variable, former_variable = (f"BATOS_{one.replace('.', '_').upper()}" for one in (now, name))
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    settings, sources = config.load_with_sources(environ={former_variable: text})
    assert (settings.value(now), sources[now]) == (load({now: text}).value(now), former_variable)
    assert [note.partition("; ")[0] for note in settings.notes] == (
        [] if variable == former_variable else [f"{former_variable} (from {former_variable}) is a former name of {variable}"]
    )


SOME = {
    "inference.window": 8,
    "inference.answer_tokens": 8,
    "inference.threads": 8,
    "autonomy.training_minutes": 8,
    "image.uri": "file:///x.fs",
    "wire.listen": ("ipc:///x",),
    "wire.folders": ("/x",),
}


def test_the_name_of_today_goes_before_a_former_one(tmp_path: Path) -> None:
    (tmp_path / "cwd" / "batos.toml").write_text("queue_limit = 5\n[missions]\nqueue = 6\n")
    settings = load()
    assert settings.missions.queue == 6
    assert [note.partition(" (")[0] for note in settings.notes] == ["queue_limit"]
    assert "has no effect, since its new name missions.queue" in settings.notes[0]
    assert load(environ={"BATOS_QUEUE_LIMIT": "7", "BATOS_MISSIONS_QUEUE": "8"}).missions.queue == 8
    assert load(environ={"BATOS_QUEUE_LIMIT": "7"}).missions.queue == 7, "the environment goes before the file, whatever it is called"


def test_no_variable_means_two_settings() -> None:
    variables = [f"BATOS_{name.replace('.', '_').upper()}" for name in config.names()]
    assert len(set(variables)) == len(variables)
    for name in former.NAMES:
        if (variable := f"BATOS_{name.upper()}") in variables:
            assert former.RENAMED[name] == config.names()[variables.index(variable)]


def test_limits_are_replaced_by_construction() -> None:
    settings = config.Settings.model_validate({"limits": (CuratorLimits(check_s=0.05),)})
    assert CuratorLimits.of(settings).check_s == 0.05
    assert CuratorLimits.of(settings).growth == CuratorLimits().growth == 2.0
    assert CuratorLimits.of(load()) == CuratorLimits()
    copied = settings.model_copy(update={"curate_growth": 3.0, "missions.queue": 4, "curate": "off"})
    assert CuratorLimits.of(copied) == CuratorLimits(check_s=0.05, growth=3.0)
    assert (copied.missions.queue, copied.memory.curate, copied.missions.attempts) == (4, "off", 3)


def test_a_reload_takes_over_what_a_running_daemon_can() -> None:
    before, after = load(), load({"missions.queue": 7, "console.enabled": "on", "upkeep_s": 60, "curate_growth": 3})
    now, applied, waiting = before.reloaded(after)
    assert (applied, sorted(waiting)) == (["missions.queue", "upkeep_s"], ["console.enabled", "curate_growth"])
    assert (now.missions.queue, now.value("upkeep_s"), now.console.enabled, now.value("curate_growth")) == (7, 60, "auto", 2.0)
    assert now.reloaded(after)[1:] == ([], waiting)


def test_a_choice_of_an_earlier_version_is_kept_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "chosen.toml").write_text('profile = "embedded"\nmodel = ["robin=qwen3:8b"]\n')
    settings, sources = config.load_with_sources({"data": str(tmp_path)}, environ={})
    assert (settings.inference.profile, settings.inference.model, settings.notes) == ("embedded", ("robin=qwen3:8b",), ())
    assert sources["inference.profile"] == str(tmp_path / "chosen.toml")
    config.choose(tmp_path, {"inference.model": ()})
    assert (tmp_path / "chosen.toml").read_text().splitlines()[1:] == ['inference.profile = "embedded"', "inference.model = []"]
    settings = load({"data": str(tmp_path)})
    assert (settings.inference.profile, settings.inference.model) == ("embedded", ())


@pytest.mark.parametrize("verb", ["config", "doctor"])
def test_a_former_name_is_told_with_its_name_now(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([verb, "--set", "queue_limit=5", "--set", "curate_growth=3"])
    told = " ".join("".join(capsys.readouterr()).split())
    assert "queue_limit (from flag) is a former name of missions.queue" in told
    assert "curate_growth (from flag) is no longer a setting" in told


def test_config_finds_a_setting_by_its_former_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "queue_limit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "missions.queue"
    assert main(["config", "curate_growth", "--json", "--set", "curate_growth=3"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == 3.0
    assert main(["config", "quue"]) == 2
    assert "did you mean 'missions.queue'" in capsys.readouterr().err


@pytest.mark.parametrize(("smallest", "largest"), [(1201, None), (None, 159), (300, 200)])
def test_settings_that_cannot_be_together_are_named_with_values_and_sources(smallest: int | None, largest: int | None) -> None:
    given = {"chunk_smallest": smallest, "chunk_largest": largest}
    with pytest.raises(ConfigError) as refused:
        load(given)
    for name, value in given.items():
        assert f"{name} ({value or load().value(name)})" in str(refused.value)
        assert f"{name} from {'flag' if value else 'default'}" in str(refused.value)
    assert "lower chunk_smallest, or raise chunk_largest" in str(refused.value)
    assert load({"chunk_smallest": 200, "chunk_largest": 200}).chunk_largest == 200


@pytest.mark.parametrize(("recent_s", "window_s"), [(90000, None), (None, 3600), (60, 60)])
def test_what_is_compared_with_the_rest_leaves_one(recent_s: int | None, window_s: int | None) -> None:
    """Else triggers that compare both would be silent for ever."""
    with pytest.raises(
        ConfigError, match=r"trigger_recent_s \(.*\) is not less than trigger_window_s \(.*lower trigger_recent_s, or raise"
    ):
        load({"trigger_recent_s": recent_s, "trigger_window_s": window_s})
    assert load({"trigger_recent_s": 59, "trigger_window_s": 60}).trigger_recent_s == 59


def test_a_mission_may_have_fewer_attempts_than_a_change_has_deaths() -> None:
    """It is FAILED before the change is taken back, and with one attempt there is nothing else; but nothing breaks."""
    assert load({"mission_attempts": 1}).crash_limit == 2
    assert load({"crash_limit": 100}).mission_attempts == 3


@pytest.mark.parametrize("row", [row for row in config.table() if row.type in ("int", "float")], ids=lambda row: row.name)
def test_true_is_no_number(row: config.SettingRow, tmp_path: Path) -> None:
    for word in ("true", "false"):
        section, _, key = row.name.rpartition(".")
        (tmp_path / "cwd" / "batos.toml").write_text(f"[{section}]\n{key} = {word}\n")
        with pytest.raises(ConfigError, match=rf"setting '{row.name}' \(from .*not numbers"):
            load()


def test_models_that_may_be_pulled_are_names() -> None:
    listed = load(environ={"BATOS_AUTOTELIC_MODELS": "llama3.2:3b, hf.co/me/my_model:Q4_K_M"}).autotelic_models
    assert listed == ("llama3.2:3b", "hf.co/me/my_model:Q4_K_M")
    for wrong in (["x??"], ["a", ""], ["a b"], ["a\n"]):
        with pytest.raises(ConfigError, match=r"setting 'autonomy.models' .*not a valid name of a model; write"):
            load({"autotelic_models": wrong})


def test_an_empty_data_folder_is_not_the_working_folder() -> None:
    with pytest.raises(ConfigError, match=r"setting 'data' \(from flag\).*the working folder is \."):
        load({"data": ""})
    assert load(environ={"BATOS_DATA": ""}).data == load().data, "an empty variable counts as none"


def test_every_default_is_within_its_limits_and_every_row_says_what_it_is() -> None:
    assert load()
    assert all(row.help for row in config.table())
    assert [row.name for row in config.table()] == config.names()
    assert len(config.names()) <= 81
    assert not [row.name for row in config.table() if re.search(r"\bof them\b|\bso many\b|\bthe same\b(?! time)|\bit does\b", row.help)]


def test_listen_from_one_text_or_many() -> None:
    assert load(environ={"BATOS_LISTEN": "tcp://127.0.0.1:1, ipc:///x"}).listen == ("tcp://127.0.0.1:1", "ipc:///x")
    assert load({"listen": ("a", "b")}).listen == load({"listen": ("a", "b")}).endpoints == ("a", "b")
    with pytest.raises(ConfigError, match="listen"):
        load(environ={"BATOS_LISTEN": " , "})


def test_a_users_own_socket_is_the_endpoint_where_none_is_named(tmp_path: Path) -> None:
    own = local_endpoint({"HOME": str(tmp_path)})
    assert own == f"ipc://{tmp_path}/.local/share/batos/wire.sock"
    assert local_endpoint({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/x", "XDG_DATA_HOME": "/x"}) == own, "wherever it is asked for"
    assert load(environ={"BATOS_LISTEN": ""}).endpoints == (local_endpoint(),)


@pytest.mark.parametrize("home", ["", "relative", "/none/such", "LONG"])
def test_a_user_without_a_fit_home_has_a_socket_all_the_same(tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(pwd, "getpwuid", lambda user: {}[user])  # of no name, as in a container
    assert local_endpoint({"HOME": str(long) if home == "LONG" else home}) == f"ipc:///tmp/batos-{os.getuid()}/wire.sock"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_home_is_not_ones_own(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    assert str(tmp_path) not in local_endpoint({"HOME": str(tmp_path)})
    assert not client_folder({"HOME": str(tmp_path)}).is_relative_to(tmp_path)  # type: ignore[union-attr]


def test_clients_keep_what_is_theirs_in_their_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_folder({"HOME": str(tmp_path)}) == tmp_path / ".local/share/batos"
    monkeypatch.setattr(pwd, "getpwuid", lambda user: {}[user])
    assert client_folder({"HOME": "/none/such"}) is None


def test_the_data_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load({"data": "x"}).data == tmp_path / "cwd" / "x"
    assert load({"data": "~/x"}).data == tmp_path / "x"
    assert load({"data": str(tmp_path)}).image_uri == f"file://{tmp_path}/live_image.fs"
    assert load({"image.uri": "zeo://h:1"}).image_uri == "zeo://h:1"


@pytest.mark.parametrize("name", FILES)
def test_the_home_of_the_user_in_whatever_names_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(load({name: "~/x"}).value(name)) == f"{tmp_path}/x"


def test_the_home_of_the_user_in_the_image_and_in_the_name_of_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load({"image.uri": "file://~/x.fs?quota=1"}).image.uri == f"file://{tmp_path}/x.fs?quota=1"
    (tmp_path / "mine.toml").write_text("crash_limit = 7")
    assert load(config_file="~/mine.toml").crash_limit == load(environ={"BATOS_CONFIG": "~/mine.toml"}).crash_limit == 7
    with pytest.raises(ConfigError, match="no settings file ~nobody-of-that-name/x"):
        load(config_file="~nobody-of-that-name/x")


def test_ollama_host_is_heard_last() -> None:
    assert load(environ={"OLLAMA_HOST": "h:1"}).ollama_host == "h:1"
    assert config.load_with_sources(environ={"OLLAMA_HOST": "h:1"})[1]["inference.host"] == "OLLAMA_HOST"
    assert load(environ={"OLLAMA_HOST": "h:1", "BATOS_OLLAMA_HOST": "h:2"}).ollama_host == "h:2"


@pytest.mark.parametrize("value", ["[", '["a"', "[" * 100_000])
def test_an_array_of_sequences_that_is_none_is_told_so(value: str) -> None:
    with pytest.raises(
        ConfigError, match=r"setting 'inference.stop' \(from flag\): a value that begins with \[ must be a JSON array of texts"
    ) as caught:
        load({"stop": value})
    assert len(caught.value.message) < 600


def test_what_was_given_is_told_again_but_not_a_megabyte_of_it() -> None:
    with pytest.raises(ConfigError, match=r"setting 'missions.inferences' .*; got '9{199}…$"):
        load({"missions.inferences": "9" * 1_000_000})


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().missions = 3  # type: ignore[misc]


def test_a_working_folder_that_was_deleted_holds_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert load({"data": str(tmp_path)}).data == tmp_path


# --- what only a start would come upon

REFUSED = {
    "inference.profile": ("nope", "allowed are auto, embedded, workstation"),
    "wire.listen": ("foo", "write tcp://127.0.0.1:PORT"),
    "wire.metrics": ("127.0.0.1:-5", "name 127.0.0.1:PORT"),
    "missions.codex": ("/no/codex.toml", "cannot read the codex"),
    "inference.modelfiles": ("/no/folder", "no folder /no/folder"),
    "inference.host": (":::", "give host:port"),
    "inference.hosts": ("ftp://there:11434", "ftp:// is not what an Ollama speaks); give host:port"),
    "wire.secret_key": ("/no/key", "`batos keys new`"),
    "image.uri": ("foo", "use file:///"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_config_says_what_a_start_would_refuse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    value, hint = REFUSED[name]
    words = ["config", "--set", f"{name}={value}"]
    assert main(words) == 2
    told = capsys.readouterr()
    assert name in told.out, "the settings are printed all the same: one looks there for where it came from"
    assert f"`batos run` refuses {name} (from flag): " in told.err
    assert hint in told.err
    assert main(["config", name, *words[1:]]) == 2
    assert main(["config", "missions.queue", *words[1:]]) == 0, "another was asked for"


@pytest.mark.parametrize("name", REFUSED)
async def test_a_start_refuses_it_before_anything_is_made(name: str, tmp_path: Path) -> None:
    value, hint = REFUSED[name]
    with pytest.raises(BatosError, match=re.escape(hint)):
        await Kernel.start(load({"data": str(tmp_path / "data"), name: value}), listen=False)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", FILES)
def test_the_home_of_a_user_that_there_is_not_is_refused_in_words(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"setting '{name}' \(from flag\): that user has no home folder"):
        load({name: "~nobody-of-that-name/here"})


def test_the_home_of_a_user_that_there_is_not_in_the_image() -> None:
    with pytest.raises(ConfigError, match=r"setting 'image.uri' \(from flag\): that user has no home folder"):
        load({"image.uri": "file://~nobody-of-that-name/here"})


def test_config_says_of_a_wildcard_that_it_needs_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "wire.listen", "--listen", "tcp://0.0.0.0:5757"]) == 2
    assert "without CURVE keys" in capsys.readouterr().err


def test_config_says_of_what_a_start_would_do_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["config", "--set", f"backup.folder={tmp_path}/file", "--set", "missions.attempts=2"]) == 0
    told = capsys.readouterr().err
    assert f"backup.folder (from flag): no backups are made: {tmp_path}/file is a file" in told
    assert "raise missions.attempts above 2" in told
    assert main(["config", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["config", "--data", str(tmp_path / "file" / "below")]) == 2
    assert f"`batos run` refuses data (from flag): {tmp_path}/file is a file, not a folder" in capsys.readouterr().err
