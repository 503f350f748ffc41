"""Whatever a request to Ollama raises becomes one `InferenceFailed` with its cause."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from batos.errors import InferenceFailed


@contextlib.contextmanager
def failures(host: str, model: str, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn what a request raises into `InferenceFailed`.

    :param begun: whether a part of the answer has come: then a broken connection has cut it.
    """
    import httpx
    from ollama import ResponseError

    try:
        yield
    except ResponseError as e:
        raise InferenceFailed(f"Ollama at {host}, model {model}: {e.error}", cause=_cause(e), model=model) from e
    except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout) as e:
        raise InferenceFailed(f"no Ollama answers at {host}: {e}", cause="unreachable", model=model) from e
    except httpx.HTTPError as e:
        cause = "truncated" if begun() else "unreachable"
        raise InferenceFailed(f"the connection to Ollama at {host} broke: {e!r}", cause=cause, model=model) from e
    except (ValueError, TypeError, AttributeError) as e:
        # json and pydantic raise ValueError; a line that is JSON but no object fails inside the client with the others.
        raise InferenceFailed(f"Ollama at {host} sent what is no answer: {e}", cause="malformed", model=model) from e


def _cause(error: Any) -> str:
    """The cause behind an error that Ollama itself reported; inside a stream it has no status (-1)."""
    status = int(error.status_code)
    if status == 404:
        return "model_missing"
    if status == 400 and "exceeds the context length" in str(error.error):
        return "too_long"
    return "refused" if 400 <= status < 500 else "server_error"
