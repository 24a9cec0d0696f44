"""One row by its key, read from the changelog itself: no store is asked, and no lock is waited for."""

from __future__ import annotations

import pyarrow as pa

from headwater.errors import LogError, StorageError
from headwater.log import EmbeddedLog
from headwater.log.embedded import Punctuation, read_range
from headwater.schema.partitioner import key_hash
from headwater.views.applying import Upkeep
from headwater.views.places import GONE, OFFSET_BITS


def looked_up(log: EmbeddedLog, upkeep: Upkeep, key: pa.RecordBatch) -> pa.Table | None:
    """The row of a key as a table of one row, or of none; `None` where only the store can say."""
    spec, places = upkeep.spec, upkeep.places
    if places is None:
        return None
    place = places.find(int(key_hash(key.columns)[0]))
    if place is None:
        return spec.schema.empty_table()
    if place == GONE:  # it, or another key with the same hash
        return None
    partition, offset = place >> OFFSET_BITS, place & (2**OFFSET_BITS - 1)
    row = _read(log, spec.topic, partition, offset, spec.schema)
    return row if row is not None and row.select(list(spec.key)).to_pylist() == key.to_pylist() else None


def _read(log: EmbeddedLog, topic: str, partition: int, offset: int, schema: pa.Schema) -> pa.Table | None:
    try:
        pieces = read_range(
            log,
            topic,
            partition,
            start=offset,
            stop=offset + 1,
            columns=schema.names,
            since_us=None,
            until_us=None,
            punctuations=None,
        )
        found = [piece.data for piece in pieces if not isinstance(piece, Punctuation) and piece.data.num_rows]
    except (LogError, StorageError):  # compacted away as we looked: there is a newer row
        return None
    if len(found) != 1 or not found[0].schema.equals(schema):
        return None
    return pa.Table.from_batches(found)
