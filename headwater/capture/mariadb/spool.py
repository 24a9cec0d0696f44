"""Changes of one piece: in memory, and from some number of rows on in a temporary file of Arrow batches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from headwater.capture.port import Changes, Table

#: The most rows that are held in memory.
ROWS_MAX = 131_072
_FACTS = ("operations", "at_us", "order", "transaction")


class Spool:
    """Changes in the order in which they were added; they can be read again."""

    def __init__(self) -> None:
        self.count = 0
        self._held: list[Changes] = []
        self._file: IO[bytes] | None = None
        self._written: list[tuple[Table, bool]] = []

    @property
    def is_on_disk(self) -> bool:
        return self._file is not None

    def add(self, changes: Changes) -> None:
        self.count += changes.count
        self._held.append(changes)
        if self._file is None and self.count > ROWS_MAX:
            self._file = tempfile.TemporaryFile(prefix="headwater-capture-")  # noqa: SIM115 - it lives as long as this
        if self._file is not None:
            for one in self._held:
                self._write(self._file, one)
            self._held.clear()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[Changes]:
        yield from self._held
        if self._file is not None:
            self._file.seek(0)
            for table, has_before in self._written:
                (batch,) = pa.ipc.open_stream(self._file)  # up to its end, behind which the next one begins
                yield _changes(table, batch, has_before=has_before)

    def _write(self, file: IO[bytes], changes: Changes) -> None:
        transaction = changes.transaction if changes.transaction is not None else pa.nulls(changes.count, pa.string())
        columns = [changes.operations, changes.at_us, changes.order, transaction, *changes.rows.columns]
        if changes.before is not None:
            columns += changes.before.columns
        batch = pa.RecordBatch.from_arrays(columns, [str(place) for place in range(len(columns))])
        with pa.ipc.new_stream(file, batch.schema) as writer:
            writer.write_batch(batch)
        self._written.append((changes.table, changes.before is not None))


def _changes(table: Table, batch: pa.RecordBatch, *, has_before: bool) -> Changes:
    columns = batch.columns
    first, width = len(_FACTS), len(table.columns)
    rows = pa.RecordBatch.from_arrays(columns[first : first + width], schema=table.columns)
    before = pa.RecordBatch.from_arrays(columns[first + width :], schema=table.columns) if has_before else None
    return Changes(
        table=table,
        operations=columns[0],
        at_us=columns[1],
        order=columns[2],
        transaction=columns[3],
        rows=rows,
        before=before,
    )
