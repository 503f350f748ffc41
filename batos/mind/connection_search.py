"""Search for a connection: a message to one that is not there (`tools.web_search`) looks for a place that fits, and asks. So does a brief
that asks for something outside which nothing connected does.

wanted name and message ─ known places, by likeness ─ one question: the place, and leave for this message ─ added ─ the message is sent

Nothing is asked, started or installed before the user agrees. What was found is recorded with the question, the answer is the mission's,
and the connection says which mission it was added for. So a mission that is taken up again asks once, adds once and sends once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batos.errors import GrantRefused, InvalidInput, ToolsTied, UnknownTarget
from batos.image import journal
from batos.image.effects import canonical
from batos.memory.tokenizer import words
from batos.mind.attempt import Attempt
from batos.mind.brief_analysis import KNOWN
from batos.mind.text_likeness import TextLikeness
from batos.objects import Root, UvmObject
from batos.tools import connections, known_places, operation_messages
from batos.tools.connections import PinnedConnection
from batos.tools.definitions import ConnectionSpec, ToolDefinition
from batos.tools.grant_arguments import CONSTRAINT_CHARS, OTHERS
from batos.tools.grant_questions import visible
from batos.tools.known_places import CONNECTED, LISTED, OWN, REMOVED, KnownPlace
from batos.tools.toolbox import Toolbox, check_arguments

MOST = 3
"""Places that one question proposes."""
LIKE = 0.5
"""Least share of the words of a name and message that a place's name and line have. Where an embedder answers, it is also the least cosine
of the two."""
_NAMED = 0.6
"""Fit of a place that has all words of the wanted name."""
_BRIEF_CHARS = 500
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO = ("no", "n", "never", "refuse")
_YES = ("yes", "y", "once", "ok")
_ORIGINS: Mapping[str, str] = {
    LISTED: "you listed it", REMOVED: "you removed it; it comes back as it was", OWN: "it comes with BAT OS",
    CONNECTED: "it is connected; the message goes there, and nothing is added",
}  # fmt: skip


class FoundTarget(NamedTuple):
    """Receiver of a message whose own was not there, and the message that means one of its operations."""

    target: str
    selector: str


async def find_connection(attempt: Attempt) -> None:
    """Have a mission's message reach a connection, where it is sent to one that is not there. Nothing happens for any other mission.

    :raises NeedAnswer: where its user is asked: the attempt ends, and the mission waits.
    :raises UnknownTarget: if no known place fits.
    :raises GrantRefused: if its user says no.
    :raises ToolsTied: if nothing may be done outside.
    :raises ToolFailed, EgressFailed, EgressRefused: if the place cannot be reached; nothing was added.
    """
    message, toolbox = json.loads(attempt.mission.message or "{}"), attempt.services.toolbox
    meant = known_places.meant_name(str(message.get("target", "")))
    if toolbox is None or meant is None or attempt.mission.origin == "system":
        return
    image, mark = attempt.services.image, _mark(message)
    name = image.read(known_places.wanted_name, message["target"])
    if name is None:
        if image.read(_sought_by, meant) == attempt.id:
            await let_decide(attempt, toolbox, meant, message)
        return
    if target_of(attempt, message).target != message["target"]:
        return
    if why := toolbox.tied():
        raise ToolsTied(f"no connection {name!r} is looked for: {why}")
    known = attempt.decisions.tool_choice(mark)
    places = image.read(known_places.known)
    if known is None:
        best = await likely(name, message, places, attempt.services.text_likeness if attempt.policy.compares else None)
        known = {"places": [[one.origin, one.name] for one in best]}
        attempt.decisions.take_tool_choice(mark, known)
    for origin, of in known["places"]:
        if origin == REMOVED and image.read(_sought_by, of) == attempt.id:  # it was put back, and the daemon was killed
            await let_decide(attempt, toolbox, of, message, redirected=True)
            return
    by_name = {(one.origin, one.name): one for one in places}
    proposed = [by_name.get((origin, of)) for origin, of in known["places"]]
    if not proposed:
        raise UnknownTarget(nothing_fits(name, message["selector"]))
    chosen = _chosen(attempt, name, message, [one for one in proposed if one is not None])
    if chosen.origin == CONNECTED:
        await let_decide(attempt, toolbox, chosen.name, message, redirected=True)
    else:
        again = chosen.origin == REMOVED
        spec = chosen.spec if again else chosen.spec._replace(name=name)
        await _added(attempt, toolbox, spec, again=again)
        await let_decide(attempt, toolbox, spec.name, message, redirected=spec.name != name)


async def connect_for_errand(attempt: Attempt) -> None:
    """Propose a place that its user listed or removed, for a brief that asks for something outside which nothing connected does. Where he
    says yes it is connected under its name, and this mission may use it; else the mission says that it cannot.

    :raises NeedAnswer: where its user is asked.
    :raises ToolFailed, EgressFailed, EgressRefused: if the place cannot be reached; nothing was added.
    """
    toolbox, errand = attempt.services.toolbox, attempt.errand
    if toolbox is None or errand is None or errand.kind in KNOWN or toolbox.tied():
        return
    image, brief = attempt.services.image, attempt.mission.brief
    mark = journal.mark_of(f"connection for\0{brief}")
    places = [one for one in image.read(known_places.listed) if one.origin != OWN]
    known = attempt.decisions.tool_choice(mark)
    if known is None:
        best = await _able(brief, places, attempt.services.text_likeness if attempt.policy.compares else None)
        known = {"places": [[one.origin, one.name] for one in best]}
        if best:
            attempt.decisions.take_tool_choice(mark, known)
    proposed = [one for one in places if [one.origin, one.name] in known["places"]]
    if not proposed:
        return
    head = f"Nothing that is connected does this: {visible(brief[:_BRIEF_CHARS])}. Shall one of these places be used?"
    try:
        chosen = _answered(attempt, _question(head, proposed, "this mission may use it; what others do goes by your grants"), proposed)
    except GrantRefused:
        return
    await image.system(known_places.let_use, attempt.id, chosen.name, mission=attempt.id)
    await _added(attempt, toolbox, chosen.spec, again=chosen.origin == REMOVED)
    attempt.forget_errand()


async def _able(brief: str, places: Sequence[KnownPlace], likeness: TextLikeness | None) -> list[KnownPlace]:
    """Return the places whose line says what a brief asks for, the best first."""
    said = _stems(_words(brief[:_BRIEF_CHARS]))
    about = [" ".join([*_words(one.name), one.line]) for one in places]
    lines = [_stems(_words(one.line)) for one in places]
    shares = [len(said & one) / len(one) if one else 0.0 for one in lines]
    rows = None if likeness is None or not places else await likeness([brief[:_BRIEF_CHARS]], about)
    rated = [max(share, rows[0][at] if rows else 0.0) for at, share in enumerate(shares)]
    best = sorted((at for at in range(len(places)) if rated[at] >= LIKE), key=lambda at: -rated[at])
    return [places[at] for at in best[:MOST]]


def target_of(attempt: Attempt, message: Mapping[str, Any]) -> FoundTarget:
    """Return where a mission's message goes: to its own target, or to the connection that was found in its place."""
    found = attempt.decisions.tool_choice(_mark(message, "to")) or {}
    return FoundTarget(found.get("target", message["target"]), found.get("selector", message["selector"]))


def nothing_fits(name: str, selector: str) -> str:
    """Return the end of a search that found nothing: what is wanted, and how to add or list it."""
    return (
        f"there is no connection {name!r}, and no place that you listed or removed, or that is connected, fits {name} {selector}. "
        f"`batos tools add {name} --mcp 'COMMAND'` (or --openapi, --http, --folder, --program, --web) adds one. "
        f"`batos tools offer {name} --line 'WHAT IT DOES' --mcp 'COMMAND'` lists one that is proposed when a message wants it"
    )


async def likely(name: str, message: Mapping[str, Any], places: Sequence[KnownPlace], likeness: TextLikeness | None) -> list[KnownPlace]:
    """Return the places that fit a wanted name and message, the best first, at most `MOST`.

    :param likeness: None: by words alone.
    """
    wanted, own = _words(f"{name} {message['selector']}"), _stems(_words(name))
    asked = _stems(wanted)
    about = [" ".join([*_words(one.name), one.line]) for one in places]
    known = [_stems(_words(text)) for text in about]
    shares = [max(len(asked & one) / len(asked), _NAMED * (own <= one)) for one in known]
    rows = None if likeness is None or not places else await likeness([" ".join(wanted)], about)
    rated = [max(share, rows[0][at] if rows else 0.0, float(places[at].name == name)) for at, share in enumerate(shares)]
    best = sorted((at for at in range(len(places)) if rated[at] >= LIKE), key=lambda at: -rated[at])
    return [places[at] for at in best[:MOST]]


def _stems(found: Sequence[str]) -> set[str]:
    """Return the index terms of words; the words themselves where none of them says anything."""
    return {stem for word in found for stem in words(word)} or set(found)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(_HUMP.sub(" ", text))]


# --- the question


def question_text(name: str, message: Mapping[str, Any], places: Sequence[KnownPlace]) -> str:
    """Return the one question about the places that fit, and about the leave for the message."""
    call = f"{message['selector']}({_given(message)})"
    head = f"There is no connection {name!r}, to which the message {visible(call)} goes. Shall one of these places take it?"
    return _question(head, places, "this mission may send it this very message; all else goes by your grants")


def _question(head: str, places: Sequence[KnownPlace], leave: str) -> str:
    lines = [head]
    for number, one in enumerate(places, 1):
        options = f" {json.dumps(dict(one.spec.options), ensure_ascii=False)}" if one.spec.options else ""
        lines += [
            f"{number}. {one.name} ({_ORIGINS[one.origin]}): {visible(one.line)}",
            f"  | {one.spec.kind}{visible(f' {one.spec.place}{options}')}".rstrip(),
        ]
    which = "`yes`" if len(places) == 1 else f"its number (1 to {len(places)})"
    return "\n".join((
        *lines,
        f"Say {which}: it is connected, and {leave}. Or say `no`. Nothing is installed, started or asked before.",
    ))  # fmt: skip


def _given(message: Mapping[str, Any]) -> str:
    args = [json.dumps(one, ensure_ascii=False) for one in message.get("args", ())]
    named = [f"{word}={json.dumps(one, ensure_ascii=False)}" for word, one in message.get("kwargs", {}).items()]
    return ", ".join([*args, *named])


def _chosen(attempt: Attempt, name: str, message: Mapping[str, Any], places: Sequence[KnownPlace]) -> KnownPlace:
    """Return the place that the user chooses.

    :raises NeedAnswer: where he is asked.
    :raises GrantRefused: if he says no, or takes the places off his list meanwhile.
    """
    if not places:
        raise GrantRefused(f"no connection {name!r} is made: the place that fitted is not listed any more; send the message again")
    try:
        return _answered(attempt, question_text(name, message, places), places)
    except GrantRefused:
        raise GrantRefused(f"no connection {name!r} is made, and {message['selector']} is not sent: its user said no") from None


def _answered(attempt: Attempt, question: str, places: Sequence[KnownPlace]) -> KnownPlace:
    """Return the place that the answer to a question chooses; one that is not an answer is asked about again."""
    said = attempt.ask_operator(question)
    while True:
        word = said.strip(" .!`'\"").casefold()
        if word in _NO:
            raise GrantRefused("its user said no")
        if word in _YES and len(places) == 1:
            return places[0]
        if word.isdecimal() and 1 <= int(word) <= len(places):
            return places[int(word) - 1]
        said = attempt.ask_operator(f"{said[:80]!r} is not an answer to this. {question}")


# --- after the answer


async def _added(attempt: Attempt, toolbox: Toolbox, spec: ConnectionSpec, *, again: bool) -> None:
    """Add the connection, unless another mission has added the same one meanwhile."""
    held = toolbox.connections().get(spec.name)
    if held is None:
        try:
            await toolbox.add(spec, sought_by=attempt.id, again=again)
        except InvalidInput:
            held = toolbox.connections().get(spec.name)
            if held is None:
                raise
    if held is not None and held.spec._replace(on=spec.on) != spec:
        raise InvalidInput(f"the name {spec.name!r} was taken meanwhile by another place, {held.spec.place}; send the message again")


async def let_decide(attempt: Attempt, toolbox: Toolbox, name: str, message: Mapping[str, Any], *, redirected: bool = False) -> None:
    """Let the mission make the call that the message means, and record where the message goes if not to its own target.

    A message that means none of its operations goes to the only one that there is, if it has arguments and they fit.
    """
    image = attempt.services.image
    held = toolbox.connection(name)
    tool = image.read(lambda root: operation_messages.operation_of(_object(root, name), message["selector"]))
    selector = message["selector"]
    if tool is None and (tool := _only_one(held, message)) is not None:
        selector = tool.name
    if (redirected or selector != message["selector"]) and attempt.decisions.tool_choice(_mark(message, "to")) is None:
        attempt.decisions.take_tool_choice(_mark(message, "to"), {"target": f"tools.{name}", "selector": selector})
    if tool is None:  # a method is written for it, and asks for itself
        return
    full = f"{name}.{tool.name}"
    given = operation_messages.arguments_of(full, tool, message["args"], message["kwargs"])
    check_arguments(full, tool, given)
    exact = canonical({**{word: {"const": value} for word, value in given.items()}, OTHERS: False})
    if len(exact) <= CONSTRAINT_CHARS:
        await image.system(known_places.let_once, attempt.id, full, exact, mission=attempt.id)


def _only_one(held: PinnedConnection, message: Mapping[str, Any]) -> ToolDefinition | None:
    if len(held.tools) != 1 or held.suspended or not (message["args"] or message["kwargs"]):
        return None
    [tool] = held.tools
    full = f"{held.spec.name}.{tool.name}"
    try:
        check_arguments(full, tool, operation_messages.arguments_of(full, tool, message["args"], message["kwargs"]))
    except InvalidInput:
        return None
    return tool


def _object(root: Root, name: str) -> UvmObject:
    found: UvmObject = root["lobby"].tools._slots[name]
    return found


def _sought_by(root: Root, name: str) -> str:
    """Return the mission for which a connection was added; "" if there is none of that name, or its user added it."""
    found = root["lobby"].tools._slots.get(name)
    return str(found._slots.get(known_places.SOUGHT_BY, "")) if connections.is_connection(root, found) else ""


def _mark(message: Mapping[str, Any], what: str = "places") -> bytes:
    return journal.mark_of(f"connection {what}\0{message['target']}\0{message['selector']}")
