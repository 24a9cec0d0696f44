"""One row of a view by its key, read from the changelog itself: no store is asked, and no lock is waited for.

A store is locked while changes are written to it; the log never is. So the place of the newest row of each key in the
changelog is kept in memory: sixteen bytes a key, in a table that is half empty at least; a million keys take 32 MB. Two
keys may have one hash: a look-up compares the key, and asks the store when it is not the one wanted or was deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import LogError, StorageError
from headwater.log import Log
from headwater.schema.partitioner import key_hash

if TYPE_CHECKING:
    from headwater.views.changelog import MaintainedView

Int64s = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

#: Of larger views no places are kept: their look-ups go to the store.
KEYS_MAX = 5_000_000
OFFSET_BITS = 47
GONE = -1
_FREE = -2
_SMALLEST = 1024


def place_of(partition: int, offsets: Int64s) -> Int64s:
    """A partition and its offsets as one number each.

    >>> [divmod(int(place), 2**OFFSET_BITS) for place in place_of(3, np.array([7]))]
    [(3, 7)]
    """
    placed: Int64s = (np.int64(partition) << OFFSET_BITS) | offsets
    return placed


@dataclass
class _Table:
    """Open addressing: a key stands in the first free slot from where its hash points. Slots are never given back."""

    hashes: Hashes
    places: Int64s
    used: int = 0

    @staticmethod
    def of(slots: int) -> _Table:
        return _Table(np.zeros(slots, np.uint64), np.full(slots, _FREE, np.int64))


class Places:
    """The place of the newest row of each key. One thread writes; any number read meanwhile."""

    def __init__(self) -> None:
        self._table = _Table.of(_SMALLEST)

    def __len__(self) -> int:
        return self._table.used

    def find(self, key: int) -> int | None:
        """Where the row lies, `GONE` where it was deleted, None where there never was one.

        >>> places = Places()
        >>> places.put(np.array([5, 9], np.uint64), np.array([70, GONE]))
        >>> places.find(5), places.find(9), places.find(6)
        (70, -1, None)
        """
        table = self._table
        mask = len(table.places) - 1
        slot = key & mask
        while (place := int(table.places[slot])) != _FREE:
            if int(table.hashes[slot]) == key:
                return place
            slot = (slot + 1) & mask
        return None

    def put(self, keys: Hashes, places: Int64s) -> None:
        """Note places; of equal keys the last counts."""
        keys, first = np.unique(keys[::-1], return_index=True)
        places = places[::-1][first]
        table = self._table
        if (table.used + len(keys)) * 2 > len(table.places):
            table = self._grown(len(keys))
        _insert(table, keys, places)
        self._table = table

    def _grown(self, more: int) -> _Table:
        old = self._table
        slots = len(old.places)
        while (old.used + more) * 2 > slots // 2:
            slots *= 2
        table = _Table.of(slots)
        held = old.places != _FREE
        _insert(table, old.hashes[held], old.places[held])
        return table


def _insert(table: _Table, keys: Hashes, places: Int64s) -> None:
    """Put different keys into their slots, all at once: those that meet a taken slot go on to the next."""
    mask = np.uint64(len(table.places) - 1)
    slots = (keys & mask).astype(np.int64)
    left = np.arange(len(keys))
    while len(left):
        at = slots[left]
        free = table.places[at] == _FREE
        same = ~free & (table.hashes[at] == keys[left])
        table.places[at[same]] = places[left[same]]
        # Of several that want one free slot the first gets it.
        wanted, who = np.unique(at[free], return_index=True)
        winners = left[free][who]
        # A reader that comes between the two lines must not take the slot for another key's.
        table.hashes[wanted] = keys[winners]
        table.places[wanted] = places[winners]
        table.used += len(winners)
        waiting = np.ones(len(left), bool)
        waiting[same] = False
        waiting[np.flatnonzero(free)[who]] = False
        left = left[waiting]
        blocked = table.hashes[slots[left]] != keys[left]
        slots[left[blocked]] = (slots[left[blocked]] + 1) & int(mask)


def looked_up(log: Log, maintained: MaintainedView, key: pa.RecordBatch) -> pa.Table | None:
    """The row of a key as a table of one row, or of none; `None` where only the store can say."""
    spec, places = maintained.spec, maintained.places
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


def _read(log: Log, topic: str, partition: int, offset: int, schema: pa.Schema) -> pa.Table | None:
    try:
        batches = log.read_range(topic, partition, start=offset, stop=offset + 1, columns=schema.names)
        found = [batch.data for batch in batches if batch.data.num_rows]
    except (LogError, StorageError):  # compacted away as we looked: there is a newer row
        return None
    if len(found) != 1 or not found[0].schema.equals(schema):
        return None
    return pa.Table.from_batches(found)
