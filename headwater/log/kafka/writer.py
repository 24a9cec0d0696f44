"""Rows as messages, and appends that are not transactions."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from headwater.clock import Clock, time_us
from headwater.config import Config
from headwater.errors import RowInvalid
from headwater.log.client_config import Rows
from headwater.log.drafts import batches_of
from headwater.log.errors import partition_not_found
from headwater.log.kafka.catalogue import MESSAGE_BYTES_MAX, Catalogue, KafkaTopic
from headwater.log.kafka.cluster import Cluster
from headwater.log.kafka.delivery import Delivery, Messages, Place, largest, send_all
from headwater.log.kafka.keys import encode_keys
from headwater.log.kafka.row_offsets import ROWS_MAX, Numbering
from headwater.log.kafka.values.port import HEADER_PREFIX
from headwater.log.port import Appended
from headwater.schema import RowBatch

#: The time at which a row was sent, in microseconds, where it is not that of the append.
SENT_HEADER = f"{HEADER_PREFIX}sent"
#: The time of a punctuation, in microseconds: the message holds no row.
PUNCTUATION_HEADER = f"{HEADER_PREFIX}punctuation"
_TIME = struct.Struct(">q")
#: Kafka's own clients choose the partition of a message of another program's topic.
ANY_PARTITION = -1


class Encoded(NamedTuple):
    """Rows of one topic as messages, by partition, and how many rows there are."""

    known: KafkaTopic
    messages: dict[Place, Messages]
    rows: int


class Sending:
    """Messages on their way to the brokers."""

    def __init__(
        self,
        cluster: Cluster,
        deliveries: Mapping[Place, Delivery],
        largest: Mapping[Place, int],
        topic: str,
        count: int = 0,
    ) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._largest = largest
        self._topic = topic
        #: How many messages there are.
        self.count = count

    def wait(self) -> dict[Place, tuple[int, int]]:
        """Wait until all are acknowledged; returns their offsets on Kafka."""
        found: dict[Place, tuple[int, int]] = {}
        for place, delivery in self._deliveries.items():
            if not delivery.wait(self._cluster.seconds_max + 5):
                raise self._cluster.unreachable()
            if delivery.error is not None:
                raise self._refused(KafkaException(delivery.error), place)
            found.update({Place(place.topic, number): ends for number, ends in delivery.ranges.items()})
        return found

    def _refused(self, error: KafkaException, place: Place) -> Exception:
        if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return self._cluster.too_large(place.topic, self._largest[place])
        return self._cluster.translated(error.args[0], what=f"rows of topic {self._topic!r}", name=self._topic)


class Writer:
    """Encodes rows for topics, and appends them."""

    def __init__(self, cluster: Cluster, catalogue: Catalogue, *, config: Config, clock: Clock) -> None:
        self._cluster = cluster
        self._catalogue = catalogue
        self._config = config
        self._clock = clock
        self._turns = itertools.count()

    # -- rows as messages ---------------------------------------------------------------------------------------------

    # Any: headers as `Log.append` takes them.
    def encode(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        sent_at_us: int | None = None,
        sequence: int | None = None,
    ) -> Encoded:
        """The messages of rows. Rows that do not fit what this process knows of a topic are tried on what it is now."""
        known = self._catalogue.get(topic, fresh=False)
        if not isinstance(rows, (list, Mapping)) and hasattr(rows, "__next__"):
            rows = list(rows)
        try:
            return self._encode(known, rows, partition, headers, sent_at_us, sequence)
        except RowInvalid:
            now = self._catalogue.get(topic)
            if now is known:
                raise
            return self._encode(now, rows, partition, headers, sent_at_us, sequence)

    def _encode(
        self,
        known: KafkaTopic,
        rows: Rows,
        partition: int | None,
        headers: Any,
        sent_at_us: int | None,
        sequence: int | None,
    ) -> Encoded:
        topic = known.topic
        if partition is not None and not 0 <= partition < topic.partitions:
            raise partition_not_found(topic=topic.name, partition=partition, partitions=topic.partitions)
        if sequence is not None and partition is None and not topic.key:
            partition = sequence % topic.partitions  # a batch that is sent again goes where it went before
        elsewhere = known.foreign and partition is None and topic.partitions > 1
        batches = batches_of(
            topic,
            rows,
            config=self._config,
            turn=lambda: next(self._turns),
            partition=0 if elsewhere else partition,
            headers=headers,
        )
        messages: dict[Place, Messages] = {}
        count = 0
        for number, part in batches:
            place = Place(known.kafka, ANY_PARTITION if elsewhere else number)
            messages.setdefault(place, []).extend(self._messages(known, part, sent_at_us))
            count += part.data.num_rows
        return Encoded(known, messages, count)

    def _messages(self, known: KafkaTopic, part: RowBatch, sent_at_us: int | None) -> Messages:
        values = known.values
        own = [(SENT_HEADER, _TIME.pack(sent_at_us))] if sent_at_us is not None else []
        if not values.per_row:
            pieces = [part] if part.data.num_rows <= ROWS_MAX else _pieces(part)
            return [
                {"value": one.value, "headers": [*one.headers, *own]}
                for piece in pieces
                for one in values.encode(piece, bytes_max=MESSAGE_BYTES_MAX)
            ]
        out = values.encode(part, bytes_max=MESSAGE_BYTES_MAX)
        keys = encode_keys(part.data, known.topic.key)
        if part.headers is None:
            return [
                {"value": one.value, "key": key, "headers": [*one.headers, *own]}
                for one, key in zip(out, keys, strict=True)
            ]
        theirs = part.headers.to_pylist()
        return [
            {"value": one.value, "key": key, "headers": [*(more or ()), *one.headers, *own]}
            for one, key, more in zip(out, keys, theirs, strict=True)
        ]

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(self, encoded: Encoded) -> Appended:
        """Send messages, and wait until all are acknowledged."""
        return self.appended(encoded, self.send(encoded.messages, topic=encoded.known.topic.name))

    def send(self, messages: dict[Place, Messages], *, topic: str) -> dict[Place, tuple[int, int]]:
        """Send messages, and wait until all are acknowledged; returns their offsets on Kafka."""
        return self.begin(messages, topic=topic).wait()

    def begin(self, messages: dict[Place, Messages], *, topic: str) -> Sending:
        """Send messages, and do not wait."""
        if not messages:
            return Sending(self._cluster, {}, {}, topic)
        producer = self._cluster.producer()
        with self._cluster.errors(what="messages", name=topic):
            deliveries = send_all(producer, messages, seconds_max=self._cluster.seconds_max)
        sizes = {place: largest(some) for place, some in messages.items()}
        return Sending(self._cluster, deliveries, sizes, topic, sum(map(len, messages.values())))

    def appended(
        self, encoded: Encoded, ranges: Mapping[Place, tuple[int, int]], *, duplicate: bool = False
    ) -> Appended:
        """The offsets of rows whose messages have these offsets on Kafka."""
        known = encoded.known
        numbers = Numbering(per_row=known.values.per_row)
        own = {
            place.partition: (numbers.first(start), numbers.first(stop))
            for place, (start, stop) in sorted(ranges.items())
            if place.topic == known.kafka
        }
        return Appended(topic=known.topic.name, ranges=own, rows=encoded.rows, duplicate=duplicate)

    def punctuate(self, topic: str, time: datetime | int, *, partition: int | None) -> None:
        """Send a message that is a punctuation to one partition, or to all."""
        known = self._catalogue.get(topic, fresh=False)
        partitions = known.topic.partitions
        if partition is not None and not 0 <= partition < partitions:
            raise partition_not_found(topic=topic, partition=partition, partitions=partitions)
        message = {"value": b"", "key": b"", "headers": [(PUNCTUATION_HEADER, _TIME.pack(time_us(time)))]}
        numbers = range(partitions) if partition is None else [partition]
        self.send({Place(known.kafka, number): [dict(message)] for number in numbers}, topic=topic)


def _pieces(part: RowBatch) -> list[RowBatch]:
    def cut(array: Any, start: int) -> Any:  # Any: Arrow's batches and arrays have the same methods, and no types
        return None if array is None else array.slice(start, ROWS_MAX)

    return [
        RowBatch(cut(part.data, start), cut(part.headers, start), cut(part.tombstones, start))
        for start in range(0, part.data.num_rows, ROWS_MAX)
    ]


def time_of(value: bytes | None) -> int:
    """The time in a header."""
    return _TIME.unpack(value or b"\0" * 8)[0] if value is not None and len(value) == 8 else 0
