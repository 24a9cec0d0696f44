"""Messages on their way to a broker: sent in batches, and counted until each is acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

#: A full queue is tried again after this time.
FULL_SECONDS = 0.01
#: Fewer messages are all followed.
EDGES_MIN = 100

# Any: what librdkafka takes, a mapping with `key`, `value` and `headers`.
Messages = list[dict[str, Any]]


class Place(NamedTuple):
    """A partition of a topic of Kafka, by the name that the topic has there."""

    topic: str
    partition: int


class Delivery:
    """What became of messages to one place: the first and last offset in each partition, or the first error."""

    def __init__(self, count: int) -> None:
        self.error: KafkaError | None = None
        self.ranges: dict[int, tuple[int, int]] = {}
        self._left = count
        self._done = threading.Event()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error
        else:
            offset, partition = message.offset() or 0, message.partition() or 0
            first, stop = self.ranges.get(partition, (offset, 0))
            self.ranges[partition] = (min(first, offset), max(stop, offset + 1))
        self._left -= 1
        if not self._left:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait until each message is acknowledged or refused."""
        return self._done.wait(seconds)


def largest(messages: Messages) -> int:
    """The size of the largest value."""
    return max((len(message["value"] or b"") for message in messages), default=0)


def send(
    producer: Producer, place: Place, messages: Messages, *, seconds_max: float, only_edges: bool = False
) -> Delivery:
    """Put messages of one partition into the producer's queue, in order; raise `KafkaException` for one that it refuses.

    With `only_edges` the first and the last are followed: that is enough in a transaction, whose commit fails if one of
    the others was refused, and saves a call for each of them.
    """
    if not only_edges or len(messages) < EDGES_MIN:
        delivery = Delivery(len(messages))
        _put(producer, place, messages, delivery, seconds_max)
        return delivery
    delivery = Delivery(2)
    _put(producer, place, messages[:1], delivery, seconds_max)
    _put(producer, place, messages[1:-1], None, seconds_max)
    _put(producer, place, messages[-1:], delivery, seconds_max)
    return delivery


def _put(producer: Producer, place: Place, messages: Messages, delivery: Delivery | None, seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    # Many messages in one call cost less each, but the client takes no headers then.
    put = _put_each if any(message.get("headers") for message in messages) else _put_batch
    left = messages
    while True:
        left, error = put(producer, place, left, delivery)
        if error is None:
            return
        if time.monotonic() > deadline:
            raise KafkaException(error)
        if error.code() == KafkaError._UNKNOWN_PARTITION:  # it was added since this client has looked
            producer.list_topics(topic=place.topic, timeout=seconds_max)
        elif error.code() != KafkaError._QUEUE_FULL:
            raise KafkaException(error)
        producer.poll(FULL_SECONDS)


def _put_batch(
    producer: Producer, place: Place, messages: Messages, delivery: Delivery | None
) -> tuple[Messages, KafkaError | None]:
    """Put messages in one call; returns those that were not taken, and why.

    A full queue is no error that the client raises: it says how many it took, and marks the others.
    """
    taken = producer.produce_batch(place.topic, messages, partition=place.partition, on_delivery=delivery)
    if taken == len(messages):
        return [], None
    left = [message for message in messages if "_error" in message]
    errors: list[KafkaError] = [message.pop("_error") for message in left]
    return left, next((error for error in errors if error.code() != KafkaError._QUEUE_FULL), errors[0])


def _put_each(
    producer: Producer, place: Place, messages: Messages, delivery: Delivery | None
) -> tuple[Messages, KafkaError | None]:
    produce = producer.produce
    for number, message in enumerate(messages):
        try:
            produce(
                place.topic,
                message["value"],
                message.get("key"),
                place.partition,
                on_delivery=delivery,
                headers=message.get("headers"),
            )
        except BufferError:
            return messages[number:], KafkaError(KafkaError._QUEUE_FULL)
        except KafkaException as error:
            return messages[number:], error.args[0]
    return [], None


def send_all(
    producer: Producer, messages: Mapping[Place, Messages], *, seconds_max: float, only_edges: bool = False
) -> dict[Place, Delivery]:
    """Send messages to several partitions; see `send`."""
    return {
        # Messages whose partition the client chooses may go to several: each one is followed.
        place: send(producer, place, some, seconds_max=seconds_max, only_edges=only_edges and place.partition >= 0)
        for place, some in messages.items()
        if some
    }
