"""What the attempt log says of messages that were being retried when a gateway of webhooks was stopped or killed.

Without it each start would begin the schedule again: an endpoint that is down would get requests at once, and a gateway that is
started each day would never reach the deadline.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.port import Log

#: Attempts of each partition that are looked at, the last ones.
LOOK_ROWS_MAX = 500_000
_COLUMNS = ["at", "id", "endpoint", "attempt", "outcome"]


class Earlier(NamedTuple):
    """The attempts of one message before: how many, and when the first and the last one were made."""

    attempts: int
    first_us: int
    last_us: int


def earlier_attempts(log: Log, topic: str, endpoint: str) -> dict[str, Earlier]:
    """The messages of an endpoint whose last attempt is to be repeated, by their ids."""
    found: list[pa.RecordBatch] = []
    starts = log.start_offsets(topic)
    for partition, end in log.end_offsets(topic).items():
        start = max(starts[partition], end - LOOK_ROWS_MAX)
        if start < end:
            found += (
                batch.data.filter(pc.equal(batch.data.column("endpoint"), endpoint))
                for batch in log.read_range(topic, partition, start=start, stop=end, columns=_COLUMNS)
            )
    if not found:
        return {}
    attempts = pa.Table.from_batches(found)
    retried = pc.unique(attempts.filter(pc.equal(attempts.column("outcome"), "retry")).column("id"))
    attempts = attempts.filter(pc.is_in(attempts.column("id"), retried)).sort_by("at")
    earlier: dict[str, Earlier] = {}
    times = attempts.column("at").cast(pa.int64()).to_pylist()
    others = (attempts.column(name).to_pylist() for name in ("id", "attempt", "outcome"))
    for at_us, id, attempt, outcome in zip(times, *others, strict=True):
        if outcome == "retry":
            first_us = at_us if attempt == 1 or id not in earlier else earlier[id].first_us
            earlier[id] = Earlier(attempt, first_us, at_us)
        elif outcome != "replay":
            earlier.pop(id, None)
    return earlier
