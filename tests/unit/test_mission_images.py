"""Images of missions: uploaded part by part, kept once, shown to models that see, and to no others."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batos.api import uploads
from batos.app.kernel import Kernel
from batos.config import Settings, load
from batos.errors import Busy, InvalidInput, MessageTooLarge, MissionFailed, MissionIdTaken, UnknownPicture, Unreadable
from batos.image import blobs, journal, ledger, retention
from batos.mind.plans import QUESTION
from batos.testing import ScriptedOllama
from batos.testing.script import default_answer
from batos.wire import Client, SyncClient
from batos.wire.fields import Request
from tests.support.daemon import note_built, provisioned
from tests.support.pictures import png
from tests.support.wire import Caller, calling

SEES, BLIND = "eye:8b", "blind:8b"
ANSWER = "A white square lies on a grey table beside a cup."
Start = Callable[..., Awaitable[Kernel]]


@pytest.fixture
def server(scripted: ScriptedOllama) -> ScriptedOllama:
    """An Ollama with two models of its user's, of which one sees."""
    provisioned(scripted)
    for name in (SEES, BLIND):
        info = (("general.parameter_count", 8 * 10**9), ("llama.context_length", 32_768))
        model = replace(scripted.models["robin:embedded"], can=("completion", "tools"), info=info)
        scripted.models[name] = replace(model, weights=hashlib.sha256(name.encode()).hexdigest())
    scripted.give_sight(SEES)
    scripted.say(lambda request: default_answer(request) if request.get("format") else ANSWER)
    return scripted


def settings(folder: Path, server: ScriptedOllama, **given: Any) -> Settings:
    note_built(server.host, folder / "ollama")
    quiet = {"listen": ("tcp://127.0.0.1:*",), "autotelic": "off", "shutdown_s": 1, "retry_backoff_s": 0.01, "remember": "off"}
    return load({"data": str(folder), "ollama_host": server.host, **quiet, **given}, environ={})


@pytest.fixture
async def start(tmp_path: Path, server: ScriptedOllama) -> AsyncIterator[Start]:
    running: list[Kernel] = []

    async def begin(model: str = SEES, **given: Any) -> Kernel:
        for kernel in running:
            await kernel.stop()
        running[:] = [await Kernel.start(settings(tmp_path, server, model=model, **given))]
        await running[0].models_settled()
        return running[0]

    yield begin
    for kernel in running:
        await kernel.stop()


def client_of(kernel: Kernel) -> Client:
    return Client(kernel.endpoints[0])


def caller_of(kernel: Kernel) -> AbstractAsyncContextManager[Caller]:
    """A program that uploads parts as it likes."""
    return calling(kernel.endpoints[0])


def shown(server: ScriptedOllama) -> list[list[list[bytes]]]:
    """Of each chat, of each message of the user's: the images."""
    users = [[one for one in chat["messages"] if one["role"] == "user"] for chat in server.chats]
    return [[[base64.b64decode(image) for image in one.get("images", ())] for one in chat] for chat in users]


async def test_a_picture_goes_with_every_inference_of_its_mission(start: Start, server: ScriptedOllama, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(cat := png(640, 480))  # of 900 KB: it takes two messages
    kernel = await start()
    async with client_of(kernel) as client:
        accepted = await client.submit("What can we plan with this?", depth="facets", persona="brick", images=[tmp_path / "cat.png"])
        result = await client.result(accepted.id, timeout_s=60)
        assert (result["text"], result["facets"] != []) == (ANSWER, True)
        assert len(server.chats) > 2
        assert all(images == [[cat]] for images in shown(server))
        record = (await client.show(accepted.id))["record"]
        status = await client.status(accepted.id)
    (told,) = record["images"]
    digest = hashlib.sha256(cat).hexdigest()
    assert told == {
        "digest": digest, "name": "cat.png", "type": "image/png", "bytes": len(cat), "width": 640, "height": 480,
    }  # fmt: skip
    assert status["images"] == [told]
    paid = kernel.image.read(lambda root: journal.load(root, accepted.id))
    assert not any(base64.b64encode(cat[:300]).decode() in repr(one) for one in paid)
    assert (await kernel.replays.replay(accepted.id))["outcome"] == "same"


async def test_an_answer_has_to_do_with_the_picture_and_not_with_the_words(start: Start, server: ScriptedOllama) -> None:
    server.script.clear()
    said = "There are three boats with red sails, and they leave the harbour as it is in the morning, with all of the gulls above them."
    server.say(f"{said} The fourth one stays where it was, and nobody is in it.")
    kernel = await start()

    async def far(text: str, others: Sequence[str]) -> float:
        return 0.0

    kernel.likeness.nearest = far  # type: ignore[method-assign]
    async with client_of(kernel) as client:
        for id, images in (("without", []), ("with", [png()])):
            await client.submit("What do you think people will make of this today?", id=id, persona="robin", depth="direct", images=images)
        results = {id: await client.result(id, timeout_s=60) for id in ("without", "with")}
    assert {id: "unsure" in result for id, result in results.items()} == {"without": True, "with": False}


async def test_the_same_picture_is_kept_and_sent_once(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = await start()
    dispatcher, sent = kernel.transport.dispatcher, 0
    handle = dispatcher.handle

    async def counted(request: Request, client: Any) -> None:
        nonlocal sent
        sent += request.op == "upload" and bool(request.data)  # type: ignore[attr-defined]
        await handle(request, client)

    monkeypatch.setattr(dispatcher, "handle", counted)
    async with client_of(kernel) as client:
        for id in ("m1", "m2"):
            await client.submit("What is this?", id=id, images=[png()])
            await client.result(id, timeout_s=60)
        assert sent == 1
    assert len(list(blobs.folder_of(tmp_path / "live_image.fs").rglob("*.blob"))) == 1
    assert not blobs.folder_of(tmp_path / "live_image.fs").stat().st_mode & 0o077


async def test_the_same_id_with_other_pictures_is_taken(start: Start) -> None:
    kernel = await start()
    async with client_of(kernel) as client:
        await client.submit("What is this?", id="m1", images=[png()])
        assert (await client.submit("What is this?", id="m1", images=[png()])).duplicate
        for others in ([], [png(seed=2)], [png(), png(seed=2)]):
            with pytest.raises(MissionIdTaken, match="m1"):
                await client.submit("What is this?", id="m1", images=others)
        await client.submit("What is this?", id="plain")
        with pytest.raises(MissionIdTaken, match="plain"):
            await client.submit("What is this?", id="plain", images=[png()])


async def test_from_code_without_a_loop_and_in_small_messages(start: Start, server: ScriptedOllama, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(png(60, 60))
    kernel = await start(message_bytes=4096)

    def ask() -> str:
        with SyncClient(kernel.endpoints[0]) as client:  # the daemon says how much a message may bring
            known = client.upload(str(tmp_path / "cat.png"), "Tom")
            assert (known["name"], known["width"]) == ("Tom", 60)
            accepted = client.submit("What is this?", persona="robin", images=[known, png()])
            return str(client.result(accepted.id, timeout_s=60)["text"])

    assert await asyncio.to_thread(ask) == ANSWER
    assert shown(server) == [[[png(60, 60), png()]]]


async def test_a_persona_whose_model_is_not_to_be_had_keeps_nobody_from_looking(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(f"{SEES},babs=gone:1")
    async with client_of(kernel) as client:
        accepted = await client.submit("I feel stuck, what does this tell me?", depth="direct", images=[png()])
        assert (await client.result(accepted.id, timeout_s=60))["persona"] == "ROBIN"


async def test_a_picture_that_was_not_uploaded_is_refused_and_nothing_is_accepted(start: Start) -> None:
    kernel = await start()
    async with client_of(kernel) as client:
        with pytest.raises(UnknownPicture, match="upload it again"):
            await client.submit("What is this?", id="m1", images=[{"digest": "0" * 64, "name": "gone.png"}])
        assert (await client.missions())["missions"] == []


async def test_one_that_went_between_upload_and_mission_is_brought_again(start: Start, tmp_path: Path) -> None:
    kernel = await start()
    (tmp_path / "cat.png").write_bytes(png())
    tries = []

    class Slow(Client):
        """Takes its time between an upload and the mission for which it is."""

        async def upload(self, *args: Any, **more: Any) -> dict[str, Any]:
            known = await super().upload(*args, **more)
            tries.append(known)
            if len(tries) == 1:
                assert await retention.drop_uploads(kernel.image, -1) == 1
            return known

    async with Slow(kernel.endpoints[0]) as client:
        await client.submit("What is this?", id="m1", images=[tmp_path / "cat.png"])
        assert len(tries) == 2
        assert (await client.result("m1", timeout_s=60))["text"] == ANSWER


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"GIF89a" + b"\0" * 40, InvalidInput, "PNG, JPEG and WebP.*it is a GIF; convert it"),
        (b"\0\0\0\x18ftypheic" + b"\0" * 40, InvalidInput, "it is a HEIC"),
        (b"just words", InvalidInput, "its format is not known"),
        (png()[:20], InvalidInput, "broken"),
        (png(40, 40), MessageTooLarge, "save it smaller"),
        (png(1, 1)[:16] + (9000).to_bytes(4, "big") * 2 + png(1, 1)[24:], MessageTooLarge, "9000 × 9000 pixels; at most"),
    ],
    ids=["gif", "heic", "text", "cut", "large", "bomb"],
)
async def test_what_is_no_picture_for_a_model_is_refused(start: Start, data: bytes, error: type[Exception], words: str) -> None:
    kernel = await start(brief_image_bytes=4096)
    async with client_of(kernel) as client:
        with pytest.raises(error, match=words):
            await client.submit("What is this?", images=[data])
        assert (await client.missions())["missions"] == []
    assert kernel.image.read(lambda root: blobs.unheld_pictures(root, float("inf"))) == []


async def test_so_many_are_taken_and_no_more(start: Start, tmp_path: Path) -> None:
    kernel = await start(brief_images=2)
    async with client_of(kernel) as client:
        await client.submit("What are these?", images=[png(seed=1), png(seed=2)])
        with pytest.raises(InvalidInput, match="3 images; at most 2 are taken"):
            await client.submit("What are these?", images=[png(seed=n) for n in range(3)])
        with pytest.raises(InvalidInput, match="named twice"):
            await client.submit("What are these?", images=[png(), png()])
        with pytest.raises(Unreadable, match=r"gone\.png"):
            await client.submit("What is this?", images=[tmp_path / "gone.png"])
        with pytest.raises(Unreadable, match="empty"):
            await client.submit("What is this?", images=[b""])


async def test_parts_come_in_any_order_twice_and_from_several(start: Start) -> None:
    """As clients send them that lost an answer, or that bring the same picture at once."""
    kernel = await start()
    data = png(40, 40)
    digest = hashlib.sha256(data).hexdigest()
    async with caller_of(kernel) as one, caller_of(kernel) as other:

        async def part(client: Caller, begin: int, end: int) -> dict[str, Any]:
            said = base64.b64encode(data[begin:end]).decode()
            return await client.ask("upload", digest=digest, bytes=len(data), offset=begin, data=said)

        assert (await part(one, 1000, 2000))["have"] == 0  # too early
        assert (await part(one, 0, 1000))["have"] == 1000
        assert (await part(one, 0, 1000))["have"] == 1000  # again
        assert (await part(other, 500, 1500))["have"] == 1000  # does not fit
        assert (await part(other, 1000, 2000))["have"] == 2000
        with pytest.raises(InvalidInput, match="earlier parts of this image gave"):
            await one.ask("upload", digest=digest, bytes=7, offset=0, data="aGk=")
        reply = await part(one, 2000, len(data))
        assert (reply["whole"], reply["image"]["type"]) == (True, "image/png")
        assert await part(other, 2000, len(data)) == reply
        with pytest.raises(InvalidInput, match="base64"):
            await one.ask("upload", digest="1" * 64, bytes=7, data="?")


async def test_what_is_not_of_its_digest_or_too_long_begins_again(start: Start) -> None:
    kernel = await start()
    data = png()
    digest = hashlib.sha256(data).hexdigest()
    async with client_of(kernel) as client, caller_of(kernel) as caller:
        with pytest.raises(InvalidInput, match="was announced"):
            await caller.ask("upload", digest=digest, bytes=len(data), data=base64.b64encode(bytes(len(data))).decode())
        with pytest.raises(InvalidInput, match="more than the 5 bytes"):
            await caller.ask("upload", digest=digest, bytes=5, data=base64.b64encode(data).decode())
        assert (await client.upload(data))["digest"] == digest


async def test_uploads_that_are_not_finished_take_so_much_memory_and_no_more(start: Start) -> None:
    kernel = await start(uploads_bytes=10_000)
    async with caller_of(kernel) as client:
        await client.ask("upload", digest="1" * 64, bytes=6000, data="aGk=")
        with pytest.raises(Busy, match="of the 10000 for all"):
            await client.ask("upload", digest="2" * 64, bytes=6000, data="aGk=")
        await client.ask("upload", digest="3" * 64, bytes=3000, data="aGk=")


async def test_images_of_a_few_bytes_that_are_not_finished_are_bounded_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "AT_ONCE", 3)
    kernel = await start()
    async with caller_of(kernel) as client:
        for n in range(3):
            await client.ask("upload", digest=f"{n:064x}", bytes=2, data="aA==")
        with pytest.raises(Busy, match="3 uploads are under way"):
            await client.ask("upload", digest=f"{3:064x}", bytes=2, data="aA==")
        monkeypatch.setattr(uploads, "_IDLE_S", 0.0)
        await client.ask("upload", digest=f"{3:064x}", bytes=2, data="aA==")


async def test_who_announces_another_size_and_goes_keeps_nobody_from_an_image(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    data = png()
    digest = hashlib.sha256(data).hexdigest()
    kernel = await start()
    async with client_of(kernel) as client, caller_of(kernel) as caller:
        await caller.ask("upload", digest=digest, bytes=len(data) + 1, data="aA==")
        with pytest.raises(InvalidInput, match="earlier parts of this image gave"):
            await client.upload(data)
        monkeypatch.setattr(uploads, "_IDLE_S", 0.0)
        assert (await client.upload(data))["digest"] == digest


async def test_a_model_that_does_not_see_is_not_asked_and_what_follows_is_said(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(BLIND)
    async with client_of(kernel) as client:
        accepted = await client.submit("What is this?", persona="robin", images=[png()])
        with pytest.raises(
            MissionFailed, match=rf"ROBIN thinks with .*blind.* which does not see; here see: {SEES}; `batos models use {SEES}`"
        ) as e:
            await client.result(accepted.id, timeout_s=60)
        assert e.value.context["code"] == "model_blind"
        assert e.value.context["models"] == [SEES]
        assert server.chats == []
        await client.use_model(SEES)
        again = await client.submit("What is this?", persona="robin", images=[png()])
        assert (await client.result(again.id, timeout_s=60))["text"] == ANSWER
    assert shown(server) == [[[png()]]]


async def test_where_no_model_sees_it_is_said_how_to_get_one(start: Start, server: ScriptedOllama) -> None:
    del server.models[SEES]
    kernel = await start(BLIND)
    async with client_of(kernel) as client:
        accepted = await client.submit("What is this?", images=[png()])
        with pytest.raises(MissionFailed, match="no model here does; `batos models --ensure"):
            await client.result(accepted.id, timeout_s=60)


async def test_a_mission_that_may_ask_asks_which_model_shall_look(start: Start, server: ScriptedOllama) -> None:
    server.script.clear()
    server.say(lambda request: json.dumps({QUESTION: ""}) if request.get("format") else ANSWER)
    kernel = await start(BLIND)
    async with client_of(kernel) as client:
        for id, answer in (("m1", SEES), ("m2", "ei:8b")):
            await client.submit("What is this?", id=id, persona="robin", may_ask=True, images=[png()])
            async for event in client.watch(id):
                if event["type"] == "needs_input" or event["state"] == "NEEDS_INPUT":
                    break
            status = await client.status(id)
            assert f"here see: {SEES}" in status["question"]["question"]
            await client.answer(id, answer)
        kernel = await start(BLIND)  # what was answered is known after a restart
    async with client_of(kernel) as client:
        assert (await client.result("m1", timeout_s=60))["text"] == ANSWER
        with pytest.raises(
            MissionFailed, match=r"'ei:8b', which was named for them, is not one of the models here that see \(did you mean 'eye:8b'\?\)"
        ):
            await client.result("m2", timeout_s=60)
    assert {chat["model"] for chat in server.chats} == {SEES}
    assert (await kernel.replays.replay("m1"))["outcome"] == "same"


async def test_a_persona_whose_model_sees_goes_before_the_others(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(f"{BLIND},alfred={SEES}")
    async with client_of(kernel) as client:
        for id, images in (("without", ()), ("with", [png()])):
            await client.submit("I feel stuck, what does this tell me?", id=id, depth="direct", images=images)
            await client.result(id, timeout_s=60)
        routes = {id: (await client.status(id))["routing"] for id in ("without", "with")}
    assert routes["without"]["persona"] == "robin"
    assert (routes["with"]["persona"], routes["with"]["why"].endswith("and its model sees")) == ("alfred", True)


async def test_a_follow_up_shows_the_picture_in_its_turn_so_that_the_prompt_begins_alike(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    cat, dog = png(seed=1), png(seed=2)
    async with client_of(kernel) as client:
        for id, context, images in (("m1", None, [cat]), ("m2", "m1", []), ("m3", "m2", [dog]), ("m4", "m3", [])):
            await client.submit(f"What is {id}?", id=id, context=context, depth="direct", persona="robin", images=images)
            await client.result(id, timeout_s=60)
        assert shown(server) == [[[cat]], [[cat], []], [[cat], [], [dog]], [[cat], [], [dog], []]]
        for before, after in zip(server.chats, server.chats[1:], strict=False):
            head = before["messages"]
            assert after["messages"][: len(head)] == head
        assert [one.get("of") for one in (await client.status("m4"))["images"]] == ["m3", "m1"]
        await client.submit("And all of it?", id="m5", context="m4", depth="facets", persona="robin")
        await client.result("m5", timeout_s=60)
        assert {tuple(images[-1]) for images in shown(server)[4:]} == {(cat, dog)}
    for id in ("m1", "m2", "m3", "m4", "m5"):
        assert (await kernel.replays.replay(id))["outcome"] == "same"


async def test_a_follow_up_on_a_model_that_does_not_see_goes_without_what_was_shown_before(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(f"{BLIND},alfred={SEES}")
    async with client_of(kernel) as client:
        await client.submit("What is this?", id="m1", persona="alfred", depth="direct", images=[png()])
        await client.result("m1", timeout_s=60)
        await client.submit("And so?", id="m2", context="m1", persona="robin", depth="direct")
        assert (await client.result("m2", timeout_s=60))["text"] == ANSWER
    assert shown(server) == [[[png()]], [[], []]]


async def test_no_more_is_shown_than_the_setting_says_its_own_and_the_newest_first(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(brief_images=2)
    first, second, third = (png(seed=n) for n in (1, 2, 3))
    async with client_of(kernel) as client:
        for id, context, images in (("m1", None, [first]), ("m2", "m1", [second]), ("m3", "m2", [third])):
            await client.submit("What is this?", id=id, context=context, depth="direct", persona="robin", images=images)
            await client.result(id, timeout_s=60)
        results = [await client.result(id, timeout_s=60) for id in ("m1", "m2", "m3")]
    assert shown(server)[-1] == [[], [second], [third]]
    assert [one.get("images_left_out") for one in results] == [None, None, 1]


async def test_images_of_turns_that_are_not_told_are_told_as_left_out(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(context_missions=1)
    async with client_of(kernel) as client:
        for id, context in (("m1", None), ("m2", "m1"), ("m3", "m2")):
            picture = png(seed=int(id[1:]))
            await client.submit("What is this?", id=id, context=context, depth="direct", persona="robin", images=[picture])
            await client.result(id, timeout_s=60)
        results = [await client.result(id, timeout_s=60) for id in ("m1", "m2", "m3")]
    assert shown(server)[-1] == [[png(seed=2)], [png(seed=3)]]
    assert [one.get("images_left_out") for one in results] == [None, None, 1]


async def test_where_all_is_too_long_for_the_context_pictures_of_earlier_turns_go_first(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(num_ctx=512)  # of which a picture takes 256
    async with client_of(kernel) as client:
        for id, context in (("m1", None), ("m2", "m1")):
            picture = png(seed=int(id[1:]))
            await client.submit("What is this?", id=id, context=context, depth="direct", persona="robin", images=[picture])
        results = [await client.result(id, timeout_s=60) for id in ("m1", "m2")]
    assert [one.get("images_left_out") for one in results] == [None, 1]
    assert [one["text"] for one in results] == [ANSWER, ANSWER]
    assert shown(server)[-2:] == [[[png(seed=1)], [png(seed=2)]], [[], [png(seed=2)]]]
    kernel = await start(num_ctx=512)
    assert (await kernel.replays.replay("m2"))["outcome"] == "same"


async def test_a_folded_mission_holds_no_picture_and_is_told_by_its_own(start: Start) -> None:
    kernel = await start()
    async with client_of(kernel) as client:
        await client.submit("What is this?", id="m1", images=[png()])
        await client.result("m1", timeout_s=60)

        def others(root: Any) -> None:
            for n in range(2, ledger.MILESTONE + 2):
                ledger.accept(root, f"n{n}", "b", {}, True)
                ledger.complete(ledger.mission_of(root, f"n{n}"), {"text": ""}, None)
                ledger.settle(root, f"n{n}")

        await kernel.image.system(others)
        await kernel.costs.fold()
        await kernel.image.committer.told()
        await retention.fold(kernel.image, retention.FoldTerms(kept=1, days=0, history_days=0))
        assert (await client.status("m1"))["folded"]
        again = await client.submit("What is this?", id="m1", images=[png()])
        assert (again.duplicate, again.state) == (True, "COMPLETE")
        for images in ([], [png(seed=2)]):
            with pytest.raises(MissionIdTaken):
                await client.submit("What is this?", id="m1", images=images)
    kept = kernel.image.read(lambda root: [list(held.missions) for held in ledger.ledger_of(root).pictures.kept.values()])
    assert kept == [[], []], "what was uploaded since is held by nobody"


async def test_a_picture_is_forgotten_with_the_last_mission_that_holds_it(start: Start, tmp_path: Path) -> None:
    kernel = await start()
    folder = blobs.folder_of(tmp_path / "live_image.fs")
    async with client_of(kernel) as client:
        await client.submit("What is this?", id="m1", images=[png()])
        await client.result("m1", timeout_s=60)
        await client.submit("What is it?", id="m2", context="m1")
        await client.result("m2", timeout_s=60)
        await client.upload(png(seed=2))
        number = {id: kernel.image.read(lambda root, id=id: ledger.mission_of(root, id).number) for id in ("m1", "m2")}
        for _ in range(2):  # as after a kill between the two steps of retention
            await kernel.image.system(retention.drop_journals, [(number["m1"], "m1")])
        digest = hashlib.sha256(png()).hexdigest()
        assert kernel.image.read(blobs.read_picture, digest) == png()
        await kernel.image.system(retention.drop_journals, [(number["m2"], "m2")])
        with pytest.raises(UnknownPicture, match=r"image\.journal_days"):
            kernel.image.read(blobs.read_picture, digest)
        assert (await client.status("m1"))["images"][0]["digest"] == digest
        assert len(list(folder.rglob("*.blob"))) == 2
        await kernel.upkeep.pack(0)
        assert len(list(folder.rglob("*.blob"))) == 1  # the one that waits for a mission
        assert await retention.drop_uploads(kernel.image, 1) == 0
        assert await retention.drop_uploads(kernel.image, -1) == 1
        await kernel.upkeep.pack(0)
        assert list(folder.rglob("*.blob")) == []


async def test_what_no_mission_came_for_takes_so_much_disk_and_no_more(start: Start) -> None:
    every = [png(20, 20, seed=n) for n in range(5)]
    kernel = await start(uploads_disk_bytes=3 * len(every[0]))
    async with client_of(kernel) as client:
        await client.submit("What is this?", images=[every[0]])  # it does not count: a mission has it
        for n in (1, 2, 3, 1, 4):  # the second time it counts as brought anew
            await client.upload(every[n])
    there = [kernel.image.read(blobs.about_picture, hashlib.sha256(one).hexdigest()) is not None for one in every]
    assert there == [True, True, False, True, True]


async def test_backups_and_forks_have_them(start: Start, tmp_path: Path) -> None:
    kernel = await start()
    async with client_of(kernel) as client:
        await client.submit("What is this?", id="m1", images=[png()])
        await client.result("m1", timeout_s=60)
        assert (await client.backup(full=True))["blob_bytes"] > len(png())
        await client.fork(str(tmp_path / "fork"))
    (file,) = blobs.folder_of(tmp_path / "fork" / "live_image.fs").rglob("*.blob")
    assert file.read_bytes().endswith(png())


async def test_a_rehearsal_in_a_mirror_reads_them(start: Start) -> None:
    from batos.image.living_image import mirror

    kernel = await start()
    async with client_of(kernel) as client:
        await client.upload(png())
    async with mirror(kernel.image, cache_size=100) as stage:
        assert stage.read(blobs.read_picture, hashlib.sha256(png()).hexdigest()) == png()


def test_the_key_of_an_inference_has_the_digests_in_it_and_stays_what_it_was_without() -> None:
    def key(**more: Any) -> bytes:
        return journal.key_of(journal.content_of("d", "system", "user", None, {}, **more))

    assert key() == key(shown=())
    turns = (("a", "b"),)
    keys = {
        key(),
        key(shown=(("1",),)),
        key(shown=(("2",),)),
        key(shown=(("1", "2"),)),
        key(turns=turns),
        key(turns=turns, shown=(("1",), ())),
    }
    keys |= {key(turns=turns, shown=((), ("1",)))}
    assert len(keys) == 7
