"""Whatever a request to Ollama raises becomes one `InferenceFailed` with its cause."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator

from batos.errors import InferenceFailed

NO_SPACE = "no space left on device"  # the words of ENOSPC, which Ollama passes on
NO_SUCH = "pull model manifest: file does not exist"  # its words for a name that the registry does not have


@contextlib.contextmanager
def failures(host: str, model: str, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn what a request raises into `InferenceFailed`.

    :param begun: whether a part of the answer has come: then a broken connection has cut it.
    """
    import httpx

    from batos.bridge.client_library import ResponseError

    try:
        yield
    except ResponseError as e:
        raise InferenceFailed(f"Ollama at {host}, model {model}: {e.error}", cause=cause_of(e), model=model) from e
    except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout) as e:
        raise InferenceFailed(f"no Ollama answers at {host}: {e}", cause="unreachable", model=model) from e
    except httpx.HTTPError as e:
        cause = "truncated" if begun() else "unreachable"
        raise InferenceFailed(f"the connection to Ollama at {host} broke: {e!r}", cause=cause, model=model) from e
    except (ValueError, TypeError, AttributeError) as e:
        # json and pydantic raise ValueError; a line that is JSON but no object fails inside the client with the others.
        raise InferenceFailed(f"Ollama at {host} sent what is no answer: {e}", cause="malformed", model=model) from e


def cause_of(error: BaseException, reported: str = "server_error") -> str:
    """The cause behind what a request raised.

    :param reported: of an error that Ollama reports and does not lay to the request: inside a stream it has no status (-1).
    """
    import httpx

    from batos.bridge.client_library import ResponseError

    if NO_SPACE in str(error).lower() or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return "disk_full"
    if isinstance(error, ResponseError):
        if error.status_code == 404 or NO_SUCH in error.error:
            return "model_missing"
        if error.status_code == 400 and "exceeds the context length" in error.error:
            return "too_long"
        return "refused" if 400 <= error.status_code < 500 else reported
    if isinstance(error, ConnectionError | TimeoutError | httpx.ConnectError | httpx.ConnectTimeout):
        return "unreachable"
    return "truncated" if isinstance(error, httpx.HTTPError) else "malformed"
