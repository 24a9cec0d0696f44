"""Windows of processing time: a row belongs to the moment at which its batch was taken, as the source recorded it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.keyed.contract import Stepped
from headwater.operators.keyed.runs import PROCESSING_TIMER
from headwater.operators.keyed.watermark import NEVER, BatchTime
from headwater.operators.windowed.step import WAKE, WindowStep

#: When a row was processed: all rows of a batch at once.
PROCESSED = "_processed_at"


@dataclass(frozen=True)
class ProcessingStep:
    """The step of windows over event time, for which event time is the processing time of the batch.

    So nothing is late, and the watermark is the processing time itself.
    """

    windows: WindowStep

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
        now_us = time.processing_us
        if now_us is None:
            raise without_time()
        if PROCESSED in rows.column_names:
            rows = rows.drop_columns([PROCESSED])
        at = pa.array(np.full(rows.num_rows, now_us), pa.timestamp("us", "UTC"))
        before_us = NEVER if time.processing_before_us is None else time.processing_before_us
        by_processing = replace(time, watermark_us=now_us, watermark_before_us=before_us)
        stepped = self.windows(state, rows.append_column(PROCESSED, at), by_processing)
        return replace(stepped, state=renamed(stepped.state, WAKE, PROCESSING_TIMER))

    def answer(self, state: pa.Table) -> pa.Table:
        return self.windows.answer(state)


def processing_state(schema: pa.Schema) -> pa.Schema:
    """The same state, whose timers are those of processing time."""
    return pa.schema([one.with_name(PROCESSING_TIMER) if one.name == WAKE else one for one in schema])


def renamed(table: pa.Table, name: str, other: str) -> pa.Table:
    return table.rename_columns([other if one == name else one for one in table.column_names])


def without_time() -> ArgumentInvalid:
    """Bounded rows, and those of other sources, have no processing time that would be the same on every run."""
    expected = '"event" where rows are bounded or come from elsewhere: on="_appended_at" is when they reached the log'
    return ArgumentInvalid(name="time", value="processing", expected=expected)
