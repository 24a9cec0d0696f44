"""Run a gateway in a thread until it is stopped; restart it with exponential back-off when it fails, and report what it does."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pyarrow as pa

from headwater.errors import HeadwaterError, UsageError
from headwater.gateways.port import Counters, Gateway, GatewaySession, GatewayStatus, in_one_line
from headwater.gateways.report import REPORT_SECONDS, Reporter
from headwater.log.port import Log

#: The first pause after a failure, and the longest. A gateway that ran for longer than that begins with the first again.
WAIT_SECONDS = 0.5
WAIT_SECONDS_MAX = 30.0
logger = logging.getLogger("headwater.gateways")


class GatewayRunner:
    """One gateway at work: `start`, `stop`, `status`.

    The first `start` raises if the gateway cannot be opened; with `standby` only if its settings are wrong: an address that
    cannot be used yet is retried. A later failure is logged, shown in the status, and retried. Another process that runs a gateway of this name on the log is an error.
    """

    def __init__(self, log: Log, gateway: Gateway, *, app: str = "", standby: bool = False) -> None:
        self._log = log
        self.gateway = gateway
        self._standby = standby
        self._reporter = Reporter(log, gateway, app=app)
        self._stop = threading.Event()
        self._ended = threading.Event()
        #: Guards the session and the counts before it, so that no status counts a session twice or not at all.
        self._lock = threading.Lock()
        self._session: GatewaySession | None = None
        self._threads: list[threading.Thread] = []
        #: Counts of the sessions that have failed.
        self._before = Counters()
        self._error = ""
        self._error_us: int | None = None
        self._address = ""
        #: How often it has failed since it was started, and in a row.
        self._restarts = 0
        self._failures = 0

    @property
    def name(self) -> str:
        return self.gateway.name

    @property
    def address(self) -> str:
        return self._address

    def start(self) -> None:
        """Open the gateway, and run it in a thread."""
        if self._threads:
            return
        self._reporter.acquire()
        pa.array(
            [None]
        )  # at its first array Arrow loads pandas, if there is one: 0.15 seconds in which events would wait
        try:
            self._open()
        except BaseException as error:
            if not self._standby or isinstance(error, UsageError) or not isinstance(error, HeadwaterError):
                self._reporter.release()
                raise
            self._failed(error)
        for target, purpose in ((self._run, "run"), (self._report, "report")):
            name = f"headwater-gateway-{self.name}-{purpose}"
            self._threads.append(threading.Thread(target=target, name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def request_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        """Stop, and wait until what was received is appended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def status(self) -> GatewayStatus:
        with self._lock:
            session = self._session
            counts = self._before.to_json()
            now = {} if session is None else session.counters.to_json()
            counted = self._before if session is None else session.counters
        alive = bool(self._threads) and not self._ended.is_set()
        return GatewayStatus(
            name=self.name,
            kind=self.gateway.kind,
            address=self.address,
            state="stopped" if not alive else "failed" if session is None or counted.waits else "running",
            counters={name: count + now.get(name, 0) for name, count in counts.items()},
            error=counted.error if counted.error_us > (self._error_us or 0) else self._error,
            error_us=max(counted.error_us, self._error_us or 0) or None,
            restarts=self._restarts,
        )

    def _open(self) -> GatewaySession:
        self._session = session = self.gateway.open(self._log)
        self._address = session.address
        return session

    def _run(self) -> None:
        try:
            while not self._stop.is_set() or self._session is not None:
                began = time.monotonic()
                try:
                    session = self._session or self._open()
                    session.run(self._stop)
                    session.close()
                    return
                except Exception as error:  # of any library: shown, and retried
                    if time.monotonic() - began > WAIT_SECONDS_MAX:
                        self._failures = 0
                    self._failed(error)
                self._stop.wait(min(WAIT_SECONDS * 2 ** min(self._failures - 1, 10), WAIT_SECONDS_MAX))
        finally:
            self._ended.set()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._restarts += 1
        told = in_one_line(error)
        if told != self._error or self._failures == 1:
            logger.warning("gateway %s: %s", self.name, told)
        self._error, self._error_us = told, time.time_ns() // 1000
        if self._session is not None:
            with contextlib.suppress(Exception):  # what it failed of may make this fail, too
                self._session.close()
            with self._lock:
                self._before.add(**self._session.counters.to_json())
                self._session = None

    def _report(self) -> None:
        while not self._ended.is_set():
            self._reporter.write(self.status())
            self._ended.wait(REPORT_SECONDS)
        self._reporter.write(self.status())
        self._reporter.release()
