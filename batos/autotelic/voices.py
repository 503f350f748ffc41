"""The voice of a persona as a change that is rehearsed before it is made: an expert that is built, or the plain model again.

A voice that was trained here (`batos train persona`) speaks only once it is chosen: by its user (`batos experts --voice`), or by a change
that a user asks to be tried (`try_voice_`), which recorded missions are thought through again with.
"""

from __future__ import annotations

from typing import Any

from batos.autotelic import changes
from batos.autotelic.proposals import Proposal
from batos.errors import InvalidInput
from batos.image import experts
from batos.image.genesis import add_missing
from batos.mind.thinking import current
from batos.objects import Primitive, UvmObject

KIND = "voice"
ASKED = "user"
"""Where such a proposal comes from."""


def check(root: Any, proposal: Proposal, ground: object) -> None:
    """See that the persona can speak with that voice, and does not already.

    :raises BatosError: saying why not.
    """
    persona, choice = proposal.target.lower(), str(proposal.content)
    experts.check_choice(root, persona, choice)
    if choice in experts.voices(root)[persona].values():
        raise InvalidInput(f"{persona} speaks with {choice} already")


def apply(root: Any, proposal: Proposal, ground: object, name: str) -> None:
    """Let the persona speak with it."""
    experts.choose(root, proposal.target.lower(), str(proposal.content))


def standing(root: Any, proposal: Proposal) -> Any:
    """Who speaks now, and who decides about it."""
    return experts.voices(root).get(proposal.target.lower())


@Primitive.register("autotelic.try_voice_", reaches="the voice of a persona")
async def try_voice_(held: UvmObject, persona: str, model: str) -> dict[str, Any]:
    """Have a voice rehearsed on recorded missions; it speaks if nothing gets worse and something better. A message to `autotelic.changes`.

    :param model: of an expert that is built.
    :raises InvalidInput: where the loop is off, or the voice speaks already.
    :raises ExpertRefused: for an expert that cannot speak for this persona.
    """
    attempt, root = current(), held._p_jar.root()
    if attempt.settings.autotelic == "off":
        raise InvalidInput('nobody rehearses anything here: autotelic = "off"; `batos experts --voice PERSONA=MODEL` lets a voice speak')
    proposal = Proposal(KIND, str(persona).lower(), str(model), "its user asks for it to be tried")
    check(root, proposal, None)
    number = changes.propose(root, proposal, {"words": proposal.why}, attempt.id, source=ASKED, limit=attempt.settings.changes_kept)
    return {"change": number}


def install(lobby: UvmObject) -> None:
    """The step of genesis by which the record of changes understands `try_voice_`."""
    add_missing(lobby.autotelic.changes, try_voice_=Primitive.of(try_voice_))
