"""Failures of requests to Ollama: one error class, retries after races, and a circuit breaker for each host.

Everything that a request raises becomes one `InferenceFailed` with its cause.

Some requests race with another change of Ollama's models. Ollama lists the files of its manifests and then looks at each. If one is deleted
in between, the request fails, whichever model it is about (0.17.4, `manifest.Manifests` in manifest/manifest.go). Listing, creating and
deleting fail with the path that is gone, looking at a model and chatting with "not found". By measurement, one request in a hundred fails
beside a client that makes and deletes models. A layer that a create found may also go, with another model that has it, before the manifest
is written. Then the create is repeated from the upload on.

The breaker is closed while a host answers. After some failures in a row it opens. Then inferences are refused at once, and only a request
for the version goes to the host now and then (half open). The first answer closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from batos.concurrency import cancel_and_wait
from batos.config.limits import Limits, limit
from batos.errors import InferenceFailed

NO_SPACE = "no space left on device"  # the text of ENOSPC, which Ollama passes on
NO_SUCH = "pull model manifest: file does not exist"  # Ollama's text for a name that the registry does not have


@contextlib.contextmanager
def inference_failures(host: str, model: str, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn what a request raises into `InferenceFailed`.

    :param begun: True if a part of the answer has come: then a broken connection has cut it.
    """
    import httpx

    from batos.bridge.client_library import ResponseError

    try:
        yield
    except ResponseError as e:
        raise InferenceFailed(f"Ollama at {host}, model {model}: {e.error}", cause=failure_cause(e), model=model) from e
    except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout) as e:
        raise InferenceFailed(f"no Ollama answers at {host}: {e}", cause="unreachable", model=model) from e
    except httpx.HTTPError as e:
        cause = "truncated" if begun() else "unreachable"
        raise InferenceFailed(f"the connection to Ollama at {host} broke: {e!r}", cause=cause, model=model) from e
    except (ValueError, TypeError, AttributeError) as e:
        # json and pydantic raise ValueError. For a JSON line that is not an object, the client raises one of the others.
        raise InferenceFailed(f"Ollama at {host} sent something that is not a valid answer: {e}", cause="malformed", model=model) from e


def failure_cause(error: BaseException, reported: str = "server_error") -> str:
    """Return the cause behind what a request raised.

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


T = TypeVar("T")

RACE_TRIES = 3
"""Greatest number of tries of a request: listing and lookup are a millisecond apart, so two races in a row are rare."""


async def retry_on_race(call: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to a request, retried at once if it raced with another one.

    :param call: makes the request; a streamed answer is read to its end. It may have to repeat other requests first.
    :raises Exception: the error of the last attempt.
    """
    for _ in range(RACE_TRIES - 1):
        try:
            return await call()
        except Exception as e:
            if not (_may_be(e) or _may_be(e.__cause__)):
                raise
    return await call()


def _may_be(error: BaseException | None) -> bool:
    """Return True if the error may come from a race. "Not found" is mostly true, and then comes again."""
    from batos.bridge.client_library import ResponseError

    if not isinstance(error, ResponseError):
        return False
    gone = "no such file or directory" in error.error and ("/manifests/" in error.error or "/blobs/" in error.error)
    return error.status_code == 404 or gone


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy(Limits):
    """Rules for requests that fail: repetition, the breaker of a host, and how long inferences wait for one."""

    inference_retries: int = limit(2, ge=0, le=20)
    """Greatest number of immediate retries of a request, if no token has come."""
    inference_backoff_s: float = limit(0.2, ge=0, le=60)
    """Seconds before the first retry of a request; doubled for each further one."""
    breaker_failures: int = limit(3, ge=1, le=1000)
    """Number of failures in a row that open the breaker of an Ollama."""
    breaker_probe_s: float = limit(1.0, ge=0.01, le=600)
    """Seconds between two probes of an Ollama whose breaker is open."""
    outage_wait_s: float = limit(600.0, ge=0, le=7 * 86400)
    """Seconds that an inference waits while no Ollama answers."""
    switch_wait_s: float = limit(30.0, ge=0, le=7 * 86400)
    """Seconds that an inference waits while the only Ollama that answers has other weights under the model's name."""


class Breaker:
    """The breaker of one host. It counts what a dead host does: no connection, no answer in time, a stream that breaks.

    An error that Ollama reports is a sign of life: it is about a model, and asking for the version would not show it.
    """

    def __init__(self, host: str, answers: Callable[[], Awaitable[bool]], policy: RetryPolicy) -> None:
        """
        :param answers: the probe: whether the host answers a cheap question.
        """
        self._host, self._answers, self._policy = host, answers, policy
        self._failures = 0
        self._since = 0.0
        self._why = ""
        self._closed = asyncio.Event()
        self._closed.set()
        self._probing: asyncio.Task[None] | None = None
        self.opened = 0

    @property
    def open(self) -> bool:
        """Return True if the host gets no requests for now."""
        return not self._closed.is_set()

    @property
    def open_s(self) -> float:
        """Return the seconds since it opened; 0 while it is closed."""
        return time.monotonic() - self._since if self.open else 0.0

    def check(self, model: str) -> None:
        """Admit an inference if the breaker is closed.

        :raises InferenceFailed: with cause `breaker` while it is open.
        """
        if self.open:
            raise InferenceFailed(
                f"Ollama at {self._host} has not answered for {self.open_s:.0f} s ({self._why}); it is asked again by itself",
                cause="breaker",
                model=model,
            )

    def failed(self, why: str) -> None:
        """Count a failure of the host."""
        self._failures += 1
        if self._failures >= self._policy.breaker_failures:
            self.lost(why)

    def lost(self, why: str) -> None:
        """Open the breaker, because the host is known not to answer."""
        if self.open:
            return
        self._closed.clear()
        self._since, self._why = time.monotonic(), why
        self.opened += 1
        if self._probing is None or self._probing.done():  # otherwise the breaker was closed and opened again between two probes
            self._probing = asyncio.create_task(self._probe(), name=f"probe of {self._host}")
        log.warning("ollama does not answer; what needs it waits", host=self._host, why=why)

    def answered(self) -> None:
        """Count an answer of the host, even an error."""
        self._failures = 0
        if self.open:
            log.info("ollama answers again", host=self._host, after_s=round(self.open_s, 1))
            self._closed.set()

    async def closed(self) -> None:
        """Return when it is closed."""
        await self._closed.wait()

    async def stop(self) -> None:
        """End the probing."""
        if self._probing is not None:
            await cancel_and_wait(self._probing)

    async def _probe(self) -> None:
        while self.open:
            await asyncio.sleep(self._policy.breaker_probe_s)
            if self.open and await self._answers():
                self.answered()

    def facts(self) -> dict[str, Any]:
        """Return the facts for `info`."""
        away = {"away_s": round(self.open_s, 1), "why": self._why} if self.open else {}
        return {"answers": not self.open, "outages": self.opened, **away}
