"""A driver that is killed at any step of a batch, with its JVM and its worker, loses and doubles nothing.

`test_topic.py` and `test_contract.py` kill a batch at each point without Spark.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater.faults import SINK_CRASH_POINTS
from headwater.log import Log
from tests.sinks.query_child import run_to_the_end, run_until_killed
from tests.sinks.streams import ids, lakes_of, staged_files

pytestmark = pytest.mark.process

#: Ways and points, in the order in which they are killed. Those of the log's own commit are many, and have tests of
#: their own; one stands for them.
CHAINS = {
    "two steps": [
        ("format", "stage.finished"),
        ("foreachBatch", "sink.committed"),
    ],
    "format": [("format", point) for point in (*SINK_CRASH_POINTS, "commit.recorded")],
    "foreachBatch": [("foreachBatch", point) for point in (*SINK_CRASH_POINTS, "commit.recorded")],
}
SHORT, *WHOLE = CHAINS


def rows_covered(log: Log, checkpoint: Path) -> int:
    """How many rows of the source the last transaction says it covers."""
    query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
    metadata = log.transaction_metadata(query)
    assert metadata is not None
    offsets: dict[str, int] = metadata["sources"][0]["topics"]["in"]
    return sum(offsets.values())


@pytest.mark.parametrize("chain", [SHORT, *(pytest.param(name, marks=pytest.mark.long) for name in WHOLE)])
def test_each_row_is_there_once_though_the_query_is_killed_at_one_step_after_the_other(
    log: Log, tmp_path: Path, chain: str
) -> None:
    for way, point in CHAINS[chain]:
        visit = 3 if point.startswith("stage") else 2  # in the second batch: each batch has two tasks, and one driver
        assert run_until_killed(way, tmp_path, point=point, visit=visit) == -signal.SIGKILL, point
        assert len(ids(log)) == rows_covered(log, tmp_path / "checkpoint"), f"a batch shows in part after {point}"
    # One more batch: where the last one is skipped as it was committed, the next commit removes what it had staged.
    log.append("in", [{"id": 100, "name": "later"}])
    run_to_the_end(way, tmp_path)
    assert ids(log) == list(range(101))
    assert staged_files(log) == []


@pytest.mark.long
def test_a_kill_between_two_sinks_repeats_the_batch_for_the_second_alone(log: Log, tmp_path: Path) -> None:
    # Each batch passes between the two sinks, and once more behind the second.
    assert run_until_killed("lakes", tmp_path, point="delivery.between", visit=3) == -signal.SIGKILL
    first, last = (DeltaTable(path) for path in lakes_of(log))
    assert first.count() > last.count() > 0
    run_to_the_end("lakes", tmp_path)
    for path, before in zip(lakes_of(log), (first, last), strict=True):
        after = DeltaTable(path)
        assert set(before.file_uris()) <= set(after.file_uris()), "what was there is not written again"
        assert sorted(after.to_pyarrow_table().column("id").to_pylist()) == list(range(100))
