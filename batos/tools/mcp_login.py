"""Login to an MCP server over HTTP (OAuth 2.1): the SDK's provider, with what it obtained in a file beside the image.

Its user opens a page of the authorization server in a browser, which sends him back to a port of this machine. The connection waits for
that; who wanted to use it meanwhile hears the page's address in the error.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel

from batos import private_files
from batos.errors import InvalidInput, ToolFailed
from batos.tools.mcp_session import AUTHORIZE_S, McpSession

OPTIONS = ("client_id", "client_secret", "grant", "scope", "metadata_url")
GRANTS = ("authorization_code", "client_credentials")
_PATH = "/callback"
_LINE_BYTES = 16 << 10
_waiting: dict[tuple[Path, str], Login] = {}
M = TypeVar("M", bound=BaseModel)
_PAGE = "<!doctype html><title>BAT OS</title><p>{}</p>"


class LoginFile:
    """Tokens and the registration of one connection, in a file for its user alone. What was kept for another server is not used."""

    def __init__(self, path: Path, url: str, client: OAuthClientInformationFull | None = None) -> None:
        """
        :param client: a registration that its user made himself.
        """
        self._path, self._url, self._given = path, url, client
        self._kept: dict[str, Any] = {"url": url}
        try:
            kept = json.loads(path.read_text("utf-8"))
            if isinstance(kept, dict) and kept.get("url") == url:
                self._kept = kept
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as e:
            raise ToolFailed(f"{path} cannot be read ({e}); remove it to log in anew") from None

    @property
    def expires(self) -> float | None:
        """Return when the token ends, in seconds since the epoch; None where that is not known."""
        return self._kept.get("expires")

    @property
    def port(self) -> int:
        """Return the port to which the browser is sent back; it is part of the registration."""
        if "port" not in self._kept:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._kept["port"] = free.getsockname()[1]
        return int(self._kept["port"])

    async def get_tokens(self) -> OAuthToken | None:
        return _kept(OAuthToken, self._kept.get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._kept["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self._kept["expires"] = None if tokens.expires_in is None else time.time() + tokens.expires_in
        await self._keep()

    async def want(self, scope: str) -> None:
        """Note what the next login has to ask for, and let go of the tokens, which do not suffice."""
        self._kept.pop("tokens", None)
        self._kept["scope"] = scope
        await self._keep()

    def with_scope(self, url: str) -> str:
        """Return the page of a login, which also asks for what an earlier one lacked."""
        parts = urlsplit(url)
        asked = dict(parse_qsl(parts.query))
        scopes = dict.fromkeys([*asked.get("scope", "").split(), *str(self._kept.get("scope", "")).split()])
        return urlunsplit(parts._replace(query=urlencode({**asked, "scope": " ".join(scopes)}))) if scopes else url

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._given or _kept(OAuthClientInformationFull, self._kept.get("client"))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._kept["client"] = client_info.model_dump(mode="json", exclude_none=True)
        await self._keep()

    async def _keep(self) -> None:
        await asyncio.to_thread(private_files.write, self._path, json.dumps(self._kept))


class Login:
    """The login of one connection. `provider` authorizes its requests."""

    def __init__(self, url: str, path: Path, options: Mapping[str, str]) -> None:
        """
        :param options: of `OPTIONS`, secrets put in.
        :raises InvalidInput: if an option is not valid.
        """
        if unknown := [name for name in options if name not in OPTIONS]:
            raise InvalidInput(f"the login option {unknown[0]!r} is not valid; allowed are {', '.join(OPTIONS)}")
        grant = options.get("grant", GRANTS[0])
        if grant not in GRANTS or (grant == GRANTS[1] and not (options.get("client_id") and options.get("client_secret"))):
            raise InvalidInput(f"the login grant {grant!r} is not valid; allowed are {GRANTS[0]}, and {GRANTS[1]} with id and secret")
        self.session: McpSession | None = None
        """the connection that logs in"""
        self._path, self._url = path, url
        self._coming: asyncio.Future[AuthorizationCodeResult] | None = None
        self._server: asyncio.Server | None = None
        self._state = ""
        self.provider: OAuthClientProvider
        if grant == GRANTS[1]:
            self._file = LoginFile(path, url)
            self.provider = ClientCredentialsOAuthProvider(
                url, self._file, options["client_id"], options["client_secret"], scope=options.get("scope")
            )
        else:
            client = None
            if options.get("client_id"):
                secret = options.get("client_secret")
                method = "client_secret_basic" if secret else "none"
                client = OAuthClientInformationFull(client_id=options["client_id"], client_secret=secret, token_endpoint_auth_method=method)
            self._file = LoginFile(path, url, client)
            about = OAuthClientMetadata(
                redirect_uris=[AnyUrl(f"http://127.0.0.1:{self._file.port}{_PATH}")],
                client_name="BAT OS",
                scope=options.get("scope"),
            )
            address = options.get("metadata_url")
            try:
                self.provider = OAuthClientProvider(url, about, self._file, self._redirected, self._returned, address)
            except ValueError as e:
                raise InvalidInput(f"the login option metadata_url is not valid: {e}") from None
        self.provider.context.token_expiry_time = self._file.expires  # else a token that has ended is not refreshed after a restart

    def leave(self) -> bool:
        """Let the connection wait for its user without its connector, which ends. Return False if it does not wait."""
        session = self.session
        waits = session is not None and bool(self._state) and session.alive and not session.established
        if waits:
            _waiting[self._path, self._url] = self
        return waits

    async def close(self) -> None:
        """Wait for no browser any more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _redirected(self, url: str) -> None:
        session = self.session
        assert session is not None
        url = self._file.with_scope(url)
        if session.established:  # the request that was refused must not be sent later, of a sudden
            await self._file.want(parse_qs(urlsplit(url).query).get("scope", [""])[0])
            raise session.must_log_in()
        port = self._file.port
        await self.close()
        self._coming = asyncio.get_running_loop().create_future()
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=_LINE_BYTES)
        except OSError as e:
            raise ToolFailed(f"port {port} of this machine, to which the login returns, is taken ({e}); free it and try again") from None
        session.told_to_log_in(url)

    async def _returned(self) -> AuthorizationCodeResult:
        assert self._coming is not None
        try:
            async with asyncio.timeout(AUTHORIZE_S):
                found = await self._coming
        finally:
            await self.close()
        assert self.session is not None
        self.session.logged_in()
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = (await reader.readline()).decode("latin-1")
                while (await reader.readline()).strip():
                    pass
            found = re.match(r"GET (\S+) HTTP/", line)
            target = urlsplit(found[1]) if found else urlsplit("")
            asked = {name: values[0] for name, values in parse_qs(target.query).items()}
            status, text = "404 Not Found", "This is not the page of a login."
            ours = target.path == _PATH and asked.get("state", "") == self._state  # another page of the browser may ask, too
            if ours and self._coming is not None and not self._coming.done():
                status, text = "200 OK", "You are logged in and may close this page."
                if "code" in asked:
                    self._coming.set_result(AuthorizationCodeResult(code=asked["code"], state=asked.get("state"), iss=asked.get("iss")))
                else:
                    text = "The login was refused."
                    why = asked.get("error_description") or asked.get("error") or "it gave no code"
                    self._coming.set_exception(ToolFailed(f"the login was refused: {why[:200]}"))
            body = _PAGE.format(text).encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # it was no browser
        finally:
            writer.close()


def waiting_login(path: Path, url: str) -> Login | None:
    """Return the login with that file and server that an earlier connector left waiting, for another one to go on with."""
    found = _waiting.pop((path, url), None)
    return found if found is not None and found.session is not None and found.session.alive else None


def _kept(kind: type[M], kept: Any) -> M | None:
    """Return what was kept, None where it is missing or not valid any more."""
    try:
        return None if kept is None else kind.model_validate(kept)
    except ValueError:
        return None
