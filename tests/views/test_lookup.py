"""One row by its key: where rows lie in the changelog, and how they are read from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log import Log
from headwater.log import open as open_log
from headwater.views import DuckStore, ViewKeeper, changelog
from headwater.views.lookup import GONE, Places
from headwater.views.spec import ViewSpec

#: Few low bits, so that many keys want the same slot.
KEYS = st.integers(0, 40).map(lambda number: number * 2**12 + number % 3) | st.integers(0, 2**64 - 1)


@given(rounds=st.lists(st.lists(st.tuples(KEYS, st.integers(GONE, 2**60)), max_size=60), max_size=6))
def test_places_are_a_dictionary(rounds: list[list[tuple[int, int]]]) -> None:
    places, model = Places(), dict[int, int]()
    for pairs in rounds:
        places.put(np.array([key for key, _ in pairs], np.uint64), np.array([place for _, place in pairs], np.int64))
        model.update(pairs)
    assert len(places) == len(model)
    for key in [*model, 3, 2**63]:
        assert places.find(key) == model.get(key)


def test_it_grows() -> None:
    places = Places()
    keys = np.random.default_rng(1).integers(0, 2**63, 100_000).astype(np.uint64)
    for start in range(0, len(keys), 7_000):
        places.put(keys[start : start + 7_000], np.arange(start, min(start + 7_000, len(keys))))
    assert all(places.find(int(key)) == number for number, key in list(enumerate(keys))[::97])


SPEC = ViewSpec(
    name="spend", topic="spend", key=("card",), schema=pa.schema([("card", pa.int64()), ("total", pa.int64())])
)


class Silent(DuckStore):
    """A store that counts how often it is asked for a row."""

    asked = 0

    def get(self, spec: ViewSpec, key: pa.RecordBatch) -> pa.Table:
        self.asked += 1
        return super().get(spec, key)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log") as opened:
        opened.create("spend", SPEC.schema, key="card", compact=True, partitions=2, durability="os")
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Silent]:
    opened = Silent(tmp_path / "views.duckdb")
    yield opened
    opened.close()


def test_rows_are_read_from_the_changelog_and_only_the_deleted_from_the_store(log: Log, store: Silent) -> None:
    keeper = ViewKeeper(log, store)
    view = keeper.add(SPEC)
    log.append("spend", [{"card": card, "total": card} for card in range(100)])
    keeper.catch_up()
    log.append("spend", [{"card": 7, "total": 70}])
    log.append("spend", [{"card": 8, "_tombstone": True}])
    keeper.catch_up()
    assert view.get(card=7) == {"card": 7, "total": 70}
    assert view.get(card=99) == {"card": 99, "total": 99}
    assert view.get(card=1000) is None
    assert store.asked == 0
    assert view.get(card=8) is None
    assert store.asked == 1


def test_a_row_that_the_store_shows_is_found_by_its_key_at_once(
    log: Log, store: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = ViewKeeper(log, store)
    view = keeper.add(SPEC)
    seen: list[tuple[dict[int, int], dict[int, int]]] = []
    apply = store.apply

    def apply_and_look(*arguments: Any, **named: Any) -> None:  # Any: those of `apply`
        apply(*arguments, **named)
        # The store shows the rows; the keeper has not noted their places yet.
        rows = {row["card"]: row["total"] for row in view.rows()}
        found = [view.get(card=card) for card in range(4)]
        seen.append((rows, {row["card"]: row["total"] for row in found if row is not None}))

    monkeypatch.setattr(store, "apply", apply_and_look)
    for changes in ([(0, 1), (1, 1)], [(0, 2), (2, 2)], [(1, 3), (3, 3)]):
        log.append("spend", [{"card": card, "total": total} for card, total in changes])
        keeper.catch_up()
    assert len(seen) == 3
    for rows, found in seen:
        assert rows == found


def test_a_keeper_that_takes_up_a_view_learns_where_its_rows_lie(log: Log, store: Silent) -> None:
    first = ViewKeeper(log, store)
    first.add(SPEC)
    log.append("spend", [{"card": card % 10, "total": card} for card in range(100)])
    first.catch_up()
    second = ViewKeeper(log, store)
    view = second.add(SPEC)
    second.catch_up()
    assert [view.get(card=card) for card in range(10)] == [{"card": card, "total": 90 + card} for card in range(10)]
    assert store.asked == 0


def test_a_view_of_too_many_keys_asks_its_store(log: Log, store: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "KEYS_MAX", 5)
    keeper = ViewKeeper(log, store)
    view = keeper.add(SPEC)
    log.append("spend", [{"card": card, "total": card} for card in range(10)])
    keeper.catch_up()
    assert view.get(card=3) == {"card": 3, "total": 3}
    assert store.asked == 1
