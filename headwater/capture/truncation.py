"""TRUNCATE in a topic with a key: a deletion of every key that the topic holds, so that the topic equals the table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headwater.capture.port import Changes
from headwater.log.port import Log

#: The most deletions of one batch.
ROWS_MAX = 65_536


class TopicKeys:
    """The keys of topics: those in the log, and those of changes that are appended in the same transaction."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._added: dict[str, list[pa.RecordBatch]] = {}

    def add(self, topic: str, changes: Changes) -> None:
        """Note the keys of changes that are not in the log yet."""
        if changes.table.key:
            self._added.setdefault(topic, []).append(changes.rows.select(list(changes.table.key)))

    def deletions(self, topic: str, truncation: Changes) -> Iterator[Changes]:
        """One deletion for each key that the topic has held; of a key that is deleted already it changes nothing."""
        table, key = truncation.table, list(truncation.table.key)
        schema = pa.schema([table.columns.field(name) for name in key])
        batches = [batch.select(key).cast(schema) for batch in self._log.read(topic, columns=key)]
        batches += self._added.pop(topic, [])
        keys = pa.Table.from_batches(batches, schema=schema).group_by(key).aggregate([]).select(key)
        for batch in keys.to_batches(max_chunksize=ROWS_MAX):
            columns = [
                batch.column(one.name) if one.name in key else pa.nulls(batch.num_rows, one.type)
                for one in table.columns
            ]
            yield Changes(
                table=table,
                operations=_repeated(truncation.operations, batch.num_rows),
                rows=pa.RecordBatch.from_arrays(columns, schema=table.columns),
                at_us=_repeated(truncation.at_us, batch.num_rows),
                order=_repeated(truncation.order, batch.num_rows),
                transaction=None
                if truncation.transaction is None
                else _repeated(truncation.transaction, batch.num_rows),
            )


def _repeated(values: pa.Array, count: int) -> pa.Array:
    return pa.repeat(values[0], count)
