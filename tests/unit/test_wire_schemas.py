import json
from typing import Any

import pytest

from batos.config import Settings
from batos.wire.fields import WORDS
from batos.wire.payloads import PayloadLimits, RefusedPayload, parse_request
from batos.wire.schemas import OPS, ResultRequest, SendRequest, SubmitRequest

_ID = "an id is 1 to 128 of the letters A-Z a-z, the digits 0-9 and . _ : @ / -"
_NAME = "a name is 1 to 128 of the letters A-Z a-z, the digits 0-9 and _, with no digit first"
_WORD = "a name is 1 to 40 of the letters A-Z a-z, the digits 0-9 and _ -, a letter first"
_MOMENT = "a moment is seconds since 1970, as a number, or the id of a transaction, 16 of the digits 0-9 a-f"
LIMITS = PayloadLimits.of(Settings())
ALONE = (
    "missions", "info", "metrics", "methods", "models", "failures", "ls", "pack", "backup", "experts", "personas", "memory", "changes",
    "curate", "tools", "tool_offers", "tools_resume", "tool_grants", "effects", "schedules", "notices", "notice_log", "notice_settle",
    "hooks", "folders", "kernels", "compare.list",
)  # fmt: skip
"""Ops that need no field."""
EITHER = ("ingest", "compare.start", "step.open", "step.edit", "step.eval")
"""Ops that need one of several fields, and say so."""
GOOD: dict[str, dict[str, Any]] = {
    "submit": {"id": "m", "brief": "b"},
    "tool_add": {"name": "n", "kind": "web"},
    "tool_describe": {"kind": "usage", "source": "wc"},
    "tool_test": {"name": "n"},
    "tool_accept": {"name": "n"},
    "tool_remove": {"name": "n"},
    "tool_offer": {"name": "n", "line": "does it", "kind": "web"},
    "tool_withdraw": {"name": "n"},
    "tool_grant": {"verdict": "allow", "pattern": "n.*"},
    "tool_ungrant": {"number": 1},
    "schedule_add": {"when": "hourly", "brief": "b"},
    **{op: {"name": "n"} for op in ("schedule_pause", "schedule_resume", "schedule_remove")},
    "schedule_run": {"name": "n", "id": "m"},
    "folder_add": {"folder": "/f", "brief": "b"},
    **{op: {"name": "n"} for op in ("folder_pause", "folder_resume", "folder_remove", "folder_run")},
    "hook_add": {"name": "n", "brief": "b"},
    **{op: {"name": "n"} for op in ("hook_pause", "hook_resume", "hook_remove", "hook_roll")},
    "hook_deliver": {"name": "n", "body": "e30="},
    "notice_add": {"name": "n", "way": "hook", "place": "http://localhost/x"},
    **{op: {"name": "n"} for op in ("notice_pause", "notice_resume", "notice_remove")},
    "notice_test": {"name": "n", "id": "t"},
    "compare.start": {"id": "c", "persona": "robin", "other": "brick"},
    **{f"compare.{op}": {"id": "c"} for op in ("show", "next", "stop", "resume", "remove")},
    "compare.judge": {"id": "c", "number": 1, "verdict": "left"},
    "compare.promote": {"id": "c", "note": "n"},
    "step.open": {"id": "m"},
    "step.show": {},
    "step.go": {"session": "s"},
    "step.edit": {"session": "s", "kind": "slot", "target": "robin.x", "value": 1},
    "step.eval": {"session": "s", "expression": "1"},
    "step.continue": {"session": "s"},
    "step.close": {"session": "s"},
    "effect_settle": {"key": "0123", "how": "leave"},
    "send": {"id": "m", "target": "t", "selector": "do_"},
    "upload": {"digest": "0" * 64, "bytes": 1},
    "show": {"target": "t"},
    "image": {"id": "m", "digest": "0" * 64},
    "history": {"target": "t"},
    "fork": {"folder": "/f"},
    "diff": {"target": "t", "a": 1.5},
    **{op: {"id": "m"} for op in ("status", "result", "watch", "cancel", "pause", "resume", "replay", "undo")},
    "answer": {"id": "m", "text": "yes"},
    "rate": {"id": "m", "rating": -1},
    "method": {"target": "t", "selector": "s"},
    "revert": {"id": "m", "target": "t", "selector": "s"},
    "grant": {"id": "m", "target": "t", "selector": "s", "message": "forget_"},
    "teach": {"id": "m", "target": "t", "selector": "s", "examples": [{"result": 1}]},
    **{op: {} for op in ALONE},
    "undo_change": {"number": 7},
    "search": {"question": "where?"},
    "ingest": {"paths": ["/notes"]},
}


def parse(message: dict[str, Any], limits: PayloadLimits = LIMITS) -> Any:
    return parse_request(json.dumps(message).encode(), limits)


def refusal(message: dict[str, Any], limits: PayloadLimits = LIMITS) -> RefusedPayload:
    with pytest.raises(RefusedPayload) as caught:
        parse(message, limits)
    return caught.value


@pytest.mark.parametrize("op", OPS)
def test_every_op_with_the_least_it_needs(op: str) -> None:
    request = parse({"op": op, "ref": "r", **GOOD[op]})
    assert (request.op, request.ref, request.mission) == (op, "r", GOOD[op].get("id"))


@pytest.mark.parametrize("op", OPS)
def test_every_op_refuses_fields_it_does_not_have(op: str) -> None:
    refused = refusal({"op": op, "ref": 5, **GOOD[op], "colour": "red"})
    assert (refused.error.code, refused.ref, refused.mission) == ("unknown_field", 5, GOOD[op].get("id"))
    assert "'colour'" in refused.error.message


@pytest.mark.parametrize(("op", "field"), [(op, field) for op, fields in GOOD.items() if op not in EITHER for field in fields])
def test_every_op_names_the_field_that_is_missing(op: str, field: str) -> None:
    refused = refusal({"op": op, **{k: v for k, v in GOOD[op].items() if k != field}})
    assert (refused.error.code, refused.error.message) == ("invalid_request", f"{op}: `{field}` is missing")


def test_defaults() -> None:
    submit = parse({"op": "submit", **GOOD["submit"]})
    assert submit == SubmitRequest(op="submit", id="m", brief="b", persona=None, deadline_s=None, priority=0, watch=False)
    send = parse({"op": "send", **GOOD["send"]})
    assert send == SendRequest(op="send", id="m", target="t", selector="do_", args=[], kwargs={})
    assert parse({"op": "missions"}).limit == 50


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({}, "invalid_request"),
        ({"op": None}, "invalid_request"),
        ({"op": 3}, "invalid_request"),
        ({"op": ["submit"]}, "invalid_request"),
        ({"op": "Submit"}, "unknown_op"),
        ({"op": "undo", "id": "m", "redo": True, "cascade": True}, "invalid_request"),
        ({"op": "undo", "id": "m", "expect": ["a b"]}, "invalid_request"),
        ({"op": "drop_tables"}, "unknown_op"),
        ({"op": "x" * 100_000}, "unknown_op"),
        ({"op": "submit", "id": "m", "brief": ""}, "invalid_request"),
        ({"op": "submit", "id": "m", "brief": " \n\t\u00a0\u2003"}, "invalid_request"),
        ({"op": "submit", "id": "m", "brief": 3}, "invalid_request"),
        ({"op": "submit", "id": "m", "brief": "b", "instructions": 3}, "invalid_request"),
        ({"op": "submit", "id": "m", "brief": "b", "instructions": "ä" * 40_000}, "too_large"),
        ({"op": "submit", "id": 3, "brief": "b"}, "invalid_request"),
        ({"op": "submit", "id": "m", "brief": "b", "watch": 1}, "invalid_request"),
        ({"op": "submit", "id": "m", "brief": "b", "priority": True}, "invalid_request"),
        ({"op": "submit", "id": "m", "brief": "b", "priority": "1"}, "invalid_request"),
        ({"op": "submit", "id": "m", "brief": "b", "deadline_s": "1"}, "invalid_request"),
        ({"op": "send", "id": "m", "target": "t", "selector": "a b"}, "invalid_request"),
        ({"op": "send", "id": "m", "target": "t", "selector": "a", "args": {}}, "invalid_request"),
        ({"op": "send", "id": "m", "target": "t", "selector": "a", "kwargs": {"not a name": 1}}, "invalid_request"),
        ({"op": "missions", "state": "DREAMING"}, "invalid_request"),
        ({"op": "info", "ref": True}, "invalid_request"),
        ({"op": "info", "ref": 1.5}, "invalid_request"),
        ({"op": "info", "ref": {}}, "invalid_request"),
    ],
)
def test_wrong_requests_have_codes(message: dict[str, Any], code: str) -> None:
    error = refusal(message).error
    assert error.code == code
    assert len(error.message) < 800


@pytest.mark.parametrize("id", ["", "a b", "a\n", "\u00e9", "a" * 129, "a#b", "\x00"])
def test_ids_that_are_refused(id: str) -> None:
    refused = refusal({"op": "status", "id": id})
    assert (refused.error.code, refused.mission) == ("invalid_request", None)


@pytest.mark.parametrize("id", ["a", "a" * 128, "mail:2026/11@host-1_x.y"])
def test_ids_that_are_taken(id: str) -> None:
    assert parse({"op": "status", "id": id}).id == id


@pytest.mark.parametrize(
    ("op", "field", "good", "bad"),
    [
        ("submit", "deadline_s", 604_800, 604_801),
        ("show", "at", "03f0b3a1c2d4e5f6", "03f0b3a1c2d4e5f"),
        ("show", "at", 1_790_000_000.5, -1),
        ("diff", "b", 2**33, 2**33 + 1),
        ("ls", "at", 0, "03F0B3A1C2D4E5F6"),
        ("submit", "deadline_s", 0.001, 0),
        ("submit", "priority", 100, 101),
        ("submit", "priority", -100, -101),
        ("submit", "persona", "p" * 64, "p" * 65),
        ("submit", "ref", "r" * 256, "r" * 257),
        ("submit", "ref", 2**63 - 1, 2**63),
        ("submit", "ref", -(2**63), -(2**63) - 1),
        ("result", "wait_s", 60, 60.001),
        ("result", "wait_s", 0, -0.001),
        ("send", "target", "t" * 512, "t" * 513),
        ("send", "selector", "s" * 128, "s" * 129),
        ("send", "kwargs", {"k" * 128: 1}, {"k" * 129: 1}),
        ("missions", "limit", 1000, 1001),
        ("missions", "limit", 1, 0),
    ],
)
def test_at_a_limit_and_past_it(op: str, field: str, good: Any, bad: Any) -> None:
    assert getattr(parse({"op": op, **GOOD[op], field: good}), field) == good
    assert refusal({"op": op, **GOOD[op], field: bad}).error.code == "invalid_request"


@pytest.mark.parametrize("rating", [True, False, 1.0, -1.0, 0, 2, "1", None, [1]])
def test_a_rating_is_one_of_two_numbers(rating: Any) -> None:
    error = refusal({"op": "rate", "id": "m", "rating": rating}).error
    assert (error.code, error.message) == ("invalid_request", "rate: `rating`: input should be 1 or -1")
    assert [parse({"op": "rate", "id": "m", "rating": good}).rating for good in (1, -1)] == [1, -1]


@pytest.mark.parametrize("blank", [" ", "\x00", "\x00\x01 \n\x7f", "\u200b", "\u2028\ufeff"])
def test_what_says_nothing_is_no_brief_and_no_answer(blank: str) -> None:
    for op, field in (("submit", "brief"), ("answer", "text")):
        error = refusal({"op": op, **GOOD[op], field: blank}).error
        assert (error.code, "is empty" in error.message) == ("invalid_request", True)
        assert getattr(parse({"op": op, **GOOD[op], field: f"{blank}?{blank}"}), field) == f"{blank}?{blank}"


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\U0001f600"])
def test_the_brief_is_measured_in_bytes(letter: str) -> None:
    limits = LIMITS._replace(brief_bytes=400)
    fits = 400 // len(letter.encode())
    assert parse({**GOOD["submit"], "op": "submit", "brief": letter * fits}, limits).brief == letter * fits
    refused = refusal({"op": "submit", "id": "m", "ref": 1, "brief": letter * (fits + 1)}, limits)
    assert (refused.error.code, refused.ref, refused.mission) == ("too_large", 1, "m")


def test_the_message_at_its_limit_and_past_it() -> None:
    payload = json.dumps({"op": "info"}).encode()
    limits = LIMITS._replace(message_bytes=len(payload))
    assert parse_request(payload, limits).op == "info"
    with pytest.raises(RefusedPayload, match="at most"):
        parse_request(payload + b" ", limits)


@pytest.mark.parametrize("body", ['"a": NaN', '"a": 1, "a": 2', '"a": "\\ud800"', '"a": ' + "[" * 40 + "]" * 40, '"a": 1e999'])
def test_what_can_be_read_of_malformed_json_is_echoed(body: str) -> None:
    with pytest.raises(RefusedPayload) as caught:
        parse_request(b'{"ref": "r", "id": "m", ' + body.encode() + b"}", LIMITS)
    assert (caught.value.error.code, caught.value.ref, caught.value.mission) == ("malformed", "r", "m")


@pytest.mark.parametrize("ref", ["r" * 257, 2**63, 1.5, [1], "\ud800"])
def test_a_ref_that_is_none_is_not_echoed(ref: object) -> None:
    assert refusal({"op": "status", "id": "m", "ref": ref}).ref is None


def test_fifty_thousand_bad_keys_are_one_error() -> None:
    keys = {f"k{i}-": i for i in range(50_000)}
    assert refusal({"op": "info", **keys}).error.code == "unknown_field"
    assert refusal({"op": "send", **GOOD["send"], "kwargs": keys}).error.code == "invalid_request"


@pytest.mark.parametrize("half", [{"persona": "babs"}, {"voice": "plain"}])
def test_a_voice_is_chosen_for_a_persona(half: dict[str, Any]) -> None:
    assert parse({"op": "experts", "persona": "babs", "voice": "plain"}).voice == "plain"
    refused = refusal({"op": "experts", **half})
    assert (refused.error.code, refused.error.message) == ("invalid_request", "experts: `persona` and `voice` come together")


@pytest.mark.parametrize(
    "field", [{"since": "2026-02-30"}, {"until": "tomorrow"}, {"since": "2026-2-3"}, {"k": 0}, {"k": 101}, {"question": ""}]
)
def test_what_no_search_can_be_of(field: dict[str, Any]) -> None:
    assert parse({"op": "search", "question": "q", "since": "2026-02-28", "k": 100}).since == "2026-02-28"
    assert refusal({"op": "search", "question": "q", **field}).error.code == "invalid_request"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"op": "search", "since": "foo"}, "search: `since`: 'foo' is not a valid day: write 2026-05-31"),
        ({"op": "search", "until": "2026-02-30"}, "search: `until`: '2026-02-30' is not a valid day: write 2026-05-31"),
        (
            {"op": "search", "since": "2026-02-01", "until": "2026-01-01"},
            "search: nothing lies between `since` 2026-02-01 and `until` 2026-01-01: `until` is the earlier day",
        ),
        ({"op": "show", "at": 1e300}, "show: `at`: input should be less than or equal to 8589934592"),
        ({"op": "missions", "at": -5}, "missions: `at`: input should be greater than or equal to 0"),
        ({"op": "missions", "at": True}, "missions: `at`: input should be a valid string, or a valid number"),
        ({"op": "teach", "examples": [{"foo": 2}]}, "teach: `examples[0]` has no field 'foo'; it has args, kwargs, slots, after, result"),
        ({"op": "teach", "examples": [{}, {"args": 5}]}, "teach: `examples[1].args`: input should be a valid list"),
        ({"op": "personas", "accept": {}}, "personas: `accept.persona` is missing"),
        ({"op": "status", "id": "a b"}, f"status: `id`: 'a b' has ' ' in it; {_ID}"),
        ({"op": "submit", "context": "né\n"}, f"submit: `context`: 'né\\n' has 'é' in it; {_ID}"),
        ({"op": "undo", "expect": ["m", "#" * 99]}, f"undo: `expect[1]`: '{'#' * 64}…' has '#' in it; {_ID}"),
        ({"op": "status", "id": "x" * 129}, "status: `id`: string should have at most 128 characters, not 129"),
        ({"op": "send", "selector": "2x"}, f"send: `selector`: '2x' does not fit; {_NAME}"),
        ({"op": "send", "selector": "zähle_"}, f"send: `selector`: 'zähle_' has 'ä' in it; {_NAME}"),
        ({"op": "show", "at": "03f0b3"}, f"show: `at`: '03f0b3' does not fit; {_MOMENT}"),
        ({"op": "show", "at": "yesterday"}, f"show: `at`: 'yesterday' has 'y' in it; {_MOMENT}"),
        ({"op": "hook_add", "name": "my hook"}, f"hook_add: `name`: 'my hook' has ' ' in it; {_WORD}"),
        ({"op": "notice_add", "place": ""}, "notice_add: `place`: the text is empty; the least number of characters is 1"),
        ({"op": "notice_add", "on": []}, "notice_add: `on`: the list is empty; the least number of entries is 1"),
        (
            {"op": "folder_add", "depth": "deep"},
            "folder_add: `depth`: 'deep' is not a choice; allowed are 'auto', 'direct', 'facets' or 'council'",
        ),
        ({"op": "ingest", "paths": ["a\0b"]}, "ingest: `paths[0]`: 'a\\x00b' has '\\x00' in it; a path cannot have this character"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_what_may_be_there(message: dict[str, Any], told: str) -> None:
    assert refusal({**GOOD[message["op"]], **message}).error.message == told


def test_what_every_pattern_asks_for_is_told_in_words() -> None:
    def patterns(schema: Any) -> set[str]:
        held = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
        own = {schema["pattern"]} if isinstance(schema, dict) and isinstance(schema.get("pattern"), str) else set()
        return own.union(*map(patterns, held))

    assert patterns([model.model_json_schema() for model in OPS.values()]) == WORDS.keys()


def test_only_a_result_with_wait_s_waits() -> None:
    assert ResultRequest(op="result", id="m", wait_s=0.1).waits
    assert not ResultRequest(op="result", id="m").waits
    assert not parse({"op": "watch", "id": "m"}).waits


def test_an_ingest_names_something() -> None:
    assert parse({"op": "ingest", "follow": ["/notes"]}).follow == ["/notes"]
    for nothing in ({}, {"paths": []}, {"paths": [], "follow": []}):
        refused = refusal({"op": "ingest", **nothing})
        assert refused.error.message == "ingest: `paths` or `follow` names at least one file or folder"
    assert parse({"op": "ingest", "paths": ["/notes"], "watch": True}).waits
    assert not parse({"op": "ingest", "paths": ["/notes"]}).waits


@pytest.mark.parametrize(
    ("kind", "place", "named"),
    [
        ("folder", "/home/me/notes", ("/home/me/notes",)),
        ("openapi", "/srv/shop.json", ("/srv/shop.json",)),
        ("openapi", "https://shop.example/openapi.json", ()),
        ("mcp", "/usr/bin/server --at 'https://a.example'", ("/usr/bin/server",)),
        ("mcp", "https://tools.example/mcp", ()),
        ("program", "'/opt/my tools/convert' {file}", ("/opt/my tools/convert",)),
        ("program", "'open quote", ("'open quote",)),
        ("http", "https://shop.example", ()),
        ("web", "", ()),
    ],
)
def test_a_connection_names_what_it_reaches_on_the_daemons_machine(kind: str, place: str, named: tuple[str, ...]) -> None:
    assert parse({"op": "tool_add", "name": "n", "kind": kind, "place": place}).named == named


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kind": "usage", "source": "'/opt/my tools/x' -v"}, ("/opt/my tools/x",)),
        ({"kind": "usage", "source": "https://shop.example/docs"}, ("https://shop.example/docs",)),
        ({"kind": "text", "source": "https://shop.example/docs"}, ()),
        ({"kind": "text", "source": "/etc/passwd"}, ("/etc/passwd",)),
    ],
)
def test_a_description_names_what_is_read_on_the_daemons_machine(given: dict[str, Any], named: tuple[str, ...]) -> None:
    assert parse({"op": "tool_describe", **given}).named == named


@pytest.mark.parametrize("narrowing", [{"uses": 1}, {"bytes": 1}, {"leaks": True}, {"system": True}])
@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_only_an_allow_is_narrowed(verdict: str, narrowing: dict[str, Any]) -> None:
    with pytest.raises(RefusedPayload, match="only the verdict `allow`"):
        parse({"op": "tool_grant", "verdict": verdict, "pattern": "a.*", **narrowing})
    parse({"op": "tool_grant", "verdict": "allow", "pattern": "a.*", **narrowing})


@pytest.mark.parametrize("name", ["1st", "a b", "a.b", "", "x" * 41, "é"])
def test_a_connection_has_a_plain_name(name: str) -> None:
    with pytest.raises(RefusedPayload):
        parse({"op": "tool_test", "name": name})
