"""A smaller number of what `make chaos ARGS="--what queue"` does, and that its checker tells the truth."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.queue import BAD, KEYS, Line, check, kill_workers
from tests.laws import SEED

GOOD = [Line(number * 10 + step, what, number) for number in range(2) for step, what in ((0, "began"), (1, "ended"))]


def test_each_message_once_is_good() -> None:
    assert not check(GOOD, messages=2, dead=Counter([0]), due={1: 10}).problems


def test_a_message_before_its_time_is_found() -> None:
    assert check(GOOD, messages=2, dead=Counter([0]), due={1: 11}).problems


@pytest.mark.parametrize(
    ("lines", "messages", "dead"),
    [
        (GOOD[:2], 2, [0]),
        ([*GOOD, Line(50, "began", 1)], 2, [0]),
        ([*GOOD, Line(60, "began", 1 + KEYS), Line(70, "began", 1)], 2, [0]),
        (GOOD, 2, []),
        (GOOD, 2, [0, 0]),
        (GOOD, 2, [0, 1]),
    ],
)
def test_the_checker_finds_what_is_wrong(lines: list[Line], messages: int, dead: list[int]) -> None:
    assert BAD > 2
    assert check(lines, messages=messages, dead=Counter(dead), due={}).problems


@pytest.mark.process
def test_workers_over_http_and_their_server_are_killed_six_times() -> None:
    assert kill_workers(kills=6, seed=SEED, keep=False, say=lambda _: None, http=True) == []


@pytest.mark.process
def test_workers_of_a_queue_are_killed_ten_times() -> None:
    assert kill_workers(kills=10, seed=SEED, keep=False, say=lambda _: None) == []
