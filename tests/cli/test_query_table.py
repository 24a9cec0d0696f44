"""One line per query, whatever its name and however narrow the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from headwater.apps.status import QueryStatus, State
from headwater.cli.session import Flags, Session
from headwater.cli.terminal.query_table import Display, rows, short, sparkline, status_line

NOW = 1_700_000_000_000_000
STATUSES = st.builds(
    QueryStatus,
    name=st.text(st.characters(categories=["L", "N", "P", "So"]), min_size=1, max_size=40),
    kind=st.sampled_from(("topic", "view", "sink")),
    state=st.sampled_from(("waiting", "starting", "running", "caught up", "restarting", "stopped", "failed")),
    version=st.integers(1, 3),
    rows_per_second=st.floats(0, 1e12),
    lag_rows=st.none() | st.integers(0, 10**15),
    lag_seconds=st.none() | st.floats(0, 1e9),
    watermark_us=st.none() | st.integers(0, 2 * NOW),
    state_bytes=st.integers(0, 2**50),
    late=st.integers(0, 10**12),
    dead_letters=st.integers(0, 10**12),
    restarts=st.integers(0, 10**4),
    error=st.none() | st.text(max_size=200),
)


def drawn(statuses: list[QueryStatus], width: int, **more: object) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(rows(statuses, width=width, now_us=NOW, **more))  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@given(
    statuses=st.lists(STATUSES, max_size=6), width=st.integers(60, 160), rates=st.lists(st.floats(0, 1e9), max_size=80)
)
def test_each_query_has_its_line_and_none_is_too_long(
    statuses: list[QueryStatus], width: int, rates: list[float]
) -> None:
    lines = drawn(statuses, width, title="fraud", rates={one.name: rates for one in statuses})
    errors = sum(bool(one.error) and one.state in ("failed", "restarting") for one in statuses)
    assert len(lines) == 2 + (len(statuses) + errors or 1)
    assert max(map(cell_len, lines)) <= width


def test_eighty_columns_are_enough_for_all_of_it() -> None:
    one = QueryStatus(
        name="spend", kind="view", state="running", rows_per_second=12_345, lag_rows=1_203, lag_seconds=1.23,
        watermark_us=NOW - 5_000_000, state_bytes=12_345_678, late=12, dead_letters=7, restarts=3,
    )  # fmt: skip
    title, line = drawn([one], 80)
    assert title.split() == ["QUERY", "STATE", "ROWS/S", "LAG", "WATERMARK", "KEPT", "LATE", "ERRORS"]
    assert line.split("  ")[0] == "● spend"
    assert all(text in line for text in ("running", "12k", "1.2k 1.2 s", "-5 s", "12MB", "7 ↻3"))
    assert "▁█" in drawn([one], 120, rates={"spend": [0.0, 1.0]})[1]


def test_queries_of_several_apps_stand_under_their_names() -> None:
    statuses = [QueryStatus(name=name, kind="view") for name in ("spend", "paid", "climate")]
    apps = {"spend": "fraud", "paid": "fraud", "climate": "sensors"}
    _, *lines = drawn(statuses, 80, apps=apps)
    assert [line.split()[:2] for line in lines] == [
        ["fraud"],
        ["○", "spend"],
        ["○", "paid"],
        ["sensors"],
        ["○", "climate"],
    ]


def test_an_error_is_folded_into_one_line() -> None:
    one = QueryStatus(name="spend", kind="view", state="failed", error="first\n\x1b[2Jsecond")
    assert drawn([one], 80)[-1] == "    first [2Jsecond"
    assert "first [2Jsecond" in status_line(one)


@given(number=st.floats(0, 9.9e11))
def test_a_count_is_short(number: float) -> None:
    assert len(short(number)) <= 5


def test_bars_are_as_high_as_they_should_be() -> None:
    assert (sparkline([]), sparkline([0.0]), sparkline([1.0] * 9, 3), sparkline([1.0], 0)) == ("", "▁", "███", "")


def test_a_file_gets_a_line_per_change_and_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    one = QueryStatus(name="spend", kind="view", state="starting")
    with Display(Session.begin(Flags()), clock=lambda: now[0]) as display:
        states: list[tuple[float, State]]
        states = [(0.0, "starting"), (1.0, "starting"), (2.0, "running"), (3.0, "running"), (12.0, "running")]
        for at, state in states:
            now[0] = at
            display.show([replace(one, state=state)])
    assert capsys.readouterr().err.splitlines() == [
        "spend starting: 0 rows/s, lag -",
        "spend running: 0 rows/s, lag -",
        "spend running: 0 rows/s, lag -",
    ]
