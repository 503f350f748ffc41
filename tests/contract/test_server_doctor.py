"""What `batos doctor` says of the server of an image, without a word of its password."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from batos.config import Settings
from batos.doctor import Check, image, served_image
from batos.doctor.image_server import shares_backends
from batos.image.living_image import LivingImage
from tests.support.servers import Postgres, postgres  # noqa: F401

WAIT_S = 90


def settings(uri: str, tmp_path: Path, **more: Any) -> Settings:
    return Settings(data=tmp_path, image=uri, **more)


def said(checks: list[Check], state: str) -> str:
    return " | ".join(f"{one.finding} -> {one.remedy}" for one in checks if one.state == state)


@pytest.fixture
def uri(postgres: Postgres) -> str:  # noqa: F811
    made = postgres.image()
    asyncio.run(_once(made))
    return made


async def _once(uri: str) -> None:
    image = await LivingImage.open(uri)
    await image.close()


def test_what_is_well(uri: str, tmp_path: Path) -> None:
    found = served_image(settings(uri, tmp_path))
    fine = said(found, "ok")
    assert "PostgreSQL 1" in fine
    assert "sessions are open" in fine
    assert "the database has" in fine
    assert not said(found, "fail")
    assert said(found, "warn") == "fsync is off: what was acknowledged may be lost with the server's power -> set it on in postgresql.conf"


def test_an_image_in_a_file_has_no_server(tmp_path: Path) -> None:
    assert served_image(Settings(data=tmp_path)) == []


def test_a_server_that_is_away_is_told_without_the_password(tmp_path: Path) -> None:
    uri = "postgres://me:hidden@127.0.0.1:1/none?keep_history=1"
    away = settings(uri, tmp_path)
    (found,) = served_image(away)
    assert found.state == "fail"
    assert "127.0.0.1:1 does not let this machine in" in found.finding
    assert "listen_addresses" in found.remedy
    told = [found, image(away, False), image(away, False, served="postgres://other@127.0.0.1/x")]
    assert not any("hidden" in f"{one.finding} {one.remedy}" for one in told)
    assert "the daemon that answers has" not in image(away, False, served="postgres://me:…@127.0.0.1:1/none?keep_history=1").finding


def test_a_database_with_history_whose_address_says_otherwise(uri: str, tmp_path: Path) -> None:
    found = served_image(settings(uri.replace("keep_history=1", "keep_history=0"), tmp_path))
    assert "the database keeps history, and the address says otherwise -> say keep_history=1" in said(found, "fail")


def test_one_without_history(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    uri = postgres.image().replace("keep_history=1", "keep_history=0")
    asyncio.run(_once(uri))
    assert "it keeps no history -> " in said(served_image(settings(uri, tmp_path)), "warn")


def test_sessions_that_do_not_suffice(uri: str, tmp_path: Path) -> None:
    found = served_image(settings(uri, tmp_path, missions={"concurrent": 200}))
    assert "raise max_connections, or lower missions.concurrent" in said(found, "warn")


def test_sessions_that_rest_in_a_transaction(postgres: Postgres, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    import psycopg2

    monkeypatch.setattr("batos.doctor.image_server._IDLE_S", 0)
    database = uri.rpartition("/")[2].partition("?")[0]
    resting = psycopg2.connect(host="127.0.0.1", port=postgres.port, user="batos", dbname=database)
    resting.cursor().execute("select 1")
    assert "1 sessions have rested in a transaction" in said(served_image(settings(uri, tmp_path)), "warn")
    resting.close()


def test_a_clock_that_is_wrong(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr("batos.doctor.image_server.time", type("Clock", (), {"time": staticmethod(lambda: now() + 60)}))
    assert "are 60 s apart -> let both be set by NTP" in said(served_image(settings(uri, tmp_path)), "warn")


class Pooler:
    """Connections of a pooler, which gives each a backend for a transaction, or for as long as it is open."""

    def __init__(self, by_transaction: bool) -> None:
        self.by_transaction, self.free = by_transaction, [1, 2, 3]

    def connection(self) -> Any:
        pooler, held = self, []

        class Cursor:
            def __enter__(self) -> Cursor:
                return self

            def __exit__(self, *why: object) -> None: ...

            def execute(self, words: str) -> None:
                if not held:
                    held.append(pooler.free.pop())
                self.found = held[0]
                if words == "BEGIN":
                    self.within = True
                elif words == "ROLLBACK":
                    self.within = False
                if pooler.by_transaction and not getattr(self, "within", False):
                    pooler.free.append(held.pop())

            def fetchone(self) -> tuple[int]:
                return (self.found,)

        return type("Connection", (), {"cursor": lambda self: Cursor()})()


@pytest.mark.parametrize("by_transaction", [True, False])
def test_a_pooler_in_transaction_mode_is_known(by_transaction: bool) -> None:
    pooler = Pooler(by_transaction)
    assert shares_backends(pooler.connection(), pooler.connection()) == by_transaction
