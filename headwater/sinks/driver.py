"""What sinks share whose rows pass through the driver: one commit per batch, refused rows, and patience."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import pyarrow as pa

from headwater.batches import MicroBatch
from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.sinks.changes import Changes, appended, check_key, collapsed, table_of
from headwater.sinks.port import Guarantee, finish, streaming_batch
from headwater.sinks.refusals import Refusals
from headwater.sinks.retrying import NotNow, Retry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE = "spark.headwater.state"


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
        """Write what a batch changes and its number, in one step; one attempt, which may say `NotNow`."""

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
        with contextlib.suppress(NotNow):
            self.examine(columns)

    def examine(self, columns: pa.Schema) -> None:
        """Refuse columns that could never fit; each sink adds what it knows of the other side. May say `NotNow`."""
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
        log = str(Path(self.log).absolute()) if self.log is not None and self.on_refused == "dead_letter" else None
        return Refusals(self.name, rows, batch, key=self.keys, log=log, letters=self.dead_letters)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        from headwater.sinks.topic import arrow_schema

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
