"""The measures of gateways: their states, and what each has lost and rejected in the last minute, from their reports."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.alerts.last_minute import LastMinute
from headwater.alerts.measurements import GatewayHealth

if TYPE_CHECKING:
    from headwater.log import Log


class GatewayMeasures:
    """Reads the reports of the gateways of this machine. It remembers a minute of their counters."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lost = LastMinute()
        self._rejected = LastMinute()
        self._lock = threading.Lock()

    def read(self) -> Sequence[GatewayHealth]:
        from headwater.gateways.report import reports

        now_us, found = self._log.clock.now_us(), reports(self._log)
        with self._lock:
            lost = self._lost.growth({one.name: one.counters.get("lost", 0) for one in found}, now_us=now_us)
            rejected = self._rejected.growth(
                {one.name: one.counters.get("rejected", 0) for one in found}, now_us=now_us
            )
        return [
            GatewayHealth(
                name=one.name, state=one.state, error=one.error, lost=lost[one.name], rejected=rejected[one.name]
            )
            for one in found
        ]
