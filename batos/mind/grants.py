"""Grants: what generated methods may send that changes more than its receiver.

Whoever gives a brief, or a note that is read, has a part in what a model writes. So a method that would forget documents, revert methods
or change voices does it only where its user has let it. What counts is the Primitive that answers, by whatever name and way it was sent,
and everyone in the chain: a method without the grant does not get it done by one that has it. A grant is of one version of a method.
What people send themselves needs none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from batos.config import nearest
from batos.errors import GrantNeeded, ImageDamaged, InvalidInput
from batos.image import history
from batos.image.genesis import add_missing
from batos.mind.tally import in_trial
from batos.mind.thinking import attempt_or_none, current
from batos.objects import Intent, Method, Primitive, SlotDict, SlotList, UvmObject, find, is_new
from batos.sandbox import Invocation, senders

_TITLE = 80  # characters of what an object is called, in a question
_SHOWN = 400  # of a message, in an error; a question has it whole


def check(primitive: Primitive, obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """See that a message may be sent that a Primitive answers.

    In a trial it may where nothing of it is kept: then the transaction of the receiver is one that is aborted.

    :raises GrantNeeded: where a generated method sends it, or has it sent, that may not.
    :raises NeedAnswer: where the mission asks its user.
    """
    reach, attempt = primitive.reach, attempt_or_none()
    if reach is None:
        return
    runs = [run for run in senders() if attempt is None or run.activity.seed == attempt.id]  # none that another mission began this one in
    if reach.grantable and in_trial() and obj._p_jar is not None and obj._p_jar.transaction_manager.get().isDoomed():
        return
    lacking = [run for run in runs if not run.method.may_send(primitive.name)]
    for run in runs:
        if run.method._p_jar is not None:
            run.method._p_jar.readCurrent(run.method)  # a grant that is revoked meanwhile is none
    if not lacking:
        return
    message = f"{_called(obj)} {selector}({_arguments(args, kwargs)})"
    agreed = None
    if reach.grantable and attempt is not None and not in_trial():
        agreed = attempt.agrees(
            f"May {_methods(lacking)} send {message}? It changes {reach.what}. Answer yes, and it is done in this mission; "
            "any other answer refuses it."
        )
    if not agreed:
        told = f"{_methods(lacking)} would send {message[:_SHOWN]}, which changes {reach.what}"
        grant = _commands(lacking, primitive) if reach.grantable else []
        why = "its user said no" if agreed is False else _advice(lacking, grant) if grant else "no method may do that"
        raise GrantNeeded(f"{told}; {why}", primitive=primitive.name, target=_called(obj), selector=selector, grant=grant)


def _commands(lacking: Sequence[Invocation], primitive: Primitive) -> list[str]:
    """What grants it to each of these."""
    return list(dict.fromkeys(f"batos grant {_target(run.holder())} {run.method.selector} {primitive.name}" for run in lacking))


def _advice(lacking: Sequence[Invocation], grant: Sequence[str]) -> str:
    advice = f"a grant of its user lets it: {'; '.join(f'`{one}`' for one in grant)}"
    if any(is_new(run.method) for run in lacking):
        advice += ", once it is kept: `batos teach` keeps it before it is sent, and a mission that may ask (`--may-ask`) asks instead"
    return advice


@Primitive.register("method.grant_", reaches="what methods may send", grantable=False)
async def grant_(obj: UvmObject, selector: str, message: str, revoke: bool = False) -> dict[str, Any]:
    """Let the method that answers a selector send what changes more than its receiver: this version of it, until that is revoked.

    :param message: what it may send, by the name of the Primitive that answers: `forget_`.
    :param revoke: take the grant back.
    :raises InvalidInput: where there is no such method or message, or nothing to revoke.
    :raises ImageDamaged: for a method whose source is not what was audited.
    """
    held = find(obj, selector) if isinstance(selector, str) else None
    if held is None or not isinstance(held[1], Method):
        what = "an intent, and no method yet" if held is not None and isinstance(held[1], Intent) else "no generated method"
        raise InvalidInput(f"{_called(obj)} has {what} under {selector!r}; `batos methods` lists what can be granted something")
    method, names = held[1], [name for name, reach in Primitive.reaching().items() if reach.grantable]
    if message not in names:
        raise InvalidInput(f"no message {message!r} needs a grant{nearest(str(message), names)}; these do: {', '.join(names)}")
    if not method.intact():
        raise ImageDamaged(f"the source of method {selector!r} of {_called(obj)} is not what was audited; nothing is granted to it")
    if revoke and not method.may_send(message):
        raise InvalidInput(f"version {method.version} of {selector!r} has no grant for {message!r}")
    others = tuple(one for one in method.grants if one[0] != message)
    if revoke or not method.may_send(message):
        method.grants = others if revoke else (*others, (message, current().id))
    return {"selector": selector, "version": method.version, "granted": [name for name, _ in method.grants]}


def install(lobby: UvmObject) -> None:
    """The step of genesis by which every object understands `grant_`."""
    add_missing(lobby.genesis, grant_=Primitive.of(grant_))


def _methods(runs: Sequence[Invocation]) -> str:
    return " for ".join(dict.fromkeys(f"{run.method.selector} of {_path(run.holder())}" for run in runs))


def _path(obj: UvmObject) -> str:
    """What leads to an object: its name in the lobby, or its oid. One that this mission made has another oid in each attempt."""
    if is_new(obj):
        return "a new object"
    lobby = obj._p_jar.root()["lobby"]
    return next((name for name, one in lobby._slots.items() if one is obj), None) or str(history.oid_of(obj))


def _target(obj: UvmObject) -> str:
    return "OBJECT" if is_new(obj) else _path(obj)


def _called(obj: UvmObject) -> str:
    """An object in a question: what leads to it, and its title or name, which anybody may have written."""
    path, own = _path(obj), next((obj._slots[name] for name in ("title", "source", "name") if obj._slots.get(name)), "")
    told = str(own)[:_TITLE]
    return path if not told or told.casefold() == path.casefold() else f"{path} {json.dumps(told, ensure_ascii=False)}"


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*map(_literal, args), *(f"{name}={_literal(value)}" for name, value in kwargs.items())])


def _literal(value: Any) -> str:
    """A value of a message, whole, and the same in each attempt: objects that it makes have another id in each."""
    if isinstance(value, UvmObject):
        return _called(value)
    if isinstance(value, list | tuple | SlotList):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict | SlotDict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(one)}' for key, one in value.items())}}}"
    return json.dumps(history.uncut(value), ensure_ascii=False)
