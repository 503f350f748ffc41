"""Schemas of requests about watched folders whose files become missions. See `batos.wire.schemas`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from batos.wire.fields import ConnectionName, Folder, Persona, Priority, Request, Role
from batos.wire.hook_schemas import Depth, Template


class FoldersRequest(Request):
    """The watched folders with missions; or one of them, with its brief and its last missions."""

    least_role: ClassVar[Role] = "read"
    op: Literal["folders"]
    name: ConnectionName | None = None


class FolderAddRequest(Request):
    """A folder of the daemon's machine, of which each new or changed file becomes a mission. The memory watches it from then on."""

    op: Literal["folder_add"]
    folder: Folder
    brief: Template
    name: ConnectionName | None = None
    exclude: Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=500)]], Field(max_length=100)] | None = None
    existing: bool = False
    persona: Persona | None = None
    depth: Depth | None = None
    priority: Priority = 0
    stop_after: Annotated[int, Field(ge=0, le=20)] = 5

    @property
    def named(self) -> tuple[str, ...]:
        return (self.folder,)


class FolderPauseRequest(Request):
    """Make no missions of a folder's files until it is resumed."""

    op: Literal["folder_pause"]
    name: ConnectionName


class FolderResumeRequest(Request):
    """Go on with a folder's files, those that came meanwhile too."""

    op: Literal["folder_resume"]
    name: ConnectionName


class FolderRemoveRequest(Request):
    """Make no missions of a folder's files any more. The memory goes on watching it; its missions stay."""

    op: Literal["folder_remove"]
    name: ConnectionName


class FolderRunRequest(Request):
    """Make missions of the files that are there and became none."""

    op: Literal["folder_run"]
    name: ConnectionName
