"""What every page is given: somebody to ask, the settings, the templates, the feed."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import RedirectResponse, Response

from batos.config import Settings
from batos.console.access import Access
from batos.console.asking import Asker
from batos.console.feed import Feed
from batos.console.sessions import Sessions
from batos.console.views import Views, url


@dataclass(frozen=True)
class Seat:
    """One console's parts, as its pages use them."""

    asker: Asker
    settings: Settings
    access: Access
    sessions: Sessions
    views: Views
    feed: Feed

    async def show(self, template: str, page: str, title: str, status: int = 200, **context: object) -> Response:
        """A page.

        :param page: which entry of the navigation it belongs to; "" for none.
        """
        return await self.views.page(template, status, page=page, title=title, **context)


def see_mission(id: str, said: str = "", page: str = "") -> Response:
    """To the page of a mission, after something was done to it.

    :param said: which of the page's notices tells of it.
    :param page: `conversation`, if it was done on the page of its conversation.
    """
    if page == "conversation":
        return RedirectResponse(url("/conversation", id=id, said=said) + "#now", 303)
    return RedirectResponse(url("/mission", id=id, said=said), 303)
