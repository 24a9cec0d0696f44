"""Transactions of a log on Kafka: rows of any topics, offsets of groups and the fence of a producer, all or nothing.

Rows are kept in memory until the commit, and then sent in one transaction of Kafka that takes milliseconds: an open
transaction of ours hides nothing from readers, and has no timeout.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
from confluent_kafka import TopicPartition

from headwater.errors import NotFound, did_you_mean
from headwater.faults import reach
from headwater.log.client_config import Rows
from headwater.log.errors import ProducerFenced, TransactionFinished
from headwater.log.kafka.catalogue import Catalogue, KafkaTopic
from headwater.log.kafka.cluster import Cluster
from headwater.log.kafka.delivery import Messages, Place
from headwater.log.kafka.fence import Commit, Ranges, Transactor, fence_of
from headwater.log.kafka.records import Records, Table
from headwater.log.kafka.row_offsets import Numbering
from headwater.log.kafka.stage import StageInfo, Staging, gone
from headwater.log.kafka.writer import Encoded, Writer
from headwater.log.port import Appended, Offsets, Staged, Transaction
from headwater.log.topic_rules import check_name

#: Outcomes of prepared transactions that are kept, for a commit that is repeated.
OUTCOMES_MAX = 1_000
#: Holders of a producer that were replaced, and are remembered.
HOLDERS_KEPT = 100


class Transactions:
    """All that commits rows under a name, or without one."""

    def __init__(
        self,
        cluster: Cluster,
        catalogue: Catalogue,
        writer: Writer,
        transactor: Transactor,
        records: Records,
        staged: Staging,
        prepared: Staging,
    ) -> None:
        self._cluster = cluster
        self._catalogue = catalogue
        self._transactor = transactor
        self._records = records
        self.writer = writer
        self.staged = staged
        self._prepared = prepared

    # -- producers ----------------------------------------------------------------------------------------------------

    def open_producer(self, name: str, *, holder: str | None) -> int:
        """Start a new epoch, and fence what earlier ones have begun; a holder that was replaced is fenced itself."""
        check_name("producer", name)
        key, epoch, is_new = f"producer/{name}", 0, False

        def decide(table: Table) -> Mapping[str, Any]:
            nonlocal epoch, is_new
            known = table.get(key, {"epoch": 0, "holder": None})
            epoch, is_new, past = known["epoch"], False, known.get("past", {})
            if holder is not None and known["holder"] == holder:
                return {}
            if holder in past:
                raise ProducerFenced(producer=name, epoch=past[holder], current=epoch)
            if holder is not None and known["holder"] is not None:
                past = dict([*past.items(), (known["holder"], epoch)][-HOLDERS_KEPT:])
            epoch, is_new = epoch + 1, True
            return {key: {"epoch": epoch, "holder": holder, "past": past}}

        self._records.change(decide)
        if is_new:  # tasks of one run do not take the name from each other
            with self._transactor.owned(_id(name)):
                self._transactor.own(_id(name))
        return epoch

    def check_epoch(self, producer: str, epoch: int | None) -> None:
        """Raise if a newer epoch of the producer was opened."""
        if epoch is None:
            return
        current = self._records.current().get(f"producer/{producer}", {"epoch": 0})["epoch"]
        if epoch < current:
            raise ProducerFenced(producer=producer, epoch=epoch, current=current)

    def last_sequence(self, producer: str, kafka: str | None = None) -> int:
        """The last sequence of a producer's transactions, or of its appends to a topic of Kafka."""
        return self._fence(producer, kafka)[0]

    def last_metadata(self, producer: str) -> dict[str, Any] | None:
        told = self._fence(producer)[1]
        if told.get("elsewhere"):
            told = self._records.current().get(f"fence/{producer}", {})
        found: dict[str, Any] | None = told.get("metadata")
        return found

    def _fence(self, producer: str, kafka: str | None = None) -> tuple[int, dict[str, Any]]:
        if kafka is None and not self._records.exists():
            return -1, {}
        return self._transactor.fence(producer, kafka or self._records.topic)

    # -- appends and transactions -------------------------------------------------------------------------------------

    def append(self, encoded: Encoded, producer: str, *, sequence: int | None, epoch: int | None) -> Appended:
        """Append rows of an idempotent producer: rows and sequence in one transaction."""
        check_name("producer", producer)
        known = encoded.known
        duplicate: Appended | None = None

        def decide() -> Commit | None:
            nonlocal duplicate
            self.check_epoch(producer, epoch)
            if sequence is None:
                return Commit(messages=encoded.messages)
            last, told = self._fence(producer, known.kafka)
            if sequence <= last:
                ranges = {int(number): (start, stop) for number, (start, stop) in told.get("ranges", {}).items()}
                own = ranges if sequence == last else {}
                rows = told.get("rows", 0) if sequence == last else 0
                duplicate = Appended(topic=known.topic.name, ranges=own, rows=rows, duplicate=True)
                return None

            def fence(ranges: Ranges) -> tuple[str, TopicPartition]:
                found = self.writer.appended(encoded, ranges).ranges
                told = {"ranges": found, "rows": encoded.rows}
                return fence_of(self._transactor.fence_group(producer), known.kafka, sequence, told)

            return Commit(messages=encoded.messages, fence=fence)

        ranges = self._transactor.run(_id(producer), decide)
        if duplicate is not None:
            return duplicate
        return self.writer.appended(encoded, ranges or {})

    def begin(self, producer: str | None, *, epoch: int | None, sequence: int | None) -> KafkaTransaction:
        if producer is not None:
            check_name("producer", producer)
            self.check_epoch(producer, epoch)
        was_committed = producer is not None and sequence is not None and sequence <= self.last_sequence(producer)
        return KafkaTransaction(self, producer, epoch=epoch, sequence=sequence, was_committed=was_committed)

    def commit_rows(
        self,
        read: Callable[[], tuple[dict[Place, Messages], Mapping[str, int]]],
        *,
        producer: str | None,
        sequence: int | None,
        epoch: int | None,
        offsets: Mapping[str, list[TopicPartition]] | None = None,
        metadata: dict[str, Any] | None = None,
        topics: Iterable[str] = (),
    ) -> dict[str, Appended]:
        """Commit messages and offsets in one transaction, once for a producer and a sequence.

        `read` returns the messages, and the rows of each topic.
        """
        duplicates: dict[str, Appended] | None = None
        counts: Mapping[str, int] = {}

        def decide() -> Commit | None:
            nonlocal duplicates, counts
            if producer is not None:
                self.check_epoch(producer, epoch)
                if sequence is not None and sequence <= self.last_sequence(producer):
                    duplicates = {name: Appended(topic=name, ranges={}, duplicate=True) for name in topics}
                    return None
            messages, counts = read()
            fence = None
            if producer is not None and sequence is not None:
                self._records.make()
                group, topic = self._transactor.fence_group(producer), self._records.topic

                def fence(_ranges: Ranges) -> tuple[str, TopicPartition]:
                    return fence_of(group, topic, sequence, {"metadata": metadata})

                if metadata is not None and fence({})[1].metadata == _ELSEWHERE:
                    record = {"key": f"fence/{producer}".encode(), "value": orjson.dumps({"metadata": metadata})}
                    messages = {**messages, Place(topic, 0): [record]}
            return Commit(messages=messages, offsets=dict(offsets or {}), fence=fence)

        if producer is not None:
            ranges = self._transactor.run(_id(producer), decide)
        else:
            with self._transactor.spare() as spare:
                ranges = self._transactor.run(spare, decide)
        if duplicates is not None:
            return duplicates
        return {name: self._appended(name, rows, ranges or {}) for name, rows in counts.items()}

    def _appended(self, name: str, rows: int, ranges: Ranges) -> Appended:
        known = self._catalogue.get(name, fresh=False)
        numbers = Numbering(per_row=known.values.per_row)
        own = {
            place.partition: (numbers.first(start), numbers.first(stop))
            for place, (start, stop) in sorted(ranges.items())
            if place.topic == known.kafka
        }
        return Appended(topic=name, ranges=own, rows=rows)

    # -- staged rows --------------------------------------------------------------------------------------------------

    def commit_staged(
        self,
        staged: Iterable[Staged],
        *,
        producer: str | None,
        sequence: int | None,
        epoch: int | None,
        metadata: dict[str, Any] | None,
    ) -> dict[str, Appended]:
        stages = [StageInfo.from_json(one) for one in staged]
        if producer is not None:
            check_name("producer", producer)

        def read() -> tuple[dict[Place, Messages], Mapping[str, int]]:
            self._check_not_discarded(stages)
            return self.staged.read(stages), _counts(stages)

        found = self.commit_rows(
            read,
            producer=producer,
            sequence=sequence,
            epoch=epoch,
            metadata=metadata,
            topics={topic for stage in stages for topic in stage.topics},
        )
        if producer is not None and sequence is not None:
            self._forget_discards(producer, sequence)
        return found

    def discard_attempts(self, name: str, *, sequence: int, attempt: str) -> None:
        """Remember that what these attempts have staged must not be committed."""
        self._records.change(lambda _table: {f"discarded/{name}/{sequence}/{attempt}": {}})

    def _check_not_discarded(self, stages: Iterable[StageInfo]) -> None:
        table = self._records.current()
        for stage in stages:
            beginning = f"discarded/{stage.name}/{stage.sequence}/"
            discarded = [key.removeprefix(beginning) for key in table if key.startswith(beginning)]
            if any(stage.attempt.startswith(attempt) for attempt in discarded):
                raise gone(stage)

    def _forget_discards(self, producer: str, sequence: int) -> None:
        beginning = f"discarded/{producer}/"
        old = [
            key
            for key in self._records.known()
            if key.startswith(beginning) and int(key.removeprefix(beginning).partition("/")[0]) <= sequence
        ]
        if old:
            self._records.change(lambda _table: dict.fromkeys(old))

    # -- prepared transactions ----------------------------------------------------------------------------------------

    def prepare(
        self,
        id: str,
        encoded: list[Encoded],
        offsets: Mapping[str, list[TopicPartition]],
        *,
        producer: str | None,
        sequence: int | None,
        epoch: int | None,
    ) -> None:
        """Write rows where any process finds them, then a record of the transaction: from then on it is prepared."""
        stage = self._prepared.open("prepared", sequence=0, attempt=id, inline_bytes_max=0)
        for one in encoded:
            stage.write_encoded(one)
        record = {
            "stage": stage.info().to_json(),
            "offsets": {
                group: [[place.topic, place.partition, place.offset, place.metadata] for place in places]
                for group, places in offsets.items()
            },
            "producer": producer,
            "sequence": sequence,
            "epoch": epoch,
        }
        reach("kafka.preparing")
        self._records.change(lambda _table: {f"prepared/{id}": record})
        reach("kafka.prepared")

    def prepared(self) -> list[str]:
        table = self._records.current()
        return sorted(key.removeprefix("prepared/") for key in table if key.startswith("prepared/"))

    def commit_prepared(self, id: str) -> dict[str, Appended]:
        record = self._record(id)
        if "topics" in record:
            return {
                name: Appended(
                    topic=name, ranges={int(n): (a, b) for n, (a, b) in ranges.items()}, rows=rows, duplicate=True
                )
                for name, (rows, ranges) in record["topics"].items()
            }
        stage = StageInfo.from_json(record["stage"])
        offsets = {
            group: [TopicPartition(topic, number, offset, metadata) for topic, number, offset, metadata in places]
            for group, places in record["offsets"].items()
        }
        self.check_epoch(record["producer"] or "", record["epoch"])

        def read() -> tuple[dict[Place, Messages], Mapping[str, int]]:
            return self._prepared.read([stage]), _counts([stage])

        # Its own name and sequence: a commit that is repeated after a crash finds its fence.
        found = self.commit_rows(
            read, producer=f"prepared.{id}", sequence=0, epoch=None, offsets=offsets, topics=stage.topics
        )
        reach("kafka.resolving")
        topics = {
            name: [one.count, {str(n): list(ends) for n, ends in one.ranges.items()}] for name, one in found.items()
        }
        self._finish(id, {"topics": topics})
        if record["producer"] is not None and record["sequence"] is not None:
            self.commit_rows(
                lambda: ({}, {}), producer=record["producer"], sequence=record["sequence"], epoch=record["epoch"]
            )
        return found

    def rollback_prepared(self, id: str) -> None:
        if "stage" not in self._record(id):
            raise NotFound(kind="prepared transaction", name=id)
        self._finish(id, None)

    # Any: a record is JSON.
    def _record(self, id: str) -> dict[str, Any]:
        table = self._records.current()
        record: dict[str, Any] | None = table.get(f"prepared/{id}") or table.get(f"finished/{id}")
        if record is None:
            raise NotFound(kind="prepared transaction", name=id, near=did_you_mean(id, self.prepared()))
        return record

    def _finish(self, id: str, outcome: dict[str, Any] | None) -> None:
        def decide(table: Table) -> Mapping[str, Any]:
            changes: dict[str, Any] = {f"prepared/{id}": None}
            if outcome is not None:
                changes[f"finished/{id}"] = outcome
                finished = [key for key in table if key.startswith("finished/")]
                changes.update(dict.fromkeys(finished[: max(0, len(finished) - OUTCOMES_MAX)]))
            return changes

        self._records.change(decide)

    def check_topics(self, encoded: Iterable[Encoded]) -> None:
        """Raise if a topic was deleted since its rows were encoded."""
        known: dict[str, KafkaTopic] = {one.known.topic.name: one.known for one in encoded}
        for name, one in known.items():
            now = self._catalogue.id_now(name)
            if now != one.kafka_id:
                near = "" if now is None else " It was deleted and created again since."
                raise NotFound(kind="topic", name=name, near=near)

    def group_offsets(
        self, group: str, topic: str, offsets: Offsets, metadata: str
    ) -> tuple[str, list[TopicPartition]]:
        """Offsets of a group, as Kafka's."""
        check_name("group", group)
        known = self._catalogue.get(topic, fresh=False)
        numbers = Numbering(per_row=known.values.per_row)
        places = [
            TopicPartition(known.kafka, number, *numbers.committed(offset, metadata))
            for number, offset in offsets.items()
        ]
        return f"{self._cluster.address.prefix}{group}", places


class KafkaTransaction(Transaction):
    """Rows and offsets that become visible all at once or never; see `Log.transaction`."""

    def __init__(
        self,
        transactions: Transactions,
        producer: str | None,
        *,
        epoch: int | None,
        sequence: int | None,
        was_committed: bool,
    ) -> None:
        self._transactions = transactions
        self._producer = producer
        self._epoch = epoch
        self._sequence = sequence
        self._was_committed = was_committed
        self._id = uuid.uuid4().hex
        self._encoded: list[Encoded] = []
        self._offsets: dict[str, list[TopicPartition]] = {}
        self.outcome = ""

    @property
    def id(self) -> str:
        return self._id

    @property
    def committed(self) -> bool:
        return self._was_committed or self.outcome == "committed"

    # Any: headers as `Log.append` takes them.
    def append(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        sent_at_us: int | None = None,
    ) -> None:
        self._check_open()
        encoded = self._transactions.writer.encode(
            topic, rows, partition=partition, headers=headers, sent_at_us=sent_at_us, sequence=self._sequence
        )
        self._encoded.append(encoded)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        self._check_open()
        name, places = self._transactions.group_offsets(group, topic, offsets, metadata)
        known = {(place.topic, place.partition): place for place in self._offsets.get(name, ())}
        known.update({(place.topic, place.partition): place for place in places})
        self._offsets[name] = list(known.values())

    def prepare(self) -> str:
        self._check_open()
        self._transactions.check_topics(self._encoded)
        self._transactions.prepare(
            self._id,
            self._encoded,
            self._offsets,
            producer=self._producer,
            sequence=self._sequence,
            epoch=self._epoch,
        )
        self.outcome = "prepared"
        return self._id

    def commit(self) -> dict[str, Appended]:
        if self.outcome == "prepared":
            found = self._transactions.commit_prepared(self._id)
        else:
            self._check_open()
            found = self._transactions.commit_rows(
                self._read,
                producer=self._producer,
                sequence=self._sequence,
                epoch=self._epoch,
                offsets=self._offsets,
                topics={one.known.topic.name for one in self._encoded},
            )
        self.outcome = "committed"
        return found

    def rollback(self) -> None:
        if self.outcome == "prepared":
            self._transactions.rollback_prepared(self._id)
        else:
            self._check_open()
        self._encoded.clear()
        self.outcome = "rolled back"

    def _read(self) -> tuple[dict[Place, Messages], Mapping[str, int]]:
        self._transactions.check_topics(self._encoded)
        messages: dict[Place, Messages] = {}
        counts: dict[str, int] = {}
        for one in self._encoded:
            counts[one.known.topic.name] = counts.get(one.known.topic.name, 0) + one.rows
            for place, some in one.messages.items():
                messages.setdefault(place, []).extend(some)
        return messages, counts

    def _check_open(self) -> None:
        if self.outcome:
            raise TransactionFinished(transaction=self._id, outcome=self.outcome)


def _id(producer: str) -> str:
    """The name of a producer's transactional id."""
    return f"producer.{producer}"


def _counts(stages: Iterable[StageInfo]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for stage in stages:
        for topic, (_, rows) in stage.topics.items():
            counts[topic] = counts.get(topic, 0) + rows
    return counts


_ELSEWHERE = orjson.dumps({"elsewhere": True}).decode()
