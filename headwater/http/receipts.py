"""Appends that may be asked for again: a caller whose connection was lost gets the first answer, and no row is doubled.

A caller gives each append a key of its own (`Idempotency-Key`). What became of it is remembered for ten minutes, while
it is at work as well. Who asks again says of which server, and how long ago the first try began. A server that was
started since, or had to forget too early, does not guess: it answers that it does not know.

A key belongs to what was asked with it: the same key with other rows is refused, for the answer to the first would pass
for one to these. An append that found no room has left nothing, so that it is not remembered: the next try
may succeed.

Nothing of this is on disk. Producers with a name and a sequence survive the server too, and are remembered for ever; a
caller that only wants one append must not leave such a trace in every partition.
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
#: So many are looked at for each that comes.
SWEPT_AT_ONCE = 64
#: A request may have been on its way for so long; whoever was forgotten within that is not taken for new.
SLACK_SECONDS = 60.0

#: What leaves nothing behind, and may be otherwise the next time.
PASSING = (DiskFull,)

Key = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """What a caller says of the first try: which server it asked, and how many seconds ago."""

    server: str
    seconds: float


@dataclass(frozen=True)
class Receipt:
    """One append: when it began, what it was asked to append, and what becomes of it."""

    began: float
    digest: bytes
    task: asyncio.Task[bytes]


@dataclass
class Receipts:
    """What became of appends. For one event loop."""

    kept_max: int = KEPT_MAX
    now: Callable[[], float] = time.monotonic
    server: str = field(default_factory=lambda: uuid.uuid4().hex)
    _kept: OrderedDict[Key, Receipt] = field(default_factory=OrderedDict)
    _forgotten_at: float = float("-inf")

    async def once(
        self, key: Key, work: Callable[[], Awaitable[bytes]], *, digest: bytes = b"", repeat: Repeat | None = None
    ) -> bytes:
        """The answer to an append: of the first try, where there was one, and otherwise of this.

        `digest` tells what is asked from anything else that could be.
        """
        if not 1 <= len(key[-1]) <= KEY_LENGTH_MAX:
            raise ArgumentInvalid(
                name="Idempotency-Key", value=key[-1][:20], expected=f"1 to {KEY_LENGTH_MAX} characters"
            )
        known = self._kept.get(key)
        if known is None:
            if repeat is not None:
                self._refuse_to_guess(repeat)
            self._sweep()
            known = self._kept[key] = Receipt(self.now(), digest, asyncio.ensure_future(work()))
            known.task.add_done_callback(lambda task: self._forget_passing(key, task))
        elif known.digest != digest:
            raise KeyReused(key=key[-1])
        # A caller that goes away does not take the append with it: its next try wants to know how it ended.
        return await asyncio.shield(known.task)

    def _forget_passing(self, key: Key, task: asyncio.Task[bytes]) -> None:
        kept = self._kept.get(key)
        if kept is not None and kept.task is task and not task.cancelled() and isinstance(task.exception(), PASSING):
            del self._kept[key]

    def _refuse_to_guess(self, repeat: Repeat) -> None:
        if repeat.server != self.server:
            raise OutcomeUnknown(why="another server was asked first, or this one was started again since")
        if not self._forgotten_at < self.now() - max(0.0, repeat.seconds) - SLACK_SECONDS:
            raise OutcomeUnknown(why="the server had so much to do since that it no longer knows")

    def _sweep(self) -> None:
        """Forget what is old, and what is too much; how young that was is noted. What is at work is kept."""
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
                task.exception()  # looked at, so that nobody is warned of an error that nobody asked for
            self._forgotten_at = max(self._forgotten_at, began)
