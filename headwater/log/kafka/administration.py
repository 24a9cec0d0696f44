"""The administration client of a log, which is replaced when it is not answered.

librdkafka's client sends a request to the leader, the controller or the coordinator that it knows, and waits for that
broker also while it is gone. A new client asks the brokers that are there who it is now.

Two requests of librdkafka (2.16) can end the whole process, and are kept away from it:

- A request to the coordinator of a group that has timed out, when that coordinator is found later (its issue 4605). Such
  requests get a time-out that does not pass as long as their client lives; the wait for the answer ends before.
- `list_consumer_group_offsets`, when a broker answers that it is not the coordinator any more (its issue 5040). Offsets of
  groups are asked for by consumers instead; see `group_clients.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

K = TypeVar("K")
T = TypeVar("T")
#: The time-out of a request to a coordinator, in seconds: the longest that librdkafka takes.
COORDINATOR_SECONDS = 3_600.0


class Administration:
    """The administration client of one process."""

    def __init__(self, make: Callable[[], AdminClient]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._client: AdminClient | None = None

    @property
    def client(self) -> AdminClient:
        with self._lock:
            if self._client is None:
                self._client = self._make()
            return self._client

    def replace(self, client: AdminClient) -> None:
        """Let the next request use a new client, unless another thread has replaced this one already."""
        client.poll(0)
        with self._lock:
            if self._client is client:
                self._client = None

    def poll(self) -> None:
        """Let the client tell what it has heard: only there it tells that it was refused, not merely unanswered."""
        client = self._client
        if client is not None:
            client.poll(0)

    def answers(self, request: Callable[[AdminClient], Mapping[K, Future[T]]], *, seconds: float) -> dict[K, Future[T]]:
        """The futures of a request when all are done. Raise `_TIMED_OUT`, and replace the client, if one is not.

        A client that has gone by an earlier epoch of a leader is replaced, too: it would do so again.
        """
        client = self.client
        futures = dict(request(client))
        deadline = time.monotonic() + seconds
        for future in futures.values():
            try:
                error = future.exception(timeout=max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                error = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no broker answers"))
            code = error.args[0].code() if isinstance(error, KafkaException) else None
            if error is not None and code == KafkaError._TIMED_OUT:
                self.replace(client)
                raise error
            if code == KafkaError.FENCED_LEADER_EPOCH:
                self.replace(client)
        return futures
