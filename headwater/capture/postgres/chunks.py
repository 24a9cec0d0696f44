"""Snapshots of tables in chunks, while their changes arrive."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.port import Misfit, SnapshotProgress
from headwater.capture.postgres.changes import TableChanges
from headwater.capture.postgres.connection import Address, Connection
from headwater.capture.postgres.shape import Shape, key_text
from headwater.capture.postgres.snapshot import (
    RangeSize,
    Worker,
    cursor_behind,
    emit_mark,
    expected_rows,
    next_range,
)
from headwater.capture.postgres.visibility import RecentKeys, XidSnapshot


@dataclass
class _Tracked:
    """A table whose snapshot is read in chunks."""

    recent: RecentKeys
    horizon: int
    """Transactions before this one may have changed the table unheard: all of them must have ended before a chunk is read."""
    size: RangeSize


@dataclass(frozen=True)
class Chunk:
    """Rows of a table that wait until the stream has reached their mark."""

    shape: Shape
    rows: pa.RecordBatch
    misfits: list[Misfit]
    visible: XidSnapshot
    mark: bytes
    progress: SnapshotProgress


class ChunkReader:
    """Reads tables chunk by chunk; one chunk waits at a time."""

    def __init__(self, address: Address, connection: Connection, prefix: str) -> None:
        self._address = address
        self._connection = connection
        self._prefix = prefix
        self._worker: Worker | None = None
        self._tracked: dict[str, _Tracked] = {}
        self.waiting: Chunk | None = None

    def track(self, name: str) -> None:
        """Remember the keys of a table that change from now on."""
        if name not in self._tracked:
            text = self._connection.query("SELECT pg_current_snapshot()::text")[0][0]
            self._tracked[name] = _Tracked(RecentKeys(), XidSnapshot.parse(text).xmax, RangeSize())

    def may_read(self, name: str, visible: XidSnapshot) -> bool:
        """Whether no transaction can have changed a table unheard that a snapshot does not see."""
        return visible.xmin >= self._tracked[name].horizon

    def note(self, one: TableChanges) -> None:
        """Remember which keys changed, of tables that are being read."""
        tracked = self._tracked.get(one.changes.table.name)
        if tracked is None or not one.changes.table.key:
            return
        if one.changes.operations[0].as_py() == "t":
            tracked.recent.truncate(int(one.xids[0]))
        else:
            tracked.recent.add(key_text(one.changes.table, one.changes.rows), one.xids)

    def read(self, shape: Shape, progress: SnapshotProgress) -> bool:
        """Read the next chunk, if it can be read now; it then waits for its mark."""
        name = shape.table.name
        self.track(name)
        tracked = self._tracked[name]
        worker = self.worker()
        worker.begin()
        try:
            visible = worker.visible()
            if not self.may_read(name, visible):
                return False
            leaves = worker.leaves(shape.number)
            # Any: JSON.
            asked: Mapping[str, object] = progress.cursor or {}
            condition = asked.get("where")
            where = {} if condition is None else {"where": condition}
            place = next_range(leaves, progress.cursor if "leaf" in asked else None, tracked.size.blocks)
            rows, misfits = shape.table.columns.empty_table().to_batches(), list[Misfit]()
            batch = rows[0] if rows else pa.RecordBatch.from_pylist([], shape.table.columns)
            after = replace(progress, version=shape.number, complete=True, cursor=None)
            if place is not None:
                found = worker.rows(shape, place, condition=None if condition is None else str(condition))
                tracked.size.learn(place, found.rows)
                batch, misfits = found.rows, found.misfits
                cursor = cursor_behind(place)
                read = progress.rows + batch.num_rows
                is_last = next_range(leaves, cursor, 1) is None
                after = replace(
                    progress,
                    version=shape.number,
                    rows=read,
                    rows_expected=expected_rows(leaves, place, read),
                    cursor=None if is_last else {**cursor, **where},
                    complete=is_last,
                )
        finally:
            worker.end()
        mark = secrets.token_hex(8)
        emit_mark(self._connection, self._prefix, mark)
        self.waiting = Chunk(shape, batch, misfits, visible, mark.encode(), after)
        return True

    def arrived(self) -> tuple[Chunk, pa.RecordBatch]:
        """The chunk whose mark has arrived, and its rows without stale ones."""
        chunk = self.waiting
        assert chunk is not None
        self.waiting = None
        tracked = self._tracked[chunk.shape.table.name]
        rows = chunk.rows
        if rows.num_rows:
            stale = tracked.recent.stale(key_text(chunk.shape.table, rows), chunk.visible)
            rows = rows.filter(pc.invert(stale))
        tracked.recent.prune(chunk.visible)
        if chunk.progress.complete:
            del self._tracked[chunk.shape.table.name]
        return chunk, rows

    def worker(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._address)
        return self._worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
