"""The load: a process that appends orders all the while, some of them again, until it is told to stop."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import deque
from types import FrameType
from typing import Any

from headwater.log import Log
from headwater.log import open as open_log
from tests.chaos.query import ORDERS, WITHIN_SECONDS

USERS = [f"user-{number}" for number in range(40)]
ROWS_PER_APPEND = 12
APPENDS_PER_SECOND = 10
#: Event time runs this much faster than the clock on the wall, so that windows close all the while.
SECONDS_PER_APPEND = 0.4
_REPEATED_SECONDS_MAX = 20
_FORGOTTEN_SECONDS_MIN = 2 * WITHIN_SECONDS


class Orders:
    """Orders in the order of time. Some ids come again soon, and must not pass; some after so long that they must."""

    def __init__(self, seed: int, *, began_us: int) -> None:
        self._chance = random.Random(seed)
        self._now_us = began_us
        self._number = 0
        self._recent: deque[dict[str, Any]] = deque()
        self._old: deque[dict[str, Any]] = deque(maxlen=10_000)

    def next(self, count: int = ROWS_PER_APPEND) -> list[dict[str, Any]]:
        self._now_us += round(SECONDS_PER_APPEND * 1e6)
        while self._recent and self._now_us - self._recent[0]["at"] > _REPEATED_SECONDS_MAX * 1e6:
            self._old.append(self._recent.popleft())
        return [self._one(self._now_us + place) for place in range(count)]

    def last(self) -> list[dict[str, Any]]:
        """One new order of each user, so that every partition ends at the same time."""
        self._now_us += round(SECONDS_PER_APPEND * 1e6)
        return [self._new(self._now_us, user) for user in USERS]

    def _one(self, at_us: int) -> dict[str, Any]:
        kind = self._chance.random()
        if kind < 0.15 and self._recent:
            return {**self._chance.choice(self._recent), "at": at_us}
        if kind < 0.17 and self._old and at_us - self._old[0]["at"] > _FORGOTTEN_SECONDS_MIN * 1e6:
            again = {**self._old.popleft(), "at": at_us}
            self._recent.append(again)
            return again
        return self._new(at_us, self._chance.choice(USERS))

    def _new(self, at_us: int, user: str) -> dict[str, Any]:
        self._number += 1
        amount = self._chance.randrange(-3, 50)
        row = {"id": f"order-{self._number}", "user": user, "amount": amount, "at": at_us}
        self._recent.append(row)
        return row


def produce(log: Log, seed: int) -> int:
    """Append until SIGTERM, or until the process that started this one is gone; returns how many rows."""
    told: list[int] = []

    def tell(number: int, _frame: FrameType | None) -> None:
        told.append(number)

    signal.signal(signal.SIGTERM, tell)
    parent = os.getppid()
    orders = Orders(seed, began_us=time.time_ns() // 1000)
    appended = 0
    while not told and os.getppid() == parent:
        appended += log.append(ORDERS, orders.next()).count
        time.sleep(1 / APPENDS_PER_SECOND)
    return appended + log.append(ORDERS, orders.last()).count


def main() -> int:
    with open_log(sys.argv[1]) as log:
        print(produce(log, int(sys.argv[2])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
