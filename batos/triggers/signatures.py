"""Proof that a delivery knows the secret of its hook: a signature over the raw body, or the secret itself as a token.

* `X-Hub-Signature-256: sha256=HEX`, as GitHub and many others sign: HMAC-SHA256 of the body.
* `webhook-id`, `webhook-timestamp`, `webhook-signature` (Standard Webhooks; Svix sends them as `svix-…`): HMAC-SHA256 of id, time and body,
  with a time that is near ours.
* The token: `Authorization: Bearer SECRET`, `X-Hook-Token`, `X-Gitlab-Token`, or `?token=SECRET` in the address.

A signature that is there and wrong refuses the delivery, whatever else proves it. All comparisons take the same time for right and wrong.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import NamedTuple

PREFIX = "whsec_"
"""Beginning of a secret of Standard Webhooks: what follows is the key, in base64."""
TOLERANCE_S = 300.0
"""Seconds by which the time in a signature may be off."""
HEADERS = (
    "webhook-id", "webhook-timestamp", "webhook-signature", "svix-id", "svix-timestamp", "svix-signature", "x-hub-signature-256",
    "authorization", "x-hook-token", "x-gitlab-token", "idempotency-key", "x-github-delivery", "x-github-event", "x-gitlab-event-uuid",
)  # fmt: skip
"""Headers of a delivery that are looked at, in lower case."""
_KEYS = ("idempotency-key", "webhook-id", "svix-id", "x-github-delivery", "x-gitlab-event-uuid")
_STANDARD = ("webhook", "svix")
_SIGNATURES = 16  # signatures of one delivery that are compared: a sender signs with its old and its new key
_KEY_BYTES = 24


class HookDelivery(NamedTuple):
    """A request to a hook."""

    hook: str
    body: bytes
    kind: str = ""
    """its `Content-Type`"""
    headers: Mapping[str, str] = {}
    """those of `HEADERS` that it has"""
    token: str = ""
    """the token in its address"""

    @property
    def key(self) -> str:
        """Return the name that its sender gave it, the same for each repetition; empty if there is none.

        Where the signature covers a name, it is that one: with another, an eavesdropper could make more missions of one delivery.
        """
        if kind := _standard_kind(self.headers):
            return self.headers.get(f"{kind}-id", "")
        return next((value for name in _KEYS if (value := self.headers.get(name, ""))), "")


def new_secret() -> str:
    """Return a new secret that does for signatures of both kinds, as a token, and in an address."""
    while True:
        key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        if key.isalnum():  # no + and no /, which an address would have to spell out
            return PREFIX + key


def is_proved(delivery: HookDelivery, secret: str, now: float) -> bool:
    """Return True if a delivery knows the secret.

    :param now: seconds since the epoch.
    """
    headers = delivery.headers
    if kind := _standard_kind(headers):
        return _is_standard(delivery, secret, now, kind)
    if "x-hub-signature-256" in headers:
        made = "sha256=" + hmac.new(secret.encode(), delivery.body, hashlib.sha256).hexdigest()
        return _same(headers["x-hub-signature-256"].strip().lower(), made)
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else ""
    tokens = (given, headers.get("x-hook-token", ""), headers.get("x-gitlab-token", ""), delivery.token)
    return any(_same(token, secret) for token in tokens if token)


def _standard_kind(headers: Mapping[str, str]) -> str:
    """Return the beginning of the headers of Standard Webhooks that a delivery has; empty if it is signed in another way, or not at all."""
    return next((kind for kind in _STANDARD if f"{kind}-signature" in headers), "")


def _is_standard(delivery: HookDelivery, secret: str, now: float, kind: str) -> bool:
    id, stamp = delivery.headers.get(f"{kind}-id", ""), delivery.headers.get(f"{kind}-timestamp", "")
    near = stamp.isascii() and stamp.isdecimal() and len(stamp) < 16 and abs(int(stamp) - now) <= TOLERANCE_S
    signed = f"{id}.{stamp}.".encode("utf-8", "replace") + delivery.body
    made = base64.b64encode(hmac.new(_key_of(secret), signed, hashlib.sha256).digest()).decode()
    found = delivery.headers[f"{kind}-signature"].split(" ")[:_SIGNATURES]
    same = [_same(one.removeprefix("v1,"), made) for one in found if one.startswith("v1,")]
    return bool(id) and near and any(same)


def _key_of(secret: str) -> bytes:
    text = secret.removeprefix(PREFIX)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8", "replace"))
