"""The world of `bench/agency.py`: BFCL's stateful classes as an HTTP API that counts its requests, apart from the daemon that is killed.

    python bench/agency_world.py FOLDER --slow 0.3

Each task has instances of its own under `/tasks/N`, with an OpenAPI 3.1 document made of their signatures and docstrings: a method that
only looks is a GET, one that changes the state a POST. The classes in `KEYED` declare and honour an idempotency key, the others know
none. A request takes its time before and after it is carried out, and is carried out when who asked is gone, too.

`GET /control/N` tells what was carried out; `POST /control/N` plays the known calls of a turn on instances apart, by BFCL's own code, and
compares the states by BFCL's own check. The port is the first line of the standard output.
"""

from __future__ import annotations

import argparse
import ast
import collections
import copy
import importlib
import inspect
import json
import random
import re
import socketserver
import sys
import threading
import time
import typing
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEYED = frozenset({"GorillaFileSystem", "TradingBot", "TravelAPI", "TwitterAPI"})
"""Classes that honour an idempotency key."""
_LOOKS = re.compile(
    r"(get|view|list|search|find|check|estimate|displayCarStatus|retrieve|compute|verify|filter)(?![a-z])"
    r"|(pwd|ls|cat|find|wc|sort|grep|du|tail|diff|gallon_to_liter|liter_to_gallon|display_log)\Z|(message|posting|ticket|trading|travel)_get_"
)
_CHANGES = frozenset({
    "get_flight_cost", "get_outside_temperature_from_google", "get_outside_temperature_from_weather_com", "get_current_speed",
})  # fmt: skip
"""Methods that are named like one that looks, and keep a price or draw a number."""
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}
_WIDER = {("close_ticket", "ticket_id"): ["integer", "string"]}
"""Parameters to which a known call gives another type than is annotated."""
_ARGUMENT = re.compile(r"^\s{12,}(\w+)\s*\([^)]*\)\s*:\s*(.+)$", re.MULTILINE)
_KEY_HEADER = "Idempotency-Key"


def known_tasks(folder: Path) -> dict[int, dict[str, Any]]:
    """BFCL's tasks by number, each with the known calls of its turns as `calls`: pairs of a method and its arguments by name."""

    def lines(path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / "bfcl_eval" / "data" / path).read_text("utf-8").splitlines()]

    answers = {one["id"]: one["ground_truth"] for one in lines("possible_answer/BFCL_v4_multi_turn_base.json")}
    found = {}
    for number, one in enumerate(lines("BFCL_v4_multi_turn_base.json")):
        classes = [class_of(name) for name in one["involved_classes"]]
        known = answers[one["id"]]
        found[number] = {**one, "known": known, "calls": [[_call(said, classes) for said in turn] for turn in known]}
    return found


def class_of(name: str) -> type:
    """The class of a name."""
    paths = importlib.import_module("bfcl_eval.constants.executable_backend_config").CLASS_FILE_PATH_MAPPING
    found: type = getattr(importlib.import_module(paths[name]), name)
    return found


def _call(said: str, classes: list[type]) -> tuple[str, dict[str, Any]]:
    parsed = ast.parse(said, mode="eval").body
    assert isinstance(parsed, ast.Call)
    assert isinstance(parsed.func, ast.Name)
    name = parsed.func.id
    names = list(inspect.signature(getattr(next(one for one in classes if hasattr(one, name)), name)).parameters)[1:]
    given = {names[at]: ast.literal_eval(value) for at, value in enumerate(parsed.args)}
    return name, given | {str(one.arg): ast.literal_eval(one.value) for one in parsed.keywords}


def looks(name: str) -> bool:
    """Whether a method only looks."""
    return bool(_LOOKS.match(name)) and name not in _CHANGES


def canonical(arguments: Any) -> str:
    """Arguments as a text that is the same for equal ones."""
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


class Served:
    """The instances of one task, and what was done with them."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task, self.lock = task, threading.Lock()
        self.done: list[tuple[str, str]] = []
        """What was carried out: method and arguments, in order."""
        self.log: list[tuple[float, str, str, str]] = []
        """What happened: seconds since the epoch, `asked`, `done`, `known`, `answered` or `gone`, method, arguments or key."""
        self.requests: collections.Counter[str] = collections.Counter()
        self.keys: dict[str, Any] = {}
        self.looked_and_changed: list[str] = []
        self.instances = {}
        for name in task["involved_classes"]:
            self.instances[name] = one = class_of(name)()
            if hasattr(one, "_load_scenario"):
                one._load_scenario(copy.deepcopy(task["initial_config"].get(name, {})))

    def carry_out(self, name: str, method: str, arguments: dict[str, Any], key: str | None) -> Any:
        """Call a method once; with a key that was there before, its result is told again."""
        with self.lock:
            self.requests[method] += 1
            if key is not None and key in self.keys:
                self.requests["repeated with their key"] += 1
                self.note("known", method, key[:8])
                return self.keys[key]
            before = _whole(self.instances[name]) if looks(method) else ""
            result = getattr(self.instances[name], method)(**arguments)
            self.done.append((method, canonical(arguments)))
            self.note("done", method, canonical(arguments))
            if looks(method) and _whole(self.instances[name]) != before:
                self.looked_and_changed.append(method)
            if key is not None:
                self.keys[key] = result
            return result

    def note(self, what: str, method: str, about: str) -> None:
        """Write a line of the log."""
        self.log.append((round(time.time(), 3), what, method, about))

    def facts(self) -> dict[str, Any]:
        """What was asked, and carried out."""
        with self.lock:
            return {"done": self.done, "requests": dict(self.requests), "looked_and_changed": self.looked_and_changed, "log": self.log}

    def compared(self, turn: int) -> dict[str, Any]:
        """Play the known calls of a turn, the next one, on the known instances, and compare the states."""
        played = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils").execute_multi_turn_func_call
        checker = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker").state_checker
        task = self.task
        with self.lock:
            _, known = played(task["known"][turn], task["initial_config"], task["involved_classes"], "known", task["id"], is_evaL_run=True)
            found = checker(self.instances, known)
            return {"valid": found["valid"], "differences": repr(found.get("details", {}).get("differences", ""))[:500]}

    def document(self, number: int, base: str) -> dict[str, Any]:
        """The OpenAPI document of the task's classes."""
        paths: dict[str, Any] = {}
        for name, one in self.instances.items():
            for method, function in inspect.getmembers(one, predicate=inspect.ismethod):
                if not method.startswith("_"):
                    paths[f"/{name}/{method}"] = {"get" if looks(method) else "post": _operation(name, method, function)}
        return {
            "openapi": "3.1.0",
            "info": {"title": f"BFCL task {number}", "version": "1"},
            "servers": [{"url": f"{base}/tasks/{number}"}],
            "paths": paths,
        }


def _whole(value: Any) -> str:
    """All of a state, private attributes and random generators included."""

    def told(one: Any) -> Any:
        if hasattr(one, "getstate"):
            return one.getstate()
        if type(one).__module__.startswith("bfcl_eval"):
            return {name: told(inner) for name, inner in vars(one).items() if name != "parent"}
        if isinstance(one, dict):
            return {name: told(inner) for name, inner in one.items()}
        return [told(inner) for inner in one] if isinstance(one, list | tuple) else one

    return repr(told(value))


def _operation(name: str, method: str, function: Any) -> dict[str, Any]:
    doc = inspect.getdoc(function) or ""
    about = dict(_ARGUMENT.findall((function.__doc__ or "").partition("Returns:")[0]))
    schemas, required = {}, []
    for parameter in inspect.signature(function).parameters.values():
        schemas[parameter.name] = schema = _schema(parameter.annotation)
        schema["type"] = _WIDER.get((method, parameter.name), schema["type"])
        if parameter.name in about:
            schema["description"] = about[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    made: dict[str, Any] = {
        "operationId": method,
        "description": doc.partition("Args:")[0].partition("Returns:")[0].strip(),
        "responses": {"200": {"description": "the result", "content": {"application/json": {}}}},
    }
    if looks(method):
        made["parameters"] = [
            {"name": one, "in": "query", "required": one in required, "schema": schema} for one, schema in schemas.items()
        ]
        return made
    body = {"type": "object", "properties": schemas, "required": required}
    if schemas:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if name in KEYED:
        made["parameters"] = [{"name": _KEY_HEADER, "in": "header", "required": False, "schema": {"type": "string"}}]
    return made


def _schema(annotation: Any) -> dict[str, Any]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union:
        return _schema(next(one for one in inner if one is not type(None)))
    if origin is list:
        return {"type": "array", "items": _schema(inner[0])}
    return {"type": _TYPES.get(origin or annotation, "string")}


class World:
    """All tasks that were asked for."""

    def __init__(self, folder: Path, slow: float, seed: int) -> None:
        self.tasks, self.slow, self.chance = known_tasks(folder), slow, random.Random(seed)
        self._served: dict[int, Served] = {}
        self._lock = threading.Lock()

    def served(self, number: int) -> Served:
        """The instances of a task, which are made when they are first asked for."""
        with self._lock:
            if number not in self._served:
                self._served[number] = Served(self.tasks[number])
            return self._served[number]

    def pause(self) -> None:
        """Take time."""
        with self._lock:
            seconds = self.chance.uniform(0, self.slow)
        time.sleep(seconds)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    world: World
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        match parts.path.strip("/").split("/"):
            case ["control", number]:
                self._answer(200, self.world.served(int(number)).facts())
            case ["tasks", number, "openapi.json"]:
                base = f"http://{self.headers['Host']}"
                self._answer(200, self.world.served(int(number)).document(int(number), base))
            case ["tasks", number, name, method]:
                self._carry_out(int(number), name, method, urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
            case _:
                self._answer(404, {"error": "there is nothing here"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        match self.path.strip("/").split("/"):
            case ["control", number]:
                self._answer(200, self.world.served(int(number)).compared(int(body["turn"])))
            case ["tasks", number, name, method]:
                self._carry_out(int(number), name, method, body)
            case _:
                self._answer(404, {"error": "there is nothing here"})

    def _carry_out(self, number: int, name: str, method: str, given: Any) -> None:
        served = self.world.served(number)
        function = getattr(served.instances.get(name), method, None)
        if function is None or method.startswith("_") or looks(method) != (self.command == "GET"):
            return self._answer(404, {"error": f"{name} has no {method}"})
        if isinstance(given, list):
            given = _of_query(given, function)
        key = self.headers.get(_KEY_HEADER) if name in KEYED else None
        served.note("asked", method, (key or "")[:8])
        self.world.pause()
        result = served.carry_out(name, method, given, key)
        self.world.pause()
        self._answer(200, result)
        return served.note("gone" if self.close_connection else "answered", method, (key or "")[:8])

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value, default=str).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # who asked is gone
            self.close_connection = True


def _of_query(pairs: list[tuple[str, str]], function: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        texts = [value for key, value in pairs if key == name]
        if texts:
            schema = _schema(parameter.annotation)
            item = schema.get("items", schema)["type"]
            values = [text if item == "string" else json.loads(text) for text in texts]
            found[name] = values if schema["type"] == "array" else values[-1]
    return found


class LocalServer(ThreadingHTTPServer):
    """A server on loopback that asks no name server for its own name: an answer to that can take a minute."""

    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        """Bind the socket."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show faults, but for clients that are gone."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the unpacked package")
    parser.add_argument("--slow", type=float, default=0.0, help="most seconds that a request takes before it is carried out, and after it")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sys.path.insert(0, str(args.folder))
    Handler.world = World(args.folder, args.slow, args.seed)
    server = LocalServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
