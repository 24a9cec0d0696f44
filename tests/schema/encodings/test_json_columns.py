"""JSON objects decoded and encoded column by column are what a loop over rows makes of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import EncodingInvalid, RowInvalid
from headwater.schema import parse_schema, stored_schema, to_batches
from headwater.schema.encodings import json_columns
from headwater.schema.encodings.json import decode_lines, decode_values, encode_rows, encode_values

from ..strategies import FLAT_TYPES, schemas_and_rows, values

_EVERY = parse_schema("id int64 not null, name string, price decimal(12,2), at timestamp, x double, ok bool")


@given(schemas_and_rows())
def test_values_are_read_back_exactly(schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = schema_and_rows
    batch = pa.RecordBatch.from_pylist(rows, schema=stored_schema(schema))
    encoded = encode_values(batch)
    assert all(b"\n" not in value for value in encoded)
    if rows:
        decoded = decode_values(encoded, schema, topic="t")
        decoded.validate(full=True)
        assert decoded.equals(batch)


@given(
    st.sampled_from(FLAT_TYPES).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(values(kind), min_size=1))),
    st.integers(0, 3),
)
def test_both_ways_are_the_same(kind_and_values: tuple[pa.DataType, list[Any]], start: int) -> None:
    kind, items = kind_and_values
    schema = pa.schema([("x y", kind)])
    batch = pa.RecordBatch.from_pylist([{"x y": item} for item in items], schema=schema).slice(start)
    by_rows = list(encode_rows(batch))
    again = [
        part for lines in decode_lines(by_rows, schema, topic="t") for part in to_batches(lines, schema, topic="t")
    ]
    for encode, decode in ((json_columns.encode, decode_values), (encode_values, json_columns.decode)):
        try:
            values = encode(batch)
            decoded = (
                decode(values, schema, topic="t") if decode is decode_values else json_columns.decode(values, schema)
            )
        except json_columns.Irregular:
            continue
        assert pa.Table.from_batches([decoded]).equals(pa.Table.from_batches([part.data for part in again], schema))


@pytest.mark.parametrize(
    ("messages", "bad"),
    [
        ([b'{"id":1}', b"", b'{"id":1}{"id":2}'], 1),
        ([b'{"id":1}', b'{"id":1}{"id":2}'], 1),
        ([b'{"id":1,"name":{', b'"id":2}}'], 0),
        ([b'{"id":1}', b"[]"], 1),
        ([b'{"id":1}', b'{"id":2} trailing'], 1),
        ([b'{"id":1}', b'{"id":2,"name":"\xff"}'], 1),
        ([b'{"id":1}', b"\x00\x00\x00\x00\x01"], 1),
    ],
)
def test_a_value_that_is_not_one_object_is_named(messages: list[bytes], bad: int) -> None:
    with pytest.raises(EncodingInvalid, match=f"value {bad} "):
        decode_values(messages, _EVERY, topic="t")


@pytest.mark.parametrize("value", [b'{"name":"x"}', b'{"id":null}', b'{"id":"x"}', b'{"id":9223372036854775808}'])
def test_a_row_that_does_not_fit_is_named(value: bytes) -> None:
    with pytest.raises(RowInvalid, match="Row 1 "):
        decode_values([b'{"id":1}', value], _EVERY, topic="t")


def test_an_object_of_many_lines_is_one_value() -> None:
    [row] = decode_values([b'{\n "id": 1,\n "other": [\n1]\n}'], _EVERY, topic="t").to_pylist()
    assert row["id"] == 1


def test_texts_that_need_escapes_are_escaped() -> None:
    texts = ['"', "\\", "\n", "\x00", "Zoë \u2028", None, ""]
    batch = pa.record_batch({"s": texts})
    assert decode_values(encode_values(batch), batch.schema, topic="t").column("s").to_pylist() == texts
    assert encode_values(batch) == list(encode_rows(batch))
