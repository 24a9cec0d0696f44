"""Rows, keys and parameters on their way between processes, in the types that they have here.

People and scripts read JSON; `RemoteView` asks for Arrow streams, which keep every type.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from headwater.log.remote.wire import table_to_bytes
from headwater.schema import encodings
from headwater.views.spec import Change, ViewSpec


def arrow_table(body: bytes) -> pa.Table:
    """The table of an Arrow stream that a server of ours has sent."""
    return pa.ipc.open_stream(body).read_all()


# Any: JSON values.
def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as JSON values: times as ISO 8601, bytes as base64."""
    return [orjson.loads(line) for batch in table.to_batches() for line in encodings.json.encode_rows(batch)]


def packed(parameters: Any) -> dict[str, Any]:
    """Parameters of a statement, with their types, as JSON."""
    if not parameters:
        return {}
    named = isinstance(parameters, Mapping)
    values = dict(parameters) if named else {str(place): value for place, value in enumerate(parameters)}
    table = pa.table({name: pa.array([value]) for name, value in values.items()})
    return {"arrow": base64.b64encode(table_to_bytes(table)).decode(), "named": named}


def packed_row(row: pa.RecordBatch) -> dict[str, Any]:
    """One typed row, as JSON."""
    return {"arrow": base64.b64encode(table_to_bytes(pa.Table.from_batches([row]))).decode(), "named": True}


def unpacked(body: Any) -> Any:
    """The parameters that `packed` made, or those that a person has written as a list or an object."""
    if isinstance(body, Mapping) and set(body) == {"arrow", "named"}:
        [row] = arrow_table(base64.b64decode(body["arrow"])).to_pylist()
        return row if body["named"] else list(row.values())
    return body or None


def encoded_change(change: Change, spec: ViewSpec) -> bytes:
    """A change as one JSON object."""
    fields = [spec.schema.field(name) for name in change.row]
    row = b"{}"
    if fields:
        arrays = [pa.array([change.row[field.name]], field.type) for field in fields]
        [row] = encodings.json.encode_rows(pa.record_batch(arrays, names=[field.name for field in fields]))
    place = orjson.dumps({"op": change.op, "partition": change.partition, "offset": change.offset})
    return place[:-1] + b',"row":' + row + b"}"


def row_text(change: str) -> str:
    """The row in what `encoded_change` made, as it stands there: a number keeps its digits.

    >>> row_text('{"op":"+U","partition":0,"offset":7,"row":{"price":1.10}}')
    '{"price":1.10}'
    """
    return change.partition(',"row":')[2][:-1]
