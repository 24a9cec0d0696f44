"""The `Sink` port: where rows go at the end of a query, and what is promised of the way there.

A sink is a frozen value. Spark calls it for each batch (`df.writeStream.foreachBatch(sink)`), and an app does the same
for the sinks that a query declares. One contract suite runs against every sink (`tests/sinks/test_contract.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.spark.batch_offsets import driver_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a replayed batch leaves behind: nothing twice; the same row again under its key; or the same thing sent again.
Guarantee = Literal["exactly once", "exactly once by key", "at least once"]


@runtime_checkable
class Sink(Protocol):
    """Where the rows of a query go."""

    @property
    def name(self) -> str:
        """What the sink is called in messages and pictures, such as `postgres:spend`."""
        ...

    @property
    def guarantee(self) -> Guarantee: ...

    def check(self, columns: pa.Schema) -> None:
        """Refuse columns that could never fit, before the first batch."""
        ...

    def for_query(self, name: str, *, log: str | Path, state: str | Path) -> Self:
        """The same sink with what it was not told: the name and log of its dead letters, and a folder for its state."""
        ...

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Take the rows of a batch; of one that was taken before, nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Fanout:
    """Several sinks for one query: a batch is computed once, and each sink takes its rows.

    Each sink remembers for itself which batches it has, so that a replay after a crash between two of them brings the
    rows only to those that lack them. The price: the rows of a batch are kept until the last sink has them.

    >>> from headwater.sinks import ConsoleSink
    >>> Fanout(sinks=(ConsoleSink(), ConsoleSink()))
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `sinks` is 'console' twice. Give sinks that go to different places.
    """

    # Any callable of a batch will do: a `TopicSink`, or a function of the user's own.
    sinks: tuple[Any, ...]

    def __post_init__(self) -> None:
        places = [(sink.name, getattr(sink, "url", None)) for sink in self.sinks if isinstance(sink, Sink)]
        for name, url in places:
            if places.count((name, url)) > 1:  # the second would take the batch for one that it has
                raise ArgumentInvalid(
                    name="sinks", value=_Said(f"{name!r} twice"), expected="sinks that go to different places"
                )

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if len(self.sinks) == 1:
            self.sinks[0](rows, batch_id)
            return
        kept = rows.persist()
        try:
            for sink in self.sinks:
                sink(kept, batch_id)
                reach("delivery.between")
        finally:
            kept.unpersist()


def streaming_batch(rows: DataFrame, batch_id: int) -> MicroBatch:
    """Which batch of which query these rows are."""
    batch = driver_batch(rows.sparkSession)
    if batch is None or batch.number != batch_id:
        raise ArgumentInvalid(name="batch_id", value=batch_id, expected="a call by `writeStream.foreachBatch`")
    return batch


def finish(rows: DataFrame) -> None:
    """Run a batch whose rows are not needed: stateful operators and watermarks below must come to its end all the same."""
    rows.write.format("noop").mode("overwrite").save()


class _Said(str):
    """Words that stand in an error as they are."""

    def __repr__(self) -> str:
        return str(self)
