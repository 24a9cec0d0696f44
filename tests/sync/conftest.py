"""Servers for the tests of targets."""

from __future__ import annotations

from tests.servers import postgres, redis_peer

__all__ = ["postgres", "redis_peer"]
