"""`KMeans`: finds the clusters that are there, follows them, and does not care for batches."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.columns import ALL
from headwater.engine.errors import AggregateInvalid
from headwater.errors import ArgumentInvalid
from headwater.operators import KMeans
from tests.laws import costly
from tests.operators.batches import bounded, streamed

SECOND = 1_000_000


def table(points: np.ndarray, users: list[str] | None = None, *, nulls: np.ndarray | None = None) -> pa.Table:
    count = len(points)
    return pa.table(
        {
            "user": pa.array(users or ["a"] * count),
            "x": pa.array(points[:, 0], mask=nulls),
            "y": points[:, 1],
            "at": pa.array(np.arange(count) * SECOND, pa.timestamp("us", "UTC")),
            "_partition": pa.array(np.zeros(count, np.int32)),
            "_offset": pa.array(np.arange(count)),
            ALL: pa.array(np.zeros(count, np.int32)),
        }
    )


def around(centres: list[tuple[float, float]], count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    own = random.integers(0, len(centres), count)
    return np.array(centres)[own] + random.normal(size=(count, 2)), own


def columns(tables: list[pa.Table]) -> dict[str, list[Any]]:
    found = pa.concat_tables(tables).sort_by("_offset")
    return {name: found.column(name).to_pylist() for name in ("cluster", "cluster_distance", "cluster_centre")}


@pytest.mark.parametrize("seed", range(5))
def test_clusters_that_are_far_apart_are_found(seed: int) -> None:
    points, own = around([(0, 0), (20, 0), (0, 20), (20, 20)], 3_000, seed)
    operator = KMeans(columns=("x", "y"), k=4, time=EventTime("at", future_max=None))
    found, _ = bounded(operator.contract, table(points))
    clusters = np.array(found.sort_by("_offset").column("cluster").to_pylist()[100:], float)
    pairs = {(int(one), int(other)) for one, other in zip(clusters, own[100:], strict=True)}
    assert len(pairs) == 4
    distances = np.array(found.sort_by("_offset").column("cluster_distance").to_pylist()[100:])
    assert distances.mean() < 1.5


@costly(6)
@given(
    seed=st.integers(0, 1_000),
    cuts=st.lists(st.integers(0, 400), min_size=1, max_size=6),
    replay=st.integers(0, 3),
    half_life=st.sampled_from([None, 30]),
)
def test_the_batches_make_no_difference(seed: int, cuts: list[int], replay: int, half_life: int | None) -> None:
    points, _ = around([(0, 0), (5, 5), (-5, 5)], 400, seed)
    users = [f"u{number}" for number in np.random.default_rng(seed).integers(0, 3, 400)]
    operator = KMeans(
        columns=("x", "y"),
        k=3,
        time=EventTime("at", future_max=None),
        by="user",
        half_life=half_life,
        warm_up=20,
        block=16,
    )
    rows = table(points, users)
    ends = [0, *sorted(cuts), 400]
    batches = [rows.slice(start, stop - start) for start, stop in itertools.pairwise(ends)]
    whole, _ = bounded(operator.contract, rows)
    one, other = columns([whole]), columns(streamed(operator.contract, batches, replay=replay))
    assert one["cluster"] == other["cluster"]
    for name in ("cluster_distance", "cluster_centre"):
        flat = [np.array([value for value in found[name] if value is not None]) for found in (one, other)]
        np.testing.assert_allclose(flat[0], flat[1], rtol=1e-9, atol=1e-9)


def test_keys_do_not_see_one_another() -> None:
    points, _ = around([(0, 0), (30, 30)], 600, 1)
    users = ["a", "b"] * 300
    operator = KMeans(columns=("x", "y"), k=2, time=EventTime("at", future_max=None), by="user", warm_up=20)
    both = columns(streamed(operator.contract, [table(points, users)]))
    own = table(points, users).filter(pa.array([user == "a" for user in users]))
    alone = columns([bounded(operator.contract, own)[0]])
    assert both["cluster"][::2] == alone["cluster"]


def test_with_a_half_life_centres_follow_the_stream() -> None:
    early, _ = around([(0, 0), (10, 0)], 2_000, 1)
    late, _ = around([(100, 100), (110, 100)], 4_000, 2)
    rows = table(np.concatenate([early, late]))
    ends = {}
    for half_life in (None, "2 minutes"):
        operator = KMeans(columns=("x", "y"), k=2, time=EventTime("at", future_max=None), half_life=half_life, block=64)
        found = columns([bounded(operator.contract, rows)[0]])
        ends[half_life] = np.mean(found["cluster_distance"][-500:])
    assert ends["2 minutes"] < 2
    assert ends["2 minutes"] < ends[None]


def test_rows_of_the_warm_up_and_rows_without_a_place_have_no_cluster() -> None:
    points, _ = around([(0, 0), (10, 0)], 100, 1)
    points[60, 1], points[61, 1] = np.nan, np.inf
    nulls = np.arange(100) == 62
    operator = KMeans(columns=("x", "y"), k=2, time=EventTime("at", future_max=None), warm_up=30)
    found = columns([bounded(operator.contract, table(points, nulls=nulls))[0]])
    assert [place for place, one in enumerate(found["cluster"]) if one is None] == [*range(30), 60, 61, 62]
    assert found["cluster_centre"][0] is None
    assert len(found["cluster_centre"][99]) == 2


def test_points_that_are_all_the_same_are_one_cluster() -> None:
    operator = KMeans(columns=("x", "y"), k=3, time=EventTime("at", future_max=None), warm_up=10, block=4, half_life=5)
    found = columns([bounded(operator.contract, table(np.ones((60, 2))))[0]])
    assert max(found["cluster_distance"][10:]) == pytest.approx(0, abs=1e-6)


def test_ten_thousand_keys_at_once() -> None:
    points, _ = around([(0, 0), (10, 0)], 120_000, 4)
    operator = KMeans(columns=("x", "y"), k=2, time=EventTime("at", future_max=None), by="user", warm_up=10)
    users = [f"u{number % 10_000}" for number in range(120_000)]
    found, _ = bounded(operator.contract, table(points, users))
    assert found.column("cluster").null_count == 100_000


@pytest.mark.parametrize(
    ("given_settings", "says"),
    [
        ({"columns": (), "k": 2}, "the columns that are the coordinates"),
        ({"columns": "x", "k": 0}, "1 or more"),
        ({"columns": "x", "k": 5, "warm_up": 3}, "at least k rows"),
        ({"columns": "x", "k": 2, "half_life": 0}, "longer than none"),
        ({"columns": "x", "k": 2, "block": 0}, "1 or more"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given_settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        KMeans(time="at", **given_settings)


def test_a_coordinate_must_be_a_number() -> None:
    with pytest.raises(AggregateInvalid, match="a number"):
        KMeans(columns="user", k=2, time="at").contract(table(np.zeros((1, 2))).schema)
