"""Rows as they come, as server-sent events. An event's id is a position, so that `Last-Event-ID` goes on behind it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from headwater.errors import HeadwaterError, TooManyRequests
from headwater.log import Batch, Offsets
from headwater.log.port import Cursor
from headwater.log.remote.wire import offsets_from_text, offsets_to_text, start_from_text
from headwater.server.bodies import Integers, lines_of
from headwater.server.followers import Followers, Piece, Read
from headwater.server.problems import problem
from headwater.server.service import Service, caller_of
from headwater.units import MIB

KEEP_ALIVE_SECONDS = 15.0
ROWS_AT_ONCE = 500
#: So many rows are read first, before it is known how large they are.
ROWS_AT_FIRST = 16
#: Some events go out together up to about so many bytes, and one row more.
PIECE_BYTES_MAX = MIB
#: A subscriber that is not where the follower is looks again after so long, or with the next row.
TOGETHER_SECONDS = 0.05


def router(service: Service) -> APIRouter:
    """The route of tails."""
    routes = APIRouter(prefix="/topics", tags=["rows"])
    followers = Followers()

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
        reader = await service.run(lambda: service.log.read(topic, start=begin, partitions=partition, columns=column))
        positions = {number: span[0] for number, span in reader.ranges.items()}
        reading = Reading(service, topic, positions, column, integers, chosen=partition is not None)
        stream = Tail(service, followers, topic, reading).events(request)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    return routes


class Tail:
    """One subscriber."""

    def __init__(self, service: Service, followers: Followers, topic: str, reading: Reading) -> None:
        self._service = service
        self._followers = followers
        self._reading = reading
        self._topic = topic

    async def events(self, request: Request) -> AsyncIterator[bytes]:
        """Events until the client has gone; between them nothing runs, and no thread waits."""
        service = self._service
        service.streams += 1
        try:
            # At once, so that a client knows that it is connected, and from where it would go on.
            yield b": tail of %s\nid: %s\n\n" % (self._topic.encode(), _id(self._reading.positions))
            while not service.closing:
                if (piece := await service.run(self._reading.read)).text:
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
        """Events that the follower tells, until it is no longer to be listened to or the client has gone."""
        found = self._followers.listen(
            self._service, self._reading.key, self._topic, self._hand_over, dict(self._reading.positions)
        )
        if found is None:  # it stands elsewhere; soon one of us has read on
            path = self._service.log.handle(self._topic).state.path
            with self._service.bell.waiting({path: "rows"}) as waiter:
                await waiter.wait(seconds=TOGETHER_SECONDS)
            return
        follower, listener = found
        try:
            while not listener.is_over and not self._service.closing:
                piece = await listener.next(seconds=KEEP_ALIVE_SECONDS)
                if piece is not None:
                    self._reading.place(piece.positions)
                    yield piece.text
                elif not listener.is_over:
                    if await request.is_disconnected():
                        return
                    yield b": still here\n\n"
        finally:
            follower.listeners.discard(listener)

    def _hand_over(self) -> Read:
        """Let a follower read on from just where this subscriber stands."""
        given, self._reading = self._reading, self._reading.twin()
        return given.read


class Reading:
    """Reads a topic from some positions on, and writes rows as events.

    With `chosen` it keeps to the partitions that it begins with; otherwise it reads all, also those that are added.
    """

    def __init__(
        self,
        service: Service,
        topic: str,
        positions: Offsets,
        columns: Sequence[str] | None,
        integers: Integers,
        *,
        chosen: bool,
    ) -> None:
        self._service = service
        self._topic = topic
        self._columns = columns
        self._integers: Integers = integers
        self._chosen = chosen
        self._cursors: dict[int, Cursor] = {}
        self._events: Iterator[bytes] | None = None
        self._rows_at_once = ROWS_AT_FIRST
        self.positions = dict(positions)

    @property
    def key(self) -> tuple[object, ...]:
        """What those have in common who can share a reader, once they stand at the same place."""
        partitions = tuple(sorted(self.positions)) if self._chosen else None
        return self._topic, partitions, None if self._columns is None else tuple(self._columns), self._integers

    def twin(self) -> Reading:
        """Another one at the same place."""
        return Reading(self._service, self._topic, self.positions, self._columns, self._integers, chosen=self._chosen)

    def place(self, positions: Offsets) -> None:
        """Go on from elsewhere."""
        self.positions = dict(positions)
        self._cursors.clear()
        self._events = None

    def read(self) -> Piece:
        """The next events, some at once; none where there are no more."""
        log = self._service.log
        if not self._cursors:
            for number, offset in self.positions.items():
                self._cursors[number] = log.cursor(self._topic, number, offset, columns=self._columns)
        if any(cursor.deleted for cursor in self._cursors.values()):
            current = log.topic(self._topic)  # or it is gone; one made anew has other rows, from the start
            self.place(dict.fromkeys(self.positions if self._chosen else range(current.partitions), 0))
            return self._told(b": the topic was made anew\n\n")
        if parts := self._next():
            return self._told(b"".join(parts))
        # Offsets that compaction has left without rows count as read, or two who stand here would not know it.
        self.positions = {number: max(at, self._cursors[number].offset) for number, at in self.positions.items()}
        if not self._chosen and log.topic(self._topic).partitions > len(self.positions):
            self.place(log.start_offsets(self._topic) | self.positions)
            return self._told(b": partitions were added\nid: %s\n\n" % _id(self.positions))
        return self._told(b"")

    def _told(self, text: bytes) -> Piece:
        return Piece(text=text, positions=dict(self.positions))

    def _next(self) -> list[bytes]:
        """Events up to about the bytes of a piece; the rest is left for the next one."""
        if self._events is None:
            self._events = self._written_now()
        parts, size = [], 0
        for event in self._events:
            parts.append(event)
            size += len(event)
            if size >= PIECE_BYTES_MAX:
                return parts
        self._events = None
        return parts

    def _written_now(self) -> Iterator[bytes]:
        """The next rows of each partition as events; only as many are read at a time as make a piece."""
        for cursor in list(self._cursors.values()):
            left = ROWS_AT_ONCE
            while left > 0 and (found := cursor.read(rows_max=min(left, self._rows_at_once))):
                rows, size = sum(one.data.num_rows for one in found), sum(one.data.nbytes for one in found)
                if rows:
                    self._rows_at_once = max(1, min(ROWS_AT_ONCE, PIECE_BYTES_MAX * rows // max(1, size)))
                left -= max(1, rows)
                for batch in found:
                    yield from self._written(batch)

    def _written(self, batch: Batch) -> Iterator[bytes]:
        dense = batch.offset_next - batch.offset == batch.data.num_rows
        event = b"event: punctuation\n" if batch.punctuation_us is not None else b""
        for number, line in enumerate(lines_of(batch, integers=self._integers), start=1):
            # Where compaction left gaps, only the end of the batch is a position for sure.
            reached = batch.offset + number if dense else batch.offset_next
            if batch.punctuation_us is None and (dense or number == batch.data.num_rows):
                self.positions[batch.partition] = reached
            yield b"%sid: %s\ndata: %s\n\n" % (event, _id(self.positions), line)


def _id(positions: Offsets) -> bytes:
    return offsets_to_text(positions).encode()
