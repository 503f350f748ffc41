"""Models of the doors: their names, and how OpenAI and Ollama list and describe them."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute

from batos.console.api_client import Asker
from batos.doors import forms
from batos.doors.bodies import ShowBody, body_of, checked_body
from batos.doors.routes import DoorServices, route
from batos.errors import UnknownPersona

NAME, PLAIN = "batos", "plain"
_LATEST = ":latest"


class ModelNames:
    """Names of the models that one daemon serves."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def all(self) -> list[str]:
        """Return the names."""
        personas = (await self._asker.ask("info"))["personas"]
        return [NAME, *(f"{NAME}:{str(name).lower()}" for name in personas), f"{NAME}:{PLAIN}"]

    async def known(self, name: str) -> str:
        """Return a model's name as it is listed.

        :raises UnknownPersona: if it is no model of the doors.
        """
        names = await self.all()
        found = name.casefold().removesuffix(_LATEST)
        if found not in names:
            raise UnknownPersona(f"the model {name[:64]!r} does not exist; there are {', '.join(names)}")
        return found


def persona_of(model: str) -> str | None:
    """Return the persona in a model's name; None where the router chooses.

    :raises UnknownPersona: if it is no model of the doors.
    """
    name, _, persona = model.casefold().removesuffix(_LATEST).partition(":")
    if name != NAME or len(persona) > 64 or (":" in model and not persona and not model.casefold().endswith(_LATEST)):
        raise UnknownPersona(f"the model {model[:64]!r} does not exist; there are {NAME}, {NAME}:PERSONA and {NAME}:{PLAIN}")
    return persona or None


class _Models:
    def __init__(self, services: DoorServices) -> None:
        self._asker, self._limits, self._names = services.asker, services.limits, ModelNames(services.asker)

    def routes(self) -> Iterator[BaseRoute]:
        yield route("/", self.greeting, "GET", "HEAD")
        yield route("/v1/models", self.models, "GET")
        yield route("/v1/models/{model:path}", self.model, "GET")
        yield route("/api/version", self.version, "GET", "HEAD")
        yield route("/api/tags", self.tags, "GET", "HEAD")
        yield route("/api/ps", self.loaded, "GET")
        yield route("/api/show", self.show, "POST")

    async def greeting(self, request: Request) -> Response:
        """Say what Ollama says: clients look for it."""
        return PlainTextResponse("Ollama is running")

    async def models(self, request: Request) -> Response:
        """List the models, as OpenAI does."""
        return JSONResponse({"object": "list", "data": [forms.model_entry(name) for name in await self._names.all()]})

    async def model(self, request: Request) -> Response:
        """Return one model, as OpenAI does."""
        return JSONResponse(forms.model_entry(await self._names.known(request.path_params["model"])))

    async def version(self, request: Request) -> Response:
        """Return the version of the Ollama that thinks here."""
        info = await self._asker.ask("info")
        return JSONResponse({"version": str((info.get("ollama") or {}).get("version") or forms.VERSION)})

    async def tags(self, request: Request) -> Response:
        """List the models, as Ollama does."""
        return JSONResponse({"models": [forms.listed_model(name) for name in await self._names.all()]})

    async def loaded(self, request: Request) -> Response:
        """List the models as loaded: they answer at once."""
        return JSONResponse({"models": [forms.loaded_model(name) for name in await self._names.all()]})

    async def show(self, request: Request) -> Response:
        """Describe one model, as Ollama does."""
        body = checked_body(ShowBody, await body_of(request, self._limits))
        return JSONResponse(forms.shown_model(await self._names.known(body.model or body.name)))


def model_routes(services: DoorServices) -> Iterator[BaseRoute]:
    """Yield the routes that list and describe models."""
    yield from _Models(services).routes()
