"""What is known of a query from Spark's reports: some numbers are of one batch, and are summed up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.runtime.status import QueryStatus
from headwater.runtime.watching import Watch

_COUNTS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3)


# Any: a report is JSON.
def report(batch: int, operators: list[tuple[int, int]]) -> dict[str, Any]:
    told = [{"numRowsDroppedByWatermark": late, "numRowsRemoved": gone, "numRowsTotal": 7} for late, gone in operators]
    return {"id": "none", "batchId": batch, "numInputRows": 1, "sources": [], "stateOperators": told}


@given(batches=st.lists(_COUNTS, min_size=1, max_size=5))
def test_late_rows_and_state_let_go_are_two_numbers_and_neither_forgets(batches: list[list[tuple[int, int]]]) -> None:
    watch = Watch(QueryStatus(name="spend", kind="view", aside={"late": "spend.late"}), state=Path("nowhere"))
    for number, operators in enumerate(batches):
        watch.progress(report(number, operators))
    status = watch.status()
    assert status.late == sum(late for operators in batches for late, _ in operators)
    assert status.evicted == sum(gone for operators in batches for _, gone in operators)
    assert status.state_rows == 7 * len(batches[-1])
    assert status.aside == {"late": "spend.late"}
