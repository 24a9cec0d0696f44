"""The slowest among 200 random patterns over the full grammar: no construct falls off a cliff.

The patterns are those of the tests, the same ones each time. What is measured is the search and its measures alone, on
one core, over keys of fifty rows each.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings

from benchmarks.harness import Bench, Result
from headwater.engine.columns import KEY
from headwater.engine.contract import StepResult
from headwater.engine.event_time import EVER, BatchTime
from headwater.operators.errors import SkipImpossible
from headwater.operators.match.language import pattern_text
from headwater.operators.match.language.rule import Rule
from headwater.operators.match.run.columns import with_columns

PATTERNS = 200
ROWS_OF_KEY = 50


def grammar(bench: Bench) -> list[Result]:
    """Rows a second of the slowest pattern, and of the one in the middle."""
    from tests.operators.match import naive

    rows, patterns = bench.size(50_000, 1_000), bench.size(PATTERNS, 10)
    table = events(rows)
    rates: list[tuple[float, str]] = []
    dropped = 0

    @settings(
        max_examples=patterns,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(rule=naive.rules())
    def measure(rule: Rule) -> None:
        nonlocal dropped
        try:
            seconds, given_up = searched(rule, table)
        except SkipImpossible:  # what the rule says of these rows; its error comes before its end
            return
        dropped += given_up
        rates.append((rows / seconds, pattern_text(rule.pattern)))

    measure()
    del rates[:1]  # it paid for the compilation
    rates.sort()
    slowest, pattern = rates[0]
    middle = rates[len(rates) // 2][0]
    about = {"rows": rows, "patterns": len(rates), "median": round(middle), "slowest": pattern, "given_up": dropped}
    return [Result(name="grammar", value=slowest, unit="rows/s", more=about)]


def events(rows: int) -> pa.Table:
    from tests.operators.match.laws import SCHEMA

    random = np.random.default_rng(1)
    keys = np.arange(rows) // ROWS_OF_KEY
    columns = {
        "key": pa.array(keys).cast(pa.string()),
        "id": pa.array(np.arange(rows)),
        "at": pa.array(np.arange(rows) % ROWS_OF_KEY * 2_000_000).cast(SCHEMA.field("at").type),
        "amount": pa.array(random.integers(0, 10, rows)),
        "price": pa.array(random.integers(0, 20, rows) / 4),
        "kind": pa.array(np.array(["x", "y", "z"])[random.integers(0, 3, rows)]),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def searched(rule: Rule, table: pa.Table) -> tuple[float, int]:
    """How many seconds of CPU a search of all rows takes, and how many starts it gives up."""
    from tests.operators.match.laws import Laws

    laws = Laws(rule)
    rows = with_columns(laws.plan, table)
    contract = laws.make(rows.schema)
    rows = rows.append_column(KEY, pa.array(np.arange(rows.num_rows) // ROWS_OF_KEY))
    state = pa.schema([*contract.key_schema, *contract.state, pa.field(KEY, pa.int64())]).empty_table()
    began = time.process_time()
    stepped = contract.step(state, rows, BatchTime(local_watermark_us=EVER))
    seconds = time.process_time() - began
    assert isinstance(stepped, StepResult)
    given_up = stepped.side_outputs.get("dropped")
    return max(seconds, 1e-6), 0 if given_up is None else given_up.num_rows
