"""A signed POST to a receiver of webhooks, and what its answer means. The webhook sink and the gateway `webhook-out` share it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headwater.errors import ArgumentInvalid
from headwater.gateways.signatures import after_seconds, signature
from headwater.units import KIB

if TYPE_CHECKING:
    from httpx import Client, Response

#: The receiver is not at odds with a message, but with us.
MISADDRESSED = {
    401: "Correct the secret or the headers",
    403: "Correct the secret or the headers",
    404: "Correct the URL",
    405: "Correct the URL: it does not take POST",
    410: "Take the receiver away: it wants no more",
}
#: It is not the time; others of this kind (4xx) say that a message will never do.
LATER = frozenset({408, 425, 429})
#: How much of an answer is read, and for how long if the client has no timeout.
BODY_BYTES_MAX = 64 * KIB
BODY_SECONDS_MAX = 30.0

#: "delivered"; "later": the same message may be taken later; "misaddressed": none is taken as things are; "refused": this one never is.
Meaning = Literal["delivered", "later", "misaddressed", "refused"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a receiver answered: the HTTP status, None if there was no answer, and what it means."""

    meaning: Meaning
    status: int | None
    why: str = ""
    #: What to do about it, where the receiver is misaddressed.
    remedy: str = ""
    after_seconds: float = 0.0


def check_url(url: str) -> None:
    """Raise unless the URL is one of HTTP."""
    if not url.startswith(("http://", "https://")):
        raise ArgumentInvalid(name="url", value=url, expected="an address that begins with http:// or https://")


def post(
    client: Client,
    url: str,
    *,
    id: str,
    body: bytes,
    secret: str | None,
    headers: Mapping[str, str],
    now: float,
    content_type: str = "application/json",
) -> Answer:
    """Post a message under its id, signed as the Standard Webhooks specification says if there is a secret."""
    import httpx

    moment = str(int(now))
    own = {
        **headers,
        "Content-Type": content_type,
        "Accept-Encoding": "identity",
        "Idempotency-Key": id,
        "webhook-id": id,
        "webhook-timestamp": moment,
    }
    if secret is not None:
        own["webhook-signature"] = signature(secret, id=id, timestamp=moment, body=body)
    try:
        with client.stream("POST", url, content=body, headers=own) as answer:
            return _meaning(answer, _beginning(answer, seconds_max=client.timeout.read))
    except httpx.RequestError as error:
        return Answer(meaning="later", status=None, why=f"{type(error).__name__}: {error}")
    except httpx.InvalidURL as error:
        return Answer(meaning="misaddressed", status=None, why=str(error), remedy="Correct the URL")


def _beginning(answer: Response, *, seconds_max: float | None) -> str:
    """What a receiver says, up to a bound of bytes and time. The status has come already: a body that breaks off changes nothing."""
    import httpx

    deadline = time.monotonic() + (seconds_max or BODY_SECONDS_MAX)
    said = b""
    with contextlib.suppress(httpx.RequestError):
        for part in answer.iter_bytes():
            said += part
            if len(said) > BODY_BYTES_MAX or time.monotonic() > deadline:
                break
    return said.decode(errors="replace")


def _meaning(answer: Response, text: str) -> Answer:
    status = answer.status_code
    said = f"the receiver answered {status} {answer.reason_phrase}".rstrip()
    if answer.is_success:
        return Answer(meaning="delivered", status=status)
    if status >= 500 or status in LATER:
        after = after_seconds(answer.headers.get("Retry-After"), now=time.time)
        return Answer(meaning="later", status=status, why=said, after_seconds=after)
    if status in MISADDRESSED or answer.is_redirect:
        remedy = MISADDRESSED.get(status, f"Name the new address: {answer.headers.get('Location')}")
        return Answer(meaning="misaddressed", status=status, why=said, remedy=remedy)
    return Answer(meaning="refused", status=status, why=f"{said}: {text[:200]}" if text else said)
