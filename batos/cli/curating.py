"""What `batos memory` says of the curator: archives, what was put away, brought back or pinned."""

from __future__ import annotations

import datetime
import os
from typing import Any

from batos.cli.output import Output, one_line

VERBS = ("curate", "archives", "restore", "pin", "unpin")
_SOURCES = 3  # of an archive, in a row


def curated(told: dict[str, Any], output: Output, *, dry: bool) -> None:
    """A round of the curator, or what it would be."""
    found = told["clusters"]
    if not found:
        output.say("nothing may leave the memory now: what is there is young, read, pinned, or alone")
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
    """The archives, and what is pinned."""
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
    """What was brought back or pinned."""
    if what == "restore":
        told = reply["restored"]
        back = f"{told['chunks']} chunks are back, from {len(told['archives'])} archives"
        output.say(back if told["archives"] else "nothing of it is archived")
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
