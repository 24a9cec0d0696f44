"""A capture at work: it reads the tables of a database into topics of the log, exactly once.

A position is appended in the transaction of the rows before it. Only one process runs a capture: a second one opens a
new epoch of the producer, and the first is fenced.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headwater.capture.config import CaptureConfig
from headwater.capture.connectors import open_source
from headwater.capture.envelope import Debezium, Envelope, Flat
from headwater.capture.errors import ColumnRetyped, SourceInvalid
from headwater.capture.outbox import OUTBOX_KEY, Outbox
from headwater.capture.port import Changes, Misfit, Piece, Source, SourceHealth, Table
from headwater.capture.store import POSITIONS_TOPIC, CaptureProgress, CaptureStore, position_row
from headwater.capture.topic_schema import followed
from headwater.capture.transactions import TRANSACTIONS_SCHEMA, TRANSACTIONS_TOPIC, TransactionCounts
from headwater.capture.transform import check_tables, transform_of
from headwater.capture.truncation import TopicKeys
from headwater.errors import NotFound
from headwater.faults import reach
from headwater.log.client_config import Rows
from headwater.log.dead_letters import DEAD_LETTER_SCHEMA, DeadLetter, dead_letter_topic
from headwater.log.port import Log
from headwater.schema.evolution import widens
from headwater.schema.notation import format_type

#: The most changes of one piece: they are one transaction of the log.
ROWS_MAX = 16_384
#: How long a capture waits for a change before it looks at its definition again.
WAIT_SECONDS = 1.0


class Capture:
    """One capture at work: it reads its source in pieces and appends each with the position behind it.

    >>> import sqlite3, tempfile, headwater
    >>> folder = tempfile.mkdtemp()
    >>> shop = sqlite3.connect(f"{folder}/shop.db", isolation_level=None)
    >>> _ = shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    >>> _ = shop.execute("INSERT INTO orders VALUES (1, 'tea')")
    >>> log = headwater.open(f"{folder}/log")
    >>> CaptureStore(log).create(CaptureConfig(name="shop", url=f"sqlite:///{folder}/shop.db"))
    >>> with Capture.open(log, "shop") as capture:
    ...     capture.catch_up()
    1
    >>> [(row["id"], row["item"]) for row in log.read("shop.orders").rows()]
    [(1, 'tea')]
    """

    def __init__(self, log: Log, config: CaptureConfig, source: Source) -> None:
        self._log = log
        self.config = config
        self._store = CaptureStore(log)
        self._source = source
        self._producer = f"capture.{config.name}"
        #: Rows by table since the capture was opened.
        self.captured = Counter[str]()
        self._envelope: Envelope = (
            Debezium(connector=config.kind, name=config.name) if config.envelope == "debezium" else Flat()
        )
        self._transform = transform_of(config)
        self._outbox = Outbox(config.outbox) if config.outbox is not None else None

    @classmethod
    @contextlib.contextmanager
    def open(cls, log: Log, name: str) -> Iterator[Capture]:
        """Open a capture of the log for this process; another process that runs it is fenced."""
        config = CaptureStore(log).config(name)
        with cls.of(log, config, open_source(config)) as capture:
            yield capture

    @classmethod
    @contextlib.contextmanager
    def of(cls, log: Log, config: CaptureConfig, source: Source) -> Iterator[Capture]:
        """Open a capture of a source that is open already; the source is closed at the end."""
        with contextlib.closing(source):
            capture = cls(log, config, source)
            capture._begin()
            yield capture

    def _begin(self) -> None:
        self._store.make_topics()
        self._epoch = self._log.open_producer(self._producer)
        tables = self._source.prepare()
        check_tables(self.config, tables)
        self.tables = [self._transform.table(table) for table in tables if table.name != self.config.outbox]
        for table in self.tables:
            self._make_topic(table)
        if self.config.transactions:
            self._log.create(self.config.topic_of(TRANSACTIONS_TOPIC), TRANSACTIONS_SCHEMA, exist_ok=True)
        self.progress = self._store.progress(self.config.name)
        if self.progress.position is None:
            self.progress = replace(self.progress, position=self._source.first_position())
        self._begin_snapshots(self.config.snapshot_requests)

    def step(self) -> Piece:
        """Read one piece, append it, and acknowledge it."""
        assert self.progress.position is not None
        piece = self._source.read(self.progress.position, self.progress.snapshot, rows_max=ROWS_MAX)
        after = CaptureProgress(
            position=piece.position,
            snapshot={**self.progress.snapshot, **piece.snapshot},
            rows=self.progress.rows + piece.count,
        )
        if (after.position, after.snapshot) != (self.progress.position, self.progress.snapshot):
            self._append(piece, after)
            self.progress = after
            reach("capture.appended")
            self._source.acknowledge(piece.position)
            reach("capture.acknowledged")
        return piece

    def _append(self, piece: Piece, after: CaptureProgress) -> None:
        now_us = self._log.clock.now_us()
        if piece.rows is not None:
            self._append_staged(piece, after, now_us)
            return
        with self._log.transaction(self._producer, epoch=self._epoch) as transaction:
            for topic, rows in self._rows(piece, after, now_us):
                transaction.append(topic, rows)
            reach("capture.staged")

    def _append_staged(self, piece: Piece, after: CaptureProgress, now_us: int) -> None:
        """Append a piece whose rows are made one batch after the other: they wait in a file, not in memory."""
        with self._log.stage(self._producer, sequence=after.rows, attempt=secrets.token_hex(4)) as stage:
            for topic, rows in self._rows(piece, after, now_us):
                stage.append(topic, rows)
            staged = stage.finish()
        pa.default_memory_pool().release_unused()  # the commit maps the file: both together would be the peak
        reach("capture.staged")
        self._log.commit_staged([staged], producer=self._producer, epoch=self._epoch)

    def _rows(self, piece: Piece, after: CaptureProgress, now_us: int) -> Iterator[tuple[str, Rows]]:
        """The rows of a piece by topic, in order; the last one is the position behind it."""
        keys, counts = TopicKeys(self._log), TransactionCounts()
        misfits: list[Misfit] = []
        if piece.rows is None and self._needs_transactions:
            # The changes of each table may come one after the other: find where transactions begin.
            for original in piece.changes:
                counts.first(original)
        for original in piece.changes:
            changes = self._transform.apply(original)
            if changes is None:
                continue
            if self._outbox is not None and changes.table.name == self._outbox.table:
                yield from self._events(self._outbox, changes, misfits)
                continue
            self._make_topic(changes.table)
            topic = self.config.topic_of(changes.table.name)
            if changes.table.key and changes.operations[0].as_py() == "t":
                for deleted in keys.deletions(topic, changes):
                    yield topic, self._envelope.rows(deleted, self._facts(counts, deleted))
                continue
            yield topic, self._envelope.rows(changes, self._facts(counts, changes))
            self.captured[changes.table.name] += changes.count
            keys.add(topic, changes)
        # Only now: a piece that makes its changes while they are appended finds misfits on the way.
        misfits += [self._transform.misfit(misfit) for misfit in piece.misfits]
        if self.config.transactions and (markers := counts.markers()):
            yield self.config.topic_of(TRANSACTIONS_TOPIC), markers
        for topic, some in self._dead_letters(misfits, now_us).items():
            yield topic, [letter.as_row() for letter in some]
        yield POSITIONS_TOPIC, [position_row(self.config.name, after, now_us)]

    def _facts(self, counts: TransactionCounts, changes: Changes) -> pa.StructArray | None:
        """The transactions of changes, where rows have a place for them."""
        return counts.facts(changes) if self._needs_transactions else None

    @property
    def _needs_transactions(self) -> bool:
        return self.config.transactions or self.config.envelope == "debezium"

    def _events(self, outbox: Outbox, changes: Changes, misfits: list[Misfit]) -> Iterator[tuple[str, Rows]]:
        """The events of an outbox by topic."""
        misfits += outbox.misfits(changes)
        for events in outbox.events(changes):
            topic = self.config.topic_of(events.name)
            self._log.create(
                topic,
                outbox.schema(changes.table),
                key=OUTBOX_KEY,
                partitions=self.config.partitions,
                exist_ok=True,
            )
            yield topic, events.rows
            self.captured[changes.table.name] += events.rows.num_rows

    def catch_up(self, *, on_piece: Callable[[Piece], None] = lambda _: None) -> int:
        """Capture all that is there now; return the number of rows."""
        before = self.progress.rows
        more = True
        while more:
            piece = self.step()
            on_piece(piece)
            more = piece.more
        return self.progress.rows - before

    def run(
        self,
        stop: threading.Event,
        *,
        on_piece: Callable[[Piece], None] = lambda _: None,
        on_pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Capture until a stop is requested, and not while the capture is paused."""
        while not stop.is_set():
            config = self._store.config(self.config.name)
            if config.paused:
                on_pause()
                stop.wait(WAIT_SECONDS)
                continue
            self._begin_snapshots(config.snapshot_requests)
            piece = self.step()
            on_piece(piece)
            if not piece.more:
                self._source.wait(WAIT_SECONDS)

    def _begin_snapshots(self, requests: Mapping[str, str | None]) -> None:
        """Begin requested snapshots. A crash in between begins them again: rows are appended once more, by their keys."""
        if not requests:
            return
        begun = {
            table: replace(one, rows=0, cursor=None if where is None else {"where": where}, complete=False)
            for table, where in requests.items()
            if (one := self.progress.snapshot.get(table)) is not None
        }
        self.progress = replace(self.progress, snapshot={**self.progress.snapshot, **begun})
        with self._log.transaction(self._producer, epoch=self._epoch) as transaction:
            row = position_row(self.config.name, self.progress, self._log.clock.now_us())
            transaction.append(POSITIONS_TOPIC, [row])
        self._store.take_requests(self.config.name, list(requests))

    def health(self) -> SourceHealth:
        assert self.progress.position is not None
        return self._source.health(self.progress.position)

    def _make_topic(self, table: Table) -> None:
        """Create the topic of a table, or follow its new columns."""
        name, schema = self.config.topic_of(table.name), self._envelope.schema(table)
        try:
            topic = self._log.topic(name)
        except NotFound:
            self._log.create(
                name, schema, key=table.key or None, compact=bool(table.key), partitions=self.config.partitions
            )
            return
        if tuple(topic.key or ()) != table.key:
            raise SourceInvalid(
                source=f"Table {table.name!r}",
                why=f"its key is now ({', '.join(table.key)}), and that of topic {name!r} is ({', '.join(topic.key or ())})",
                instead="Give the table its old key again; or drop the capture, delete the topic, and create the capture again",
            )
        wanted = followed(topic.schema, schema)
        for field in schema:
            kept = wanted.field(field.name)
            if not widens(field.type, kept.type):
                raise ColumnRetyped(
                    table=table.name,
                    column=field.name,
                    before=format_type(kept.type),
                    now=format_type(field.type),
                    topic=name,
                )
        if wanted != topic.schema:
            self._log.alter(name, schema=wanted)

    def _dead_letters(self, misfits: Sequence[Misfit], now_us: int) -> dict[str, list[DeadLetter]]:
        letters: dict[str, list[DeadLetter]] = {}
        for misfit in misfits:
            topic = self.config.topic_of(misfit.table)
            letter = DeadLetter(
                topic=topic,
                partition=0,
                offset=0,
                row=misfit.row,
                query=f"capture {self.config.name}",
                error="RowInvalid",
                message=misfit.why,
                at_us=now_us,
            )
            letters.setdefault(dead_letter_topic(topic), []).append(letter)
        for name in letters:
            self._log.create(name, DEAD_LETTER_SCHEMA, time="at", exist_ok=True)
        return letters
