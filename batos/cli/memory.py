"""Verbs about the memory: ingest, memory with the curator's archives, and search."""

from __future__ import annotations

import datetime
import os
from typing import Annotated, Any

import typer

from batos.cli.app import SOURCES, Connect, Json, app, check_named, endpoint
from batos.cli.client import ask
from batos.cli.folders import present
from batos.cli.output import Output, ago, counted, one_line
from batos.errors import InvalidInput, Unreadable
from batos.wire.client import Client

VERBS = ("curate", "archives", "restore", "pin", "unpin")
_SOURCES = 3  # sources of an archive shown in one row


def curated(told: dict[str, Any], output: Output, *, dry: bool) -> None:
    """Print a round of the curator, or its preview."""
    found = told["clusters"]
    if not found:
        output.say("nothing can be archived now: all documents are too new, recently read, pinned, or single")
    elif dry:
        rows = ((one["why"], one["chunks"], one["documents"], _named(one["sources"], one["documents"])) for one in found)
        output.rows(("why", "chunks", "documents", "of"), rows)
        output.note("nothing was changed; without --dry-run these would be archived", "dim")
    else:
        output.say(f"{told['chunks']} chunks are in {len(found)} new archives now ({told['bytes']} bytes), a summary in the place of each")
        output.rows(("archive", "why", "chunks", "bytes"), ((one["archive"], one["why"], one["chunks"], one["bytes"]) for one in found))
        if told["found"] > len(found):
            output.note(f"{told['found'] - len(found)} more wait for the next round, or changed meanwhile", "dim")


def archived(told: dict[str, Any], output: Output) -> None:
    """Print the archives, and the pinned documents."""
    listed = told["listed"]
    if listed:
        columns = ("archive", "chunks", "bytes", "level")
        rows = ((*(one[name] for name in columns), _day(one["made"]), _named(one["of"], one["documents"])) for one in listed)
        output.rows((*columns, "made", "of"), rows)
        if told["archives"] > len(listed):
            output.note(f"the newest {len(listed)} of {told['archives']}; --limit shows more", "dim")
    else:
        output.say("there are no archives: `batos memory curate --dry-run` says what may leave the memory")
    for source in told["pinned"]:
        output.say(f"pinned: {source}")


def changed(what: str, reply: dict[str, Any], output: Output) -> None:
    """Print what was restored or pinned."""
    if what == "restore":
        told = reply["restored"]
        back = f"{told['chunks']} chunks are back, from {len(told['archives'])} archives"
        output.say(back if told["archives"] else "no chunk of it is archived")
        return
    told = reply["pin"]
    stays, before = "stays" if told["stays"] else "may leave", "" if told["new"] else ", as before"
    output.say(f"{told['source']} {stays}{before}; {told['documents']} documents are pinned")
    if told["restored"]:
        output.say(f"{told['restored']} chunks came back for it")


def _named(sources: list[str], count: int) -> str:
    named = ", ".join(os.path.basename(source) or source for source in sources[:_SOURCES])
    return one_line(named + (f" and {count - _SOURCES} more" if count > _SOURCES else ""), 80)


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()


STYLES = {"added": "green", "updated": "green", "refused": "bold red", "waiting": "yellow", "forgotten": "dim"}


@app.command()
def ingest(
    paths: Annotated[list[str] | None, typer.Argument(metavar="[FILE]...", help="Files, or folders of files.")] = None,
    watch: Annotated[
        list[str] | None, typer.Option("--watch", metavar="DIR", help="A folder that the daemon watches from now on; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="PATTERN", help="Leave out matching files of folders, as in .gitignore; may be repeated."),
    ] = None,
    each: Annotated[
        str | None,
        typer.Option("--each", metavar="BRIEF", help="Each new file of those folders becomes a mission: 'Summarise {path}'."),
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Read files into the memory: text, Markdown, HTML, PDF, documents, tables, mail, code, conversations. Exit code 1 if one could not be
    read."""
    if not (paths or watch):
        raise typer.BadParameter("name a file or a folder, or a folder to --watch")
    check_named(*(paths or ()), *(watch or ()))
    output = Output(as_json)
    files, folders = [os.path.abspath(path) for path in paths or []], [os.path.abspath(folder) for folder in watch or []]

    if each is not None and not folders:
        raise typer.BadParameter("--each is for the files of folders that are watched: name one with --watch")

    async def follow(client: Client) -> dict[str, Any]:
        last: dict[str, Any] = {}
        for folder in folders if each else ():  # first: what is there now is there already
            made = await client.folder_add(folder, str(each), exclude=exclude or None)
            if not as_json:
                present(made, output)
        async for event in client.watch_ingest(files, follow=folders, exclude=exclude or ()):
            last = event
            if as_json:
                output.event(event)
            elif event.get("type") == "file":
                _file(event, output)
        return last

    try:
        end = ask(endpoint(connect), follow, shows=True)
    except Unreadable as e:  # nothing could be read: give one exit code to a caller that checks whether all was read
        output.error(e)
        raise typer.Exit(1) from None
    refused = {one["path"] for one in end.get("refused", ())}
    if not as_json:
        counts = ", ".join(f"{end[name]} {name}" for name in ("added", "updated", "unchanged") if end.get(name)) or "nothing new"
        left = f", {len(refused)} refused" if refused else ""
        output.say(f"{counts}{left}; {counted(end.get('chunks', 0), 'chunk')} can be searched ({end.get('took_s', 0):.1f} s)")
        if end.get("left_out"):
            output.say(f"left out   {left_out(end['left_out'])}")
        for folder in folders:
            if folder not in refused:
                output.say(f"watching {folder}")
    if refused:
        raise typer.Exit(1)


def left_out(told: dict[str, Any]) -> str:
    """Return in words the content of folders that is not read."""
    kinds = ", ".join(f"{count} {one_line(suffix, 20) or 'without a suffix'}" for suffix, count in told["kinds"].items())
    said = [f"{told['files']} files that are not read ({kinds})"] if told["files"] else []
    said += [f"{told['ignored']} by patterns (.gitignore, --exclude)"] if told["ignored"] else []
    links = ", ".join(f"{one_line(link['path'], 120)} to {one_line(link['to'], 120)}" for link in told["links"])
    said += [f"links that lead out of the folder or nowhere: {links}"] if links else []
    return "; ".join(said)


def _file(event: dict[str, Any], output: Output) -> None:
    state = str(event["state"])
    if state == "reading":
        output.note(f"reading    {event['path']}: {counted(event['chunks'], 'chunk')} so far", "dim")
    elif state in ("refused", "waiting"):
        output.say(f"{state:<10} {event['path']}: {one_line(event['message'], 300)}", STYLES[state])
    else:
        held = f": {counted(event['chunks'], 'chunk')}" if event["chunks"] else ""
        output.say(f"{state:<10} {event['path']}{held}", STYLES.get(state, ""))
        for doubt in event.get("doubts", ()):
            output.say(f"{'doubt':<10} {one_line(doubt, 300)}", "yellow")


@app.command()
def memory(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[documents|forget|unfollow|curate|archives|restore|pin|unpin]", help="What to list or do; else the figures."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="The file to forget, restore or pin, the folder to unfollow or pin, or the archive's number to restore.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Greatest number of entries listed, the newest first.")
    ] = 50,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With curate: only show what would be archived.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Show the memory, list its documents or archives, forget a document, or stop watching a folder. Archive old documents that were not
    read (curate), bring them back (restore), or protect them from archiving (pin, unpin)."""
    output = Output(as_json)
    _check(what, source, dry_run)
    reply = _curated(dry_run, connect) if what == "curate" else _asked(what, source, limit, connect)
    if as_json:
        output.document(reply)
    elif what == "documents":
        _documents(reply, output)
    elif what == "forget":
        _forgotten(reply["forgotten"], output)
    elif what == "curate":
        curated(reply, output, dry=dry_run)
    elif what == "archives":
        archived(reply["archived"], output)
    elif what in VERBS:
        changed(what, reply, output)
    else:
        _figures(reply, output)


_SOURCED = ("forget", "unfollow", "restore", "pin", "unpin")


def _check(what: str | None, source: str | None, dry_run: bool) -> None:
    known = ("documents", "forget", "unfollow", *VERBS)
    if what not in (None, *known):
        raise typer.BadParameter(f"{what!r} is not one of {', '.join(known)}")
    if (what in _SOURCED) != (source is not None):
        raise typer.BadParameter("only forget, restore, pin and unpin take a SOURCE, and unfollow a folder")
    check_named(source)
    if dry_run and what != "curate":
        raise typer.BadParameter("--dry-run goes with curate")


def _curated(dry_run: bool, connect: str | None) -> dict[str, Any]:
    return ask(endpoint(connect), lambda client: client.curate(dry=dry_run))


def _asked(what: str | None, source: str | None, limit: int, connect: str | None) -> dict[str, Any]:
    plain = source is None or "://" in source or source.startswith(SOURCES)
    path = source if plain or (what == "restore" and str(source).isdigit()) else os.path.abspath(str(source))
    wanted: dict[str, Any] = {} if what is None else {what: limit} if what in ("documents", "archives") else {what: path}
    try:
        return ask(endpoint(connect), lambda client: client.memory(**wanted))
    except InvalidInput as e:
        if e.code == "unknown_source" and path != source:
            wanted = {str(what): source}  # a source that is not a path
            return ask(endpoint(connect), lambda client: client.memory(**wanted))
        raise


def _documents(reply: dict[str, Any], output: Output) -> None:
    listed = reply["listed"]
    if not listed:
        output.say("the memory is empty: `batos ingest FILE...` reads something into it")
        return
    rows = ((one_line(d["title"], 40), d["kind"], d["chunks"], d["day"] or "", d["oid"], d["source"]) for d in listed)
    output.rows(("title", "kind", "chunks", "day", "oid", "source"), rows)
    for document in listed:
        for doubt in document.get("doubts", ()):
            output.note(f"{document['source']}: {one_line(doubt, 300)}", "yellow")
    if reply["documents"] > len(listed):
        output.note(f"the newest {len(listed)} of {reply['documents']}; --limit shows more", "dim")


def _forgotten(told: dict[str, Any], output: Output) -> None:
    if told["kept"]:
        output.say(f"{told['source']} is forgotten; the same text is kept as that of {', '.join(told['kept'])}")
        return
    output.say(f"{told['title']} is forgotten: {counted(told['chunks'], 'chunk')}, with words, vectors and links")
    output.note("Earlier revisions stay in the image's history until it is packed: `batos pack --days 0` drops them at once.", "dim")


def _figures(reply: dict[str, Any], output: Output) -> None:
    waiting, embedder = reply["waiting"], reply["embedder"]
    archives = counted(reply["archives"], "archive")
    held = f"{counted(reply['documents'], 'document')}, {counted(reply['chunks'], 'chunk')}, {reply['entities']} entities, {archives}"
    vectors = f"{embedder['vectors']} chunks have one; {embedder['state']}" + (f" ({embedder['why']})" if embedder.get("why") else "")
    serving, identity = embedder.get("serving", ""), embedder["identity"]
    change = f"; until its vectors are there, those of {serving} serve" if identity and serving not in ("", identity) else ""
    shown: list[tuple[str, object]] = [("holds", held), ("vectors", vectors), ("embedder", (identity or "not asked yet") + change)]
    shown.append(("waiting", f"{counted(waiting['files'], 'file')} to be read, {counted(waiting['sections'], 'section')} for vectors"))
    if reply.get("trouble"):
        shown.append(("trouble", reply["trouble"]))
    for one in reply["followed"]:
        shown.append(("watched", f"{one['folder']}" + (f", away: {one['away']}" if one["away"] else "")))
        shown += [("left out", left_out(one["left_out"]))] if one.get("left_out") else []
    shown += [("refused", f"{one['path']}: {one['message']} ({ago(one['at'])} ago)") for one in reply["refused"]]
    output.pairs(shown)


SHOWN_CHARS = 600  # characters of a passage shown; --json shows the whole passage
SHOWN_SOURCES = 5  # sources of a summary shown
_SAID = {"user": "you said so", "self": "it said so itself", "tool": "a method noted it"}


@app.command()
def search(  # noqa: PLR0913  each is an option of the command line
    question: Annotated[list[str], typer.Argument(metavar="QUESTION...", help="What you look for, in words.")],
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, max=100, help="Greatest number of passages shown.")] = 5,
    explain: Annotated[bool, typer.Option("--explain", help="Show how the question was understood, and why each passage matched.")] = False,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Only text, markdown, html, pdf, code or conversation.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="SOURCE", help="Only from this file, or from below this folder.")
    ] = None,
    speaker: Annotated[
        str | None, typer.Option("--speaker", metavar="NAME", help="Only passages of this speaker; a first name is enough.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="DAY", help="Only from this day on: 2026-05-31.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DAY", help="Only up to this day.")] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Search the memory for passages that answer a question. If nothing fits well, say so and show the nearest. Exit code 1 without
    passages."""
    check_named(source)
    output = Output(as_json)
    path = source if source is None or "://" in source or source.startswith(SOURCES) else os.path.abspath(source)
    fits = {"kind": kind, "source": path, "speaker": speaker, "since": since, "until": until}
    reply = ask(endpoint(connect), lambda client: client.search(" ".join(question), k, explain=explain, **fits))
    if as_json:
        output.document(reply)
    else:
        _print(reply, output)
    if not reply["hits"]:
        raise typer.Exit(1)


def _print(reply: dict[str, Any], output: Output) -> None:
    if "understood" in reply:
        output.pairs((name.replace("_", " "), _plain(value)) for name, value in reply["understood"].items())
        output.say()
    if not reply["hits"]:
        output.say("nothing in the memory fits; `batos memory documents` lists what it holds")
    elif not reply.get("fits", True):
        output.say("nothing fits well; the nearest:", "yellow")
    for place, hit in enumerate(reply["hits"], 1):
        about = [hit["section"], hit["speaker"], hit["day"], _SAID.get(hit.get("origin", ""), "")]
        if reply.get("fits", True) and not hit.get("fits", True):
            about.append("fits less well")
        where = ", ".join(part for part in (hit["source"], *about) if part)
        output.say(f"[{place}] {' '.join(where.splitlines())}", "bold")
        output.say(f"    {one_line(hit['text'], SHOWN_CHARS)}")
        if "signals" in hit:
            signals = ", ".join(f"{name} {value:+.2f}" for name, value in sorted(hit["signals"].items(), key=lambda s: -abs(s[1])))
            output.say(f"    {hit['score']:.2f} = {signals}", "dim")
            if "of" in hit:
                named = ", ".join(os.path.basename(source) or source for source in hit["of"][:SHOWN_SOURCES])
                output.say(f"    a summary of {named}: `batos memory restore {hit['archive']}` brings it back", "dim")
            if len(hit["path"]) > 1:
                output.say(f"    by way of {' -> '.join(hit['path'])}", "dim")
    if not reply["by_vectors"]:
        output.note(f"found by words, names and days alone: {reply['why']}", "yellow")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(" to ".join(one) if isinstance(one, list) else str(one) for one in value) or "–"
    return str(value)
