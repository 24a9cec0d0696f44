"""Avro keeps every value, resolves between schemas by its own rules, and refuses bytes that are not Avro."""

from __future__ import annotations

import contextlib
import datetime
import io
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import EncodingInvalid, SchemaInvalid
from headwater.schema import parse_schema
from headwater.schema.encodings.avro import arrow_schema, avro_schema, decode, encode, read_container, write_container

from ..strategies import schemas, schemas_and_rows


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


@given(schemas_and_rows())
def test_records_are_read_back_exactly(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = schema_and_rows
    batch = batch_of(rows, schema)
    assert decode(encode(batch), avro_schema(schema), schema).equals(batch)


@given(schemas_and_rows())
def test_container_files_are_read_back_exactly(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = schema_and_rows
    file = io.BytesIO()
    write_container(file, [batch_of(rows, schema)], schema)
    file.seek(0)
    again = pa.Table.from_batches(read_container(file, schema, rows_max=2), schema=schema)
    assert again.equals(pa.Table.from_pylist(rows, schema=schema))


@given(schemas, st.text(max_size=5))
def test_every_schema_has_an_avro_schema(schema: pa.Schema, name: str) -> None:
    fastavro.parse_schema(avro_schema(schema, name))


def test_the_avro_schema_uses_logical_types() -> None:
    schema = parse_schema(
        "at timestamp not null, day date not null, price decimal(12,2) not null, local timestamp[ms] not null"
    )
    assert [field["type"] for field in avro_schema(schema)["fields"]] == [
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "int", "logicalType": "date"},
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        {"type": "long", "logicalType": "local-timestamp-millis"},
    ]


def test_other_programs_read_our_records() -> None:
    schema = parse_schema(
        "id int64 not null, at timestamp, price decimal(12,2), tags list<string>, m map<string, int32>"
    )
    moment = datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)
    row = {"id": 1, "at": moment, "price": Decimal("9.90"), "tags": ["a", None], "m": {"k": 1}}
    [record] = encode(batch_of([row], schema))
    parsed = fastavro.parse_schema(avro_schema(schema))
    assert fastavro.schemaless_reader(io.BytesIO(record), parsed, None) == row


def test_we_read_records_of_other_programs() -> None:
    theirs = {
        "type": "record",
        "name": "com.example.Order",
        "fields": [
            {"name": "extra", "type": "string"},
            {"name": "id", "type": "int"},
            {
                "name": "who",
                "type": ["null", {"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}],
            },
            {
                "name": "items",
                "type": {
                    "type": "array",
                    "items": {"type": "record", "name": "Item", "fields": [{"name": "n", "type": "int"}]},
                },
            },
        ],
    }
    file = io.BytesIO()
    fastavro.schemaless_writer(
        file, fastavro.parse_schema(theirs), {"extra": "x", "id": 7, "who": {"name": "Ada"}, "items": [{"n": 1}]}
    )
    schema = parse_schema("id int64, who struct<name: string, age: int32>, items list<struct<n: int64>>, new date")
    assert decode([file.getvalue()], theirs, schema).to_pylist() == [
        {"id": 7, "who": {"name": "Ada", "age": None}, "items": [{"n": 1}], "new": None}
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int32", "int64"),
        ("int32", "float64"),
        ("float32", "float64"),
        ("string", "large_string"),
        ("int8", "int32"),
        ("list<int32>", "list<int64>"),
    ],
)
def test_numbers_widen_between_writer_and_reader(old: str, new: str) -> None:
    value = [5] if old.startswith("list") else "5" if "string" in new else 5
    written, read = parse_schema({"x": old}), parse_schema({"x": new})
    records = encode(batch_of([{"x": value}, {"x": None}], written))
    assert decode(records, avro_schema(written), read).to_pylist() == [{"x": value}, {"x": None}]


def test_a_file_without_a_topic_says_its_own_schema() -> None:
    schema = parse_schema(
        "id int64 not null, at timestamp, day date, price decimal(12,2), tags list<string>, m map<string, int32>, "
        "s struct<a: int32 not null, b: binary>, f float32, big decimal256(50,3), ns timestamp[ns], b fixed_size_binary[4]"
    )
    assert arrow_schema(avro_schema(schema)).equals(schema)
    file = io.BytesIO()
    write_container(file, [batch_of([{"id": 1, "m": {"a": 1}}], schema)], schema, codec="null")
    file.seek(0)
    [batch] = read_container(file)
    assert batch.schema.equals(schema)
    assert batch.num_rows == 1


def test_names_that_avro_does_not_allow_come_back_as_they_were() -> None:
    schema = pa.schema(
        [
            ("unit price", pa.int64()),
            ("unit-price", pa.int64()),
            ("2nd", pa.struct([("č", pa.int8())])),
            ("ž", pa.int8()),
        ]
    )
    assert [field["name"] for field in avro_schema(schema)["fields"]] == ["unit_price", "unit_price_2", "_2nd", "_"]
    batch = batch_of([{"unit price": 1, "unit-price": 2, "2nd": {"č": 3}, "ž": 4}], schema)
    assert decode(encode(batch), avro_schema(schema), schema).equals(batch)


def test_nanoseconds_and_far_moments_are_written_exactly() -> None:
    schema = parse_schema("at timestamp[ns], d duration[ns], t time64[ns]")
    batch = pa.record_batch(
        [
            pa.array([123456789123456789, -1]).cast(schema.field(i).type)
            if i < 2
            else pa.array([1, 86399999999999]).cast(pa.time64("ns"))
            for i in range(3)
        ],
        schema=schema,
    )
    assert decode(encode(batch), avro_schema(schema), schema).equals(batch)


@pytest.mark.parametrize("record", [b"", b"\x02", b"\x02\x06ab", b"\x04", b"\xff" * 20, b"\x02\x02a\x00extra"])
def test_damaged_records_are_refused_by_their_number(record: bytes) -> None:
    schema = parse_schema("name string")
    good = encode(batch_of([{"name": "x"}], schema))
    with pytest.raises(EncodingInvalid) as caught:
        decode([*good, record], avro_schema(schema), schema)
    assert caught.value.position == "record 1"


@given(st.binary(max_size=40))
def test_random_bytes_are_never_another_failure(data: bytes) -> None:
    schema = parse_schema("id int64, at timestamp, price decimal(5,2), day date, tags list<string>")
    with contextlib.suppress(EncodingInvalid):
        decode([data], avro_schema(schema), schema)
    with pytest.raises(EncodingInvalid):
        list(read_container(io.BytesIO(data), schema))


def test_a_cut_container_file_is_refused_where_it_ends() -> None:
    schema = parse_schema("name string")
    file = io.BytesIO()
    write_container(file, [batch_of([{"name": "x" * 100}] * 10, schema)], schema, codec="null")
    with pytest.raises(EncodingInvalid):
        list(read_container(io.BytesIO(file.getvalue()[:-30]), schema))


@pytest.mark.parametrize("writer", ["nonsense", {}, {"type": "record"}, 5])
def test_a_writer_schema_that_is_none_is_refused(writer: Any) -> None:
    with pytest.raises(SchemaInvalid):
        decode([b""], writer, parse_schema("a int64"))


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "unheard"}]},
        {"type": "record", "name": "r"},
    ],
)
def test_an_avro_schema_without_an_arrow_form_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaInvalid):
        arrow_schema(schema)


def test_a_missing_column_that_must_be_there_is_refused() -> None:
    written = parse_schema("a int64")
    with pytest.raises(EncodingInvalid):
        decode(encode(batch_of([{"a": 1}], written)), avro_schema(written), parse_schema("a int64, b string not null"))


def test_no_records_are_no_rows() -> None:
    schema = parse_schema("a int64")
    assert decode([], avro_schema(schema), schema).num_rows == 0
    assert encode(batch_of([], schema)) == []
