"""A watcher that is killed while something fires: the next one neither fires twice, nor forgets, nor leaves anybody untold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headwater.alerts import Delivery, Watcher
from headwater.clock import ManualClock
from headwater.faults import ALERT_CRASH_POINTS, CRASH_POINTS
from headwater.testing.crash import CrashAt, run_until_killed
from tests.alerts.numbers import Numbers, opened, slow

#: Those of the log are the ones that a transaction passes.
POINTS = [
    *(pytest.param(point, marks=pytest.mark.core) for point in ALERT_CRASH_POINTS),
    *(point for point in CRASH_POINTS if point.startswith(("append.", "commit."))),
]
pytestmark = pytest.mark.process


class Receiver:
    """A receiver that writes each notification to a file at once."""

    def __init__(self, told: Path) -> None:
        self._told = told

    def send(self, delivery: Delivery, *, now_us: int) -> Delivery:  # noqa: ARG002
        with self._told.open("a") as file:
            file.write(f"{delivery.id} {delivery.content()['alert']['state']}\n")
        return delivery.sent()


def watched(folder: Path, *, start_us: int) -> None:
    """Two queries that fall behind, are looked at twice, and catch up."""
    numbers = Numbers(clock=ManualClock(start_us=start_us), lags={"spend": 0, "cards": 0})
    with opened(folder) as log:
        watcher = Watcher(log, numbers, sender=Receiver(folder / "told"))
        watcher.put(slow(query="*"))
        for rows in (100, 100, 0):
            numbers.clock.advance(seconds=1)
            numbers.lags = {"spend": rows, "cards": rows}
            watcher.look()
            while watcher.deliver():
                pass


@pytest.mark.parametrize("visit", [1, 4])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_watcher_doubles_nothing_and_forgets_nothing(point: str, visit: int, tmp_path: Path) -> None:
    first = run_until_killed(lambda: watched(tmp_path, start_us=10**15), at=CrashAt(point=point, visit=visit))
    ended = run_until_killed(lambda: watched(tmp_path, start_us=2 * 10**15))
    assert ended.code == 0
    with opened(tmp_path) as log:
        history = Watcher(log, Numbers()).history(limit=1_000)[::-1]
    for subject in ("spend", "cards"):
        states = [change.state for change in history if change.subject == subject]
        # Where the first process came to the end of it, it fires again for the second, as it should.
        twice = ["firing", "resolved"] * 2
        assert states == ["firing", "resolved"] or (states == twice and not (first.killed and visit == 1))
    heard = Counter(line.split()[0] for line in (tmp_path / "told").read_text().splitlines())
    assert len(heard) == len({change.id for change in history}) == len(history)  # everybody has heard of everything
    assert heard.total() - len(heard) <= 1  # what was told but not yet written down comes again, under the same id


def test_each_point_is_reached(tmp_path: Path) -> None:
    ended = run_until_killed(lambda: watched(tmp_path, start_us=10**15))
    assert all(ended.reached[point] for point in ALERT_CRASH_POINTS)
