"""Verbs about generated methods: show the versions, restore one, teach by examples, grant messages, and audit a file.

`audit` prints the guardian's verdict on a file, without a daemon.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from batos.cli.app import ConfigFlag, Connect, Json, SetFlag, app, check_named, endpoint
from batos.cli.client import DAEMON, AtFlag, QuerySource, grouped, look, moment, with_nearest
from batos.cli.missions import IdFlag, WatchFlag, give, value_of
from batos.cli.output import Output, ago, json_text
from batos.cli.settings import settings_from
from batos.config import shown
from batos.errors import ConfigError, UnknownTarget
from batos.wire import Accepted, Client

Target = Annotated[str, typer.Argument(metavar="OBJECT", help="Path of an object (robin, psm.IDLE) or its oid (oid:1f).")]
Selector = Annotated[str, typer.Argument(metavar="SELECTOR", help="Name of the message.")]

DOUBTFUL = 3
"""Number of tries from which a method that passed only one example is more likely wrong than right."""


@app.command()
@grouped
def method(
    target: Target,
    selector: Selector,
    diff: Annotated[tuple[int, int] | None, typer.Option("--diff", metavar="A B", help="Changes from version A to version B.")] = None,
    at: AtFlag = None,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """Show a method: its source, where it came from, its contract, its earlier versions, its examples."""
    then = moment(at)
    reply = look(
        source,
        lambda looks: looks.method(target, selector, then),
        lambda client: client.method(target, selector, then),
        target,
    )
    output = Output(as_json)
    changed = None if diff is None else differences(reply, diff)
    if as_json:
        output.document(reply if changed is None else {**reply, "diff": changed})
        return
    if changed is not None:
        for line in changed:
            output.say(line, "green" if line.startswith("+") else "red" if line.startswith("-") else "")
        return
    output.say(f"{target} {selector}: {reply['kind']}", "bold")
    if reply["intent"]:
        output.say(f"  for: {reply['intent']}", "dim")
    for example in reply["examples"]:
        output.say(f"  example: {json.dumps(example, ensure_ascii=False)}", "dim")
    for doubt in reply.get("doubts", ()):
        output.say(f"  doubtful, and written anew when it is next sent: {doubt}", "yellow")
    for number, version in enumerate(reply["versions"]):
        _version(version, output, whole=number == 0)
        if number == 0 and (asked := version["provenance"].get("open")):
            receiver = version["provenance"]["receiver"]  # the object of the examples; the method may belong to another object
            show_open_case(target if reply.get("oid") == receiver else receiver, selector, asked, output)


@app.command()
@grouped
def methods(
    target: Annotated[
        str | None, typer.Argument(metavar="[OBJECT]", help="Only what this object holds itself, by its path or oid.")
    ] = None,
    at: AtFlag = None,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """List the generated methods of the image: who holds each, its version, the mission that wrote it, how often it ran."""
    then = moment(at)
    reply = look(source, lambda looks: looks.methods(target, then), lambda client: client.methods(target, then), target or "")
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    listed = reply["methods"]
    if not listed:
        output.note("no generated methods yet: send an object a message for which it has no method, and one is written", "dim")
        return
    rows = ((one["holder"], one["selector"], one["version"], one["mission"] or "", *_use(one)) for one in listed)
    output.rows(("object", "selector", "version", "mission", "runs", "last used", ""), rows, {"damaged": "bold red"})


@app.command()
def revert(
    target: Target,
    selector: Selector,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=0, help="Version to bring back; 0: the state before the first one.")
    ] = None,
    id: IdFlag = None,
    watch: WatchFlag = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Bring an earlier version of a method back, as a new version; default: the version before the newest."""

    async def submit(client: Client) -> Accepted:
        return await _named(client.revert(target, selector, version, id=id), target)

    give(submit, endpoint(connect), Output(as_json), watch)


@app.command()
def grant(
    target: Target,
    selector: Selector,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What the method may send: forget_, revert_, learn_ ...")],
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the grant back.")] = False,
    id: IdFlag = None,
    watch: WatchFlag = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Let a method send a message that changes more than its receiver; a version that is written later needs another grant."""

    async def submit(client: Client) -> Accepted:
        return await _named(client.grant(target, selector, message, revoke=revoke, id=id), target)

    give(submit, endpoint(connect), Output(as_json), watch)


@app.command()
def teach(  # noqa: PLR0913  each is an option of the command line
    target: Target,
    selector: Selector,
    example: Annotated[
        list[str], typer.Option("--example", "-e", metavar="'ARGS -> RESULT'", help="An example: '[2, 3] -> 5', or a JSON object.")
    ],
    intent: Annotated[str | None, typer.Option("--intent", metavar="TEXT", help="Purpose of the message, in words.")] = None,
    tools: Annotated[bool, typer.Option("--tools", help="Let the method use tools (self.tools.NAME.tool).")] = False,
    id: IdFlag = None,
    watch: WatchFlag = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Give examples of a message's answers. They become trial cases, and BAT OS writes the method if it does not satisfy them."""
    told = [read_example(text) for text in example]

    async def submit(client: Client) -> Accepted:
        return await _named(client.teach(target, selector, told, intent=intent, tools=tools, id=id), target)

    give(submit, endpoint(connect), Output(as_json), watch)


def read_example(text: str) -> dict[str, Any]:
    """Parse `[2, 3] -> 5` (arguments as a JSON array, or one argument as it is), or an object in the wire's form.

    :raises typer.BadParameter: if it is neither.
    """
    arrows = [found.start() for found in re.finditer("->", text)]
    if text.rstrip().endswith("->"):
        raise typer.BadParameter(f"--example {text!r} does not say what it answers; an empty text is written 'ARGS -> \"\"'")
    for at in arrows:  # an arrow within a JSON text leaves no valid JSON on either side
        try:
            args, result = _side(text[:at]) if text[:at].strip() else [], _side(text[at + 2 :])
        except (ValueError, RecursionError):
            continue
        return {"args": args if isinstance(args, list) else [args], "result": result}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "result" not in found:
        told = f'each side JSON or a plain text, or a JSON object with "result", got {shown(text)}'
        raise typer.BadParameter(f"--example takes 'ARGS -> RESULT', {told}")
    return found


def _side(text: str) -> Any:
    """Return a side of an example: JSON if it begins like JSON, else the text.

    :raises ValueError: if it begins like JSON, and is not.
    """
    text = text.strip()
    return json.loads(text) if text[:1] in ("[", "{", '"') else value_of(text)


async def _named(accepting: Any, target: str) -> Accepted:
    try:
        accepted: Accepted = await accepting
    except UnknownTarget as e:
        raise with_nearest(e, target) from None
    return accepted


def _use(one: dict[str, Any]) -> tuple[object, str, str]:
    notes = [f"no grant for {', '.join(one['lacks_grant'])}"] if one.get("lacks_grant") else []
    notes += [f"reaches {', '.join(one['reaches'])}"] if one.get("reaches") else []
    return one.get("runs", ""), f"{ago(one['last'])} ago" if "last" in one else "", "; ".join(notes) if one["intact"] else "damaged"


def written(came: dict[str, Any]) -> str:
    """Return how a method was written, and the doubts about it. `amended`: it is one edit away from a draft.

    Doubts are: candidates that differed, examples that prove little or leave something open, or many refused candidates before one passed
    the only example. The page docs/training.md has the share of doubted methods that are wrong.

    :param came: its provenance.
    """
    tries, agreed, compared = came.get("tries") or 0, came.get("agreed", 1), came.get("candidates", 1)
    told = (f", {tries} tries" if tries else "") + (", amended" if came.get("edited") else "")
    if compared > 1:
        return told + f", {agreed} of {compared} written alike" + ("" if agreed == compared else ": not sure; teach it an example")
    if came.get("open"):
        return told + ": not sure; its examples leave something open"
    if came.get("constant"):
        return told + ": not sure; teach it an example with another answer"
    return told + (": not sure; teach it another example" if tries >= DOUBTFUL and came.get("trials", 1) == 2 else "")


def _version(version: dict[str, Any], output: Output, *, whole: bool) -> None:
    came = version["provenance"]
    tried = written(came)
    back = f", brought back from version {came['reverted_to']}" if came.get("reverted_to") else ""
    output.say(f"\nversion {version['version']}: mission {came.get('mission', '?')}, by {came.get('model', '?')}{tried}{back}", "bold")
    if not whole:
        return
    output.say(version["source"].rstrip())
    for name, names in version["contract"].items():
        if names:
            output.say(f"  {name.replace('_', ' ')}: {', '.join(names)}", "dim")
    if version.get("granted"):
        output.say(f"  granted: {', '.join(version['granted'])}", "dim")
    if not version["intact"]:
        output.say("  damaged: this is not the source that was audited; bring another version back", "red")


def show_open_case(target: str, selector: str, asked: list[dict[str, Any]], output: Output) -> None:
    """Print the case that the examples leave open, with the examples to teach for either answer."""
    output.say("open: which of these is right; teach it that one", "yellow")
    for one, which in zip(asked, ("what it answers now", "what another would that keeps its examples, too"), strict=False):
        output.say(f"  # {which}", "dim")
        output.copied(f"  batos teach {shlex.join((target, selector, '-e', _as_example(one)))}")


def _as_example(one: dict[str, Any]) -> str:
    """Return an example as `read_example` takes it."""
    if one.keys() <= {"args", "result"}:
        return f"{json_text(one.get('args', []))} -> {json_text(one['result'])}"
    return json_text(one)


def _instead(reply: dict[str, Any]) -> str:
    """Return in words the content of a slot without a method, and the way to restore a reverted method."""
    kind = str(reply["kind"])
    held = {"intent": "an intent", "primitive": "a primitive"}.get(kind, kind)
    back = "; if a mission reverted it, `batos undo` with that mission's id brings its versions back"
    return held + (back if kind in ("intent", "missing") else "")


def differences(reply: dict[str, Any], numbers: tuple[int, int]) -> list[str]:
    """Return the changes from one version to another, as lines of a unified diff.

    :raises typer.BadParameter: for a version that does not exist.
    """
    sources = {version["version"]: version["source"].splitlines() for version in reply["versions"]}
    for number in numbers:
        if number not in sources:
            there = f"there are {', '.join(map(str, sorted(sources)))}" if sources else f"there are none: it is {_instead(reply)}"
            raise typer.BadParameter(f"there is no version {number}; {there}")
    one, other = numbers
    return list(difflib.unified_diff(sources[one], sources[other], f"version {one}", f"version {other}", lineterm=""))


REFUSED = 4


@app.command()
def audit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that holds one method; - reads standard input.")],
    selector: Annotated[
        str | None, typer.Option("--selector", metavar="NAME", help="Selector of the method; default: the name of its definition.")
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="default, or strict (no imports); with capabilities: default+tools.")
    ] = "default",
    mend: Annotated[bool, typer.Option("--repair", help="Repair what needs no model, show the result and audit it.")] = False,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Audit the source of a method as the guardian does before it installs one: exit code 0 if accepted, 4 if refused."""
    from batos.app import kernel  # noqa: F401  brings what registers Primitives
    from batos.guardian import PersistenceGuardian, policy_named, repair, selector_of
    from batos.objects import Primitive

    settings, _ = settings_from(None, None, None, None, config_file, assignments)
    try:
        chosen = policy_named(policy)
    except ValueError as e:
        raise ConfigError(f"--policy: {e}") from None
    given = _read(file)
    source: str | bytes = given
    name = selector or selector_of(given)
    output = Output(as_json)
    repairs: tuple[str, ...] = ()
    if mend:
        source, repairs = repair(given.decode("utf-8", "surrogateescape"), name, settings)
    verdict = PersistenceGuardian(settings, Primitive.reaching()).audit(source, name, chosen)
    if as_json:
        mended = {"repairs": list(repairs), "source": verdict.source} if mend else {}
        output.document({"type": "audit", **verdict.to_wire(), **mended})
    else:
        for text in repairs:
            output.note(f"repair: {text}", "dim")
        if mend:
            output.write(verdict.source.rstrip("\n") + "\n")
        for finding in verdict.findings:
            output.say(f"{finding.severity}: {finding}", "red" if finding.severity == "error" else "yellow")
        output.pairs([(verdict.selector, "accepted" if verdict.accepted else "refused"), *_effects(verdict.contract)])
    if not verdict.accepted:
        raise typer.Exit(REFUSED)


def _effects(contract: object) -> list[tuple[str, str]]:
    assert isinstance(contract, dict)
    return [(name, ", ".join(names)) for name, names in contract.items() if names]


def _read(file: str) -> bytes:
    check_named(file)
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as e:
        raise ConfigError(f"cannot read {file}: {e.strerror}") from None
