"""Following a topic whose rows compaction has thinned out, and numbers that are shown to their last digit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.config import Config
from headwater.console.parts.cells import rows_of
from headwater.console.tailing import CONTEXT_ROWS, Tailing
from headwater.log import EmbeddedLog
from headwater.log import open as open_log

BEHIND_MAX = 100


def thinned(log: EmbeddedLog) -> list[int]:
    """A topic of 40 rows that lie over some thousand offsets; gives the offsets of the rows."""
    log.create("cards", {"key": "int64"}, key="key", compact=True, durability="os", segment_bytes_max=4096)
    log.append("cards", [{"key": number} for number in range(30)])
    for _ in range(20):
        log.append("cards", [{"key": 99}] * 100)
    log.append("cards", [{"key": number} for number in range(30, 39)])
    log.tidy("cards", seal=True)
    return [row["_offset"] for row in log.read("cards").rows()]


def test_the_last_rows_of_a_compacted_topic_are_shown_though_they_lie_far_apart(tmp_path: Path) -> None:
    with open_log(tmp_path, config=Config(upkeep="manual")) as log:
        kept = thinned(log)
        assert len(kept) == 40
        assert log.end_offsets("cards")[0] > 20 * BEHIND_MAX
        tailing = Tailing(log, "cards", behind_max=BEHIND_MAX, context_rows=CONTEXT_ROWS)
        first = tailing.read(rows_max=25)
        second = tailing.read(rows_max=25)
        assert [one.offset for one in (*first.records, *second.records)] == kept
        assert (first.skipped, second.skipped) == (0, 0)
        assert tailing.waiting() == 0
        log.append("cards", [{"key": 7}])
        assert [one.offset for one in tailing.read(rows_max=25).records] == [log.end_offsets("cards")[0] - 1]


def test_what_comes_while_the_last_rows_are_shown_is_skipped_as_before(tmp_path: Path) -> None:
    with open_log(tmp_path, config=Config(upkeep="manual")) as log:
        log.create("orders", {"key": "int64"}, durability="os")
        log.append("orders", [{"key": number} for number in range(10)])
        tailing = Tailing(log, "orders", behind_max=BEHIND_MAX, context_rows=CONTEXT_ROWS)
        log.append("orders", [{"key": number} for number in range(10, 310)])
        assert [one.offset for one in tailing.read(rows_max=500).records] == list(range(10))
        piece = tailing.read(rows_max=500)
        assert (piece.skipped, [one.offset for one in piece.records]) == (200, list(range(210, 310)))


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_decimal_number_is_shown_so_that_it_can_be_read_back(value: float) -> None:
    [[text]] = rows_of(pa.table({"value": pa.array([value], pa.float64())}))
    assert text is not None
    assert float(text) == value


@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_short_decimal_number_is_shown_with_no_more_digits_than_it_has(value: float) -> None:
    [[text]] = rows_of(pa.table({"value": pa.array([value], pa.float32())}))
    assert text is not None
    assert pa.array([float(text)], pa.float32())[0].as_py() == value
