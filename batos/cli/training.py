"""The verb about training: train."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from batos.cli.app import ConfigFlag, DataFlag, Json, ProfileFlag, SetFlag, app, settings_from
from batos.cli.folders import meant
from batos.cli.output import Output
from batos.errors import InvalidInput


@app.command()
def train(
    what: Annotated[
        Literal["methods", "persona"],
        typer.Argument(metavar="WHAT", help="methods: the expert that writes methods; persona: a voice, from missions rated +1."),
    ],
    persona: Annotated[str | None, typer.Argument(metavar="[PERSONA]", help="Whose voice: robin, say.")] = None,
    minutes: Annotated[float, typer.Option("--minutes", metavar="N", min=0.05, help="How long it may take.")] = 40.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the data, their order and the adapter.")] = 1,
    from_image: Annotated[bool, typer.Option("--from-image", help="Methods: learn the image's own accepted ones, too.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Methods: begin with an empty adapter, not with the one that is staged.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was interrupted.")] = False,
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
        raise typer.BadParameter("--fresh begins anew and --resume goes on, from whatever the training began with: give one of them")
    from batos.bridge.experts import staging_folder
    from batos.training.lora import Plan
    from batos.training.methods import train_methods
    from batos.training.persona import train_voice, voice_plan

    output = Output(as_json)
    data = meant(data, output, config_file=config_file, more=assignments)
    settings, _ = settings_from(data, None, None, profile, config_file, assignments)
    image = settings.image_uri
    plan = Plan(minutes, seed=seed, threads=settings.training_threads)
    try:
        staging = staging_folder(settings.lora_staging, settings.data)
        if persona is not None:
            made = train_voice(settings, voice_plan(plan), staging, persona, image=image, resume=resume, tell=output.note)
        else:
            own = image if from_image else ""
            made = train_methods(settings, plan, staging, image=own, known=image, resume=resume, fresh=fresh, tell=output.note)
    except OSError as e:  # a full disk, say, after many minutes
        words = f"{e.filename or settings.data}: {e.strerror or e}; see owner, mode and free space"
        raise InvalidInput(f"{words}; if anything was trained yet, --resume goes on with it") from e
    if as_json:
        output.document({"type": "train", "what": what, "folder": str(made)})
    else:
        output.say(f"{made}: the daemon builds it at its next look; `batos experts` tells")
