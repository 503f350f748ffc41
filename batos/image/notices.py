"""Notices: facts that the user wants to know, in the outbox of the image, and what became of each message that told them.

A fact is that a mission ended, failed or asks, that a schedule stopped, or another event. It is noted in the very transaction that makes it
durable, for each channel that wants it. So no kill loses it. A message takes what waits for its channel. It is an effect: INTENDED on disk,
with its words, before its first byte leaves. Its outcome is on disk before the next message leaves for that channel. So a kill leaves one
message in doubt at most.

The outbox is not part of `lobby`: an undo takes back what a mission did, not the messages about it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import structlog
from BTrees.LOBTree import LOBTree
from BTrees.OOBTree import OOBTree
from persistent import Persistent

from batos.errors import BatosError, InvalidInput
from batos.image import effects, notice_channels
from batos.image.effects import FAILED, IN_DOUBT, INTENDED, SETTLED
from batos.image.notice_channels import CHANGE, DOUBT, END, FAILURE, QUESTION, ChannelSpec, KeptChannel
from batos.objects import Root

log = structlog.get_logger("batos.notices")
SYSTEM = "system"
"""Origin of missions of the system's own; no notice reports their ends."""
MOST_WAITING = 500
"""Notices that wait for one channel; more are only counted."""
KEPT = 500
"""Messages whose outcome is remembered, of all channels together."""
UNTOLD_S = 7 * 86400.0
"""Seconds for which replies count a message that failed or is in doubt; the log has it longer."""
TITLE_CHARS, TEXT_CHARS = 120, 700
_CHANGES_KEPT = 100
_CANCELLED = "cancelled"
_KEY_CHARS = 32
_SEALS = 20  # of one channel: an undo brings an earlier one back


class Notice(NamedTuple):
    """One fact that a message reports."""

    fact: str
    """one of `notice_channels.FACTS`"""
    subject: str
    """the mission, the schedule, or the number of the change"""
    at: float
    """seconds since the epoch"""
    title: str
    """one line, which begins with a word of ours"""
    text: str = ""


class ChangeFact(NamedTuple):
    """A change that the system made of its own accord, or took back."""

    number: int
    word: str
    """`Changed` or `Taken back`"""
    at: float
    """seconds since the epoch"""
    text: str


class NoticeMessage(NamedTuple):
    """A message to one channel, as it is kept. Times are seconds since the epoch."""

    key: str
    """the same whenever this message is sent; 32 hexadecimal digits"""
    channel: str
    state: str
    """INTENDED, DONE, FAILED where it surely did not arrive, IN_DOUBT, or SETTLED where its user has seen that it failed or is in doubt"""
    words: str
    """JSON of what is sent"""
    facts: tuple[tuple[str, str], ...]
    """fact and subject of each notice in it"""
    at: float
    """when it was last intended"""
    attempts: int = 1
    again: float = 0.0
    """when it is sent again; 0: never"""
    ended: float = 0.0
    why: str = ""
    """why it failed or is in doubt"""
    process: str = ""
    """the process that sends it, as `PID START`"""
    repeats: bool = False
    """True if an earlier sending may have arrived"""
    serial: int = 0
    # Fields are only ever added at the end.

    @property
    def is_open(self) -> bool:
        """Return True if it is to be sent, or sent again."""
        return self.state == INTENDED or bool(self.again)


class NoticeOutbox(Persistent):
    """Notices that wait, by channel, and messages that told some."""

    __module__ = "batos.image"
    dropped: str | None = None
    """epoch of the image that it is a copy of, once what that one noted was dropped"""

    def __init__(self) -> None:
        self.waiting = OOBTree()
        """Name of a channel -> its notices by number, as tuples."""
        self.messages = LOBTree()
        """Serial number -> message, as a tuple."""
        self.open = OOBTree()
        """Name of a channel -> serial number of the message that is to be sent there, or sent again."""
        self.more = OOBTree()
        """Name of a channel -> number of notices that found no room."""
        self.serial = 0
        self.seals = OOBTree()
        """Name of a channel -> digests of what its user said, the newest last."""
        self.changes: tuple[str, ...] = ()
        """Changes of the system's own that were noted."""


def outbox_of(root: Root) -> NoticeOutbox | None:
    """Return the outbox; None where nothing was ever noted."""
    return root.get("notices")  # type: ignore[no-any-return]


# --- system transactions: channels


def add_channel(root: Root, spec: ChannelSpec, now: float) -> KeptChannel:
    """System transaction: add a channel, and seal what its user said; return it. What waited for an earlier one of its name is dropped.

    :raises InvalidInput: as `notice_channels.add`.
    """
    if notice_channels.find_channel(root, spec.name) is None:
        _forget_channel(root, spec.name)
    made, outbox = notice_channels.add(root, spec, now), _opened(root)
    known: tuple[str, ...] = outbox.seals.get(spec.name, ())
    if _seal_of(made.spec) not in known:
        outbox.seals[spec.name] = (*known, _seal_of(made.spec))[-_SEALS:]
    return made


def remove_channel(root: Root, name: str) -> None:
    """System transaction: remove a channel, and what waits for it; what is open there stays as it is.

    :raises InvalidInput: if there is none of that name.
    """
    notice_channels.remove(root, name)
    _forget_channel(root, name)


def is_sealed(root: Root, spec: ChannelSpec) -> bool:
    """Return True if a channel says what its user said. A method that answers a message to its object may have changed it."""
    outbox = outbox_of(root)
    return outbox is not None and _seal_of(spec) in outbox.seals.get(spec.name, ())


def _seal_of(spec: ChannelSpec) -> str:
    said = json.dumps({**spec._asdict(), "options": dict(spec.options)}, sort_keys=True)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_CHARS]


# --- parts of system transactions: facts


def note(root: Root, notice: Notice, origin: str = "", persona: str = "", *, since: float = 0.0) -> None:
    """Note a fact for each channel that wants it. Part of the transaction that makes it durable.

    :param origin: of the mission that it is about.
    :param persona: of that mission.
    :param since: when it became true, where that was some time ago.
    """
    for one in notice_channels.wanting(root, notice.fact, origin, persona, since):
        outbox = _opened(root)
        waiting = outbox.waiting.get(one.spec.name)
        if waiting is None:
            waiting = outbox.waiting[one.spec.name] = LOBTree()
        if len(waiting) >= MOST_WAITING:
            outbox.more[one.spec.name] = outbox.more.get(one.spec.name, 0) + 1
            continue
        outbox.serial += 1
        cut = notice._replace(title=_cut(notice.title, TITLE_CHARS), text=_cut(notice.text, TEXT_CHARS, lines=True))
        waiting[outbox.serial] = tuple(cut)


def note_end(root: Root, mission: Any, failed: bool) -> None:
    """Note that a mission has ended. Part of the transaction that settles it.

    :param mission: its record in the ledger.
    """
    if _any_channel(root):
        _guarded(_note_end, root, mission, failed)


def _note_end(root: Root, mission: Any, failed: bool) -> None:
    persona, text = mission.persona or "", ""
    id, brief = str(mission.id), _brief(mission)
    left = [one for one in effects.load(root, id) if one.state not in effects.ENDED]
    if left:
        why = f"{left[0].tool} may have happened, and its mission has ended; `batos effects --doubt` shows it"
        note(root, Notice(DOUBT, id, time.time(), f"In doubt: {brief}", why), mission.origin, persona)
    if mission.origin == SYSTEM:
        return
    if failed:
        error = json.loads(mission.error) if mission.error else {}
        if error.get("code") != _CANCELLED:  # its user knows
            note(root, Notice(FAILURE, id, time.time(), f"Failed: {brief}", str(error.get("message", ""))), mission.origin, persona)
        return
    result = json.loads(mission.result) if mission.result else {}
    persona, text = str(result.get("persona") or persona), str(result.get("text") or "")
    note(root, Notice(END, id, time.time(), f"Done: {brief}", text), mission.origin, persona)


def note_question(root: Root, mission: Any, question: str) -> None:
    """Note that a mission asks its user. Part of the transaction that records the question.

    :param mission: its record in the ledger.
    """
    if _any_channel(root):
        _guarded(_note_question, root, mission, question)


def _note_question(root: Root, mission: Any, question: str) -> None:
    open_keys = [one.key[:8] for one in effects.load(root, mission.id) if one.state not in effects.ENDED]
    doubts = any(f"[{key}]" in question for key in open_keys)
    fact, word = (DOUBT, "In doubt") if doubts else (QUESTION, "A question")
    note(root, Notice(fact, str(mission.id), time.time(), f"{word}: {_brief(mission)}", question), mission.origin, mission.persona or "")


def note_changes(root: Root, found: list[ChangeFact]) -> None:
    """System transaction: note changes that were not noted before."""
    for one in found:
        outbox, known = _opened(root), f"{one.number} {one.word}"
        if known not in outbox.changes:
            outbox.changes = (*outbox.changes, known)[-_CHANGES_KEPT:]
            title = f"{one.word} of its own accord: change {one.number}"
            note(root, Notice(CHANGE, str(one.number), one.at, title, one.text), since=one.at)


# --- system transactions: messages


def intend(root: Root, message: NoticeMessage, taken: tuple[int, ...]) -> NoticeMessage | None:
    """Record that a message is about to leave, and return it. Return None if it must not leave: its channel was removed or paused
    meanwhile, or another message of the channel is open.

    :param taken: numbers of the waiting notices that it tells; empty for a message that is sent again.
    """
    outbox, name = _opened(root), message.channel
    one = notice_channels.find_channel(root, name)
    current = outbox.open.get(name, 0)
    if one is None or one.paused or current not in (0, message.serial):
        return None
    if not message.serial:
        outbox.serial += 1
        message = message._replace(serial=outbox.serial)
    waiting = outbox.waiting.get(name)
    for number in taken:
        if waiting is None or waiting.pop(number, None) is None:
            raise InvalidInput(f"a notice of the channel {name} was told meanwhile; look again")
    if taken and name in outbox.more:
        del outbox.more[name]
    outbox.open[name] = message.serial
    return _keep(outbox, message._replace(state=INTENDED))


def end(root: Root, message: NoticeMessage) -> NoticeMessage:
    """Record what became of a message; return it. Where its channel is gone, it is not sent again."""
    outbox, name = _opened(root), message.channel
    if notice_channels.find_channel(root, name) is None:
        message = message._replace(again=0.0)
    if outbox.open.get(name) == message.serial and not message.is_open:
        del outbox.open[name]
    kept = _keep(outbox, message)
    open_ones = set(outbox.open.values())
    closed = [serial for serial in outbox.messages if serial not in open_ones]
    for serial in closed[: max(0, len(closed) - KEPT)]:
        del outbox.messages[serial]
    return kept


def settle(root: Root, channel: str = "") -> int:
    """System transaction: settle the messages that failed or are in doubt and are not sent again: their user has seen them. Return their
    number.

    :param channel: only of this channel, which may be removed; empty: of all.
    :raises InvalidInput: if there is no channel of that name, and no such message to one.
    """
    settled = [one for one in messages(root, channel) if one.state in (FAILED, IN_DOUBT) and not one.again]
    if channel and not settled:
        notice_channels.channel(root, channel)
    for message in settled:
        _keep(_opened(root), message._replace(state=SETTLED))
    return len(settled)


def _forget_channel(root: Root, name: str) -> None:
    outbox = outbox_of(root)
    if outbox is None:
        return
    for held in (outbox.waiting, outbox.more):
        held.pop(name, None)
    serial = outbox.open.pop(name, None)
    if serial is not None and serial in outbox.messages:
        message = NoticeMessage(*outbox.messages[serial])
        state = IN_DOUBT if message.state == INTENDED else message.state
        _keep(outbox, message._replace(state=state, again=0.0, why=message.why or "its channel was removed"))


def drop_all(root: Root, why: str, epoch: str) -> int:
    """System transaction: tell nothing of what waits or is open, since the image that this one is a copy of tells it. Return the number of
    notices. It is done once for a copy: what comes after is its own.

    :param epoch: of the image; a copy keeps that of the other one until it is resumed (`batos.image.identity`).
    """
    outbox = _opened(root)
    if outbox.dropped == epoch:
        return 0
    outbox.dropped, count = epoch, 0
    outbox.more.clear()
    for name in list(outbox.waiting):
        waiting = outbox.waiting.pop(name)
        facts = tuple((one[0], one[1]) for one in waiting.values())
        count += len(facts)
        if facts:
            outbox.serial += 1
            made = NoticeMessage("", name, FAILED, "{}", facts[:MOST_WAITING], time.time(), 0, ended=time.time(), why=why)
            _keep(outbox, made._replace(serial=outbox.serial))
    for name in list(outbox.open):
        message = NoticeMessage(*outbox.messages[outbox.open.pop(name)])
        count += len(message.facts)
        state = FAILED if message.state == FAILED else IN_DOUBT
        _keep(outbox, message._replace(state=state, again=0.0, why=why))
    return count


# --- reads


class ChannelState(NamedTuple):
    """State of a channel."""

    channel: KeptChannel
    open: NoticeMessage | None
    """the message that is to be sent, or sent again"""
    waiting: tuple[tuple[int, Notice], ...]
    more: int
    """notices that found no room"""
    sent: tuple[float, ...]
    """when its last messages were intended, the newest first"""


def state_of(root: Root, one: KeptChannel, last: int = 10) -> ChannelState:
    """Return the state of a channel.

    :param last: number of its last messages whose times the state has.
    """
    outbox, name = outbox_of(root), one.spec.name
    if outbox is None:
        return ChannelState(one, None, (), 0, ())
    serial = outbox.open.get(name)
    message = None if serial is None else NoticeMessage(*outbox.messages[serial])
    waiting = tuple((number, Notice(*held)) for number, held in outbox.waiting.get(name, {}).items())
    sent = tuple(told.at for told in messages(root, name, last) if told.attempts)
    return ChannelState(one, message, waiting, outbox.more.get(name, 0), sent)


def states(root: Root, last: int = 10) -> list[ChannelState]:
    """Return the state of each channel, by name.

    :param last: number of its last messages whose times the state has.
    """
    return [state_of(root, one, last) for one in notice_channels.channels(root)]


def messages(root: Root, channel: str = "", most: int = KEPT) -> list[NoticeMessage]:
    """Return the last messages, the newest first.

    :param channel: only of this channel; empty: of all.
    """
    outbox, found = outbox_of(root), list[NoticeMessage]()
    for serial in [] if outbox is None else reversed(outbox.messages.keys()):
        message = NoticeMessage(*outbox.messages[serial])  # type: ignore[union-attr]
        if not channel or message.channel == channel:
            found.append(message)
        if len(found) >= most:
            break
    return found


def untold(root: Root, now: float) -> Iterator[NoticeMessage]:
    """Yield the messages of the last days that failed or are in doubt, and were not sent again, the newest first."""
    return (one for one in messages(root) if one.state in (FAILED, IN_DOUBT) and not one.again and now - one.at < UNTOLD_S)


def key_of(image: str, channel: str, *what: int | str) -> str:
    """Return the key of a message: the same whenever it is sent.

    :param what: numbers of the notices that it tells, or its id.
    """
    content = json.dumps(["notice", image, channel, what])
    return hashlib.sha256(content.encode()).hexdigest()[:_KEY_CHARS]


def to_wire(message: NoticeMessage) -> dict[str, Any]:
    """Return a message as JSON values."""
    words = json.loads(message.words)
    told: dict[str, Any] = {
        "key": message.key,
        "channel": message.channel,
        "state": message.state,
        "title": str(words.get("title", "")),
        "facts": [{"fact": fact, "subject": subject} for fact, subject in message.facts],
        "at": message.at,
        "ended": message.ended or None,
        "attempts": message.attempts,
        "again": message.again or None,
    }
    return {**told, "why": message.why} if message.why else told


def _any_channel(root: Root) -> bool:
    return bool(notice_channels.channels(root))


def _guarded(noting: Callable[..., None], root: Root, mission: Any, *args: Any) -> None:
    """Note a fact of a mission. What is wrong with it must not keep the mission from its end: then only the log has the notice."""
    try:
        noting(root, mission, *args)
    except (BatosError, ValueError, TypeError, AttributeError, KeyError) as e:
        log.error("notice_not_noted", mission=str(mission.id), error=repr(e))


def _opened(root: Root) -> NoticeOutbox:
    outbox = outbox_of(root)
    if outbox is None:
        root["notices"] = outbox = NoticeOutbox()
    return outbox


def _keep(outbox: NoticeOutbox, message: NoticeMessage) -> NoticeMessage:
    outbox.messages[message.serial] = tuple(message)
    return message


def _brief(mission: Any) -> str:
    return " ".join(str(mission.brief).split()) or str(mission.id)


def _cut(text: str, chars: int, *, lines: bool = False) -> str:
    """Return a text without halves of characters and control characters, at most so long."""
    kept = text.encode("utf-8", "replace").decode().strip() if lines else " ".join(text.encode("utf-8", "replace").decode().split())
    kept = "".join(one for one in kept if one.isprintable() or (lines and one == "\n"))
    return kept if len(kept) <= chars else f"{kept[: chars - 1].rstrip()}…"
