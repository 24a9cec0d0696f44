"""A log, and every kind of store, for the tests of views."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headwater.log
from headwater.log import Log
from headwater.views import DuckStore, PostgresStore, ViewKeeper, ViewSpec, ViewStore
from tests.servers import Postgres, postgres

__all__ = ["postgres"]

Opened = Callable[[], ViewStore]
SPEND = pa.schema([("card", pa.int64()), ("total", pa.float64()), ("shop", pa.string())])


def spec(name: str = "spend", schema: pa.Schema = SPEND, **changes: object) -> ViewSpec:
    settings = {"name": name, "topic": name, "key": ("card",), "schema": schema} | changes
    return ViewSpec(**settings)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with headwater.log.open(tmp_path / "log") as log:
        yield log


@pytest.fixture(scope="session")
def database(postgres: Postgres) -> str:
    """One database for all tests of views. A store of its own is an app of its own there: `new_app()`."""
    return postgres.new_database()


def new_app() -> str:
    """The name of an app that no other test has; a database for each test would take a second each."""
    return f"test_{next(_apps)}"


_apps = itertools.count()


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.process)])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens the store of this test, again and again, as a process does that was ended."""
    if request.param == "duckdb":
        return lambda: DuckStore(tmp_path / "views.duckdb")
    address, app = request.getfixturevalue("database"), new_app()
    return lambda: PostgresStore(address, app=app)


@pytest.fixture
def store(open_store: Opened) -> Iterator[ViewStore]:
    store = open_store()
    yield store
    store.close()


@pytest.fixture
def keeper(log: Log, store: ViewStore) -> Iterator[ViewKeeper]:
    keeper = ViewKeeper(log, store)
    yield keeper
    keeper.stop()
