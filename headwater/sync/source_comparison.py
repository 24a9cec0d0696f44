"""A target compared with the database that its topics capture.

Rows are on their way from the database to the target all the time. So tables that differ are compared a second time,
after what was captured has been applied. A key counts only if it differs both times and its row in the database is the same.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture import CaptureConfig, CaptureStore, Source, Table
from headwater.capture.connectors import open_source
from headwater.capture.port import Changes
from headwater.capture.transform import Transform, transform_of
from headwater.log.port import Log
from headwater.sync.comparison import Differing, Hashes, TableComparison, differing, key_hashes
from headwater.sync.errors import SyncInvalid
from headwater.sync.port import Target, TargetTable

#: How long a second comparison waits until what the database has is captured and applied.
WAIT_SECONDS_MAX = 10.0
POLL_SECONDS = 0.05
_NO_KEYS: Hashes = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, kw_only=True)
class CapturedTable:
    """The table of a database that a topic captures."""

    capture: CaptureConfig
    source: Source
    table: Table
    transform: Transform

    def rows(self, columns: pa.Schema) -> pa.Table:
        """The rows of the table as its topic should have them."""
        batches = []
        for batch in self.source.rows(self.table):
            count = batch.num_rows
            read = Changes(
                table=self.table,
                operations=pa.repeat(pa.scalar("r"), count),
                rows=batch,
                at_us=pa.repeat(pa.scalar(0, pa.int64()), count),
                order=pa.repeat(pa.scalar(0, pa.int64()), count),
            )
            changes = self.transform.apply(read)
            if changes is None:
                continue
            kept = changes.rows.filter(pc.equal(changes.operations, "r"))
            arrays = [
                kept.column(field.name).cast(field.type)
                if field.name in kept.schema.names
                else pa.nulls(kept.num_rows, field.type)
                for field in columns
            ]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=columns))
        return pa.Table.from_batches(batches, schema=columns)


@contextlib.contextmanager
def captured_tables(log: Log, sync: str, tables: list[TargetTable]) -> Iterator[Mapping[str, CapturedTable]]:
    """Open the databases that the topics of a sync capture; the tables by topic."""
    found: dict[str, CapturedTable] = {}
    topics = {table.topic for table in tables}
    with contextlib.ExitStack() as stack:
        for config in CaptureStore(log).configs().values():
            if not any(topic.startswith(config.topic_of("")) for topic in topics):
                continue
            source = stack.enter_context(contextlib.closing(open_source(config)))
            for table in source.tables():
                found[config.topic_of(table.name)] = CapturedTable(
                    capture=config, source=source, table=table, transform=transform_of(config)
                )
        if unknown := sorted(topics - found.keys()):
            raise SyncInvalid(
                sync=sync,
                why=f"topic {unknown[0]!r} is not the topic of a captured table",
                instead="Compare with the topics alone, without `--source`",
            )
        yield found


def compare_with_source(log: Log, target: Target, table: TargetTable, captured: CapturedTable) -> TableComparison:
    """Compare a table of a target with the table of the database that its topic captures."""
    first = _compared(target, table, captured)
    if not first.count:
        return first.comparison(table)
    _wait_until_applied(log, target, table, captured)
    second = _compared(target, table, captured)
    return _steady(first, second, target, table).comparison(table)


def _compared(target: Target, table: TargetTable, captured: CapturedTable) -> Differing:
    rows = captured.rows(table.columns)
    _, pieces = target.scan(table)
    return differing(rows, pieces, target, table, touched=_NO_KEYS)


def _steady(first: Differing, second: Differing, target: Target, table: TargetTable) -> Differing:
    """The differences that were there both times, of rows that did not change in the database."""
    before = dict(zip(first.key_hashes.tolist(), first.row_hashes.tolist(), strict=True))
    wrong = {int(first.key_hashes[place]) for places in first.places for place in places}
    wrong_extra = key_hashes(target.stored(first.extra), table) if first.extra.num_rows else _NO_KEYS

    def is_steady(place: int) -> bool:
        key = int(second.key_hashes[place])
        return key in wrong and before[key] == int(second.row_hashes[place])

    extra = second.extra
    if extra.num_rows:
        extra = extra.filter(pa.array(np.isin(key_hashes(target.stored(extra), table), wrong_extra)))
    return replace(
        second,
        missing=np.array([place for place in second.missing if is_steady(place)], dtype=np.int64),
        different=np.array([place for place in second.different if is_steady(place)], dtype=np.int64),
        extra=extra,
    )


def _wait_until_applied(log: Log, target: Target, table: TargetTable, captured: CapturedTable) -> None:
    """Wait until the capture and then the sync have no rows pending, or the time is over: then they do not run."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    is_captured = False
    while time.monotonic() < deadline:
        progress = CaptureStore(log).progress(captured.capture.name)
        if not is_captured and progress.position is not None:
            is_captured = captured.source.health(progress.position).pending == 0
        position = target.position(table)
        applied = {} if position is None else position.offsets
        if is_captured and all(applied.get(number, 0) >= end for number, end in log.end_offsets(table.topic).items()):
            return
        time.sleep(POLL_SECONDS)
