"""Models of the doors: their names, and how OpenAI and Ollama list and describe them.

`batos` and `batos:PERSONA` are missions. `batos:plain` is the model that the personas are made of, `batos:PERSONA:NAME-vN` an expert, each
asked directly. An expert has the name that `batos experts` prints, behind `batos:`. The embedder has its own name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute

from batos.doors import forms
from batos.doors.bodies import ShowBody, body_of, checked_body
from batos.doors.routes import DoorServices, route
from batos.errors import InvalidInput, UnknownPersona

NAME, PLAIN = "batos", "plain"
LATEST = ":latest"
_NAME_CHARS = 64  # characters of a name that a message repeats


class ModelNames:
    """Names of the models that one daemon serves."""

    def __init__(self, services: DoorServices) -> None:
        self._asker, self._plain = services.asker, services.plain

    @property
    def embedder(self) -> str:
        """Return the name of the model that embeds."""
        return self._plain.embedder.casefold().removesuffix(LATEST)

    async def all(self) -> list[str]:
        """Return the names: of missions, of the plain model, of the experts that are built, of the embedder."""
        personas = (await self._asker.ask("info"))["personas"]
        chats = [NAME, *(f"{NAME}:{str(name).lower()}" for name in personas), f"{NAME}:{PLAIN}"]
        return [*chats, *await self._experts(), self.embedder]

    async def known(self, name: str) -> str:
        """Return a model's name as it is listed.

        :raises UnknownPersona: if it is not a model of the doors.
        """
        names = await self.all()
        found = name.casefold().removesuffix(LATEST)
        if found not in names:
            raise UnknownPersona(f"the model {name[:_NAME_CHARS]!r} does not exist; there are {', '.join(names)}")
        return found

    async def chosen(self, model: str) -> ChosenModel:
        """Return who answers under a model's name.

        :raises UnknownPersona: if it is not a model of the doors.
        :raises InvalidInput: for the embedder, which answers nothing.
        """
        name, _, rest = (found := model.casefold().removesuffix(LATEST)).partition(":")
        if name == NAME and (rest or found == NAME) and len(rest) <= _NAME_CHARS:
            if rest == PLAIN:
                return ChosenModel(plain=True)
            if ":" not in rest:  # the dispatcher knows the personas
                return ChosenModel(persona=rest or None)
        if found == self.embedder:
            raise InvalidInput(f"the model {found} embeds texts and answers none: ask it at /v1/embeddings or /api/embed")
        if expert := (await self._experts()).get(await self.known(model)):
            return ChosenModel(plain=True, expert=expert)
        raise UnknownPersona(f"the model {model[:_NAME_CHARS]!r} does not exist")

    async def _experts(self) -> dict[str, str]:
        """Return the models of the experts that are built, by their names here."""
        experts = (await self._asker.ask("experts"))["experts"]
        return {f"{NAME}:{one['model']}".casefold(): str(one["model"]) for one in experts if one["state"] == "built"}


class ChosenModel(NamedTuple):
    """Answerer under a model's name: a mission of a persona (None: the router chooses), or a model, asked directly."""

    plain: bool = False
    persona: str | None = None
    expert: str | None = None
    """the expert that is asked; None: the model that the personas are made of"""


class _Models:
    def __init__(self, services: DoorServices) -> None:
        self._asker, self._limits, self._names = services.asker, services.limits, ModelNames(services)

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
        return JSONResponse({"models": [self._listed(name) for name in await self._names.all()]})

    async def loaded(self, request: Request) -> Response:
        """List the models as loaded: they answer at once."""
        return JSONResponse({"models": [forms.loaded_model(self._listed(name)) for name in await self._names.all()]})

    async def show(self, request: Request) -> Response:
        """Describe one model, as Ollama does."""
        body = checked_body(ShowBody, await body_of(request, self._limits))
        name = await self._names.known(body.model or body.name)
        return JSONResponse(forms.shown_model(name, embeds=name == self._names.embedder))

    def _listed(self, name: str) -> dict[str, Any]:
        return forms.listed_model(name, embeds=name == self._names.embedder)


def model_routes(services: DoorServices) -> Iterator[BaseRoute]:
    """Yield the routes that list and describe models."""
    yield from _Models(services).routes()
