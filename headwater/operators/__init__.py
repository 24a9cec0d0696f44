"""Operators: values that map a DataFrame to a DataFrame, on streams and on bounded data alike."""

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
