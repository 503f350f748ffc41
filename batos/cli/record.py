"""The record of a mission as a page to read: what was thought, by whom, from what, at what cost."""

from __future__ import annotations

import json
import time
from typing import Any

from batos.cli.output import Output, one_line, size
from batos.cli.watching import source

FOLDED = "so old that only the beginnings of brief and result are kept, and what it cost (settings mission_days, missions_kept)"
_WIDTH = 400  # characters of one text; `--json` has them whole


def page(record: dict[str, Any], output: Output) -> None:
    """Print the record of a mission (`mind.record.of`)."""
    output.say(f"mission {record['id']}: {record['state']}", "bold")
    output.pairs((name, value) for name, value in _facts(record) if value not in (None, "", 0))
    if record.get("folded"):
        output.note(FOLDED, "yellow")
    for asked in record["questions"]:
        output.say(f"\nasked: {asked['question']}")
        output.say(f"  the user said: {asked['answer']}" if asked["answer"] is not None else "  (not answered)")
    if "thought" in record:
        _cycle(record["thought"], output)
    if "result" in record:
        output.say("\nanswer", "bold")
        output.say(str(record["result"].get("text", "")))
        _provenance(record, output)
    if "error" in record:
        output.say(f"\nerror {record['error'].get('code')}: {record['error'].get('message')}", "red")
    _inferences(record, output)
    for failure in record["failures"]:
        where, why = failure["context"].get("state", ""), one_line(failure["error"]["message"], _WIDTH)
        output.say(f"\nattempt {failure['attempt']} failed in {where}: {why}")


def _facts(record: dict[str, Any]) -> list[tuple[str, Any]]:
    moment = "%Y-%m-%d %H:%M:%S"
    facts: list[tuple[str, Any]] = [("brief", one_line(record["brief"], _WIDTH)), ("from", record["origin"])]
    facts += [(name, time.strftime(moment, time.localtime(record[name]))) for name in ("accepted", "finished") if record[name]]
    facts += [("attempts", record["attempts"]), ("priority", record["priority"]), ("follows", record["context"])]
    facts += routing_pairs(record).items()
    facts += undone_pairs(record).items()
    if rating := record.get("rating"):
        facts.append(("rated", rated(rating)))
    if entropy := record.get("entropy"):
        parts = ", ".join(f"{name} {entropy[name]:.2f}" for name in ("relevance", "diversity", "novelty", "structure"))
        facts.append(("entropy", f"{entropy['cem']:.2f} ({parts}; compared by {entropy['source']})"))
    for one in record.get("images", ()):
        facts.append(("image" if "of" not in one else "image shown before", picture(one)))
    if record["schema"]:
        facts.append(("answer's schema", one_line(json.dumps(record["schema"]), _WIDTH)))
    return facts


def picture(one: dict[str, Any]) -> str:
    """An image of a mission, in a line."""
    kind = str(one["type"]).removeprefix("image/").upper()
    said = f"{one.get('name') or 'without a name'}, {kind}, {one['width']} × {one['height']}, {size(one['bytes'])}, {one['digest'][:16]}"
    return f"{said}, of {one['of']}" if "of" in one else said


def undone_pairs(told: dict[str, Any]) -> dict[str, str]:
    """That a mission is undone, and with which other, as a `status` or a record tells it."""
    undone = told.get("undone")
    if not undone:
        return {}
    if undone["at"] is None:
        return {"undone": "yes; when is not kept"}
    more = "" if undone["with"] == told["id"] else f", with {undone['with']}"
    return {"undone": f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(undone['at']))}{more}"}


def rated(rating: dict[str, Any]) -> str:
    """What a user thought of a mission, and why."""
    return f"{rating['rating']:+d}" + (f": {one_line(rating['why'], _WIDTH)}" if rating["why"] else "")


def routing_pairs(told: dict[str, Any]) -> dict[str, str]:
    """Who thinks a mission through, and why, as a `status` or a record tells it: names and values."""
    routing = told.get("routing")
    if not routing:
        return {}
    shown = {"routed to": f"{routing['persona'].upper()} (by {routing['by']}): {routing['why']}"}
    if routing.get("preferred"):
        shown["the router's own"] = routing["preferred"].upper()
    scores = routing.get("scores", {})
    ranked = sorted(scores, key=lambda name: -scores[name]["score"])
    if ranked:
        shown["scores"] = ", ".join(f"{name.upper()} {scores[name]['score']:.2f}" for name in ranked)
    return shown


def provided_pairs(told: dict[str, Any]) -> dict[str, str]:
    """What a mission is provided with because no model here could do what it needs, as a `status` tells it: names and values."""
    provided = told.get("provided")
    if not provided or "why" not in provided:
        return {}
    model = provided.get("model") or "the model that thinks anyway"
    change = f" (change {provided['change']})" if provided.get("change") else ""
    return {"needs": ", ".join(provided["needs"]), "provided with": f"{model}, {provided['state']}{change}: {provided['why']}"}


def _cycle(cycle: dict[str, Any], output: Output) -> None:
    output.say(f"\ncycle {cycle['cycle']}: {cycle['persona']}, {cycle['why']}", "bold")
    output.say(f"  brief: {one_line(cycle['brief'], _WIDTH)}", "dim")
    for part in cycle["plan"]:
        output.say(f"  {part['part']}: {one_line(part['query'], _WIDTH)}")
        if "said" in part:
            output.say(f"    said: {one_line(part['said'], _WIDTH)}")
        else:
            output.say(f"    silent: {one_line(part['silent'], _WIDTH)}", "yellow")
    for inner in cycle["cycles"]:
        _cycle(inner, output)


def _provenance(record: dict[str, Any], output: Output) -> None:
    sources = record.get("thought", {}).get("woven_from") or []
    if sources:
        output.say("  sentence by sentence from: " + ", ".join(name or "the weaver" for name in sources), "dim")
    for one in record.get("thought", {}).get("citations") or []:
        output.say(f"  from memory: {source(one)}", "dim")
    if (record.get("result") or {}).get("quoted"):
        output.say("  quoted from memory, word for word", "dim")


def _inferences(record: dict[str, Any], output: Output) -> None:
    if record["inferences"]:
        output.say("\ninferences", "bold")
        columns = ("cycle", "state", "persona", "part", "model", "read", "written", "reading", "seconds", "said")
        output.rows(
            columns,
            [
                (i["cycle"], i["state"], i["persona"], i["part"], i["model"], i["prompt_tokens"], i["answer_tokens"],
                 f"{i.get('prompt_ms', 0) / 1000:.1f}", f"{i['model_ms'] / 1000:.1f}", one_line(i["text"], 80))
                for i in record["inferences"]
            ],
        )  # fmt: skip
    elif record["texts_dropped"] and not record.get("folded"):
        output.say("\nthe texts of its inferences were let go (setting journal_days); what they cost is known", "dim")
    for row in record["cost"]:
        tokens = f"{row['prompt_tokens']} tokens read, {row['answer_tokens']} written"
        output.say(f"  {row['model'] or 'all models'}: {row['inferences']} inferences, {tokens}, {row['model_ms'] / 1000:.1f} s", "dim")
