"""Verbs that maintain an image: pack, backup, restore, fork, copy."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from batos.cli.app import ConfigFlag, Connect, DataFlag, ImageFlag, Json, SetFlag, app, check_named, endpoint
from batos.cli.client import ask, moment, showing, step_of
from batos.cli.output import Output, size
from batos.cli.settings import settings_from
from batos.errors import ImageError


@app.command()
def pack(
    days: Annotated[
        float | None,
        typer.Option("--days", metavar="N", min=0, max=36_500, help="Days of history to keep; default: the setting image.history_days."),
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Drop old history from the daemon's image, while it goes on serving."""
    output = Output(as_json)
    output.note("packing; this takes as long as the image is large", "dim")
    reply = ask(endpoint(connect), lambda client: client.pack(days), upkeep=True)
    if as_json:
        output.document(reply)
        return
    shown = f"{size(reply['bytes_before'])} before, {size(reply['bytes_after'])} after"
    objects = f"{reply['objects_before']} before, {reply['objects_after']} after"
    output.pairs([("image", shown), ("objects", objects), ("took", f"{reply['took_s']:.1f} s")])


@app.command()
def backup(
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="Where to; else the folder backups in the daemon's data folder.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Back up the whole image, not only changes since the last backup.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Back up the daemon's image while it goes on serving, and prove the backup by restoring it."""
    check_named(folder)
    output = Output(as_json)
    output.note("backing up; this takes as long as the image is large", "dim")
    reply = ask(endpoint(connect), lambda client: client.backup(folder and os.path.abspath(folder), full=full), upkeep=True)
    if as_json:
        output.document(reply)
        return
    what = "nothing is new since the last backup" if reply["kind"] == "unchanged" else f"{reply['kind']}, {size(reply['bytes'])}"
    output.pairs([("folder", reply["folder"]), ("backup", what), *_proved(reply), ("took", f"{reply['took_s']:.1f} s")])


@app.command()
def fork(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where to: a data folder for another daemon.")],
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Copy the image as of this time; default: now.")] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Make a data folder with the whole image to experiment in, while the daemon goes on serving. Overwrites nothing."""
    check_named(folder)
    output, then, path = Output(as_json), moment(at), os.path.abspath(folder)
    output.note("copying; this takes as long as the image is large", "dim")
    reply = ask(endpoint(connect), lambda client: client.fork(path, then), upkeep=True)
    if as_json:
        output.document(reply)
        return
    image = f"{reply['image']}, {size(reply['bytes'])}, {reply['objects']} objects"
    output.pairs([("fork", image), ("as of", _stamp(reply["time"])), ("revision", reply["tid"]), ("took", f"{reply['took_s']:.1f} s")])
    if reply["unfinished"]:
        output.note(f"{reply['unfinished']} missions were unfinished then; a daemon on the fork takes them up", "yellow")
    output.note(f"run it with: batos run --data {path} --listen ipc://{path}/wire.sock", "dim")


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


@app.command()
def restore(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of the backups; the newest is restored.")],
    data: DataFlag = None,
    image: ImageFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Make an image from a backup, without a daemon. Overwrites nothing."""
    from batos.image.backup import UpkeepProgress, restore
    from batos.image.storage import file_path

    check_named(folder)
    settings, _ = settings_from(data, image, None, None, config_file, assignments)
    path = file_path(settings.image_uri)
    if path is None:
        raise ImageError(f"backups are restored into a file, and {settings.image_uri} is not one: give --data, or --image file://...")
    output, progress = Output(as_json), UpkeepProgress()
    with showing(lambda: step_of(progress.facts())):
        found = {"image": str(path), **restore(Path(folder), path, progress)}
    if as_json:
        output.document({"type": "restore", **found})
        return
    output.pairs([("image", path), *_proved(found)])


@app.command("copy")
def copy_verb(
    to: Annotated[str, typer.Option("--to", metavar="URI", help="Target without an image: file://, zeo:// or postgres://.")],
    source: Annotated[str | None, typer.Option("--from", metavar="URI", help="Image to copy; default: that of the settings.")] = None,
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Copy an image to another storage, file or server, without a daemon; the copy goes on in its place. Overwrites nothing."""
    from batos.image.image_copy import CopyProgress, copy_image
    from batos.image.storage import shown_uri

    check_named(to, source)
    settings, _ = settings_from(data, source, None, None, config_file, assignments)
    output, progress = Output(as_json), CopyProgress()
    with showing(progress.told):
        found = copy_image(settings.image_uri, to, settings.data, progress)
    shown, original = shown_uri(to), shown_uri(settings.image_uri)
    if as_json:
        output.document({"type": "copy", "from": original, "to": shown, **found._asdict()})
        return
    history = f"{found.transactions:,} transactions, the same (SHA-256 {found.history[:16]}…)" if found.history else "not kept there"
    output.pairs(
        [
            ("copy", shown),
            ("of", original),
            ("records", f"{found.records:,}, the same (SHA-256 {found.digest[:16]}…)"),
            ("history", history),
            *([("pictures", size(found.blob_bytes))] if found.blob_bytes else []),
            ("pending", f"{found.pending:,} missions, which go on there"),
        ]
    )
    if found.resumed:
        output.note("an unfinished copy was ended", "dim")
    if found.suspended:
        output.note(f"the copy may not act: {found.suspended}", "yellow")
    output.note(f"run it with: batos run --image {shown}; the original may not act any more", "dim")


def _proved(found: dict[str, Any]) -> list[tuple[str, str]]:
    proved = f"{size(found['total_bytes'])}, {found['objects']} objects, {found['methods']} methods, up to transaction {found['tid']}"
    damaged = [("damaged", ", ".join(found["damaged"]))] if found["damaged"] else []
    return [("proved", proved), *damaged]
