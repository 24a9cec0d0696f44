"""The status of a running app as plain values: its graph, and the status of each query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Kind = Literal["topic", "view", "sink"]
State = Literal["waiting", "starting", "running", "caught up", "restarting", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class QueryStatus:
    """The status of one query, as its checkpoint on disk says it now."""

    name: str
    kind: Kind
    app: str = ""
    state: State = "waiting"
    version: int = 1
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    batch: int | None = None
    """The last committed batch."""
    batch_ms: float | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    """How long the parts of the last batch took, by Spark's names for them."""
    busy: float = 0.0
    """The share of the last seconds in which a batch ran: 1 is all the time."""
    rows_per_second: float = 0.0
    rows_total: int = 0
    """Rows read since this version of the query began, by offsets."""
    lag_rows: int | None = None
    """The end of the inputs less the position that the query has committed; None where it does not know yet where to begin."""
    lag_seconds: float | None = None
    """How long the oldest of these rows has waited."""
    watermark_us: int | None = None
    watermark_held_by: str = ""
    """Which partition or input holds the watermark back, in words, if one does."""
    state_rows: int = 0
    state_bytes: int = 0
    late: int = 0
    """Rows that came behind the watermark, from the beginning; Spark's own operators count from the last start."""
    evicted: int = 0
    """Rows of state that were removed because their time had passed. No data is lost by it."""
    side_outputs: Mapping[str, str] = field(default_factory=dict)
    """The side outputs of its operators, with their topics: late rows under `late`."""
    rejected: int = 0
    dead_letters: int = 0
    restarts: int = 0
    error: str | None = None
    """The last error in one line; the state says whether the query goes on."""

    def _repr_html_(self) -> str:
        from headwater.apps.notebook import status_html

        return status_html(self)


# Any: a status as JSON.
def status_of(told: Mapping[str, Any]) -> QueryStatus:
    """Read a status from the JSON of another process; fields of a newer version are left out.

    >>> status_of({"name": "spend", "kind": "view", "inputs": ["payments"], "outputs": [], "mood": "good"}).inputs
    ('payments',)
    """
    known = {one.name for one in fields(QueryStatus)}
    given = {name: value for name, value in told.items() if name in known}
    return QueryStatus(**{**given, "inputs": tuple(told["inputs"]), "outputs": tuple(told["outputs"])})


@dataclass(frozen=True, kw_only=True)
class Node:
    """A topic, view, query, sink, capture or gateway in the picture of an app."""

    name: str
    kind: Literal["topic", "view", "query", "sink", "capture", "gateway"]
    label: str = ""
    """A second line: the columns of a topic, the rate of a query."""
    state: State | None = None


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Who reads from whom: edges go from the name of a node to that of the next, in the direction of the rows."""

    app: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]

    def _repr_html_(self) -> str:
        from headwater.apps.notebook import graph_html

        return graph_html(self)
