"""The verb `metrics`: what the daemon counts, for people and scripts; Prometheus reads the same from the port of the setting `metrics`."""

from __future__ import annotations

from typing import Any

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.asking import ask
from batos.cli.output import Output


@app.command()
def metrics(
    name: str | None = typer.Argument(None, metavar="[NAME]", help="Only those whose names begin with this."),
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Print the daemon's metrics: counts since its start, and states. Histograms by their count and sum; --json has the buckets."""
    reply = ask(endpoint(connect), lambda client: client.metrics())
    chosen = [metric for metric in reply["metrics"] if metric["name"].startswith(name or "")]
    output = Output(as_json)
    if as_json:
        output.document({**reply, "metrics": chosen})
    elif chosen:
        _print(chosen, output)
    else:
        names = ", ".join(metric["name"] for metric in reply["metrics"])
        output.note(f"no metric begins with {name!r}; there are {names}", "dim")
    if not chosen:
        raise typer.Exit(1)


def _print(chosen: list[dict[str, Any]], output: Output) -> None:
    samples = [sample for metric in chosen for sample in metric["samples"] if not sample["name"].endswith("_bucket")]
    labels = (", ".join(f"{key}={value}" for key, value in sample["labels"].items()) for sample in samples)
    output.rows(("metric", "of", "value"), ((s["name"], of, f"{s['value']:g}") for s, of in zip(samples, labels, strict=True)))
