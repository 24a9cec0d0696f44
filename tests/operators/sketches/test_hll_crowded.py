"""Groups with many values get their registers without a sort: the bytes are those of sketches that were merged from few values each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headwater.operators.sketches.hll import Hll


@pytest.mark.parametrize("lg_k", [4, 7, 9, 12])
def test_crowded_groups_have_the_sketches_that_merging_gives(lg_k: int) -> None:
    random = np.random.default_rng(lg_k)
    sizes = np.array([0, 1, 7, 8, 40, 400, 5_000, 30_000])
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    # In one crowded group there are few different values.
    values = np.where(numbers == 6, random.integers(0, 30, len(numbers)), random.integers(0, 2**60, len(numbers)))
    whole = Hll(lg_k).lift(pa.array(values), numbers, len(sizes))
    few = np.arange(len(values)) // 5 + numbers * len(values)
    groups, places = np.unique(few, return_inverse=True)
    parts = Hll(lg_k).lift(pa.array(values), places, len(groups))
    own = numbers[np.searchsorted(places, np.arange(len(groups)))]
    merged = Hll(lg_k).merge(parts, own, len(sizes))
    assert whole.to_pylist()[1:] == merged.to_pylist()[1:]
    shuffled = random.permutation(len(values))
    assert Hll(lg_k).lift(pa.array(values[shuffled]), numbers[shuffled], len(sizes)).equals(whole)
