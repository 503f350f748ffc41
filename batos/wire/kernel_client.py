"""Part of the client for the kernels that serve an image together."""

from __future__ import annotations

from typing import Any

from batos.wire.connection import Connection


class KernelReading(Connection):
    """Part of `batos.wire.client.Client` for the kernels of an image."""

    async def kernels(self, *, drain: bool = False) -> dict[str, Any]:
        """Return `kernels`, those that serve the image, and `name`, that of the one that answers; "" where it has its image to itself.

        :param drain: let the one that answers take up no missions any more, end those `under_way`, and stop.
        """
        return await self._ask("kernels", drain=drain or None)
