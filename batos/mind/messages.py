"""Messages: send them, check them before a mission is accepted, and check grants of generated methods.

`await send(obj, selector, *args, **kwargs)` sends. A message that would fail anyway is refused at once, and costs no mission. A selector
that is nearly a known one is taken for a slip: otherwise a method would be written for it, and stay. These checks only read the image.

A grant lets a generated method send a message that changes more than its receiver. The author of a brief, or of a note that is read, has a
part in what a model writes. So a method that would forget documents, revert methods or change voices may do so only with its user's grant.
The check looks at the Primitive that answers, by whatever name and path it was sent, and at every method in the chain. So a method without
the grant cannot borrow one from another. A grant is for one version of a method. Messages that users send need none.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batos import scope
from batos.config import nearest
from batos.errors import GrantNeeded, ImageDamaged, InvalidInput, MessageNotUnderstood
from batos.image import history, taught_examples
from batos.image.history import resolve
from batos.image.living_image import add_missing
from batos.methods.runtime import is_sealed, may_use_tools, parameters_of
from batos.mind import sealed_sends, tool_messages
from batos.mind.attempt import attempt_or_none, current
from batos.objects import Intent, Method, Primitive, Root, SlotDict, SlotList, UvmObject, find, is_new, lookup_order
from batos.objects.json_form import oid_of
from batos.sandbox import LOOKUP, UNDERSTANDS, Invocation, senders
from batos.tools import connections, known_places, operation_messages

_TITLE = 80  # greatest number of characters of an object's name in a question
_SHOWN = 400  # greatest number of characters of a message in an error; a question shows the whole message


def check_grant(primitive: Primitive, obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that a message to a Primitive may be sent.

    In a trial it may, since the transaction of the receiver is aborted.

    :raises GrantNeeded: if a generated method without the grant sends it, directly or through another method.
    :raises NeedAnswer: if the mission asks its user.
    """
    reach, attempt = primitive.reach, attempt_or_none()
    if reach is None:
        return
    # without runs of another mission that started this one
    runs = [run for run in senders() if attempt is None or run.activity.seed == attempt.id]
    if reach.grantable and scope.current().in_trial and obj._p_jar is not None and obj._p_jar.transaction_manager.get().isDoomed():
        return
    lacking = [run for run in runs if not run.method.may_send(primitive.name)]
    for run in runs:
        if run.method._p_jar is not None:
            run.method._p_jar.readCurrent(run.method)  # a conflict if another transaction revokes the grant meanwhile
    if not lacking:
        return
    message = f"{_called(obj)} {selector}({_arguments(args, kwargs)})"
    agreed = None
    if reach.grantable and attempt is not None and not scope.current().in_trial:
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
    """Return the commands that grant the Primitive to each of these methods."""
    return list(dict.fromkeys(f"batos grant {_target(run.holder())} {run.method.selector} {primitive.name}" for run in lacking))


def _advice(lacking: Sequence[Invocation], grant: Sequence[str]) -> str:
    advice = f"a grant of its user lets it: {'; '.join(f'`{one}`' for one in grant)}"
    if any(is_new(run.method) for run in lacking):
        advice += ", once it is kept: `batos teach` keeps it before it is sent, and a mission that may ask (`--may-ask`) asks instead"
    return advice


@Primitive.register("method.grant_", reaches="what methods may send", grantable=False)
async def grant_(obj: UvmObject, selector: str, message: str, revoke: bool = False) -> dict[str, Any]:
    """Let the method that answers a selector send a message that changes more than its receiver; for this version, until revoked.

    :param message: name of the Primitive that answers the message: `forget_`.
    :param revoke: revoke the grant.
    :raises InvalidInput: if there is no such method or message, or nothing to revoke.
    :raises ImageDamaged: if the method's source is not the audited one.
    """
    held = find(obj, selector) if isinstance(selector, str) else None
    if held is None or not isinstance(held[1], Method):
        what = "an intent without a method yet" if held is not None and isinstance(held[1], Intent) else "not a generated method"
        raise InvalidInput(
            f"{selector!r} of {_called(obj)} is {what}; only a generated method can be granted messages, `batos methods` lists them"
        )
    method, names = held[1], [name for name, reach in Primitive.reaching().items() if reach.grantable]
    if message not in names:
        raise InvalidInput(f"no message {message!r} needs a grant{nearest(str(message), names)}; these do: {', '.join(names)}")
    if not method.intact():
        raise ImageDamaged(f"the source of method {selector!r} of {_called(obj)} differs from the audited one, so it gets no grant")
    if revoke and not method.may_send(message):
        raise InvalidInput(f"version {method.version} of {selector!r} has no grant for {message!r}")
    others = tuple(one for one in method.grants if one[0] != message)
    if revoke or not method.may_send(message):
        method.grants = others if revoke else (*others, (message, current().id))
    return {"selector": selector, "version": method.version, "granted": [name for name, _ in method.grants]}


def install_grants(lobby: UvmObject) -> None:
    """Let every object understand `grant_`. A step of genesis."""
    add_missing(lobby.genesis, grant_=Primitive.of(grant_))


def _methods(runs: Sequence[Invocation]) -> str:
    return " for ".join(dict.fromkeys(f"{run.method.selector} of {_path(run.holder())}" for run in runs))


def _path(obj: UvmObject) -> str:
    """Return an object's name in the lobby, or its oid. An object that this mission made has another oid in each attempt."""
    if is_new(obj):
        return "a new object"
    lobby = obj._p_jar.root()["lobby"]
    return next((name for name, one in lobby._slots.items() if one is obj), None) or str(history.oid_of(obj))


def _target(obj: UvmObject) -> str:
    return "OBJECT" if is_new(obj) else _path(obj)


def _called(obj: UvmObject) -> str:
    """Return the name of an object for a question: its path, and its title or name, which anyone may have written."""
    path, own = _path(obj), next((obj._slots[name] for name in ("title", "source", "name") if obj._slots.get(name)), "")
    told = str(own)[:_TITLE]
    return path if not told or told.casefold() == path.casefold() else f"{path} {json.dumps(told, ensure_ascii=False)}"


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*map(_literal, args), *(f"{name}={_literal(value)}" for name, value in kwargs.items())])


def _literal(value: Any) -> str:
    """Return a value of a message, whole, and the same in each attempt: objects that it makes have another id in each."""
    if isinstance(value, UvmObject):
        return _called(value)
    if isinstance(value, list | tuple | SlotList):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict | SlotDict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(one)}' for key, one in value.items())}}}"
    return json.dumps(history.uncut(value), ensure_ascii=False)


BUILT_IN = ("_clone_persistent_", "clone", "derive")
"""Messages that every object understands. Each answers a new object, which lives as long as another object refers to it."""


async def send(obj: UvmObject, selector: str, *args: Any, **kwargs: Any) -> Any:
    """Send a message to an object, inside the unit of work that the object belongs to.

    A Primitive goes to host code, which may be a coroutine; a data slot answers its value; a Method runs in the sandbox. An
    Intent, or a selector that nothing answers, is written as a method first: that takes a mission.

    :raises MessageNotUnderstood: outside a mission, for what would have to be written or run in the sandbox; for a name that
        no method may have.
    :raises InvalidInput: for arguments that do not fit.
    :raises GrantNeeded: for a Primitive that changes more than its receiver, where a generated method sends it without a grant.
    :raises BatosError: as writing or running the method failed.
    """
    return await deliver(obj, selector, args, kwargs)


async def deliver(
    obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], /, *, start: tuple[UvmObject, ...] = ()
) -> Any:
    """Send a message like `send`, with the arguments as values.

    :param start: objects to look the selector up in, in order and with what they inherit, instead of `obj`; the receiver stays `obj` (a
        resend).
    """
    run = scope.current().run
    if run is None or not is_sealed(run.method):
        return await _delivered(obj, selector, args, kwargs, start)
    sent = functools.partial(_delivered, obj, selector, args, kwargs, start)
    return await sealed_sends.answered(run, obj, selector, [*args, *kwargs.values()], sent)


async def _delivered(obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], start: tuple[UvmObject, ...]) -> Any:
    held = find(obj, selector) if not start else next(filter(None, (find(one, selector) for one in start)), None)
    if held is None and selector in BUILT_IN:
        return _copy(obj, selector, tuple(args), dict(kwargs))
    if held is None or isinstance(held[1], Intent | Method):
        return await _generated(obj, selector, args, kwargs, held, resent=bool(start))
    value = held[1]
    if isinstance(value, Primitive):
        check_grant(value, obj, selector, args, kwargs)
        try:
            inspect.signature(value.resolve()).bind(obj, *args, **kwargs)
        except TypeError as e:
            raise InvalidInput(f"{selector!r} of {obj!r} was sent with the wrong arguments: {e}") from None
        answer = value(obj, *args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer
    if (args or kwargs) and find(obj, UNDERSTANDS) is not None:  # what it understands may have the name of a slot
        return await _delivered(obj, UNDERSTANDS, (selector, *args), kwargs, ())
    if args or kwargs:
        raise InvalidInput(f"slot {selector!r} of {obj!r} holds data and takes no arguments")
    return value


async def _generated(
    obj: UvmObject, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], held: tuple[UvmObject, Any] | None, *, resent: bool
) -> Any:
    attempt = attempt_or_none()
    if attempt is None or selector[:1] == "_" or (resent and held is None):
        raise MessageNotUnderstood(obj, selector)
    making = attempt.making
    for hook in (UNDERSTANDS, LOOKUP):
        if held is None and find(obj, hook) is not None and not tool_messages.wants_method(obj, selector):
            return await _delivered(obj, hook, (selector, *args), kwargs, ())
    if held is None and (own := find(obj, "_doesNotUnderstand_")) is not None:  # an object may define its own answer to unknown messages
        answers = isinstance(own[1], Method | Primitive)
        return await _delivered(obj, "_doesNotUnderstand_", (selector, *args), kwargs, ()) if answers else None
    if held is not None and isinstance(held[1], Method) and not tool_messages.is_doubted(*held):
        holder, method = held
    else:
        method = await making.methods.forge(attempt, obj, selector, args, kwargs)
        found = find(obj, selector)
        holder = found[0] if found is not None else obj
    if not method.intact():
        raise ImageDamaged(
            f"the source of method {selector!r} of {obj!r} is not what was audited; `batos revert` brings back another version"
        )
    return await making.run(obj, holder, method, args, kwargs)


def _copy(obj: UvmObject, selector: str, args: tuple[Any, ...], slots: dict[str, Any]) -> UvmObject:
    if args:
        raise InvalidInput(f"{selector!r} takes the slots of the new object by name, and no other arguments")
    try:
        new: UvmObject = getattr(obj, selector)(**slots)
    except (TypeError, ValueError) as e:
        raise InvalidInput(f"{selector!r} of {obj!r}: {e}") from None
    if obj._p_jar is not None:
        obj._p_jar.add(new)  # gives the object an id
    return new


def called(obj: UvmObject) -> str:
    """Return an object in words: its name, if it has one."""
    name = obj._slots.get("name")
    return name if isinstance(name, str) and name else oid_of(obj) or repr(obj)


_HOOKS = (UNDERSTANDS, LOOKUP, "_doesNotUnderstand_")
_NAMED = 3  # greatest number of suggested names
_LONG = 8  # least number of letters for which two typing errors are tolerated


def check_message(
    root: Root, target: str, selector: str, args: Sequence[Any], kwargs: Mapping[str, Any], write: bool = False, *, tools: bool = False
) -> None:
    """Check that a message may become a mission.

    :param write: allow a method to be written for a selector that is nearly a known one.
    :param tools: True if the method that is written for it may use tools.
    :raises UnknownTarget: if its receiver is not there.
    :raises UnknownTool: if it means a tool of a connection that is suspended, or more than one.
    :raises InvalidInput: for arguments that do not fit, and for a selector that looks like a slip.
    """
    if _looks_for_connection(root, target, selector, write=write):
        return
    obj = resolve(root, target)
    held = find(obj, selector)
    connected = connections.is_connection(root, obj)
    free = selector not in BUILT_IN if held is None else bool(args or kwargs) and not isinstance(held[1], Intent | Method | Primitive)
    if connected and free and tool_messages.check_operation(obj, selector, args, kwargs):
        return
    if tools and held is not None and not (isinstance(held[1], Intent) or (isinstance(held[1], Method) and may_use_tools(held[1]))):
        what = "by a method without tools" if isinstance(held[1], Method) else "without a method"
        raise InvalidInput(
            f"{selector!r} of {called(obj)} is answered {what}; `--tools` (on the wire `tools`) is for a method that is yet to be written. "
            f"`batos teach {target} {selector} --tools` with examples has another one written"
        )
    if held is not None:
        _check_arguments(obj, selector, held[1], args, kwargs)
    elif not (write or selector in BUILT_IN or (not connected and any(find(obj, hook) is not None for hook in _HOOKS))):
        _check_name(root, obj, target, selector)


def _looks_for_connection(root: Root, target: str, selector: str, *, write: bool) -> bool:
    """Return True if a message is sent to a connection that is not there: its mission looks for one. The messages that each connection
    understands mean one that is there, and a name that is nearly that of one is taken for a slip."""
    name = known_places.wanted_name(root, target)
    if name is None or selector in BUILT_IN or find(root["lobby"].traits.connection, selector) is not None:
        return False
    return write or not similar_selectors(name, connections.load(root))


def similar_selectors(word: str, names: Iterable[str]) -> list[str]:
    """Return the selectors that differ from another one by a typing error, the nearest first. They differ by a letter more, less, replaced
    or swapped (two errors in a long name), by case or underscores, or by word order.
    """
    plain = _plain(word)
    allowed = 2 if len(plain) >= _LONG else 1
    found = []
    for name in set(names) - {word}:
        other = _plain(name)
        if sorted(_parts(name)) == sorted(_parts(word)):
            found.append((0, name))
        elif min(len(plain), len(other)) > 2 * allowed and abs(len(plain) - len(other)) <= allowed:
            slips = min(_distance(plain, other), _distance("".join(sorted(_parts(word))), "".join(sorted(_parts(name)))))
            if slips <= allowed:
                found.append((slips, name))
    return [name for _, name in sorted(found)]


def _check_name(root: Root, obj: UvmObject, target: str, selector: str) -> None:
    taught, intent = taught_examples.examples_of(root, obj, selector)
    if taught or intent:
        return
    known = {name for one in lookup_order(obj) for name in one._slots if not name.endswith("*") and name[:1] != "_"}
    if connections.is_connection(root, obj):
        known |= operation_messages.understood(obj).keys()
    if meant := similar_selectors(selector, known):
        names = ", ".join(map(repr, meant[:_NAMED]))
        raise InvalidInput(
            f"{called(obj)} has no slot {selector!r}, but {names}; send that, or have a method written for {selector!r} anyway: "
            f"`batos send-to {target} {selector} --write` (on the wire `write`)"
        )


def _check_arguments(obj: UvmObject, selector: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if isinstance(value, Intent):
        return
    if isinstance(value, Method):
        taken = inspect.Signature(parameters_of(value.source))
    elif isinstance(value, Primitive):
        try:
            signature = inspect.signature(value.resolve())
        except LookupError:  # its mission reports this
            return
        taken = inspect.Signature(list(signature.parameters.values())[1:])
    else:
        taken = inspect.Signature()
        if args or kwargs:
            raise InvalidInput(f"slot {selector!r} of {called(obj)} holds data and takes no arguments")
    try:
        taken.bind(*args, **kwargs)
    except TypeError as e:
        given = ", ".join([*(json.dumps(one)[:40] for one in args), *(f"{name}=" for name in kwargs)]) or "none"
        raise InvalidInput(f"{selector!r} of {called(obj)} takes {_told(taken)}; given: {given}; {e}") from None


def _told(taken: inspect.Signature) -> str:
    """Return the parameters as text; optional ones are in brackets."""
    names = (str(one.replace(annotation=one.empty, default=one.empty)) for one in taken.parameters.values())
    told = (name if one.default is one.empty else f"[{name}]" for name, one in zip(names, taken.parameters.values(), strict=True))
    return f"({', '.join(told)})" if taken.parameters else "no arguments"


def _plain(selector: str) -> str:
    return selector.replace("_", "").lower()


def _parts(selector: str) -> list[str]:
    return [part for part in selector.lower().split("_") if part]


def _distance(one: str, other: str) -> int:
    """Return the number of letters to insert, delete, replace or swap with their neighbour (optimal string alignment)."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, its in enumerate(other, 1):
            cost = min(rows[-1][j] + 1, row[j - 1] + 1, rows[-1][j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == its:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
