"""Values of a topic without a schema as columns: JSON or Avro, whole batches at a time.

A batch is decoded at once; where that fails it is halved until the rows that cannot be read stand alone. So a batch
without bad rows costs one call, and each bad row costs a few more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from headwater.errors import EncodingInvalid, RowInvalid, SchemaInvalid, UsageError
from headwater.schema import parse_schema, stored_schema, to_batches
from headwater.schema.encodings import avro
from headwater.schema.encodings import json as json_lines
from headwater.spark.source.options import Options

_SIMPLE = (pa.types.is_signed_integer, pa.types.is_float64, pa.types.is_boolean, pa.types.is_string)


class Fault(NamedTuple):
    """A row that cannot be read: its place in the batch, the class of error, and what is wrong."""

    row: int
    error: str
    message: str


class Decoded(NamedTuple):
    """The rows that can be read, where they stood in the batch, and those that cannot."""

    data: pa.RecordBatch
    rows: list[int] | None
    faults: list[Fault]


class Decoder(Protocol):
    """Reads values of one encoding under one schema; raises a `UsageError` if any of them cannot be read."""

    @property
    def schema(self) -> pa.Schema: ...
    def __call__(self, values: pa.Array) -> pa.RecordBatch: ...


def decoder_of(options: Options) -> Decoder | None:
    """What the options say about values; None where rows are read as they are."""
    if options.format is None:
        return None
    if options.schema is None:
        raise SchemaInvalid(schema="(none)", why=f"format {options.format!r} needs the option `schema`")
    if options.format == "avro":
        return AvroDecoder(options.schema)
    return JsonDecoder(parse_schema(options.schema))


class JsonDecoder:
    """Each value is a JSON object, as `headwater.schema.encodings.json` reads it."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._simple = all(any(test(field.type) for test in _SIMPLE) and field.nullable for field in schema)

    def __call__(self, values: pa.Array) -> pa.RecordBatch:
        if self._simple:
            found = self._at_once(values)
            if found is not None:
                return found
        rows = [row for lines in self._lines(values) for row in lines]
        if len(rows) != len(values):
            raise EncodingInvalid(encoding="JSON", position="a value", why="it is empty, or more than one row")
        # Fields that the schema does not name are ignored.
        names = self.schema.names
        return _one_batch([{name: row.get(name) for name in names} for row in rows], self.schema)

    def _lines(self, values: pa.Array) -> list[list[dict[str, object]]]:
        flat = [(value or b"").replace(b"\n", b" ") for value in values.to_pylist()]
        return list(json_lines.decode_lines(flat, self.schema, topic="values"))

    def _at_once(self, values: pa.Array) -> pa.RecordBatch | None:
        """By Arrow's own reader, which knows plain types only; None where anything is not as plain as it expects."""
        plain = pc.and_(pc.starts_with(values, b"{"), pc.invert(pc.match_substring(values, b"\n")))
        if values.null_count or not pc.all(plain).as_py():
            return None
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")
        options = pyarrow.json.ParseOptions(
            explicit_schema=stored_schema(self.schema), unexpected_field_behavior="ignore", newlines_in_values=False
        )
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=max(1 << 20, values.nbytes + 1024))
        try:
            table = pyarrow.json.read_json(pa.BufferReader(joined[0].as_buffer()), reading, options)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(values):
            return None
        return table.combine_chunks().to_batches()[0]


class AvroDecoder:
    """Each value is one Avro record. The schema is the writer's as Avro's JSON, or columns in our own notation."""

    def __init__(self, schema: str) -> None:
        if schema.lstrip().startswith("{"):
            self._writer: avro.AvroSchema = json.loads(schema)
            self.schema = avro.arrow_schema(self._writer)
        else:
            self.schema = parse_schema(schema)
            self._writer = avro.avro_schema(self.schema)

    def __call__(self, values: pa.Array) -> pa.RecordBatch:
        return avro.decode([value or b"" for value in values.to_pylist()], self._writer, self.schema)


def decode(values: pa.Array, decoder: Decoder) -> Decoded:
    """All values that can be read, and a fault for each that cannot."""
    if len(values) == 0:
        return Decoded(_empty(stored_schema(decoder.schema)), None, [])
    try:
        return Decoded(decoder(values), None, [])
    except UsageError:
        pass  # found out below, row by row
    pieces: list[pa.RecordBatch] = []
    rows: list[int] = []
    faults: list[Fault] = []
    _decode_within(values, 0, decoder, pieces, rows, faults)
    schema = stored_schema(decoder.schema)
    data = pa.concat_batches(pieces) if pieces else _empty(schema)
    return Decoded(data, rows, faults)


def _decode_within(
    values: pa.Array,
    first: int,
    decoder: Decoder,
    pieces: list[pa.RecordBatch],
    rows: list[int],
    faults: list[Fault],
) -> None:
    try:
        data = decoder(values)
    except UsageError as error:
        if len(values) == 1:
            faults.append(Fault(first, type(error).__name__, _reason(error)))
            return
        half = len(values) // 2
        _decode_within(values.slice(0, half), first, decoder, pieces, rows, faults)
        _decode_within(values.slice(half), first + half, decoder, pieces, rows, faults)
        return
    pieces.append(data)
    rows.extend(range(first, first + len(values)))


def _reason(error: UsageError) -> str:
    if isinstance(error, EncodingInvalid):
        return error.why
    if isinstance(error, RowInvalid):
        return f"column {error.column!r} {error.why}"
    return str(error)


def _one_batch(rows: Sequence[dict[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    found = [batch.data for batch in to_batches(rows, schema, topic="values")]
    return pa.concat_batches(found) if len(found) != 1 else found[0]


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
