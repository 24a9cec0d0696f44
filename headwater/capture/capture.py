"""A capture: a database whose tables are read into topics of the log, exactly once.

What a capture is, and how far it has come, are rows of two internal topics, so that every process sees the same:

    __captures             compacted by name: the definition, and whether it is paused
    __capture_positions    compacted by name: the position in the source, and the progress of snapshots

A position is appended in the transaction of the rows before it. Only one process runs a capture: a second one opens a
new epoch of the producer, and the first is fenced.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import orjson
import pyarrow as pa

from headwater.capture.envelope import Debezium, Envelope, EnvelopeName, Flat
from headwater.capture.port import Misfit, Piece, Position, SnapshotProgress, Source, SourceHealth, Table
from headwater.capture.sqlite import SqliteSource
from headwater.errors import ArgumentInvalid, NotFound, did_you_mean
from headwater.faults import reach
from headwater.log.dead_letters import DEAD_LETTER_SCHEMA, DeadLetter, dead_letter_topic
from headwater.log.port import Log, Topic
from headwater.log.topic_rules import check_name
from headwater.schema import parse_schema
from headwater.units import MIB

DEFINITIONS_TOPIC = "__captures"
POSITIONS_TOPIC = "__capture_positions"
#: The most changes of one piece: they are one transaction of the log.
ROWS_MAX = 16_384
#: How long a capture waits for a change before it looks at its definition again.
WAIT_SECONDS = 1.0

_DEFINITIONS: pa.Schema = parse_schema("name string not null, definition string not null, at timestamp not null")
_POSITIONS: pa.Schema = parse_schema(
    "name string not null, position string not null, snapshot string not null, rows int64 not null, at timestamp not null"
)


@dataclass(frozen=True, kw_only=True)
class CaptureConfig:
    """The definition of a capture: the database, the tables, and what their rows look like.

    >>> CaptureConfig(name="shop", url="sqlite:///shop.db", tables=("orders",)).topic_of("orders")
    'shop.orders'
    """

    name: str
    url: str
    tables: tuple[str, ...] = ("*",)
    prefix: str | None = None
    envelope: EnvelopeName = "flat"
    partitions: int = 1
    paused: bool = False

    def __post_init__(self) -> None:
        check_name("capture", self.name)
        object.__setattr__(self, "tables", tuple(self.tables))
        if not self.tables:
            raise ArgumentInvalid(
                name="tables", value=self.tables, expected="the names of tables, or patterns such as '*'"
            )
        if self.envelope not in get_args(EnvelopeName):
            raise ArgumentInvalid(name="envelope", value=self.envelope, expected="'flat' or 'debezium'")
        kind_of(self.url)

    def topic_of(self, table: str) -> str:
        """The topic of a table: its name behind the prefix, which is the capture's name and a dot unless it is given."""
        return (f"{self.name}." if self.prefix is None else self.prefix) + table

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> CaptureConfig:
        body = orjson.loads(text)
        return cls(**body | {"tables": tuple(body["tables"])})


@dataclass(frozen=True, kw_only=True)
class CaptureProgress:
    """How far a capture has come: its position in the source, and the snapshot of each table."""

    position: Position | None = None
    snapshot: Mapping[str, SnapshotProgress] = field(default_factory=dict)
    rows: int = 0
    at_us: int | None = None


def kind_of(url: str) -> str:
    """The kind of database that an address names.

    >>> kind_of("sqlite:///shop.db")
    'sqlite'
    >>> kind_of("oracle://db.example")
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `url` is 'oracle://db.example'. Give sqlite:///path/to/file.db.
    """
    scheme = urlsplit(url).scheme
    if scheme != "sqlite":
        raise ArgumentInvalid(name="url", value=url, expected="sqlite:///path/to/file.db")
    return scheme


def open_source(config: CaptureConfig) -> Source:
    """Open the database of a capture."""
    kind_of(config.url)
    path = config.url.removeprefix("sqlite:///")
    return SqliteSource(path, capture=config.name, tables=config.tables)


def _absolute(url: str) -> str:
    """The address with a whole path, so that processes in other folders find the file."""
    return "sqlite:///" + str(Path(url.removeprefix("sqlite:///")).absolute())


class CaptureStore:
    """The captures of a log: their definitions and their progress."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def create(self, config: CaptureConfig) -> None:
        """Add a capture, after its database was found to be usable."""
        if config.name in self.configs():
            raise ArgumentInvalid(name="name", value=config.name, expected="a name that no other capture has")
        config = replace(config, url=_absolute(config.url))
        with contextlib.closing(open_source(config)) as source:
            source.prepare()
        self._put(config)

    def set_paused(self, name: str, paused: bool) -> CaptureConfig:
        config = replace(self.config(name), paused=paused)
        self._put(config)
        return config

    def remove(self, name: str) -> None:
        """Remove a capture, and what it created in its database. Its topics stay."""
        config = self.config(name)
        with contextlib.closing(open_source(config)) as source:
            source.drop()
        self._log.append(DEFINITIONS_TOPIC, [{"name": name, "_tombstone": True}])
        self._log.append(POSITIONS_TOPIC, [{"name": name, "_tombstone": True}])

    def configs(self) -> dict[str, CaptureConfig]:
        return {row["name"]: CaptureConfig.from_json(row["definition"]) for row in self._latest(DEFINITIONS_TOPIC)}

    def config(self, name: str) -> CaptureConfig:
        configs = self.configs()
        if name not in configs:
            raise NotFound(kind="capture", name=name, near=did_you_mean(name, configs))
        return configs[name]

    def progress(self, name: str) -> CaptureProgress:
        for row in self._latest(POSITIONS_TOPIC):
            if row["name"] == name:
                snapshot = {table: SnapshotProgress(**one) for table, one in orjson.loads(row["snapshot"]).items()}
                return CaptureProgress(
                    position=orjson.loads(row["position"]),
                    snapshot=snapshot,
                    rows=row["rows"],
                    at_us=round(row["at"].timestamp() * 1e6),
                )
        return CaptureProgress()

    def restart_snapshot(self, name: str, table: str) -> None:
        """Read a table by a new snapshot, beside the changes that go on."""
        progress = self.progress(name)
        if table not in progress.snapshot:
            raise NotFound(kind="captured table", name=table, near=did_you_mean(table, progress.snapshot))
        kept = {other: one for other, one in progress.snapshot.items() if other != table}
        self._log.append(
            POSITIONS_TOPIC, [position_row(name, replace(progress, snapshot=kept), self._log.clock.now_us())]
        )

    def make_topics(self) -> None:
        for number, name, schema in ((1, DEFINITIONS_TOPIC, _DEFINITIONS), (2, POSITIONS_TOPIC, _POSITIONS)):
            self._log.create_internal(
                Topic(
                    name=name,
                    id=f"ca970{number:02}" + "0" * 25,
                    schema=schema,
                    created_us=self._log.clock.now_us(),
                    segment_bytes_max=8 * MIB,
                    key=("name",),
                    compact=True,
                )
            )

    def _put(self, config: CaptureConfig) -> None:
        self.make_topics()
        row = {"name": config.name, "definition": config.to_json(), "at": self._log.clock.now_us()}
        self._log.append(DEFINITIONS_TOPIC, [row])

    # Any: values of rows.
    def _latest(self, topic: str) -> list[dict[str, Any]]:
        if topic not in self._log.topics(internal=True):
            return []
        rows = {row["name"]: row for row in self._log.read(topic).rows()}
        return [row for row in rows.values() if not row["_tombstone"]]


# Any: a row.
def position_row(name: str, progress: CaptureProgress, at_us: int) -> dict[str, Any]:
    return {
        "name": name,
        "position": orjson.dumps(progress.position).decode(),
        "snapshot": orjson.dumps({table: one.to_json() for table, one in progress.snapshot.items()}).decode(),
        "rows": progress.rows,
        "at": at_us,
    }


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
        self._envelope: Envelope = (
            Debezium(connector=kind_of(config.url), name=config.name) if config.envelope == "debezium" else Flat()
        )

    @classmethod
    @contextlib.contextmanager
    def open(cls, log: Log, name: str) -> Iterator[Capture]:
        """Open a capture of the log for this process; another process that runs it is fenced."""
        store = CaptureStore(log)
        config = store.config(name)
        with contextlib.closing(open_source(config)) as source:
            capture = cls(log, config, source)
            capture._begin()
            yield capture

    def _begin(self) -> None:
        self._store.make_topics()
        self._epoch = self._log.open_producer(self._producer)
        for table in self._source.prepare():
            self._make_topic(table)
        self.progress = self._store.progress(self.config.name)
        if self.progress.position is None:
            self.progress = replace(self.progress, position=self._source.first_position())

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
        for table in {one.table.name: one.table for one in piece.changes}.values():
            self._make_topic(table)
        now_us = self._log.clock.now_us()
        letters = self._dead_letters(piece.misfits, now_us)
        with self._log.transaction(self._producer, epoch=self._epoch) as transaction:
            for changes in piece.changes:
                transaction.append(self.config.topic_of(changes.table.name), self._envelope.rows(changes))
            for topic, some in letters.items():
                transaction.append(topic, [letter.as_row() for letter in some], partition=0)
            transaction.append(POSITIONS_TOPIC, [position_row(self.config.name, after, now_us)])
            reach("capture.staged")

    def catch_up(self) -> int:
        """Capture all that is there now; return the number of rows."""
        before = self.progress.rows
        while self.step().more:
            pass
        return self.progress.rows - before

    def run(self, stop: threading.Event, *, on_piece: Callable[[Piece], None] = lambda _: None) -> None:
        """Capture until a stop is requested, and not while the capture is paused."""
        while not stop.is_set():
            if self._store.config(self.config.name).paused:
                stop.wait(WAIT_SECONDS)
                continue
            piece = self.step()
            on_piece(piece)
            if not piece.more:
                self._source.wait(WAIT_SECONDS)

    def health(self) -> SourceHealth:
        assert self.progress.position is not None
        return self._source.health(self.progress.position)

    def _make_topic(self, table: Table) -> None:
        """Create the topic of a table, or follow its new columns."""
        name, schema = self.config.topic_of(table.name), self._envelope.schema(table)
        try:
            known = self._log.topic(name).schema
        except NotFound:
            self._log.create(
                name, schema, key=table.key or None, compact=bool(table.key), partitions=self.config.partitions
            )
            return
        added = [one for one in schema if one.name not in known.names]
        if added:
            self._log.alter(name, schema=pa.schema([*known, *added]))

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
