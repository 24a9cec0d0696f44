"""Consumers that ask for the committed offsets of groups, or commit them, and read nothing.

A consumer belongs to one group. It follows its coordinator from broker to broker, and asks for it each second while it is
gone. Making one costs two round trips, so those that were used last are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException

from headwater.log.kafka.error_codes import DENIED

KEPT_MAX = 32
SETTINGS: dict[str, str | bool | int] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Offsets that an open transaction is about to change are not answered.
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    # So long an offset to be committed waits for a coordinator.
    "session.timeout.ms": 6_000,
}


class GroupClients:
    """The consumers of one process, by their groups."""

    def __init__(self, make: Callable[..., Consumer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, Consumer] = OrderedDict()

    @contextmanager
    def lend(self, group: str) -> Iterator[Consumer]:
        """A consumer of a group. One that was not answered is closed, and the next caller gets a new one."""
        with self._lock:
            client = self._idle.pop(group, None)
        if client is None:
            client = self._make(**SETTINGS, **{"group.id": group})
        try:
            yield client
        except KafkaException as error:
            refusal = _refusal(client)
            if error.args[0].code() == KafkaError._TIMED_OUT:
                client.close()
            else:
                self._put_back(group, client)
            if refusal is not None:
                raise KafkaException(refusal) from error
            raise
        except BaseException:
            client.close()
            raise
        self._put_back(group, client)

    def _put_back(self, group: str, client: Consumer) -> None:
        """Keep a consumer, and close the one that was not used for the longest time if there are too many."""
        with self._lock:
            surplus = [client]
            if group not in self._idle:
                self._idle[group] = client
                surplus = [self._idle.popitem(last=False)[1]] if len(self._idle) > KEPT_MAX else []
        for one in surplus:
            one.close()

    def close(self) -> None:
        """Close the consumers that are not lent."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for client in idle:
            client.close()


def _refusal(client: Consumer) -> KafkaError | None:
    """What the brokers have refused to a consumer; the call that was not answered for that reason does not tell it."""
    while (message := client.poll(0)) is not None:
        error = message.error()
        if error is not None and error.code() in DENIED:
            return error
    return None
