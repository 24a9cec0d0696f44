"""The events of Nexmark: the published proportions, and always the same, in whatever parts they are made."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.schema import parse_schema
from headwater.testing import Nexmark, NexmarkEvents
from headwater.testing.nexmark import SCHEMAS

#: Enough that shares are within a few per cent of what they should be.
MANY = 200_000


def joined(parts: list[NexmarkEvents]) -> NexmarkEvents:
    return NexmarkEvents(*(pa.concat_tables(tables) for tables in zip(*parts, strict=True)))


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 1_000), max_size=3), first=st.integers(0, 10**9))
def test_parts_of_the_events_are_those_of_the_whole(seed: int, cuts: list[int], first: int) -> None:
    made = Nexmark(seed=seed)
    ends = [0, *sorted(cuts), 1_000]
    parts = [made.events(first=first + low, count=high - low) for low, high in pairwise(ends)]
    assert joined(parts) == made.events(first=first, count=1_000)


@given(first=st.integers(0, 10**6), count=st.integers(0, 300))
def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids(first: int, count: int) -> None:
    events = Nexmark(seed=first).events(first=first, count=count)
    kinds = ["person", *["auction"] * 3, *["bid"] * 46]
    wanted = [kinds[number % 50] for number in range(first, first + count)]
    assert {name: table.num_rows for name, table in events._asdict().items()} == {
        name: wanted.count(name) for name in SCHEMAS
    }
    for name, table in events._asdict().items():
        assert table.schema == parse_schema(dict(SCHEMAS[name]))
        assert not any(column.null_count for column in table.columns)


def test_people_and_auctions_are_numbered_in_the_order_of_time() -> None:
    events = Nexmark().events(first=0, count=5_000)
    assert events.person["id"].to_pylist() == list(range(1000, 1100))
    assert events.auction["id"].to_pylist() == list(range(1000, 1300))
    times = sorted(at for table in events for at in table["at"].to_pylist())
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(milliseconds=10)}
    assert pc.all(pc.greater(events.auction["expires"], events.auction["at"])).as_py()


def test_another_seed_makes_other_events_of_the_same_numbers() -> None:
    one, other = (Nexmark(seed=seed).events(first=0, count=1_000) for seed in (1, 2))
    assert one.auction["id"] == other.auction["id"]
    assert one.bid["price"] != other.bid["price"]


def test_half_of_the_bids_are_on_hot_auctions_and_three_quarters_of_bidders_and_sellers_are_hot() -> None:
    events = Nexmark(seed=3).events(first=10**6, count=MANY)

    def share(table: pa.Table, column: str, rest: int) -> float:
        return float((np.asarray(table[column]) % 100 == rest).mean())

    # Others have a hot number by chance, once in a hundred times.
    assert abs(share(events.bid, "auction", 0) - 0.505) < 0.01
    assert abs(share(events.bid, "bidder", 1) - 0.7525) < 0.01
    assert abs(share(events.auction, "seller", 0) - 0.7525) < 0.01
    assert (
        abs(
            float(pc.mean(pc.is_in(events.bid["channel"], pa.array(["Google", "Facebook", "Baidu", "Apple"]))).as_py())
            - 0.5
        )
        < 0.01
    )


def test_prices_spread_over_six_powers_of_ten_alike() -> None:
    prices = np.asarray(Nexmark(seed=4).events(first=0, count=MANY).bid["price"])
    powers = np.bincount(np.log10(prices).astype(int), minlength=9)[2:8] / len(prices)
    assert np.abs(powers - 1 / 6).max() < 0.01


def test_as_many_auctions_are_open_as_there_should_be() -> None:
    auctions = Nexmark(seed=5).events(first=0, count=MANY).auction
    begins, ends = (np.asarray(auctions[name].cast(pa.int64())) for name in ("at", "expires"))
    middle = np.linspace(begins[0], begins[-1], 50)[10:-10]
    assert abs(np.mean([((begins <= at) & (at < ends)).sum() for at in middle]) - 100) < 10


def test_events_are_appended_to_their_topics_in_parts(tmp_path: Path) -> None:
    made = Nexmark(seed=6)
    with hw.open(tmp_path / "log") as log:
        made.create(log, partitions=2)
        made.append(log, first=0, count=700, rows_max=300)
        made.append(log, first=700, count=300)
        wanted = made.events(first=0, count=1_000)
        for name, table in wanted._asdict().items():
            found = log.read(name).table().select(list(SCHEMAS[name]))
            assert found.sort_by("at") == table
