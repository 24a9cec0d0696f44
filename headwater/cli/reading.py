"""Print the rows of a topic: alone from a place on, or as a member of a group that commits what was printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.cli.following import LOOK_SECONDS_MAX, Follower
from headwater.cli.interrupts import Interrupts
from headwater.cli.positions import Position, resolve
from headwater.cli.printing import Writer, writer_for
from headwater.cli.session import Session
from headwater.cli.terminal import data_stream, reader_is_gone
from headwater.errors import MemberFenced, PartitionNotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Batch, Consumer, EmbeddedLog

GROUP_END_SECONDS = 0.5
"""How long a member of a group waits for rows before it takes the end for reached."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which rows to print, and how."""

    topic: str
    position: Position
    partitions: list[int] | None = None
    columns: str | None = None
    layout: str | None = None
    count: int | None = None
    follow: bool = True

    @property
    def names(self) -> list[str] | None:
        return None if self.columns is None else [name.strip() for name in self.columns.split(",")]


def print_rows(session: Session, log: EmbeddedLog, wanted: Wanted) -> None:
    """Print rows from a place on, until enough were printed, the end is reached, or nobody reads them any more."""
    writer = _writer(session, log, wanted)
    numbers = wanted.partitions or list(range(log.topic(wanted.topic).partitions))
    offsets = resolve(log, wanted.topic, wanted.position, numbers)
    everywhere = wanted.partitions is None
    follower = Follower(log, wanted.topic, offsets, columns=writer.columns, all_partitions=everywhere)
    left = wanted.count
    for batch in _batches(follower, follow=wanted.follow) if left != 0 else ():
        part = batch if left is None else batch.slice(0, left)
        _write(writer, part)
        left = None if left is None else left - part.num_rows
        if left == 0:
            return


def _writer(session: Session, log: EmbeddedLog, wanted: Wanted) -> Writer:
    """The writer; what is not there is refused before anything is printed."""
    topic = log.topic(wanted.topic)
    for number in wanted.partitions or []:
        if not 0 <= number < topic.partitions:
            raise PartitionNotFound(topic=wanted.topic, partition=number, partitions=topic.partitions)
    log.read(wanted.topic, columns=wanted.names, partitions=[])
    return writer_for(session, topic, columns=wanted.names, layout=wanted.layout)


def _batches(follower: Follower, *, follow: bool) -> Iterator[pa.RecordBatch]:
    while True:
        yield from follower.available()
        if not follow or reader_is_gone():
            return
        follower.wait()


def _write(writer: Writer, batch: pa.RecordBatch) -> None:
    writer.write(batch)
    data_stream().flush()


# -- for a group ------------------------------------------------------------------------------------------------------


def print_for_group(session: Session, log: EmbeddedLog, wanted: Wanted, group: str) -> None:
    """Print what the group has not seen. A row is committed after it was printed, so that none is lost on the way."""
    writer = _writer(session, log, wanted)
    numbers = list(range(log.topic(wanted.topic).partitions))
    start = resolve(log, wanted.topic, wanted.position, numbers)
    columns = list(dict.fromkeys([*writer.columns, "_offset"]))
    consumer = log.consumer(wanted.topic, group, start=start, columns=columns, auto_commit=False)
    printed: dict[int, int] = {}
    interrupts = Interrupts()
    try:
        with interrupts.watched():
            left = wanted.count
            while left is None or left > 0:
                batches = consumer.poll(seconds=LOOK_SECONDS_MAX if wanted.follow else GROUP_END_SECONDS)
                for batch in batches:
                    with interrupts.held():
                        left = _print_batch(writer, batch, printed, left)
                _commit(session, consumer, wanted.topic, printed)
                if reader_is_gone() or not (wanted.follow or batches):
                    return
    finally:
        # Also after Ctrl-C: what a person has seen is not shown again.
        _commit(session, consumer, wanted.topic, printed)
        consumer.close(commit=False)


def _print_batch(writer: Writer, batch: Batch, printed: dict[int, int], left: int | None) -> int | None:
    """Print as much of a batch as is wanted, and note how far that goes."""
    if left == 0:
        return 0
    rows = batch.data if left is None else batch.data.slice(0, left)
    if rows.num_rows:
        _write(writer, rows)
    whole = rows.num_rows == batch.data.num_rows
    printed[batch.partition] = batch.offset_next if whole else rows.column("_offset")[-1].as_py() + 1
    return None if left is None else left - rows.num_rows


def _commit(session: Session, consumer: Consumer, topic: str, printed: dict[int, int]) -> None:
    if not printed:
        return
    try:
        consumer.commit({topic: dict(printed)})
    except MemberFenced as error:
        session.warn(str(error))
    printed.clear()
