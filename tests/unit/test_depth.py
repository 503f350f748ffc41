"""How much a brief is thought about: by which rules, in whose voice, in prompts that begin alike, and once for all attempts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batos.bridge.inference import ChatReply, ChatRequest
from batos.image import journal
from batos.mind import answer_checks
from batos.mind.attempt import Attempt
from batos.mind.brief_analysis import DEPTHS, AskedApproach, BriefFacts, Depth, decide, kind_of
from batos.mind.prompts import EARLIER
from batos.mind.psm import STATES
from batos.missions import report
from tests.support.missions import FakeInference, Listened, mind, submit

OPEN = (
    "Plan a birthday party for a cat lover on a budget",
    "How do I move to another city without losing my mind?",
    "What should I do about my noisy neighbour?",
    "I feel stuck",
    "My boss and I had an argument",
    "Help me decide between two jobs.",
    "Ich bin traurig und weiß nicht warum.",
    "Soll ich kündigen?",
    "Necesito consejo sobre mi hermana.",
)
AT_ONCE = (
    "What is the capital of Australia?",
    "Who wrote Don Quixote?",
    "Define entropy.",
    "Is a whale a fish?",
    "Hello!",
    "Thanks, that helped",
    "what is 12 * 7",
    "How much is 15% of 80?",
    "Write a thank-you note to my aunt",
    "Please translate this into German: I have a plan",
    "Rewrite this so that it is polite: give me the problem list",
    "Wer hat Faust geschrieben?",
    "Guten Morgen",
    "¿Cuál es la capital de Perú?",
    "Escribe una carta corta a mi vecino",
)
NOBODY = ("Tea", "The moon over the harbour")
LABELLED = [tuple(line.split("\t")) for line in (Path(__file__).parents[1] / "data" / "depths.tsv").read_text("utf-8").splitlines()]
"""`direct` or `open`, and a brief."""


@pytest.mark.parametrize("brief", OPEN)
def test_a_plan_a_problem_a_decision_a_feeling_is_open(brief: str) -> None:
    assert kind_of(brief)[0] is True


@pytest.mark.parametrize("brief", AT_ONCE)
def test_a_fact_a_text_arithmetic_a_greeting_is_answered_at_once(brief: str) -> None:
    assert kind_of(brief)[0] is False


@pytest.mark.parametrize("brief", NOBODY)
def test_of_others_the_words_do_not_tell(brief: str) -> None:
    assert kind_of(brief)[0] is None


BIG, SMALL = 8_000_000_000, 134_515_008


@pytest.mark.parametrize(("label", "brief"), LABELLED)
def test_in_any_language_one_thing_is_asked_for_at_once_and_what_is_open_is_not(label: str, brief: str) -> None:
    found = decide(brief, [AskedApproach("auto", "setting")], [AskedApproach("auto", "setting")], BriefFacts(BIG))
    assert found.depth == ("direct" if label == "direct" else "facets")


def test_a_short_question_that_follows_a_deep_one_is_as_deep() -> None:
    auto = [AskedApproach("auto", "setting")]
    assert [decide("And after that?", auto, auto, BriefFacts(BIG, follows_deep=deep)).depth for deep in (True, False)] == [
        "facets",
        "direct",
    ]


@pytest.mark.parametrize(
    ("brief", "facts", "depth", "why"),
    [
        (OPEN[0], BriefFacts(BIG), "facets", "open"),
        (OPEN[0], BriefFacts(), "facets", "open"),
        (OPEN[0], BriefFacts(SMALL), "direct", "135 million"),
        (OPEN[0], BriefFacts(BIG, deadline_s=20), "direct", "20 s"),
        (OPEN[0], BriefFacts(BIG, inferences=3), "direct", "3 inferences"),
        (OPEN[0], BriefFacts(BIG, parts=2), "council", "2 personas"),
        (OPEN[0], BriefFacts(SMALL, parts=2), "direct", "135 million"),
        (AT_ONCE[0], BriefFacts(BIG), "direct", "fact"),
        (AT_ONCE[0], BriefFacts(), "direct", "fact"),
        (NOBODY[0], BriefFacts(BIG), "facets", "one answer is enough"),
        (NOBODY[0], BriefFacts(BIG, speaks=False), "direct", "no persona"),
        (NOBODY[0], BriefFacts(BIG, follows_deep=True), "facets", "follows"),
        (AT_ONCE[5], BriefFacts(BIG, follows_deep=True), "direct", "greeting"),
    ],
)
def test_the_rules(brief: str, facts: BriefFacts, depth: Depth, why: str) -> None:
    found = decide(brief, [AskedApproach("auto", "setting")], [AskedApproach("auto", "setting")], facts)
    assert (found.depth, why in found.why) == (depth, True), found


def test_the_most_particular_word_counts() -> None:
    asked = [AskedApproach("auto", "mission"), AskedApproach("council", "persona"), AskedApproach("direct", "setting")]
    found = decide("Tea", asked, [AskedApproach("light", "persona"), AskedApproach("off", "setting")], BriefFacts(SMALL))
    assert found == ("council", "asked for by the persona", "light")


def test_flavour_is_left_out_where_nobody_is_spoken_to_and_where_the_model_is_small() -> None:
    auto = [AskedApproach("auto", "setting")]
    assert [decide("Tea", auto, auto, facts).flavour for facts in (BriefFacts(BIG), BriefFacts(BIG, speaks=False), BriefFacts(SMALL))] == [
        "full",
        "off",
        "off",
    ]


# --- in the mind


async def thought(kernel: Any, id: str, brief: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The result of a mission, and the states that it went through."""
    heard = await submit(kernel, id, brief, **options)
    return (await heard.end())["result"], heard.states


async def test_at_once_is_one_inference_through_all_states(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        result, states = await thought(kernel, "m1", AT_ONCE[0])
        assert states == ["IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE"]
        assert (result["depth"], result["usage"]["inferences"], result["facets"]) == ("direct", 1, [])
        (request,) = inference.asked
        assert (request.user, request.turns) == (AT_ONCE[0], ())
        found = kernel.image.read(lambda root: report.report_of(root, "m1"))["thought"]
        assert (found["depth"], found["depth_why"], found["flavour"]) == ("direct", "it asks for a fact", "full")


@pytest.mark.parametrize("depth", DEPTHS)
async def test_what_is_asked_for_is_done(tmp_path: Path, depth: str) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, voices_limit=2) as kernel:
        result, _ = await thought(kernel, "m1", "The moon", depth=depth, persona="robin")
        assert result["depth"] == depth
        assert result["plan"] == {"direct": "direct", "facets": "model", "council": "personas"}[depth]
        assert len(result["facets"]) == {"direct": 0, "facets": 3, "council": 2}[depth]


async def test_setting_persona_and_mission_say_how_deep(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), depth="direct") as kernel:
        assert (await thought(kernel, "m1", OPEN[3]))[0]["depth"] == "direct"
        await kernel.image.system(lambda root: setattr(root["lobby"].robin, "depth", "facets"))
        assert (await thought(kernel, "m2", OPEN[3]))[0]["depth"] == "facets"
        assert (await thought(kernel, "m3", OPEN[3], depth="direct"))[0]["depth"] == "direct"
        await kernel.image.system(lambda root: setattr(root["lobby"].robin, "depth", "abyss"))
        assert (await thought(kernel, "m4", OPEN[3]))[0]["depth"] == "direct", "what is no depth says nothing"


async def test_all_prompts_of_a_mission_begin_alike(tmp_path: Path) -> None:
    """What a model has read once it need not read again: up to the first difference, which comes after all that is shared."""
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await thought(kernel, "m1", "I feel stuck", persona="robin")
        count = len(inference.asked)
        await thought(kernel, "m2", "And my sister feels it too", persona="robin", context="m1", depth="facets")
        prompts = [request.user for request in inference.asked[count:]]
        assert len(prompts) == 5
        assert len({request.system for request in inference.asked[count:]}) == 1
        shared = prompts[0].partition("And my sister feels it too")[0]
        assert "User: I feel stuck" in shared
        assert all(prompt.startswith(f"{shared}And my sister feels it too\n\n") for prompt in prompts)


async def test_a_follow_up_goes_on_where_the_turn_before_it_ended(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, depth="direct") as kernel:
        for n, brief in enumerate(("What is tea?", "And coffee?", "And milk?"), 1):
            await thought(kernel, f"m{n}", brief, persona="babs", **({"context": f"m{n - 1}"} if n > 1 else {}))
        first, second, third = inference.asked
        said = "Take one small step and look where it led."
        assert second.turns == ((first.user, said),)
        assert third.turns == (*second.turns, (second.user, said))
        assert first.system == second.system == third.system


async def test_flavour_is_who_speaks(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, depth="direct") as kernel:
        for flavour in ("full", "light", "off"):
            await thought(kernel, flavour, "I feel stuck", flavour=flavour)
        full, light, off = inference.asked
        assert "Alan Watts" in full.system
        assert light.system == full.system.partition(" You work in the spirit of")[0]
        assert (off.system, off.model) == ("", "smollm2:embedded")


async def test_a_plan_without_flavour_has_nobodys_gadgets(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        result, _ = await thought(kernel, "m1", OPEN[0], persona="brick", flavour="off", depth="facets")
        assert result["facets"] == ["plain_facet_"]
        assert not any("gadget" in request.user + request.system for request in inference.asked)


class Stuck(FakeInference):
    """Answers all but the weaving, which never ends."""

    async def chat(self, request: ChatRequest, **more: Any) -> ChatReply:
        if "Notes to use" in request.user:
            self.hold()
        return await super().chat(request, **more)


async def taken_up(kernel: Any, id: str) -> dict[str, Any]:
    """The result of a mission that a start has taken up again."""
    heard = Listened(kernel, id)
    state, result = kernel.image.read(lambda root: (root["ledger"].missions[id].state, root["ledger"].missions[id].result))
    return json.loads(result) if state == "COMPLETE" else (await heard.end())["result"]


async def test_how_deep_is_decided_once(tmp_path: Path) -> None:
    """A mission that is taken up again is thought about as it began, whatever is set now: what was paid for fits."""
    inference: FakeInference = Stuck()
    async with mind(tmp_path, inference, depth="facets", shutdown_s=0.1) as kernel:
        await submit(kernel, "m1", "The moon", persona="robin")
        await inference.came(5)
    inference = FakeInference()
    async with mind(tmp_path, inference, depth="direct") as kernel:
        result = await taken_up(kernel, "m1")
        assert (result["depth"], result["usage"]["replayed"], len(inference.asked)) == ("facets", 4, 1)


async def test_a_mission_of_an_earlier_version_goes_on_with_what_it_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its prompts had the brief in other places and at other temperatures: it keeps to them, and nothing is paid twice."""
    inference: FakeInference = Stuck()
    with monkeypatch.context() as before:
        before.setattr(Attempt, "earlier", True, raising=False)
        before.setattr(Attempt, "__setattr__", _unless("earlier"))
        async with mind(tmp_path, inference, shutdown_s=0.1) as kernel:
            await submit(kernel, "m1", "I feel stuck", persona="robin")
            await inference.came(5)
    paid = inference.answered
    assert paid == 4
    assert all("The request is: I feel stuck" in request.user for request in inference.asked if "Work on this part" in request.user)
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        result = await taken_up(kernel, "m1")
        assert result["usage"]["replayed"] == paid
        assert len(inference.asked) == 1, "the weaving alone is paid for"
        assert dict(inference.asked[0].options)["temperature"] == 0.5
        assert kernel.image.read(journal.approaches_of, "m1") == {}


def _unless(name: str) -> Any:
    def put(self: Any, attribute: str, value: Any) -> None:
        if attribute != name:
            object.__setattr__(self, attribute, value)

    return put


async def test_prompts_of_an_image_are_brought_up_to_date_unless_they_were_changed(tmp_path: Path) -> None:
    now = STATES["DELEGATING"]["meta_prompt"]
    for held, then in ((EARLIER[now], now), ("My own: $brief $intent $query", "My own: $brief $intent $query")):
        async with mind(tmp_path, FakeInference()) as kernel:
            await kernel.image.system(lambda root, held=held: setattr(root["lobby"].psm.DELEGATING, "meta_prompt", held))
        async with mind(tmp_path, FakeInference()) as kernel:
            assert kernel.image.read(lambda root: root["lobby"].psm.DELEGATING.meta_prompt) == then


# --- the gate


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One. Two is lon", "One."),
        ("First, buy tea. Then boil wa", "First, buy tea."),
        ("- tea\n- milk\n- sug", "- tea\n- milk"),
        ("He said “Go.” And then he we", "He said “Go.”"),
        ("One long sentence that never comes to any en", "One long sentence that never comes to any en…"),
        ("A. This one is far longer than the one before it", "A. This one is far longer than the one before it…"),
        ("```python\nprint(1)\nprint(2)\nprin", "```python\nprint(1)\nprint(2)\n```"),
        ("好的。请稍", "好的。"),
    ],
)
def test_an_answer_that_was_cut_ends_whole(text: str, kept: str) -> None:
    assert answer_checks.without_partial_end(text, cut=True) == kept
    assert answer_checks.without_partial_end(text, cut=False) == text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("I like tea. I like it hot. " * 6, "over and over"),
        ("Qxvbn zrtkl wpgjf mnbvc are good for you", "not words"),
        ("Write the answer to the request, in one clear voice, using what is useful. Tea.", "instructions"),
    ],
)
def test_garbage_is_told_from_answers(text: str, fault: str) -> None:
    assert fault in (answer_checks.fault_of(text, "What is tea?", prompt=STATES["SYNTHESIZING"]["meta_prompt"]) or "")


@pytest.mark.parametrize(
    "text",
    [
        "Canberra.",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
        "```python\nfor x in rows:\n    print(x)\nfor x in rows:\n    print(x)\n```",
        "Rhythm, myths, pygmy, hymns and lynx have no a, e, i, o or u.",
        "HTTP, HTML, XML, JSON, SQL and DNS are abbreviations.",
        "Roses are red, violets are blue. Roses are red, and I like you.",
    ],
)
def test_what_looks_odd_and_is_an_answer_passes(text: str) -> None:
    assert answer_checks.fault_of(text, "Say something", prompt=STATES["SYNTHESIZING"]["meta_prompt"]) is None
