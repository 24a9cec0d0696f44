"""A log behind a server: the same port, over HTTP. Open it with `headwater.open("http://host:8080", token="…")`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headwater.config import Config
from headwater.log.clients import Clients
from headwater.log.embedded.topics import check_name
from headwater.log.port import Offsets, Start
from headwater.log.remote.core import named, quoted
from headwater.log.remote.groups import RemoteGroups, RemoteMembership
from headwater.log.remote.reading import Reading
from headwater.log.remote.wire import offsets_from_json, offsets_to_json


class RemoteLog(Clients, Reading):
    """A log that another process serves. Rows travel as Arrow; errors come back as the classes they were raised as."""

    # -- groups -------------------------------------------------------------------------------------------------------

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
        self._close_clients()
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
