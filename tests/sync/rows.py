"""A log with a keyed topic, changed at random, and what a table of it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import headwater as hw
from headwater.config import Config
from headwater.log import Log
from headwater.sync import SyncConfig, SyncStore

TOPIC = "shop.orders"
SCHEMA = {"id": "int64", "item": "string", "price": "float64", "paid": "bool"}

#: One change: a key, and the other columns of its row; None deletes the key.
CHANGES = st.tuples(
    st.integers(1, 6),
    st.one_of(
        st.none(),
        st.tuples(
            st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=4)),
            st.one_of(st.none(), st.floats(-1e9, 1e9)),
            st.booleans(),
        ),
    ),
)
# Any: values of rows.
Values = tuple[Any, ...]


def log_at(folder: Path) -> Log:
    return hw.open(folder / "log", config=Config(durability="os", maintenance="manual"))


def make_topic(log: Log, name: str = TOPIC, *, partitions: int = 1) -> None:
    log.create(name, SCHEMA, key="id", compact=True, partitions=partitions)


def append(log: Log, changes: list[tuple[int, Values | None]], name: str = TOPIC) -> None:
    rows = []
    for key, values in changes:
        if values is None:
            rows.append({"id": key, "_tombstone": True})
        else:
            rows.append(dict(zip(SCHEMA, (key, *values), strict=True)))
    if rows:
        log.append(name, rows)


def model(changes: list[tuple[int, Values | None]]) -> dict[int, Values]:
    """The table after changes, by a dictionary."""
    table: dict[int, Values] = {}
    for key, values in changes:
        if values is None:
            table.pop(key, None)
        else:
            table[key] = values
    return table


# Any: settings of a sync.
def define(log: Log, url: str, **settings: Any) -> SyncConfig:
    return SyncStore(log).create(SyncConfig(**{"name": "copy", "url": url, "topics": ("shop.*",), **settings}))
