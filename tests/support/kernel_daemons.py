"""Real daemons as kernels of one image, each with a scripted Ollama of its own, which stop or die at named steps (`kernel_child`)."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transaction.interfaces import TransientError
from zmq import RCVTIMEO

from batos.image import journal, kernels, ledger
from batos.image.storage import open_database
from batos.testing import ScriptedOllama
from tests.support import daemon, kernel_child
from tests.support.crash import chats, completions, keys_of
from tests.support.daemon import Daemon, Peer, provisioned

LEASE_S, LOOK_S, WAIT_S = 2.0, 0.05, 300


class KernelDaemon:
    """One daemon of several: its process, its Ollama, and the name that it has in the image."""

    def __init__(self, folder: Path, uri: str, host: str, **settings: Any) -> None:
        """Begin to start it.

        :param host: the name that its user gave the machine.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ollama = ScriptedOllama()
        self.ollama.start()
        provisioned(self.ollama)
        self._program, self._settings = (kernel_child.__file__,), settings
        image = {"image.uri": uri, "image.kernels": "many", "image.kernel_name": host}
        self._image = {**image, "image.lease_s": LEASE_S, "image.look_s": LOOK_S}
        self._lives: list[Daemon] = []
        self.begin()

    def begin(self) -> None:
        """Start a process with this folder, without waiting for it."""
        given = {"ollama_host": self.ollama.host, "remember": "off", "mission_attempts": 100, "partial_tokens": 100_000}
        self.daemon = Daemon(self.folder, program=self._program, **{**given, **self._image, **self._settings})
        self._lives.append(self.daemon)

    @property
    def is_running(self) -> bool:
        return self.daemon.process.poll() is None

    @property
    def name(self) -> str:
        """The name under which it registered last."""
        names = [line["kernel"] for line in self.daemon.log if line.get("event") == "kernel_registered"]
        return str(names[-1]) if names else ""

    def events(self, event: str, *, ever: bool = False) -> list[dict[str, Any]]:
        """Lines of its log.

        :param ever: True for those of all its processes, and not of the last alone.
        """
        return [line for life in self._lives[0 if ever else -1 :] for line in list(life.log) if line.get("event") == event]

    @property
    def leads(self) -> bool:
        """True if it led last, as it knows."""
        led = [line["event"] for line in list(self.daemon.log) if line.get("event") in ("lead_taken", "lead_left")]
        return bool(led) and led[-1] == "lead_taken"

    def peer(self) -> Peer:
        """A client of it, patient on a busy machine.

        :raises OSError: while it starts.
        """
        if not (endpoint := self.daemon.endpoint):
            raise OSError(f"{self.folder.name} has no endpoint yet")
        made = Peer(endpoint)
        made.socket.setsockopt(RCVTIMEO, WAIT_S * 1000)
        return made

    def ready(self) -> KernelDaemon:
        """Wait until it lets missions in."""
        if not self.daemon.endpoint:
            self.daemon.started(WAIT_S)
        return self

    def arm(self, step: str, when: str, how: str) -> None:
        """Have it stop or die at a step of its way, once; see `kernel_child`."""
        _arm(self.folder, step, when, how)

    def disarm(self) -> None:
        """Have it go on, and strike nowhere."""
        (self.folder / kernel_child.ARMED).unlink(missing_ok=True)
        if self.is_running:
            self.wake()

    @property
    def is_struck(self) -> bool:
        """True once it has come to the armed step."""
        return not (self.folder / kernel_child.ARMED).exists()

    @property
    def is_stopped(self) -> bool:
        state = Path(f"/proc/{self.daemon.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def stopped(self) -> None:
        """Wait until it stands still."""
        until(lambda: self.is_stopped or not self.is_running, f"{self.name} to stand still")
        assert self.is_running, self.daemon.log[-5:]

    def killed(self) -> None:
        """Wait until it has killed itself."""
        assert self.daemon.ended(WAIT_S) == -signal.SIGKILL, (self.daemon.log[-5:], self.daemon.noise)

    def wake(self) -> None:
        self.daemon.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End it, whatever it does."""
        if self.is_running:
            self.daemon.process.kill()
        self.daemon.ended()
        self.ollama.stop()

    def asked_about(self, words: str) -> int:
        """The number of inferences about something that its Ollama was asked for."""
        return sum(words in str(chat["messages"]) for chat in chats(self.ollama))


class Fleet:
    """The kernels of one image, and the image as it is on its server."""

    def __init__(self, folder: Path, uri: str, **settings: Any) -> None:
        self.folder, self.uri, self._settings = folder, uri, settings
        self.daemons: list[KernelDaemon] = []
        self._db: Any = None
        self._numbers = itertools.count(1)

    def start(self, host: str, **settings: Any) -> KernelDaemon:
        """Begin to start another daemon, in a folder of its own."""
        made = KernelDaemon(self.folder / f"d{next(self._numbers)}", self.uri, host, **{**self._settings, **settings})
        self.daemons.append(made)
        return made

    def arm(self, step: str, when: str, how: str) -> None:
        """Have the first kernel that comes to a step stop or die there."""
        _arm(self.folder, step, when, how)

    def disarm(self) -> None:
        """Have all go on, and strike nowhere."""
        (self.folder / kernel_child.ARMED).unlink(missing_ok=True)
        for one in self.daemons:
            one.disarm()

    def close(self) -> None:
        for one in self.daemons:
            one.end()
        if self._db is not None:
            self._db.close()

    @property
    def running(self) -> list[KernelDaemon]:
        return [one for one in self.daemons if one.is_running]

    def led_by(self) -> KernelDaemon:
        """Return the kernel that leads, once all are there and it knows; those that died are started. The lead may move at any time."""
        for one in self.daemons:
            if not one.is_running:
                one.begin()
        for one in self.daemons:
            one.ready()
        found: list[KernelDaemon] = []

        def led() -> bool:
            name = self.leader()[0]
            found[:] = [one for one in self.daemons if one.name == name and one.leads]
            return bool(found)

        until(led, "a leader that knows of it")
        return found[0]

    # --- the image, read by the test

    @property
    def db(self) -> Any:
        """The image, as a client of its server that is no kernel."""
        if self._db is None:
            self._db = open_database(self.uri, cache_size=20_000, pool_size=7)
        return self._db

    def read(self, function: Callable[[Any], Any]) -> Any:
        """What a function of the root finds in the image now."""
        with self.db.transaction() as connection:
            return function(connection.root())

    def write(self, function: Callable[[Any], Any]) -> None:
        """Have a function of the root write into the image; again, where another one wrote meanwhile."""
        while True:
            with contextlib.suppress(TransientError), self.db.transaction() as connection:
                function(connection.root())
                return

    def state(self, id: str) -> str:
        """The state of a mission; empty where it was not accepted."""
        return str(self.read(lambda root: m.state if (m := ledger.ledger_of(root).missions.get(id)) is not None else ""))

    def owner(self, id: str) -> str:
        return str(self.read(lambda root: ledger.record_of(root, id)).kernel)

    def journal(self, id: str) -> list[tuple[bytes, int, float]]:
        return [(one.key, one.occurrence, one.at) for one in self.read(lambda root: journal.load(root, id))]

    def gone(self) -> list[str]:
        return [one.name for one in self.read(kernels.listed) if one.gone]

    def leader(self) -> tuple[str, int]:
        found: tuple[str, int] = self.read(kernels.lead_of)
        return found

    def check_once(self, *ids: str) -> None:
        """Each of these missions is COMPLETE, was so once, and has each inference in its journal once."""
        often = self.read(lambda root: completions(root, ids))
        for id in ids:
            assert (self.state(id), often[id]) == (ledger.COMPLETE, 1), (
                f"{id}: {self.read(lambda root, id=id: ledger.failures_of(root, id))}"
            )
            paid = [(key, occurrence) for key, occurrence, _ in self.journal(id)]
            assert len(set(paid)) == len(paid), id
            assert self.read(lambda root, id=id: ledger.failures_of(root, id)) == [], id

    def asked(self) -> Counter[bytes]:
        """How often each inference was asked for, at all Ollamas together."""
        found: Counter[bytes] = Counter()
        for one in self.daemons:
            found.update(keys_of(chats(one.ollama), one.ollama))
        return found


@contextlib.contextmanager
def fleet(folder: Path, uri: str, **settings: Any) -> Iterator[Fleet]:
    """Kernels for the block; all are ended with it."""
    made = Fleet(folder, uri, **settings)
    try:
        yield made
    finally:
        made.close()


def _arm(folder: Path, step: str, when: str, how: str) -> None:
    there = folder / "arming"
    there.write_text(f"{step}\n{when}\n{how}")
    there.replace(folder / kernel_child.ARMED)


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until a condition holds, as long as kernels may take for it."""
    daemon.until(condition, what, WAIT_S)
