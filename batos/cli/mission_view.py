"""View of a mission: its states, its persona and the reason, the answer as it streams, the result and its cost.

A mission's question can be answered on the terminal on which it is watched. The record of a mission is shown as a page: each thought, its
persona, its evidence and its cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from batos.cli.output import Output, PassingLine, clean, counted, one_line, size
from batos.errors import BatosError, DaemonUnavailable
from batos.wire import Client
from batos.wire.fields import left_out_words

LINE_BYTES = 1 << 16


class Answering:
    """Reads the answer to one question at a time, and gives it. Elsewhere answered, or the mission over, it is read no more."""

    def __init__(self, client: Client, output: Output) -> None:
        self._client, self._output = client, output
        self._reading: asyncio.Task[None] | None = None

    @staticmethod
    def possible(output: Output) -> bool:
        """Return True if a user can be asked here: on a terminal that this process may read from."""
        if output.as_json or sys.stdin is None or not (sys.stdin.isatty() and output.console.is_terminal):
            return False
        try:
            return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()  # in the background, a read would stop the process
        except OSError:
            return False

    def ask(self, id: str, number: int | None) -> None:
        """Begin to read the answer to a mission's question."""
        self.stop()
        self._reading = asyncio.create_task(self._until_given(id, number))

    def stop(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _until_given(self, id: str, number: int | None) -> None:
        while True:
            self._output.write("> ")
            line = await terminal_line()
            if not line:  # Ctrl-D: the question stays open
                self._output.note(f"\nanswer it with: batos answer {id} TEXT", "dim")
                return
            if not (text := line.decode("utf-8", "replace").strip()):
                continue
            try:
                await self._client.answer(id, text, number)
            except DaemonUnavailable as e:
                self._output.note(f"{e.message}; once it is back: batos answer {id} TEXT", "yellow")
                return
            except BatosError as e:
                self._output.note(e.message, "red")
                continue
            return


async def terminal_line() -> bytes:
    """Return a line from the terminal; empty at its end. If the call is cancelled, typed text stays for the next reader."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    with contextlib.suppress(OSError):  # the terminal is gone
        return os.read(descriptor, LINE_BYTES)
    return b""


STATE_STYLES = {"COMPLETE": "green", "FAILED": "bold red"}
_AGAIN = ("ACCEPTED", "IDLE", "DECOMPOSING", "DELEGATING", "PAUSED", "NEEDS_INPUT")
"""States after which the answer starts again from its beginning."""
_COLUMN = 14  # wide enough for the longest name of a state


class MissionWatcher:
    """Shows one mission's events in the order of their coming.

    :param client: to give an answer with that is asked for on the terminal; without one it is only said how.
    """

    def __init__(self, output: Output, client: Client | None = None) -> None:
        self._output = output
        self._answering = Answering(client, output) if client is not None and Answering.possible(output) else None
        self._asked: Any = None  # number of the question shown last
        self._heard = ""  # streamed text of the current answer
        self._streamed = ""  # the last answer that was streamed
        self._facets: dict[str, int] = {}  # characters received from each facet
        self._passing = PassingLine(output)
        self._shown: tuple[Any, Any] = (None, None)  # last state line, as (state, persona)
        self._chosen: tuple[Any, Any] = (None, None)  # last persona shown, and the reason for choosing it

    async def follow(self, events: AsyncIterator[dict[str, Any]]) -> int:
        """Show events until the result; the exit code it means."""
        last: dict[str, Any] = {}
        try:
            async for event in events:
                last = event
                if self._output.as_json:
                    self._output.event(event)
                else:
                    self._show(event)
        finally:
            if self._answering is not None:
                self._answering.stop()
            self._passing.clear()
            if self._heard:
                self._output.say()
        return 0 if last.get("state") == "COMPLETE" else 1

    def _show(self, event: dict[str, Any]) -> None:
        if event.get("dropped"):
            self._output.note(f"({event['dropped']} events were dropped: this reader was too slow)", "dim")
        kind = event.get("type")
        if kind == "token":
            self._token(event)
        elif kind == "result":
            self._result(event)
        elif kind == "revised" and not inside(event):
            self._passing.clear()
            self._close_answer()
            self._streamed = ""
            self._line(event, "", f"that was refused, {event.get('why')}; it is written anew")
        elif kind == "tool":
            self._passing.clear()
            self._line(event, "", tool_step(event))
        elif kind == "needs_input":
            self._question(event)
        elif kind == "provision":
            self._provision(event)
        elif kind in ("state", "status"):
            self._state(event)
            if isinstance(event.get("question"), dict):  # the mission had asked before the watch began
                self._question({"id": event.get("id"), **event["question"]})

    def _state(self, event: dict[str, Any]) -> None:
        state, persona = event.get("state"), event.get("persona")
        error = event.get("error")
        if inside(event):
            self._passing.tell(f"part {event['cycle']}, {persona}: {state}")
            return
        if (state, persona) == self._shown and not error:
            return
        self._passing.clear()
        if self._answering is not None and state != "NEEDS_INPUT":  # the question was answered, or the mission has ended
            self._answering.stop()
        self._close_answer()
        if state in _AGAIN:
            self._discard("it begins again")
        self._shown = (state, persona)
        said = _reason(error) if error else self._choice(event)
        if not said and event.get("place"):
            said = f"number {event['place']} in the queue"
        self._line(event, str(state), said)
        if event.get("progress"):  # told before the watch began
            self._line(event, "", one_line(clean(str(event["progress"])), 200))
        if state in ("DECOMPOSING", "DELEGATING"):
            self._facets.clear()
            self._passing.tell("thinking")

    def _token(self, event: dict[str, Any]) -> None:
        text, facet = str(event.get("text", "")), event.get("facet")
        if facet or inside(event):
            facet = facet or event.get("persona")
            self._facets[str(facet)] = self._facets.get(str(facet), 0) + len(text)
            self._passing.tell(", ".join(f"{name}: {count} characters" for name, count in self._facets.items()))
        elif of_answer(event):
            self._passing.clear()
            if not self._heard:
                self._output.say()
                text = text.lstrip()
            self._heard += text
            self._output.write(text)

    def _provision(self, event: dict[str, Any]) -> None:
        completed, total = event.get("completed"), event.get("total")
        share = f", {completed * 100 // total} % of {size(total)}" if total and completed is not None else ""
        self._passing.tell(f"pulling {event.get('model')}: {event.get('status')}{share}")

    def _question(self, event: dict[str, Any]) -> None:
        if event.get("number") is not None and event.get("number") == self._asked:
            return
        self._asked = event.get("number")
        self._passing.clear()
        self._output.say(f"\n{event.get('question')}", "bold")
        if self._answering is not None:
            self._answering.ask(str(event.get("id")), event.get("number"))
        else:
            self._output.note(f"answer it with: batos answer {event.get('id')} TEXT", "dim")

    def _result(self, event: dict[str, Any]) -> None:
        self._passing.clear()
        self._close_answer()
        result, error = event.get("result"), event.get("error")
        if event.get("state") != "COMPLETE":
            self._discard("it came to no answer")
            if self._shown[0] != "FAILED":
                self._line(event, "FAILED", _reason(error or {}))
            return
        text = str((result or {}).get("text", ""))
        if (result or {}).get("cut") and self._streamed.strip().startswith(text.rstrip("…`\n ")):
            self._output.note("(it came to the longest answer that it may give, num_predict: kept up to its last whole sentence)", "dim")
        elif text.strip() != self._streamed.strip():  # the watch joined late, events were dropped, or the answer was revised
            heard = self._streamed.strip()
            if not (text.strip().startswith(heard) or text.strip().endswith(heard)):
                self._discard("the answer is another")
            self._output.say()
            self._output.say(text)
            self._output.say()
        if self._shown[0] != "COMPLETE":
            self._line(event, "COMPLETE", "")
        told = result or {}
        for line in (*sources(told), *called(told), *doubts(told), provision(told), self._choice(told), cost(told)):
            if line:
                self._output.say(" " * 10 + line, "dim")

    def _choice(self, facts: dict[str, Any]) -> str:
        """Return the persona and the reason, if they are new."""
        persona, why = facts.get("persona"), facts.get("why")
        if not persona or not why or (persona, why) == self._chosen:
            return ""
        self._chosen = (persona, why)
        return f"{persona}: {why}"

    def _line(self, event: dict[str, Any], state: str, said: str) -> None:
        elapsed = event.get("elapsed_s")
        clock = f"{elapsed:7.1f} s" if isinstance(elapsed, int | float) else " " * 9
        self._output.say(f"{clock} {state:{_COLUMN}}{said}".rstrip(), STATE_STYLES.get(state, ""))

    def _discard(self, why: str) -> None:
        """Say of the answer that was streamed last that it is none."""
        if self._streamed.strip():
            self._output.say(f"(the text above was a draft, and is discarded: {why})", "dim")
        self._streamed = ""

    def _close_answer(self) -> None:
        if self._heard:
            self._output.say("\n")
            self._streamed, self._heard = self._heard, ""


def inside(event: dict[str, Any]) -> bool:
    """Return True if an event is of a cycle inside the mission's own."""
    return "." in str(event.get("cycle", ""))


def of_answer(event: dict[str, Any]) -> bool:
    """Return True if the text of a `token` is a piece of the mission's own answer."""
    return not event.get("facet") and not inside(event) and event.get("state", "SYNTHESIZING") == "SYNTHESIZING"


def _reason(error: dict[str, Any]) -> str:
    return f"{error.get('code')}: {error.get('message')}"


def tool_step(event: dict[str, Any]) -> str:
    """Return what a `tool` event says, in one line."""
    name, step = clean(str(event.get("tool", ""))), event.get("step")
    if step == "called":
        return one_line(f"calls {name} {clean(str(event.get('arguments', '')))}", 200)
    if step == "done":
        return one_line(f"{name} answered {clean(str(event.get('result', '')))}", 200)
    if step == "progress":
        return one_line(f"{name}: {clean(str(event.get('line', '')))}", 200)
    return one_line(f"{name} {step}: {clean(_reason(event.get('error') or {}))}", 400)


def sources(result: dict[str, Any]) -> list[str]:
    """Return the passages from memory that an answer comes from, one a line; first that it is a quotation, where it is nothing else."""
    cited = result.get("citations") or []
    if result.get("quoted") and any(_is_called(one) for one in cited):
        said = ["quoted from tools, word for word"]
    else:
        why = "no model was asked" if result.get("by_rule") else "the model's own answer was not from there"
        said = [f"quoted from memory, word for word: {why}"] if result.get("quoted") else []
    return said + [source(one) for one in cited]


def _is_called(cited: dict[str, Any]) -> bool:
    """Return True if a tool answered the passage, and no note of a method is meant."""
    return str(cited.get("source", "")).startswith("tool:")


def source(one: dict[str, Any]) -> str:
    """Return the source of a cited passage, in one line."""
    if one.get("origin") == "user":
        told = f"you said so{' on ' + one['day'] if one.get('day') else ''} ({one['source']})"
    elif _is_called(one):
        return f"[{one['n']}] the tool {one['title']}: batos effects"
    elif one.get("origin") == "self":
        told = f"an answer of its own ({one['source']})"
    else:
        told = f"{one['source']} ({one['title']})"
    return f"[{one['n']}] {told}: batos show {one['chunk']}"


def called(result: dict[str, Any]) -> list[str]:
    """Return the method that answered in a model's place, as a call, with the command that shows it."""
    if not (one := result.get("called")):
        return []
    args = ", ".join(json.dumps(arg, ensure_ascii=False) for arg in one["args"])
    return [f"answered by {one['selector']}({args}): batos method {one['target']} {one['selector']}"]


def doubts(result: dict[str, Any]) -> list[str]:
    """Return the doubts about a result, a line each.

    Doubts are:

    * all answers were refused and this is the best one;
    * parts did not fit into the prompt;
    * methods were written for the mission (with the command that shows what to teach).
    """
    unsure = [f"not sure: {result['unsure']}"] if result.get("unsure") else []
    if left := result.get("left_out"):
        unsure.append(left_out_words(left))
    if images := result.get("images_left_out"):
        why = "all was longer than the model reads at a time, or they are more than thinking.images"
        unsure.append(f"not shown again, since {why}: {images} of the images of earlier turns")
    wrote = [one for one in result.get("wrote") or [] if one.get("open") or one.get("agreed", 1) < one.get("candidates", 1)]
    told = ((one.get("receiver") or one["object"], one["selector"]) for one in wrote if one["object"])  # a new object has no name yet
    return [*unsure, *(f"wrote {selector}, and is not sure of it: batos method {held} {selector}" for held, selector in told)]


def provision(result: dict[str, Any]) -> str:
    """Return the model that was provided for a mission because no available one met its needs, and the command that undoes that."""
    provided = result.get("provided") or {}
    if not provided:
        return ""
    back = f"; `batos changes undo {provided['change']}` takes it back" if provided.get("change") else ""
    return f"thought with {provided.get('model') or 'a larger context'}, since it needs {', '.join(provided['needs'])}{back}"


def cost(result: dict[str, Any]) -> str:
    """Return the cost of a result, in one line."""
    usage = result.get("usage") or {}
    said = [str(result["persona"])] if result.get("persona") else []
    if "inferences" in usage:
        replayed = f" ({usage['replayed']} replayed)" if usage.get("replayed") else ""
        said.append(f"{counted(usage['inferences'], 'inference')}{replayed}")
    if "prompt_tokens" in usage:
        said.append(f"{counted(usage['prompt_tokens'], 'token')} read, {usage.get('answer_tokens', 0)} written")
    if "model_ms" in usage:
        reading = f", {usage['prompt_ms'] / 1000:.1f} s of it reading" if usage.get("prompt_ms") else ""
        said.append(f"{usage['model_ms'] / 1000:.1f} s of model time{reading}")
    return ", ".join(said)


FOLDED = "so old that only the beginnings of brief and result are kept, and what it cost (settings image.mission_days, image.missions_kept)"
_WIDTH = 400  # characters of one text; `--json` shows the whole text


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
    """Return an image of a mission, in a line."""
    kind = str(one["type"]).removeprefix("image/").upper()
    said = f"{one.get('name') or 'without a name'}, {kind}, {one['width']} × {one['height']}, {size(one['bytes'])}, {one['digest'][:16]}"
    return f"{said}, of {one['of']}" if "of" in one else said


def undone_pairs(told: dict[str, Any]) -> dict[str, str]:
    """Return the undo of a mission, and its continuations, from a `status` or a record: names and values."""
    shown = {f"continued{f' ({n})' if n > 1 else ''}": _continued(one) for n, one in enumerate(told.get("continued") or (), 1)}
    undone = told.get("undone")
    if not undone:
        return shown
    if undone["at"] is None:
        return {**shown, "undone": "yes; when is not kept"}
    more = "" if undone["with"] == told["id"] else f", with {undone['with']}"
    return {**shown, "undone": f"{_clock(undone['at'])}{more}"}


def _continued(one: dict[str, Any]) -> str:
    was = f"it was {one['state']}" + (f" ({one['error']['code']})" if one.get("error") else "")
    changes = f", changes {one['with']}" if one["with"] else ""
    return f"{_clock(one['at'])}, {was}{changes}" + (f": {one_line(one['note'], _WIDTH)}" if one["note"] else "")


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def rated(rating: dict[str, Any]) -> str:
    """Return the user's rating of a mission, and the reason."""
    return f"{rating['rating']:+d}" + (f": {one_line(rating['why'], _WIDTH)}" if rating["why"] else "")


def routing_pairs(told: dict[str, Any]) -> dict[str, str]:
    """Return the persona of a mission and the reason, from a `status` or a record: names and values."""
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
    """Return the provision of a mission that no model here could serve, from a `status`: names and values."""
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
        output.say(f"  {'from a tool' if _is_called(one) else 'from memory'}: {source(one)}", "dim")
    if (record.get("result") or {}).get("quoted"):
        output.say("  quoted word for word", "dim")


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
        output.say("\nthe texts of its inferences were let go (setting image.journal_days); what they cost is known", "dim")
    for row in record["cost"]:
        asked = counted(row["inferences"], "inference")
        tokens = f"{counted(row['prompt_tokens'], 'token')} read, {row['answer_tokens']} written"
        output.say(f"  {row['model'] or 'all models'}: {asked}, {tokens}, {row['model_ms'] / 1000:.1f} s", "dim")
