"""Ways in which a sink fails."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import Conflict, QueryError


@dataclass(eq=False, kw_only=True)
class SinkFenced(Conflict):
    """A newer run of the same query writes to this sink."""

    sink: str
    query: str
    run: str
    current: str
    problem = "Run {run!r} of query {query!r} has been replaced by run {current!r} in {sink}."
    remedy = "Stop this process: its successor is at work. Nothing of this batch was written."


@dataclass(eq=False, kw_only=True)
class RowRefused(QueryError):
    """A sink would not take one row of a batch."""

    sink: str
    key: str
    why: str
    problem = "{sink} refused the row with {key}: {why}."
    remedy = (
        "Correct the row or the other side and restart: the batch is done again. Or set such rows aside with "
        "`on_refused='dead_letter'`."
    )


@dataclass(eq=False, kw_only=True)
class SinkRefused(QueryError):
    """A sink will not take any row as things are: a table is gone, or the credentials are wrong."""

    sink: str
    why: str
    what: str
    problem = "{sink} refuses this query: {why}."
    remedy = "{what}, then restart the query: the batch is done again. Nothing of it was written."


@dataclass(eq=False, kw_only=True)
class SinkUnavailable(QueryError):
    """A sink was down for longer than the query would wait."""

    sink: str
    waited: float
    why: str
    problem = "{sink} could not be reached for {waited:.1f} s: {why}."
    remedy = "Start it, or correct its address; the batch is done again when the query restarts, and nothing is lost."
