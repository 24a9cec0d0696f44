"""Rows as they come, as server-sent events. An event's id is a position, so that `Last-Event-ID` goes on behind it.

All subscribers that stand at the same place share one reader: a row is read and written as text once, not once for each.
A subscriber that is behind reads by itself until it stands where the broadcast does, and then listens to it. One that is
too slow to listen is let go, and reads by itself again. All of this happens in one event loop, so that nothing comes
between looking at a position and listening from there on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from headwater.errors import HeadwaterError
from headwater.http.bodies import Integers, lines_of
from headwater.http.errors import TooManyRequests
from headwater.http.problems import problem
from headwater.log import Batch, Offsets
from headwater.log.embedded import local_log
from headwater.log.port import Log
from headwater.log.remote.wire import offsets_from_text, offsets_to_text, start_from_text
from headwater.services.bell import LOOK_AGAIN_SECONDS
from headwater.services.host import Host, caller_of
from headwater.services.row_tail import Follower
from headwater.units import MIB

KEEP_ALIVE_SECONDS = 15.0
ROWS_AT_ONCE = 500
#: Some events go out together up to about so many bytes, and one row more.
PIECE_BYTES_MAX = MIB
#: A subscriber that is not where the broadcast is looks again after so long, or with the next row.
TOGETHER_SECONDS = 0.05
#: What a subscriber may leave lying before it is let go.
PIECES_MAX = 100
PIECES_BYTES_MAX = 8 * MIB


def router(service: Host) -> APIRouter:
    """The route of tails."""
    routes = APIRouter(prefix="/topics", tags=["rows"])
    broadcasts = Broadcasts()

    @routes.get(
        "/{topic}/tail",
        response_class=Response,
        responses={200: {"description": "Events without end.", "content": {"text/event-stream": {}}}},
    )
    async def tail(
        request: Request,
        topic: str,
        start: str = "latest",
        partition: Annotated[list[int] | None, Query(max_length=10_000)] = None,
        column: Annotated[list[str] | None, Query()] = None,
        integers: Integers = "number",
        last_event_id: str | None = Header(default=None),
    ) -> Response:
        """Rows from a place on, and then each row as it is appended, as server-sent events.

        Every event is a row, and its id says the position of each partition behind it. A comment comes every now and
        then, so that a connection that is gone is noticed. Partitions that are added later are followed from their
        start, unless `partition` says which are meant.
        """
        caller_of(request).require("read", topic)
        if service.streams >= service.settings.streams_max:
            raise TooManyRequests(seconds=KEEP_ALIVE_SECONDS)
        begin = offsets_from_text(last_event_id, name="Last-Event-ID") if last_event_id else start_from_text(start)
        found = await service.run(lambda: service.log.read(topic, start=begin, partitions=partition, columns=column))
        positions = {number: span[0] for number, span in found.ranges.items()}
        reader = EventReader(service.log, topic, positions, column, integers, chosen=partition is not None)
        stream = Tail(service, broadcasts, topic, reader).events(request)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    return routes


class Tail:
    """One subscriber."""

    def __init__(self, service: Host, broadcasts: Broadcasts, topic: str, reader: EventReader) -> None:
        self._service = service
        self._broadcasts = broadcasts
        self._reader = reader
        self._topic = topic

    async def events(self, request: Request) -> AsyncIterator[bytes]:
        """Events until the client has gone; between them nothing runs, and no thread waits."""
        service = self._service
        service.streams += 1
        try:
            # At once, so that a client knows that it is connected, and from where it would go on.
            yield b": tail of %s\nid: %s\n\n" % (self._topic.encode(), _id(self._reader.positions))
            while not service.closing:
                if (piece := await service.run(self._reader.read)).text:
                    yield piece.text
                    continue
                async with aclosing(self._listening(request)) as texts:
                    async for text in texts:
                        yield text
                if await request.is_disconnected():
                    return
        except HeadwaterError as error:  # rows have expired, or the topic was deleted
            yield b"event: failure\ndata: %s\n\n" % orjson.dumps(problem(error))
        finally:
            service.streams -= 1

    async def _listening(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Events of the broadcast, until it is no longer to be listened to or the client has gone."""
        found = self._broadcasts.listen(
            self._service, self._reader.key, self._topic, self._hand_over, dict(self._reader.positions)
        )
        if found is None:  # it stands elsewhere; soon one of us has read on
            path = local_log(self._service.log).handle(self._topic).state.path
            with self._service.bell.waiting({path: "rows"}) as waiter:
                await waiter.wait(seconds=TOGETHER_SECONDS)
            return
        broadcast, listener = found
        try:
            while not listener.is_over and not self._service.closing:
                piece = await listener.next(seconds=KEEP_ALIVE_SECONDS)
                if piece is not None:
                    self._reader.move(piece.positions)
                    yield piece.text
                elif not listener.is_over:
                    if await request.is_disconnected():
                        return
                    yield b": still here\n\n"
        finally:
            broadcast.listeners.discard(listener)

    def _hand_over(self) -> Read:
        """Let a broadcast read on from just where this subscriber stands."""
        given, self._reader = self._reader, self._reader.twin()
        return given.read


class EventReader:
    """Reads a topic from some positions on, and writes rows as events."""

    def __init__(
        self,
        log: Log,
        topic: str,
        positions: Offsets,
        columns: Sequence[str] | None,
        integers: Integers,
        *,
        chosen: bool,
    ) -> None:
        self._arguments = (log, topic, columns, integers, chosen)
        self._integers: Integers = integers
        self._follower = Follower(log, topic, positions, columns=columns, chosen=chosen, rows_at_once_max=ROWS_AT_ONCE)

    @property
    def positions(self) -> Offsets:
        return self._follower.positions

    @property
    def key(self) -> tuple[object, ...]:
        """What those have in common who can share a reader, once they stand at the same place."""
        _, topic, columns, integers, chosen = self._arguments
        partitions = tuple(sorted(self.positions)) if chosen else None
        return topic, partitions, None if columns is None else tuple(columns), integers

    def twin(self) -> EventReader:
        """Another one at the same place."""
        log, topic, columns, integers, chosen = self._arguments
        return EventReader(log, topic, self.positions, columns, integers, chosen=chosen)

    def move(self, positions: Offsets) -> None:
        """Go on from elsewhere."""
        self._follower.move(positions)

    def read(self) -> Piece:
        """The next events, some at once; none where there are no more."""
        at = dict(self.positions)
        batches = self._follower.read(rows_max=ROWS_AT_ONCE, bytes_max=PIECE_BYTES_MAX)
        if self._follower.change == "created again":
            text = b": the topic was created again\n\n"
        elif self._follower.change == "partitions added":
            text = b": partitions were added\nid: %s\n\n" % _id(self.positions)
        else:
            text = b"".join(event for batch in batches for event in self._events(batch, at))
        return Piece(text=text, positions=dict(self.positions))

    def _events(self, batch: Batch, at: Offsets) -> Iterator[bytes]:
        """The rows of a batch as events; `at` is moved on with them."""
        dense = batch.offset_next - batch.offset == batch.data.num_rows
        event = b"event: punctuation\n" if batch.punctuation_us is not None else b""
        for number, line in enumerate(lines_of(batch, integers=self._integers), start=1):
            # Where compaction left gaps, only the end of the batch is a position for sure.
            if batch.punctuation_us is None and (dense or number == batch.data.num_rows):
                at[batch.partition] = batch.offset + number if dense else batch.offset_next
            yield b"%sid: %s\ndata: %s\n\n" % (event, _id(at), line)


def _id(positions: Offsets) -> bytes:
    return offsets_to_text(positions).encode()


# -- one reader for many ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some events, and the position behind them."""

    text: bytes
    positions: Offsets


#: Reads the next events from where it stands; no text where there are none yet. Called away from the event loop.
Read = Callable[[], Piece]


@dataclass(eq=False)
class Listener:
    """A subscriber that listens to a broadcast."""

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
        """The next piece; None after so many seconds, or when the broadcast is no longer to be listened to."""
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
        """Send no further pieces and wake the subscriber. Pieces that are queued can still be read."""
        self.was_let_go = True
        with contextlib.suppress(asyncio.QueueFull):  # then the subscriber is not waiting
            self.pieces.put_nowait(None)


class Broadcast:
    """Reads on at the end of a topic, and tells its listeners."""

    def __init__(self, service: Host, topic: str, read: Read, positions: Offsets) -> None:
        self._service = service
        self._topic = topic
        self._read = read
        self.positions = dict(positions)
        self.listeners: set[Listener] = set()

    async def run(self) -> None:
        try:
            path = local_log(self._service.log).handle(self._topic).state.path
            with self._service.bell.waiting({path: "rows"}) as waiter:
                while self.listeners and not self._service.closing:
                    piece = await self._service.run(self._read)
                    if piece.text:
                        self._tell(piece)
                    else:
                        await waiter.wait(seconds=LOOK_AGAIN_SECONDS)
        except HeadwaterError:
            pass  # each subscriber finds the same error when it reads by itself, and says it
        finally:
            for listener in self.listeners:
                listener.let_go()

    def _tell(self, piece: Piece) -> None:
        self.positions = dict(piece.positions)
        for listener in list(self.listeners):
            if not listener.tell(piece):
                self.listeners.discard(listener)
                listener.let_go()


class Broadcasts:
    """The broadcasts of a server, by what they read."""

    def __init__(self) -> None:
        self._running: dict[tuple[object, ...], tuple[Broadcast, asyncio.Task[None]]] = {}

    def listen(
        self, service: Host, key: tuple[object, ...], topic: str, make: Callable[[], Read], positions: Offsets
    ) -> tuple[Broadcast, Listener] | None:
        """Listen from a position on; None where the broadcast stands elsewhere, and the subscriber must read by itself."""
        found = self._running.get(key)
        if found is None or found[1].done():
            broadcast = Broadcast(service, topic, make(), positions)
            listener = Listener()
            broadcast.listeners.add(listener)
            self._running[key] = broadcast, asyncio.get_running_loop().create_task(broadcast.run())
            self._running[key][1].add_done_callback(lambda task: self._forget(key, task))
            return broadcast, listener
        broadcast = found[0]
        if broadcast.positions != positions or not broadcast.listeners:
            return None
        listener = Listener()
        broadcast.listeners.add(listener)
        return broadcast, listener

    def _forget(self, key: tuple[object, ...], task: asyncio.Task[None]) -> None:
        if key in self._running and self._running[key][1] is task:
            del self._running[key]
