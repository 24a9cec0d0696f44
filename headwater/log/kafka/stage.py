"""Rows that wait for their transaction in an internal topic: those of tasks, and those of prepared transactions.

They wait as the messages that the transaction will send, in packs. So any process can send them, on any host. The price: rows
pass the brokers twice, and stay there until retention ends them. Few rows do not: they are a part of what the stage
returns, and go the way that its caller has for that.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import orjson
import pyarrow as pa
import xxhash

from headwater.errors import NotFound
from headwater.faults import reach
from headwater.log.client_config import Rows
from headwater.log.kafka.catalogue import Catalogue
from headwater.log.kafka.cluster import LATEST, Cluster
from headwater.log.kafka.delivery import Messages, Place
from headwater.log.kafka.packs import packs, unpacked
from headwater.log.kafka.records import create_topic
from headwater.log.kafka.values.port import HEADER_PREFIX
from headwater.log.kafka.writer import Encoded, Sending, Writer
from headwater.log.port import Stage, Staged
from headwater.units import MIB

STAGE_HEADER, PLACE_HEADER = f"{HEADER_PREFIX}stage", f"{HEADER_PREFIX}place"
#: Rows are collected up to this size before they become messages: many small frames would cost readers more.
COLLECTED_BYTES_MAX = 4 * MIB
#: A stage with so many bytes does not use the brokers.
INLINE_BYTES_MAX = 256 * 1024
PARTITIONS = 4
DAY_MS = 86_400_000


#: A topic, one of its partitions, and messages for it.
Pack = tuple[str, int, bytes]


@dataclass(frozen=True, kw_only=True)
class StageInfo:
    """What a stage has written: where its packs are, and how many; the rows and the id of each topic."""

    id: str
    name: str
    sequence: int
    attempt: str
    partition: int
    start: int
    stop: int
    messages: int
    #: By the topic's name: Kafka's id, and the number of rows.
    topics: Mapping[str, tuple[str, int]]
    #: Packs that were not written to the brokers: the topic, the partition, and base64.
    inline: list[tuple[str, int, str]] = field(default_factory=list)

    def to_json(self) -> Staged:
        return Staged(orjson.dumps(asdict(self)).decode())

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        body = orjson.loads(text)
        topics = {name: (id, rows) for name, (id, rows) in body.pop("topics").items()}
        inline = [(topic, number, pack) for topic, number, pack in body.pop("inline", ())]
        return cls(**body, topics=topics, inline=inline)


class Staging:
    """The internal topic with rows that wait."""

    def __init__(
        self, cluster: Cluster, catalogue: Catalogue, writer: Writer, *, topic: str, days: int, replication: int | None
    ) -> None:
        self.topic = cluster.address.topic(topic)
        self._cluster = cluster
        self._catalogue = catalogue
        self._writer = writer
        self._days = days
        self._replication = replication
        self._lock = threading.Lock()
        self._exists = False

    def make(self) -> None:
        """Create the topic unless it exists."""
        with self._lock:
            if not self._exists:
                settings = {"retention.ms": str(self._days * DAY_MS), "message.timestamp.type": "LogAppendTime"}
                create_topic(
                    self._cluster, self.topic, partitions=PARTITIONS, settings=settings, replication=self._replication
                )
                self._exists = True

    def open(self, name: str, *, sequence: int, attempt: str, inline_bytes_max: int = INLINE_BYTES_MAX) -> KafkaStage:
        return KafkaStage(
            self, self._writer, name, sequence=sequence, attempt=attempt, inline_bytes_max=inline_bytes_max
        )

    def send(self, id: str, number: int, some: Iterable[Pack]) -> Sending:
        """Begin to write packs of a stage to a partition."""
        self.make()
        messages: Messages = [
            {
                "value": pack,
                "headers": [(STAGE_HEADER, id.encode()), (PLACE_HEADER, orjson.dumps([topic, partition]))],
            }
            for topic, partition, pack in some
        ]
        return self._writer.begin({Place(self.topic, number): messages}, topic=self.topic)

    def read(self, stages: Iterable[StageInfo]) -> dict[Place, Messages]:
        """The messages of stages, by the places that they wait for; raise if one is gone."""
        found: dict[Place, Messages] = {}
        for stage in stages:
            self._check_topics(stage)
            for topic, number, pack in self._packs(stage):
                found.setdefault(Place(self._cluster.address.topic(topic), number), []).extend(unpacked(pack))
        return found

    def _packs(self, stage: StageInfo) -> Iterator[Pack]:
        yield from ((topic, number, base64.b64decode(text)) for topic, number, text in stage.inline)
        if not stage.messages:
            return
        count = 0
        end = self._cluster.offsets(self.topic, [stage.partition], LATEST)[stage.partition][0]
        id = stage.id.encode()
        for some in self._cluster.messages(self.topic, stage.partition, stage.start, min(stage.stop, end)):
            for message in some:
                headers = dict(message.headers)
                if headers.get(STAGE_HEADER) == id:
                    topic, number = orjson.loads(headers[PLACE_HEADER] or b"[]")
                    count += 1
                    yield topic, number, message.value or b""
        if count != stage.messages:
            raise gone(stage)

    def _check_topics(self, stage: StageInfo) -> None:
        for name, (id, _) in stage.topics.items():
            now = self._catalogue.id_now(name)
            if now != id:
                near = "" if now is None else " It was deleted and created again since its rows were staged."
                raise NotFound(kind="topic", name=name, near=near)


class KafkaStage(Stage):
    """Rows of any topics that one task writes ahead."""

    def __init__(
        self, staging: Staging, writer: Writer, name: str, *, sequence: int, attempt: str, inline_bytes_max: int
    ) -> None:
        self._staging = staging
        self._writer = writer
        self._name = name
        self._sequence = sequence
        self._attempt = attempt
        self._inline_bytes_max = inline_bytes_max
        self._id = uuid.uuid4().hex
        self._partition = xxhash.xxh32_intdigest(self._id.encode()) % PARTITIONS
        self._collected: dict[str, list[pa.RecordBatch]] = {}
        self._bytes: dict[str, int] = {}
        self._topics: dict[str, tuple[str, int]] = {}
        #: Packs that are not sent: all of them, as long as they are few.
        self._waiting: list[Pack] = []
        self._waiting_bytes = 0
        self._sent: list[Sending] = []

    def append(self, topic: str, rows: Rows) -> None:
        if not isinstance(rows, pa.RecordBatch):
            self._flush(topic)
            self._write(topic, rows)
            return
        self._collected.setdefault(topic, []).append(rows)
        self._bytes[topic] = self._bytes.get(topic, 0) + rows.nbytes
        if self._bytes[topic] >= COLLECTED_BYTES_MAX:
            self._flush(topic)

    def write_encoded(self, encoded: Encoded) -> None:
        """Write messages that are encoded already. It does not wait for the brokers; `finish` does."""
        name = encoded.known.topic.name
        known = self._topics.get(name, (encoded.known.kafka_id, 0))
        self._topics[name] = (known[0], known[1] + encoded.rows)
        for place, messages in encoded.messages.items():
            for pack in packs(messages):
                self._waiting.append((name, place.partition, pack))
                self._waiting_bytes += len(pack)
        if self._waiting_bytes > self._inline_bytes_max or self._sent:
            self._send()

    def finish(self) -> Staged:
        for topic in list(self._collected):
            self._flush(topic)
        return self.info().to_json()

    def info(self) -> StageInfo:
        """Where everything is, when the brokers have what was sent to them."""
        ranges = [sent.wait()[Place(self._staging.topic, self._partition)] for sent in self._sent]
        if ranges:
            reach("kafka.staged")
        return StageInfo(
            id=self._id,
            name=self._name,
            sequence=self._sequence,
            attempt=self._attempt,
            partition=self._partition,
            start=min((start for start, _ in ranges), default=0),
            stop=max((stop for _, stop in ranges), default=0),
            messages=sum(sent.count for sent in self._sent),
            topics=self._topics,
            inline=[(topic, number, base64.b64encode(pack).decode()) for topic, number, pack in self._waiting],
        )

    def _send(self) -> None:
        if self._waiting:
            self._sent.append(self._staging.send(self._id, self._partition, self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def abandon(self) -> None:
        """Forget the rows: no commit is told of them, and retention ends them."""
        self._collected.clear()
        self._waiting.clear()

    def _flush(self, topic: str) -> None:
        batches = self._collected.pop(topic, [])
        self._bytes.pop(topic, None)
        if batches:
            same = all(batch.schema.equals(batches[0].schema) for batch in batches)
            self._write(topic, pa.Table.from_batches(batches).combine_chunks() if same else batches)

    # Any: rows as `Log.append` takes them.
    def _write(self, topic: str, rows: Any) -> None:
        self.write_encoded(self._writer.encode(topic, rows, sequence=None))


def gone(stage: StageInfo) -> NotFound:
    """The error for rows that were discarded, or whose time has passed."""
    near = f" The rows staged as attempt {stage.attempt!r} of sequence {stage.sequence} are gone."
    return NotFound(kind="staged rows", name=stage.name, near=near)
