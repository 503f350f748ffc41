"""A note-taking week, played by script: notes are read, the user tells things, asks about both, and the model invents every answer.

200 notes in six formats and five languages (34 of them asked about, in week.jsonl; the others are a diary), 60 statements of the user, 100
questions whose answers lie in memory, ten about what nothing there speaks of, and sixteen about what something there speaks of without an
answer to them. The model is a scripted Ollama that makes up a name and a figure, claims the first passage for them, and is asked before
anything is known, so that its inventions are memory, too. Ends with one JSON line.

`answered`: share of the questions whose answer is in the text, by language, of notes (`noted`) and of statements (`told`); `invented`:
inventions cited as a source, or sources that are its own answers; `out_of_nothing`: quotations where nothing there speaks of it, `beside`:
where what is quoted speaks of it and does not answer. Vectors are the scripted Ollama's (alike by shared words), or, with `--host`, those
of `minilm:embedded` there.

    python bench/week.py --dir /dev/shm
    python bench/week.py --notes 40 --questions 12 --show     # a short one, and what was not answered
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import pathlib
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from batos import logs
from batos.app.kernel import Kernel
from batos.bridge.client import OllamaInference
from batos.config import Settings
from batos.memory.store import library_of
from batos.testing import ScriptedOllama

FILE = pathlib.Path(__file__).parent / "week.jsonl"
DAYS = 7
WAIT_S = 300
INVENTED = "Quazzle"
INVENTION = f"As I noted, it is {INVENTED} Brontwick, number 98761, near the old viaduct. [1]"
SUFFIXES = {"md": ".md", "txt": ".txt", "html": ".html", "csv": ".csv", "chat": ".txt", "rst": ".rst"}
_PLACES = ("the harbour", "the wood", "the old mill", "the market", "the lighthouse", "the dyke", "the reservoir", "the station")
_PEOPLE = ("Rasmus", "Imke", "Olga", "Yusuf", "Svea", "Tilda", "Bo", "Klaas")
_DIARY = {
    "en": "{day}. Walked to {place} with {who}; wind from the {wind}. We talked about {topic}. Soup in the evening.",
    "de": "{day}. Mit {who} spazieren, Wind aus {wind}. Wir sprachen über {topic}. Abends gab es Suppe.",
    "fr": "{day}. Promenade avec {who}, vent de {wind}. Nous avons parlé de {topic}. Le soir, une soupe.",
    "es": "{day}. Paseo con {who}, viento del {wind}. Hablamos de {topic}. Por la noche, sopa.",
    "it": "{day}. Passeggiata con {who}, vento da {wind}. Abbiamo parlato di {topic}. La sera, zuppa.",
}
_TOPICS = ("chess", "ferries", "Bach", "mushrooms", "clouds", "bridges", "herons", "tea", "maps", "glass")


class Asked(NamedTuple):
    """A question, what its answer holds, and of what kind it is: noted, told, unknown or beside."""

    text: str
    key: str
    kind: str
    language: str


class Week(NamedTuple):
    """What is played: notes as (name, text), statements, and questions."""

    notes: list[tuple[str, str]]
    statements: list[str]
    asked: list[Asked]


def week(notes: int = 200, questions: int = 0, seed: int = 7, matter: pathlib.Path = FILE) -> Week:
    """The week's matter, the same for the same seed.

    :param notes: so many, diary included; those that are asked about are there in any case.
    :param questions: so many of notes, and of statements; 0: all.
    """
    lines = [json.loads(line) for line in matter.read_text("utf-8").splitlines()]
    told = [line["statement"] for line in lines if "statement" in line]
    noted = [line["note"] for line in lines if "note" in line]
    asked = [Asked(*ask, "noted", one["language"]) for one in noted for ask in one["asks"]]
    more = [Asked(*ask, "told", one["language"]) for one in told for ask in one["asks"]]
    unknown = [Asked(line[kind], "", kind, "") for line in lines for kind in ("unknown", "beside") if kind in line]
    draw = random.Random(seed)
    if questions:
        asked, more = draw.sample(asked, questions), draw.sample(more, questions)
    files = [(f"{one['language']}-{one['name']}-{at}{SUFFIXES[one['format']]}", one["text"]) for at, one in enumerate(noted)]
    files += _diary(draw, max(0, notes - len(files)))
    return Week(files, [one["brief"] for one in told], [*asked, *more, *unknown])


def _diary(draw: random.Random, count: int) -> Iterator[tuple[str, str]]:
    formats = (".md", ".txt", ".rst")
    for at in range(count):
        language = list(_DIARY)[at % len(_DIARY)]
        facts = {"day": f"{at % 28 + 1}. {at % 12 + 1}. 2025", "place": draw.choice(_PLACES), "who": draw.choice(_PEOPLE)}
        text = _DIARY[language].format(**facts, wind=draw.choice("NESW"), topic=draw.choice(_TOPICS))
        yield f"diary-{at}{formats[at % len(formats)]}", f"{text}\n"


class Borrowed(OllamaInference):
    """A scripted Ollama whose vectors are a real one's."""

    def __init__(self, host: str, vectors: str) -> None:
        super().__init__(host)
        self._vectors = OllamaInference(vectors)

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        """See `Inference.embed`."""
        return await self._vectors.embed(model, texts, deadline_s=deadline_s)

    async def digest(self, model: str) -> str:
        """See `Inference.digest`."""
        return await (self._vectors.digest(model) if "minilm" in model else super().digest(model))

    async def close(self) -> None:
        """Close the connections of both."""
        await self._vectors.close()
        await super().close()


class Player:
    """Plays a week against a kernel of its own."""

    def __init__(self, kernel: Kernel, folder: pathlib.Path) -> None:
        self._kernel, self._folder, self._count = kernel, folder, 0
        self._told: list[str] = []

    async def play(self, matter: Week) -> list[tuple[Asked, dict[str, Any]]]:
        """The questions with their results, of the end of the week."""
        for asked in matter.asked[:: max(1, len(matter.asked) // 20)]:
            await self.say(asked.text)  # nothing is known yet: what it says then is all invented
        for day in range(DAYS):
            await self.read(matter.notes[day::DAYS])
            for brief in matter.statements[day::DAYS]:
                self._told.append(await self.say(brief, wait=False))
        await self.settled()
        return [(asked, self.result(await self.say(asked.text))) for asked in matter.asked]

    async def read(self, notes: Sequence[tuple[str, str]]) -> None:
        """Have notes read."""
        for name, text in notes:
            (self._folder / name).write_text(text, "utf-8")
        done = await (await self._kernel.memory.ask([str(self._folder / name) for name, _ in notes], [])).done(lambda event: None)
        if done["refused"]:
            raise RuntimeError(f"notes were refused: {done['refused']}")

    async def say(self, brief: str, *, wait: bool = True) -> str:
        """Give a brief; its id."""
        self._count += 1
        id = f"week-{self._count}"
        await self._kernel.scheduler.submit(id, brief, {})
        if wait:
            await self._until(lambda root: root["ledger"].missions[id].state in ("COMPLETE", "FAILED"))
        return id

    async def settled(self) -> None:
        """Wait until all that was told is remembered, and has its vectors."""

        def ended(root: Any) -> bool:
            missions, library = root["ledger"].missions, library_of(root)
            return all(f"mission:{id}" in library.by_source for id in missions) and not list(library.without_vectors())

        await self._until(ended)
        await self._kernel.image.told()

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while not self._kernel.image.read(condition):  # noqa: ASYNC110  # what is waited for is in the image
                await asyncio.sleep(0.01)

    def result(self, id: str) -> dict[str, Any]:
        """The result of a mission; empty where it FAILED."""
        return self._kernel.image.read(lambda root: json.loads(root["ledger"].missions[id].result or "{}"))  # type: ignore[no-any-return]


def figures(results: Sequence[tuple[Asked, dict[str, Any]]]) -> dict[str, Any]:
    """What came of the questions."""
    known = [(asked, asked.key.casefold() in str(result.get("text", "")).casefold()) for asked, result in results if asked.key]
    by_language = collections.defaultdict(list)
    for asked, right in known:
        by_language[asked.language].append(right)
    cited = [one for _, result in results for one in result.get("citations", ())]
    return {
        "questions": len(known),
        "answered": share(right for _, right in known),
        "noted": share(right for asked, right in known if asked.kind == "noted"),
        "told": share(right for asked, right in known if asked.kind == "told"),
        "by_language": {language: share(rights) for language, rights in sorted(by_language.items())},
        "quoted": sum(bool(result.get("quoted")) for _, result in results),
        "invented": sum(one["origin"] == "self" or INVENTED in " ".join(one["sentences"]) for one in cited),
        "out_of_nothing": sum(bool(result.get("quoted")) for asked, result in results if asked.kind == "unknown"),
        "beside": sum(bool(result.get("quoted")) for asked, result in results if asked.kind == "beside"),
    }


def share(rights: Any) -> float:
    """The share of what is right, to three places."""
    held = list(rights)
    return round(sum(held) / len(held), 3) if held else 0.0


async def played(folder: pathlib.Path, matter: Week, host: str = "") -> list[tuple[Asked, dict[str, Any]]]:
    """The week in a folder of its own.

    :param host: of a real Ollama for the vectors; empty: the scripted one's.
    """
    (folder / "notes").mkdir()
    given: dict[str, Any] = {"data": folder / "data", "autotelic": "off", "remember_pause_s": 0, "lora_staging": str(folder / "none")}
    with ScriptedOllama() as server:
        server.say(INVENTION)
        inference = Borrowed(server.host, host) if host else OllamaInference(server.host)
        kernel = await Kernel.start(Settings(**given), inference=inference, listen=False)
        try:
            return await Player(kernel, folder / "notes").play(matter)
        finally:
            await kernel.stop()
            await inference.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int, default=200)
    parser.add_argument("--questions", type=int, default=0, help="of notes, and as many of statements; 0: all")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--host", default="", help="an Ollama with minilm:embedded, for the vectors")
    parser.add_argument("--matter", type=pathlib.Path, default=FILE, help="other matter, of the form of week.jsonl")
    parser.add_argument("--show", action="store_true", help="what was not answered, or quoted out of nothing")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the image")
    args = parser.parse_args()
    logs.configure("error", "json")
    with tempfile.TemporaryDirectory(prefix="batos-week-", dir=args.dir) as folder:
        results = asyncio.run(played(pathlib.Path(folder), week(args.notes, args.questions, args.seed, args.matter), args.host))
    for asked, result in results if args.show else ():
        right = asked.key.casefold() in str(result.get("text", "")).casefold()
        if not right if asked.key else result.get("quoted"):
            print(f"{asked.kind}: {asked.text} [{asked.key}] -> {str(result.get('text'))[:200]!r}")
    print(json.dumps({"bench": "week", "notes": args.notes, "vectors": "minilm" if args.host else "scripted", **figures(results)}))


if __name__ == "__main__":
    main()
