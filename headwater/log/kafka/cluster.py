"""The connection to a Kafka cluster: its clients, made when they are first used, and its answers as our errors.

Clients of librdkafka have threads, so a process that was forked makes its own. Consumers are kept and lent: making one
costs more than a read.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from headwater.config import Config
from headwater.errors import Closed, HeadwaterError, NotFound
from headwater.log.errors import BrokerUnreachable, OffsetExpired, RowTooLarge
from headwater.log.kafka.address import Address, client_settings
from headwater.log.kafka.delivery import Place
from headwater.log.kafka.errors import AccessDenied, BrokerRefused, CredentialsRefused
from headwater.log.kafka.values.port import Incoming

T = TypeVar("T")
#: Positions that are asked for by name.
EARLIEST, LATEST, NEWEST = OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()
#: The group that consumers name who only read; nothing is ever committed for it.
READERS_GROUP = "headwater-readers"
FETCH = {
    "group.id": READERS_GROUP,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "check.crcs": False,
    # Enough to keep the reader at work. What is fetched beyond the end of its range is thrown away, in each micro-batch again.
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 8_192,
    "max.partition.fetch.bytes": 2 * 1024 * 1024,
    # A full queue is looked at again so soon: a second, which is the client's own value, would starve the reader.
    "fetch.queue.backoff.ms": 2,
    "fetch.error.backoff.ms": 50,
}
#: A read fetches what is there; a wait stays at the broker until something comes.
READ_WAIT_MS, WATCH_WAIT_MS = 10, 500
CONSUMERS_KEPT_MAX = 4

_UNREACHABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_CREDENTIALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
#: The leader of a partition is being chosen, or has just been.
_MOVED = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError._NOENT,  # no leader is known
}
#: A transaction is ending, or the coordinator is being chosen.
_UNSTABLE = {
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
#: A question is asked again after these: a broker that is lost is found again, or another one answers.
_AGAIN = {
    *_MOVED,
    *_UNSTABLE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
}
#: So long a client waits for one broker, which may be gone, before it looks which ones there are.
ATTEMPT_SECONDS_MAX = 3.0
LOOK_SECONDS = 0.5
_AGAIN_SECONDS, _AGAIN_SECONDS_MAX = 0.002, 0.1
#: Another producer with the same transactional id has begun.
FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}


class Reading:
    """A consumer that reads what it is assigned, and the partitions whose leaders it has looked up."""

    def __init__(self, client: Consumer) -> None:
        self.client = client
        self._known: set[tuple[str, int]] = set()

    def assign(self, positions: Mapping[tuple[str, int], int], cluster: Cluster) -> None:
        """Begin at an offset in each partition. A client that must look up a leader by itself does so seconds later."""
        for topic in {topic for topic, _ in positions.keys() - self._known}:
            look = partial(self.client.list_topics, topic=topic, timeout=cluster.attempt_seconds_max)
            cluster.ask(look, name=cluster.address.name(topic) or topic)
        self._known |= positions.keys()
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()]
        with cluster.errors(what="a read"):
            self.client.assign(places)


class Cluster:
    """The clients of one log in this process."""

    def __init__(self, address: Address, config: Config) -> None:
        self.address = address
        self.seconds_max = config.kafka_seconds_max
        self.attempt_seconds_max = min(self.seconds_max, ATTEMPT_SECONDS_MAX)
        # Any: librdkafka's settings are texts, numbers and functions.
        self.settings: dict[str, Any] = client_settings(address, config)
        self.closed = False
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None
        self._idle: dict[int, list[Reading]] = {}
        self._heard: KafkaError | None = None

    def _check(self) -> None:
        if self.closed:
            raise Closed(what="log")
        if self._pid != os.getpid():  # forked: the threads of the parent's clients are not here
            self._lock = threading.RLock()
            self._forget()

    def epoch(self) -> int:
        """Changes when the clients of this process are others: after a fork."""
        self._check()
        return self._pid

    def hear(self, error: KafkaError) -> None:
        """Keep what a client says between calls: only there it tells that it was refused, not merely unanswered."""
        if error.code() in _CREDENTIALS or self._heard is None or self._heard.code() not in _CREDENTIALS:
            self._heard = error

    # -- clients ------------------------------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        self._check()
        with self._lock:
            if self._admin is None:
                settings: dict[str, Any] = {**self.settings, "error_cb": self.hear}
                self._admin = AdminClient(settings)
            return self._admin

    # Any: librdkafka's settings.
    def new_producer(self, **settings: Any) -> Producer:
        self._check()
        usual = {
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.size": 1_000_000,
            "message.max.bytes": 64 * 1024 * 1024,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 524_288,
            "message.timeout.ms": round(self.seconds_max * 1000),
            "partitioner": "murmur2_random",
        }
        producer = Producer({**self.settings, **usual, "error_cb": self.hear, **settings})
        # A client that knows its brokers gets its id at once: one that does not tries again after half a second.
        self.ask(lambda: producer.list_topics(timeout=self.attempt_seconds_max), what="a producer")
        return producer

    def producer(self) -> Producer:
        """The producer of all appends that are not transactions. A thread serves its callbacks."""
        self._check()
        with self._lock:
            if self._producer is None:
                self._producer = self.new_producer()
                threading.Thread(
                    target=self._serve, args=(self._producer,), name="headwater-kafka", daemon=True
                ).start()
            return self._producer

    def _serve(self, producer: Producer) -> None:
        while not self.closed:
            producer.poll(0.1)

    def new_consumer(self, **settings: Any) -> Consumer:
        self._check()
        return Consumer({**self.settings, "error_cb": self.hear, **settings})

    @contextlib.contextmanager
    def consumer(self, *, wait_ms: int = READ_WAIT_MS) -> Iterator[Reading]:
        """Lend a consumer without an assignment."""
        self._check()
        with self._lock:
            idle = self._idle.setdefault(wait_ms, [])
            reading = idle.pop() if idle else None
        if reading is None:
            client = self.new_consumer(**FETCH, **{"fetch.wait.max.ms": wait_ms})
            reading = Reading(client)
        try:
            yield reading
        except GeneratorExit:  # a reader stopped early
            self._put_back(reading, idle)
            raise
        except BaseException:
            reading.client.close()
            raise
        self._put_back(reading, idle)

    def _put_back(self, reading: Reading, idle: list[Reading]) -> None:
        reading.client.unassign()
        with self._lock:
            if not self.closed and len(idle) < CONSUMERS_KEPT_MAX:
                idle.append(reading)
                return
        reading.client.close()

    def close(self) -> None:
        if self.closed:
            return
        with self._lock:
            self.closed = True
            if self._pid != os.getpid():
                return
            for reading in [reading for idle in self._idle.values() for reading in idle]:
                reading.client.close()
            if self._producer is not None:
                self._producer.flush(5.0)
            self._forget()

    # -- questions ----------------------------------------------------------------------------------------------------

    def answer(self, future: Future[T], *, what: str = "", name: str = "") -> T:
        """The result of a request, or its error as ours."""
        try:
            return future.result(timeout=self.seconds_max + 5)
        except KafkaException as error:
            raise self.translated(error.args[0], what=what, name=name) from error
        except TimeoutError as error:
            raise self.unreachable() from error

    def ask(self, question: Callable[[], T], *, what: str = "", name: str = "") -> T:
        """The answer to a question that changes nothing: it is asked again, up to the deadline, while brokers change."""
        deadline, pause = time.monotonic() + self.seconds_max, _AGAIN_SECONDS
        while True:
            try:
                return question()
            except TimeoutError as error:
                raise self.unreachable() from error
            except KafkaException as error:
                found = self.translated(error.args[0], what=what, name=name)
                passes = error.args[0].code() in _AGAIN and not isinstance(found, CredentialsRefused)
                if not passes or time.monotonic() > deadline:
                    raise found from error
            time.sleep(pause)
            pause = min(2 * pause, _AGAIN_SECONDS_MAX)

    @contextlib.contextmanager
    def errors(self, *, what: str = "", name: str = "") -> Iterator[None]:
        """Raise Kafka's errors as ours."""
        try:
            yield
        except KafkaException as error:
            raise self.translated(error.args[0], what=what, name=name) from error

    def translated(self, error: KafkaError, *, what: str = "", name: str = "") -> HeadwaterError:
        """An error of Kafka as ours; `what` and `name` say what was asked about."""
        code, text = error.code(), error.str()
        if code in _CREDENTIALS:
            return CredentialsRefused(address=str(self.address), why=text)
        if code in _UNREACHABLE:
            return self.unreachable(text)
        if code in _DENIED:
            return AccessDenied(address=str(self.address), what=_DENIED[code], name=name)
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID):
            return NotFound(kind="topic", name=name)
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return RowTooLarge(topic=name, size=-1, size_max=-1)
        return BrokerRefused(address=str(self.address), what=what or name or "a request", why=f"{error.name()}: {text}")

    def unreachable(self, why: str = "no broker answers") -> HeadwaterError:
        if self._admin is not None:
            self._admin.poll(0)  # only here the client tells that it was refused, not merely unanswered
        heard = self._heard
        if heard is not None and heard.code() in _CREDENTIALS:
            return CredentialsRefused(address=str(self.address), why=heard.str())
        return BrokerUnreachable(address=str(self.address), why=heard.str() if heard is not None else why)

    def _answered(self, future: Future[T]) -> T:
        """Wait for an answer. A client whose broker is gone waits for that one until it has looked who leads now.

        Not by a short timeout of the request: librdkafka may end the whole process when one passes (its issue 4605).
        """
        deadline = time.monotonic() + self.seconds_max + 5
        while True:
            try:
                return future.result(timeout=LOOK_SECONDS)
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
                with contextlib.suppress(KafkaException):
                    self.admin().list_topics(timeout=1.0)

    def offsets(self, topic: str, numbers: Iterable[int], spec: OffsetSpec) -> dict[int, tuple[int, int]]:
        """For each partition the offset of a position, -1 for none, and the time of that message in milliseconds."""
        asked = {TopicPartition(topic, number): spec for number in numbers}
        if not asked:
            return {}

        def question() -> dict[int, tuple[int, int]]:
            futures = self.admin().list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self.seconds_max
            )
            found = {place.partition: self._answered(future) for place, future in futures.items()}
            return {number: (one.offset, one.timestamp) for number, one in found.items()}

        return self.ask(question, name=self.address.name(topic) or topic)

    def wait_until_visible(self, ranges: Mapping[Place, tuple[int, int]]) -> None:
        """Wait until readers see committed messages: the brokers end a transaction just after they have confirmed it."""
        deadline = time.monotonic() + self.seconds_max
        for topic in {place.topic for place in ranges}:
            stops = {place.partition: stop for place, (_, stop) in ranges.items() if place.topic == topic}
            while True:
                ends = self.offsets(topic, stops, LATEST)
                if all(ends[number][0] >= stop for number, stop in stops.items()):
                    break
                if time.monotonic() > deadline:
                    raise self.unreachable()
                time.sleep(0.001)

    def group_offsets(self, group: str, places: list[TopicPartition] | None) -> list[TopicPartition]:
        """The committed offsets of a group of Kafka, when no transaction is about to change them."""
        asked = ConsumerGroupTopicPartitions(group, places)

        def question() -> list[TopicPartition]:
            futures = self.admin().list_consumer_group_offsets(
                [asked], require_stable=True, request_timeout=self.seconds_max
            )
            try:
                found = self._answered(next(iter(futures.values()))).topic_partitions or []
            except KafkaException as raised:
                if raised.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return []
                raise
            for place in found:
                if place.error is not None:
                    raise KafkaException(place.error)
            return list(found)

        return self.ask(question, what=f"offsets of group {group!r}", name=group)

    def topic_names(self) -> list[str]:
        """All topics that this user may see, by their names on Kafka."""
        found = self.ask(lambda: self.admin().list_topics(timeout=self.attempt_seconds_max), what="the list of topics")
        return list(found.topics)

    def describe_topic(self, topic: str) -> tuple[str, int] | None:
        """The id that Kafka gave to a topic, and its number of partitions; None if there is none."""

        def question() -> tuple[str, int] | None:
            futures = self.admin().describe_topics(TopicCollection([topic]), request_timeout=self.seconds_max)
            try:
                found = self._answered(futures[topic])
            except KafkaException as error:
                if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
                    return None
                raise
            halves = found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits()
            return "".join(f"{half % 2**64:016x}" for half in halves), len(found.partitions)

        return self.ask(question, what="a topic", name=self.address.name(topic) or topic)

    def topic_settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic of Kafka."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        with self.errors(what="settings of a topic", name=topic):
            futures = self.admin().describe_configs([resource], request_timeout=self.seconds_max)
        found = self.answer(futures[resource], what="settings of a topic", name=self.address.name(topic) or topic)
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    def too_large(self, topic: str, size: int) -> HeadwaterError:
        """The error for messages, the largest of this size, that a topic of Kafka does not take; brokers do not say why."""
        name, size_max = self.address.name(topic) or topic, size - 1
        with contextlib.suppress(HeadwaterError):  # not every user may see the settings
            size_max = int(self.topic_settings(topic)["max.message.bytes"])
        if size > size_max:
            return RowTooLarge(topic=name, size=size, size_max=size_max)
        why = f"a message, or those that are sent together, may have {size_max} bytes (the topic's `max.message.bytes`)"
        return BrokerRefused(address=str(self.address), what=f"rows of topic {name!r}", why=why)

    def wait_for_topic(self, topic: str, *, partitions: int) -> None:
        """Wait until the brokers know a topic, and each partition has a leader."""
        deadline = time.monotonic() + self.seconds_max
        while True:
            facts = self.describe_topic(topic)
            if facts is not None and facts[1] >= partitions:
                try:
                    self.offsets(topic, range(partitions), LATEST)
                    return
                except NotFound:
                    pass
            if time.monotonic() > deadline:
                raise self.unreachable()
            time.sleep(0.02)

    # -- messages -----------------------------------------------------------------------------------------------------

    def messages(
        self, topic: str, partition: int, start: int, stop: int, *, count_max: int = 10_000
    ) -> Iterator[list[Incoming]]:
        """The messages with offsets from `start` up to `stop`, some at a time. `stop` must be at the end at most."""
        if start >= stop:
            return
        name = self.address.name(topic) or topic
        with self.consumer() as reading:
            client = reading.client
            reading.assign({(topic, partition): start}, self)
            deadline = time.monotonic() + self.seconds_max
            while True:
                with self.errors(name=name):
                    # Wait for one, then take all that came with it: a wait for more would last until its end.
                    got = client.consume(1, timeout=min(1.0, self.seconds_max))
                    if got and count_max > 1:
                        got += client.consume(count_max - 1, timeout=0)
                found, error = _incoming(got, stop)
                done = len(found) < len(got) and error is None
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        done = True
                    elif not self._passes(error):
                        raise self._read_error(error, name, partition, start)
                if found:
                    deadline = time.monotonic() + self.seconds_max
                    yield found
                    done = done or found[-1].offset >= stop - 1
                if done:
                    return
                if not found and self.describe_topic(topic) is None:
                    raise NotFound(kind="topic", name=name)
                if time.monotonic() > deadline:
                    raise self.unreachable()

    @staticmethod
    def _passes(error: KafkaError) -> bool:
        """Whether the client goes on by itself after an error. Who reads at an offset needs no group."""
        return bool(error.retriable()) or error.code() in _PASSING

    def _read_error(self, error: KafkaError, name: str, partition: int, start: int) -> HeadwaterError:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            oldest = self.offsets(self.address.topic(name), [partition], EARLIEST)[partition][0]
            return OffsetExpired(partition=f"{name}/{partition}", asked=start, oldest=oldest)
        return self.translated(error, what=f"{name}/{partition}", name=name)

    def wait(self, positions: Mapping[tuple[str, int], int], *, seconds: float, stopped: Callable[[], bool]) -> bool:
        """Wait at the brokers until one of these partitions has a message at or behind its offset."""
        if not positions:
            time.sleep(min(seconds, 0.05))
            return False
        deadline = time.monotonic() + seconds
        with self.consumer(wait_ms=WATCH_WAIT_MS) as reading:
            client = reading.client
            reading.assign(positions, self)
            while not stopped():
                left = deadline - time.monotonic()
                got = client.consume(1, timeout=max(0.0, min(left, 0.5)))
                for message in got:
                    error = message.error()
                    if error is None or not (error.code() == KafkaError._PARTITION_EOF or self._passes(error)):
                        return True
                if left <= 0:
                    return False
        return False


def _incoming(got: list[Message], stop: int) -> tuple[list[Incoming], KafkaError | None]:
    """The messages with offsets before `stop`, up to the first error that is no message."""
    errors = [message.error() for message in got]
    count, error = next(((number, one) for number, one in enumerate(errors) if one is not None), (len(got), None))
    # Any: librdkafka gives a list of pairs with bytes; its types say what may be sent.
    messages: list[Any] = got[:count]
    found = [
        Incoming(one.offset(), one.value(), one.key(), one.headers() or (), one.timestamp()[1] * 1000)
        for one in messages
    ]
    if found and found[-1].offset >= stop:
        return found[: bisect_left(found, stop, key=attrgetter("offset"))], None
    return found, error


def at_time(milliseconds: int) -> OffsetSpec:
    """The position of the first message at or after a time."""
    found: OffsetSpec = OffsetSpec.for_timestamp(max(0, milliseconds))
    return found


def is_set(offset: int) -> bool:
    """Whether an offset was committed."""
    return offset not in (OFFSET_INVALID, -1) and offset >= 0
