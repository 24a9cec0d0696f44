"""The world of the demo: the same seed makes the same rows, and nothing in it depends on how often a person looks."""

from __future__ import annotations

from datetime import timedelta

from company.topics import INPUTS
from company.world import END_OF_DAY, MACHINES, Rows, World
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.company.made import START, happened, placed, tables


def test_the_same_seed_makes_the_same_rows_and_another_makes_others() -> None:
    assert happened(5) == happened(5)
    assert happened(5, seed=1) != happened(5)


def test_every_topic_gets_rows_that_fit_it() -> None:
    found = tables(placed(happened(60)))
    assert set(found) == set(INPUTS)
    assert all(rows.num_rows for rows in found.values())


def test_what_should_be_there_is_there() -> None:
    rows = happened(60)
    views = rows["page_views"]
    assert any(row["visitor"] is None for row in views)
    assert any(row["at"] < START - timedelta(hours=1) for row in views)
    assert [row["at"] for row in views] != sorted(row["at"] for row in views)
    assert any(row["amount"] > 500 for row in rows["payments"])
    assert {row["machine"] for row in rows["readings"]} == set(MACHINES)
    assert min(row["at"] for row in rows["readings"]) < START - timedelta(hours=1)
    assert any(row.get("_tombstone") for row in rows["tweets"])
    assert any(row.get("_tombstone") for row in rows["follows"])


def test_a_new_limit_is_told_before_it_holds() -> None:
    world = World()
    known = len(world.begin(START)["cards"])
    assert known > 0
    for second in range(30):
        begin = START + timedelta(seconds=second)
        for row in world.between(begin, begin + timedelta(seconds=1)).get("cards", []):
            assert row["since"] >= begin + timedelta(seconds=15)


@given(steps=st.lists(st.integers(min_value=10, max_value=900), min_size=1, max_size=8))
def test_rows_reach_the_log_in_order_and_none_before_its_time(steps: list[int]) -> None:
    world, moment = World(), START
    world.begin(START)
    for milliseconds in steps:
        end = moment + timedelta(milliseconds=milliseconds)
        made: Rows = world.between(moment, end)
        assert all(row["at"] < end for row in made.get("page_views", []))
        searches = [row["at"] for row in made.get("searches", [])]
        assert searches == sorted(searches)
        moment = end


def test_the_end_of_the_day_is_later_than_everything_else() -> None:
    closing = World.closing(START)
    assert set(closing) == {"readings", "payments"}
    assert closing["readings"][0]["machine"] == END_OF_DAY
    assert all(row["at"] > START + timedelta(hours=1) for rows in closing.values() for row in rows)
