"""Signatures of webhooks, made and verified: Standard Webhooks, GitHub's and Stripe's.

A signature covers the exact bytes of the body. Standard Webhooks and Stripe also sign the time, so that a request that was recorded is
refused after the replay window; within the window its id makes it a duplicate. GitHub signs the body alone: there the id of the delivery
is all that tells a repetition.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Literal

import orjson

from headwater.errors import ArgumentInvalid
from headwater.gateways.errors import SignatureInvalid

Scheme = Literal["standard", "github", "stripe"]
SCHEMES: tuple[Scheme, ...] = ("standard", "github", "stripe")
ID_LENGTH_MAX = 200


def signature(secret: str, *, id: str, timestamp: str, body: bytes) -> str:
    """The signature of a request, as the Standard Webhooks specification says. A receiver computes it again.

    A secret that begins with `whsec_` is base64 behind it; any other is taken as it is.

    >>> signature("s3cret", id="1", timestamp="1700000000", body=b"{}")
    'v1,e8tZizGh1RUqUn+5+dygSa5ZiIjpsoQUc4x7XSFwmRw='
    """
    digest = hmac.new(_key(secret), b".".join([id.encode(), timestamp.encode(), body]), hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def github_signature(secret: str, *, body: bytes) -> str:
    """The value of `X-Hub-Signature-256`."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def stripe_signature(secret: str, *, timestamp: str, body: bytes) -> str:
    """The value of `Stripe-Signature`."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def verified_id(
    scheme: Scheme,
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Sequence[str],
    now: float,
    replay_window_seconds: float,
) -> str:
    """Verify a request and return the id of its message; raise `SignatureInvalid` if it was forged or replayed.

    `headers` have names in lower case. With several secrets any of them may have signed it, so that a secret can be replaced without a
    pause.

    >>> at = "1700000000"
    >>> headers = {"webhook-id": "m1", "webhook-timestamp": at}
    >>> headers["webhook-signature"] = signature("s3cret", id="m1", timestamp=at, body=b"{}")
    >>> verified_id("standard", headers, b"{}", secrets=["s3cret"], now=1700000030, replay_window_seconds=300)
    'm1'
    """
    if scheme == "standard":
        id, timestamp = _header(headers, "webhook-id"), _header(headers, "webhook-timestamp")
        given = _header(headers, "webhook-signature").split()
        made = [signature(secret, id=id, timestamp=timestamp, body=body) for secret in secrets]
    elif scheme == "github":
        id, timestamp = _header(headers, "x-github-delivery"), None
        given = [_header(headers, "x-hub-signature-256")]
        made = [github_signature(secret, body=body) for secret in secrets]
    else:
        parts = [part.strip().partition("=")[::2] for part in _header(headers, "stripe-signature").split(",")]
        timestamp = next((value for name, value in parts if name == "t"), "")
        given = [f"t={timestamp},v1={value}" for name, value in parts if name == "v1"]
        made = [stripe_signature(secret, timestamp=timestamp, body=body) for secret in secrets]
        id = ""
    # All are compared, in constant time each: how long it takes says nothing about a secret.
    matches = [hmac.compare_digest(one.encode(), other.encode()) for one in given[:16] for other in made]
    if not any(matches):
        raise SignatureInvalid(why="no signature fits the body and the secret")
    if timestamp is not None:
        _check_time(timestamp, now=now, window=replay_window_seconds)
    if scheme == "stripe":
        id = _body_id(body)
    if not 0 < len(id) <= ID_LENGTH_MAX:
        raise SignatureInvalid(why=f"the id of the message must have from 1 to {ID_LENGTH_MAX} characters")
    return id


def check_secrets(scheme: Scheme, secrets: Sequence[str]) -> None:
    """Raise unless there is a secret, and each can be used."""
    if scheme not in SCHEMES:
        raise ArgumentInvalid(name="scheme", value=scheme, expected=f"one of {', '.join(SCHEMES)}")
    if not secrets or not all(secrets):
        raise ArgumentInvalid(
            name="secrets", value="none", expected="at least one secret: unsigned webhooks are refused"
        )
    for secret in secrets:
        if scheme == "standard":
            _key(secret)


def after_seconds(text: str | None, *, now: Callable[[], float]) -> float:
    """How long a receiver asks us to wait: seconds, or a date.

    >>> after_seconds("120", now=lambda: 0.0), after_seconds("Thu, 01 Jan 1970 00:00:09 GMT", now=lambda: 2.0)
    (120.0, 7.0)
    >>> after_seconds(None, now=lambda: 0.0), after_seconds("soon", now=lambda: 0.0)
    (0.0, 0.0)
    """
    if text is None:
        return 0.0
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except ValueError:
        return 0.0


def _key(secret: str) -> bytes:
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"))
    except binascii.Error as error:
        raise ArgumentInvalid(name="secret", value="whsec_…", expected="base64 behind `whsec_`") from error


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise SignatureInvalid(why=f"it has no header `{name}`")
    return value


def _check_time(timestamp: str, *, now: float, window: float) -> None:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise SignatureInvalid(why="its time is not a number of seconds")
    if abs(now - int(timestamp)) > window:
        raise SignatureInvalid(
            why=f"it was signed {abs(now - int(timestamp)):.0f} seconds from now, outside the replay window"
        )


def _body_id(body: bytes) -> str:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise SignatureInvalid(why="its body is not JSON, so that it has no id") from error
    id = found.get("id") if isinstance(found, dict) else None
    if not isinstance(id, str):
        raise SignatureInvalid(why="its body has no id")
    return id
