"""Ticks: as often as was said, for ever or until a stream has come to rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.source.reader import Ticks

SECOND = 1_000_000


@given(
    looks=st.lists(st.tuples(st.integers(0, 3 * SECOND), st.booleans()), max_size=40),
    count=st.none() | st.integers(1, 4),
    rest=st.integers(0, 5),
)
def test_ticks_go_on_until_the_rest_and_then_as_many_as_are_counted(
    looks: list[tuple[int, bool]], count: int | None, rest: int
) -> None:
    ticks = Ticks(seconds=1, count=count, rest_seconds=rest)
    now = rows_at = batch_at = 0
    ticks.rows_came(0)
    after = 0
    for gap, has_rows in looks:
        now += gap
        if has_rows:
            ticks.rows_came(now)
            rows_at, batch_at, after = now, now, 0
            continue
        is_rest = now - rows_at > rest * SECOND
        wanted = now - batch_at >= SECOND and (count is None or not is_rest or after < count)
        assert ticks.is_due(batch_at, now) == wanted
        if wanted:
            batch_at = now
            after += is_rest


def test_a_stream_that_starts_again_rests_from_its_last_batch_on() -> None:
    ticks = Ticks(seconds=1, count=1, rest_seconds=2)
    assert [ticks.is_due(at * SECOND, (at + 1) * SECOND) for at in range(10, 15)] == [True, True, True, False, False]


def test_without_a_period_there_are_none() -> None:
    assert not Ticks(seconds=None).is_due(0, 10**15)
