"""Whole transactions of a captured database: which rows of its topics belong to transactions that are complete.

A capture with transaction markers appends, for each transaction, an END row with the number of its changes in each table to the
topic `<capture>.transactions`, in the same transaction of the log as the changes; each change has the id of its transaction. A
*window* is the transactions of the next END rows. From each topic of the capture, a step takes the rows up to the last one
of the window, and nothing of later transactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.port import Log
from headwater.sync.changes import TopicChanges
from headwater.sync.errors import SyncInvalid

TRANSACTION = "_transaction"
_MARKERS = "transactions"
_COLUMNS = {"status", "id", "event_count", "data_collections"}


@dataclass(frozen=True, kw_only=True)
class Window:
    """Transactions in commit order, with the number of their changes in each topic; and the position of the markers behind them."""

    ids: Sequence[str]
    counts: Sequence[Mapping[str, int]]
    offsets: Mapping[int, int]
    more: bool

    def rows(self, topic: str) -> int:
        return sum(counts.get(topic, 0) for counts in self.counts)

    def last(self, topic: str) -> str | None:
        """The last transaction that changes a topic."""
        found = [one for one, counts in zip(self.ids, self.counts, strict=True) if counts.get(topic, 0)]
        return found[-1] if found else None


def marker_topic(log: Log, sync: str, topic: str) -> str:
    """The topic with the transaction markers of the capture that a topic belongs to."""
    known = set(log.topics())
    prefix = topic
    while "." in prefix:
        prefix = prefix.rpartition(".")[0]
        name = f"{prefix}.{_MARKERS}"
        if name in known and set(log.topic(name).schema.names) >= _COLUMNS:
            return name
    raise SyncInvalid(
        sync=sync,
        why=f"topic {topic!r} is of no capture with transaction markers, so that its transactions are not known",
        instead="Create the capture with `--transactions`, or the sync without",
    )


def read_window(log: Log, markers: str, starts: Mapping[int, int], *, rows_max: int) -> Window:
    """The next transactions, as many as have `rows_max` changes together, and at least one."""
    [(partition, end)] = log.end_offsets(markers).items()  # markers have one partition, so that they are in order
    prefix = markers.removesuffix(_MARKERS)
    offset = starts.get(partition, 0)
    ids: list[str] = []
    counts: list[dict[str, int]] = []
    rows = 0
    for batch in log.read_range(markers, partition, start=offset, stop=end):
        for row in batch.rows() if batch.punctuation_us is None else ():
            if row["status"] == "END":
                if ids and rows + row["event_count"] > rows_max:
                    return Window(ids=ids, counts=counts, offsets={partition: offset}, more=True)
                rows += row["event_count"]
                ids.append(row["id"])
                counts.append(
                    {prefix + one["data_collection"]: one["event_count"] for one in row["data_collections"] or ()}
                )
            offset = row["_offset"] + 1
    return Window(ids=ids, counts=counts, offsets={partition: end}, more=False)


def is_complete(found: TopicChanges, window: Window, topic: str) -> bool:
    """Whether all changes of the window are visible in a topic.

    The changes of a transaction of the log become visible together in one topic, but perhaps not at the same moment
    in all topics.
    """
    last = window.last(topic)
    if last is None:
        return True
    ids = pc.unique(found.rows.column(TRANSACTION)).to_pylist()
    # A later transaction is there: compaction has removed the rows that are missing.
    return last in ids or any(one is not None and one not in window.ids for one in ids)


def before_transactions(found: TopicChanges) -> TopicChanges:
    """The rows before the first one that belongs to a transaction: those of a snapshot."""
    known = np.asarray(found.rows.column(TRANSACTION).is_valid())
    ends = {number: _first(known & (_partitions(found) == number)) for number in found.offsets}
    return _cut(found, {number: place for number, place in ends.items() if place is not None})


def of_window(found: TopicChanges, window: Window) -> TopicChanges:
    """The rows up to the last one of the window, in each partition."""
    mine = np.asarray(pc.is_in(found.rows.column(TRANSACTION), value_set=pa.array(window.ids, pa.string())))
    partitions = _partitions(found)
    ends: dict[int, int] = {}
    for number in found.offsets:
        here = np.flatnonzero(partitions == number)
        if not len(here):
            continue
        inside = here[mine[here]]
        after = here[here > inside[-1]] if len(inside) else here
        if len(after):
            ends[number] = int(after[0])
    return _cut(found, ends)


def _partitions(found: TopicChanges) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.asarray(found.rows.column("_partition"))


def _first(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int | None:
    places = np.flatnonzero(mask)
    return int(places[0]) if len(places) else None


def _cut(found: TopicChanges, ends: Mapping[int, int]) -> TopicChanges:
    """Leave out, in each partition that is named, the row at a place and all behind it."""
    kept = np.ones(found.rows.num_rows, dtype=np.bool_)
    partitions, offsets = _partitions(found), dict(found.offsets)
    for number, place in ends.items():
        kept &= ~((partitions == number) & (np.arange(len(kept)) >= place))
        offsets[number] = found.rows.column("_offset")[place].as_py()
    return TopicChanges(rows=found.rows.filter(pa.array(kept)), offsets=offsets, more=bool(ends) or found.more)
