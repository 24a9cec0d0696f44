"""Who holds a watermark back is told by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.apps.query_progress import _with_state, held_by
from headwater.apps.status import QueryStatus
from headwater.engine.event_time import EVER, NEVER, SourceProgress
from headwater.engine.state_maintenance import OperatorState

SECOND = 1_000_000
NOW = 1_000 * SECOND


def state(progress: SourceProgress, *, watermark_us: int | None = 0, operator: str = "tumbling") -> OperatorState:
    return OperatorState(
        query="q", operator=operator, partition=0, batch=1, rows=0, runs=0, bytes=0, watermark_us=watermark_us,
        counts={}, progress=progress,
    )  # fmt: skip


def test_an_idle_partition_is_named_with_its_topic_and_for_how_long() -> None:
    progress: SourceProgress = {"": {"0": (900 * SECOND, NOW), "2": (100 * SECOND, NOW - 40 * SECOND)}}
    told = held_by([state(progress)], ["clicks"], now_us=NOW)
    assert told == "partition 2 of clicks, idle for 40 s, holds the watermark"


def test_partitions_that_come_along_hold_nothing() -> None:
    busy: SourceProgress = {"": {"0": (900 * SECOND, NOW), "1": (100 * SECOND, NOW - 2 * SECOND)}}
    level: SourceProgress = {"": {"0": (900 * SECOND, NOW - 60 * SECOND), "1": (900 * SECOND, NOW - 60 * SECOND)}}
    alone: SourceProgress = {"": {"0": (100 * SECOND, NOW - 500 * SECOND)}}
    assert [held_by([state(progress)], ["clicks"], now_us=NOW) for progress in (busy, level, alone)] == ["", "", ""]
    assert held_by([], ["clicks"], now_us=NOW) == ""


def test_an_input_that_was_never_heard_of_is_named_by_its_number() -> None:
    progress: SourceProgress = {"0": {"0": (900 * SECOND, NOW)}, "1": {"": (NEVER, NOW - SECOND)}}
    told = held_by([state(progress, watermark_us=None)], ["searches", "clicks"], now_us=NOW)
    assert told == "its second input has had no rows yet, and there is no watermark until it has"


def test_the_operator_with_the_earliest_watermark_is_asked_and_its_partitions_together() -> None:
    behind: SourceProgress = {"": {"0": (100 * SECOND, NOW - 60 * SECOND)}}
    ahead: SourceProgress = {"": {"1": (900 * SECOND, NOW)}}
    other: SourceProgress = {"": {"0": (5 * SECOND, 0), "1": (900 * SECOND, NOW)}}
    states = [state(behind), state(ahead), state(other, watermark_us=NOW, operator="match")]
    assert held_by(states, ["clicks"], now_us=NOW).startswith("partition 0 of clicks, idle for 60 s")


def test_the_end_of_the_input_is_no_time_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, open_ = state({}, watermark_us=EVER, operator="minutes"), state({}, watermark_us=5 * SECOND)
    for found, watermark_us in (([ended], None), ([ended, open_], 5 * SECOND)):
        monkeypatch.setattr("headwater.apps.query_progress.states", lambda *_, found=found, **__: iter(found))
        status = _with_state(QueryStatus(name="spend", kind="view"), Path("state"), "q")
        assert status.watermark_us == watermark_us
        assert ("all input has ended" in status.watermark_held_by) == (watermark_us is None)
