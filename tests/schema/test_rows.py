"""Rows in any shape become batches that fit, or are refused by row, column and reason."""

from __future__ import annotations

import datetime
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArgumentInvalid, RowInvalid
from headwater.schema import SCHEMALESS, parse_schema, stored_schema, to_batches, to_rows

from .strategies import schemas_and_rows

SCHEMA = parse_schema("id int64, value float64, name string")
STRICT = parse_schema("id int64 not null, name string not null, note string")
ROWS: list[dict[str, Any]] = [{"id": i, "value": i / 2, "name": f"n{i}"} for i in range(5)]


@dataclass
class Item:
    id: int
    value: float
    name: str


def table_of(rows: Any, schema: pa.Schema = SCHEMA, **options: Any) -> pa.Table:
    """All rows of all batches, which must be in the stored schema."""
    batches = to_batches(rows, schema, topic="items", **options)
    assert all(batch.data.schema.equals(stored_schema(schema)) for batch in batches)
    return pa.Table.from_batches([batch.data for batch in batches], schema=stored_schema(schema))


def refused(rows: Any, schema: pa.Schema = SCHEMA, **options: Any) -> RowInvalid:
    with pytest.raises(RowInvalid) as caught:
        to_batches(rows, schema, topic="items", **options)
    assert caught.value.topic == "items"
    return caught.value


def listed(array: pa.Array | None) -> list[Any]:
    assert array is not None
    return list(array.to_pylist())


# -- shapes -----------------------------------------------------------------------------------------------------------


def generated() -> Iterator[dict[str, Any]]:
    yield from ROWS


Named = namedtuple("Named", ["id", "value", "name"])


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        tuple(ROWS),
        generated(),
        [OrderedDict(row) for row in ROWS],
        [MappingProxyType(row) for row in ROWS],
        [Item(**row) for row in ROWS],
        (Item(**row) for row in ROWS),
        [Named(**row) for row in ROWS],
        [ROWS[0], Item(**ROWS[1]), Named(**ROWS[2]), *ROWS[3:]],
        [dict(reversed(row.items())) for row in ROWS],
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=[9, 9, 9, 9, 9]),
        pd.DataFrame(ROWS).convert_dtypes(dtype_backend="pyarrow"),
        pd.DataFrame(ROWS).astype({"name": "category"}),
        pl.DataFrame(ROWS),
        pl.DataFrame(ROWS, schema_overrides={"name": pl.Categorical}),
        pa.Table.from_pylist(ROWS),
        pa.Table.from_pylist(ROWS).to_reader(),
        pa.RecordBatch.from_pylist(ROWS),
        pa.Table.from_pylist(ROWS).to_batches(max_chunksize=2),
        iter(pa.Table.from_pylist(ROWS).to_batches(max_chunksize=2)),
        pa.Table.from_pylist(ROWS).select(["name", "value", "id"]),
        pa.table(
            {
                "id": pa.array(range(5), pa.int8()),
                "value": [0, 0.5, 1, 1.5, 2],
                "name": pa.array([f"n{i}" for i in range(5)]).dictionary_encode(),
            }
        ),
        pa.table(
            {
                "id": [0.0, 1.0, 2.0, 3.0, 4.0],
                "value": [0, 0.5, 1, 1.5, 2],
                "name": pa.array([f"n{i}" for i in range(5)], pa.string_view()),
            }
        ),
    ],
)
def test_every_shape_of_rows_gives_the_same_batch(rows: Any) -> None:
    assert table_of(rows).to_pylist() == ROWS


@pytest.mark.parametrize("row", [ROWS[1], Item(**ROWS[1]), Named(**ROWS[1])])
def test_one_row_needs_no_list(row: Any) -> None:
    assert table_of(row).to_pylist() == [ROWS[1]]


@pytest.mark.parametrize(
    "rows",
    [[], (), iter([]), pd.DataFrame(), pl.DataFrame(), pa.table({}), pa.RecordBatch.from_pylist([], schema=SCHEMA)],
)
def test_no_rows_are_no_batches(rows: Any) -> None:
    assert to_batches(rows, SCHEMA, topic="items") == []


@pytest.mark.parametrize(
    "rows",
    [5, None, "text", b"bytes", [5], [None], [[1, 2.0, "x"]], [(1, 2.0)], ["text"], [ROWS[0], 5], object(), Item],
)
def test_what_cannot_be_rows_is_refused(rows: Any) -> None:
    with pytest.raises(ArgumentInvalid, match="mappings"):
        to_batches(rows, SCHEMA, topic="items")


def test_a_batch_that_fits_passes_untouched() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    [result] = to_batches(batch, SCHEMA, topic="items")
    assert result.data is batch
    assert result.headers is None
    assert result.tombstones is None


def test_a_batch_in_the_stored_schema_passes_untouched_if_it_has_no_nulls() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1, "name": "a", "note": None}], schema=stored_schema(STRICT))
    [result] = to_batches(batch, STRICT, topic="items")
    assert result.data is batch


@pytest.mark.parametrize(
    "shape",
    [lambda rows: rows, list, lambda rows: pa.RecordBatch.from_pylist(rows, schema=SCHEMA), pd.DataFrame, pl.DataFrame],
)
def test_no_batch_has_more_rows_than_allowed(shape: Any) -> None:
    batches = to_batches(shape(ROWS), SCHEMA, topic="items", rows_max=2)
    assert [batch.data.num_rows for batch in batches] == [2, 2, 1]
    assert [row for batch in batches for row in to_rows(batch.data)] == ROWS


@given(schemas_and_rows())
def test_rows_that_fit_come_back_as_they_were(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = schema_and_rows
    expected = pa.RecordBatch.from_pylist(rows, schema=stored_schema(schema))
    assert table_of(rows, schema).equals(pa.Table.from_batches([expected]))


@given(schemas_and_rows())
def test_arrow_rows_go_through_unchanged(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = schema_and_rows
    table = pa.Table.from_pylist(rows, schema=stored_schema(schema))
    assert table_of(table, schema).equals(table)
    shuffled = table.select(list(reversed(schema.names)))
    assert table_of(shuffled, schema).equals(table)


@given(schemas_and_rows(size_max=3), st.data())
def test_a_missing_column_is_null_or_refused(
    schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, rows = schema_and_rows
    name = data.draw(st.sampled_from(schema.names))
    fewer = [{key: value for key, value in row.items() if key != name} for row in rows]
    if schema.field(name).nullable or not rows:
        assert table_of(fewer, schema).column(name).null_count == len(rows)
    else:
        assert refused(fewer, schema).column == name


# -- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [list, pd.DataFrame, pl.DataFrame, pa.Table.from_pylist])
def test_an_unknown_column_is_refused_with_a_hint(shape: Any) -> None:
    error = refused(shape([{"id": 1, "value": 1.0, "nmae": "x"}]))
    assert (error.row, error.column) == (0, "nmae")
    assert "did you mean 'name'" in error.why


def test_an_unknown_key_is_found_in_the_row_that_has_it() -> None:
    assert refused([*ROWS, {"id": 1, "other": 2}]).row == 5
    assert refused([*ROWS, {"id": 1, "value": 1.0, "other": "x"}]).row == 5


def test_a_row_whose_key_is_not_a_text_is_refused() -> None:
    assert refused([{1: 2}]).column == "1"


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("int64", "1", "not a whole number"),
        ("int64", 1.5, "not a whole number"),
        ("int64", float("nan"), "not a whole number"),
        ("int64", float("inf"), "not a whole number"),
        ("int64", Decimal("1e100000"), "not a whole number"),
        ("int64", Decimal("sNaN"), "does not fit"),
        ("int64", True, "not a whole number"),
        ("int64", 2**63, "does not fit int64"),
        ("int64", 10**400, "does not fit int64"),
        ("int8", 128, "does not fit int8"),
        ("uint64", -1, "does not fit uint64"),
        ("uint64", 2**64, "does not fit uint64"),
        ("float64", "1.5", "not a number"),
        ("float64", True, "not a number"),
        ("float64", 2**53 + 1, "exactly"),
        ("float64", 10**400, "does not fit float64"),
        ("float32", 1e300, "32 bits"),
        ("string", 5, "not text"),
        ("string", b"\xff", "not UTF-8 text"),
        ("string", "\ud800", "does not fit string"),
        ("binary", 5, "not bytes"),
        ("fixed_size_binary[2]", b"abc", "does not fit fixed_size_binary[2]"),
        ("bool", 1, "not true or false"),
        ("bool", "true", "not true or false"),
        ("decimal(5,2)", 1.5, "give a Decimal"),
        ("decimal(5,2)", "1.234", "does not fit decimal(5,2)"),
        ("decimal(5,2)", Decimal("NaN"), "does not fit decimal(5,2)"),
        ("decimal(5,2)", Decimal("1000"), "does not fit decimal(5,2)"),
        ("decimal(5,2)", "nonsense", "not a decimal number"),
        ("decimal(5,2)", True, "not a decimal number"),
        ("timestamp", "yesterday", "not a time"),
        ("timestamp", 1.5, "not a time"),
        ("timestamp", True, "not a time"),
        ("timestamp", 2**63, "does not fit timestamp"),
        ("timestamp[ms]", datetime.datetime(2024, 1, 1, 0, 0, 0, 1), "digits would be lost"),
        ("timestamp[ns]", datetime.datetime(9999, 1, 1), "does not fit timestamp[ns]"),
        ("timestamp", np.datetime64(1, "as"), "not a time in days"),
        ("date", "2024-02-30", "not a date"),
        ("date", datetime.datetime(2024, 1, 1, 5), "not a whole day"),
        ("date", 5, "not a date"),
        ("time64[us]", "25:00", "not a time of day"),
        ("duration", "1 hour", "not a duration"),
        ("list<int64>", 5, "not a list"),
        ("list<string>", "abc", "not a list"),
        ("list<int64>", [1, "x"], "not a whole number"),
        ("struct<a: int64>", {"a": "x"}, "field 'a' is 'x'"),
        ("struct<a: int64>", {"b": 1}, "has a field 'b'"),
        ("struct<a: int64>", 5, "not a mapping"),
        ("struct<a: int64 not null>", {}, "null in field 'a'"),
        ("struct<a: struct<b: int64 not null>>", {"a": {"b": None}}, "null in field 'b' of field 'a'"),
        ("list<int64 not null>", [1, None], "null in an item"),
        ("map<string, int64 not null>", {"a": None}, "null in a map's value"),
        ("map<string, int64>", [(None, 1)], "null key"),
        ("map<string, int64>", 5, "not a mapping"),
        ("map<string, int64>", [1, 2], "not a mapping"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_row_column_and_reason(kind: str, value: Any, why: str) -> None:
    schema = parse_schema({"id": "int64", "x": kind})
    error = refused([{"id": 0, "x": None}, {"id": 1, "x": value}, {"id": 2, "x": value}], schema)
    assert (error.row, error.column) == (1, "x")
    assert why in error.why


@pytest.mark.parametrize("row", [0, 1, 499, 998, 999])
def test_the_first_bad_row_is_found_among_many(row: int) -> None:
    rows: list[dict[str, Any]] = [{"id": i, "value": 1.0, "name": "x"} for i in range(1000)]
    for bad in {row, 999}:
        rows[bad]["id"] = "bad"
    assert refused(rows).row == row
    assert refused(iter(rows), rows_max=100).row == row


@pytest.mark.parametrize(
    ("kind", "array", "why"),
    [
        ("int8", pa.array([1, 300]), "does not fit int8"),
        ("int64", pa.array([1.0, 1.5]), "does not fit int64"),
        ("int64", pa.array([1, 2**63], pa.uint64()), "does not fit int64"),
        ("int64", pa.array(["1", "2"]), "is string, and the schema says int64"),
        ("string", pa.array([1, 2]), "is int64, and the schema says string"),
        ("string", pa.array([b"a", b"\xff"]), "is binary, and the schema says string"),
        ("float64", pa.array([1, 2**60]), "does not fit float64"),
        ("float32", pa.array([1.0, 1e300]), "too large for 32 bits"),
        ("decimal(5,2)", pa.array([1, 5000]), "does not fit decimal(5,2)"),
        ("decimal(5,2)", pa.array([1.0, 1.5]), "is float64, and the schema says"),
        ("bool", pa.array([0, 1]), "is int64, and the schema says"),
        ("timestamp", pa.array(["2024-01-01", "soon"]), "does not fit timestamp"),
        ("timestamp", pa.array([1000, 1], pa.timestamp("ns")), "would lose data"),
        ("timestamp", pa.array([1, 2], pa.int32()), "is int32, and the schema says"),
        ("date", pa.array([0, 1], pa.timestamp("us")), "not midnight"),
        ("list<int8>", pa.array([[1], [300]]), "does not fit int8"),
        ("list<int8>", pa.array([1, 2]), "is int64, and the schema says list<int8>"),
        ("struct<a: int8>", pa.array([{"a": 1, "b": 2}]), "has a field 'b'"),
        ("struct<a: int8>", pa.array([{"a": 1}, {"a": 300}]), "does not fit int8"),
        ("map<string, int8>", pa.array([[("a", 300)]], pa.map_(pa.string(), pa.int64())), "does not fit int8"),
    ],
)
def test_an_arrow_value_that_does_not_fit_is_refused(kind: str, array: pa.Array, why: str) -> None:
    error = refused(pa.table({"x": array}), parse_schema({"x": kind}))
    assert why in error.why
    type_alone = "schema says" in why or "has a field" in why or len(array) == 1
    assert error.row == (0 if type_alone else 1)


def test_a_table_in_crumbs_becomes_one_batch() -> None:
    crumbs = pa.Table.from_pylist(ROWS, schema=SCHEMA).to_batches(max_chunksize=1)
    assert len(to_batches(pa.Table.from_batches(crumbs), SCHEMA, topic="items")) == 1
    assert len(to_batches(pa.Table.from_batches(crumbs).select(["name", "id", "value"]), SCHEMA, topic="items")) == 1


def test_a_table_that_fits_is_not_copied() -> None:
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    [batch] = to_batches(table, SCHEMA, topic="items")
    assert batch.data.column(0).buffers()[1].address == table.column(0).chunk(0).buffers()[1].address


def test_a_batch_of_no_rows_at_most_is_refused() -> None:
    with pytest.raises(ArgumentInvalid, match="at least 1"):
        to_batches(ROWS, SCHEMA, topic="items", rows_max=0)


def test_a_column_given_twice_is_refused() -> None:
    assert "twice" in refused(pd.DataFrame([[1, 2]], columns=["id", "id"])).why
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    assert "twice" in refused(batch).why


# -- values that are close enough -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("int64", 2.0, 2),
        ("int64", Decimal(7), 7),
        ("int32", np.int64(7), 7),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int64", 73314510714175488, 73314510714175488),
        ("float64", 3, 3.0),
        ("float64", np.float32(0.5), 0.5),
        ("float64", Decimal("0.5"), 0.5),
        ("float64", "Infinity", float("inf")),
        ("string", "žluťoučký 🐎\0", "žluťoučký 🐎\0"),
        ("string", np.str_("x"), "x"),
        ("string", b"x", "x"),
        ("binary", "ü", "ü".encode()),
        ("binary", bytearray(b"x"), b"x"),
        ("binary", memoryview(b"x"), b"x"),
        ("bool", np.True_, True),
        ("decimal(5,2)", "1.5", Decimal("1.50")),
        ("decimal(5,2)", 3, Decimal("3.00")),
        ("decimal(5,2)", np.int8(3), Decimal("3.00")),
        ("date", "2024-02-29", datetime.date(2024, 2, 29)),
        ("date", datetime.datetime(2024, 2, 29), datetime.date(2024, 2, 29)),
        ("date", np.datetime64("2024-02-29"), datetime.date(2024, 2, 29)),
        ("time64[us]", "12:30:00.5", datetime.time(12, 30, 0, 500_000)),
        ("duration", 5, datetime.timedelta(microseconds=5)),
        ("duration", "-PT1.5S", datetime.timedelta(seconds=-1.5)),
        ("duration", np.timedelta64(2, "h"), datetime.timedelta(hours=2)),
        ("list<int64>", (1, 2.0), [1, 2]),
        ("list<int64>", np.array([1, 2]), [1, 2]),
        ("list<float64>", [], []),
        ("struct<id: int64, value: float64, name: string>", Item(1, 2.0, "x"), {"id": 1, "value": 2.0, "name": "x"}),
        ("struct<a: int64, b: string>", {"a": 1}, {"a": 1, "b": None}),
        ("map<string, int64>", {"a": 1, "b": None}, {"a": 1, "b": None}),
        ("map<string, int64>", [("a", 1)], {"a": 1}),
        ("int64", pd.NA, None),
        ("timestamp", pd.NaT, None),
    ],
)
def test_a_value_of_another_class_is_taken_if_nothing_is_lost(kind: str, value: Any, stored: Any) -> None:
    rows = to_rows(to_batches([{"x": value}, {"x": None}], parse_schema({"x": kind}), topic="t")[0].data)
    assert rows == [{"x": stored}, {"x": None}]


MOMENT = datetime.datetime(2024, 1, 31, 12, 0, 0, 250_000, tzinfo=datetime.UTC)
MICROSECONDS = 1706702400250000


@pytest.mark.parametrize(
    "kind", ["timestamp", "timestamp[us]", "timestamp[ms, tz=UTC]", "timestamp[ns, tz=Europe/Zurich]"]
)
@pytest.mark.parametrize(
    "value",
    [
        MOMENT,
        MOMENT.replace(tzinfo=None),
        MOMENT.astimezone(datetime.timezone(datetime.timedelta(hours=-5))),
        MICROSECONDS,
        "2024-01-31T12:00:00.25Z",
        "2024-01-31 12:00:00.250",
        "2024-01-31T14:00:00.250000000+02:00",
        pd.Timestamp(MOMENT),
        np.datetime64(MICROSECONDS, "us"),
        np.datetime64(MICROSECONDS * 1000, "ns"),
    ],
)
def test_every_way_to_say_a_moment_means_the_same_microsecond(kind: str, value: Any) -> None:
    column = table_of([{"at": value}], parse_schema({"at": kind})).column("at").combine_chunks()
    per_unit = {"us": 1, "ms": 1000, "ns": 1}[column.type.unit]
    expected = MICROSECONDS * 1000 if column.type.unit == "ns" else MICROSECONDS // per_unit
    assert column.cast(pa.int64()).to_pylist() == [expected]


@pytest.mark.parametrize(
    "kind", ["timestamp", "timestamp[us]", "timestamp[ms, tz=UTC]", "timestamp[ns, tz=Europe/Zurich]"]
)
@pytest.mark.parametrize(
    "array",
    [
        pa.array([MICROSECONDS]),
        pa.array(["2024-01-31T12:00:00.25Z"]),
        pa.array(["2024-01-31T12:00:00.25"]),
        pa.array(["2024-01-31T14:00:00.25+0200"]),
        pa.array([MICROSECONDS], pa.timestamp("us")),
        pa.array([MICROSECONDS * 1000], pa.timestamp("ns", tz="America/New_York")),
        pa.array([MICROSECONDS // 1000], pa.timestamp("ms", tz="UTC")),
    ],
)
def test_every_arrow_column_of_moments_means_the_same_microsecond(kind: str, array: pa.Array) -> None:
    expected = table_of([{"at": MOMENT}], parse_schema({"at": kind}))
    assert table_of(pa.table({"at": array}), parse_schema({"at": kind})).equals(expected)


def test_nanoseconds_survive_in_a_column_of_nanoseconds() -> None:
    schema = parse_schema("at timestamp[ns]")
    values = [
        "2024-01-31T12:00:00.123456789",
        pd.Timestamp("2024-01-31T12:00:00.123456789"),
        np.datetime64("2024-01-31T12:00:00.123456789"),
    ]
    column = table_of([{"at": value} for value in values], schema).column("at")
    assert set(column.combine_chunks().cast(pa.int64()).to_pylist()) == {1706702400123456789}


def test_text_that_is_mostly_times_may_mix_zones() -> None:
    array = pa.array(["2024-01-01", "2024-01-01T00:00:00Z", None, "2024-01-01T02:00:00+02:00"])
    column = table_of(pa.table({"at": array}), parse_schema("at timestamp")).column("at")
    midnight = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    assert column.to_pylist() == [midnight, midnight, None, midnight]


def test_pandas_missing_values_are_null() -> None:
    frame = pd.DataFrame({"id": [1, np.nan], "value": [np.nan, 2.0], "name": ["x", np.nan]})
    assert table_of(frame).to_pylist() == [
        {"id": 1, "value": None, "name": "x"},
        {"id": None, "value": 2.0, "name": None},
    ]


def test_pandas_objects_are_converted_one_by_one() -> None:
    frame = pd.DataFrame({"x": [[1, 2], None, []], "y": [{"a": 1}, {"a": 2}, None], "z": [Decimal("1.5"), None, 2]})
    schema = parse_schema("x list<int64>, y struct<a: int8>, z decimal(5,2)")
    assert table_of(frame, schema).column("x").to_pylist() == [[1, 2], None, []]


def test_nan_is_a_value_in_python_rows() -> None:
    column = table_of([{"value": float("nan")}]).column("value")
    assert column.null_count == 0
    assert np.isnan(column[0].as_py())


def test_nested_slices_are_cast_with_their_nulls() -> None:
    rows = [{"x": [1]}, {"x": None}, {"x": [2, 3]}, {"x": []}, {"x": None}, {"x": [4]}]
    narrow = pa.Table.from_pylist(rows, schema=pa.schema([("x", pa.list_(pa.int8()))]))
    for start in range(6):
        for length in range(1, 7 - start):
            part = narrow.slice(start, length)
            for kind in ("list<int64>", "large_list<int16>"):
                assert table_of(part, parse_schema({"x": kind})).to_pylist() == rows[start : start + length]


# -- nulls, tombstones, headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [list, pd.DataFrame, pl.DataFrame, pa.Table.from_pylist])
@pytest.mark.parametrize("row", [{"id": 1, "name": None, "note": "x"}, {"id": 1, "note": "x"}])
def test_a_null_where_none_may_be_is_refused(shape: Any, row: dict[str, Any]) -> None:
    error = refused(shape([{"id": 0, "name": "x", "note": None}, row]), STRICT)
    assert (error.row, error.column) == (1, "name")
    assert "not null" in error.why


def test_a_fitting_batch_with_a_null_is_refused() -> None:
    columns = [pa.array([1, None]), pa.array(["a", "b"]), pa.array([None, None], pa.string())]
    for schema in (STRICT, stored_schema(STRICT)):
        error = refused(pa.RecordBatch.from_arrays(columns, schema=schema), STRICT)
        assert (error.row, error.column) == (1, "id")


def test_a_null_deep_within_a_fitting_batch_is_refused() -> None:
    schema = parse_schema("x list<struct<a: map<string, int64 not null>>>")
    inner = parse_schema("x list<struct<a: map<string, int64>>>")
    rows = [
        {"x": None},
        {"x": [None, {"a": None}, {"a": {"k": 1}}]},
        {"x": [{"a": {"k": 1}}, {"a": {"k": 1, "l": None}}]},
    ]
    loose = pa.RecordBatch.from_pylist(rows, schema=inner)
    assert refused(loose, schema).row == 2
    assert refused(loose.slice(1), schema).row == 1
    assert table_of(loose.slice(0, 2), schema).num_rows == 2


def test_a_tombstone_needs_only_its_key() -> None:
    [batch] = to_batches([{"id": 1, "name": "a"}, {"id": 2, "_tombstone": True}], STRICT, topic="items", key=("id",))
    assert listed(batch.tombstones) == [False, True]
    assert batch.data.to_pylist()[1] == {"id": 2, "name": None, "note": None}
    assert batch.data.schema == stored_schema(STRICT)


@pytest.mark.parametrize("shape", [list, pd.DataFrame, pl.DataFrame, pa.Table.from_pylist])
def test_tombstones_and_headers_may_come_as_columns(shape: Any) -> None:
    rows = [{"id": 1, "name": "a", "_tombstone": None}, {"id": 2, "name": None, "_tombstone": True}]
    [batch] = to_batches(shape(rows), STRICT, topic="items", key=("id",))
    assert listed(batch.tombstones) == [False, True]


def test_a_tombstone_without_its_key_is_refused() -> None:
    assert (
        refused([{"id": None, "_tombstone": True}], parse_schema("id int64, name string"), key=("id",)).column == "id"
    )
    assert refused([{"name": "x", "_tombstone": True}], STRICT, key=("id",)).column == "id"


def test_a_tombstone_in_a_topic_without_a_key_is_refused() -> None:
    assert "no key" in refused([{"id": 1, "name": "x", "_tombstone": True}], STRICT).why


def test_rows_without_any_tombstone_or_header_say_so_with_none() -> None:
    rows = [{"id": 1, "name": "x", "_tombstone": False, "_headers": None}]
    [batch] = to_batches(rows, STRICT, topic="items")
    assert batch.tombstones is None
    assert batch.headers is None


def test_headers_travel_beside_the_rows() -> None:
    rows = [{"id": 1, "_headers": {"trace": b"\xff", "user": "ada"}}, {"id": 2}]
    [batch] = to_batches(rows, SCHEMA, topic="items")
    assert batch.headers is not None
    assert batch.headers.type == pa.map_(pa.string(), pa.binary())
    assert listed(batch.headers) == [[("trace", b"\xff"), ("user", b"ada")], None]
    assert batch.data.schema == SCHEMA


def test_headers_of_text_in_arrow_become_bytes() -> None:
    headers = pa.array([[("user", "ada")], None], pa.map_(pa.string(), pa.string()))
    [batch] = to_batches(pa.table({"id": [1, 2], "_headers": headers}), SCHEMA, topic="items")
    assert listed(batch.headers) == [[("user", b"ada")], None]


@pytest.mark.parametrize("headers", [5, "x", {"a": 5}, [1]])
def test_bad_headers_are_refused(headers: Any) -> None:
    assert refused([{"id": 1}, {"id": 2, "_headers": headers}]).column == "_headers"
    assert refused([{"id": 1}, {"id": 2, "_headers": headers}]).row == 1


def test_rows_read_from_a_log_can_be_appended_to_another() -> None:
    read = {"_partition": 0, "_offset": 7, "_appended_at": MOMENT, "_sent_at": None, "_headers": {"a": b"b"}}
    [batch] = to_batches([{**ROWS[0], **read}], SCHEMA, topic="items")
    assert batch.data.to_pylist() == [ROWS[0]]
    assert listed(batch.headers) == [[("a", b"b")]]


# -- topics without a schema ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (b"v", [(None, b"v")]),
        ("ü", [(None, "ü".encode())]),
        (("k", "v"), [(b"k", b"v")]),
        ([b"a", "b"], [(None, b"a"), (None, b"b")]),
        ([("k", b"v"), (None, "w")], [(b"k", b"v"), (None, b"w")]),
        ({"key": "k", "value": b"\xff"}, [(b"k", b"\xff")]),
        ([{"value": "v"}], [(None, b"v")]),
        ([b"a", ("k", "v"), {"value": "x"}], [(None, b"a"), (b"k", b"v"), (None, b"x")]),
        ([""], [(None, b"")]),
        ((f"{i}" for i in range(2)), [(None, b"0"), (None, b"1")]),
    ],
)
def test_a_topic_without_a_schema_takes_values_and_pairs(rows: Any, expected: list[tuple[Any, Any]]) -> None:
    [batch] = to_batches(rows, SCHEMALESS, topic="items")
    assert [(row["key"], row["value"]) for row in batch.data.to_pylist()] == expected
    assert batch.tombstones is None


def test_a_key_with_no_value_is_a_tombstone_where_there_is_no_schema() -> None:
    [batch] = to_batches([("k", None), ("k", b"v")], SCHEMALESS, topic="items")
    assert listed(batch.tombstones) == [True, False]


@pytest.mark.parametrize("rows", [5, [5], [("a", "b", "c")], [(1, "b")]])
def test_what_is_neither_value_nor_pair_is_refused(rows: Any) -> None:
    with pytest.raises(ArgumentInvalid):
        to_batches(rows, SCHEMALESS, topic="items")


def test_a_dataclass_without_a_nullable_column_is_enough() -> None:
    part = make_dataclass("Part", [("id", int)])
    assert table_of([part(1), part(2)]).to_pylist()[1] == {"id": 2, "value": None, "name": None}


def test_plans_are_not_mixed_up_between_schemas() -> None:
    for i in range(3000):
        schema = pa.schema([pa.field(f"c{i}", pa.int64(), nullable=i % 2 == 0)])
        assert stored_schema(schema).names == [f"c{i}"]
