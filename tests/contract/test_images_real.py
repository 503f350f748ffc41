"""Images on a real Ollama: a tiny model that sees, whose weights are made here, says whether what it is shown is bright or dark."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from batos.bridge.client import OllamaInference, connect
from batos.bridge.inference import ChatRequest
from batos.errors import InferenceFailed
from batos.testing import ScriptedOllama
from tests.support.pictures import JPEG, plain, webp
from tests.support.tiny_models import BRIGHT, DARK, created

OPTIONS = {"num_ctx": 1024, "num_predict": 24, "num_thread": 1, "temperature": 0.0, "seed": 1}
ASKED = ChatRequest("", "You are ROBIN.", "What is it?")
SAID = "Hello there, <|im_end|> you."


class Asking:
    """A model that sees, and one that does not."""

    def __init__(self, inference: OllamaInference, sees: str, blind: str) -> None:
        self.inference, self.sees, self.blind = inference, sees, blind

    async def say(self, *images: bytes, model: str = "") -> tuple[str, int]:
        """What is said to images, and how many tokens were read."""
        shown = (tuple(base64.b64encode(one).decode() for one in images),) if images else ()
        reply = await self.inference.chat(replace(ASKED, model=model or self.sees, images=shown), deadline_s=60)
        return reply.text, reply.prompt_tokens


@pytest.fixture(scope="module")
def real(ollama_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    with created(ollama_host, tmp_path_factory.mktemp("tiny"), ["mistral3", "qwen3", "gemma3"]) as made:
        yield ollama_host, made["mistral3"], made["qwen3"], made["gemma3"]


@pytest.fixture(params=["scripted", "real"])
def where(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """An Ollama, a model of it that sees, and one that does not."""
    if request.param == "real":
        yield request.getfixturevalue("real")
        return
    with ScriptedOllama(("sees:1", "blind:1")) as server:
        server.give_sight("sees:1")
        server.say(SAID)
        yield server.host, "sees:1", "blind:1"


@pytest.fixture
async def asking(where: tuple[str, ...]) -> AsyncIterator[Asking]:
    inference = OllamaInference(where[0], 2, OPTIONS)
    yield Asking(inference, *where[1:3])
    await inference.close()


@pytest.fixture
async def seeing(real: tuple[str, ...]) -> AsyncIterator[Asking]:
    inference = OllamaInference(real[0], 2, OPTIONS)
    yield Asking(inference, *real[1:3])
    await inference.close()


async def test_what_sees_says_so(asking: Asking) -> None:
    async with connect(asking.inference.host) as client:
        for name, sees in ((asking.sees, True), (asking.blind, False)):
            assert ("vision" in ((await client.show(name)).capabilities or ())) == sees


@pytest.mark.parametrize("image", [plain(255), JPEG, webp()], ids=["png", "jpeg", "webp"])
async def test_an_image_is_read_as_part_of_the_prompt(asking: Asking, image: bytes) -> None:
    _, without = await asking.say()
    _, once = await asking.say(image)
    _, twice = await asking.say(image, image)
    assert without < once < twice


async def test_one_that_cannot_be_decoded_is_the_requests_fault(asking: Asking) -> None:
    with pytest.raises(InferenceFailed, match="image: unknown format") as failed:
        await asking.say(b"no image at all")
    assert failed.value.cause == "server_error"


async def test_a_model_that_does_not_see_says_nothing_of_it(asking: Asking) -> None:
    """Which is why it is not asked: see `batos.mind.model_needs`."""
    for image in (plain(255), b"no image at all"):
        _, read = await asking.say(image, model=asking.blind)
        assert read > 0


async def test_one_of_a_family_that_sees_lacks_what_it_takes(seeing: Asking, real: tuple[str, ...]) -> None:
    """Of some families there are models with and without: here Ollama refuses, and `/api/show` has said so before."""
    with pytest.raises(InferenceFailed, match="missing data required for image input"):
        await seeing.say(plain(255), model=real[3])


async def test_what_is_shown_is_seen(seeing: Asking) -> None:
    assert (await seeing.say())[0] == SAID
    for image, word in ((plain(255), BRIGHT), (plain(0), DARK), (JPEG, BRIGHT), (webp(), BRIGHT)):
        assert (await seeing.say(image))[0] == word + SAID


async def test_an_image_in_an_earlier_turn_is_seen(seeing: Asking) -> None:
    for image, word in ((plain(255), BRIGHT), (plain(0), DARK)):
        images = ((base64.b64encode(image).decode(),), ())
        asked = replace(ASKED, model=seeing.sees, user="And now?", turns=(("What is it?", "A thing."),), images=images)
        assert (await seeing.inference.chat(asked, deadline_s=60)).text == word + SAID
