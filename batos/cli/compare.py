"""The verb `compare`: a variant of a persona against what there is, side by side: started, judged without knowing the sides, promoted."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import typer

from batos.cli.app import Connect, Json, app, check_reachable, endpoint, run_async
from batos.cli.client import OptionGroup, agreed, ask, client_of, grouped
from batos.cli.mission_view import terminal_line
from batos.cli.output import Output, PassingLine, ago, counted, one_line
from batos.wire import Client
from batos.wire.compare_schemas import CompareJudge

UNDER_WAY = ("waiting", "running")
STYLES = {"done": "green", "running": "cyan", "failed": "red", "spent": "yellow", "stopped": "dim", "better": "green", "worse": "red"}
VERDICTS = {"l": "left", "left": "left", "r": "right", "right": "right", "t": "tie", "tie": "tie"}
STOPS = ("q", "quit", "stop", "")
WAIT_S = 5.0  # seconds of one look at a comparison that is under way


@dataclass(frozen=True)
class VariantOptions(OptionGroup):
    """Options that say what is compared with what there is, and on what."""

    other: Annotated[
        str | None,
        typer.Option("--with", metavar="FILE|PERSONA|MODEL", help="A codex file (.toml), another persona, or a model in its place."),
    ] = None
    changed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another slot (robin.sage_facet_, depth, model) or setting; may be repeated."),
    ] = None
    missions: Annotated[
        int | None, typer.Option("--missions", metavar="N", min=0, max=200, help="Number of recorded missions, the newest (8).")
    ] = None
    match: Annotated[str | None, typer.Option("--match", metavar="TEXT", help="Only missions with this text in their briefs.")] = None
    briefs: Annotated[
        Path | None, typer.Option("--briefs", metavar="FILE", help="Given briefs, one a line; a line may be a JSON object.")
    ] = None
    depth: Annotated[str | None, typer.Option("--depth", metavar="DEPTH", help="Depth of given briefs: direct, facets, council, auto.")] = (
        None
    )
    flavour: Annotated[
        str | None, typer.Option("--flavour", metavar="FLAVOUR", help="Flavour of given briefs: full, light, off, auto.")
    ] = None

    @property
    def is_named(self) -> bool:
        """Return True if something is named that differs from what there is."""
        return self.other is not None or bool(self.changed)


@dataclass(frozen=True)
class JudgeOptions(OptionGroup):
    """Options that say who judges, and what it may cost."""

    judge: Annotated[
        str | None, typer.Option("--judge", metavar="me|alfred|rules", help="Who judges: you (default), ALFRED in both orders, or rules.")
    ] = None
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", metavar="RULE", help="schema, exact[:TEXT], contains[:TEXT], length, latency, tokens; the first decides."),
    ] = None
    inferences: Annotated[int | None, typer.Option("--inferences", metavar="N", min=0, help="Most inferences to pay for (200).")] = None
    tokens: Annotated[int | None, typer.Option("--tokens", metavar="N", min=0, help="Most tokens, read and written (200000).")] = None
    minutes: Annotated[float | None, typer.Option("--minutes", metavar="N", help="Most minutes of model time (60).")] = None

    def terms(self) -> dict[str, Any]:
        """Return the terms as the client takes them."""
        if self.judge is not None and self.judge not in get_args(CompareJudge):
            raise typer.BadParameter(f"--judge is one of {', '.join(get_args(CompareJudge))}, not {self.judge!r}")
        judge = self.judge or ("rules" if self.rules else None)
        return {"judge": judge, "rules": self.rules, "inferences": self.inferences, "tokens": self.tokens, "minutes": self.minutes}


@dataclass(frozen=True)
class CompareActs(OptionGroup):
    """Options that name a comparison that is there, and what is done with it."""

    show: Annotated[str | None, typer.Option("--show", metavar="ID", help="Report a comparison.")] = None
    resume: Annotated[str | None, typer.Option("--resume", metavar="ID", help="Continue a comparison, or its judging.")] = None
    stop: Annotated[str | None, typer.Option("--stop", metavar="ID", help="Stop a comparison; its inferences and judgements stay.")] = None
    remove: Annotated[str | None, typer.Option("--remove", metavar="ID", help="Remove a comparison.")] = None
    promote: Annotated[bool, typer.Option("--promote", help="Adopt the variant, if the verdict is better.")] = False
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Reason of the promotion; it is kept with the change.")] = None
    anyway: Annotated[bool, typer.Option("--anyway", help="Promote it whatever the verdict is.")] = False
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Name of a new comparison; default: a generated name.")] = None
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a large comparison begins.")] = False

    @property
    def named(self) -> list[tuple[str, str]]:
        """Return the given acts with their ids."""
        return [(act, id) for act in ("show", "resume", "stop", "remove") if (id := getattr(self, act)) is not None]


_UNSAID, _UNJUDGED, _NO_ACT = VariantOptions(), JudgeOptions(), CompareActs()


@app.command()
@grouped
def compare(
    persona: Annotated[str | None, typer.Argument(metavar="[PERSONA]", help="Persona to compare; left out: list comparisons.")] = None,
    variant: VariantOptions = _UNSAID,
    judging: JudgeOptions = _UNJUDGED,
    acts: CompareActs = _NO_ACT,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Compare a persona with a variant (codex, persona, model, depth, setting), on recorded missions or given briefs. Judge the pairs
    without knowing the sides; adopt the variant if it is better. A comparison does not act outside."""
    output, address = Output(as_json), endpoint(connect)
    _check(persona, variant, judging, acts)
    if persona is not None:
        id = _begun(persona, variant, judging, acts, address, output)
    elif acts.named:
        ((act, id),) = acts.named
        if act in ("stop", "remove"):
            _ended(act, id, address, output)
            return
        if act == "resume":
            ask(address, lambda client: client.compare_resume(id, **_given(judging.terms())))
    else:
        _list(ask(address, lambda client: client.compare_list()), output)
        return
    told = _followed(id, address, output)
    if told["judge"] == "me" and told["state"] == "done" and told["unjudged"] and acts.show is None:
        told = judged(id, address, output)
    if acts.promote:
        note = str(acts.note)
        told = ask(address, lambda client: client.compare_promote(id, note, anyway=acts.anyway))
    if as_json:
        output.document(told)
    else:
        report(told, output)


def _check(persona: str | None, variant: VariantOptions, judging: JudgeOptions, acts: CompareActs) -> None:
    if len(acts.named) + (persona is not None) > 1:
        raise typer.BadParameter("one of PERSONA, --show, --resume, --stop and --remove at a time")
    if persona is not None and not variant.is_named:
        raise typer.BadParameter("--with or --set says what it is compared with: batos compare robin --with brick")
    if persona is None and variant != _UNSAID:
        raise typer.BadParameter("--with, --set, --missions, --match and --briefs belong to a persona: batos compare robin --with brick")
    if persona is None and judging != _UNJUDGED and acts.resume is None:
        raise typer.BadParameter("a judge and a budget belong to a new comparison, or to --resume ID")
    if (variant.depth or variant.flavour) and variant.briefs is None:
        raise typer.BadParameter("--depth and --flavour are of given briefs (--briefs FILE)")
    if acts.promote is not (acts.note is not None):
        raise typer.BadParameter("--promote takes the reason as --note TEXT, which is kept with it")
    if acts.promote and (acts.stop or acts.remove or not (persona or acts.named)):
        raise typer.BadParameter("--promote belongs to a comparison: --show ID, --resume ID, or a new one")


def _given(terms: dict[str, Any]) -> Any:
    return {name: value for name, value in terms.items() if value is not None}


# --- a new one


def _begun(persona: str, variant: VariantOptions, judging: JudgeOptions, acts: CompareActs, address: str, output: Output) -> str:
    """Say what is compared and what it costs, ask where that is much, and begin. Return the id."""
    id = acts.id or f"{persona.lower()}-{uuid.uuid4().hex[:6]}"
    terms = _given({**_variant(variant), **judging.terms()})
    plan = ask(address, lambda client: client.compare_start(persona, id=id, dry=True, **terms))
    if not output.as_json:
        estimate, budget = plan["estimate"], plan["budget"]
        output.say(f"{id}: {plan['words']}, on {counted(plan['pairs'], 'mission')}", "bold")
        output.say(f"about {_cost(estimate)}; at most {_cost(budget)}")
    if plan["estimate"]["large"] and not acts.yes:
        if output.as_json or not sys.stdin.isatty():
            raise typer.BadParameter(f"it will cost about {_cost(plan['estimate'])}; --yes begins it")
        agreed("Begin?", output)
    ask(address, lambda client: client.compare_start(persona, id=id, **terms))
    return id


def _cost(cost: dict[str, Any]) -> str:
    return f"{counted(cost['inferences'], 'inference')}, {counted(cost['tokens'], 'token')}, {cost['minutes']:g} minutes of model time"


def _variant(options: VariantOptions) -> dict[str, Any]:
    """Return the terms of what is compared, and on what."""
    terms: dict[str, Any] = {"missions": options.missions, "match": options.match}
    if options.other is not None:
        file = Path(options.other)
        is_file = options.other.endswith(".toml") or file.is_file()
        terms |= {"codex": _read(file, "--with")} if is_file else {"other": options.other}
    if options.changed:
        terms["changed"] = dict(map(_named, options.changed))
    if options.briefs is not None:
        more = _given({"depth": options.depth, "flavour": options.flavour})
        terms["briefs"] = [{**more, **brief} for brief in briefs_in(_read(options.briefs, "--briefs"))]
    return terms


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise typer.BadParameter(f"--set takes NAME=VALUE, such as robin.sage_facet_='Whom does she love?', not {text!r}")
    return name.strip(), value


def _read(file: Path, option: str) -> str:
    try:
        return file.read_text("utf-8-sig")
    except OSError as e:
        raise typer.BadParameter(f"{option} {file}: {e.strerror or e}") from None
    except UnicodeDecodeError as e:
        raise typer.BadParameter(f"{option} {file}: the file is not text in UTF-8: {e}") from None


def briefs_in(text: str) -> list[dict[str, Any]]:
    """Return the briefs of a file: one a line; blank lines and those that begin with `#` are none.

    :raises typer.BadParameter: for a line that is not a brief, or if there is none.
    """
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not line.lstrip().startswith("{"):
            found.append({"brief": line.strip()})
            continue
        try:
            one = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise typer.BadParameter(f"--briefs, line {number}: it is not valid JSON: {e}") from None
        if not isinstance(one, dict) or not isinstance(one.get("brief"), str):
            raise typer.BadParameter(f"--briefs, line {number}: an object has `brief`, optional depth, flavour, schema, exact, contains")
        found.append(one)
    if not found:
        raise typer.BadParameter("--briefs: the file has no brief; write one a line")
    return found


def _followed(id: str, address: str, output: Output) -> dict[str, Any]:
    """Return a comparison when it is no longer under way. Ctrl-C leaves it under way."""

    async def follow() -> dict[str, Any]:
        line = PassingLine(output)
        async with client_of(address) as client:
            told = await client.compare_show(id)
            try:
                while told["state"] in UNDER_WAY:
                    line.tell(f"{told['done']} of {counted(told['pairs'], 'pair')}, {_cost(told['cost'])}")
                    told = await client.compare_show(id, wait_s=WAIT_S)
            finally:
                line.clear()
        return told

    check_reachable(address)
    try:
        return run_async(follow())
    except KeyboardInterrupt:
        output.note(f"\nIt goes on. Look again: batos compare --show {id}; stop it: batos compare --stop {id}")
        raise typer.Exit(130) from None


# --- judging


def judged(id: str, address: str, output: Output, read: Callable[[str], str] = input) -> dict[str, Any]:
    """Let a user judge pairs, as long as there are some and he goes on; return the comparison then.

    :param read: shows a question and returns a line; EOFError ends the judging.
    """
    if read is input and (output.as_json or not sys.stdin.isatty()):
        output.note(f"its pairs wait for your judgement: batos compare --resume {id} on a terminal, or the console's page")
        return ask(address, lambda client: client.compare_show(id))

    async def judge() -> dict[str, Any]:
        async with client_of(address) as client:
            reply = await client.compare_next(id)
            while (pair := reply["pair"]) is not None:
                _pair(pair, output)
                verdict = await _verdict(output, read)
                if verdict is None:
                    left = counted(pair["of"] - pair["judged"], "pair")
                    output.note(f"left to judge: {left}; go on with: batos compare --resume {id}")
                    break
                reply = await client.compare_judge(id, pair["number"], verdict)
            return await client.compare_show(id)

    check_reachable(address)
    return run_async(judge())


def _pair(pair: dict[str, Any], output: Output) -> None:
    output.say()
    output.say(f"{pair['judged'] + 1} of {pair['of']}: {one_line(pair['brief'], 500)}", "bold")
    for hand in ("left", "right"):
        output.say()
        output.say(hand.upper(), "cyan")
        output.say(pair[hand].strip())
    output.say()


async def _verdict(output: Output, read: Callable[[str], str]) -> Literal["left", "right", "tie"] | None:
    """Return the judgement that a user gives; None where he stops."""
    while True:
        try:
            said = (await _said("left, right or tie? (q stops) ", output, read)).strip().lower()
        except EOFError:
            return None
        if said in VERDICTS:
            return cast(Literal["left", "right", "tie"], VERDICTS[said])
        if said in STOPS:
            return None
        output.note(f"{said!r} is none of left, right, tie (l, r, t), and q to stop")


async def _said(question: str, output: Output, read: Callable[[str], str]) -> str:
    """Return the line that answers a question. Ctrl-C ends the wait at once: a thread that reads would hold it up until Enter."""
    if read is not input:
        return await asyncio.to_thread(read, question)
    output.write(question)
    line = await terminal_line()
    if not line:
        raise EOFError
    return line.decode("utf-8", "replace")


# --- output


def _ended(act: str, id: str, address: str, output: Output) -> None:
    def question(client: Client) -> Any:
        return client.compare_stop(id) if act == "stop" else client.compare_remove(id)

    reply = ask(address, question)
    if output.as_json:
        output.document(reply)
    elif act == "remove":
        output.say(f"{id} is forgotten")
    else:
        output.say(f"{id}: {reply['state']}, {reply['done']} of {counted(reply['pairs'], 'pair')}; batos compare --resume {id} goes on")


def _list(reply: dict[str, Any], output: Output) -> None:
    if output.as_json:
        output.document(reply)
        return
    found = reply["comparisons"]
    if not found:
        output.note("none so far; batos compare robin --with brick sets BRICK beside ROBIN on recorded missions", "dim")
        return
    rows = (
        (one["id"], one["state"], f"{one['done']}/{one['pairs']}", one["judge"], one["verdict"], ago(one["begun"]), one_line(one["words"]))
        for one in found
    )
    output.rows(("id", "state", "pairs", "judge", "verdict", "age", "what"), rows, STYLES)


def report(told: dict[str, Any], output: Output) -> None:
    """Print the report of a comparison."""
    figures = told["figures"]
    output.say(f"{told['id']}: {told['words']}", "bold")
    judge = {"me": "you", "alfred": "ALFRED, in both orders", "rules": f"rules: {', '.join(told['rules'])}"}[told["judge"]]
    facts = [
        ("state", f"{told['state']}{': ' + told['reason'] if told['reason'] else ''}"),
        ("pairs", f"{told['done']} of {told['pairs']}{_left_out(told)}"),
        ("judge", f"{judge}{_judged(told)}"),
        ("cost", f"{_cost(told['cost'])} of at most {_cost(told['budget'])}"),
        ("wins", _wins(figures)),
        ("verdict", f"{figures['verdict']}: {figures['why']}"),
        ("promoted", f"change {told['promoted']}: {told['note']} (`batos changes undo {told['promoted']}`)" if told["promoted"] else None),
    ]
    output.pairs((name, value) for name, value in facts if value)
    rows = [
        (name, *(_number(cost[one]) for one in ("base", "changed", "difference")), _range(cost["interval"]))
        for name, cost in figures["costs"].items()
    ]
    if any(cost["base"] is not None for cost in figures["costs"].values()):
        output.say()
        output.rows(("a mission", "as it is", "with it", "difference", "95 % (bootstrap)"), rows)
    output.say()
    output.rows(("pair", "won by", "brief", "why"), map(_row, told["compared"]), {"with it": "green", "as it is": "yellow"})


def _left_out(told: dict[str, Any]) -> str:
    return f", {told['left_out']} left out" if told["left_out"] else ""


def _judged(told: dict[str, Any]) -> str:
    figures = told["figures"]
    parts = [
        f"{told['unjudged']} pairs wait" if told["unjudged"] else "",
        f"{figures['settled']} needed no judge" if figures["settled"] else "",
        f"{figures['disagreed']} where the orders disagree count as ties" if figures["disagreed"] else "",
    ]
    said = "; ".join(filter(None, parts))
    return f" ({said})" if said else ""


def _wins(figures: dict[str, Any]) -> str:
    wins, told = figures["wins"], ""
    if figures["share"] is not None:
        told = f"; its share is {figures['share']:g}, {_range(figures['interval'])} ({figures['methods']['wins']})"
    return f"{wins['changed']} with it, {wins['base']} as it is, {wins['tie']} ties{told}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _range(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:g} to {interval[1]:g}"


def _row(pair: dict[str, Any]) -> tuple[str, str, str, str]:
    number, brief = str(pair["number"]), one_line(pair["brief"], 60)
    if "left_out" in pair:
        return number, "left out", brief, one_line(pair["left_out"], 120)
    if pair["hidden"]:
        return number, "", brief, "waits for your judgement"
    names = {"changed": "with it", "base": "as it is", "tie": "tie", None: "not judged"}
    return number, names[pair["winner"]], brief, one_line(pair["why"], 120)
