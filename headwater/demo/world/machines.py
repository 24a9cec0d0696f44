"""Machines in a hall report their temperature. The last hour is there from the beginning, to compare the present with."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from headwater.demo.world.happening import Happening, Row, Rows

#: What each machine usually measures.
MACHINES = {
    "compressor": 61.0,
    "conveyor": 34.0,
    "lathe": 47.0,
    "mixer": 38.0,
    "oven": 182.0,
    "press": 55.0,
    "robot arm": 41.0,
    "welder": 74.0,
}
#: Not a machine: its readings say that the day is over, and let everything before them leave.
END_OF_DAY = "end of day"
HISTORY = timedelta(minutes=66)
HISTORY_STEP = timedelta(seconds=15)


class Machines:
    per_second = 20.0

    def __init__(self, happening: Happening) -> None:
        self._happening = happening

    def begin(self, now: datetime) -> Rows:
        rows = []
        moment = now - HISTORY
        while moment < now - HISTORY_STEP:
            for place, machine in enumerate(MACHINES):
                rows.append(self._reading(machine, moment + timedelta(milliseconds=7 * place)))
            moment += HISTORY_STEP
        return {"readings": rows}

    def happens(self, at: datetime) -> None:
        world = self._happening
        machine = world.one_of(list(MACHINES))
        # A slow network: rows come a little out of order.
        world.comes("readings", self._reading(machine, at), at=at, after=world.seconds(0, 0.4))

    def _reading(self, machine: str, at: datetime) -> Row:
        world = self._happening
        swing = math.sin(at.timestamp() / 600 * math.tau)
        celsius = MACHINES[machine] + 2.0 * swing + world.chance.gauss(0, 0.7)
        if world.is_so(0.004):  # a bearing runs dry
            celsius += world.seconds(15, 30)
        return {"machine": machine, "celsius": round(celsius, 2), "at": at}
