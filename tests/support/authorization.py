"""An MCP server over HTTP that wants a login, and the authorization server that gives it, on one port of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit


@dataclass
class LoginServer:
    """What it issues and what it was asked. `valid` holds the tokens that it takes."""

    port: int = 0
    valid: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    issued: int = 0
    calls: int = 0
    refuses: bool = False
    refreshes: bool = True

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := (await reader.readline()).decode():
                method, target, _ = line.split()
                head: dict[str, str] = {}
                while row := (await reader.readline()).decode().strip():
                    name, _, value = row.partition(":")
                    head[name.lower()] = value.strip()
                body = await reader.readexactly(int(head.get("content-length", 0)))
                status, more, answer = self.answer(method, urlsplit(target), head, body)
                content = json.dumps(answer).encode() if answer is not None else b""
                lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(content)}", *more, "", ""]
                writer.write("\r\n".join(lines).encode() + content)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def answer(self, method: str, target: Any, head: dict[str, str], body: bytes) -> tuple[str, list[str], Any]:
        """The answer to a request: status, further headers, body."""
        self.asked.append(f"{method} {target.path}")
        at: dict[str, Callable[[], tuple[str, list[str], Any]]] = {
            "/.well-known/oauth-protected-resource/mcp": lambda: (
                "200 OK", [], {"resource": f"{self.origin}/mcp", "authorization_servers": [self.origin], "scopes_supported": ["bake"]}
            ),
            "/.well-known/oauth-authorization-server": lambda: ("200 OK", [], self._about()),
            "/register": lambda: ("201 Created", [], {**json.loads(body), "client_id": "batos-1"}),
            "/authorize": lambda: self._authorize(parse_qs(target.query)),
            "/token": lambda: self._token(parse_qs(body.decode())),
            "/mcp": lambda: self._mcp(head, body),
        }  # fmt: skip
        return at.get(target.path, lambda: ("404 Not Found", [], None))()

    def _about(self) -> dict[str, Any]:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }

    def _authorize(self, asked: dict[str, list[str]]) -> tuple[str, list[str], Any]:
        answer = {"error": "access_denied"} if self.refuses else {"code": "c0de"}
        place = f"{asked['redirect_uri'][0]}?{urlencode({**answer, 'state': asked['state'][0]})}"
        return "302 Found", [f"Location: {place}"], None

    def _token(self, asked: dict[str, list[str]]) -> tuple[str, list[str], Any]:
        if asked["grant_type"] == ["refresh_token"] and not self.refreshes:
            return "400 Bad Request", [], {"error": "invalid_grant"}
        self.issued += 1
        self.valid = {f"token-{self.issued}"}
        token = {
            "access_token": f"token-{self.issued}",
            "token_type": "Bearer",
            "expires_in": 3600,
            "refresh_token": f"again-{self.issued}",
        }
        return "200 OK", [], token

    def _mcp(self, head: dict[str, str], body: bytes) -> tuple[str, list[str], Any]:
        if head.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            where = f'Bearer resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
            return "401 Unauthorized", [f"WWW-Authenticate: {where}"], None
        request = json.loads(body)
        results: dict[str, Any] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"},
            "tools/list": {"tools": [{"name": "bake", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"},
            "tools/call": {"content": [{"type": "text", "text": "baked"}]},
        }
        self.calls += request["method"] == "tools/call"
        return "200 OK", [], {"jsonrpc": "2.0", "id": request.get("id"), "result": {"resultType": "complete", **results[request["method"]]}}
