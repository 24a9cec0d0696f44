"""The forms in which rows are followed: server-sent events, and frames of a WebSocket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import orjson

from headwater.errors import HeadwaterError
from headwater.http.bodies import Integers, lines_of
from headwater.http.problems import problem
from headwater.log import Batch, Offsets
from headwater.log.remote.wire import offsets_to_text

#: How a frame with rows begins.
ROWS = b'{"type":"rows"'


class StreamForm(Protocol):
    """How a stream says what it has to say; each method returns what is sent at once."""

    @property
    def name(self) -> str: ...
    def opening(self, topic: str, positions: Offsets) -> bytes:
        """The first words: the client is connected, and here."""

    def note(self, text: str, positions: Offsets | None = None) -> bytes:
        """Something that is no row; with positions, these are where the stream is now."""

    def rows(self, batches: Sequence[Batch], at: Offsets, *, integers: Integers) -> bytes:
        """Rows and punctuations; `at` moves on with them."""

    def failure(self, error: HeadwaterError) -> bytes:
        """Why the stream ends."""


class ServerSentEvents:
    """An event for each row; its id is the position behind it."""

    name: ClassVar[str] = "events"

    def opening(self, topic: str, positions: Offsets) -> bytes:
        return b": tail of %s\nid: %s\n\n" % (topic.encode(), _text(positions))

    def note(self, text: str, positions: Offsets | None = None) -> bytes:
        place = b"" if positions is None else b"id: %s\n" % _text(positions)
        return b": %s\n%s\n" % (text.encode(), place)

    def rows(self, batches: Sequence[Batch], at: Offsets, *, integers: Integers) -> bytes:
        events = []
        for batch in batches:
            dense = batch.offset_next - batch.offset == batch.data.num_rows
            event = b"event: punctuation\n" if batch.punctuation_us is not None else b""
            for number, line in enumerate(lines_of(batch, integers=integers), start=1):
                # Where offsets have gaps, only the end of the batch is a known position.
                if batch.punctuation_us is None and (dense or number == batch.data.num_rows):
                    at[batch.partition] = batch.offset + number if dense else batch.offset_next
                events.append(b"%sid: %s\ndata: %s\n\n" % (event, _text(at), line))
            if batch.punctuation_us is None:  # of a batch that a filter has left empty, too
                at[batch.partition] = batch.offset_next
        return b"".join(events)

    def failure(self, error: HeadwaterError) -> bytes:
        return b"event: failure\ndata: %s\n\n" % orjson.dumps(problem(error))


class JsonFrames:
    """An object for some rows; its `next` is the position behind all of them."""

    name: ClassVar[str] = "frames"

    def opening(self, topic: str, positions: Offsets) -> bytes:
        return b'{"type":"open","topic":%s,"next":"%s"}' % (orjson.dumps(topic), _text(positions))

    def note(self, text: str, positions: Offsets | None = None) -> bytes:
        place = b"" if positions is None else b',"next":"%s"' % _text(positions)
        return b'{"type":"note","text":%s%s}' % (orjson.dumps(text), place)

    def rows(self, batches: Sequence[Batch], at: Offsets, *, integers: Integers) -> bytes:
        lines = list[bytes]()
        for batch in batches:
            if batch.punctuation_us is None:
                at[batch.partition] = batch.offset_next
            lines += lines_of(batch, integers=integers)
        return b'%s,"next":"%s","rows":[%s]}' % (ROWS, _text(at), b",".join(lines)) if lines else b""

    def failure(self, error: HeadwaterError) -> bytes:
        return b'{"type":"failure","problem":%s}' % orjson.dumps(problem(error))


EVENTS = ServerSentEvents()
FRAMES = JsonFrames()


def _text(positions: Offsets) -> bytes:
    return offsets_to_text(positions).encode()
