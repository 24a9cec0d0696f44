"""Merging: in which pieces and in which order values come makes no difference, or none that is not stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.operators import agg, sketches
from tests.operators.sketches.builders import in_pieces, merged, whole

#: Of these the bytes, or the values, are a function of what came alone.
EXACT = {
    "approx_count_distinct": agg.approx_count_distinct("v", error=0.1),
    "hll": agg.sketch.hll("v", lg_k=6),
    "hll, large": agg.sketch.hll("v", lg_k=12),
    "theta": agg.sketch.theta("v", lg_k=5),
    "count_min": agg.sketch.count_min("v", error=0.05),
    "counts": agg.count_min("v", [1, 2, 3], error=0.05),
    "sample": agg.sample("v", 3),
    "top of few": agg.approx_top_k("v", 5, tracked=1_000),
}
VALUES = st.lists(st.one_of(st.none(), st.integers(0, 300)), min_size=1, max_size=400)


@given(values=VALUES, data=st.data())
@pytest.mark.parametrize("name", EXACT)
def test_any_pieces_in_any_order_give_the_same(name: str, values: list[int | None], data: st.DataObject) -> None:
    column = pa.array(values, pa.int64())
    pieces = np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values))))
    expected = whole(EXACT[name], column)[0]
    for by_two in (False, True):
        assert in_pieces(EXACT[name], column, pieces, by_two=by_two) == expected


def ranks(values: np.ndarray, found: list[dict[str, Any]]) -> np.ndarray:
    """How far each quantile lies from the rank that was asked for."""
    ordered = np.sort(values)
    low, high = (
        np.array([np.searchsorted(ordered, one["estimate"], side=side) for one in found]) / len(values)
        for side in ("left", "right")
    )
    at = np.array([one["at"] for one in found])
    away: np.ndarray = np.maximum(np.maximum(low - at, at - high), 0)
    return away


@given(seed=st.integers(0, 10_000), pieces=st.integers(1, 40), by_two=st.booleans())
@pytest.mark.parametrize("method", ["kll", "tdigest"])
def test_quantiles_of_pieces_are_within_the_error(method: str, seed: int, pieces: int, by_two: bool) -> None:
    random = np.random.default_rng(seed)
    values = random.lognormal(size=5_000)
    aggregate = agg.approx_percentile("v", [0.01, 0.25, 0.5, 0.75, 0.99], method=method)  # type: ignore[arg-type]
    found = in_pieces(aggregate, pa.array(values), random.integers(0, pieces, len(values)), by_two=by_two)
    assert (ranks(values, found) <= 0.0133).all()


@given(seed=st.integers(0, 10_000), pieces=st.integers(1, 20), by_two=st.booleans())
def test_the_commonest_of_pieces_are_within_certain_bounds(seed: int, pieces: int, by_two: bool) -> None:
    random = np.random.default_rng(seed)
    values = random.zipf(1.3, 2_000) % 500
    truth = np.bincount(values, minlength=500)
    found = in_pieces(
        agg.approx_top_k("v", 10, tracked=20), pa.array(values), random.integers(0, pieces, 2_000), by_two=by_two
    )
    for one in found:
        assert one["lower"] <= truth[one["value"]] <= one["upper"] <= one["lower"] + 2_000 / 21


@pytest.mark.parametrize("make", [agg.sketch.hll, agg.sketch.theta, agg.sketch.frequent, agg.sketch.count_min])
def test_minutes_hours_and_a_day_are_the_same_as_the_day_at_once(make: Any) -> None:
    random = np.random.default_rng(1)
    texts = pa.array(random.zipf(1.5, 100_000) % 3_000).cast(pa.string())
    minutes = np.sort(random.integers(0, 1_440, len(texts)))
    per_minute = whole(make("v"), texts, minutes)
    hours = np.unique(minutes) // 60
    per_hour = merged(agg.merge_sketches("v"), per_minute, hours)
    (day,) = merged(agg.merge_sketches("v"), per_hour, np.zeros(len(per_hour), np.int64))
    (direct,) = whole(make("v"), texts)
    if make is agg.sketch.frequent:
        one, other = sketches.top(day, 50), sketches.top(direct, 50)
        truth = dict(zip(*np.unique(np.array(texts.to_pylist()), return_counts=True), strict=True))
        for found in [*one, *other]:
            assert found["lower"] <= truth[found["value"]] <= found["upper"] <= found["lower"] + len(texts) / 1_024
    else:
        assert day == direct


@pytest.mark.parametrize("make", [agg.sketch.kll, agg.sketch.tdigest])
def test_minutes_hours_and_a_day_have_the_quantiles_of_the_day(make: Any) -> None:
    random = np.random.default_rng(2)
    values = random.normal(size=100_000)
    minutes = np.sort(random.integers(0, 1_440, len(values)))
    per_minute = whole(make("v"), pa.array(values), minutes)
    per_hour = merged(agg.merge_sketches("v"), per_minute, np.arange(1_440) // 60)
    (day,) = merged(agg.merge_sketches("v"), per_hour, np.zeros(24, np.int64))
    ordered = np.sort(values)
    for share in (0.001, 0.01, 0.5, 0.99, 0.999):
        rank = np.searchsorted(ordered, sketches.quantile(day, share).estimate) / len(values)
        assert rank == pytest.approx(share, abs=0.0133)


def test_nulls_among_sketches_are_left_out_and_of_nothing_the_result_is_null() -> None:
    (one,) = whole(agg.sketch.hll("v"), pa.array([1, 2, 3]))
    assert merged(agg.merge_sketches("v"), [one, None, None], np.array([0, 0, 1])) == [one, None]


def test_nan_and_infinities_among_quantiles() -> None:
    values = pa.array([np.nan, 1.0, np.inf, 2.0, -np.inf, None])
    (found,) = whole(agg.approx_percentile("v", [0.0, 0.5, 1.0]), values)
    assert [one["estimate"] for one in found] == [-np.inf, 1.0, np.inf]
    (found,) = whole(agg.approx_percentile("v", [0.0, 1.0], method="tdigest"), values)
    assert [one["estimate"] for one in found] == [1.0, 2.0]
    for method in ("kll", "tdigest"):
        assert whole(agg.approx_percentile("v", [0.5], method=method), pa.array([np.nan, None])) == [None]


def test_groups_without_values_have_empty_results() -> None:
    nothing = pa.array([None, None], pa.string())
    assert whole(agg.approx_count_distinct("v"), nothing) == [{"estimate": 0.0, "lower": 0.0, "upper": 0.0}]
    assert whole(agg.approx_top_k("v"), nothing) == [[]]
    assert whole(agg.sample("v"), nothing) == [[]]
    assert whole(agg.count_min("v", ["x"]), nothing) == [[{"value": "x", "estimate": 0.0, "lower": 0.0, "upper": 0.0}]]
    for make in (agg.sketch.hll, agg.sketch.theta):
        assert sketches.estimate(whole(make("v"), nothing)[0]).estimate == 0
    numbers = pa.array([None, None], pa.float64())
    for made in (agg.sketch.kll("v"), agg.sketch.tdigest("v")):
        assert np.isnan(sketches.quantile(whole(made, numbers)[0]).estimate)
    assert sketches.top(whole(agg.sketch.frequent("v"), nothing)[0]) == []


ALL = {
    "approx_count_distinct": agg.approx_count_distinct("v"),
    "kll": agg.approx_percentile("v", [0.5, 0.99]),
    "tdigest": agg.approx_percentile("v", [0.5, 0.99], method="tdigest"),
    "theta": agg.sketch.theta("v"),
    "approx_top_k": agg.approx_top_k("v"),
    "sample": agg.sample("v"),
    "decayed": agg.decayed_sum("v", half_life=60),
}


@pytest.mark.parametrize("name", ALL)
def test_one_group_of_a_million_values(name: str) -> None:
    values = np.random.default_rng(9).permutation(1_000_000)
    (found,) = whole(ALL[name], pa.array(values))
    if name == "approx_count_distinct":
        assert found["lower"] <= 1_000_000 <= found["upper"]
    if name in ("kll", "tdigest"):
        assert [one["estimate"] for one in found] == [
            pytest.approx(500_000, abs=13_300),
            pytest.approx(990_000, abs=13_300),
        ]
    if name == "theta":
        assert len(found) < 40_000


@pytest.mark.parametrize("name", ALL)
def test_a_hundred_thousand_groups(name: str) -> None:
    numbers = np.repeat(np.arange(100_000), 3)
    values = np.tile([1, 2, 2], 100_000)
    found = whole(ALL[name], pa.array(values), numbers)
    assert len(found) == 100_000
    if name == "approx_count_distinct":
        assert {round(one["estimate"]) for one in found} == {2}
    if name in ("kll", "tdigest"):
        assert {one[0]["estimate"] for one in found} == {2.0}
    if name == "approx_top_k":
        assert all(one[0] == {"value": 2, "estimate": 2, "lower": 2, "upper": 2} for one in found)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False, True, None]),
        pa.array([1, 2, 1, None], pa.uint8()),
        pa.array([1.5, -0.0, 0.0, float("nan")]),
        pa.array(["a", "", "a", None]),
        pa.array([b"a", b"", b"a", None]),
        pa.array([1, 2, 1, None], pa.timestamp("us", "UTC")),
        pa.array([1, 2, 1, None], pa.date32()),
        pa.array([1, 2, 1, None], pa.duration("us")),
        pa.array([1, 2, 1, None]).cast(pa.decimal128(21, 2)),
        pa.array(["a", "b", "a", None], pa.large_string()),
    ],
)
def test_columns_of_any_plain_type(values: pa.Array) -> None:
    different = 2 if values.null_count else 3
    (found,) = whole(agg.approx_count_distinct("v"), values)
    assert round(found["estimate"]) == different
    assert round(sketches.estimate(whole(agg.sketch.theta("v"), values)[0]).estimate) == different
    (top,) = whole(agg.approx_top_k("v", 1), values)
    assert top[0]["estimate"] == 2
    (sample,) = whole(agg.sample("v", 10), values)
    assert len(sample) == 4 - values.null_count
    (counted,) = whole(agg.count_min("v", [values[0].as_py()]), values)
    assert counted[0]["estimate"] == (2 if values.null_count else 1)
