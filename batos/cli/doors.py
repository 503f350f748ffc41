"""The verb `doors`: address and token of the daemon's HTTP interfaces, and ready-made settings for chat clients."""

from __future__ import annotations

from pathlib import Path

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.client import ask
from batos.cli.output import Output
from batos.errors import ConfigError

_CLIENTS: tuple[tuple[str, str], ...] = (
    ("curl", "curl {address}/v1/chat/completions -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \\\n"
             "  -d '{{\"model\": \"batos\", \"messages\": [{{\"role\": \"user\", \"content\": \"What is in my notes?\"}}]}}'"),
    ("openai-python", "client = OpenAI(base_url=\"{address}/v1\", api_key=\"{token}\")"),
    ("ollama-python", "client = Client(\"{address}\", headers={{\"Authorization\": \"Bearer {token}\"}})"),
    ("Open WebUI", "OPENAI_API_BASE_URL={address}/v1\nOPENAI_API_KEY={token}\nENABLE_FORWARD_USER_INFO_HEADERS=true"),
    (
        "Continue (config.yaml)",
        "models:\n  - name: BAT OS\n    provider: openai\n    model: batos\n    apiBase: {address}/v1\n    apiKey: {token}",
    ),
    ("llm (extra-openai-models.yaml; `llm keys set batos` takes the token)",
     "- model_id: batos\n  model_name: batos\n  api_base: {address}/v1\n  api_key_name: batos"),
    ("VS Code, and other clients of Ollama that take only an address", "{address}/token/{token}"),
)  # fmt: skip
"""Clients, each with its settings."""


@app.command()
def doors(connect: Connect = None, as_json: Json = False) -> None:
    """Print address and token of the interfaces of OpenAI and Ollama, with settings for chat clients. Whoever has the token is let in."""
    output = Output(as_json)
    info = ask(endpoint(connect), lambda client: client.info())
    address = info.get("doors")
    if not address:
        raise ConfigError(
            "this daemon has no doors: the setting doors.enabled is off, or another program has the address doors.listen; "
            "`batos run --set doors.enabled=on` says which, and `--set doors.listen=127.0.0.1:PORT` takes another"
        )
    from batos.console.access import token_of  # imported late: only this verb needs it
    from batos.doors.server import token_file

    file = token_file(Path(info["data"]))
    token = token_of(file.parent, file.name)
    if output.as_json:
        output.document({"type": "doors", "address": address, "openai": f"{address}/v1", "ollama": address, "token": token})
        return
    typer.echo(f"address  {address}\ntoken    {token}\nmodels   batos, batos:PERSONA, batos:plain")
    for name, told in _CLIENTS:
        typer.echo(f"\n{name}:")
        typer.echo("".join(f"  {line}\n" for line in told.format(address=address, token=token).splitlines()), nl=False)
