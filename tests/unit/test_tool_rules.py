"""The guardian's rules for methods that call tools, and the reach that it finds."""

from __future__ import annotations

import pytest

from batos.guardian import PersistenceGuardian, Verdict
from batos.guardian.policy import READS, ReachableTool
from batos.image.effects import READS as EFFECT_READS
from batos.methods import reach
from batos.objects import Method
from batos.tools import connections
from batos.tools.definitions import ConnectionSpec, ToolDefinition
from tests.support.guardian_cases import blocks


def tool(name: str, kind: str, *parameters: str, places: tuple[str, ...] = ()) -> ReachableTool:
    return ReachableTool(name, kind, parameters, frozenset(places))


FOLDER = ("path", "to")
TOOLS = {
    "shop": {
        "list_orders": tool("shop.list_orders", "reads", "page"),
        "show": tool("shop.show", "reads", "order"),
        "cancel": tool("shop.cancel", "acts", "order"),
        "order": tool("shop.order", "keyed", "sku", "n"),
    },
    "notes": {
        "list": tool("notes.list", "reads", "path", places=FOLDER),
        "read": tool("notes.read", "reads", "path", places=FOLDER),
        "write": tool("notes.write", "idempotent", "path", "text", places=FOLDER),
        "move": tool("notes.move", "verifiable", "path", "to", places=FOLDER),
    },
    "mail": {"list": tool("mail.list", "reads"), "send": tool("mail.send", "acts", "text")._replace(denied=True)},
    "bank": {"pay": tool("bank.pay", "acts", "sum")._replace(denied=True)},
    "web": {"fetch": tool("web.fetch", "reads", "url", places=("url",)), "search": tool("web.search", "reads", "query", places=("url",))},
}


def audit(source: str, policy: str = "default+tools") -> Verdict:
    return PersistenceGuardian().audit(source, "m", policy, tools=TOOLS)


@pytest.mark.parametrize(("head", "source"), blocks("guardian_tools_refused.txt"), ids=lambda text: text if "\n" not in text else "")
def test_refused(head: str, source: str) -> None:
    errors = audit(source).errors
    assert {finding.rule for finding in errors} >= {head.split()[0]}, errors
    assert all(finding.hint and finding.line for finding in errors)


@pytest.mark.parametrize(("head", "source"), blocks("guardian_tools_accepted.txt"), ids=lambda text: text if "\n" not in text else "")
def test_accepted(head: str, source: str) -> None:
    assert audit(source).findings == ()


def test_a_finding_names_the_tool_its_class_and_what_repeats_it() -> None:
    (finding,) = audit("def m(self, ids):\n    for one in ids:\n        self.tools.shop.order(one, 1)\n").errors
    assert (finding.line, finding.reason) == (3, "shop.order (keyed) is called in a loop whose rounds no literal bounds")
    (finding,) = audit("def m(self, n):\n    while n:\n        n -= 1\n        self.tools.shop.cancel(n)\n").errors
    assert finding.reason == "shop.cancel (acts) is called in a `while` loop"
    source = "def m(self, url):\n    page = self.tools.web.fetch(url)\n    self.tools.notes.write(path=page['title'], text='x')\n"
    (finding,) = audit(source).errors
    assert (finding.line, finding.reason) == (3, "the argument 'path' of notes.write is made of what web answered")


def test_a_tool_that_its_user_denies_is_neither_granted_nor_offered_in_its_place() -> None:
    (finding,) = audit("def m(self):\n    return self.tools.mail.send('x')\n").errors
    assert (finding.rule, finding.line) == ("tools", 2)
    assert finding.reason == "'send' of mail is not granted: its user denies each call of it"
    assert finding.hint.endswith("Its tools are: list.")
    (finding,) = audit("def m(self):\n    return self.tools.mail.sent('x')\n").errors
    assert finding.reason == "'sent' is not a tool of mail"
    (finding,) = audit("def m(self):\n    return self.tools.bank.pay(1)\n").errors
    assert finding.hint.endswith("Its tools are: none.")


def test_where_tools_are_not_known_a_loop_is_a_warning() -> None:
    source = "def m(self, ids):\n    for one in ids:\n        self.tools.shop.cancel(one)\n"
    verdict = PersistenceGuardian().audit(source, "m", "default+tools")
    assert verdict.accepted
    assert [(finding.rule, finding.severity) for finding in verdict.findings] == [("tool-loop", "warning")]
    assert verdict.contract["reaches"] == ("shop.cancel",)


def test_the_contract_names_each_tool_with_its_class_also_where_no_path_leads() -> None:
    source = (
        "def m(self, order):\n    if order:\n        return self.tools.shop.call_('cancel', {'order': order})\n    def never():\n"
        "        return self.tools.notes.read(path='a')\n    return self.tools.shop.show(order), self.tools.shop.show(2)\n"
    )
    verdict = audit(source)
    assert verdict.contract["reaches"] == ("notes.read=reads", "shop.cancel=acts", "shop.show=reads")
    assert verdict.to_wire()["contract"]["reaches"] == ["notes.read=reads", "shop.cancel=acts", "shop.show=reads"]
    assert audit("def m(self):\n    return 1\n").contract["reaches"] == ()


def test_own_slots_of_that_name_are_free_where_no_tools_are_granted() -> None:
    for source in (
        "def m(self):\n    found = self.tools\n    return [one.upper() for one in found]\n",
        "def m(self, peer):\n    return peer.tools.copy()\n",
        "def m(self):\n    return getattr(self, 'tools', [])\n",
    ):
        assert audit(source, "default").findings == ()
        assert not audit(source).accepted


def test_a_write_is_found_as_before_where_origins_are_stored() -> None:
    source = (
        "def m(self):\n    rows = self.tools.shop.list_orders()\n    self.rows = rows\n    self._p_changed = True\n"
        "    more = self.tools.shop.list_orders()\n    more.append(1)\n    return more\n"
    )
    assert [finding.rule for finding in audit(source).errors] == ["covenant-order"], "`more` is not the slot's: nothing is unflagged"
    assert audit(source).contract["writes"] == ("rows",)


# --- from connections, and between versions


def test_the_tools_of_connections_have_their_classes_parameters_and_places() -> None:
    schema = {"type": "object", "properties": {"path": {}, "from": {}}}
    tools = (ToolDefinition(name="read-it", kind=EFFECT_READS, parameters=schema), ToolDefinition(name="write"))
    held = connections.PinnedConnection(ConnectionSpec("my-notes", "folder", "/x"), tools)
    assert connections.reachable({"my-notes": held}) == {
        alias: {
            "read-it": ReachableTool("my-notes.read-it", READS, ("path", "from_"), frozenset({"path", "to"})),
            "read_it": ReachableTool("my-notes.read-it", READS, ("path", "from_"), frozenset({"path", "to"})),
            "write": ReachableTool("my-notes.write", "acts", (), frozenset({"path", "to"})),
        }
        for alias in ("my-notes", "my_notes")
    }


def method(*reaches: str) -> Method:
    return Method("m", "def m(self):\n    return 1\n", contract={"reaches": reaches})


def test_growth_is_another_tool_or_one_that_only_read() -> None:
    before = method("shop.show=reads", "shop.cancel=acts")
    assert reach.growth(before, ("shop.cancel=keyed", "shop.show=reads")) == []
    assert reach.growth(before, ()) == []
    assert reach.growth(before, ("shop.show=acts", "shop.order=keyed")) == ["shop.order (keyed)", "shop.show (acts)"]
    assert reach.growth(method(), ("shop.show=reads",)) == ["shop.show (reads)"]


def test_a_call_outside_of_the_contract_has_a_reason() -> None:
    one = method("shop.show=reads", "shop.cancel=acts")
    assert reach.fault_of_call(one, "shop.show", "reads") == ""
    assert reach.fault_of_call(one, "shop.cancel", "keyed") == ""
    assert reach.fault_of_call(one, "shop.order", "reads") == "the contract of the method 'm' reaches shop.show, shop.cancel"
    assert "only read, and its class is acts now" in reach.fault_of_call(one, "shop.show", "acts")
    assert reach.fault_of_call(method(), "shop.show", "reads") == "the contract of the method 'm' reaches no tool"
    before_reach = Method("m", "def m(self):\n    return 1\n", contract={"reads": ()})
    assert reach.fault_of_call(before_reach, "shop.show", "acts") == "", "its contract does not say"


# --- plans: answers are sealed


HEAD = "def m(self, url):\n    page = self.tools.web.fetch(url='https://a.example')\n"


@pytest.mark.parametrize(
    "body",
    [
        "self.tools.web.fetch(url=page['next'])",
        "self.tools.web.fetch(page)",
        "self.tools.web.fetch(url=f'https://a.example/{page}')",
        "self.tools.web.call_('fetch', {'url': page['next']})",
        "self.tools.notes.write(path=self.think_('Where?', page), text='x')",
        "self.tools.notes.write(path=page['text'].lines_()[0], text='x')",
        "[self.tools.web.fetch(url=one) for one in page['links']]",
        "self.tools.notes.read(path=self.tools.notes.list(path='')['files'][0])",
    ],
)
def test_a_plan_s_places_are_made_of_no_answer(body: str) -> None:
    assert "sealed" in {finding.rule for finding in audit(f"{HEAD}    return {body}\n", "default+sealed+tools").errors}


@pytest.mark.parametrize(
    "body",
    [
        "self.tools.notes.write(path='a.txt', text=page['text'])",
        "self.tools.notes.write(path=f\"{page['text'].number_in_('year')}.md\", text='x')",
        "self.tools.notes.write(path=page['text'].one_of_(['a.txt', 'b.txt']), text='x')",
        "self.tools.web.fetch(url=url)",
        "self.tools.web.search(query=page['text'])",
        "[self.tools.notes.write(path='a.txt', text=one) for one in page['rows'][:3]]",
        "self.think_('Summarise it.', page['text'])",
    ],
)
def test_a_plan_hands_texts_on_and_reads_numbers_and_its_own_words(body: str) -> None:
    assert audit(f"{HEAD}    return {body}\n", "default+sealed+tools").findings == ()


def test_a_plan_writes_no_slot_and_readers_are_messages_like_others_elsewhere() -> None:
    source = f"{HEAD}    self.page = 1\n    self._p_changed = True\n    return page\n"
    assert [finding.rule for finding in audit(source, "default+sealed+tools").errors] == ["sealed"]
    assert audit(source).findings == ()
    named = f"{HEAD}    self.tools.notes.write(path=page['text'].one_of_(['a.txt']), text='x')\n"
    assert {finding.rule for finding in audit(named).errors} == {"tool-place"}
