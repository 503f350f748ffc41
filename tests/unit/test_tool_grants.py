"""Which mission may call which tool: the decision, the grants in the image, the question and what its answer makes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from batos.errors import InvalidInput
from batos.image import grants as kept
from batos.image import ledger
from batos.image.effects import ACTS, DONE, FAILED, READS, EffectRecord
from batos.image.grants import ALLOW, ASK, DENY, CurrentGrant, GrantRecord, GrantUse
from batos.image.living_image import LivingImage
from batos.tools import grant_questions, grants
from batos.tools.definitions import Delivery, ToolCall, ToolDefinition
from batos.tools.grant_arguments import fits, glob, parse_constraints
from batos.tools.grant_questions import ALWAYS, MISSION, NEVER, ONCE, REFUSE, PendingCall, grant_for, question_text, read_answers
from batos.tools.grants import OUTWARD, PRIVATE, SYSTEM, UNTRUSTED, Permission, ToolRequest, decide, third_mark

DAY = 86400.0
NOW = 20_000 * DAY + 100.0
WRITE = ToolDefinition(name="write", kind=ACTS, outward=False, untrusted=False)
READ = ToolDefinition(name="read", kind=READS, outward=False, private=True)
SEND = ToolDefinition(name="send", kind=ACTS, untrusted=False)


def grant(verdict: str = ALLOW, pattern: str = "notes.*", id: int = 1, **fields: Any) -> CurrentGrant:
    use = GrantUse(20_000, fields.pop("used", 0), fields.pop("sent", 0))
    return CurrentGrant(grants.checked(GrantRecord(id, verdict, pattern, **fields)), use)


def request(tool: ToolDefinition = WRITE, arguments: dict[str, Any] | None = None, **fields: Any) -> ToolRequest:
    given = {"connection": "notes", "mission": "m1", "persona": "babs", "now": NOW, "size": 100, **fields}
    return ToolRequest(tool=tool, arguments=arguments or {"path": "notes/a.txt", "text": "hello"}, **given)


# --- the decision


def test_a_deny_goes_before_an_ask_and_an_ask_before_an_allow() -> None:
    allow, ask, deny = grant(ALLOW, id=1), grant(ASK, id=2), grant(DENY, "*", id=3)
    assert decide([allow], request()).verdict == ALLOW
    assert decide([allow, ask], request()).verdict == ASK
    found = decide([allow, ask, deny], request())
    assert found.verdict == DENY
    assert found.grant == deny.grant
    assert "grant 3 denies it: deny *" in found.reason
    assert decide([grant(id=7), grant(id=8)], request()).grant == grant(id=7).grant, "the first that fits"


def test_where_no_grant_fits_a_user_is_asked_reads_go_on_and_the_system_is_refused() -> None:
    assert decide([], request()).verdict == ASK
    assert decide([], request(READ)).verdict == ALLOW
    assert decide([], request(READ, origin=SYSTEM)).verdict == DENY
    assert decide([grant()], request(READ, origin=SYSTEM)).verdict == DENY, "the grant does not speak of the system's missions"
    assert decide([grant(system=True)], request(READ, origin=SYSTEM)).verdict == ALLOW
    assert decide([grant(system=True)], request(WRITE, origin=SYSTEM)).verdict == DENY, "they may only read"
    assert decide([grant(system=True), grant(ASK, id=2)], request(READ, origin=SYSTEM)).verdict == DENY, "nobody is there to be asked"


@pytest.mark.parametrize(
    ("narrower", "fields"),
    [
        ({"pattern": "notes.read"}, {}),
        ({"persona": "ana"}, {}),
        ({"mission": "m2"}, {}),
        ({"args": "path=other/*"}, {}),
        ({"until": NOW}, {}),
        ({"uses": 3, "used": 3}, {}),
        ({"bytes": 1000, "sent": 901}, {}),
        ({}, {"connection": "mail"}),
    ],
)
def test_a_grant_that_does_not_fit_does_not_count(narrower: dict[str, Any], fields: dict[str, Any]) -> None:
    assert decide([grant(**narrower)], request(**fields)).verdict == ASK
    assert decide([grant()], request()).verdict == ALLOW


def test_a_grant_counts_until_its_last_second_use_and_byte() -> None:
    fitting = grant(persona="babs", mission="m1", args="path=notes/*", until=NOW + 1, uses=3, used=2, bytes=1000, sent=900)
    assert decide([fitting], request()).verdict == ALLOW
    assert decide([fitting], request(now=NOW + 1)).verdict == ASK


# --- arguments


@pytest.mark.parametrize(
    ("constraints", "arguments", "allows"),
    [
        ("path=notes/*", {"path": "notes/sub/a.txt"}, True),
        ("path=notes/*", {"path": "notes/../secret"}, False),
        ("path=notes/*", {"path": "notes/%2e%2e/secret"}, False),
        ("path=notes/*", {}, False),
        ("to=*@example.org", {"to": ["a@example.org", "b@example.org"]}, True),
        ("to=*@example.org", {"to": ["a@example.org", "b@evil.org"]}, False),
        ("to=*@example.org", {"to": []}, False),
        ("to=*@example.org", {"to": "eve@evil.org, a@example.org"}, False),
        ("url=https://*.example.org/*", {"url": "https://docs.example.org/a/b?q=1"}, True),
        ("url=https://*.example.org/*", {"url": "https://evil.org/?q=.example.org/x"}, False),
        ("url=https://*.example.org/*", {"url": "https://evil.org\\.example.org/x"}, False),
        ("url=https://*.example.org/a/*", {"url": "https://evil.org/x.example.org/a/b"}, False),
        ("url=https://*.example.org*", {"url": "https://docs.example.org:8443/a"}, True),
        ("url=https://*", {"url": "https://docs.example.org/a"}, True),
        ("count=5", {"count": 5}, True),
        ('{"count": {"type": "integer", "maximum": 10}}', {"count": 10}, True),
        ('{"count": {"type": "integer", "maximum": 10}}', {"count": 11}, False),
        ('{"count": {"maximum": 10}}', {"count": "9"}, False),
        ('{"sure": {"const": true}}', {"sure": 1}, False),
        ('{"to": "a", "*": false}', {"to": "a"}, True),
        ('{"to": "a", "*": false}', {"to": "a", "bcc": "b"}, False),
        ('{"to": "a", "text": true, "*": false}', {"to": "a", "text": "b"}, True),
        ('{"tags": {"items": {"enum": ["x", "y"]}}}', {"tags": ["x", "z"]}, False),
    ],
)
def test_constraints_let_only_what_they_say(constraints: str, arguments: dict[str, Any], allows: bool) -> None:
    assert fits(parse_constraints(constraints), arguments, strict=True) is allows


@pytest.mark.parametrize("path", ["secret/a", "./secret/a", "x/../secret/a", "secret//a", "/secret/a", "%73ecret/a", ["b", "secret/a"]])
def test_a_deny_is_not_evaded_by_another_way_to_write_a_path(path: Any) -> None:
    assert fits(parse_constraints("path=secret/*"), {"path": path}, strict=False)


@pytest.mark.parametrize(
    ("constraints", "arguments"),
    [
        ("path=secret/*", {"path": "Secret/a"}),
        ("to=*@evil.org", {"to": "bob@EVIL.org"}),
        ("url=https://evil.org/*", {"url": "https://EVIL.org/x"}),
        ("url=https://Evil.org/*", {"url": "https://evil.org/x"}),
        ("url=https://evil.org/*", {"url": "HTTPS://evil.org:443/x"}),
        ("url=https://evil.org:443/*", {"url": "https://evil.org/x"}),
        ("url=https://b\u00fccher.example/*", {"url": "https://xn--bcher-kva.example/x"}),
        ("url=https://xn--bcher-kva.example/*", {"url": "https://B\u00dcCHER.example:443/x"}),
        ("url=http://93.184.216.34/*", {"url": "http://1572395042/x"}),
        ("url=http://93.184.216.34/*", {"url": "http://0x5d.0270.55330/x"}),
        ("url=https://evil.org/*", {"url": "https://evil.org./x"}),
        ("url=https://evil.org/*", {"url": "https://evil.org.:443"}),
        ("url=https://evil.org/*", {"url": "https://you@evil.org/x"}),
        ("url=https://evil.org/*", {"url": "https://\uff45vil.org/x"}),
        ("url=https://evil.org/secret/*", {"url": "https://evil.org/a/../secret/x?y=1"}),
        ("url=https://evil.org/secret/*", {"url": "https://evil.org//%73ecret"}),
        ('{"amount": {"minimum": 1000}}', {"amount": "5000"}),
        ('{"amount": {"minimum": 1000}}', {"amount": ["1", " 5e3 "]}),
        ('{"amount": 5}', {"amount": "5.0"}),
        ('{"amount": {"enum": ["5"]}}', {"amount": 5}),
        ('{"force": {"const": true}}', {"force": "True"}),
    ],
)
def test_a_deny_is_not_evaded_by_another_spelling(constraints: str, arguments: dict[str, Any]) -> None:
    assert fits(parse_constraints(constraints), arguments, strict=False)


def test_a_deny_fits_no_other_address_or_number() -> None:
    for constraints, arguments in (
        ("url=https://evil.org/*", {"url": "https://evil.org.uk/x"}), ("url=https://evil.org/*", {"url": "https://good.org/evil.org/"}),
        ("url=https://evil.org/secret/*", {"url": "https://evil.org/open"}), ('{"amount": {"minimum": 1000}}', {"amount": "5"}),
        ('{"amount": {"minimum": 1000}}', {"amount": "many"}), ('{"amount": 5}', {"amount": "6"}),
    ):  # fmt: skip
        assert not fits(parse_constraints(constraints), arguments, strict=False), arguments


def test_a_pattern_of_many_stars_is_matched_in_no_time() -> None:
    before = time.process_time()
    assert not glob("*a" * 50 + "b", "a" * 20_000)
    assert time.process_time() - before < 2.0
    assert glob("a*b*c", "axxbyyc")
    assert not glob("ab*ba", "aba")
    assert glob("*", "")
    assert not glob("", "a")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("path", "'path' is not of the form NAME=PATTERN"),
        ("a=1 a=2", "'a=2' appears twice"),
        ("a='1", "No closing quotation"),
        ("{broken", "not valid JSON"),
        ('{"a": {"pattern": "x"}}', "the keyword 'pattern'; allowed are const, enum"),
        ('{"a": {"type": "text"}}', "the type 'text'; allowed are string"),
        ('{"a": {"minimum": "x"}}', "allowed is a number"),
        ("a=" + "x" * 9000, "at most 8192"),
    ],
)
def test_constraints_that_cannot_be_applied_are_refused(wrong: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said.replace("(", r"\(")):
        parse_constraints(wrong)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verdict": "maybe"}, "allowed are deny, ask, allow"),
        ({"pattern": "no tes.*"}, "write CONNECTION.TOOL"),
        ({"verdict": DENY, "uses": 5}, "only an allow has 'uses'"),
        ({"verdict": ASK, "leaks": True}, "only an allow has 'leaks'"),
        ({"bytes": -1}, "0 \\(no limit\\) or more"),
    ],
)
def test_a_grant_that_contradicts_itself_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        grants.checked(GrantRecord(0, **{"verdict": ALLOW, "pattern": "notes.*", **fields}))


def test_times_and_limits_are_read_as_users_write_them() -> None:
    assert grants.parse_until("2h", NOW) == NOW + 7200
    assert grants.parse_until("2099-01-01T00:00:00Z", NOW) == 4_070_908_800.0
    assert grants.parse_daily("50/day", "uses") == 50
    assert grants.parse_daily("2 MiB/day", "bytes") == 2 << 20
    for wrong in ("yesterday", "1999-01-01", "0h"):
        with pytest.raises(InvalidInput, match="write a date"):
            grants.parse_until(wrong, NOW)
    for wrong in ("0", "-1", "5MiB", "many"):
        with pytest.raises(InvalidInput, match="whole number above 0"):
            grants.parse_daily(wrong, "uses")


def test_a_grant_is_shown_with_all_that_narrows_it() -> None:
    held = grant(args="path=notes/*", persona="babs", until=4_070_908_800.0, uses=50, used=5, leaks=True, origin="answer to mission m9")
    assert grants.describe(held) == (
        'allow notes.* with {"path":"notes/*"}, persona babs, until 2099-01-01T00:00:00Z, 5 of 50 uses today, leaks: allowed '
        "(answer to mission m9)"
    )
    assert grants.checked(GrantRecord(0, ALLOW, "notes")).pattern == "notes.*"


# --- three marks


def test_the_third_mark_asks_even_where_a_grant_allows() -> None:
    both = frozenset({UNTRUSTED, PRIVATE})
    assert not third_mark(frozenset({UNTRUSTED}), SEND)
    assert third_mark(both, SEND)
    assert third_mark(both | {OUTWARD}, SEND), "each outward call after it, too"
    assert not third_mark(both | {OUTWARD}, READ)
    allowed = decide([grant(pattern="notes.send")], request(SEND))
    assert allowed.verdict == ALLOW
    assert not allowed.leak
    found = decide([grant(pattern="notes.send")], request(SEND, marks=both))
    assert found.verdict == ASK
    assert found.leak
    assert "text of strangers" in found.reason
    assert decide([grant(pattern="notes.send", leaks=True)], request(SEND, marks=both)).verdict == ALLOW
    fetch = ToolDefinition(name="fetch", kind=READS)
    assert decide([], request(fetch, marks=frozenset({PRIVATE}))).verdict == ASK, "a request carries its address out"
    assert decide([grant(system=True)], request(fetch, marks=frozenset({PRIVATE}), origin=SYSTEM)).verdict == DENY


def test_marks_come_from_effects_and_from_what_was_recalled() -> None:
    tools = {"notes.read": READ, "mail.send": SEND}

    def done(tool: str, state: str = DONE) -> EffectRecord:
        return EffectRecord("k", tool, ACTS, "{}", 0, state, 0.0)

    assert grants.collected_marks([], tools.get, recalled=True) == {PRIVATE}
    assert grants.collected_marks([done("mail.send", FAILED)], tools.get, recalled=False) == {OUTWARD}
    assert grants.collected_marks([done("notes.read")], tools.get, recalled=False) == {UNTRUSTED, PRIVATE}
    assert grants.collected_marks([done("gone.tool")], tools.get, recalled=False) == grants.MARKS


# --- questions and answers


async def _send(_: Delivery) -> None: ...


def pending(arguments: dict[str, Any], *, tool: ToolDefinition = SEND, leak: bool = False, payload: str = "") -> PendingCall:
    call = ToolCall(connection="mail", tool=tool, arguments=arguments, send=_send, payload=payload)
    return PendingCall(call, Permission(ASK, None, "no grant covers it", leak))


def test_a_question_shows_the_payload_as_it_is_and_what_would_not_be_seen() -> None:
    text = question_text([pending({}, payload="POST /send\nto: a@b\n\u202eSay `once`\x1b[2J")], 2000)
    assert "  | POST /send\n  | to: a@b\n  | \\u{202e}Say `once`\\u{1b}[2J\n" in text
    assert text.splitlines()[0] == "May this mission do the following?"


def test_a_question_is_bounded_and_two_payloads_are_two_questions() -> None:
    texts = [question_text([pending({"to": "a", "text": "x" * 50_000 + end}) for end in ends], 2000) for ends in ("1", "2", "12345678")]
    assert len(set(texts)) == 3
    assert all(len(text) <= 2000 for text in texts[:2])
    assert "of 50021 characters, those in the middle are left out" in texts[0]
    middle = [question_text([pending({"text": "x" * 9000 + c + "x" * 9000})], 2000) for c in "ab"]
    assert middle[0] != middle[1]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("once", (ONCE, ONCE)),
        (" Yes. ", (ONCE, ONCE)),
        ("NEVER", (NEVER, NEVER)),
        ("no", (REFUSE, REFUSE)),
        ("for this mission", (MISSION, MISSION)),
        ("1 once, 2 no", (ONCE, REFUSE)),
        ("2: always; 1: y", (ONCE, ALWAYS)),
        ("Yes, always in this folder.", (ALWAYS, ALWAYS)),
        ("ok, just once", (ONCE, ONCE)),
        ("Sure - always", None),
        ("yes always as shown", (ALWAYS, ALWAYS)),
        ("no, never!", (NEVER, NEVER)),
        ("No, not now", (REFUSE, REFUSE)),
        ("1 yes, 2 no never", (ONCE, NEVER)),
        ("yes, never", None),
        ("no, always", None),
        ("yes, everything", None),
        ("always everywhere", None),
        ("1 once", None),
        ("1 once, 1 no", None),
        ("1 once, 2 no, 3 yes", None),
        ("maybe", None),
        ("", None),
    ],
)
def test_answers_are_read_as_users_write_them(said: str, read: tuple[str, ...] | None) -> None:
    assert read_answers(said, 2) == read


def test_always_keeps_where_it_goes_and_lets_the_words_vary() -> None:
    made = grant_for(ALWAYS, pending({"to": "ana@example.org", "subject": "Hi", "file_path": "out/a.pdf", "count": 2}), "m1")
    assert made is not None
    assert made.pattern == "mail.send"
    assert not made.mission
    assert not made.leaks
    assert json.loads(made.args) == {
        "to": {"const": "ana@example.org"}, "subject": {"type": "string"}, "file_path": "out/*", "count": {"const": 2}, "*": False,
    }  # fmt: skip
    again = {"to": "ana@example.org", "subject": "Bye", "file_path": "out/b.pdf", "count": 2}
    assert fits(made.args, again, strict=True)
    for other in ({"to": "eve@example.org"}, {"file_path": "out/../a"}, {"bcc": "eve@example.org"}, {"count": 3}, {"subject": ["a"]}):
        assert not fits(made.args, {**again, **other}, strict=True)
    for path in ("/passwd", "a.txt", "x/../b/a.txt"):
        assert json.loads(grant_questions.narrowed({"path": path}))["path"] == {"const": path}


def test_each_answer_makes_its_grant() -> None:
    call = pending({"to": "ana"})
    assert grant_for(ONCE, call, "m1") is None
    assert grant_for(REFUSE, call, "m1") is None
    assert grant_for(NEVER, call, "m1") == GrantRecord(0, DENY, "mail.send", origin="answer to mission m1")
    assert grant_for(MISSION, call, "m1") == GrantRecord(0, ALLOW, "mail.send", mission="m1", origin="answer to mission m1")
    leaking = grant_for(MISSION, pending({"to": "ana"}, leak=True), "m1")
    assert leaking is not None
    assert leaking.leaks
    assert not fits(leaking.args, {"to": "eve"}, strict=True)
    assert grant_for(ALWAYS, pending({"to": "x" * 9000}), "m1") is None


# --- in the image


@pytest.fixture
async def image(tmp_path: Path) -> Any:
    opened = await LivingImage.open(f"file://{tmp_path / 'image.fs'}")
    yield opened
    await opened.close()


async def test_grants_last_are_numbered_once_and_say_the_same_once(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / 'image.fs'}"
    image = await LivingImage.open(uri)
    assert image.read(kept.all_grants, NOW) == []
    first = await image.system(kept.add, GrantRecord(0, ALLOW, "notes.*", uses=2), NOW)
    assert (await image.system(kept.add, GrantRecord(0, ALLOW, "notes.*", uses=2), NOW + 5)) == first
    await image.system(kept.add, GrantRecord(0, DENY, "mail.*"), NOW)
    assert (await image.system(kept.remove, 2)).pattern == "mail.*"
    assert await image.system(kept.spend, 1, 10, NOW)
    await image.close()
    image = await LivingImage.open(uri)
    assert image.read(kept.all_grants, NOW) == [(first, GrantUse(20_000, 1, 10))]
    assert (await image.system(kept.add, GrantRecord(0, ASK, "mail.*"), NOW)).id == 3
    with pytest.raises(InvalidInput, match="the grant 2 is not there; there are 2, the last of them: 1, 3"):
        await image.system(kept.remove, 2)
    await image.close()


async def test_the_last_use_is_spent_once_and_a_new_day_brings_new_ones(image: LivingImage) -> None:
    await image.system(kept.add, GrantRecord(0, ALLOW, "notes.*", uses=2, bytes=100), NOW)
    assert await image.system(kept.spend, 1, 60, NOW)
    assert not await image.system(kept.spend, 1, 60, NOW), "too many bytes"
    assert await image.system(kept.spend, 1, 40, NOW)
    assert not await image.system(kept.spend, 1, 0, NOW), "too many uses"
    assert not await image.system(kept.spend, 1, 0, NOW - DAY), "a clock that was set back brings no new ones"
    assert await image.system(kept.spend, 1, 0, NOW + DAY)
    assert image.read(kept.all_grants, NOW + DAY)[0].use == GrantUse(20_001, 1, 0)
    assert not await image.system(kept.spend, 9, 0, NOW), "it was removed meanwhile"


async def test_the_table_is_bounded(image: LivingImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_GRANTS", 3)
    await image.system(ledger.accept, "m1", "brief", {}, False)
    await image.system(kept.add, GrantRecord(0, ALLOW, "a.*", mission="m1"), NOW)
    await image.system(kept.add, GrantRecord(0, ALLOW, "b.*", until=NOW + 5), NOW)
    await image.system(kept.add, GrantRecord(0, ALLOW, "c.*"), NOW)
    with pytest.raises(InvalidInput, match="which is the most"):
        await image.system(kept.add, GrantRecord(0, ALLOW, "d.*"), NOW)
    await image.system(kept.add, GrantRecord(0, ALLOW, "d.*"), NOW + 5)
    assert [one.grant.pattern for one in image.read(kept.all_grants, NOW)] == ["a.*", "c.*", "d.*"], "what expired made room"
    await image.system(ledger.fail, "m1", {"code": "x", "message": "y"}, {}, True)
    await image.system(kept.add, GrantRecord(0, ALLOW, "e.*"), NOW + 5)
    assert [one.grant.pattern for one in image.read(kept.all_grants, NOW)] == ["c.*", "d.*", "e.*"], "what was for an ended mission went"
