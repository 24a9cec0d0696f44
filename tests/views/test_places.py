"""Places are a dictionary, however many keys there are and however their hashes meet."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater.views.places import GONE, Places

#: Few low bits, so that many keys want the same slot.
KEYS = st.integers(0, 40).map(lambda number: number * 2**12 + number % 3) | st.integers(0, 2**64 - 1)


@given(rounds=st.lists(st.lists(st.tuples(KEYS, st.integers(GONE, 2**60)), max_size=60), max_size=6))
def test_places_are_a_dictionary(rounds: list[list[tuple[int, int]]]) -> None:
    places, model = Places(), dict[int, int]()
    for pairs in rounds:
        places.put(np.array([key for key, _ in pairs], np.uint64), np.array([place for _, place in pairs], np.int64))
        model.update(pairs)
    assert len(places) == len(model)
    for key in [*model, 3, 2**63]:
        assert places.find(key) == model.get(key)


def test_it_grows() -> None:
    places = Places()
    keys = np.random.default_rng(1).integers(0, 2**63, 100_000).astype(np.uint64)
    for start in range(0, len(keys), 7_000):
        places.put(keys[start : start + 7_000], np.arange(start, min(start + 7_000, len(keys))))
    assert all(places.find(int(key)) == number for number, key in list(enumerate(keys))[::97])
