"""A smaller number of what `make chaos ARGS="--what sourcing"` does, and that its checker tells the truth."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headwater.sourcing import RecordedEvent
from tests.chaos.sourcing import check, kill_writers
from tests.laws import SEED


def recorded(id: str, version: int, command_id: str, correlation: str | None = None) -> RecordedEvent:
    return RecordedEvent(
        id=id,
        version=version,
        event=None,
        at=datetime(2024, 1, 1, tzinfo=UTC),
        partition=0,
        offset=0,
        schema=1,
        command_id=command_id,
        by=None,
        why=None,
        correlation=correlation,
        causation=None,
        tags=(),
    )


GOOD = {
    "a": [recorded("a", 1, "1"), recorded("a", 2, "2", "transfer")],
    "b": [recorded("b", 1, "2", "transfer")],
}


def test_each_command_once_is_good() -> None:
    assert not check(GOOD, ["a 1", "b 2", "b 2"]).problems


@pytest.mark.parametrize(
    ("histories", "acknowledged"),
    [
        (GOOD, ["a 3"]),
        ({"a": GOOD["a"]}, []),
        ({**GOOD, "b": [replace(GOOD["b"][0], version=2)]}, []),
        ({**GOOD, "b": [*GOOD["b"], recorded("b", 2, "2")]}, []),
    ],
)
def test_the_checker_finds_what_is_wrong(histories: dict[str, list[RecordedEvent]], acknowledged: list[str]) -> None:
    assert check(histories, acknowledged).problems


@pytest.mark.process
def test_writers_of_the_same_entities_are_killed_ten_times() -> None:
    assert kill_writers(kills=10, seed=SEED, keep=False, say=lambda _: None) == []
