"""Notices of the daemon: the courier's parts, and which changes of the system's own it reports."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from batos.api.memory import LeaderGate
from batos.api.notices import NoticeRequests
from batos.autotelic import changes
from batos.bus import EventBus
from batos.config import Settings
from batos.image.living_image import LivingImage
from batos.image.notices import ChangeFact
from batos.objects import Root
from batos.tools.secrets import SECRETS_FILE, SecretStore
from batos.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from batos.notices.courier import CourierParts

LOOKED_AT = 40
"""Number of the newest changes in which the daemon looks for those that it has not reported yet."""


def notice_requests(
    settings: Settings,
    image: LivingImage,
    bus: EventBus,
    toolbox: Toolbox,
    pages: Callable[[], str],
    leader: LeaderGate,
    known: Callable[[str], str],
) -> NoticeRequests:
    """Return the handlers of the requests about notices; the courier is loaded with the first channel.

    :param pages: returns the address of the pages that a notice links to; "" if none are served.
    :param leader: refuses what only the kernel that leads can do.
    :param known: returns a persona's name as the image has it; raises UnknownPersona.
    """

    def parts() -> CourierParts:
        from batos.notices.courier import CourierParts, NoticeLimits  # late: see `NoticeRequests`

        return CourierParts(
            image=image,
            services=toolbox.services,
            bus=bus,
            identity=lambda: toolbox.identity,
            tied=toolbox.tied,
            pages=pages,
            changes=changes_made,
            limits=NoticeLimits.of(settings),
        )

    return NoticeRequests(image, SecretStore(settings.data / SECRETS_FILE), toolbox.tied, parts, leader, known)


def changes_made(root: Root) -> list[ChangeFact]:
    """Return the newest changes that were made, and those that were taken back."""
    found: list[ChangeFact] = []
    for one in itertools.islice(changes.newest_first(root), LOOKED_AT):
        if one.state in (changes.PROMOTED, changes.KEPT, changes.UNDONE, changes.DISABLED):
            found.append(ChangeFact(int(one.number), "Changed", float(one.decided or 0.0), f"{one.kind} {one.target}: {one.why}"))
        if one.state in (changes.UNDONE, changes.DISABLED):
            found.append(ChangeFact(int(one.number), "Taken back", float(one.ended or 0.0), f"{one.kind} {one.target}: {one.reason}"))
    return found[::-1]
