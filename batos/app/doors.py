"""Plain inferences of the doors: the base model of the profile, asked through the bridge as missions ask it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from batos.bridge.inference import ChatRequest, Inference

if TYPE_CHECKING:
    from batos.bridge.profiles import Profile
    from batos.doors.plain import PlainReply
    from batos.doors.turns import ChatWords


class DirectModel:
    """The model that the personas of the profile in force are made of."""

    def __init__(self, inference: Inference, profile: Callable[[], Profile]) -> None:
        self._inference, self._profile = inference, profile

    async def chat(
        self,
        words: Sequence[ChatWords],
        *,
        schema: dict[str, Any] | None,
        options: Mapping[str, Any],
        deadline_s: float,
        on_text: Callable[[str], None] | None = None,
    ) -> PlainReply:
        """Answer a conversation whose last message is the user's."""
        from batos.doors.plain import PlainReply

        profile = self._profile()
        system = "\n\n".join(one.text for one in words if one.role == "system")
        said = [one for one in words if one.role != "system"]
        turns, images = _turns(said[:-1])
        images.append(said[-1].images)
        pictured = any(images)
        request = ChatRequest(
            profile.base,
            system,
            said[-1].text,
            schema,
            tuple(sorted({**profile.options, **profile.direct, **profile.plain, **options}.items())),
            turns=tuple(turns),
            images=tuple(images) if pictured else (),
            shown=tuple(tuple(hashlib.sha256(one.encode()).hexdigest() for one in each) for each in images) if pictured else (),
        )
        reply = await self._inference.chat(request, deadline_s=deadline_s, on_text=on_text)
        return PlainReply(reply.text, reply.prompt_tokens, reply.answer_tokens, reply.done_reason in ("length", "cut"), reply.thinking)


def _turns(said: Sequence[ChatWords]) -> tuple[list[tuple[str, str]], list[tuple[str, ...]]]:
    """Return a conversation as pairs of what was said and answered, with the images of each; messages in a row are one."""
    turns: list[tuple[str, str]] = []
    images: list[tuple[str, ...]] = []
    for one in said:
        if one.role == "assistant" and turns:
            asked, answered = turns[-1]
            turns[-1] = asked, f"{answered}\n\n{one.text}".strip()
        elif turns and not turns[-1][1]:
            turns[-1] = f"{turns[-1][0]}\n\n{one.text}".strip(), ""
            images[-1] += one.images
        else:
            turns.append(("", one.text) if one.role == "assistant" else (one.text, ""))
            images.append(one.images)
    return turns, images
