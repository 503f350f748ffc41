"""ZODB's own tests of storages, on the wrapper that every image is behind: what ZODB promises of a FileStorage holds of ours."""

from __future__ import annotations

from typing import Any, NoReturn

from ZODB.FileStorage import FileStorage
from ZODB.fsIndex import fsIndex
from ZODB.tests import testFileStorage as theirs
from ZODB.tests.StorageTestBase import StorageTestBase

from batos.image.checksummed_storage import CheckedStorage


def opened(path: str, **options: Any) -> CheckedStorage:
    """A storage as an image has it."""
    return CheckedStorage(FileStorage(path, **options), path)


class WithoutRestore(CheckedStorage):
    """One that cannot take over the transactions of another as they are: they are stored anew."""

    @property
    def restore(self) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError


class TestStorage(theirs.FileStorageTests):
    """Storing, undo, packs, conflicts, history, iteration, threads."""

    def open(self, **options: Any) -> None:
        self._storage = opened("FileStorageTests.fs", **options)

    def test_use_fsIndex(self) -> None:
        """Ours is one with checksums."""
        assert isinstance(self._storage._index, fsIndex)


class TestRecovery(theirs.FileStorageRecoveryTest):
    """Copies of storages."""

    def setUp(self) -> None:
        StorageTestBase.setUp(self)
        self._storage = opened("Source.fs", create=True)
        self._dst = opened("Dest.fs", create=True)

    def new_dest(self) -> CheckedStorage:
        return opened("Dest.fs")


class TestRecoveryWithoutRestore(theirs.FileStorageNoRestoreRecoveryTest):
    """Copies by storing anew."""

    def setUp(self) -> None:
        StorageTestBase.setUp(self)
        self._storage = WithoutRestore(FileStorage("Source.fs", create=True), "Source.fs")
        self._dst = WithoutRestore(FileStorage("Dest.fs", create=True), "Dest.fs")

    def new_dest(self) -> CheckedStorage:
        return WithoutRestore(FileStorage("Dest.fs"), "Dest.fs")
