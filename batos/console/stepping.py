"""Pages on which a mission is stepped into: its states as a rail, slots and prompts beside, source with the line marked, changes in place.

The page is of a session (`step.*` of the wire). Its name is made of the mission's id, so that the same mission leads to the same session.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batos.console.access import ConsoleLimits
from batos.console.api_client import Reply
from batos.console.pages import PageContext, form_of, needed, see_mission, url, whole
from batos.errors import BatosError, InvalidInput

FIXED = ("state*", "parent*", "persona", "number", "machine", "name")
"""Slots of a cycle that are shown and not changed."""
_ALONE = "console-method-"
"""Prefix of the name of a session that is of one message, and of no mission."""
_AS_JSON = ("slot", "cycle")
"""Kinds of changes whose value is JSON, else a text."""
_VIEWS = ("inference", "run", "line", "target")
_PLACES = ("next", "end", "failure")


async def overview(seat: PageContext, request: Request) -> Response:
    """Return the sessions that are open."""
    found = (await seat.asker.ask("step.show"))["sessions"]
    return await seat.show("steps.html", "missions", "Stepped into", sessions=found)


async def open_session(seat: PageContext, request: Request) -> Response:
    """Step into a mission, or into one message to an object; show where that stands."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    if id := form.get("id", ""):
        session = f"console-{hashlib.sha256(id.encode()).hexdigest()[:16]}"
        told = await seat.asker.ask("step.open", session=session, id=id)
    else:
        args = _value(form.get("args", "").strip() or "[]", strict=True)
        if not isinstance(args, list):
            raise InvalidInput('the arguments are a JSON list, such as ["a b", 2]')
        session, target = f"{_ALONE}{uuid.uuid4().hex[:16]}", needed(form, "target")
        told = await seat.asker.ask("step.open", session=session, target=target, selector=needed(form, "selector"), args=args)
    return _see(session, {"run": str(told["runs"][-1]["number"])} if told["runs"] else {})


async def page(seat: PageContext, request: Request) -> Response:
    """Show where a session stands, with one thing in whole: an inference, a run of a method, an object."""
    return await _shown(seat, request.query_params)


async def _shown(seat: PageContext, query: Mapping[str, str], status: int = 200, **more: Any) -> Response:
    session = query.get("session", "")
    numbers = {name: whole(query.get(name, ""), name) for name in ("inference", "run", "line")}
    target = query.get("target", "").strip() or None
    try:
        told = await seat.asker.ask("step.show", session=session, target=target, **numbers)
    except BatosError as e:
        if target is None and not any(numbers.values()):
            raise
        told = await seat.asker.ask("step.show", session=session)
        more = {"why": e.message, **more}
    view = {name: query.get(name, "") for name in _VIEWS}
    facts = {"why": "", "expression": "", "evaluated": None, **more}
    return await seat.show(
        "step.html",
        "missions",
        f"{told['at']['state']} of {told['brief'][:60]}",
        status,
        step=told,
        view=view,
        alone=told["session"].startswith(_ALONE),
        fixed=FIXED,
        slots=_editable(told.get("object"), told["edits"]),
        source=_source(told.get("method")),
        **facts,
    )


def _source(run: Reply | None) -> list[tuple[int, str, bool]]:
    """Return the lines of a method's source: number, text, and True for the one at which the run stands."""
    return [] if run is None else [(n, line, n == run.get("line")) for n, line in enumerate(run["source"].splitlines(), 1)]


class _Slot(NamedTuple):
    """A slot of an object that is looked at."""

    name: str
    value: Any
    kind: str
    """Kind of its change; empty: it is not changed here."""
    place: str
    """Target of its change."""
    text: str
    """Text to change: the value, or what it was changed to since."""
    is_changed: bool
    """True if it was changed in the session: what is thought from now on sees that."""


def _editable(shown: Reply | None, edits: Sequence[Reply]) -> list[_Slot]:
    """Return the slots of an object that is looked at."""
    if shown is None:
        return []
    target = shown["target"]
    found = []
    for name, value in shown["slots"].items():
        kind, text = ("", "") if target == "mission" or name.endswith("*") else _kind_of(name, value, target.startswith("psm."))
        if kind and target == "cycle":
            kind = "" if name in FIXED else "cycle"
        place = target if kind == "prompt" else name if kind == "cycle" else f"{target}.{name}"
        made = [one for one in edits if (one["kind"], one["target"]) == (kind, place)]
        if made:
            text = json.dumps(made[-1]["after"], ensure_ascii=False) if kind in _AS_JSON else str(made[-1]["after"])
        found.append(_Slot(name, value, kind, place, text, bool(made)))
    return found


def _kind_of(name: str, value: Any, is_state: bool) -> tuple[str, str]:
    """Return the kind of change for a slot, and its value as it is written."""
    if isinstance(value, dict) and "intent" in value and len(value) == 1:
        return ("facet" if name.endswith("_facet_") else "intent"), str(value["intent"])
    if isinstance(value, dict) and "source" in value and "method" in value:
        return "method", str(value["source"])
    if isinstance(value, dict) and ("primitive" in value or "class" in value):
        return "", ""
    if is_state and name == "meta_prompt":
        return "prompt", str(value)
    return "slot", json.dumps(value, ensure_ascii=False)


async def go(seat: PageContext, request: Request) -> Response:
    """Go to another place: the next transition, a number, the end, the failure."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    to = needed(form, "to")
    place: int | str = to if to in _PLACES else (whole(to, "to") or 0) if to.isdecimal() else to
    try:
        await seat.asker.ask(
            "step.go", session=needed(form, "session"), to=place, inferences=whole(form.get("inferences", ""), "inferences")
        )
    except BatosError as e:
        return await _shown(seat, form, 400, why=e.message)
    return _see(form["session"], {"target": form.get("target", "")})


async def edit(seat: PageContext, request: Request) -> Response:
    """Change something in the mirror, or take a change back. What is refused comes back with the reason."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    session = needed(form, "session")
    try:
        if drop := whole(form.get("drop", ""), "drop"):
            await seat.asker.ask("step.edit", session=session, drop=drop)
        else:
            kind, text = needed(form, "kind"), form.get("value", "")
            value = _value(text, strict=False) if kind in _AS_JSON else text
            await seat.asker.ask("step.edit", session=session, kind=kind, target=form.get("place", ""), value=value)
    except BatosError as e:
        return await _shown(seat, form, 400, why=e.message)
    return _see(session, form)


def _value(text: str, *, strict: bool) -> Any:
    """Return the JSON value of a text.

    :param strict: False: a text that is not JSON is itself.
    :raises InvalidInput: if it has to be JSON and is not.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        if strict:
            raise InvalidInput(f"it is not valid JSON: {e}") from None
        return text


async def evaluate(seat: PageContext, request: Request) -> Response:
    """Show the value of an expression where a session stands. Nothing of it is kept."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    expression = needed(form, "expression")
    try:
        told = await seat.asker.ask("step.eval", session=needed(form, "session"), expression=expression)
    except BatosError as e:
        return await _shown(seat, form, 400, expression=expression, why=e.message)
    return await _shown(seat, form, expression=expression, evaluated=(told["value"],))


async def preview(seat: PageContext, request: Request) -> Response:
    """Show all changes as one diff, and what stands in the way of taking them over."""
    return await _previewed(seat, needed(request.query_params, "session"))


async def _previewed(seat: PageContext, session: str, status: int = 200, why: str = "", note: str = "") -> Response:
    told = await seat.asker.ask("step.continue", session=session, dry=True)
    rows = [{**row, "lines": (_text(row["before"]), _text(row["after"]))} for row in told["diff"]]
    return await seat.show(
        "step_continue.html",
        "missions",
        "Continue",
        status,
        told=told,
        rows=rows,
        session=session,
        why=why,
        note=note,
        alone=session.startswith(_ALONE),
    )


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


async def go_on(seat: PageContext, request: Request) -> Response:
    """Take the changes over, and let the mission go on; show the mission."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    session, note = needed(form, "session"), form.get("note", "").strip()
    try:
        told = await seat.asker.ask("step.continue", session=session, note=note, anyway=form.get("anyway") == "1")
    except InvalidInput as e:
        return await _previewed(seat, session, 409, e.message, note)
    if session.startswith(_ALONE):
        return RedirectResponse(url("/steps"), 303)
    return see_mission(told["id"], "continued")


async def close(seat: PageContext, request: Request) -> Response:
    """Leave a session. Nothing was changed."""
    form = await form_of(request, ConsoleLimits.of(seat.settings).form_bytes)
    await seat.asker.ask("step.close", session=needed(form, "session"))
    return RedirectResponse(url("/mission", id=form["id"]) if form.get("id") else url("/steps"), 303)


def _see(session: str, view: Mapping[str, str]) -> Response:
    shown = {name: view.get(name, "") for name in _VIEWS}
    return RedirectResponse(url("/step", session=session, **shown), 303)
