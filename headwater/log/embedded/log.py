"""The embedded log: a folder that many processes may read and write, with no server."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.config import Config
from headwater.log.clients import Clients
from headwater.log.embedded import tidy
from headwater.log.embedded.reading import Reading
from headwater.log.embedded.topics import check_name
from headwater.log.offsets import OffsetTable
from headwater.log.port import Offsets, Start

if TYPE_CHECKING:
    from headwater.log.groups import Groups
    from headwater.log.membership import Membership


class EmbeddedLog(Clients, Reading):
    """A log in a folder. Open it with `headwater.open("./data")`."""

    def _start(self) -> None:
        self._offsets = OffsetTable(self)
        self._tidier = tidy.Tidier(self)
        super()._start()

    # -- groups -------------------------------------------------------------------------------------------------------

    def membership(
        self,
        group: str,
        *,
        member: str | None,
        topics: tuple[str, ...],
        partitions: Callable[[bool], dict[str, int]],
        start: Start,  # noqa: ARG002  # a log that is elsewhere needs to know where a new group begins
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> Membership:
        """A consumer's part in its group, not joined yet."""
        from headwater.log.membership import GroupFolder, Membership

        return Membership(
            GroupFolder(self.path, group),
            clock=self.clock,
            member=member,
            topics=topics,
            partitions=partitions,
            session_seconds_max=session_seconds_max,
            heartbeat_seconds=heartbeat_seconds,
        )

    @property
    def groups(self) -> Groups:
        """The consumer groups of this log: who reads what, and how far behind."""
        from headwater.log.groups import Groups

        self._check_open()
        return Groups(self)

    # -- offsets of groups --------------------------------------------------------------------------------------------

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Record how far a group has come; the newest commit counts."""
        check_name("group", group)
        self._handle(topic)
        self._offsets.commit(self._offset_rows(group, topic, offsets, metadata))

    def committed(self, group: str, topic: str) -> Offsets:
        """How far a group has come, for the partitions in which it ever committed."""
        return self._offsets.committed(group, topic)

    def committed_groups(self) -> dict[str, set[str]]:
        """All groups that ever committed, with their topics."""
        return self._offsets.groups()

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
        """Remove a group's commits, as tombstones in the same log."""
        self._offsets.forget(group, topic)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def tidy(self, topic: str | None = None, *, compact: bool = True, seal: bool = False) -> tidy.TidyReport:
        """Do now what otherwise happens behind appends: retention, coalescing and compaction.

        With `seal` the segment being written is closed first, so that its rows take part too.
        """
        self._check_writable()
        names = self.topics(internal=True) if topic is None else [topic]
        report = tidy.TidyReport()
        for name in names:
            for partition in self._handle(name).partitions():
                report += tidy.tidy_partition(
                    self._handle(name), partition, clock=self.clock, compact=compact, seal=seal, wait=True
                )
        return report

    def close(self) -> None:
        """Let go of all files. Rows are safe without it; it only ends background work."""
        if self._closed:
            return
        self._close_clients()
        self._tidier.close()
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self._catalogue.close()
        if self._commits is not None:
            self._commits.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A log crosses a process border as its address.
        return (_reopen, (str(self.path), self.config, self.read_only))


def _reopen(path: str, config: Config, read_only: bool) -> EmbeddedLog:
    return EmbeddedLog(path, config=config, read_only=read_only)
