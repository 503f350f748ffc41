"""Decisions of one mission: each is made once and recorded.

An attempt that takes a mission up again finds the same decisions, so it asks its models the same, and finds what was paid for. A record
goes with the next commit, so it is durable no later than anything that depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from batos.image import journal
from batos.image.living_image import LivingImage
from batos.mind.brief_analysis import Approach
from batos.mind.prompts import ConversationRange
from batos.mind.router import Route, Shares
from batos.objects import Root


class Decisions:
    """The decisions of a mission, as one attempt knows them."""

    def __init__(self, mission: str, image: LivingImage, *, records: bool) -> None:
        """
        :param mission: its id.
        :param records: False: nothing is recorded; a replay leaves no trace.
        """
        self._mission, self._image, self._records = mission, image, records
        self.route: Route | None = None
        """The persona of the mission; None until it is chosen."""
        self.room: int | None = None
        """Greatest number of characters of a prompt, after a prompt exceeded the model's context; None: no limit."""
        self.told_before: ConversationRange | None = None
        """Earlier turns that the prompts show; None: not decided, or decided by a version that did not record it."""
        self._shares: dict[bytes, Shares] = {}
        self._approaches: dict[bytes, Approach] = {}
        self._nearness: dict[bytes, float | None] = {}
        self._choices: dict[bytes, dict[str, Any]] = {}
        self.amended: dict[tuple[str, int], list[tuple[str, str]]] = {}
        """Slots of cycles that the mission's user changed, as `journal.amended_of` gives them."""

    def recall(self) -> None:
        """Load what earlier attempts decided."""
        read = self._image.read
        self._shares = read(journal.shared_of, self._mission)
        self.room = read(journal.room_of, self._mission)
        told_before = read(journal.told_before_of, self._mission)
        self.told_before = None if told_before is None else ConversationRange(*told_before)
        self._nearness = dict(read(journal.nearness_of, self._mission))
        self._approaches = {mark: Approach(*fields) for mark, fields in read(journal.approaches_of, self._mission).items()}
        self._choices = {mark: json.loads(text) for mark, text in read(journal.choices_of, self._mission).items()}
        self.amended = read(journal.amended_of, self._mission)
        record = read(journal.route_of, self._mission)
        self.route = self.route if record is None else Route.from_record(record)

    @property
    def has_approaches(self) -> bool:
        """Return True if it was decided how to think about the brief, or about a part of it."""
        return bool(self._approaches)

    def take_route(self, route: Route) -> None:
        """Decide on a persona."""
        self.route = route
        self._record(journal.set_route, route.to_record())

    def take_room(self, room: int | None) -> None:
        """Decide how many characters a prompt may tell; None: all."""
        self.room = room
        self._record(journal.set_room, room)

    def take_told_before(self, told: ConversationRange) -> None:
        """Decide which earlier turns the prompts show."""
        self.told_before = told
        self._record(journal.set_told_before, told)

    def shares(self, brief: str, decide: Callable[[], Shares]) -> Shares:
        """Return the personas that a brief needs, each with its part; `decide` is called once for each brief."""
        mark = journal.mark_of(brief)
        if mark not in self._shares:
            self._shares[mark] = decide()
            self._record(journal.add_shared, mark, self._shares[mark])
        return self._shares[mark]

    def approach(self, about: str, decide: Callable[[], Approach]) -> Approach:
        """Return how to think about a brief; `decide` is called once for each.

        :param about: the brief; before it the persona's name where it is a part of another cycle's.
        """
        mark = journal.mark_of(about)
        if mark not in self._approaches:
            self._approaches[mark] = decide()
            self._record(journal.add_approach, mark, tuple(self._approaches[mark]))
        return self._approaches[mark]

    def has_approach(self, about: str) -> bool:
        """Return True if it was decided how to think about a brief (see `approach`)."""
        return journal.mark_of(about) in self._approaches

    def forget_approaches(self) -> None:
        """Decide anew how to think about each brief."""
        self._approaches.clear()

    def tool_choice(self, mark: bytes) -> dict[str, Any] | None:
        """Return which tools are to be called, as `ToolChoice.to_wire` gives it, with `native`. `native` is True if a model that uses tools
        by itself chose them; records of former versions do not have it. None if that is not decided.

        :param mark: mark of the brief and the round (`journal.mark_of`).
        """
        return self._choices.get(mark)

    def take_tool_choice(self, mark: bytes, choice: dict[str, Any]) -> None:
        """Decide which tools are to be called."""
        self._choices[mark] = choice
        self._record(journal.add_choice, mark, json.dumps(choice, ensure_ascii=False))

    def has_nearness(self, mark: bytes) -> bool:
        """Return True if it was measured how near two texts are to each other, or in vain.

        :param mark: mark of the texts (`journal.mark_of`).
        """
        return mark in self._nearness

    def take_nearness(self, mark: bytes, nearness: float | None) -> None:
        """Record the similarity of two texts. If it could not be measured (None), only this attempt keeps it."""
        self._nearness[mark] = nearness
        if nearness is not None:
            self._record(journal.add_nearness, mark, nearness)

    def nearness(self, mark: bytes) -> float | None:
        """Return how near two texts are, as a cosine; None where that is not known."""
        return self._nearness.get(mark)

    def write(self, root: Root) -> None:
        """Record all decisions that are made. Part of a transaction; what is recorded already stays."""
        if self.route is not None:
            journal.set_route(root, self._mission, self.route.to_record())
        if self.told_before is not None:
            journal.set_told_before(root, self._mission, self.told_before)
        for mark, shares in self._shares.items():
            journal.add_shared(root, self._mission, mark, shares)
        for mark, approach in self._approaches.items():
            journal.add_approach(root, self._mission, mark, tuple(approach))
        for mark, choice in self._choices.items():
            journal.add_choice(root, self._mission, mark, json.dumps(choice, ensure_ascii=False))

    def _record(self, record: Callable[..., None], *what: Any) -> None:
        if self._records:
            self._image.committer.defer(record, self._mission, *what)
