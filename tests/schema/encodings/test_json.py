"""JSON lines lose nothing: what is written is read back as it was, and what cannot be read is named by its line."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import EncodingInvalid, RowInvalid
from headwater.schema import SCHEMALESS, parse_schema, stored_schema, to_batches
from headwater.schema.encodings.json import decode_lines, encode_rows

from ..strategies import schemas_and_rows


def decoded(data: Any, schema: pa.Schema, **options: Any) -> list[dict[str, Any]]:
    return [row for rows in decode_lines(data, schema, topic="t", **options) for row in rows]


def encoded(rows: list[dict[str, Any]], schema: pa.Schema) -> list[str]:
    return [line.decode() for line in encode_rows(pa.RecordBatch.from_pylist(rows, schema=stored_schema(schema)))]


@given(schemas_and_rows())
def test_rows_written_as_json_are_read_back_exactly(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = schema_and_rows
    batch = pa.RecordBatch.from_pylist(rows, schema=stored_schema(schema))
    lines = list(encode_rows(batch))
    assert all(b"\n" not in line for line in lines)
    again = [part.data for part in to_batches(decoded(lines, schema), schema, topic="t")]
    assert pa.Table.from_batches(again, schema=batch.schema).equals(pa.Table.from_batches([batch]))


@given(schemas_and_rows(), st.integers(0, 5))
def test_a_slice_is_written_as_its_rows(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]], start: int) -> None:
    schema, rows = schema_and_rows
    batch = pa.RecordBatch.from_pylist(rows, schema=stored_schema(schema))
    assert list(encode_rows(batch.slice(start))) == list(encode_rows(batch))[start:]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("int64", 73314510714175488, "73314510714175488"),
        ("int64", -(2**63), "-9223372036854775808"),
        ("uint64", 2**64 - 1, "18446744073709551615"),
        ("float64", 0.1, "0.1"),
        ("float64", math.inf, '"Infinity"'),
        ("float64", -math.inf, '"-Infinity"'),
        ("float64", math.nan, '"NaN"'),
        ("string", 'Zoë \u2028 \0 "', '"Zoë \u2028 \\u0000 \\""'),
        ("binary", b"text", '"text"'),
        ("binary", b"\xff\xfe", '{"base64":"//4="}'),
        ("decimal(12,2)", Decimal("12.50"), '"12.50"'),
        ("decimal(38,10)", Decimal("1E-10"), '"0.0000000001"'),
        ("timestamp", datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC), '"2024-01-31T12:00:00Z"'),
        (
            "timestamp",
            datetime.datetime(2024, 1, 31, 12, 0, 0, 500_000, tzinfo=datetime.UTC),
            '"2024-01-31T12:00:00.5Z"',
        ),
        (
            "timestamp[us, tz=Asia/Tokyo]",
            datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC),
            '"2024-01-31T12:00:00Z"',
        ),
        ("timestamp[us]", datetime.datetime(1, 1, 1, 0, 0, 0, 1), '"0001-01-01T00:00:00.000001"'),
        ("date", datetime.date(2024, 1, 31), '"2024-01-31"'),
        ("time64[us]", datetime.time(12, 30), '"12:30:00"'),
        ("duration", datetime.timedelta(seconds=-1.5), '"-PT1.5S"'),
        ("duration[s]", datetime.timedelta(seconds=100), '"PT100S"'),
        ("bool", True, "true"),
        ("list<int64>", [1, None], "[1,null]"),
        ("map<string, int64>", {"a": 1}, '{"a":1}'),
        ("map<int64, binary>", {1: b"\xff"}, '[[1,{"base64":"/w=="}]]'),
        ("struct<a: map<string, date>>", {"a": {"d": datetime.date(1970, 1, 1)}}, '{"a":{"d":"1970-01-01"}}'),
        ("list<map<string, int8>>", [None, {"x": 1}, {}], '[null,{"x":1},{}]'),
    ],
)
def test_each_type_has_its_json(kind: str, value: Any, text: str) -> None:
    schema = parse_schema({"x": kind})
    assert encoded([{"x": value}, {"x": None}], schema) == [f'{{"x":{text}}}', '{"x":null}']


def test_dictionaries_are_written_as_their_values() -> None:
    batch = pa.record_batch({"x": pa.array(["a", None, "a"]).dictionary_encode()})
    assert list(encode_rows(batch)) == [b'{"x":"a"}', b'{"x":null}', b'{"x":"a"}']


def test_a_topic_without_a_schema_is_keys_and_values() -> None:
    assert encoded([{"key": b"k", "value": b"\xff"}], SCHEMALESS) == ['{"key":"k","value":{"base64":"/w=="}}']
    assert decoded(b'{"key": "k", "value": {"base64": "/w=="}}', SCHEMALESS) == [{"key": "k", "value": b"\xff"}]


@pytest.mark.parametrize(
    "data",
    [
        b'{"id": 1}\n{"id": 2}\n',
        '{"id": 1}\r\n\r\n  \n{"id": 2}',
        [b'{"id": 1}\n', b'{"id": 2}\n'],
        ['{"id": 1}', '{"id": 2}'],
        iter([b'{"id": 1}\n{"id": 2}\n', b"\n"]),
    ],
)
def test_lines_may_come_in_any_wrapping(data: Any) -> None:
    assert decoded(data, parse_schema("id int64")) == [{"id": 1}, {"id": 2}]


def test_a_line_separator_within_a_text_does_not_end_the_line() -> None:
    assert decoded('{"x": "a\u2028b\u0085"}', parse_schema("x string")) == [{"x": "a\u2028b\u0085"}]


@pytest.mark.parametrize("data", [b"", "", [], [b"", b"\n"]])
def test_nothing_is_no_rows(data: Any) -> None:
    assert list(decode_lines(data, parse_schema("id int64"), topic="t")) == []


def test_rows_come_in_portions() -> None:
    lines = [f'{{"id": {i}}}' for i in range(5)]
    assert [len(rows) for rows in decode_lines(lines, parse_schema("id int64"), topic="t", rows_max=2)] == [2, 2, 1]


@pytest.mark.parametrize("number", ["0.1", "1e-2", "12345678901234567890.12", "0.10", "5"])
def test_no_digit_of_a_decimal_is_lost(number: str) -> None:
    schema = parse_schema("x decimal(38,2)" if number != "1e-2" else "x decimal(38,4)")
    for text in (number, f'"{number}"'):
        [batch] = to_batches(decoded(f'{{"x": {text}}}', schema), schema, topic="t")
        assert batch.data.to_pylist()[0]["x"] == Decimal(number)


def test_decimals_do_not_disturb_floats_beside_them() -> None:
    schema = parse_schema("x decimal(5,2), y float64, z list<float32>")
    [batch] = to_batches(decoded('{"x": 0.1, "y": 0.1, "z": [0.5, 1]}', schema), schema, topic="t")
    assert batch.data.to_pylist() == [{"x": Decimal("0.10"), "y": 0.1, "z": [0.5, 1.0]}]


@pytest.mark.parametrize(
    "text", ['"2024-01-31T12:00:00Z"', '"2024-01-31T12:00:00"', '"2024-01-31T13:00:00+01:00"', "1706702400000000"]
)
def test_a_timestamp_may_be_text_or_microseconds(text: str) -> None:
    schema = parse_schema("at timestamp")
    [batch] = to_batches(decoded(f'{{"at": {text}}}', schema), schema, topic="t")
    assert batch.data.to_pylist() == [{"at": datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)}]


def test_headers_and_tombstones_are_read_too() -> None:
    schema = parse_schema("id int64 not null, name string not null")
    line = '{"id": 1, "_tombstone": true, "_headers": {"base64": "not decoded", "b": {"base64": "/w=="}}}'
    [batch] = to_batches(decoded(line, schema), schema, topic="t", key=("id",))
    assert batch.headers is not None
    assert batch.headers.to_pylist() == [[("base64", b"not decoded"), ("b", b"\xff")]]
    assert batch.tombstones is not None


@pytest.mark.parametrize("kind", ["int64", "decimal(5,2)"])
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", ""),
        ('{"x": 1', ""),
        ('{"x": 1} {"x": 2}', ""),
        ("{'x': 1}", ""),
        ("nonsense", ""),
        ('{"x": NaN}', ""),
        ('{"x": Infinity}', ""),
        (b'{"x": "\xff"}', ""),
        ("[1]", "an array"),
        ("5", "a number"),
        ("null", "null"),
        ('"x"', "a text"),
        ("true", "true or false"),
        ("[" * 100_000, ""),
    ],
)
def test_what_is_not_a_json_object_is_refused_by_its_line(kind: str, line: Any, why: str) -> None:
    good = b'{"x": 1}\n\n'
    rows = decode_lines([good, line, good], parse_schema({"x": kind}), topic="orders")
    assert next(rows) == [{"x": 1}]
    with pytest.raises(EncodingInvalid) as caught:
        next(rows)
    assert caught.value.position.startswith("line 2 for topic 'orders'")
    assert why in caught.value.why


@pytest.mark.parametrize(
    "text", ['{"base64": "?"}', '{"base64": 5}', '{"base64": "aa", "x": 1}', "{}", '{"base64": "ž"}']
)
def test_bytes_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(EncodingInvalid):
        decoded(f'{{"x": {text}}}', parse_schema("x binary"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int64", "9223372036854775808"),
        ("uint64", "18446744073709551616"),
        ("int64", "1e400"),
        ("int64", "1.5"),
        ("float64", '"x"'),
        ("uint8", "-1"),
        ("int64", "1" + "0" * 5000),
    ],
)
def test_a_number_out_of_range_is_refused(kind: str, text: str) -> None:
    schema = parse_schema({"x": kind})
    with pytest.raises((RowInvalid, EncodingInvalid)):
        to_batches(decoded(f'{{"x": {text}}}', schema), schema, topic="t")


def test_every_line_is_json_for_other_programs() -> None:
    schema = parse_schema("a float64, b binary, c map<string, decimal(5,2)>")
    [line] = encoded([{"a": math.nan, "b": b"\xff", "c": {"k": Decimal("1.00")}}], schema)
    assert json.loads(line, parse_constant=lambda name: pytest.fail(name)) == {
        "a": "NaN",
        "b": {"base64": "/w=="},
        "c": {"k": "1.00"},
    }
