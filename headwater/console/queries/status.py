"""The status of a query in words and colours: its delay, what a busy one means, its phases, its watermark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import quote

from headwater.apps.status import QueryStatus
from headwater.console.history import series_names
from headwater.console.kit.words import short, size
from headwater.console.pages import path_to

#: The colours of the states.
TONES = {
    "running": "good",
    "caught up": "good",
    "starting": "info",
    "waiting": "",
    "stopped": "warn",
    "restarting": "bad",
    "failed": "bad",
}
#: The states, the worst first.
WORST_FIRST = ("failed", "restarting", "stopped", "waiting", "starting", "running", "caught up")
#: The phases of a batch in their order, by Spark's names for them. `triggerExecution` is all of them together.
PHASES = {
    "latestOffset": "look for new rows",
    "walCommit": "note which rows to take",
    "getBatch": "take them",
    "queryPlanning": "plan",
    "addBatch": "work and write",
    "commitBatch": "commit",
    "commitOffsets": "note that it is done",
}


def query_path(status: QueryStatus) -> str:
    """The address of a query's page; another app may have a query of the same name."""
    return path_to("queries", status.name) + (f"?app={quote(status.app, safe='')}" if status.app else "")


def badness(status: QueryStatus) -> tuple[int, int, str, int]:
    """The order of queries, the worst first: by state, then by lag."""
    return WORST_FIRST.index(status.state), -(status.lag_rows or 0), status.name, status.version


def delay_of(status: QueryStatus) -> float | None:
    """How far the watermark is behind the clock, in seconds; None without a watermark."""
    return None if status.watermark_us is None else max(0.0, time.time() - status.watermark_us / 1e6)


def busy_tone(status: QueryStatus) -> str:
    """The tone of `busy`: a query that is always busy needs attention only while rows wait for it."""
    if not status.lag_rows:
        return ""
    return "bad" if status.busy >= 0.9 else "warn" if status.busy >= 0.7 else ""


def state_size(status: QueryStatus) -> str:
    """How much state a query keeps."""
    return f"{short(status.state_rows)} rows, {size(status.state_bytes)}" if status.state_rows else "none"


def by_node(statuses: Sequence[QueryStatus]) -> dict[str, tuple[QueryStatus, str]]:
    """Statuses and the names of their series, by the id of their node in the topology.

    A version on trial comes after the active one, and is left out.
    """
    nodes: dict[str, tuple[QueryStatus, str]] = {}
    for status, series in zip(statuses, series_names(statuses), strict=True):
        nodes.setdefault(f"query:{status.app}/{status.name}", (status, series))
    return nodes


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
