"""What sinks share whose rows pass through the driver: one commit per batch, refused rows, and retries.

A sink keeps the `Progress` of each query where its rows are and changes both in one step, so that a batch which Spark
does again is known. A run that has been replaced by another on the same checkpoint is refused, however late it wakes up.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import orjson
import pyarrow as pa

from headwater.clock import SystemClock
from headwater.engine.micro_batch import MicroBatch
from headwater.engine.open_logs import shared_log
from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.home import absolute_address
from headwater.log.dead_letters import DeadLetter, append_dead_letters, attempt_of
from headwater.schema.encodings import json as json_lines
from headwater.sinks.changes import OWN, Changes, Refusal, appended, check_key, collapsed, table_of
from headwater.sinks.errors import RowRefused, SinkFenced
from headwater.sinks.port import Guarantee, finish, streaming_batch
from headwater.sinks.retry import Retry, RetryLater

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


STATE = "spark.headwater.state"
#: Replaced runs that are remembered. One that is older has been dead for a hundred restarts.
PAST_MAX = 100
#: Dead letters of one append, and room for the appends of one batch between the sequences of two.
LETTERS_MAX = 10_000
APPENDS_MAX = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a query has come in a sink.

    >>> first = Progress().admit("s", MicroBatch(query="q", number=0, run="a"))
    >>> second = first.admit("s", MicroBatch(query="q", number=0, run="b"))
    >>> second.run, second.past
    ('b', ('a',))
    >>> second.admit("s", MicroBatch(query="q", number=1, run="a"))
    Traceback (most recent call last):
    headwater.sinks.errors.SinkFenced: Run 'a' of query 'q' has been replaced by run 'b' in s. Stop this process: its successor is at work. Nothing of this batch was written.
    """

    batch: int = -1
    run: str = ""
    past: tuple[str, ...] = ()

    def admit(self, sink: str, batch: MicroBatch) -> Self:
        """The progress once this batch's run is at work; refuses a run that another has replaced."""
        if not batch.run or batch.run == self.run:
            return self
        if batch.run in self.past:
            raise SinkFenced(sink=sink, query=batch.query, run=batch.run, current=self.run)
        past = (*self.past, self.run) if self.run else self.past
        return replace(self, run=batch.run, past=past[-PAST_MAX:])

    def has(self, batch: MicroBatch) -> bool:
        """Whether this batch has been written already."""
        return batch.number <= self.batch

    def after(self, batch: MicroBatch) -> Self:
        return replace(self, batch=max(self.batch, batch.number))

    def as_json(self) -> bytes:
        return orjson.dumps({"batch": self.batch, "run": self.run, "past": self.past})

    @classmethod
    def from_json(cls, text: str | bytes | None) -> Self:
        """What was remembered, or a beginning."""
        if text is None:
            return cls()
        body = orjson.loads(text)
        return cls(batch=body["batch"], run=body["run"], past=tuple(body["past"]))


class Refusals:
    """What becomes of the refused rows of one batch.

    Dead letters are appended before the sink commits, under the batch's number: a batch that is done again finds them there.
    """

    def __init__(
        self, sink: str, rows: pa.Table, batch: MicroBatch, *, key: Sequence[str], log: str | None, letters: str | None
    ) -> None:
        self._sink = sink
        self._rows = rows
        self._batch = batch
        self._key = list(key)
        self._log = log
        self._letters = letters
        self._refused: dict[int, str] = {}

    @property
    def stops(self) -> bool:
        """Whether the first refused row ends the query."""
        return self._log is None

    def again(self) -> None:
        """Forget the refused rows of an attempt: another one begins."""
        self._refused = {}

    def add(self, refused: Iterable[Refusal]) -> None:
        """Give rows up, or stop at the first of them."""
        for refusal in refused:
            if self.stops:
                raise RowRefused(sink=self._sink, key=self._key_of(refusal.position), why=refusal.why)
            self._refused.setdefault(refusal.position, refusal.why)

    def post(self) -> None:
        """Append the dead letters. Do nothing where an earlier attempt at this batch has done it."""
        if not self._refused or self._log is None:
            return
        name = self._letters or self._batch.query
        letters = [self._letter(name, position, why) for position, why in sorted(self._refused.items())]
        log = shared_log(self._log)
        producer = f"{self._batch.query}.{_safe(self._sink)}"
        for number, start in enumerate(range(0, len(letters), LETTERS_MAX)):
            sequence = self._batch.number * APPENDS_MAX + number
            some = letters[start : start + LETTERS_MAX]
            append_dead_letters(log, name, some, producer=producer, sequence=sequence)
        reach("delivery.letters")

    def _letter(self, topic: str, position: int, why: str) -> DeadLetter:
        row = self._rows.slice(position, 1)
        headers = self._value(row, "_headers")
        mine = [name for name in row.column_names if name not in OWN]
        text = next(json_lines.encode_rows(row.select(mine).combine_chunks().to_batches()[0]))
        partition, offset = self._value(row, "_partition"), self._value(row, "_offset")
        return DeadLetter(
            topic=topic,
            partition=0 if partition is None else partition,
            offset=position if offset is None else offset,
            row=text.decode(),
            query=self._batch.query,
            error="RowRefused",
            message=f"{self._sink}: {why}",
            attempt=attempt_of(headers),
            headers=headers,
            at_us=SystemClock().now_us(),
        )

    # Any: whatever the column holds.
    def _value(self, row: pa.Table, name: str) -> Any:
        return row.column(name)[0].as_py() if name in row.column_names else None

    def _key_of(self, position: int) -> str:
        row = self._rows.slice(position, 1)
        names = [name for name in self._key if name in row.column_names] or [
            name for name in row.column_names if name not in OWN
        ]
        shown = ", ".join(f"{name}={row.column(name)[0].as_py()!r}" for name in names)
        return shown if len(shown) <= 200 else shown[:199] + "…"


def _safe(name: str) -> str:
    """A sink's name as part of a producer's."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)[-100:]


@dataclass(frozen=True, kw_only=True)
class DriverSink(ABC):
    """A sink that takes a batch on the driver, as one Arrow table, and commits it with the batch's number.

    `on_refused` says what becomes of a row that the other side will not take: "stop" ends the query with an error that
    names the row, "dead_letter" sets it aside in the topic `<dead_letters>.dlq` of `log`. An app fills in what is
    missing: the log, the query's name, and the folder for state.

    The price of the driver: a batch must fit into its memory, so bound batches with the source's `rows_max`.
    """

    key: str | tuple[str, ...] = ()
    on_refused: Literal["stop", "dead_letter"] = "stop"
    log: str | Path | None = None
    dead_letters: str | None = None
    state: str | Path | None = None
    retry: Retry = field(default_factory=Retry)

    guarantee: ClassVar[Guarantee]

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            object.__setattr__(self, "key", (self.key,))
        else:
            object.__setattr__(self, "key", tuple(self.key))
        if self.on_refused not in ("stop", "dead_letter"):
            raise ArgumentInvalid(name="on_refused", value=self.on_refused, expected="'stop' or 'dead_letter'")

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def begin(self, batch: MicroBatch) -> bool:
        """Whether this batch has been written already. From now on, older runs of its query are refused."""

    @abstractmethod
    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        """Write what a batch changes and its number, in one step; one attempt, which may say `RetryLater`."""

    @property
    def keys(self) -> tuple[str, ...]:
        return self.key if isinstance(self.key, tuple) else (self.key,)

    def for_query(self, name: str, *, log: str | Path, state: str | Path) -> Self:
        """The same sink with what it was not told."""
        return replace(
            self,
            log=log if self.log is None else self.log,
            dead_letters=name if self.dead_letters is None else self.dead_letters,
            state=state if self.state is None else self.state,
        )

    def check(self, columns: pa.Schema) -> None:
        """Refuse columns that could never fit. Where the other side is down, its first batch will see."""
        with contextlib.suppress(RetryLater):
            self.examine(columns)

    def examine(self, columns: pa.Schema) -> None:
        """Refuse columns that could never fit; each sink adds what it knows of the other side. May say `RetryLater`."""
        check_key(self.name, columns, self.keys)

    def commit(self, batches: Iterable[pa.RecordBatch], batch: MicroBatch) -> None:
        """Take the rows of a batch. Spark is not needed here, which is how tests and other programs use it."""
        if self.retry.run(self.name, lambda: self.begin(batch)):
            return
        rows = table_of(batches)
        if rows is None:
            rows = pa.table({name: pa.array([], pa.string()) for name in self.keys})
        self._commit(rows, batch)

    def _commit(self, rows: pa.Table, batch: MicroBatch) -> None:
        changes, refused = collapsed(rows, self.keys) if self.keys else appended(rows)
        refusals = self._refusals(rows, batch)

        def attempt() -> None:
            refusals.again()
            refusals.add(refused)
            self.apply(changes, batch, refusals)

        reach("delivery.before")
        self.retry.run(self.name, attempt)
        reach("delivery.committed")

    def _refusals(self, rows: pa.Table, batch: MicroBatch) -> Refusals:
        if self.on_refused == "dead_letter" and self.log is None:
            raise ArgumentInvalid(name="log", value=None, expected="the log that dead letters go to")
        log = absolute_address(self.log) if self.log is not None and self.on_refused == "dead_letter" else None
        return Refusals(self.name, rows, batch, key=self.keys, log=log, letters=self.dead_letters)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        from headwater.spark.source.columns import arrow_schema

        batch = streaming_batch(rows, batch_id)
        sink = self._in(rows.sparkSession, batch)
        if sink.retry.run(sink.name, lambda: sink.begin(batch)):
            finish(rows)
            return
        columns = arrow_schema(rows.schema)
        sink.retry.run(sink.name, lambda: sink.examine(columns))
        sink._commit(rows.toArrow(), batch)

    def _in(self, spark: SparkSession, batch: MicroBatch) -> Self:
        """The sink with a folder for its state, where the session has one and it was given none."""
        state = spark.conf.get(STATE, None)
        if self.state is not None or state is None:
            return self
        return replace(self, state=Path(state) / batch.query / "sinks")


def key_texts(rows: pa.Table, key: Iterable[str]) -> Iterator[str]:
    """The key of each row as one text that differs where keys differ.

    >>> list(key_texts(pa.table({"a": ["x:y", "x"], "b": [1, 2]}), ["a", "b"]))
    ['x\\\\:y:1', 'x:2']
    """
    columns = [rows.column(name).to_pylist() for name in key]
    for values in zip(*columns, strict=True):
        yield ":".join(_escaped(value) for value in values)


def _escaped(value: object) -> str:
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text.replace("\\", "\\\\").replace(":", "\\:")
