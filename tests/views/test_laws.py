"""For any changelog, any split of it and any restart: the store holds what a dictionary would."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headwater.log
from headwater.views import Change, DuckStore, ViewKeeper, ViewSpec
from tests.laws import costly

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("value", pa.list_(pa.int64()))])
KEY = ("a", "b")
Model = dict[tuple[int, str], Any]

ROW = st.fixed_dictionaries(
    {
        "a": st.integers(0, 3),
        "b": st.sampled_from(["", "x", "ö"]),
        "value": st.none() | st.lists(st.integers(-5, 5), max_size=2),
        "_tombstone": st.booleans(),
    }
)
STEP: st.SearchStrategy[Any] = st.one_of(
    st.tuples(st.just("append"), st.lists(ROW, min_size=1, max_size=8)),
    st.tuples(st.just("keep"), st.just([])),
    st.tuples(st.just("restart"), st.just([])),
)


def applied(model: Model, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        key = (row["a"], row["b"])
        if row["_tombstone"]:
            model.pop(key, None)
        else:
            model[key] = row["value"]


def replayed(model: Model, changes: list[Change]) -> None:
    for change in changes:
        if change.op == "reset":
            model.clear()
            continue
        key = (change.row["a"], change.row["b"])
        if change.op == "-D":
            model.pop(key, None)
        else:
            model[key] = change.row["value"]


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name in KEY or not row["_tombstone"]} | {
        "_tombstone": row["_tombstone"]
    }


@costly(10)
@given(steps=st.lists(STEP, max_size=12), partitions=st.integers(1, 3), begin=st.integers(0, 12))
def test_a_view_is_the_dictionary_of_its_changelog(
    steps: list[tuple[str, list[dict[str, Any]]]], partitions: int, begin: int
) -> None:
    view_spec = ViewSpec(name="v", topic="v", key=KEY, schema=SCHEMA)
    model: Model = {}
    followed: Model = {}
    with tempfile.TemporaryDirectory() as folder, headwater.log.open(Path(folder, "log")) as log:
        log.create("v", SCHEMA, key=KEY, compact=True, partitions=partitions, durability="memory")
        store = DuckStore(Path(folder, "views.duckdb"))
        keeper = ViewKeeper(log, store)
        view = keeper.add(view_spec)
        position = None
        before: dict[int, int] = {}
        for number, (step, rows) in enumerate([*steps, ("keep", [])]):
            if step == "append":
                log.append("v", [as_stored(row) for row in rows])
                applied(model, rows)
            elif step == "restart":
                store.close()
                store = DuckStore(Path(folder, "views.duckdb"))
                keeper = ViewKeeper(log, store)
                view = keeper.add(view_spec)
            else:
                keeper.catch_up()
                assert {(row["a"], row["b"]): row["value"] for row in view.rows()} == model
                if number >= begin:
                    changes = view.subscribe(start=position)
                    replayed(followed, list(changes.available()))
                    position = changes.position
                    assert followed == model
            now = view.position.offsets
            assert all(now.get(partition, 0) >= offset for partition, offset in before.items())
            before = now
        store.close()
