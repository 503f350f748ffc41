"""Secrets by name: kept for their owner alone, shown by name only, written by several at once."""

from __future__ import annotations

import base64
import os
import stat
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from batos.errors import InvalidInput
from batos.tools.secrets import SECRETS, VALUE_BYTES, SecretStore, redacted


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "secrets.json"


@pytest.fixture
def store(path: Path) -> SecretStore:
    return SecretStore(path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_secret_is_kept_for_its_owner_alone(store: SecretStore, path: Path) -> None:
    assert store.list() == []
    store.set("shop", "s3cret ü")
    assert SecretStore(path).get("shop") == "s3cret ü"
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)


def test_a_list_has_names_and_dates_and_never_values(store: SecretStore) -> None:
    store.set("b", "hidden-1")
    store.set("a", "hidden-2")
    entries = store.list()
    assert [entry.name for entry in entries] == ["a", "b"]
    assert entries[1].set_at <= entries[0].set_at
    assert "hidden" not in repr(entries)


def test_a_secret_is_replaced_and_removed(store: SecretStore) -> None:
    store.set("shop", "one")
    store.set("shop", "two")
    assert store.get("shop") == "two"
    store.remove("shop")
    assert store.list() == []
    with pytest.raises(InvalidInput, match="not set"):
        store.remove("shop")


def test_a_missing_secret_says_how_it_is_set(store: SecretStore) -> None:
    store.set("github", "x" * 9)
    with pytest.raises(InvalidInput, match=r"did you mean 'github'.*`batos secrets set githup`"):
        store.get("githup")


@pytest.mark.parametrize("name", ["", "1a", "a b", "../x", "a" * 65, "ä", "a\n"])
def test_a_name_that_is_not_valid_is_refused(store: SecretStore, name: str) -> None:
    for use in (lambda: store.set(name, "v"), lambda: store.get(name), lambda: store.remove(name)):
        with pytest.raises(InvalidInput, match="not a valid name"):
            use()


@pytest.mark.parametrize("value", ["", "tok3n\n", "tok3n\r", "a\0b", "x" * (VALUE_BYTES + 1), "ü" * (VALUE_BYTES // 2 + 1), "\ud800"])
def test_a_value_that_could_not_be_sent_is_refused_and_not_shown(store: SecretStore, value: str) -> None:
    store.set("shop", "before")
    with pytest.raises(InvalidInput, match="secret shop") as refused:
        store.set("shop", value)
    assert not value or value not in refused.value.message
    assert store.get("shop") == "before"


def test_the_largest_values_come_back(store: SecretStore) -> None:
    store.set("long", "\x01" * VALUE_BYTES)
    assert store.get("long") == "\x01" * VALUE_BYTES


def test_there_are_not_too_many(store: SecretStore, path: Path) -> None:
    kept = ",".join(f'"s{n}": {{"value": "v", "set": 1}}' for n in range(SECRETS))
    store.set("first", "v")
    path.write_text(f'{{"secrets": {{{kept}}}}}')
    with pytest.raises(InvalidInput, match="at most 1000"):
        store.set("more", "v")
    store.set("s1", "other")
    assert store.get("s1") == "other"


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_is_open_to_others_is_refused(store: SecretStore, path: Path, bits: int) -> None:
    store.set("shop", "v4lue")
    path.chmod(bits)
    for use in (lambda: store.get("shop"), store.list, lambda: store.set("x", "y"), lambda: store.remove("shop")):
        with pytest.raises(InvalidInput, match=r"open to others.*chmod 600"):
            use()
    path.chmod(0o600)
    assert store.get("shop") == "v4lue"


def test_a_folder_that_others_may_write_into_is_refused(store: SecretStore, path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(InvalidInput, match="chmod go-w"):
        store.set("shop", "v")
    assert not path.exists()


def test_a_link_or_fifo_in_its_place_is_refused_without_waiting(store: SecretStore, path: Path) -> None:
    store.set("shop", "v")
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))
    with pytest.raises(InvalidInput, match="plain file"):
        store.get("shop")
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(InvalidInput, match="plain file"):
        store.get("shop")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"secrets": {"shop": "t0psecret"}}', '{"secrets": {"shop": {"value": "t0psecret"}}}'])
def test_a_damaged_file_is_told_without_its_content_and_stays(store: SecretStore, path: Path, damage: str) -> None:
    store.set("shop", "v")
    path.write_text(damage)
    with pytest.raises(InvalidInput, match="damaged") as refused:
        store.set("other", "v")
    assert "t0psecret" not in refused.value.message
    assert path.read_text() == damage


def test_writers_at_the_same_time_lose_nothing(path: Path) -> None:
    def write(number: int) -> None:
        for n in range(10):
            SecretStore(path).set(f"w{number}.{n}", f"value {number} {n}")

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(SecretStore(path).list()) == 40


def test_a_write_that_fails_leaves_what_was(store: SecretStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.set("shop", "v")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidInput, match="No space left"):
        store.set("shop", "new")
    assert store.get("shop") == "v"
    assert sorted(one.name for one in path.parent.iterdir()) == [".secrets.json.lock", "secrets.json"]


def test_values_are_removed_from_a_text_in_every_form() -> None:
    value = 'p&ss "wört"/+'
    encoded = base64.b64encode(value.encode()).decode()
    text = f'plain {value} url {quote(value, safe="")} json p&ss \\"wört\\"/+ basic {encoded} end'
    cleaned = redacted(text, [value, ""])
    assert cleaned == "plain [secret] url [secret] json [secret] basic [secret] end"
    assert redacted("a longer-key and a long", ["long", "longer-key"]) == "a [secret] and a [secret]"
    assert redacted("nothing here", []) == "nothing here"
