"""Channels of notices in the image: objects under `lobby.notices`, with history and undo like all others.

A channel holds the place that its user named, which facts it tells, and when it keeps quiet. What it tells waits in the outbox
(`batos.image.notices`). Secrets of a place are not here: they lie beside the image, and the place names them (`{secret:NAME}`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from batos.config import nearest
from batos.errors import InvalidInput
from batos.objects import Root, UvmObject, add_missing

PROGRAM, HOOK, APPRISE = "program", "hook", "apprise"
WAYS = (PROGRAM, HOOK, APPRISE)
"""Ways of a notice: a program of this machine, an HTTP POST, and what the library apprise reaches."""
END, FAILURE, QUESTION, CHANGE, DOUBT, SCHEDULE = "end", "failure", "question", "change", "doubt", "schedule"
FACTS = (END, FAILURE, QUESTION, CHANGE, DOUBT, SCHEDULE)
"""Facts that notices tell."""
USUAL = (FAILURE, QUESTION, DOUBT, SCHEDULE)
"""Facts that a channel tells where its user names none: those that wait for the user."""
MOST_CHANNELS = 50
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}\Z")
ORIGINS = ("client", "console", "schedule", "hook", "folder", "system")
"""Origins of missions."""


class ChannelSpec(NamedTuple):
    """Words of a user about a channel."""

    name: str
    way: str
    """one of `WAYS`"""
    place: str
    """command line or URL; a secret of it is named as `{secret:NAME}`"""
    options: Mapping[str, Any] = {}
    """options of its way (JSON values)"""
    on: tuple[str, ...] = USUAL
    """facts that it tells, of `FACTS`"""
    persona: str = ""
    """only of missions of this persona; empty: of any"""
    origin: str = ""
    """only of missions of this origin (`client`, `console`, `schedule`, …); empty: of any but the system's own"""
    quiet: str = ""
    """hours in which it keeps quiet, as `22:00-7:00`; empty: none"""
    zone: str = "UTC"
    """time zone of these hours"""
    once: bool = False
    """True if a message that may have arrived is not sent again, so that it may be lost"""


class KeptChannel(NamedTuple):
    """A channel as plain values."""

    spec: ChannelSpec
    number: int
    """given once in an image"""
    added: float
    """seconds since the epoch"""
    paused: bool = False


def install(lobby: UvmObject) -> None:
    """Make the object that holds the channels. A step of genesis."""
    comment = "I hold the channels of notices: where my user wants to be told that a mission ended, failed or asks."
    add_missing(lobby, notices=lambda: lobby.genesis.derive(name="notices", comment=comment))
    prototype = "I am the prototype of channels: a place, what is told there, and the hours in which nothing is."
    add_missing(lobby.traits, channel=lambda: lobby.genesis.derive(comment=prototype, number=0))
    slots = {"way": "", "place": "", "options": "{}", "on": "", "persona": "", "origin": "", "quiet": "", "zone": "UTC"}
    add_missing(lobby.traits.channel, **slots, once=False, paused=False, added=0.0)


def channels(root: Root) -> list[KeptChannel]:
    """Return all channels, by name."""
    return sorted(_each(root), key=lambda one: one.spec.name)


def holder(root: Root) -> UvmObject:
    """Return the object that is written when a channel comes or goes."""
    return root["lobby"].notices  # type: ignore[no-any-return]


def each(root: Root) -> list[tuple[str, UvmObject]]:
    """Return the objects of all channels, by name."""
    return [(name, one) for name, one in root["lobby"].notices._slots.items() if _is_channel(root, one)]


def channel(root: Root, name: str) -> KeptChannel:
    """Return the channel of a name.

    :raises InvalidInput: if there is none.
    """
    return _described(name, _held(root, name))


def find_channel(root: Root, name: str) -> KeptChannel | None:
    """Return the channel of a name; None if there is none."""
    return next((one for one in _each(root) if one.spec.name == name), None)


def wanting(root: Root, fact: str, origin: str = "", persona: str = "", at: float = 0.0) -> list[KeptChannel]:
    """Return the channels that tell a fact.

    :param origin: of the mission that it is about; empty for a fact about no mission.
    :param persona: of that mission.
    :param at: when it became true, where that was some time ago; a channel tells nothing of before it was added. 0: now.
    """
    return [one for one in _each(root) if _wants(one, fact, origin, persona) and not (at and at < one.added)]


def _wants(one: KeptChannel, fact: str, origin: str, persona: str) -> bool:
    spec = one.spec
    if fact not in spec.on or (spec.persona and spec.persona.casefold() != persona.casefold()):
        return False
    return spec.origin == origin if spec.origin else True


# --- system transactions


def add(root: Root, spec: ChannelSpec, now: float) -> KeptChannel:
    """System transaction: add a channel; return it. One of the same words is returned as it is.

    :raises InvalidInput: if a part of it is not valid, the name is taken, or there are too many.
    """
    _check(spec)
    there = find_channel(root, spec.name)
    if there is not None and there.spec == spec._replace(options=dict(spec.options)):
        return there
    holder = root["lobby"].notices
    if spec.name in holder._slots:
        raise InvalidInput(f"the name {spec.name!r} is taken; choose another, or `batos notices remove {spec.name}` first")
    if len(channels(root)) >= MOST_CHANNELS:
        raise InvalidInput(f"there are {MOST_CHANNELS} channels, which is the most; `batos notices remove NAME` removes one")
    prototype = root["lobby"].traits.channel
    said = {**spec._asdict(), "options": json.dumps(dict(spec.options), sort_keys=True), "on": ",".join(spec.on)}
    del said["name"]
    made = prototype.derive(number=int(prototype.number) + 1, added=float(now), **said)
    prototype._slots["number"] = made.number
    holder._slots[spec.name] = made
    return _described(spec.name, made)


def remove(root: Root, name: str) -> None:
    """System transaction: remove a channel. The daemon does not send any more what waits for it.

    :raises InvalidInput: if there is none of that name.
    """
    _held(root, name)
    del root["lobby"].notices._slots[name]


def set_paused(root: Root, name: str, paused: bool) -> KeptChannel:
    """System transaction: let a channel rest, or go on; return it. What it is to tell meanwhile waits.

    :raises InvalidInput: if there is none of that name.
    """
    one = _held(root, name)
    if bool(one.paused) != paused:
        one._slots["paused"] = paused
    return _described(name, one)


def _check(spec: ChannelSpec) -> None:
    if not NAME.match(spec.name):
        raise InvalidInput(f"{spec.name!r} is not a valid name of a channel; use up to 40 letters, digits, _ and -, a letter first")
    if spec.way not in WAYS:
        raise InvalidInput(f"{spec.way!r} is not a way of notices{nearest(spec.way, WAYS)}; allowed are {', '.join(WAYS)}")
    for fact in spec.on:
        if fact not in FACTS:
            raise InvalidInput(f"{fact!r} is not a fact that notices tell{nearest(fact, FACTS)}; allowed are {', '.join(FACTS)}")
    if not spec.on:
        raise InvalidInput(f"a channel that tells nothing is none; name one or more of {', '.join(FACTS)}")
    if spec.origin and spec.origin not in ORIGINS:
        hint = nearest(spec.origin, ORIGINS)
        raise InvalidInput(f"{spec.origin!r} is not an origin of missions{hint}; allowed are {', '.join(ORIGINS)}")


def _each(root: Root) -> Iterator[KeptChannel]:
    holder = root["lobby"]._slots.get("notices")  # an image of an earlier version that is only read has none
    for name, one in () if holder is None else holder._slots.items():
        if _is_channel(root, one):
            yield _described(name, one)


def _held(root: Root, name: str) -> UvmObject:
    found = root["lobby"].notices._slots.get(name)
    if not _is_channel(root, found):
        there = [one.spec.name for one in channels(root)]
        shown = ", ".join(there[:20]) or "none; `batos notices add` makes one"
        raise InvalidInput(f"{name!r} is not a channel of notices{nearest(name, there)}; channels are: {shown}")
    assert isinstance(found, UvmObject)
    return found


def _is_channel(root: Root, found: Any) -> bool:
    return isinstance(found, UvmObject) and found._slots.get("parent*") is root["lobby"].traits.channel


def _described(name: str, one: UvmObject) -> KeptChannel:
    facts = tuple(fact for fact in str(one.on).split(",") if fact)
    rule = (facts, str(one.persona), str(one.origin), str(one.quiet), str(one.zone), bool(one.once))
    spec = ChannelSpec(name, str(one.way), str(one.place), json.loads(one.options), *rule)
    return KeptChannel(spec, int(one.number), float(one.added), bool(one.paused))
