"""Where this user's daemon listens, as its settings say: BATOS_WIRE_LISTEN, else `wire.listen` in batos.toml, else its local
socket. Standard library only; `batos.wire.Client()` does the same."""

import tomllib
from os import environ
from pathlib import Path


def own() -> str:
    """The endpoint to connect to."""
    home = Path(environ["HOME"], ".local", "share", "batos")
    data = Path(environ.get("BATOS_DATA") or home)
    listed: str | list[str] = environ.get("BATOS_WIRE_LISTEN") or environ.get("BATOS_LISTEN", "")
    named = environ.get("BATOS_CONFIG")
    for file in [Path(named)] if named else [Path("batos.toml"), data / "batos.toml"]:
        if not listed and file.is_file():
            settings = tomllib.loads(file.read_text("utf-8"))
            listed = settings.get("wire", {}).get("listen") or settings.get("listen", "")  # its former name, as long as it is accepted
            break
    several = listed.replace(",", " ").split() if isinstance(listed, str) else listed
    endpoint = several[0] if several else f"ipc://{home / 'wire.sock'}"
    for everywhere in ("//*:", "//0.0.0.0:"):
        endpoint = endpoint.replace(everywhere, "//127.0.0.1:")
    return endpoint
