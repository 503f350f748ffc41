"""Schemas of requests about the kernels of an image. See `batos.wire.schemas`."""

from __future__ import annotations

from typing import ClassVar, Literal

from batos.wire.fields import Request, Role


class KernelsRequest(Request):
    """The kernels that serve the image; with `drain`, the one that is asked takes up no more, ends what is under way, and stops."""

    least_role: ClassVar[Role] = "read"
    operating: ClassVar[tuple[str, ...]] = ("drain",)
    op: Literal["kernels"]
    drain: bool = False
