"""How a gateway can fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import NotAllowed, StorageError


@dataclass(eq=False, kw_only=True)
class AddressUnusable(StorageError):
    """A gateway cannot listen at its address, or cannot reach it."""

    gateway: str
    address: str
    why: str
    problem = "Gateway {gateway!r} cannot use {address}: {why}."
    remedy = "Choose another address or port, or start what should answer there."


@dataclass(eq=False, kw_only=True)
class SignatureInvalid(NotAllowed):
    """A webhook is not signed by its sender, or was signed too long ago."""

    why: str
    http_status: ClassVar[int] = 401
    problem = "The webhook was refused: {why}."
    remedy = "Sign the exact bytes of the body with the shared secret, and send it at once."
