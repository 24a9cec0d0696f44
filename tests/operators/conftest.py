"""Fixtures of the tests of operators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operators.stream_runs import RUNNING


@pytest.fixture(autouse=True)
def _no_query_outlives_its_test() -> Iterator[None]:
    yield
    while RUNNING:
        RUNNING.pop().stop()
