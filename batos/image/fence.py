"""Fence of the lead: what a kernel commits as the leader, it commits only while it leads.

Of several kernels on one image one leads, and has the work that must run once. It may lose the lead without knowing it: it stood still for
longer than its lease, say. So that work runs inside a fence, which follows its tasks (`batos.scope.Scope.lead`). Each system transaction
and each unit that they begin checks that the record of the lead names this kernel and this term. It has the storage compare that record
when it commits (`readCurrent`). No part that does the work needs to know. A mission is in no fence: it is fenced by its own record, and
goes on under any leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from batos.errors import LeadLost
from batos.image import kernels
from batos.image.ownership import depend_on
from batos.objects import Root


class Fence(NamedTuple):
    """The lead of one kernel for one term."""

    db: Any
    """The database of the image that it leads: an image that is only tried out has another, and no fence."""
    kernel: str
    """Name of the kernel."""
    term: int

    def check(self, root: Root) -> None:
        """Part of a transaction: go on only if the lead is held, in this transaction and when it commits.

        :raises LeadLost: if it is not held any more.
        """
        self.look(root)
        depend_on(root[kernels.KERNELS].lead)

    def look(self, root: Root) -> None:
        """Go on only if the lead is held, in a read: before something leaves.

        :raises LeadLost: if it is not held any more.
        """
        lead = root[kernels.KERNELS].lead
        if (lead.kernel, lead.term) != (self.kernel, self.term):
            raise LeadLost(
                f"{self.kernel} led in term {self.term}, and {lead.kernel or 'no kernel'} does in term {lead.term}: nothing was written"
            )

    def run(self, root: Root, function: Callable[..., Any], *args: Any) -> Any:
        """System transaction: run another one, if the lead is held.

        :raises LeadLost: if it is not held any more.
        """
        self.check(root)
        return function(root, *args)

    def run_or_drop(self, root: Root, function: Callable[..., Any], *args: Any) -> None:
        """System transaction without a waiting caller: run another one, if the lead is held."""
        try:
            self.check(root)
        except LeadLost:
            return
        function(root, *args)

    def before(self, function: Callable[[Any], object] | None) -> Callable[[Any], object]:
        """Return a part of a transaction that checks the lead, then runs `function`."""

        def checked(root: Root) -> None:
            self.check(root)
            if function is not None:
                function(root)

        return checked


def fence_of(root: Root) -> Fence | None:
    """Return the fence of the kernel that this image is open in, as it leads now; None where one daemon has the image to itself."""
    me = kernels.me(root)
    if not me:
        return None
    return Fence(root._p_jar.db(), me, kernels.lead_of(root)[1])
