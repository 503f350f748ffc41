"""Requests that only the leader can serve: they are refused elsewhere, with the name and the address of the leader."""

from __future__ import annotations

from batos.cluster.membership import Membership
from batos.errors import Busy, LedElsewhere


class Leader:
    """Leader of the kernels, as one of them knows it. A daemon that has its image to itself leads always."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def require(self, doing: str) -> None:
        """Go on only if this kernel leads.

        :param doing: the request in words, as in "curate the memory".
        :raises LedElsewhere: if another kernel leads.
        :raises Busy: while none does.
        """
        if self._membership.leads:
            return
        leader = next((one for one in self._membership.others() if one.leads), None)
        if leader is None:
            raise Busy(f"only the kernel that leads can {doing}, and none leads now; try again in some seconds")
        at = f" at {leader.endpoint}" if leader.endpoint else ""
        raise LedElsewhere(
            f"only the kernel that leads can {doing}, and that is {leader.name}{at}; ask there (option --connect)",
            kernel=leader.name,
            endpoint=leader.endpoint,
        )
