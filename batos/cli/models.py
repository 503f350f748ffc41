"""Verbs about models: `models`, `experts` and `train`.

`models` shows the state of each model, the models to think with, and the choice of one. While models are pulled or built, the progress of
every layer. `experts` is about LoRA experts.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from batos.bridge.modelfile import tagged
from batos.cli.app import ConfigFlag, Connect, DataFlag, Json, ProfileFlag, SetFlag, app, check_reachable, endpoint, run_async
from batos.cli.client import ask
from batos.cli.output import Output, ago, clean, one_line, size
from batos.cli.settings import meant_folder, settings_from
from batos.config import Settings, nearest
from batos.errors import DaemonUnavailable, InvalidInput
from batos.wire.client import Client

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

STYLES = {"present": "green", "created": "green", "pulled": "green", "failed": "bold red"}
LAYER_CHARS = 28  # characters of a layer's name shown in a progress bar


@app.command()
def models(  # noqa: PLR0913  each is an option of the command line
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[use] [MODEL]...",
            help="Only these; with --ensure, any model. `use NAME`: let that model (or profile, or PERSONA=NAME) think from now on.",
        ),
    ] = None,
    ensure: Annotated[bool, typer.Option("--ensure", help="Pull or make missing models now; exit code 1 if one is not available.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show the progress until it ends.")] = False,
    fit: Annotated[
        bool,
        typer.Option("--fit", help="List Ollama's models: abilities, speed, whether each fits; try the named ones first."),
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete from Ollama the models that BAT OS made, and no other; the daemon must not run.")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry", help="With --remove: only show what would be deleted.")] = False,
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List the models that the daemon needs, and whether it has them; on a terminal, watch them come."""
    output = Output(as_json)
    chosen = names or []
    if sum((ensure or watch, fit, remove, chosen[:1] == [_USE])) > 1:
        raise typer.BadParameter("`use`, --fit and --remove each go alone")
    if chosen[:1] == [_USE]:
        if len(chosen) != 2:
            raise typer.BadParameter("`use` takes one name: of a model, a profile, or PERSONA=NAME")
        return _use(chosen[1], endpoint(connect), output)
    if fit:
        return _fit(chosen, endpoint(connect), output)
    if remove:
        data = meant_folder(data, output, config_file=config_file)
        return _remove(settings_from(data, None, None, None, config_file, None)[0], dry, endpoint(connect), output)

    async def follow(client: Client) -> dict[str, Any]:
        if not ensure:
            reply = await client.models(chosen)
            await _check(client, chosen, reply)
            if not watch and (as_json or not output.console.is_terminal or not reply.get("under_way")):
                return reply
        return await _Follower(output).follow(client.watch_models(chosen, ensure=ensure))

    reply = ask(endpoint(connect), follow, shows=True)
    listed = reply.get("models", [])
    if not as_json:
        _print(listed, output)
    elif not (ensure or watch):
        output.document(reply)
    if ensure and any(model["state"] == "failed" or model.get("cause") for model in listed):
        raise typer.Exit(1)


_USE = "use"


def _use(name: str, at: str, output: Output) -> None:
    reply = ask(at, lambda client: client.use_model(name), shows=True)
    if output.as_json:
        output.document(reply)
        return
    output.say(f"{reply['model']} thinks from now on: {reply['why']}", "bold")
    if reply["before"] != name:
        output.say(f"`batos models use {reply['before']}` brings back what did before")
    _print(reply.get("models", []), output)


def _fit(names: list[str], at: str, output: Output) -> None:
    reply = ask(at, lambda client: client.fit_models(names), shows=True)
    if output.as_json:
        output.document(reply)
        return
    columns = ("model", "thinks", "memory", "fits", "parameters", "context", "can", "tokens/s", "about")
    output.rows(columns, (_fitting(facts) for facts in reply.get("fit", ())), {"yes": "green", "no": "yellow"})
    output.say(f"\n{reply['model']} thinks: {reply['why']}. Models may take {size(reply['budget'])} (inference.memory_bytes).")


def _fitting(facts: dict[str, Any]) -> tuple[Any, ...]:
    abilities = (("chats", "chat"), ("thinks", "think"), ("tools", "tools"), ("vision", "images"))
    can = ", ".join(word for name, word in abilities if facts.get(name))
    return (
        facts["name"],
        "now" if facts.get("in_use") else "",
        f"~{size(facts['memory'])}",
        "yes" if facts["fits"] else "no",
        f"{facts['parameters'] / 1e9:.1f}B" if facts.get("parameters") else "",
        f"{facts['num_ctx']} of {facts['context']}" if facts.get("context") else facts["num_ctx"],
        can + ("" if facts.get("probed") else " (says Ollama)"),
        facts.get("speed", ""),
        one_line(facts.get("not_by_itself", ""), 120),
    )


def _remove(settings: Settings, dry: bool, at: str, output: Output) -> None:
    from batos.bridge.model_management import remove_own_models  # imported late: the other verbs ask a daemon

    if not dry:
        with contextlib.suppress(DaemonUnavailable):
            check_reachable(at)
            raise InvalidInput(f"a daemon runs at {at}, and would make its models again; stop it first, or look with --dry")
    removed = run_async(remove_own_models(settings, dry=dry))
    if output.as_json:
        output.document({"type": "removed", "dry": dry, "models": [one._asdict() for one in removed]})
        return
    output.rows(("model", "at"), removed)
    done = "would be deleted" if dry else "deleted"
    output.say(f"{len(removed)} {done}; nothing else in Ollama was touched" if removed else "Ollama has no models that BAT OS made")


async def _check(client: Client, chosen: list[str], reply: dict[str, Any]) -> None:
    """
    :raises InvalidInput: for a name that no model of the daemon has.
    """
    there = {tagged(model["name"]) for model in reply.get("models", ())}
    unknown = [name for name in chosen if tagged(name) not in there]
    if unknown:
        names = sorted({model["name"] for model in (await client.models()).get("models", ())})
        there_are = f"there are: {', '.join(names)}" if names else "there are none"
        raise InvalidInput(f"Ollama has no model {unknown[0]!r}{nearest(unknown[0], names)}; {there_are}; --ensure pulls another one")


def _print(listed: list[dict[str, Any]], output: Output) -> None:
    columns = ("model", "state", "memory", "size", "last used", "loads", "about")
    output.rows(columns, (_row(model) for model in listed), STYLES)
    for model in listed:
        if model.get("remedy"):
            output.say(f"\n{_named(model, 'name')}: {model['remedy']}", "yellow")


def _row(facts: dict[str, Any]) -> tuple[Any, ...]:
    """Return a model's row; where nothing is known of its memory yet, those cells are empty."""
    known = "resident" in facts
    return (
        _named(facts, "name"),
        facts.get("state"),
        ("resident" if facts["resident"] else "–") if known else "",
        f"{'' if facts['measured'] else '~'}{size(facts['bytes'])}" if known else "",
        f"{ago(facts['last_used'])} ago" if known and facts["last_used"] else "",
        facts["loads"] if known else "",
        one_line(": ".join(said for said in (facts.get("cause"), facts.get("detail")) if said), 200),
    )


def _named(facts: dict[str, Any], key: str) -> str:
    """Return a model's name, with its place if there is more than one Ollama."""
    return f"{facts[key]} at {facts['host']}" if facts.get("host") else str(facts.get(key))


class _Follower:
    """Shows events: a bar a layer on a terminal, JSON lines for programs, else a line where a layer begins or ends."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bars: Progress | None = None
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._said: set[tuple[str, str, bool]] = set()

    async def follow(self, events: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any]:
        """Show them to the last, which is answered: the list."""
        last: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            if self._output.console.is_terminal and not self._output.as_json:
                self._bars = stack.enter_context(_bars(self._output))
            async for event in events:
                last = event
                if self._output.as_json:
                    self._output.event(event)
                elif event.get("type") == "progress":
                    self._progress(event)
                elif event.get("type") == "model" and event.get("state") in STYLES:
                    self._settled(event)
        return last

    def _progress(self, event: dict[str, Any]) -> None:
        model, layer, total = _named(event, "model"), str(event.get("layer", "")), event.get("total")
        done = total is not None and event.get("completed", 0) >= total
        if self._bars is not None:
            if (model, layer) not in self._tasks:
                self._tasks[model, layer] = self._bars.add_task("", model=clean(model), layer="", total=total)
            said = one_line(_layer(layer) if total is not None else event.get("status", ""), LAYER_CHARS)
            self._bars.update(self._tasks[model, layer], completed=event.get("completed", 0), total=total, layer=said, refresh=True)
        elif total is not None and (model, layer, done) not in self._said:
            self._said.add((model, layer, done))
            self._output.say(f"{model}: {_layer(layer)}, {size(total)}{', there' if done else ''}")

    def _settled(self, event: dict[str, Any]) -> None:
        name, state = _named(event, "name"), str(event["state"])
        if self._bars is None:
            self._output.say(f"{name}: {state}", STYLES[state])
            return
        for key in [key for key in self._tasks if key[0] == name]:
            self._bars.remove_task(self._tasks.pop(key))


def _layer(layer: str) -> str:
    """Return a layer as people know it: by the first characters of its digest."""
    return layer.removeprefix("sha256:")[:12] if layer.startswith("sha256:") else layer


def _bars(output: Output) -> Progress:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.fields[model]}", markup=False, style="bold"),
        TextColumn("{task.fields[layer]}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    return Progress(*columns, console=output.console, transient=True, expand=True)


EXPERT_STYLES = {"built": "green", "intended": "yellow", "missing": "bold red", "refused": "bold red", "waits": "yellow"}


@app.command()
def experts(
    scan: Annotated[bool, typer.Option("--scan", help="Look into the staging folder now, and build new experts.")] = False,
    voice: Annotated[
        str | None,
        typer.Option("--voice", metavar="PERSONA=CHOICE", help="Voice of a persona: newest, plain, or an expert's model."),
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List the LoRA experts: the state of each and why, and the voice of each persona."""
    persona, choice = _chosen(voice)
    output = Output(as_json)
    reply = ask(endpoint(connect), lambda client: client.experts(scan=scan, persona=persona, voice=choice))
    if as_json:
        output.document(reply)
        return
    if reply["staging"]:
        output.say(f"staging folder: {reply['staging']}", "dim")
    said = {facts["folder"] for facts in reply["experts"] if facts["state"] == "refused"}
    rows = [*map(_expert, reply["experts"]), *(_folder(found) for found in reply["refused"] if found["folder"] not in said)]
    if rows:
        output.rows(("expert", "state", "speaks for", "built", "about"), rows, EXPERT_STYLES)
    else:
        output.say("no experts yet: put a folder with an adapter and expert.toml into the staging folder")
    for name, heard in reply["voices"].items():
        if heard["choice"] != "newest":
            output.say(f"{name}: {heard['model'] or 'its plain model'} speaks, by choice ({heard['choice']})", "dim")


def _chosen(voice: str | None) -> tuple[str | None, str | None]:
    if voice is None:
        return None, None
    persona, equals, choice = voice.partition("=")
    if not (persona and equals and choice):
        raise InvalidInput(f"--voice takes PERSONA=CHOICE, such as babs=plain; got {voice!r}")
    return persona, choice


def _expert(facts: dict[str, Any]) -> tuple[str, ...]:
    about = facts["reason"] or f"{facts['how']} on {facts['base']}{_waits(facts)}"
    return facts["model"], facts["state"], facts["persona"] if facts["speaks"] else "", ago(facts["built"]), one_line(about, 200)


def _waits(facts: dict[str, Any]) -> str:
    """Return in words the choice that an expert waits for."""
    if not facts.get("on_choice") or facts["speaks"]:
        return ""
    if facts.get("role") == "methods":  # not a voice: the loop decides which model writes methods
        return "; writes methods once its rehearsal was good: batos changes"
    return f"; waits to be chosen: --voice {facts['persona']}={facts['model']}"


def _folder(refusal: dict[str, Any]) -> tuple[str, ...]:
    return f"{refusal['folder']}/", "waits" if refusal["waits"] else "refused", "", "", one_line(refusal["reason"], 200)


@app.command()
def train(  # noqa: PLR0913  each is an option of the command line
    what: Annotated[
        Literal["methods", "persona"],
        typer.Argument(metavar="WHAT", help="methods: the expert that writes methods; persona: a voice, from missions rated +1."),
    ],
    persona: Annotated[str | None, typer.Argument(metavar="[PERSONA]", help="Whose voice: robin, say.")] = None,
    minutes: Annotated[float, typer.Option("--minutes", metavar="N", min=0.05, help="Most minutes of the training.")] = 40.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the data, their order and the adapter.")] = 1,
    from_image: Annotated[bool, typer.Option("--from-image", help="Methods: learn the image's own accepted ones, too.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Methods: begin with an empty adapter, not with the one that is staged.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted training.")] = False,
    data: DataFlag = None,
    profile: ProfileFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Train an expert on this machine and put it into the staging folder, where the daemon finds it. Needs the extra `training`."""
    if (persona is None) is (what == "persona"):
        raise typer.BadParameter("say whose voice: `batos train persona ROBIN`; `batos train methods` takes no name")
    if persona is not None and (from_image or fresh):
        raise typer.BadParameter("--from-image and --fresh are of `train methods`; a voice is always learned from the image, anew")
    if fresh and resume:
        raise typer.BadParameter("--fresh begins anew and --resume goes on with the earlier training; give only one")
    from batos.autotelic.change_preparation import LoopTrainingLimits
    from batos.bridge.lora.staging import staging_folder
    from batos.training.lora import TrainingPlan
    from batos.training.methods import train_methods
    from batos.training.persona import train_voice, voice_plan

    output = Output(as_json)
    data = meant_folder(data, output, config_file=config_file, more=assignments)
    settings, _ = settings_from(data, None, None, profile, config_file, assignments)
    image = settings.image_uri
    plan = TrainingPlan(minutes, seed=seed, threads=LoopTrainingLimits.of(settings).threads)
    try:
        staging = staging_folder(settings.inference.staging, settings.data)
        if persona is not None:
            made = train_voice(settings, voice_plan(plan), staging, persona, image=image, resume=resume, tell=output.note)
        else:
            own = image if from_image else ""
            made = train_methods(settings, plan, staging, image=own, known=image, resume=resume, fresh=fresh, tell=output.note)
    except OSError as e:  # for example a full disk, after many minutes
        words = f"{e.filename or settings.data}: {e.strerror or e}; see owner, mode and free space"
        raise InvalidInput(f"{words}; if anything was trained yet, --resume goes on with it") from e
    if as_json:
        output.document({"type": "train", "what": what, "folder": str(made)})
    else:
        output.say(f"{made}: the daemon builds it at its next look; `batos experts` tells")
