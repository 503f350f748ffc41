"""Part of the client for stepping into missions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from batos.wire.connection import Connection

HELD_S = 600.0
"""Longest time for which a reply is waited: new inferences take as long as the model does."""


class StepClient(Connection):
    """Part of `batos.wire.client.Client` for stepping into missions."""

    async def step_open(
        self, id: str, *, at: int | str | None = None, inferences: int = 0, session: str | None = None, timeout_s: float = HELD_S
    ) -> dict[str, Any]:
        """Think a mission again, in a mirror of the image as it was, and stand where it failed. Return the place, and the `session`.

        :param at: number of a transition, or name of a state, to stand at instead.
        :param inferences: how many inferences that the journal does not have may be paid for.
        :param session: name of the session; the same name again returns it as it stands.
        :raises UnknownMission: if no mission has that id.
        :raises Busy: if as many sessions are open as may be.
        """
        named = session or uuid.uuid4().hex[:12]
        return await self._ask("step.open", hold_s=timeout_s, session=named, id=id, at=at, inferences=inferences or None)

    async def step_method(
        self,
        target: str,
        selector: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        inferences: int = 0,
        timeout_s: float = HELD_S,
    ) -> dict[str, Any]:
        """Run one method in a mirror of the image as it is, and stand where it ended or failed. Return the place, and the `session`."""
        named, given = uuid.uuid4().hex[:12], {"args": list(args) or None, "kwargs": dict(kwargs or {}) or None}
        return await self._ask(
            "step.open", hold_s=timeout_s, session=named, target=target, selector=selector, **given, inferences=inferences or None
        )

    async def step_show(
        self,
        session: str | None = None,
        *,
        target: str | None = None,
        inference: int | None = None,
        run: int | None = None,
        line: int | None = None,
    ) -> dict[str, Any]:
        """Return where a session stands; without one, the sessions that are open.

        :param target: an object by its path, returned as `object`.
        :param inference: number of an inference, returned whole as `inference`.
        :param run: number of a run of a method, returned with its source as `method`; `line` is one of the lines that it ran.
        :raises UnknownSession: if there is no such session, or no longer.
        """
        return await self._ask("step.show", session=session, target=target, inference=inference, run=run, line=line)

    async def step_go(self, session: str, to: int | str = "next", *, inferences: int = 0, timeout_s: float = HELD_S) -> dict[str, Any]:
        """Go on, or back, and return the place: the number of a transition, the name of a state, `next`, `end`, or `failure`.

        :param inferences: how many inferences that the journal does not have may be paid for.
        """
        return await self._ask("step.go", hold_s=timeout_s, session=session, to=to, inferences=inferences or None)

    async def step_edit(
        self,
        session: str,
        kind: Literal["slot", "prompt", "method", "facet", "intent", "model", "answer", "cycle", "reply"],
        target: str,
        value: Any = None,
        *,
        remove: bool = False,
    ) -> dict[str, Any]:
        """Change something in the mirror; `edits` of the reply lists all changes.

        :param target: by kind: `OBJECT.SLOT`, `psm.STATE`, `OBJECT.SELECTOR`, a persona, the number of an inference, a slot of the cycle.
        :param remove: remove a slot.
        :raises InvalidInput: (or MethodRefused) if the change is refused; nothing is changed then.
        """
        return await self._ask("step.edit", session=session, kind=kind, target=target, value=value, remove=remove or None)

    async def step_drop(self, session: str, number: int) -> dict[str, Any]:
        """Take a change back that was made in the mirror."""
        return await self._ask("step.edit", session=session, drop=number)

    async def step_eval(self, session: str, expression: str, *, inferences: int = 0, timeout_s: float = HELD_S) -> dict[str, Any]:
        """Evaluate an expression where a session stands: `cycle`, `mission` and `lobby` are there. Nothing of it is kept."""
        return await self._ask("step.eval", hold_s=timeout_s, session=session, expression=expression, inferences=inferences or None)

    async def step_send(
        self, session: str, target: str, selector: str, args: Sequence[Any] = (), *, inferences: int = 0, timeout_s: float = HELD_S
    ) -> dict[str, Any]:
        """Send a message where a session stands. Nothing of it is kept."""
        return await self._ask(
            "step.eval", hold_s=timeout_s, session=session, target=target, selector=selector, args=list(args), inferences=inferences or None
        )

    async def step_continue(
        self, session: str, note: str = "", *, anyway: bool = False, dry: bool = False, timeout_s: float = HELD_S
    ) -> dict[str, Any]:
        """Take the changes over into the image, as one transaction that can be undone, and let the mission go on under its own id.

        :param note: why, in the user's words; it is kept with the transaction.
        :param anyway: also where the image was changed in the same places meanwhile.
        :param dry: only return the `diff` and the `conflicts`.
        :raises StepConflict: if the image was changed in the same places meanwhile.
        :raises InvalidInput: if the mission cannot go on; the message says why.
        """
        flags = {"anyway": anyway or None, "dry": dry or None}
        return await self._ask("step.continue", hold_s=timeout_s, session=session, note=note or None, **flags)

    async def step_close(self, session: str) -> dict[str, Any]:
        """Drop a session and its mirror. Return the sessions that are left."""
        return await self._ask("step.close", session=session)
