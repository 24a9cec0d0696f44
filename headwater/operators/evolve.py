"""`Evolve`: a read model of the events of entities, as a table that changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.engine.changelog import OP, paired
from headwater.engine.columns import KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.errors import StateChanged
from headwater.engine.event_time import BatchTime
from headwater.engine.spark_plan import apply
from headwater.engine.window_operator import check_columns
from headwater.sourcing import ReadModel
from headwater.sourcing.event_rows import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The key of the row that an event is about, where it is not the event's entity.
ROW_KEY = "_row_key"
#: A row of the model, as JSON.
ROW = "row"


@dataclass(frozen=True, kw_only=True)
class Evolve:
    """Keep the rows of a read model: the same rows as inline, in state, and their changes as a changelog with `_op`.

    The input is the topic of events of one kind of entities. Each event is decoded and goes through `evolve` in Python: about
    so many events a second as one core runs the function, times the cores. State is a row for each key. An event that cannot
    be read, or on which `evolve` raises, fails the query before anything of its batch is written. Personal fields are not
    decrypted: they are as if they were erased.

        @app.view(key="entity", inputs={"events": "account.events"})
        def balances(events):
            return events.transform(Evolve(model=BALANCES))
    """

    # Any: a row of the user's.
    model: ReadModel[Any]
    partitions: int | None = None

    @property
    def called(self) -> str:
        """The name of the operator for its state: with a new version, state of older ones is not used."""
        return f"{self.model.name}-{self.model.version}"

    def __call__(self, events: DataFrame) -> DataFrame:
        check_columns(self.called, events, *SCHEMA.names, "_partition", "_offset")
        rows = events if self.model.by is None else self._keyed(events)
        return apply(self.contract, rows, partitions=self.partitions)

    def _keyed(self, events: DataFrame) -> DataFrame:
        """The events with the key of a row: each once for each row that it is about."""
        from pyspark.sql import types as T  # noqa: N812 - the name that all of Spark's users know

        model = self.model

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from with_keys(model, pa.Table.from_batches([batch])).to_batches()

        schema = T.StructType([*events.schema.fields, T.StructField(ROW_KEY, T.StringType())])
        return events.mapInArrow(run, schema)

    def contract(self, rows: pa.Schema) -> Contract:
        model = self.model
        key = "entity" if model.by is None else ROW_KEY
        return Contract(
            name=self.called,
            step=_Step(self.called, model),
            key=(key,),
            rows=rows,
            state=pa.schema([pa.field(ROW, pa.binary())]),
            output=pa.schema([pa.field(OP, pa.string()), pa.field(model.key, pa.string()), *model.schema]),
            hidden=(ROW_KEY,),
        )


# Any: a row of the user's.
def with_keys(model: ReadModel[Any], events: pa.Table) -> pa.Table:
    """Events, each once for each key of a row that it is about, with that key."""
    keys = [list(model.keys(event)) for event in model.events(events)]
    places = np.repeat(np.arange(len(keys)), [len(each) for each in keys])
    flat = [key for each in keys for key in each]
    return events.take(pa.array(places, pa.int64())).append_column(ROW_KEY, pa.array(flat, pa.string()))


@dataclass(frozen=True)
class _Step:
    operator: str
    # Any: a row of the user's.
    model: ReadModel[Any]

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        model = self.model
        stored = zip(state.column(KEY).to_pylist(), state.column(ROW).to_pylist(), strict=True)
        try:
            before = {key: model.read(row) for key, row in stored}
        except ValueError as error:
            raise StateChanged(
                operator=self.operator, why=f"a row cannot be read ({error})", what="raise the model's `version`"
            ) from error
        after = dict(before)
        for key, event in zip(rows.column(KEY).to_pylist(), model.events(rows), strict=True):
            row = model.after(after.get(key), event)
            if row is None:
                after.pop(key, None)
            else:
                after[key] = row
        kept = pa.array([model.write(row) for row in after.values()], pa.binary())
        old, new = (self._table(found) for found in (before, after))
        return StepResult(
            pa.table({KEY: pa.array(list(after), pa.int64()), ROW: kept}), self._named(paired(old, new, by=[KEY]), rows)
        )

    # Any: rows of the user's.
    def _table(self, found: dict[int, Any]) -> pa.Table:
        return self.model.table(list(found.values())).append_column(KEY, pa.array(list(found), pa.int64()))

    def _named(self, changes: pa.Table, rows: pa.Table) -> pa.Table:
        """The changes with the keys of their rows, as the model calls them."""
        numbers = np.asarray(rows.column(KEY).combine_chunks())
        firsts = np.searchsorted(numbers, np.asarray(changes.column(KEY).combine_chunks()))
        keys = rows.column("entity" if self.model.by is None else ROW_KEY).take(pa.array(firsts))
        return changes.drop_columns([KEY]).append_column(self.model.key, keys)
