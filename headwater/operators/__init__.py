"""Operators: values that map a DataFrame to a DataFrame, on streams and on bounded data alike."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.engine.side_outputs import SideOutputs, read_side_output
    from headwater.engine.state_maintenance import rebuild
    from headwater.engine.suppress import Suppress
    from headwater.operators import aggregates as agg
    from headwater.operators import percolate, sketches, trigger
    from headwater.operators.aggregate_table import AggregateTable
    from headwater.operators.anomaly import Anomaly
    from headwater.operators.branch import Branch
    from headwater.operators.compared_to import ComparedTo
    from headwater.operators.correct_clock import CorrectClock
    from headwater.operators.count_window import CountWindow
    from headwater.operators.decide import Decide
    from headwater.operators.dedupe import Dedupe
    from headwater.operators.enrich import Enrich
    from headwater.operators.evolve import Evolve
    from headwater.operators.global_window import Global
    from headwater.operators.guard import Guard
    from headwater.operators.hopping import Hopping
    from headwater.operators.interval_join import IntervalJoin
    from headwater.operators.join import Join
    from headwater.operators.k_means import KMeans
    from headwater.operators.match import Match, MatchRules, Pattern, begin
    from headwater.operators.merge import Merge
    from headwater.operators.panes import Panes
    from headwater.operators.percolate import Percolate
    from headwater.operators.process import Process
    from headwater.operators.rate import Rate
    from headwater.operators.rolling import Rolling
    from headwater.operators.row_id import RowId
    from headwater.operators.seen_before import SeenBefore
    from headwater.operators.session import Session
    from headwater.operators.sliding import Sliding
    from headwater.operators.table_join import TableJoin
    from headwater.operators.top_n import TopN
    from headwater.operators.trend import Trend
    from headwater.operators.tumbling import Tumbling

__all__ = [
    "AggregateTable",
    "Anomaly",
    "Branch",
    "ComparedTo",
    "CorrectClock",
    "CountWindow",
    "Decide",
    "Dedupe",
    "Enrich",
    "Evolve",
    "Global",
    "Guard",
    "Hopping",
    "IntervalJoin",
    "Join",
    "KMeans",
    "Match",
    "MatchRules",
    "Merge",
    "Panes",
    "Pattern",
    "Percolate",
    "Process",
    "Rate",
    "Rolling",
    "RowId",
    "SeenBefore",
    "Session",
    "SideOutputs",
    "Sliding",
    "Suppress",
    "TableJoin",
    "TopN",
    "Trend",
    "Tumbling",
    "agg",
    "begin",
    "percolate",
    "read_side_output",
    "rebuild",
    "sketches",
    "trigger",
]

#: Where each name is; it is loaded when it is first used, for an app uses few of them. Without a colon, a module.
_HOMES = {
    "AggregateTable": "headwater.operators.aggregate_table:AggregateTable",
    "Anomaly": "headwater.operators.anomaly:Anomaly",
    "Branch": "headwater.operators.branch:Branch",
    "ComparedTo": "headwater.operators.compared_to:ComparedTo",
    "CorrectClock": "headwater.operators.correct_clock:CorrectClock",
    "CountWindow": "headwater.operators.count_window:CountWindow",
    "Decide": "headwater.operators.decide:Decide",
    "Dedupe": "headwater.operators.dedupe:Dedupe",
    "Enrich": "headwater.operators.enrich:Enrich",
    "Evolve": "headwater.operators.evolve:Evolve",
    "Global": "headwater.operators.global_window:Global",
    "Guard": "headwater.operators.guard:Guard",
    "Hopping": "headwater.operators.hopping:Hopping",
    "IntervalJoin": "headwater.operators.interval_join:IntervalJoin",
    "Join": "headwater.operators.join:Join",
    "KMeans": "headwater.operators.k_means:KMeans",
    "Match": "headwater.operators.match:Match",
    "MatchRules": "headwater.operators.match:MatchRules",
    "Merge": "headwater.operators.merge:Merge",
    "Panes": "headwater.operators.panes:Panes",
    "Pattern": "headwater.operators.match:Pattern",
    "Percolate": "headwater.operators.percolate:Percolate",
    "Process": "headwater.operators.process:Process",
    "Rate": "headwater.operators.rate:Rate",
    "Rolling": "headwater.operators.rolling:Rolling",
    "RowId": "headwater.operators.row_id:RowId",
    "SeenBefore": "headwater.operators.seen_before:SeenBefore",
    "Session": "headwater.operators.session:Session",
    "SideOutputs": "headwater.engine.side_outputs:SideOutputs",
    "Sliding": "headwater.operators.sliding:Sliding",
    "Suppress": "headwater.engine.suppress:Suppress",
    "TableJoin": "headwater.operators.table_join:TableJoin",
    "TopN": "headwater.operators.top_n:TopN",
    "Trend": "headwater.operators.trend:Trend",
    "Tumbling": "headwater.operators.tumbling:Tumbling",
    "agg": "headwater.operators.aggregates",
    "begin": "headwater.operators.match:begin",
    "percolate": "headwater.operators.percolate",
    "read_side_output": "headwater.engine.side_outputs:read_side_output",
    "rebuild": "headwater.engine.state_maintenance:rebuild",
    "sketches": "headwater.operators.sketches",
    "trigger": "headwater.operators.trigger",
}


# Any: what a name stands for is known to type checkers from the imports above.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value: Any = import_module(module)
    value = getattr(value, attribute) if attribute else value
    globals()[name] = value  # so that the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
