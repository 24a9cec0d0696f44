"""Records decoded column by column are what a loop over them decodes, and what one refuses the other refuses."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import EncodingInvalid
from headwater.schema import parse_schema
from headwater.schema.encodings import avro, avro_columns

from ..strategies import FLAT_TYPES, schemas_and_rows, values

_ALL = parse_schema(
    "b bool, i int32 not null, l int64, u uint64, f float32, d double, s string, y binary, day date, t time64[us], "
    "at timestamp not null, price decimal(12,2), wide decimal256(60,20), who struct<name: string, age: int32 not null>"
)
_ROW = {
    "b": True, "i": -(2**31), "l": 2**63 - 1, "u": 2**64 - 1, "f": 0.5, "d": -1e300, "s": "Zoë", "y": b"\xff\x00",
    "day": datetime.date(1, 1, 1), "t": datetime.time(23, 59, 59, 999_999), "at": 253_402_300_799_999_999,
    "price": "-0.01", "wide": None, "who": {"name": None, "age": 7},
}  # fmt: skip


def by_columns(records: list[bytes], writer: Any, schema: pa.Schema) -> pa.RecordBatch:
    return avro_columns.decode(records, writer, avro._named_like(avro.avro_schema(schema), writer), schema)


def by_rows(records: list[bytes], writer: Any, schema: pa.Schema) -> pa.RecordBatch:
    assert len(records) < avro.COLUMNS_RECORDS_MIN
    return avro.decode(records, writer, schema)


@given(schemas_and_rows())
def test_both_ways_decode_the_same(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = schema_and_rows
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    records = avro.encode(batch)
    try:
        decoded = by_columns(records, avro.avro_schema(schema), schema)
    except avro_columns.Irregular:
        assert any(pa.types.is_list(c.type) or "list<" in str(c.type) or "map<" in str(c.type) for c in schema)
    else:
        decoded.validate(full=True)
        assert decoded.equals(batch)


@given(st.sampled_from(FLAT_TYPES).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(values(kind), max_size=40))))
def test_every_flat_type_is_decoded_by_columns(kind_and_values: tuple[pa.DataType, list[Any]]) -> None:
    kind, items = kind_and_values
    batch = pa.RecordBatch.from_pylist([{"x": item} for item in items], schema=pa.schema([("x", kind)]))
    decoded = by_columns(avro.encode(batch), avro.avro_schema(batch.schema), batch.schema)
    decoded.validate(full=True)
    assert decoded.equals(batch)


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=8))
def test_bytes_that_one_way_refuses_are_refused_by_the_other(records: list[bytes]) -> None:
    schema = parse_schema("a int64, s string, b bool not null, i int32 not null")
    writer = avro.avro_schema(schema)
    try:
        decoded = by_columns(records, writer, schema)
    except avro_columns.Irregular:
        return
    assert by_rows(records, writer, schema).equals(decoded)


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_is_seen_by_both_ways_alike(place: int, byte: int) -> None:
    schema = parse_schema("a int64, s string, u uint64, price decimal(12,2) not null, b bool, y binary")
    row = {"a": 2**62, "s": "a text", "u": 2**64 - 1, "price": "1.25", "b": True, "y": b"\xff"}
    records = avro.encode(pa.RecordBatch.from_pylist([_typed(row, schema)] * 3, schema=schema))
    damaged = bytearray(records[1])
    damaged[place % len(damaged)] = byte
    records[1] = bytes(damaged)
    try:
        decoded = by_columns(records, avro.avro_schema(schema), schema)
    except avro_columns.Irregular:
        return
    assert by_rows(records, avro.avro_schema(schema), schema).equals(decoded)


def test_extremes_are_kept() -> None:
    batch = pa.RecordBatch.from_pylist(
        [_typed(_ROW, _ALL), _typed({**dict.fromkeys(_ROW), "i": 1, "at": 0}, _ALL)] * 40, schema=_ALL
    )
    assert by_columns(avro.encode(batch), avro.avro_schema(_ALL), _ALL).equals(batch)


def test_columns_follow_the_rules_of_resolution() -> None:
    written = pa.record_batch(
        {"n": pa.array([1, 2], pa.int32()), "extra": ["x", None], "who": [{"a": 1, "b": "y"}, None]}
    )
    wanted = parse_schema("who struct<b: string, c: date>, n double, new timestamp")
    assert by_columns(avro.encode(written), avro.avro_schema(written.schema), wanted).to_pylist() == [
        {"who": {"b": "y", "c": None}, "n": 1.0, "new": None},
        {"who": None, "n": 2.0, "new": None},
    ]


def test_a_long_batch_with_one_bad_record_names_the_record() -> None:
    schema = parse_schema("id int64 not null, text string")
    records = avro.encode(pa.record_batch({"id": range(100), "text": ["x"] * 100}, schema=schema))
    records[57] = records[57][:-1]
    with pytest.raises(EncodingInvalid, match="record 57"):
        avro.decode(records, avro.avro_schema(schema), schema)


def _typed(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Decimals as decimals, and times as what their type takes."""
    import decimal

    typed = dict(row)
    for column in schema:
        value = typed[column.name]
        if value is not None and pa.types.is_decimal(column.type):
            typed[column.name] = decimal.Decimal(value)
    return typed
