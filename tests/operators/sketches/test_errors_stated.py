"""What is said of errors is true: measured against exact answers, with seeds that are fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.operators import agg, sketches
from tests.operators.sketches.builders import in_pieces, whole

TRIALS = 60


def inside(found: Sequence[tuple[float, float, float]]) -> float:
    """The share of truths that lie between their bounds."""
    return float(np.mean([lower <= truth <= upper for truth, lower, upper in found]))


@pytest.mark.parametrize("error", [0.05, 0.02, 0.01])
def test_distinct_values_are_within_the_bounds_in_95_of_100_cases(error: float) -> None:
    random = np.random.default_rng(7)
    bounds, off = [], []
    for _ in range(TRIALS):
        count = int(10 ** random.uniform(0, 5))
        start = int(random.integers(0, 2**40))
        (found,) = whole(agg.approx_count_distinct("v", error=error), pa.array(np.arange(start, start + count)))
        bounds.append((count, found["lower"], found["upper"]))
        off.append(found["estimate"] / count - 1)
    assert inside(bounds) >= 0.93
    assert np.sqrt(np.mean(np.square(off))) <= error
    assert abs(np.mean(off)) <= error / 2


def test_a_few_distinct_values_are_counted_exactly() -> None:
    for count in (0, 1, 10, 100, 1_000):
        numbers = np.zeros(count + 1, np.int64)
        values = pa.array([*range(count), None], pa.int64())
        (found,) = whole(agg.approx_count_distinct("v"), values, numbers)
        assert round(found["estimate"]) == count
        assert found["lower"] <= count <= found["upper"]


def test_theta_sets_are_within_their_bounds_in_95_of_100_cases() -> None:
    random = np.random.default_rng(11)
    bounds = []
    for _ in range(TRIALS):
        start = int(random.integers(0, 2**40))
        left_only, shared, right_only = (int(10 ** random.uniform(1, 4.5)) for _ in range(3))
        left = pa.array(np.arange(start, start + left_only + shared))
        right = pa.array(np.arange(start + left_only, start + left_only + shared + right_only))
        one, other = (whole(agg.sketch.theta("v", lg_k=11), values)[0] for values in (left, right))
        for operation, truth in (
            (sketches.union, left_only + shared + right_only),
            (sketches.intersection, shared),
            (sketches.difference, left_only),
        ):
            found = sketches.estimate(operation(one, other))
            bounds.append((truth, found.lower, found.upper))
    assert inside(bounds) >= 0.93


SHAPES: dict[str, Callable[[Any, int], Any]] = {
    "normal": lambda random, count: random.normal(size=count),
    "skewed": lambda random, count: random.lognormal(sigma=2.0, size=count),
    "rising": lambda _, count: np.arange(count, dtype=np.float64),
    "few": lambda random, count: random.integers(0, 20, count).astype(np.float64),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pieces", [1, 300])
@pytest.mark.parametrize("method", ["kll", "tdigest"])
def test_quantiles_are_wrong_by_no_more_than_the_stated_rank(shape: str, pieces: int, method: str) -> None:
    random = np.random.default_rng(5)
    at = [0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0]
    values = SHAPES[shape](random, 60_000)
    aggregate = agg.approx_percentile("v", at, method=method)  # type: ignore[arg-type] # one of the two
    parts = np.sort(random.integers(0, pieces, len(values)))
    found = in_pieces(aggregate, pa.array(values), parts, by_two=pieces > 1)
    ordered = np.sort(values)
    for one in found:
        low, high = (np.searchsorted(ordered, one["estimate"], side=side) / len(values) for side in ("left", "right"))
        away = max(low - one["at"], one["at"] - high, 0.0)
        share = one["at"]
        # A digest gathers values that are far apart only where they are few.
        allowed = 0.0133 if method == "kll" else np.pi * np.sqrt(share * (1 - share)) / 119 + 2 / len(values)
        if method == "kll" or shape != "few":
            assert away <= allowed, f"{share}: {away}"
        exact = ordered[min(int(share * len(values)), len(values) - 1)]
        assert one["lower"] <= exact <= one["upper"]
    assert found[0]["estimate"] == ordered[0]
    assert found[-1]["estimate"] == ordered[-1]


@pytest.mark.parametrize("by_two", [False, True])
def test_the_commonest_values_are_certain_to_be_between_their_bounds(by_two: bool) -> None:
    random = np.random.default_rng(3)
    values = random.zipf(1.2, 50_000) % 10_000
    truth = np.bincount(values)
    found = in_pieces(
        agg.approx_top_k("v", 20, tracked=200), pa.array(values), random.integers(0, 30, len(values)), by_two=by_two
    )
    for one in found:
        assert one["lower"] <= truth[one["value"]] <= one["upper"]
        assert one["upper"] - one["lower"] <= len(values) / 200
    # Whatever is surely commoner than the error is among them.
    common = {value for value in np.argsort(-truth)[:20].tolist() if truth[value] > 2 * len(values) / 200}
    assert common <= {one["value"] for one in found}


def test_count_min_is_never_too_low_and_seldom_too_high() -> None:
    random = np.random.default_rng(4)
    values = random.zipf(1.3, 50_000) % 5_000
    truth = np.bincount(values, minlength=5_000)
    asked = list(range(1_000))
    (found,) = whole(agg.count_min("v", asked, error=0.001, confidence=0.99), pa.array(values))
    counts = np.array([one["estimate"] for one in found])
    assert (counts >= truth[:1_000]).all()
    assert np.mean([one["lower"] <= truth[one["value"]] for one in found]) >= 0.99


def test_every_row_is_as_likely_to_be_in_a_sample() -> None:
    drawn = np.zeros(100)
    for trial in range(400):
        (found,) = whole(agg.sample("v", 10), pa.array(np.arange(100) + 1_000 * trial))
        drawn[np.array(found) % 100] += 1
    # Forty times each, give or take: chi-squared with 99 degrees of freedom is below 149 in 999 of 1,000 cases.
    assert ((drawn - 40) ** 2 / 40).sum() < 149


def test_a_stratified_sample_has_as_many_of_each() -> None:
    rows = pa.array([{"country": "de" if number % 100 else "is", "id": number} for number in range(1_000)])
    (found,) = whole(agg.sample("v", 5, strata="country"), rows)
    assert sorted(one["country"] for one in found) == ["de"] * 5 + ["is"] * 5


def test_decay_halves_what_came_a_half_life_ago() -> None:
    values = pa.array([8.0, 4.0, None, 2.0])  # a second apart
    assert whole(agg.decayed_sum("v", half_life="1 second"), values) == [pytest.approx(8 / 8 + 4 / 4 + 2)]
    assert whole(agg.decayed_count("v", half_life="1 second"), values) == [pytest.approx(1 / 8 + 1 / 4 + 1)]
    assert whole(agg.decayed_mean("v", half_life="1 second"), values) == [pytest.approx(4 / 1.375)]
    words = pa.array(["old"] * 10 + ["new"] * 4)
    (found,) = whole(agg.approx_top_k("v", 1, half_life="1 second"), words)
    assert found[0]["value"] == "new"
    assert found[0]["estimate"] == pytest.approx(1 + 1 / 2 + 1 / 4 + 1 / 8)
