"""The plan of what `make chaos` does to an app on three Kafka brokers."""

from __future__ import annotations

from tests.chaos.kafka import EVENTS


def test_four_leaders_and_the_app_are_killed() -> None:
    assert (EVENTS.count("kill leader"), EVENTS.count("kill app")) == (4, 1)
