"""The protocol of every codec of values, and the messages that it makes and takes.

A codec knows one topic: it is made again when the topic's schema changes. It turns rows into messages and back, and knows
nothing of brokers, partitions or offsets; the log adds those, and the columns `_offset`, `_appended_at` and so on.
Keys are not a codec's concern in a topic of one message per row: the log encodes and decodes them (`kafka/keys.py`), so
that a tombstone, which has no value, still has its key's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, overload

import pyarrow as pa

from headwater.schema import RowBatch

#: Names of headers that the log adds to messages begin so; a codec may add its own. Readers of rows do not see them.
HEADER_PREFIX = "hw-"

Headers = Sequence[tuple[str, bytes | None]]


class Outgoing(NamedTuple):
    """A message to send. Its value is None if it deletes its key (a tombstone)."""

    value: bytes | None
    #: What the codec itself needs to decode the message, such as the version of a schema.
    headers: Headers = ()
    #: How many rows the message holds.
    rows: int = 1


class Incoming(NamedTuple):
    """A message as it was read. Its value is None if it deletes its key (a tombstone)."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    appended_us: int = 0


class Messages(Sequence[Incoming]):
    """Messages of one partition in order, and their parts as lists: what a codec takes as a list costs no object per message."""

    def __init__(self, messages: Sequence[Incoming]) -> None:
        self._messages = messages

    @cached_property
    def offsets(self) -> list[int]:
        return [message.offset for message in self._messages]

    @cached_property
    def values(self) -> list[bytes | None]:
        return [message.value for message in self._messages]

    @cached_property
    def keys(self) -> list[bytes | None]:
        return [message.key for message in self._messages]

    @cached_property
    def headers(self) -> list[Headers] | None:
        """The headers of each message; None if no message has any."""
        headers = [message.headers for message in self._messages]
        return headers if any(headers) else None

    @cached_property
    def appended_us(self) -> list[int]:
        return [message.appended_us for message in self._messages]

    @property
    def has_tombstones(self) -> bool:
        """Whether the value of any message is None."""
        return None in self.values

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, place: int) -> Incoming: ...
    @overload
    def __getitem__(self, place: slice) -> Messages: ...
    def __getitem__(self, place: int | slice) -> Incoming | Messages:
        return Messages(self._messages[place]) if isinstance(place, slice) else self._messages[place]


class Decoded(NamedTuple):
    """The rows of some messages, in order."""

    #: The topic's columns as they are stored: all nullable.
    data: pa.RecordBatch
    #: The rows of each message, where a message may hold several; None if each is one row.
    counts: Sequence[int] | None = None
    #: The rows' headers, where the codec stores them itself; None if it does not, or no row has any.
    headers: pa.Array | None = None
    #: Which rows delete their key; None if none does.
    tombstones: pa.Array | None = None


class Values(Protocol):
    """Rows of one topic as values of messages, and back."""

    #: The name of the format, as the setting of the topic has it.
    format: str
    #: Whether each message is one row: only such topics can be compacted.
    per_row: bool

    def encode(self, rows: RowBatch, *, bytes_max: int) -> list[Outgoing]:
        """The messages of rows of one partition, in order, each of at most `bytes_max` bytes.

        Raise `RowTooLarge` for a row that does not fit into a message. The log adds keys and the rows' headers to
        messages of one row; a codec with several rows in a message stores headers and tombstones itself.
        """

    def decode(self, messages: Messages) -> Decoded:
        """The rows of messages of one partition, in the schema of the topic as it is now.

        A tombstone of one row is a row whose columns are null: the log fills in those of the key. Raise
        `ValueUnreadable` with the first message whose value is not of this format.
        """

    def times(self, message: Incoming) -> tuple[int, int] | None:  # noqa: ARG002
        """The earliest and the latest event time of a message, where it tells them without being decoded; else None."""
        return None
