"""Rows that leave by a side output: their columns are the same in the state folder and in a topic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.engine import step
from headwater.engine.event_time import WatermarkStrategy, late_schema, with_late_by
from headwater.engine.micro_batch import MicroBatch
from headwater.engine.side_outputs import SideOutputs, read_side_output, side_output_schema
from headwater.engine.state_folder import LocalFolder
from headwater.engine.step import PartitionEngine
from tests.engine.test_step import contract, run, table


def test_how_late_a_row_was_has_one_name(tmp_path: Path) -> None:
    made = contract(event_time=WatermarkStrategy(time="at", delay_us=5))
    engine = PartitionEngine(made, LocalFolder(tmp_path / "query" / "total"), slot=0)
    run(engine, 0, table([("a", 1)], times=[100]))
    run(engine, 1, table([("a", 2)], times=[94]))
    (stored,) = read_side_output(tmp_path, "query", "total", "late")
    sides = SideOutputs(state=tmp_path, operator="total", topics={"late": "totals.late"})
    ((topic, written),) = sides(MicroBatch(query="query", number=1))
    assert stored.column("late_by_us").to_pylist() == written.column("late_by_us").to_pylist() == [1]
    assert topic == "totals.late"
    assert written.schema.names == side_output_schema(made, "late").names == ["user", "amount", "at", "late_by_us"]


def test_a_query_that_has_late_rows_for_ever_keeps_those_of_the_last_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "SIDE_BATCHES_KEPT", 10)
    monkeypatch.setattr(step, "SIDE_BATCHES_CLEANED", 4)
    made = contract(event_time=WatermarkStrategy(time="at", delay_us=5))
    engine = PartitionEngine(made, LocalFolder(tmp_path / "query" / "total"), slot=0)
    run(engine, 0, table([("a", 1)], times=[100]))
    for batch in range(1, 50):
        run(engine, batch, table([("a", batch)], times=[0]))
    kept = [one.column("amount")[0].as_py() for one in read_side_output(tmp_path, "query", "total", "late")]
    assert kept == list(range(39, 50))


def test_a_late_row_that_comes_again_says_once_how_late_it_is() -> None:
    rows = pa.table({"user": ["a"], "late_by_us": [7]})
    assert with_late_by(rows, np.array([3])).to_pylist() == [{"user": "a", "late_by_us": 3}]
    assert late_schema(rows.schema).names == ["user", "late_by_us"]
