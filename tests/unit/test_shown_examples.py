"""Examples that others read: the dashboard of Grafana, Home Assistant's package, n8n's workflow. Valid, and true of this version."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import jinja2
import pytest
import yaml

from batos.bus import EventBus
from batos.image.notice_channels import FACTS
from batos.image.notices import Notice
from batos.metrics import Metrics
from batos.notices.messages import payload, words_of
from tests.support.doors import door_token, kernel_with_doors

EXAMPLES = Path(__file__).parents[2] / "examples"
PINNED = json.loads((Path(__file__).parents[1] / "pins" / "metrics.json").read_text())
FACTS_TOLD = {
    "uptime_s": 1.0,
    "tools": {"in_doubt": 0},
    "image": dict.fromkeys(("bytes", "objects", "units", "aborts", "conflicts", "system", "rounds"), 1),
    "missions": dict.fromkeys(("running", "queued", "paused", "needs_input", "following"), 0),
    "upkeep": {"backups": {"failed": 0, "last": 1.0}},
    "autotelic": {
        "cem": {"last": dict.fromkeys(("relevance", "diversity", "novelty", "structure", "cem"), 0.5), "rolling": 0.5},
        "triggers": {"ever": 0, "fired": []},
    },
    "residency": {"bytes": 1, "loads": 1, "unloads": 1},
    "kernel": {"states": {"leads": 1, "works": 1}, "missions": {"a.1": 1}, "leads": True},
}
"""What `info` tells of a daemon with all of its parts at work."""
BRIEF = 'Say "hello", with a \\ and a\nline'


# --- Grafana


def dashboard() -> dict[str, Any]:
    return json.loads((EXAMPLES / "grafana" / "batos.json").read_text())


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def metrics_of(expression: str) -> set[str]:
    return {name.removesuffix("_bucket") for name in re.findall(r"\bbatos_[a-z_]+", expression)}


async def metrics() -> dict[str, tuple[str, set[str]]]:
    """The metrics of a daemon by the names that Prometheus has: their kind and labels."""
    made = Metrics(EventBus())
    made.show(lambda: FACTS_TOLD)
    found = {}
    for one in await asyncio.to_thread(made.told):
        name = one["name"] + ("_total" if one["kind"] == "counter" else "")
        found[name] = one["kind"], set().union(*(sample["labels"] for sample in one["samples"]), PINNED.get(name, {}).get("labels", ()))
    return found


async def test_the_dashboard_shows_each_metric_and_no_other() -> None:
    shown = set().union(*map(metrics_of, expressions()))
    assert shown == set(await metrics())
    assert set(PINNED) <= shown


@pytest.mark.parametrize("expression", expressions())
async def test_labels_and_functions_fit_the_kinds_of_metrics(expression: str) -> None:
    (name,) = metrics_of(expression)
    kind, labels = (await metrics())[name]
    for group in re.findall(r"by \(([^)]*)\)", expression):
        assert {one.strip() for one in group.split(",")} - {"le"} <= labels
    assert set(re.findall(r"\{(\w+)=", expression)) <= labels
    counts = "rate(" in expression or "increase(" in expression
    assert counts == (kind in ("counter", "histogram"))
    assert ("_bucket" in expression) == (kind == "histogram")
    assert expression.count("(") == expression.count(")")


def test_the_dashboard_has_the_form_that_grafana_takes() -> None:
    told = dashboard()
    assert told["schemaVersion"] >= 36
    assert told["uid"] == "batos"
    ids = [panel["id"] for panel in told["panels"]]
    assert len(set(ids)) == len(ids)
    (variable,) = told["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    rows: dict[int, int] = {}
    for panel in told["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        rows[place["y"]] = rows.get(place["y"], 0) + place["w"]
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    assert set(rows.values()) == {24}, "no row has a hole"


# --- Home Assistant


class HomeAssistantLoader(yaml.SafeLoader):
    """Reads `!secret NAME` as the word that it names."""


HomeAssistantLoader.add_constructor("!secret", lambda loader, node: f"<{loader.construct_scalar(node)}>")


def package() -> dict[str, Any]:
    return yaml.load((EXAMPLES / "home-assistant" / "batos.yaml").read_text(), HomeAssistantLoader)


def rendered(template: str, **given: Any) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    environment.filters["to_json"] = json.dumps
    return environment.from_string(template).render(**given)


async def test_home_assistants_command_gives_a_mission_and_its_script_shows_the_answer(tmp_path: Path) -> None:
    told = package()
    command = told["rest_command"]["batos_ask"]
    async with kernel_with_doors(tmp_path) as kernel, httpx.AsyncClient(trust_env=False) as client:
        assert kernel.doors is not None
        url = command["url"].replace("http://127.0.0.1:5758", kernel.doors.address)
        assert url != command["url"]
        headers = {
            name: value.replace("<batos_authorization>", f"Bearer {door_token(kernel)}") for name, value in command["headers"].items()
        }
        reply = await client.request(
            command["method"], url, content=rendered(command["payload"], brief=BRIEF),
            headers={**headers, "content-type": command["content_type"]}, timeout=60,
        )  # fmt: skip
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-batos-mission"]
    steps = told["script"]["ask_batos"]["sequence"]
    assert steps[0]["action"] == "rest_command.batos_ask"
    assert (
        rendered(steps[1]["data"]["message"], response={"content": reply.json()}) == reply.json()["choices"][0]["message"]["content"] != ""
    )


@pytest.mark.parametrize("fact", FACTS)
def test_home_assistants_automation_and_n8n_find_what_a_hook_is_sent(fact: str) -> None:
    words = words_of([Notice(fact, "m1", 1.0, "A title", "A text")], 0, "http://127.0.0.1:5758")
    sent = json.loads(json.dumps(payload(words, "k1", 2.0, repeats=False)))
    (automation,) = package()["automation"]
    (trigger,) = automation["triggers"]
    assert trigger["allowed_methods"] == ["POST"]
    (action,) = automation["actions"]
    shown = {name: rendered(value, trigger={"json": sent}) for name, value in action["data"].items()}
    assert (shown["title"], shown["notification_id"]) == ("A title", "batos_k1")
    assert "A text" in shown["message"]
    for one in nodes()["Words"]["parameters"]["assignments"]["assignments"]:
        assert sent[one["value"].removeprefix("={{ $json.body.").removesuffix(" }}")]


# --- n8n


def workflow() -> dict[str, Any]:
    return json.loads((EXAMPLES / "n8n" / "batos.json").read_text())


def nodes() -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in workflow()["nodes"]}


def test_the_workflow_has_the_form_that_n8n_takes() -> None:
    there = nodes()
    assert len(there) == len(workflow()["nodes"]) == len({one["id"] for one in there.values()})
    for one in there.values():
        assert {"id", "name", "type", "typeVersion", "position", "parameters"} <= one.keys()
        assert one["type"].startswith("n8n-nodes-base.")
    reached = set()
    for source, ways in workflow()["connections"].items():
        assert source in there
        reached |= {end["node"] for way in ways["main"] for end in way}
    begins = {name for name, one in there.items() if one["type"].endswith(("Trigger", "webhook"))}
    assert reached | begins == set(there), "each node is reached"


async def test_n8ns_request_gives_a_mission_and_its_repetition_the_same(tmp_path: Path) -> None:
    request = nodes()["Ask BAT OS"]["parameters"]
    body = request["jsonBody"].removeprefix("=").replace("{{ JSON.stringify($json.brief) }}", json.dumps(BRIEF))
    assert "{{" not in body
    headers = {
        one["name"]: one["value"].removeprefix("=").replace("{{ $execution.id }}", "7") for one in request["headerParameters"]["parameters"]
    }
    async with kernel_with_doors(tmp_path) as kernel, httpx.AsyncClient(trust_env=False) as client:
        assert kernel.doors is not None
        url = request["url"].replace("http://127.0.0.1:5758", kernel.doors.address)
        headers |= {"Authorization": f"Bearer {door_token(kernel)}", "Content-Type": "application/json"}
        first, again = [await client.request(request["method"], url, content=body, headers=headers, timeout=60) for _ in range(2)]
    assert first.status_code == again.status_code == 200, first.text
    assert first.headers["x-batos-mission"] == again.headers["x-batos-mission"], "a try again is the same mission"
    assert first.json()["choices"][0]["message"]["content"]
