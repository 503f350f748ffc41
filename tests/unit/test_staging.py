"""The staging folder: what is taken, what waits, and what is refused with which words."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from batos.bridge.lora import adapters
from batos.bridge.lora.staging import Staged, Staging, StagingRefusal, sorted_out, staging_folder
from tests.support.lora import about, peft, stage, weights


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def staging(path: Path, settle_s: float = 0, **more: int) -> Staging:
    return Staging(path, settle_s=settle_s, limit=more.get("limit", 100), limit_bytes=more.get("limit_bytes", 10**7))


def look(path: Path, **more: int) -> list[Staged | StagingRefusal]:
    return staging(path, **more).look()


def refusal(path: Path, **more: int) -> str:
    (found,) = look(path, **more)
    assert isinstance(found, StagingRefusal), found
    return found.reason


def test_an_expert_is_taken_and_its_content_named(tmp_path: Path) -> None:
    stage(tmp_path, "weaver", lineage=None)
    (found,) = look(tmp_path)
    assert isinstance(found, Staged)
    assert found.model == "babs:knowledge-weaver-v1"
    assert set(found.files) == {"adapter_model.safetensors", "adapter_config.json"}
    assert (found.about.role, found.about.fuse) == ("voice", False)
    assert found.intact()


def test_the_content_is_that_of_the_files_and_of_what_decides_the_model(tmp_path: Path) -> None:
    stage(tmp_path, "a")
    stage(tmp_path, "b", comment="what is told of it changes nothing", role="methods")
    stage(tmp_path, "c", seed=1)
    stage(tmp_path, "d", fuse=True)
    contents = [found.content for found in look(tmp_path) if isinstance(found, Staged)]
    assert contents[0] == contents[1]
    assert len({*contents}) == 3


def test_a_readme_hidden_files_and_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / ".DS_Store").write_text("")
    assert look(tmp_path) == []
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path) == "no expert.toml; it names persona, name, version and base"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('persona = "babs"\nname = "x"\nversion = "1"\nbase = "b"\n', "line 3, key version: Input should be a valid integer"),
        ('persona = "babs"\nname = "x"\nversion = 0\nbase = "b"\n', "line 3, key version: Input should be greater than or equal to 1"),
        ('persona = "babs"\nname = "Not A Name"\nversion = 1\nbase = "b"\n', "line 2, key name: String should match"),
        ('persona = "babs"\nname = "../../x"\nversion = 1\nbase = "b"\n', "line 2, key name: String should match"),
        ('persona = "babs"\nversion = 1\nbase = "b"\n', "key name: Field required"),
        ('persona = "babs"\nname = "x"\nversion = 1\nbase = "b"\nfused = true\n', "line 5, key fused: Extra inputs are not permitted"),
        ('persona = "babs"\nname = "x"\nversion = 1\nbase = "b"\n[lineage]\nmission = []\n', "line 6, key lineage.mission: Extra"),
        (
            'persona = "babs"\nrole = "singer"\nname = "x"\nversion = 1\nbase = "b"\n',
            "line 2, key role: Input should be 'voice' or 'methods'",
        ),
        ('persona = "babs\n', "not valid TOML.*line 1"),
        (f"version = {'9' * 5000}\n", "not valid TOML.*5000 digits"),
    ],
)
def test_an_expert_toml_with_a_fault_names_key_and_line(tmp_path: Path, text: str, reason: str) -> None:
    folder = peft(tmp_path / "x")
    (folder / "expert.toml").write_text(text)
    found = refusal(tmp_path)
    assert re.search(reason, found), found


def test_bytes_that_are_no_text_and_a_name_too_long_for_a_tag(tmp_path: Path) -> None:
    (stage(tmp_path) / "expert.toml").write_bytes(b"persona = '\xff'")
    assert "not valid TOML" in refusal(tmp_path)
    about(tmp_path / "weaver", name="n" * 49)
    assert "key name" in refusal(tmp_path)


def test_bad_names_and_links(tmp_path: Path) -> None:
    stage(tmp_path, "white space")
    assert "letters, digits" in refusal(tmp_path)
    shutil.rmtree(tmp_path / "white space")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff\xfe")
    assert "letters, digits" in refusal(tmp_path)
    os.rmdir(os.fsencode(tmp_path) + b"/\xff\xfe")
    outside = stage(tmp_path / "outside")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "linked").symlink_to(outside)
    assert refusal(inside) == "a link; an expert is a folder with expert.toml and its adapter"
    (inside / "linked").unlink()
    folder = stage(inside)
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.safetensors").symlink_to(outside / "adapter_model.safetensors")
    assert refusal(inside) == "adapter_model.safetensors is a link; copy the file itself"
    (folder / "adapter_model.safetensors").unlink()
    os.mkfifo(folder / "adapter_model.safetensors")  # to open it would be to wait for ever
    assert refusal(inside) == "adapter_model.safetensors is not a plain file"
    shutil.rmtree(folder)
    (inside / "weaver").write_text("a file")
    assert refusal(inside).startswith("no folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (stage(tmp_path) / "adapter_model.safetensors").chmod(0)
    assert "cannot be read: Permission denied" in refusal(tmp_path)


def test_limits_of_size_and_number(tmp_path: Path) -> None:
    folder = stage(tmp_path)
    size = (folder / "adapter_model.safetensors").stat().st_size
    assert isinstance(look(tmp_path, limit_bytes=size)[0], Staged)
    assert f"has {size} bytes; at most {size - 1} are taken" in refusal(tmp_path, limit_bytes=size - 1)
    stage(tmp_path, "x", name="other")
    assert [isinstance(found, Staged) for found in look(tmp_path, limit=2)] == [True, True]
    first, second = look(tmp_path, limit=1)
    assert isinstance(first, Staged)
    assert second == StagingRefusal("x", "more than 1 folders")


# --- on its way in


def test_a_folder_that_still_changes_waits_until_it_was_still_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    watched = Staging(tmp_path, settle_s=5, limit=9, limit_bytes=10**7, clock=clock)
    folder = stage(tmp_path)
    whole = (folder / "adapter_model.safetensors").read_bytes()
    for part in (100, 1000, 5000, len(whole)):
        (folder / "adapter_model.safetensors").write_bytes(whole[:part])
        clock.now += 4
        (found,) = watched.look()
        assert isinstance(found, StagingRefusal)
        assert (found.waits, found.moving) == (True, True)
    clock.now += 5
    assert isinstance(watched.look()[0], Staged)


def test_what_lies_there_for_long_is_taken_at_the_first_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a start nobody waits for folders of last week."""
    stage(tmp_path)
    watched = staging(tmp_path, settle_s=5)
    monkeypatch.setattr(
        "batos.bridge.lora.staging.time.time_ns", lambda: (tmp_path / "weaver" / "expert.toml").stat().st_ctime_ns + 6 * 10**9
    )
    assert isinstance(watched.look()[0], Staged)


def test_a_copy_that_keeps_old_times_is_not_taken_for_old(tmp_path: Path) -> None:
    folder = stage(tmp_path)
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    assert isinstance(staging(tmp_path, settle_s=5).look()[0], StagingRefusal)


def test_a_file_that_changes_while_it_is_read_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stage(tmp_path)
    watched = staging(tmp_path)
    real = adapters.read

    def read(path: Path) -> adapters.Adapter:
        found = real(path)
        (folder / "adapter_config.json").write_text("{}")
        return found

    monkeypatch.setattr(adapters, "read", read)
    (found,) = watched.look()
    assert isinstance(found, StagingRefusal)
    assert found.moving


def test_nothing_is_read_twice_that_did_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stage(tmp_path)
    watched, reads = staging(tmp_path), []
    real = adapters.read
    monkeypatch.setattr(adapters, "read", lambda path: reads.append(path) or real(path))  # type: ignore[func-returns-value]
    first = watched.look()
    assert watched.look() == first
    assert len(reads) == 1
    about(folder, version=2)
    assert watched.look()[0].model == "babs:knowledge-weaver-v2"  # type: ignore[union-attr]
    assert len(reads) == 2


def test_a_half_copied_adapter_is_refused_and_taken_when_it_is_whole(tmp_path: Path) -> None:
    folder = stage(tmp_path)
    whole = (folder / "adapter_model.safetensors").read_bytes()
    (folder / "adapter_model.safetensors").write_bytes(whole[:-1])
    watched = staging(tmp_path)
    (found,) = watched.look()
    assert isinstance(found, StagingRefusal)
    assert "it was not copied whole" in found.reason
    (folder / "adapter_model.safetensors").write_bytes(whole)
    assert isinstance(watched.look()[0], Staged)


# --- claims


def claims(path: Path, built: dict[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    staged, refused = sorted_out(look(path), built or {})
    return [one.folder.name for one in staged], {one.folder: one.reason for one in refused}


def test_two_folders_of_one_name(tmp_path: Path) -> None:
    first = stage(tmp_path, "a")
    stage(tmp_path, "b")
    assert claims(tmp_path) == (["a"], {"b": "babs:knowledge-weaver-v1 is that of a; give it its own name or version"})
    peft(tmp_path / "b", weights(seed=1))
    taken, refused = claims(tmp_path)
    assert taken == []
    assert set(refused) == {"a", "b"}
    assert all(reason.startswith("a, b all claim babs:knowledge-weaver-v1, with different content") for reason in refused.values())
    (content,) = [found.content for found in look(tmp_path) if isinstance(found, Staged) and found.folder == first]
    taken, refused = claims(tmp_path, {"babs:knowledge-weaver-v1": content})
    assert taken == ["a"], "what is built already has the name"
    assert "with another content" in refused["b"]


def test_which_folder_it_is(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    assert staging_folder("", tmp_path) == root / "lora_staging", "a checkout has its own"
    assert staging_folder(str(tmp_path / "x"), tmp_path) == tmp_path / "x"


def test_an_installed_daemon_has_it_in_its_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batos.__file__", str(tmp_path / "site-packages" / "batos" / "__init__.py"))
    assert staging_folder("", tmp_path / "data") == tmp_path / "data" / "lora_staging"
    assert (tmp_path / "data" / "lora_staging").is_dir()
