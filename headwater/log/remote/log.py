"""A log behind a server: the same port, over HTTP. Open it with `headwater.open("http://host:8080", token="…")`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.config import Config
from headwater.log.embedded.topics import check_name
from headwater.log.port import Offsets, Rows, Start
from headwater.log.remote.core import named, quoted
from headwater.log.remote.groups import RemoteGroups, RemoteMembership
from headwater.log.remote.reading import Reading
from headwater.log.remote.wire import offsets_from_json, offsets_to_json
from headwater.units import MIB

if TYPE_CHECKING:
    from headwater.log.assignment import Place
    from headwater.log.consumer import Consumer, OnExpired
    from headwater.log.limits import Limit
    from headwater.log.producer import Overload, Producer


class RemoteLog(Reading):
    """A log that another process serves. Rows travel as Arrow; errors come back as the classes they were raised as."""

    def _start(self) -> None:
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()

    # -- producers, consumers, groups ---------------------------------------------------------------------------------

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

        self._check_open()
        producer = Producer(
            self,  # type: ignore[arg-type]  # all that it calls is here
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
            self,  # type: ignore[arg-type]  # all that it calls is here
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

    def membership(
        self,
        group: str,
        *,
        member: str | None,
        topics: tuple[str, ...],
        partitions: Callable[[bool], dict[str, int]],  # noqa: ARG002  # the server counts them
        start: Start,
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> RemoteMembership:
        """A consumer's part in its group, not joined yet."""
        return RemoteMembership(
            self._connection,
            group,
            member=member,
            topics=topics,
            start=start,
            session_seconds_max=session_seconds_max,
            heartbeat_seconds=heartbeat_seconds,
        )

    @property
    def groups(self) -> RemoteGroups:
        """The consumer groups of this log: who reads what, and how far behind."""
        self._check_open()
        return RemoteGroups(self._connection)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Record how far a group has come; the newest commit counts."""
        check_name("group", group)
        body = {"topic": topic, "offsets": offsets_to_json(offsets), "metadata": metadata}
        self._connection.post(f"/groups/{group}/offsets", body, again=True)

    def committed(self, group: str, topic: str) -> Offsets:
        """How far a group has come, for the partitions in which it ever committed."""
        found = self._connection.get(f"/groups/{quoted(group)}/offsets/{named(topic)}")
        return offsets_from_json(found["offsets"])

    def committed_groups(self) -> dict[str, set[str]]:
        """All groups that ever committed, with their topics."""
        found = self._connection.get("/groups")["committed"]
        return {group: set(topics) for group, topics in found.items()}

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
        """Remove a group's commits."""
        self._connection.delete(f"/groups/{quoted(group)}/offsets", topic=topic)

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the connections. Rows are safe without it."""
        if self.closed:
            return
        for consumer in list(self._consumers):
            consumer.close(commit=False)
        for producer in list(self._producers):
            producer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A log crosses a process border as its address.
        return (_reopen, (self.path, self._token, self._certificates, self.config))


def _reopen(address: str, token: str | None, certificates: str | Path | None, config: Config) -> RemoteLog:
    return RemoteLog(address, token=token, certificates=certificates, config=config)
