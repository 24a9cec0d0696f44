"""Rows of a topic as they are appended, as server-sent events or over a WebSocket; and changes of a view as they are applied.

These routes are written by hand because their answers are streams. An event's id is a position, so that a client that
sends it as `Last-Event-ID` goes on behind it.

All tails at one position share one reader: a row is read and encoded once, not once for each. A tail that is behind reads by
itself until it has reached the position of the broadcast, and then listens to it. One that is too slow to listen is
dropped from the broadcast, and reads by itself again. All of this happens in one event loop, so that nothing comes between
the comparison of positions and the first piece of a broadcast.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request, WebSocket
from fastapi.responses import Response, StreamingResponse

from headwater.errors import HeadwaterError
from headwater.http.bodies import Integers
from headwater.http.errors import TooManyRequests, UpgradeMissing
from headwater.http.problems import answer
from headwater.http.router import service_of
from headwater.http.row_socket import CREDIT_MAX, RowSocket
from headwater.http.stream_forms import EVENTS, FRAMES, StreamForm
from headwater.log import Batch, Offsets
from headwater.log.port import Log
from headwater.log.remote.wire import offsets_from_text, offsets_to_text
from headwater.services.host import Host
from headwater.services.row_pages import selected
from headwater.services.row_tail import Follower
from headwater.services.rows import Rows
from headwater.services.views import Views
from headwater.services.wait import LOOK_AGAIN_SECONDS, row_paths
from headwater.units import MIB

if TYPE_CHECKING:
    from headwater.log import Topic
    from headwater.services.row_search import Matcher
    from headwater.views import Change, Subscription, ViewKeeper, ViewSpec

KEEP_ALIVE_SECONDS = 15.0
ROWS_AT_ONCE = 500
#: Events are sent together up to about so many bytes, and one row more.
PIECE_BYTES_MAX = MIB
#: A tail that is not at the position of the broadcast tries again after so long, or with the next row.
TOGETHER_SECONDS = 0.05
#: How much a tail may leave unread before it is dropped from a broadcast.
PIECES_MAX = 100
PIECES_BYTES_MAX = 8 * MIB
# Any: FastAPI's own form for it.
_EVENTS: dict[str, Any] = {
    "response_class": Response,
    "responses": {200: {"description": "Events without end.", "content": {"text/event-stream": {}}}},
}


def router(host: Host) -> APIRouter:
    """The routes of streams."""
    routes = APIRouter()
    broadcasts = Broadcasts()

    @routes.get("/topics/{topic}/tail", tags=["rows"], **_EVENTS)
    async def tail(
        request: Request,
        topic: str,
        start: str = "latest",
        partition: Annotated[list[int] | None, Query(max_length=10_000)] = None,
        column: Annotated[list[str] | None, Query()] = None,
        where: str | None = None,
        integers: Integers = "number",
        last_event_id: str | None = Header(default=None),
    ) -> Response:
        """Follow a topic: rows from a position on, and then each row as it is appended.

        Every event is a row; its id is the position of each partition behind it. `where` is a condition in SQL: rows for
        which it is not true are left out. A comment is sent regularly, so that a closed connection is noticed. Partitions
        that are added later are followed from their start, unless `partition` names some.
        """
        rows = service_of(Rows, host, request)
        if last_event_id:
            start = offsets_to_text(offsets_from_text(last_event_id, name="Last-Event-ID"))
        reader = await reader_of(rows, topic, start, partition, column, where, integers, EVENTS)
        return _stream(Tail(host, broadcasts, topic, reader).texts(request.is_disconnected))

    @routes.websocket("/topics/{topic}/ws")
    async def follow(
        socket: WebSocket,
        topic: str,
        start: str = "latest",
        partition: Annotated[list[int] | None, Query(max_length=10_000)] = None,
        column: Annotated[list[str] | None, Query()] = None,
        where: str | None = None,
        integers: Integers = "number",
        credit: Annotated[int | None, Query(ge=1, le=CREDIT_MAX)] = None,
    ) -> None:
        """Follow a topic in frames of JSON; see `/tail` for the parameters, and `RowSocket` for the credit."""
        rows = Rows(host, socket.state.caller, address=socket.client.host if socket.client else "unknown")
        try:
            reader = await reader_of(rows, topic, start, partition, column, where, integers, FRAMES)
        except HeadwaterError as error:
            await socket.send_denial_response(answer(error))
            return
        connection = RowSocket(socket, credit=credit)

        async def is_gone() -> bool:
            return connection.is_gone

        await connection.run(Tail(host, broadcasts, topic, reader).texts(is_gone))

    @routes.get("/topics/{topic}/ws", include_in_schema=False)
    async def no_socket(topic: str) -> Response:
        """Say that this path is for a WebSocket."""
        raise UpgradeMissing(path=f"/topics/{topic}/ws")

    async def reader_of(
        rows: Rows,
        topic: str,
        start: str,
        partition: list[int] | None,
        column: list[str] | None,
        where: str | None,
        integers: Integers,
        form: StreamForm,
    ) -> EventReader:
        def make() -> EventReader:
            found = rows.positions(topic, start=start, partition=partition, column=column)
            condition = None if where is None else RowFilter(host, topic, where)
            return EventReader(
                host.log,
                topic,
                found.start,
                column,
                integers,
                chosen=partition is not None,
                form=form,
                where=condition,
            )

        reader = await host.run(make)
        if host.streams >= host.settings.streams_max:
            raise TooManyRequests(seconds=KEEP_ALIVE_SECONDS)
        return reader

    @routes.get("/views/{view}/subscribe", tags=["views"], **_EVENTS)
    async def subscribe(
        request: Request, view: str, app: str | None = None, last_event_id: str | None = Header(default=None)
    ) -> Response:
        """Follow a view that this process maintains: all rows, then each change as it is applied."""
        views = service_of(Views, host, request)
        subscription = await host.run(lambda: views.subscribe(view, last_event_id or None, app=app))
        assert host.runner is not None
        return _stream(_changes(host, host.runner.keeper, view, subscription, request))

    return routes


def _stream(events: AsyncIterator[bytes]) -> Response:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


# -- changes of a view ------------------------------------------------------------------------------------------------


async def _changes(
    host: Host, keeper: ViewKeeper, name: str, subscription: Subscription, request: Request
) -> AsyncIterator[bytes]:
    """Changes as events; no thread runs while there are none."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended, and its loop with it
            loop.call_soon_threadsafe(changed.set)

    with keeper.listening(wake):
        try:
            while not await request.is_disconnected():
                changed.clear()
                next_events = partial(
                    _change_events, subscription.available(), subscription, keeper.maintained(name).spec
                )
                is_new = False
                while text := await host.run(next_events):
                    is_new = True
                    yield text
                if is_new and subscription.position is not None:
                    yield b"event: ready\nid: %s\ndata: {}\n\n" % subscription.position.to_json().encode()
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
        except HeadwaterError as error:  # the view was dropped, or the changelog is gone
            yield b"event: failure\ndata: %s\n\n" % str(error).encode().replace(b"\n", b" ")
        finally:
            subscription.close()


def _change_events(available: Iterator[Change], subscription: Subscription, spec: ViewSpec) -> bytes:
    """The next events, some at once; nothing if there are no more."""
    from headwater.views.wire import encoded_change

    parts = []
    for change in itertools.islice(available, ROWS_AT_ONCE):
        position = subscription.position
        place = b"id: %s\n" % position.to_json().encode() if position is not None else b""
        parts.append(b"event: change\n%sdata: %s\n\n" % (place, encoded_change(change, spec)))
    return b"".join(parts)


# -- rows of a topic --------------------------------------------------------------------------------------------------


class Tail:
    """The events of one client."""

    def __init__(self, host: Host, broadcasts: Broadcasts, topic: str, reader: EventReader) -> None:
        self._host = host
        self._broadcasts = broadcasts
        self._reader = reader
        self._topic = topic

    async def texts(self, is_gone: Callable[[], Awaitable[bool]]) -> AsyncGenerator[bytes, None]:
        """What to send until the client disconnects; no thread runs while there is nothing."""
        host, form = self._host, self._reader.form
        host.streams += 1
        try:
            # At once, so that a client knows that it is connected, and its position.
            yield form.opening(self._topic, self._reader.positions)
            while not host.closing:
                if (piece := await host.run(self._reader.read)).text:
                    yield piece.text
                    continue
                async with aclosing(self._listening(is_gone)) as texts:
                    async for text in texts:
                        yield text
                if await is_gone():
                    return
        except HeadwaterError as error:  # rows have expired, or the topic was deleted
            yield form.failure(error)
        finally:
            host.streams -= 1

    async def _listening(self, is_gone: Callable[[], Awaitable[bool]]) -> AsyncGenerator[bytes, None]:
        """Events of the broadcast, until this tail is dropped from it or the client disconnects."""
        found = self._broadcasts.listen(
            self._host, self._reader.key, self._topic, self._hand_over, dict(self._reader.positions)
        )
        if found is None:  # it is at another position, until one of the two has read on
            with self._host.file_events.waiting(await row_paths(self._host, self._topic)) as waiter:
                await waiter.wait(seconds=TOGETHER_SECONDS)
            return
        broadcast, listener = found
        try:
            while not listener.is_over and not self._host.closing:
                piece = await listener.next(seconds=KEEP_ALIVE_SECONDS)
                if piece is not None:
                    self._reader.move(piece.positions)
                    yield piece.text
                elif not listener.is_over:
                    if await is_gone():
                        return
                    yield self._reader.form.note("still here")
        finally:
            broadcast.listeners.discard(listener)

    def _hand_over(self) -> Read:
        """A function that reads for a broadcast, from the position of this tail on."""
        given, self._reader = self._reader, self._reader.twin()
        return given.read


class RowFilter:
    """The rows for which a condition in SQL is true, out of all columns of a topic."""

    def __init__(self, host: Host, topic: str, condition: str) -> None:
        from headwater.services.row_search import ConditionMatcher

        self.condition = condition
        self._topic: Topic = host.log.topic(topic)
        self._matcher: Matcher = ConditionMatcher(self._topic, condition, statements=host.statements)

    def filtered(self, batch: Batch, columns: Sequence[str] | None) -> Batch:
        if batch.punctuation_us is not None or not batch.data.num_rows:
            return batch
        mask = pa.array(self._matcher.mask(self._topic, batch.data))
        return selected(replace(batch, data=batch.data.filter(mask)), columns)


class EventReader:
    """Reads a topic from some positions on, and encodes rows as events or frames."""

    def __init__(
        self,
        log: Log,
        topic: str,
        positions: Offsets,
        columns: Sequence[str] | None,
        integers: Integers,
        *,
        chosen: bool,
        form: StreamForm = EVENTS,
        where: RowFilter | None = None,
    ) -> None:
        self._arguments = (log, topic, columns, integers, chosen)
        self._integers: Integers = integers
        self.form = form
        self._where = where
        self._columns = columns
        read = columns if where is None else None  # a condition may be of any column
        self._follower = Follower(log, topic, positions, columns=read, chosen=chosen, rows_at_once_max=ROWS_AT_ONCE)

    @property
    def positions(self) -> Offsets:
        return self._follower.positions

    @property
    def key(self) -> tuple[object, ...]:
        """What tails have in common that can share a reader at one position."""
        _, topic, columns, integers, chosen = self._arguments
        partitions = tuple(sorted(self.positions)) if chosen else None
        where = None if self._where is None else self._where.condition
        return topic, partitions, None if columns is None else tuple(columns), integers, where, self.form.name

    def twin(self) -> EventReader:
        """Another reader at the same position."""
        log, topic, columns, integers, chosen = self._arguments
        return EventReader(
            log, topic, self.positions, columns, integers, chosen=chosen, form=self.form, where=self._where
        )

    def move(self, positions: Offsets) -> None:
        """Go on from other positions."""
        self._follower.move(positions)

    def read(self) -> Piece:
        """The next events, some at once; none if there are no more."""
        at = dict(self.positions)
        batches = self._follower.read(rows_max=ROWS_AT_ONCE, bytes_max=PIECE_BYTES_MAX)
        if self._follower.change == "created again":
            text = self.form.note("the topic was created again")
        elif self._follower.change == "partitions added":
            text = self.form.note("partitions were added", self.positions)
        else:
            if self._where is not None:
                batches = [self._where.filtered(batch, self._columns) for batch in batches]
            text = self.form.rows(batches, at, integers=self._integers)
            if batches and not text:  # a client that comes back goes on behind what was left out
                text = self.form.note("no row of these", self.positions)
        return Piece(text=text, positions=dict(self.positions))


# -- one reader for many tails ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some events, and the position behind them."""

    text: bytes
    positions: Offsets


#: Reads the next events; no text if there are none yet. Called away from the event loop.
Read = Callable[[], Piece]


@dataclass(eq=False)
class Listener:
    """A tail that listens to a broadcast."""

    #: None is the end.
    pieces: asyncio.Queue[Piece | None] = field(default_factory=lambda: asyncio.Queue(PIECES_MAX))
    was_dropped: bool = False
    bytes_waiting: int = 0

    def put(self, piece: Piece) -> bool:
        """Queue a piece; False if too much is queued already. One piece is never too much."""
        if self.pieces.full() or (self.bytes_waiting and self.bytes_waiting + len(piece.text) > PIECES_BYTES_MAX):
            return False
        self.bytes_waiting += len(piece.text)
        self.pieces.put_nowait(piece)
        return True

    async def next(self, *, seconds: float) -> Piece | None:
        """The next piece; None after so many seconds, or at the end."""
        if self.is_over:
            return None
        with contextlib.suppress(TimeoutError):
            piece = await asyncio.wait_for(self.pieces.get(), seconds)
            self.bytes_waiting -= 0 if piece is None else len(piece.text)
            return piece
        return None

    @property
    def is_over(self) -> bool:
        return self.was_dropped and self.pieces.empty()

    def drop(self) -> None:
        """Queue no further pieces, and wake the tail. Pieces that are queued can still be read."""
        self.was_dropped = True
        with contextlib.suppress(asyncio.QueueFull):  # then the tail is not waiting
            self.pieces.put_nowait(None)


class Broadcast:
    """Reads on at the end of a topic, for all its listeners."""

    def __init__(self, host: Host, topic: str, read: Read, positions: Offsets) -> None:
        self._host = host
        self._topic = topic
        self._read = read
        self.positions = dict(positions)
        self.listeners: set[Listener] = set()

    async def run(self) -> None:
        try:
            with self._host.file_events.waiting(await row_paths(self._host, self._topic)) as waiter:
                while self.listeners and not self._host.closing:
                    piece = await self._host.run(self._read)
                    if piece.text:
                        self._publish(piece)
                    else:
                        await waiter.wait(seconds=LOOK_AGAIN_SECONDS)
        except HeadwaterError:
            pass  # each tail gets the same error when it reads by itself, and sends it
        finally:
            for listener in self.listeners:
                listener.drop()

    def _publish(self, piece: Piece) -> None:
        self.positions = dict(piece.positions)
        for listener in list(self.listeners):
            if not listener.put(piece):
                self.listeners.discard(listener)
                listener.drop()


class Broadcasts:
    """The broadcasts of a server, by what they read."""

    def __init__(self) -> None:
        self._running: dict[tuple[object, ...], tuple[Broadcast, asyncio.Task[None]]] = {}

    def listen(
        self, host: Host, key: tuple[object, ...], topic: str, make: Callable[[], Read], positions: Offsets
    ) -> tuple[Broadcast, Listener] | None:
        """Listen from a position on; None if the broadcast is at another one, and the tail must read by itself."""
        found = self._running.get(key)
        if found is None or found[1].done():
            broadcast = Broadcast(host, topic, make(), positions)
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
