"""Snapshots of tables, read in ranges of blocks by ADBC as Arrow.

The initial snapshot is as of the position at which the slot begins: several workers import the snapshot that the slot has exported, and read
ranges of the table's blocks. What it leaves after a crash, and tables that are added or read again later, are read in chunks
beside the changes that go on (`visibility.py`), also by ranges of blocks. A row that moves to another
block while chunks are read has changed, and its change arrives; so a range that is complete need not be read again. If a table is
rewritten (`VACUUM FULL`, `CLUSTER`) its blocks have another meaning, and it is read from its start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.capture.port import Misfit
from headwater.capture.postgres.connection import Address, Connection, identifier
from headwater.capture.postgres.shape import Shape
from headwater.capture.postgres.visibility import XidSnapshot
from headwater.optional import require
from headwater.units import MIB

WORKERS = 2
#: Blocks of the first range of a table; later ones follow from the size of their rows.
BLOCKS_FIRST = 128
BLOCKS_MAX = 2048
RANGE_BYTES = 8 * MIB

_LEAVES = """
SELECT c.oid::bigint, n.nspname, c.relname, pg_relation_filenode(c.oid)::bigint,
  pg_relation_size(c.oid) / current_setting('block_size')::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = {number} AND c.relkind = 'r' OR c.oid IN (SELECT relid FROM pg_partition_tree({number}) WHERE isleaf)
ORDER BY c.oid
"""
#: A name that no column has.
_ROW = "_headwater_row"
#: The values that Arrow and Python hold; others are null, and their row is told.
_BOUNDS = {
    pa.date32(): "BETWEEN '0001-01-01' AND '9999-12-31'",
    pa.timestamp("us"): "BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'",
    pa.timestamp("us", "UTC"): "BETWEEN '0001-01-01 00:00Z' AND '9999-12-31 23:59:59.999999Z'",
    pa.time64("us"): "< '24:00'",
}


@dataclass(frozen=True)
class Leaf:
    """A table, or a part of a partitioned one, that has blocks."""

    number: int
    schema: str
    name: str
    file: int
    blocks: int


@dataclass(frozen=True)
class BlockRange:
    """Blocks of a leaf; without an end, all that follow."""

    leaf: Leaf
    start: int
    end: int | None


@dataclass(frozen=True)
class RangeRows:
    """The rows of a range."""

    rows: pa.RecordBatch
    misfits: list[Misfit]


class Worker:
    """A session that reads rows as Arrow, in one snapshot at a time."""

    def __init__(self, address: Address) -> None:
        adbc = require("adbc_driver_postgresql.dbapi", extra="postgres")
        self._connection = adbc.connect(address.dsn())

    def begin(self, snapshot: str | None = None) -> None:
        """Begin a transaction that sees one snapshot: an exported one, or the current one."""
        self._connection.rollback()
        self._run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            self._run(f"SET TRANSACTION SNAPSHOT '{snapshot}'")

    def end(self) -> None:
        self._connection.rollback()

    def visible(self) -> XidSnapshot:
        return XidSnapshot.parse(self._table("SELECT pg_current_snapshot()::text AS s").column(0)[0].as_py())

    def leaves(self, number: int) -> list[Leaf]:
        rows = self._table(_LEAVES.format(number=number)).to_pylist()
        return [Leaf(*row.values()) for row in rows]

    def count(self, shape: Shape) -> int:
        """The number of rows of a table."""
        schema, _, name = shape.table.name.partition(".")
        counted = self._table(f"SELECT count(*) AS n FROM {identifier(schema)}.{identifier(name)}")
        return int(counted.column(0)[0].as_py())

    def whole(self, shape: Shape, leaves: list[Leaf]) -> Iterator[RangeRows]:
        """All rows of a table, range by range."""
        size = RangeSize()
        for place in _places(leaves, size):
            found = self.rows(shape, place)
            size.learn(place, found.rows)
            yield found

    def rows(self, shape: Shape, where: BlockRange, *, condition: str | None = None) -> RangeRows:
        """Read the rows of a range."""
        table = self._table(_select(shape, where, condition))
        columns: list[pa.Array] = []
        misfits: list[Misfit] = []
        names = shape.table.columns.names
        for place, kind in enumerate(shape.types):
            values = _one(table.column(place))
            if kind.binary:
                columns.append(values.cast(kind.arrow))
                continue
            array, bad = kind.array(values.cast(pa.string()))
            columns.append(array)
            if bad is not None:
                misfits += [
                    Misfit(
                        table=shape.table.name,
                        row=str(values[row].as_py()),
                        why=f"the value of column {names[place]!r} does not fit {kind.arrow}: it is null in the topic",
                    )
                    for row in np.flatnonzero(bad.to_numpy(zero_copy_only=False)).tolist()
                ]
        if table.num_columns > len(shape.types):
            odd = table.column(len(shape.types)).drop_null().to_pylist()
            why = "a date or time does not fit Arrow's range: it is null in the topic"
            misfits += [Misfit(table=shape.table.name, row=row, why=why) for row in odd]
        return RangeRows(pa.RecordBatch.from_arrays(columns, schema=shape.table.columns), misfits)

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _table(self, statement: str) -> pa.Table:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetch_arrow_table()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()


class InitialSnapshot:
    """All ranges of all tables, read by several workers in one exported snapshot, and returned in order."""

    def __init__(self, address: Address, snapshot: str, shapes: Mapping[str, Shape]) -> None:
        self._workers = [Worker(address) for _ in range(WORKERS)]
        for worker in self._workers:
            worker.begin(snapshot)
        self._free = list(self._workers)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="snapshot")
        self.leaves = {name: self._workers[0].leaves(shape.number) for name, shape in shapes.items()}

    def ranges(self, shape: Shape) -> Iterator[tuple[BlockRange, RangeRows]]:
        """The ranges of one table with their rows, in order; the workers read ahead."""
        waiting: list[tuple[BlockRange, Future[RangeRows]]] = []
        size = RangeSize()
        places = _places(self.leaves[shape.table.name], size)
        while True:
            while len(waiting) <= WORKERS and (place := next(places, None)) is not None:
                waiting.append((place, self._pool.submit(self._read, shape, place)))
            if not waiting:
                return
            place, future = waiting.pop(0)
            rows = future.result()
            size.learn(place, rows.rows)
            yield place, rows

    def count(self, shape: Shape) -> int:
        return self._workers[0].count(shape)

    def _read(self, shape: Shape, place: BlockRange) -> RangeRows:
        worker = self._free.pop()
        try:
            return worker.rows(shape, place)
        finally:
            self._free.append(worker)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()


class RangeSize:
    """How many blocks a range has, so that its rows take about as many bytes as they should."""

    def __init__(self) -> None:
        self.blocks = BLOCKS_FIRST

    def learn(self, place: BlockRange, rows: pa.RecordBatch) -> None:
        read = (place.end or place.leaf.blocks) - place.start
        if read > 0 and rows.num_rows:
            wanted = int(read * RANGE_BYTES / max(rows.nbytes, 1))
            self.blocks = max(1, min(wanted, 4 * self.blocks, BLOCKS_MAX))


def next_range(leaves: list[Leaf], cursor: Mapping[str, Any] | None, blocks: int) -> BlockRange | None:
    """The range behind a cursor; None if all is read. A leaf that was rewritten is read from its start."""
    for leaf in leaves:
        if cursor is None or leaf.number > cursor["leaf"]:
            return _range(leaf, 0, blocks)
        if leaf.number == cursor["leaf"]:
            if leaf.file != cursor["file"]:
                return _range(leaf, 0, blocks)
            if cursor["block"] is not None:
                return _range(leaf, cursor["block"], blocks)
    return None


# Any: JSON.
def cursor_behind(place: BlockRange) -> dict[str, Any]:
    return {"leaf": place.leaf.number, "file": place.leaf.file, "block": place.end}


def expected_rows(leaves: list[Leaf], place: BlockRange, rows: int) -> int:
    """How many rows the table has, judged by the blocks that are read."""
    read = sum(leaf.blocks for leaf in leaves if leaf.number < place.leaf.number)
    read += place.leaf.blocks if place.end is None else place.end
    total = sum(leaf.blocks for leaf in leaves)
    return rows if read >= total else round(rows * total / max(read, 1))


def _range(leaf: Leaf, start: int, blocks: int) -> BlockRange:
    end = start + blocks
    return BlockRange(leaf, start, end if end < leaf.blocks else None)


def _places(leaves: list[Leaf], size: RangeSize) -> Iterator[BlockRange]:
    cursor = None
    while (place := next_range(leaves, cursor, size.blocks)) is not None:
        yield place
        cursor = cursor_behind(place)


def _select(shape: Shape, where: BlockRange, condition: str | None) -> str:
    columns, odd = [], []
    for number, (one, kind) in enumerate(zip(shape.table.columns, shape.types, strict=True)):
        name = f"{_ROW}.{identifier(one.name)}"
        bounds = _BOUNDS.get(kind.arrow)
        if bounds is not None:
            odd.append(f"NOT ({name} {bounds})")
            columns.append(f"CASE WHEN {name} {bounds} THEN {name} END AS c{number}")
        else:
            columns.append(f"{name}{'' if kind.binary else '::text'} AS c{number}")
    if odd:
        columns.append(f"CASE WHEN {' OR '.join(odd)} THEN row_to_json({_ROW})::text END AS odd")
    leaf = where.leaf
    statement = f"SELECT {', '.join(columns)} FROM ONLY {identifier(leaf.schema)}.{identifier(leaf.name)} AS {_ROW}"
    limits = [f"{_ROW}.ctid >= '({where.start},0)'::tid"]
    if where.end is not None:
        limits.append(f"{_ROW}.ctid < '({where.end},0)'::tid")
    if condition:
        limits.append(f"({condition})")
    return f"{statement} WHERE {' AND '.join(limits)}"


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def emit_mark(connection: Connection, prefix: str, mark: str) -> None:
    """Write a mark into the database's log: when it arrives, everything before it has arrived.

    It has a transaction, because its commit flushes the log; otherwise the mark would wait for the next one.
    """
    connection.query("SELECT pg_logical_emit_message(true, %s::text, %s::text)", (prefix, mark))
