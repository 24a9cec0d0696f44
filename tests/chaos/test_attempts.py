"""Tasks that fail at their first attempt: the second one does the work again, and nothing is lost or doubled.

On `local[2,4]` the second attempt runs in the same JVM, on `local-cluster` maybe in another executor, with another
Python process and nothing in memory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.kills import Order
from tests.chaos.process import Stuck
from tests.chaos.single import run
from tests.chaos.tally import Tally

POINTS = ("source.read", "engine.before_lookup", "run.written", "manifest.written", "engine.saved", "stage.finished")
FAILED = [Order(point=point, victim="task", number=number) for number, point in enumerate(POINTS)]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(290)
def test_a_second_attempt_in_the_same_jvm_does_the_work_once(tmp_path: Path) -> None:
    verdict = run(FAILED, tmp_path, Tally(), seed=3)
    assert verdict.good, verdict
    assert verdict.windows


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(290)
def test_a_second_attempt_in_another_executor_does_the_work_once(tmp_path: Path) -> None:
    lost = [
        Order(point=point, victim="executor", number=len(FAILED) + number)
        for number, point in enumerate(("run.written", "stage.written"))
    ]
    try:
        verdict = run([*FAILED[::2], *lost], tmp_path, Tally(), seed=4, master="local-cluster[2,1,1024]")
    except Stuck as stuck:
        if "local-cluster" not in (tmp_path / "driver.log").read_text():
            raise
        pytest.skip(f"local-cluster does not run here: {stuck}")
    assert verdict.good, verdict
