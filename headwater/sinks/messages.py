"""Messages to people and programs outside: what of a batch is worth one, and what has been sent before.

What was sent cannot be undone. So a new row of a key that a message was sent about goes out as a correction that
names the first message; a deletion likewise; and a row that is the same as the one sent last is not sent again. What
was sent is remembered in a small database in the sink's state folder, message by message: after a crash, only those are
sent again of which it is not known, under the same id, by which the receiver can tell.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson
import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid
from headwater.schema.encodings import json as json_lines
from headwater.sinks.changes import Changes
from headwater.sinks.driver import Progress, key_texts
from headwater.spark.changelog import OPERATION

Kind = Literal["new", "correction", "deletion"]


@dataclass(frozen=True, kw_only=True)
class Message:
    """One thing to tell: a new row, a correction of one that was told, or that it is gone."""

    id: str
    kind: Kind
    key: str
    row: bytes
    """The row as a JSON object; of a deletion, its key."""
    position: int
    corrects: str | None = None
    operation: str | None = None
    keyed: bool = True

    # Any: what JSON holds.
    @property
    def values(self) -> dict[str, Any]:
        row: dict[str, Any] = orjson.loads(self.row)
        return row

    @property
    def digest(self) -> str:
        return _hashed(self.row)


class Known(NamedTuple):
    """What is known of a key: the first and the last message, what the last said, and in which batch."""

    first: str
    digest: str
    query: str
    batch: int

    def is_of(self, batch: MicroBatch) -> bool:
        return (self.query, self.batch) == (batch.query, batch.number)


class Sent:
    """The memory of what was sent. One process at a time writes it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE IF NOT EXISTS progress (query TEXT PRIMARY KEY, body BLOB NOT NULL);"
            "CREATE TABLE IF NOT EXISTS sent (key TEXT PRIMARY KEY, first TEXT NOT NULL, digest TEXT NOT NULL, "
            "query TEXT NOT NULL, batch INTEGER NOT NULL, keyed INTEGER NOT NULL) WITHOUT ROWID;"
        )

    def progress(self, query: str) -> Progress:
        found = self._database.execute("SELECT body FROM progress WHERE query = ?", (query,)).fetchone()
        return Progress.from_json(None if found is None else found[0])

    def advance(self, query: str, progress: Progress) -> None:
        """Remember how far a query is. Rows without a key are known only while their batch is at work."""
        with self._transaction():
            self._database.execute("INSERT OR REPLACE INTO progress VALUES (?, ?)", (query, progress.as_json()))
            gone = "DELETE FROM sent WHERE query = ? AND NOT keyed AND batch <= ?"
            self._database.execute(gone, (query, progress.batch))

    def known(self, key: str) -> Known | None:
        """What was sent of a key, by any query: one with a new checkpoint must not send everything again."""
        select = "SELECT first, digest, query, batch FROM sent WHERE key = ?"
        found = self._database.execute(select, (key,)).fetchone()
        return None if found is None else Known(*found)

    def record(self, batch: MicroBatch, messages: Iterable[Message]) -> None:
        """Remember that these have arrived."""
        with self._transaction():
            for message in messages:
                first = message.corrects or message.id
                digest = "" if message.kind == "deletion" else message.digest
                row = (message.key, first, digest, batch.query, batch.number, message.keyed)
                self._database.execute("INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?, ?)", row)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


@contextlib.contextmanager
def opened(state: str | Path | None, sink: str) -> Iterator[Sent]:
    """The memory of a sink, in its state folder."""
    if state is None:
        raise ArgumentInvalid(name="state", value=None, expected="a folder in which to remember what was sent")
    name = "".join(letter if letter.isalnum() else "-" for letter in sink)[:60]
    sent = Sent(Path(state) / f"{name}.{_hashed(sink.encode())[:8]}.sqlite")
    try:
        yield sent
    finally:
        sent.close()


def messages_of(changes: Changes, batch: MicroBatch, key: Sequence[str], sent: Sent) -> list[Message]:
    """What is to be told of a batch and has not been, in the order of its rows."""
    if not key:
        return [message for message in _all(changes.rows, changes, batch) if sent.known(message.key) is None]
    told = [*_upserts(changes, batch, key, sent), *_deletions(changes, batch, key, sent)]
    return sorted(told, key=lambda message: message.position)


def _all(rows: pa.Table, changes: Changes, batch: MicroBatch) -> Iterator[Message]:
    """A message for each row; equal rows of a batch are told apart by their number."""
    seen: Counter[bytes] = Counter()
    operations = rows.column(OPERATION).to_pylist() if OPERATION in rows.column_names else [None] * rows.num_rows
    mine = rows.drop_columns([OPERATION]) if OPERATION in rows.column_names else rows
    for line, operation, position in zip(_lines(mine), operations, changes.positions, strict=True):
        seen[line] += 1
        id = _id(batch, f"{operation} {seen[line]} {_hashed(line)}")
        yield Message(id=id, kind="new", key=id, row=line, position=int(position), operation=operation, keyed=False)


def _upserts(changes: Changes, batch: MicroBatch, key: Sequence[str], sent: Sent) -> Iterator[Message]:
    texts = key_texts(changes.rows, key)
    for text, line, position in zip(texts, _lines(changes.rows), changes.positions, strict=True):
        known = sent.known(text)
        if known is not None and (known.is_of(batch) or known.digest == _hashed(line)):
            continue
        first = known.first if known is not None and known.digest else None
        kind: Kind = "new" if first is None else "correction"
        yield Message(id=_id(batch, text), kind=kind, key=text, row=line, position=int(position), corrects=first)


def _deletions(changes: Changes, batch: MicroBatch, key: Sequence[str], sent: Sent) -> Iterator[Message]:
    texts = key_texts(changes.gone, key)
    for text, line, position in zip(texts, _lines(changes.gone), changes.gone_positions, strict=True):
        known = sent.known(text)
        if known is None or known.is_of(batch) or not known.digest:
            continue  # no message was sent about it, or the last one said that it is gone
        yield Message(
            id=_id(batch, text), kind="deletion", key=text, row=line, position=int(position), corrects=known.first
        )


def _lines(rows: pa.Table) -> Iterator[bytes]:
    for part in rows.to_batches():
        yield from json_lines.encode_rows(part)


def _id(batch: MicroBatch, key: str) -> str:
    return _hashed(orjson.dumps([batch.query, batch.number, key]))


def _hashed(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]
