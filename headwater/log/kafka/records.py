"""A table in a compacted topic of Kafka: what the log knows beside its rows, such as the schemas of topics.

Every change is a transaction under one name, decided on the table as it is at its end: of two processes that change it
at the same time one is fenced, and decides again. Readers keep the table in memory, and read what is new before each use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from headwater.errors import NotFound
from headwater.log.kafka.cluster import EARLIEST, LATEST, Cluster
from headwater.log.kafka.delivery import Place
from headwater.log.kafka.fence import Commit, Transactor

# Any: values are JSON.
Table = Mapping[str, Any]
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "600000",
    "message.timestamp.type": "LogAppendTime",
}


class Records:
    """One table."""

    def __init__(self, cluster: Cluster, transactor: Transactor, topic: str, *, replication: int | None) -> None:
        self._cluster = cluster
        self._transactor = transactor
        self.topic = cluster.address.topic(topic)
        self._name = topic.strip("_")
        self._replication = replication
        self._lock = threading.RLock()
        self._table: dict[str, Any] = {}
        self._next = 0
        self._exists = False

    def exists(self) -> bool:
        """Whether anything was ever written to the table."""
        if not self._exists:
            self._exists = self.topic in self._cluster.topic_names()
        return self._exists

    def known(self) -> Table:
        """The table as this process has read it."""
        return self._table

    def current(self) -> Table:
        """The table with everything that was committed."""
        with self._lock:
            if not self.exists():
                return self._table
            try:
                end = self._cluster.offsets(self.topic, [0], LATEST)[0][0]
            except NotFound:  # another program has deleted it
                self._table, self._next, self._exists = {}, 0, False
                return self._table
            start = self._next
            if start == 0 and end:
                start = self._cluster.offsets(self.topic, [0], EARLIEST)[0][0]
            for messages in self._cluster.messages(self.topic, 0, start, end):
                for message in messages:
                    key, value = (message.key or b"").decode(), message.value
                    if value is None:
                        self._table.pop(key, None)
                    else:
                        self._table[key] = orjson.loads(value)
            self._next = max(self._next, end)
            return self._table

    def change(self, decide: Callable[[Table], Mapping[str, Any]]) -> None:
        """Change the table: `decide` gets it, and returns the new values by key, None to delete one."""
        self.make()
        # Without taking the name from another process, if there is nothing to change.
        if not decide(self.current()):
            return

        def commit() -> Commit | None:
            changes = decide(self.current())
            messages = [
                {"key": key.encode(), "value": None if value is None else orjson.dumps(value)}
                for key, value in changes.items()
            ]
            return Commit(messages={Place(self.topic, 0): messages}, repeatable=True) if messages else None

        with self._lock:
            self._transactor.run(f"table.{self._name}", commit)
            self.current()

    def make(self) -> None:
        """Create the topic unless it exists."""
        with self._lock:
            if self._exists:
                return
            create_topic(self._cluster, self.topic, partitions=1, settings=SETTINGS, replication=self._replication)
            self._exists = True


def create_topic(
    cluster: Cluster, topic: str, *, partitions: int, settings: Mapping[str, str], replication: int | None
) -> bool:
    """Create a topic of Kafka, and wait until the brokers know it; return False if it existed."""
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replication or -1, config=dict(settings))
    name = cluster.address.name(topic) or topic

    # Any: the future has no result. What is asked for again finds the topic that the first request has created.
    def parse(found: Mapping[str, Any]) -> bool:
        try:
            found[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    made = cluster.ask_admin(
        lambda admin, seconds: admin.create_topics([wanted], operation_timeout=seconds, request_timeout=seconds),
        parse,
        what=f"to create topic {name!r}",
        name=name,
    )
    cluster.wait_for_topic(topic, partitions=partitions)
    return made
