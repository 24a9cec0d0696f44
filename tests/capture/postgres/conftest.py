"""A database of PostgreSQL for each test, on the one server of the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.capture.postgres.shop import PASSWORD_ENV, Shop
from tests.servers import Postgres, postgres

__all__ = ["postgres"]


@pytest.fixture
def shop(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A database of its own on the tests' server, and a log."""
    monkeypatch.setenv(PASSWORD_ENV, postgres.password)
    place = Shop(postgres, tmp_path)
    yield place
    place.close()
