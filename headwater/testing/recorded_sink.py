"""A sink that stands in for a real one in a test: it keeps the rows of each batch, and sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from headwater.sinks.changes import OWN, TOMBSTONE, check_key
from headwater.sinks.port import Guarantee, Sink, streaming_batch
from headwater.spark.changelog import OPERATION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class RecordedSink:
    """What a sink of an app was given in a test, by batch: a batch that is repeated replaces itself."""

    sink: Sink
    batches: dict[tuple[str, int], pa.Table] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def guarantee(self) -> Guarantee:
        return self.sink.guarantee

    def check(self, columns: pa.Schema) -> None:
        """Refuse columns without the key. What only the other side knows is not asked."""
        keys: Sequence[str] = getattr(self.sink, "keys", ())
        check_key(self.name, columns, keys)

    def for_query(self, name: str, *, log: str | Path, state: str | Path) -> Self:  # noqa: ARG002 - as the port has it
        return self

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        batch = streaming_batch(rows, batch_id)
        self.batches[batch.query, batch_id] = rows.toArrow()

    # Any: values of rows.
    def rows(self) -> list[dict[str, Any]]:
        """The rows in the order of their batches, without the system columns that a sink would not send."""
        kept = [table.drop_columns(_system_columns(table)) for table in self.batches.values()]
        return [row for table in kept for row in table.to_pylist()]


def _system_columns(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if name in OWN - {OPERATION, TOMBSTONE}]
