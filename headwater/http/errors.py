"""Ways in which a request to a server fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import Conflict, LogError, NotAllowed, UsageError


@dataclass(eq=False, kw_only=True)
class KeyReused(UsageError):
    """An append has the `Idempotency-Key` of another append, and other rows."""

    key: str
    http_status: ClassVar[int] = 422
    problem = "The `Idempotency-Key` {key!r} was used for another append in the last minutes. Nothing of this one was appended."
    remedy = "Give each append a key of its own, such as a random UUID; only a repeated append has the same key."


@dataclass(eq=False, kw_only=True)
class MediaTypeUnknown(UsageError):
    """A request has a body of a media type that this path does not take."""

    given: str
    known: str
    http_status: ClassVar[int] = 415
    problem = "A body of the type {given!r} is not understood here."
    remedy = "Send one of: {known}."


@dataclass(eq=False, kw_only=True)
class BodyTooLarge(UsageError):
    """A request is larger than the server takes."""

    size_max: int
    http_status: ClassVar[int] = 413
    problem = "The body of this request is larger than {size_max} bytes, also decompressed. Nothing of it was used."
    remedy = "Send it in several parts, or raise the server's `body_bytes_max`."


@dataclass(eq=False, kw_only=True)
class BodyTooSlow(UsageError):
    """The body of a request comes more slowly than the server waits for."""

    received: int
    seconds: float
    http_status: ClassVar[int] = 408
    problem = "Of the body of this request {received} bytes came in {seconds:.0f} s. Nothing of it was used."
    remedy = "Send it in smaller parts, or raise the server's `body_seconds_max`."


@dataclass(eq=False, kw_only=True)
class UpgradeMissing(UsageError):
    """A path of a WebSocket was asked for as a page."""

    path: str
    http_status: ClassVar[int] = 426
    problem = "{path} is for a WebSocket, and this request does not ask for one, or the server has no package for it."
    remedy = (
        "Connect by `new WebSocket(…)`, and install `headwater[server]` at the server; or follow the topic by `/tail`."
    )


@dataclass(eq=False, kw_only=True)
class HostUnknown(NotAllowed):
    """A request names another host: a page of another site may have pointed its name at this machine."""

    host: str
    http_status: ClassVar[int] = 421
    problem = "This server is not {host!r}."
    remedy = "Use the address that it was started with, or name this one with `--allow-host`."


@dataclass(eq=False, kw_only=True)
class OriginRefused(NotAllowed):
    """A page of another site has sent this request."""

    origin: str
    problem = "Pages of {origin} may not use this server."
    remedy = "Use the pages that the server itself serves."


@dataclass(eq=False, kw_only=True)
class OutcomeUnknown(Conflict):
    """An append was repeated, and the outcome of the first attempt is unknown."""

    why: str
    problem = "Whether these rows were appended is not known: {why}."
    remedy = "Check whether they are there before you send them again; with a producer and a sequence, a repeated append is safe."


@dataclass(eq=False, kw_only=True)
class TooManyRequests(LogError):
    """A client sends more requests than the server allows."""

    seconds: float
    http_status: ClassVar[int] = 429
    problem = "Too many requests; the next one is taken in {seconds:.1f} s."
    remedy = "Send larger batches, or raise the server's `requests_per_second_max`."
