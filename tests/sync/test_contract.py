"""What every target does, on every kind of target."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.faults import install
from headwater.log import Log
from headwater.sync import Sync, SyncFenced, TableChanges
from headwater.sync import sync as sync_module
from headwater.sync.port import Step
from headwater.sync.tables import topic_tables
from headwater.sync.targets import open_target
from tests.sync.places import Place, params, place_of
from tests.sync.rows import TOPIC, append, log_at, make_topic, model


class Died(Exception):
    """Stands for the end of a process at a crash point."""


@pytest.fixture(params=params())
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield place_of(request.param, tmp_path, request, monkeypatch)
    install(None)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with log_at(tmp_path) as log:
        yield log


def synced(log: Log) -> int:
    with Sync.open(log, "copy") as sync:
        return sync.catch_up()


CHANGES: list[Any] = [
    (1, ("tea", 1.5, True)),
    (2, (None, None, False)),
    (3, ("", 0.0, True)),
    (1, ("milk", 2.5, False)),
    (3, None),
    (4, ("ä€😀 'quoted' \\ %s", 1e300, True)),
    (2, None),
    (2, ("again", -1.0, True)),
    (9, None),
]


def test_it_holds_the_last_row_of_each_key(place: Place, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(log, partitions=2)
    config = place.define(log)
    for start in range(0, len(CHANGES), 3):
        append(log, CHANGES[start : start + 3])
        monkeypatch.setattr(sync_module, "ROWS_MAX", 2)
        synced(log)
        assert place.holds(config, log, model(CHANGES[: start + 3]))


@pytest.mark.parametrize("point", ["target.before_commit", "target.committed"])
def test_a_step_that_was_cut_off_is_repeated_without_a_trace(place: Place, log: Log, point: str) -> None:
    make_topic(log)
    config = place.define(log)
    append(log, CHANGES[:3])
    synced(log)
    append(log, CHANGES[3:])

    def hook(reached: str) -> None:
        if reached == point:
            raise Died

    install(hook)
    with pytest.raises(Died):
        synced(log)
    install(None)
    assert place.holds(config, log, model(CHANGES if point == "target.committed" else CHANGES[:3]))
    synced(log)
    assert place.holds(config, log, model(CHANGES))


def test_a_replaced_process_writes_nothing(place: Place, log: Log) -> None:
    make_topic(log)
    config = place.define(log)
    append(log, CHANGES[:2])
    with Sync.open(log, "copy") as first:
        first.catch_up()
        append(log, CHANGES[2:4])
        with Sync.open(log, "copy") as second:
            second.catch_up()
            append(log, CHANGES[4:])
            with pytest.raises(SyncFenced):
                first.catch_up()
            second.catch_up()
    assert place.holds(config, log, model(CHANGES))


def test_new_columns_are_added(place: Place, log: Log) -> None:
    make_topic(log)
    place.define(log)
    append(log, CHANGES[:1])
    synced(log)
    log.alter(TOPIC, schema=log.topic(TOPIC).schema.append(pa.field("note", pa.string())))
    log.append(TOPIC, [{"id": 5, "note": "new"}])
    synced(log)
    with Sync.open(log, "copy") as sync:
        [table] = sync.tables()
        rows = [row for piece in sync.target.scan(table)[1] for row in piece.to_pylist()]
        assert {str(row["id"]): row["note"] for row in rows} == {"1": None, "5": "new"}


def test_a_comparison_finds_what_differs_and_repairs_it(place: Place, log: Log) -> None:
    make_topic(log)
    config = place.define(log)
    append(log, [(key, ("tea", float(key), True)) for key in range(50)])
    synced(log)
    with Sync.open(log, "copy") as sync:
        assert all(one.is_equal for one in sync.compare())
    spoil(log, config)
    append(log, [(3, ("not applied yet", 1.0, True))])
    with Sync.open(log, "copy") as sync:
        [found] = sync.compare()
        assert (found.rows, found.missing, found.extra, found.different, found.pending) == (49, 1, 1, 1, 1)
        assert {(one.key, one.kind) for one in found.differences} == {
            ("id=7", "missing"),
            ("id=8", "different"),
            ("id=99", "extra"),
        }
        assert sync.compare(repair=True)[0].repaired
        assert sync.compare()[0].is_equal
        sync.catch_up()
        assert sync.compare()[0].is_equal


def test_a_rebuild_makes_the_table_again_from_the_whole_topic(place: Place, log: Log) -> None:
    make_topic(log)
    config = place.define(log)
    append(log, CHANGES)
    synced(log)
    spoil(log, config)
    with Sync.open(log, "copy") as sync:
        sync.rebuild()
        assert sync.compare()[0].is_equal
        append(log, [(1, ("after", 1.0, True))])
        sync.catch_up()
    assert place.holds(config, log, model([*CHANGES, (1, ("after", 1.0, True))]))


def test_a_topic_created_again_is_rebuilt(place: Place, log: Log) -> None:
    make_topic(log)
    config = place.define(log)
    append(log, CHANGES)
    synced(log)
    log.delete(TOPIC)
    make_topic(log)
    append(log, [(5, ("new", 1.0, True))])
    with Sync.open(log, "copy") as sync:
        sync.rebuild(TOPIC)
    assert place.holds(config, log, {5: ("new", 1.0, True)})
    assert synced(log) == 0


VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "item": (pa.string(), "tea"),
    "small": (pa.int16(), -5),
    "wide": (pa.uint32(), 2**32 - 1),
    "single": (pa.float32(), 0.25),
    "exact": (pa.decimal128(12, 3), Decimal("12345.678")),
    "day": (pa.date32(), dt.date(2026, 11, 18)),
    "at": (pa.timestamp("us", "UTC"), dt.datetime(2026, 11, 18, 7, 33, 11, 123456, tzinfo=dt.UTC)),
    "local": (pa.timestamp("ms"), dt.datetime(2026, 11, 18, 7, 33, 11, 123000)),
    "clock": (pa.time64("us"), dt.time(7, 33, 11, 5)),
    "raw": (pa.binary(), b"\x00\xff'"),
    "tags": (pa.list_(pa.string()), ["a", 'b"', "ä"]),
    "shape": (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64()))]), {"x": 1, "y": [0.5]}),
}


def test_values_of_every_type_come_back_as_they_were_stored(place: Place, log: Log) -> None:
    schema = pa.schema([pa.field("id", pa.string()), *(pa.field(name, kind) for name, (kind, _) in VALUES.items())])
    log.create("shop.things", schema, key="id", compact=True)
    place.define(log)
    log.append(
        "shop.things", [{"id": "all", **{name: value for name, (_, value) in VALUES.items()}}, {"id": "A"}, {"id": "a"}]
    )
    synced(log)
    with Sync.open(log, "copy") as sync:
        [found] = sync.compare()
        assert (found.rows, found.is_equal) == (3, True), found
    log.append("shop.things", [{"id": "all", "_tombstone": True}, {"id": "A", "small": 1}])
    synced(log)
    with Sync.open(log, "copy") as sync:
        [found] = sync.compare()
        assert (found.rows, found.is_equal) == (2, True), found


def test_dropping_a_sync_leaves_the_rows_and_forgets_the_position(place: Place, log: Log) -> None:
    from headwater.sync import SyncStore

    make_topic(log)
    config = place.define(log)
    append(log, CHANGES)
    synced(log)
    SyncStore(log).remove("copy")
    assert place.holds(config, log, model(CHANGES))
    place.define(log)
    assert synced(log) == len(CHANGES)
    assert place.holds(config, log, model(CHANGES))


def spoil(log: Log, config: Any) -> None:
    """Delete key 7, change key 8 and add key 99, behind the back of the sync."""
    [table] = topic_tables(log, config)
    target = open_target(config)
    position = target.position(table)
    assert position is not None
    rows = pa.table([[8, 99], ["wrong"] * 2, [0.0] * 2, [True] * 2], schema=table.columns)
    step = Step(gone=pa.table({"id": pa.array([7], pa.int64())}), rows=rows)
    versions = rows.append_column("_tombstone", pa.array([False] * 2)).append_column("_at", pa.array([0, 0]))
    target.prepare(table)
    target.apply([TableChanges(table=table, before=position, after=position, versions=versions, steps=[step])])
    target.close()
