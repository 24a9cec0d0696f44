"""Reads of a remote log: pages of rows, each fetched on demand."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import pyarrow as pa

from headwater.errors import NotFound
from headwater.log.port import Batch, Cursor, Reader
from headwater.log.remote.connection import Connection
from headwater.log.remote.wire import (
    ARROW,
    MORE_HEADER,
    NEXT_HEADER,
    TOLD_HEADER,
    TOPIC_HEADER,
    bytes_to_batches,
    offsets_from_text,
)

PAGE_ROWS_MAX = 100_000


class RemoteReader(Reader):
    """A bounded, lazy read of partitions of a topic, one after the other."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        schema: pa.Schema,
        ranges: dict[int, tuple[int, int]],
        *,
        columns: Sequence[str] | None,
        limit: int | None,
        archived: bool,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._schema = schema
        self._ranges = ranges
        self._columns = None if columns is None else list(columns)
        self._limit = limit
        self._archived = archived

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        return dict(self._ranges)

    def batches(self) -> Iterator[Batch]:
        left = self._limit
        for number, (start, stop) in self._ranges.items():
            while start < stop and (left is None or left > 0):
                page, following, more = self._page(number, start, stop, left)
                for batch in page:
                    left = None if left is None else left - batch.data.num_rows
                    yield batch
                if not more or following <= start:
                    break
                start = following

    def _page(self, number: int, start: int, stop: int, left: int | None) -> tuple[list[Batch], int, bool]:
        response = self._connection.ask(
            "GET",
            f"/topics/{self._topic}/rows",
            parameters={
                "partition": number,
                "start": f"{number}:{start}",
                "stop": f"{number}:{stop}",
                "limit": PAGE_ROWS_MAX if left is None else min(left, PAGE_ROWS_MAX),
                "column": self._columns,
                "archived": self._archived,
            },
            headers={"Accept": ARROW},
        )
        following = offsets_from_text(response.headers[NEXT_HEADER])[number]
        batches = list(bytes_to_batches(response.content, topic=self._topic))
        return batches, following, response.headers[MORE_HEADER] == "true"


def read_range(
    connection: Connection,
    topic: str,
    partition: int,
    *,
    start: int,
    stop: int,
    columns: Sequence[str] | None,
    since_us: int | None,
    until_us: int | None,
    punctuations: tuple[int, int | None] | None,
) -> Iterator[Batch]:
    """See `Log.read_range`: one page after the other, each fetched on demand."""
    told_start, told_stop = punctuations or (0, None)
    topic_id, more = None, True
    while more:
        response = connection.ask(
            "GET",
            f"/topics/{topic}/partitions/{partition}/rows",
            parameters={
                "start": start,
                "stop": stop,
                "column": None if columns is None else list(columns),
                "since_us": since_us,
                "until_us": until_us,
                "punctuations": punctuations is not None,
                "told_start": told_start,
                "told_stop": told_stop,
            },
        )
        if topic_id not in (None, response.headers[TOPIC_HEADER]):
            raise NotFound(kind="topic", name=topic, near=" It was deleted and created again while it was read.")
        topic_id = response.headers[TOPIC_HEADER]
        yield from bytes_to_batches(response.content, topic=topic)
        start, told_start = int(response.headers[NEXT_HEADER]), int(response.headers[TOLD_HEADER])
        more = response.headers[MORE_HEADER] == "true"


class RemoteCursor(Cursor):
    """A position in one partition that advances with each read.

    The server keeps a cursor under the same name, so that it need not seek again, and returns a punctuation at the end
    only once. If the server has dropped it, it seeks by the offset.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        topic_id: str,
        partition: int,
        offset: int,
        columns: Sequence[str] | None,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        self._offset = offset
        self._columns = None if columns is None else list(columns)
        self._name = secrets.token_hex(8)
        self._deleted = False

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted and created again, according to the last read."""
        return self._deleted

    def read(self, *, rows_max: int) -> list[Batch]:
        response = self._connection.ask(
            "GET",
            f"/topics/{self._topic}/rows",
            parameters={
                "start": f"{self._partition}:{self._offset}",
                "limit": rows_max,
                "column": self._columns,
                "cursor": self._name,
                "topic_id": self._topic_id,
            },
            headers={"Accept": ARROW},
        )
        if response.headers.get(TOPIC_HEADER) != self._topic_id:
            self._deleted = True
            return []
        self._offset = offsets_from_text(response.headers[NEXT_HEADER])[self._partition]
        return list(bytes_to_batches(response.content, topic=self._topic))
