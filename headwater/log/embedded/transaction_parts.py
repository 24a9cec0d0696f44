"""The parts of a transaction, one for each partition: writing, syncing and cutting their frames."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headwater.log.embedded.partition import Partition
from headwater.log.embedded.state import Tail
from headwater.log.frame import Draft

#: From this size on, the frames of several partitions are written in parallel.
SIDE_BY_SIDE_BYTES_MIN = 4 * 1024 * 1024


class Part(NamedTuple):
    """The frames that a transaction adds to one partition."""

    topic: str
    partition: int
    drafts: list[Draft]


def write_parts(
    begun: Sequence[tuple[Partition, Tail, list[Draft]]], number: int, tails: list[tuple[Partition, Tail, Tail]]
) -> None:
    """Write the frames of several partitions. Add the tails before and after them to `tails`, even if one fails."""

    def write(place: tuple[Partition, Tail, list[Draft]]) -> tuple[Partition, Tail, Tail]:
        partition, tail, drafts = place
        return partition, *partition.write(tail, drafts, transaction=number)

    size = sum(draft.size for *_, drafts in begun for draft in drafts)
    if len(begun) == 1 or size < SIDE_BY_SIDE_BYTES_MIN:
        for place in begun:
            tails.append(write(place))
        return
    # Most of the time is spent by the kernel on allocating pages, which runs in parallel.
    with ThreadPoolExecutor(max_workers=min(4, len(begun))) as pool:
        writes = [pool.submit(write, place) for place in begun]
    tails.extend(one.result() for one in writes if one.exception() is None)
    for one in writes:
        one.result()


def truncate_parts(tails: Sequence[tuple[Partition, Tail, Tail]]) -> None:
    """Cut frames that were written but not committed. The caller holds the append locks."""
    for partition, start, _ in tails:
        partition.truncate(start)


def sync_parts(ends: Sequence[tuple[Partition, Tail]]) -> None:
    """Sync several partitions in parallel, so that the disk can order the writes."""
    if len(ends) <= 1:
        for partition, end in ends:
            partition.sync_segment(end.segment)
        return
    with ThreadPoolExecutor(max_workers=min(8, len(ends))) as pool:
        list(pool.map(lambda place: place[0].sync_segment(place[1].segment), ends))
