"""Who changed what, as rows of an internal topic of the same log: `__audit`. Rows of topics are not repeated there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import TopicNotFound
from headwater.log.port import Retention, Topic
from headwater.units import GIB

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog

AUDIT_TOPIC = "__audit"
#: A year of changes, and no more than a disk can spare.
RETENTION = Retention(seconds_max=365 * 86_400.0, bytes_max=GIB)
AUDIT_SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("caller", pa.string(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("status", pa.int32(), nullable=False),
    ]
)


class Audit:
    """Writes down each change that a server was asked for, also those that it refused."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._made = False

    def record(self, *, caller: str, address: str, action: str, target: str, status: int) -> None:
        self._make()
        now_us = self._log.clock.now_us()
        row = {"at": now_us, "caller": caller, "address": address, "action": action, "target": target, "status": status}
        try:
            self._log.append(AUDIT_TOPIC, [row])
        except TopicNotFound:  # somebody has removed its folder
            self._made = False
            self._make()
            self._log.append(AUDIT_TOPIC, [row])

    def _make(self) -> None:
        with self._lock:
            if not self._made:
                self._log.create_internal(
                    Topic(
                        name=AUDIT_TOPIC,
                        id="a0d17" + "0" * 27,
                        schema=AUDIT_SCHEMA,
                        time="at",
                        retention=RETENTION,
                        created_us=self._log.clock.now_us(),
                    )
                )
                # One that was made before there was a bound gets it now; what somebody has set is left as it is.
                if self._log.topic(AUDIT_TOPIC).retention == Retention():
                    self._log.alter(AUDIT_TOPIC, retention=RETENTION)
                self._made = True
