"""A watch of named records on a server: what others wrote is seen, and a look reads what was written and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import transaction
import ZODB
import zodburi

from batos.image import record_watch
from batos.image.record_watch import RecordWatch, log_changes
from batos.objects import UvmObject
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401


class Image:
    """One image, written through one connection and looked at through another."""

    def __init__(self, uri: str) -> None:
        factory, options = zodburi.resolve_uri(uri)
        self.db = ZODB.DB(factory(), **options)
        self._tm, self._looking = transaction.TransactionManager(explicit=True), transaction.TransactionManager(explicit=True)
        self._connection = self.db.open(self._tm)
        self.looks = self.db.open(self._looking)
        self.said: list[str] = []
        self.write(lambda root: root.__setitem__("book", UvmObject()))
        self.watch = RecordWatch(lambda root: root["book"], self._each, self._says)
        self.walks = 0

    def _each(self, root: Any) -> list[tuple[str, Any]]:
        self.walks += 1
        return [(name, one) for name, one in root["book"]._slots.items() if isinstance(one, UvmObject)]

    def _says(self, root: Any, name: str) -> int:
        self.said.append(name)
        return int(root["book"]._slots[name].n) // 10

    def write(self, function: Any) -> None:
        self._tm.begin()
        function(self._connection.root())
        self._tm.commit()

    def put(self, name: str, n: int) -> None:
        def put(root: Any) -> None:
            if name in root["book"]._slots:
                root["book"]._slots[name].n = n
            else:
                root["book"]._slots[name] = UvmObject(n=n)

        self.write(put)

    def changed(self) -> tuple[set[str], list[str]]:
        """What a look finds, and what it had to read for it."""
        self._looking.begin()
        self.said.clear()
        found = self.watch.changed(self.looks.root())
        self._looking.abort()
        return found, sorted(self.said)

    def close(self) -> None:
        self._connection.close()
        self.looks.close()
        self.db.close()


@pytest.fixture(params=["zeo", "postgres"])
def image(request: pytest.FixtureRequest) -> Iterator[Image]:
    made = Image(request.getfixturevalue(request.param).image())
    yield made
    made.close()


@pytest.mark.parametrize("logged", [True, False])
def test_what_came_changed_or_went_is_found_once_by_reading_it_alone(image: Image, logged: bool) -> None:
    if logged:
        log_changes(image.looks)
    for name in "abc":
        image.put(name, 10)
    assert image.changed() == ({"a", "b", "c"}, ["a", "b", "c"])
    assert image.changed() == (set(), [])
    image.put("b", 20)
    assert image.changed() == ({"b"}, ["b"])
    image.put("b", 21)  # says the same
    image.put("c", 30)
    assert image.changed() == ({"c"}, ["b", "c"])
    image.put("d", 10)
    image.write(lambda root: root["book"]._slots.pop("a"))
    assert image.changed() == ({"a", "d"}, ["d"])
    image.put("d", 40)
    assert image.changed() == ({"d"}, ["d"])


def test_a_look_goes_through_all_only_where_the_log_does_not_reach(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_watch, "KEPT", 3)
    log_changes(image.looks)
    for name in "ab":
        image.put(name, 10)
    image.changed()
    image.walks = 0
    for n in range(3):
        image.put("a", 20 + 10 * n)
        assert image.changed() == ({"a"}, ["a"])
    assert image.walks == 0
    for n in range(5):
        image.write(lambda root, n=n: root.__setitem__(f"other{n}", UvmObject()))
        image.looks.transaction_manager.begin()  # views that the watch does not see
        image.looks.transaction_manager.abort()
    image.put("b", 50)
    assert image.changed() == ({"b"}, ["b"])
    assert image.walks == 1
