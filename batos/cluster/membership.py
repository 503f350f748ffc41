"""Membership: this daemon as one of the kernels that serve an image, and what it learns of the others.

One task gives signs of life. Another looks every `image.look_s`: it reads those of others, declares silent kernels gone, and takes the lead
where no kernel has it. Then it calls those that want to see what others committed (`on_look`). A kernel that finds itself declared gone
registers anew under another name and goes on; what it had under way is another's (`on_renamed`). What only one kernel may do is entered and
left with the lead (`on_lead`).

`Alone` is the membership of a daemon that has its image to itself: it leads always and looks at no other kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog
from transaction import TransactionManager

from batos.cluster.presence import Presence, Silence, presence_of
from batos.cluster.turn import REPLAYS, SessionTurn
from batos.concurrency import Background, cancel_and_wait
from batos.errors import BatosError, BatosSignal, Busy, ImageFailed, ImageLocked, KernelRefused, LedElsewhere
from batos.image import kernels, server, zodb_patches
from batos.image.kernels import KernelInfo, KernelTerms
from batos.image.living_image import LivingImage
from batos.image.ownership import Lease
from batos.image.record_watch import log_changes
from batos.image.storage import shown_uri
from batos.objects import Root

log = structlog.get_logger("batos.cluster")

Look = Callable[[Root], object]
"""Function of the root that sees a fresh state of the image, in the event loop: short, and it changes nothing."""
Led = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes what runs as long as this kernel leads."""
_BEATS = 4
"""Signs of life in a lease."""


class _Lead:
    """Work that is entered when the lead is gained, in order, and left when it is lost, in one task of its own."""

    def __init__(self) -> None:
        self._makes: list[Led] = []
        self._term, self._changed, self._settled = 0, asyncio.Event(), asyncio.Event()

    def add(self, make: Led) -> None:
        self._makes.append(make)
        self._tell()

    def want(self, term: int) -> None:
        """Have it entered for a term of the lead, and left where it was entered for another; 0: this kernel does not lead."""
        if term != self._term:
            self._term = term
            self._tell()

    def _tell(self) -> None:
        self._settled.clear()
        self._changed.set()

    async def settled(self) -> None:
        """Wait until what is wanted is entered, or left."""
        await self._settled.wait()

    async def run(self) -> None:
        """Enter and leave until cancelled, and leave then."""
        term = entered = 0
        async with contextlib.AsyncExitStack() as stack:
            while True:
                self._changed.clear()
                if self._term != term:
                    try:
                        await stack.aclose()
                    except (Exception, BatosSignal) as e:  # of a failed image, too: `settled` must not wait for ever
                        log.exception("lead_not_left_in_order", error=repr(e))
                    term, entered = self._term, 0
                while self._term == term != 0 and entered < len(self._makes):
                    entered += 1
                    try:
                        await stack.enter_async_context(self._makes[entered - 1]())
                    except (Exception, BatosSignal) as e:
                        log.exception("lead_not_taken_up", error=repr(e))
                if not self._changed.is_set():
                    self._settled.set()
                    await self._changed.wait()


class Membership:
    """This daemon as one of several kernels."""

    def __init__(self, host: str, terms: KernelTerms, *, lease_s: float, look_s: float) -> None:
        """
        :param host: name of the machine, or the one that the user gave the kernel.
        :param terms: facts that all kernels of the image share.
        :param lease_s: seconds of silence after which a kernel counts as gone.
        :param look_s: seconds between two looks.
        """
        self._host, self._terms, self.lease_s, self.look_s = host, terms, lease_s, look_s
        self.name = ""
        """Name of this run; another one once it was declared gone."""
        self._names: set[str] = set()
        self.term = 0
        """Term of the lead while this kernel has it, else 0."""
        self.draining = False
        self._image: LivingImage
        self._presence: Presence
        self._turn: SessionTurn | None = None
        self._replays: SessionTurn | None = None
        self._silence = Silence(lease_s)
        self._known: list[KernelInfo] = []
        self._facts: dict[str, Any] = {}
        self._fit_at = time.monotonic()
        self._away = ""
        self._looks: list[Look] = []
        self._renamed: list[Callable[[], object]] = []
        self._lead = _Lead()
        self._resigned = self._left = False

    @property
    def epoch(self) -> int:
        """Return the number of this run's registration; no other run has it."""
        return kernels.epoch_of(self.name)

    @property
    def leads(self) -> bool:
        """Return True while this kernel leads, as far as it knows: a write of the leader's has to ask the image."""
        return self.term > 0

    def require_lead(self, doing: str) -> None:
        """Go on only if this kernel leads.

        :param doing: the request in words, as in "curate the memory".
        :raises LedElsewhere: if another kernel leads; it has the name and the address of that one.
        :raises Busy: while no kernel leads.
        """
        if self.leads:
            return
        leader = next((one for one in self.others() if one.leads), None)
        if leader is None:
            raise Busy(f"only the kernel that leads can {doing}, and none leads now; try again in some seconds")
        at = f" at {leader.endpoint}" if leader.endpoint else ""
        raise LedElsewhere(
            f"only the kernel that leads can {doing}, and that is {leader.name}{at}; ask there (option --connect)",
            kernel=leader.name,
            endpoint=leader.endpoint,
        )

    def others(self) -> list[KernelInfo]:
        """Return the other kernels that are not gone, as of the last look."""
        return [one for one in self._known if one.name != self.name and not one.gone]

    def alive(self) -> list[KernelInfo]:
        """Return the other kernels that have given a sign of life since this one looks. A kernel that is only left in the register of a
        copied image never gives one."""
        return [one for one in self.others() if one.name in self._silence.heard]

    def everyone(self) -> list[KernelInfo]:
        """Return all kernels in the register as of the last look; also this one, and those that are gone."""
        return list(self._known)

    # --- what others register

    def on_look(self, function: Look) -> Callable[[], None]:
        """Call `function(root)` at each look from now on; return what ends that."""
        self._looks.append(function)

        def end() -> None:
            if function in self._looks:
                self._looks.remove(function)

        return end

    def was(self, name: str) -> bool:
        """Return True for a name that this kernel has, or had before it was declared gone."""
        return name in self._names

    def on_lead(self, make: Led) -> None:
        """Enter what `make` returns when the lead is gained, and leave it when it is lost; in the order of these calls, left in reverse."""
        self._lead.add(make)

    def on_renamed(self, function: Callable[[], object]) -> None:
        """Call `function` each time when this kernel was declared gone, and has registered anew."""
        self._renamed.append(function)

    # --- its life

    async def join(self, image: LivingImage) -> None:
        """Register; see `LivingImage.open`.

        :raises ImageLocked: if a daemon has the image to itself.
        :raises KernelRefused: if living kernels have another version, codex, profile or format.
        """
        self._image, self._presence = image, presence_of(image)
        if (adapter := server.postgres_of(image.db.storage)) is not None:
            image.committer.turn = self._turn = SessionTurn(adapter, self.lease_s)
            self._replays = SessionTurn(adapter, self.lease_s, REPLAYS)
            image.replay_turn = self._replays.held
        beats: dict[str, int] = {}
        while True:
            try:
                await self._register()
                return
            except KernelRefused as refused:  # by those that are there, or by what is left of those that were killed
                signs = await self._presence.survey(self._read_known())
                await self._declare(self._silence.look(signs) if signs is not None else [])
                for name, sign in (signs or {}).items():
                    if beats.setdefault(name, sign.beat) != sign.beat:
                        await self._presence.release()
                        raise refused
            await asyncio.sleep(self.look_s)

    async def _register(self) -> None:
        uri = shown_uri(self._image.uri)
        self.name = await self._image.system(server.register_kernel, uri, self._host, self._terms)
        self._names.add(self.name)
        await self._presence.hold(self.name)
        kernels.name_database(self._image.db, self.name)
        log.info("kernel_registered", kernel=self.name)

    async def describe(self, **facts: Any) -> None:
        """Tell the others facts of this kernel: `endpoint`, `doors`, `profile`, `models` (`kernels.describe`). Under a new name the kernel
        tells them again.

        :raises KernelRefused: for a profile that the others do not have.
        """
        self._facts |= facts
        await self._image.system(_described, self.name, dict(self._facts))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at the others, and lead if no other kernel does, while the block runs. Then leave."""
        tasks = Background()
        looking = tasks.start(self._look_again(), "kernels")
        beating = tasks.start(self._beat_again(), "signs of life")
        leading = tasks.start(self._lead.run(), "lead")
        try:
            yield
        finally:
            try:
                await self.resign()
                await cancel_and_wait(leading)
                await cancel_and_wait(looking)
                await self.leave()
            except (BatosError, BatosSignal) as e:  # its image failed or its server is away: the others notice its silence
                log.warning("kernel_not_left_in_order", kernel=self.name, error=repr(e)[:300])
            finally:
                for task in (leading, looking, beating):
                    await cancel_and_wait(task)

    async def settled(self) -> None:
        """Wait until what the lead enters is entered, or left, as the lead now says."""
        await self._lead.settled()

    async def resign(self) -> None:
        """Give up the lead for good, once what it entered is left: before the parts end that it uses."""
        self._resigned = True
        self._lead.want(0)
        await self._lead.settled()
        if self.term:
            self._set_term(0)
            await self._image.system(kernels.hand_over, self.name)

    async def leave(self) -> None:
        """End this run in order: the lead and all that is still its own are free for others."""
        if self._left or not self.name:
            return
        self._left, self.term = True, 0
        self._take_turns(False)
        try:
            await self._image.system(kernels.leave, self.name)
        finally:
            await self._presence.release()  # its name stays: what is committed yet must not pass for that of a daemon alone
            for turn in filter(None, (self._turn, self._replays)):  # the group of that commit was the last that took one
                await asyncio.to_thread(turn.close)

    async def drain(self) -> None:
        """Take up no missions and no lead from now on, and give the lead up."""
        self.draining = True
        await self.describe(draining=True)
        await self.resign()

    # --- looking

    async def _beat_again(self) -> None:
        """Give signs of life, whatever a look waits for."""
        while True:
            begun = Lease.now()
            try:
                await self._presence.beat()
                self._image.lease.renew(begun, self.lease_s)
            except Exception as e:  # the looks tell of a server that is away
                log.debug("sign_not_given", error=repr(e)[:300])
            await asyncio.sleep(self.lease_s / _BEATS)

    async def _look_again(self) -> None:
        tm = zodb_patches.Transactions()
        connection = self._image.db.open(transaction_manager=tm)
        log_changes(connection)
        try:
            while True:
                try:
                    await self._look(tm, connection)
                    if self._away:
                        log.warning("kernels_seen_again")
                    self._away = ""
                except (ImageLocked, KernelRefused) as e:  # it stood still, and others took the image, or serve it with another version
                    self._image.give_up(ImageFailed(f"this daemon cannot go on as a kernel of the image: {e.message}"))
                    return
                except Exception as e:
                    if not self._away:
                        log.warning("kernels_not_seen", error=repr(e)[:300])
                    self._away = repr(e)
                await asyncio.sleep(self.look_s)
        finally:
            tm.abort()
            connection.close()

    async def _look(self, tm: TransactionManager, connection: Any) -> None:
        signs = await self._presence.survey(self.others())
        try:
            tm.begin()
            root = connection.root()
            self._known = kernels.listed(root)
            self._take_turns(bool(self.others()))
            gone = kernels.is_gone(root, self.name)
            leader, term = kernels.lead_of(root)
            for look in [] if gone else list(self._looks):
                try:
                    look(root)
                except Exception as e:
                    log.exception("look_failed", look=getattr(look, "__qualname__", repr(look)), error=repr(e))
        finally:
            tm.abort()
        if gone:
            await self._stand_down()
            return
        if not self._resigned:
            self._set_term(term if leader == self.name else 0)
        if signs is None:
            self._silence.restart()
        else:
            there = {one.name for one in self.others()}
            await self._declare(self._silence.look({name: sign for name, sign in signs.items() if name in there}))
        if self.leads and self._others_lead_better():
            log.info("lead_given_up", kernel=self.name, why="it is unfit, and another kernel is not")
            self._set_term(0)
            await self._image.system(kernels.hand_over, self.name)
        elif not (self._resigned or leader in {one.name for one in self._known if not one.gone} or self._others_lead_better()):
            await self._take_lead()

    async def _take_lead(self) -> None:
        taken = await self._image.system(kernels.take_lead, self.name)
        if self._resigned:  # meanwhile: what resigned did not know of this lead
            await self._image.system(kernels.hand_over, self.name)
        else:
            self._set_term(taken)

    def _take_turns(self, needed: bool) -> None:
        for turn in filter(None, (self._turn, self._replays)):
            turn.needed = needed

    @property
    def turn(self) -> SessionTurn | None:
        """Return the turn in which the groups of kernels commit; None where the server needs none."""
        return self._turn

    @property
    def presence(self) -> Presence:
        """Return what gives this kernel's signs of life, and reads those of the others."""
        return self._presence

    @property
    def away(self) -> str:
        """Return why the server of the image does not answer; empty while it does."""
        return self._away

    @property
    def silence(self) -> Silence:
        """Return what this kernel knows of the signs of life of the others."""
        return self._silence

    def _others_lead_better(self) -> bool:
        """Return True if this kernel has been unfit for a lease, and another one that gives signs of life is not."""
        mine = next((one for one in self._known if one.name == self.name), None)
        if mine is None or not mine.unfit:
            self._fit_at = time.monotonic()
        unfit = time.monotonic() - self._fit_at > self.lease_s
        return unfit and any(not (one.unfit or one.draining) for one in self.alive())

    def _read_known(self) -> list[KernelInfo]:
        self._known = self._image.read(kernels.listed)
        return self.others()

    async def _declare(self, silent: list[str]) -> None:
        seen = {one.name: one.beat for one in self._known}
        for name in silent:
            if await self._image.system(kernels.declare_gone, name, seen.get(name, 0)):
                log.warning("kernel_gone", kernel=name, why=kernels.SILENT)
        if silent:
            self._read_known()

    async def _stand_down(self) -> None:
        former = self.name
        self._set_term(0)
        await self._register()
        log.warning("kernel_stood_down", kernel=former, now=self.name, why="the others had not heard of it for a lease")
        self._silence.restart()
        for function in self._renamed:
            try:
                function()
            except Exception as e:
                log.exception("renaming_failed", error=repr(e))
        await self.describe()

    def _set_term(self, term: int) -> None:
        if term != self.term:
            log.info("lead_taken" if term else "lead_left", kernel=self.name, term=term or self.term)
        self.term = term
        self._lead.want(term)


class Alone(Membership):
    """Membership of a daemon that has its image to itself."""

    def __init__(self) -> None:
        super().__init__("", KernelTerms("", "", 0), lease_s=1.0, look_s=1.0)
        self.term = 1
        self._lead.want(self.term)

    async def join(self, image: LivingImage) -> None:
        """Do nothing: there are no others."""

    async def describe(self, **facts: Any) -> None:
        """Do nothing: no other kernel reads it."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run what only the leader may, while the block runs."""
        task = Background().start(self._lead.run(), "lead")
        try:
            yield
        finally:
            await self.resign()
            await cancel_and_wait(task)

    async def resign(self) -> None:
        """Leave what the lead entered."""
        self._lead.want(0)
        await self._lead.settled()

    async def leave(self) -> None:
        """Do nothing: no other kernel hears of it."""

    async def drain(self) -> None:
        """Take up no missions from now on."""
        self.draining = True


def _described(root: Root, name: str, facts: dict[str, Any]) -> None:
    kernels.describe(root, name, **facts)
