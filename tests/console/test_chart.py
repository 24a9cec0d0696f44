"""Charts: nothing is pressed flat by one peak, and a live chart ends now."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.console.kit.chart import PEAK_FACTOR, WINDOW_SECONDS_MIN, heights, limit_of, window_of

values = st.floats(0, 1e9, allow_nan=False)
lines = st.lists(st.lists(st.tuples(st.floats(1, 1e9), values), max_size=8).map(sorted), max_size=4)


@given(st.lists(values, max_size=60))
def test_a_peak_is_cut_only_where_it_stands_far_above_nearly_all_others(given_values: list[float]) -> None:
    limit = limit_of(given_values)
    if limit is not None:
        drawn = [value for value in given_values if value <= limit]
        assert len(drawn) >= 0.9 * len(given_values)
        assert max(given_values) > PEAK_FACTOR * max(drawn) / 1.25


def test_the_first_batch_does_not_press_the_others_flat() -> None:
    assert limit_of([20_000.0, *[300.0] * 30]) == 380.0
    assert limit_of([20_000.0, 300.0]) is None  # too few to say what is usual
    assert limit_of([float(value) for value in range(100)]) is None
    assert limit_of([0.0] * 99 + [5.0]) is None  # where all others are 0, the peak is all there is to see


@given(lines, st.floats(1, 1e9))
def test_a_live_chart_shows_all_points_and_ends_now(points: list[list[tuple[float, float]]], now: float) -> None:
    window = window_of(points, now=now)
    times = [at for line in points for at, _ in line]
    assert all(window["min"] <= round(at * 1000) <= window["max"] for at in times)
    assert window["max"] == round(max([now, *times]) * 1000)
    assert window["max"] - window["min"] >= WINDOW_SECONDS_MIN * 1000 - 1


@given(st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=1))
def test_lines_that_stand_on_each_other_are_as_high_as_their_sum(given_lines: dict[str, list[int]]) -> None:
    series = {name: [(float(at), float(value)) for at, value in enumerate(line)] for name, line in given_lines.items()}
    assert heights(series, stacked=True) == [float(sum(column)) for column in zip(*given_lines.values(), strict=True)]
