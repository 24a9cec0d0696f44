"""Side outputs of keyed operators: rows that left a step beside its output, computed once.

An operator in a stream writes the rows of its side outputs (`late`, `rejected`, and those that its step names) into the
state folder, one file per batch and partition. `SideOutputs` hands them to a sink, which makes them part of the batch's
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headwater.engine.columns import LATE_BY, REASON
from headwater.engine.contract import Contract
from headwater.engine.micro_batch import MicroBatch
from headwater.engine.state_folder import SUFFIX, open_folder

#: Columns of the engine's own, which a topic has anyway or has no use for.
DROPPED = (
    "_partition",
    "_offset",
    "_appended_at",
    "_sent_at",
    "_headers",
    "_input",
    "_punctuation",
    "_key",
    "_topic",
    "_op",
    "_at",
)


@dataclass(frozen=True, kw_only=True)
class SideOutputs:
    """The rows of an operator's side outputs in a batch, for `TopicSink(extra_parts=…)`.

    `topics` says which side output goes to which topic. Late rows have a column `late_by_us`, rejected ones `reason`.

    >>> SideOutputs(state="./state", operator="totals", topics={"late": "orders.late"}).topics
    {'late': 'orders.late'}
    """

    state: str | Path
    operator: str
    topics: Mapping[str, str]

    def __call__(self, batch: MicroBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        for side, topic in self.topics.items():
            for table in read_side_output(self.state, batch.query, self.operator, side, batch=batch.number):
                yield from ((topic, one) for one in public_rows(table).to_batches())


def read_side_output(
    state: str | Path, query: str, operator: str, side: str, *, batch: int | None = None
) -> Iterator[pa.Table]:
    """Read a side output, of one batch or of all, in the order of batches and partitions."""
    folder = open_folder(state).within(query).within(operator).within("sides").within(side)
    for name in folder.names("" if batch is None else f"{batch:012d}-"):
        yield folder.map(name.removesuffix(SUFFIX))


def side_output_schema(contract: Contract, side: str) -> pa.Schema:
    """The columns that the rows of a side output have in a topic."""
    if side in contract.side_outputs:
        return contract.side_outputs[side]
    more = {"late": pa.field(LATE_BY, pa.int64()), "rejected": pa.field(REASON, pa.string())}[side]
    shown = [one for one in contract.rows if one.name not in (*contract.hidden, LATE_BY)]
    return public_rows(pa.schema([*shown, more]).empty_table()).schema


def public_rows(table: pa.Table) -> pa.Table:
    """The rows of a side output as a topic has them: without the engine's own columns."""
    kept = table.drop_columns([name for name in DROPPED if name in table.column_names])
    return kept.rename_columns([name.removeprefix("_") for name in kept.column_names])
