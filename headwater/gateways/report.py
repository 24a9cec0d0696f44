"""What the process that runs a gateway tells about it, for every other process of the machine.

<home of the log>/gateways/NAME.lock    flock: held by the process that runs the gateway, for as long as it does
<home of the log>/gateways/NAME.json    its last report; replaced by one rename, every two seconds and at the end

The report stays when the gateway stops. One that says "running" without a lock is that of a process that was killed: its
counters are up to two seconds old, and what the process received after that is in no counter.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

import orjson

from headwater.errors import InUse, NotFound, did_you_mean
from headwater.filelock import LeaderLock, holder_of, is_locked
from headwater.gateways.port import Direction, Gateway, GatewayStatus
from headwater.log.port import Log
from headwater.log.topic_rules import check_name

#: How often a running gateway writes its report.
REPORT_SECONDS = 2.0
#: The time over which rates are measured.
RATE_SECONDS = 10.0
#: The user and the password in an address.
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
State = Literal["running", "failed", "stopped", "killed"]
logger = logging.getLogger("headwater.gateways")


@dataclass(frozen=True, kw_only=True)
class GatewayReport:
    """What the process that runs a gateway has last told about it."""

    name: str
    kind: str
    direction: Direction = "in"
    topic: str = ""
    address: str = ""
    state: State = "stopped"
    """"failed": it waits, with exponential back-off, for its address or for the log. "killed": its process ended without stopping it."""
    pid: int = 0
    app: str = ""
    """The app that declares the gateway; empty if `headwater gateway run` runs it."""
    started_us: int = 0
    at_us: int = 0
    """When the report was written: its counters are of then."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Since `started_us`."""
    per_second: Mapping[str, float] = field(default_factory=dict)
    """The rates of the counters in the last ten seconds."""
    restarts: int = 0
    error: str = ""
    """The last error in one line, also after the gateway was restarted."""
    error_us: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def reports(log: Log) -> list[GatewayReport]:
    """The last reports of all gateways of this machine that ever ran on a log, by name."""
    found = sorted(path.stem for path in (log.home / "gateways").glob("[!.]*.json"))
    return [one for one in (_read(log, name) for name in found) if one is not None]


def report_of(log: Log, name: str) -> GatewayReport:
    """The last report of a gateway."""
    report = _read(log, name)
    if report is None:
        raise NotFound(kind="gateway", name=name, near=did_you_mean(name, [one.name for one in reports(log)]))
    return report


def remove_report(log: Log, name: str) -> None:
    """Delete the report of a gateway that no process runs."""
    report = report_of(log, name)
    if report.state in ("running", "failed"):
        raise _in_use(name, f"process {report.pid}")
    _path(log, name, "json").unlink(missing_ok=True)


class Reporter:
    """Writes the reports of one gateway while this process runs it; one process at a time runs a gateway of a name."""

    def __init__(
        self, log: Log, gateway: Gateway, *, app: str = "", monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        check_name("gateway", gateway.name)
        self._log = log
        self._monotonic = monotonic
        self._lock = LeaderLock(_path(log, gateway.name, "lock"))
        self._samples: deque[tuple[float, dict[str, int]]] = deque()
        self._report = GatewayReport(
            name=gateway.name,
            kind=gateway.kind,
            direction=gateway.direction,
            topic=gateway.topic,
            pid=os.getpid(),
            app=app,
            settings=shown_settings(gateway),
        )

    def acquire(self) -> None:
        """Take the gateway's name for this process, or raise."""
        if not self._lock.acquire():
            raise _in_use(self._report.name, holder_of(self._lock.path))
        self._report = replace(self._report, started_us=time.time_ns() // 1000)
        self._samples = deque([(self._monotonic(), {})])

    def release(self) -> None:
        self._lock.release()

    def write(self, status: GatewayStatus) -> None:
        """Write a report. A disk that is full does not stop a gateway: the next report replaces the old one."""
        now = self._monotonic()
        while len(self._samples) > 1 and now - self._samples[0][0] > RATE_SECONDS:
            self._samples.popleft()
        began, before = self._samples[0]
        seconds = max(now - began, 1e-3)
        self._samples.append((now, status.counters))
        self._report = replace(
            self._report,
            address=_CREDENTIALS.sub("…@", status.address or self._report.address),
            state=status.state,
            at_us=time.time_ns() // 1000,
            counters=status.counters,
            per_second={name: (count - before.get(name, 0)) / seconds for name, count in status.counters.items()},
            restarts=status.restarts,
            error=_CREDENTIALS.sub("…@", status.error),
            error_us=status.error_us,
        )
        path = _path(self._log, self._report.name, "json")
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(orjson.dumps(asdict(self._report)))
            temporary.replace(path)
        except OSError as error:
            logger.warning("gateway %s: its report cannot be written: %s", self._report.name, error)


def shown_settings(gateway: object) -> dict[str, str]:
    """The settings of a gateway as others may see them: fields that are no part of its `repr` are hidden, as are passwords in addresses."""
    if not dataclasses.is_dataclass(gateway) or isinstance(gateway, type):
        return {}
    shown = {}
    for one in fields(gateway):
        value = getattr(gateway, one.name)
        if not one.repr:
            shown[one.name] = "(hidden)" if value else ""
            continue
        text = ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else "" if value is None else str(value)
        shown[one.name] = _CREDENTIALS.sub("…@", text)
    return shown


def _in_use(name: str, holder: str) -> InUse:
    instead = "Stop it there, or let this gateway use another topic, which gives it another name"
    return InUse(what=f"Gateway {name!r}", by=holder, instead=instead)


def _read(log: Log, name: str) -> GatewayReport | None:
    report, before = _written(log, name), None
    while report is not None and report != before:
        if is_locked(_path(log, name, "lock")):
            return report
        if report.state == "stopped":
            return replace(report, per_second={})
        # A process that stops writes its last report before it releases the lock: look again.
        report, before = _written(log, name), report
    return None if report is None else replace(report, state="killed", per_second={})


def _written(log: Log, name: str) -> GatewayReport | None:
    try:
        body = orjson.loads(_path(log, name, "json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    known = {one.name for one in fields(GatewayReport)}
    return GatewayReport(**{key: value for key, value in body.items() if key in known})


def _path(log: Log, name: str, suffix: str) -> Path:
    return log.home / "gateways" / f"{name}.{suffix}"
