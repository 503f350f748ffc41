"""The MCP server: the protocol's side of the tools, by the SDK of MCP, in all its eras. Imported when it is first used.

Clients of 2026-07-28 have no sessions: a question goes back as the result of the call, and the call comes again with the answer. Clients of
the eras before are asked in the middle of the call. Both are asked only if they say that they can.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import structlog
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from batos import __version__
from batos.doors.mcp_missions import EventSource, McpTalk, MissionQuestion, until_settled
from batos.doors.mcp_tools import FORMS, McpReply, McpToolForm, McpTools
from batos.errors import BatosError, DaemonUnavailable

log = structlog.get_logger("batos.doors")
INSTRUCTIONS = (
    "BAT OS is an agent that lasts: missions are durable, and it remembers what it was told. `submit` gives a mission and waits for its "
    "answer; `result` waits again; `search` and `remember` are its memory. A mission may ask its user: hand the question on, and give the "
    "answer with `answer`. Give each mission a `key`, and repeat a call whose answer was lost with the same key."
)
_INTERNAL = "something went wrong inside; the daemon's log says what"
_QUESTION = "question-"


class _InputWanted(Exception):
    """Ends a round of a call: the client is to ask its user, and to call again."""

    def __init__(self, mission: str, question: MissionQuestion) -> None:
        super().__init__(mission)
        self.mission, self.question = mission, question


class _Progress:
    """Progress of one call, for a client that asked for it; without a user who could be asked."""

    def __init__(self, ctx: Any) -> None:
        self._ctx, self._told = ctx, 0

    async def tell(self, line: str) -> None:
        self._told += 1
        await self._ctx.session.report_progress(float(self._told), None, line)

    async def answer(self, mission: str, question: MissionQuestion, settled: AbstractAsyncContextManager[EventSource]) -> str | None:
        return None


class _RoundTalk(_Progress):
    """A call of a client without sessions, whose questions are asked between two rounds."""

    def __init__(self, ctx: Any, responses: Mapping[str, Any]) -> None:
        super().__init__(ctx)
        self._responses = responses

    async def answer(self, mission: str, question: MissionQuestion, settled: AbstractAsyncContextManager[EventSource]) -> str | None:
        response = self._responses.get(f"{_QUESTION}{question.number}")
        if response is None:
            raise _InputWanted(mission, question)
        return _said(response)


class _SessionTalk(_Progress):
    """A call of a client with a session, which is asked in the middle of it."""

    async def answer(self, mission: str, question: MissionQuestion, settled: AbstractAsyncContextManager[EventSource]) -> str | None:
        said: list[str | None] = []

        async def ask() -> None:
            form = _form(mission, question)
            try:
                response = await self._ctx.session.elicit_form(form.message, form.requested_schema, related_request_id=self._ctx.request_id)
                said.append(_said(response))
            except (MCPError, ValidationError) as e:
                log.info("mcp_question_unanswered", mission=mission, why=str(e)[:200])
            group.cancel_scope.cancel()

        async def look() -> None:
            try:
                await until_settled(settled, question.number)
            except BatosError as e:
                log.info("mcp_question_unwatched", mission=mission, why=e.message)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(look)
        return said[0] if said else None


def mcp_server(tools: McpTools) -> Server[Any]:
    """Return the server of some tools, without a transport."""

    async def listed(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(form, await tools.description(form)) for form in FORMS.values()])

    async def called(ctx: Any, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        if params.name not in FORMS:
            raise MCPError(code=INVALID_PARAMS, message=f"there is no tool {params.name[:64]!r}; there are {', '.join(FORMS)}")
        try:
            return _result(await tools.call(params.name, params.arguments or {}, params.request_state, _talk(ctx, params)))
        except _InputWanted as wanted:
            request = ElicitRequest(params=_form(wanted.mission, wanted.question))
            name = f"{_QUESTION}{wanted.question.number}"
            return InputRequiredResult(input_requests={name: request}, request_state=wanted.mission)
        except DaemonUnavailable as e:
            return _failed(f"{e.code}: {e.message}; what it has accepted goes on then: make the same call again, with the same key")
        except BatosError as e:
            return _failed(f"{e.code}: {e.message}")
        except MCPError:
            raise
        except Exception:
            log.exception("an MCP call failed", tool=params.name)
            return _failed(_INTERNAL)

    def schema_of(name: str) -> Mapping[str, Any] | None:
        return FORMS[name].input_schema if name in FORMS else None

    return Server(
        "batos",
        version=__version__,
        title="BAT OS",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=schema_of,
        on_list_tools=listed,
        on_call_tool=called,
    )


async def serve_stdio(tools: McpTools) -> None:
    """Serve one client over the standard streams, until it closes them. What else is printed goes to standard error."""
    server = mcp_server(tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _talk(ctx: Any, params: CallToolRequestParams) -> McpTalk:
    capabilities = ctx.session.client_capabilities
    asks = None if capabilities is None else capabilities.elicitation
    if asks is None or (asks.form is None and asks.url is not None):
        return _Progress(ctx)
    return _RoundTalk(ctx, params.input_responses or {}) if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _SessionTalk(ctx)


def _form(mission: str, question: MissionQuestion) -> ElicitRequestFormParams:
    field = {"type": "string", "title": "Answer", "description": f"Your answer to the mission {mission}"}
    schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
    return ElicitRequestFormParams(message=question.question, requested_schema=schema)


def _said(response: Any) -> str | None:
    """Return the answer in a client's response; None where its user gave none."""
    if not isinstance(response, ElicitResult) or response.action != "accept":
        return None
    said = (response.content or {}).get("answer")
    return said if isinstance(said, str) and said.strip() else None


def _tool(form: McpToolForm, description: str) -> Tool:
    hints = ToolAnnotations(
        title=form.title,
        read_only_hint=form.reads,
        destructive_hint=form.destroys,
        idempotent_hint=form.repeats,
        open_world_hint=form.outside,
    )
    return Tool(
        name=form.name,
        title=form.title,
        description=description,
        input_schema=form.input_schema,
        output_schema=form.output_schema,
        annotations=hints,
    )


def _result(reply: McpReply) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=reply.text)], structured_content=reply.value, is_error=reply.failed)


def _failed(why: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=why)], is_error=True)
