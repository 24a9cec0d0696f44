"""How long queries look at the clock while no rows come: for ever only where a timer waits for it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.operators import Dedupe, Panes, Session, Tumbling, agg
from headwater.operators.panes import every
from headwater.runtime.planning import _ticks

ROWS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC"))])
COUNT = {"n": agg.count()}
WINDOW = Tumbling(size="1 minute", on="at", by="user", compute=COUNT)
ONCE = Dedupe(by="user", on="at", within="1 minute", idle="30 seconds")
PANES = Panes(window=Tumbling(size="1 hour", on="at"), by="user", compute=COUNT)


# Any: an operator of any kind.
@pytest.mark.parametrize("operator", [WINDOW, Session(gap="1 minute", on="at", by="user", compute=COUNT), PANES])
def test_a_query_whose_timers_wait_for_the_watermark_rests_after_the_last_row(operator: Any) -> None:
    assert _ticks([operator.contract(ROWS)]) == {"tick": "1 second", "ticks_max": "2", "tick_rest": "0 us"}


def test_each_operator_behind_another_takes_a_batch_and_a_silent_partition_its_time() -> None:
    ticks = _ticks([ONCE.contract(ROWS), WINDOW.contract(ROWS)])
    assert ticks == {"tick": "1 second", "ticks_max": "3", "tick_rest": "30000000 us"}


@pytest.mark.parametrize(
    "operator",
    [
        Tumbling(size="1 minute", time="processing", by="user", compute=COUNT),
        Panes(window=Tumbling(size="1 hour", on="at"), by="user", compute=COUNT, early=every("5 seconds")),
    ],
)
def test_a_timer_of_processing_time_needs_the_clock_for_ever(operator: Any) -> None:
    assert _ticks([WINDOW.contract(ROWS), operator.contract(ROWS)]) == {"tick": "1 second"}
