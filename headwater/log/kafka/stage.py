"""Rows that wait for their transaction in an internal topic: those of tasks, and those of prepared transactions.

Each is the message that the transaction will send, with two headers more: the stage that it belongs to, and its place. So
any process can send it, on any host. The price: rows pass the brokers twice, and stay there until retention ends them.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
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
from headwater.log.kafka.records import create_topic
from headwater.log.kafka.values.port import HEADER_PREFIX
from headwater.log.kafka.writer import Encoded, Writer
from headwater.log.port import Stage, Staged
from headwater.units import MIB

STAGE_HEADER, PLACE_HEADER = f"{HEADER_PREFIX}stage", f"{HEADER_PREFIX}place"
#: Rows are collected up to this size before they become messages: many small frames would cost readers more.
COLLECTED_BYTES_MAX = 4 * MIB
PARTITIONS = 4
DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class StageInfo:
    """What a stage has written: where its messages are, and how many; the rows and the id of each topic."""

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

    def to_json(self) -> Staged:
        return Staged(orjson.dumps(asdict(self)).decode())

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        body = orjson.loads(text)
        topics = {name: (id, rows) for name, (id, rows) in body.pop("topics").items()}
        return cls(**body, topics=topics)


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

    def open(self, name: str, *, sequence: int, attempt: str) -> KafkaStage:
        return KafkaStage(self, self._writer, name, sequence=sequence, attempt=attempt)

    def write(self, id: str, number: int, encoded: Encoded) -> tuple[int, int, int]:
        """Write messages of a stage; returns their first offset, the one behind the last, and how many there are."""
        self.make()
        marked: Messages = []
        for place, messages in encoded.messages.items():
            name = orjson.dumps([encoded.known.topic.name, place.partition])
            for one in messages:
                headers = [*one.get("headers", ()), (STAGE_HEADER, id.encode()), (PLACE_HEADER, name)]
                marked.append({**one, "headers": headers})
        if not marked:
            return 0, 0, 0
        found = self._writer.send({Place(self.topic, number): marked}, topic=encoded.known.topic.name)
        start, stop = found[Place(self.topic, number)]
        reach("kafka.staged")
        return start, stop, len(marked)

    def read(self, stages: Iterable[StageInfo]) -> dict[Place, Messages]:
        """The messages of stages, by the places that they wait for; raise if one is gone."""
        found: dict[Place, Messages] = {}
        for stage in stages:
            self._check_topics(stage)
            count = 0
            if stage.messages:
                end = self._cluster.offsets(self.topic, [stage.partition], LATEST)[stage.partition][0]
                id = stage.id.encode()
                for some in self._cluster.messages(self.topic, stage.partition, stage.start, min(stage.stop, end)):
                    for message in some:
                        headers = dict(message.headers)
                        if headers.get(STAGE_HEADER) != id:
                            continue
                        topic, number = orjson.loads(headers[PLACE_HEADER] or b"[]")
                        own = [pair for pair in message.headers if pair[0] not in (STAGE_HEADER, PLACE_HEADER)]
                        place = Place(self._cluster.address.topic(topic), number)
                        one = {"key": message.key, "value": message.value, "headers": own}
                        found.setdefault(place, []).append(one)
                        count += 1
            if count != stage.messages:
                raise gone(stage)
        return found

    def _check_topics(self, stage: StageInfo) -> None:
        for name, (id, _) in stage.topics.items():
            now = self._catalogue.id_now(name)
            if now != id:
                near = "" if now is None else " It was deleted and created again since its rows were staged."
                raise NotFound(kind="topic", name=name, near=near)


class KafkaStage(Stage):
    """Rows of any topics that one task writes ahead."""

    def __init__(self, staging: Staging, writer: Writer, name: str, *, sequence: int, attempt: str) -> None:
        self._staging = staging
        self._writer = writer
        self._name = name
        self._sequence = sequence
        self._attempt = attempt
        self._id = uuid.uuid4().hex
        self._partition = xxhash.xxh32_intdigest(self._id.encode()) % PARTITIONS
        self._collected: dict[str, list[pa.RecordBatch]] = {}
        self._bytes: dict[str, int] = {}
        self._topics: dict[str, tuple[str, int]] = {}
        self._start, self._stop, self._messages = -1, 0, 0

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
        """Write messages that are encoded already."""
        start, stop, messages = self._staging.write(self._id, self._partition, encoded)
        name = encoded.known.topic.name
        known = self._topics.get(name, (encoded.known.kafka_id, 0))
        self._topics[name] = (known[0], known[1] + encoded.rows)
        if messages:
            self._start = start if self._start < 0 else self._start
            self._stop, self._messages = stop, self._messages + messages

    def finish(self) -> Staged:
        for topic in list(self._collected):
            self._flush(topic)
        return self.info().to_json()

    def info(self) -> StageInfo:
        return StageInfo(
            id=self._id,
            name=self._name,
            sequence=self._sequence,
            attempt=self._attempt,
            partition=self._partition,
            start=max(self._start, 0),
            stop=self._stop,
            messages=self._messages,
            topics=self._topics,
        )

    def abandon(self) -> None:
        """Forget the rows: no commit is told of them, and retention ends them."""
        self._collected.clear()

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
