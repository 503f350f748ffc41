"""network: no connections without the capability."""

from __future__ import annotations

from batos.guardian.rules.base import Rule
from batos.guardian.rules.capability import checks

RULE = Rule(
    "network",
    asks="Modules that open connections are imported only where the policy grants the capability `network`.",
    why="A method has no authority of its own; what comes from outside comes as an argument or by a message.",
    accepted='def host(self, url):\n    return url.split("/")[2]',
    refused="def fetch(self, url):\n    import urllib.request\n    return urllib.request.urlopen(url).read()",
    nodes=checks("network", "Take what is needed as an argument, or send a message to an object that fetches it."),
)
