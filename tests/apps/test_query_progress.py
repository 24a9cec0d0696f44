"""How busy a query is, and how fast: over the last ten seconds, whatever its batches look like."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.apps.query_progress import RATE_SECONDS, QueryProgress
from headwater.apps.status import QueryStatus

Batches = list[tuple[float, float, int]]


def batches() -> st.SearchStrategy[Batches]:
    """Rests, times of batches and their rows, one after the other."""
    return st.lists(st.tuples(st.floats(0, 5), st.floats(0, 15), st.integers(0, 1_000)), min_size=1, max_size=12)


@given(batches=batches(), rest=st.floats(0, 20))
def test_busy_is_the_share_of_the_last_seconds_in_which_a_batch_was_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: Batches, rest: float
) -> None:
    now = 1_000.0
    progress = QueryProgress(QueryStatus(name="spend", kind="view"), state=tmp_path)
    done = []
    for number, (before, seconds, rows) in enumerate(batches):
        now += before + seconds
        done.append((now - seconds, now, rows))
        monkeypatch.setattr("headwater.apps.query_progress.time.monotonic", lambda at=now: at)
        report = {"id": "q", "batchId": number, "numInputRows": rows, "durationMs": {"triggerExecution": seconds * 1e3}}
        progress.update(report)
    now += rest
    monkeypatch.setattr("headwater.apps.query_progress.time.monotonic", lambda: now)
    status = progress.status()
    begin = now - RATE_SECONDS
    known = [one for one in done if one[1] >= begin]
    expected = sum(max(0.0, end - max(start, begin)) for start, end, _ in known) / RATE_SECONDS
    assert status.busy == pytest.approx(min(1.0, expected), abs=1e-6)
    assert 0 <= status.busy <= 1
    assert status.rows_per_second == pytest.approx(sum(rows for _, _, rows in known) / RATE_SECONDS)
