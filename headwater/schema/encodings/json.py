"""Rows as JSON lines, lossless in both directions: `decode_lines` reads back what `encode_rows` writes.

JSON has fewer types than Arrow; the others are represented as follows:

- integers as numbers with all their digits (73314510714175488 is exact; readers in JavaScript must take care)
- decimals as strings, "12.50"; decoded also from numbers, without losing a digit
- NaN and the infinities as the strings "NaN", "Infinity" and "-Infinity", which are not JSON numbers
- timestamps with a zone as ISO 8601 in UTC, "2024-01-31T12:00:00.5Z", and those without one without the Z; decoded also
  from microseconds since 1970
- dates as "2024-01-31", times of day as "12:00:00", durations as "PT1.5S", intervals as "P1M2DT1.5S"
- bytes as text if they are UTF-8, otherwise as {"base64": "…"}
- maps with text keys as objects, other maps as lists of [key, value]; structs as objects
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import EncodingInvalid
from headwater.schema.cast import is_bytes, is_text
from headwater.schema.encodings import json_columns
from headwater.schema.nested import to_values
from headwater.schema.rows import HEADERS_TYPE, to_batches

Decoder = Callable[[Any], Any]

_ZEROS_AT_END = r"\.0+$|(\.\d*?[1-9])0+$"
_PER_SECOND_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


# -- encoding ---------------------------------------------------------------------------------------------------------


def encode_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Each row as one JSON object, without a line feed.

    >>> list(encode_rows(pa.record_batch({"id": [73314510714175488], "name": ["Zoë"]})))[0].decode()
    '{"id":73314510714175488,"name":"Zoë"}'
    """
    import orjson  # imported on demand

    names, columns = batch.schema.names, []
    for column in batch.columns:
        values, convert = to_values(column, _encoded_leaf), _objects(column.type)
        columns.append(values if convert is None else [convert(value) for value in values])
    for row in zip(*columns, strict=True):
        yield orjson.dumps(dict(zip(names, row, strict=True)))


def _objects(kind: pa.DataType) -> Decoder | None:
    """Converts the pairs of maps with text keys to objects; None if there are none."""
    if pa.types.is_map(kind):
        return _objects_of_map(kind)
    if pa.types.is_struct(kind):
        return _within_struct({part.name: _objects(part.type) for part in kind})
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _within_list(_objects(kind.value_type))
    return None


def _objects_of_map(kind: pa.DataType) -> Decoder:
    of_key, of_item = _objects(kind.key_type) or _same, _objects(kind.item_type) or _same
    if is_text(kind.key_type):
        return lambda pairs: None if pairs is None else {key: of_item(item) for key, item in pairs}
    return lambda pairs: None if pairs is None else [[of_key(key), of_item(item)] for key, item in pairs]


def _same(value: Any) -> Any:
    return value


def _within_struct(parts: dict[str, Decoder | None]) -> Decoder | None:
    converts = {name: convert for name, convert in parts.items() if convert is not None}
    if not converts:
        return None

    def convert(value: Any) -> Any:
        # In place: the object was created here, and nothing else refers to it.
        if isinstance(value, dict):
            for name, convert_part in converts.items():
                if name in value:
                    value[name] = convert_part(value[name])
        return value

    return convert


def _within_list(convert: Decoder | None) -> Decoder | None:
    if convert is None:
        return None
    return lambda value: [convert(item) for item in value] if isinstance(value, list) else value


def _encoded_leaf(array: pa.Array) -> list[Any]:
    kind = array.type
    if isinstance(array, pa.DictionaryArray):
        return _encoded_leaf(array.dictionary_decode())
    if isinstance(kind, pa.OpaqueType):  # a type of a database
        return _encoded_leaf(array.storage)
    if pa.types.is_timestamp(kind):
        return _encoded_times(array)
    if pa.types.is_floating(kind):
        return _encoded_floats(array)
    if is_bytes(kind):
        return _encoded_bytes(array)
    if pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in array.to_pylist()]
    if pa.types.is_time(kind):
        return list(pc.replace_substring_regex(array.cast(pa.string()), _ZEROS_AT_END, r"\1").to_pylist())
    if pa.types.is_duration(kind):
        return _encoded_durations(array)
    if pa.types.is_interval(kind):
        return [None if value is None else _interval(*value) for value in array.to_pylist()]
    return list((array.cast(pa.string()) if pa.types.is_date(kind) else array).to_pylist())


def _encoded_times(array: pa.Array) -> list[Any]:
    zone = array.type.tz
    if zone:
        array = array.cast(pa.timestamp(array.type.unit, tz="UTC")).cast(pa.timestamp(array.type.unit))
    text = pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)
    text = pc.replace_substring_regex(text, _ZEROS_AT_END, r"\1")
    return list((pc.binary_join_element_wise(text, "Z", "") if zone else text).to_pylist())


def _encoded_floats(array: pa.Array) -> list[Any]:
    values = array.to_pylist()
    if pc.all(pc.is_finite(array), min_count=0).as_py():
        return list(values)
    names = {np.inf: "Infinity", -np.inf: "-Infinity"}
    return ["NaN" if value != value else names.get(value, value) for value in values]


def _encoded_bytes(array: pa.Array) -> list[Any]:
    try:
        return list(array.cast(pa.large_binary()).cast(pa.large_string()).to_pylist())
    except pa.ArrowInvalid:
        return [_encoded_value(value) for value in array.to_pylist()]


def _encoded_value(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value or b"").decode("ascii")}


def _encoded_durations(array: pa.Array) -> list[Any]:
    digits = _PER_SECOND_DIGITS[array.type.unit]
    counts = array.cast(pa.int64()).to_pylist()
    return [None if count is None else _duration(count, digits) for count in counts]


def _duration(count: int, digits: int) -> str:
    seconds = f"{Decimal(abs(count)).scaleb(-digits):f}"
    if "." in seconds:
        seconds = seconds.rstrip("0").rstrip(".")
    return f"{'-' if count < 0 else ''}PT{seconds}S"


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """An interval; months and days have no fixed length, so they are separate.

    >>> _interval(1, 0, 0), _interval(0, -2, 1_500_000_000), _interval(0, 0, 0)
    ('P1M', 'P-2DT1.5S', 'PT0S')
    """
    time = _duration(nanoseconds, 9).replace("-PT", "PT-").removeprefix("P") if nanoseconds else ""
    found = (f"{months}M" if months else "") + (f"{days}D" if days else "") + time
    return f"P{found or 'T0S'}"


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode_lines(
    data: Iterable[bytes | str] | bytes | str, schema: pa.Schema, *, topic: str, rows_max: int = 8_192
) -> Iterator[list[dict[str, Any]]]:
    """The rows of JSON lines, some at a time, ready for `to_batches`; blank lines are skipped.

    `data` is an iterable of lines, such as a file, or one text. A line that is not a JSON object raises an error with its
    number, after the rows of the lines before it were yielded.

    >>> schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(12, 2))])
    >>> list(decode_lines(b'{"id": 1, "price": 9.90}\\n', schema, topic="sales"))
    [[{'id': 1, 'price': Decimal('9.90')}]]
    """
    loads, decode = _parser(schema), _row_decoder(schema)
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(_lines(data), start=1):
        if not line.strip():
            continue
        try:
            row = loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"a row is an object, not {_json_name(row)}")
            rows.append(row if decode is None else decode(row))
        except (ValueError, RecursionError) as error:
            if rows:
                yield rows
            position = f"line {number} for topic {topic!r}"
            raise EncodingInvalid(encoding="JSON", position=position, why=str(error)) from error
        if len(rows) >= rows_max:
            yield rows
            rows = []
    if rows:
        yield rows


def decode_values(values: Sequence[bytes], schema: pa.Schema, *, topic: str) -> pa.RecordBatch:
    """Decode values that are one JSON object each, such as messages, to rows of the schema.

    Fields that the schema does not have are ignored.

    >>> schema = pa.schema([("id", pa.int64()), ("at", pa.date32())])
    >>> decode_values([b'{"id": 1, "more": true}', b'{"at": "2024-01-31"}'], schema, topic="sales").to_pylist()
    [{'id': 1, 'at': None}, {'id': None, 'at': datetime.date(2024, 1, 31)}]
    """
    with contextlib.suppress(json_columns.Irregular):  # decoded by rows then, which says what is wrong
        return json_columns.decode(values, schema)
    loads, decode = _parser(schema), _row_decoder(schema)
    rows = []
    for number, value in enumerate(values):
        try:
            row = loads(value)
            if not isinstance(row, dict):
                raise ValueError(f"a row is an object, not {_json_name(row)}")
            row = row if decode is None else decode(row)
            rows.append({name: row.get(name) for name in schema.names})
        except (ValueError, RecursionError) as error:
            position = f"value {number} for topic {topic!r}"
            raise EncodingInvalid(encoding="JSON", position=position, why=str(error)) from error
    [batch] = to_batches(rows, schema, topic=topic, rows_max=len(rows))
    return batch.data


def encode_values(data: pa.RecordBatch) -> list[bytes]:
    """Encode each row as one JSON object, such as `decode_values` reads."""
    try:
        return json_columns.encode(data)
    except json_columns.Irregular:
        return list(encode_rows(data))


def _lines(data: Iterable[bytes | str] | bytes | str) -> Iterator[bytes | str]:
    # Split at line feeds only: `splitlines` would also split at U+2028, which JSON allows within a text.
    if isinstance(data, bytes):
        yield from data.split(b"\n")
    elif isinstance(data, str):
        yield from data.split("\n")
    else:
        for part in data:
            yield from _lines(part.rstrip(b"\n") if isinstance(part, bytes) else part.rstrip("\n"))


def _json_name(value: Any) -> str:
    names = {list: "an array", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _parser(schema: pa.Schema) -> Callable[[bytes | str], Any]:
    """orjson, unless the schema has decimals: it would parse them as floats, and lose digits."""
    if any(_holds(column.type, pa.types.is_decimal) for column in schema):
        return lambda line: json.loads(line, parse_float=Decimal, parse_constant=_raise_on_constant)
    import orjson

    return orjson.loads


def _raise_on_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; write it as a string")


def _holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds(kind.field(i).type, test) for i in range(kind.num_fields))
    return test(kind)


def _row_decoder(schema: pa.Schema) -> Decoder | None:
    """Decodes base64 in a row, wherever the schema has bytes; None if it has none."""
    parts = {column.name: _decoder(column.type) for column in schema}
    return _within_struct({**parts, "_headers": _decoder(HEADERS_TYPE)})


def _decoder(kind: pa.DataType) -> Decoder | None:
    if is_bytes(kind):
        return _decoded_bytes
    if pa.types.is_struct(kind):
        return _within_struct({part.name: _decoder(part.type) for part in kind})
    if pa.types.is_map(kind):
        return _decoder_of_map(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _within_list(_decoder(kind.value_type))
    return None


def _decoder_of_map(kind: pa.DataType) -> Decoder | None:
    of_key, of_item = _decoder(kind.key_type), _decoder(kind.item_type)
    if of_key is None and of_item is None:
        return None
    of_key, of_item = of_key or _same, of_item or _same

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: of_item(item) for key, item in value.items()}
        if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            return [(of_key(key), of_item(item)) for key, item in value]
        return value

    return convert


def _decoded_bytes(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() != {"base64"} or not isinstance(value["base64"], str):
        raise ValueError('bytes are a text or {"base64": "…"}')
    try:
        return base64.b64decode(value["base64"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"the base64 cannot be read ({error})") from error
