"""Transactions of Kafka under transactional ids, and the fence that is written in each.

Who commits under a name owns its transactional id: to own it, a process makes a producer with it, which fences the
producer of the process before, and aborts what that one had open. Only then it reads the fence, and decides. If another
process has begun meanwhile, the commit fails, nothing of it becomes visible, and the decision is made again.

The fence of a name is an offset of a consumer group of its own, committed in the same transaction as the rows: it is
read in one request, whatever other transactions are open. Its metadata say what was committed.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from headwater.errors import HeadwaterError
from headwater.faults import reach
from headwater.log.kafka.cluster import Cluster, is_set, of_parent
from headwater.log.kafka.delivery import Messages, Place, largest, send_all
from headwater.log.kafka.error_codes import FENCED, REDONE
from headwater.log.kafka.errors import TransactionContended

#: How often a commit is tried again after another process has fenced it.
ATTEMPTS_MAX = 12
TIMEOUT_MS = 60_000
#: Kafka's own limit of the metadata of an offset is 4096 bytes.
METADATA_BYTES_MAX = 4_000
#: Producers without a name that are kept; more are made and closed.
SPARE_MAX = 4
#: So long a producer first waits for the coordinator of a group; each time in vain, the next one waits twice as long.
OFFSETS_SECONDS = 2.0
SPARE = "spare-"

Ranges = dict[Place, tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What one transaction writes: messages by partition, and offsets of groups. `fence` makes one more, of the ranges."""

    messages: dict[Place, Messages]
    offsets: dict[str, list[TopicPartition]] = field(default_factory=dict)
    fence: Callable[[Ranges], tuple[str, TopicPartition]] | None = None
    #: Whether a decision that is made again sees what this commit has written, if it was written after all.
    repeatable: bool = False


@dataclass
class Progress:
    """How far a commit came, under a name that other processes may have as well."""

    is_shared: bool
    #: How long it may wait for the coordinator of a group.
    offsets_seconds: float
    #: Whether the brokers were asked to commit: without an answer it is not known whether they did.
    committing: bool = False
    #: Whether a call to the producer has not returned: it takes no other one.
    stuck: bool = False

    def may_abort(self, error: KafkaError) -> bool:
        """Whether the producer can abort its transaction. If not, the next producer of the name does it."""
        return not error.fatal() and not self.stuck and (not self.committing or bool(error.txn_requires_abort()))


class Transactor:
    """The transactional producers of one log in this process, by their ids."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._locks: dict[str, threading.RLock] = {}
        self._producers: dict[str, tuple[int, Producer]] = {}
        self._spare: list[str] = []
        # Any: librdkafka's value, which has no public type.
        self._groups: dict[str, Any] = {}

    # -- owning an id -------------------------------------------------------------------------------------------------

    @contextmanager
    def owned(self, name: str) -> Iterator[None]:
        """One thread at a time commits under a name."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.RLock())
        with lock:
            yield

    def own(self, name: str, *, again: bool = False) -> Producer:
        """The producer of a name; if it is new, it has fenced all others of the name."""
        epoch = self._cluster.epoch()
        known = self._producers.get(name)
        if known is not None and known[0] == epoch and not again:
            return known[1]
        if known is not None and known[0] != epoch:
            of_parent(known)
        producer = self._cluster.new_producer(
            **{
                "transactional.id": f"{self._cluster.address.prefix}headwater.{name}",
                "transaction.timeout.ms": TIMEOUT_MS,
                "message.timeout.ms": TIMEOUT_MS,
                # To be fenced is no failure here, and is told as an error: the client would also print it.
                "logger": _silent(),
            }
        )
        with self._cluster.errors(what="a transactional producer", name=name):
            self._retried(partial(producer.init_transactions, self._cluster.seconds_max))
        self._producers[name] = (epoch, producer)
        return producer

    @contextmanager
    def spare(self) -> Iterator[str]:
        """An id of this process for a transaction that has no name."""
        with self._lock:
            name = self._spare.pop() if self._spare else f"{SPARE}{uuid.uuid4().hex}"
        try:
            yield name
        finally:
            with self._lock:
                if len(self._spare) < SPARE_MAX:
                    self._spare.append(name)
                else:
                    self._producers.pop(name, None)

    # -- committing ---------------------------------------------------------------------------------------------------

    def run(self, name: str, decide: Callable[[], Commit | None]) -> Ranges | None:
        """Commit what `decide` returns under a name, in one transaction; None if it decides that there is nothing to do.

        `decide` runs while the name is owned, and again if another process took the name before the commit, or if a
        broker that the transaction needed was lost. What a commit without an answer has done is decided by the fence,
        which is read by a producer that has ended the transaction of the one before; without a fence it is an error.
        """
        deadline, fenced, wait = time.monotonic() + self._cluster.seconds_max, 0, OFFSETS_SECONDS
        with self.owned(name):
            while True:
                producer = self.own(name, again=False)
                commit = decide()
                if commit is None:
                    return None
                # No other process has a spare name: to be fenced at the end says nothing of what was done before.
                progress = Progress(is_shared=not name.startswith(SPARE), offsets_seconds=wait)
                try:
                    return self._commit(producer, commit, progress)
                except (KafkaException, SystemError) as raised:
                    self._producers.pop(name, None)
                    error = _kafka_error(raised)
                    if _was_fenced(error.args[0].code(), commit, progress):
                        fenced += 1
                        if fenced == ATTEMPTS_MAX:
                            raise TransactionContended(name=name, attempts=ATTEMPTS_MAX) from error
                        time.sleep(random.uniform(0, 0.02 * 2 ** min(fenced - 1, 5)))
                    elif not _may_be_redone(error.args[0], commit, progress) or time.monotonic() > deadline:
                        raise self._translated(error, commit) from error
                    if progress.stuck:
                        wait *= 2

    def _translated(self, error: KafkaException, commit: Commit) -> HeadwaterError:
        topic = next(iter(commit.messages), Place("", 0)).topic
        return self._cluster.translated(
            error.args[0], what="a transaction", name=self._cluster.address.name(topic) or topic
        )

    def _commit(self, producer: Producer, commit: Commit, progress: Progress) -> Ranges:
        seconds = self._cluster.seconds_max
        producer.begin_transaction()
        try:
            deliveries = send_all(producer, commit.messages, seconds_max=seconds, only_edges=True)
            reach("kafka.sent")
            self._flush(producer)
            for place, delivery in deliveries.items():
                if delivery.error is not None and delivery.error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise self._cluster.too_large(place.topic, largest(commit.messages[place]))
                if delivery.error is not None:
                    raise KafkaException(delivery.error)
            ranges = {
                Place(place.topic, number): found
                for place, delivery in deliveries.items()
                for number, found in delivery.ranges.items()
            }
            offsets = dict(commit.offsets)
            if commit.fence is not None:
                group, fence = commit.fence(ranges)
                offsets[group] = [*offsets.get(group, ()), fence]
            for group, places in offsets.items():
                told = self._group(group)
                self._retried(partial(self._send_offsets, producer, places, told, progress))
            reach("kafka.committing")
            progress.committing = True
            self._retried(partial(producer.commit_transaction, seconds))
        except (KafkaException, SystemError) as error:
            if progress.may_abort(_kafka_error(error).args[0]):
                self._abort(producer)
            raise
        except BaseException:
            self._abort(producer)
            raise
        reach("kafka.committed")
        self._cluster.wait_until_visible(ranges)
        return ranges

    def _flush(self, producer: Producer) -> None:
        """Wait until each message is delivered or refused."""
        deadline = time.monotonic() + self._cluster.seconds_max
        while producer.flush(1.0):
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, "no broker acknowledges messages"))

    # Any: librdkafka's value, which has no public type.
    def _send_offsets(self, producer: Producer, places: list[TopicPartition], told: Any, progress: Progress) -> None:
        """Send offsets of a group in a thread, which is left behind with its producer if the call does not return.

        librdkafka waits for the coordinator of the group that the producer knows, without a time-out, also while that
        broker is gone. The producer that comes next finds the new coordinator, and fences the one that waits.
        """
        raised: list[BaseException] = []

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(places, told, self._cluster.seconds_max)
            except BaseException as error:  # it is raised in the thread that waits
                raised.append(error)

        thread = threading.Thread(target=send, name="headwater-kafka-offsets", daemon=True)
        thread.start()
        thread.join(min(progress.offsets_seconds, self._cluster.seconds_max / 3))
        if thread.is_alive():
            progress.stuck = True
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the coordinator of a group does not answer"))
        if raised:
            raise raised[0]

    def _abort(self, producer: Producer) -> None:
        try:
            self._retried(partial(producer.abort_transaction, self._cluster.seconds_max))
        except KafkaException:
            # The broker aborts it when the id is used again, or after its timeout.
            producer.purge()

    def _retried(self, act: Callable[[], object]) -> None:
        deadline = time.monotonic() + self._cluster.seconds_max
        while True:
            try:
                act()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    # Any: librdkafka's value, which has no public type.
    def _group(self, group: str) -> Any:
        found = self._groups.get(group)
        if found is None:
            with self._cluster.group_client(group) as client:
                found = self._groups[group] = client.consumer_group_metadata()
        return found

    # -- fences -------------------------------------------------------------------------------------------------------

    def fence_group(self, name: str) -> str:
        return f"{self._cluster.address.prefix}__headwater.{name}"

    # Any: metadata are JSON.
    def fence(self, name: str, topic: str) -> tuple[int, dict[str, Any]]:
        """The last sequence that was committed under a name for a topic of Kafka, -1 for none, and what it said."""
        for place in self._cluster.group_offsets(self.fence_group(name), [TopicPartition(topic, 0)]):
            if is_set(place.offset):
                return place.offset - 1, orjson.loads(place.metadata) if place.metadata else {}
        return -1, {}

    def close(self) -> None:
        self._producers.clear()
        self._groups.clear()


@cache
def _silent() -> logging.Logger:
    found = logging.Logger("headwater.kafka")
    found.addHandler(logging.NullHandler())
    return found


def _was_fenced(code: int, commit: Commit, progress: Progress) -> bool:
    """Whether another process has taken the name. A broker that is about to fence says only that it has failed."""
    is_fenced = code in FENCED and (progress.is_shared or not progress.committing)
    return is_fenced or (code == KafkaError.UNKNOWN and (commit.repeatable or commit.fence is not None))


def _may_be_redone(error: KafkaError, commit: Commit, progress: Progress) -> bool:
    """Whether a transaction failed because brokers changed, and is safe to make again."""
    passes = error.code() in REDONE or error.retriable() or error.txn_requires_abort()
    is_known = not progress.committing or error.txn_requires_abort()
    return passes and (is_known or commit.repeatable or commit.fence is not None)


def _kafka_error(error: BaseException) -> KafkaException:
    """The error of the client. A producer that is fenced raises in the middle of its callbacks, where Python may lose it."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KafkaException):
            return found
        found = found.__cause__ or found.__context__
    return KafkaException(KafkaError(KafkaError._FENCED, "the producer has ended", fatal=True))


# Any: metadata are JSON.
def fence_of(group: str, topic: str, sequence: int, told: dict[str, Any]) -> tuple[str, TopicPartition]:
    """The fence of a sequence, with what was committed as its metadata, if there is room for it."""
    text = orjson.dumps(told, option=orjson.OPT_NON_STR_KEYS).decode()
    if len(text) > METADATA_BYTES_MAX:
        text = orjson.dumps({"elsewhere": True}).decode()
    return group, TopicPartition(topic, 0, sequence + 1, text)
