"""Models that several kernels of one image share, each with an Ollama of its own.

A mission's journal is keyed by the digest of its model, and the digests of two Ollamas may differ though their files are the same. So the
image holds each name to one digest and one content. They are those of the first kernel that had the name, for as long as a living kernel
has that content. Another digest of the same content counts as it. A kernel with another content under the name does not think with it: half
of a mission would be another model's.
"""

from __future__ import annotations

from typing import NamedTuple

from BTrees.OOBTree import OOBTree

from batos.image import kernels
from batos.image.kernels import ModelContent
from batos.image.living_image import LivingImage
from batos.objects import Root

_KEY = "shared_models"


class SharedModel(NamedTuple):
    """One model of a kernel, or what a name is held to."""

    name: str
    """with its tag"""
    digest: str
    content: str
    """all that decides its answers (`batos.bridge.capabilities.content_of`)"""


def held(root: Root, name: str) -> SharedModel | None:
    """Return what a name is held to; None if no kernel had it yet."""
    found = root.get(_KEY, {}).get(name)
    return None if found is None else SharedModel(*found)


def is_published(root: Root, name: str) -> bool:
    """Return True if the kernel that this connection belongs to has published a model of that name."""
    return any(one.name == name for one in _own(root))


def withdraw(root: Root, name: str) -> None:
    """System transaction: the kernel that this connection belongs to has a model no more."""
    if is_published(root, name):
        kernels.describe(root, kernels.me(root), models=[one for one in _own(root) if one.name != name])


def others_have(root: Root, name: str) -> bool:
    """Return True if another living kernel has a model."""
    me = kernels.me(root)
    others = (one for one in kernels.listed(root) if me and one.name != me and not one.gone)
    return any(model.name == name for one in others for model in one.models)


async def publish_once(image: LivingImage, model: SharedModel) -> SharedModel:
    """Publish a model as `publish` does; nothing is written where that was done, and what its name is held to stands."""
    if ModelContent(*model) in image.read(_own) and (found := image.read(_standing, model)) is not None:
        return found
    return await image.system(publish, model)


def publish(root: Root, model: SharedModel) -> SharedModel:
    """System transaction: publish a model of the kernel that this connection belongs to. Return what its name is held to: to this one,
    where it was to none, or to a content that no other living kernel has.
    """
    mine = {one.name: one for one in _own(root)}
    if mine.get(model.name) != (new := ModelContent(*model)):
        kernels.describe(root, kernels.me(root), models=sorted({**mine, model.name: new}.values(), key=lambda one: one.name))
    if (found := _standing(root, model)) is not None:
        return found
    if _KEY not in root:
        root[_KEY] = OOBTree()
    root[_KEY][model.name] = tuple(model)
    return model


def _own(root: Root) -> tuple[ModelContent, ...]:
    """Return the models that this kernel has published."""
    me = kernels.me(root)
    return next((one.models for one in kernels.listed(root) if one.name == me and not one.gone), ())


def _standing(root: Root, model: SharedModel) -> SharedModel | None:
    """Return what a model's name is held to; None where it is to be held to this model."""
    me, found = kernels.me(root), held(root, model.name)
    others = (one for one in kernels.listed(root) if one.name != me and not one.gone)
    held_by = {(one.name, one.content) for other in others for one in other.models}
    if found is not None and (found.content == model.content or (found.name, found.content) in held_by):
        return found
    return None
