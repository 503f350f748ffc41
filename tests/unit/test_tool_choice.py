"""Which tool a brief asks for, with which arguments: rules, schema, the model for what is open, and models that use tools by themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from batos.bridge.client import OllamaInference
from batos.bridge.inference import ChatReply, ChatRequest
from batos.errors import InferenceFailed
from batos.image import journal
from batos.image.effects import READS
from batos.mind.argument_reader import read_arguments
from batos.mind.json_schema import problem_with
from batos.mind.text_likeness import TextLikeness
from batos.mind.tool_choice import ChoiceServices, ChosenCall, FailedCall, ToolChoice, ToolOffer, choose, offered
from batos.testing import ScriptedOllama
from batos.tools.definitions import ToolDefinition

TEXT, WHOLE, REAL, SWITCH = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}


def schema(required: str = "", **properties: Any) -> dict[str, Any]:
    """A schema of an object; `required` names properties, with spaces between."""
    return {"type": "object", "properties": properties, "required": required.split()}


def about(kind: dict[str, Any], description: str, **more: Any) -> dict[str, Any]:
    return {**kind, "description": description, **more}


def tool(name: str, description: str, parameters: dict[str, Any]) -> ToolOffer:
    return ToolOffer(name, ToolDefinition(name=name.rpartition(".")[2], description=description, parameters=parameters))


TRIANGLE = tool(
    "geo.triangle_area", "Calculate the area of a triangle from its base and height.", schema("base height", base=REAL, height=REAL)
)
WEATHER = tool(
    "sky.get_weather",
    "Get the current weather of a city.",
    schema("city", city=about(TEXT, "The city."), unit={"type": "string", "enum": ["celsius", "fahrenheit"]}),
)
NOTE = tool(
    "notes.write_note",
    "Write a note into a folder.",
    schema("folder text", folder=about(TEXT, "The folder."), text=about(TEXT, "The text of the note.")),
)
TOOLS = (TRIANGLE, WEATHER, NOTE)


class Asked:
    """A model that answers what it is told to, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [answer if isinstance(answer, str) else json.dumps(answer) for answer in answers]
        self.prompts: list[str] = []
        self.schemas: list[dict[str, Any] | None] = []

    async def __call__(self, prompt: str, schema: dict[str, Any] | None) -> str:
        self.prompts.append(prompt)
        self.schemas.append(schema)
        return self.answers.pop(0)


class Caller:
    """A model that uses tools by itself; each answer is a list of calls."""

    def __init__(self, *answers: list[tuple[str, Any]]) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []
        self.tools: tuple[dict[str, Any], ...] = ()

    async def __call__(self, prompt: str, tools: tuple[dict[str, Any], ...]) -> ChatReply:
        self.prompts.append(prompt)
        self.tools = tools
        calls = self.answers.pop(0)
        return ChatReply("", "m", calls=tuple((name, told if isinstance(told, str) else json.dumps(told)) for name, told in calls))


async def alike_by_words(ones: Sequence[str], others: Sequence[str]) -> list[list[float]]:
    """Cosines of an embedder that knows words only."""

    def words(text: str) -> set[str]:
        return {word.strip(".,:?").lower() for word in text.replace("_", " ").split()}

    return [[len(words(a) & words(b)) / max(1, len(words(a)) * len(words(b))) ** 0.5 for b in others] for a in ones]


# --- arguments by rule


@pytest.mark.parametrize(
    ("text", "parameters", "arguments"),
    [
        ("The area with a base of 10 units and height of 5.5", schema("base height", base=WHOLE, height=REAL), {"base": 10, "height": 5.5}),
        ("height 5, base 10", schema("base height", base=WHOLE, height=WHOLE), {"base": 10, "height": 5}),
        ("Solve it where a=2, b=-6 and c=5", schema("a b c", a=WHOLE, b=WHOLE, c=WHOLE), {"a": 2, "b": -6, "c": 5}),
        ("The greatest divisor of 12 and 18", schema("num1 num2", num1=WHOLE, num2=WHOLE), {"num1": 12, "num2": 18}),
        ("Pay $1,500 for 3 years", schema("years amount", years=WHOLE, amount=WHOLE), {"years": 3, "amount": 1500}),
        ("at a rate of 5%", schema("rate", rate=REAL), {"rate": 0.05}),
        ("at a rate of 5%", schema("rate", rate=about(REAL, "in percent")), {"rate": 5}),
        (
            "weighs 70kg and is 1.75m tall",
            schema("height weight", height=about(REAL, "in meters"), weight=REAL),
            {"height": 1.75, "weight": 70},
        ),
        (
            "Play 'Yellow Submarine' by the Beatles",
            schema("title artist", title=TEXT, artist=TEXT),
            {"title": "Yellow Submarine", "artist": "Beatles"},
        ),
        (
            "A train from Graz to Linz",
            schema("destination origin", destination=TEXT, origin=TEXT),
            {"origin": "Graz", "destination": "Linz"},
        ),
        ("Mean of [3, 4, 5]", schema("values", values={"type": "array", "items": WHOLE}), {"values": [3, 4, 5]}),
        ("Mean of 12, 24 and 36", schema("values", values={"type": "array", "items": REAL}), {"values": [12, 24, 36]}),
        ("Invite 'Ann', 'Bob' and 'Eve'", schema("names", names={"type": "array", "items": TEXT}), {"names": ["Ann", "Bob", "Eve"]}),
        (
            "Weather in Rome on March 5, 2024",
            schema("city date", city=TEXT, date=about(TEXT, "YYYY-MM-DD")),
            {"city": "Rome", "date": "2024-03-05"},
        ),
        ("Weather on 5. März 2024", schema("date", date={"type": "string", "format": "date"}), {"date": "2024-03-05"}),
        ("Read ~/notes/today.md", schema("path", path=TEXT), {"path": "~/notes/today.md"}),
        ("Read plans/2026/today.md", schema("path", path=TEXT), {"path": "plans/2026/today.md"}),
        ("Delete ../plans/to-do.txt now", schema("path", path=TEXT), {"path": "../plans/to-do.txt"}),
        ("Order 45-A7 status", schema("order_id", order_id=TEXT), {"order_id": "45-A7"}),
        ("Show three results for cats", schema("query", query=TEXT, max_results=WHOLE), {"query": "cats", "max_results": 3}),
    ],
)
def test_values_of_a_brief_fill_parameters(text: str, parameters: dict[str, Any], arguments: dict[str, Any]) -> None:
    reading = read_arguments(text, parameters)
    assert (reading.arguments, reading.open) == (arguments, ())


@pytest.mark.parametrize(
    ("text", "parameters", "arguments"),
    [
        ("Wie ist das Wetter in Köln?", schema("city", city=TEXT), {"city": "Köln"}),
        ("Fläche mit Grundseite 2,5 und Höhe 4", schema("grundseite höhe", grundseite=REAL, höhe=REAL), {"grundseite": 2.5, "höhe": 4}),
        ("Quel temps fait-il à Lyon ?", schema("ville", ville=TEXT), {"ville": "Lyon"}),
        ("Un tren de Madrid a Sevilla", schema("origen destino", origen=TEXT, destino=TEXT), {"origen": "Madrid", "destino": "Sevilla"}),
        ("搜索「红茶」", schema("query", query=TEXT), {"query": "红茶"}),
        ("Schreibe „Milch kaufen“ auf", schema("text", text=TEXT), {"text": "Milch kaufen"}),
    ],
)
def test_briefs_in_other_languages(text: str, parameters: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert read_arguments(text, parameters).arguments == arguments


def test_an_optional_parameter_is_filled_only_where_something_speaks_for_it() -> None:
    parameters = schema("city", city=TEXT, days=WHOLE, lang=TEXT, detailed=SWITCH)
    assert read_arguments("Weather in Oslo", parameters).arguments == {"city": "Oslo"}
    more = read_arguments("Detailed weather in Oslo for 3 days", parameters).arguments
    assert more == {"city": "Oslo", "days": 3, "detailed": True}


def test_choices_are_those_of_the_schema() -> None:
    parameters = schema("unit", unit={"type": "string", "enum": ["celsius", "fahrenheit"]})
    assert read_arguments("in Celsius please", parameters).arguments == {"unit": "celsius"}
    reading = read_arguments("in kelvin please", parameters)
    assert (reading.arguments, reading.open) == ({}, (("unit",),))


def test_what_a_given_argument_asks_for_is_open_too() -> None:
    parameters = {**schema("", max_results=WHOLE, query=TEXT, lang=TEXT), "dependentRequired": {"max_results": ["lang"], "lang": ["query"]}}
    reading = read_arguments("Show three results", parameters)
    assert (reading.arguments, reading.open) == ({"max_results": 3}, (("query",), ("lang",)))


def test_a_switch_that_the_brief_denies_is_false() -> None:
    parameters = schema("", include_images=SWITCH)
    assert read_arguments("List it with images", parameters).arguments == {"include_images": True}
    assert read_arguments("List it without images", parameters).arguments == {"include_images": False}
    assert read_arguments("List it", parameters).arguments == {}


def test_objects_in_arguments_are_filled_where_they_are_whole() -> None:
    address = schema("city street", city=TEXT, street=TEXT)
    reading = read_arguments("city 'Wien', street 'Graben 5', weight 3", schema("address weight", address=address, weight=WHOLE))
    assert reading.arguments == {"address": {"city": "Wien", "street": "Graben 5"}, "weight": 3}
    part = read_arguments("city 'Wien', weight 3", schema("weight", address=address, weight=WHOLE))
    assert part.arguments == {"weight": 3}
    needed = read_arguments("city 'Wien'", schema("address", address=address))
    assert needed.open == (("address", "street"),)


def test_references_and_alternatives_are_followed() -> None:
    parameters = {
        "type": "object",
        "properties": {"size": {"$ref": "#/$defs/size"}, "count": {"anyOf": [{"type": "null"}, WHOLE]}},
        "required": ["size", "count"],
        "$defs": {"size": {"type": "string", "enum": ["small", "large"]}},
    }
    assert read_arguments("a large one, count 4", parameters).arguments == {"size": "large", "count": 4}
    endless = {**parameters, "$defs": {"size": {"$ref": "#/$defs/size"}}}
    assert read_arguments("count 4", endless).arguments["count"] == 4


def test_defaults_stand_in_for_required_parameters_that_the_brief_does_not_tell() -> None:
    parameters = schema("city days", city=TEXT, days=about(WHOLE, "How many.", default=7))
    assert read_arguments("Weather in Oslo", parameters).arguments == {"city": "Oslo", "days": 7}


def test_a_value_out_of_bounds_is_not_taken() -> None:
    reading = read_arguments("count 400", schema("count", count={"type": "integer", "maximum": 100}))
    assert (reading.arguments, reading.open) == ({}, (("count",),))


# --- choices without a model that uses tools


async def test_the_tool_that_is_most_alike_is_called_with_arguments_of_the_brief() -> None:
    choice = await choose("Calculate the area of a triangle with base 6 and height 10.", TOOLS, ChoiceServices(likeness=alike_by_words))
    assert choice.calls == (ChosenCall("geo.triangle_area", {"base": 6, "height": 10}),)
    assert "geo.triangle_area" in choice.why
    assert "rules" in choice.why


async def test_offered_are_the_most_alike_first() -> None:
    found = await offered("the weather of a city", TOOLS, 2, alike_by_words)
    assert [offer.name for offer, _ in found] == ["sky.get_weather", *(offer.name for offer, _ in found[1:])]
    assert len(found) == 2
    assert found[0][1] > found[1][1]
    assert await offered("anything", (), 5) == []


async def test_no_tool_fits_a_brief_about_something_else() -> None:
    choice = await choose("Who wrote the opera Fidelio?", TOOLS, ChoiceServices(likeness=alike_by_words))
    assert choice.calls == ()
    assert "no tool fits" in choice.why
    assert (await choose("Who wrote Fidelio?", (), ChoiceServices())).why == "no tool is offered"


async def test_a_word_is_no_url_and_nothing_is_fetched_for_a_question_about_it() -> None:
    fetch = tool("web.fetch", "Read a page of the web.", schema("url", url=about(TEXT, "The URL of the page.")))
    ask = Asked({"url": "HTTP"}, {"url": "https://a.example/x"})
    choice = await choose("What is HTTP?", [fetch], ChoiceServices(ask=ask), floor=-1)
    assert choice.calls == ()
    assert "names no URL: 'HTTP'" in choice.why
    choice = await choose("Read the page https://a.example/x", [fetch], ChoiceServices(ask=ask), floor=-1)
    assert [call.arguments for call in choice.calls] == [{"url": "https://a.example/x"}]


async def test_a_tool_whose_required_arguments_the_brief_does_not_tell_fits_less() -> None:
    told = "Calculate the area of a triangle from its base and height."
    assert (await choose(told, TOOLS, ChoiceServices(likeness=alike_by_words), floor=0.9)).calls == ()


async def test_without_an_embedder_words_decide() -> None:
    async def away(ones: Sequence[str], others: Sequence[str]) -> None:
        return None

    for services in (ChoiceServices(), ChoiceServices(likeness=away)):
        choice = await choose("Get the current weather of the city Oslo.", TOOLS, services)
        assert choice.calls == (ChosenCall("sky.get_weather", {"city": "Oslo"}),)


async def test_the_model_is_asked_for_what_the_rules_leave_open_alone() -> None:
    ask = Asked({"folder": "recipes"})
    choice = await choose("Write a note: buy milk and eggs", [NOTE], ChoiceServices(ask=ask), floor=-1)
    assert choice.calls == (ChosenCall("notes.write_note", {"folder": "recipes", "text": "buy milk and eggs"}),)
    (asked,) = ask.schemas
    assert asked is not None
    assert list(asked["properties"]) == ["folder"]
    assert "buy milk" in ask.prompts[0]
    assert "the model for folder" in choice.why


@pytest.mark.parametrize("answer", ["{}", '{"folder": ""}', '{"folder": 4}', "no JSON at all", '["folder"]'])
async def test_what_the_model_does_not_tell_is_missing(answer: str) -> None:
    choice = await choose("Write a note: buy milk and eggs", [NOTE], ChoiceServices(ask=Asked(answer)), floor=-1)
    assert choice.calls == ()
    assert choice.missing == ("folder",)
    assert "folder" in choice.why


async def test_a_wrong_choice_of_the_model_is_not_taken() -> None:
    paint = tool("p.paint", "Paint the wall.", schema("color", color={"type": "string", "enum": ["red", "blue"]}))
    choice = await choose("Paint the wall nicely", [paint], ChoiceServices(ask=Asked({"color": "green"})), floor=-1)
    assert choice.calls == ()
    assert choice.missing == ("color",)


async def test_a_schema_that_ollama_refuses_is_left_out() -> None:
    class Refusing(Asked):
        async def __call__(self, prompt: str, schema: dict[str, Any] | None) -> str:
            if schema is not None:
                raise InferenceFailed("failed to load model vocabulary required for format", cause="refused")
            return await super().__call__(prompt, schema)

    choice = await choose("Write a note: buy milk and eggs", [NOTE], ChoiceServices(ask=Refusing({"folder": "home"})), floor=-1)
    assert choice.calls[0].arguments["folder"] == "home"


async def test_a_call_that_failed_is_chosen_anew_with_its_error_and_never_the_same() -> None:
    failed = FailedCall(ChosenCall("sky.get_weather", {"city": "Oslo"}), "city: 'Oslo' is ambiguous; name the country")
    ask = Asked({"city": "Oslo, Norway"})
    services = ChoiceServices(ask=ask)
    choice = await choose("Weather in Oslo", TOOLS, services, again=failed, floor=-1)
    assert choice.calls == (ChosenCall("sky.get_weather", {"city": "Oslo, Norway"}),)
    assert "ambiguous" in ask.prompts[0]
    same = await choose("Weather in Oslo", TOOLS, ChoiceServices(ask=Asked({"city": "Oslo"})), again=failed, floor=-1)
    assert same.calls == ()
    assert "ambiguous" in same.why


def test_a_choice_survives_the_record() -> None:
    choice = ToolChoice((ChosenCall("a.b", {"x": [1, {"y": None}]}),), "because", ("z",))
    assert ToolChoice.of(json.loads(json.dumps(choice.to_wire()))) == choice


# --- models that use tools by themselves


async def test_a_model_that_uses_tools_asks_for_several_calls() -> None:
    ask = Caller([("sky_get_weather", {"city": "Oslo"}), ("sky_get_weather", {"city": "Rome"})])
    choice = await choose("Weather in Oslo and Rome", TOOLS, ChoiceServices(ask_with_tools=ask))
    assert choice.calls == (ChosenCall("sky.get_weather", {"city": "Oslo"}), ChosenCall("sky.get_weather", {"city": "Rome"}))
    assert {told["function"]["name"] for told in ask.tools} == {"geo_triangle_area", "sky_get_weather", "notes_write_note"}


async def test_calls_that_do_not_fit_are_told_to_the_model_once() -> None:
    wrong = [("sky_get_weather", {"town": "Oslo"}), ("sky_get_weather", {"city": 4}), ("fly", {}), ("sky_get_weather", "[]")]
    for call in wrong:
        ask = Caller([call], [("sky_get_weather", {"city": "Oslo"})])
        choice = await choose("Weather in Oslo", TOOLS, ChoiceServices(ask_with_tools=ask))
        assert choice.calls == (ChosenCall("sky.get_weather", {"city": "Oslo"}),)
        assert "was refused" in ask.prompts[1]
        stubborn = await choose("Weather in Oslo", TOOLS, ChoiceServices(ask_with_tools=Caller([call], [call])))
        assert stubborn.calls == ()
        assert "do not fit" in stubborn.why


async def test_a_model_that_asks_for_no_tool_is_believed() -> None:
    choice = await choose("Hello", TOOLS, ChoiceServices(ask_with_tools=Caller([])))
    assert (choice.calls, choice.why) == ((), "the model asks for no tool")


async def test_a_model_is_told_why_its_earlier_call_failed() -> None:
    failed = FailedCall(ChosenCall("sky.get_weather", {"city": "Oslo"}), "no such city")
    ask = Caller([("sky_get_weather", {"city": "Oslo"})])
    choice = await choose("Weather in Oslo", TOOLS, ChoiceServices(ask_with_tools=ask), again=failed)
    assert choice.calls == ()
    assert "no such city" in ask.prompts[0]


def part(name: str, **properties: Any) -> ToolOffer:
    path = f"/ships/{{id}}/{name}"
    parameters = {"type": "object", "properties": {"id": WHOLE, **properties}, "required": ["id"], "additionalProperties": False}
    described = ToolDefinition(
        name=f"get_{name}", description=f"Get the {name} of a ship. More.", parameters=parameters, kind=READS, details={"path": path}
    )
    return ToolOffer(f"sea.get_{name}", described)


async def test_operations_that_read_one_resource_are_one_function_whose_argument_says_which() -> None:
    offers = [part("crew", rank={**TEXT, "description": "Least rank."}), part("cargo"), tool("sky.get_weather", "Get the weather.", {})]
    ask = Caller([("sea_ships_id", {"operation": "get_cargo", "id": 3}), ("sea.get_crew", {"id": 4, "rank": "cook"})])
    choice = await choose("Cargo of ship 3 and crew of ship 4", offers, ChoiceServices(ask_with_tools=ask), k=2)
    assert choice.calls == (ChosenCall("sea.get_cargo", {"id": 3}), ChosenCall("sea.get_crew", {"id": 4, "rank": "cook"}))
    form = next(told["function"] for told in ask.tools if told["function"]["name"] == "sea_ships_id")
    assert "get_crew: crew of a ship" in form["description"]
    properties = form["parameters"]["properties"]
    assert set(properties["operation"]["enum"]) == {"get_crew", "get_cargo"}
    assert properties["rank"] == {**TEXT, "description": "Only of get_crew. Least rank."}
    assert form["parameters"]["required"] == ["operation", "id"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"id": 3}, "'operation' has to be one of get_"),
        ({"operation": "get_sails", "id": 3}, "'operation' has to be one of get_"),
        ({"operation": ["get_cargo"], "id": 3}, "'operation' has to be one of get_"),
        ({"operation": "get_cargo", "id": 3, "rank": "cook"}, "get_cargo: 'rank' is not a parameter"),
        ({"operation": "get_cargo"}, "get_cargo: "),
    ],
)
async def test_a_call_that_does_not_say_which_operation_is_told_to_the_model(wrong: dict[str, Any], said: str) -> None:
    offers = [part("crew", rank=TEXT), part("cargo"), tool("sky.get_weather", "Get the weather.", {})]
    ask = Caller([("sea_ships_id", wrong)], [("sea_ships_id", {"operation": "get_cargo", "id": 3})])
    choice = await choose("Cargo of ship 3", offers, ChoiceServices(ask_with_tools=ask), k=2)
    assert choice.calls == (ChosenCall("sea.get_cargo", {"id": 3}),)
    assert said in ask.prompts[1]


async def test_a_parameter_of_the_name_that_says_which_operation_keeps_its_name() -> None:
    offers = [part("crew", operation=TEXT), part("cargo"), tool("sky.get_weather", "Get the weather.", {})]
    ask = Caller([("sea_ships_id", {"operation_0": "get_crew", "operation": "count", "id": 3})])
    choice = await choose("Crew of ship 3", offers, ChoiceServices(ask_with_tools=ask), k=2)
    assert choice.calls == (ChosenCall("sea.get_crew", {"operation": "count", "id": 3}),)


async def test_tools_are_sent_as_they_are_and_calls_come_back() -> None:
    nested = schema("filter", filter=schema("tags", tags={"type": "array", "items": {"anyOf": [TEXT, WHOLE]}}))
    told = {"type": "function", "function": {"name": "find", "description": "Find.", "parameters": nested}}
    with ScriptedOllama() as server:
        server.give_tools("robin:embedded")
        server.say('<tool_call>{"name": "find", "arguments": {"filter": {"tags": ["a", 1]}}}</tool_call>')
        inference = OllamaInference(server.host)
        try:
            reply = await inference.chat(ChatRequest("robin:embedded", "", "Find it", tools=(told,)), deadline_s=30)
        finally:
            await inference.close()
        assert server.chats[-1]["tools"] == [told]
    assert reply.calls == (("find", '{"filter": {"tags": ["a", 1]}}'),)


def test_tools_are_part_of_an_inference_and_their_absence_changes_no_key() -> None:
    plain = ("d", "s", "u", None, {"seed": 1})
    keys = {journal.key_of(journal.content_of(*plain, tools=tools)) for tools in ((), ({"a": 1},), ({"a": 2},))}
    assert len(keys) == 3
    assert journal.content_of(*plain, tools=()) == journal.content_of(*plain)
    assert journal.changed_parts(
        journal.parts_of(journal.content_of(*plain)), journal.parts_of(journal.content_of(*plain, tools=({"a": 1},)))
    ) == ["schema"]


# --- likeness


async def test_each_text_is_embedded_once() -> None:
    with ScriptedOllama() as server:
        inference = OllamaInference(server.host)
        likeness = TextLikeness(inference, "minilm:embedded", deadline_s=30)
        try:
            first = await likeness(["red tea"], ["red tea", "blue sky"])
            again = await likeness(["red tea"], ["blue sky"])
            assert first is not None
            assert again is not None
            assert first[0][0] == pytest.approx(1.0)
            assert first[0][1] == pytest.approx(again[0][0])
            assert server.counts["/api/embed"] == 1
            server.fail("status_500", times=None, path="/api/embed")
            assert await likeness(["another"], ["red tea"]) is None
        finally:
            await inference.close()


@pytest.mark.parametrize(
    "part",
    [
        {"$ref": "#/nowhere"},
        {"type": "wrong"},
        {"type": "string", "minLength": "x"},
        {"type": "array", "items": [1]},
        {"enum": "abc"},
        None,
    ],
)
async def test_a_tool_with_a_broken_schema_is_not_called(part: Any) -> None:
    broken = tool("b.broken", "Find a name.", schema("name", name=part))
    choice = await choose("Find a name: Oslo", [broken], ChoiceServices(ask=Asked({"name": "Oslo"})), floor=-1)
    assert choice.calls == ()
    assert "do not" in choice.why


async def test_schemas_without_end_are_sent_in_part() -> None:
    endless = schema("", **{f"p{n}": {"$ref": "#"} for n in range(30)})
    ask = Caller([])
    await choose("Find a name", [tool("e.endless", "Find a name.", endless)], ChoiceServices(ask_with_tools=ask))
    assert len(json.dumps(ask.tools)) < 100_000
    assert read_arguments("p1 is 'x'", endless).open == ()


@pytest.mark.parametrize(
    "text", ["1" * 4000, "1," * 2000, "'" * 4000, "a^" * 2000, "x + " * 1000, "Ann, " * 800, "(" * 4000, "1e" * 2000, "a" * 4000]
)
def test_texts_that_are_no_briefs_take_no_long_time(text: str) -> None:
    many = schema("a b", a=WHOLE, b=TEXT, **{f"p{n}": about(TEXT, "A city, e.g. 'Oslo'.") for n in range(20)})
    began = time.process_time()
    read_arguments(text, many, "find")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "not": {"pattern": "^a"}}, "b"),
        ({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}, "b"),
        ({"if": {"properties": {"a": {"pattern": "^x"}}}, "then": {"required": ["b"]}}, {"a": "y"}),
        ({"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}, {"x1": "y"}),
        ({"properties": {"pattern": {"const": {"pattern": "x"}}, "other": {"pattern": "y"}}}, {"pattern": {"pattern": "x"}}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"pattern": "^a"}}}, "b"),
    ],
)
def test_a_schema_that_loses_its_patterns_refuses_nothing_for_that(schema: dict[str, Any], value: Any) -> None:
    assert problem_with(value, schema) is None


def test_a_schema_of_strangers_that_cannot_be_checked_ends_no_mission() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    for odd in (deep, {"multipleOf": 0}, {"pattern": "a{99999999999}", "multipleOf": 0}):
        assert "not valid" in (problem_with(3.5, odd) or "")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "not": {"const": "b"}}, "b"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "b"),
        ({"type": "object", "additionalProperties": False, "properties": {"pattern": {"type": "string"}}}, {"x1": "y"}),
        ({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "integer"}]}, []),
    ],
)
def test_a_schema_refuses_what_needs_no_pattern(schema: dict[str, Any], value: Any) -> None:
    assert problem_with(value, schema) is not None
