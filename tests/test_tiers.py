"""The plug-in that decides when a test runs: it sees what tests start, and keeps to the tiers."""

from __future__ import annotations

import os

import pytest

from tests.tiers import is_in

pytest_plugins = ["pytester"]

STARTS = """
    import subprocess, sys
    import pytest

    {mark}
    def test_it():
        subprocess.run([sys.executable, "-c", ""], check=True)
"""


def test_the_group_of_a_test_reaches_the_scheduler(request: pytest.FixtureRequest) -> None:
    """A release of pytest or xdist that loses groups would start a JVM in every process, and all else with it."""
    group = "@tests/test_tiers.py" if "PYTEST_XDIST_WORKER" in os.environ else ""
    assert request.node.nodeid.endswith(f"::test_the_group_of_a_test_reaches_the_scheduler{group}")


@pytest.mark.process
@pytest.mark.core
@pytest.mark.parametrize(
    ("mark", "passes"), [("", False), ("@pytest.mark.process", True), ("@pytest.mark.spark", False)]
)
def test_a_test_that_starts_a_process_without_its_mark_fails(
    pytester: pytest.Pytester, mark: str, passes: bool
) -> None:
    pytester.makepyfile(STARTS.format(mark=mark))
    done = pytester.runpytest_inprocess("-p", "tests.tiers")
    done.assert_outcomes(passed=int(passes), failed=int(not passes))
    if not passes:
        done.stdout.fnmatch_lines(["this test starts *: mark it @pytest.mark.process"])


class Marked:
    """As much of a test as the tiers look at."""

    def __init__(self, *marks: str) -> None:
        self._marks = marks

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self._marks else None


@pytest.mark.parametrize(
    ("marks", "tiers"),
    [
        ((), {"test", None}),
        (("law",), {"test", "slow", "night", None}),
        (("spark",), {"slow", None}),
        (("process", "core"), {"test", None}),
        (("browser", "law"), {"slow", "night", None}),
        (("process", "long"), {"night"}),
        (("core", "spark", "long"), {"night"}),
    ],
)
def test_what_a_test_starts_decides_when_it_runs(marks: tuple[str, ...], tiers: set[str | None]) -> None:
    item: pytest.Item = Marked(*marks)  # type: ignore[assignment]
    assert {tier for tier in ("test", "slow", "night", None) if is_in(item, tier)} == tiers
