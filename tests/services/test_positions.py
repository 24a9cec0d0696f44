"""Positions: what texts mean, and that no position is outside its partition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.services.positions import Position, parse_position, resolve

ENDS = {0: 50, 1: 7, 2: 0}
COMMITTED = {0: 20, 1: 7}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("small") / "log") as log:
        assert isinstance(log, Log)
        log.create("orders", "customer string, amount long", partitions=3, durability="memory")
        for partition, rows in ((0, 50), (1, 7)):
            log.append("orders", [{"customer": "a", "amount": n} for n in range(rows)], partition=partition)
        yield log


@given(step=st.integers(-100, 100))
def test_a_shift_never_leaves_its_partition(small: Log, step: int) -> None:
    position = parse_position(f"shift:{step}", name="to")
    assert position == Position(shift=step)
    found = resolve(small, "orders", position, committed=COMMITTED)
    assert found == {number: sorted((0, COMMITTED.get(number, 0) + step, end))[1] for number, end in ENDS.items()}


@given(offset=st.integers(0, 10**18 - 1))
def test_an_offset_beyond_a_partition_is_its_end(small: Log, offset: int) -> None:
    assert resolve(small, "orders", parse_position(str(offset), name="to"), [0]) == {0: min(offset, 50)}


def test_a_shift_needs_a_group(small: Log) -> None:
    with pytest.raises(ArgumentInvalid, match="does not depend on a group"):
        resolve(small, "orders", Position(shift=1))


@pytest.mark.parametrize(
    "text",
    ["", "1.5", "ten", "9" * 30, "--5", "٣", "-", "shift:", "shift:x", "0:", "0:-1", "@", "@soon", "@2026-99-99", "@-",
     "@1 parsec", "@" + "9" * 400 + "d"],
)  # fmt: skip
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ArgumentInvalid):
        parse_position(text, name="to", now_us=10**15)


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("@1970-01-01 00:00:01", 1_000_000),
        ("@1970-01-01T01:00:01+01:00", 1_000_000),
        ("@1h", 10**12 - 3_600_000_000),
        ("@-1h", 10**12 - 3_600_000_000),
        ("@1 min ago", 10**12 - 60_000_000),
        ("@now", 10**12),
        ("@1000 weeks", 0),
        ("@17", 17),
    ],
)
def test_a_time_is_a_date_or_how_long_ago(text: str, time_us: int) -> None:
    assert parse_position(text, name="to", now_us=10**12) == Position(time_us=time_us)
