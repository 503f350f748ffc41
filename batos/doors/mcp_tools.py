"""Tools that BAT OS gives MCP clients: their schemas, their hints, and the way from a call to a reply. Knows nothing of the protocol.

The hints say the worst that a tool may do, in the words of the protocol, as the classes of effects have it (docs/tools.md). A mission may
act outside by whatever tools its user granted. So `submit`, `answer` and `send` may destroy and reach outside.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from batos.doors.mcp_missions import McpDaemon, McpMissions, McpPace, McpTalk, MissionOutcome, new_id
from batos.errors import InvalidInput, RoleRefused

Reply = dict[str, Any]
WAIT_S = 45.0
"""Seconds that a call waits where it does not say otherwise: many clients give a call a minute."""
_WAIT_LIMIT_S = 600.0
_REMEMBER_S = 50.0
_PASSAGE = 2000  # characters of a passage that `search` shows
_KEY = (
    "Your own name of this mission, such as a request id. The same key again is the same mission, never a second one: "
    "so repeat a call whose answer was lost with the same key."
)
_ID = "Id of the mission, as `submit` and `missions` tell it."

MissionName = Annotated[str, Field(min_length=1, max_length=128)]
Wait = Annotated[
    float,
    Field(
        ge=0,
        le=_WAIT_LIMIT_S,
        description="Seconds to wait for the answer. Past them the state is told, and the mission goes on: `result` waits again.",
    ),
]


class _Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SubmitArguments(_Arguments):
    """Arguments of `submit`."""

    brief: Annotated[str, Field(min_length=1, description="What is to be thought through or done, in words.")]
    key: Annotated[str, Field(max_length=256, description=_KEY)] = ""
    persona: Annotated[str, Field(max_length=64, description="Who shall think about it; left out, it is chosen.")] = ""
    context: Annotated[
        str, Field(max_length=128, description="Id of the mission that this one follows, and whose conversation it sees.")
    ] = ""
    answer_schema: Annotated[dict[str, Any] | None, Field(description="JSON schema of the answer, which is then in `value`.")] = None
    may_ask: Annotated[
        bool, Field(description="Whether it may ask also for what its plan lacks, which costs a little; for leave it always asks.")
    ] = False
    wait_s: Wait = WAIT_S


class ResultArguments(_Arguments):
    """Arguments of `result`."""

    id: Annotated[MissionName, Field(description=_ID)]
    wait_s: Wait = WAIT_S


class AnswerArguments(_Arguments):
    """Arguments of `answer`."""

    id: Annotated[MissionName, Field(description=_ID)]
    text: Annotated[
        str, Field(min_length=1, description="The user's answer, in their words: once, mission, always, never or no to a call.")
    ]
    number: Annotated[int | None, Field(ge=1, lt=2**31, description="Number of the question; left out, the open one.")] = None
    wait_s: Wait = WAIT_S


class MissionsArguments(_Arguments):
    """Arguments of `missions`."""

    state: Annotated[
        Literal[
            "ACCEPTED", "PAUSED", "NEEDS_INPUT", "PROVISIONING", "IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE", "FAILED"
        ]
        | None,
        Field(description="Only those in this state."),
    ] = None
    words: Annotated[str, Field(max_length=1000, description="Only those whose brief has all of these words.")] = ""
    limit: Annotated[int, Field(ge=1, le=200, description="Most missions to list, the newest first.")] = 20


class SearchArguments(_Arguments):
    """Arguments of `search`."""

    question: Annotated[str, Field(min_length=1, max_length=8192, description="The question, in words.")]
    limit: Annotated[int, Field(ge=1, le=50, description="Most passages to return, the best first.")] = 5
    source: Annotated[str, Field(max_length=4096, description="Only from this file or folder.")] = ""
    since: Annotated[str, Field(description="Only of this day or later: 2026-05-31.")] = ""
    until: Annotated[str, Field(description="Only of this day or earlier: 2026-05-31.")] = ""


class RememberArguments(_Arguments):
    """Arguments of `remember`."""

    text: Annotated[str, Field(min_length=1, description="The text, word for word. What is remembered already stays as it is.")]
    title: Annotated[str, Field(max_length=200, description="A title; left out, its first line.")] = ""


class SendArguments(_Arguments):
    """Arguments of `send`."""

    target: Annotated[str, Field(min_length=1, max_length=512, description="Path of the object: tools.shop")]
    message: Annotated[str, Field(min_length=1, max_length=128, description="Name of the message: list_orders_")]
    args: Annotated[list[Any] | None, Field(description="Arguments in their order.")] = None
    kwargs: Annotated[dict[str, Any] | None, Field(description="Arguments by name.")] = None
    key: Annotated[str, Field(max_length=256, description=f"{_KEY} Without a key each call sends the message once more.")] = ""
    wait_s: Wait = WAIT_S


class MissionRow(BaseModel):
    """A mission in a list."""

    id: str
    state: str
    brief: str
    origin: str | None = None
    accepted: float | None = Field(default=None, description="seconds since 1970")
    finished: float | None = None


class MissionList(BaseModel):
    """Missions, the newest first."""

    missions: list[MissionRow]


class MemoryPassage(BaseModel):
    """A passage of the memory."""

    text: str
    title: str = ""
    source: str = Field(default="", description="the file, note or mission that it is of")
    fits: bool = Field(default=True, description="false: it fits the question less well")
    day: str | None = None
    origin: str | None = Field(default=None, description="whose words: file, user, tool, or self (an answer of BAT OS's own)")


class PassageList(BaseModel):
    """Passages, the best first."""

    fits: bool = Field(description="whether any fits well: the nearest are there for any question")
    passages: list[MemoryPassage]


@dataclass(frozen=True)
class McpToolForm:
    """A tool as clients see it."""

    name: str
    title: str
    description: str
    arguments: type[_Arguments]
    reply: type[BaseModel]
    reads: bool = False
    """True: it changes nothing"""
    destroys: bool = True
    """True: it may do more than add"""
    repeats: bool = False
    """True: the same call again changes nothing more"""
    outside: bool = True
    """True: it may reach what is outside of BAT OS"""

    @functools.cached_property
    def input_schema(self) -> dict[str, Any]:
        """Return the schema of its arguments."""
        return _plain_schema(self.arguments)

    @functools.cached_property
    def output_schema(self) -> dict[str, Any]:
        """Return the schema of its structured replies."""
        return _plain_schema(self.reply)


_OUTCOME = "Returns the answer, or where the mission stands, or the question with which it waits."
FORMS: Mapping[str, McpToolForm] = {
    one.name: one
    for one in (
        McpToolForm(
            "submit", "Give a mission",
            "Give BAT OS a mission: a question, or something to be done with its memory and the tools that its user granted. It is durable "
            f"when this returns, and survives restarts; a client that stops waiting ends nothing. {_OUTCOME}",
            SubmitArguments, MissionOutcome, repeats=True,
        ),
        McpToolForm(
            "result", "Wait for a mission", f"Wait for a mission that was given before. {_OUTCOME}",
            ResultArguments, MissionOutcome, reads=True, destroys=False, repeats=True, outside=False,
        ),
        McpToolForm(
            "answer", "Answer a mission's question",
            "Give a mission the user's answer to its question. Ask the user; do not answer for them: an answer may let a tool act. "
            f"{_OUTCOME}",
            AnswerArguments, MissionOutcome, repeats=True,
        ),
        McpToolForm(
            "missions", "List missions", "List the missions that BAT OS knows, the newest first, with their states.",
            MissionsArguments, MissionList, reads=True, destroys=False, repeats=True, outside=False,
        ),
        McpToolForm(
            "search", "Search the memory",
            "Search the memory of BAT OS (the user's notes and documents, what they said, what was answered): passages with their sources.",
            SearchArguments, PassageList, reads=True, destroys=False, repeats=True, outside=False,
        ),
        McpToolForm(
            "remember", "Remember a text", "Keep a text in the memory of BAT OS, where later missions and searches find it.",
            RememberArguments, MissionOutcome, destroys=False, repeats=True, outside=False,
        ),
        McpToolForm(
            "send", "Send a message to an object",
            "Send a message to an object of BAT OS, of those that its user named for clients. No model is asked where the object knows the "
            f"message. {_OUTCOME}",
            SendArguments, MissionOutcome,
        ),
    )
}  # fmt: skip
"""The tools by name."""


@dataclass(frozen=True)
class McpReply:
    """Reply to a call."""

    text: str
    value: dict[str, Any]
    """fits the tool's output schema"""
    failed: bool = False


class McpTools:
    """Those of one MCP server."""

    def __init__(self, daemon: McpDaemon, pace: McpPace) -> None:
        self._daemon, self._missions = daemon, McpMissions(daemon, pace)
        self._calls: Mapping[str, Callable[[Any, str | None, McpTalk], Awaitable[McpReply]]] = {
            "submit": self._submit,
            "result": self._result,
            "answer": self._answer,
            "missions": self._list,
            "search": self._search,
            "remember": self._remember,
            "send": self._send,
        }

    async def description(self, form: McpToolForm) -> str:
        """Return the description of a tool, with what depends on the daemon."""
        if form.name != "send":
            return form.description
        named = await self._sendable()
        told = f"They are: {', '.join(named)} (`*`: any message)." if named else _NONE_NAMED
        return f"{form.description} {told}"

    async def call(self, name: str, arguments: Mapping[str, Any], mission: str | None, talk: McpTalk) -> McpReply:
        """Return the reply to a call.

        :param mission: id of the mission that an earlier round of the same call gave; None in the first round.
        :raises BatosError: if it is refused.
        :raises UnknownMission: for a `mission` that none gave.
        """
        form = FORMS[name]
        try:
            checked = form.arguments.model_validate(dict(arguments))
        except ValidationError as e:
            found = e.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part)[:64] for part in found["loc"])
            allowed = ", ".join(form.arguments.model_fields)
            raise InvalidInput(f"`{place}` of {name}: {found['msg'][:1].lower()}{found['msg'][1:200]}; it has {allowed}") from None
        if mission is not None:
            await self._daemon.ask("status", id=mission)  # a client may say anything: what no round gave is no mission
        return await self._calls[name](checked, mission, talk)

    async def _submit(self, given: SubmitArguments, mission: str | None, talk: McpTalk) -> McpReply:
        fields = {
            "brief": given.brief,
            "persona": given.persona or None,
            "context": given.context or None,
            "schema": given.answer_schema,
            "may_ask": given.may_ask or None,
        }
        id = mission or await self._missions.id_of(given.key, fields)
        return await self._given("submit", fields, id, given.wait_s, talk)

    async def _given(self, op: str, fields: Reply, id: str, wait_s: float, talk: McpTalk) -> McpReply:
        await self._missions.give(op, fields, id=id)
        return _told(await self._missions.outcome(id, wait_s, talk))

    async def _result(self, given: ResultArguments, mission: str | None, talk: McpTalk) -> McpReply:
        return _told(await self._missions.outcome(given.id, given.wait_s, talk))

    async def _answer(self, given: AnswerArguments, mission: str | None, talk: McpTalk) -> McpReply:
        if mission is None:
            await self._missions.answer(given.id, given.text, given.number)
        return _told(await self._missions.outcome(given.id, given.wait_s, talk))

    async def _list(self, given: MissionsArguments, mission: str | None, talk: McpTalk) -> McpReply:
        reply = await self._daemon.ask("missions", state=given.state, words=given.words or None, limit=given.limit, system=False)
        listed = MissionList.model_validate({"missions": reply["missions"]})
        lines = [f"{one.id}  {one.state}  {' '.join(one.brief.split())}" for one in listed.missions]
        return McpReply("\n".join(lines) or "There are none.", listed.model_dump(exclude_none=True))

    async def _search(self, given: SearchArguments, mission: str | None, talk: McpTalk) -> McpReply:
        days = {"since": given.since or None, "until": given.until or None}
        reply = await self._daemon.ask("search", question=given.question, k=given.limit, source=given.source or None, **days)
        shown = ("title", "source", "fits", "day", "origin")
        passages = [
            {"text": str(hit["text"])[:_PASSAGE], **{name: hit[name] for name in shown if hit.get(name) is not None}}
            for hit in reply["hits"]
        ]
        found = PassageList.model_validate({"fits": bool(reply.get("fits", True)), "passages": passages})
        lines = [] if found.fits or not passages else ["Nothing fits well; the nearest:"]
        for n, one in enumerate(found.passages, 1):
            about = " - ".join(part for part in (one.title, one.source, "fits less well" if found.fits and not one.fits else "") if part)
            lines.append(f"[{n}] {about}\n{one.text}")
        return McpReply("\n\n".join(lines) or "The memory has nothing about it.", found.model_dump(exclude_none=True))

    async def _remember(self, given: RememberArguments, mission: str | None, talk: McpTalk) -> McpReply:
        args = [given.text, *([given.title] if given.title else [])]
        fields = {"target": "memory", "selector": "remember_", "args": args}
        reply = await self._given("send", fields, new_id(), _REMEMBER_S, talk)
        return reply if reply.value["state"] != "COMPLETE" else McpReply("It is remembered.", reply.value)

    async def _send(self, given: SendArguments, mission: str | None, talk: McpTalk) -> McpReply:
        named = await self._sendable()
        if not any(covers(pattern, given.target, given.message) for pattern in named):
            told = f"it named {', '.join(named)}" if named else _NONE_NAMED
            raise RoleRefused(
                f"send: {given.target[:200]}.{given.message} is none of the messages that BAT OS's user named for clients: {told}"
            )
        fields = {"target": given.target, "selector": given.message, "args": given.args or [], "kwargs": given.kwargs or {}}
        id = mission or (await self._missions.id_of(given.key, fields) if given.key else new_id())
        return await self._given("send", fields, id, given.wait_s, talk)

    async def _sendable(self) -> Sequence[str]:
        return list((await self._daemon.ask("info")).get("sendable") or ())


_NONE_NAMED = 'None is named: the setting doors.send names them (`doors.send = ["tools.shop.list_*"]`).'


def covers(pattern: str, target: str, message: str) -> bool:
    """Return True if a pattern of the setting `doors.send` names a message to an object.

    The object is named by its very path, the message with `*` for any characters. Paths lead on from object to object, and a pattern over
    them would name more than its user sees. For messages that change methods or forget, `*` does not stand.
    """
    path, _, wanted = pattern.rpartition(".")
    if path.removeprefix(_LOBBY) != target.removeprefix(_LOBBY) or (message in _BY_NAME and message != wanted):
        return False
    from batos.tools.grant_arguments import glob  # imported late: only who may send needs it

    return glob(wanted, message)


_BY_NAME = frozenset({"learn_", "revert_", "grant_", "forget_"})
_LOBBY = "lobby."


def _told(outcome: MissionOutcome) -> McpReply:
    return McpReply(outcome.words(), outcome.model_dump(exclude_none=True), failed=outcome.error is not None)


def _plain_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a model, without what says nothing and costs the client's model tokens. Left out are titles made of names,
    the docstring of the whole, and null, which is the same as leaving a field out."""
    found: dict[str, Any] = _plain(model.model_json_schema())
    del found["description"]
    return found


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _plain(value) for name, value in schema.items() if not (name == "title" and isinstance(value, str))}
    match kept.get("anyOf"):
        case [one, {"type": "null"}]:
            del kept["anyOf"]
            kept = {**one, **kept}
    if "default" in kept and kept["default"] is None:
        del kept["default"]
    return kept
