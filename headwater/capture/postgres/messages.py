"""The messages of `pgoutput` that are not rows: small ones, read field by field.

All numbers are big-endian. In a block of a streamed transaction, messages of rows, relations, truncations and logical
messages have the id of the (sub-)transaction behind their first byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: Microseconds between 1970 and 2000, where PostgreSQL's clock starts.
EPOCH_US = 946_684_800_000_000

_BEGIN = struct.Struct(">xQqI")
_COMMIT = struct.Struct(">xxQQq")
_STREAM_COMMIT = struct.Struct(">xIxQQq")


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation: its name, the number of its type, and the type's modifier."""

    name: str
    type: int
    modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is for the rows that follow; `identity` is what is known of old rows: d, n, f or i."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Begin:
    """The begin of a transaction: the position of its commit, when it was committed, and its id."""

    commit_lsn: int
    at_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction: where its commit begins and ends; the end is the position of whole transactions."""

    lsn: int
    end_lsn: int
    at_us: int
    xid: int = 0


@dataclass(frozen=True, slots=True)
class Truncate:
    """A truncation of relations, by their numbers."""

    relations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message that a program wrote with `pg_logical_emit_message`."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


def parse_relation(payload: bytes, *, streamed: bool = False) -> Relation:
    at = 5 if streamed else 1
    number = int.from_bytes(payload[at : at + 4], "big")
    schema, at = _text(payload, at + 4)
    name, at = _text(payload, at)
    identity, count = chr(payload[at]), int.from_bytes(payload[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text(payload, at + 1)  # behind the flag of a key column
        kind, modifier = struct.unpack_from(">Ii", payload, at)
        columns.append(RelationColumn(column, kind, modifier))
        at += 8
    return Relation(number, schema or "pg_catalog", name, identity, tuple(columns))


def parse_begin(payload: bytes) -> Begin:
    commit_lsn, at, xid = _BEGIN.unpack(payload)
    return Begin(commit_lsn, at + EPOCH_US, xid)


def parse_commit(payload: bytes) -> Commit:
    lsn, end_lsn, at = _COMMIT.unpack(payload)
    return Commit(lsn, end_lsn, at + EPOCH_US)


def parse_stream_commit(payload: bytes) -> Commit:
    xid, lsn, end_lsn, at = _STREAM_COMMIT.unpack(payload)
    return Commit(lsn, end_lsn, at + EPOCH_US, xid)


def parse_stream_abort(payload: bytes) -> tuple[int, int]:
    """The transaction, and its part that was rolled back: itself, or one of its savepoints."""
    top, part = struct.unpack_from(">II", payload, 1)
    return top, part


def parse_truncate(payload: bytes, *, streamed: bool = False) -> Truncate:
    at = 5 if streamed else 1
    (count,) = struct.unpack_from(">I", payload, at)
    return Truncate(struct.unpack_from(f">{count}I", payload, at + 5))


def parse_message(payload: bytes, *, streamed: bool = False) -> LogicalMessage:
    at = 5 if streamed else 1
    flags, lsn = struct.unpack_from(">BQ", payload, at)
    prefix, at = _text(payload, at + 9)
    (size,) = struct.unpack_from(">I", payload, at)
    return LogicalMessage(bool(flags & 1), lsn, prefix, payload[at + 4 : at + 4 + size])


def _text(payload: bytes, at: int) -> tuple[str, int]:
    end = payload.index(b"\0", at)
    return payload[at:end].decode(), end + 1


def format_lsn(lsn: int) -> str:
    """A position as PostgreSQL writes it.

    >>> format_lsn(0x16B374D48)
    '1/6B374D48'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Parse what `format_lsn` wrote.

    >>> parse_lsn("1/6B374D48") == 0x16B374D48
    True
    """
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
