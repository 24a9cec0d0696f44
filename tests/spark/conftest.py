"""Fixtures of the tests of sessions, sources and topic sinks."""

from __future__ import annotations

from tests.servers import object_store, objects

__all__ = ["object_store", "objects"]
