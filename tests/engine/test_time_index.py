"""Where times fall among those of their key, by a naive search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine import time_index as module
from headwater.engine.time_index import Line, in_order

#: Times so far apart that they would overflow where keys are many.
ASKED = st.lists(st.tuples(st.integers(0, 4) | st.just(2**40), st.integers(-5, 9) | st.just(2**61)), max_size=20)
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 9) | st.sampled_from([-(2**61), 2**61])), max_size=20)


@pytest.mark.parametrize("ranked", [False, True])
@given(rows=ROWS, asked=ASKED)
def test_what_is_found_is_what_a_look_at_every_row_finds(
    ranked: bool, rows: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    rows = sorted(rows)
    keys, times = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
    asked_keys, asked_times = (np.array([row[place] for row in asked], np.int64) for place in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        if ranked:
            patch.setattr(module, "PLACE_MAX", 0)
        line = Line(keys, times)
        latest = line.latest(asked_keys, asked_times).tolist()
        pairs = line.between(asked_keys, asked_times - 2, asked_times + 3)
    for (key, at), found in zip(asked, latest, strict=True):
        before = [place for place, row in enumerate(rows) if row[0] == key and row[1] <= at]
        assert found == (before[-1] if before else -1)
    wanted = [
        (one, place)
        for one, (key, at) in enumerate(asked)
        for place, row in enumerate(rows)
        if row[0] == key and at - 2 <= row[1] <= at + 3
    ]
    assert list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == wanted


@given(rows=ROWS)
def test_rows_stand_in_the_order_of_key_and_time_and_equal_ones_as_they_came(rows: list[tuple[int, int]]) -> None:
    keys, times = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
    assert in_order(keys, times).tolist() == sorted(range(len(rows)), key=lambda place: rows[place])
