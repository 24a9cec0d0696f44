"""How far a producer may run ahead, in rows or bytes, of a group or of the disk."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import ArgumentInvalid
from headwater.log.port import OFFSETS_TOPIC, Offsets

if TYPE_CHECKING:
    from headwater.log.port import Log

#: How old the known position of the group may be while there is still room. At the limit it is always looked up.
REFRESH_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How far a producer may be ahead.

    With a `group`, `rows` counts what the topic holds and the group has not committed, whoever appended it, together
    with what waits in the producer; `bytes` counts what this producer has sent and the group has not committed.
    Without a group, both count what this producer was given and the disk has not yet confirmed.

    >>> Limit(group="billing", rows=100_000)
    Limit(group='billing', rows=100000, bytes=None)
    """

    group: str | None = None
    rows: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.rows is None and self.bytes is None:
            raise ArgumentInvalid(name="limit", value=self, expected="a number of rows or bytes")
        for name in ("rows", "bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ArgumentInvalid(name=name, value=value, expected="at least 1")

    def __str__(self) -> str:
        parts = [f"{self.rows} rows"] if self.rows is not None else []
        parts += [f"{self.bytes} bytes"] if self.bytes is not None else []
        return " or ".join(parts) + (f" ahead of group {self.group!r}" if self.group else " not yet on disk")

    def allows(self, *, rows_ahead: int, bytes_ahead: int, rows: int, bytes: int) -> bool:
        """Whether so many more may follow. A send that alone exceeds the limit may go when nothing is ahead of it."""
        fits_rows = self.rows is None or not rows_ahead or rows_ahead + rows <= self.rows
        fits_bytes = self.bytes is None or not bytes_ahead or bytes_ahead + bytes <= self.bytes
        return fits_rows and fits_bytes


class GroupDistance:
    """How far a topic's end, and this producer's own bytes, are ahead of a group; kept fresh by whoever asks."""

    def __init__(self, log: Log, topic: str, group: str) -> None:
        self._log = log
        self._topic = topic
        self._group = group
        self._sent: dict[int, deque[tuple[int, int]]] = {}
        self._bytes = 0
        self._rows = 0
        self._looked_at = 0.0
        self._offsets_end: Offsets = {}
        # An empty commit makes sure that there is a topic of offsets to wait for.
        log.commit_offsets(group, topic, {})
        self.refresh()

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        return self._bytes

    def appended(self, ranges: dict[int, tuple[int, int]], size: int) -> None:
        """Count rows that this producer has just appended."""
        count = sum(stop - start for start, stop in ranges.values()) or 1
        self._rows += sum(stop - start for start, stop in ranges.values())
        for number, (start, stop) in ranges.items():
            part = size * (stop - start) // count
            self._sent.setdefault(number, deque()).append((stop, part))
            self._bytes += part

    def refresh_if_old(self, seconds: float = REFRESH_SECONDS) -> None:
        if time.monotonic() - self._looked_at >= seconds:
            self.refresh()

    def refresh(self) -> None:
        """Look up what the group has committed."""
        # The end is taken first: a commit made in between is then waited for in vain once, but never missed.
        self._offsets_end = self._log.end_offsets(OFFSETS_TOPIC)
        committed = self._log.committed(self._group, self._topic)
        starts, ends = self._log.start_offsets(self._topic), self._log.end_offsets(self._topic)
        self._rows = sum(end - max(committed.get(number, 0), starts[number]) for number, end in ends.items())
        for number, sent in self._sent.items():
            while sent and sent[0][0] <= committed.get(number, 0):
                self._bytes -= sent.popleft()[1]
        self._looked_at = time.monotonic()

    def wait(self, *, seconds: float) -> None:
        """Sleep until any group commits."""
        self._log.wait({OFFSETS_TOPIC: self._offsets_end}, seconds=seconds)
