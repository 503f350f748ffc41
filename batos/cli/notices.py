"""The verb `notices`: where the user wants to hear that a mission ended, failed or asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.client import OptionGroup, ask, grouped
from batos.cli.missions import value_of
from batos.cli.output import Output, ago
from batos.cli.secrets import typed_secret
from batos.cli.tool_places import absolute_command, check_no_secret, pairs_of
from batos.config import nearest

ACTIONS = ("add", "show", "test", "pause", "resume", "remove", "log", "settle")
FACTS = ("end", "failure", "question", "change", "doubt", "schedule")
_STYLES = {"DONE": "green", "FAILED": "red", "IN_DOUBT": "yellow", "SETTLED": "cyan"}


@dataclass(frozen=True)
class NoticePlace(OptionGroup):
    """Place of a new channel; exactly one of them."""

    program: Annotated[
        str | None, typer.Option("--program", metavar="COMMAND", help="A program; {title}, {text}, {link} are filled in.")
    ] = None
    hook: Annotated[str | None, typer.Option("--hook", metavar="URL", help="An HTTP POST of JSON; {secret:NAME} stands for a secret.")] = (
        None
    )
    apprise: Annotated[
        str | None,
        typer.Option("--apprise", metavar="URL", help="A service that apprise knows; - reads the URL, which is kept as a secret."),
    ] = None


@dataclass(frozen=True)
class NoticeOptions(OptionGroup):
    """Options of a new channel besides its place."""

    on: Annotated[str | None, typer.Option("--on", metavar="FACTS", help="Facts to send: all, or some of " + ",".join(FACTS) + ".")] = None
    persona: Annotated[str | None, typer.Option("--persona", metavar="NAME", help="Only notices of missions of this persona.")] = None
    origin: Annotated[
        str | None,
        typer.Option("--from", metavar="ORIGIN", help="Only notices of missions of this origin: client, console, schedule, hook, folder."),
    ] = None
    quiet: Annotated[
        str | None,
        typer.Option("--quiet", metavar="HOURS", help="Hours without notices: 22:00-7:00. Notices of these hours are sent afterwards."),
    ] = None
    tz: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of these hours; default: that of the daemon's machine.")
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Never repeat a notice that may have been sent: it may be lost instead.")] = False
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="'NAME: VALUE'", help="With --hook: a header; {secret:NAME} stands for a secret."),
    ] = None
    private: Annotated[bool, typer.Option("--private", help="With --hook: the host may be in a private network.")] = False
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="With --program: a variable.")] = None
    network: Annotated[bool, typer.Option("--network", help="With --program: it may use the network.")] = False
    more: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Any other option of its way: see docs/notices.md.")
    ] = None


_NO_PLACE, _UNSAID = NoticePlace(), NoticeOptions()


@app.command()
@grouped
def notices(
    action: Annotated[
        str | None, typer.Argument(metavar="[" + "|".join(ACTIONS) + "]", help="What to do; without it, the channels are listed.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A channel.")] = None,
    place: NoticePlace = _NO_PLACE,
    options: NoticeOptions = _UNSAID,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List the channels of notices, or add, show, test, pause, resume or remove one. Or list sent notices (log), and say that you have seen
    those that may not have arrived (settle)."""
    output = Output(as_json)
    _check(action, name, place, options)
    reply = _asked(action, name, place, options, endpoint(connect))
    if as_json:
        output.document(reply)
    elif action in ("test", "log"):
        _log(reply["messages"], output, tested=action == "test")
    elif action == "settle":
        output.say(f"{reply['settled']} messages are settled")
    elif action in (None, "remove"):
        _list(reply, output)
    else:
        _page(reply["channels"][0], output)
    if action == "test" and reply["messages"][0]["state"] != "DONE":
        raise typer.Exit(1)


def _check(action: str | None, name: str | None, place: NoticePlace, options: NoticeOptions) -> None:
    if action is not None and action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    if action not in (None, "log", "settle") and name is None:
        raise typer.BadParameter(f"`notices {action}` takes the name of a channel; `batos notices` lists them")
    if action != "add" and (place != _NO_PLACE or options != _UNSAID):
        raise typer.BadParameter("only `notices add NAME` takes a place and options")
    if action == "add" and len(_named(place)) != 1:
        raise typer.BadParameter("a channel has one place, by --program, --hook or --apprise: batos notices add phone --apprise -")


def _named(place: NoticePlace) -> dict[str, str]:
    return {way: value for way, value in vars(place).items() if value is not None}


def _asked(action: str | None, name: str | None, place: NoticePlace, options: NoticeOptions, address: str) -> dict[str, Any]:
    if action is None:
        return ask(address, lambda client: client.notices())
    if action == "log":
        return ask(address, lambda client: client.notice_log(name))
    if action == "settle":
        return ask(address, lambda client: client.notice_settle(name))
    wanted = str(name)
    if action == "add":
        [(way, value)] = _named(place).items()
        terms: Any = _terms(way, options)
        if way == "program":
            value = absolute_command(way, value)
        elif way == "apprise" and value == "-":
            value = typed_secret("the apprise URL").strip()
            if not value:
                raise typer.BadParameter("the apprise URL is empty; type or pipe in one such as ntfy://HOST/TOPIC")
        return ask(address, lambda client: client.notice_add(wanted, way, value, **terms))  # type: ignore[arg-type]
    if action == "test":
        return ask(address, lambda client: client.notice_test(wanted))
    if action in ("pause", "resume"):
        return ask(address, lambda client: client.notice_pause(wanted) if action == "pause" else client.notice_resume(wanted))
    return ask(address, lambda client: client.notice_remove(wanted) if action == "remove" else client.notices(wanted))


def _terms(way: str, options: NoticeOptions) -> dict[str, Any]:
    of_way = {"header": "hook", "private": "hook", "env": "program", "network": "program"}
    for option, its in of_way.items():
        if getattr(options, option) and its != way:
            raise typer.BadParameter(f"--{option} goes with --{its} only")
    headers, env = pairs_of("--header", options.header, ":"), pairs_of("--env", options.env, "=")
    for flag, given in (("--header", headers), ("--env", env)):
        check_no_secret(flag, given)
    more = {one: value_of(text) for one, text in pairs_of("--option", options.more, "=").items()}
    held = {"headers": headers, "env": env, "private": options.private, "network": options.network, **more}
    facts = None if options.on is None else [one.strip() for one in options.on.split(",") if one.strip()]
    if facts == []:
        raise typer.BadParameter(f"--on names no fact; allowed are {', '.join(FACTS)}, and all for each")
    if facts == ["all"]:
        facts = list(FACTS)
    for fact in facts or ():
        if fact not in FACTS:
            raise typer.BadParameter(f"--on: {fact!r} is none of {', '.join(FACTS)}{nearest(fact, FACTS)}; all stands for each")
    return {
        "options": {one: value for one, value in held.items() if value},
        "on": facts,
        "persona": options.persona,
        "origin": options.origin,
        "quiet": options.quiet,
        "zone": options.tz,
        "once": options.once,
    }


def _list(reply: dict[str, Any], output: Output) -> None:
    if not reply["channels"]:
        output.note("no channels; batos notices add phone --apprise - makes one", "dim")
    else:
        rows = (
            (one["name"], one["way"], one["place"], ",".join(one["on"]), str(one["waiting"] or ""), _state(one))
            for one in reply["channels"]
        )
        output.rows(("channel", "way", "place", "tells", "waits", "last"), rows, _STYLES)
    if reply["untold"]:
        output.note(
            f"{reply['untold']} messages were not told for sure; batos notices log shows them, and settle says that you have seen them",
            "yellow",
        )
    if reply["tied"]:
        output.note(f"nothing is told: {reply['tied']}", "yellow")


def _page(one: dict[str, Any], output: Output) -> None:
    output.say(f"{one['name']}: {one['way']} {one['place']}", "bold")
    facts = [
        ("tells", ", ".join(one["on"])),
        ("persona", one["persona"]),
        ("from", one["origin"]),
        ("quiet", f"{one['quiet']} ({one['zone']})" if one["quiet"] else None),
        ("in doubt", "not told again (--once)" if one["once"] else "told again, and says so"),
        ("options", ", ".join(f"{name}={value}" for name, value in one["options"].items())),
        ("paused", "yes" if one["paused"] else None),
        ("waits", one["waiting"] or None),
        ("last", _state(one)),
    ]
    output.pairs((name, value) for name, value in facts if value)
    if one["queue"]:
        output.rows(("age", "waits", "notice"), ((ago(held["at"]), held["fact"], held["title"]) for held in one["queue"]))
    output.note(f"batos notices test {one['name']} tries it", "dim")


def _log(messages: list[dict[str, Any]], output: Output, *, tested: bool) -> None:
    if not messages:
        output.note("nothing was told yet", "dim")
        return
    if tested:
        one = messages[0]
        output.say(f"{one['channel']}: {'told' if one['state'] == 'DONE' else one['state']}")
        if one.get("why"):
            output.note(one["why"], "red")
        return
    rows = ((ago(one["at"]), one["channel"], one["state"], one["title"], _ended(one)) for one in messages)
    output.rows(("age", "channel", "state", "message", "why"), rows, _STYLES)


def _state(one: dict[str, Any]) -> str:
    if one["paused"]:
        return "paused"
    last = one["last"]
    return "" if last is None else f"{last['state']} {ago(last['at'])}"


def _ended(one: dict[str, Any]) -> str:
    again = f"again, try {one['attempts'] + 1}: " if one["again"] else ""
    return f"{again}{one.get('why', '')}"
