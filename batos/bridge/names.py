"""Names of models. Ollama takes one model's name in many spellings, and lists it in one.

`SmolLM2:Embedded`, `library/smollm2:embedded` and `registry.ollama.ai/library/smollm2:embedded` are one model: letters of either size are
the same, its own registry and library need not be said, and `latest` is the tag of a name without one (ollama/types/model/name.go).
"""

from __future__ import annotations

import string

_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_SCHEMES = ("https://", "http://")
_REGISTRY, _LIBRARY, _TAG = "registry.ollama.ai/", "library/", "latest"


def tagged(name: str) -> str:
    """The one spelling by which a model's name is compared: `Robin` is `robin:latest`. A pull goes by the name as it was given."""
    bare = name.strip().translate(_SMALL)
    for scheme in _SCHEMES:
        bare = bare.removeprefix(scheme)
    bare = bare.removeprefix(_REGISTRY)
    if bare.startswith(_LIBRARY) and bare.count("/") == 1:
        bare = bare.removeprefix(_LIBRARY)
    last = bare.rpartition("/")[2]
    return bare + ("" if ":" in last else f":{_TAG}") + (_TAG if last.endswith(":") else "")
