"""The producer: collects rows, and encodes, appends and syncs them in the background.

Two threads form a pipeline. The sender appends all collected rows without waiting for the disk; the syncer makes
everything durable that was written by then. So while one batch is being synced, the next is encoded, and the one after
that collected.

Invariants: rows of one topic and partition keep their order; a row is counted exactly once as sent, dropped or failed;
an error of a background thread is raised by the next `send`, `flush` or `close`.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

from headwater.errors import ArgumentInvalid, Closed, HeadwaterError, RowInvalid, UsageError
from headwater.log.client_config import ProducerConfig, Rows
from headwater.log.clients.producer_buffer import Chunk, GroupDistance, Lane, fits, pieces, row_size, without
from headwater.log.errors import ProducerOverloaded
from headwater.log.port import Log

Lack = Literal["group", "disk"]

FAILURES_KEPT_MAX = 1_000
#: So many bad rows are removed from a batch one by one; with more, the whole batch fails.
BAD_ROWS_MAX = 16
#: The size of one in so many rows is estimated, and used for the next ones.
SAMPLE_EVERY = 32
CHECK_SECONDS_MAX = 0.25
DROP_CHECK_SECONDS = 0.01


@dataclass(frozen=True, kw_only=True)
class ProducerStats:
    """Counts of rows by outcome; `waiting` rows are collected or not yet durable."""

    sent: int = 0
    batches: int = 0
    duplicates: int = 0
    dropped: int = 0
    failed: int = 0
    waiting: int = 0
    waiting_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Rows that could not be appended, with the arguments to send them again."""

    topic: str
    partition: int | None
    rows: Rows
    headers: Any
    sequence: int | None
    error: HeadwaterError


class Producer:
    """Collects rows and appends them in batches, in the background. Created by `Log.producer`.

    A named producer is idempotent: each batch has a growing sequence, a batch that is sent again with its sequence is
    not appended twice, and the next producer of the same name fences this one. It stops at the first error that is not
    caused by the rows themselves, because after a later batch the failed one would count as a duplicate.
    Do not change a row after sending it: it is encoded later.
    """

    def __init__(self, log: Log, topic: str | None, config: ProducerConfig) -> None:
        self.name = name = config.name
        self._log = log
        self._topic = topic
        self._linger = config.linger_seconds
        self._batch_rows_max = config.batch_rows_max
        self._batch_bytes_max = config.batch_bytes_max
        self._limit = limit = config.limit
        self._overload = config.overload
        self._wait_seconds_max = config.wait_seconds_max
        self._buffer_bytes_max = config.buffer_bytes_max
        self._on_drop = config.on_drop
        if limit is not None and limit.rows is not None:
            self._batch_rows_max = min(self._batch_rows_max, limit.rows)  # so that no batch alone exceeds the limit
        if topic is not None:
            log.topic(topic)  # a wrong name raises now, not with the first batch
        self.epoch = None if name is None else log.open_producer(name)
        self._sequences: dict[str, int] = {}
        self._distances: dict[str, GroupDistance] = {}
        self._lanes: dict[tuple[str, int | None], Lane] = {}
        self._written: deque[Chunk] = deque()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._sync = threading.Condition(self._lock)
        self._done = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._first_at = 0.0
        self._full = False
        self._flushing = 0
        self._collected = 0
        self._accepted = 0
        self._finished = 0
        self._bytes = 0
        self._sent = self._batches = self._duplicates = self._dropped = self._failed = 0
        self._failures: deque[Failure] = deque(maxlen=FAILURES_KEPT_MAX)
        self._unraised: list[Failure] = []
        self._halted: HeadwaterError | None = None
        self._closing = False
        self._closed = False
        self._all_sent = False
        _open_producers.add(self)

    def __repr__(self) -> str:
        return f"Producer({self._topic!r}, name={self.name!r})"

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(
        self,
        rows: Rows,
        *,
        topic: str | None = None,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Mapping[str, Any] | None = None,
        sequence: int | None = None,
    ) -> None:
        """Collect rows to be appended soon. `flush` waits until all are durable.

        One row, or many in any form that `Log.append` takes. `key` belongs to a bare value, for topics without a
        schema. With a `sequence` (named producers) the rows are one batch with that sequence; a batch that was appended
        before, also by an earlier process, is not appended again.
        """
        name = self._topic_of(topic)
        if sequence is not None and self.name is None:
            raise ArgumentInvalid(name="sequence", value=sequence, expected="a producer with a name")
        if key is not None:
            rows = [{"key": key, "value": rows}]
        if type(rows) is dict and headers is None and sequence is None and self._add(name, partition, rows):
            return
        rows_max = None if sequence is not None else self._batch_rows_max
        for piece, count, size in pieces(rows, rows_max=rows_max, bytes_max=self._batch_bytes_max):
            self._put(
                Chunk(
                    topic=name,
                    partition=partition,
                    rows=piece,
                    count=count,
                    size=size,
                    headers=None if headers is None else [headers] * count,
                    sequence=sequence,
                )
            )

    def flush(self, *, seconds: float | None = None) -> None:
        """Wait until every row sent so far is durable or has failed; raise the failures."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            goal = self._accepted
            self._flushing += 1
            self._work.notify()
            try:
                while self._finished < goal:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise ProducerOverloaded(topic=self._topic or "*", limit="flush", waited=seconds or 0.0)
                    self._done.wait(left)
            finally:
                self._flushing -= 1
            self._raise_failures()

    def punctuate(self, time: datetime | int, *, topic: str | None = None, partition: int | None = None) -> None:
        """Flush, then append a punctuation: no row earlier than `time` follows from this producer."""
        name = self._topic_of(topic)
        self.flush()
        self._log.punctuate(name, time, producer=self.name, partition=partition)

    def sequence_next(self, topic: str | None = None) -> int:
        """The sequence of the next batch of a named producer, unless the caller gives one."""
        if self.name is None:
            raise ArgumentInvalid(name="name", value=self.name, expected="a producer with a name")
        with self._lock:
            return self._sequence(self._topic_of(topic))

    def _topic_of(self, topic: str | None) -> str:
        name = topic if topic is not None else self._topic
        if name is None:
            raise ArgumentInvalid(name="topic", value=None, expected="a topic, here or when the producer is created")
        return name

    @property
    def stats(self) -> ProducerStats:
        """Counts of rows by outcome."""
        with self._lock:
            return ProducerStats(
                sent=self._sent,
                batches=self._batches,
                duplicates=self._duplicates,
                dropped=self._dropped,
                failed=self._failed,
                waiting=self._accepted - self._finished,
                waiting_bytes=self._bytes,
            )

    @property
    def failures(self) -> list[Failure]:
        """The rows that could not be appended, oldest first; the last thousand batches are kept."""
        with self._lock:
            return list(self._failures)

    def close(self) -> None:
        """Flush, end the background threads, and raise failures that were not raised before."""
        with self._lock:
            if self._closed:
                return
            self._closing = True
            self._work.notify_all()
            self._done.notify_all()
        for thread in self._threads:
            thread.join()
        with self._lock:
            self._closed = True
            _open_producers.discard(self)
            self._raise_failures(again=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except HeadwaterError as failed:
            if error is None:
                raise
            error.add_note(f"The producer has failed, too: {failed}")

    # -- collecting ---------------------------------------------------------------------------------------------------

    def _add(self, topic: str, partition: int | None, row: dict[str, Any]) -> bool:
        """Add a row to an open chunk with room; the fast path for single rows."""
        with self._lock:
            lane = self._lanes.get((topic, partition))
            if lane is None or not lane.chunks or self._limit is not None or self._closing or self._unraised:
                return False
            last = lane.chunks[-1]
            lane.until_sample -= 1
            if lane.until_sample < 0:
                lane.until_sample = SAMPLE_EVERY
                lane.row_size = row_size(row)
            size = lane.row_size
            if (
                not last.open
                or last.headers is not None
                or last.count + 1 >= self._batch_rows_max
                or last.size + size >= self._batch_bytes_max
                or self._bytes + size > self._buffer_bytes_max
            ):
                return False
            last.rows.append(row)
            last.count += 1
            last.size += size
            self._collected += 1
            self._accepted += 1
            self._bytes += size
            return True

    def _put(self, chunk: Chunk) -> None:
        waited_since: float | None = None
        while True:
            with self._lock:
                self._check_usable()
                lack = self._lack(chunk)
                if lack is None:
                    self._collect(chunk)
                    return
            if self._overload == "drop":
                self._drop(chunk)
                return
            now = time.monotonic()
            waited_since = now if waited_since is None else waited_since
            seconds = self._pause_seconds(chunk, lack, waited=now - waited_since)
            self._wait_for_room(chunk.topic, lack, seconds=seconds)

    def _collect(self, chunk: Chunk) -> None:
        lane = self._lanes.setdefault((chunk.topic, chunk.partition), Lane())
        if not self._collected:
            self._first_at = time.monotonic()
            self._work.notify()
        self._collected += chunk.count
        self._accepted += chunk.count
        self._bytes += chunk.size
        last = lane.chunks[-1] if lane.chunks else None
        if last is not None and last.open and fits(last, chunk, self._batch_rows_max, self._batch_bytes_max):
            last.rows += chunk.rows
            if chunk.headers is not None or last.headers is not None:
                last.headers = (last.headers or [None] * last.count) + (chunk.headers or [None] * chunk.count)
            last.count += chunk.count
            last.size += chunk.size
        else:
            chunk.open = type(chunk.rows) is list and chunk.sequence is None
            chunk.sent_at_us = self._log.clock.now_us()
            lane.chunks.append(chunk)
            last = chunk
        enough = last.count >= self._batch_rows_max or last.size >= self._batch_bytes_max or len(lane.chunks) > 1
        if enough and not self._full:
            self._full = True
            self._work.notify()
        if not self._threads:
            self._start()

    # -- overload -----------------------------------------------------------------------------------------------------

    def _lack(self, chunk: Chunk) -> Lack | None:
        """The limit that the chunk would exceed: the distance to the group, or the bytes that wait for the disk."""
        if self._bytes and self._bytes + chunk.size > self._buffer_bytes_max:
            return "disk"
        if (
            self._limit is None
            or self._overload == "buffer"
            or self._allows(chunk, own=self._accepted - self._finished)
        ):
            return None
        return "disk" if self._limit.group is None else "group"

    def _allows(self, chunk: Chunk, *, own: int, own_bytes: int | None = None) -> bool:
        limit = self._limit
        if limit is None:
            return True
        rows, size = own, self._bytes if own_bytes is None else own_bytes
        if limit.group is not None:
            distance = self._distance(chunk.topic, limit.group)
            distance.refresh_if_old()
            if limit.allows(
                rows_ahead=rows + distance.rows, bytes_ahead=size + distance.bytes, rows=chunk.count, bytes=chunk.size
            ):
                return True
            distance.refresh_if_old(DROP_CHECK_SECONDS if self._overload == "drop" else 0.0)
            rows, size = rows + distance.rows, size + distance.bytes
        return limit.allows(rows_ahead=rows, bytes_ahead=size, rows=chunk.count, bytes=chunk.size)

    def _pause_seconds(self, chunk: Chunk, lack: Lack, *, waited: float) -> float:
        """The pause before the next check; raise after `wait_seconds_max`."""
        if self._wait_seconds_max is None:
            return CHECK_SECONDS_MAX
        if waited >= self._wait_seconds_max:
            full = f"{self._buffer_bytes_max} bytes waiting"
            limit = full if self._limit is None or (lack == "disk" and self._limit.group) else str(self._limit)
            raise ProducerOverloaded(topic=chunk.topic, limit=limit, waited=waited)
        return min(CHECK_SECONDS_MAX, self._wait_seconds_max - waited)

    def _wait_for_room(self, topic: str, lack: Lack, *, seconds: float) -> None:
        if lack == "group" and self._limit is not None and self._limit.group is not None:
            self._distance(topic, self._limit.group).wait(seconds=seconds)
            return
        with self._lock:
            self._flushing += 1  # a caller waits: do not linger
            self._work.notify()
            try:
                self._done.wait(seconds)
            finally:
                self._flushing -= 1

    def _drop(self, chunk: Chunk) -> None:
        with self._lock:
            self._dropped += chunk.count
        if self._on_drop is not None:
            self._on_drop(chunk.topic, chunk.rows)

    def _distance(self, topic: str, group: str) -> GroupDistance:
        distance = self._distances.get(topic)
        if distance is None:
            distance = self._distances[topic] = GroupDistance(self._log, topic, group)
        return distance

    # -- the background threads ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        for target, name in ((self._send_all, "headwater-send"), (self._make_durable, "headwater-sync")):
            thread = threading.Thread(target=target, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _send_all(self) -> None:
        while (chunks := self._take()) is not None:
            for chunk in chunks:
                self._append(chunk)
        with self._lock:
            self._all_sent = True
            self._sync.notify_all()

    def _take(self) -> list[Chunk] | None:
        """All collected chunks, after the linger time, when a batch is full, or when a caller waits; None at the end."""
        with self._lock:
            while True:
                if not self._collected:
                    if self._closing:
                        return None
                    self._work.wait()
                    continue
                left = self._first_at + self._linger - time.monotonic()
                if left <= 0 or self._full or self._flushing or self._closing:
                    break
                self._work.wait(left)
            chunks = [chunk for lane in self._lanes.values() for chunk in lane.chunks]
            for lane in self._lanes.values():
                lane.chunks.clear()
            self._collected = 0
            self._full = False
            return chunks

    def _append(self, chunk: Chunk) -> None:
        bad_rows = 0
        while chunk.count:
            try:
                if self._halted is not None:
                    raise self._halted
                if self._overload == "buffer":
                    self._wait_for_group(chunk)
                chunk.appended = self._log.append(
                    chunk.topic, chunk.rows, durable=False, sent_at_us=chunk.sent_at_us, **self._details(chunk)
                )
                with self._lock:
                    self._written.append(chunk)
                    self._sync.notify()
                return
            except RowInvalid as error:
                bad_rows += 1
                if not chunk.open or bad_rows > BAD_ROWS_MAX or not 0 <= error.row < chunk.count:
                    self._fail([chunk], error)
                    return
                chunk, bad = without(chunk, error.row)
                self._fail([bad], error)
            except HeadwaterError as error:
                self._fail([chunk], error)
                return
            except Exception as error:  # a row that the encoder does not support
                self._fail([chunk], _wrapped(chunk, error))
                return

    def _details(self, chunk: Chunk) -> dict[str, Any]:
        details: dict[str, Any] = {"partition": chunk.partition, "headers": chunk.headers}
        if self.name is None:
            return details
        with self._lock:
            if chunk.sequence is None:
                chunk.sequence = self._sequence(chunk.topic)
            self._sequences[chunk.topic] = max(self._sequence(chunk.topic), chunk.sequence + 1)
        topic = self._log.topic(chunk.topic)
        if chunk.partition is None and not topic.key and topic.partitions > 1:
            # Round robin would send a retried batch to another partition.
            details["partition"] = chunk.sequence % topic.partitions
        return {**details, "producer": self.name, "epoch": self.epoch, "sequence": chunk.sequence}

    def _sequence(self, topic: str) -> int:
        if topic not in self._sequences and self.name is not None:
            self._sequences[topic] = self._log.last_sequence(topic, self.name) + 1
        return self._sequences[topic]

    def _wait_for_group(self, chunk: Chunk) -> None:
        limit = self._limit
        # On close, the rest is appended regardless of the limit: collected rows are never lost.
        while limit is not None and not self._closing:
            with self._lock:
                own = sum(each.count for each in self._written)
                own_bytes = sum(each.size for each in self._written)
                if self._allows(chunk, own=own, own_bytes=own_bytes):
                    return
            self._wait_for_room(chunk.topic, "group" if limit.group else "disk", seconds=CHECK_SECONDS_MAX)

    def _make_durable(self) -> None:
        while True:
            with self._lock:
                while not self._written:
                    if self._all_sent:
                        return
                    self._sync.wait()
                chunks = list(self._written)
            for topic in dict.fromkeys(chunk.topic for chunk in chunks):
                self._flush_topic(topic, [chunk for chunk in chunks if chunk.topic == topic])

    def _flush_topic(self, topic: str, chunks: list[Chunk]) -> None:
        try:
            self._log.flush(topic)
        except HeadwaterError as error:
            self._fail(chunks, error)
        except Exception as error:
            self._fail(chunks, _wrapped(chunks[0], error))
        else:
            self._acknowledge(topic, chunks)

    def _acknowledge(self, topic: str, chunks: list[Chunk]) -> None:
        with self._lock:
            distance = self._distances.get(topic)
            for chunk in chunks:
                self._written.remove(chunk)
                self._finished += chunk.count
                self._bytes -= chunk.size
                self._batches += 1
                self._sent += chunk.count
                if chunk.appended is not None and chunk.appended.duplicate:
                    self._duplicates += chunk.count
                elif chunk.appended is not None and distance is not None:
                    distance.appended(chunk.appended.ranges, chunk.size)
            self._done.notify_all()

    # -- failing ------------------------------------------------------------------------------------------------------

    def _fail(self, chunks: Sequence[Chunk], error: HeadwaterError) -> None:
        with self._lock:
            for chunk in chunks:
                if chunk in self._written:
                    self._written.remove(chunk)
                self._finished += chunk.count
                self._bytes -= chunk.size
                self._failed += chunk.count
                failure = Failure(
                    topic=chunk.topic,
                    partition=chunk.partition,
                    rows=chunk.rows,
                    headers=chunk.headers,
                    sequence=chunk.sequence,
                    error=error,
                )
                self._failures.append(failure)
                self._unraised.append(failure)
            if self.name is not None and not isinstance(error, UsageError):
                self._halted = error
            self._done.notify_all()

    def _raise_failures(self, *, again: bool = True) -> None:
        """Raise failures of the background threads once; a producer that had to stop raises at every call."""
        if self._unraised:
            error, count = self._unraised[0].error, len(self._unraised)
            self._unraised.clear()
            error.add_note(f"{count} batch(es) of this producer failed; their rows are in `Producer.failures`.")
            raise error
        if again and self._halted is not None:
            raise self._halted

    def _check_usable(self) -> None:
        if self._closing:
            raise Closed(what="producer")
        if self._unraised or self._halted is not None:
            self._raise_failures()


_open_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # At exit the interpreter stops daemon threads, and rows that they hold would be lost.
    for producer in list(_open_producers):
        producer.close()


def _wrapped(chunk: Chunk, error: Exception) -> HeadwaterError:
    wrapped = RowInvalid(topic=chunk.topic, row=0, column="?", why=f"could not be encoded: {error!r}")
    wrapped.__cause__ = error
    return wrapped
