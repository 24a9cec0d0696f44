"""JSON objects decoded and encoded column by column, by Arrow's own reader and by its kernels for text.

A loop over rows costs some microseconds per row; this costs about a fifth. It covers flat columns (decoding: also lists
and structs of them). What it does not cover, and everything that is not as `encode_rows` writes it, raises `Irregular`:
the caller goes by rows then, which covers all types and names the value that is bad.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.schema.rows import stored_schema

#: Arrow writes decimals of more digits behind the point with an exponent.
_SCALE_MAX = 6
_ZEROS_AT_END = r"\.0+$|(\.\d*?[1-9])0+$"


class Irregular(Exception):
    """These values or columns are decoded or encoded by rows only."""


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode(values: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """Decode values that are one JSON object each; fields that the schema does not have are ignored."""
    import pyarrow.json as arrow_json  # imported on demand

    stored = stored_schema(schema)
    if not values:
        return pa.RecordBatch.from_pylist([], schema=stored)
    text = b"\n".join(values)
    # Each value is one line from "{" to "}", or Arrow could read two of them as one object, or one as two.
    lines, edges = text.count(b"\n"), text.count(b"}\n{")
    if not lines == edges == len(values) - 1 or text[:1] != b"{" or text[-1:] != b"}":
        raise Irregular("a value is not one line with one object")
    read = pa.schema([pa.field(column.name, _read_type(column.type)) for column in stored])
    try:
        table = arrow_json.read_json(
            io.BytesIO(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(values):
            raise Irregular("a value is not one object")
        batch = table.select(stored.names).cast(stored).combine_chunks().to_batches()[0]
        batch.validate(full=True)  # whether a text is UTF-8
    except pa.ArrowException as error:
        raise Irregular(str(error)) from error
    for place, column in enumerate(schema):
        if not column.nullable and batch.column(place).null_count:
            raise Irregular("a column that is not null is null")
    return batch


def _read_type(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow's reader is asked for: dates and times of day are read as text, and cast."""
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if not _is_readable(kind):
        raise Irregular(f"the type {kind}")
    return kind


def _is_readable(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(kind):
        return all(_is_readable(part.type) and part.nullable for part in kind)
    if types.is_list(kind):
        return bool(_is_readable(kind.value_type) and kind.value_field.nullable)
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_decimal(kind)
        or types.is_timestamp(kind)
    )


# -- encoding ---------------------------------------------------------------------------------------------------------


def encode(data: pa.RecordBatch) -> list[bytes]:
    """Encode each row as one JSON object; `decode_values` reads back the same rows.

    >>> encode(pa.record_batch({"id": [1, None], "name": ["Zoë", '"x"']}))[1].decode()
    '{"id":null,"name":"\\\\"x\\\\""}'
    """
    import orjson  # imported on demand

    parts: list[pa.Array | str] = []
    for place, (name, column) in enumerate(zip(data.schema.names, data.columns, strict=True)):
        parts += [f"{',' if place else '{'}{orjson.dumps(name).decode()}:", _text(column)]
    if not data.num_rows:
        return []
    joined = pc.binary_join_element_wise(*parts, "}", "", null_handling="replace", null_replacement="null")
    if isinstance(joined, pa.ChunkedArray):
        raise Irregular("more text than an array holds")
    _, offsets, content = joined.buffers()
    places = np.frombuffer(offsets, dtype=np.int32)[joined.offset : joined.offset + len(joined) + 1].tolist()
    content = content.to_pybytes()
    return [content[begin:end] for begin, end in pairwise(places)]


def _text(column: pa.Array) -> pa.Array:
    """The values of a column as JSON."""
    types, kind = pa.types, column.type
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.cast(pa.string())
    if types.is_floating(kind):
        return _floats(column)
    if types.is_string(kind) or types.is_large_string(kind):
        return _strings(column)
    if types.is_timestamp(kind) or types.is_date(kind):
        return _quoted(_times(column))
    if types.is_decimal(kind) and kind.scale <= _SCALE_MAX:
        return _quoted(column.cast(pa.string()))
    raise Irregular(f"the type {kind}")


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _floats(column: pa.Array) -> pa.Array:
    if not pc.all(pc.is_finite(column), min_count=0).as_py():
        raise Irregular("a number that is not finite")
    text = column.cast(pa.float64()).cast(pa.string())
    whole = pc.invert(pc.match_substring_regex(text, r"[.e]"))
    return pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text) if pc.any(whole).as_py() else text


def _strings(column: pa.Array) -> pa.Array:
    column = column.cast(pa.string())
    _, offsets, content = column.buffers()
    if content is not None:
        ends = np.frombuffer(offsets, dtype=np.int32)
        used = np.frombuffer(content, dtype=np.uint8)[ends[column.offset] : ends[column.offset + len(column)]]
        if bool(((used < 0x20) | (used == 0x22) | (used == 0x5C)).any()):
            import orjson  # imported on demand

            texts = [None if text is None else orjson.dumps(text).decode() for text in column.to_pylist()]
            return pa.array(texts, pa.string())
    return _quoted(column)


def _times(column: pa.Array) -> pa.Array:
    if pa.types.is_date(column.type):
        return column.cast(pa.string())
    zone, unit = column.type.tz, column.type.unit
    # Text of a time without a zone is that of UTC; the view does not ask for the rules of the zone.
    text = column.view(pa.timestamp(unit)).cast(pa.string())
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    if unit != "s":
        text = pc.replace_substring_regex(text, _ZEROS_AT_END, r"\1")
    return pc.binary_join_element_wise(text, "Z", "") if zone else text
