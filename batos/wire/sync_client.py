"""The client for callers without an event loop: `SyncClient`.

Written by tools/gen_sync.py from batos/wire/client.py and the others that end in _client.py: change those, then run `make docs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Unpack

from batos.wire.client import CONNECT_S, LONG_S, Accepted, GrantTerms, ImageFile, Options
from batos.wire.sync_operations import SyncOperations


class SyncClient(SyncOperations):
    """A connection to the daemon, as a context manager. Arguments, results and errors are those of `Client`.

    Several threads may use it at once.
    """

    def submit(
        self,
        brief: str,
        *,
        id: str | None = None,
        persona: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        context: str | None = None,
        schema: dict[str, Any] | None = None,
        may_ask: bool = False,
        depth: str | None = None,
        flavour: str | None = None,
        needs: Sequence[str] = (),
        images: Sequence[ImageFile | Mapping[str, Any]] = (),
        instructions: str = "",
    ) -> Accepted:
        """Give the daemon a mission; it is durable when this returns.

        :param id: the mission's id; default: a new one. The same id with the same brief means the same mission.
        :param context: the mission to follow: the new mission sees its conversation, and begins when it has ended.
        :param schema: JSON schema of the answer; the result's `value` then fits it.
        :param depth: depth of thought: `direct`, `facets` or `council`; default `auto`: by the brief and the model.
        :param flavour: amount of the persona's own flavour in the answer: `full`, `light`, `off`, `auto`.
        :param needs: capabilities that the model must have: `vision`, `tools`, `thinking`, `context:32k`; `auto`: those in the plan.
        :param images: pictures for the brief (PNG, JPEG, WebP): files, their bytes, or results of `upload`.
        :param may_ask: True if the mission may ask its user a question (event `needs_input`); it then waits for `answer`.
        :param instructions: how to answer. Each mission of a conversation has them.
        :raises Unreadable: if a picture cannot be read.
        :raises BatosError: if the daemon refuses the mission (InvalidRequest, MessageTooLarge, Busy, UnknownPersona, MissionIdTaken ...).
        :raises DaemonUnavailable: if no answer came. The daemon may have accepted the mission; submit it again with the same id.
        """
        return self._run(
            self._client.submit(
                brief,
                id=id,
                persona=persona,
                deadline_s=deadline_s,
                priority=priority,
                context=context,
                schema=schema,
                may_ask=may_ask,
                depth=depth,
                flavour=flavour,
                needs=needs,
                images=images,
                instructions=instructions,
            )
        )

    def upload(self, image: ImageFile, name: str | None = None) -> dict[str, Any]:
        """Upload a picture to the daemon, for later missions. It is durable on return, kept for `UploadLimits.hours` without a mission.

        :param image: a file, or its bytes.
        :param name: name to show; default: that of the file.
        :returns: `digest` and `name`, which `submit` accepts, and `type`, `bytes`, `width`, `height`.
        :raises Unreadable: if the file cannot be read.
        :raises InvalidInput: if it is not a picture that models accept.
        :raises MessageTooLarge: if it has more bytes or pixels than the daemon accepts.
        """
        return self._run(self._client.upload(image, name))

    def send(
        self,
        target: str,
        selector: str,
        /,
        *args: Any,
        id: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        **kwargs: Any,
    ) -> Accepted:
        """Send a message to the object `target` (path or oid): a mission, whose result holds the answer. Errors as in `submit`.

        For keyword arguments of the message with the same names as options of this method, use `send_message`.
        """
        return self._run(self._client.send(target, selector, *args, id=id, deadline_s=deadline_s, priority=priority, **kwargs))

    def send_message(
        self,
        target: str,
        selector: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        deadline_s: float | None = None,
        priority: int | None = None,
        may_ask: bool = False,
        write: bool = False,
        tools: bool = False,
    ) -> Accepted:
        """Send a message like `send`, with its arguments as a sequence and a mapping: any name may be a keyword.

        :param may_ask: as in `submit`.
        :param write: also write a method for a selector that resembles a known one, and keep it without a rating or an example.
        :param tools: let the method that is written for it use tools.
        """
        return self._run(
            self._client.send_message(
                target, selector, args, kwargs, id=id, deadline_s=deadline_s, priority=priority, may_ask=may_ask, write=write, tools=tools
            )
        )

    def teach(
        self,
        target: str,
        selector: str,
        examples: list[dict[str, Any]],
        *,
        intent: str | None = None,
        tools: bool = False,
        id: str | None = None,
    ) -> Accepted:
        """Teach examples of a message: a mission makes a method that keeps them.

        :param examples: `{"args", "kwargs", "slots", "result", "after"}` each: the arguments of the message, the slots before, the
            result, the slots after. All but `result` may be left out.
        :param intent: the purpose of the message, in words.
        :param tools: let the method use tools.
        """
        return self._run(self._client.teach(target, selector, examples, intent=intent, tools=tools, id=id))

    def revert(self, target: str, selector: str, version: int | None = None, *, id: str | None = None) -> Accepted:
        """Bring back an earlier version of a method: the one before the newest, or `version`; 0 is the state before the first."""
        return self._run(self._client.revert(target, selector, version, id=id))

    def grant(self, target: str, selector: str, message: str, *, revoke: bool = False, id: str | None = None) -> Accepted:
        """Let the method that answers `selector` send a message that changes more than its receiver. A later version needs another grant.

        :param message: the selector that the method may send, such as `forget_`.
        :param revoke: revoke the grant instead.
        """
        return self._run(self._client.grant(target, selector, message, revoke=revoke, id=id))

    def status(self, id: str) -> dict[str, Any]:
        """Return the state of a mission.

        :raises UnknownMission: if there is no mission with that id.
        """
        return self._run(self._client.status(id))

    def result(self, id: str, wait: bool = True, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the result of the mission: `text`, `value`, `persona`, `usage` and more.

        :param wait: wait for the result, for `timeout_s` seconds, or without a limit by default.
        :raises MissionFailed: (or MissionCancelled, DeadlineExceeded ...) if the mission ended FAILED; `context["code"]` says why.
        :raises MissionPending: if there is no result in that time.
        """
        return self._run(self._client.result(id, wait, timeout_s))

    def watch(self, id: str) -> Iterator[dict[str, Any]]:
        """Yield the events of the mission as they happen: first its present state, last its result.

        A watch survives a restart of the daemon that takes less than the timeout; events of that time may be missing. If a reader is
        slow, events are left out, and the next one says how many: `"dropped": N`. The result is never left out.

        :raises UnknownMission: if no mission has that id.
        :raises DaemonUnavailable: if the daemon does not answer any more.
        """
        return self._events(self._client.watch(id))

    def cancel(self, id: str) -> dict[str, Any]:
        """Cancel the mission. It ends FAILED with the code `cancelled`, unless it had ended before. The reply is its status."""
        return self._run(self._client.cancel(id))

    def pause(self, id: str) -> dict[str, Any]:
        """Pause the mission until `resume`, also across restarts. Its deadline goes on. The reply is its status."""
        return self._run(self._client.pause(id))

    def resume(self, id: str) -> dict[str, Any]:
        """Resume a paused mission. The reply is its status."""
        return self._run(self._client.resume(id))

    def answer(self, id: str, text: str, number: int | None = None) -> dict[str, Any]:
        """Answer the mission's question: the open one, or question `number`. The reply is the mission's status.

        :raises InvalidInput: if the mission has no such question, or has another answer to it.
        """
        return self._run(self._client.answer(id, text, number))

    def rate(self, id: str, rating: Literal[1, -1], why: str | None = None) -> dict[str, Any]:
        """Rate a mission that has ended. The reply is its status.

        :raises InvalidInput: if the mission has not ended.
        """
        return self._run(self._client.rate(id, rating, why))

    def show(self, target: str, at: float | str | None = None) -> dict[str, Any]:
        """Return the object `target` (path or oid) as it is now, or as it was at a moment.

        :param at: seconds since the epoch, or the id of a transaction (`tid` of `history`), whose writes are included.
        :raises UnknownTarget: if there is no such object.
        :raises HistoryGone: if the moment is no longer kept.
        """
        return self._run(self._client.show(target, at))

    def ls(self, target: str | None = None, at: float | str | None = None) -> dict[str, Any]:
        """Return the slots of the object `target` (default: the lobby): name, kind, oid and a short text of each."""
        return self._run(self._client.ls(target, at))

    def diff(self, target: str, a: float | str, b: float | str | None = None) -> dict[str, Any]:
        """Return the slots of the object `target` that differ between the moments `a` and `b` (default: now); moments as in `show`."""
        return self._run(self._client.diff(target, a, b))

    def history(self, target: str, limit: int | None = None) -> dict[str, Any]:
        """Return the revisions of the object `target`, the newest first."""
        return self._run(self._client.history(target, limit))

    def replay(self, id: str, timeout_s: float = LONG_S, *, prompts: bool = False) -> dict[str, Any]:
        """Replay a finished mission from its journal, without any model: `outcome` is same, different or journal_ended.

        :param prompts: return the prompt of each inference, too.
        """
        return self._run(self._client.replay(id, timeout_s, prompts=prompts))

    def undo(
        self,
        id: str,
        *,
        redo: bool = False,
        cascade: bool = False,
        dry: bool = False,
        expect: Sequence[str] | None = None,
        timeout_s: float = LONG_S,
    ) -> dict[str, Any]:
        """Undo a mission's changes to the image; `missions`, `objects` and `documents` list them.

        :param redo: redo what was undone.
        :param cascade: also undo the missions whose work depends on this one.
        :param dry: only report what would be done.
        :param expect: the missions that the user agreed to undo; the daemon refuses if it would undo others.
        :raises UndoConflict: if later work depends on these changes.
        :raises HistoryGone: if the changes are older than the last pack.
        """
        return self._run(self._client.undo(id, redo=redo, cascade=cascade, dry=dry, expect=expect, timeout_s=timeout_s))

    def changes(self, number: int | None = None, *, state: str | None = None, limit: int | None = None) -> dict[str, Any]:
        """Return the changes that the system proposed or made of its own accord, newest first; with a number, all of that change.

        :param state: list only changes in this state: proposed, refused, promoted, kept, undone or disabled.
        :raises UnknownChange: if no change has that number.
        """
        return self._run(self._client.changes(number, state=state, limit=limit))

    def undo_change(self, number: int, *, why: str | None = None, dry: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Undo a change that the system made of its own accord; `objects` lists it. The system does not make it again.

        :param why: the reason, kept with the change.
        :param dry: only report what would be done.
        :raises UndoConflict: if later work depends on these changes.
        :raises HistoryGone: if the changes are older than the last pack.
        """
        return self._run(self._client.undo_change(number, why=why, dry=dry, timeout_s=timeout_s))

    def fork(self, folder: str, at: float | str | None = None, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Copy the image, as of a moment (as in `show`; default: now), into a folder of the daemon's machine, for another daemon.

        :raises Busy: while the daemon packs, backs up or forks already.
        :raises HistoryGone: if the image no longer holds that moment.
        """
        return self._run(self._client.fork(folder, at, timeout_s))

    def pack(self, days: float | None = None, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Remove the history older than `days`, or than the setting `image.history_days`. Return the sizes before and after.

        :raises Busy: while the daemon packs or backs up already.
        """
        return self._run(self._client.pack(days, timeout_s))

    def backup(self, folder: str | None = None, *, full: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Add a backup to a folder of the daemon's machine, and verify it by restoring it. Return its figures.

        :raises Busy: while the daemon packs or backs up already.
        """
        return self._run(self._client.backup(folder, full=full, timeout_s=timeout_s))

    def models(self, names: Sequence[str] = (), *, ensure: bool = False, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Return the state of the models, or of those named. With `ensure`, first make or pull the named models that are missing."""
        return self._run(self._client.models(names, ensure=ensure, timeout_s=timeout_s))

    def use_model(self, name: str, *, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Use a model from now on, also after a restart: a name, a profile (`auto`: the best installed), or `robin=NAME` for one persona.

        In the reply, `model` is the new model, `before` the former one, and `models` the status of all models that it needs.

        :raises InvalidInput: if the model does not exist or is unfit.
        """
        return self._run(self._client.use_model(name, timeout_s=timeout_s))

    def fit_models(self, names: Sequence[str] = (), *, timeout_s: float = LONG_S) -> dict[str, Any]:
        """Return the models to think with: `fit` lists Ollama's models, with capabilities and memory; `budget` is the memory limit in
        bytes.

        :param names: models to try first.
        """
        return self._run(self._client.fit_models(names, timeout_s=timeout_s))

    def watch_models(self, names: Sequence[str] = (), *, ensure: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the list of models as `models`, then `progress` and `model` events, and the list again at the end."""
        return self._events(self._client.watch_models(names, ensure=ensure))

    def experts(
        self, *, scan: bool = False, persona: str | None = None, voice: str | None = None, timeout_s: float = LONG_S
    ) -> dict[str, Any]:
        """Return the LoRA experts, the refused folders, and the voice of each persona.

        :param scan: look into the staging folder first, and build new experts.
        :param persona: with `voice`: let `newest`, `plain` or an expert's model speak for it from now on.
        :raises ExpertRefused: if the expert cannot speak.
        """
        return self._run(self._client.experts(scan=scan, persona=persona, voice=voice, timeout_s=timeout_s))

    def ingest(self, paths: Sequence[str] = (), *, follow: Sequence[str] = (), exclude: Sequence[str] = ()) -> dict[str, Any]:
        """Read files, and the files of folders, into the memory: absolute paths of the daemon's machine. `queued` is their number.

        They are in the daemon's queue on return, and survive a kill. `refused` has the paths that do not exist.

        :param follow: folders that the daemon watches from now on.
        :param exclude: ignore patterns for folders, as in `.gitignore`; `left_out` counts what they exclude.
        :raises Unreadable: if none of the paths exists.
        """
        return self._run(self._client.ingest(paths, follow=follow, exclude=exclude))

    def watch_ingest(
        self, paths: Sequence[str] = (), *, follow: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        """Ingest like `ingest`. Yield an event `file` for each file, and the figures at the end."""
        return self._events(self._client.watch_ingest(paths, follow=follow, exclude=exclude))

    def memory(self, documents: int | None = None, **change: str | int) -> dict[str, Any]:
        """Return the content of the memory.

        :param documents: number of documents to list, newest first.
        :param change: `archives`, the number of archives to list, or one change to make first. The change is `forget`, the source of a
            document; `unfollow`, a folder; or `restore`, the number of an archive or the source of a document. Or it is `pin` or `unpin`,
            the source of a document to keep, or a folder.
        :raises UnknownSource: if the memory holds nothing from that source.
        """
        return self._run(self._client.memory(documents, **change))

    def curate(self, *, dry: bool = False) -> dict[str, Any]:
        """Have the memory's curator archive old, redundant or excess sections. With `dry`, only list them."""
        return self._run(self._client.curate(dry=dry))

    def search(
        self,
        question: str,
        k: int = 10,
        *,
        explain: bool = False,
        kind: str | None = None,
        source: str | None = None,
        speaker: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> dict[str, Any]:
        """Return the passages of the memory that answer a question best: `hits`, the best first, each with its source.

        :param k: maximum number of passages.
        :param explain: return also the contribution of each signal to each score, and the links that led to a passage.
        :param kind: only documents of this kind; likewise `source`, a file or folder, and `speaker`.
        :param since: only this day (`2026-05-31`) or later; `until`: this day or earlier.
        """
        return self._run(
            self._client.search(question, k, explain=explain, kind=kind, source=source, speaker=speaker, since=since, until=until)
        )

    def personas(self, *, accept: str | None = None, slot: str | None = None) -> dict[str, Any]:
        """Return the personas: mission, facets and protocols, model, exemplars, and the slots that a new codex did not change.

        :param accept: a persona in which the codex's values first replace the image's own.
        :param slot: replace only this slot; default: all that differ. A deleted persona comes back.
        :raises InvalidInput: if the values do not differ.
        """
        return self._run(self._client.personas(accept=accept, slot=slot))

    def tools(self, name: str | None = None) -> dict[str, Any]:
        """Return the connections with their tools, and why nothing may act, if so; with a name, all of that one.

        :param name: `CONNECTION` or `CONNECTION.TOOL`.
        :raises UnknownTool: if there is none of that name.
        """
        return self._run(self._client.tools(name))

    def tool_add(
        self, name: str, kind: str, place: str = "", options: Options = None, *, on: str | None = None, timeout_s: float = CONNECT_S
    ) -> dict[str, Any]:
        """Add a connection: its place is asked for its tools, which are pinned. Return it whole.

        :param kind: mcp, openapi, http, folder, program or web.
        :param place: command line, URL, origin or path, by kind; so are the options, see docs/tools.md.
        :param on: machine that it belongs to, where several kernels serve the image; `*`: all; None: by what it reaches.
        :raises ToolFailed: (or EgressFailed, EgressRefused) if the place cannot be reached; nothing was added.
        """
        return self._run(self._client.tool_add(name, kind, place, options, on=on, timeout_s=timeout_s))

    def tool_describe(
        self, kind: Literal["usage", "text"], source: str, options: Mapping[str, Any] | None = None, *, timeout_s: float = CONNECT_S
    ) -> dict[str, Any]:
        """Read a description without a schema. Return `form`, the operations that rules read, else `text`, for a model that fills the form:
        `send_message("tools", "describe_", ["program" or "http", text])`. Nothing is connected before `tool_add` with the option `form`.

        :param source: of a usage the command of a program; of a text a URL, or an absolute path of a file on the daemon's machine.
        :param options: of a usage: `env`, `without_walls`.
        :raises ToolFailed: (or EgressFailed, EgressRefused) if it cannot be had.
        """
        return self._run(self._client.tool_describe(kind, source, options, timeout_s=timeout_s))

    def tool_test(self, name: str, *, timeout_s: float = CONNECT_S) -> dict[str, Any]:
        """Ask a connection's place for its tools anew, and suspend those that changed. Return it whole; `changes` is the difference."""
        return self._run(self._client.tool_test(name, timeout_s=timeout_s))

    def tool_accept(self, name: str) -> dict[str, Any]:
        """Accept the tools of a connection as they are offered now. Return it whole."""
        return self._run(self._client.tool_accept(name))

    def tool_remove(self, name: str) -> dict[str, Any]:
        """Remove a connection. What was done through it stays done.

        :raises UnknownTool: if there is none of that name.
        """
        return self._run(self._client.tool_remove(name))

    def tool_offer(self, name: str, line: str, kind: str, place: str = "", options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """List a place (as for `tool_add`), with a line on what it does: it is proposed where such a connection is wanted and not there."""
        return self._run(self._client.tool_offer(name, line, kind, place, options))

    def tool_offers(self) -> dict[str, Any]:
        """Return the places that may be proposed: listed, removed, and those that come with BAT OS."""
        return self._run(self._client.tool_offers())

    def tool_withdraw(self, name: str) -> dict[str, Any]:
        """Take a place off the list; a connection that was removed is not proposed any more either. Return the list."""
        return self._run(self._client.tool_withdraw(name))

    def tools_resume(self) -> dict[str, Any]:
        """Let an image act that was copied, restored or replaced. The reply is that of `tools`."""
        return self._run(self._client.tools_resume())

    def tool_grant(self, verdict: Literal["deny", "ask", "allow"], pattern: str, **terms: Unpack[GrantTerms]) -> dict[str, Any]:
        """Allow or deny tools to missions, or have them ask first. Return the grant; one that says the same is returned as it is.

        :param pattern: over `CONNECTION.TOOL`; `*` stands for any characters.
        :param terms: what narrows it (`GrantTerms`).
        """
        return self._run(self._client.tool_grant(verdict, pattern, **terms))

    def tool_grants(self) -> dict[str, Any]:
        """Return the grants, in the order in which they were made, each with its use today."""
        return self._run(self._client.tool_grants())

    def tool_ungrant(self, number: int) -> dict[str, Any]:
        """Remove a grant. What was done by its leave stands.

        :raises InvalidInput: if there is no grant of that number.
        """
        return self._run(self._client.tool_ungrant(number))

    def effects(self, mission: str | None = None, *, doubt: bool = False, limit: int | None = None) -> dict[str, Any]:
        """Return what missions did outside, the newest first; those that only read, with a mission's id alone.

        :param mission: only effects of this mission, in the order in which they began.
        :param doubt: only those that may have happened.
        """
        return self._run(self._client.effects(mission, doubt=doubt, limit=limit))

    def effect_settle(self, key: str, how: Literal["happened", "again", "leave"]) -> dict[str, Any]:
        """Say what became of an effect in doubt; a mission that waits for it goes on.

        :param key: of the effect, or its first digits.
        :raises InvalidInput: if no effect of that key is in doubt.
        """
        return self._run(self._client.effect_settle(key, how))

    def info(self) -> dict[str, Any]:
        """Return the daemon's facts about itself."""
        return self._run(self._client.info())

    def metrics(self) -> dict[str, Any]:
        """Return the Prometheus metrics as data: `metrics`, each with `name`, `kind`, `help` and `samples`."""
        return self._run(self._client.metrics())

    def method(self, target: str, selector: str, at: float | str | None = None) -> dict[str, Any]:
        """Return the method of an object under a selector: `kind`, `versions` (newest first), `examples`, `intent`.

        :param at: the moment, as in `show`.
        :raises InvalidInput: if the object has nothing under that selector.
        """
        return self._run(self._client.method(target, selector, at))

    def methods(self, target: str | None = None, at: float | str | None = None) -> dict[str, Any]:
        """Return the generated methods that the object `target` holds itself (default: all of the image); `at` as in `show`."""
        return self._run(self._client.methods(target, at))

    def missions(
        self,
        state: str | None = None,
        limit: int | None = None,
        at: float | str | None = None,
        *,
        before: str | None = None,
        words: str | None = None,
        system: bool | None = None,
    ) -> dict[str, Any]:
        """Return the missions that the daemon knows, newest first: all, or those in `state`; `at` as in `show`.

        :param before: list only missions accepted before the mission of this id.
        :param words: list only missions whose brief has all of these words, or whose id begins with them.
        :param system: False leaves out system missions.
        """
        return self._run(self._client.missions(state, limit, at, before=before, words=words, system=system))

    def failures(
        self,
        id: str | None = None,
        *,
        code: str | None = None,
        selector: str | None = None,
        limit: int | None = None,
        at: float | str | None = None,
    ) -> dict[str, Any]:
        """Return the failed attempts, newest first: all, or those of one mission, one error code or cause, or one selector."""
        return self._run(self._client.failures(id, code=code, selector=selector, limit=limit, at=at))
