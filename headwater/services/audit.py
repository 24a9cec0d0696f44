"""The audit: who changed what, as rows of the internal topic `__audit`. Appended rows are not repeated there."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import HeadwaterError, NotFound
from headwater.log.topic import Retention, Topic
from headwater.schema.event_time import EventTime
from headwater.services.callers import ANONYMOUS, Caller
from headwater.units import GIB

if TYPE_CHECKING:
    from headwater.log import Log

AUDIT_TOPIC = "__audit"
#: A year of changes, and at most so many bytes.
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


#: Calls for things that do not exist, or with wrong arguments: they changed nothing, and do not concern an auditor.
_NOT_RECORDED = (400, 404, 405, 422)

logger = logging.getLogger("headwater.audit")


class Audit:
    """Records each change that a service was asked for, and each one that it refused."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._made = False
        #: Refused calls of anonymous callers, by status: only counted, because such callers could fill the disk.
        self.unrecorded: Counter[int] = Counter()

    def record(self, *, caller: Caller, address: str, action: str, target: str, status: int) -> None:
        """Append one row. If the disk is full the change has happened all the same, so the failure is only logged."""
        if status in _NOT_RECORDED:
            return
        if caller is ANONYMOUS and status >= 400:
            self.unrecorded[status] += 1
            return
        target = target[:1_000].encode("utf-8", "replace").decode()  # a refused name may not be valid text
        try:
            self._append(caller=caller.name, address=address, action=action, target=target, status=status)
        except HeadwaterError as error:
            logger.error("the audit topic could not be written: %s", error)

    def _append(self, *, caller: str, address: str, action: str, target: str, status: int) -> None:
        self._make()
        now_us = self._log.clock.now_us()
        row = {"at": now_us, "caller": caller, "address": address, "action": action, "target": target, "status": status}
        try:
            self._log.append(AUDIT_TOPIC, [row])
        except NotFound:  # another process has removed its folder
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
                        time=EventTime("at"),
                        retention=RETENTION,
                        created_us=self._log.clock.now_us(),
                    )
                )
                # A topic made before there was a retention gets one now; a retention that an operator set is kept.
                if self._log.topic(AUDIT_TOPIC).retention == Retention():
                    self._log.alter(AUDIT_TOPIC, retention=RETENTION)
                self._made = True
