"""How far a query is: what its checkpoint says, in every state, whatever Spark reports and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.apps.checkpoint import Checkpoint, keep_beginning
from headwater.apps.home import Home
from headwater.apps.query_progress import RATE_SECONDS, QueryProgress, measured
from headwater.apps.status import QueryStatus, State
from headwater.log.errors import BrokerUnreachable
from headwater.log.port import Offsets
from tests.apps.checkpoints import KEPT, Topics, commit_batch, plan_batch

Batches = list[tuple[float, float, int]]
SPEND = QueryStatus(name="spend", kind="view", inputs=("payments",))


def batches() -> st.SearchStrategy[Batches]:
    """Rests, times of batches and their rows, one after the other."""
    return st.lists(st.tuples(st.floats(0, 5), st.floats(0, 15), st.integers(0, 1_000)), min_size=1, max_size=12)


@given(batches=batches(), rest=st.floats(0, 20))
def test_busy_is_the_share_of_the_last_seconds_in_which_a_batch_was_at_work(batches: Batches, rest: float) -> None:
    now, read = 1_000.0, 0
    done = []
    with TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        for number, (before, seconds, rows) in enumerate(batches):
            now += before + seconds
            read += rows
            done.append((now - seconds, now, rows))
            began: Topics | None = {"payments": {0: 0}} if number == 0 else None
            plan_batch(checkpoint, number, {"payments": {0: read}}, began=began, at=now - seconds)
            commit_batch(checkpoint, number, at=now)
        now += rest
        seen = Checkpoint.read(checkpoint)
        busy = seen.busy(now=now, seconds=RATE_SECONDS, since=0.0)
        rate = seen.rate(now=now, seconds=RATE_SECONDS)
    begin = now - RATE_SECONDS
    known = [one for one in done if one[1] > begin + 1e-6]
    expected = sum(end - max(start, begin) for start, end, _ in known) / RATE_SECONDS
    assert busy == pytest.approx(min(1.0, expected), abs=1e-4)
    if all(abs(end - begin) > 1e-3 for _, end, _ in done):  # the times of files are rounded
        assert rate == pytest.approx(sum(rows for _, _, rows in known) / RATE_SECONDS)


def test_a_batch_at_work_counts_from_the_start_of_the_query_not_from_its_plan(tmp_path: Path) -> None:
    """A batch that a crash has interrupted yesterday is repeated now."""
    plan_batch(tmp_path / "checkpoint", 0, {"payments": {0: 5}}, began={"payments": {0: 0}}, at=10.0)
    interrupted = Checkpoint.read(tmp_path / "checkpoint")
    assert interrupted.busy(now=1_002.0, seconds=RATE_SECONDS, since=1_000.0) == pytest.approx(0.2)
    assert (interrupted.batch, interrupted.rows_read) == (None, 0)
    commit_batch(tmp_path / "checkpoint", 0, at=1_003.0)
    repeated = Checkpoint.read(tmp_path / "checkpoint")
    assert repeated.batch_seconds(since=1_000.0) == pytest.approx(3.0)
    assert repeated.batch_seconds(since=1_004.0) is None


@given(
    appended=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=8),
    shares=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    number=st.integers(0, 400) | st.none(),
    state=st.sampled_from(get_args(State)),
)
def test_the_lag_is_the_end_less_what_is_committed_in_every_state(
    appended: list[tuple[int, int]], shares: list[float], number: int | None, state: State
) -> None:
    with TemporaryDirectory() as folder, headwater.open(folder) as log:
        home = Home(Path(folder) / "apps" / "shop")
        log.create("payments", {"id": "int64"}, partitions=3)
        for partition, rows in appended:
            log.append("payments", [{"id": 1}] * rows, partition=partition)
        ends = [sum(rows for partition, rows in appended if partition == each) for each in range(3)]
        read = {each: int(end * share) for each, (end, share) in enumerate(zip(ends, shares, strict=True))}
        checkpoint = home.checkpoint("spend", 1)
        if number is not None:
            plan_batch(checkpoint, number, {"payments": read})
            commit_batch(checkpoint, number)
            # The batch after it is planned, and not committed: what it reads is not read yet.
            plan_batch(checkpoint, number + 1, {"payments": dict(enumerate(ends))})
        status = measured(QueryStatus(name="spend", kind="view", inputs=("payments",), state=state), home, log)
    committed = sum(read.values()) if number is not None else 0
    assert (status.batch, status.lag_rows) == (number, sum(ends) - committed)
    assert (status.lag_seconds == 0) == (status.lag_rows == 0)
    expected: dict[State, State] = {
        "running": "running" if status.lag_rows else "caught up",
        "caught up": "stopped" if status.lag_rows else "caught up",
    }
    assert status.state == expected.get(state, state)


def test_of_two_sources_of_one_topic_the_one_further_behind_counts(tmp_path: Path) -> None:
    first, second = {"payments": {0: 7, 1: 2}, "cards": {0: 1}}, {"payments": {0: 3, 1: 4}}
    plan_batch(tmp_path, 4, first, second)
    commit_batch(tmp_path, 4, watermark_ms=1_700_000_000_123)
    seen = Checkpoint.read(tmp_path)
    assert seen.position == {"payments": {0: 3, 1: 2}, "cards": {0: 1}}
    assert seen.watermark_us == 1_700_000_000_123_000


def test_rows_read_are_counted_from_where_the_query_began_also_after_spark_has_forgotten_it(tmp_path: Path) -> None:
    folder = tmp_path / "v1" / "checkpoint"
    assert not keep_beginning(folder)
    plan_batch(folder, 0, {"payments": {0: 50}}, began={"payments": {0: 40}})
    assert keep_beginning(folder)
    for number in range(1, KEPT + 20):
        plan_batch(folder, number, {"payments": {0: 50 + number, 1: number}})
        commit_batch(folder, number)
    assert not (folder / "offsets" / "0").exists()
    assert Checkpoint.read(folder).rows_read == 10 + 2 * (KEPT + 19)


def test_a_query_that_begins_at_the_end_has_no_lag_until_it_knows_where_that_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "apps" / "shop")
    with headwater.open(tmp_path) as log:
        log.create("payments", {"id": "int64"})
        log.append("payments", [{"id": 1}] * 5)
        assert measured(SPEND, home, log, start="latest").lag_rows is None
        plan_batch(home.checkpoint("spend", 1), 0, {"payments": {0: 5}}, began={"payments": {0: 5}})
        log.append("payments", [{"id": 1}] * 2)
        assert measured(SPEND, home, log, start="latest").lag_rows == 2
        log.delete("payments")
        assert measured(SPEND, home, log).lag_rows is None


def test_the_status_of_a_query_whose_log_is_away_has_its_error_and_no_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "apps" / "shop")
    with headwater.open(tmp_path) as log:
        log.create("payments", {"id": "int64"})

        def away(_topic: str) -> Offsets:
            raise BrokerUnreachable(address="kafka://one", why="no broker answers")

        for name in ("start_offsets", "end_offsets"):
            monkeypatch.setattr(log, name, away)
        found = measured(replace(SPEND, state="restarting", error="it cannot be reached"), home, log)
        assert (found.state, found.error, found.lag_rows) == ("restarting", "it cannot be reached", None)


def test_reports_that_come_late_or_never_change_no_lag_and_no_batch(tmp_path: Path) -> None:
    home = Home(tmp_path / "apps" / "shop")
    with headwater.open(tmp_path) as log:
        log.create("payments", {"id": "int64"})
        progress = QueryProgress(SPEND, home=home, log=log)
        progress.set_state("running")
        log.append("payments", [{"id": 1}] * 1_800)
        assert (progress.status().state, progress.status().lag_rows) == ("running", 1_800)
        for number in range(32):
            plan_batch(home.checkpoint("spend", 1), number, {"payments": {0: 10 * number}})
            commit_batch(home.checkpoint("spend", 1), number)
        report = {"batchId": 13, "numInputRows": 130, "durationMs": {"addBatch": 3}, "sources": []}
        progress.update(report)
        status = progress.status()
    assert (status.batch, status.rows_total, status.lag_rows) == (31, 310, 1_490)
    assert status.phases_ms == {"addBatch": 3.0}
