"""The event time of a topic: what can be written, and its forms as text and JSON."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid

DURATIONS = st.sampled_from([0, 2.5, "30 seconds", "1 h 30 min", timedelta(minutes=2)])
TIMES = st.builds(
    EventTime,
    st.sampled_from(["at", "sold_at"]),
    delay=DURATIONS,
    idle_timeout=st.none() | DURATIONS,
    future_max=st.none() | DURATIONS,
    scope=st.sampled_from(["partition", "input"]),
) | st.builds(EventTime, st.just("at"), scope=st.just("key"), key_idle_timeout=st.none() | DURATIONS)


@given(time=TIMES)
def test_text_and_json_mean_the_same_time(time: EventTime) -> None:
    assert EventTime.of(json.loads(json.dumps(time.to_json()))) == time
    assert EventTime.of(str(time)) == time


def test_durations_are_compared_by_their_length() -> None:
    assert EventTime("at", delay="1 minute") == EventTime("at", delay=timedelta(minutes=1)) == EventTime("at", delay=60)


def test_a_column_alone_is_short_in_every_form() -> None:
    assert (EventTime("at").to_json(), str(EventTime("at")), repr(EventTime("at"))) == ("at", "at", "EventTime('at')")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: EventTime(""), "timestamp column"),
        (lambda: EventTime("at", delay=-1), "delay"),
        (lambda: EventTime("at", idle_timeout="soon"), "idle_timeout"),
        (lambda: EventTime("at", scope="row"), "scope"),  # type: ignore[arg-type]
        (lambda: EventTime("at", key_idle_timeout=5), 'scope="key"'),
        (lambda: EventTime.of("at, dely=30 s"), "delay"),
        (lambda: EventTime.of("at, 30 seconds"), "delay=30 seconds"),
        (lambda: EventTime.of(5), "a column such as"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(make: Any, says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        make()
