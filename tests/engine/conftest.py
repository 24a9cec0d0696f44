"""Fixtures of the tests of the engine."""

from __future__ import annotations

from tests.operators.conftest import _no_query_outlives_its_test
from tests.servers import object_store, objects

__all__ = ["_no_query_outlives_its_test", "object_store", "objects"]
