"""Leaders: of all processes that serve or run a log, one does their common work, such as the evaluation of alert rules.

Where the log is a folder, the kernel decides which one by a lock on a file, and gives the lock to another process at the moment
when its holder ends. Any other log is reached from several hosts, so that it decides itself, by a lease: another process takes
over when the holder has been silent for the lease's seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headwater.filelock import LeaderLock
from headwater.home import is_remote
from headwater.log.lease import Lease, holder_name, is_renewed
from headwater.log.port import Log
from headwater.units import Duration

LEASE_SECONDS = 10.0


class Leader(Protocol):
    """What one of several processes holds while it does their common work."""

    @property
    def is_mine(self) -> bool:
        """Whether this process holds it now; ask before each act that only the holder may do."""
        ...

    def acquire(self) -> bool:
        """Take it if it is free; return whether it is held."""
        ...

    def release(self) -> None:
        """Give it back, so that another process need not wait."""
        ...

    def is_held(self) -> bool:
        """Whether any process holds it."""
        ...


class LeasedLeader:
    """A leader by a lease of the log. Nothing is written before it is acquired for the first time."""

    def __init__(
        self, log: Log, name: str, *, seconds: Duration = LEASE_SECONDS, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._log = log
        self._name = name
        self._seconds = seconds
        self._stopped = stopped
        self._lease: Lease | None = None

    @property
    def is_mine(self) -> bool:
        return self._lease is not None and self._lease.is_mine

    def acquire(self) -> bool:
        """See `Leader.acquire`. While another process holds the lease, wait for its next sign of life."""
        if self.is_mine:
            return True
        self.release()  # a lease that was lost: its thread may not know yet
        self._lease = Lease(self._log, self._name, holder=holder_name(), seconds=self._seconds)
        return self._lease.acquire(stopped=self._stopped)

    def release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def is_held(self) -> bool:
        return self.is_mine or is_renewed(self._log, self._name, seconds=self._seconds)


def leader_of(log: Log, name: str, *, stopped: Callable[[], bool] = lambda: False) -> Leader:
    """The leader of a common work on a log; waiting for another process's sign of life ends when `stopped`."""
    if is_remote(log.address):
        return LeasedLeader(log, name, stopped=stopped)
    return LeaderLock(log.home / "server" / f"{name}.lock")
