"""Reasons in words: why a watermark is where it is, and what the steps of a batch are."""

from __future__ import annotations

from headwater.apps.status import QueryStatus

#: The steps of a batch in their order, by Spark's names for them. `triggerExecution` is all of them together.
PHASES = {
    "latestOffset": "look for new rows",
    "walCommit": "note which rows to take",
    "getBatch": "take them",
    "queryPlanning": "plan",
    "addBatch": "work and write",
    "commitBatch": "commit",
    "commitOffsets": "note that it is done",
}


def phase_words(name: str) -> str:
    """What a step does.

    >>> phase_words("addBatch")
    'work and write'
    """
    return PHASES.get(name, name)


def watermark_reason(status: QueryStatus) -> str:
    """Why the watermark is where it is.

    >>> watermark_reason(QueryStatus(name="spend", kind="view", batch=3))
    'No watermark: the query works by processing time, and nothing in it waits for event time.'
    """
    if status.watermark_held_by:
        return f"{status.watermark_held_by[0].upper()}{status.watermark_held_by[1:]}."
    if status.batch is None:
        return "No batch yet, so no watermark either."
    if status.watermark_us is None:
        return "No watermark: the query works by processing time, and nothing in it waits for event time."
    if status.lag_rows:
        return f"The query is {status.lag_rows:,} rows behind, and the watermark with it."
    if status.rows_per_second == 0:
        return "No rows come. The watermark goes on with the next rows, not with the clock."
    return "It follows the latest event time of the slowest partition, less the lateness that is allowed."
