"""Producers and consumers of a log, wherever it is: they are made here, and end with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater.log.port import Rows, Start
from headwater.units import MIB

if TYPE_CHECKING:
    from headwater.log.assignment import Place
    from headwater.log.consumer import Consumer, OnExpired
    from headwater.log.limits import Limit
    from headwater.log.producer import Overload, Producer


class Clients:
    """The part of a log that makes its producers and consumers."""

    _producers: weakref.WeakSet[Producer]
    _consumers: weakref.WeakSet[Consumer]

    if TYPE_CHECKING:

        def _check_open(self) -> None: ...
        def _check_writable(self) -> None: ...

    def _start(self) -> None:
        self._producers = weakref.WeakSet()
        self._consumers = weakref.WeakSet()
        super()._start()  # type: ignore[misc]  # that of the log's core, which comes next in either kind of log

    def producer(
        self,
        topic: str | None = None,
        *,
        name: str | None = None,
        linger_seconds: float | None = None,
        batch_rows_max: int | None = None,
        batch_bytes_max: int | None = None,
        limit: Limit | None = None,
        overload: Overload = "block",
        wait_seconds_max: float | None = None,
        buffer_bytes_max: int = 64 * MIB,
        on_drop: Callable[[str, Rows], None] | None = None,
    ) -> Producer:
        """Send rows in the background, in batches; with a name, none is ever doubled."""
        from headwater.log.producer import Producer

        self._check_writable()
        producer = Producer(
            self,  # type: ignore[arg-type]  # a log of either kind has all that it calls
            topic,
            name=name,
            linger_seconds=linger_seconds,
            batch_rows_max=batch_rows_max,
            batch_bytes_max=batch_bytes_max,
            limit=limit,
            overload=overload,
            wait_seconds_max=wait_seconds_max,
            buffer_bytes_max=buffer_bytes_max,
            on_drop=on_drop,
        )
        self._producers.add(producer)
        return producer

    def consumer(
        self,
        topics: str | Sequence[str],
        group: str | None = None,
        *,
        member: str | None = None,
        start: Start = "earliest",
        columns: Sequence[str] | None = None,
        auto_commit: bool = True,
        auto_commit_seconds: float = 0.0,
        rows_max: int | None = None,
        session_seconds_max: float | None = None,
        heartbeat_seconds: float | None = None,
        heartbeat_in_background: bool = True,
        poll_seconds_max: float = 300.0,
        on_expired: OnExpired = "fail",
        on_revoke: Callable[[list[Place]], None] | None = None,
    ) -> Consumer:
        """Read topics, by name or by pattern, as they grow; in a group, members share the partitions."""
        from headwater.log.consumer import Consumer

        self._check_open()
        consumer = Consumer(
            self,  # type: ignore[arg-type]  # a log of either kind has all that it calls
            topics,
            group,
            member=member,
            start=start,
            columns=columns,
            auto_commit=auto_commit,
            auto_commit_seconds=auto_commit_seconds,
            rows_max=rows_max,
            session_seconds_max=session_seconds_max,
            heartbeat_seconds=heartbeat_seconds,
            heartbeat_in_background=heartbeat_in_background,
            poll_seconds_max=poll_seconds_max,
            on_expired=on_expired,
            on_revoke=on_revoke,
        )
        self._consumers.add(consumer)
        return consumer

    def _close_clients(self) -> None:
        for consumer in list(self._consumers):
            consumer.close(commit=False)
        for producer in list(self._producers):
            producer.close()
