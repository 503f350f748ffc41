"""The inventory of generated methods: those that a path from the lobby leads to, and those that telemetry ever noted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from batos.errors import BatosError
from batos.image import history
from batos.objects import Method, Primitive, Root, UvmObject

WALKED = 10_000  # greatest number of objects that a walk over paths visits; telemetry finds methods of objects in trees


class UsageRecord(Protocol):
    """The telemetry of a method; see `batos.autotelic.telemetry.MethodUse`."""

    @property
    def runs(self) -> int: ...
    @property
    def last(self) -> float: ...


def holders(root: Root, uses: Iterable[str]) -> Iterator[tuple[str, UvmObject]]:
    """Yield the objects that may hold methods, each once: by path, then by the ids that telemetry noted (`oid:1f selector`)."""
    seen: set[bytes] = set()
    for path, obj in _walk(root["lobby"]):
        seen.add(obj._p_oid)
        yield path, obj
    for oid in sorted({key.partition(" ")[0] for key in uses}):
        try:
            found = history.resolve(root, oid)
        except BatosError:  # removed meanwhile, or damaged: the walk over the image reports damage
            continue
        if found._p_oid not in seen:
            yield oid, found


def methods_held(objects: Iterable[tuple[str, UvmObject]], uses: Mapping[str, UsageRecord]) -> list[dict[str, Any]]:
    """Return the methods that these objects hold themselves, by path and selector, with `runs` and `last` where telemetry has them."""
    found = []
    for path, obj in objects:
        for selector, method in sorted(obj._slots.items()):
            if isinstance(method, Method):
                use = uses.get(f"{history.oid_of(obj)} {selector}")
                found.append({"holder": path, "oid": history.oid_of(obj), "selector": selector, **_of(method, use)})
    return sorted(found, key=lambda row: (row["holder"], row["selector"]))


def _of(method: Method, use: UsageRecord | None) -> dict[str, Any]:
    came = dict(method.provenance)
    noted = {} if use is None else {"runs": use.runs, "last": use.last}
    lacks = [name for name in grants_needed(method) if not method.may_send(name)]
    told = {"version": method.version, "mission": came.get("mission"), "model": came.get("model"), "intact": method.intact()}
    reaches = list(dict(method.contract).get("reaches", ()))
    return {**told, **({"reaches": reaches} if reaches else {}), **({"lacks_grant": lacks} if lacks else {}), **noted}


def _walk(lobby: UvmObject) -> Iterator[tuple[str, UvmObject]]:
    seen, waiting = {lobby._p_oid}, deque([("lobby", lobby)])
    while waiting and len(seen) <= WALKED:
        path, obj = waiting.popleft()
        yield path, obj
        for name, value in obj._slots.items():
            if isinstance(value, UvmObject) and value._p_oid not in seen and not name.endswith("*"):
                seen.add(value._p_oid)
                waiting.append((name if path == "lobby" else f"{path}.{name}", value))


def grants_needed(method: Method) -> list[str]:
    """Return the messages in a method that need a grant. For a method that was audited before grants existed, these are among its sends."""
    contract = dict(method.contract)
    if "needs_grant" in contract:
        return list(contract["needs_grant"])
    return [name for name in contract.get("sends", ()) if name in Primitive.reaching()]
