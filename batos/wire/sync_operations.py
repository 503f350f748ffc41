"""Part of the client for callers without an event loop: schedules, notices, hooks, folders, stepping, comparisons.

Written by tools/gen_sync.py from the modules of batos/wire that end in _client.py: change those, then run `make docs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from batos.wire.compare_client import CompareTerms
from batos.wire.folder_client import FolderTerms
from batos.wire.hook_client import HookTerms
from batos.wire.notice_client import TEST_S, NoticeTerms
from batos.wire.schedule_client import ScheduleTerms
from batos.wire.step_client import HELD_S
from batos.wire.sync_connection import SyncConnection


class SyncOperations(SyncConnection):
    """Part of `SyncClient`."""

    def schedules(self, name: str | None = None) -> dict[str, Any]:
        """Return the schedules by name, each with its next time and its last run; with a name, all of that one."""
        return self._run(self._client.schedules(name))

    def schedule_add(self, when: str, brief: str, **terms: Unpack[ScheduleTerms]) -> dict[str, Any]:
        """Add a schedule; return it with its next five times. One that says the same is returned as it is.

        :param when: words (`every weekday at 8:00`, `every 15 minutes`, `tomorrow at 8`) or a cron expression (`0 8 * * 1-5`).
        :param brief: brief of each mission; `{last}` stands for the last result, `{date}` for the day.
        :param terms: zone, name, persona, missed, stop_after, overlap (`ScheduleTerms`).
        :raises InvalidInput: if the words are not understood, or a term is not valid.
        """
        return self._run(self._client.schedule_add(when, brief, **terms))

    def schedule_pause(self, name: str) -> dict[str, Any]:
        """Let a schedule rest until `schedule_resume`, also across restarts. Return it."""
        return self._run(self._client.schedule_pause(name))

    def schedule_resume(self, name: str) -> dict[str, Any]:
        """Let a schedule go on that was paused, or that stopped after failures. Return it."""
        return self._run(self._client.schedule_resume(name))

    def schedule_remove(self, name: str) -> dict[str, Any]:
        """Remove a schedule; return those that are left. Its missions stay."""
        return self._run(self._client.schedule_remove(name))

    def schedule_run(self, name: str, *, id: str | None = None) -> dict[str, Any]:
        """Make a mission of a schedule now; what is planned stays. The reply holds its `id`.

        :param id: the mission's id; default: a new one. The same id means the same run.
        """
        return self._run(self._client.schedule_run(name, id=id))

    def notices(self, name: str | None = None) -> dict[str, Any]:
        """Return the channels of notices by name, each with what waits; with a name, that one with its options."""
        return self._run(self._client.notices(name))

    def notice_add(self, name: str, way: Literal["program", "hook", "apprise"], place: str, **terms: Unpack[NoticeTerms]) -> dict[str, Any]:
        """Add a channel; return it. One that says the same is returned as it is.

        :param way: `program` of this machine, `hook` (an HTTP POST) or `apprise`.
        :param place: command line or URL. An apprise URL, and of a hook's URL what looks like a secret, is kept beside the image.
        :param terms: options, on, persona, origin, quiet, zone, once (`NoticeTerms`).
        :raises InvalidInput: if a part of it is not valid.
        """
        return self._run(self._client.notice_add(name, way, place, **terms))

    def notice_pause(self, name: str) -> dict[str, Any]:
        """Let a channel rest until `notice_resume`; what it is to tell waits. Return it."""
        return self._run(self._client.notice_pause(name))

    def notice_resume(self, name: str) -> dict[str, Any]:
        """Let a channel go on, with what waited. Return it."""
        return self._run(self._client.notice_resume(name))

    def notice_remove(self, name: str) -> dict[str, Any]:
        """Remove a channel, and the secret that was kept for it; return those that are left."""
        return self._run(self._client.notice_remove(name))

    def notice_test(self, name: str, *, id: str | None = None, timeout_s: float = TEST_S) -> dict[str, Any]:
        """Send a message to a channel now, whatever the hours. Return `messages`, with the one and what became of it.

        :param id: of the message; default: a new one. The same id again is the same message.
        """
        return self._run(self._client.notice_test(name, id=id, timeout_s=timeout_s))

    def notice_settle(self, name: str | None = None) -> dict[str, Any]:
        """Settle the messages that failed or are in doubt, of one channel or of all: they are not spoken of any more. Return the channels,
        and `settled`, the number of messages.

        :raises InvalidInput: if there is no channel of that name, and no such message to one.
        """
        return self._run(self._client.notice_settle(name))

    def notice_log(self, name: str | None = None, *, limit: int | None = None) -> dict[str, Any]:
        """Return the last messages, of one channel or of all, the newest first, with what became of them."""
        return self._run(self._client.notice_log(name, limit=limit))

    def hooks(self, name: str | None = None) -> dict[str, Any]:
        """Return the hooks by name, each with its last mission; with a name, all of that one. No reply has a secret."""
        return self._run(self._client.hooks(name))

    def hook_add(self, name: str, brief: str, **terms: Unpack[HookTerms]) -> dict[str, Any]:
        """Add a hook; return it with its `secret`. One that says the same is returned as it is.

        :param brief: brief of each mission; `{issue.title}` stands for that field of the body, `{body}` for all of it.
        :param terms: persona, depth, priority, rate, hosts, when (`HookTerms`).
        :raises InvalidInput: if the name is taken, or a term is not valid.
        """
        return self._run(self._client.hook_add(name, brief, **terms))

    def hook_pause(self, name: str) -> dict[str, Any]:
        """Refuse deliveries of a hook until `hook_resume`, also across restarts. Return it."""
        return self._run(self._client.hook_pause(name))

    def hook_resume(self, name: str) -> dict[str, Any]:
        """Take deliveries of a hook again. Return it."""
        return self._run(self._client.hook_resume(name))

    def hook_remove(self, name: str) -> dict[str, Any]:
        """Remove a hook and its secret; return those that are left. Its missions stay."""
        return self._run(self._client.hook_remove(name))

    def hook_roll(self, name: str) -> dict[str, Any]:
        """Give a hook another `secret`, and return it with that; the one before does not count any more."""
        return self._run(self._client.hook_roll(name))

    def hook_deliver(
        self, name: str, body: bytes, *, kind: str = "", headers: Mapping[str, str] | None = None, token: str = ""
    ) -> dict[str, Any]:
        """Deliver to a hook as a request over HTTP does; return the mission's `id`, or `why` it became none.

        :param kind: content type of the body; JSON unless it says a form or text.
        :param headers: headers that prove or name the delivery, by lower-case names.
        :param token: the hook's secret, where no header proves the delivery.
        :raises HookRefused: if nothing proves that it knows the secret.
        """
        return self._run(self._client.hook_deliver(name, body, kind=kind, headers=headers, token=token))

    def folders(self, name: str | None = None) -> dict[str, Any]:
        """Return the watched folders with missions by name, each with its last mission; with a name, all of that one."""
        return self._run(self._client.folders(name))

    def folder_add(self, folder: str, brief: str, **terms: Unpack[FolderTerms]) -> dict[str, Any]:
        """Have each new or changed file of a folder become a mission. `present` is the number of files that are there already.

        :param folder: absolute path on the daemon's machine; the memory watches it from then on.
        :param brief: brief of each mission; `{path}`, `{name}`, `{folder}` and `{text}` stand for those of the file. Without `{text}` its
            text stands below the brief.
        :param terms: name, exclude, existing, persona, depth, priority, stop_after (`FolderTerms`).
        :raises Unreadable: if it is not a folder that can be read.
        :raises InvalidInput: if the name is taken, or a term is not valid.
        """
        return self._run(self._client.folder_add(folder, brief, **terms))

    def folder_pause(self, name: str) -> dict[str, Any]:
        """Make no missions of a folder's files until `folder_resume`, also across restarts. Return it."""
        return self._run(self._client.folder_pause(name))

    def folder_resume(self, name: str) -> dict[str, Any]:
        """Go on with a folder's files, those that came meanwhile too. Return it."""
        return self._run(self._client.folder_resume(name))

    def folder_remove(self, name: str) -> dict[str, Any]:
        """Make no missions of a folder's files any more; return those that are left. Its missions stay, and the memory watches it."""
        return self._run(self._client.folder_remove(name))

    def folder_run(self, name: str) -> dict[str, Any]:
        """Make missions of the files that are there and became none; `reopened` is their number."""
        return self._run(self._client.folder_run(name))

    def step_open(
        self, id: str, *, at: int | str | None = None, inferences: int = 0, session: str | None = None, timeout_s: float = HELD_S
    ) -> dict[str, Any]:
        """Think a mission again, in a mirror of the image as it was, and stand where it failed. Return the place, and the `session`.

        :param at: number of a transition, or name of a state, to stand at instead.
        :param inferences: how many inferences that the journal does not have may be paid for.
        :param session: name of the session; the same name again returns it as it stands.
        :raises UnknownMission: if no mission has that id.
        :raises Busy: if as many sessions are open as may be.
        """
        return self._run(self._client.step_open(id, at=at, inferences=inferences, session=session, timeout_s=timeout_s))

    def step_method(
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
        return self._run(self._client.step_method(target, selector, args, kwargs, inferences=inferences, timeout_s=timeout_s))

    def step_show(
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
        return self._run(self._client.step_show(session, target=target, inference=inference, run=run, line=line))

    def step_go(self, session: str, to: int | str = "next", *, inferences: int = 0, timeout_s: float = HELD_S) -> dict[str, Any]:
        """Go on, or back, and return the place: the number of a transition, the name of a state, `next`, `end`, or `failure`.

        :param inferences: how many inferences that the journal does not have may be paid for.
        """
        return self._run(self._client.step_go(session, to, inferences=inferences, timeout_s=timeout_s))

    def step_edit(
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
        return self._run(self._client.step_edit(session, kind, target, value, remove=remove))

    def step_drop(self, session: str, number: int) -> dict[str, Any]:
        """Take a change back that was made in the mirror."""
        return self._run(self._client.step_drop(session, number))

    def step_eval(self, session: str, expression: str, *, inferences: int = 0, timeout_s: float = HELD_S) -> dict[str, Any]:
        """Evaluate an expression where a session stands: `cycle`, `mission` and `lobby` are there. Nothing of it is kept."""
        return self._run(self._client.step_eval(session, expression, inferences=inferences, timeout_s=timeout_s))

    def step_send(
        self, session: str, target: str, selector: str, args: Sequence[Any] = (), *, inferences: int = 0, timeout_s: float = HELD_S
    ) -> dict[str, Any]:
        """Send a message where a session stands. Nothing of it is kept."""
        return self._run(self._client.step_send(session, target, selector, args, inferences=inferences, timeout_s=timeout_s))

    def step_continue(
        self, session: str, note: str = "", *, anyway: bool = False, dry: bool = False, timeout_s: float = HELD_S
    ) -> dict[str, Any]:
        """Take the changes over into the image, as one transaction that can be undone, and let the mission go on under its own id.

        :param note: why, in the user's words; it is kept with the transaction.
        :param anyway: also where the image was changed in the same places meanwhile.
        :param dry: only return the `diff` and the `conflicts`.
        :raises StepConflict: if the image was changed in the same places meanwhile.
        :raises InvalidInput: if the mission cannot go on; the message says why.
        """
        return self._run(self._client.step_continue(session, note, anyway=anyway, dry=dry, timeout_s=timeout_s))

    def step_close(self, session: str) -> dict[str, Any]:
        """Drop a session and its mirror. Return the sessions that are left."""
        return self._run(self._client.step_close(session))

    def kernels(self, *, drain: bool = False) -> dict[str, Any]:
        """Return `kernels`, those that serve the image, and `name`, that of the one that answers; "" where it has its image to itself.

        :param drain: let the one that answers take up no missions any more, end those `under_way`, and stop.
        """
        return self._run(self._client.kernels(drain=drain))

    def compare_start(self, persona: str, *, id: str | None = None, dry: bool = False, **terms: Unpack[CompareTerms]) -> dict[str, Any]:
        """Compare a variant of a persona with what there is. The same id and terms again mean the same comparison.

        :param id: its name; default: a new one.
        :param dry: only say what would be compared (`words`, `pairs`), its `budget`, and in `estimate` what it would probably cost.
        :param terms: other, codex, changed, missions, match, briefs, judge, rules, inferences, tokens, minutes (`CompareTerms`).
        :raises InvalidInput: if it makes no sense, saying why.
        """
        return self._run(self._client.compare_start(persona, id=id, dry=dry, **terms))

    def compare_list(self, limit: int | None = None) -> dict[str, Any]:
        """Return the comparisons in `comparisons`, the last begun first."""
        return self._run(self._client.compare_list(limit))

    def compare_show(self, id: str, wait_s: float = 0.0) -> dict[str, Any]:
        """Return a comparison with its `figures`, its `verdict`, and in `compared` its pairs; one that its user has still to judge is
        hidden.

        :param wait_s: greatest number of seconds to wait for a change of a comparison that is under way; 0: do not wait.
        """
        return self._run(self._client.compare_show(id, wait_s))

    def compare_next(self, id: str) -> dict[str, Any]:
        """Return in `pair` the next pair to judge, with `left` and `right`; None if there is none."""
        return self._run(self._client.compare_next(id))

    def compare_judge(self, id: str, number: int, verdict: Literal["left", "right", "tie"]) -> dict[str, Any]:
        """Judge a pair; return the next one."""
        return self._run(self._client.compare_judge(id, number, verdict))

    def compare_stop(self, id: str) -> dict[str, Any]:
        """Stop a comparison. What it has paid for stays, and `compare_resume` goes on."""
        return self._run(self._client.compare_stop(id))

    def compare_resume(self, id: str, **terms: Unpack[CompareTerms]) -> dict[str, Any]:
        """Let a comparison go on that was stopped, killed, or out of its budget; or have it judged otherwise.

        :param terms: judge, rules, inferences, tokens, minutes.
        """
        return self._run(self._client.compare_resume(id, **terms))

    def compare_promote(self, id: str, note: str, *, anyway: bool = False) -> dict[str, Any]:
        """Make the variant what there is, in one transaction; `change` is the number by which `undo_change` takes it back.

        :param note: why; it is kept with it.
        :param anyway: also where pairs are not judged yet, or the verdict is not that it is better.
        :raises InvalidInput: saying why not.
        """
        return self._run(self._client.compare_promote(id, note, anyway=anyway))

    def compare_remove(self, id: str) -> dict[str, Any]:
        """Forget a comparison that is not under way; return those that are left."""
        return self._run(self._client.compare_remove(id))
