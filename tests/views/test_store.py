"""The contract of every store: rows, position and versions change together, and types come back as they went in."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import NotFound
from headwater.views import Delta, ViewPosition, ViewSpec, ViewStore
from headwater.views.errors import StatementInvalid, ViewConflict, ViewInvalid
from headwater.views.view import key_batch
from tests.views.conftest import Opened, spec

UTC = datetime.UTC
NOON = datetime.datetime(2024, 2, 29, 12, 0, 1, 500_000)


def upserts(spec: ViewSpec, rows: list[dict[str, Any]]) -> Delta:
    table = pa.Table.from_pylist(rows, schema=spec.schema)
    return Delta(keys=table.select(list(spec.key)), rows=table)


def deletes(spec: ViewSpec, keys: list[dict[str, Any]]) -> Delta:
    return Delta(keys=pa.Table.from_pylist(keys, schema=spec.key_schema), rows=spec.schema.empty_table())


def at(offset: int, *, version: int = 1, **sources: dict[int, int]) -> ViewPosition:
    return ViewPosition(version=version, topic_id="t", offsets={0: offset}, sources=sources)


def contents(store: ViewStore, spec: ViewSpec) -> list[dict[str, Any]]:
    table = store.scan(spec, where=None, parameters=None, limit=None)
    return sorted(table.to_pylist(maps_as_pydicts="strict"), key=lambda row: str(row[spec.key[0]]))


@pytest.mark.core
def test_rows_are_inserted_replaced_and_deleted_by_key(store: ViewStore) -> None:
    spend = spec()
    store.declare(spend)
    store.apply(spend, upserts(spend, [{"card": 1, "total": 1.0}, {"card": 2, "total": 2.0}]), at(2))
    store.apply(spend, upserts(spend, [{"card": 2, "total": 5.0, "shop": "a"}, {"card": 3}]), at(4))
    store.apply(spend, deletes(spend, [{"card": 1}, {"card": 99}]), at(6))
    assert contents(store, spend) == [
        {"card": 2, "total": 5.0, "shop": "a"},
        {"card": 3, "total": None, "shop": None},
    ]


def test_rows_and_position_are_there_when_the_store_is_opened_again(open_store: Opened) -> None:
    spend = spec(producers=("q1",))
    store = open_store()
    store.declare(spend)
    store.apply(spend, upserts(spend, [{"card": 1, "total": 1.0}]), at(7, payments={0: 3, 1: 4}))
    store.close()
    store = open_store()
    [found] = store.stored()
    assert found.spec == spend
    assert found.active
    assert found.position == at(7, payments={0: 3, 1: 4})
    assert contents(store, spend) == [{"card": 1, "total": 1.0, "shop": None}]
    store.close()


def test_a_failed_transaction_changes_neither_rows_nor_position(store: ViewStore) -> None:
    spend = spec()
    store.declare(spend)
    store.apply(spend, upserts(spend, [{"card": 1, "total": 1.0}]), at(1))
    broken = Delta(keys=pa.table({"card": [1]}), rows=pa.table({"card": [1], "other": [2]}))
    with pytest.raises(Exception, match=r"total|shop|column"):
        store.apply(spend, broken, at(2))
    assert contents(store, spend) == [{"card": 1, "total": 1.0, "shop": None}]
    assert store.stored()[0].position == at(1)


def test_replacing_leaves_only_the_new_rows(store: ViewStore) -> None:
    spend = spec()
    store.declare(spend)
    store.apply(spend, upserts(spend, [{"card": 1}, {"card": 2}]), at(2))
    store.apply(spend, upserts(spend, [{"card": 3}]), at(1), replace=True)
    assert [row["card"] for row in contents(store, spend)] == [3]


def test_a_version_is_built_beside_the_active_one_and_switched_to(store: ViewStore) -> None:
    first, second = spec(), spec(version=2, topic="spend.v2")
    store.declare(first)
    store.apply(first, upserts(first, [{"card": 1, "total": 1.0}]), at(1))
    assert not store.declare(second).active
    store.apply(second, upserts(second, [{"card": 1, "total": 2.0}]), at(1, version=2))
    assert store.query("SELECT total FROM spend").to_pylist() == [{"total": 1.0}]
    store.activate("spend", 2)
    assert store.query("SELECT total FROM spend").to_pylist() == [{"total": 2.0}]
    store.drop("spend", 1)
    assert [(one.spec.version, one.active) for one in store.stored()] == [(2, True)]
    assert store.query("SELECT total FROM spend").to_pylist() == [{"total": 2.0}]


def test_what_is_dropped_is_gone(store: ViewStore) -> None:
    store.declare(spec())
    store.drop("spend")
    assert store.stored() == []
    with pytest.raises(NotFound):
        store.drop("spend")
    with pytest.raises(StatementInvalid):
        store.query("SELECT * FROM spend")


def test_views_can_be_joined(store: ViewStore) -> None:
    spend, shops = spec(), spec("shops", pa.schema([("card", pa.int64()), ("city", pa.string())]))
    for one, rows in ((spend, [{"card": 1, "total": 1.5}]), (shops, [{"card": 1, "city": "Oslo"}])):
        store.declare(one)
        store.apply(one, upserts(one, rows), at(1))
    found = store.query("SELECT total, city FROM spend JOIN shops USING (card)")
    assert found.to_pylist() == [{"total": 1.5, "city": "Oslo"}]


def test_a_new_column_and_a_wider_one_are_made_in_place(store: ViewStore) -> None:
    old = spec(schema=pa.schema([("card", pa.int32()), ("total", pa.float32())]))
    store.declare(old)
    store.apply(old, upserts(old, [{"card": 1, "total": 1.5}]), at(1))
    new = spec(schema=pa.schema([("city", pa.string()), ("card", pa.int64()), ("total", pa.float64())]))
    assert store.declare(new).position == at(1)
    store.apply(new, upserts(new, [{"card": 2**40, "total": 2.5, "city": "Oslo"}]), at(2))
    assert contents(store, new) == [
        {"city": None, "card": 1, "total": 1.5},
        {"city": "Oslo", "card": 2**40, "total": 2.5},
    ]
    assert store.query("SELECT city FROM spend WHERE card = 1").to_pylist() == [{"city": None}]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": ("card", "shop")}, "its key was card and is now card, shop"),
        ({"schema": pa.schema([("card", pa.int64()), ("total", pa.int8()), ("shop", pa.string())])}, "total"),
        ({"schema": pa.schema([("card", pa.int64())])}, "was removed"),
    ],
    ids=["another key", "a narrower column", "a column less"],
)
def test_what_does_not_fit_asks_for_a_new_version(store: ViewStore, change: dict[str, Any], why: str) -> None:
    store.declare(spec())
    with pytest.raises(ViewConflict, match="Rebuild it under a new version") as failure:
        store.declare(spec(**change))
    assert why in str(failure.value)
    assert store.stored()[0].spec == spec()


def test_a_declaration_that_no_store_can_keep_is_refused() -> None:
    for change, why in (
        ({"key": ()}, "no key"),
        ({"key": ("crad",)}, "none of its columns"),
        ({"schema": pa.schema([("card", pa.list_(pa.int64()))])}, "nested"),
        ({"schema": pa.schema([("card", pa.int64()), ("Card", pa.int64())])}, "from each other"),
        ({"name": "a view"}, "ASCII characters"),
    ):
        with pytest.raises(ViewInvalid, match=why):
            spec(**change)


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-(2**15), 2**15 - 1]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.uint8(), [0, 255]),
    (pa.uint16(), [0, 2**16 - 1]),
    (pa.uint32(), [0, 2**32 - 1]),
    (pa.uint64(), [0, 2**64 - 1]),
    (pa.float32(), [1.5, float("inf")]),
    (pa.float64(), [1e300, -0.25]),
    (pa.string(), ["", "ö'\"\n🌊"]),
    (pa.large_string(), ["a"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.large_binary(), [b"abc"]),
    (pa.binary(4), [b"\x00\x01\x02\x03"]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(2024, 2, 29)]),
    (pa.timestamp("s"), [NOON.replace(microsecond=0)]),
    (pa.timestamp("ms"), [NOON]),
    (pa.timestamp("us"), [NOON]),
    (pa.timestamp("s", "UTC"), [NOON.replace(microsecond=0, tzinfo=UTC)]),
    (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC)]),
    (pa.timestamp("us", "Europe/Oslo"), [NOON.replace(tzinfo=UTC)]),
    (pa.time32("s"), [datetime.time(23, 59, 59)]),
    (pa.time32("ms"), [datetime.time(23, 59, 59, 999_000)]),
    (pa.time64("us"), [datetime.time(0, 0, 0, 1)]),
    (pa.duration("s"), [datetime.timedelta(days=400)]),
    (pa.duration("ms"), [datetime.timedelta(milliseconds=-5)]),
    (pa.duration("us"), [datetime.timedelta(days=1000, microseconds=1)]),
    (pa.decimal128(38, 10), [decimal.Decimal("-1234567890123456789012345678.0123456789")]),
    (pa.decimal256(30, 2), [decimal.Decimal("1.50")]),
    (pa.list_(pa.int32()), [[], [1, None, 3]]),
    (pa.large_list(pa.string()), [["a", ""]]),
    (pa.struct([("a", pa.int8()), ("b", pa.list_(pa.timestamp("us", "UTC")))]), [{"a": 1, "b": [NOON.replace(tzinfo=UTC)]}]),
    (pa.map_(pa.string(), pa.int64()), [{}, {"x": 1, "y": None}]),
    (pa.list_(pa.struct([("d", pa.decimal128(5, 2)), ("raw", pa.binary())])), [[{"d": decimal.Decimal("1.25"), "raw": b"\xff"}]]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_values_come_back_as_they_went_in(store: ViewStore, kind: pa.DataType, values: list[Any]) -> None:
    typed = spec(schema=pa.schema([("card", pa.int64()), ("value", kind)]))
    store.declare(typed)
    given = pa.table({"card": range(len(values) + 1), "value": pa.array([*values, None], kind)})
    given = given.cast(typed.schema)
    store.apply(typed, Delta(keys=given.select(["card"]), rows=given), at(1))
    found = store.scan(typed, where=None, parameters=None, limit=None).sort_by("card")
    assert found.schema.equals(given.schema)
    assert found.to_pylist() == given.to_pylist()


KEYS = [(kind, values) for kind, values in VALUES if not pa.types.is_nested(kind)]


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_a_key_of_any_flat_type_is_found_and_replaced(store: ViewStore, kind: pa.DataType, values: list[Any]) -> None:
    keyed = spec(schema=pa.schema([("card", kind), ("n", pa.int64())]))
    store.declare(keyed)
    for n in (1, 2):
        rows = pa.table({"card": pa.array(values, kind), "n": pa.array([n] * len(values), pa.int64())})
        store.apply(keyed, Delta(keys=rows.select(["card"]), rows=rows), at(n))
    assert store.scan(keyed, where=None, parameters=None, limit=None).num_rows == len(values)
    for value in rows.column("card").to_pylist():
        found = store.get(keyed, key_batch(keyed, {"card": value}))
        assert found.to_pylist() == [{"card": value, "n": 2}]


@pytest.mark.parametrize("kind", [pa.duration("ns"), pa.list_(pa.duration("us"))], ids=lambda kind: str(kind))
def test_a_type_that_would_change_on_the_way_is_refused(store: ViewStore, kind: pa.DataType) -> None:
    with pytest.raises(ViewInvalid, match=r"its column value"):
        store.declare(spec(schema=pa.schema([("card", pa.int64()), ("value", kind)])))
    assert store.stored() == []


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE x",
        "SELECT 1; SELECT 2",
        "",
        "SELEC 1",
        "INSERT INTO spend VALUES (1)",
        "-- nothing",
        "SELECT nothing",
    ],
)
def test_only_one_statement_that_reads_is_run(store: ViewStore, statement: str) -> None:
    store.declare(spec())
    with pytest.raises(StatementInvalid):
        store.query(statement)


def test_a_snapshot_has_the_rows_of_its_position(store: ViewStore) -> None:
    spend = spec()
    store.declare(spend)
    store.apply(spend, upserts(spend, [{"card": 1}]), at(1))
    with store.snapshot("spend") as snapshot:
        store.apply(spend, upserts(spend, [{"card": 2}]), at(2))
        rows = [row["card"] for batch in snapshot.batches for row in batch.to_pylist()]
        assert (rows, snapshot.position) == ([1], at(1))
