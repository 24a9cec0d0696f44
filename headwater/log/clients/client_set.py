"""The producers and consumers of a log, which are closed with it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from headwater.log.client_config import ConsumerConfig, ConsumerSettings, ProducerConfig, ProducerSettings
from headwater.log.clients.consumer import Consumer
from headwater.log.clients.producer import Producer
from headwater.log.port import Log


class ClientSet:
    """Creates producers and consumers of a log, and closes those that still exist."""

    def __init__(self) -> None:
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()

    def producer(self, log: Log, topic: str | None, settings: ProducerSettings) -> Producer:
        producer = Producer(log, topic, ProducerConfig.of(settings, log.config))
        self._producers.add(producer)
        return producer

    def consumer(
        self, log: Log, topics: str | Sequence[str], group: str | None, settings: ConsumerSettings
    ) -> Consumer:
        consumer = Consumer(log, topics, group, ConsumerConfig.of(settings, log.config))
        self._consumers.add(consumer)
        return consumer

    def close(self) -> None:
        for consumer in list(self._consumers):
            consumer.close(commit=False)
        for producer in list(self._producers):
            producer.close()
