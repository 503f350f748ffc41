"""The verbs of tools: what each asks the daemon, and what it refuses before that."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from batos.cli import main
from tests.support.cli import Script, batos

TOOL = {"name": "post", "class": "acts", "verdict": "ask", "line": "post(path): Sends."}
SHOP: dict[str, Any] = {
    "name": "shop", "kind": "http", "place": "https://shop.example", "suspended": [], "open": False, "missing": [], "tools": [TOOL],
}  # fmt: skip
WHOLE = {**SHOP, "options": {}, "changes": "", "tools": [{**TOOL, "description": "Sends.", "parameters": {"type": "object"}}]}


def told(*connections: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "tools", "connections": list(connections), "tied": "", "in_doubt": 0, **more}


def effect(**more: Any) -> dict[str, Any]:
    return {
        "mission": "m", "key": "5f3a9c01" * 4, "tool": "shop.post", "class": "acts", "state": "IN_DOUBT", "arguments": {"sku": "tea"},
        "at": 1.7e9, "ended": None, "grant": "grant 3 (user)", "attempts": 1, "why": "the system stopped", **more,
    }  # fmt: skip


def added(*words: str) -> Any:
    code, [asked] = batos({"tool_add": told(WHOLE)}, "tools", "add", "shop", *words)
    assert code == 0
    return asked


@pytest.mark.parametrize(
    ("words", "kind", "place", "options"),
    [
        (["--http", "https://shop.example"], "http", "https://shop.example", {}),
        (["--mcp", "https://a.example/mcp"], "mcp", "https://a.example/mcp", {}),
        (["--openapi", "https://a.example/api.json", "--server", "https://b.example"], "openapi", "https://a.example/api.json",
         {"server": "https://b.example"}),
        (["--web"], "web", "", {}),
        (["--web", "--search", "https://search.example"], "web", "", {"search": "https://search.example"}),
        (["--folder", "/srv/notes:rw"], "folder", "/srv/notes", {"writable": True}),
        (["--folder", "/srv/notes"], "folder", "/srv/notes", {}),
        (["--http", "https://a.example", "--header", "Authorization: Bearer {secret:SHOP}", "--header", "Accept: text/plain",
          "--class", "post=keyed", "--undo", "post=delete", "--look", "post=get", "--key-header", "Idempotency-Key", "--seconds", "5"],
         "http", "https://a.example",
         {"headers": {"Authorization": "Bearer {secret:SHOP}", "Accept": "text/plain"}, "classes": {"post": "keyed"},
          "undo": {"post": "delete"}, "look": {"post": "get"}, "key_header": "Idempotency-Key", "seconds": 5.0}),
        (["--mcp", "https://a.example", "--trust", "--class", "pay=keyed", "--key", "pay=id", "--class", "see=reads"], "mcp",
         "https://a.example", {"trust": True, "classes": {"pay": {"class": "keyed", "key": "id"}, "see": "reads"}}),
        (["--http", "https://a.example", "--option", 'query={"lang": "en"}'], "http", "https://a.example", {"query": {"lang": "en"}}),
    ],
)  # fmt: skip
def test_a_connection_is_added_as_it_was_said(words: list[str], kind: str, place: str, options: dict[str, Any]) -> None:
    asked = added(*words)
    assert (asked.name, asked.kind, asked.place, asked.options) == ("shop", kind, place, options)


def test_a_program_is_found_on_the_path_when_it_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert added("--program", "'my tool' --size {size} 'a b'").place == f"'{program}' --size '{{size}}' 'a b'"
    assert added("--mcp", f"{sys.executable} -m server", "--env", "LANG=C").place == f"{sys.executable} -m server"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "x"], "a connection has one place"),
        (["add"], "one of your choice, such as: batos tools add notes --folder"),
        (["add", "x", "--web", "--folder", "/tmp"], "these are 2"),
        (["add", "x", "--mcp", "no-such-program-here serve"], "'no-such-program-here' is not there"),
        (["add", "x", "--mcp", "'open"], "is not valid"),
        (["add", "x", "--folder", "/tmp", "--trust"], "--trust does not go with --folder"),
        (["add", "x", "--http", "https://a", "--header", "Authorization: Bearer abc"], "batos secrets set NAME"),
        (["add", "x", "--mcp", sys.executable, "--env", "API_TOKEN=abc"], "looks like a secret"),
        (["add", "x", "--http", "https://a", "--header", "no colon"], "--header takes NAME:VALUE"),
        (["add", "x", "--http", "https://a", "--header", "A: 1", "--header", "A: 2"], "given twice"),
        (["add", "x", "--http", "https://a", "--class", "post=keyd"], "did you mean 'keyed'"),
        (["add"], "takes a NAME"),
        (["ad", "x"], "none of add"),
        (["call", "shop"], "CONNECTION.TOOL"),
        (["call", "shop.post", "[1]"], "a JSON object"),
        (["call", "shop.post", "{"], "not JSON"),
        (["show", "shop", "--web"], "only `tools add NAME` takes a place"),
    ],
)  # fmt: skip
def test_wrong_words_are_refused_before_a_daemon_is_asked(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, requests = batos({}, "tools", *words)
    assert (code, requests) == (2, [])
    assert says in " ".join(capsys.readouterr().err.split())


def test_the_list_has_one_line_a_connection(capsys: pytest.CaptureFixture[str]) -> None:
    lacking, changed = {**SHOP, "name": "b", "missing": ["SHOP"]}, {**SHOP, "name": "c", "suspended": ["get"]}
    assert batos({"tools": told(SHOP, lacking, changed, in_doubt=2, tied="a fork")}, "tools")[0] == 0
    captured = capsys.readouterr()
    _, first, second, third = captured.out.splitlines()
    assert first.split() == ["shop", "http", "https://shop.example", "1", "ready", "1", "ask"]
    assert "lacks the secret SHOP" in second
    assert " changed " in third
    assert "effects that have not ended: 2" in captured.err
    assert "nothing may act now: a fork" in captured.err


@pytest.mark.parametrize(
    ("sends", "words"),
    [
        ({"method": "POST", "path": "/orders/{id}", "server": "https://a.example"}, "POST https://a.example/orders/{id}"),
        ({"method": "POST", "path": "/orders"}, "POST /orders"),
        ({"method": "tools/call"}, "tools/call"),
        ({"argv": ["git", "log", "a b"]}, "git log 'a b'"),
    ],
)
def test_a_tool_whole_shows_what_it_sends_and_how_it_answers(sends: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    tool = {**WHOLE["tools"][0], **sends, "message": "post_", "result": {"type": "object", "title": "Receipt"}}
    reply = told({**WHOLE, "tools": [tool]})
    assert batos({"tools": reply}, "tools", "show", "shop.post_")[0] == 0
    shown = capsys.readouterr().out
    assert [line.split(None, 1) for line in shown.splitlines() if line.startswith(("message", "request"))] == [
        ["message", "post_"], ["request", words],
    ]  # fmt: skip
    assert '"title": "Receipt"' in shown[shown.index("answer") :]
    assert batos({"tools": reply}, "tools", "show", "shop.post_", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out)["connections"][0]["tools"] == [tool]


def test_a_test_shows_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({"tool_test": told({**WHOLE, "changes": "-old\n+new"})}, "tools", "test", "shop")[0] == 0
    captured = capsys.readouterr()
    assert "-old\n+new" in captured.out
    assert "batos tools accept shop" in captured.err


def called(**event: Any) -> Script:
    return {"send": {"type": "accepted", "state": "ACCEPTED"}, "watch": [{"type": "status", "state": "ACCEPTED"}, event]}


def test_a_call_by_hand_is_a_message_to_the_connection(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    done = called(type="result", state="COMPLETE", result={"value": {"status": 201}})
    code, requests = batos(done, "tools", "call", "shop.a.b", '{"sku": "tea"}')
    assert (code, requests[0].target, requests[0].selector, requests[0].args) == (0, "tools.shop", "call_", ["a.b", {"sku": "tea"}])
    assert json.loads(capsys.readouterr().out) == {"status": 201}
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"sku": "rice"}'))
    assert batos(done, "tools", "call", "shop.post", "-")[1][0].args == ["post", {"sku": "rice"}]


def test_a_call_that_fails_or_asks_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    failed = called(type="result", state="FAILED", error={"code": "tool_failed", "message": "it is sold out", "context": {}})
    assert batos(failed, "tools", "call", "shop.post")[0] == 1
    assert "tool_failed: it is sold out" in capsys.readouterr().err
    asks = called(type="needs_input", state="NEEDS_INPUT", question="Did it happen?", number=1)
    assert batos(asks, "tools", "call", "shop.post")[0] == 0
    captured = capsys.readouterr()
    assert "Did it happen?" in captured.out
    assert "batos answer" in captured.err


def test_grants_are_given_listed_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "number": 3,
        "verdict": "allow",
        "pattern": "shop.*",
        "created": 1.7e9,
        "text": "allow shop.*, 1 of 5 uses today",
        "expired": True,
    }
    grants = {"type": "tool_grants", "grants": [row]}
    words = ("--uses", "5/day", "--bytes", "2KiB/day", "--args", "path=notes/* x", "--args", "n=1", "--until", "7d", "--leaks")
    code, [asked] = batos({"tool_grant": grants}, "allow", "shop.*", *words)
    assert (code, asked.verdict, asked.uses, asked.bytes, asked.until, asked.leaks) == (0, "allow", 5, 2048, "7d", True)
    assert asked.args == "path='notes/* x' n=1"
    for verdict in ("ask", "deny"):
        assert batos({"tool_grant": grants}, verdict, "shop.*", "--persona", "robin")[1][0].verdict == verdict
    capsys.readouterr()
    assert batos({"tool_grants": grants}, "grants")[0] == 0
    assert "shop.*, 1 of 5 uses today; has expired" in capsys.readouterr().out
    assert batos({"tool_ungrant": {**grants, "grants": []}}, "grants", "remove", "3")[1][0].number == 3
    assert batos({}, "grants", "remove")[0] == 2
    assert batos({}, "allow", "shop.*", "--uses", "none")[0] == 4


def test_a_grant_for_what_nothing_has_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"number": 3, "verdict": "deny", "pattern": "shop.pst", "created": 1.7e9, "text": "deny shop.pst", "expired": False}
    reply = {"type": "tool_grants", "grants": [row], "hints": ["no connection has a tool 'shop.pst' now (did you mean 'shop.post'?)"]}
    assert batos({"tool_grant": reply}, "deny", "shop.pst")[0] == 0
    captured = capsys.readouterr()
    assert captured.out == "grant 3: deny shop.pst\n"
    assert "did you mean 'shop.post'?" in captured.err
    assert "batos grants remove 3" in captured.err


def hints_of(capsys: pytest.CaptureFixture[str], *tools: dict[str, Any], **more: Any) -> tuple[str, str]:
    listed = [{**WHOLE["tools"][0], "line": "", **tool} for tool in tools]
    capsys.readouterr()
    batos({"tool_add": told({**WHOLE, "tools": listed, **more})}, "tools", "add", "shop", "--mcp", "https://a.example")
    captured = capsys.readouterr()
    return captured.out.splitlines()[0], " ".join(captured.err.split())


def test_what_was_added_says_what_asks_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    reads = {"name": "get", "class": "reads", "verdict": "allow"}
    assert hints_of(capsys, reads) == ("shop is added, with 1 tool", "")
    first, hint = hints_of(capsys, reads, {"name": "post"})
    assert first == "shop is added, with 2 tools"
    assert hint == "what acts asks first; `batos allow shop.post` lets that one"


def test_what_was_added_says_what_its_place_lacks_and_needs(capsys: pytest.CaptureFixture[str]) -> None:
    notes = ["2 of 9 operations are left out: POST /a: its body is text/csv", "7 of 7 operations ask for a secret: k, given by --header"]
    code, _ = batos({"tool_add": told({**WHOLE, "notes": notes})}, "tools", "add", "shop", "--http", "https://shop.example")
    assert code == 0
    said = capsys.readouterr()
    for note in notes:
        assert note in " ".join((said.out + said.err).split())


def test_a_server_that_says_it_only_reads_may_be_trusted(capsys: pytest.CaptureFixture[str]) -> None:
    claims = {"class": "acts", "verdict": "ask", "says_reads": True}
    hint = hints_of(capsys, {"name": "now", **claims}, {"name": "then", **claims})[1]
    assert "the server says that all its tools only read" in hint
    assert "--trust, or with --class now=reads --class then=reads" in hint
    hint = hints_of(capsys, {"name": "now", **claims}, {"name": "set"})[1]
    assert "1 of its 2 tools only read" in hint
    assert "--trust" not in hints_of(capsys, {"name": "set"})[1]


def test_private_tools_that_reach_outside_say_that_they_ask_also_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    marks = {"untrusted": True, "private": True, "outward": True}
    hint = hints_of(capsys, {"name": "get", "class": "reads", "verdict": "ask", **marks})[1]
    assert "they ask first, also to read" in hint
    assert "`batos allow shop.get --leaks`" in hint


def test_what_is_under_way_says_when_its_mission_asks(capsys: pytest.CaptureFixture[str]) -> None:
    reply = {"type": "effects", "effects": [effect(state="INTENDED")]}
    assert batos({"effects": reply}, "effects", "--doubt")[0] == 0
    assert "INTENDED is under way, or was cut off" in " ".join(capsys.readouterr().err.split())


def test_effects_are_listed_and_settled(capsys: pytest.CaptureFixture[str]) -> None:
    reply = {"type": "effects", "effects": [effect()]}
    code, [asked] = batos({"effects": reply}, "effects", "--doubt", "--limit", "9")
    assert (code, asked.doubt, asked.limit, asked.of_mission) == (0, True, 9, None)
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].split()[:3] == ["5f3a9c01", "IN_DOUBT", "shop.post"]
    assert "batos effects settle 5f3a9c01 --happened | --again | --leave" in captured.err
    code, [asked] = batos({"effects": reply}, "effects", "m")
    assert asked.of_mission == "m"
    assert "by leave of  grant 3 (user)" in capsys.readouterr().out
    for how in ("happened", "again", "leave"):
        code, [asked] = batos({"effect_settle": reply}, "effects", "settle", "5f3a9c01", f"--{how}")
        assert (code, asked.key, asked.how) == (0, "5f3a9c01", how)
    for wrong in (["settle", "5f3a"], ["settle", "--leave"], ["settle", "5f3a", "--leave", "--again"], ["m", "--leave"]):
        assert batos({}, "effects", *wrong)[0] == 2


def test_secrets_are_kept_without_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("s3cret\n"))
    assert main(["secrets", "set", "SHOP", "--data", str(tmp_path)]) == 0
    assert main(["secrets", "list", "--data", str(tmp_path), "--json"]) == 0
    out = capsys.readouterr().out
    assert "s3cret" not in out
    assert "{secret:SHOP}" in out
    assert '"name": "SHOP"' in out
    assert main(["secrets", "remove", "SHOP", "--data", str(tmp_path)]) == 0
    assert main(["secrets", "remove", "SHOP", "--data", str(tmp_path)]) == 4
    assert main(["secrets", "set", "--data", str(tmp_path)]) == 2
    assert main(["secrets", "list", "SHOP", "--data", str(tmp_path)]) == 2


BRAVE = {"name": "brave", "line": "searches", "kind": "web", "place": "", "options": {}, "origin": "listed"}
OFFERS = {"type": "tool_offers", "offers": [BRAVE]}


def test_a_place_is_listed_with_a_line_and_taken_off_the_list() -> None:
    code, [asked] = batos({"tool_offer": OFFERS}, "tools", "offer", "brave", "--web", "--line", "searches")
    assert (code, asked.name, asked.line, asked.kind) == (0, "brave", "searches", "web")
    assert batos({"tool_offers": OFFERS}, "tools", "offers")[0] == 0
    code, [asked] = batos({"tool_withdraw": OFFERS}, "tools", "withdraw", "brave")
    assert (code, asked.name) == (0, "brave")


@pytest.mark.parametrize(
    "words", ["offer brave --web", "add brave --web --line searches", "offers brave", "withdraw", "offer brave --line searches"]
)
def test_words_that_list_no_place_are_refused(words: str) -> None:
    code, asked = batos({}, "tools", *words.split())
    assert (code, asked) == (2, [])


# --- operations that a form describes


FORM = {
    "operations": [{"name": "run", "line": "Count.", "argv": ["--lines", "{lines}"], "parameters": [{"name": "lines", "type": "boolean"}]}]
}
READ = {"type": "tool_description", "kind": "usage", "by": "rule", "form": FORM, "text": "", "notes": ["-x is left out"]}
UNREAD = {**READ, "by": "", "form": None, "text": "Odd words.", "notes": ["it has no line `usage`"]}


def described(said: Any) -> Any:
    """A daemon that reads a description so, and whose model fills the form so."""
    accepted = {"type": "accepted", "state": "ACCEPTED"}
    filled = {"type": "result", "state": "COMPLETE", "result": {"value": said}} if "form" in said else said
    return {"tool_describe": READ if said is READ else UNREAD, "send": accepted, "result": filled, "tool_add": told(WHOLE)}


def test_what_is_read_by_rule_is_shown_and_added_with_yes(capsys: pytest.CaptureFixture[str]) -> None:
    code, [asked, added_] = batos(described(READ), "tools", "add", "count", "--help-of", sys.executable, "--yes")
    assert code == 0
    assert (asked.kind, asked.source) == ("usage", sys.executable)
    assert (added_.kind, added_.place, added_.options) == ("program", sys.executable, {"form": FORM})
    said = capsys.readouterr()
    assert "1 operation of" in said.out
    assert "--lines {lines}" in said.out
    assert "-x is left out" in said.err


@pytest.mark.parametrize("yes", [True, False])
def test_what_a_model_filled_is_never_added_without_being_seen(yes: bool, capsys: pytest.CaptureFixture[str]) -> None:
    filled = {"kind": "program", "form": FORM, "left_out": ["steal: its path is not valid"]}
    code, asked = batos(described(filled), "tools", "add", "count", "--help-of", sys.executable, *(["--yes"] if yes else []))
    assert code == 2
    assert [one.op for one in asked if one.op != "result"] == ["tool_describe", "send"]
    assert (asked[1].target, asked[1].selector, asked[1].args) == ("tools", "describe_", ["program", "Odd words."])
    said = capsys.readouterr()
    assert "read by a model" in said.out
    assert "steal: its path is not valid" in said.err
    assert "--write-form" in said.err


def test_a_user_who_is_asked_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = {"kind": "http", "form": {"operations": [{"name": "a", "method": "GET", "path": "/a"}]}, "left_out": []}
    for answer, code, added_ in (("y\n", 0, True), ("n\n", 1, False)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        found, asked = batos(
            described(filled), "tools", "add", "shop", "--http", "https://shop.example", "--described-by", "https://a.example/d"
        )
        assert (found != 0) == (code != 0)
        assert ("tool_add" in [one.op for one in asked]) is added_
        assert asked[0].source == "https://a.example/d"


def test_a_form_is_written_to_a_file_edited_and_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "count.json"
    code, asked = batos(described(READ), "tools", "add", "count", "--help-of", sys.executable, "--write-form", str(file))
    assert (code, [one.op for one in asked]) == (0, ["tool_describe"])
    assert json.loads(file.read_text()) == FORM
    assert f"--form {file}" in capsys.readouterr().out
    code, asked = batos(described(READ), "tools", "add", "count", "--help-of", sys.executable, "--write-form", str(file))
    assert code == 2
    assert "there already" in capsys.readouterr().err
    code, [added_] = batos(described(READ), "tools", "add", "count", "--program", sys.executable, "--form", str(file))
    assert (code, added_.options) == (0, {"form": FORM})


def test_where_nobody_could_fill_the_form_an_example_is_written_and_the_reason_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = {"kind": "http", "form": {"operations": []}, "left_out": ["the model filled no form: it was not JSON"]}
    words = ["tools", "add", "shop", "--http", "https://shop.example", "--described-by", str(tmp_path / "shop.md")]
    code, _ = batos(described(nothing), *words)
    said = capsys.readouterr().err
    assert code == 2
    assert "the model filled no form" in said
    assert "--write-form" in said
    code, _ = batos(described(nothing), *words, "--write-form", str(tmp_path / "shop.json"))
    assert code == 0
    assert json.loads((tmp_path / "shop.json").read_text())["operations"][0]["path"] == "/orders/{shop}"
    assert "an example" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--http", "https://a.example", "--described-by", "x.md", "--form", "f.json"], "described once"),
        (["--folder", "/x", "--form", "f.json"], "does not go with --folder"),
        (["--http", "https://a.example", "--yes"], "goes with --help-of or --described-by"),
        (["--http", "https://a.example", "--write-form", "f.json"], "goes with --help-of or --described-by"),
        (["--program", sys.executable, "--form", "/gone.json"], "cannot be read"),
        (["--program", sys.executable, "--form", __file__], "is not JSON"),
        (["--help-of", "no-such-program-here"], "is not there"),
    ],
)
def test_a_form_that_cannot_be_had_is_refused_before_the_daemon_is_asked(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, asked = batos({}, "tools", "add", "x", *words)
    assert (code, asked) == (2, [])
    assert said in " ".join(capsys.readouterr().err.split())
