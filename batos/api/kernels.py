"""Requests about the kernels that serve the image together, and what each of them tells the others of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from batos.api.dispatcher import handles
from batos.api.relay import KernelPlace
from batos.cluster.membership import Membership
from batos.image.kernels import KernelInfo
from batos.wire import schemas
from batos.wire.outbox import Recipient

Reply = dict[str, Any]


def places_of(others: list[KernelInfo]) -> dict[str, KernelPlace]:
    """Return where other kernels answer, by name; those that listen nowhere are left out."""
    return {one.name: KernelPlace(one.name, one.endpoint, one.wire_key) for one in others if one.endpoint}


class KernelRequests:
    """Handlers of the requests about kernels."""

    def __init__(
        self,
        membership: Membership,
        drain: Callable[[], int],
        owners: Callable[[], Mapping[str, str]],
        unreached: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """
        :param drain: begins to drain this daemon, which stops by itself then; returns the number of missions under way.
        :param owners: returns the kernels that think missions through, by mission.
        :param unreached: returns why kernels cannot be reached from here, by name.
        """
        self._membership, self._drain, self._owners, self._unreached = membership, drain, owners, unreached

    @handles(schemas.KernelsRequest)
    async def kernels(self, request: schemas.KernelsRequest, client: Recipient) -> Reply:
        """List the kernels; begin to drain this one, if that is asked for."""
        begun = {"draining": True, "under_way": self._drain()} if request.drain else {}
        return {"type": "kernels", **self.describe(), **begun}

    def describe(self) -> Reply:
        """Return the name of this kernel, and the facts about all, in the order of their registration. Where a daemon has the image to
        itself the name is empty, and none is listed."""
        missions, unreached = Counter(self._owners().values()), self._unreached()
        return {
            "name": self._membership.name,
            "draining": self._membership.draining,
            "kernels": [_told(one, missions[one.name], unreached.get(one.name, "")) for one in self._membership.everyone()],
        }


def _told(one: KernelInfo, missions: int, unreached: str) -> Reply:
    return {
        "name": one.name,
        "host": one.host,
        "state": _state(one),
        "leads": one.leads,
        "draining": one.draining,
        "gone": one.gone or None,
        "began": one.began,
        "ended": one.ended or None,
        "endpoint": one.endpoint or None,
        "doors": one.doors or None,
        "version": one.version,
        "codex": one.codex,
        "profile": one.profile or None,
        "missions": 0 if one.gone else missions,
        "models": [model.name for model in one.models],
        "unfit": list(one.unfit),
        "unreached": unreached or None,
    }


def _state(one: KernelInfo) -> str:
    """Return the state of a kernel in one word: gone, drains, unfit, leads or works."""
    if one.gone:
        return "gone"
    if one.draining:
        return "drains"
    if one.unfit:
        return "unfit"
    return "leads" if one.leads else "works"
