"""One reader for all subscribers that stand at the same place: a row is read and written as text once, not once for each.

A subscriber that is behind reads by itself until it stands where the follower does, and then listens to it. One that is
too slow to listen is let go, and reads by itself again. All of this happens in one event loop, so that nothing comes
between looking at a position and listening from there on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.errors import HeadwaterError
from headwater.log import Offsets
from headwater.server.service import Service
from headwater.server.waking import LOOK_AGAIN_SECONDS
from headwater.units import MIB

#: What a subscriber may leave lying before it is let go.
PIECES_MAX = 100
PIECES_BYTES_MAX = 8 * MIB


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some events, and the position behind them."""

    text: bytes
    positions: Offsets


#: Reads the next events from where it stands; no text where there are none yet. Called away from the event loop.
Read = Callable[[], Piece]


@dataclass(eq=False)
class Listener:
    """A subscriber that listens to a follower."""

    #: None is the last one.
    pieces: asyncio.Queue[Piece | None] = field(default_factory=lambda: asyncio.Queue(PIECES_MAX))
    was_let_go: bool = False
    bytes_waiting: int = 0

    def tell(self, piece: Piece) -> bool:
        """Give a piece; False where too much is lying there already. One piece is never too much."""
        if self.pieces.full() or (self.bytes_waiting and self.bytes_waiting + len(piece.text) > PIECES_BYTES_MAX):
            return False
        self.bytes_waiting += len(piece.text)
        self.pieces.put_nowait(piece)
        return True

    async def next(self, *, seconds: float) -> Piece | None:
        """The next piece; None after so many seconds, or when the follower is no longer to be listened to."""
        if self.is_over:
            return None
        with contextlib.suppress(TimeoutError):
            piece = await asyncio.wait_for(self.pieces.get(), seconds)
            self.bytes_waiting -= 0 if piece is None else len(piece.text)
            return piece
        return None

    @property
    def is_over(self) -> bool:
        return self.was_let_go and self.pieces.empty()

    def let_go(self) -> None:
        """Tell no more. What was told already can still be had; whoever waits is woken."""
        self.was_let_go = True
        with contextlib.suppress(asyncio.QueueFull):  # then nobody waits
            self.pieces.put_nowait(None)


class Follower:
    """Reads on at the end of a topic, and tells its listeners."""

    def __init__(self, service: Service, topic: str, read: Read, positions: Offsets) -> None:
        self._service = service
        self._topic = topic
        self._read = read
        self.positions = dict(positions)
        self.listeners: set[Listener] = set()

    async def run(self) -> None:
        try:
            path = self._service.log.handle(self._topic).state.path
            with self._service.bell.waiting({path: "rows"}) as waiter:
                while self.listeners and not self._service.closing:
                    piece = await self._service.run(self._read)
                    if piece.text:
                        self._tell(piece)
                    else:
                        await waiter.wait(seconds=LOOK_AGAIN_SECONDS)
        except HeadwaterError:
            pass  # each subscriber finds the same when it reads by itself, and says it
        finally:
            for listener in self.listeners:
                listener.let_go()

    def _tell(self, piece: Piece) -> None:
        self.positions = dict(piece.positions)
        for listener in list(self.listeners):
            if not listener.tell(piece):
                self.listeners.discard(listener)
                listener.let_go()


class Followers:
    """The followers of a server, by what they read."""

    def __init__(self) -> None:
        self._running: dict[tuple[object, ...], tuple[Follower, asyncio.Task[None]]] = {}

    def listen(
        self, service: Service, key: tuple[object, ...], topic: str, make: Callable[[], Read], positions: Offsets
    ) -> tuple[Follower, Listener] | None:
        """Listen from a position on; None where the follower stands elsewhere, and the subscriber must read by itself."""
        found = self._running.get(key)
        if found is None or found[1].done():
            follower = Follower(service, topic, make(), positions)
            listener = Listener()
            follower.listeners.add(listener)
            self._running[key] = follower, asyncio.get_running_loop().create_task(follower.run())
            self._running[key][1].add_done_callback(lambda task: self._forget(key, task))
            return follower, listener
        follower = found[0]
        if follower.positions != positions or not follower.listeners:
            return None
        listener = Listener()
        follower.listeners.add(listener)
        return follower, listener

    def _forget(self, key: tuple[object, ...], task: asyncio.Task[None]) -> None:
        if key in self._running and self._running[key][1] is task:
            del self._running[key]
