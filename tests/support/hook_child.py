"""Deliveries over an image, killed at a named point: `python -m tests.support.hook_child FOLDER POINT HEADERS`.

One delivery is taken in, at a clock that stands. Prints its mission, and all that are in the image and in the hook.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batos.image import LivingImage, ledger
from batos.image.committer import Committer
from batos.tools.secrets import SECRETS_FILE, SecretStore
from batos.triggers import deliveries, hooks
from batos.triggers.deliveries import Deliveries, HookLimits
from batos.triggers.hooks import HookSpec
from batos.triggers.signatures import HookDelivery
from tests.support.hooks import ISSUE

POINTS = {
    "before the proof": (deliveries, "is_proved", False), "before the brief": (deliveries, "filled", False),
    "in the acceptance": (ledger, "accept", False), "before the note": (hooks, "note", False), "after the note": (hooks, "note", True),
    "after the acceptance": (ledger, "accept", True), "before a commit": (Committer, "_group", False),
    "before it is durable": (Committer, "_sync", False), "when it is durable": (Deliveries, "take", True),
}  # fmt: skip
SECRET, NOW = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0", 1_800_000_000.0


def arm(point: str) -> None:
    owner, name, after = POINTS[point]
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if asyncio.iscoroutine(result):
            return _awaited(result)
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)


async def _awaited(work: Any) -> Any:
    await work
    os.kill(os.getpid(), signal.SIGKILL)


async def main(folder: str, point: str, headers: str) -> None:
    place = Path(folder)
    image = await LivingImage.open(f"file://{place / 'live_image.fs'}", steps=(hooks.install,))
    SecretStore(place / SECRETS_FILE).set("hook.issues", SECRET)
    await image.system(hooks.add, HookSpec("issues", "Suggest labels for {issue.title}"))

    async def submit(id: str, brief: str, options: dict[str, Any], first: Callable[[Any], object] | None = None) -> tuple[bool, Any]:
        return await image.system(ledger.accept, id, brief, options, False, first)

    if point:
        arm(point)
    made = Deliveries(image, submit, SecretStore(place / SECRETS_FILE), HookLimits(), 65536, lambda: NOW)
    given = {"authorization": f"Bearer {SECRET}", **json.loads(headers)}
    taken = await made.take(HookDelivery("issues", json.dumps(ISSUE).encode(), "application/json", given))
    missions = image.read(lambda root: [one.id for one in ledger.newest_first(root)])
    noted = [run.mission for run in image.read(hooks.load, "issues").runs]
    print(json.dumps({"id": taken.mission, "missions": missions, "noted": noted}))
    await image.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
