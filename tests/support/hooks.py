"""What the tests of hooks share: a caller that signs as GitHub or as Standard Webhooks says, and hooks of a kernel."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

from batos.app.kernel import Kernel
from batos.console.api_client import Asker
from tests.support.console import http_client

ISSUE = {"action": "opened", "issue": {"title": "Crash at start", "labels": [{"name": "bug"}], "body": None, "number": 7}}


def github(secret: str, body: bytes, **more: str) -> dict[str, str]:
    """The headers of a delivery of GitHub."""
    made = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={made}", "X-GitHub-Event": "issues", "Content-Type": "application/json", **more}


def standard(secret: str, body: bytes, id: str = "msg_1", at: float | None = None, prefix: str = "webhook") -> dict[str, str]:
    """The headers of a delivery as Standard Webhooks says."""
    stamp = str(int(time.time() if at is None else at))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = base64.b64encode(hmac.new(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256).digest()).decode()
    return {f"{prefix}-id": id, f"{prefix}-timestamp": stamp, f"{prefix}-signature": f"v1,{made}", "Content-Type": "application/json"}


class HookCaller:
    """Calls one hook of a kernel."""

    def __init__(self, kernel: Kernel, name: str, secret: str) -> None:
        assert kernel.doors is not None
        self.kernel, self.name, self.secret = kernel, name, secret
        self.asker = Asker(kernel.transport.dispatcher, kernel.settings)

    async def post(self, body: Any, headers: dict[str, Any] | None = None, path: str = "", **more: Any) -> Any:
        """The reply to a body, signed as GitHub does unless headers are given."""
        assert self.kernel.doors is not None
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = github(self.secret, data) if headers is None else headers
        async with http_client(self.kernel.doors.address, timeout=60) as client:
            return await client.post(path or f"/hooks/{self.name}", content=data, headers=given, **more)

    async def brief(self, mission: str) -> str:
        """The brief of a mission."""
        return str((await self.asker.ask("status", id=mission))["brief"])


async def hooked(kernel: Kernel, brief: str = "Suggest labels for {issue.title}", name: str = "issues", **terms: Any) -> HookCaller:
    """Add a hook; return who may call it."""
    asker = Asker(kernel.transport.dispatcher, kernel.settings)
    made = await asker.ask("hook_add", name=name, brief=brief, **terms)
    return HookCaller(kernel, name, made["secret"])
