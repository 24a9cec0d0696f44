"""Every operator with rows and an oracle, for the contract suite: `test_contract.py` says what is proved of each.

Rows are the same on every run. The laws of each operator, which seek counter-examples over the engine without Spark,
stand in the operator's own file, and so does most of what is used here as an oracle.
"""

from tests.operators.registry import analytics, joins, others, patterns, sourcing, tables, windows
from tests.operators.registry.entry import Entry

ENTRIES = (
    *windows.ENTRIES,
    *joins.ENTRIES,
    *tables.ENTRIES,
    *analytics.ENTRIES,
    *patterns.ENTRIES,
    *others.ENTRIES,
    *sourcing.ENTRIES,
)
#: What `headwater.operators` has beside operators, and where it is tested.
NO_OPERATORS = {
    "Global": "a window for `Panes` alone: test_panes.py",
    "Pattern": "what `begin` makes, for `Match`: match/test_builder.py",
    "SideOutputs": "hands sides to a sink: test_streams.py",
    "Suppress": "when `AggregateTable` emits, and an operator over changelogs: test_suppress.py",
    "agg": "aggregates: agg/test_aggregates.py",
    "begin": "begins a pattern: match/test_builder.py",
    "percolate": "the parts of `Percolate`: percolate/",
    "read_side_output": "reads sides: test_streams.py",
    "rebuild": "computes lost state again: test_streams.py",
    "sketches": "functions over sketches: sketches/",
    "trigger": "when panes come: test_triggers.py",
}

__all__ = ["ENTRIES", "NO_OPERATORS", "Entry"]
