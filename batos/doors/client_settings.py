"""Settings that chat clients need to reach the doors, as their users paste them."""

from __future__ import annotations

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
"""Clients, each with its settings; the address and the token are filled in."""


def settings_of_clients(address: str, token: str) -> list[tuple[str, str]]:
    """Return chat clients, each with its settings.

    :param address: of the doors, without a slash at its end.
    """
    return [(name, told.format(address=address, token=token)) for name, told in _CLIENTS]
