"""The connection to a Kafka cluster: its clients, made when they are first used, and its answers as our errors.

Clients of librdkafka have threads, so a process that was forked makes its own. Consumers are kept and lent: making one
costs more than a read.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from headwater.config import Config
from headwater.errors import Closed, HeadwaterError, NotFound
from headwater.log.errors import BrokerUnreachable, OffsetExpired, RowTooLarge
from headwater.log.kafka.address import Address, client_settings
from headwater.log.kafka.administration import Administration
from headwater.log.kafka.client_messages import ClientMessages, messages_before, uncollected
from headwater.log.kafka.delivery import Place
from headwater.log.kafka.error_codes import AGAIN, CREDENTIALS, DENIED, NO_TOPIC, PASSING, UNREACHABLE
from headwater.log.kafka.errors import AccessDenied, BrokerRefused, CredentialsRefused
from headwater.log.kafka.group_clients import GroupClients

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")
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
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 4_096,
    "max.partition.fetch.bytes": 512 * 1024,
    # A full queue is looked at again so soon: a second, which is the client's own value, would starve the reader.
    "fetch.queue.backoff.ms": 2,
    "fetch.error.backoff.ms": 50,
}
#: A read fetches what is there; a wait stays at the broker until something comes.
READ_WAIT_MS, WATCH_WAIT_MS = 10, 500
CONSUMERS_KEPT_MAX = 4

#: So long a question first waits for an answer; each time that none came, twice as long.
ATTEMPT_SECONDS = 2.0
#: So often a change that waits for the controller looks which brokers there are.
LOOK_SECONDS = 0.5
_AGAIN_SECONDS, _AGAIN_SECONDS_MAX = 0.002, 0.1


#: Clients of the process that this one was forked from. To destroy one would wait for its threads, which are not here.
_OF_PARENT: list[object] = []


def of_parent(*clients: object) -> None:
    """Keep clients that this process has from the one it was forked from, and cannot end."""
    _OF_PARENT.extend(clients)


class Reading:
    """A consumer that reads what it is assigned, and the partitions whose leaders it has looked up."""

    def __init__(self, client: Consumer) -> None:
        self.client = client
        self._known: set[tuple[str, int]] = set()

    def assign(self, positions: Mapping[tuple[str, int], int], cluster: Cluster) -> None:
        """Begin at an offset in each partition. A client that must look up a leader by itself does so seconds later."""
        for topic in {topic for topic, _ in positions.keys() - self._known}:
            self.look(topic, cluster)
        self._known |= positions.keys()
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()]
        with cluster.errors(what="a read"):
            self.client.assign(places)

    def look(self, topic: str, cluster: Cluster) -> bool:
        """Look up who leads the partitions of a topic now; return whether there is such a topic."""

        def question(seconds: float) -> bool:
            found = self.client.list_topics(topic=topic, timeout=seconds).topics.get(topic)
            return found is not None and (found.error is None or found.error.code() not in NO_TOPIC)

        return cluster.ask(question, name=cluster.address.name(topic) or topic)


class Cluster:
    """The clients of one log in this process."""

    def __init__(self, address: Address, config: Config) -> None:
        self.address = address
        self.seconds_max = config.kafka_seconds_max
        # Any: librdkafka's settings are texts, numbers and functions.
        self.settings: dict[str, Any] = client_settings(address, config)
        self.closed = False
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        settings: dict[str, Any] = {**self.settings, "error_cb": self.hear}
        self._administration = Administration(partial(AdminClient, settings))
        self._groups = GroupClients(self.new_consumer)
        self._producer: Producer | None = None
        self._idle: dict[int, list[Reading]] = {}
        self._heard: KafkaError | None = None

    def _check(self) -> None:
        if self.closed:
            raise Closed(what="log")
        if self._pid != os.getpid():  # forked: the threads of the parent's clients are not here
            self._lock = threading.RLock()
            of_parent(self._administration, self._groups, self._producer, self._idle)
            self._forget()

    def epoch(self) -> int:
        """Changes when the clients of this process are others: after a fork."""
        self._check()
        return self._pid

    def hear(self, error: KafkaError) -> None:
        """Keep what a client says between calls: only there it tells that it was refused, not merely unanswered."""
        if error.code() in CREDENTIALS or self._heard is None or self._heard.code() not in CREDENTIALS:
            self._heard = error

    # -- clients ------------------------------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """The client for changes. Questions go through `ask_admin`, which replaces it when it is not answered."""
        self._check()
        return self._administration.client

    def group_client(self, group: str) -> AbstractContextManager[Consumer]:
        """Lend a consumer that asks for the offsets of a group of Kafka, or commits them."""
        self._check()
        return self._groups.lend(group)

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
        self.ask(lambda seconds: producer.list_topics(timeout=seconds), what="a producer")
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
            self._groups.close()
            if self._producer is not None:
                self._producer.flush(5.0)
            self._forget()

    # -- questions ----------------------------------------------------------------------------------------------------

    def answer(self, future: Future[T], *, what: str = "", name: str = "") -> T:
        """The result of a change, or its error as ours. It is asked for once, and waits for the controller of now."""
        deadline = time.monotonic() + self.seconds_max
        with self.errors(what=what, name=name):
            while True:
                try:
                    return future.result(timeout=LOOK_SECONDS)
                except TimeoutError as error:
                    if time.monotonic() > deadline:
                        raise self.unreachable() from error
                    with contextlib.suppress(KafkaException):
                        self.admin().list_topics(timeout=1.0)

    def ask(self, question: Callable[[float], T], *, what: str = "", name: str = "") -> T:
        """The answer to a question that changes nothing: it is asked again, up to the deadline, while brokers change.

        The question is told for how many seconds it may wait; if nothing came, it may wait longer the next time.
        """
        deadline, pause, wait = time.monotonic() + self.seconds_max, _AGAIN_SECONDS, ATTEMPT_SECONDS
        while True:
            try:
                return question(min(wait, max(deadline - time.monotonic(), _AGAIN_SECONDS_MAX)))
            except KafkaException as error:
                code, found = error.args[0].code(), self.translated(error.args[0], what=what, name=name)
                passes = code in AGAIN and not isinstance(found, CredentialsRefused)
                if not passes or time.monotonic() > deadline:
                    raise found from error
                if code == KafkaError._TIMED_OUT:
                    wait *= 2
            time.sleep(pause)
            pause = min(2 * pause, _AGAIN_SECONDS_MAX)

    def ask_admin(
        self,
        request: Callable[[AdminClient, float], Mapping[K, Future[T]]],
        parse: Callable[[Mapping[K, Future[T]]], R],
        *,
        what: str = "",
        name: str = "",
    ) -> R:
        """The answer to a question for the administration client; `request` is told its time-out in seconds."""

        def question(seconds: float) -> R:
            self._check()
            return parse(self._administration.answers(lambda client: request(client, seconds), seconds=seconds))

        return self.ask(question, what=what, name=name)

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
        if code in CREDENTIALS:
            return CredentialsRefused(address=str(self.address), why=text)
        if code in UNREACHABLE:
            return self.unreachable(text)
        if code in DENIED:
            return AccessDenied(address=str(self.address), what=DENIED[code], name=name)
        if code in NO_TOPIC - {KafkaError.TOPIC_EXCEPTION}:
            return NotFound(kind="topic", name=name)
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return RowTooLarge(topic=name, size=-1, size_max=-1)
        return BrokerRefused(address=str(self.address), what=what or name or "a request", why=f"{error.name()}: {text}")

    def unreachable(self, why: str = "no broker answers") -> HeadwaterError:
        self._administration.poll()
        heard = self._heard
        if heard is not None and heard.code() in CREDENTIALS:
            return CredentialsRefused(address=str(self.address), why=heard.str())
        return BrokerUnreachable(address=str(self.address), why=heard.str() if heard is not None else why)

    def offsets(self, topic: str, numbers: Iterable[int], spec: OffsetSpec) -> dict[int, tuple[int, int]]:
        """For each partition the offset of a position, -1 for none, and the time of that message in milliseconds."""
        asked = {TopicPartition(topic, number): spec for number in numbers}
        if not asked:
            return {}
        return self.ask_admin(
            lambda admin, seconds: admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=seconds
            ),
            lambda found: {
                place.partition: (one.result().offset, one.result().timestamp) for place, one in found.items()
            },
            name=self.address.name(topic) or topic,
        )

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

    def group_offsets(self, group: str, places: list[TopicPartition]) -> list[TopicPartition]:
        """The committed offsets of a group of Kafka, when no transaction is about to change them."""

        def question(seconds: float) -> list[TopicPartition]:
            with self.group_client(group) as client:
                found: list[TopicPartition] = client.committed(places, timeout=seconds)
            for place in found:
                if place.error is not None:
                    raise KafkaException(place.error)
            return found

        return self.ask(question, what=f"offsets of group {group!r}", name=group) if places else []

    def topic_names(self) -> list[str]:
        """All topics that this user may see, by their names on Kafka."""
        return list(self.partition_counts())

    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of each topic that this user may see, by its name on Kafka."""

        def question(seconds: float) -> dict[str, int]:
            found = self.admin().list_topics(timeout=seconds).topics
            return {name: len(topic.partitions) for name, topic in found.items()}

        return self.ask(question, what="the list of topics")

    def describe_topic(self, topic: str) -> tuple[str, int] | None:
        """The id that Kafka gave to a topic, and its number of partitions; None if there is none."""

        # Any: confluent-kafka's description, which has no public type.
        def parse(found: Mapping[str, Future[Any]]) -> tuple[str, int] | None:
            try:
                facts = found[topic].result()
            except KafkaException as error:
                if error.args[0].code() in NO_TOPIC:
                    return None
                raise
            halves = facts.topic_id.get_most_significant_bits(), facts.topic_id.get_least_significant_bits()
            return "".join(f"{half % 2**64:016x}" for half in halves), len(facts.partitions)

        return self.ask_admin(
            lambda admin, seconds: admin.describe_topics(TopicCollection([topic]), request_timeout=seconds),
            parse,
            what="a topic",
            name=self.address.name(topic) or topic,
        )

    def topic_settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic of Kafka."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return self.ask_admin(
            lambda admin, seconds: admin.describe_configs([resource], request_timeout=seconds),
            lambda found: {
                name: entry.value for name, entry in found[resource].result().items() if entry.value is not None
            },
            what="settings of a topic",
            name=self.address.name(topic) or topic,
        )

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
    ) -> Iterator[ClientMessages]:
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
                        with uncollected():
                            got += client.consume(count_max - 1, timeout=0)
                found, error = messages_before(got, stop)
                done = len(found) < len(got) and error is None
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        done = True
                    elif not self._passes(error):
                        raise self._read_error(error, name, partition, start)
                if found:
                    deadline = time.monotonic() + self.seconds_max
                    yield found
                    done = done or found.offsets[-1] >= stop - 1
                if done:
                    return
                # Nothing for a second: its leader may be another one now.
                if not found and not reading.look(topic, self):
                    raise NotFound(kind="topic", name=name)
                if time.monotonic() > deadline:
                    raise self.unreachable()

    @staticmethod
    def _passes(error: KafkaError) -> bool:
        """Whether the client goes on by itself after an error. Who reads at an offset needs no group."""
        return bool(error.retriable()) or error.code() in PASSING

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


def at_time(milliseconds: int) -> OffsetSpec:
    """The position of the first message at or after a time."""
    found: OffsetSpec = OffsetSpec.for_timestamp(max(0, milliseconds))
    return found


def is_set(offset: int) -> bool:
    """Whether an offset was committed."""
    return offset not in (OFFSET_INVALID, -1) and offset >= 0
