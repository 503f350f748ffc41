"""Thought and answer apart: every common mark, in every piece, and texts about such marks left as they are."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batos.bridge.model_output import THOUGHTS, ThoughtSplitter, without_thought


@pytest.mark.parametrize(
    ("text", "answer", "thought"),
    [
        ("plain", "plain", ""),
        ("  plain\n", "  plain\n", ""),
        ("<think>hm</think>yes", "yes", "hm"),
        ("\n <think>\nhm\n</think>\n\nyes ", "yes ", "\nhm\n"),
        ("<think>never closed", "", "never closed"),
        ("<think>", "", ""),
        ("<think></think>", "", ""),
        ("<think>a</thin b</think>c</think>d", "c</think>d", "a</thin b"),
        ("The tag <think>x</think> is a tag.", "The tag <think>x</think> is a tag.", ""),
        ("<thin", "<thin", ""),
        ("<thinking>no</thinking>", "", "no"),
        ("<Think>\nhm\n</THINK>\nYes", "Yes", "\nhm\n"),
        ("<reasoning>hm</reasoning>yes", "yes", "hm"),
        ("<reflection>hm</reflection> yes", "yes", "hm"),
        ("<longcat_think>hm</longcat_think>yes", "yes", "hm"),
        ("<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>yes", "yes", "hm"),
        ("<unused94>thought\nhm<unused95>yes", "yes", "thought\nhm"),
        ("<|start|>assistant<|channel|>analysis<|message|>hm<|channel|>final<|message|>yes", "yes", "hm"),
        ("<|channel|>final<|message|>yes", "yes", ""),
        ("Here is my thought process: hm. Here is my response: yes", "yes", " hm. "),
        ("Here is my thought process: first, hm.", "Here is my thought process: first, hm.", ""),
        # another one within the answer
        ("<think>a</think>It is 4.<think>b</think> Or 5.", "It is 4. Or 5.", "ab"),
        ("<think>a</think>It is 4.\n<think>b</think>\n", "It is 4.\n", "ab"),
        ("<think>a</think>It is 4.<think>b", "It is 4.<think>b", "a"),
        ("<think>a</think>Write `<think>b</think>` so.", "Write `<think>b</think>` so.", "a"),
        ("<think>a</think>So:\n```\n<think>b</think>\n```\n.", "So:\n```\n<think>b</think>\n```\n.", "a"),
        # words before it
        ("Sure.\n<think>hm</think>\nYes.", "Sure.\n\nYes.", "hm"),
        ("Sure!\n\n<Thinking>hm</Thinking>Yes.", "Sure!\n\nYes.", "hm"),
        ("Sure.\n<think>hm</think>\n", "Sure.\n<think>hm</think>\n", ""),
        ("Sure.\n<think>hm", "Sure.\n<think>hm", ""),
        ("A mark is\n<think>hm</think>\nand so on.", "A mark is\n<think>hm</think>\nand so on.", ""),
        ("Sure. " * 30 + "\n<think>hm</think>\nYes.", "Sure. " * 30 + "\n<think>hm</think>\nYes.", ""),
        ("<think>a</think", "", "a</think"),
        ("", "", ""),
        ("   ", "   ", ""),
        ("[THINK]hm[/THINK]yes", "yes", "hm"),
        ("◁think▷hm◁/think▷yes", "yes", "hm"),
        ("<|channel|>analysis<|message|>hm<|channel|>final<|message|>yes", "yes", "hm"),
        ("<think>a</think>\n<think>b</think>\n c", "c", "ab"),
        ("<think>a</think>\n ", "", "a"),
        ("<think>a</think>\n</think>\n\nB", "B", "a"),
        ("<think></think></think>", "", ""),
        ("[THINKING] is a word", "[THINKING] is a word", ""),
    ],
)
def test_thought_is_parted_however_it_comes_in_pieces(text: str, answer: str, thought: str) -> None:
    assert without_thought(text) == (answer, thought)
    for size in range(1, 9):
        splitter = ThoughtSplitter()
        fed = [splitter.feed(text[i : i + size]) for i in range(0, len(text), size)] + [splitter.end()]
        assert ("".join(a for a, _ in fed), "".join(t for _, t in fed)) == (answer, thought)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", " ", "a", "</", "<"]), max_size=12))
def test_parting_loses_nothing_of_a_text_without_thought(pieces: list[str]) -> None:
    text = "".join(pieces)
    assume(not text.lstrip().startswith("</think>"))  # it closes what the template opened
    splitter = ThoughtSplitter()
    fed = [splitter.feed(piece) for piece in pieces] + [splitter.end()]
    assert ("".join(a for a, _ in fed), "".join(t for _, t in fed)) == without_thought(text)
    if not text.lstrip().startswith("<think>"):
        assert without_thought(text) == (text, "")


@pytest.mark.parametrize(
    ("text", "answer", "thought"),
    [
        ("Let me see.\nFour.\n</think>\n\n4", "4", "Let me see.\nFour."),
        ("hm\n[/THINK]\nyes", "yes", "hm"),
        ("Four it is.</think>\n\n4", "4", "Four it is."),
        ("Four it is.</think>Four.", "Four.", "Four it is."),
        ("Four it is.\n</Think>Four.", "Four.", "Four it is."),
        ("hm\n</reasoning>\nyes", "yes", "hm"),
        ("hm\n</think>\n", "", "hm"),
        ("</think> is how a thought ends.", "</think> is how a thought ends.", ""),
        ("It ends with `</think>`.", "It ends with `</think>`.", ""),
        ("Write `x.</think>` there.", "Write `x.</think>` there.", ""),
        ("Close the thought: </think>\nThen answer.", "Close the thought: </think>\nThen answer.", ""),
        ("<|channel|>final<|message|>yes<|return|>", "yes", ""),
        ("</think>\n\nyes", "yes", ""),
        ("The tag </think> ends a thought.", "The tag </think> ends a thought.", ""),
        ("So it ends:\n```\n</think>\n```\n", "So it ends:\n```\n</think>\n```\n", ""),
        ("A thought is written as\n<think>\nhm\n</think>\n", "A thought is written as\n<think>\nhm\n</think>\n", ""),
        ("okay so the user wants the capital</think>\n\nParis.", "Paris.", "okay so the user wants the capital"),
        ("okay so the user wants the capital </think>\n\nParis.", "Paris.", "okay so the user wants the capital"),
        ("okay so the user wants the capital </think>Paris.", "Paris.", "okay so the user wants the capital"),
        ("I should say Paris. </think> Paris.", "Paris.", "I should say Paris."),
        ("It ends. </think> closes it.", "It ends. </think> closes it.", ""),
        ("the mark of an end is </think>\nand so on", "the mark of an end is </think>\nand so on", ""),
        ("hm<|end|><|start|>assistant<|channel|>final<|message|>yes", "yes", "hm<|end|><|start|>assistant"),
        ("<think>hm</think>\nand so\n</think>\n\nyes", "yes", "hm\nand so"),
        ("<think>hm</think>\n<answer>yes</answer>", "yes", "hm"),
        ("<|begin_of_thought|>hm<|end_of_thought|>\n\n<|begin_of_solution|>yes<|end_of_solution|>", "yes", "hm"),
        ("<|begin_of_thought|>hm<|end_of_thought|>\n\n<|begin_of_solution|>\nyes", "yes", "hm"),
        ("<answer>yes</answer>", "<answer>yes</answer>", ""),
    ],
)
def test_a_thought_that_the_template_opened_ends_at_its_mark(text: str, answer: str, thought: str) -> None:
    assert without_thought(text) == (answer, thought)


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<Thinking>", "</thinking>", ".", "\n", " a", "`", "```", "<", "[THINK]"]), max_size=14
    )
)
def test_it_comes_to_the_same_in_one_piece_and_in_many(pieces: list[str]) -> None:
    text = "".join(pieces)

    def parted(given: list[str]) -> tuple[str, str]:
        splitter = ThoughtSplitter()
        fed = [splitter.feed(piece) for piece in given] + [splitter.end()]
        return "".join(a for a, _ in fed), "".join(t for _, t in fed)

    assert parted(list(text)) == parted(pieces) == parted([text])


@pytest.mark.parametrize("opening", [opening for opening, _ in THOUGHTS])
def test_a_thought_of_every_kind_is_none_of_the_answer(opening: str) -> None:
    close = dict(THOUGHTS)[opening]
    for mark, end in ((opening, close), (opening.upper(), close.upper())):
        answer, thought = without_thought(f"{mark}hm{end}yes")
        assert (answer, thought.strip()) == ("yes", "hm")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Paris.<|im_end|>", "Paris."),
        ("Paris.<|im_end|>\n<|im_start|>user\nAnd Spain?", "Paris."),
        ("Paris.</s>", "Paris."),
        ("Paris\n<|endoftext|>\nQuestion: and Spain?", "Paris"),
        ("<|im_start|>assistant\nParis.<|im_end|>", "Paris."),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nParis.<|eot_id|>", "Paris."),
        ("Paris.<end_of_turn>\n<start_of_turn>user\nAnd Spain?", "Paris."),
        ("Paris. [/INST] And Spain? [INST]", "Paris."),
        ('{"a": 1}<|im_end|>', '{"a": 1}'),
    ],
)
def test_a_mark_that_ends_the_turn_ends_the_answer(text: str, answer: str) -> None:
    assert without_thought(text) == (answer, "")


@pytest.mark.parametrize(
    "text",
    [
        "The model ends its turn with <|im_end|>.",
        "`Hi<|im_end|>` is a turn.",
        "So:\n```\nHi<|im_end|>\n```\n",
        "ChatML:\n\n<|im_start|>system\nBe kind.<|im_end|>\n\nThat is all.",
        "Use <s>old</s> for what is struck out.",
        "Both <|user|> and <|assistant|> are marks of roles.",
    ],
)
def test_in_a_text_about_marks_they_are_text(text: str) -> None:
    assert without_thought(text) == (text, "")
