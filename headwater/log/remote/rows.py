"""Rows on their way to a server: whatever shape they have, checked here under the topic's schema and sent as Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater.log.embedded.drafting import with_headers
from headwater.log.port import Rows, Topic
from headwater.schema import RowBatch, stored_schema, to_batches
from headwater.schema.rows import HEADERS_TYPE


# Any: headers as `Log.append` takes them.
def table_of(topic: Topic, rows: Rows, headers: Any = None) -> pa.Table:
    """The rows as one table in the stored schema, with headers and tombstones beside them where there are any."""
    batches = to_batches(rows, topic.schema, topic=topic.name, key=topic.key)
    if headers is not None:
        batches = with_headers(batches, headers)
    schema = stored_schema(topic.schema)
    table = pa.Table.from_batches([batch.data for batch in batches], schema=schema)
    if any(batch.headers is not None for batch in batches):
        table = table.append_column("_headers", _beside(batches, "headers", HEADERS_TYPE))
    if any(batch.tombstones is not None for batch in batches):
        table = table.append_column("_tombstone", _beside(batches, "tombstones", pa.bool_()))
    return table


def _beside(batches: list[RowBatch], name: str, kind: pa.DataType) -> pa.ChunkedArray:
    chunks = []
    for batch in batches:
        found = getattr(batch, name)
        chunks.append(pa.nulls(batch.data.num_rows, kind) if found is None else found.cast(kind))
    return pa.chunked_array(chunks, type=kind)
