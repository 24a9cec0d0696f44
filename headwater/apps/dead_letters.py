"""Write rows that an operator could not use, without a key or an event time, to the dead-letter topic of their input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from headwater.clock import Clock, SystemClock
from headwater.engine.micro_batch import MicroBatch
from headwater.engine.side_outputs import read_side_output
from headwater.errors import LogError
from headwater.log import Log
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from headwater.schema.encodings import json as json_lines

#: The most dead letters of one append, and the most appends of one batch.
LETTERS_MAX = 1_000
APPENDS_MAX = 10_000


def post_rejected(
    log: Log,
    *,
    state: str | Path,
    operators: Sequence[str],
    inputs: Sequence[str],
    query: str,
    batch: MicroBatch,
    clock: Clock | None = None,
) -> int:
    """Append rows that operators rejected in a batch to a dead-letter topic: that of the input if there is only one.

    A batch that is repeated appends nothing twice. Return the number of dead letters.
    """
    topic = inputs[0] if len(inputs) == 1 else query
    at_us = (clock or SystemClock()).now_us()
    count = 0
    for operator in operators:
        rejected = [
            letter
            for table in read_side_output(state, batch.query, operator, "rejected", batch=batch.number)
            for letter in _letters(log, table, topic, is_input=len(inputs) == 1, query=query, at_us=at_us)
        ]
        for number, start in enumerate(range(0, len(rejected), LETTERS_MAX)):
            some = rejected[start : start + LETTERS_MAX]
            sequence = batch.number * APPENDS_MAX + number
            append_dead_letters(log, topic, some, producer=f"{batch.query}.{operator}.rejected", sequence=sequence)
        count += len(rejected)
    return count


def _letters(log: Log, table: pa.Table, topic: str, *, is_input: bool, query: str, at_us: int) -> Iterator[DeadLetter]:
    for row in table.to_batches():
        for place in range(row.num_rows):
            one = row.slice(place, 1)
            partition, offset = (
                one.column(name)[0].as_py() if name in one.schema.names else None for name in ("_partition", "_offset")
            )
            whole = None
            if is_input and partition is not None and offset is not None:
                whole = _original(log, topic, partition, offset)
            yield DeadLetter(
                topic=topic,
                partition=partition or 0,
                offset=offset if offset is not None else place,
                row=_text(whole if whole is not None else one),
                query=query,
                error="RowRejected",
                message=str(one.column("_reason")[0].as_py()),
                at_us=at_us,
            )


def _original(log: Log, topic: str, partition: int, offset: int) -> pa.RecordBatch | None:
    """Read the whole row from its topic: an operator has only the columns that it needs."""
    try:
        batches = list(log.read_range(topic, partition, start=offset, stop=offset + 1))
    except LogError:  # retention was quicker
        return None
    found = [batch.data for batch in batches if batch.data.num_rows == 1]
    return found[0] if found else None


def _text(row: pa.RecordBatch) -> str:
    shown = [name for name in row.schema.names if not name.startswith("_")]
    return next(json_lines.encode_rows(row.select(shown))).decode()
