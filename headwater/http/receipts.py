"""Idempotent appends: a caller who repeats an append after a lost connection gets the first answer, and no row is doubled.

A caller gives each append a key of its own (`Idempotency-Key`). The server keeps the outcome for ten minutes, and also
knows appends that are still running. A repeated request names the server of the first attempt and says how long ago that
was. A server that was restarted since, or had to drop the key too early, answers that the outcome is unknown.

A key belongs to one request: the same key with other rows is an error, because the first answer would be wrong for them.
An append that failed because the disk was full has left nothing and is not kept: the next attempt may succeed.

Nothing of this is on disk. Named producers with a sequence are remembered by the log for ever, across restarts; a caller
of a single append must not leave such a trace in every partition.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import islice

from headwater.errors import ArgumentInvalid
from headwater.http.errors import KeyReused, OutcomeUnknown
from headwater.log.errors import DiskFull

KEPT_SECONDS = 600.0
KEPT_MAX = 20_000
KEY_LENGTH_MAX = 200
#: How many old receipts are checked for each new one.
SWEPT_AT_ONCE = 64
#: How long a request may be on its way. A key forgotten within this time is not taken for a new one.
SLACK_SECONDS = 60.0

#: Errors after which nothing was appended, and a further attempt may succeed.
PASSING = (DiskFull,)

Key = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """What a caller says of the first attempt: the server, and how many seconds ago."""

    server: str
    seconds: float


@dataclass(frozen=True)
class Receipt:
    """One append: when it began, a digest of the request, and the task that appends."""

    began: float
    digest: bytes
    task: asyncio.Task[bytes]


@dataclass
class Receipts:
    """The outcomes of recent appends. For one event loop."""

    kept_max: int = KEPT_MAX
    now: Callable[[], float] = time.monotonic
    server: str = field(default_factory=lambda: uuid.uuid4().hex)
    _kept: OrderedDict[Key, Receipt] = field(default_factory=OrderedDict)
    _forgotten_at: float = float("-inf")

    async def once(
        self, key: Key, work: Callable[[], Awaitable[bytes]], *, digest: bytes = b"", repeat: Repeat | None = None
    ) -> bytes:
        """The answer of the first attempt if there was one; otherwise run `work` and keep its answer.

        `digest` identifies the request: another digest under the same key is an error.
        """
        if not 1 <= len(key[-1]) <= KEY_LENGTH_MAX:
            raise ArgumentInvalid(
                name="Idempotency-Key", value=key[-1][:20], expected=f"1 to {KEY_LENGTH_MAX} characters"
            )
        known = self._kept.get(key)
        if known is None:
            if repeat is not None and repeat.server != self.server:
                raise OutcomeUnknown(why="another server was asked first, or this one was started again since")
            if repeat is not None and not self._forgotten_at < self.now() - max(0.0, repeat.seconds) - SLACK_SECONDS:
                raise OutcomeUnknown(why="the server had so much to do since that it no longer knows")
            self._sweep()
            known = self._kept[key] = Receipt(self.now(), digest, asyncio.ensure_future(work()))
            known.task.add_done_callback(lambda task: self._forget_passing(key, task))
        elif known.digest != digest:
            raise KeyReused(key=key[-1])
        # A caller that disconnects does not cancel the append: its next attempt asks for the outcome.
        return await asyncio.shield(known.task)

    def _forget_passing(self, key: Key, task: asyncio.Task[bytes]) -> None:
        kept = self._kept.get(key)
        if kept is not None and kept.task is task and not task.cancelled() and isinstance(task.exception(), PASSING):
            del self._kept[key]

    def _sweep(self) -> None:
        """Drop receipts that are old or too many, and note when the youngest of them began. Running appends are kept."""
        now = self.now()
        for key in list(islice(self._kept, SWEPT_AT_ONCE)):
            began, task = self._kept[key].began, self._kept[key].task
            if now - began <= KEPT_SECONDS and len(self._kept) < self.kept_max:
                return
            if not task.done():
                self._kept.move_to_end(key)
                continue
            del self._kept[key]
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log an error that no caller waits for
            self._forgotten_at = max(self._forgotten_at, began)
