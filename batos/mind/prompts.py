"""What a state of the PSM asks a model, put together: what all prompts of a mission share first, then the state's own words.

Pure: who thinks a mission through builds its prompts here, and who learns from it later builds them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from batos.mind import conversation, evidence, weaving

EARLIER = {
    "Request: $brief\n\n$intent\n\nWork on this part of it: $query\n\nAnswer in at most five sentences.": "$intent\n\nThe request is: "
    "$brief\n\nWork on this part of it: $query\n\nAnswer in at most five sentences.",
}
"""By what a state says now: what it said in version 0.1.0. Images that hold the latter get the former; a mission that began under it
keeps it."""


def told(before: str, brief: str, asked: Sequence[str] = ()) -> str:
    """A brief as a prompt tells it.

    :param before: what was said before, as a text; "" where it is told as turns, or there is nothing.
    :param asked: what the user was asked, and what he said; empty where he was not.
    """
    text = conversation.with_brief(before, brief)
    return f"{text}\n\nThe user was asked: {asked[0]}\nThe user said: {asked[1]}" if asked else text


def filled(own: str, brief: str, evidence_prompt: str, found: Sequence[evidence.Passage], *, earlier: bool = False, **values: str) -> str:
    """A prompt: passages and brief, which are the same in each of a mission's, so that a model reads them once; then the state's words.

    Ollama keeps what it has read of a prompt, up to the first difference.

    :param own: the state's words, with `$brief` where the brief is told.
    :param earlier: in the order of version 0.1.0, which had the passages at the end.
    """
    if earlier:
        shown = f"\n\n{evidence.shown(evidence_prompt, found)}" if found else ""
        return weaving.fill(EARLIER.get(own, own), brief=brief, **values) + shown
    passages, rule = evidence.told_apart(evidence_prompt)
    head = f"{evidence.shown(passages, found)}\n\n" if found else ""
    return head + weaving.fill(own, brief=brief, **values) + (f"\n\n{rule}" if found and rule else "")
