"""A target compared with its topics, key by key, and corrected.

Each row has a checksum of its values as the target stores them. The target is read once; of its rows only the checksums
and the keys that differ are kept. Keys whose rows are not applied yet are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headwater.log.port import Log
from headwater.schema.encodings import json as json_lines
from headwater.schema.partitioner import key_hash
from headwater.sync.changes import collapsed, null_keys, read_changes
from headwater.sync.port import Step, TableChanges, Target, TargetTable

#: The most keys of a table that a comparison lists; it counts all.
KEYS_LISTED_MAX = 20
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One key that differs: its row is missing in the target, too much there, or has other values."""

    key: str
    kind: Literal["missing", "extra", "different"]


@dataclass(frozen=True, kw_only=True)
class TableComparison:
    """How a table of a target differs from its topic. `differences` lists the first keys."""

    topic: str
    table: str
    rows: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    pending: int = 0
    """Keys with rows that are not applied yet: they were not compared."""
    repaired: bool = False
    differences: list[Difference] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.extra or self.different)


def compare_table(log: Log, target: Target, table: TargetTable, *, repair: bool = False) -> TableComparison:
    """Compare a table with its topic; with `repair`, correct the rows that differ, in one transaction."""
    position, pieces = target.scan(table)
    offsets = {} if position is None else position.offsets
    source, touched = _source(log, target, table, offsets)
    found = differing(source, pieces, target, table, touched=touched)
    if repair and position is not None and found.count:
        step = Step(gone=found.extra, rows=source.take(pa.array(np.sort(np.concatenate(found.places)))))
        # The position stays; if another process has moved it meanwhile, nothing is changed.
        target.apply(
            [TableChanges(table=table, before=position, after=position, versions=_versions(step), steps=[step])]
        )
    return found.comparison(table, pending=len(touched), repaired=repair and bool(found.count))


@dataclass(frozen=True, kw_only=True)
class Differing:
    """The rows of a source that a target lacks or has with other values, and the keys that only the target has."""

    source: pa.Table
    key_hashes: Hashes
    row_hashes: Hashes
    missing: npt.NDArray[np.int64]
    different: npt.NDArray[np.int64]
    extra: pa.Table

    @property
    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self.missing, self.different

    @property
    def count(self) -> int:
        return len(self.missing) + len(self.different) + int(self.extra.num_rows)

    def comparison(self, table: TargetTable, *, pending: int = 0, repaired: bool = False) -> TableComparison:
        listed = [
            *(Difference(key=key, kind="missing") for key in _key_texts(self.source, self.missing, table)),
            *(Difference(key=key, kind="different") for key in _key_texts(self.source, self.different, table)),
            *(
                Difference(key=key, kind="extra")
                for key in _key_texts(self.extra, np.arange(self.extra.num_rows), table)
            ),
        ]
        return TableComparison(
            topic=table.topic,
            table=table.name,
            rows=self.source.num_rows,
            missing=len(self.missing),
            different=len(self.different),
            extra=self.extra.num_rows,
            pending=pending,
            repaired=repaired,
            differences=listed[:KEYS_LISTED_MAX],
        )


def differing(
    source: pa.Table, pieces: Iterable[pa.Table], target: Target, table: TargetTable, *, touched: Hashes
) -> Differing:
    """Compare the rows of a source with those that a target stores, by checksums; `touched` keys may be too much there."""
    keys = key_hashes(target.stored(source.select(table.key)), table)
    rows = _row_hashes(target.stored(source))
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_there = np.zeros(len(keys), dtype=np.bool_)
    is_different = np.zeros(len(keys), dtype=np.bool_)
    extra: list[pa.Table] = []
    for piece in pieces:
        found = key_hashes(piece.select(table.key), table)
        place = np.searchsorted(ordered, found)
        place[place == len(ordered)] = 0
        is_known = ordered[place] == found if len(ordered) else np.zeros(len(found), dtype=np.bool_)
        known = order[place[is_known]] if len(ordered) else np.zeros(0, dtype=np.int64)
        is_there[known] = True
        is_different[known] |= rows[known] != _row_hashes(piece)[is_known]
        is_extra = ~is_known & ~np.isin(found, touched)
        extra.append(piece.select(table.key).filter(pa.array(is_extra)))
    gone = pa.concat_tables(extra) if extra else target.stored(table.columns.empty_table()).select(table.key)
    return Differing(
        source=source,
        key_hashes=keys,
        row_hashes=rows,
        missing=np.flatnonzero(~is_there),
        different=np.flatnonzero(is_different),
        extra=gone,
    )


def _source(log: Log, target: Target, table: TargetTable, offsets: Mapping[int, int]) -> tuple[pa.Table, Hashes]:
    """The table that the topic holds, without keys that have rows behind the offsets; and the hashes of those keys."""
    ends = log.end_offsets(table.topic)
    found = read_changes(log, log.topic(table.topic), {}, ends, rows_max=2**62)
    rows = found.rows
    if len(null_keys(rows, table.key)):
        for name in table.key:
            rows = rows.filter(pc.is_valid(rows.column(name)))
    is_pending = np.zeros(rows.num_rows, dtype=np.bool_)
    partitions, places = np.asarray(rows.column("_partition")), np.asarray(rows.column("_offset"))
    for number in ends:
        is_pending |= (partitions == number) & (places >= offsets.get(number, 0))
    touched = np.unique(key_hashes(target.stored(rows.filter(pa.array(is_pending)).select(table.key)), table))
    steps = collapsed(rows, table)
    whole = [step.rows for step in steps if step.rows.num_columns == len(table.columns)]
    last = pa.concat_tables(whole) if whole else rows.slice(0, 0).select(table.columns.names)
    for step in steps:  # rows that lack values cannot be compared
        if step.rows.num_columns < len(table.columns):
            partial = key_hashes(target.stored(step.rows.select(table.key)), table)
            touched = np.union1d(touched, partial)
    if len(touched):
        last = last.filter(pa.array(~np.isin(key_hashes(target.stored(last.select(table.key)), table), touched)))
    return last, touched


def _versions(step: Step) -> pa.Table:
    return step.rows.append_column("_tombstone", pa.array([False] * step.rows.num_rows, pa.bool_()))


def key_hashes(keys: pa.Table, table: TargetTable) -> Hashes:
    if not keys.num_rows:
        return np.zeros(0, dtype=np.uint64)
    return key_hash([keys.column(name).combine_chunks() for name in table.key])


def _row_hashes(rows: pa.Table) -> Hashes:
    hashes = [
        xxhash.xxh3_64_intdigest(line)
        for batch in rows.combine_chunks().to_batches()
        for line in json_lines.encode_rows(batch)
    ]
    return np.array(hashes, dtype=np.uint64)


def _key_texts(rows: pa.Table, places: npt.NDArray[np.int64], table: TargetTable) -> list[str]:
    some = rows.select(table.key).take(pa.array(places[:KEYS_LISTED_MAX]))
    return [", ".join(f"{name}={value}" for name, value in row.items()) for row in some.to_pylist()]
